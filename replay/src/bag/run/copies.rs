//! Second copies of the last subtasks of a bag, on workers that have nothing else
//! to do: one owner does not hold up the whole bag (Dean and Ghemawat 2004, §3.6,
//! backup tasks).
//!
//! The promise: a subtask is done once, and at most two workers are at it.

use super::{Run, Worker, WorkerState};
use crate::program::NONE;

impl Run<'_> {
    /// How many workers have this subtask.
    pub(super) fn holders(&self, subtask: u32) -> usize {
        self.room.workers.iter().filter(|it| it.subtask == subtask).count()
    }

    /// What is farthest from its end of all that one worker only is at. One that
    /// does not get on is farther than any that does.
    pub(super) fn take_copy(&mut self) -> Option<u32> {
        if !self.model.copies {
            return None;
        }
        let far = |it: &&Worker| (it.state != WorkerState::Working, it.clock + it.left);
        let held = self.room.workers.iter().filter(|it| it.subtask != NONE);
        let alone = held.filter(|it| self.holders(it.subtask) == 1);
        let found = alone.max_by_key(far)?.subtask;
        self.outcome.copies += 1;
        Some(found)
    }

    /// Whoever else is at a subtask that is done goes on with something else.
    pub(super) fn drop_copies(&mut self, done: u32, now: u64) {
        while let Some(other) = self.copy_of(done) {
            self.settle(other, now);
            let it = &mut self.room.workers[other as usize];
            it.subtask = NONE;
            self.tally.wasted += u128::from(self.bag.works[done as usize] - it.left);
            match it.state {
                WorkerState::Working => self.next_subtask(other, now),
                // It comes for one from the bag now.
                WorkerState::Moving => self.coming += 1,
                WorkerState::Frozen
                | WorkerState::Waiting
                | WorkerState::WithoutSubtask
                | WorkerState::Gone => {}
            }
        }
    }

    fn copy_of(&self, subtask: u32) -> Option<u32> {
        let found = self.room.workers.iter().position(|it| it.subtask == subtask)?;
        u32::try_from(found).ok()
    }
}
