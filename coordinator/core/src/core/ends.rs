//! How attempts go on and end, and what that means for their subprograms.

use std::time::Duration;

use gleaner_common::id::{Fence, SubprogramId};
use gleaner_common::job::Outcome;
use gleaner_common::report::SubprogramState;
use gleaner_common::wire::{CoordinatorFrame, Finished, GuestState};
use gleaner_program_core::address::Rank;

use super::{Core, Draft};
use crate::attempt::{Attempt, Return, Stage, span};
use crate::blame::Case;
use crate::job::Job;
use crate::record::{Change, History, LastAttempt};
use crate::workstation::clip;

/// So many attempts of a subprogram in a row may be lost before that is taken for
/// its own doing: one dies by chance, and two.
const LOST_FOR_FREE: u32 = 2;

/// A workstation that was lost so long after the placement was hardly killed by
/// what it was given. A guess.
const NOT_KILLED_AFTER: Duration = Duration::from_secs(3_600);

impl Core {
    /// The agent says that an attempt is so far.
    pub(super) fn set_stage(&mut self, draft: &mut Draft, fence: Fence, stage: Stage) {
        let Some(attempt) = self.attempts.get_mut(&fence) else { return };
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        // An attempt that moves is counted at its source until it has arrived.
        if attempt.coming.is_some() {
            return;
        }
        let before = std::mem::replace(&mut attempt.stage, stage);
        if before == stage {
            return;
        }
        if Self::folds(job) && !before.has_started() {
            // It can leave its workstation from now on.
            self.schedule.changed(attempt.job);
        }
        job.set_suspended(attempt.position, (before.is_suspended(), stage.is_suspended()));
        if before.is_suspended() != stage.is_suspended() {
            job.count_riding(attempt.rides, !stage.is_suspended());
            if stage.is_suspended() && !attempt.rides {
                // To the scheduler the job has given its place up already.
                self.schedule.lost(attempt.job);
            }
            self.schedule.changed(attempt.job);
        }
        // An attempt whose agent was not connected may have been suspended all
        // along; its end tells how often.
        if stage.is_suspended() && before.has_started() {
            attempt.suspensions += 1;
            job.open_suspensions += 1;
        }
        draft.job_changed(attempt.job);
        self.may_stay(draft.now, fence);
    }

    /// An open attempt ended by itself or by a limit: its result counts.
    pub(super) fn finished(&mut self, draft: &mut Draft, finished: Finished) {
        let fence = finished.fence;
        self.stop_move(draft, fence, "it has ended");
        let outcome = finished.outcome.to_string();
        let suspensions = finished.suspensions;
        let Some((attempt, mut history)) = self.end(draft, fence, outcome, suspensions) else {
            return;
        };
        if attempt.holds_place() {
            self.schedule.was_done(attempt.job);
        }
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        history.lost_in_a_row = 0;
        // What failed says nothing of how long the others take: as quick as they fail on a
        // full disk, they would be sent there by the dozen.
        if finished.outcome.is_success() {
            job.learn_span(span(finished.ran, finished.suspended));
        }
        if job.program.is_some() {
            return self.rank_finished(draft, (attempt, history), finished);
        }
        let counts = self.judge(draft, &attempt, &finished.outcome);
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        if job.replicas().is_some() {
            return self.replica_finished(draft, (attempt, history), finished);
        }
        history.cpu = finished.cpu;
        let state = if finished.outcome.is_success() {
            SubprogramState::Succeeded
        } else {
            history.failures += u32::from(counts);
            history.avoid(attempt.workstation);
            let hopeless = matches!(finished.outcome, Outcome::Fault(_));
            if hopeless || history.failures > job.spec().retries {
                SubprogramState::Failed
            } else {
                SubprogramState::Queued
            }
        };
        let subprogram = job.subprogram(attempt.position);
        draft.change(job.subprogram_change(attempt.position, &history, state));
        let progress = job.progress_mut();
        let accepted = state != SubprogramState::Queued;
        if accepted {
            progress.cpu = progress.cpu.saturating_add(finished.cpu);
            progress.counts.succeeded += u32::from(state == SubprogramState::Succeeded);
            progress.counts.failed += u32::from(state == SubprogramState::Failed);
        } else {
            progress.wasted_cpu = progress.wasted_cpu.saturating_add(finished.cpu);
            progress.counts.retried += 1;
            job.retry_last(attempt.position, history);
        }
        draft.change(Change::Result { subprogram, accepted, finished: Box::new(finished) });
        self.requeue(attempt.job);
    }

    /// Whose fault a failure is: does it count against its subprogram? Others that
    /// turn out to be the workstation's do not any more.
    fn judge(&mut self, draft: &mut Draft, attempt: &Attempt, outcome: &Outcome) -> bool {
        let (now, id, at) = (draft.now, attempt.job, attempt.workstation);
        let Some(job) = self.jobs.get_mut(&id) else { return true };
        let SubprogramId { index, .. } = job.subprogram(attempt.position);
        let case = Case { user: &job.record().user, job: id, index, at };
        let judgement = match outcome {
            Outcome::Succeeded => {
                self.blame.succeeded(now, case);
                return true;
            }
            Outcome::ExitCode(_) | Outcome::Signal(_) | Outcome::CannotStart(_) => {
                self.blame.failed(now, case, self.pool.in_sight())
            }
            // What the job may use is its own to know.
            Outcome::TimedOut | Outcome::OverLimit(_) | Outcome::Fault(_) => return true,
        };
        let mut counts = true;
        for other in judgement.excused {
            if other == index {
                counts = false;
            } else if job.replicas().is_none()
                && let Some((position, history)) = job.excuse(other)
            {
                let history = history.clone();
                let state = SubprogramState::Queued;
                draft.change(job.subprogram_change(position, &history, state));
            }
        }
        if let Some((span, reason)) = judgement.rest {
            self.change_workstation(now, at, |w| w.blamed = Some((now + span, reason)));
        }
        counts
    }

    /// An open attempt ended without a result: its subprogram goes first.
    pub(super) fn came_back(&mut self, draft: &mut Draft, fence: Fence, how: &Return) {
        if let Some(attempt) = self.attempts.get(&fence)
            && let Some(coming) = attempt.coming
            && self.attempts.contains_key(&coming.old)
        {
            let Return::Lost(why) = how else { return };
            return self.move_failed(draft, fence, &format!("lost: {why}"));
        }
        let moving_to = self.moves.get(&fence).and_then(|moving| moving.new);
        let goes_on = moving_to.filter(|_| !matches!(how, Return::Refused(_)));
        if goes_on.is_some() {
            // What is being carried may be all of the guest, and is all that is
            // left.
            self.moves.remove(&fence);
        } else {
            self.stop_move(draft, fence, "it came back");
        }
        let (outcome, suspensions) = match how {
            Return::Retreated { reason, suspensions } => {
                (format!("retreated: {reason}"), *suspensions)
            }
            Return::Refused(reason) => (format!("refused: {reason}"), 0),
            Return::Lost(why) => (format!("lost: {why}"), 0),
            Return::Orphaned { reason, suspensions } => (format!("lost: {reason}"), *suspensions),
        };
        let Some((attempt, mut history)) = self.end(draft, fence, outcome.clone(), suspensions)
        else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        match how {
            // The guest never began: its work came back untouched.
            Return::Retreated { .. } if !attempt.stage.has_started() => {}
            Return::Retreated { .. } => {
                history.retreats += 1;
                history.lost_in_a_row = 0;
                job.progress_mut().counts.retreats += 1;
            }
            Return::Refused(_) => {}
            // Its state had not arrived, and the attempt before it was counted
            // already.
            Return::Lost(_) if attempt.coming.is_some() && !attempt.arrived => {}
            Return::Lost(_) | Return::Orphaned { .. } => {
                history.lost += 1;
                job.progress_mut().counts.lost += 1;
                // A guest may well bring down what watches over it, however late.
                let held_out = matches!(how, Return::Lost(_))
                    && draft.wall.since(attempt.placed) > NOT_KILLED_AFTER;
                let before = if held_out { 0 } else { history.lost_in_a_row };
                history.lost_in_a_row = before + 1;
            }
        }
        if goes_on.is_none() {
            job.begin_anew(attempt.position);
        }
        if goes_on.is_none()
            && history.lost_in_a_row > LOST_FOR_FREE
            && matches!(how, Return::Lost(_) | Return::Orphaned { .. })
        {
            return self.lost_again(draft, &attempt, history, &outcome);
        }
        draft.change(job.subprogram_change(attempt.position, &history, SubprogramState::Queued));
        if let Some(new) = goes_on {
            let rides = self.attempts.get(&new).is_some_and(|it| it.rides);
            if rides {
                job.count_riding(true, true);
            } else {
                job.no_more_coming();
            }
            return job.go_on(attempt.position, history, new);
        }
        job.return_first(attempt.position, history);
        self.requeue(attempt.job);
        self.rank_came_back(draft, &attempt, how);
    }

    /// Workstations, or keepers, keep being lost with this subprogram: it is
    /// charged as if it had failed, and held when its retries are used up, so
    /// that what kills them does not wander through all of them.
    fn lost_again(
        &mut self,
        draft: &mut Draft,
        attempt: &Attempt,
        mut history: History,
        outcome: &str,
    ) {
        let (id, position) = (attempt.job, attempt.position);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        history.failures += 1;
        let subprogram = job.subprogram(position);
        let why = format!("its last {} attempts were lost", history.lost_in_a_row);
        history.last.outcome = format!("{outcome}: {why}").into();
        let retries = job.spec().retries;
        if let Some(program) = &job.program {
            let failures = program.past().state.failures;
            let why = format!("rank {position}: {why}");
            if failures >= retries {
                return self.fail_program(draft, id, (position, &history), why);
            }
            job.progress_mut().counts.retried += 1;
            draft.change(job.subprogram_change(position, &history, SubprogramState::Queued));
            job.return_first(position, history);
            return self.begin_again(draft, id, &why, true);
        }
        history.avoid(attempt.workstation);
        let is_held = history.failures > retries;
        if is_held && job.replicas().is_some() {
            draft.change(job.subprogram_change(position, &history, SubprogramState::Failed));
            job.keep(position, history);
            let of = (id, job.first_position(position));
            return self.hold(draft, of, &why);
        }
        let state = if is_held { SubprogramState::Failed } else { SubprogramState::Queued };
        draft.change(job.subprogram_change(position, &history, state));
        if is_held {
            job.progress_mut().counts.failed += 1;
            self.note(draft, id, format!("subprogram {subprogram} is held: {why}"));
        } else {
            job.progress_mut().counts.retried += 1;
            job.retry_last(position, history);
        }
        self.requeue(id);
    }

    /// A rank that had not begun begins elsewhere; with any other, the
    /// messages that it had are gone.
    fn rank_came_back(&mut self, draft: &mut Draft, attempt: &Attempt, how: &Return) {
        let (id, position) = (attempt.job, attempt.position);
        let job = self.jobs.get_mut(&id);
        let Some(program) = job.and_then(|job| job.program.as_mut()) else { return };
        if matches!(how, Return::Refused(_)) && !attempt.arrived {
            program.never_began(draft.now, Rank(position));
            return self.obey_program(draft, id);
        }
        let name = self.workstation_name(attempt.workstation).unwrap_or("a workstation");
        let why = match how {
            Return::Refused(reason) => {
                format!("rank {position} had come to {name} and was not set going: {reason}")
            }
            // The rank had begun, whether or not that is known here: an attempt
            // that had not is refused.
            Return::Retreated { reason, .. } => {
                format!("rank {position} retreated from {name}: {reason}")
            }
            Return::Lost(why) => format!("rank {position} was lost on {name}: {why}"),
            Return::Orphaned { reason, .. } => {
                format!("rank {position} was lost on {name}: {reason}")
            }
        };
        self.begin_again(draft, id, &why, false);
    }

    /// Ends an attempt whose job was cancelled or whose program stops. An agent
    /// that is not connected stops the guest when it is back: the welcome does
    /// not keep it.
    pub(super) fn stop(
        &mut self,
        draft: &mut Draft,
        fence: Fence,
        why: &str,
        state: SubprogramState,
    ) -> Option<(Attempt, History)> {
        self.stop_move(draft, fence, why);
        let (attempt, history) = self.end(draft, fence, why.to_owned(), 0)?;
        let job = self.jobs.get(&attempt.job)?;
        draft.change(job.subprogram_change(attempt.position, &history, state));
        self.send(draft, attempt.workstation, CoordinatorFrame::Cancel { fence });
        Some((attempt, history))
    }

    /// Takes an attempt out of everything that refers to it.
    pub(super) fn end(
        &mut self,
        draft: &mut Draft,
        fence: Fence,
        mut outcome: String,
        suspensions: u32,
    ) -> Option<(Attempt, History)> {
        let attempt = self.attempts.remove(&fence)?;
        self.schedule.forget_attempt(fence);
        self.residence.no_longer_stays(fence);
        self.fold_ended(attempt.job, fence);
        self.change_workstation(draft.now, attempt.workstation, |w| w.remove(fence));
        let job: &mut Job = self.jobs.get_mut(&attempt.job)?;
        job.set_suspended(attempt.position, (attempt.stage.is_suspended(), false));
        job.count_riding(attempt.rides && !attempt.stage.is_suspended(), false);
        if attempt.holds_place() {
            self.schedule.lost(attempt.job);
        }
        self.schedule.changed(attempt.job);
        job.open_suspensions -= u64::from(attempt.suspensions);
        job.progress_mut().counts.suspensions += u64::from(suspensions.max(attempt.suspensions));
        if !attempt.rides {
            self.shares.ended(draft.now, &job.record().user, job.each());
        }
        clip(&mut outcome);
        let workstation = attempt.workstation;
        let last = LastAttempt { fence, workstation, outcome: outcome.as_str().into() };
        let history = job.take_back(attempt.position, last);
        draft.change(attempt.change(fence, job, Some((draft.wall, outcome))));
        draft.job_record_changed(attempt.job);
        self.pass_place_on(draft, attempt.job, workstation);
        Some((attempt, history))
    }
}

/// The word for a placed subprogram's state.
pub(super) fn placed_state(stage: Stage) -> SubprogramState {
    match stage {
        Stage::Offered | Stage::Held(GuestState::Waiting) => SubprogramState::Placed,
        Stage::Held(GuestState::Running) => SubprogramState::Running,
        Stage::Held(GuestState::Suspended | GuestState::Leaving) => SubprogramState::Suspended,
        Stage::Held(GuestState::Demoted) => SubprogramState::Demoted,
    }
}
