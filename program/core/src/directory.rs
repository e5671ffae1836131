//! Where the ranks of a job are, as one agent knows it.
//!
//! The promise: a frame reaches its rank after any number of moves. What is
//! known of a place is a hint with the fence of the attempt that is there;
//! the newest fence is right. Where the hint was wrong, the agent that was
//! asked forwards and tells; where nothing is known, the coordinator is asked
//! and the frame is dropped: its sender keeps it, and sends it again when the
//! place is known ([`Event::PeerAt`](crate::endpoint::Event::PeerAt)).

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::program::Life;

use crate::address::Rank;
use crate::wire::{Notice, Packet};

/// How often a packet is forwarded at most. Each hop follows a newer fence,
/// so only a rank that moves while its packets travel makes many.
pub const HOPS_MAX: u8 = 16;

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
    /// Nobody here knows; drop the frame. `ask`: ask the coordinator
    /// ([`Notice::WhereIs`]), which was not asked yet.
    Unknown {
        ask: bool,
    },
    /// Forwarded too often, or of another life of the program; drop it.
    Lost,
}

#[derive(Clone, Debug)]
pub struct Directory {
    job: JobId,
    life: Life,
    own: WorkstationId,
    known: BTreeMap<Rank, Known>,
    asked: BTreeSet<Rank>,
}

impl Directory {
    pub fn new(job: JobId, life: Life, own: WorkstationId) -> Self {
        Self { job, life, own, known: BTreeMap::new(), asked: BTreeSet::new() }
    }

    /// Learns a place; our own, too, when a rank begins or arrives here.
    /// `true`: it is news, and what was sent to the rank may have to be sent
    /// again.
    pub fn learn(&mut self, rank: Rank, fence: Fence, at: WorkstationId) -> bool {
        // A restored answer to our question counts even if it is no news.
        let asked = self.asked.remove(&rank);
        match self.known.get(&rank) {
            Some(known) if known.fence > fence => false,
            Some(known) if *known == (Known { fence, at }) => asked,
            Some(_) | None => {
                self.known.insert(rank, Known { fence, at });
                true
            }
        }
    }

    /// The rank's endpoint is not here any more, and nobody said where it
    /// begins again.
    pub fn lose(&mut self, rank: Rank) {
        if self.known.get(&rank).is_some_and(|known| known.at == self.own) {
            self.known.remove(&rank);
        }
    }

    /// The workstation is not to be reached any more: what was known of
    /// places there is doubted, and asked anew when it is needed.
    pub fn doubt(&mut self, workstation: WorkstationId) {
        if workstation != self.own {
            self.known.retain(|_, known| known.at != workstation);
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

    /// Where a packet goes that came from another workstation, and what its
    /// sender should know. Learns from it where the sender is.
    pub fn forward<P>(&mut self, packet: &mut Packet<P>) -> (Route, Option<Notice>) {
        if packet.life != self.life {
            return (Route::Lost, None);
        }
        self.learn(packet.from, packet.fence, packet.at);
        let route = self.route(packet.to);
        let Route::To(at) = route else { return (route, None) };
        if packet.hops >= HOPS_MAX {
            return (Route::Lost, None);
        }
        packet.hops += 1;
        let fence = self.known.get(&packet.to).map_or(Fence(0), |known| known.fence);
        (route, Some(Notice::Moved { job: self.job, rank: packet.to, fence, at }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Snapshot;
    use crate::wire::{Ack, PeerFrame};

    const LIFE: Life = Life(1);
    const OWN: WorkstationId = WorkstationId(1);
    const OTHER: WorkstationId = WorkstationId(2);
    const THIRD: WorkstationId = WorkstationId(3);

    fn directory() -> Directory {
        Directory::new(JobId(9), LIFE, OWN)
    }

    fn packet(to: Rank, hops: u8) -> Packet {
        let frame = PeerFrame::Ack { snapshot: Snapshot(0), ack: Ack::default() };
        Packet {
            job: JobId(9),
            life: LIFE,
            to,
            from: Rank(7),
            fence: Fence(70),
            at: OTHER,
            hops,
            frame,
        }
    }

    #[test]
    fn the_newest_attempt_says_where_a_rank_is() {
        let mut directory = directory();
        assert!(directory.learn(Rank(1), Fence(5), OTHER));
        assert!(!directory.learn(Rank(1), Fence(4), THIRD));
        assert_eq!(directory.route(Rank(1)), Route::To(OTHER));
        assert!(directory.learn(Rank(1), Fence(6), OWN));
        assert_eq!(directory.route(Rank(1)), Route::Here);
    }

    #[test]
    fn the_coordinator_is_asked_once_for_an_unknown_rank() {
        let mut directory = directory();
        assert_eq!(directory.route(Rank(1)), Route::Unknown { ask: true });
        assert_eq!(directory.route(Rank(1)), Route::Unknown { ask: false });
        assert!(directory.learn(Rank(1), Fence(5), OTHER));
        directory.doubt(OTHER);
        assert_eq!(directory.route(Rank(1)), Route::Unknown { ask: true });
        assert!(directory.learn(Rank(1), Fence(5), OTHER), "the answer counts");
    }

    #[test]
    fn a_rank_that_is_not_here_any_more_is_asked_for() {
        let mut directory = directory();
        directory.learn(Rank(1), Fence(5), OWN);
        directory.lose(Rank(1));
        assert_eq!(directory.forward(&mut packet(Rank(1), 0)).0, Route::Unknown { ask: true });
        directory.learn(Rank(1), Fence(6), THIRD);
        directory.lose(Rank(1));
        assert_eq!(directory.route(Rank(1)), Route::To(THIRD));
    }

    #[test]
    fn what_came_to_the_wrong_place_is_forwarded_and_its_sender_told() {
        let mut directory = directory();
        directory.learn(Rank(1), Fence(5), OWN);
        assert_eq!(directory.forward(&mut packet(Rank(1), 0)), (Route::Here, None));
        directory.learn(Rank(1), Fence(6), THIRD);
        let mut late = packet(Rank(1), 0);
        let moved = Notice::Moved { job: JobId(9), rank: Rank(1), fence: Fence(6), at: THIRD };
        assert_eq!(directory.forward(&mut late), (Route::To(THIRD), Some(moved)));
        assert_eq!(late.hops, 1);
        assert_eq!(directory.route(Rank(7)), Route::To(OTHER), "the sender's place is learned");
    }

    #[test]
    fn a_packet_of_another_life_goes_nowhere() {
        let mut directory = directory();
        directory.learn(Rank(1), Fence(5), OWN);
        let mut old = Packet { life: Life(0), ..packet(Rank(1), 0) };
        assert_eq!(directory.forward(&mut old), (Route::Lost, None));
        assert_eq!(directory.route(Rank(7)), Route::Unknown { ask: true }, "nothing is learned");
    }

    #[test]
    fn a_packet_does_not_travel_for_ever() {
        let mut directory = directory();
        directory.learn(Rank(1), Fence(5), THIRD);
        assert_eq!(directory.forward(&mut packet(Rank(1), HOPS_MAX)), (Route::Lost, None));
    }
}
