//! The store, as the core may rely on it: rows by key, whole steps at once.
//!
//! The store believes nothing: every change is compared with what is there
//! already.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{ContentHash, Fence, Incarnation, JobId, SubprogramId, WorkstationId};
use gleaner_common::report::{JobState, SubprogramState};
use gleaner_common::wire::Finished;
use gleaner_coordinator_core::directory::{Directory, DirectoryRecord, Key};
use gleaner_coordinator_core::outlook::LearnedRecord;
use gleaner_coordinator_core::{
    AttemptRecord, Change, JobProgress, JobRecord, ProgramEvent, ReplicaRecord, Restored, Step,
    SubprogramRecord, UsageRecord,
};

use super::invariant::holds;

/// As `glean coordinator restore` leaves them out.
const NUMBERS_LEFT_OUT: u32 = 1_000;

/// A subprogram, and which of its replicas.
type Run = (SubprogramId, u8);

/// What a row of the directory is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    Workstation(WorkstationId),
    Identity(Key),
    Token(Key),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) jobs: BTreeMap<JobId, JobRecord>,
    pub(crate) subprograms: BTreeMap<SubprogramId, SubprogramRecord>,
    pub(crate) attempts: BTreeMap<Fence, AttemptRecord>,
    pub(crate) results: BTreeMap<SubprogramId, (bool, Finished)>,
    pub(crate) fences_below: Fence,
    /// What is known of replicas, and what they came to.
    replicas: BTreeMap<Run, (ReplicaRecord, Option<Finished>)>,
    /// The open attempt of each run of a subprogram that has one.
    open: BTreeMap<Run, Fence>,
    /// Those whose state is on its way.
    coming: BTreeMap<Fence, AttemptRecord>,
    /// Workstations that are to be empty.
    pub(crate) drained: BTreeSet<WorkstationId>,
    /// Those whose state has ever been on its way.
    travelled: BTreeSet<Fence>,
    incarnations: BTreeMap<WorkstationId, Incarnation>,
    others: BTreeMap<WorkstationId, Vec<u8>>,
    events: BTreeMap<JobId, Vec<ProgramEvent>>,
    pub(crate) cuts: BTreeMap<JobId, Vec<ContentHash>>,
    pub(crate) usage: BTreeMap<String, UsageRecord>,
    /// Attempts that came to nothing in this calm.
    pub(crate) wasted: u64,
    learned: BTreeMap<Option<WorkstationId>, LearnedRecord>,
    /// It went back, and programs have not begun again.
    went_back: bool,
    /// Numbers of jobs up to this one are left out.
    left_out: Option<JobId>,
    /// Who is enrolled.
    directory: BTreeMap<Row, DirectoryRecord>,
}

impl Store {
    /// Of a lab with so many hosts, which are enrolled.
    pub(crate) fn new(hosts: u32) -> Self {
        let mut store = Self::default();
        for id in 1..=hosts {
            let (workstation, name) = (WorkstationId(id), format!("host{id}"));
            store.record(DirectoryRecord::Workstation { workstation, name });
        }
        store
    }

    pub(crate) fn record(&mut self, record: DirectoryRecord) {
        let row = match &record {
            DirectoryRecord::Workstation { workstation, .. }
            | DirectoryRecord::WorkstationRemoved { workstation } => Row::Workstation(*workstation),
            DirectoryRecord::Identity { key, .. } => Row::Identity(key.clone()),
            DirectoryRecord::Token { key, .. } => Row::Token(key.clone()),
            DirectoryRecord::IdentityForgotten { key } => {
                self.directory.remove(&Row::Identity(key.clone()));
                return;
            }
        };
        self.directory.insert(row, record);
    }

    pub(crate) fn directory(&self) -> impl Iterator<Item = &DirectoryRecord> {
        self.directory.values()
    }

    pub(crate) fn commit(&mut self, step: &Step, calm: bool) {
        self.check_refused(step);
        for change in &step.changes {
            if let Change::Attempt(AttemptRecord { end: Some((_, how)), .. }) = change {
                let nothing = ["lost: ", "refused: ", "retreated: "];
                self.wasted += u64::from(calm && nothing.iter().any(|it| how.starts_with(it)));
            }
            self.apply(change);
        }
    }

    /// A rank that was refused before it began takes nothing of its program with it.
    fn check_refused(&self, step: &Step) {
        let refused = |job: JobId| {
            step.changes.iter().any(|change| {
                let Change::Attempt(record) = change else { return false };
                let how = record.end.as_ref().map(|(_, how)| how.as_str()).unwrap_or_default();
                let is_new = !self.travelled.contains(&record.fence);
                record.subprogram.job == job && is_new && how.starts_with("refused: ")
            })
        };
        for change in &step.changes {
            let Change::Progress(progress) = change else { continue };
            let before = self.jobs.get(&progress.job).map(|job| job.progress.life);
            let begins_again = before.is_some_and(|life| life < progress.life);
            let is_anew = begins_again && refused(progress.job);
            holds!(BeginsWhole, !is_anew, "job {} begins again: {step:?}", progress.job);
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Job(record) => {
                let newest = self.jobs.keys().next_back();
                assert!(newest.is_none_or(|it| *it < record.job), "a job's number came twice");
                self.jobs.insert(record.job, (**record).clone());
            }
            Change::Progress(progress) => self.progress(progress),
            Change::Subprogram(record) => {
                let before = self.subprograms.insert(record.subprogram, record.clone());
                if let Some(before) = before {
                    let id = record.subprogram;
                    // A rank's end counts when its program's does.
                    let is_rank = self.jobs[&id.job].spec.program.is_some();
                    let may_go_on = is_rank && before.state == SubprogramState::Succeeded;
                    let was_queued = before.state == SubprogramState::Queued;
                    holds!(AcceptedOnce, was_queued || may_go_on, "{id} ended twice");
                    let (before, after) = (before.history, &record.history);
                    let is_same = before.last.fence == after.last.fence;
                    assert!(is_same || before.attempts < after.attempts);
                }
            }
            Change::Replica { record, finished } => {
                let key = (record.subprogram, record.replica);
                let value = ((**record).clone(), finished.as_deref().cloned());
                let before = self.replicas.insert(key, value);
                let had_voted = before.is_some_and(|(before, _)| before.answer.is_some());
                assert!(!had_voted, "{key:?} went on after its vote");
            }
            Change::Attempt(record) => self.attempt(record),
            Change::Result { subprogram, accepted, finished } => {
                self.check_quorum(*subprogram, finished);
                let attempt = self.attempts.get(&finished.fence);
                let is_known = attempt.is_some_and(|it| it.subprogram == *subprogram);
                holds!(
                    AcceptedOnce,
                    is_known,
                    "{subprogram} has the result of {}, which the store knows nothing of",
                    finished.fence
                );
                let before = self.results.insert(*subprogram, (*accepted, (**finished).clone()));
                let was_accepted = before.is_some_and(|(accepted, _)| accepted);
                let is_first = !was_accepted;
                holds!(
                    AcceptedOnce,
                    is_first,
                    "a result of {subprogram} followed the accepted one"
                );
            }
            Change::ProgramEvent { job, life, sequence, bytes } => {
                let events = self.events.entry(*job).or_default();
                if *sequence == 0 {
                    assert!(
                        events.iter().all(|event| event.life <= *life),
                        "{job}: {life:?} twice"
                    );
                    events.clear();
                }
                assert_eq!(events.len() as u64, *sequence, "{job}: an event is missing");
                events.push(ProgramEvent { job: *job, life: *life, bytes: bytes.clone() });
            }
            Change::Incarnation { workstation, incarnation } => {
                self.incarnations.insert(*workstation, *incarnation);
            }
            Change::Others { workstation, bytes } => {
                self.others.insert(*workstation, bytes.clone());
            }
            Change::Notes { job, notes } => {
                self.jobs.get_mut(job).expect("the job came first").notes.clone_from(notes);
            }
            Change::Cuts { job, parts } => drop(self.cuts.insert(*job, parts.clone())),
            Change::WentBack(went_back) => self.went_back = *went_back,
            Change::ProgramOver { job } => {
                self.events.remove(job);
                self.cuts.remove(job);
                for (id, (accepted, _)) in &mut self.results {
                    *accepted |= id.job == *job;
                }
            }
            Change::Drained { workstation, drained: true } => {
                self.drained.insert(*workstation);
            }
            Change::Drained { workstation, drained: false } => {
                self.drained.remove(workstation);
            }
            Change::Learned(row) => drop(self.learned.insert(row.workstation, row.clone())),
            Change::Usage(usage) => drop(self.usage.insert(usage.user.clone(), usage.clone())),
            Change::FencesReserved { below } => {
                assert!(self.fences_below < *below);
                self.fences_below = *below;
            }
        }
    }

    fn last_numbers(&self) -> (u32, u32) {
        let job = self.jobs.keys().next_back().copied().max(self.left_out);
        let workstations = self.directory.values().filter_map(DirectoryRecord::workstation);
        (job.map_or(0, |job| job.0), workstations.max().map_or(0, |number| number.0))
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.went_back
    }

    /// As a restored backup is marked that takes the place of another store.
    pub(crate) fn mark(&mut self, later: &Self) {
        let (own, theirs) = (self.last_numbers(), later.last_numbers());
        let (job, workstation) = (own.0.max(theirs.0), own.1.max(theirs.1));
        (self.went_back, self.left_out) = (true, Some(JobId(job + NUMBERS_LEFT_OUT)));
        let mut directory = Directory::restore(self.directory.values().cloned());
        for record in directory.become_copy(WorkstationId(workstation + NUMBERS_LEFT_OUT)) {
            self.record(record);
        }
    }

    fn progress(&mut self, progress: &JobProgress) {
        let record = self.jobs.get_mut(&progress.job).expect("the job came first");
        assert!(!record.progress.state.has_ended(), "job {} went on after its end", progress.job);
        record.progress = *progress;
    }

    fn attempt(&mut self, record: &AttemptRecord) {
        let (fence, subprogram) = (record.fence, (record.subprogram, record.replica));
        let run = |a: &AttemptRecord| (a.subprogram, a.replica);
        assert!(fence < self.fences_below, "{fence} was given out before it was reserved");
        match (&record.end, &record.coming) {
            (Some(_), Some(_)) => assert!(self.coming.remove(&fence).is_some(), "{fence} ended"),
            (Some(_), None) => {
                assert_eq!(self.open.remove(&subprogram), Some(fence), "{fence} was not open");
            }
            (None, Some(coming)) => {
                self.check_newest(fence);
                assert!(!self.coming.values().any(|a| run(a) == subprogram), "two moves");
                assert_eq!(self.open.get(&subprogram), Some(&coming.old), "it does not move");
                self.travelled.insert(fence);
                self.coming.insert(fence, record.clone());
            }
            (None, None) => {
                if self.coming.remove(&fence).is_none() {
                    self.check_newest(fence);
                }
                let other = self.open.insert(subprogram, fence);
                assert_eq!(other, None, "{subprogram:?} was placed twice");
            }
        }
        if record.end.is_none() {
            self.check_apart(record);
        }
        self.attempts.insert(fence, record.clone());
    }

    /// No two replicas of a subprogram are at one workstation, or on their way.
    fn check_apart(&self, record: &AttemptRecord) {
        let open =
            self.open.values().chain(self.coming.keys()).filter_map(|it| self.attempts.get(it));
        let mut others =
            open.filter(|it| it.subprogram == record.subprogram && it.replica != record.replica);
        let together = others.find(|it| it.workstation == record.workstation);
        assert_eq!(together, None, "beside {record:?}");
    }

    /// So many workstations have said the same as makes it count.
    fn check_quorum(&self, id: SubprogramId, accepted: &Finished) {
        let wanted = self.jobs[&id.job].spec.replicas;
        if wanted == 1 {
            return;
        }
        let of = self.replicas.range((id, 0)..=(id, u8::MAX));
        let same = of.filter(|(_, (record, finished))| {
            let said = finished.as_ref().map(|it| (&it.outcome, &it.stdout));
            record.answer.is_some() && said == Some((&accepted.outcome, &accepted.stdout))
        });
        let at: BTreeSet<_> =
            same.map(|(_, (record, _))| record.history.last.workstation).collect();
        assert!(at.len() > usize::from(wanted) / 2, "{id}: {at:?} are not enough of {wanted}");
    }

    /// Programs that have ended need nothing any more, and nothing moves.
    pub(crate) fn check_nothing_is_left(&self) {
        assert_eq!((self.events.len(), self.cuts.len()), (0, 0));
        assert_eq!((self.open.len(), self.coming.len()), (0, 0));
    }

    /// Attempts that have their place until another has arrived, or their own.
    pub(crate) fn placed(&self, job: JobId) -> usize {
        let coming = self.coming.values().map(|attempt| attempt.subprogram);
        let placed = self.open.keys().map(|(id, _)| *id).chain(coming);
        placed.filter(|id| id.job == job).collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn open_count(&self) -> u64 {
        (self.open.len() + self.coming.len()) as u64
    }

    pub(crate) fn outvoted(&self) -> u64 {
        let differs =
            |(id, record, finished): (&SubprogramId, &ReplicaRecord, &Option<Finished>)| {
                let counts = self.results.get(id).map(|(_, it)| &it.stdout);
                let said = finished.as_ref().map(|it| &it.stdout);
                record.answer.is_some() && counts.is_some() && said != counts
            };
        let all = self.replicas.iter().map(|((id, _), (record, finished))| (id, record, finished));
        all.filter(|it| differs(*it)).count() as u64
    }

    fn check_newest(&self, fence: Fence) {
        let newest = self.attempts.keys().next_back();
        assert!(newest.is_none_or(|newest| *newest < fence), "{fence} came twice");
    }

    /// What a new life of the core starts from.
    pub(crate) fn restored(&self) -> Restored {
        let running = |job: &JobId| self.jobs[job].progress.state == JobState::Running;
        Restored {
            workstations: self
                .directory
                .values()
                .filter_map(|record| {
                    let DirectoryRecord::Workstation { workstation, name } = record else {
                        return None;
                    };
                    Some((*workstation, name.clone()))
                })
                .collect(),
            jobs: self.jobs.values().filter(|job| running(&job.job)).cloned().collect(),
            subprograms: self
                .subprograms
                .values()
                .filter(|record| {
                    let job = record.subprogram.job;
                    let is_rank = self.jobs[&job].spec.program.is_some();
                    running(&job) && (is_rank || record.state == SubprogramState::Queued)
                })
                .cloned()
                .collect(),
            replicas: self
                .replicas
                .values()
                .map(|(record, _)| record)
                .filter(|it| {
                    running(&it.subprogram.job) && !self.subprograms.contains_key(&it.subprogram)
                })
                .cloned()
                .collect(),
            attempts: self
                .open
                .values()
                .chain(self.coming.keys())
                .map(|fence| self.attempts[fence].clone())
                .collect(),
            incarnations: self.incarnations.iter().map(|(id, it)| (*id, *it)).collect(),
            others: self.others.iter().map(|(id, it)| (*id, it.clone())).collect(),
            events: self.events.values().flatten().cloned().collect(),
            fences_below: self.fences_below,
            newest: self.attempts.keys().next_back().copied().unwrap_or_default(),
            is_copy: self.went_back,
            last_job: self.jobs.keys().next_back().copied().max(self.left_out),
            usage: self.usage.values().cloned().collect(),
            learned: self.learned.values().cloned().collect(),
            drained: self.drained.iter().copied().collect(),
        }
    }

    pub(crate) fn has_ended(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|it| it.progress.state.has_ended())
    }

    /// The counters of every job agree with its subprograms' records.
    pub(crate) fn check_counters(&self) {
        for (id, job) in &self.jobs {
            let of_job =
                SubprogramId { job: *id, index: 0 }..=SubprogramId { job: *id, index: u32::MAX };
            let records: Vec<_> =
                self.subprograms.range(of_job).map(|(_, record)| record).collect();
            let count = |state| records.iter().filter(|record| record.state == state).count();
            let progress = &job.progress;
            assert_eq!(
                progress.counts.succeeded as usize,
                count(SubprogramState::Succeeded),
                "job {id}"
            );
            assert_eq!(progress.counts.failed as usize, count(SubprogramState::Failed), "job {id}");
            let sum = |value: fn(&SubprogramRecord) -> u32| -> u64 {
                records.iter().map(|record| u64::from(value(record))).sum()
            };
            assert_eq!(progress.counts.retreats, sum(|record| record.history.retreats), "job {id}");
            assert_eq!(progress.counts.lost, sum(|record| record.history.lost), "job {id}");
            let ended =
                progress.counts.succeeded + progress.counts.failed + progress.counts.cancelled;
            assert_eq!(progress.state.has_ended(), ended == job.indexes().len(), "job {id}");
            if job.spec.replicas > 1 {
                continue;
            }
            let failures = sum(|record| record.history.failures);
            // What turned out to be a workstation's fault does not count.
            let charged_at_most = progress.counts.retried + u64::from(progress.counts.failed);
            assert!(failures <= charged_at_most, "job {id}");
            for record in records {
                let within = record.history.failures <= job.spec.retries
                    || record.state == SubprogramState::Failed
                        && record.history.failures == job.spec.retries + 1;
                assert!(within, "{} was tried too often", record.subprogram);
            }
        }
    }
}
