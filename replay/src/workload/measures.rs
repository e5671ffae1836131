//! What became of jobs, and what that comes to (Ghafoor 2007, §3.3.6).

use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::Class;

/// Below this, a short job's slowdown says nothing (Feitelson et al. 1997).
const SLOWDOWN_MIN: Duration = Duration::from_secs(10);

/// What became of a job that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub job: JobId,
    pub class: Class,
    pub submitted: Moment,
    pub started: Moment,
    pub ended: Moment,
    /// The processors at the end.
    pub size: u32,
    /// The most processors it had.
    pub largest: u32,
    /// Processors times seconds (his "cost of an application").
    pub used_s: f64,
    /// As much of that as went into changes of size, or until a barrier was
    /// over.
    pub lost_s: f64,
    /// How often it changed its size.
    pub adaptations: u32,
    pub profit: f64,
}

impl Outcome {
    /// `t_s - t_a`.
    pub fn wait(&self) -> Duration {
        self.started.since(self.submitted)
    }

    /// `t_c - t_s`.
    pub fn execution(&self) -> Duration {
        self.ended.since(self.started)
    }

    /// `t_c - t_a` (3.1).
    pub fn turnaround(&self) -> Duration {
        self.ended.since(self.submitted)
    }

    /// Its processors, averaged over its execution.
    pub fn mean_size(&self) -> f64 {
        let ran = self.execution().as_secs_f64();
        if ran > 0.0 { self.used_s / ran } else { f64::from(self.size) }
    }

    /// How many times longer it took than it ran; of short jobs as if they had
    /// run for 10 s.
    pub fn slowdown(&self) -> f64 {
        let ran = self.execution().max(SLOWDOWN_MIN).as_secs_f64();
        (self.turnaround().as_secs_f64() / ran).max(1.0)
    }
}

/// What all of it comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    pub ended: u64,
    pub refused: u64,
    /// Neither ended nor refused when nothing happened any more.
    pub left: u64,
    pub negotiations: u64,
    pub adaptations: u64,
    pub cycles: u64,
    pub stages: u64,
    pub profit: f64,
    pub used_s: f64,
    pub lost_s: f64,
    /// How often an owner came back to a processor of a job.
    pub taken_by_owners: u64,
    /// How often a job lost all of its processors by that, and waited again.
    pub returned: u64,
    /// Processors that could be used, times seconds, from the first submission
    /// to the last end.
    pub available_s: f64,
    available: u32,
    available_since: Moment,
    first: Option<Moment>,
    last: Moment,
    wait_s: f64,
    execution_s: f64,
    turnaround_s: f64,
    slowdown: f64,
    mean_size: f64,
}

impl Summary {
    pub(super) fn submitted(&mut self, at: Moment) {
        self.first.get_or_insert(at);
    }

    /// There are so many processors from now on.
    pub(super) fn has(&mut self, now: Moment, processors: u32) {
        self.available_until(now);
        self.available = processors;
    }

    /// Nothing ends any more.
    pub(super) fn close(&mut self) {
        self.available_until(self.last);
    }

    fn available_until(&mut self, now: Moment) {
        let from = self.available_since.max(self.first.unwrap_or(now));
        self.available_s += f64::from(self.available) * now.since(from).as_secs_f64();
        self.available_since = self.available_since.max(now);
    }

    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.ended += 1;
        self.last = self.last.max(outcome.ended);
        self.wait_s += outcome.wait().as_secs_f64();
        self.execution_s += outcome.execution().as_secs_f64();
        self.turnaround_s += outcome.turnaround().as_secs_f64();
        self.slowdown += outcome.slowdown();
        self.used_s += outcome.used_s;
        self.lost_s += outcome.lost_s;
        self.mean_size += outcome.mean_size();
        self.adaptations += u64::from(outcome.adaptations);
        self.profit += outcome.profit;
    }

    /// From the first submission to the last end (3.3).
    pub fn span(&self) -> Duration {
        self.first.map_or(Duration::ZERO, |first| self.last.since(first))
    }

    /// U = Σ cost / (p ss) (3.4).
    pub fn utilisation(&self, processors: u32) -> f64 {
        self.used_s / (f64::from(processors) * self.span().as_secs_f64())
    }

    /// The part of what could be used that was, and not by changes of size.
    pub fn useful(&self) -> f64 {
        (self.used_s - self.lost_s) / self.available_s
    }

    /// The part of what could be used that jobs held.
    pub fn held(&self) -> f64 {
        self.used_s / self.available_s
    }

    /// How many jobs ran at once, in the mean.
    pub fn mean_running(&self) -> f64 {
        self.execution_s / self.span().as_secs_f64()
    }

    pub fn jobs_per_s(&self) -> f64 {
        self.ended as f64 / self.span().as_secs_f64()
    }

    pub fn mean_size(&self) -> f64 {
        self.mean_size / self.ended as f64
    }

    pub fn mean_wait_s(&self) -> f64 {
        self.wait_s / self.ended as f64
    }

    pub fn mean_execution_s(&self) -> f64 {
        self.execution_s / self.ended as f64
    }

    /// (3.2)
    pub fn mean_turnaround_s(&self) -> f64 {
        self.turnaround_s / self.ended as f64
    }

    pub fn mean_slowdown(&self) -> f64 {
        self.slowdown / self.ended as f64
    }
}
