//! What can be wrong with a program, said with its rank and the cause.

use std::time::Duration;

use gleaner_common::time::Spoken;
use serde::{Deserialize, Serialize};

use crate::address::{Rank, Snapshot, Tag};
use crate::facts::End;
use crate::wire::Wait;

/// Something that a program did, or that befalls it, which its user has to
/// know. Where [`Complaint::is_fatal`], the rank's process is to be ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Complaint {
    #[error("{rank} sends to {to}: the program has ranks 0 to {}", ranks.saturating_sub(1))]
    NoSuchRank { rank: Rank, to: Rank, ranks: u32 },
    #[error("{rank} broke the protocol of its pipes: {what}")]
    Protocol { rank: Rank, what: String },
    #[error("{rank} speaks version {theirs} of the protocol, this agent {ours}")]
    Version { rank: Rank, theirs: u16, ours: u16 },
    #[error("{rank} floods {to}: {over} bytes more than there was room for")]
    Flood { rank: Rank, to: Rank, over: u64 },
    #[error("{rank} sends to {to} ({tag}), which has ended ({end})")]
    SentToEnded { rank: Rank, to: Rank, tag: Tag, end: End },
    #[error("{rank} ended without receiving {messages} messages of {from}, {tag}")]
    NeverReceived { rank: Rank, from: Rank, tag: Tag, messages: u32 },
    #[error("{rank} ended inside a message to {to}")]
    EndedInsideMessage { rank: Rank, to: Rank },
    #[error("{rank} waits for {}, which will not come: {because}", Waited(.on))]
    NeverComes { rank: Rank, on: Wait, because: String },
    #[error(
        "{rank} has waited for room to send to {by}, which has received nothing of it for {}",
        Spoken(*.span)
    )]
    HeldUp { rank: Rank, by: Rank, span: Duration },
    #[error("deadlock: {}", Waiters(.waits))]
    Deadlock { waits: Vec<(Rank, Wait)> },
    #[error(
        "{rank} has received more than {bytes_max} bytes since its last boundary: it cannot go \
         back before it saves again"
    )]
    LogFull { rank: Rank, bytes_max: u64 },
    #[error(
        "{rank} repeats its subtask differently: its message {number} to {to} is not what it was \
         the first time"
    )]
    NotRepeatable { rank: Rank, to: Rank, number: u64 },
    #[error("{rank} cannot go back: no state is kept to go back to")]
    NothingKept { rank: Rank },
    #[error("{rank} took no part in {snapshot}: {because}")]
    NoCut { rank: Rank, snapshot: Snapshot, because: String },
    #[error(
        "{rank} did not heed its retreat within {}: its process was ended, and what it had in \
         hand is begun anew",
        Spoken(*.within)
    )]
    RetreatIgnored { rank: Rank, within: Duration },
    #[error("no image of {rank} was taken to go back to: {because}")]
    NoImage { rank: Rank, because: String },
}

impl Complaint {
    /// Must the rank's process end?
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::NoSuchRank { .. }
            | Self::Protocol { .. }
            | Self::Version { .. }
            | Self::Flood { .. }
            | Self::NotRepeatable { .. }
            | Self::NothingKept { .. } => true,
            Self::SentToEnded { .. }
            | Self::NeverReceived { .. }
            | Self::EndedInsideMessage { .. }
            | Self::NeverComes { .. }
            | Self::HeldUp { .. }
            | Self::Deadlock { .. }
            | Self::LogFull { .. }
            | Self::NoCut { .. }
            | Self::RetreatIgnored { .. }
            | Self::NoImage { .. } => false,
        }
    }
}

/// A wait as a person would say it.
pub(crate) struct Waited<'a>(pub(crate) &'a Wait);

impl std::fmt::Display for Waited<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Wait::Message { from, tag, .. } => {
                match from {
                    Some(from) => write!(f, "a message of {from}")?,
                    None => f.write_str("a message of any rank")?,
                }
                tag.map_or(Ok(()), |tag| write!(f, ", {tag}"))
            }
            Wait::Room { to } => write!(f, "room to send to {to}"),
            Wait::Answer { .. } => f.write_str("an answer of the coordinator"),
            Wait::End { rank } => write!(f, "the end of {rank}"),
        }
    }
}

struct Waiters<'a>(&'a [(Rank, Wait)]);

impl std::fmt::Display for Waiters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (rank, wait)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            write!(f, "{comma}{rank} waits for {}", Waited(wait))?;
        }
        Ok(())
    }
}
