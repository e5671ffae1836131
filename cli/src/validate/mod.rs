//! `glean validate`: does replay tell the truth?
//!
//! A lab of this machine runs a program for real, with owners who come and
//! go. What it left (the ranks' own records, the collector's log, what its
//! moves took) is replayed, and the two ends are compared.
//!
//! ```text
//! program.trace ─► live run ─┬─► what ranks recorded ──┐
//!                            ├─► usage log ────────────┼─► replay ─► predicted times ─┐
//!                            ├─► frozen time per move ─┘                              ├─► distance
//!                            └─► times of its subprograms ────────────────────────────┘
//! ```
//!
//! Source: Ghafoor 2007, §5.1. Jobs that arrive are [`workload`]'s.

mod distance;
mod live;
mod predict;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_common::job::OnBusy;
use gleaner_common::trace::{Op, Trace};
use gleaner_common::units::parse_duration;
use gleaner_coordinator_core::Policy;
use gleaner_replay::campaign::inputs::read_trace;
use gleaner_replay::{Costs, Model, Placement};
use serde::Serialize;

use self::distance::{Distances, Spread, Visits};
use self::live::Lived;
use crate::output::{self, Form, Listing};
use crate::values;

/// The goal: the mean distance of end times stays under it.
const GOAL: f64 = 0.05;

/// How often the built-in program computes and writes.
const ROUNDS: u32 = 40;

/// Replay gives up on a program that takes so many times as long as it took.
const SPAN_FACTOR: u32 = 10;

/// Arguments of `glean validate`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    pub part: Option<Part>,
    /// The program's trace [default: two halves that compute in turn and write to each other].
    #[arg(value_name = "PROGRAM.trace")]
    pub trace: Option<PathBuf>,
    /// How many ranks, without a trace [default: twice the cores but one: half of them compute at a time].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), conflicts_with = "trace")]
    pub ranks: Option<u32>,
    /// How many workstations [default: two more than ranks].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workstations: Option<u32>,
    /// How long its critical path computes.
    #[arg(long, value_name = "SPAN", default_value = "20s", value_parser = parse_duration)]
    pub length: Duration,
    /// How many runs.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub runs: u32,
    /// What a rank does when its workstation's owner returns.
    #[arg(long, value_name = "REACTION", default_value = "migrate", value_parser = values::on_busy)]
    pub on_busy: OnBusy,
    /// The seed of the owners' comings and goings.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One record a run, and one for all of them.
    #[arg(long)]
    pub json: bool,
}

/// What is not one program.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Part {
    /// Compare what replay says of jobs that arrive with a real run of them, on a lab.
    #[command(after_help = "Example:
  glean validate workload data/campaigns/workloads/ghafoor-5.6.toml --faster 50

Beside each distance stands the one that Ghafoor 2007, Tables 5.5 and 5.6, prints for the same share
of malleable jobs. Guests come after everybody else: on a busy machine it is that which is measured.
Exit code: 0 none of ours is above his, 1 some are.")]
    Workload(workload::Args),
}

/// One run, as it was and as replay has it.
#[derive(Clone, Debug, Serialize)]
struct Row {
    run: u32,
    ranks: usize,
    workstations: usize,
    returns: u32,
    moves: u64,
    moves_predicted: u32,
    /// What one move took in this run.
    cost_s: f64,
    /// Of a core, what a rank got while it computed; replay is told each's.
    share: f64,
    end_s: f64,
    end_predicted_s: f64,
    /// For each rank, the workstations it was sent to, and when.
    visits: Vec<Visits>,
    visits_predicted: Vec<Visits>,
    distances: Distances,
}

/// All runs.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    runs: usize,
    /// The mean distance of end times, over the runs.
    ends: Spread,
    whole: Spread,
    turnaround: Spread,
    goal: f64,
    met: bool,
}

/// Runs, replays and compares; `Ok(false)` if the goal is missed.
///
/// # Errors
/// The lab does not start, a run fails, or replay cannot end.
pub fn run(args: &Args) -> Result<bool> {
    if let Some(Part::Workload(args)) = &args.part {
        return workload::run(args);
    }
    let trace = program(args)?;
    let ranks = u32::try_from(trace.ranks.len())?;
    let workstations = args.workstations.unwrap_or(ranks + 2);
    if workstations < ranks {
        bail!("{ranks} ranks: expected as many workstations or more, not {workstations}");
    }
    let mut rows = vec![];
    for run in 1..=args.runs {
        let setting = live::Setting {
            trace: &trace,
            workstations: workstations as usize,
            on_busy: args.on_busy,
            seed: args.seed.wrapping_mul(10_000).wrapping_add(u64::from(run)),
        };
        let lived = live::run(&setting).with_context(|| format!("run {run}"))?;
        let row = compare(args, run, &lived).with_context(|| format!("run {run}"))?;
        output::told(args.json, &row, || {
            let (runs, end_s, predicted_s) = (args.runs, row.end_s, row.end_predicted_s);
            format!(
                "run {run} of {runs}: ended after {end_s:.2} s, in replay after {predicted_s:.2} s"
            )
        })?;
        rows.push(row);
    }
    let summary = summarise(&rows);
    if args.json {
        output::record(&summary)?;
    } else {
        print(&rows, &summary)?;
    }
    Ok(summary.met)
}

fn program(args: &Args) -> Result<Trace> {
    let trace = if let Some(path) = &args.trace {
        read_trace(path)?
    } else {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // One core is left to the daemons, the owners and the moves.
        let at_once = u32::try_from(cores).unwrap_or(1).saturating_sub(1).clamp(1, 32);
        in_turn(args.ranks.unwrap_or(2 * at_once))
    };
    Ok(trace.scaled_to(args.length)?)
}

/// Two halves that compute in turn, unequally long: each of one writes to its
/// partner in the other, which waits for it, and that one to the next of the
/// first. A rank too many computes by itself. All hosts of a lab share this
/// machine's cores, as no real ones do: so half of the ranks wait at any time.
fn in_turn(ranks: u32) -> Trace {
    let half = ranks / 2;
    let compute = |rank: u32, round: u32| {
        let unequal = u64::from((rank * 7 + round * 3) % 5);
        Op::Compute { nanos: 100_000_000 + 20_000_000 * unequal }
    };
    let rank = |rank: u32| {
        let mut ops = vec![];
        for round in 0..ROUNDS {
            let (there, back) = (2 * round, 2 * round + 1);
            let send = |to, tag| Op::Send { to, bytes: 1_000, tag };
            if rank < half {
                if let Some(before) = back.checked_sub(2) {
                    ops.push(Op::Receive { from: half + (rank + half - 1) % half, tag: before });
                }
                ops.extend([compute(rank, round), send(half + rank, there)]);
            } else if rank < 2 * half {
                ops.push(Op::Receive { from: rank - half, tag: there });
                ops.push(compute(rank, round));
                if round + 1 < ROUNDS {
                    ops.push(send((rank - half + 1) % half, back));
                }
            } else {
                ops.push(compute(rank, round));
            }
        }
        ops
    };
    Trace { name: "in turn".into(), ranks: (0..ranks).map(rank).collect() }
}

fn compare(args: &Args, run: u32, lived: &Lived) -> Result<Row> {
    let cost = lived.cost();
    let model = Model {
        placement: Placement::Core(Policy::LastIdleFirst),
        on_busy: args.on_busy,
        ..Model::phalen1994(Duration::ZERO)
    };
    let model = Model { costs: Costs { migrate: cost, rollback: cost, retreat: cost }, ..model };
    let took = lived.times.iter().map(|times| times.end).max().unwrap_or_default();
    let span = took * SPAN_FACTOR;
    let predicted = predict::predict(&lived.trace, &lived.timelines, lived.start, span, &model)?;
    let end = predicted.times.iter().map(|times| times.end).max().unwrap_or_default();
    Ok(Row {
        run,
        ranks: lived.times.len(),
        workstations: lived.timelines.len(),
        returns: lived.returns,
        moves: lived.moves,
        moves_predicted: predicted.moves,
        cost_s: cost.as_secs_f64(),
        share: lived.share,
        end_s: took.as_secs_f64(),
        end_predicted_s: end.as_secs_f64(),
        visits: lived.visits.clone(),
        visits_predicted: predicted.visits,
        distances: Distances::between(&lived.times, &predicted.times),
    })
}

fn summarise(rows: &[Row]) -> Summary {
    let spread = |of: fn(&Row) -> f64| Spread::of(&rows.iter().map(of).collect::<Vec<_>>());
    let ends = spread(|row| row.distances.ends.mean);
    Summary {
        runs: rows.len(),
        ends,
        whole: spread(|row| row.distances.whole),
        turnaround: spread(|row| row.distances.turnaround),
        goal: GOAL,
        met: ends.mean < GOAL,
    }
}

fn print(rows: &[Row], summary: &Summary) -> Result<()> {
    let listing = Listing::of(rows)
        .column("run", 9, |row| row.run.to_string())
        .column("returns", 9, |row| row.returns.to_string())
        .column("moves", 9, |row| row.moves.to_string())
        .column("in replay", 9, |row| row.moves_predicted.to_string())
        .column("a move s", 9, |row| format!("{:.3}", row.cost_s))
        .column("of a core", 9, |row| format!("{:.3}", row.share))
        .column("ended s", 9, |row| format!("{:.2}", row.end_s))
        .column("in replay s", 9, |row| format!("{:.2}", row.end_predicted_s))
        .column("distance", 9, |row| format!("{:.4}", row.distances.ends.mean))
        .wrapped("as a whole", (9, 16), |row| format!("{:.4}", row.distances.whole))
        .listing();
    Form::default().show(&listing)?;
    let Spread { mean, deviation, max } = summary.ends;
    let met = if summary.met { "met" } else { "MISSED" };
    output::block(&format!(
        "\nnormalised distance of end times: mean {mean:.4}, deviation {deviation:.4}, largest \
         {max:.4}; as a whole {:.4}; turn-around {:.4}; goal under {GOAL}: {met}",
        summary.whole.mean, summary.turnaround.mean
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_program_can_be_replayed_and_takes_as_long_as_asked() {
        for ranks in [1, 2, 5] {
            let trace = in_turn(ranks).scaled_to(Duration::from_secs(20)).unwrap();
            let path = trace.critical_path().unwrap();
            assert!(path.abs_diff(Duration::from_secs(20)) < Duration::from_millis(1), "{path:?}");
        }
    }
}
