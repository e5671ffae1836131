//! `glean validate workload`: do jobs that arrive fare in replay as they do on
//! a lab?
//!
//! ```text
//!                    ┌─► bags that sleep ─► a lab of this machine ─┬─► starts, ends, use ─┐
//! campaign ─► jobs ──┤                                             └─► what a start costs │
//!                    └─► replay ◄────────────────────────────────────────────┘           ├─► distances
//!                          └─────► starts, ends, use ────────────────────────────────────┘
//! ```
//!
//! The scheduler and the policy are the same code on both sides; what is tried
//! is all around it. Of the lab's run, replay is told two means: what a
//! subprogram takes longer than it sleeps, where a job begins all of its own at
//! once and where one follows another. Ghafoor tells his simulator the mean
//! costs of one of his runs likewise (2007, §5.3.2).
//!
//! The origin of time is the workload's own, which its first arrival is drawn
//! from: he divides by start times and does not name his.
//!
//! Source: Ghafoor 2007, chapter 5.

mod bags;
mod live;
mod printed;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gleaner_common::time::Moment;
use gleaner_common::units::parse_duration;
use gleaner_replay::campaign::inputs::Overrides;
use gleaner_replay::workload::campaign::{Experiment, prepare};
use gleaner_replay::workload::{Outcome, Rules, Site, WorkloadJob, run_on};
use serde::Serialize;

use self::bags::Bag;
use self::live::{Lived, StartCosts};
use self::printed::Printed;
use super::distance::{Spread, normalised};
use crate::output::{self, Form, Listing};

/// Arguments of `glean validate workload`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A campaign of workloads on a steady site; of its repetitions, the first.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// On the lab all times are so many times shorter.
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub faster: u32,
    /// How long a part of a job sleeps that can change its size: it gives places as parts end.
    #[arg(long, value_name = "SPAN", default_value = "800ms", value_parser = parse_duration)]
    pub part: Duration,
    /// Only so many jobs of each workload.
    #[arg(long, value_name = "N", value_parser = crate::values::number)]
    pub first: Option<u32>,
    /// One record for each workload and policy, with each job's times, and one for all.
    #[arg(long)]
    pub json: bool,
}

/// A job's times on one side, in seconds of the workload from its origin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Times {
    started_s: f64,
    ended_s: f64,
}

/// A whole run on one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Run {
    utilisation: f64,
    turnaround_s: f64,
    span_s: f64,
    jobs: Vec<Times>,
}

/// One workload under one policy, on both sides.
#[derive(Clone, Debug, Serialize)]
struct Row {
    workload: String,
    policy: &'static str,
    malleable: u32,
    range: String,
    processors: u32,
    /// What a subprogram took on the lab beside its sleep, by the lab's clock.
    start_costs: StartCosts,
    lab: Run,
    replay: Run,
    /// `d(T_s)` and `d(T_c)` of the jobs.
    starts: Spread,
    ends: Spread,
    utilisation: f64,
    turnaround: f64,
    printed: Option<Printed>,
    /// Printed ones that ours are above.
    above: Vec<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
struct Summary {
    runs: usize,
    faster: u32,
    origin: &'static str,
    met: bool,
}

const ORIGIN: &str = "the workload's own zero, one time between arrivals before the first of them";

/// Runs each workload on a lab and in replay; `Ok(false)` if a distance is
/// above his.
///
/// # Errors
/// A campaign that no lab can run, a lab that does not start, or a job that
/// fails there.
pub(super) fn run(args: &Args) -> Result<bool> {
    let inputs = prepare(&args.file, &Overrides::default())?;
    output::notes(&inputs.notes);
    let mut rows = vec![];
    for mut experiment in inputs.experiments() {
        experiment.jobs.truncate(args.first.map_or(usize::MAX, |first| first as usize));
        let of = format!("{} % malleable, {}", experiment.malleable, experiment.policy.name);
        let row = row(args, &experiment).with_context(|| of.clone())?;
        output::told(args.json, &row, || {
            format!("{of}: starts are {:.4} apart, ends {:.4}", row.starts.mean, row.ends.mean)
        })?;
        rows.push(row);
    }
    let met = rows.iter().all(|row| row.above.is_empty());
    let summary = Summary { runs: rows.len(), faster: args.faster, origin: ORIGIN, met };
    if args.json {
        output::record(&summary)?;
    } else {
        print(&rows, &summary)?;
    }
    Ok(met)
}

fn row(args: &Args, experiment: &Experiment) -> Result<Row> {
    let site = &experiment.site;
    let [processors] = site.groups[..] else { bail!("several groups: a lab is one") };
    ensure!(site.owners.is_none() && site.barrier.is_none(), "expected a steady site");
    let faster = f64::from(args.faster);
    let bags = experiment.jobs.iter().map(|job| Bag::of(job, args.faster, args.part));
    let bags = bags.collect::<Result<Vec<_>>>()?;
    let lived = live::run(experiment, processors, &bags)?;
    let replay = replayed(experiment, &bags, lived.costs);
    let lab = lab_run(&lived, &bags, processors);
    let distances = |of: fn(&Times) -> f64| {
        let pairs = lab.jobs.iter().zip(&replay.jobs);
        Spread::of(&pairs.map(|(real, said)| apart(of(real), of(said))).collect::<Vec<_>>())
    };
    let row = Row {
        workload: experiment.workload.clone(),
        policy: experiment.policy.name,
        malleable: experiment.malleable,
        range: experiment.range.clone(),
        processors,
        start_costs: lived.costs,
        starts: distances(|job| job.started_s),
        ends: distances(|job| job.ended_s),
        utilisation: apart(lab.utilisation, replay.utilisation),
        turnaround: apart(lab.turnaround_s, replay.turnaround_s),
        printed: printed::of(experiment.malleable),
        above: vec![],
        lab: lab.scaled(faster),
        replay: replay.scaled(faster),
    };
    let above = row.printed.map_or(vec![], |printed| printed.below(&row));
    Ok(Row { above, ..row })
}

fn apart(real: f64, said: f64) -> f64 {
    normalised(Duration::from_secs_f64(real), Duration::from_secs_f64(said))
}

impl Run {
    /// In seconds of the workload instead of the lab's.
    fn scaled(self, faster: f64) -> Self {
        let times =
            |of: Times| Times { started_s: of.started_s * faster, ended_s: of.ended_s * faster };
        Self {
            turnaround_s: self.turnaround_s * faster,
            span_s: self.span_s * faster,
            jobs: self.jobs.into_iter().map(times).collect(),
            ..self
        }
    }
}

fn lab_run(lived: &Lived, bags: &[Bag], processors: u32) -> Run {
    let jobs: Vec<Times> = lived
        .jobs
        .iter()
        .map(|job| Times { started_s: job.start.as_secs_f64(), ended_s: job.end.as_secs_f64() })
        .collect();
    run_of(jobs, bags, lived.used.as_secs_f64(), processors)
}

fn run_of(jobs: Vec<Times>, bags: &[Bag], used_s: f64, processors: u32) -> Run {
    let submitted = |bag: &Bag| bag.submitted.since(Moment::ZERO).as_secs_f64();
    let first = bags.first().map_or(0.0, submitted);
    let span_s = jobs.iter().map(|job| job.ended_s).fold(first, f64::max) - first;
    let turnarounds = jobs.iter().zip(bags).map(|(job, bag)| job.ended_s - submitted(bag));
    Run {
        utilisation: used_s / (f64::from(processors) * span_s),
        turnaround_s: turnarounds.sum::<f64>() / jobs.len().max(1) as f64,
        span_s,
        jobs,
    }
}

/// The same jobs in replay, each part of them as much longer as on the lab.
fn replayed(experiment: &Experiment, bags: &[Bag], costs: StartCosts) -> Run {
    let jobs = experiment.jobs.iter().zip(bags).map(|(job, bag)| {
        let submitted = bag.submitted;
        WorkloadJob { submitted, takes: bag.takes(costs.of(bag)), ..job.clone() }
    });
    let origin = Times { started_s: 0.0, ended_s: 0.0 };
    let (mut times, mut used_s) = (vec![origin; bags.len()], 0.0);
    let seconds = |at: Moment| at.since(Moment::ZERO).as_secs_f64();
    let tell = |outcome: &Outcome| {
        used_s += outcome.used_s;
        if let Some(at) = experiment.jobs.iter().position(|job| job.number == outcome.job) {
            times[at] =
                Times { started_s: seconds(outcome.started), ended_s: seconds(outcome.ended) };
        }
    };
    let build = || (experiment.policy.build)(&experiment.parameters);
    let site = Site { speed: 1.0, ..experiment.site.clone() };
    let numbered = experiment.jobs.iter().zip(bags).map(|(job, bag)| (job.number, bag.parts));
    let rules = Rules { bags: numbered.collect(), ..Rules::default() };
    run_on(jobs, &site, build, rules, tell);
    run_of(times, bags, used_s, experiment.site.groups.iter().sum())
}

fn print(rows: &[Row], summary: &Summary) -> Result<()> {
    let his = |of: Option<f64>| of.map_or("-".to_owned(), |of| format!("{of:.4}"));
    let spread = |of: &Spread| format!("{:.4} ± {:.4}", of.mean, of.deviation);
    let pair = |of: Option<(f64, f64)>| {
        of.map_or("-".to_owned(), |(mean, deviation)| format!("{mean:.4} ± {deviation:.4}"))
    };
    let printed = |row: &Row| row.printed.unwrap_or_default();
    let listing = Listing::of(rows)
        .column("malleable", 9, |row| format!("{} %", row.malleable))
        .column("starts apart", 9, |row| spread(&row.starts))
        .column("his", 9, |row| pair(printed(row).starts))
        .column("ends apart", 9, |row| spread(&row.ends))
        .column("his", 9, |row| pair(printed(row).ends))
        .column("use on the lab", 9, |row| format!("{:.4}", row.lab.utilisation))
        .column("in replay", 9, |row| format!("{:.4}", row.replay.utilisation))
        .column("apart", 9, |row| format!("{:.4}", row.utilisation))
        .column("his", 9, |row| his(printed(row).utilisation))
        .column("turnaround s", 9, |row| format!("{:.0}", row.lab.turnaround_s))
        .column("in replay", 9, |row| format!("{:.0}", row.replay.turnaround_s))
        .column("apart", 9, |row| format!("{:.4}", row.turnaround))
        .column("his", 9, |row| his(printed(row).turnaround))
        .column("a start ms", 9, |row| {
            let StartCosts { at_once, in_turn } = row.start_costs;
            let millis = [at_once, in_turn].map(|cost| cost.as_secs_f64() * 1e3);
            format!("{:.1}, {:.1}", millis[0], millis[1])
        })
        .column("policy", 9, |row| row.policy.to_owned())
        .listing();
    Form::default().show(&listing)?;
    let above = rows.iter().flat_map(|row| {
        row.above.iter().map(|what| format!("{what} at {} % (of {})", row.malleable, row.policy))
    });
    let above: Vec<String> = above.collect();
    let met = match &above[..] {
        [] => "no distance is above his: met".to_owned(),
        above => format!("above his: {}: MISSED", above.join(", ")),
    };
    output::block(&format!(
        "\ndistances are |lab - replay| / lab, mean ± deviation over the jobs; his are of Ghafoor 2007, \
         Tables 5.5 and 5.6, over other jobs of the same kind\norigin of time: {ORIGIN}; he does not \
         say his\ntimes are the workload's; the lab's were {} times shorter\nreplay was told the mean of what a \
         start costs there, of all parts of a job at once and of one after another, as he told his \
         simulator what negotiations and adaptations cost\n{met}",
        summary.faster
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_of_what_slept_as_long_as_it_should_is_at_no_distance() {
        let text = "name = 'one'\nseed = 1\npolicies = ['ghafoor']\n\
                    [[sites]]\nname = 'four'\nprocessors = 4\n\
                    [[workloads]]\nname = 'w'\ngaps = ['1s']\nmalleable = [50]\nranges = ['1-4']\n\
                    downey = { jobs = 6, sizes = [1, 4], times = ['2s', '9s'] }\n";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        std::fs::write(&file, text).unwrap();
        let experiment = prepare(&file, &Overrides::default()).unwrap().experiments().remove(0);
        let bags: Vec<Bag> = experiment
            .jobs
            .iter()
            .map(|job| Bag::of(job, 1, Duration::from_millis(100)).unwrap())
            .collect();
        let run = replayed(&experiment, &bags, StartCosts::default());
        // Work is conserved: what sleeps is what was used.
        let slept: Duration = bags.iter().map(|bag| bag.sleeps * bag.parts).sum();
        let used_s = run.utilisation * 4.0 * run.span_s;
        assert!((used_s - slept.as_secs_f64()).abs() < 0.1, "{used_s} {slept:?}");
        assert!(run.jobs.iter().all(|job| job.started_s > 0.0 && job.ended_s > job.started_s));
    }
}
