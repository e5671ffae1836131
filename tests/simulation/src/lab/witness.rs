//! What must hold after every step, judged from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::{Fence, JobId, SubprogramId};
use gleaner_common::job::Outcome;
use gleaner_common::program::Life;
use gleaner_common::report::{JobSummary, SubprogramState, WorkstationState};
use gleaner_common::time::Moment;
use gleaner_common::wire::Printed;
use gleaner_coordinator_core::{Change, Core, Step};
use gleaner_program_core::address::{Rank, Request, Task};

use super::agents::truth;
use super::copies::{SEEN, is_over};
use super::host::Host;
use super::hosts::Hosts;
use super::invariant::holds;
use super::place::{Guest, Place};
use super::store::Store;

/// A subprogram, and which of its replicas.
type Run = (SubprogramId, u8);

#[derive(Debug, Default)]
pub(crate) struct Witness {
    /// What each host runs, and where there, as of when it was last looked at.
    runs: Vec<Vec<(Run, usize)>>,
    /// When time alone changes something on a host.
    looks: BTreeSet<(Moment, usize)>,
    steps: u64,
    /// After how many steps everything is looked at.
    all_every: u64,
    /// Guests that ran to their end, in which life of their agent, and how
    /// they ended. A result that died with its agent is worked for again.
    exits: BTreeMap<(Fence, u64), Outcome>,
    ended: BTreeSet<JobId>,
    placed: Fence,
    /// The newest that was durable, ever.
    kept: Fence,
    /// The store went back in time: until then what it does not know may run.
    unknown_until: Option<Moment>,
    /// It knows that it did. What was given out of which it does not know.
    knows_it: bool,
    given: BTreeSet<Fence>,
    /// What it had forgotten then and was told to have: which replica each was.
    forgotten: BTreeMap<Fence, u8>,
    /// Attempts whose state was on its way.
    coming: BTreeSet<Fence>,
    /// Those that a place was made ready for.
    began: BTreeSet<Fence>,
    gone: BTreeSet<Fence>,
    /// Attempts whose state is somewhere else.
    carried: BTreeSet<Fence>,
    /// Those that stand still and have ended by that: nobody sets them going.
    husks: BTreeSet<Fence>,
    /// Tasks of which a result was accepted, and whose question that answered.
    tasks: BTreeMap<(JobId, Life, Task), (u32, Request)>,
    /// Ranks that programs were told that they begin: the first of each, and how many.
    begun: BTreeMap<(JobId, Life), BTreeMap<Rank, u32>>,
    /// How often a program of several ranks began.
    pub(crate) gangs: usize,
    pub(crate) moves: u64,
}

impl Witness {
    pub(crate) fn new(all_every: u64) -> Self {
        Self { all_every, ..Self::default() }
    }

    pub(crate) fn exited(&mut self, fence: Fence, incarnation: u64, outcome: &Outcome) {
        let before = self.exits.insert((fence, incarnation), outcome.clone());
        holds!(OneAttempt, before.is_none(), "attempt {fence} ran twice");
    }

    /// No subprogram runs in two places, and none beside its owner unless its
    /// job chose so. Of two that are there, one has come from the other, which
    /// stands still.
    ///
    /// Looks at the hosts that were touched, and where time itself changes
    /// something.
    pub(crate) fn check(&mut self, now: Moment, hosts: &mut Hosts, store: &Store) {
        for index in hosts.take_unchecked() {
            self.check_host(now, hosts, store, index);
        }
        while let Some((_, index)) = self.looks.first().copied().filter(|(at, _)| *at <= now) {
            self.looks.pop_first();
            self.check_host(now, hosts, store, index);
        }
        self.steps += 1;
        if self.steps.is_multiple_of(self.all_every) {
            hosts.check();
            self.check_all(now, hosts, store);
        }
    }

    /// Everything anew, whatever was touched.
    fn check_all(&mut self, now: Moment, hosts: &[Host], store: &Store) {
        let before = self.runs.clone();
        self.runs.clear();
        for index in 0..hosts.len() {
            self.check_host(now, hosts, store, index);
        }
        assert_eq!(before, self.runs, "a host changed and was not looked at");
    }

    fn check_host(&mut self, now: Moment, hosts: &[Host], store: &Store, index: usize) {
        self.runs.resize(hosts.len(), vec![]);
        self.runs[index].clear();
        let host = &hosts[index];
        if !host.runs() {
            return;
        }
        host.check_owner(now);
        host.check_lent();
        host.check_free();
        for (at, place) in host.places.iter().enumerate() {
            let Some(process) = place.process.as_ref().filter(|process| !process.killed) else {
                continue;
            };
            let fence = process.fence;
            let is_still = place.running(now).is_none();
            if place.ordered.packed {
                holds!(MovesWhole, is_still, "{fence} is packed and runs: {place:?}");
            }
            if self.husks.contains(&fence) {
                holds!(OneAttempt, is_still, "{fence} has moved and runs again");
                continue;
            }
            let attempt = store.attempts.get(&fence);
            if host.is_replaced(now) {
                continue;
            }
            let forgotten = self.forgotten.get(&fence).copied();
            if attempt.is_none() && self.unknown_until.is_some() {
                let may = is_still || !is_over(now, self.unknown_until);
                holds!(OneAttempt, may, "{fence} is unknown to the store, and runs on");
                // Its lease is over, and its machine stands still or sleeps.
                let rests = is_still && is_over(now, self.unknown_until);
                if rests {
                    self.forgotten.remove(&fence);
                }
                if forgotten.is_none() || rests {
                    continue;
                }
            }
            let end = attempt.and_then(|attempt| attempt.end.as_ref());
            if let Some((_, how)) = end.filter(|_| is_still) {
                if how.starts_with("moved to ") {
                    self.husks.insert(fence);
                }
                continue;
            }
            let replica = attempt.map(|it| it.replica).or(forgotten);
            let run = (process.subprogram, replica.unwrap_or(0));
            self.check_alone(now, hosts, run, (index, at));
            self.runs[index].push((run, at));
        }
        if let Some(until) = self.unknown_until.filter(|until| now <= *until) {
            self.looks.insert((until + Duration::from_nanos(1), index));
        }
        let looks = host.looks_at(now);
        self.looks.extend(looks.map(|at| (at, index)));
    }

    /// Whatever else is of this subprogram has come from here, or this from it.
    fn check_alone(&self, now: Moment, hosts: &[Host], run: Run, (index, at): (usize, usize)) {
        let place = &hosts[index].places[at];
        let fence = place.process.as_ref().expect("it is there").fence;
        let is_still = place.running(now).is_none();
        for (host, runs) in hosts.iter().zip(&self.runs) {
            for (_, other) in runs.iter().filter(|(other, _)| *other == run) {
                let other_place = &host.places[*other];
                let Some(before) = other_place.process.as_ref().map(|it| it.fence) else {
                    continue;
                };
                let been = |place: &Place, fence: Fence| {
                    place.guest.as_ref().is_some_and(|guest| guest.before.contains(&fence))
                };
                let moves = been(place, before) || been(other_place, fence);
                holds!(
                    OneAttempt,
                    moves && (is_still || other_place.running(now).is_none()),
                    "{} runs twice: {before} on host{} and {fence} on host{}",
                    run.0,
                    host.id,
                    hosts[index].id
                );
            }
        }
    }

    pub(crate) fn begins(&mut self, fence: Fence) {
        self.began.insert(fence);
    }

    pub(crate) fn has_begun(&self, fence: Fence) -> bool {
        self.began.contains(&fence) || self.gone.contains(&fence)
    }

    pub(crate) fn went_before(&self, fence: Fence) -> bool {
        self.gone.contains(&fence)
    }

    /// What has landed goes on from where its source stands still, or stood
    /// when it ended: nothing is done twice, and nothing is left out.
    pub(crate) fn went(&mut self, hosts: &[Host], guest: &Guest, now: Moment) {
        self.moves += 1;
        let fence = guest.fence();
        let old = guest.start.arrival.as_ref().expect("it came from somewhere").old;
        for host in hosts {
            if let Some(source) = host.guest(old) {
                let place = host.place_of(old).map(|at| &host.places[at]);
                let runs = place.is_some_and(|place| place.running(now).is_some());
                holds!(OneAttempt, !runs, "{old} runs beside {fence}");
                let is_same = source.runs == guest.runs;
                holds!(MovesWhole, is_same, "{old} has run since {fence} was taken");
            }
        }
        holds!(MovesWhole, self.gone.insert(fence), "{fence} went twice");
    }

    /// The state of this attempt has all come to where it goes on.
    pub(crate) fn landed(&mut self, old: Option<Fence>) {
        self.carried.extend(old);
    }

    /// What stands still is thrown away only when its state is elsewhere, or
    /// nobody wants it any more.
    pub(crate) fn cancels(&self, hosts: &[Host], store: &Store, at: usize, fence: Fence) {
        let mut places = hosts[at].processes();
        let Some((place, process)) = places.find(|(_, process)| process.fence == fence) else {
            return;
        };
        // What the store does not know nobody wants.
        let Some(attempt) = store.attempts.get(&fence) else { return };
        let job = &store.jobs[&process.subprogram.job];
        let life = process.life.unwrap_or(job.progress.life);
        let began = place.guest.as_ref().is_some_and(|guest| guest.start.arrival.is_none());
        let is_still = place.frozen.is_some() && !process.killed && began;
        let is_wanted = !job.progress.state.has_ended() && life == job.progress.life;
        let was_lost = attempt.end.as_ref().is_some_and(|(_, how)| {
            // The agent did not hear for a lease, and stops the guest by
            // itself.
            how.starts_with("lost: ") || how.starts_with("not needed: ")
        });
        holds!(
            MovesWhole,
            !is_still || !is_wanted || was_lost || self.carried.contains(&fence),
            "{fence} is thrown away: {:?}",
            attempt.end
        );
    }

    pub(crate) fn tasks_accepted(&self) -> usize {
        self.tasks.len()
    }

    /// A rank was told that its result of a task is the one that counts.
    /// One that goes back hears the same answer again.
    pub(crate) fn accepted(&mut self, id: SubprogramId, life: Life, asked: Request, task: Task) {
        let by = *self.tasks.entry((id.job, life, task)).or_insert((id.index, asked));
        let is_same = by == (id.index, asked);
        holds!(RankOrder, is_same, "{task} of job {} was accepted twice", id.job);
    }

    /// A program was told that so many ranks begin, perhaps again.
    pub(crate) fn begun(&mut self, of: (JobId, Life), (first, count): (Rank, u32)) {
        let all = self.begun.entry(of).or_default();
        let known = *all.entry(first).or_insert(count);
        let before = all.range(..first).next_back().map_or(0, |(rank, count)| rank.0 + count);
        let behind = all.range(Rank(first.0 + 1)..).next().map_or(u32::MAX, |(rank, _)| rank.0);
        let is_once = known == count && before <= first.0 && first.0 + count <= behind;
        holds!(RankOrder, is_once, "of job {} {count} ranks from {first} on begin twice", of.0);
    }

    /// New attempts go to workstations that are idle as far as is known, and
    /// fences grow.
    pub(crate) fn check_placements(
        &mut self,
        now: Moment,
        core: &Core,
        store: &Store,
        step: &Step,
    ) {
        let mut placed = 0;
        let mut ranks: BTreeMap<JobId, u32> = BTreeMap::new();
        for change in &step.changes {
            let Change::Attempt(record) = change else { continue };
            // One that has come is where it was on its way to.
            let has_come = record.coming.is_none() && self.coming.contains(&record.fence);
            if record.end.is_some() || has_come {
                continue;
            }
            if record.coming.is_some() {
                self.coming.insert(record.fence);
            }
            placed += 1;
            *ranks.entry(record.subprogram.job).or_default() += u32::from(record.coming.is_none());
            let is_newest = self.placed < record.fence && !self.given.contains(&record.fence);
            holds!(AcceptedOnce, is_newest, "{} is given out, and is not the newest", record.fence);
            self.placed = record.fence;
            let row = core.workstation_row(now, record.workstation).expect("it is enrolled");
            assert_eq!(row.state, WorkstationState::Idle, "{}: {}", row.name, row.reason);
            assert!(row.slots > 0, "{}: {}", row.name, row.reason);
        }
        assert_eq!(placed, step.placed);
        // Ranks that were spawned may wait for places of their own.
        let own = |job: &JobId| store.jobs.get(job).map(|it| it.spec.needs_at_once());
        let began = |(job, ranks): &(JobId, u32)| began(core, *job, *ranks, own(job));
        self.gangs += ranks.into_iter().filter(began).count();
    }

    /// Whoever knows that the store went back gives nothing out for a lease.
    pub(crate) fn check_waits(&mut self, now: Moment, lease: Duration, step: &Step) {
        self.knows_it |= step.changes.contains(&Change::WentBack(true));
        let waits = self.knows_it
            && self.unknown_until.is_some_and(|until| now + lease.mul_f64(0.04) + SEEN < until);
        let placed = step.placed;
        holds!(OneAttempt, !waits || placed == 0, "{placed} begin beside what the store lost");
    }

    pub(crate) fn progressed(&mut self, summary: &JobSummary) {
        let parts = summary.queued
            + summary.running
            + summary.suspended
            + summary.counts.succeeded
            + summary.counts.failed
            + summary.counts.cancelled;
        holds!(CountersAgree, parts == summary.total, "{summary:?}");
        assert!(!self.ended.contains(&summary.job), "job {} went on", summary.job);
        if summary.state.has_ended() {
            self.ended.insert(summary.job);
        }
    }

    /// This attempt is durable.
    pub(crate) fn keeps(&mut self, fence: Fence) {
        self.kept = self.kept.max(fence);
    }

    /// The store is an older one. What its later self gave out may run until then.
    pub(crate) fn went_back(&mut self, unknown_until: Moment, later: &Store, store: &Store) {
        (self.unknown_until, self.knows_it) = (Some(unknown_until), store.is_marked());
        let unknown = later.attempts.keys().filter(|fence| !store.attempts.contains_key(fence));
        self.given.extend(unknown);
        if store.is_marked() {
            // What had been given up stands still somewhere, at most.
            let lost = later
                .attempts
                .iter()
                .filter(|(it, attempt)| attempt.end.is_none() && !store.attempts.contains_key(it));
            self.forgotten.extend(lost.map(|(fence, attempt)| (*fence, attempt.replica)));
        } else {
            // Nor does it know of a mark that its later self had.
            self.forgotten.clear();
        }
        self.ended.retain(|job| store.has_ended(*job));
        self.husks.retain(|fence| store.attempts.get(fence).is_some_and(|it| it.end.is_some()));
        self.tasks.clear();
        self.begun.clear();
    }

    /// What it gives out next comes after what it knows, and not after what it gave out.
    pub(crate) fn is_behind(&mut self, known: Fence) {
        (self.placed, self.kept) = (known, known);
    }

    /// A new life knows what the store knows.
    pub(crate) fn check_restored(&mut self, now: Moment, core: &Core, store: &Store) {
        // What was never durable was offered to nobody.
        self.placed = self.placed.min(self.kept);
        self.coming.retain(|fence| store.attempts.contains_key(fence));
        let mut jobs = core.jobs();
        for job in store.jobs.values().filter(|job| !job.progress.state.has_ended()) {
            assert_eq!(jobs.next(), Some(job.job));
            let summary = core.summary(job.job).expect("it was just listed");
            let open = store.placed(job.job);
            assert_eq!((summary.running + summary.suspended) as usize, open);
            assert_eq!(summary.counts.succeeded, job.progress.counts.succeeded);
            for position in 0..summary.total {
                let index = job.indexes().at(position).expect("within the range");
                let id = SubprogramId { job: job.job, index };
                let record = store.subprograms.get(&id);
                let has_ended = record.is_some_and(|record| {
                    record.state != gleaner_common::report::SubprogramState::Queued
                });
                let row = core.subprogram_row(id);
                holds!(AcknowledgedDurable, row.is_none() == has_ended, "{id} was forgotten");
                if let (Some(row), Some(record)) = (row, record.filter(|_| !has_ended)) {
                    assert_eq!(row.failures, record.history.failures, "{id}");
                }
            }
        }
        assert_eq!(jobs.next(), None);
        for id in &store.drained {
            let row = core.workstation_row(now, *id);
            let is_known = row.is_none_or(|row| row.reason.contains("drained"));
            holds!(AcknowledgedDurable, is_known, "that {id} is drained was forgotten");
        }
        // What was never durable may have been told to nobody.
        self.ended.retain(|job| store.has_ended(*job));
    }

    /// Every accepted result is one that a guest really came to.
    pub(crate) fn check_results(&self, store: &Store, guests_fail: bool) {
        for (id, (accepted, finished)) in &store.results {
            if finished.outcome.is_success() {
                let lives = (finished.fence, 0)..=(finished.fence, u64::MAX);
                let mut outcomes = self.exits.range(lives).map(|(_, outcome)| outcome);
                let is_real = outcomes.any(Outcome::is_success);
                holds!(AcceptedOnce, is_real, "{id}: nobody came to this result");
                assert!(*accepted, "{id}: a success was not accepted");
            }
            if store.jobs[&id.job].spec.replicas > 1 && finished.outcome.is_success() {
                let said = Printed::Inline(truth(*id));
                holds!(AcceptedOnce, finished.stdout == said, "{id}: a lie was accepted");
            }
        }
        // As long as guests do not fail by themselves, the truth is found.
        for (id, record) in store.subprograms.iter().filter(|_| !guests_fail) {
            let is_replicated = store.jobs[&id.job].spec.replicas > 1;
            let is_held = record.state == SubprogramState::Failed && record.history.lost == 0;
            assert!(!is_replicated || !is_held, "{id}: {}", record.history.last.outcome);
        }
    }
}

/// Did a program of several ranks begin with these? Then with all of them.
fn began(core: &Core, job: JobId, ranks: u32, own: Option<u32>) -> bool {
    let is_program = core.is_program(job);
    let Some(now) = core.summary(job).filter(|_| is_program && ranks > 0) else { return false };
    let before = now.running + now.suspended - ranks;
    let begins = before == 0 && now.counts.succeeded == 0;
    if !begins {
        return false;
    }
    let may_wait = now.total - own.unwrap_or(now.total).min(now.total);
    holds!(BeginsWhole, now.queued <= may_wait, "job {job} with {ranks} ranks: {now:?}");
    ranks > 1
}
