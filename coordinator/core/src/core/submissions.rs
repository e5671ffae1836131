//! How jobs are submitted, go on and end.

use gleaner_common::id::{Fence, JobId};
use gleaner_common::job::JobSpec;
use gleaner_common::program::Life;
use gleaner_common::report::{JobState, SubprogramState};
use gleaner_common::wire::CoordinatorFrame;

use super::schedule::asked_for;
use super::{Core, Draft};
use crate::event::RequestId;
use crate::job::Job;
use crate::needs::Needs;
use crate::program::Program;
use crate::record::{Change, JobProgress, JobRecord};
use crate::step::{Answer, Effect};

/// How many jobs may be under way. With the limits of a spec, this bounds what
/// users can make the coordinator remember.
const JOBS_MAX: usize = 10_000;

impl Core {
    pub(super) fn submitted(
        &mut self,
        draft: &mut Draft,
        request: RequestId,
        user: String,
        spec: JobSpec,
    ) {
        let refusal = match spec.check() {
            Err(wrong) => Some(wrong.to_string()),
            Ok(()) if self.jobs.len() >= JOBS_MAX => {
                Some(format!("{JOBS_MAX} jobs are under way: expected fewer"))
            }
            Ok(()) => self
                .too_much(&user, &spec)
                .or_else(|| self.never_met(&spec))
                .or_else(|| self.larger_than_all(&spec))
                .or_else(|| asked_for(&spec).err().map(|wrong| wrong.to_string())),
        };
        if let Some(reason) = refusal {
            return draft.effect(Effect::Answer { request, answer: Answer::No(reason) });
        }
        let id = JobId(self.last_job.0 + 1);
        self.last_job = id;
        let mut progress = JobProgress::new(id);
        progress.life = Life(u32::from(spec.program.is_some()));
        let submitted = draft.wall;
        let record = JobRecord { job: id, user, submitted, spec, progress, notes: vec![] };
        draft.change(Change::Job(Box::new(record.clone())));
        draft.effect(Effect::Answer { request, answer: Answer::Submitted(id) });
        let mut job = Job::new(record);
        let unmet = self.unmet(job.needs()).or_else(|| self.too_few(&job));
        let (program, ranks) = (job.spec().program, job.total());
        let floor = self.fences.floor();
        job.program = program.map(|spec| Box::new(Program::new(draft.now, spec, ranks, floor)));
        self.jobs.insert(id, job);
        self.obey_program(draft, id);
        if let Some(unmet) = unmet {
            self.note(draft, id, unmet);
        }
        self.requeue(id);
        draft.job_changed(id);
    }

    /// Which of the user's limits the job goes over.
    pub(super) fn too_much(&self, user: &str, spec: &JobSpec) -> Option<String> {
        let config = self.shares.config();
        let jobs = self.jobs.values().filter(|job| job.record().user == user).count();
        if jobs >= config.jobs_max as usize {
            let most = config.jobs_max;
            return Some(format!("{user} has {jobs} jobs under way: expected fewer than {most}"));
        }
        let waiting = self.queues.of(user).map_or(0, |own| self.queued_of(own.jobs()));
        let more = u64::from(spec.indexes.len()) * u64::from(spec.replicas);
        let most = config.queued_max;
        if waiting + more > most {
            return Some(format!(
                "{user} has {waiting} subprograms queued, and {more} more are too many: \
                 expected at most {most} altogether"
            ));
        }
        let needs = spec.needs_at_once().saturating_mul(spec.cores.into());
        let most = config.running_max;
        (most > 0 && needs > most).then(|| {
            format!("it needs {needs} places at once: expected at most {most} for one user")
        })
    }

    /// Why no workstation can take it, where all of them have said what they
    /// have; while some have not, the job waits for them.
    pub(super) fn never_met(&self, spec: &JobSpec) -> Option<String> {
        let all_known = self.pool.known().count() == self.pool.len();
        all_known.then(|| self.unmet(Needs::of(spec))).flatten()
    }

    /// Cancels a job: its queued subprograms never start, its placed ones are
    /// stopped.
    pub(super) fn cancel_asked(&mut self, draft: &mut Draft, request: RequestId, id: JobId) {
        if !self.jobs.contains_key(&id) {
            let answer = Answer::No(format!("job {id} is not under way"));
            return draft.effect(Effect::Answer { request, answer });
        }
        self.withdraw(draft, id);
        draft.effect(Effect::Answer { request, answer: Answer::Cancelled(id) });
    }

    /// Nothing of the job starts any more, and what is placed is stopped.
    pub(super) fn withdraw(&mut self, draft: &mut Draft, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        for (position, history) in job.tried_before() {
            draft.change(job.subprogram_change(position, history, SubprogramState::Cancelled));
        }
        let placed: Vec<Fence> = job.placed().map(|(_, fence)| fence).collect();
        for fence in placed {
            let stopped = self.stop(draft, fence, "cancelled", SubprogramState::Cancelled);
            if let Some((attempt, history)) = stopped
                && let Some(job) = self.jobs.get_mut(&id)
                && job.replicas().is_some()
            {
                job.keep(attempt.position, history);
            }
        }
        self.forget_ended(draft.now, id);
        if let Some(job) = self.jobs.get_mut(&id) {
            draft.step.changes.extend(Self::cancelled_replicas(job));
            job.cancel(draft.wall);
        }
        draft.job_record_changed(id);
        self.requeue(id);
    }

    /// Tells of a job that changed, and forgets one that has ended.
    pub(super) fn tell_of_job(&mut self, draft: &mut Draft, id: JobId, durably: bool) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let has_ended = job.has_ended();
        if has_ended && job.progress().state == JobState::Running {
            let progress = job.progress_mut();
            progress.ended = Some(draft.wall);
            progress.state =
                if progress.counts.failed == 0 { JobState::Succeeded } else { JobState::Failed };
        }
        if durably {
            draft.change(Change::Progress(*job.progress()));
        }
        draft.effect(Effect::Progress(job.summary()));
        if !has_ended {
            return;
        }
        self.forget_ended(draft.now, id);
        let Some(mut job) = self.jobs.remove(&id) else { return };
        self.set_timer(id);
        if let Some(program) = &mut job.program {
            draft.change(Change::ProgramOver { job: id });
            let unneeded = program.unneeded_now();
            if !unneeded.is_empty() {
                draft.effect(Effect::Unneeded(unneeded));
            }
        }
        for workstation in job.spec_sent_to {
            self.change_workstation(draft.now, workstation, |w| {
                if let Some(session) = &mut w.session {
                    session.specs_sent.remove(&id);
                    session.ranks_sent.remove(&id);
                }
            });
            self.send(draft, workstation, CoordinatorFrame::Forget { job: id });
        }
    }
}
