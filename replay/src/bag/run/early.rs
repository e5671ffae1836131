//! A worker that leaves before the owner's usual return, between two subtasks,
//! where nothing has to be taken along.
//!
//! The rule: to be found by an owner costs half of a subtask, if its state is not
//! kept, and the move that comes then; to leave now costs a move. Where the
//! chance to be found during the next subtask is so much lower elsewhere that
//! this pays, the worker goes there. Chances are what the past has taught
//! (`gleaner_coordinator_core::outlook`).

use std::time::Duration;

use gleaner_common::reaction::{Keep, Step};

use super::{Run, WorkerState};
use crate::lab::nanos;

impl Run<'_> {
    /// Does the worker, which has just taken a subtask, leave? It has left then.
    pub(super) fn leaves_early(&mut self, worker: u32, now: u64) -> bool {
        if !self.model.leaves_early {
            return false;
        }
        let it = self.room.workers[worker as usize];
        let Some(there) = self.places.choose(&self.chooser, now) else { return false };
        let cost = nanos(self.model.costs.of(Keep::Nothing));
        let need = Duration::from_nanos(it.left.saturating_add(cost));
        let found = |id| self.places.chance_of_return(id, &self.chooser, now, need);
        let lost = match self.model.on_busy.when_busy() {
            Step::Move(Keep::State) | Step::Freeze | Step::Demote | Step::Stay => 0,
            Step::Move(_) => it.left / 2,
        };
        let gain = (found(it.workstation) - found(there)) * (lost.saturating_add(cost)) as f64;
        if gain <= cost as f64 {
            self.places.set_free(there, &self.chooser, now);
            return false;
        }
        self.outcome.left_early += 1;
        self.go(worker, there, now, cost);
        true
    }

    fn go(&mut self, worker: u32, there: u32, now: u64, cost: u64) {
        let it = &mut self.room.workers[worker as usize];
        let here = it.workstation;
        (it.state, it.since, it.cost, it.held_until) = (WorkerState::Waiting, now, cost, 0);
        it.stamp += 1;
        let is_idle = self.places.leave(here);
        self.take(worker, there, now);
        if is_idle {
            self.became_free(here, now);
        }
    }
}
