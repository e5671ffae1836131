//! `glean-soak`: a lab of real daemons under real faults, for minutes or hours.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command's answer and talk")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use gleaner_lab::guard::{Guarded, guard};
use gleaner_shell::clock::Clock;
use gleaner_soak::run::{Length, Plan, run};

/// Break a lab of real daemons again and again, and count what that costs.
///
/// Exit code 0: nothing was lost, doubled, wrong or stuck, every usage record was kept, no
/// daemon panicked, and nothing grew with the faults; 1: something was; 2: no lab could be had.
#[derive(Debug, Parser)]
#[command(name = "glean-soak")]
struct Options {
    /// How long there are faults.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// So many faults, however long that takes.
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    faults: Option<u64>,
    /// The same faults again; drawn anew and printed if left out.
    #[arg(long)]
    seed: Option<u64>,
    /// How many workstations.
    #[arg(long, value_name = "N", default_value_t = 8)]
    hosts: usize,
    /// Seconds after the last fault in which everything must end.
    #[arg(long, value_name = "S", default_value_t = 180)]
    calm: u64,
    /// Milliseconds after an owner's key from which on a guest that runs is counted.
    #[arg(long, value_name = "MS", default_value_t = 250)]
    late: u64,
    /// One record instead of the table.
    #[arg(long)]
    json: bool,
    /// Keep the logs, what was done when, and what the witness saw in this directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The binary to try; the one beside this by default.
    #[arg(long, value_name = "PATH")]
    glean: Option<PathBuf>,
}

fn main() -> ExitCode {
    match soak() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("glean-soak: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn soak() -> Result<u8> {
    let options = Options::parse();
    match guard()? {
        Guarded::Below => {}
        Guarded::Ended(code) => return Ok(u8::try_from(code)?),
        Guarded::Interrupted => return Ok(2),
    }
    let seed = options.seed.unwrap_or_else(|| Clock.wall().0.unsigned_abs() / 1_000 % 1_000_000);
    eprintln!("glean-soak: seed {seed}; repeat with --seed {seed}");
    let plan = plan(options, seed)?;
    let report = match run(&plan.1)? {
        Ok(report) => report,
        Err(missing) => {
            eprintln!("glean-soak: no lab can be had here: {missing}");
            return Ok(2);
        }
    };
    if plan.0 {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(u8::from(!report.is_good()))
}

/// Also whether it is to be told as a record.
fn plan(options: Options, seed: u64) -> Result<(bool, Plan)> {
    let faults = options.faults.map(Length::Faults);
    let length = faults.unwrap_or(Length::For(Duration::from_secs_f64(options.minutes * 60.0)));
    let plan = Plan {
        seed,
        hosts: options.hosts,
        length,
        calm: Duration::from_secs(options.calm),
        late: Duration::from_millis(options.late),
        glean: options.glean.map_or_else(|| beside("glean"), Ok)?,
        guest: beside("soak-guest")?,
        keep: options.keep,
    };
    Ok((options.json, plan))
}

/// A program that was built with this one.
fn beside(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    ensure!(path.exists(), "{} is missing: run `cargo build` first", path.display());
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}
