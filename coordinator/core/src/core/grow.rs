//! What a program that reacts to increases makes of a workstation that has
//! become free (Phalen 1994, §2.1.2 and Table 1: models 2, 4, 6 and 8).
//!
//! When it may grow, and by how much, the scheduler decides; which of the ranks
//! that are frozen for an owner elsewhere goes there, [`Residence`]. What is left
//! is taken by new ranks, where the program has a bag of tasks for them.
//!
//! [`Residence`]: crate::residence::Residence

use std::time::Duration;

use gleaner_common::id::{Fence, JobId};
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_common::wire::GuestState;

use super::moves::{Moving, Targets};
use super::{Core, Draft};
use crate::attempt::Stage;
use crate::job::Job;
use crate::program::Program;

/// What could not leave may be able to by then: a socket is closed, a process has
/// ended. A guess.
const STUCK_FOR: Duration = Duration::from_secs(30);

const FROZEN: Stage = Stage::Held(GuestState::Suspended);

impl Core {
    /// What an attempt would take along that stays under its owner and is not to
    /// leave, of a program that reacts to increases.
    pub(super) fn escapes_with(&self, fence: Fence) -> Option<Keep> {
        let attempt = self.attempts.get(&fence)?;
        let job = self.jobs.get(&attempt.job)?;
        let reacts = job.program.as_deref().is_some_and(Program::reacts_to_increases);
        let escape = self.residence.rules().escape;
        let on_busy = job.spec().on_busy;
        let is_free = !self.moves.contains_key(&fence) && attempt.stuck_until.is_none();
        let stays = reacts && attempt.stage == FROZEN && is_free;
        stays.then(|| escape.keep(on_busy, true)).flatten()
    }

    /// An attempt may have come to stay under its owner, or not to any more.
    pub(super) fn may_stay(&mut self, now: Moment, fence: Fence) {
        let attempt = self.attempts.get(&fence).map(|attempt| (attempt.job, attempt.position));
        let Some((job, rank)) = attempt else { return };
        if self.escapes_with(fence).is_some() {
            self.residence.stays(now, job, (rank, fence));
        } else {
            self.residence.no_longer_stays(fence);
        }
        self.schedule.changed(job);
    }

    /// It could not leave: what would carry it is asked again after a while only, or
    /// whoever wants it elsewhere would ask without end.
    pub(super) fn is_stuck(&mut self, now: Moment, fence: Fence) {
        if let Some(attempt) = self.attempts.get_mut(&fence) {
            let until = now + STUCK_FOR;
            attempt.stuck_until = Some(until);
            self.stuck.insert((until, fence));
        }
    }

    pub(super) fn may_leave_again(&mut self, now: Moment) {
        while let Some((until, fence)) = self.stuck.first().copied().filter(|(at, _)| *at <= now) {
            self.stuck.pop_first();
            let attempt = self.attempts.get_mut(&fence);
            if attempt.is_some_and(|it| it.stuck_until.take_if(|at| *at == until).is_some()) {
                self.may_stay(now, fence);
            }
        }
    }

    /// Ranks that stand still for an owner and would go on elsewhere.
    pub(super) fn frozen(&self, job: &Job) -> impl Iterator<Item = Fence> + '_ {
        self.residence.under_owners(job.id())
    }

    /// Moves one of the job's frozen ranks to a free place, if that suits.
    pub(super) fn move_frozen(&mut self, draft: &mut Draft, id: JobId) -> bool {
        let found = self.residence.escape(id, &mut Targets(self));
        let Some((fence, target)) = found else { return false };
        let Some(keep) = self.escapes_with(fence) else { return false };
        self.moves.insert(fence, Moving::new(keep, None));
        self.residence.no_longer_stays(fence);
        self.begin_move(draft, fence, target);
        true
    }

    /// The program begins ranks for so many places, if it has tasks for them.
    pub(super) fn begin_more(&mut self, draft: &mut Draft, id: JobId, room: u32) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let room = self.pool.room_for(room, job.needs());
        // What waits already found nothing that suits it.
        let may = room > 0 && job.queued() == 0;
        let Some(program) = job.program.as_mut().filter(|it| may && it.could_add() > 0) else {
            return false;
        };
        program.grow(room);
        self.obey_program(draft, id);
        true
    }
}
