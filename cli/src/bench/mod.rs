//! `glean bench`: what gleaner costs and how fast it is, measured on the
//! machine it runs on, with floors measured in the same run.

mod dispatch;
mod footprint;
mod latency;
mod load;
pub mod messages;
pub mod migrate;
mod owner_latency;
mod owner_return;
mod pool;
mod process;
mod programs;
mod record;
mod replay;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args as ClapArgs, ValueEnum};
use gleaner_lab::Options;
use indicatif::{ProgressBar, ProgressStyle};

use record::Record;

/// Which figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// A key typed to every guest thread stopped.
    OwnerReturn,
    /// Wake-up latency of an interactive thread beside guests.
    OwnerLatency,
    /// Memory and CPU of an idle agent.
    Footprint,
    /// Subprograms a second; memory of a long queue.
    Dispatch,
    /// Submit to start and result; keystroke, death and silence to elsewhere.
    Latency,
    /// Thousands of agents on one coordinator.
    Pool,
    /// Years of usage logs, loaded for replay.
    Load,
    /// Replayed executions a second.
    Replay,
    /// A key typed to a guest at work on another workstation, by its size.
    Migrate,
    /// Round trips and bandwidth between two ranks.
    Messages,
    /// The thesis's four programs on a lab, alone and with owners.
    Programs,
    /// All of them, one after the other.
    All,
}

/// Arguments of `glean bench`.
#[derive(ClapArgs, Clone, Debug)]
pub struct Args {
    /// The figure to measure.
    #[arg(value_enum)]
    pub name: Bench,
    /// One record a line instead of a table.
    #[arg(long)]
    pub json: bool,
    /// How many times to measure (each bench has its own default).
    #[arg(long)]
    pub times: Option<u32>,
    /// How long `footprint` watches, in seconds.
    #[arg(long)]
    pub seconds: Option<u64>,
    /// How many agents `pool` simulates.
    #[arg(long)]
    pub agents: Option<u32>,
    /// The logs that `load` loads [default: made up for it].
    #[arg(long, value_name = "DIR")]
    pub usage: Option<std::path::PathBuf>,
    /// The programs that `programs` runs [default: examples beside this one].
    #[arg(long, value_name = "DIR")]
    pub examples: Option<std::path::PathBuf>,
}

/// Runs a bench and prints its records.
///
/// # Errors
/// The lab does not start, or the machine lacks what the bench needs.
pub fn run(args: &Args) -> Result<()> {
    let benches: &[Bench] = if args.name == Bench::All {
        &[
            Bench::OwnerReturn,
            Bench::OwnerLatency,
            Bench::Footprint,
            Bench::Dispatch,
            Bench::Latency,
            Bench::Pool,
            Bench::Load,
            Bench::Replay,
            Bench::Migrate,
            Bench::Messages,
            Bench::Programs,
        ]
    } else {
        std::slice::from_ref(&args.name)
    };
    for bench in benches {
        let records = match bench {
            Bench::OwnerReturn => owner_return::run(args)?,
            Bench::OwnerLatency => owner_latency::run(args)?,
            Bench::Footprint => footprint::run(args)?,
            Bench::Dispatch => dispatch::run(args)?,
            Bench::Latency => latency::run(args)?,
            Bench::Pool => pool::run(args)?,
            Bench::Load => load::run(args)?,
            Bench::Replay => replay::run_all(args)?,
            Bench::Migrate => migrate::run(args)?,
            Bench::Messages => messages::run(args)?,
            Bench::Programs => programs::run(args)?,
            Bench::All => unreachable!("`all` was taken apart above"),
        };
        print(args, &records)?;
    }
    Ok(())
}

fn print(args: &Args, records: &[Record]) -> Result<()> {
    if args.json {
        return records.iter().try_for_each(crate::output::record);
    }
    let figure = |number: Option<f64>| number.map_or(String::new(), short);
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|one| {
            vec![
                one.case.clone(),
                one.unit.to_owned(),
                figure(one.value.or(one.p50)),
                figure(one.p99),
                figure(one.max),
                figure(one.floor),
                figure(one.ratio),
                one.goal.clone().unwrap_or_default(),
                one.met.map_or("", |met| if met { "yes" } else { "NO" }).to_owned(),
            ]
        })
        .collect();
    let title = records.first().map_or("", |one| one.bench);
    crate::output::table(
        &[title, "unit", "value/p50", "p99", "max", "floor", "ratio", "goal", "met"],
        &rows,
    )
}

/// Four significant figures.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size >= 10_000.0 => format!("{number:.0}"),
        size if size >= 1.0 => format!("{number:.2}"),
        size if size >= 0.001 => format!("{number:.5}"),
        _ => format!("{number:.3e}"),
    }
}

/// A lab of this very binary.
fn options(hosts: usize) -> Result<Options> {
    Ok(Options::new(std::env::current_exe().context("where is this program?")?, hosts))
}

/// Puts a process into the scheduler's idle class, as guests are.
#[expect(unsafe_code, reason = "rustix has no sched_setscheduler")]
fn idle_class(pid: u32) -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live, initialised structure.
    let result = unsafe {
        libc::sched_setscheduler(i32::try_from(pid)?, libc::SCHED_IDLE, &raw const parameters)
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot enter the idle class");
    }
    Ok(())
}

/// A progress bar on the terminal; nothing with `--json`.
struct Progress(ProgressBar);

impl Progress {
    fn new(args: &Args, what: &'static str, steps: u64) -> Self {
        let bar = if args.json { ProgressBar::hidden() } else { ProgressBar::new(steps) };
        let style = ProgressStyle::with_template("{prefix} {bar:40} {pos}/{len} {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(what);
        Self(bar)
    }

    fn step(&self) {
        self.0.inc(1);
    }

    fn sleep(&self, span: Duration) {
        for _ in 0..span.as_secs() {
            std::thread::sleep(Duration::from_secs(1));
            self.step();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
