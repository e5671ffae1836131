//! What users have queued, job by job.
//!
//! The promise: a user with nothing queued costs nothing, and of the others the
//! next job is found without a look at the rest. Knows nothing of shares.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::JobId;

use crate::job::Job;

/// A job among its user's: by priority, then by order of submission.
type Standing = (Reverse<i8>, JobId);

/// One user's jobs that have something queued.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    jobs: BTreeSet<Standing>,
    /// Of these the short ones.
    short: BTreeSet<Standing>,
}

impl Queue {
    /// The jobs, the next one first.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.iter().map(|(_, job)| *job)
    }

    pub(crate) fn is_short(&self, job: &Job) -> bool {
        self.short.contains(&standing(job))
    }

    /// The jobs that come before this one.
    pub(crate) fn before(&self, job: &Job) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.range(..standing(job)).map(|(_, job)| *job)
    }

    /// The oldest of them: who is equal otherwise goes by it.
    pub(crate) fn oldest(&self) -> Option<JobId> {
        self.jobs.iter().map(|(_, job)| *job).min()
    }
}

fn standing(job: &Job) -> Standing {
    (Reverse(job.spec().priority), job.id())
}

/// The queues of all users who have something queued.
#[derive(Debug, Default)]
pub(crate) struct Queues(BTreeMap<String, Queue>);

impl Queues {
    /// Puts a job where it belongs, or takes it out.
    pub(crate) fn update(&mut self, job: &Job) {
        let (user, at) = (job.record().user.as_str(), standing(job));
        if job.queued() > 0 && !self.0.contains_key(user) {
            self.0.insert(user.to_owned(), Queue::default());
        }
        let Some(queue) = self.0.get_mut(user) else { return };
        let short = job.queued() > 0 && job.is_short();
        for (jobs, belongs) in [(&mut queue.jobs, job.queued() > 0), (&mut queue.short, short)] {
            if belongs {
                jobs.insert(at);
            } else {
                jobs.remove(&at);
            }
        }
        if queue.jobs.is_empty() {
            self.0.remove(user);
        }
    }

    pub(crate) fn of(&self, user: &str) -> Option<&Queue> {
        self.0.get(user)
    }

    pub(crate) fn users(&self) -> impl Iterator<Item = (&str, &Queue)> {
        self.0.iter().map(|(user, queue)| (user.as_str(), queue))
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.0.values().flat_map(Queue::jobs)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
