//! Program traces: what each rank of a message-passing program computed, sent
//! and received, without the time it waited.
//!
//! Source: Phalen 1994, §6.3: the duration of a subtask is the time between
//! successive receives, and no blocking time is in it.
//!
//! ```text
//! bytes ─┬─► read ──────┬─► Lined { trace, lines } ─► check ─► problems, each with its line
//!        └─► import::* ─┘            └─► flow: ends, critical path ─► scaled_to ─► write
//! ```

pub mod check;
mod flow;
pub mod import;
mod input;
mod join;
pub mod ring;
mod scale;
pub mod text;

pub use check::{Place, Problem, check};
pub use input::{ReadTraceError, RefusedLine};
pub use join::JoinError;
pub use scale::ScaleError;
pub use text::{WriteTraceError, read, write};

/// More ranks than any lab has workstations.
pub const RANKS_MAX: u32 = 1 << 20;
/// Some 300 MB in memory; a recording that is imported has twice as much.
pub(crate) const OPERATIONS_MAX: usize = 10_000_000;
pub const NAME_BYTES_MAX: usize = 200;
/// Tags from here on are a library's own: the messages that collective
/// operations are made of.
pub const COLLECTIVE_TAGS: u32 = 1 << 31;

/// The tags of collectives' messages, in our programs and in what is imported.
pub mod tags {
    use super::COLLECTIVE_TAGS;

    pub const BARRIER: u32 = COLLECTIVE_TAGS;
    pub const BROADCAST: u32 = COLLECTIVE_TAGS + 1;
    pub const REDUCE: u32 = COLLECTIVE_TAGS + 2;
    pub const ALLREDUCE: u32 = COLLECTIVE_TAGS + 3;
    pub const GATHER: u32 = COLLECTIVE_TAGS + 4;
    pub const SCATTER: u32 = COLLECTIVE_TAGS + 5;
    pub const ALL_TO_ALL: u32 = COLLECTIVE_TAGS + 6;
    pub const ALL_GATHER: u32 = COLLECTIVE_TAGS + 7;
    pub const REDUCE_SCATTER: u32 = COLLECTIVE_TAGS + 8;
    pub const SCAN: u32 = COLLECTIVE_TAGS + 9;
}

/// A program's run: for each rank, what it did in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub name: String,
    pub ranks: Vec<Vec<Op>>,
}

/// One thing a rank did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Computed for so many nanoseconds of thread CPU time.
    Compute { nanos: u64 },
    /// Sent a message, which never blocks.
    Send { to: u32, bytes: u64, tag: u32 },
    /// Waited for the oldest message of this sender and tag that it had not
    /// received yet.
    Receive { from: u32, tag: u32 },
    /// Let another rank begin (models 3, 4, 7 and 8 of Phalen 1994, Table 1).
    /// A rank that nobody spawns begins with the program.
    Spawn { rank: u32 },
}

/// A trace as it was read: every operation with the line that it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lined {
    pub trace: Trace,
    pub lines: Lines,
}

impl Lined {
    /// What is wrong with the trace; nothing if it can be replayed.
    pub fn check(&self) -> Vec<Problem> {
        check(&self.trace, &self.lines)
    }
}

/// Where the operations of a trace were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The file of each rank, if its ranks came in files of their own.
    pub files: Vec<String>,
    /// For each rank, the line of each operation, counted from 1.
    pub numbers: Vec<Vec<u32>>,
}

impl Lines {
    fn of(&self, rank: u32, operation: usize) -> Option<u32> {
        self.numbers.get(rank as usize)?.get(operation).copied()
    }
}

impl Trace {
    pub fn operations(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum()
    }

    /// How many messages the trace sends, and their bytes together.
    pub fn messages(&self) -> (u64, u64) {
        let sends = self.ranks.iter().flatten().filter_map(|op| match op {
            Op::Send { bytes, .. } => Some(*bytes),
            Op::Compute { .. } | Op::Receive { .. } | Op::Spawn { .. } => None,
        });
        sends.fold((0, 0), |(count, sum), bytes| (count + 1, u64::saturating_add(sum, bytes)))
    }

    /// How long a rank computes, in nanoseconds.
    pub fn computed(&self, rank: usize) -> u64 {
        let ops = self.ranks.get(rank).map_or(&[][..], Vec::as_slice);
        ops.iter().fold(0, |sum, op| match op {
            Op::Compute { nanos } => sum.saturating_add(*nanos),
            Op::Send { .. } | Op::Receive { .. } | Op::Spawn { .. } => sum,
        })
    }
}
