//! The task bag of a program: units of work that any rank may do.
//!
//! The promise: every task is done, and its result is accepted once, whoever
//! dies, retreats or repeats itself. Lives at the coordinator.
//!
//! ```text
//!  put ──► waiting ──next──► held by a rank ──done──► done (its result is accepted)
//!             ▲                  │ returned, or the rank is gone or begins anew
//!             └──────────────────┘
//! ```
//!
//! Source: Phalen 1994, §3 (Piranha): a retreat returns the uncompleted tasks
//! to where they came from, and completed work is kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::address::{Rank, Request, Task};
use crate::wire::{Answer, Ask};

mod packed;

use packed::{Asked, Item, TaskState};
pub use packed::{ContradictoryBag, PackedBag};

/// How often a task may be lost with the rank that held it before it is
/// given up: a task that kills its workers must not kill them for ever.
pub const LOSSES_MAX: u32 = 5;

/// What a bag may hold at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub tasks_max: u64,
    /// The bytes of tasks that are not done and results that are not given out, when a
    /// task is put in; results may take as much again.
    pub bytes_max: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Answer {
        rank: Rank,
        request: Request,
        answer: Answer,
    },
    /// The result of this task counts, and no other will.
    Accept {
        task: Task,
        by: Rank,
    },
    /// Lost too often with the ranks that held it.
    GiveUp {
        task: Task,
        losses: u32,
    },
}

/// How many answers are kept for each rank: as many as may be open.
const ANSWERS_KEPT: usize = crate::endpoint::OPEN_ASKS_MAX;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bag {
    limits: Limits,
    items: BTreeMap<Task, Item>,
    waiting: VecDeque<Task>,
    held: BTreeSet<Task>,
    results: VecDeque<(Task, Vec<u8>)>,
    bytes: u64,
    next: Task,
    closed: bool,
    asked: BTreeMap<Rank, Asked>,
    /// Ranks that wait for a task or a result, the longest first.
    for_task: VecDeque<(Rank, Request)>,
    for_result: VecDeque<(Rank, Request)>,
}

impl Bag {
    /// With `tasks` the bag is full from the start and closed; without, the
    /// program puts its tasks and closes it.
    pub fn new(limits: Limits, tasks: Option<Vec<Vec<u8>>>) -> Self {
        let mut bag = Self {
            limits,
            items: BTreeMap::new(),
            waiting: VecDeque::new(),
            held: BTreeSet::new(),
            results: VecDeque::new(),
            bytes: 0,
            next: Task(0),
            closed: tasks.is_some(),
            asked: BTreeMap::new(),
            for_task: VecDeque::new(),
            for_result: VecDeque::new(),
        };
        for task in tasks.unwrap_or_default() {
            bag.insert(task);
        }
        bag
    }

    /// How many tasks wait, are held, and are over.
    pub fn counts(&self) -> (usize, usize, usize) {
        let (waiting, held) = (self.waiting.len(), self.held.len());
        (waiting, held, self.items.len() - waiting - held)
    }

    /// Is every task over, and none will come?
    pub fn is_done(&self) -> bool {
        self.closed && self.waiting.is_empty() && self.held.is_empty()
    }

    /// A rank asks. Questions about other things than tasks are not for here.
    #[must_use]
    pub fn ask(&mut self, rank: Rank, request: Request, ask: Ask) -> Vec<Effect> {
        let asked = self.asked.entry(rank).or_default();
        if let Some((_, answer)) = asked.answers.iter().find(|(of, _)| *of == request) {
            return vec![Effect::Answer { rank, request, answer: answer.clone() }];
        }
        // Repeated while it waits, or so old that nobody can be waiting.
        if request <= asked.newest {
            return vec![];
        }
        asked.newest = request;
        let mut effects = vec![];
        match ask {
            Ask::NextTask => self.for_task.push_back((rank, request)),
            Ask::NextResult => self.for_result.push_back((rank, request)),
            Ask::Done { task, result } => self.done(rank, request, task, result, &mut effects),
            Ask::ReturnTask { task } => {
                self.put_back(rank, task);
                self.answer(rank, request, Answer::Returned, &mut effects);
            }
            Ask::PutTask { task } => {
                let answer = self.put(task);
                self.answer(rank, request, answer, &mut effects);
            }
            Ask::CloseBag => {
                self.closed = true;
                self.answer(rank, request, Answer::Closed, &mut effects);
            }
            Ask::BeginsAnew => {
                self.take_back(rank, false, &mut effects);
                self.answer(rank, request, Answer::Returned, &mut effects);
            }
            Ask::Spawn { .. }
            | Ask::Leave
            | Ask::Processors
            | Ask::Negotiates
            | Ask::Negotiate(_) => {}
        }
        self.feed(&mut effects);
        effects
    }

    /// The rank's process is gone: what it held comes back.
    /// `lost`: not by its own wish or its owner's, so that it may have been
    /// the task's fault.
    #[must_use]
    pub fn gone(&mut self, rank: Rank, lost: bool) -> Vec<Effect> {
        let mut effects = vec![];
        self.asked.remove(&rank);
        self.take_back(rank, lost, &mut effects);
        self.feed(&mut effects);
        effects
    }

    fn take_back(&mut self, rank: Rank, lost: bool, effects: &mut Vec<Effect>) {
        self.for_task.retain(|(of, _)| *of != rank);
        self.for_result.retain(|(of, _)| *of != rank);
        let of_rank = |task: &&Task| {
            self.items.get(task).is_some_and(|item| item.state == TaskState::Held(rank))
        };
        let tasks: Vec<Task> = self.held.iter().filter(of_rank).copied().collect();
        // The oldest of them will be the first again.
        for task in tasks.into_iter().rev() {
            self.put_back(rank, task);
            let Some(item) = self.items.get_mut(&task).filter(|_| lost) else { continue };
            item.losses += 1;
            if item.losses >= LOSSES_MAX {
                effects.push(Effect::GiveUp { task, losses: item.losses });
                self.waiting.retain(|waiting| *waiting != task);
                self.over(task);
            }
        }
    }

    fn insert(&mut self, bytes: Vec<u8>) -> Task {
        let task = self.next;
        self.next = Task(task.0 + 1);
        self.bytes += bytes.len() as u64;
        self.items.insert(task, Item { bytes, state: TaskState::Waiting, losses: 0 });
        self.waiting.push_back(task);
        task
    }

    fn put(&mut self, bytes: Vec<u8>) -> Answer {
        let declined = |reason: &str| Answer::Declined { reason: reason.to_owned() };
        if self.closed {
            return Answer::BagClosed;
        }
        if self.next.0 >= self.limits.tasks_max
            || self.bytes + bytes.len() as u64 > self.limits.bytes_max
        {
            return declined("the bag is full");
        }
        Answer::Put { task: self.insert(bytes) }
    }

    fn done(
        &mut self,
        rank: Rank,
        request: Request,
        task: Task,
        result: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        let state = self.items.get(&task).map(|item| item.state);
        let answer = match state {
            None => Answer::Declined { reason: format!("there is no {task}") },
            Some(TaskState::Over) => Answer::Done { first: false },
            // Whoever has done it: work is kept, also of a rank that was
            // thought to be gone.
            Some(TaskState::Held(_) | TaskState::Waiting) if !self.has_room_for(&result) => {
                Answer::Declined { reason: "the bag is full of results".to_owned() }
            }
            Some(TaskState::Held(_) | TaskState::Waiting) => {
                self.waiting.retain(|waiting| *waiting != task);
                self.over(task);
                self.bytes += result.len() as u64;
                self.results.push_back((task, result));
                effects.push(Effect::Accept { task, by: rank });
                Answer::Done { first: true }
            }
        };
        self.answer(rank, request, answer, effects);
    }

    fn has_room_for(&self, result: &[u8]) -> bool {
        self.bytes + result.len() as u64 <= self.limits.bytes_max.saturating_mul(2)
    }

    fn over(&mut self, task: Task) {
        self.held.remove(&task);
        if let Some(item) = self.items.get_mut(&task) {
            item.state = TaskState::Over;
            self.bytes -= std::mem::take(&mut item.bytes).len() as u64;
        }
    }

    fn put_back(&mut self, rank: Rank, task: Task) {
        if let Some(item) = self.items.get_mut(&task)
            && item.state == TaskState::Held(rank)
        {
            item.state = TaskState::Waiting;
            self.held.remove(&task);
            self.waiting.push_front(task);
        }
    }

    /// Gives whoever waits what there is.
    fn feed(&mut self, effects: &mut Vec<Effect>) {
        while !self.for_task.is_empty() {
            let answer = match self.waiting.pop_front() {
                None if self.is_done() => Answer::NoMoreTasks,
                None => break,
                Some(task) => self.hold(task),
            };
            let Some((rank, request)) = self.for_task.pop_front() else { break };
            if let Answer::Task { task, .. } = answer
                && let Some(item) = self.items.get_mut(&task)
            {
                item.state = TaskState::Held(rank);
            }
            self.answer(rank, request, answer, effects);
        }
        while !self.for_result.is_empty() {
            let answer = match self.results.pop_front() {
                None if self.is_done() => Answer::NoMoreResults,
                None => break,
                Some((task, bytes)) => {
                    self.bytes -= bytes.len() as u64;
                    Answer::Result { task, bytes }
                }
            };
            let Some((rank, request)) = self.for_result.pop_front() else { break };
            self.answer(rank, request, answer, effects);
        }
    }

    fn hold(&mut self, task: Task) -> Answer {
        self.held.insert(task);
        let bytes = self.items.get(&task).map_or_else(Vec::new, |item| item.bytes.clone());
        Answer::Task { task, bytes }
    }

    fn answer(&mut self, rank: Rank, request: Request, answer: Answer, effects: &mut Vec<Effect>) {
        let answers = &mut self.asked.entry(rank).or_default().answers;
        answers.push_back((request, answer.clone()));
        if answers.len() > ANSWERS_KEPT {
            answers.pop_front();
        }
        effects.push(Effect::Answer { rank, request, answer });
    }
}

#[cfg(test)]
mod tests;
