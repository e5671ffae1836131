//! What replicas come to, and what that means for their subprograms.

use gleaner_common::id::{JobId, WorkstationId};
use gleaner_common::job::Outcome;
use gleaner_common::report::SubprogramState;
use gleaner_common::wire::Finished;

use super::{Core, Draft};
use crate::attempt::Attempt;
use crate::job::{Job, Position};
use crate::record::{Change, History};
use crate::replicas::{Verdict, answer};

/// What becomes of a subprogram, and why what still runs of it is stopped.
struct Decision {
    state: SubprogramState,
    not_needed: &'static str,
}

/// Where an attempt may go when it moves, if it is a replica.
#[derive(Debug, Default)]
pub(super) struct Reach {
    barred: Vec<WorkstationId>,
    /// It goes back to one of these, or nowhere: on any other workstation it would
    /// leave none to a replica that has not begun.
    only: Option<Vec<WorkstationId>>,
}

impl Reach {
    pub(super) fn why_not(&self, at: WorkstationId) -> Option<&'static str> {
        let is_new = self.only.as_ref().is_some_and(|only| !only.contains(&at));
        if self.barred.contains(&at) {
            Some("another replica has been there")
        } else {
            is_new.then_some("another replica of it would have nowhere to run")
        }
    }
}

impl Core {
    pub(super) fn reach(&self, job: &Job, position: Position) -> Reach {
        let Some(replicas) = job.replicas() else { return Reach::default() };
        let (nowhere, touched) = replicas.unbegun(position);
        let left = self.pool.could_run(job.needs(), &touched, nowhere + 1);
        let only = (left <= nowhere).then(|| replicas.trail(position).to_vec());
        Reach { barred: replicas.barred(position), only }
    }

    /// A replica ended by itself or by a limit. A failure is tried again as any
    /// other would be; what it comes to in the end is its vote.
    pub(super) fn replica_finished(
        &mut self,
        draft: &mut Draft,
        (attempt, mut history): (Attempt, History),
        finished: Finished,
    ) {
        let (id, position) = (attempt.job, attempt.position);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        history.cpu = finished.cpu;
        let progress = job.progress_mut();
        progress.wasted_cpu = progress.wasted_cpu.saturating_add(finished.cpu);
        if !finished.outcome.is_success() {
            history.failures += 1;
            history.avoid(attempt.workstation);
            let hopeless = matches!(finished.outcome, Outcome::Fault(_));
            if !hopeless && history.failures <= job.spec().retries {
                job.progress_mut().counts.retried += 1;
                job.begin_anew(position);
                draft.change(job.replica_change(position, &history, Some(Box::new(finished))));
                job.retry_last(position, history);
                return self.requeue(id);
            }
        }
        let answer = answer(&finished);
        let finished = Box::new(finished);
        if let Some(replicas) = job.replicas_mut() {
            replicas.vote(position, answer, history.clone());
        }
        draft.change(job.replica_change(position, &history, Some(finished.clone())));
        self.obey_verdict(draft, (id, position), &history, finished);
    }

    fn obey_verdict(
        &mut self,
        draft: &mut Draft,
        (id, position): (JobId, Position),
        voter: &History,
        finished: Box<Finished>,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let subprogram = job.first_position(position);
        let verdict = job.replicas().map_or(Verdict::Wait, |it| it.verdict(subprogram));
        match verdict {
            Verdict::Wait => {}
            Verdict::More(count) => job.queue_more(subprogram, count),
            Verdict::Agreed(answer) => {
                let sides = job.replicas().map(|it| it.sides(subprogram, answer));
                let name = job.subprogram(position);
                let progress = job.progress_mut();
                progress.wasted_cpu = progress.wasted_cpu.saturating_sub(finished.cpu);
                progress.cpu = progress.cpu.saturating_add(finished.cpu);
                let state = if finished.outcome.is_success() {
                    SubprogramState::Succeeded
                } else {
                    SubprogramState::Failed
                };
                let decision = Decision { state, not_needed: "enough others agree" };
                self.decide(draft, (id, subprogram), &decision, |history| {
                    (history.last, history.cpu) = (voter.last.clone(), voter.cpu);
                });
                draft.change(Change::Result { subprogram: name, accepted: true, finished });
                if let Some((agree, differ)) = sides.filter(|(_, differ)| !differ.is_empty()) {
                    let (agree, differ) = (self.names(&agree), self.names(&differ));
                    let note =
                        format!("subprogram {name}: {differ} gave other output than {agree}");
                    self.note(draft, id, note);
                }
            }
            Verdict::Differ(at) => {
                let why = format!("{} gave different outputs", self.names(&at));
                self.hold(draft, (id, subprogram), &why);
            }
        }
        self.requeue(id);
    }

    /// A replicated subprogram is not tried any more, and nothing of it counts.
    pub(super) fn hold(&mut self, draft: &mut Draft, of: (JobId, Position), why: &str) {
        let Some(job) = self.jobs.get(&of.0) else { return };
        let name = job.subprogram(of.1);
        let decision = Decision { state: SubprogramState::Failed, not_needed: "it is held" };
        self.decide(draft, of, &decision, |history| {
            history.last.outcome = format!("held: {why}").into();
        });
        self.note(draft, of.0, format!("subprogram {name} is held: {why}"));
        self.requeue(of.0);
    }

    /// Ends a subprogram and what still runs of it.
    fn decide(
        &mut self,
        draft: &mut Draft,
        (id, subprogram): (JobId, Position),
        Decision { state, not_needed }: &Decision,
        conclude: impl FnOnce(&mut History),
    ) {
        let Some(job) = self.jobs.get(&id) else { return };
        let of = job.replicas().into_iter().flat_map(|it| it.of(subprogram));
        let open: Vec<_> = of.filter_map(|position| job.fence(position)).collect();
        let why = format!("not needed: {not_needed}");
        for fence in open {
            if let Some((attempt, history)) =
                self.stop(draft, fence, &why, SubprogramState::Cancelled)
                && let Some(job) = self.jobs.get_mut(&id)
            {
                job.keep(attempt.position, history);
            }
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let mut history = job.decided(subprogram);
        conclude(&mut history);
        draft.change(job.record_change(subprogram, &history, *state));
        let counts = &mut job.progress_mut().counts;
        counts.succeeded += u32::from(*state == SubprogramState::Succeeded);
        counts.failed += u32::from(*state == SubprogramState::Failed);
        draft.job_record_changed(id);
    }

    /// What the store is to know of a cancelled job's subprograms, of which
    /// replicas had run.
    pub(super) fn cancelled_replicas(job: &Job) -> Vec<Change> {
        let Some(replicas) = job.replicas() else { return vec![] };
        let change = |subprogram| {
            let history = job.known(subprogram)?;
            Some(job.record_change(subprogram, &history, SubprogramState::Cancelled))
        };
        replicas.begun().filter_map(change).collect()
    }

    /// "ws3 and ws7".
    pub(super) fn names(&self, of: &[WorkstationId]) -> String {
        let name = |id: &WorkstationId| {
            self.workstation_name(*id).map_or_else(|| id.to_string(), str::to_owned)
        };
        let mut names: Vec<String> = of.iter().map(name).collect();
        let Some(last) = names.pop() else { return "nobody".to_owned() };
        if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
    }
}
