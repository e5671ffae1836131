//! Attempts that nobody wants any more and that may run: until they are known not to, or
//! their leases have ended, nothing takes their place.
//!
//! ```text
//! a program begins again ──► its attempts ──┬── Stopped, or a hello without them ──► settled
//!                                           └── their workstations' leases end ────► settled
//! the store went back ─────► all that it does not know ── a lease ends ────────────► settled
//! ```

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::program::Life;
use gleaner_common::time::{Moment, Spoken};
use gleaner_common::wire::CoordinatorFrame;

use super::{Core, Draft};
use crate::attempt::Stage;
use crate::record::Change;
use crate::workstation::GRACE;

/// What is waited for.
#[derive(Debug, Default)]
pub(super) struct Settling {
    unwanted: BTreeMap<Fence, (WorkstationId, JobId)>,
    jobs: BTreeMap<JobId, Wait>,
    /// The store went back in time: what its later self gave out may run until then.
    unknown_until: Option<Moment>,
}

#[derive(Debug)]
struct Wait {
    fences: BTreeSet<Fence>,
    /// Then their leases have ended.
    until: Moment,
}

impl Settling {
    /// May attempts run that the store does not know?
    pub(super) fn everything(&self) -> bool {
        self.unknown_until.is_some()
    }

    pub(super) fn holds(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    pub(super) fn first_due(&self) -> Option<Moment> {
        self.jobs.values().map(|wait| wait.until).chain(self.unknown_until).min()
    }

    /// Nothing of this job begins before then, whatever is heard.
    pub(super) fn wait(&mut self, job: JobId, until: Moment) -> &mut BTreeSet<Fence> {
        let wait = self.jobs.entry(job).or_insert(Wait { fences: BTreeSet::new(), until });
        wait.until = wait.until.max(until);
        &mut wait.fences
    }

    fn wait_for(&mut self, job: JobId, fence: Fence, (at, until): (WorkstationId, Moment)) {
        self.wait(job, until).insert(fence);
        self.unwanted.insert(fence, (at, job));
    }

    /// The attempt there does not run any more. Returns the job that it was the last of.
    fn stopped(&mut self, at: WorkstationId, fence: Fence) -> Option<JobId> {
        self.unwanted.get(&fence).filter(|(other, _)| *other == at)?;
        let (_, job) = self.unwanted.remove(&fence)?;
        let wait = self.jobs.get_mut(&job)?;
        wait.fences.remove(&fence);
        wait.fences.is_empty().then(|| self.jobs.remove(&job)).flatten().map(|_| job)
    }

    /// What has not stopped, of jobs that have waited long enough.
    fn overdue(&self, now: Moment) -> Vec<(Fence, WorkstationId, JobId)> {
        let is_due = |job: &JobId| self.jobs.get(job).is_some_and(|wait| wait.until <= now);
        let due = self.unwanted.iter().filter(|(_, (_, job))| is_due(job));
        due.map(|(fence, (at, job))| (*fence, *at, *job)).collect()
    }

    fn take_due(&mut self, now: Moment) -> Vec<JobId> {
        let due: BTreeMap<JobId, Wait> =
            self.jobs.extract_if(.., |_, it| it.until <= now).collect();
        self.unwanted.retain(|_, (_, job)| !due.contains_key(job));
        due.into_keys().collect()
    }

    pub(super) fn at(&self, workstation: WorkstationId) -> Vec<Fence> {
        let there = self.unwanted.iter().filter(|(_, (at, _))| *at == workstation);
        there.map(|(fence, _)| *fence).collect()
    }
}

impl Core {
    /// From when on nothing runs that was given out before and is not heard of again.
    pub(super) fn unheard_until(&self, now: Moment) -> Moment {
        now + self.config.lease + GRACE
    }

    /// The store is older than what was given out.
    pub(super) fn settle_everything(&mut self, now: Moment) {
        self.settling.unknown_until = Some(self.unheard_until(now));
    }

    /// A program that had begun again and has nothing placed may be so because its
    /// attempts of before have not stopped: an earlier life may have waited for them.
    pub(super) fn settle_programs(&mut self, now: Moment) {
        let until = self.unheard_until(now);
        for (id, job) in &self.jobs {
            let has_begun_again = job.program.is_some() && job.progress().life > Life(0);
            if has_begun_again && job.placed().next().is_none() {
                self.settling.wait(*id, until);
            }
        }
    }

    /// An attempt was ended from here, whatever its agent says.
    pub(super) fn settle(&mut self, now: Moment, fence: Fence, job: JobId, at: WorkstationId) {
        let lease_until = self.pool.get(at).map(|w| w.lease_until + GRACE);
        if let Some(until) = lease_until.filter(|until| now < *until) {
            self.settling.wait_for(job, fence, (at, until));
        }
    }

    pub(super) fn has_stopped(&mut self, at: WorkstationId, fence: Fence) {
        if let Some(job) = self.settling.stopped(at, fence) {
            self.schedule.changed(job);
        }
    }

    /// An agent names all that it holds.
    pub(super) fn holds_only(&mut self, id: WorkstationId, held: &BTreeSet<Fence>) {
        for fence in self.settling.at(id) {
            if !held.contains(&fence) {
                self.has_stopped(id, fence);
            }
        }
    }

    pub(super) fn settle_what_is_due(&mut self, draft: &mut Draft) {
        self.stop_again(draft);
        for job in self.settling.take_due(draft.now) {
            self.schedule.changed(job);
        }
        if self.settling.unknown_until.take_if(|until| *until <= draft.now).is_some() {
            draft.change(Change::WentBack(false));
            self.offer_what_waits(draft);
            self.moves_looked_at = None;
            self.more_to_place = true;
        }
    }

    /// An agent that was heard meanwhile has its lease for longer, also for what it was
    /// to stop and was not told yet: the order waits for the disk, and heartbeats do not.
    fn stop_again(&mut self, draft: &mut Draft) {
        for (fence, at, job) in self.settling.overdue(draft.now) {
            let until = self.pool.get(at).map(|w| w.lease_until + GRACE);
            if let Some(until) = until.filter(|until| draft.now < *until) {
                self.settling.wait(job, until);
                self.send(draft, at, CoordinatorFrame::Cancel { fence });
            }
        }
    }

    /// What the store calls placed, and its agent has not named.
    fn offer_what_waits(&mut self, draft: &mut Draft) {
        let unheard: Vec<(Fence, WorkstationId)> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.stage == Stage::Offered)
            .map(|(fence, attempt)| (*fence, attempt.workstation))
            .collect();
        for (fence, at) in unheard {
            if let Some(link) = self.link(at) {
                self.offer_again(draft, link, fence);
            }
        }
    }

    /// Why nothing of this job begins, if it is for what may run of it.
    pub(super) fn why_not_settled(&self, now: Moment, job: JobId) -> Option<String> {
        if let Some(until) = self.settling.unknown_until {
            let span = Spoken(until.since(now));
            return Some(format!(
                "the coordinator's store went back to an earlier time: what that does not know \
                 may run for {span} more, and nothing begins before"
            ));
        }
        let until = self.settling.jobs.get(&job)?.until;
        let span = Spoken(until.since(now));
        Some(format!("what it was before may still run, for {span} at most: nothing of it begins"))
    }
}
