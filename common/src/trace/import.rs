//! Traces that others recorded: `SimGrid`'s time-independent ones, and
//! liballprof's.
//!
//! Each line is taken as what it says of one rank; collective operations become
//! the messages between two ranks that they are commonly made of
//! (`collective`). Compute times that follow each other become one. Nothing is
//! left out in silence: an action that is not known is refused with its line.
//!
//! ```text
//! lines ─► time_independent ─┐
//!      └─► liballprof ───────┴─► Said, by rank ─► expand ─► Lined
//! ```

mod collective;
mod expand;
mod liballprof;
mod time_independent;

pub use liballprof::read as liballprof;
pub use time_independent::read as time_independent;

/// What the recording itself does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportOptions {
    /// The program's name.
    pub name: String,
    /// How fast a rank computes, where only its operations were counted.
    pub flops_per_s: f64,
}

impl ImportOptions {
    /// At 10⁹ operations a second, which is what `SimGrid`'s own recordings of
    /// CPU time are counted at.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), flops_per_s: 1e9 }
    }
}

/// What a line of a recording says of its rank.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    Compute {
        nanos: u64,
    },
    Send {
        to: u32,
        bytes: u64,
        tag: u32,
    },
    /// A send that is waited for later, which takes no time here.
    BeginSend {
        to: u32,
        bytes: u64,
        tag: u32,
    },
    Receive {
        from: u32,
        tag: u32,
    },
    BeginReceive {
        from: u32,
        tag: u32,
    },
    /// The oldest request begun between the two, of that tag.
    Wait {
        from: u32,
        to: u32,
        tag: u32,
    },
    /// The oldest receive begun.
    WaitOldest,
    WaitAll,
    Collective(Box<Collective>),
}

/// A collective operation as it was written; what its arguments mean depends
/// on how many ranks there are.
#[derive(Clone, Debug, PartialEq)]
struct Collective {
    kind: CollectiveKind,
    arguments: Vec<f64>,
    /// Bytes of a value, if the arguments do not say.
    unit: u64,
    nanos_per_flop: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CollectiveKind {
    Barrier,
    Broadcast,
    Reduce,
    AllReduce,
    AllToAll,
    AllToAllV,
    Gather,
    GatherV,
    Scatter,
    ScatterV,
    AllGather,
    AllGatherV,
    ReduceScatter,
    Scan,
}

#[cfg(test)]
mod tests;
