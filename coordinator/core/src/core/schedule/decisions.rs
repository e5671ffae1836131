//! How what the scheduler decides is carried out: by placement, by growth, and by
//! asking jobs for what they hold.

use gleaner_common::id::{Fence, JobId};
use gleaner_common::wire::CoordinatorFrame;

use crate::core::placement::PLACEMENTS_MAX;
use crate::core::{Core, Draft};
use crate::job::Job;
use crate::scheduler::{Decision, Fact, Reason};

impl Core {
    pub(super) fn carry_out(&mut self, draft: &mut Draft, decision: Decision) {
        match decision {
            // It was to start in this stage as well, and nothing suits it.
            Decision::Grow { job, .. } | Decision::Shrink { job, .. }
                if self.schedule.scheduler.state().get(job).is_none() => {}
            Decision::Start { job, size } => self.start(draft, job, size),
            // Ranks that share places are no question. Otherwise it answers later,
            // by `negotiated`.
            Decision::Grow { job, .. } | Decision::Shrink { job, .. }
                if self.is_asked_about(&decision, job) =>
            {
                let each = self.each(job);
                self.negotiate(draft, job, &decision.in_parts(each));
            }
            Decision::Grow { job, by, .. } => {
                let left = self.place_more(draft, job, by);
                self.tell(draft.now, Fact::Answered { job, by: by - left });
            }
            Decision::Shrink { job, by, .. } => self.shrink(draft, job, by),
            // Programs that spawn have been answered.
            Decision::Offer { job, .. } => {
                self.tell(draft.now, Fact::Asked { job, more: 0, is_answer: true });
            }
            // A promise is the policy's to keep.
            Decision::Reserve { .. } => {}
            Decision::Refuse { job, reason } => self.refused(draft, job, reason),
        }
    }

    /// Are there ranks of the program that share places?
    fn shares_places(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.riding() > 0)
    }

    fn is_asked_about(&self, decision: &Decision, job: JobId) -> bool {
        let unfolds = matches!(decision, Decision::Grow { .. }) && self.shares_places(job);
        self.negotiates(job) && !unfolds
    }

    /// What needs several places has them all, or none; a bag that does not, as
    /// many as suit it.
    fn start(&mut self, draft: &mut Draft, id: JobId, size: u32) {
        let suits = self.jobs.get(&id).is_some_and(|job| self.suits_whole(job, size));
        let left = if suits { self.place_more(draft, id, size) } else { size };
        if left == size {
            if self.is_large_and_alone(id) {
                self.keep_for(draft, id);
            }
            self.schedule.patience.suits_nobody();
            self.schedule.suits_at = self.pool.version();
            self.tell(draft.now, Fact::Unplaced { job: id });
            self.tell_resources(draft.now);
        } else if left > 0 {
            self.tell(draft.now, Fact::Resized { job: id, size: size - left });
        }
    }

    // ── several cores of one workstation ───────────────────────────────────

    /// Whoever comes first and waits for more cores of one workstation than are
    /// free on any makes way for those behind, who can use what is free: for the
    /// first of them one workstation is kept, so that nobody waits for ever.
    pub(super) fn stand_aside(&mut self, draft: &mut Draft) -> bool {
        if draft.step.placed >= PLACEMENTS_MAX || !self.pool.has_free() {
            return false;
        }
        let state = self.schedule.scheduler.state();
        let first = state.claimants().find(|turn| state.waiting_at(*turn).is_some());
        let Some(id) = first.map(|turn| turn.2).filter(|id| self.is_large_and_alone(*id)) else {
            return false;
        };
        self.keep_for(draft, id);
        self.schedule.suits_at = self.pool.version();
        self.tell(draft.now, Fact::Unplaced { job: id });
        self.tell_resources(draft.now);
        true
    }

    /// Does one subprogram of it want more of one workstation than any has free,
    /// and need no others beside it?
    fn is_large_and_alone(&self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        let asked = job.spec().asked();
        let is_large = asked.cores > 1 || asked.memory_bytes > 0 || asked.disk_bytes > 0;
        let sizes = self.schedule.scheduler.state().sizes(id);
        let is_alone = sizes.is_some_and(|sizes| sizes.min() <= job.each());
        is_large && is_alone && self.pool.room_for(1, job.needs()) == 0
    }

    fn keep_for(&mut self, draft: &Draft, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        if self.pool.keep_for(draft.now, &self.config, job.needs()) {
            self.schedule.kept_for = Some(id);
        }
    }

    /// Lets go of what is kept for somebody who does not wait any more. Is it let
    /// go now?
    pub(super) fn keep_no_more(&mut self, draft: &Draft) -> bool {
        let Some(id) = self.schedule.kept_for else { return false };
        let is_kept = self.pool.kept().is_some();
        if self.jobs.get(&id).is_none_or(|job| job.queued() == 0) {
            self.pool.keep_no_more(draft.now, &self.config);
            self.tell_resources(draft.now);
        }
        self.schedule.kept_for = self.pool.kept().map(|_| id);
        is_kept && self.schedule.kept_for.is_none()
    }

    fn suits_whole(&self, job: &Job, size: u32) -> bool {
        let needs = job.needs();
        let sizes = self.schedule.scheduler.state().sizes(job.id());
        let may_be_fewer = sizes.is_some_and(|sizes| sizes.min() <= job.each());
        let parts = size / job.each();
        // Also what asks for nothing: beside guests that have more memory than their
        // cores stand for, a free core is no place.
        may_be_fewer || self.pool.room_for(parts, needs) >= parts
    }

    /// Gives the job so many processors more. How many of them it cannot use: what a
    /// step has no time for is placed by the next one.
    fn place_more(&mut self, draft: &mut Draft, id: JobId, by: u32) -> u32 {
        let unfilled = self.schedule.unfilled(id);
        self.schedule.set_unfilled(id, unfilled + by);
        self.choose_groups(id);
        let left = self.fill(draft, id).min(by);
        if left < by {
            self.schedule.patience.is_given(id);
        }
        left
    }

    /// Goes on with what a job was given before, and gives back what it cannot
    /// use.
    pub(super) fn fill_on(&mut self, draft: &mut Draft, id: JobId) {
        let left = self.fill(draft, id);
        let size = self.schedule.scheduler.state().get(id).map(|it| it.size);
        if let Some(size) = size.filter(|_| left > 0) {
            self.tell(draft.now, Fact::Resized { job: id, size: size.saturating_sub(left) });
        }
    }

    fn fill(&mut self, draft: &mut Draft, id: JobId) -> u32 {
        let each = self.each(id);
        loop {
            let left = self.schedule.unfilled(id);
            if left == 0 || draft.step.placed >= PLACEMENTS_MAX {
                return 0;
            }
            let fills =
                self.place_next(draft, id) || self.move_frozen(draft, id) || self.unfold(draft, id);
            if !fills {
                if self.begin_more(draft, id, left / each) {
                    continue;
                }
                self.schedule.set_unfilled(id, 0);
                return left;
            }
            self.schedule.set_unfilled(id, left.saturating_sub(each));
        }
    }

    /// Asks a job for places. A bag gives them as its subprograms end, so that
    /// no work is lost, as long as whoever needs them is patient; the ranks of a
    /// program share places.
    fn shrink(&mut self, draft: &mut Draft, id: JobId, by: u32) {
        let Some(job) = self.jobs.get(&id) else { return };
        let is_program = job.program.is_some();
        // What is not placed yet is given at once, in whole parts.
        let given = by.next_multiple_of(job.each()).min(self.schedule.unfilled(id));
        let size = self.schedule.scheduler.state().get(id).map(|it| it.size);
        if let Some(size) = size.filter(|_| given > 0) {
            self.schedule.set_unfilled(id, self.schedule.unfilled(id) - given);
            self.tell(draft.now, Fact::Resized { job: id, size: size - given });
        }
        if given < by && is_program {
            self.shrink_by_folding(draft, id, by - given);
        } else if given < by {
            self.schedule.patience.begin(draft.now, id, self.config.scheduler.patience);
        }
    }

    /// Who has been asked for places long enough has them taken.
    pub(in crate::core) fn take_what_is_due(&mut self, draft: &mut Draft) {
        self.ask_again(draft.now);
        for id in self.schedule.patience.take_due(draft.now) {
            self.take_places(draft, id);
        }
    }

    /// The agents of the guests that began last, which have the least to lose,
    /// are asked to return them: only then can they begin elsewhere. Those that
    /// have not heard it are asked again.
    fn take_places(&mut self, draft: &mut Draft, id: JobId) {
        let asked = self.schedule.scheduler.state().get(id).map_or(0, |it| it.asked);
        let Some(job) = self.jobs.get(&id).filter(|_| asked > 0) else { return };
        let (asked, placed) = (asked.div_ceil(job.each()), job.placed());
        let runs = |fence: &Fence| {
            let attempt = self.attempts.get(fence);
            attempt.is_some_and(|it| !it.stage.is_suspended()) && !self.moves.contains_key(fence)
        };
        let mut running: Vec<Fence> = placed.map(|(_, fence)| fence).filter(runs).collect();
        running.sort_unstable();
        for fence in running.into_iter().rev().take(asked as usize) {
            self.schedule.given_back.insert(fence);
            if let Some(at) = self.workstation_of(fence) {
                self.send(draft, at, CoordinatorFrame::GiveBack { fence });
            }
        }
        self.schedule.patience.took(draft.now, id, self.config.scheduler.patience);
    }

    fn refused(&mut self, draft: &mut Draft, id: JobId, reason: Reason) {
        self.note(draft, id, format!("not taken: {reason}"));
        self.withdraw(draft, id);
    }
}
