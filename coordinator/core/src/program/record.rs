//! A program's journal: what its events are as bytes.
//!
//! The promise: these types are the format, and what is read is checked before
//! it is believed. Postcard writes by position: whatever changes here, or in a
//! type that is named here, raises [`VERSION`]: the bytes stand in a test.

use std::collections::{BTreeMap, VecDeque};

use gleaner_common::id::{ContentHash, Fence};
use gleaner_program_core::address::{Rank, Request, Snapshot};
use gleaner_program_core::bag::PackedBag;
use gleaner_program_core::facts::End;
use gleaner_program_core::wire::{Answer, Ask};
use serde::{Deserialize, Serialize};

/// The version of an event, which comes first in its bytes.
const VERSION: u16 = 3;

/// Ranks that began together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) parent: Option<Rank>,
}

/// A rank that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) snapshot: Snapshot,
    /// The number of its last message piece to each rank.
    pub(crate) sent: Vec<(Rank, u64)>,
    /// No other rank lacks a message of it.
    pub(crate) drained: bool,
}

impl Ended {
    /// Did it do what it was to do?
    pub(super) fn is_well(&self) -> bool {
        matches!(self.end, End::ExitCode(0) | End::Left)
    }

    pub(crate) fn last_to(&self, to: Rank) -> u64 {
        self.sent.iter().find(|(rank, _)| *rank == to).map_or(0, |(_, last)| *last)
    }
}

/// A snapshot to go back to, and what was true of the program then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whole {
    pub(crate) snapshot: Snapshot,
    pub(crate) parts: BTreeMap<Rank, ContentHash>,
    pub(super) groups: Vec<Group>,
    pub(super) ended: BTreeMap<Rank, Ended>,
    pub(super) spawned: BTreeMap<Rank, VecDeque<(Request, Answer)>>,
    pub(super) negotiator: Option<Rank>,
}

impl Whole {
    pub(crate) fn hashes(&self) -> Vec<ContentHash> {
        self.parts.values().copied().collect()
    }
}

/// What is true of a program when a life begins, and as it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramState {
    /// The fences of this life are at least this.
    pub(crate) floor: Fence,
    /// Lives before this one that a failure ended.
    pub(crate) failures: u32,
    pub(crate) groups: Vec<Group>,
    pub(crate) ended: BTreeMap<Rank, Ended>,
    /// The newest snapshot that was begun.
    pub(crate) newest: Snapshot,
    /// The newest snapshot to go back to, if there is one. A life that does
    /// not begin at the start begins with it.
    pub(crate) whole: Option<Whole>,
}

/// What ranks have asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The newest question to the bag of each rank, and of those, the newest
    /// of a process that is gone.
    pub(super) questions: BTreeMap<Rank, Request>,
    pub(super) void: BTreeMap<Rank, Request>,
    /// The last answers of their kind: a question may come again.
    pub(super) spawned: BTreeMap<Rank, VecDeque<(Request, Answer)>>,
    /// Who speaks for the program: the last rank that said so.
    pub(super) negotiator: Option<Rank>,
}

/// What happened to a program: written down before anybody hears of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Happened {
    Began(Box<ProgramState>),
    Asked {
        rank: Rank,
        request: Request,
        ask: Ask,
    },
    Gone {
        rank: Rank,
        lost: bool,
    },
    Spawned {
        by: Rank,
        request: Request,
        first: Rank,
        count: u32,
    },
    Ended {
        rank: Rank,
        end: End,
        snapshot: Snapshot,
        sent: Vec<(Rank, u64)>,
    },
    Drained(Rank),
    CutBegan(Snapshot),
    Whole {
        snapshot: Snapshot,
        parts: BTreeMap<Rank, ContentHash>,
    },
    Grew {
        first: Rank,
        count: u32,
    },
    /// All that had happened so far in this life: a journal begins anew.
    AllThis(Box<PackedPast>),
    Negotiates(Rank),
}

/// The form in which a [`Past`](super::Past) is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PackedPast {
    pub(super) state: ProgramState,
    pub(super) base: Option<Snapshot>,
    pub(super) bag: PackedBag,
    pub(super) asked: Asked,
}

impl Happened {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let written = postcard::to_stdvec(&(VERSION, self));
        written.unwrap_or_else(|error| unreachable!("an event that does not serialise: {error}"))
    }

    /// `None` if the bytes are no event, or one of another version.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = postcard::take_from_bytes::<u16>(bytes).ok()?;
        if version != VERSION {
            return None;
        }
        postcard::from_bytes(rest).ok()
    }
}

#[cfg(test)]
mod tests;
