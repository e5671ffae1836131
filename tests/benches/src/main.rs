//! `glean-bench`: what gleaner costs and how fast it is, measured on the
//! machine it runs on, with floors measured in the same run.

mod dispatch;
mod footprint;
mod latency;
mod load;
mod messages;
mod migrate;
mod owner_latency;
mod owner_return;
mod pool;
mod process;
mod programs;
mod quic;
mod record;
mod replay;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use gleaner_cli::output;
use gleaner_lab::{Lab, Options};
use gleaner_shell::clock::Clock;
use indicatif::{ProgressBar, ProgressStyle};

use record::Record;

/// Measures what gleaner costs and how fast it is, on this machine.
#[derive(Debug, Parser)]
#[command(name = "glean-bench", version, max_term_width = 100)]
#[command(after_help = "Example:\n  sudo glean-bench owner-return --json")]
struct Cli {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    args: Args,
}

/// Which figure.
#[derive(Clone, Copy, Debug, Subcommand)]
enum What {
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
    /// Simulated jobs a second under every policy, and the live cycle.
    Workload,
    /// A key typed to a guest at work on another workstation, by its size.
    Migrate,
    /// Round trips and bandwidth between two ranks.
    Messages,
    /// The thesis's four programs on a lab, alone and with owners.
    Programs,
    /// All of them, one after the other.
    All,
    /// A guest that holds memory and tells when it stood still; `migrate` moves it.
    #[command(hide = true)]
    Hold(migrate::guest::Args),
    /// Two ranks that send each other bytes; `messages` times them.
    #[command(hide = true)]
    Ping(messages::rank::Args),
}

/// What each figure may be told; most need nothing.
#[derive(Clone, Debug, clap::Args)]
struct Args {
    /// One record a line instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// How many times to measure (each bench has its own default).
    #[arg(long, global = true, value_name = "N")]
    times: Option<u32>,
    /// How long `footprint` watches, in seconds.
    #[arg(long, global = true, value_name = "S")]
    seconds: Option<u64>,
    /// How many agents `pool` simulates.
    #[arg(long, global = true, value_name = "N")]
    agents: Option<u32>,
    /// The logs that `load` loads [default: made up for it].
    #[arg(long, global = true, value_name = "DIR")]
    usage: Option<PathBuf>,
    /// The log in the Standard Workload Format that `workload` replays
    /// [default: as many made-up jobs as San Diego's].
    #[arg(long, global = true, value_name = "FILE")]
    swf: Option<PathBuf>,
    /// The only scheduling policy that `workload` measures [default: all].
    #[arg(long, global = true, value_name = "NAME")]
    only: Option<String>,
    /// The programs that `programs` runs [default: examples beside this one].
    #[arg(long, global = true, value_name = "DIR")]
    examples: Option<PathBuf>,
}

type Bench = fn(&Args) -> Result<Vec<Record>>;

const ALL: [Bench; 12] = [
    owner_return::run,
    owner_latency::run,
    footprint::run,
    dispatch::run,
    latency::run,
    pool::run,
    load::run,
    replay::run_all,
    workload::run,
    migrate::run,
    messages::run,
    programs::run,
];

fn main() -> ExitCode {
    let Cli { what, args } = Cli::parse();
    match run(what, &args) {
        Ok(()) => ExitCode::SUCCESS,
        #[expect(clippy::print_stderr, reason = "there is no other talk")]
        Err(error) => {
            eprintln!("glean-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(what: What, args: &Args) -> Result<()> {
    let one: Bench = match what {
        What::OwnerReturn => owner_return::run,
        What::OwnerLatency => owner_latency::run,
        What::Footprint => footprint::run,
        What::Dispatch => dispatch::run,
        What::Latency => latency::run,
        What::Pool => pool::run,
        What::Load => load::run,
        What::Replay => replay::run_all,
        What::Workload => workload::run,
        What::Migrate => migrate::run,
        What::Messages => messages::run,
        What::Programs => programs::run,
        What::All => return ALL.iter().try_for_each(|bench| print(args, &bench(args)?)),
        What::Hold(guest) => return migrate::guest::hold(&guest),
        What::Ping(rank) => return messages::rank::run(rank),
    };
    print(args, &one(args)?)
}

fn print(args: &Args, records: &[Record]) -> Result<()> {
    if args.json {
        return records.iter().try_for_each(output::record);
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
    output::table(
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

/// A lab of the `glean` that was built beside this program.
fn options(hosts: usize) -> Result<Options> {
    let glean = own_binary()?.with_file_name("glean");
    ensure!(glean.exists(), "{} is missing: `make bench` builds it", glean.display());
    Ok(Options::new(glean, hosts))
}

/// A lab whose hosts are idle, with one place each that is soon free again, and
/// no network of its own, unless that is changed.
fn idle_lab(hosts: usize, change: impl FnOnce(&mut Options)) -> Result<Lab> {
    let mut options = options(hosts)?;
    options.host.places = 1;
    options.host.quiet = Duration::from_millis(300);
    options.network = false;
    change(&mut options);
    let lab = Lab::start(options)?;
    lab.wait_for_idle(hosts)?;
    Ok(lab)
}

/// This program, which is a guest and a rank as well.
fn own_binary() -> Result<PathBuf> {
    std::env::current_exe().context("where is this program?")
}

/// So many rounds, or fewer where they take longer than that; one at least.
/// Whoever is slow measures less often instead of for ever.
fn rounds(times: u32, most: Duration) -> impl Iterator<Item = u32> {
    let start = Clock.now();
    (0..times).take_while(move |round| *round == 0 || Clock.now().since(start) < most)
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
