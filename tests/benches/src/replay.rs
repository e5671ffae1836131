//! How fast replay is: executions a second, memory, and how its cost grows.
//! The floor is an event loop that does nothing but take as many events out
//! of a binary heap, and put as many in, as an execution has operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_common::trace::{self, Op, Trace, ring::ring17};
use gleaner_replay::{
    Bag, BagModel, Execution, Lab, Model, Network, Owner, Program, Scratch, run, run_bag,
};
use gleaner_shell::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::process::peak_bytes;
use crate::record::{Record, median};
use crate::{Args, Progress};

/// Mean idle and busy times of the made-up owners.
const IDLE_S: f64 = 1_800.0;
const BUSY_S: f64 = 600.0;
const COST: Duration = Duration::from_secs(10);
/// Different labs, so that no branch is learned by heart.
const LABS: u64 = 32;
/// The critical path with which `ring17` takes 1,050 s on average where owners
/// come and go, as the one that simulators were measured with (`RIVALS.md`).
const LONG: Duration = Duration::from_secs(970);
/// The goal: so many times as fast as the bare loop.
const FLOORS: f64 = 2.0;
/// How long one round of a rate takes.
const ROUND: Duration = Duration::from_millis(500);

/// The thesis's four programs as recorded, and their length (Phalen 1994,
/// Table 8).
const FOUR: [(&str, &[u8], u64); 4] = [
    ("fft", include_bytes!("../../../data/traces/fft.trace"), 304_032),
    ("test", include_bytes!("../../../data/traces/test.trace"), 148_000),
    ("msh", include_bytes!("../../../data/traces/msh.trace"), 195_663),
    ("det", include_bytes!("../../../data/traces/det.trace"), 375_507),
];

pub(super) fn run_all(args: &Args) -> Result<Vec<Record>> {
    let rounds = args.times.unwrap_or(5).max(1);
    let progress = Progress::new(args, "replay", 36);
    let four = four_programs()?;
    let mut records = campaign(&four)?;
    progress.step();
    let ring = compile(&ring17(), "ring17")?;
    let labs = labs(30, 4 * 3_600);
    let bench = Bench { model: Model::phalen1994(COST), rounds, progress: &progress };
    let long = compile(&ring17().scaled_to(LONG)?, "ring17")?;
    for cores in cores() {
        for (name, ring) in [("ring17", &ring), ("ring17 of 1,050 s", &long)] {
            records.push(bench.rate(name, ring, &labs, cores).at_least("ratio", FLOORS));
        }
    }
    for workstations in [30, 50, 100] {
        let labs = self::labs(workstations, 4 * 3_600);
        for cores in cores() {
            for program in &four {
                records.push(bench.rate(program.name(), program, &labs, cores));
            }
        }
    }
    records.extend(bench.more_workstations(&ring));
    records.extend(bench.more_subtasks()?);
    records.push(bench.large_bag()?);
    records.push(Record::value("replay", "peak memory of all of it", "byte", peak_bytes() as f64));
    Ok(records)
}

/// One, and all.
fn cores() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, NonZero::get);
    if all == 1 { vec![1] } else { vec![1, all] }
}

fn four_programs() -> Result<Vec<Program>> {
    let program = |(name, text, length_ms): (&str, &[u8], u64)| {
        let read = trace::read(text).with_context(|| format!("the trace of {name}"))?;
        compile(&read.trace.scaled_to(Duration::from_millis(length_ms))?, name)
    };
    FOUR.into_iter().map(program).collect()
}

fn compile(trace: &Trace, name: &str) -> Result<Program> {
    Program::compile(trace, Network::default()).with_context(|| format!("the program {name}"))
}

fn labs(workstations: u32, span_s: u64) -> Vec<Lab> {
    (0..LABS).map(|seed| lab(workstations, span_s, seed)).collect()
}

/// Owners who come and go with exponentially distributed times.
fn lab(workstations: u32, span_s: u64, seed: u64) -> Lab {
    let mut rng = StdRng::seed_from_u64(seed);
    let span = Duration::from_secs(span_s);
    let mut lasts = |idle: bool| {
        let mean = if idle { IDLE_S } else { BUSY_S };
        // At least a nanosecond, so that changes come one after the other.
        Duration::from_secs_f64(-mean * rng.random_range(f64::MIN_POSITIVE..1.0_f64).ln())
            + Duration::from_nanos(1)
    };
    let owner = |number: u32| {
        let begins_idle = number % 4 != 3;
        let (mut idle, mut at, mut changes) = (begins_idle, Duration::ZERO, vec![]);
        let since = lasts(idle);
        while at < span {
            at += lasts(idle);
            idle = !idle;
            changes.push(at);
        }
        Owner { idle: begins_idle, since, changes }
    };
    Lab::of_owners(&(0..workstations).map(owner).collect::<Vec<_>>(), span)
}

struct Bench<'a> {
    model: Model,
    rounds: u32,
    progress: &'a Progress,
}

/// What an execution is like, beside its operations.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    execution_s: f64,
    /// Transitions and timers.
    events: f64,
}

impl Mean {
    fn of(program: &Program, labs: &[Lab], model: &Model) -> Self {
        let mut scratch = Scratch::default();
        let mut sum = Self::default();
        for lab in labs {
            let execution = run(program, lab, model, &mut scratch);
            sum.execution_s += execution.execution.as_secs_f64();
            sum.events += execution.events as f64;
        }
        let count = labs.len() as f64;
        Self { execution_s: sum.execution_s / count, events: sum.events / count }
    }
}

impl Bench<'_> {
    /// Executions a second on some cores.
    fn rate(&self, name: &str, program: &Program, labs: &[Lab], cores: usize) -> Record {
        let (events, model) = (program.operations(), &self.model);
        let (mut rates, mut floors) = (vec![], vec![]);
        for _ in 0..self.rounds {
            rates.push(per_second(cores, || {
                let mut scratch = Scratch::default();
                move || {
                    for lab in labs {
                        black_box(run(program, lab, model, &mut scratch));
                    }
                    labs.len()
                }
            }));
            floors.push(per_second(cores, || {
                move || {
                    bare_loop(u64::from(program.ranks()), events);
                    1
                }
            }));
        }
        self.progress.step();
        let workstations = labs.first().map_or(0, Lab::workstations);
        let on = if cores == 1 { "one core".to_owned() } else { format!("all {cores} cores") };
        let case = format!("{name} on {workstations} workstations, {on}");
        let (rate, mean) = (median(&rates), Mean::of(program, labs, model));
        Record::value("replay", &case, "executions/s", rate)
            .over(median(&floors))
            .with("operations", events)
            .with("operations_per_s", rate * events as f64)
            .with("events_per_s", rate * (events as f64 + mean.events))
            .with("mean_execution_s", mean.execution_s)
    }

    /// The same program where there are more and more workstations.
    fn more_workstations(&self, ring: &Program) -> Vec<Record> {
        let sizes = [100, 1_000, 10_000];
        let record = |size| {
            let labs = &labs(size, 1_000)[..4];
            let mut record = self.rate("ring17", ring, labs, 1);
            let each_s = record.value.map_or(f64::NAN, f64::recip);
            (record.floor, record.ratio) = (None, None);
            record.with("s_per_execution", each_s)
        };
        sizes.into_iter().map(record).collect()
    }

    /// Programs of more and more subtasks.
    fn more_subtasks(&self) -> Result<Vec<Record>> {
        let labs = &labs(30, 4 * 3_600)[..4];
        let mut records = vec![];
        for segments in [625, 6_250, 62_500] {
            let program = compile(&ring_of(segments), "a ring")?;
            let mut record = self.rate(&format!("{} subtasks", segments * 16), &program, labs, 1);
            let each_ns = record.value.map_or(f64::NAN, f64::recip) / program.operations() as f64;
            (record.floor, record.ratio) = (None, None);
            records.push(record.with("s_per_operation", each_ns));
        }
        Ok(records)
    }

    /// A million subtasks on ten thousand workstations.
    fn large_bag(&self) -> Result<Record> {
        let (total, size) = (Duration::from_secs(100_000_000), Duration::from_secs(100));
        let bag = Bag::divided("bag", total, size)?;
        let lab = lab(10_000, 24 * 3_600, 1);
        let model = BagModel::of_table1(2, 5_000, COST).context("model 2 is in the table")?;
        let mut scratch = Scratch::default();
        let (clock, mut spans, mut events) = (Clock::new(), vec![], 0);
        for _ in 0..self.rounds.min(3) {
            let start = clock.now();
            let execution = run_bag(&bag, &lab, &model, &mut scratch).shared;
            spans.push(clock.now().since(start));
            events = execution.events;
            if !execution.finished {
                bail!("the bag was not emptied: {execution:?}");
            }
        }
        self.progress.step();
        let case = "bag of 1,000,000 subtasks on 10,000 workstations";
        let record = Record::spans("replay", case, &spans);
        let rate = events as f64 / record.p50.unwrap_or(f64::NAN);
        Ok(record.with("events", events).with("events_per_s", rate))
    }
}

/// Runs on some cores for a while, and says how often a second something was
/// done. Each core makes its own doer, which says how often it did it.
fn per_second<D: FnMut() -> usize>(cores: usize, make: impl Fn() -> D + Sync) -> f64 {
    let of_one = || {
        let mut doer = make();
        doer();
        let start = Clock.now();
        let mut done = 0;
        while Clock.now().since(start) < ROUND {
            done += doer();
        }
        done as f64 / Clock.now().since(start).as_secs_f64()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(of_one)).collect();
        let mine = of_one();
        others.into_iter().filter_map(|other| other.join().ok()).sum::<f64>() + mine
    })
}

/// As many events as an execution has operations, each of one of so many.
fn bare_loop(ranks: u64, events: u64) {
    let mut heap: BinaryHeap<Reverse<(u64, u64)>> =
        (0..ranks).map(|rank| Reverse((rank, rank))).collect();
    for _ in 0..events {
        let Some(Reverse((at, rank))) = heap.pop() else { return };
        // Any spread will do, as long as the heap is not in order by itself.
        heap.push(Reverse((at + 500 + (at * 7 + rank * 13) % 251, rank)));
    }
    black_box(heap.peek());
}

/// Sixteen ranks in a ring that turns for six minutes and a half.
fn ring_of(segments: u64) -> Trace {
    const RING: u32 = 16;
    let nanos = 400_000_000_000 / segments;
    let segment = |rank: u32, segment: u64| {
        let late = (u64::from(rank) * 7 + segment * 13) % 26;
        [
            Op::Compute { nanos: nanos * (87 + late) / 100 },
            Op::Send { to: (rank + 1) % RING, bytes: 0, tag: 0 },
            Op::Receive { from: (rank + RING - 1) % RING, tag: 0 },
        ]
    };
    let rank = |rank| (0..segments).flat_map(|nth| segment(rank, nth)).collect();
    Trace { name: "ring".to_owned(), ranks: (0..RING).map(rank).collect() }
}

/// A part of the thesis's campaign (Phalen 1994, Table 7): labs of one size.
#[derive(Clone, Copy)]
struct Share {
    workstations: u32,
    periods: u64,
}

/// 400,000 executions in her proportions, of all four programs, each period
/// at 100 costs; and one at no cost for each, to compare with.
const SHARES: [Share; 3] = [
    Share { workstations: 30, periods: 286 },
    Share { workstations: 50, periods: 381 },
    Share { workstations: 100, periods: 333 },
];

fn campaign(programs: &[Program]) -> Result<Vec<Record>> {
    let mut records = vec![];
    let mut sums = vec![];
    for cores in cores() {
        let start = Clock.now();
        let (executions, sum) = run_campaign(programs, cores);
        let took = Clock.now().since(start).as_secs_f64();
        sums.push(sum);
        let on = if cores == 1 { "one core".to_owned() } else { format!("all {cores} cores") };
        let case = format!("campaign of 400,000 executions, {on}");
        records.push(
            Record::value("replay", &case, "s", took)
                .with("executions", executions)
                .with("executions_per_s", executions as f64 / took)
                .with("peak_bytes", peak_bytes())
                .at_most("value", 60.0),
        );
    }
    if sums.windows(2).any(|pair| pair[0] != pair[1]) {
        bail!("the campaign's results depend on the number of threads: {sums:?}");
    }
    records.push(
        Record::value("replay", "peak memory of the campaign", "byte", peak_bytes() as f64)
            .at_most("value", 300.0 * 1024.0 * 1024.0),
    );
    Ok(records)
}

/// How many executions there were, and a sum over all of their results that
/// does not depend on their order.
fn run_campaign(programs: &[Program], cores: usize) -> (u64, u64) {
    let periods: Vec<(u32, u64)> = SHARES
        .iter()
        .flat_map(|share| (0..share.periods).map(|period| (share.workstations, period)))
        .collect();
    let next = AtomicUsize::new(0);
    let of_one = || {
        let (mut scratch, mut executions, mut sum) = (Scratch::default(), 0, 0_u64);
        while let Some((workstations, period)) = periods.get(next.fetch_add(1, Ordering::Relaxed)) {
            let lab = lab(*workstations, 3_600, *period);
            for program in programs {
                for cost_s in 0..=100 {
                    let model = Model::phalen1994(Duration::from_secs(cost_s));
                    let execution = run(program, &lab, &model, &mut scratch);
                    executions += 1;
                    sum = sum.wrapping_add(digest(&execution));
                }
            }
        }
        (executions, sum)
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(of_one)).collect();
        let mine = of_one();
        let all = others.into_iter().filter_map(|other| other.join().ok()).chain([mine]);
        all.fold((0, 0_u64), |(count, sum), one| (count + one.0, sum.wrapping_add(one.1)))
    })
}

/// A number that changes with any of an execution's main results.
fn digest(execution: &Execution) -> u64 {
    let spans = [execution.execution, execution.path.moving, execution.idle_time];
    let counts = [execution.busy_transitions, execution.on_critical_path, execution.nodes_used];
    let numbers = spans.iter().map(Duration::as_nanos).chain(counts.map(u128::from));
    #[expect(clippy::cast_possible_truncation, reason = "any bits do")]
    numbers.fold(0, |sum: u64, number| {
        sum.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ number as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_ring_takes_as_long_as_the_one_that_simulators_were_measured_with() {
        let long = compile(&ring17().scaled_to(LONG).unwrap(), "ring17").unwrap();
        let model = Model::phalen1994(COST);
        let mean = Mean::of(&long, &labs(30, 4 * 3_600), &model);
        assert!((mean.execution_s - 1_050.0).abs() < 20.0, "{mean:?}");
    }
}
