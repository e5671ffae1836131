//! The engine: what happens when, and what is true of each job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::iter::Peekable;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    Decision, Fact, Progress, Request, Resources, Scheduler, Scheduling,
};

use super::measures::{Outcome, Summary};

/// A job that somebody submits.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadJob {
    /// Its own among all.
    pub number: JobId,
    pub submitted: Moment,
    /// How long it really takes on its preferred number of processors.
    pub takes: Duration,
    pub request: Request,
}

/// What changes of sizes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCosts {
    /// `C_n`: of each negotiation; they are held one after another, and
    /// everything else waits (Ghafoor 2007, §3.3.4 and Figure 4.3, line 13).
    pub negotiation: Duration,
    /// `C`: for each processor more or less (3.16).
    pub adaptation: Duration,
}

/// A job that has not ended.
#[derive(Debug)]
struct Job {
    job: WorkloadJob,
    run: Option<Run>,
}

#[derive(Debug)]
struct Run {
    started: Moment,
    progress: Progress,
    size: u32,
    /// Since when it has this size, and what was used before.
    since: Moment,
    used_s: f64,
    adaptations: u32,
    /// Which of its planned ends is still true.
    plan: u32,
}

impl Run {
    fn used_until(&self, now: Moment) -> f64 {
        self.used_s + f64::from(self.size) * now.since(self.since).as_secs_f64()
    }
}

/// Runs the jobs, which come in the order of their submission, until nothing
/// happens any more; tells of each as it ends.
pub fn run_workload(
    jobs: impl IntoIterator<Item = WorkloadJob>,
    resources: Resources,
    policy: Box<dyn Scheduling>,
    costs: ChangeCosts,
    tell: impl FnMut(&Outcome),
) -> Summary {
    let mut engine = Engine {
        coming: jobs.into_iter().peekable(),
        scheduler: Scheduler::new(resources, policy),
        jobs: BTreeMap::new(),
        ends: BinaryHeap::new(),
        now: Moment::ZERO,
        costs,
        summary: Summary::default(),
        tell,
    };
    while engine.turn() {}
    engine.summary.left = engine.jobs.len() as u64;
    engine.summary
}

struct Engine<I: Iterator<Item = WorkloadJob>, T> {
    coming: Peekable<I>,
    scheduler: Scheduler,
    jobs: BTreeMap<JobId, Job>,
    ends: BinaryHeap<Reverse<(Moment, JobId, u32)>>,
    now: Moment,
    costs: ChangeCosts,
    summary: Summary,
    tell: T,
}

impl<I: Iterator<Item = WorkloadJob>, T: FnMut(&Outcome)> Engine<I, T> {
    /// All that happens at the next moment, and one cycle about it.
    fn turn(&mut self) -> bool {
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        let next = self.coming.peek().map(|job| job.submitted);
        let Some(first) = end.into_iter().chain(next).min() else { return false };
        // What happened during negotiations is heard of when they are over.
        self.now = self.now.max(first);
        let mut is_news = false;
        while let Some(Reverse((at, job, plan))) = self.ends.peek().copied()
            && at <= self.now
        {
            self.ends.pop();
            is_news |= self.end(at, job, plan);
        }
        while let Some(job) = self.coming.next_if(|job| job.submitted <= self.now) {
            self.submit(job);
            is_news = true;
        }
        if is_news {
            self.cycle();
        }
        true
    }

    fn submit(&mut self, job: WorkloadJob) {
        let (number, request) = (job.number, Box::new(job.request.clone()));
        self.summary.submitted(job.submitted);
        self.scheduler.handle(job.submitted, Fact::Submitted { job: number, request });
        self.jobs.insert(number, Job { job, run: None });
    }

    fn end(&mut self, at: Moment, job: JobId, plan: u32) -> bool {
        let is_true = |it: &Job| it.run.as_ref().is_some_and(|run| run.plan == plan);
        if !self.jobs.get(&job).is_some_and(is_true) {
            return false;
        }
        let Some(Job { job: it, run: Some(run) }) = self.jobs.remove(&job) else { return false };
        self.scheduler.handle(self.now, Fact::Ended { job });
        let profit = it.request.profit.map_or(0.0, |profit| profit.at(at));
        let outcome = Outcome {
            job,
            submitted: it.submitted,
            started: run.started,
            ended: at,
            size: run.size,
            used_s: run.used_until(at),
            adaptations: run.adaptations,
            profit,
        };
        self.summary.add(&outcome);
        (self.tell)(&outcome);
        true
    }

    fn cycle(&mut self) {
        self.summary.cycles += 1;
        loop {
            self.summary.stages += 1;
            let decisions = self.scheduler.cycle(self.now);
            let mut was_answered = false;
            for decision in decisions {
                was_answered |= self.carry_out(decision);
            }
            if !was_answered {
                return;
            }
        }
    }

    /// Was there an answer to it?
    fn carry_out(&mut self, decision: Decision) -> bool {
        match decision {
            Decision::Start { job, size } => self.start(job, size),
            Decision::Refuse { job, .. } => {
                self.summary.refused += 1;
                self.jobs.remove(&job);
            }
            Decision::Reserve { .. } => {}
            Decision::Grow { job, by, .. } => {
                self.negotiate(job, |request, size| size + request.sizes.taken(size, by));
                return true;
            }
            Decision::Shrink { job, by, .. } => {
                self.negotiate(job, |request, size| size - request.sizes.given(size, by));
                return true;
            }
            // No job of a workload asks for more by itself.
            Decision::Offer { job, .. } => {
                self.scheduler.handle(self.now, Fact::Asked { job, more: 0, is_answer: true });
            }
        }
        false
    }

    fn start(&mut self, job: JobId, size: u32) {
        let Some(it) = self.jobs.get_mut(&job) else { return };
        let rate = it.job.request.rate(size);
        let progress = Progress::new(self.now, Some(it.job.takes), rate);
        self.ends.push(Reverse((progress.end(), job, 0)));
        it.run = Some(Run {
            started: self.now,
            progress,
            size,
            since: self.now,
            used_s: 0.0,
            adaptations: 0,
            plan: 0,
        });
    }

    /// The job does what its sizes let it; one that has just ended does not.
    fn negotiate(&mut self, job: JobId, next: impl Fn(&Request, u32) -> u32) {
        self.summary.negotiations += 1;
        self.now = self.now + self.costs.negotiation;
        let now = self.now;
        let by = match self.jobs.get_mut(&job) {
            Some(Job { job: it, run: Some(run) }) if run.progress.end() > now => {
                let (before, after) = (run.size, next(&it.request, run.size));
                let by = before.abs_diff(after);
                if by > 0 {
                    run.used_s = run.used_until(now);
                    (run.since, run.size) = (now, after);
                    run.progress.enter(now, it.request.rate(after), self.costs.adaptation * by);
                    run.adaptations += 1;
                    run.plan += 1;
                    self.ends.push(Reverse((run.progress.end(), job, run.plan)));
                }
                by
            }
            Some(_) | None => 0,
        };
        self.scheduler.handle(now, Fact::Answered { job, by });
    }
}
