//! The rows that commands list of what has not ended.

use std::collections::BTreeSet;

use gleaner_common::id::{Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::machine::Machine;
use gleaner_common::report::{
    JobRow, JobSummary, ReplicaRow, ReplicaState, ShareRow, SubprogramRow, SubprogramState,
    WorkstationRow, WorkstationState,
};
use gleaner_common::time::Moment;

use super::Core;
use super::ends::placed_state;
use crate::job::{Job, Position, Whereabouts};
use crate::record::{SubprogramRecord, short};
use crate::workstation::Standing;

impl Core {
    /// The jobs that have not ended, oldest first.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = JobId> + '_ {
        self.jobs.keys().copied()
    }

    pub fn is_program(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.program.is_some())
    }

    pub fn jobs_of(&self, user: &str) -> Vec<JobId> {
        self.jobs.values().filter(|job| job.record().user == user).map(Job::id).collect()
    }

    /// `None` for a job that has ended or never was: ask the store.
    pub fn summary(&self, job: JobId) -> Option<JobSummary> {
        self.jobs.get(&job).map(crate::job::Job::summary)
    }

    /// `None` for a job that has ended or never was: ask the store.
    pub fn job_row(&self, job: JobId) -> Option<JobRow> {
        let job = self.jobs.get(&job)?;
        Some(job.record().row_with(job.summary()))
    }

    /// `None` for a subprogram that has ended or never was: ask the store.
    pub fn subprogram_row(&self, subprogram: SubprogramId) -> Option<SubprogramRow> {
        let job = self.jobs.get(&subprogram.job)?;
        let position = job.position(subprogram.index)?;
        let history = job.known(position);
        let last = history.as_ref().and_then(|it| self.workstation_name(it.last.workstation));
        let (state, history) = (SubprogramState::Queued, history.unwrap_or_default());
        let mut row = SubprogramRecord { subprogram, state, history }.row(last.map(str::to_owned));
        match job.whereabouts(position) {
            Whereabouts::Queued { .. } => {}
            Whereabouts::Placed(fence) => {
                let attempt = self.attempts.get(&fence)?;
                row.state = placed_state(attempt.stage);
                row.workstation = self.workstation_name(attempt.workstation).map(str::to_owned);
                row.fence = Some(fence);
                row.attempts += 1;
            }
            Whereabouts::Ended => return None,
        }
        Some(row)
    }

    /// The replicas of a subprogram that is not decided; `None` if it is, or
    /// never was: ask the store.
    pub fn replica_rows(&self, subprogram: SubprogramId) -> Option<Vec<ReplicaRow>> {
        let job = self.jobs.get(&subprogram.job)?;
        let position = job.position(subprogram.index)?;
        if job.whereabouts(position) == Whereabouts::Ended {
            return None;
        }
        let replicas = job.replicas().into_iter().flat_map(|replicas| replicas.of(position));
        Some(replicas.map(|replica| self.replica_row(job, replica)).collect())
    }

    fn replica_row(&self, job: &Job, position: Position) -> ReplicaRow {
        let replicas = job.replicas();
        let answer = replicas.and_then(|it| it.answer(position));
        let voted = replicas.and_then(|it| it.voted(position));
        let attempt = job.fence(position).and_then(|fence| self.attempts.get(&fence));
        let history = voted.or_else(|| job.history(position));
        let state = match attempt.map(|attempt| placed_state(attempt.stage)) {
            Some(SubprogramState::Running) => ReplicaState::Running,
            Some(SubprogramState::Suspended) => ReplicaState::Suspended,
            Some(SubprogramState::Demoted) => ReplicaState::Demoted,
            Some(_) => ReplicaState::Placed,
            None if answer.is_some() => ReplicaState::Answered,
            None => ReplicaState::Queued,
        };
        let last = history.map(|it| it.last.workstation);
        let at = attempt.map(|it| it.workstation).or(last);
        ReplicaRow {
            subprogram: job.subprogram(position),
            replica: job.replica(position) + 1,
            state,
            workstation: at.and_then(|at| self.workstation_name(at)).map(str::to_owned),
            fence: job.fence(position).or(history.map(|it| it.last.fence)),
            attempts: history.map_or(0, |it| it.attempts) + u32::from(attempt.is_some()),
            outcome: history.map(|it| it.last.outcome.to_string()),
            answer: answer.map(short),
        }
    }

    /// Who has used how much: everybody who waits, has used something or is
    /// named in the configuration.
    pub fn share_rows(&self, now: Moment) -> Vec<ShareRow> {
        let waiting = self.queues.users().map(|(user, _)| user);
        let users: BTreeSet<&str> = self.shares.known().chain(waiting).collect();
        let row = |user: &&str| {
            let queue = self.queues.of(user);
            ShareRow {
                user: (*user).to_owned(),
                group: self.shares.group(user).map(str::to_owned),
                share: self.shares.share(user, users.iter().copied()),
                usage_s: self.shares.used_s(now, user),
                running: self.shares.running(user),
                queued: queue.map_or(0, |queue| self.queued_of(queue.jobs())),
                factor: self.shares.claim(now, user).group,
            }
        };
        users.iter().map(row).collect()
    }

    /// Was anything of one of these jobs offered to the workstation?
    pub fn was_offered(&self, jobs: &[JobId], to: WorkstationId) -> bool {
        jobs.iter().filter_map(|id| self.jobs.get(id)).any(|job| job.spec_sent_to.contains(&to))
    }

    /// All enrolled workstations.
    pub fn workstations(&self) -> impl DoubleEndedIterator<Item = WorkstationId> + '_ {
        self.pool.ids()
    }

    pub fn workstation_row(&self, now: Moment, id: WorkstationId) -> Option<WorkstationRow> {
        let workstation = self.pool.get(id)?;
        if workstation.removed && workstation.attempts().len() == 0 {
            return None;
        }
        let standing = self.pool.standing(id)?;
        let state = match standing {
            Standing::Away => WorkstationState::Away,
            Standing::Busy | Standing::Leaving => WorkstationState::Busy,
            Standing::Free
            | Standing::Full
            | Standing::Drained
            | Standing::Unready
            | Standing::NoSlots
            | Standing::Resting
            | Standing::Silent => WorkstationState::Idle,
        };
        let lasted = match state {
            WorkstationState::Away => {
                workstation.since.map_or(0.0, |at| now.since(at).as_secs_f64())
            }
            WorkstationState::Idle | WorkstationState::Busy => {
                now.since(workstation.present_since).as_secs_f64()
            }
        };
        let presence = workstation.presence.as_ref();
        let facts = &workstation.facts;
        Some(WorkstationRow {
            workstation: id,
            name: workstation.name.clone(),
            state,
            reason: self.standing_reason(now, id)?,
            lasted_s: lasted,
            cores: facts.cores,
            places: facts.places,
            slots: presence.map_or(0, |presence| presence.slots),
            guests: u16::try_from(workstation.attempts().len()).unwrap_or(u16::MAX),
            load_1m: presence.map_or(0.0, |presence| presence.load.one),
            speed: facts.speed,
            memory_bytes: facts.memory_bytes,
            kernel: facts.kernel.clone(),
            missing: facts
                .missing
                .iter()
                .cloned()
                .chain(unknown_line(&workstation.unknown))
                .collect(),
            machine: Machine::clone(&facts.machine),
            troubles: self.troubles(now, id),
        })
    }

    pub fn workstation_named(&self, name: &str) -> Option<WorkstationId> {
        self.pool.named(name)
    }

    pub(crate) fn workstation_name(&self, id: WorkstationId) -> Option<&str> {
        self.pool.get(id).map(|workstation| workstation.name.as_str())
    }

    /// How many subprograms of these jobs wait to be placed.
    pub(super) fn queued_of(&self, jobs: impl Iterator<Item = JobId>) -> u64 {
        jobs.filter_map(|id| self.jobs.get(&id)).map(|job| u64::from(job.queued())).sum()
    }

    /// How many subprograms wait to be placed.
    pub fn queued(&self) -> u64 {
        self.queued_of(self.queues.jobs())
    }
}

/// What ran here and nobody knows of any more.
fn unknown_line(unknown: &BTreeSet<Fence>) -> Option<String> {
    const NAMED: usize = 8;
    let newest = unknown.last()?;
    let named: Vec<_> = unknown.iter().take(NAMED).map(Fence::to_string).collect();
    let (count, named) = (unknown.len(), named.join(", "));
    let more = if count > NAMED { format!(", .. {newest}") } else { String::new() };
    Some(format!(
        "unknown here: {count} attempts that are newer than the coordinator's store, \
         which went back to an earlier time: {named}{more}"
    ))
}
