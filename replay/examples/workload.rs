//! Runs a log in the Standard Workload Format under policies and tells how long
//! that took: `workload LOG.swf[.gz] [POLICY ..]`, or `workload JOBS [POLICY ..]`
//! for so many generated ones on 10,000 processors, half of them malleable.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    Allowed, Class, Parameters, Request, Resources, Sizes, named,
};
use gleaner_replay::workload::swf::SwfLog;
use gleaner_replay::workload::{ChangeCosts, Summary, WorkloadJob, run_workload};
use gleaner_shell::clock::Clock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const GENERATED_PROCESSORS: u32 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("usage: workload LOG.swf[.gz]|JOBS [POLICY ..]")?;
    let policies: Vec<String> = arguments.collect();
    if let Ok(jobs) = what.parse() {
        return run_all(&policies, GENERATED_PROCESSORS, || generated(jobs));
    }
    let log = read(&what)?;
    let jobs = log.rigid()?;
    let processors = log.processors().ok_or("the log does not say MaxProcs")?;
    println!("{} jobs of {}, {processors} processors", jobs.len(), log.jobs.len());
    run_all(&policies, processors, || jobs.iter().cloned())
}

fn read(path: &str) -> std::io::Result<SwfLog> {
    let file = BufReader::new(File::open(path)?);
    let is_packed = Path::new(path).extension().is_some_and(|it| it == "gz");
    let input: Box<dyn Read> =
        if is_packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    SwfLog::read(BufReader::new(input))
}

/// A load of 0.8: 32 processors for 5,600 s in the mean, every 22.5 s.
fn generated(jobs: u32) -> impl Iterator<Item = WorkloadJob> {
    let mut chance = SmallRng::seed_from_u64(15);
    let mut submitted = Moment::ZERO;
    (0..jobs).map(move |number| {
        let gap = -chance.random_range(f64::MIN_POSITIVE..1.0_f64).ln() * 22.5;
        submitted = submitted + Duration::from_secs_f64(gap);
        let size = 1_u32 << chance.random_range(0..8_u32);
        let takes = Duration::from_secs_f64(60.0 * chance.random_range(0.0..6.4_f64).exp());
        let is_malleable = chance.random_bool(0.5);
        let three = if is_malleable { [size.div_ceil(2), size, size * 2] } else { [size; 3] };
        let class = if is_malleable { Class::Malleable } else { Class::Rigid };
        let sizes = Sizes::new(three, Allowed::Any).expect("in order");
        let request = Request::new(class, sizes, Some(takes * 2));
        WorkloadJob { number: JobId(number), submitted, takes, request }
    })
}

fn run_all<I: Iterator<Item = WorkloadJob>>(
    policies: &[String],
    processors: u32,
    jobs: impl Fn() -> I,
) -> Result<(), Box<dyn std::error::Error>> {
    let clock = Clock::new();
    for name in policies {
        let policy = named(name).ok_or("no such policy")?;
        let policy = (policy.build)(&Parameters::default());
        let before = clock.now();
        let resources = Resources::steady(processors);
        let summary = run_workload(jobs(), resources, policy, ChangeCosts::default(), |_| {});
        print(name, processors, &summary, clock.now().since(before).as_secs_f64());
    }
    Ok(())
}

fn print(name: &str, processors: u32, summary: &Summary, took_s: f64) {
    println!(
        "{name}: {took_s:.3} s, {:.0} jobs/s; ended {}, refused {}, left {}; utilisation {:.4}, \
         wait {:.0} s, turnaround {:.0} s, slowdown {:.1}, {} adaptations",
        summary.ended as f64 / took_s,
        summary.ended,
        summary.refused,
        summary.left,
        summary.utilisation(processors),
        summary.mean_wait_s(),
        summary.mean_turnaround_s(),
        summary.mean_slowdown(),
        summary.adaptations,
    );
}
