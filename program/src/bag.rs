//! The task bag: work that whoever is free takes. Pure.
//!
//! The promise: a task is in the bag, in somebody's hands, or done, and done
//! once. What was in the hands of a rank that ends is in the bag again. So it
//! is the subtask resource manager of Phalen 1994, §3.1.1.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

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

/// What a request for a task or result comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given<T> {
    One(T),
    /// Not now: ask again when the bag has changed.
    Later,
    Never,
}

#[derive(Debug, Default)]
pub(crate) struct Bag {
    waiting: VecDeque<Task>,
    /// Each with the rank that has it in hand.
    taken: BTreeMap<TaskId, (u32, Task)>,
    results: VecDeque<(TaskId, Vec<u8>)>,
    next: u64,
    closed: bool,
}

impl Bag {
    /// `None` if the bag is closed.
    pub(crate) fn add(&mut self, work: Vec<u8>) -> Option<TaskId> {
        if self.closed {
            return None;
        }
        let id = TaskId(self.next);
        self.next += 1;
        self.waiting.push_back(Task { id, work });
        Some(id)
    }

    /// No task will be added. Those that are taken may still come back.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn take(&mut self, rank: u32) -> Given<Task> {
        match self.waiting.pop_front() {
            Some(task) => {
                self.taken.insert(task.id, (rank, task.clone()));
                Given::One(task)
            }
            None if self.closed && self.taken.is_empty() => Given::Never,
            None => Given::Later,
        }
    }

    /// Says whether the task was in that rank's hands; if not, the result is
    /// dropped: the task is somebody else's again, or done.
    pub(crate) fn done(&mut self, rank: u32, id: TaskId, result: Vec<u8>) -> bool {
        let mine = self.is_with(rank, id);
        if mine {
            self.taken.remove(&id);
            self.results.push_back((id, result));
        }
        mine
    }

    /// Before all that nobody has begun: it was begun already.
    pub(crate) fn put_back(&mut self, rank: u32, id: TaskId) -> bool {
        let mine = self.is_with(rank, id);
        if mine && let Some((_, task)) = self.taken.remove(&id) {
            self.waiting.push_front(task);
        }
        mine
    }

    fn is_with(&self, rank: u32, id: TaskId) -> bool {
        self.taken.get(&id).is_some_and(|(holder, _)| *holder == rank)
    }

    /// The rank is gone; what it had in hand is not done.
    pub(crate) fn put_all_back(&mut self, rank: u32) {
        let theirs = self.taken.iter().filter(|(_, (holder, _))| *holder == rank);
        let theirs: Vec<TaskId> = theirs.map(|(id, _)| *id).collect();
        for id in theirs.into_iter().rev() {
            self.put_back(rank, id);
        }
    }

    pub(crate) fn result(&mut self) -> Given<(TaskId, Vec<u8>)> {
        match self.results.pop_front() {
            Some(result) => Given::One(result),
            None if self.closed && self.taken.is_empty() && self.waiting.is_empty() => Given::Never,
            None => Given::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn full(tasks: u8) -> Bag {
        let mut bag = Bag::default();
        (0..tasks).for_each(|task| assert!(bag.add(vec![task]).is_some()));
        bag.close();
        bag
    }

    #[test]
    fn there_may_be_work_until_all_of_it_is_done() {
        let mut bag = full(1);
        assert!(matches!(bag.take(1), Given::One(_)));
        assert_eq!(bag.take(2), Given::Later);
        assert!(bag.put_back(1, TaskId(0)));
        assert!(matches!(bag.take(2), Given::One(_)));
        assert!(bag.done(2, TaskId(0), vec![]));
        assert_eq!(bag.take(1), Given::Never);
        assert!(matches!(bag.result(), Given::One(_)));
        assert_eq!(bag.result(), Given::Never);
    }

    #[test]
    fn a_task_that_was_taken_over_is_not_done_by_the_first() {
        let mut bag = full(1);
        let _ = bag.take(1);
        bag.put_all_back(1);
        let _ = bag.take(2);
        assert!(!bag.done(1, TaskId(0), vec![]));
        assert!(bag.done(2, TaskId(0), vec![]));
        assert!(!bag.done(2, TaskId(0), vec![]));
    }

    #[test]
    fn a_closed_bag_takes_no_more() {
        assert_eq!(full(0).add(vec![]), None);
    }

    proptest! {
        /// However ranks take, return, end and finish.
        #[test]
        fn every_task_is_done_once(steps in proptest::collection::vec((0..3_u32, 0..4_u8), 0..200)) {
            let mut bag = full(5);
            let mut hands: BTreeMap<u32, Vec<TaskId>> = BTreeMap::new();
            for (rank, step) in steps {
                let hand = hands.entry(rank).or_default();
                match (step, hand.pop()) {
                    (1, Some(id)) => prop_assert!(bag.done(rank, id, vec![])),
                    (2, Some(id)) => prop_assert!(bag.put_back(rank, id)),
                    (3, _) => {
                        bag.put_all_back(rank);
                        hand.clear();
                    }
                    (_, held) => {
                        hand.extend(held);
                        if let Given::One(task) = bag.take(rank) {
                            hand.push(task.id);
                        }
                    }
                }
            }
            (0..3).for_each(|rank| bag.put_all_back(rank));
            while let Given::One(task) = bag.take(9) {
                prop_assert!(bag.done(9, task.id, vec![]));
            }
            let mut results = vec![];
            while let Given::One((id, _)) = bag.result() {
                results.push(id.0);
            }
            results.sort_unstable();
            prop_assert_eq!(results, [0, 1, 2, 3, 4]);
        }
    }
}
