//! What can go wrong between ranks.

use std::fmt;

use crate::communicator::TAG_MAX;
use crate::mailbox::Wanted;

/// Whatever a rank's own code ends with when it cannot go on.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Ranks named in a message; more than these nobody reads.
const NAMED_MAX: usize = 8;

/// Why a call could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("rank {rank} of {size}: expected 0 to {}", size.saturating_sub(1))]
    BadRank { rank: u32, size: u32 },
    #[error("tag {tag}: expected 0 to {TAG_MAX}")]
    BadTag { tag: u32 },
    #[error("rank {rank} is not of this group, so it cannot take part")]
    NotOfGroup { rank: u32 },
    /// Nobody else will send it, and what had come was not what is wanted.
    #[error("waited for {wanted}, but rank {rank} {ending}")]
    PeerGone { rank: u32, ending: Ending, wanted: Wanted },
    #[error("deadlock: every rank waits: {}", waits(waiting))]
    Deadlock { waiting: Vec<(u32, Awaited)> },
    #[error("a message of {bytes} bytes from rank {from}: expected whole values of {unit} bytes")]
    NotWholeValues { from: u32, bytes: usize, unit: usize },
    #[error("{found} values from rank {from}, {expected} here: expected as many everywhere")]
    UnequalLengths { from: u32, found: usize, expected: usize },
    #[error("{found} parts for {expected} ranks: expected one for each")]
    WrongParts { found: usize, expected: usize },
    #[error("the bag was closed: no more tasks can be put in")]
    BagClosed,
    #[error("{wanted} ranks more: expected at most {available}, the processors to be had now")]
    NoProcessors { wanted: u32, available: u32 },
    #[error("asked to retreat: the work in hand was returned")]
    Retreated,
    #[error("this rank has left the program")]
    Left,
    #[error("{bytes} bytes: expected at most {max}")]
    TooLong { bytes: usize, max: usize },
    /// "No" of the coordinator's, and why.
    #[error("declined: {0}")]
    Declined(String),
    /// The other end answered what nobody asked, or is gone.
    #[error("lost touch with the other ranks: {0}")]
    Lost(String),
}

impl Error {
    /// Is it what another rank's failure did to this one?
    pub(crate) fn is_consequence(&self) -> bool {
        matches!(self, Self::PeerGone { .. } | Self::Deadlock { .. } | Self::Lost(_))
    }
}

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    Message(Wanted),
    /// A task of the bag, or word that there will be none.
    Task,
    /// A task's result.
    TaskResult,
    /// Room to send to this rank.
    Room {
        to: u32,
    },
    /// An answer about processors or tasks, which is always given.
    Answer,
    /// That this rank ends.
    End {
        rank: u32,
    },
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(wanted) => wanted.fmt(f),
            Self::Task => f.write_str("a task"),
            Self::TaskResult => f.write_str("a task's result"),
            Self::Room { to } => write!(f, "room to send to rank {to}"),
            Self::Answer => f.write_str("an answer"),
            Self::End { rank } => write!(f, "the end of rank {rank}"),
        }
    }
}

fn waits(waiting: &[(u32, Awaited)]) -> String {
    let named =
        waiting.iter().take(NAMED_MAX).map(|(rank, wants)| format!("rank {rank} for {wants}"));
    let mut text = named.collect::<Vec<_>>().join(", ");
    if waiting.len() > NAMED_MAX {
        text = format!("{text} and {} more", waiting.len() - NAMED_MAX);
    }
    text
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Returned,
    Left,
    Retreated,
    Failed(String),
    Panicked(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => f.write_str("has returned"),
            Self::Left => f.write_str("has left"),
            Self::Retreated => f.write_str("has retreated"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Panicked(why) => write!(f, "panicked: {why}"),
        }
    }
}
