//! Placing: which queued subprogram goes to which workstation.
//!
//! Users take turns by their shares, and within a user jobs go by priority and
//! then in the order of their submission. Who cannot use what is free is passed
//! over. What one placement costs grows with the users that wait, not with
//! their jobs.

use gleaner_common::id::{JobId, WorkstationId};
use gleaner_common::time::Moment;
use gleaner_common::wire::CoordinatorFrame;

use super::{Core, Draft};
use crate::attempt::Attempt;
use crate::event::Link;
use crate::job::{Avoided, Job, Turn};
use crate::queue::Queue;
use crate::shares::Claim;

/// The most that one step places, so that ten thousand free workstations and a
/// large job do not keep heartbeats waiting. The next step places the rest at
/// once.
const PLACEMENTS_MAX: u32 = 64;

/// How many jobs of a user are looked at for one that may use what is free.
/// Only jobs whose every remaining subprogram avoids it are passed over.
const JOBS_LOOKED_AT: usize = 32;

/// A subprogram and where it is to go.
struct Match {
    job: JobId,
    turn: Turn,
    workstation: WorkstationId,
}

/// A user who waits.
pub(super) struct Waiting<'a> {
    pub(super) user: &'a str,
    pub(super) queue: &'a Queue,
    claim: Claim,
}

impl Waiting<'_> {
    pub(super) fn is_before(&self, claim: &Claim) -> bool {
        self.claim.order(claim).is_lt()
    }
}

impl Core {
    /// Everybody who waits, in their order: of equals, whoever came first.
    pub(super) fn waiting(&self, now: Moment) -> Vec<Waiting<'_>> {
        let claimed = self.queues.users().map(|(user, queue)| {
            let claim = self.shares.claim(now, user);
            Waiting { user, queue, claim }
        });
        let mut waiting: Vec<_> = claimed.collect();
        waiting.sort_by(|a, b| {
            let by_age = || a.queue.oldest().cmp(&b.queue.oldest());
            a.claim.order(&b.claim).then_with(by_age)
        });
        waiting
    }

    /// Fills the free places, then sends ahead to places that are about to
    /// become free.
    pub(super) fn place(&mut self, draft: &mut Draft) {
        self.more_to_place = false;
        while let Some(found) = self.free_match(draft.now).or_else(|| self.ahead_match(draft.now)) {
            if draft.step.placed == PLACEMENTS_MAX {
                self.more_to_place = true;
                return;
            }
            self.assign(draft, &found);
        }
    }

    fn free_match(&self, now: Moment) -> Option<Match> {
        if !self.pool.has_free() {
            return None;
        }
        let waiting = self.waiting(now);
        let mut may_run = waiting.iter().filter(|next| self.shares.may_run(next.user));
        may_run.find_map(|next| {
            let jobs = next.queue.jobs().take(JOBS_LOOKED_AT);
            jobs.filter_map(|id| self.jobs.get(&id)).find_map(|job| self.match_of(job))
        })
    }

    fn match_of(&self, job: &Job) -> Option<Match> {
        if job.fits_nowhere_since.get() == Some(self.pool.version()) {
            return None;
        }
        let found = job.turns().find_map(|(turn, avoided)| {
            let workstation = self.pool.choose_for(job.needs(), &avoided)?;
            Some(Match { job: job.id(), turn, workstation })
        });
        let is_choosy = !job.needs().are_none();
        if found.is_none()
            && is_choosy
            && self.pool.choose_for(job.needs(), &Avoided::default()).is_none()
        {
            job.fits_nowhere_since.set(Some(self.pool.version()));
        }
        found
    }

    /// Only the job whose turn comes next anyway is sent ahead, if it is short:
    /// whoever else waits is not to find every place taken again.
    fn ahead_match(&self, now: Moment) -> Option<Match> {
        if !self.pool.has_ahead() {
            return None;
        }
        let waiting = self.waiting(now);
        let is_next = |next: &&Waiting<'_>| self.shares.may_run(next.user);
        let next = waiting.iter().find(is_next)?;
        let mut jobs = next.queue.jobs().filter_map(|id| self.jobs.get(&id));
        let job = jobs.find(|job| self.pool.could_take(job.needs()))?;
        if !next.queue.is_short(job) {
            return None;
        }
        job.turns().find_map(|(turn, avoided)| {
            let workstation = self.pool.choose_ahead(job.needs(), &avoided)?;
            Some(Match { job: job.id(), turn, workstation })
        })
    }

    fn assign(&mut self, draft: &mut Draft, found: &Match) {
        let Match { job: id, turn, workstation } = *found;
        let Some(to) = self.link(workstation) else {
            unreachable!("a workstation without a connection among the free ones")
        };
        let fence = self.next_fence(draft);
        let job = self.jobs.get_mut(&id).expect("a queued job is a job");
        let position = job.place(turn, fence);
        self.open(draft, fence, Attempt::new(id, position, workstation, draft.wall));
        self.offer(draft, to, fence);
        draft.job_changed(id);
        self.requeue(id);
    }

    /// A job's spec goes before its first offer on a connection.
    pub(super) fn send_spec(&mut self, draft: &mut Draft, to: Link, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("a placed job is a job");
        job.spec_sent_to.insert(to.workstation);
        let spec = Box::new(job.spec().clone());
        draft.send(to, CoordinatorFrame::Job { job: id, spec });
    }
}
