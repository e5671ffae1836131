//! What one program's ranks here have in common: where the others are.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::program::Life;
use gleaner_program_core::address::Rank;
use gleaner_program_core::directory::Directory;

use super::slabs::Slabs;

/// The most workstations that are told when a rank begins for which they had
/// something already.
const EARLY_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct Program {
    pub(super) life: Life,
    pub(super) directory: Directory,
    /// The ranks here, by their attempts.
    pub(super) here: BTreeMap<Rank, Fence>,
    /// Who had a packet for a rank that had not begun.
    early: BTreeSet<(Rank, WorkstationId)>,
    /// Where its messages lie.
    pub(super) slabs: Slabs,
}

impl Program {
    pub(super) fn new(job: JobId, life: Life, own: WorkstationId) -> Self {
        Self {
            life,
            directory: Directory::new(job, life, own),
            here: BTreeMap::new(),
            early: BTreeSet::new(),
            slabs: Slabs::default(),
        }
    }

    /// A packet came too early, or too late.
    pub(super) fn missed(&mut self, rank: Rank, from: WorkstationId) {
        if self.early.len() < EARLY_MAX {
            self.early.insert((rank, from));
        }
    }

    /// Who is to be told that the rank is here now.
    pub(super) fn take_early(&mut self, rank: Rank) -> Vec<WorkstationId> {
        let of = |(missed, _): &(Rank, WorkstationId)| *missed == rank;
        self.early.extract_if(.., of).map(|(_, from)| from).collect()
    }
}
