//! Runs a Standard Workload Format log under policies and tells how long that
//! took: `workload LOG.swf[.gz] [POLICY ..]`.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::fs::File;
use std::io::{BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use gleaner_coordinator_core::scheduler::{Parameters, Resources, named};
use gleaner_replay::workload::swf::SwfLog;
use gleaner_replay::workload::{ChangeCosts, run_workload};
use gleaner_shell::clock::Clock;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: workload LOG.swf[.gz] [POLICY ..]")?;
    let file = BufReader::new(File::open(&path)?);
    let packed = path.ends_with(".gz");
    let input: Box<dyn Read> =
        if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let clock = Clock::new();
    let before = clock.now();
    let log = SwfLog::read(BufReader::new(input))?;
    let jobs = log.rigid()?;
    let processors = log.processors().ok_or("the log does not say MaxProcs")?;
    let read_s = clock.now().since(before).as_secs_f64();
    println!(
        "{} jobs of {}, {processors} processors, read in {read_s:.3} s",
        jobs.len(),
        log.jobs.len()
    );
    for name in arguments {
        let policy = named(&name).ok_or("no such policy")?;
        let policy = (policy.build)(&Parameters::default());
        let before = clock.now();
        let resources = Resources::steady(processors);
        let summary =
            run_workload(jobs.iter().cloned(), resources, policy, ChangeCosts::default(), |_| {});
        let took_s = clock.now().since(before).as_secs_f64();
        println!(
            "{name}: {took_s:.3} s, {:.0} jobs/s; ended {}, refused {}, left {}; utilisation {:.4}, wait {:.0} s, turnaround {:.0} s, slowdown {:.1}, span {:.0} s",
            summary.ended as f64 / took_s,
            summary.ended,
            summary.refused,
            summary.left,
            summary.utilisation(processors),
            summary.mean_wait_s(),
            summary.mean_turnaround_s(),
            summary.mean_slowdown(),
            summary.span().as_secs_f64(),
        );
    }
    Ok(())
}
