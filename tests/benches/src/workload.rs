//! How fast workloads of jobs are replayed and scheduled: a log under every
//! policy, a million jobs, and the live cycle. The floor is a loop that takes
//! the submission and the end of each job out of a heap and decides nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;
use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    ALL, Allowed, Class, Decision, Fact, Named, Parameters, Request, Resources, Scheduler, Sizes,
};
use gleaner_replay::workload::swf::SwfLog;
use gleaner_replay::workload::{ChangeCosts, Summary, WorkloadJob, run_workload};
use gleaner_shell::clock::Clock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::process::{peak_bytes, reset_peak};
use crate::record::Record;
use crate::{Args, Progress};

/// As many jobs and processors as those of the San Diego log that ran.
const LOG_JOBS: u32 = 54_034;
const LOG_PROCESSORS: u32 = 128;
const MANY_JOBS: u32 = 1_000_000;
const MANY_PROCESSORS: u32 = 10_000;
const RIGID: [&str; 2] = ["fcfs", "easy"];
const MANY: [&str; 4] = ["fcfs", "easy", "ghafoor", "gleaner"];
/// Ten times as many jobs may take so much more memory.
const MEMORY_GROWS: f64 = 1.2;
/// The goals of a whole log, of a million jobs, and of a live cycle.
const RIGID_S: f64 = 1.0;
const MALLEABLE_S: f64 = 5.0;
const MANY_S: f64 = 60.0;
const CYCLE_S: f64 = 0.005;
/// The live cycle.
const WORKSTATIONS: u32 = 10_000;
const RUNNING: u32 = 1_000;
const EVENTS: u32 = 3_000;

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let (processors, jobs) = match &args.swf {
        Some(path) => read(path)?,
        None => (LOG_PROCESSORS, generated(LOG_JOBS, LOG_PROCESSORS, 3, 0.0).collect()),
    };
    let malleable: Vec<WorkloadJob> =
        jobs.iter().map(|job| made_malleable(job, processors)).collect();
    let is_chosen = |name: &str| args.only.as_deref().is_none_or(|only| only == name);
    let all = || ALL.iter().filter(|policy| is_chosen(policy.name));
    let rigid = RIGID.into_iter().filter(|name| is_chosen(name));
    let many = MANY.into_iter().filter(|name| is_chosen(name));
    let steps = rigid.clone().count() + 2 * all().count() + many.clone().count();
    let progress = Progress::new(args, "workload", steps as u64);
    let mut records = vec![];
    for name in rigid {
        records.extend(whole_log(name, &jobs, processors, "rigid", RIGID_S));
        progress.step();
    }
    for policy in all() {
        records.extend(whole_log(policy.name, &malleable, processors, "malleable", MALLEABLE_S));
        progress.step();
    }
    for name in many {
        records.extend(million(name));
        progress.step();
    }
    for policy in all() {
        records.push(live_cycle(policy));
        progress.step();
    }
    Ok(records)
}

fn read(path: &Path) -> Result<(u32, Vec<WorkloadJob>)> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let is_packed = path.extension().is_some_and(|it| it == "gz");
    let input: Box<dyn Read> = if is_packed {
        Box::new(MultiGzDecoder::new(BufReader::new(file)))
    } else {
        Box::new(file)
    };
    let log = SwfLog::read(BufReader::new(input))?;
    let processors = log.processors().context("the log does not say MaxProcs")?;
    Ok((processors, log.rigid()?))
}

/// The same job, from half to twice its size.
fn made_malleable(job: &WorkloadJob, processors: u32) -> WorkloadJob {
    let size = job.request.sizes.preferred();
    let request = match Sizes::new(
        [size.div_ceil(2), size, (2 * size).min(processors).max(size)],
        Allowed::Any,
    ) {
        Ok(sizes) => Request { class: Class::Malleable, sizes, ..job.request.clone() },
        Err(_) => job.request.clone(),
    };
    WorkloadJob { request, ..job.clone() }
}

/// Jobs at a load of 0.8, of sizes that are powers of two below `2^sizes`.
fn generated(
    jobs: u32,
    processors: u32,
    sizes: u32,
    malleable: f64,
) -> impl Iterator<Item = WorkloadJob> {
    let mut chance = SmallRng::seed_from_u64(15);
    let mut submitted = Moment::ZERO;
    let size_mean = f64::from((1 << sizes) - 1) / f64::from(sizes);
    // The mean of 60 e^x, x uniform below 6.4.
    let takes_mean_s = 60.0 * (6.4_f64.exp() - 1.0) / 6.4;
    let gap_mean_s = size_mean * takes_mean_s / (0.8 * f64::from(processors));
    (0..jobs).filter_map(move |number| {
        let gap_s = -chance.random_range(f64::MIN_POSITIVE..1.0_f64).ln() * gap_mean_s;
        submitted = submitted + Duration::from_secs_f64(gap_s);
        let size = 1_u32 << chance.random_range(0..sizes);
        let takes = Duration::from_secs_f64(60.0 * chance.random_range(0.0..6.4_f64).exp());
        let request = Request::rigid(size, Some(takes * 2)).ok()?;
        let job = WorkloadJob { number: JobId(number), submitted, takes, request };
        Some(if chance.random_bool(malleable) { made_malleable(&job, processors) } else { job })
    })
}

fn named(name: &str) -> Option<&'static Named> {
    ALL.iter().find(|policy| policy.name == name)
}

/// What came of it, and how long it took.
fn replayed(
    policy: &Named,
    processors: u32,
    jobs: impl Iterator<Item = WorkloadJob>,
) -> (Summary, f64) {
    let built = (policy.build)(&Parameters::default());
    let before = Clock.now();
    let resources = Resources::steady(processors);
    let summary = run_workload(jobs, resources, built, ChangeCosts::default(), |_| {});
    (summary, Clock.now().since(before).as_secs_f64())
}

fn whole_log(
    name: &str,
    jobs: &[WorkloadJob],
    processors: u32,
    kind: &str,
    goal_s: f64,
) -> Option<Record> {
    let (summary, took_s) = replayed(named(name)?, processors, jobs.iter().cloned());
    let case = format!("{} {kind} jobs of a log, {name}", jobs.len());
    let record = Record::value("workload", &case, "jobs/s", jobs.len() as f64 / took_s)
        .over(bare_loop(jobs))
        .with("s", took_s)
        .with("utilisation", summary.utilisation(processors))
        .with("mean_turnaround_s", summary.mean_turnaround_s())
        .with("mean_wait_s", summary.mean_wait_s())
        .with("refused", summary.refused)
        .with("adaptations", summary.adaptations);
    Some(record.at_most("s", goal_s))
}

fn million(name: &str) -> Vec<Record> {
    let run = |jobs| {
        reset_peak();
        let before = peak_bytes();
        let jobs = generated(jobs, MANY_PROCESSORS, 8, 0.5);
        let (summary, took_s) = replayed(named(name)?, MANY_PROCESSORS, jobs);
        Some((summary, took_s, before, peak_bytes()))
    };
    let Some((few, many)) = run(MANY_JOBS / 10).zip(run(MANY_JOBS)) else { return vec![] };
    let (summary, took_s, _, peak) = many;
    let case = format!("1,000,000 jobs on 10,000 processors, half malleable, {name}");
    let record = Record::value("workload", &case, "jobs/s", f64::from(MANY_JOBS) / took_s)
        .with("s", took_s)
        .with("mean_turnaround_s", summary.mean_turnaround_s())
        .at_most("s", MANY_S);
    let grown = peak as f64 / few.3 as f64;
    let case = format!("peak memory of 1,000,000 jobs over that of 100,000, {name}");
    let memory = Record::value("workload", &case, "ratio", grown)
        .with("peak_bytes", peak)
        .with("bytes_before", few.2);
    vec![record, memory.at_most("value", MEMORY_GROWS)]
}

/// Jobs a second, if nothing is decided about them.
fn bare_loop(jobs: &[WorkloadJob]) -> f64 {
    let before = Clock.now();
    let mut heap: BinaryHeap<Reverse<(Moment, JobId)>> = BinaryHeap::new();
    for job in jobs {
        while heap.peek().is_some_and(|Reverse((end, _))| *end <= job.submitted) {
            black_box(heap.pop());
        }
        heap.push(Reverse((job.submitted + job.takes, job.number)));
    }
    while let Some(end) = heap.pop() {
        black_box(end);
    }
    jobs.len() as f64 / Clock.now().since(before).as_secs_f64()
}

/// Malleable jobs on workstations whose owners come and go: how long all stages
/// of a cycle take, with what the jobs answer.
fn live_cycle(policy: &Named) -> Record {
    let mut drive = Drive::new(policy);
    for _ in 0..RUNNING {
        drive.submit();
    }
    drive.cycle();
    let mut spans = vec![];
    for _ in 0..EVENTS {
        drive.now = drive.now + Duration::from_millis(500);
        drive.happens();
        let before = Clock.now();
        drive.cycle();
        spans.push(Clock.now().since(before));
    }
    let case = format!("cycle of 1,000 malleable jobs on 10,000 workstations, {}", policy.name);
    let record = Record::spans("workload", &case, &spans);
    let running = drive.scheduler.state().running_count();
    record.with("running", running).at_most("p99", CYCLE_S)
}

struct Drive {
    scheduler: Scheduler,
    chance: SmallRng,
    next: u32,
    now: Moment,
    busy: u32,
}

impl Drive {
    fn new(policy: &Named) -> Self {
        let resources = Resources::steady(WORKSTATIONS);
        let scheduler = Scheduler::new(resources, (policy.build)(&Parameters::default()));
        let chance = SmallRng::seed_from_u64(15);
        Self { scheduler, chance, next: 0, now: Moment::ZERO, busy: 0 }
    }

    fn submit(&mut self) {
        let (min, max) = (self.chance.random_range(1..=4), self.chance.random_range(8..=24));
        let preferred = self.chance.random_range(min..=max);
        let Ok(sizes) = Sizes::new([min, preferred, max], Allowed::Any) else { return };
        let takes = Duration::from_secs(self.chance.random_range(60..36_000));
        let request = Box::new(Request::new(Class::Malleable, sizes, Some(takes)));
        self.next += 1;
        self.scheduler.handle(self.now, Fact::Submitted { job: JobId(self.next), request });
    }

    /// A job ends and another comes, or an owner does.
    fn happens(&mut self) {
        let running = self.scheduler.state().running_count();
        let chosen = self.chance.random_range(0..running.max(1));
        let found = self.scheduler.state().running().nth(chosen);
        let found = found.map(|(job, it)| (job, it.size, it.request.sizes.min()));
        match (self.chance.random_range(0..3), found) {
            (0, Some((job, ..))) => {
                self.scheduler.handle(self.now, Fact::Ended { job });
                self.submit();
            }
            (1, Some((job, size, min))) if size > min => {
                self.busy += 1;
                self.tell_resources();
                self.scheduler.handle(self.now, Fact::Resized { job, size: size - 1 });
            }
            _ => {
                self.busy = self.busy.saturating_sub(1);
                self.tell_resources();
            }
        }
    }

    fn tell_resources(&mut self) {
        let processors = WORKSTATIONS - self.busy;
        let resources = Resources { processors, ..Resources::steady(WORKSTATIONS) };
        self.scheduler.handle(self.now, Fact::Resources(resources));
    }

    fn cycle(&mut self) {
        loop {
            let mut was_answered = false;
            for decision in self.scheduler.cycle(self.now) {
                if let Decision::Grow { job, by, .. } | Decision::Shrink { job, by, .. } = decision
                {
                    self.scheduler.handle(self.now, Fact::Answered { job, by });
                    was_answered = true;
                }
            }
            if !was_answered {
                return;
            }
        }
    }
}
