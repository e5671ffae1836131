//! `glean-simulate`: labs by the thousand, on all processors, until a time is
//! over, so many hours of labs have passed, or one fails.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "it is a command, and takes its own time"
)]

mod corpus;
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;
use gleaner_simulation::{Changes, Trouble, draw, run, run_twice, shrink};

use table::{Found, Table};

/// Runs whole labs on a virtual clock, with faults as seeds draw them.
#[derive(Clone, Debug, Parser)]
#[command(name = "glean-simulate", version)]
struct Args {
    /// So many labs with fresh seeds, or those of A..B.
    #[arg(long)]
    seeds: Option<String>,
    /// Simulated hours of labs to reach.
    #[arg(long)]
    hours: Option<f64>,
    /// Steps of labs to reach.
    #[arg(long)]
    steps: Option<u64>,
    /// Minutes to take, five if nothing else is asked for.
    #[arg(long)]
    minutes: Option<f64>,
    /// Labs side by side; as many as there are processors, if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// One lab alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints all that happens in it.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// The figures as JSON.
    #[arg(long)]
    json: bool,
    /// Labs that once failed, which run first.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Labs that may run to make a failure small.
    #[arg(long, default_value_t = 300)]
    shrink: u32,
    /// Goes on after failures, until so many.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    #[command(flatten)]
    lab: LabArgs,
}

/// What differs from what the seed draws.
#[derive(Clone, Debug, Default, clap::Args)]
struct LabArgs {
    #[arg(long)]
    rounds: Option<u32>,
    #[arg(long)]
    hosts: Option<u32>,
    /// Jobs that are submitted in each storm.
    #[arg(long)]
    submits: Option<u32>,
    /// Kinds of faults that there are not.
    #[arg(long, value_delimiter = ',', value_parser = trouble)]
    never: Vec<Trouble>,
    /// Single faults that are left out, by their numbers: 3,17..20.
    #[arg(long, default_value = "")]
    without: String,
}

impl LabArgs {
    fn changes(&self) -> Result<Changes, String> {
        let without = numbers(&self.without)?;
        let never = self.never.iter().copied().collect();
        Ok(Changes {
            rounds: self.rounds,
            hosts: self.hosts,
            submits: self.submits,
            never,
            without,
        })
    }
}

fn trouble(name: &str) -> Result<Trouble, String> {
    let known = Trouble::ALL.into_iter().find(|trouble| trouble.name() == name);
    known.ok_or_else(|| {
        let names: Vec<_> = Trouble::ALL.iter().map(|it| it.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn numbers(text: &str) -> Result<BTreeSet<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
    let parts = text.split(',').filter(|part| !part.is_empty());
    let ranges = parts.map(|part| match part.split_once("..") {
        Some((first, last)) => Ok(number(first)?..=number(last)?),
        None => Ok(number(part)?..=number(part)?),
    });
    Ok(ranges.collect::<Result<Vec<_>, String>>()?.into_iter().flatten().collect())
}

/// Which seeds, in which order.
#[derive(Debug)]
struct Seeds {
    next: AtomicU64,
    end: u64,
}

impl Seeds {
    fn new(asked: Option<&str>) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        let fresh = RandomState::new().hash_one(0) % 1_000_000_000 * 1_000_000;
        let (first, end) = match asked.map(|text| (text, text.split_once(".."))) {
            None => (fresh, u64::MAX),
            Some((_, Some((first, end)))) => (number(first)?, number(end)?),
            Some((count, None)) => (fresh, fresh + number(count)?),
        };
        Ok(Self { next: AtomicU64::new(first), end })
    }

    fn take(&self) -> Option<u64> {
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        (seed < self.end).then_some(seed)
    }
}

/// All labs of one run.
struct Campaign {
    args: Args,
    changes: Changes,
    seeds: Seeds,
    /// Labs that once failed and have not run yet.
    corpus: Mutex<VecDeque<(u64, Changes)>>,
    until: Option<Instant>,
    stop: Arc<AtomicBool>,
    table: Mutex<Table>,
    /// The labs that run, each since when.
    running: Mutex<BTreeMap<u64, Instant>>,
}

/// A lab that takes longer has no end: they take seconds.
const LAB_MAX: Duration = Duration::from_secs(300);

/// So does one that makes the process so large.
const MEMORY_MAX: u64 = 10 << 30;

/// So many of the labs run twice, to see that they are equal.
const TWICE_EVERY: u64 = 8;

impl Campaign {
    fn new(args: Args) -> Result<Self, String> {
        let amount = args.hours.is_some() || args.steps.is_some();
        let asks = amount || args.minutes.is_some() || args.seeds.is_some();
        let minutes = args.minutes.or((!asks).then_some(5.0));
        let corpus = args.corpus.as_deref().map(corpus::read).transpose()?;
        Ok(Self {
            changes: args.lab.changes()?,
            corpus: Mutex::new(corpus.unwrap_or_default().into()),
            running: Mutex::new(BTreeMap::new()),
            seeds: Seeds::new(args.seeds.as_deref())?,
            until: minutes.map(|it| Instant::now() + Duration::from_secs_f64(it * 60.0)),
            stop: Arc::new(AtomicBool::new(false)),
            table: Mutex::new(Table::new()),
            args,
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        locked(&self.table)
    }

    fn is_over(&self) -> bool {
        let table = self.table();
        self.stop.load(Ordering::Relaxed)
            || self.until.is_some_and(|until| Instant::now() >= until)
            || self.args.hours.is_some_and(|hours| table.hours() >= hours)
            || self.args.steps.is_some_and(|steps| table.steps >= steps)
            || table.found.len() >= self.args.failures
    }

    fn work(&self) {
        while !self.is_over() {
            let Some((seed, changes)) = self.next_lab() else { return };
            self.try_one(seed, &changes);
        }
    }

    fn next_lab(&self) -> Option<(u64, Changes)> {
        let known = locked(&self.corpus).pop_front();
        known.or_else(|| Some((self.seeds.take()?, self.changes.clone())))
    }

    fn try_one(&self, seed: u64, changes: &Changes) {
        let setting = draw(seed, changes);
        let (twice, began) = (seed.is_multiple_of(TWICE_EVERY), Instant::now());
        locked(&self.running).insert(seed, began);
        let trial = if twice { run_twice(seed, &setting) } else { run(seed, setting) };
        locked(&self.running).remove(&seed);
        self.table().add(seed, &trial, twice, began.elapsed());
        if let Err(failure) = trial.outcome {
            eprintln!("seed {seed} fails, and is made small: {}", table::short(&failure.message));
            let (changes, failure) = shrink(seed, changes, &failure, self.args.shrink);
            self.table().found.push(Found { seed, changes, failure });
        }
    }

    /// Until all labs have run; whether all of them have an end.
    fn watch(&self, workers: &[ScopedJoinHandle<'_, ()>]) -> Result<(), String> {
        let mut told = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(200));
            self.check_ends()?;
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!("{}", self.table().progress());
            }
        }
        Ok(())
    }

    /// A step that does not return cannot be ended but with the process.
    fn check_ends(&self) -> Result<(), String> {
        let running = locked(&self.running);
        let endless = running.iter().find(|(_, since)| since.elapsed() > LAB_MAX);
        if let Some((seed, _)) = endless {
            return Err(format!("--seed {seed} has not ended after {LAB_MAX:?}"));
        }
        let memory = own_memory().unwrap_or(0);
        if memory > MEMORY_MAX {
            let seeds: Vec<_> = running.keys().map(u64::to_string).collect();
            let gib = memory >> 30;
            return Err(format!("labs have taken {gib} GiB, one of --seed {}", seeds.join(", ")));
        }
        Ok(())
    }

    fn run(&self) -> Result<ExitCode, String> {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The second one ends it at once.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&self.stop))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&self.stop)))
                .map_err(|error| format!("signals cannot be heard: {error}"))?;
        }
        eprintln!("seeds from {}", self.seeds.next.load(Ordering::Relaxed));
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let count = self.args.jobs.unwrap_or(all);
            let workers: Vec<_> = (0..count).map(|_| scope.spawn(|| self.work())).collect();
            if let Err(error) = self.watch(&workers) {
                eprintln!("{}", self.table().progress());
                eprintln!("glean-simulate: {error}");
                std::process::exit(1);
            }
        });
        let table = self.table();
        if self.args.json {
            println!("{}", table.json());
        } else {
            print!("{table}");
        }
        let short = self.args.hours.filter(|hours| table.hours() < *hours);
        if let Some(hours) = short.filter(|_| table.found.is_empty()) {
            eprintln!("{:.0} of {hours:.0} hours: there was no time for more", table.hours());
        }
        Ok(if table.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much memory the process has, in bytes.
fn own_memory() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// One lab, with all that there is to say about it.
fn one(seed: u64, args: &Args) -> Result<ExitCode, String> {
    let changes = args.lab.changes()?;
    let mut setting = draw(seed, &changes);
    setting.trace = args.trace;
    println!("{setting:#?}");
    match run(seed, setting).outcome {
        Ok(outline) => {
            println!("{outline:#?}");
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            println!("seed {seed} fails after {} steps at {}", failure.steps, failure.at);
            println!("{}", failure.message);
            Ok(ExitCode::FAILURE)
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.seed {
        Some(seed) => one(seed, &args),
        None => Campaign::new(args).and_then(|campaign| campaign.run()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("glean-simulate: {error}");
        ExitCode::from(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_without_end_is_told_by_its_seed() {
        let campaign = Campaign::new(Args::parse_from(["glean-simulate"])).unwrap();
        let now = Instant::now();
        locked(&campaign.running).insert(6, now);
        assert_eq!(campaign.check_ends(), Ok(()));
        let long_ago = now.checked_sub(LAB_MAX * 2).unwrap();
        locked(&campaign.running).insert(7, long_ago);
        assert_eq!(campaign.check_ends(), Err("--seed 7 has not ended after 300s".to_owned()));
    }

    #[test]
    fn the_corpus_runs_before_fresh_labs() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus.txt");
        let known = corpus::read(corpus.as_ref()).unwrap();
        let args = ["glean-simulate", "--seeds", "7..8", "--corpus", corpus];
        let campaign = Campaign::new(Args::parse_from(args)).unwrap();
        let all: Vec<_> =
            std::iter::from_fn(|| campaign.next_lab()).map(|(seed, _)| seed).collect();
        let expected = known.iter().map(|(seed, _)| *seed).chain([7]);
        assert_eq!(all, expected.collect::<Vec<_>>());
    }
}
