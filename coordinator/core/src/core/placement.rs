//! Placing: which subprogram of a job goes to which workstation.
//!
//! Whose turn it is, and how many places a job has, the scheduler decides. What
//! one placement costs does not grow with who else waits.

use gleaner_common::id::{JobId, WorkstationId};
use gleaner_common::time::Moment;
use gleaner_common::wire::CoordinatorFrame;

use super::{Core, Draft};
use crate::attempt::Attempt;
use crate::event::Link;
use crate::job::{Avoided, Job, Turn};
use crate::needs::Needs;
use crate::queue::Queue;
use crate::shares::Claim;

/// The most that one step places, so that ten thousand free workstations and a
/// large job do not keep heartbeats waiting. The next step places the rest at
/// once.
pub(super) const PLACEMENTS_MAX: u32 = 64;

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

    /// Places the next of the job's queued subprograms, if there is one and
    /// something that is free suits it.
    pub(super) fn place_next(&mut self, draft: &mut Draft, id: JobId) -> bool {
        let found = self.jobs.get(&id).and_then(|job| self.match_of(draft.now, job));
        if let Some(found) = &found {
            self.goes_to_group(id, found.workstation);
            self.assign(draft, found);
        }
        found.is_some()
    }

    /// Sends ahead to places that are about to become free.
    pub(super) fn send_ahead(&mut self, draft: &mut Draft) {
        while let Some(found) = self.ahead_match(draft.now) {
            if draft.step.placed >= PLACEMENTS_MAX {
                self.more_to_place = true;
                return;
            }
            self.assign(draft, &found);
        }
    }

    fn match_of(&self, now: Moment, job: &Job) -> Option<Match> {
        if job.fits_nowhere_since.get() == Some(self.pool.version()) {
            return None;
        }
        let suspected = self.suspected(now, job);
        let find = |needs: Needs<'_>| {
            job.turns().find_map(|(turn, avoided)| {
                let avoided = avoided.and_rather(&suspected);
                let workstation = self.pool.choose_for(needs, &avoided)?;
                Some(Match { job: job.id(), turn, workstation })
            })
        };
        let grouped = self.needs_in_group(job).and_then(find);
        let found = grouped.or_else(|| find(job.needs()));
        let is_choosy = !job.needs().are_none();
        if found.is_none()
            && is_choosy
            && self.pool.choose_for(job.needs(), &Avoided::default()).is_none()
        {
            job.fits_nowhere_since.set(Some(self.pool.version()));
        }
        found
    }

    /// Where others of its job or user fail, one after the other. All ranks of a
    /// program begin at once, wherever there is room.
    pub(super) fn suspected(&self, now: Moment, job: &Job) -> Vec<WorkstationId> {
        if job.program.is_some() {
            return vec![];
        }
        self.blame.suspected(now, job.id(), &job.record().user)
    }

    /// Only the job whose turn comes next anyway is sent ahead, if it is short:
    /// whoever else waits is not to find every place taken again.
    fn ahead_match(&self, now: Moment) -> Option<Match> {
        if !self.pool.has_ahead() {
            return None;
        }
        let mut users = self.schedule.users_in_turn().filter(|user| self.shares.may_run(user));
        let queue = users.find_map(|user| self.queues.of(user))?;
        let mut jobs = queue.jobs().filter_map(|id| self.jobs.get(&id));
        let job = jobs.find(|job| self.pool.could_take(job.needs()))?;
        // What begins together does not begin with one that waits somewhere.
        if !queue.is_short(job) || job.spec().needs_at_once() > 1 {
            return None;
        }
        let suspected = self.suspected(now, job);
        job.turns().find_map(|(turn, avoided)| {
            let avoided = avoided.and_rather(&suspected);
            let workstation = self.pool.choose_ahead(job.needs(), &avoided)?;
            Some(Match { job: job.id(), turn, workstation })
        })
    }

    fn assign(&mut self, draft: &mut Draft, found: &Match) {
        self.assign_to(draft, (found.job, found.turn), found.workstation, false);
    }

    pub(super) fn assign_to(
        &mut self,
        draft: &mut Draft,
        (id, turn): (JobId, Turn),
        workstation: WorkstationId,
        rides: bool,
    ) {
        let Some(to) = self.link(workstation) else {
            unreachable!("a workstation without a connection among the free ones")
        };
        let fence = self.next_fence(draft);
        let job = self.jobs.get_mut(&id).expect("a queued job is a job");
        let position = job.place(turn, fence);
        job.count_riding(rides, true);
        let attempt = Attempt::new(id, position, workstation, draft.wall);
        self.open(draft, fence, Attempt { rides, ..attempt });
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
