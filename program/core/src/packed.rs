//! A rank's endpoint as bytes: what travels when it moves, and its part of a
//! snapshot.
//!
//! The promise: these types are the format. The core keeps what it likes and
//! is converted from and to them; what can be computed from the rest is not in
//! them, and so cannot contradict it. What comes from outside is checked before
//! it is an [`Endpoint`](crate::endpoint::Endpoint). Knows nothing of moves.
//!
//! Postcard writes by position. Whatever changes here, or in a type that is
//! named here, raises [`VERSION`]: the bytes of every version stand in a test.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use gleaner_common::id::Fence;
use serde::{Deserialize, Serialize};

use crate::address::{Boundary, Envelope, Inside, Rank, Request, Snapshot};
use crate::endpoint::Config;
use crate::facts::End;
use crate::wire::{Answer, Ask, Unreceived, Wait};

/// The version of a packed endpoint, which comes first in its bytes. Version 1
/// was whatever the core's own fields were; 2 knew no negotiations.
pub(crate) const VERSION: u16 = 4;

/// No counter comes as far in earnest; beyond it, sums could overflow.
pub(crate) const COUNT_MAX: u64 = 1 << 60;

/// What was in a frozen program's pipes and has to be there again when its
/// process goes on elsewhere, before anything newer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeRest {
    /// Written by the agent and not read by the program, from the middle of a
    /// frame on if need be.
    pub to_program: Vec<u8>,
    /// The beginning of a frame that the program had not written to its end.
    pub from_program: Vec<u8>,
}

/// Why bytes are not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    #[error("an endpoint of version {theirs}: expected {VERSION}")]
    Version { theirs: u16 },
    #[error("an endpoint that does not read: {0}")]
    Malformed(postcard::Error),
    #[error("an endpoint that contradicts itself: {0}")]
    Inconsistent(&'static str),
}

/// An endpoint without its clock, its window and its attempt, which it gets anew
/// where it is unpacked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PackedEndpoint {
    pub(crate) config: Config,
    pub(crate) presence: Presence,
    pub(crate) peers: BTreeMap<Rank, PackedPeer>,
    pub(crate) log: PackedLog,
    pub(crate) snapshot: Snapshot,
    pub(crate) cutting: Option<Snapshot>,
    pub(crate) deferred: Vec<(Rank, Snapshot, (End, u64))>,
    pub(crate) boundary: Option<Mark>,
    pub(crate) pending: Option<Mark>,
    pub(crate) boundaries: u64,
    pub(crate) asked: Request,
    pub(crate) program_asked: Request,
    pub(crate) former: Request,
    pub(crate) open: BTreeMap<Request, Ask>,
    pub(crate) frames: u64,
    pub(crate) wait: Option<Wait>,
    pub(crate) at_boundary: bool,
    pub(crate) unreceived: Vec<Unreceived>,
}

/// How the rank's process is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Presence {
    /// No process has said `Hello` yet.
    Absent,
    Present,
    /// The program did what it must not; its process is being ended.
    Broken,
    Ended {
        end: End,
        drained: bool,
    },
}

/// What an endpoint keeps about one other rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PackedPeer {
    pub(crate) outgoing: PackedOutgoing,
    pub(crate) incoming: PackedIncoming,
    pub(crate) fence: Fence,
    pub(crate) end: Option<(End, u64)>,
    pub(crate) gone: bool,
    pub(crate) told_gone: bool,
    pub(crate) progress: Progress,
    pub(crate) remembered: VecDeque<u32>,
    pub(crate) remembered_from: u64,
}

/// The sending half. The costs of what is kept follow from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PackedOutgoing {
    pub(crate) queue: VecDeque<Piece>,
    pub(crate) acked: u64,
    pub(crate) sent: u64,
    pub(crate) acked_cost: u64,
    pub(crate) limit: u64,
}

/// A piece of a message that has not arrived yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) envelope: Envelope,
    pub(crate) payload: Bytes,
}

/// The receiving half. What waits for the program follows from the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PackedIncoming {
    pub(crate) received: u64,
    pub(crate) received_cost: u64,
    pub(crate) told_cost: u64,
    pub(crate) told_limit: u64,
    pub(crate) said_lost: Option<u64>,
    pub(crate) skipped: bool,
    pub(crate) message: u64,
}

/// How far the program has come with one other rank: what a boundary keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The number of the last piece it sent.
    pub(crate) last: u64,
    /// Costs since its process began: sent, and allowed to be sent.
    pub(crate) sent: u64,
    pub(crate) room: u64,
    /// Costs since its process began: given to it, and taken by it.
    pub(crate) given: u64,
    pub(crate) took: u64,
    pub(crate) inside: Inside,
}

/// What was delivered. Its bytes follow from its entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PackedLog {
    pub(crate) entries: VecDeque<Entry>,
    pub(crate) last: u64,
    pub(crate) given: u64,
    pub(crate) saves: u64,
    pub(crate) said: bool,
    pub(crate) given_up: bool,
}

/// One delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    /// The number of the first piece of its message.
    pub(crate) message: u64,
    pub(crate) what: What,
    /// Received by the program, after so many saves. Never said of answers.
    pub(crate) matched: Option<u64>,
}

/// What is delivered to a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum What {
    Piece { from: Rank, envelope: Envelope, payload: Bytes },
    Answer { request: Request, answer: Answer },
}

/// Where a program was at a boundary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) boundary: Boundary,
    pub(crate) kind: MarkKind,
    /// Had the process said `Hello`, and did it stand at a boundary?
    pub(crate) present: bool,
    pub(crate) stood: bool,
    /// The log's number of saves.
    pub(crate) save: u64,
    pub(crate) given: u64,
    pub(crate) asked: Request,
    pub(crate) frames: u64,
    pub(crate) peers: BTreeMap<Rank, Progress>,
}

/// What a program goes back to at a boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MarkKind {
    /// A process's beginning, from nothing.
    #[default]
    Start,
    /// A state that the program saved.
    Saved,
    /// An image of the process.
    Image,
}

/// The bytes of a packed endpoint, its version first, with what was in its
/// program's pipes.
pub(crate) fn encode(packed: &PackedEndpoint, rest: &PipeRest) -> Vec<u8> {
    let written = postcard::to_stdvec(&VERSION)
        .and_then(|version| postcard::to_extend(&(packed, rest), version));
    written.unwrap_or_else(|error| unreachable!("an endpoint that does not serialise: {error}"))
}

/// Reads what [`encode`] wrote. Nothing is believed of it but its form.
pub(crate) fn decode(bytes: &[u8]) -> Result<(PackedEndpoint, PipeRest), UnpackError> {
    let (theirs, rest) = postcard::take_from_bytes::<u16>(bytes).map_err(UnpackError::Malformed)?;
    if theirs != VERSION {
        return Err(UnpackError::Version { theirs });
    }
    postcard::from_bytes(rest).map_err(UnpackError::Malformed)
}

/// What must hold of a number, or what does not.
pub(crate) fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

#[cfg(test)]
mod tests;
