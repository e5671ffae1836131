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

/// What holds for all jobs of a run.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub costs: ChangeCosts,
    /// Jobs of so many equal parts change their size between two parts and
    /// nowhere else; all others at any time.
    pub parts: BTreeMap<JobId, u32>,
    /// The scheduler is called this often and wherever a part ends, and not
    /// after answers: as ElastiSim does. Whenever anything has happened, if it
    /// is `None`.
    pub every: Option<Duration>,
}

impl From<ChangeCosts> for Rules {
    fn from(costs: ChangeCosts) -> Self {
        Self { costs, ..Self::default() }
    }
}

/// A job that has not ended.
#[derive(Debug)]
struct Job {
    job: WorkloadJob,
    run: Option<Run>,
}

/// What a job was told to do about its size.
#[derive(Clone, Copy, Debug)]
enum Order {
    Grow(u32),
    Shrink(u32),
    Nothing,
}

impl Order {
    fn after(self, request: &Request, size: u32) -> u32 {
        match self {
            Self::Grow(by) => size + request.sizes.taken(size, by),
            Self::Shrink(by) => size - request.sizes.given(size, by),
            Self::Nothing => size,
        }
    }
}

/// The part that a job is in.
#[derive(Debug)]
struct Part {
    /// How long one takes on the preferred number of processors.
    takes: Duration,
    /// How many there are to come, with this one.
    left: u32,
    /// What is to be done at its end.
    order: Option<Order>,
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
    part: Option<Part>,
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
    rules: impl Into<Rules>,
    tell: impl FnMut(&Outcome),
) -> Summary {
    let rules = rules.into();
    let mut engine = Engine {
        coming: jobs.into_iter().peekable(),
        scheduler: Scheduler::new(resources, policy),
        jobs: BTreeMap::new(),
        ends: BinaryHeap::new(),
        now: Moment::ZERO,
        call: rules.every.map(|every| Moment::ZERO + every),
        rules,
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
    /// When the scheduler is called whatever happens.
    call: Option<Moment>,
    rules: Rules,
    summary: Summary,
    tell: T,
}

impl<I: Iterator<Item = WorkloadJob>, T: FnMut(&Outcome)> Engine<I, T> {
    /// All that happens at the next moment, and one cycle about it.
    fn turn(&mut self) -> bool {
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        let next = self.coming.peek().map(|job| job.submitted);
        let Some(first) = end.into_iter().chain(next).min() else { return false };
        let first = self.call.map_or(first, |call| call.min(first));
        // What happened during negotiations is heard of when they are over.
        self.now = self.now.max(first);
        let (mut is_news, mut between_parts) = (self.is_called(), vec![]);
        // ElastiSim's scheduler is called about each fact by itself.
        let one_by_one = self.rules.every.is_some();
        let is_enough =
            |is_news: bool, parts: &[JobId]| one_by_one && (is_news || !parts.is_empty());
        while !is_enough(is_news, &between_parts)
            && let Some(Reverse((at, job, plan))) = self.ends.peek().copied()
            && at <= self.now
        {
            self.ends.pop();
            if self.is_between_parts(job) {
                between_parts.push(job);
            } else {
                is_news |= self.end(at, job, plan);
            }
        }
        while !is_enough(is_news, &between_parts)
            && let Some(job) = self.coming.next_if(|job| job.submitted <= self.now)
        {
            self.submit(job);
            is_news = true;
        }
        // It is also called before a job in parts does what it was told.
        if is_enough(is_news, &between_parts) {
            self.cycle();
        }
        for job in between_parts {
            is_news |= self.enter_part(job);
        }
        if is_news && !one_by_one {
            self.cycle();
        }
        true
    }

    fn is_called(&mut self) -> bool {
        let Some(call) = self.call.filter(|call| *call <= self.now) else { return false };
        self.call = self.rules.every.map(|every| call + every);
        true
    }

    /// Has a part of this job ended that was not the last?
    fn is_between_parts(&mut self, job: JobId) -> bool {
        let run = self.jobs.get_mut(&job).and_then(|it| it.run.as_mut());
        let Some(part) = run.and_then(|run| run.part.as_mut()) else { return false };
        part.left -= 1;
        part.left > 0
    }

    /// Does what the job was told, and begins its next part. Was it told
    /// anything?
    fn enter_part(&mut self, job: JobId) -> bool {
        let run = |it: &mut Self| it.jobs.get_mut(&job)?.run.as_mut()?.part.as_mut()?.order.take();
        let order = run(self);
        let cost = order.map_or(Duration::ZERO, |order| self.negotiate(job, order));
        self.plan_part(job, cost);
        order.is_some()
    }

    fn plan_part(&mut self, job: JobId, cost: Duration) {
        let Some(Job { job: it, run: Some(run) }) = self.jobs.get(&job) else { return };
        let Some(part) = &run.part else { return };
        let end = self.now + cost + part.takes.div_f64(it.request.rate(run.size));
        self.ends.push(Reverse((end, job, run.plan)));
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
            Decision::Grow { job, by, .. } => return self.order(job, Order::Grow(by)),
            Decision::Shrink { job, by, .. } => return self.order(job, Order::Shrink(by)),
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
        let parts = self.rules.parts.get(&job);
        let part = parts.map(|&left| Part { takes: it.job.takes / left, left, order: None });
        if part.is_none() {
            self.ends.push(Reverse((progress.end(), job, 0)));
        }
        it.run = Some(Run {
            started: self.now,
            progress,
            size,
            since: self.now,
            used_s: 0.0,
            adaptations: 0,
            plan: 0,
            part,
        });
        self.plan_part(job, Duration::ZERO);
    }

    /// Has the job answered? One in parts does so at the end of a part. In its
    /// last one it declines; under ElastiSim it is silent until it ends.
    fn order(&mut self, job: JobId, order: Order) -> bool {
        let run = self.jobs.get_mut(&job).and_then(|it| it.run.as_mut());
        match run.and_then(|run| run.part.as_mut()) {
            Some(part) if part.left > 1 || self.rules.every.is_some() => {
                part.order = Some(order);
                return false;
            }
            Some(_) => _ = self.negotiate(job, Order::Nothing),
            None => _ = self.negotiate(job, order),
        }
        true
    }

    /// The job does what its sizes let it; one that has just ended does not.
    /// How long it is busy with that.
    fn negotiate(&mut self, job: JobId, order: Order) -> Duration {
        let costs = self.rules.costs;
        self.summary.negotiations += 1;
        self.now = self.now + costs.negotiation;
        let now = self.now;
        let by = match self.jobs.get_mut(&job) {
            Some(Job { job: it, run: Some(run) }) if run.progress.end() > now => {
                let (before, after) = (run.size, order.after(&it.request, run.size));
                let by = before.abs_diff(after);
                if by > 0 {
                    run.used_s = run.used_until(now);
                    (run.since, run.size) = (now, after);
                    run.progress.enter(now, it.request.rate(after), costs.adaptation * by);
                    run.adaptations += 1;
                    run.plan += 1;
                    if run.part.is_none() {
                        self.ends.push(Reverse((run.progress.end(), job, run.plan)));
                    }
                }
                by
            }
            Some(_) | None => 0,
        };
        self.scheduler.handle(now, Fact::Answered { job, by });
        costs.adaptation * by
    }
}
