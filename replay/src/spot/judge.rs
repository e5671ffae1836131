//! What the rules for machines that may be taken back are worth, each beside what
//! one would do without it, on traces and in years that nothing was fitted to.
//!
//! The promise: nobody looks ahead. Survival is measured in what was before,
//! chances are what the past has taught by the begin of a period, and both sides
//! of a comparison get the same machines at the same time. Intervals are over
//! weeks.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::time::WallTime;
use gleaner_coordinator_core::Policy;

use super::{Pace, Rule, SpotTrace, Survival, Task, bound, kept, run_task};
use crate::report::interval::{Compared, Estimate};
use crate::{
    Bag, BagExecution, BagModel, Lab, Learner, Order, Placement, Scratch, Selection, Usage,
    Workers, run_bag,
};

/// A spot machine's price, of that on demand, as Wu et al. 2024 take it.
const SPOT_PRICE: f64 = 0.33;
const HOUR: Duration = Duration::from_secs(3_600);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// What a checkpoint takes, and a worker's move.
const COST: Duration = Duration::from_secs(60);

/// A rule beside what one would do without it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub rule: &'static str,
    pub beside: &'static str,
    pub on: String,
    /// What is compared: the less the better.
    pub measure: &'static str,
    pub runs: u32,
    pub usual: f64,
    pub ours: f64,
    /// Ours over the usual, and where it lies in 95 of 100 draws of the weeks.
    pub ratio: f64,
    pub between: Option<(f64, f64)>,
    pub verdict: &'static str,
}

/// Sums over runs, by the week that they began in: ours and the usual.
#[derive(Debug, Default)]
struct Sums {
    weeks: BTreeMap<u64, [f64; 2]>,
    runs: u32,
}

impl Sums {
    fn add(&mut self, week: u64, ours: f64, usual: f64) {
        let sums = self.weeks.entry(week).or_default();
        (sums[0], sums[1]) = (sums[0] + ours, sums[1] + usual);
        self.runs += 1;
    }

    /// `None` if there is nothing to compare.
    fn judged(
        &self,
        (rule, beside): (&'static str, &'static str),
        on: &str,
        measure: &'static str,
    ) -> Option<Judged> {
        let weeks: Vec<[f64; 2]> = self.weeks.values().copied().collect();
        let ratio = |[ours, usual]: &[f64; 2]| (*usual > 0.0).then(|| ours / usual);
        let estimate = Estimate::of(&weeks, ratio)?;
        let runs = f64::from(self.runs);
        let total = |side: usize| weeks.iter().map(|week| week[side]).sum::<f64>() / runs;
        Some(Judged {
            rule,
            beside,
            on: on.to_owned(),
            measure,
            runs: self.runs,
            usual: total(1),
            ours: total(0),
            ratio: estimate.value,
            between: estimate.between,
            verdict: match estimate.compared() {
                Compared::Less => "better",
                Compared::NoDifference => "no difference",
                Compared::More => "worse",
                Compared::TooFewWeeks => "too few weeks",
            },
        })
    }
}

/// What is alike and therefore drawn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alike {
    /// A week, in all traces: workstations of one house.
    Weeks,
    /// A week of one trace: zones with markets of their own.
    WeeksOfEach,
}

/// Uniform progress beside greedy, by what is paid above the bound, for tasks of
/// two days that need so much of their time.
pub fn deadlines(on: &str, traces: &[SpotTrace], alike: Alike) -> Vec<Judged> {
    let judged = [0.6, 0.8, 0.9].into_iter().filter_map(|share| {
        let work = 48 * HOUR;
        let task = Task { work, deadline: work.div_f64(share), restart: HOUR / 5 };
        let on = format!("{on}, {:.0} % of the time needed", share * 100.0);
        let rule = ("uniform progress", "greedy");
        beside_greedy(traces, task, alike).judged(rule, &on, "cost above the bound, h on demand")
    });
    judged.collect()
}

fn beside_greedy(traces: &[SpotTrace], task: Task, alike: Alike) -> Sums {
    let mut sums = Sums::default();
    for (nth, trace) in (0..).zip(traces) {
        let apart = if alike == Alike::WeeksOfEach { nth * 1_000 } else { 0 };
        let a_day = (86_400.0 / trace.tick.as_secs_f64()).max(1.0);
        for from in (0..).map(|day| steps(f64::from(day) * a_day)) {
            let run = |rule| run_task(trace, from, task, rule);
            let Some((greedy, uniform)) = run(Rule::Greedy).zip(run(Rule::UniformProgress)) else {
                break;
            };
            let least = bound(trace, from, task).cost(SPOT_PRICE);
            let [ours, usual] = [uniform, greedy].map(|bill| bill.cost(SPOT_PRICE) - least);
            sums.add(apart + week_of(trace.tick, from), ours, usual);
        }
    }
    sums
}

#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "not negative")]
fn steps(ticks: f64) -> usize {
    ticks as usize
}

fn week_of(tick: Duration, from: usize) -> u64 {
    let at_s = tick.as_secs_f64() * from as f64;
    steps(at_s / WEEK.as_secs_f64()) as u64
}

/// Checkpoints paced by the hazard beside those of Young and Daly, by the part of
/// the time that was lost. Survival is measured in `seen`; each of `unseen` is a
/// week.
pub fn paces(on: &str, seen: Vec<f64>, unseen: &[Vec<f64>]) -> Option<Judged> {
    let survival = Survival::of(seen);
    let mut sums = Sums::default();
    for (week, spans) in (0..).zip(unseen).filter(|(_, spans)| !spans.is_empty()) {
        let whole: f64 = spans.iter().sum();
        let lost = |pace| (1.0 - kept(spans, COST, pace)) * whole;
        sums.add(week, lost(Pace::Hazard(&survival)), lost(Pace::Mean(&survival)));
    }
    let rule = ("checkpoints paced by the hazard", "by the mean (Young, Daly)");
    sums.judged(rule, on, "machine seconds lost")
}

/// Spans of machines, the first half of each trace for measuring, and the other
/// cut into weeks.
pub fn halves(traces: &[SpotTrace]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let (mut seen, mut unseen) = (vec![], vec![]);
    for trace in traces {
        let half = trace.machines.len() / 2;
        let part = |machines: &[u32]| {
            SpotTrace { tick: trace.tick, machines: machines.to_vec() }.spans_s()
        };
        seen.extend(part(&trace.machines[..half]));
        let a_week = steps(WEEK.as_secs_f64() / trace.tick.as_secs_f64()).max(1);
        unseen.extend(trace.machines[half..].chunks(a_week).map(part));
    }
    (seen, unseen)
}

/// Which weeks of a usage log are looked at, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Years {
    /// What was before teaches; what is from then on is foretold.
    pub from: WallTime,
    pub until: WallTime,
    pub workstations: u32,
}

/// Machine by machine: each workstation's time from `from` on, as a trace.
pub fn workstations(usage: &Usage, years: &Years) -> Vec<SpotTrace> {
    let tick = Duration::from_secs(300);
    let known = (0..usage.workstations()).filter_map(|workstation| {
        SpotTrace::of_workstation(usage, workstation, (years.from, years.until), tick)
    });
    known.take(years.workstations as usize).collect()
}

/// A move before the owner's usual return, and second copies of the last
/// subtasks: of a bag that spreads to whatever is idle, and of one with so few
/// workers that there is a choice. They begin every 31 hours, so that every hour
/// of the day and of the week has its turn.
pub fn bags(usage: &Usage, years: &Years) -> Vec<Judged> {
    let third = (years.workstations / 3).max(1);
    let everywhere = (2, Workers::All, years.workstations);
    [everywhere, (1, Workers::Number(third), third)]
        .into_iter()
        .filter_map(|(table1, workers, at_once)| {
            let bag = Bag::divided("bag", 3 * HOUR * at_once, HOUR).ok()?;
            let usual = BagModel {
                placement: Placement::Core(Policy::LikelyLongest),
                on_busy: OnBusy::at_once(Reaction::Retreat),
                idle_needed: HOUR,
                ..BagModel::of_table1(table1, workers, COST)?
            };
            let words = if table1 == 2 { "that spreads over" } else { "of a third as many, on" };
            let on = format!("a bag {words} {} workstations", years.workstations);
            Some(one_bag(usage, years, &bag, usual, &on))
        })
        .flatten()
        .collect()
}

fn one_bag(usage: &Usage, years: &Years, bag: &Bag, usual: BagModel, on: &str) -> Vec<Judged> {
    let rules = [
        ("a move before the owner's return", BagModel { leaves_early: true, ..usual }),
        ("second copies of the last subtasks", BagModel { copies: true, ..usual }),
        ("both", BagModel { leaves_early: true, copies: true, ..usual }),
    ];
    let mut sums = rules.map(|_| MEASURES.map(|_| Sums::default()));
    let (mut learner, mut scratch) = (Learner::new(usage), Scratch::default());
    let every = i64::try_from((31 * HOUR).as_nanos()).unwrap_or(i64::MAX);
    let starts = (0..).map(|period| WallTime(years.from.0 + period * every));
    for start in starts.take_while(|start| *start < years.until) {
        let (span, count) = (96 * HOUR, years.workstations);
        let selection = Selection { start, span, count, order: Order::AsRead };
        let Ok(mut lab) = Lab::select(usage, &selection) else { continue };
        learner.teach(&mut lab);
        let without = run_bag(bag, &lab, &usual, &mut scratch);
        let week = start.since(years.from).as_nanos() / WEEK.as_nanos();
        for ((_, model), sums) in rules.iter().zip(&mut sums) {
            let with = run_bag(bag, &lab, model, &mut scratch);
            if !(with.shared.finished && without.shared.finished) {
                continue;
            }
            for ((_, of), sums) in MEASURES.iter().zip(sums) {
                sums.add(u64::try_from(week).unwrap_or(u64::MAX), of(&with), of(&without));
            }
        }
    }
    let judged = rules.iter().zip(&sums).flat_map(|((rule, _), sums)| {
        let of_each = MEASURES.iter().zip(sums);
        of_each.filter_map(move |((measure, _), it)| it.judged((rule, "neither"), on, measure))
    });
    judged.collect()
}

type OfBag = (&'static str, fn(&BagExecution) -> f64);

/// What is gained, and what it costs.
const MEASURES: [OfBag; 3] = [
    ("time to the end of the bag, s", |it| it.shared.execution.as_secs_f64()),
    ("work thrown away, s", |it| it.shared.wasted.as_secs_f64()),
    ("owners who found a guest", |it| f64::from(it.shared.busy_transitions)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_better_in_every_week_is_called_so_and_the_rest_is_not() {
        let mut better = Sums::default();
        let mut even = Sums::default();
        for week in 0..20 {
            better.add(week, 8.0 + (week % 3) as f64, 20.0);
            even.add(week, [10.0, 30.0][usize::from(week % 2 == 0)], 20.0);
        }
        let judged = |sums: &Sums| sums.judged(("a", "b"), "c", "d").expect("weeks");
        let found = judged(&better);
        assert_eq!((found.verdict, found.runs), ("better", 20));
        assert!((found.usual - 20.0).abs() < 1e-9 && found.ours < 10.0);
        assert_eq!(judged(&even).verdict, "no difference");
        assert!(Sums::default().judged(("a", "b"), "c", "d").is_none());
    }

    #[test]
    fn a_pace_by_the_hazard_loses_less_where_the_old_ones_last() {
        let spans = |n: u32| if n.is_multiple_of(2) { 200.0 } else { 40_000.0 };
        let seen: Vec<f64> = (0..200).map(spans).collect();
        let unseen: Vec<Vec<f64>> = (0..10).map(|_| (0..40).map(spans).collect()).collect();
        let judged = paces("two kinds", seen, &unseen).expect("weeks");
        assert!(judged.ratio < 1.0, "{judged:?}");
    }

    #[test]
    fn halves_measure_in_the_one_and_judge_in_the_other() {
        let machines = [0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0].to_vec();
        let trace = SpotTrace { tick: Duration::from_secs(100), machines };
        let (seen, unseen) = halves(&[trace]);
        assert_eq!(seen, [200.0]);
        assert_eq!(unseen, [[300.0]]);
    }
}
