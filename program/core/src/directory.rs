//! Where the ranks of a job are, as one agent knows it.
//!
//! The promises: a frame reaches its rank after any number of moves, and no
//! agent speaks for a rank that it does not have. Places come from the
//! coordinator alone, with the fence of the attempt that is there; the newest
//! fence is right. A packet counts only if it comes from where the coordinator
//! says that its sender's attempt is. One that finds its rank gone is dropped:
//! its sender keeps it, and sends it again when the coordinator has told of the
//! new place ([`Event::PeerAt`](crate::endpoint::Event::PeerAt)).

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{Fence, WorkstationId};
use gleaner_common::program::Life;

use crate::address::Rank;
use crate::wire::Packet;

/// What is known of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    fence: Fence,
    at: WorkstationId,
}

/// Where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the endpoint here.
    Here,
    To(WorkstationId),
    /// Nobody here knows; drop the frame. `ask`: ask the coordinator, which was
    /// not asked yet.
    Unknown {
        ask: bool,
    },
}

/// What becomes of a packet that another agent has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is for the endpoint here.
    Here,
    /// The coordinator has not told of its sender's attempt yet: keep it until
    /// it has.
    Early,
    /// Its rank is not here. Drop it; the coordinator tells its sender where the
    /// rank is.
    Elsewhere,
    /// It is of another life of the program, or of an attempt that is over. Drop
    /// it.
    Late,
    /// Its sender's attempt is not where it came from: somebody speaks for a
    /// rank of another. Drop it.
    Forged,
}

#[derive(Clone, Debug)]
pub struct Directory {
    life: Life,
    own: WorkstationId,
    known: BTreeMap<Rank, Known>,
    asked: BTreeSet<Rank>,
}

impl Directory {
    pub fn new(life: Life, own: WorkstationId) -> Self {
        Self { life, own, known: BTreeMap::new(), asked: BTreeSet::new() }
    }

    /// Learns a place from the coordinator; our own, too, when a rank begins or
    /// arrives here.
    /// `true`: it is news, and what was sent to the rank may have to be sent
    /// again.
    pub fn learn(&mut self, rank: Rank, fence: Fence, at: WorkstationId) -> bool {
        self.asked.remove(&rank);
        let is_news = self
            .known
            .get(&rank)
            .is_none_or(|known| known.fence < fence || known.fence == fence && known.at != at);
        if is_news {
            self.known.insert(rank, Known { fence, at });
        }
        is_news
    }

    /// The rank's endpoint is not here any more, and nobody said where it
    /// begins again.
    pub fn lose(&mut self, rank: Rank) {
        if self.known.get(&rank).is_some_and(|known| known.at == self.own) {
            self.known.remove(&rank);
        }
    }

    /// The ranks that are known to be at this workstation.
    pub fn at(&self, workstation: WorkstationId) -> impl Iterator<Item = Rank> {
        self.known.iter().filter(move |(_, known)| known.at == workstation).map(|(rank, _)| *rank)
    }

    /// The ranks that are known to be at other workstations.
    pub fn elsewhere(&self) -> impl Iterator<Item = Rank> {
        let own = self.own;
        self.known.iter().filter(move |(_, known)| known.at != own).map(|(rank, _)| *rank)
    }

    /// Where a frame of a rank of ours goes.
    pub fn route(&mut self, to: Rank) -> Route {
        match self.known.get(&to) {
            Some(known) if known.at == self.own => Route::Here,
            Some(known) => Route::To(known.at),
            None => Route::Unknown { ask: self.asked.insert(to) },
        }
    }

    /// Is this attempt of the rank there, as the coordinator has told?
    pub fn is_at(&self, rank: Rank, fence: Fence, at: WorkstationId) -> bool {
        self.known.get(&rank) == Some(&Known { fence, at })
    }

    /// Checks a packet that came from the agent of this workstation.
    pub fn take<P>(&self, packet: &Packet<P>, peer: WorkstationId) -> Taken {
        let Some(sender) = self.known.get(&packet.from) else {
            return if packet.life == self.life { Taken::Early } else { Taken::Late };
        };
        if packet.life != self.life || packet.fence < sender.fence {
            Taken::Late
        } else if packet.fence > sender.fence {
            Taken::Early
        } else if sender.at != peer {
            Taken::Forged
        } else if self.known.get(&packet.to).is_some_and(|known| known.at == self.own) {
            Taken::Here
        } else {
            Taken::Elsewhere
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::JobId;

    use super::*;
    use crate::address::Snapshot;
    use crate::wire::{Ack, PeerFrame};

    const LIFE: Life = Life(1);
    const OWN: WorkstationId = WorkstationId(1);
    const OTHER: WorkstationId = WorkstationId(2);
    const THIRD: WorkstationId = WorkstationId(3);

    fn directory() -> Directory {
        Directory::new(LIFE, OWN)
    }

    fn packet(to: Rank) -> Packet {
        let frame = PeerFrame::Ack { snapshot: Snapshot(0), ack: Ack::default() };
        Packet { job: JobId(9), life: LIFE, to, from: Rank(7), fence: Fence::of(70), frame }
    }

    #[test]
    fn the_newest_attempt_says_where_a_rank_is() {
        let mut directory = directory();
        assert!(directory.learn(Rank(1), Fence::of(5), OTHER));
        assert!(!directory.learn(Rank(1), Fence::of(4), THIRD));
        assert_eq!(directory.route(Rank(1)), Route::To(OTHER));
        assert!(directory.learn(Rank(1), Fence::of(6), OWN));
        assert_eq!(directory.route(Rank(1)), Route::Here);
    }

    #[test]
    fn the_coordinator_is_asked_once_for_an_unknown_rank() {
        let mut directory = directory();
        assert_eq!(directory.route(Rank(1)), Route::Unknown { ask: true });
        assert_eq!(directory.route(Rank(1)), Route::Unknown { ask: false });
        assert!(directory.learn(Rank(1), Fence::of(5), OTHER));
        assert_eq!(directory.route(Rank(1)), Route::To(OTHER));
    }

    #[test]
    fn a_rank_that_is_not_here_any_more_is_asked_for() {
        let mut directory = directory();
        directory.learn(Rank(7), Fence::of(70), OTHER);
        directory.learn(Rank(1), Fence::of(5), OWN);
        directory.lose(Rank(1));
        assert_eq!(directory.take(&packet(Rank(1)), OTHER), Taken::Elsewhere);
        assert_eq!(directory.route(Rank(1)), Route::Unknown { ask: true });
        directory.learn(Rank(1), Fence::of(6), THIRD);
        directory.lose(Rank(1));
        assert_eq!(directory.route(Rank(1)), Route::To(THIRD));
        assert_eq!(directory.take(&packet(Rank(1)), OTHER), Taken::Elsewhere);
    }

    #[test]
    fn a_packet_counts_where_the_coordinator_says_that_its_sender_is_and_nowhere_else() {
        let mut directory = directory();
        directory.learn(Rank(1), Fence::of(5), OWN);
        assert_eq!(directory.take(&packet(Rank(1)), OTHER), Taken::Early, "nothing was told");
        assert_eq!(directory.route(Rank(7)), Route::Unknown { ask: true }, "nothing is learned");
        directory.learn(Rank(7), Fence::of(69), OTHER);
        assert_eq!(directory.take(&packet(Rank(1)), OTHER), Taken::Early, "of an older attempt");
        directory.learn(Rank(7), Fence::of(70), OTHER);
        assert_eq!(directory.take(&packet(Rank(1)), OTHER), Taken::Here);
        assert_eq!(directory.take(&packet(Rank(1)), THIRD), Taken::Forged);
        directory.learn(Rank(7), Fence::of(71), THIRD);
        for peer in [OTHER, THIRD] {
            assert_eq!(directory.take(&packet(Rank(1)), peer), Taken::Late, "it has moved");
        }
    }

    #[test]
    fn a_packet_of_another_life_goes_nowhere() {
        let mut directory = directory();
        directory.learn(Rank(1), Fence::of(5), OWN);
        directory.learn(Rank(7), Fence::of(70), OTHER);
        for life in [Life(0), Life(2)] {
            let other = Packet { life, ..packet(Rank(1)) };
            assert_eq!(directory.take(&other, OTHER), Taken::Late);
        }
    }
}
