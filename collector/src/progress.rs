//! How far long work is.

/// How much is done of how much, in whatever the work counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}
