//! The task bag as ranks see it: work that whoever is free takes. The bag itself is
//! `gleaner_program_core::bag`, on workstations and in one process.

use std::fmt;

use gleaner_program_core::address;

/// A task's number, in the order they were put in, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub id: TaskId,
    pub work: Vec<u8>,
}

impl From<TaskId> for address::Task {
    fn from(id: TaskId) -> Self {
        Self(id.0)
    }
}
