//! What one program's ranks here have in common: where the others are.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{Fence, WorkstationId};
use gleaner_common::program::Life;
use gleaner_program_core::address::Rank;
use gleaner_program_core::directory::Directory;
use gleaner_program_core::wire::Packet;

use super::Peer;

/// The most workstations that are told when a rank begins for which they had
/// something already.
const MISSED_MAX: usize = 1_024;

/// The most packets that wait until the coordinator tells where their sender
/// is, and the most of one agent: no stranger takes all of the room. What comes
/// on top is sent again.
const EARLY_MAX: usize = 256;
const EARLY_OF_ONE_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Program<L> {
    pub(super) life: Life,
    pub(super) directory: Directory,
    /// The ranks here, by their attempts.
    pub(super) here: BTreeMap<Rank, Fence>,
    /// Who had a packet for a rank that had not begun.
    missed: BTreeSet<(Rank, WorkstationId)>,
    /// Packets of attempts of which the coordinator has not told yet.
    early: Vec<(Peer, Packet)>,
    /// How many packets spoke for a rank of another.
    forged: u64,
    /// Where its messages lie.
    pub(super) slabs: L,
}

impl<L: Default> Program<L> {
    pub(super) fn new(life: Life, own: WorkstationId) -> Self {
        Self {
            life,
            directory: Directory::new(life, own),
            here: BTreeMap::new(),
            missed: BTreeSet::new(),
            early: vec![],
            forged: 0,
            slabs: L::default(),
        }
    }

    /// A packet found its rank not here.
    pub(super) fn missed(&mut self, rank: Rank, from: WorkstationId) {
        if self.missed.len() < MISSED_MAX {
            self.missed.insert((rank, from));
        }
    }

    /// Who is to be told that the rank is here now.
    pub(super) fn take_missed(&mut self, rank: Rank) -> Vec<WorkstationId> {
        let of = |(missed, _): &(Rank, WorkstationId)| *missed == rank;
        self.missed.extract_if(.., of).map(|(_, from)| from).collect()
    }

    /// Keeps a packet until the coordinator has told where its sender is.
    pub(super) fn keep_early(&mut self, from: &Peer, packet: Packet) {
        let of_theirs = self.early.iter().filter(|(peer, _)| peer == from).count();
        if self.early.len() < EARLY_MAX && of_theirs < EARLY_OF_ONE_MAX {
            self.early.push((from.clone(), packet));
        }
    }

    /// How many packets wait, and how many spoke for a rank of another.
    pub(super) fn early_and_forged(&self) -> (usize, u64) {
        (self.early.len(), self.forged)
    }

    /// The coordinator has told of places: what waited may count now.
    pub(super) fn take_early(&mut self) -> Vec<(Peer, Packet)> {
        std::mem::take(&mut self.early)
    }

    /// Somebody speaks for a rank of another: how often by now, if that is to be
    /// said. It is said now and then.
    pub(super) fn count_forged(&mut self) -> Option<u64> {
        self.forged += 1;
        Some(self.forged).filter(|times| times.is_power_of_two())
    }
}
