//! How many subprograms a second go through the whole system: 2,000 runs of
//! `/bin/true` on two places of real agents, against a bare loop that spawns
//! and waits with two children, in turn. And what a long queue costs.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Reaction};
use gleaner_common::report::JobState;
use gleaner_shell::clock::Clock;

use crate::process::pss_bytes;
use crate::record::{Record, median};
use crate::{Args, Progress, idle_lab};
use gleaner_lab::blocking_client::BlockingClient;

const SUBPROGRAMS: u32 = 2_000;
const QUEUED: u32 = 100_000;

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let rounds = args.times.unwrap_or(5).max(1);
    let progress = Progress::new(args, "dispatch", u64::from(rounds) * 2 + 1);
    let mut records = vec![rates(rounds, &progress)?];
    records.extend(long_queue()?);
    progress.step();
    Ok(records)
}

fn rates(rounds: u32, progress: &Progress) -> Result<Record> {
    let lab = idle_lab(2, |_| ())?;
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    // The first one starts the keepers.
    through(&talk, 20)?;
    let (mut rates, mut floors, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..rounds {
        let floor = f64::from(SUBPROGRAMS) / bare(SUBPROGRAMS)?.as_secs_f64();
        progress.step();
        let rate = f64::from(SUBPROGRAMS) / through(&talk, SUBPROGRAMS)?.as_secs_f64();
        progress.step();
        rates.push(rate);
        floors.push(floor);
        ratios.push(rate / floor);
    }
    let mut record = Record::value(
        "dispatch",
        "2,000 x /bin/true on 2 places, contained and durable",
        "1/s",
        median(&rates),
    );
    record.floor = Some(median(&floors));
    record.ratio = Some(median(&ratios));
    Ok(record
        .with("rate", median(&rates))
        .with("floor_rate", median(&floors))
        .with("rounds", rounds)
        .with("contained", lab.missing.is_empty())
        .at_least("ratio", 0.6))
}

/// Submits `count` runs of `/bin/true` and waits until the last result is
/// durable.
fn through(talk: &BlockingClient, count: u32) -> Result<Duration> {
    let start = Clock.now();
    let job = talk.submit(spec(count)?)?;
    let summary = talk.wait(job)?;
    let took = Clock.now().since(start);
    if summary.state != JobState::Succeeded || summary.counts.succeeded != count {
        bail!("job {job} came to {summary:?}");
    }
    Ok(took)
}

fn spec(count: u32) -> Result<JobSpec> {
    let indexes = IndexRange::count_of(count).context("at least one subprogram")?;
    let mut spec = JobSpec::new(vec!["/bin/true".into()], indexes);
    spec.on_busy = OnBusy::at_once(Reaction::Renice);
    Ok(spec)
}

/// The floor: two threads, each of which spawns one child after the other.
fn bare(count: u32) -> Result<Duration> {
    let start = Clock.now();
    let half = move || -> Result<()> {
        for _ in 0..count / 2 {
            let mut command = Command::new("/bin/true");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().context("cannot run /bin/true")?;
        }
        Ok(())
    };
    let other = std::thread::spawn(half);
    half()?;
    other.join().map_err(|_| anyhow::anyhow!("the floor's thread has panicked"))??;
    Ok(Clock.now().since(start))
}

fn long_queue() -> Result<Vec<Record>> {
    let lab = idle_lab(0, |options| options.collector = false)?;
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    let pid = lab.coordinator.as_ref().and_then(gleaner_lab::daemon::Daemon::pid);
    let pid = pid.context("the coordinator runs")?;
    let before = pss_bytes(pid);
    let start = Clock.now();
    talk.submit(spec(QUEUED)?)?;
    let took = Clock.now().since(start);
    let after = pss_bytes(pid);
    Ok(vec![
        Record::value("dispatch", "coordinator with 100,000 queued", "byte", after as f64)
            .with("pss_bytes", after)
            .with("pss_bytes_before", before)
            .at_most("value", 40.0 * 1024.0 * 1024.0),
        Record::value("dispatch", "submitting 100,000 subprograms", "s", took.as_secs_f64()),
    ])
}
