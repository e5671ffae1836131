//! What a program that reacts to increases makes of a workstation that has
//! become free (Phalen 1994, §2.1.2 and Table 1: models 2, 4, 6 and 8).
//!
//! Whoever waits for a place goes first. What is left is taken by ranks that
//! are frozen for an owner elsewhere, and then by new ranks, where the program
//! has a bag of tasks for them.

use gleaner_common::id::{Fence, JobId};
use gleaner_common::reaction::{Keep, Step};
use gleaner_common::wire::GuestState;

use super::moves::Moving;
use super::{Core, Draft};
use crate::attempt::Stage;
use crate::job::Job;
use crate::program::Program;
use crate::scheduler::{Decision, Obligation};

impl Core {
    pub(super) fn grow(&mut self, draft: &mut Draft) {
        let version = Some(self.pool.version());
        if self.growing.is_empty() || self.grown_at == version {
            return;
        }
        for id in self.growing.clone() {
            // The job ends with this step.
            if self.jobs.get(&id).is_none_or(Job::has_ended) {
                continue;
            }
            self.move_the_frozen(draft, id);
            self.begin_more(draft, id);
        }
        self.growing.retain(|id| self.jobs.contains_key(id));
        self.grown_at = Some(self.pool.version());
    }

    fn move_the_frozen(&mut self, draft: &mut Draft, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(keep) = keep(job) else { return };
        let frozen = |fence: &Fence| {
            let attempt = self.attempts.get(fence);
            attempt.is_some_and(|it| it.stage == Stage::Held(GuestState::Suspended))
                && !self.moves.contains_key(fence)
        };
        let mut waiting: Vec<Fence> = job.placed().map(|(_, fence)| fence).filter(frozen).collect();
        waiting.sort_unstable();
        for fence in waiting {
            if !self.pool.has_free() {
                return;
            }
            self.moves.insert(fence, Moving::new(keep, None));
            match self.target_for(fence) {
                Some(target) => self.begin_move(draft, fence, target),
                None => drop(self.moves.remove(&fence)),
            }
        }
    }

    fn begin_more(&mut self, draft: &mut Draft, id: JobId) {
        let room = self.room_for(draft.now, id);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(program) = &mut job.program else { return };
        if program.negotiator().is_some() {
            let obligation = Obligation::Voluntary;
            let offer = Decision::Grow { job: id, by: room, obligation };
            return self.negotiate(draft, id, &offer);
        }
        program.grow(room);
        self.obey_program(draft, id);
        self.place(draft);
    }

    /// A job was accepted or found in the store.
    pub(super) fn may_grow(&mut self, id: JobId) {
        let program = self.jobs.get(&id).and_then(|job| job.program.as_deref());
        if program.is_some_and(Program::reacts_to_increases) {
            self.growing.insert(id);
        }
    }
}

/// What a frozen rank of the job would take along.
pub(super) fn keep(job: &Job) -> Option<Keep> {
    let on_busy = job.spec().on_busy;
    [on_busy.when_busy(), on_busy.then.step()].into_iter().find_map(|step| match step {
        Step::Move(keep) => Some(keep),
        Step::Stay | Step::Demote | Step::Freeze => None,
    })
}
