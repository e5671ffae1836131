//! What is due, one after the other, until all have ended.

use super::*;

impl World {
    /// Runs until all ranks have ended, or nothing happens any more.
    pub(crate) fn run(&mut self) {
        let end = Moment::ZERO + self.chaos.lasts + Duration::from_secs(120);
        while self.ended.len() < self.chaos.ranks || !self.ranks_here.is_empty() {
            let Some(Reverse((at, id))) = self.queue.pop() else {
                panic!("nothing happens any more: {}", self.stuck());
            };
            assert!(at <= end, "it does not end: {}", self.stuck());
            self.now = at;
            let due = self.due.remove(&id).unwrap();
            self.happen(due);
        }
    }

    pub(crate) fn stuck(&self) -> String {
        let facts: Vec<_> = self.ranks_here.values().map(|local| local.endpoint.facts()).collect();
        let ranks_here: Vec<_> = self
            .ranks_here
            .iter()
            .map(|(r, s)| {
                (r, s.host, s.frozen, s.packed.is_some(), s.to_agent.len(), s.to_program.len())
            })
            .collect();
        format!(
            "{facts:?}\n{ranks_here:?}\n{:?}\nended: {:?}\n{:?}",
            diagnose(&facts),
            self.ended,
            self.happened
        )
    }

    pub(super) fn happen(&mut self, due: Due) {
        match due {
            Due::Packet { host, from_host, packet } => self.packet_arrives(host, from_host, packet),
            Due::Local { host, packet } => self.reach(host, packet),
            Due::Step(rank) => self.step(rank),
            Due::Wake(rank) => self.wake(rank),
            Due::Place { host, rank } => {
                if let Some(&(fence, at)) = self.place.get(&rank) {
                    self.learn(host, rank, fence, at);
                }
            }
            Due::Answer { rank, request } => {
                let drawn = self.random.random();
                let count = *self.answers.entry((rank, request)).or_insert(drawn);
                let answer = Answer::Processors { count };
                self.tell(rank, Event::Answered { request, answer });
            }
            Due::Kept { rank, life, boundary, well } => {
                let there = self.ranks_here.get(&rank).is_some_and(|local| local.life == life);
                if there {
                    let event = if well { Event::Kept(boundary) } else { Event::NotKept(boundary) };
                    self.tell(rank, event);
                }
            }
            Due::Trouble => self.trouble(),
            Due::Arrive { rank, life, to } => self.arrive(rank, life, to),
            Due::Image { rank, life } => {
                if self.ranks_here.get(&rank).is_some_and(|local| local.life == life) {
                    self.image(rank);
                }
            }
            Due::Imaged { rank, life } => {
                if self.ranks_here.get(&rank).is_some_and(|local| local.life == life) {
                    self.imaged(rank);
                }
            }
            Due::PeerEnded { to, rank, run } => {
                if let Some((end, snapshot, sent, of)) = self.ended.get(&rank)
                    && *of == run
                {
                    let last = sent.iter().find(|(r, _)| *r == to).map_or(0, |(_, n)| *n);
                    let (end, snapshot) = (*end, *snapshot);
                    self.tell(to, Event::PeerEnded { rank, snapshot, end, last });
                }
            }
            Due::Cut { rank, snapshot, run } => {
                if run == self.run {
                    self.tell(rank, Event::Cut(snapshot));
                }
            }
            Due::CutKept { rank, snapshot, run } => {
                if run == self.run {
                    let now = self.now;
                    let event = coordinator::Event::Kept { rank, snapshot };
                    let effects = self.snapshots.handle(now, event);
                    self.snapshot_effects(effects);
                }
            }
            Due::Snapshots => {
                let now = self.now;
                if !self.is_calm() {
                    let effects = self.snapshots.wake(now);
                    if effects.is_empty() {
                        self.at_snapshots();
                    } else {
                        self.snapshot_effects(effects);
                    }
                }
            }
            Due::Heal { a, b } => self.heal(a, b),
        }
    }

    pub(super) fn wake(&mut self, rank: Rank) {
        let now = self.now;
        let Some(local) = self.ranks_here.get_mut(&rank) else { return };
        local.waking = None;
        let mut effects = std::mem::take(&mut self.effects);
        local.endpoint.wake(now, &mut effects);
        self.carry_out(rank, effects);
    }
}
