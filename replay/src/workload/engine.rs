//! The engine: what happens when, and what is true of each job.

mod bags;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::iter::Peekable;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    Class, Decision, Fact, Progress, Request, Resources, Scheduler, Scheduling,
};

use self::bags::Bag;
use super::measures::{Outcome, Summary};
use super::rules::{Negotiator, Order, Part, Rules};
use super::site::{Site, Turned, Workstations, group_for};

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

/// A job that has not ended.
#[derive(Debug)]
struct Job {
    of: WorkloadJob,
    group: usize,
    /// What is left of it, if it has to begin again.
    left: Duration,
    so_far: SoFar,
    run: Option<Run>,
}

/// What has become of a job in all of its runs.
#[derive(Clone, Copy, Debug, Default)]
struct SoFar {
    started: Option<Moment>,
    used_s: f64,
    lost_s: f64,
    adaptations: u32,
    largest: u32,
    /// Which of its planned ends is still true.
    plan: u32,
}

#[derive(Debug)]
struct Run {
    progress: Progress,
    size: u32,
    /// Since when it has this size.
    since: Moment,
    part: Option<Part>,
    bag: Option<Bag>,
}

impl Job {
    /// Notes what was held until now.
    fn hold_until(&mut self, now: Moment) {
        if let Some(run) = &mut self.run {
            let held_s = now.since(run.since).as_secs_f64();
            self.so_far.used_s += f64::from(run.size) * held_s;
            run.since = now;
        }
    }

    /// Goes on with another size, or on other workstations; when it ends then.
    fn resize(&mut self, now: Moment, size: u32, rate: f64, cost: Duration) -> Option<Moment> {
        self.hold_until(now);
        let (run, so_far) = (self.run.as_mut()?, &mut self.so_far);
        run.size = size;
        run.progress.enter(now, rate, cost);
        so_far.lost_s += f64::from(size) * cost.as_secs_f64();
        so_far.adaptations += 1;
        so_far.largest = so_far.largest.max(size);
        so_far.plan += 1;
        Some(run.progress.end())
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
    let site = Site { speed: resources.speed, ..Site::steady(resources.processors) };
    let mut policy = Some(policy);
    let build = || policy.take().unwrap_or_else(|| unreachable!("the site has one group"));
    run_on(jobs, &site, build, rules, tell)
}

/// The same on any site; each group of processors has a scheduler of its own,
/// with a policy that is built for it.
pub fn run_on(
    jobs: impl IntoIterator<Item = WorkloadJob>,
    site: &Site,
    mut policy: impl FnMut() -> Box<dyn Scheduling>,
    rules: impl Into<Rules>,
    tell: impl FnMut(&Outcome),
) -> Summary {
    let resources = |processors: &u32| Resources {
        processors: *processors,
        all: *processors,
        speed: site.speed,
    };
    let schedulers: Vec<Scheduler> =
        site.groups.iter().map(|group| Scheduler::new(resources(group), policy())).collect();
    let rules = rules.into();
    let mut engine = Engine {
        coming: jobs.into_iter().peekable(),
        has_news: vec![false; schedulers.len()],
        schedulers,
        site,
        workstations: Workstations::of(site),
        jobs: BTreeMap::new(),
        ends: BinaryHeap::new(),
        now: Moment::ZERO,
        call: rules.every.map(|every| Moment::ZERO + every),
        negotiator: Negotiator::of(&rules),
        rules,
        summary: Summary::default(),
        tell,
    };
    if let Some(workstations) = &engine.workstations {
        engine.summary.has(Moment::ZERO, workstations.idle());
    }
    engine.know_owners();
    while engine.turn() {}
    engine.finish()
}

struct Engine<'a, I: Iterator<Item = WorkloadJob>, T> {
    coming: Peekable<I>,
    schedulers: Vec<Scheduler>,
    /// Which of them have heard of something.
    has_news: Vec<bool>,
    site: &'a Site,
    /// Only where there are owners.
    workstations: Option<Workstations<'a>>,
    jobs: BTreeMap<JobId, Job>,
    ends: BinaryHeap<Reverse<(Moment, JobId, u32)>>,
    now: Moment,
    /// When the scheduler is called whatever happens.
    call: Option<Moment>,
    rules: Rules,
    negotiator: Negotiator,
    summary: Summary,
    tell: T,
}

impl<I: Iterator<Item = WorkloadJob>, T: FnMut(&Outcome)> Engine<'_, I, T> {
    /// All that happens at the next moment, and one cycle about it.
    fn turn(&mut self) -> bool {
        let Some(first) = self.next() else { return false };
        // What happened during negotiations is heard of when they are over.
        self.now = self.now.max(self.site.heard_at(first));
        if self.now >= self.site.until() {
            return false;
        }
        self.owners();
        self.called();
        let mut between_parts = vec![];
        while !self.is_enough(&between_parts)
            && let Some(Reverse((at, job, plan))) = self.ends.peek().copied()
            && at <= self.now
        {
            self.ends.pop();
            if self.is_between_parts(job) {
                between_parts.push(job);
            } else if !self.end_of_part(job) {
                self.end(at, job, plan);
            }
        }
        while !self.is_enough(&between_parts)
            && let Some(job) = self.coming.next_if(|job| job.submitted <= self.now)
        {
            self.submit(job);
        }
        // It is also called before a job in parts does what it was told.
        if self.is_enough(&between_parts) {
            self.has_news.fill(true);
            self.cycles();
        }
        for job in between_parts {
            self.enter_part(job);
        }
        if self.rules.every.is_none() {
            self.cycles();
        }
        true
    }

    fn cycles(&mut self) {
        for group in 0..self.schedulers.len() {
            // With a barrier, policies look at everything in every unit of time.
            if std::mem::take(&mut self.has_news[group]) || self.site.barrier.is_some() {
                self.cycle(group);
            }
        }
    }

    /// ElastiSim's scheduler is called about each fact by itself, and so is the
    /// coordinator's: it hears of one end after the other.
    fn is_enough(&self, between_parts: &[JobId]) -> bool {
        let has_news = self.has_news.contains(&true) || !between_parts.is_empty();
        (self.rules.every.is_some() || !self.rules.bags.is_empty()) && has_news
    }

    fn next(&mut self) -> Option<Moment> {
        let first = self.next_fact()?;
        Some(self.call.map_or(first, |call| call.min(first)))
    }

    fn next_fact(&mut self) -> Option<Moment> {
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        let submitted = self.coming.peek().map(|job| job.submitted);
        if self.jobs.is_empty() {
            return submitted;
        }
        let owners = self.workstations.as_ref().and_then(Workstations::next);
        let barrier = self.site.barrier.filter(|_| !self.ends.is_empty());
        let barrier = barrier.map(|unit| self.now + unit);
        end.into_iter().chain(submitted).chain(owners).chain(barrier).min()
    }

    fn called(&mut self) {
        if let Some(call) = self.call.filter(|call| *call <= self.now) {
            self.call = self.rules.every.map(|every| call + every);
            self.has_news.fill(true);
        }
    }

    /// Has a part of this job ended that was not the last?
    fn is_between_parts(&mut self, job: JobId) -> bool {
        let run = self.jobs.get_mut(&job).and_then(|it| it.run.as_mut());
        let Some(part) = run.and_then(|run| run.part.as_mut()) else { return false };
        part.left -= 1;
        part.left > 0
    }

    /// Does what the job was told, and begins its next part.
    fn enter_part(&mut self, job: JobId) {
        let run = |it: &mut Self| it.jobs.get_mut(&job)?.run.as_mut()?.part.as_mut()?.order.take();
        let order = run(self);
        let cost = order.map_or(Duration::ZERO, |order| self.negotiate(job, order));
        self.plan_part(job, cost);
        if let Some(it) = self.jobs.get(&job).filter(|_| order.is_some()) {
            self.has_news[it.group] |= self.rules.every.is_none();
        }
    }

    fn plan_part(&mut self, job: JobId, cost: Duration) {
        let Some(Job { of: it, so_far, run: Some(run), .. }) = self.jobs.get(&job) else { return };
        let Some(part) = &run.part else { return };
        let rate = it.request.rate_on(run.size, self.site.speed);
        let end = self.now + cost + part.takes.div_f64(rate);
        self.ends.push(Reverse((end, job, so_far.plan)));
    }

    fn submit(&mut self, job: WorkloadJob) {
        let (number, request) = (job.number, Box::new(job.request.clone()));
        let group = group_for(&job.request, &self.schedulers);
        self.summary.submitted(job.submitted);
        self.schedulers[group].handle(job.submitted, Fact::Submitted { job: number, request });
        self.has_news[group] = true;
        let (left, so_far) = (job.takes, SoFar::default());
        self.jobs.insert(number, Job { of: job, group, left, so_far, run: None });
    }

    fn end(&mut self, at: Moment, job: JobId, plan: u32) {
        let is_true = |it: &Job| it.run.is_some() && it.so_far.plan == plan;
        if !self.jobs.get(&job).is_some_and(is_true) {
            return;
        }
        let Some(mut it) = self.jobs.remove(&job) else { return };
        // A barrier holds a job's processors until it is over.
        let ended = if self.site.barrier.is_some() { self.now } else { at };
        it.hold_until(ended);
        let (so_far, size) = (it.so_far, it.run.map_or(0, |run| run.size));
        self.schedulers[it.group].handle(self.now, Fact::Ended { job });
        self.has_news[it.group] = true;
        if let Some(workstations) = &mut self.workstations {
            workstations.give_all(self.now, job);
        }
        let outcome = Outcome {
            job,
            class: it.of.request.class,
            submitted: it.of.submitted,
            started: so_far.started.unwrap_or(ended),
            ended,
            size,
            largest: so_far.largest,
            used_s: so_far.used_s,
            lost_s: so_far.lost_s + f64::from(size) * ended.since(at).as_secs_f64(),
            adaptations: so_far.adaptations,
            profit: it.of.request.profit.map_or(0.0, |profit| profit.at(ended)),
        };
        self.summary.add(&outcome);
        (self.tell)(&outcome);
    }

    fn cycle(&mut self, group: usize) {
        self.summary.cycles += 1;
        loop {
            self.summary.stages += 1;
            for decision in self.schedulers[group].cycle(self.now) {
                self.carry_out(group, decision);
            }
            if !self.schedulers[group].has_another_stage() {
                return;
            }
        }
    }

    fn carry_out(&mut self, group: usize, decision: Decision) {
        match decision {
            Decision::Start { job, size } => self.start(job, size),
            Decision::Refuse { job, .. } => {
                self.summary.refused += 1;
                self.jobs.remove(&job);
            }
            Decision::Reserve { .. } => {}
            Decision::Grow { job, by, .. } => self.order(job, Order::Grow(by)),
            Decision::Shrink { job, by, .. } => self.order(job, Order::Shrink(by)),
            // No job of a workload asks for more by itself.
            Decision::Offer { job, .. } => {
                let answer = Fact::Asked { job, more: 0, is_answer: true };
                self.schedulers[group].handle(self.now, answer);
            }
        }
    }

    fn start(&mut self, job: JobId, size: u32) {
        let now = self.now;
        let Some(it) = self.jobs.get_mut(&job) else { return };
        let rate = it.of.request.rate_on(size, self.site.speed);
        let progress = Progress::new(now, Some(it.left), rate);
        it.so_far.started.get_or_insert(now);
        it.so_far.largest = it.so_far.largest.max(size);
        let parts = self.rules.parts.get(&job);
        let part = parts.map(|&left| Part { takes: it.left / left, left, order: None });
        // One that had given its last processor goes on with the rest.
        let begun = it.run.take().and_then(|run| run.bag);
        let bag = || self.rules.bags.get(&job).map(|&parts| Bag::of(&it.of, parts));
        let bag = begun.or_else(bag);
        if part.is_none() && bag.is_none() {
            self.ends.push(Reverse((progress.end(), job, it.so_far.plan)));
        }
        it.run = Some(Run { progress, size, since: now, part, bag });
        self.plan_part(job, Duration::ZERO);
        self.begin_parts(now, job, size);
        if let Some(workstations) = &mut self.workstations {
            workstations.take(now, job, size);
        }
    }

    /// A job in parts answers at the end of a part. In its last one it declines;
    /// under ElastiSim it is silent until it ends.
    fn order(&mut self, job: JobId, order: Order) {
        let run = self.jobs.get_mut(&job).and_then(|it| it.run.as_mut());
        if run.as_ref().is_some_and(|run| run.bag.is_some()) {
            return self.order_bag(job, order);
        }
        match run.and_then(|run| run.part.as_mut()) {
            Some(part) if part.left > 1 || self.rules.every.is_some() => {
                part.order = Some(order);
            }
            Some(_) => _ = self.negotiate(job, Order::Nothing),
            None => _ = self.negotiate(job, order),
        }
    }

    /// The job does what its sizes let it; one that has just ended does not.
    /// How long it is busy with that.
    fn negotiate(&mut self, job: JobId, order: Order) -> Duration {
        let (costs, agrees) = (self.negotiator.costs(), self.negotiator.agrees());
        self.summary.negotiations += 1;
        self.now = self.now + costs.negotiation;
        let Some(it) = self.jobs.get_mut(&job) else { return Duration::ZERO };
        let group = it.group;
        let by = match &it.run {
            Some(run) if agrees && run.progress.end() > self.now => {
                let (before, after) = (run.size, order.after(&it.of.request, run.size));
                self.adapt(job, before, after, costs.adaptation);
                before.abs_diff(after)
            }
            Some(_) | None => 0,
        };
        self.schedulers[group].handle(self.now, Fact::Answered { job, by });
        costs.adaptation * by
    }

    fn adapt(&mut self, job: JobId, before: u32, after: u32, cost: Duration) {
        let by = before.abs_diff(after);
        let Some(it) = self.jobs.get_mut(&job).filter(|_| by > 0) else { return };
        let rate = it.of.request.rate_on(after, self.site.speed);
        let is_whole = it.run.as_ref().is_some_and(|run| run.part.is_none());
        let end = it.resize(self.now, after, rate, cost * by);
        if let Some(end) = end.filter(|_| is_whole) {
            self.ends.push(Reverse((end, job, it.so_far.plan)));
        }
        match &mut self.workstations {
            Some(workstations) if after > before => workstations.take(self.now, job, by),
            Some(workstations) => workstations.give(self.now, job, by),
            None => {}
        }
    }
}

/// With owners.
impl<I: Iterator<Item = WorkloadJob>, T: FnMut(&Outcome)> Engine<'_, I, T> {
    /// Who comes back takes a workstation, whoever runs there; who leaves
    /// leaves one to jobs.
    fn owners(&mut self) {
        let mut any = false;
        while let Some(workstations) = &mut self.workstations
            && let Some(Turned { at, lost }) = workstations.turn(self.now)
        {
            any = true;
            self.summary.has(at, workstations.idle());
            if let Some(job) = lost {
                self.lose(at, job);
            }
        }
        if any {
            self.know_owners();
        }
    }

    fn know_owners(&mut self) {
        let Some(workstations) = &self.workstations else { return };
        let processors = workstations.idle();
        let all = self.site.groups[0];
        let resources = Resources { processors, all, speed: self.site.speed };
        self.schedulers[0].handle(self.now, Fact::Resources(resources));
        self.has_news[0] = true;
    }

    /// A mandatory shrink that has been carried out already: a malleable job
    /// goes on with less; another one moves to a workstation that nobody has;
    /// if there is none, it waits again where it was.
    fn lose(&mut self, at: Moment, job: JobId) {
        let Some(it) = self.jobs.get_mut(&job) else { return };
        let Some(run) = it.run.as_ref().filter(|run| run.progress.end() > at) else { return };
        self.summary.taken_by_owners += 1;
        let (size, request) = (run.size, &it.of.request);
        let fewer =
            if request.class == Class::Malleable { request.sizes.at_most(size - 1) } else { None };
        let Some(workstations) = &mut self.workstations else { return };
        if let Some(fewer) = fewer {
            // One is gone; its sizes may make it give more.
            workstations.give(self.now, job, size - fewer - 1);
            let rate = request.rate_on(fewer, self.site.speed);
            let cost = self.rules.costs.adaptation * (size - fewer);
            let end = it.resize(self.now, fewer, rate, cost);
            self.ends.extend(end.map(|end| Reverse((end, job, it.so_far.plan))));
            return self.schedulers[0].handle(self.now, Fact::Resized { job, size: fewer });
        }
        if workstations.free() > 0 {
            workstations.take(self.now, job, 1);
            let rate = request.rate_on(size, self.site.speed);
            let end = it.resize(self.now, size, rate, self.rules.costs.adaptation);
            return self.ends.extend(end.map(|end| Reverse((end, job, it.so_far.plan))));
        }
        workstations.give_all(self.now, job);
        it.hold_until(self.now);
        it.so_far.plan += 1;
        if self.site.keeps_work {
            it.left = run_left(it, self.now);
        }
        it.run = None;
        self.summary.returned += 1;
        self.schedulers[0].handle(self.now, Fact::Returned { job });
    }

    fn finish(mut self) -> Summary {
        self.summary.left = self.jobs.len() as u64 + self.coming.count() as u64;
        if self.workstations.is_none() {
            self.summary.has(Moment::ZERO, self.site.groups.iter().sum());
        }
        self.summary.close();
        self.summary
    }
}

fn run_left(it: &Job, now: Moment) -> Duration {
    let left = it.run.as_ref().and_then(|run| run.progress.left(now));
    left.unwrap_or(it.left)
}
