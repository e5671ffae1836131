//! Program traces: what each rank of a message-passing program computed, sent
//! and received, without the time it waited.
//!
//! Source: Phalen 1994, §6.3: the duration of a subtask is the time between
//! successive receives, and no blocking time is in it.

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
