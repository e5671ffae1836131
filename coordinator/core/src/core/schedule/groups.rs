//! Which groups of workstations (a lab, a floor) the parts of a job go to that
//! start together (Buisson et al. 2007, §IV.A).
//!
//! The promise: a group is a wish. If what was chosen is not there any more, parts
//! go wherever placement puts them, and a job never waits for a group.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{ContentHash, JobId, WorkstationId};

use crate::core::Core;
use crate::job::Job;
use crate::needs::{Needs, group_of};
use crate::scheduler::spread::{Group, Spread};

/// So many files are remembered, with the groups where they lie. Which of them
/// are still there only agents know.
const FILES_MAX: usize = 100_000;

/// What a file is taken to come with, until anything is measured: only the order
/// of groups depends on it.
const BYTES_PER_S: f64 = 1e8;

#[derive(Debug, Default)]
pub(super) struct Groups {
    /// How many parts of a job go to which group, the next one last.
    chosen: BTreeMap<JobId, Vec<(String, u32)>>,
    /// Where input files have been sent.
    files: BTreeMap<ContentHash, BTreeSet<String>>,
}

impl Groups {
    pub(super) fn forget(&mut self, job: JobId) {
        self.chosen.remove(&job);
    }

    fn next(&self, job: JobId) -> Option<&str> {
        Some(&self.chosen.get(&job)?.last()?.0)
    }

    /// A part has gone to the group that was its turn.
    fn took(&mut self, job: JobId) {
        let Some(parts) = self.chosen.get_mut(&job) else { return };
        if let Some((_, left @ 2..)) = parts.last_mut() {
            *left -= 1;
        } else {
            parts.pop();
        }
    }

    fn lies(&mut self, file: ContentHash, group: &str) {
        if self.files.len() >= FILES_MAX {
            self.files.pop_first();
        }
        self.files.entry(file).or_default().insert(group.to_owned());
    }

    fn transfer_s(&self, job: &Job, group: &str) -> f64 {
        let lies = |file| self.files.get(file).is_some_and(|groups| groups.contains(group));
        let missing = job.spec().inputs.iter().filter(|input| !lies(&input.hash));
        missing.map(|input| input.size_bytes as f64 / BYTES_PER_S).sum()
    }
}

impl Core {
    /// Chooses groups for all parts of the job that are to be placed now.
    pub(super) fn choose_groups(&mut self, id: JobId) {
        let Some(spread) = self.config.scheduler.spread else { return };
        let Some(job) = self.jobs.get(&id) else { return };
        let parts = self.schedule.unfilled(id) / job.each();
        if parts < 2 {
            return;
        }
        let chosen = self.groups_for(job, spread, parts).unwrap_or_default();
        self.schedule.groups.chosen.insert(id, chosen);
    }

    fn groups_for(&self, job: &Job, spread: Spread, parts: u32) -> Option<Vec<(String, u32)>> {
        let needs = job.needs();
        let mut free: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, workstation) in self.pool.free_ones().filter(|(_, it)| needs.are_met_now(it)) {
            let room = free.entry(group_of(workstation)).or_default();
            *room = room.saturating_add(workstation.room_for(needs.asked));
        }
        let group = |(name, free): (&&str, &u32)| Group {
            free: *free,
            transfer_s: self.schedule.groups.transfer_s(job, name),
        };
        let groups: Vec<Group> = free.iter().map(group).collect();
        let names: Vec<&str> = free.into_keys().collect();
        let chosen = spread.choose(&vec![1; parts as usize], &groups)?;
        let mut by_group: BTreeMap<usize, u32> = BTreeMap::new();
        for (group, size) in chosen {
            *by_group.entry(group).or_default() += size;
        }
        Some(
            by_group
                .into_iter()
                .rev()
                .map(|(group, size)| (names[group].to_owned(), size))
                .collect(),
        )
    }

    /// What the job needs of a workstation for its next part, with the group that
    /// was chosen for it.
    pub(in crate::core) fn needs_in_group<'a>(&'a self, job: &'a Job) -> Option<Needs<'a>> {
        let group = self.schedule.groups.next(job.id())?;
        Some(Needs { group: Some(group), ..job.needs() })
    }

    /// A part of the job goes there.
    pub(in crate::core) fn goes_to_group(&mut self, id: JobId, at: WorkstationId) {
        if self.config.scheduler.spread.is_none() {
            return;
        }
        let (Some(job), Some(workstation)) = (self.jobs.get(&id), self.pool.get(at)) else {
            return;
        };
        let group = group_of(workstation).to_owned();
        self.schedule.groups.took(id);
        for input in &job.spec().inputs {
            self.schedule.groups.lies(input.hash, &group);
        }
    }
}
