//! A bag as its program's journal keeps it.
//!
//! Postcard writes by position: whatever changes here raises the version of the
//! journal (`coordinator/core`, `program/record.rs`), where a test has the bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::{Bag, Limits};
use crate::address::{Rank, Request, Task};
use crate::packed::ensure;
use crate::wire::Answer;

/// A bag as bytes are made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedBag {
    limits: Limits,
    items: BTreeMap<Task, Item>,
    waiting: VecDeque<Task>,
    held: BTreeSet<Task>,
    results: VecDeque<(Task, Vec<u8>)>,
    bytes: u64,
    next: Task,
    closed: bool,
    asked: BTreeMap<Rank, Asked>,
    for_task: VecDeque<(Rank, Request)>,
    for_result: VecDeque<(Rank, Request)>,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Item {
    pub(super) bytes: Vec<u8>,
    pub(super) state: TaskState,
    pub(super) losses: u32,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TaskState {
    Waiting,
    Held(Rank),
    /// Done, or given up.
    Over,
}

/// What one rank has asked and was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) newest: Request,
    /// The newest answers: a question may be asked again whose answer was lost.
    pub(super) answers: VecDeque<(Request, Answer)>,
}

/// A packed bag cannot be a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a bag that contradicts itself: {0}")]
pub struct ContradictoryBag(&'static str);

impl From<Bag> for PackedBag {
    fn from(bag: Bag) -> Self {
        let Bag { limits, items, waiting, held, results, bytes, .. } = bag;
        let Bag { next, closed, asked, for_task, for_result, .. } = bag;
        Self {
            limits,
            items,
            waiting,
            held,
            results,
            bytes,
            next,
            closed,
            asked,
            for_task,
            for_result,
        }
    }
}

impl TryFrom<PackedBag> for Bag {
    type Error = ContradictoryBag;

    fn try_from(packed: PackedBag) -> Result<Self, ContradictoryBag> {
        packed.check().map_err(ContradictoryBag)?;
        let PackedBag { limits, items, waiting, held, results, bytes, .. } = packed;
        let PackedBag { next, closed, asked, for_task, for_result, .. } = packed;
        Ok(Self {
            limits,
            items,
            waiting,
            held,
            results,
            bytes,
            next,
            closed,
            asked,
            for_task,
            for_result,
        })
    }
}

impl PackedBag {
    fn check(&self) -> Result<(), &'static str> {
        let is = |task: &Task, state: fn(TaskState) -> bool| {
            self.items.get(task).is_some_and(|item| state(item.state))
        };
        let waits = |task: &Task| is(task, |state| state == TaskState::Waiting);
        let is_held = |task: &Task| is(task, |state| matches!(state, TaskState::Held(_)));
        let count = |state: &dyn Fn(&Task) -> bool| self.items.keys().filter(|t| state(t)).count();
        let once: BTreeSet<_> = self.waiting.iter().collect();
        let bytes = self.items.values().map(|item| &item.bytes);
        let bytes = bytes.chain(self.results.iter().map(|(_, result)| result));
        let numbered = self.items.keys().zip(0..).all(|(task, number)| task.0 == number);
        ensure(numbered && self.next.0 == self.items.len() as u64, "its tasks are misnumbered")?;
        ensure(self.waiting.iter().all(waits), "a task waits that does not")?;
        ensure(once.len() == self.waiting.len(), "a task waits twice")?;
        ensure(once.len() == count(&waits), "a task waits and is forgotten")?;
        ensure(self.held.iter().all(is_held), "a task is held that is not")?;
        ensure(self.held.len() == count(&is_held), "a task is held and forgotten")?;
        let bytes: u64 = bytes.map(|bytes| bytes.len() as u64).sum();
        ensure(bytes == self.bytes, "its bytes do not add up")
    }
}
