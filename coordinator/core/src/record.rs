//! The durable side of the core: changes for the store, and the records a
//! new life of the core starts from.
//!
//! A change says how a row looks from now on, so a store that applies several
//! steps at once needs only the last change of each key. A queued subprogram
//! that was never tried has no record: a job of a hundred thousand is one row.

use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, Incarnation, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec};
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::report::{
    AttemptRow, Counts, JobRow, JobState, JobSummary, ReplicaRow, ReplicaState, SubprogramRow,
    SubprogramState,
};
use gleaner_common::time::WallTime;
use gleaner_common::wire::Finished;

use crate::generation;
use crate::outlook::LearnedRecord;

/// A row that is new or looks different.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A job was accepted. Key: `job`.
    Job(Box<JobRecord>),
    /// How far a job is. Key: `job`; beside its `JobRecord`, which it updates.
    Progress(JobProgress),
    /// What is known of a subprogram that was tried. Key: `subprogram`.
    Subprogram(SubprogramRecord),
    /// What is known of a replica that was tried, and what it came to, if it has:
    /// of a replicated job's subprograms that are not decided there is no other
    /// record. Key: `subprogram`, `replica`.
    Replica { record: Box<ReplicaRecord>, finished: Option<Box<Finished>> },
    /// An attempt was placed, or has ended. Key: `fence`.
    Attempt(AttemptRecord),
    /// What an attempt printed and left. Key: `subprogram`: a later result
    /// takes the place of an earlier one, and after an accepted one none
    /// follows. What ranks come to is accepted with their program's end.
    Result { subprogram: SubprogramId, accepted: bool, finished: Box<Finished> },
    /// Fences below this may have been given out. One row.
    FencesReserved { below: Fence },
    /// The store went back in time, and programs know more of what they did than
    /// their journals; or they have all begun again. One row.
    WentBack(bool),
    /// Something that happened to a program, from which its state is built
    /// anew. Key: `job`, `life`, `sequence`; number 0 begins a life, or says
    /// all of one so far: nothing that came before is needed from then on.
    ProgramEvent { job: JobId, life: Life, sequence: u64, bytes: Vec<u8> },
    /// An agent began a new life, with nothing of the old one. Key:
    /// `workstation`.
    Incarnation { workstation: WorkstationId, incarnation: Incarnation },
    /// Who else had a workstation's identity, in the core's bytes. Key: `workstation`.
    Others { workstation: WorkstationId, bytes: Vec<u8> },
    /// What a job's user should know, the newest last. Key: `job`.
    Notes { job: JobId, notes: Vec<String> },
    /// The parts that a program goes back to, staged as blobs: those of
    /// earlier snapshots are not needed any more. Key: `job`.
    Cuts { job: JobId, parts: Vec<ContentHash> },
    /// Nothing new is placed there, or is again. Key: `workstation`.
    Drained { workstation: WorkstationId, drained: bool },
    /// How much a user has used. Key: `user`.
    Usage(UsageRecord),
    /// What was learned of owners. Key: `workstation`.
    Learned(LearnedRecord),
    /// A program has ended: its events and parts are not needed any more, and
    /// the results of its ranks are accepted. Key: `job`.
    ProgramOver { job: JobId },
}

/// One submission.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    pub job: JobId,
    pub user: String,
    pub submitted: WallTime,
    pub spec: JobSpec,
    pub progress: JobProgress,
    /// What its user should know, the newest last.
    pub notes: Vec<String>,
}

/// The part of a job's record that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobProgress {
    pub job: JobId,
    pub state: JobState,
    pub ended: Option<WallTime>,
    pub counts: Counts,
    /// The CPU time of accepted results, and of failures that were tried again.
    pub cpu: Duration,
    pub wasted_cpu: Duration,
    /// The bytes that moves have carried, and how long attempts stood still
    /// for it.
    pub moved_bytes: u64,
    pub frozen: Duration,
    /// Ranks that its program has spawned beyond those it began with.
    pub spawned: u32,
    /// Which life of its program this is; 0 for what is none.
    pub life: Life,
}

/// What is known of a subprogram that was tried at least once. Written when
/// an attempt ends, so one that is placed still shows how it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubprogramRecord {
    pub subprogram: SubprogramId,
    /// `Queued`, `Succeeded`, `Failed` or `Cancelled`.
    pub state: SubprogramState,
    pub history: History,
}

/// What is known of one of the runs of a replicated subprogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRecord {
    pub subprogram: SubprogramId,
    /// 0 for the first.
    pub replica: u8,
    pub history: History,
    /// The workstations that had a hand in what it has come to.
    pub trail: Vec<WorkstationId>,
    /// What it came to, as a hash.
    pub answer: Option<ContentHash>,
}

/// What the attempts of one subprogram have come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub attempts: u32,
    pub failures: u32,
    pub retreats: u32,
    pub lost: u32,
    /// Of the latest attempts, so many were lost one after the other.
    pub lost_in_a_row: u32,
    pub moves: u32,
    pub cpu: Duration,
    /// Where the subprogram has failed, the newest last, and not the oldest of
    /// very many: it is not tried there again if there is a choice. A store may
    /// keep the newest only.
    pub avoided: Vec<WorkstationId>,
    pub last: LastAttempt,
}

/// The latest attempt that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastAttempt {
    pub fence: Fence,
    pub workstation: WorkstationId,
    /// How the attempt ended, in words.
    pub outcome: Box<str>,
}

/// One placement of a subprogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    pub fence: Fence,
    pub subprogram: SubprogramId,
    /// Of which of its replicas: 0 for the first, and the only one.
    pub replica: u8,
    pub workstation: WorkstationId,
    pub placed: WallTime,
    /// When and how the attempt ended; `None` while it is open.
    pub end: Option<(WallTime, String)>,
    /// Where its state is being carried from; `None` once that has arrived.
    pub coming: Option<Coming>,
    /// Has its state arrived?
    pub arrived: bool,
}

/// What an attempt that moves to its workstation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    pub from: WorkstationId,
    /// The attempt there.
    pub old: Fence,
    pub keep: Keep,
}

/// Something that happened to a program ([`Change::ProgramEvent`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramEvent {
    pub job: JobId,
    pub life: Life,
    pub bytes: Vec<u8>,
}

/// A user's decayed usage, in place-seconds, as of a time.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageRecord {
    pub user: String,
    pub used_s: f64,
    pub at: WallTime,
}

/// What a new life of the core starts from; empty for the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// Every enrolled workstation and its name.
    pub workstations: Vec<(WorkstationId, String)>,
    /// The lives of agents, as far as they were ever heard from.
    pub incarnations: Vec<(WorkstationId, Incarnation)>,
    /// From the last `Change::Others` of each.
    pub others: Vec<(WorkstationId, Vec<u8>)>,
    /// The jobs that have not ended, each with its latest progress.
    pub jobs: Vec<JobRecord>,
    /// Of those jobs, the subprograms whose record says `Queued`, and all
    /// ranks of programs.
    pub subprograms: Vec<SubprogramRecord>,
    /// Of those jobs' subprograms that have not ended, the replicas.
    pub replicas: Vec<ReplicaRecord>,
    /// The attempts without an end.
    pub attempts: Vec<AttemptRecord>,
    /// From the last `Change::FencesReserved`; the default if there is none.
    pub fences_below: Fence,
    /// The newest attempt, ended or not.
    pub newest: Fence,
    /// The store is known to have gone back in time, and its programs have not begun
    /// again: they know more of what they did than their journals.
    pub is_copy: bool,
    /// The highest number of any job, ended ones included.
    pub last_job: Option<JobId>,
    /// The events of those jobs' programs, in order.
    pub events: Vec<ProgramEvent>,
    pub usage: Vec<UsageRecord>,
    /// What was learned of owners.
    pub learned: Vec<LearnedRecord>,
    /// Workstations where nothing new is placed.
    pub drained: Vec<WorkstationId>,
}

impl Restored {
    /// Begins a generation, as every start does. The change is to be durable
    /// before the core that starts from this hears anybody.
    pub fn begin_generation(&mut self, wall: WallTime) -> Change {
        let Fence { generation, number } = self.fences_below;
        self.fences_below = Fence { generation: generation::next(generation, wall), number };
        Change::FencesReserved { below: self.fences_below }
    }
}

impl JobProgress {
    pub fn new(job: JobId) -> Self {
        Self {
            job,
            state: JobState::Running,
            ended: None,
            counts: Counts::default(),
            cpu: Duration::ZERO,
            wasted_cpu: Duration::ZERO,
            moved_bytes: 0,
            frozen: Duration::ZERO,
            spawned: 0,
            life: Life(0),
        }
    }

    /// The summary of a job with `total` subprograms of which `placed` are on
    /// workstations, `suspended` of them suspended.
    pub(crate) fn summary(&self, total: u32, placed: u32, suspended: u32) -> JobSummary {
        JobSummary {
            job: self.job,
            state: self.state,
            total,
            queued: total.saturating_sub(self.counts.ended() + placed),
            running: placed - suspended,
            suspended,
            counts: self.counts,
        }
    }
}

impl JobRecord {
    /// The row of a job that has ended. Of a running one, ask the core: its
    /// summary knows what is placed.
    pub fn row(&self) -> JobRow {
        self.row_with(self.progress.summary(self.indexes().len(), 0, 0))
    }

    /// The indexes of all its subprograms, spawned ranks included.
    pub fn indexes(&self) -> IndexRange {
        let indexes = self.spec.indexes;
        IndexRange { last: indexes.last.saturating_add(self.progress.spawned), ..indexes }
    }

    pub(crate) fn row_with(&self, summary: JobSummary) -> JobRow {
        JobRow {
            job: self.job,
            name: self.spec.name.clone(),
            user: self.user.clone(),
            command: self.spec.command.clone(),
            submitted: self.submitted,
            ended: self.progress.ended,
            on_busy: self.spec.on_busy,
            retries: self.spec.retries,
            summary,
            cpu_s: self.progress.cpu.as_secs_f64(),
            wasted_cpu_s: self.progress.wasted_cpu.as_secs_f64(),
            program: self.spec.program,
            life: self.progress.life.0,
            moved_bytes: self.progress.moved_bytes,
            frozen_s: self.progress.frozen.as_secs_f64(),
            notes: self.notes.clone(),
            public: self.spec.public,
            replicas: self.spec.replicas,
        }
    }
}

impl SubprogramRecord {
    /// The row of a subprogram that has ended. Of one that has not, ask the
    /// core.
    pub fn row(&self, workstation: Option<String>) -> SubprogramRow {
        let History { attempts, failures, retreats, lost, moves, cpu, ref last, .. } = self.history;
        let was_tried = attempts > 0;
        SubprogramRow {
            subprogram: self.subprogram,
            state: self.state,
            workstation,
            fence: was_tried.then_some(last.fence),
            attempts,
            failures,
            retreats,
            lost,
            outcome: was_tried.then(|| last.outcome.to_string()),
            cpu_s: cpu.as_secs_f64(),
            moves,
        }
    }
}

/// The row of a subprogram without a record: never tried, and so queued, or
/// cancelled with its job.
pub fn untried_row(subprogram: SubprogramId, job: JobState) -> SubprogramRow {
    let is_cancelled = job == JobState::Cancelled;
    let state = if is_cancelled { SubprogramState::Cancelled } else { SubprogramState::Queued };
    SubprogramRecord { subprogram, state, history: History::default() }.row(None)
}

/// So many workstations a subprogram avoids at most. A guess.
const AVOIDED_MAX: usize = 8;

impl History {
    pub(crate) fn avoid(&mut self, at: WorkstationId) {
        self.avoided.retain(|other| *other != at);
        if self.avoided.len() == AVOIDED_MAX {
            self.avoided.remove(0);
        }
        self.avoided.push(at);
    }

    /// Was the latest attempt that ended a failure?
    pub(crate) fn failed_last(&self) -> bool {
        self.avoided.last() == Some(&self.last.workstation)
    }

    /// What replicas have come to together; the last of them decides.
    pub(crate) fn sum<'a>(of: impl Iterator<Item = &'a Self>) -> Option<Self> {
        of.cloned().reduce(|all, one| Self {
            attempts: all.attempts + one.attempts,
            failures: all.failures + one.failures,
            retreats: all.retreats + one.retreats,
            lost: all.lost + one.lost,
            lost_in_a_row: 0,
            moves: all.moves + one.moves,
            ..if all.last.fence < one.last.fence { one } else { all }
        })
    }
}

impl ReplicaRecord {
    /// The row of a replica of which nothing is under way.
    pub fn row(&self, workstation: String, state: ReplicaState) -> ReplicaRow {
        ReplicaRow {
            subprogram: self.subprogram,
            replica: self.replica + 1,
            state,
            workstation: Some(workstation),
            fence: Some(self.history.last.fence),
            attempts: self.history.attempts,
            outcome: Some(self.history.last.outcome.to_string()),
            answer: self.answer.map(short),
        }
    }
}

/// As much of a hash as people compare.
pub(crate) fn short(answer: ContentHash) -> String {
    answer.to_string().chars().take(12).collect()
}

impl AttemptRecord {
    pub fn row(&self, workstation: String) -> AttemptRow {
        AttemptRow {
            fence: self.fence,
            subprogram: self.subprogram,
            workstation,
            placed: self.placed,
            ended: self.end.as_ref().map(|(at, _)| *at),
            end: self.end.as_ref().map(|(_, how)| how.clone()),
            replica: self.replica + 1,
        }
    }
}
