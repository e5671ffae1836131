//! The coordinator's side of snapshots, and all going back to one.

use super::*;

impl World {
    pub(super) fn snapshot_effects(&mut self, effects: Vec<coordinator::Effect>) {
        let run = self.run;
        for effect in effects {
            match effect {
                coordinator::Effect::Cut(snapshot) => {
                    for rank in 0..self.chaos.ranks as u32 {
                        let us = self.random.random_range(1..5_000);
                        self.after(us, Due::Cut { rank: Rank(rank), snapshot, run });
                    }
                }
                coordinator::Effect::Whole(_) => self.note("snapshot"),
                coordinator::Effect::Forget(snapshot) => {
                    self.store.cuts.retain(|(of, _), _| *of != snapshot);
                }
                coordinator::Effect::GoBack(snapshot) => self.all_back(snapshot),
            }
        }
        self.at_snapshots();
    }

    pub(super) fn at_snapshots(&mut self) {
        if self.chaos.snapshots
            && let Some(at) = self.snapshots.deadline()
        {
            self.at(at, Due::Snapshots);
        }
    }

    pub(super) fn all_back(&mut self, snapshot: Option<Snapshot>) {
        self.run += 1;
        self.floor = Fence::of(self.fence + 1);
        for (rank, local) in &self.ranks_here {
            self.hosts[local.host].lose(*rank);
        }
        let lives: BTreeMap<Rank, u64> =
            self.ranks_here.iter().map(|(r, s)| (*r, s.life)).collect();
        if let Some(snapshot) = snapshot {
            self.note("all back to a snapshot");
            self.ended.retain(|_, (_, at, ..)| *at < snapshot);
        } else {
            self.note("all back to the start");
            self.ended.clear();
            self.answers.clear();
        }
        let run = self.run;
        self.ended.values_mut().for_each(|ended| ended.3 = run);
        for rank in (0..self.chaos.ranks as u32).map(Rank) {
            match snapshot {
                None => self.begin(rank),
                Some(snapshot) => self.restore(rank, snapshot),
            }
            if let (Some(life), Some(local)) = (lives.get(&rank), self.ranks_here.get_mut(&rank)) {
                local.life = life + 1_000;
            }
        }
        for rank in self.ranks_here.keys().copied().collect::<Vec<_>>() {
            self.tell_ended(rank);
            self.step_soon(rank);
        }
        let now = self.now;
        let effects = self.snapshots.handle(now, coordinator::Event::WentBack);
        self.snapshot_effects(effects);
    }

    pub(super) fn restore(&mut self, rank: Rank, snapshot: Snapshot) {
        let Some((bytes, boundary)) = self.store.cuts.get(&(snapshot, rank)).cloned() else {
            // It had ended, and nobody lacked anything of it.
            self.ranks_here.remove(&rank);
            assert!(self.ended.contains_key(&rank), "{rank} is missing");
            return;
        };
        let fence = self.new_fence();
        self.put_rank(rank, Endpoint::restore(&bytes, fence, self.floor).unwrap());
        self.tell(rank, Event::Arrived);
        if self.ranks_here.get(&rank).is_some_and(|local| !local.endpoint.is_ended()) {
            let way = self.ranks_here[&rank].endpoint.way_back();
            let (at, back) = way.expect("a cut has a boundary");
            assert_eq!(at, boundary);
            self.go_back_to(rank, boundary, back);
        }
    }
}
