//! How late a periodic interactive thread wakes up: on the empty machine, and
//! with a guest on every core. Phases alternate, so that the machine's own
//! drift meets both alike.

use std::time::Duration;

use anyhow::{Result, bail};
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_lab::{Lab, cgroup};

use crate::record::{Record, median, percentile};
use crate::{Args, Progress, options};

const PHASE: Duration = Duration::from_secs(4);
const PERIOD: Duration = Duration::from_millis(2);

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let pairs = args.times.unwrap_or(8).max(1);
    let cores = std::thread::available_parallelism()?.get();
    let progress = Progress::new(args, "owner-latency", u64::from(pairs) * 2);
    let mut options = options(1)?;
    options.host.places = u16::try_from(cores)?;
    options.host.quiet = Duration::from_millis(300);
    options.network = false;
    let lab = Lab::start(options)?;
    if lab.cgroup.is_none() {
        bail!("owner-latency needs cgroups: {}", lab.missing.join("; "));
    }
    lab.wait_for_idle(1)?;
    let count = cores.to_string();
    lab.submit(&[
        "--count",
        &count,
        "--on-busy",
        "suspend",
        "--patience",
        "24h",
        "--",
        "sh",
        "-c",
        "while :; do :; done",
    ])?;
    let host = &lab.hosts[0];
    until("a guest on every core", PATIENCE, || Ok((host.guests().len() >= cores).then_some(())))?;
    let socket = host.owner_socket().display().to_string();
    let guests = host.cgroup.as_ref().map(|path| path.join("guests")).unwrap_or_default();
    let (mut empty, mut full, mut shares) = (vec![], vec![], vec![]);
    for _ in 0..pairs {
        lab.text(&["agent", "pause", "1h", "--socket", &socket])?;
        settle(&guests, false)?;
        let alone = phase();
        progress.step();
        lab.text(&["agent", "resume", "--socket", &socket])?;
        settle(&guests, true)?;
        let beside = phase();
        progress.step();
        shares.push(p99(&beside) / p99(&alone));
        empty.extend(alone);
        full.extend(beside);
    }
    let ratio = median(&shares);
    let empty = Record::spans("owner-latency", "machine empty", &empty);
    let mut full = Record::spans("owner-latency", "a guest on every core", &full);
    full.floor = empty.p99;
    full.ratio = Some(ratio);
    Ok(vec![full.with("pairs", pairs).at_most("ratio", 1.2), empty])
}

/// Waits until the guests compute, or do not.
fn settle(guests: &std::path::Path, running: bool) -> Result<()> {
    until(if running { "the guests compute" } else { "the guests rest" }, PATIENCE, || {
        let before = cgroup::cpu_us(guests);
        std::thread::sleep(Duration::from_millis(100));
        Ok(((cgroup::cpu_us(guests) > before + 20_000) == running).then_some(()))
    })
}

fn phase() -> Vec<Duration> {
    let clock = gleaner_shell::clock::Clock::new();
    let end = clock.now() + PHASE;
    let mut due = clock.now() + PERIOD;
    let mut late = vec![];
    while due < end {
        std::thread::sleep(due.since(clock.now()));
        late.push(clock.now().since(due));
        due = due + PERIOD;
    }
    late
}

fn p99(spans: &[Duration]) -> f64 {
    let mut sorted: Vec<f64> = spans.iter().map(Duration::as_secs_f64).collect();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 0.99).unwrap_or(f64::NAN)
}
