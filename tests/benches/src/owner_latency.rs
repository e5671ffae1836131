//! How late a periodic interactive thread wakes up: on the empty machine, and
//! with a guest on every core. Phases alternate, so that the machine's own
//! drift meets both alike.

use std::time::Duration;

use anyhow::Result;
use gleaner_lab::cgroup;
use gleaner_lab::wait::{PATIENCE, until};

use crate::record::{Record, median, percentile};
use crate::{Args, Progress, idle_lab};
use gleaner_shell::clock::Clock;

const PHASE: Duration = Duration::from_secs(4);
const PERIOD: Duration = Duration::from_millis(2);

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let pairs = args.times.unwrap_or(8).max(1);
    let cores = std::thread::available_parallelism()?.get();
    let progress = Progress::new(args, "owner-latency", u64::from(pairs) * 2);
    let places = u16::try_from(cores)?;
    let lab = idle_lab(1, |options| options.host.places = places)?;
    lab.expect_cgroups("owner-latency")?;
    let options = [&format!("--count={cores}"), "--on-busy=suspend", "--patience=24h"];
    lab.submit(&[&options[..], &["--", "sh", "-c", "while :; do :; done"]].concat())?;
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
    let end = Clock.now() + PHASE;
    let mut due = Clock.now() + PERIOD;
    let mut late = vec![];
    while due < end {
        std::thread::sleep(due.since(Clock.now()));
        late.push(Clock.now().since(due));
        due = due + PERIOD;
    }
    late
}

fn p99(spans: &[Duration]) -> f64 {
    let mut sorted: Vec<f64> = spans.iter().map(Duration::as_secs_f64).collect();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 0.99).unwrap_or(f64::NAN)
}
