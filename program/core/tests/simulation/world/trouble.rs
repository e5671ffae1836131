//! What befalls: moves, rollbacks, images, partitions and deaths.

use super::*;

impl World {
    pub(super) fn trouble(&mut self) {
        if self.is_calm() {
            let cut = std::mem::take(&mut self.cut);
            for (a, b) in cut {
                self.heal(a, b);
            }
            return;
        }
        let us = self.random.random_range(1..self.chaos.every_us);
        self.after(us, Due::Trouble);
        let ranks: Vec<Rank> = self.ranks_here.keys().copied().collect();
        let Some(&rank) = ranks.get(self.random.random_range(0..ranks.len().max(1))) else {
            return;
        };
        match self.random.random_range(0..6) {
            0 | 1 if self.chaos.moves => self.move_away(rank),
            2 if self.chaos.rollbacks => self.roll_back(rank),
            3 if self.chaos.rollbacks && self.chaos.log_bytes_max > 0 => self.image(rank),
            4 if self.chaos.partitions => self.partition(),
            5 if self.chaos.crashes && self.random.random_bool(0.1) => self.crash(),
            _ => {}
        }
    }

    pub(super) fn partition(&mut self) {
        let a = self.random.random_range(0..self.chaos.hosts);
        let b = self.random.random_range(0..self.chaos.hosts);
        if a != b && self.cut.insert((a.min(b), a.max(b))) {
            self.note("partition");
            let us = self.random.random_range(100..50_000);
            self.after(us, Due::Heal { a: a.min(b), b: a.max(b) });
        }
    }

    pub(super) fn heal(&mut self, a: usize, b: usize) {
        self.cut.remove(&(a, b));
        for (here, there) in [(a, b), (b, a)] {
            for peer in self.ranks_at(there) {
                for rank in self.ranks_at(here) {
                    self.tell(rank, Event::PeerAt(peer));
                }
            }
        }
    }

    /// Freezes the process, and handles what it had written.
    pub(super) fn freeze(&mut self, rank: Rank) -> Vec<u8> {
        self.ranks_here.get_mut(&rank).unwrap().frozen = true;
        self.drain(rank);
        let local = self.ranks_here.get_mut(&rank).unwrap();
        let mut rest = vec![];
        local.to_program.iter().for_each(|frame| encode_whole(frame, &mut rest).unwrap());
        rest
    }

    pub(super) fn refill(&mut self, rank: Rank, rest: Vec<u8>) {
        let mut reader = FrameReader::with_rest(rest);
        let local = self.ranks_here.get_mut(&rank).unwrap();
        local.to_program.clear();
        while let Some(frame) = reader.next_frame().unwrap() {
            local.to_program.push_back(frame);
        }
    }

    pub(super) fn move_away(&mut self, rank: Rank) {
        let local = &self.ranks_here[&rank];
        let running = local.program.as_ref().is_some_and(|program| !program.is_over());
        if local.frozen || local.packed.is_some() || !running || local.endpoint.is_ended() {
            return;
        }
        self.note("move");
        let to_program = self.freeze(rank);
        let rest = PipeRest { to_program, from_program: vec![] };
        let local = self.ranks_here.get_mut(&rank).unwrap();
        local.packed = Some(local.endpoint.pack(&rest));
        let life = local.life;
        let to = self.random.random_range(0..self.chaos.hosts);
        let us = self.random.random_range(10..20_000);
        self.after(us, Due::Arrive { rank, life, to });
    }

    pub(super) fn arrive(&mut self, rank: Rank, life: u64, to: usize) {
        let stays = self.random.random_bool(0.2);
        let fence = self.new_fence();
        let Some(local) = self.ranks_here.get_mut(&rank).filter(|local| local.life == life) else {
            return;
        };
        let Some(bytes) = local.packed.take() else { return };
        local.frozen = false;
        if stays {
            self.note("stay");
            self.tell(rank, Event::Stayed);
        } else {
            let (endpoint, rest) = Endpoint::unpack(&bytes, fence).unwrap();
            let from = std::mem::replace(&mut local.host, to);
            local.endpoint = endpoint;
            local.waking = None;
            self.refill(rank, rest.to_program);
            self.learn(from, rank, fence, to);
            self.placed(rank, fence, to);
            self.tell(rank, Event::Arrived);
        }
        self.tell_ended(rank);
        self.step_soon(rank);
    }

    /// What a rank may have missed while it was away.
    pub(super) fn tell_ended(&mut self, rank: Rank) {
        let run = self.run;
        for ended in self.ended.keys().copied().collect::<Vec<_>>() {
            self.after(1, Due::PeerEnded { to: rank, rank: ended, run });
        }
    }

    pub(super) fn roll_back(&mut self, rank: Rank) {
        let local = self.ranks_here.get_mut(&rank).unwrap();
        if local.frozen || local.packed.is_some() || local.endpoint.is_ended() {
            return;
        }
        let Some((boundary, back)) = local.endpoint.way_back() else { return };
        local.life += 1;
        // Some of what it wrote is handled, the rest is lost with it.
        for _ in 0..self.random.random_range(0..4) {
            let Some(frame) = self.ranks_here.get_mut(&rank).and_then(|s| s.to_agent.pop_front())
            else {
                break;
            };
            self.tell(rank, Event::FromProgram(frame));
        }
        // What was handled may have been a boundary, or too much.
        let now = self.ranks_here.get(&rank).and_then(|local| local.endpoint.way_back());
        if now != Some((boundary, back)) {
            return self.step_soon(rank);
        }
        self.go_back_to(rank, boundary, back);
        // And elsewhere, often.
        if self.random.random_bool(0.7) {
            let fence = self.new_fence();
            let to = self.random.random_range(0..self.chaos.hosts);
            let local = self.ranks_here.get_mut(&rank).unwrap();
            let bytes = local.endpoint.pack(&PipeRest::default());
            local.endpoint = Endpoint::unpack(&bytes, fence).unwrap().0;
            let from = std::mem::replace(&mut local.host, to);
            self.learn(from, rank, fence, to);
            self.placed(rank, fence, to);
            self.tell(rank, Event::Arrived);
            self.tell_ended(rank);
        }
    }

    pub(super) fn go_back_to(&mut self, rank: Rank, boundary: Boundary, back: Back) {
        if back == Back::Image {
            self.note("back to an image");
            let Image { program, rest } = self.store.images[&(rank, boundary)].clone();
            let local = self.ranks_here.get_mut(&rank).unwrap();
            local.program = Some(program);
            local.to_agent.clear();
            local.frozen = false;
            self.refill(rank, rest);
        } else {
            self.note("back to a state");
            self.begin_process(rank);
        }
        self.tell(rank, Event::RolledBack(back));
        self.step_soon(rank);
    }

    /// Takes an image of a process, as a boundary or for a snapshot. That takes
    /// a while, and others do not stand still.
    pub(super) fn image(&mut self, rank: Rank) {
        let Some(local) = self.ranks_here.get(&rank) else { return };
        let running = local.program.as_ref().is_some_and(|program| !program.is_over());
        if local.packed.is_some() || local.endpoint.is_ended() || !running {
            let because = "it is not there".to_owned();
            return self.tell(rank, Event::NotImaged { because });
        }
        if local.frozen {
            // The one that is being taken is the answer.
            return;
        }
        self.note("image");
        let rest = self.freeze(rank);
        let local = self.ranks_here.get_mut(&rank).unwrap();
        let program = local.program.clone().unwrap();
        let (next, life) = (local.endpoint.next_boundary(), local.life);
        self.store.images.insert((rank, next), Image { program, rest });
        self.tell(rank, Event::ImageBegun);
        let us = self.random.random_range(1..5_000);
        self.after(us, Due::Imaged { rank, life });
    }

    pub(super) fn imaged(&mut self, rank: Rank) {
        self.ranks_here.get_mut(&rank).unwrap().frozen = false;
        if self.random.random_bool(0.1) {
            let because = "it holds a socket".to_owned();
            self.tell(rank, Event::NotImaged { because });
        } else {
            self.tell(rank, Event::Imaged);
        }
        self.step_soon(rank);
    }

    pub(super) fn crash(&mut self) {
        let host = self.random.random_range(0..self.chaos.hosts);
        let Some(&rank) = self.ranks_at(host).first() else { return };
        self.note("crash");
        let now = self.now;
        let effects = self.snapshots.handle(now, coordinator::Event::Lost(rank));
        self.snapshot_effects(effects);
    }
}
