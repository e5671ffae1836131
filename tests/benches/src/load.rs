//! How long it takes to load usage logs as timelines, as replay does before
//! anything else.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gleaner_collector::load::{LoadOptions, Loaded, timelines};
use gleaner_collector::store::{Batch, Store};
use gleaner_common::id::BootId;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};
use gleaner_shell::clock::Clock;

use crate::record::{Record, median};
use crate::{Args, Progress};

/// As many desktops, and about as many records of each, as seven years of a
/// university's library came to.
const WORKSTATIONS: usize = 240;
const DAYS: u32 = 1_050;

/// A day: up, four visits, down.
const DAY: [(u64, Cause, &str); 11] = [
    (6 * 3_600, Cause::Start, "restarted"),
    (6 * 3_600, Cause::Idle, "restarted"),
    (8 * 3_600, Cause::Tty, "in-use"),
    (9 * 3_600, Cause::Idle, "available"),
    (10 * 3_600, Cause::Tty, "in-use"),
    (12 * 3_600, Cause::Idle, "available"),
    (13 * 3_600, Cause::Tty, "in-use"),
    (15 * 3_600, Cause::Idle, "available"),
    (16 * 3_600, Cause::Tty, "in-use"),
    (18 * 3_600, Cause::Idle, "available"),
    (23 * 3_600, Cause::Finish, "offline"),
];

/// The goal: at most so many times as long as reading the bytes.
const RATIO: f64 = 80.0;

const TIMES: u32 = 5;

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let made_up = tempfile::tempdir().context("no place for the logs")?;
    let times = args.times.unwrap_or(TIMES).max(1);
    let progress = Progress::new(args, "load", u64::from(times) + WORKSTATIONS as u64);
    let (data, case) = if let Some(data) = &args.usage {
        (data.as_path(), "the given logs")
    } else {
        write_logs(made_up.path(), &progress)?;
        (made_up.path(), "seven years of 240 desktops, made up")
    };
    let (mut loads, mut floors) = (vec![], vec![]);
    let mut loaded = Loaded::default();
    for _ in 0..times {
        // One at a time in memory, as in replay.
        drop(std::mem::take(&mut loaded));
        floors.push(timed(|| read_all(data))?.0);
        let (took, answer) = timed(|| {
            timelines(data, &LoadOptions::default(), &mut |_| ()).context("cannot load the logs")
        })?;
        loads.push(took);
        loaded = answer;
        progress.step();
    }
    ensure!(loaded.records > 0, "no records in {}", data.display());
    let periods: usize = loaded.timelines.iter().map(|(_, line)| line.periods.len()).sum();
    let seconds: Vec<f64> = loads.iter().map(Duration::as_secs_f64).collect();
    let floor: Vec<f64> = floors.iter().map(Duration::as_secs_f64).collect();
    let record = Record::spans("load", case, &loads)
        .over(median(&floor))
        .with("workstations", loaded.timelines.len())
        .with("records", loaded.records)
        .with("periods", periods)
        .with("records_per_s", loaded.records as f64 / median(&seconds))
        .at_most("ratio", RATIO);
    Ok(vec![record])
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Clock.now();
    let answer = work()?;
    Ok((Clock.now().since(start), answer))
}

/// The floor: the bytes of all segments, read by one thread and looked at no
/// further.
fn read_all(data: &Path) -> Result<u64> {
    let mut bytes = 0;
    for log in fs::read_dir(data).context("cannot list the logs")? {
        let log = log?.path();
        if !log.is_dir() {
            continue;
        }
        for segment in fs::read_dir(log)? {
            let path = segment?.path();
            if path.extension().is_some_and(|ending| ending == "log") {
                bytes += fs::read(path)?.len() as u64;
            }
        }
    }
    Ok(bytes)
}

fn write_logs(data: &Path, progress: &Progress) -> Result<()> {
    let mut store = Store::open(data)?;
    for workstation in 0..WORKSTATIONS {
        let name = format!("ws-{workstation:03}").parse()?;
        let records = (0..DAYS).flat_map(|day| records_of(workstation, day)).collect();
        for answer in store.append(&[Batch::of(name, records)]) {
            answer?;
        }
        progress.step();
    }
    Ok(())
}

/// A day's records, a boot of their own, a little other on each workstation.
fn records_of(workstation: usize, day: u32) -> impl Iterator<Item = UsageRecord> {
    // A random id sorts nowhere in particular, as the kernel's do.
    let hash = blake3::hash(format!("{workstation} {day}").as_bytes());
    let mut boot = [0; 16];
    boot.copy_from_slice(&hash.as_bytes()[..16]);
    let midnight_s = 1_262_304_000 + i64::from(day) * 86_400;
    let late_s = u64::from(hash.as_bytes()[20]);
    (1..).zip(DAY).map(move |(sequence, (second, cause, reason))| UsageRecord {
        life: BootId(boot).into(),
        boot: BootId(boot),
        sequence,
        at: WallTime::from_unix_s(midnight_s + (second + late_s).cast_signed()),
        since_boot: Duration::from_secs(second - DAY[0].0),
        cause,
        load: LoadAverages::default(),
        users: u32::from(cause == Cause::Tty),
        input_idle: None,
        slots: u16::from(cause == Cause::Idle),
        reason: reason.to_owned(),
    })
}
