//! Spot machines, which are taken back as workstations are by their owners: a
//! task that cannot be late, and checkpoints at a pace.
//!
//! Traces are those of Wu et al. 2024, "Can't Be Late: Optimizing Spot Instance
//! Savings under Deadlines" (NSDI): how many machines could be had, tick by
//! tick.

pub mod judge;

use std::io::Read;
use std::time::Duration;

use gleaner_common::lines::{LineError, whole_text};
use gleaner_common::time::WallTime;
use serde::Deserialize;

use crate::usage::Usage;

/// A hundred times the longest of theirs.
const BYTES_MAX: usize = 32 << 20;

/// How many machines could be had at each tick.
#[derive(Clone, Debug, PartialEq)]
pub struct SpotTrace {
    pub tick: Duration,
    pub machines: Vec<u32>,
}

/// Why this is no trace.
#[derive(Debug, thiserror::Error)]
pub enum ReadSpotError {
    #[error("expected the JSON of an availability trace")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Text(#[from] LineError),
    #[error("ticks of {0} s: expected more than none")]
    Tick(f64),
}

#[derive(Deserialize)]
struct File {
    metadata: Metadata,
    data: Vec<u32>,
}

#[derive(Deserialize)]
struct Metadata {
    gap_seconds: f64,
}

impl SpotTrace {
    /// Reads one; what is in gzip is to be unpacked by the caller's reader.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(input: impl Read) -> Result<Self, ReadSpotError> {
        let text = whole_text(input, BYTES_MAX)?;
        let File { metadata, data } = serde_json::from_str(&text)?;
        let gap = metadata.gap_seconds;
        let tick = Duration::try_from_secs_f64(gap).ok().filter(|tick| !tick.is_zero());
        Ok(Self { tick: tick.ok_or(ReadSpotError::Tick(gap))?, machines: data })
    }

    /// A workstation as a machine that can be had while its owner is away;
    /// `None` if not all of that time is known.
    pub fn of_workstation(
        usage: &Usage,
        workstation: usize,
        (from, until): (WallTime, WallTime),
        tick: Duration,
    ) -> Option<Self> {
        let past = usage.past(workstation);
        let is_known = past.changes.first()? <= &from.0 && past.known_until >= until.0;
        let step = i64::try_from(tick.as_nanos()).ok().filter(|step| *step > 0)?;
        let is_idle = |at: i64| {
            let after = past.changes.partition_point(|change| *change <= at);
            u32::from(past.is_idle_after(after - 1))
        };
        let ticks = (0..).map(|tick| from.0 + tick * step).take_while(|at| *at < until.0);
        is_known.then(|| Self { tick, machines: ticks.map(is_idle).collect() })
    }

    /// How long a machine could be kept, each time; without the first and the
    /// last time, of which an end was not seen.
    pub fn spans_s(&self) -> Vec<f64> {
        let tick_s = self.tick.as_secs_f64();
        let runs = self.machines.chunk_by(|a, b| (*a > 0) == (*b > 0));
        let runs: Vec<&[u32]> = runs.collect();
        let inner = runs.get(1..runs.len().saturating_sub(1)).unwrap_or(&[]);
        let held = inner.iter().filter(|run| run[0] > 0);
        held.map(|run| run.len() as f64 * tick_s).collect()
    }
}

/// A task that has to be done by its deadline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// `C(0)`, without any restart.
    pub work: Duration,
    /// `R(0)`, from its start.
    pub deadline: Duration,
    /// `d`: of each machine that it comes to.
    pub restart: Duration,
}

/// When to use which machine (Wu et al. 2024, §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Spot machines as long as there is time; then one on demand.
    Greedy,
    /// Progress in proportion to time: one on demand where it lags behind, until
    /// it is ahead by two restarts.
    UniformProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    None,
    Spot,
    OnDemand,
}

/// What a task used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bill {
    pub spot_s: f64,
    pub on_demand_s: f64,
    pub restarts: u32,
    pub is_late: bool,
}

impl Bill {
    /// In prices of an hour on demand, if a spot machine costs this part of it.
    pub fn cost(&self, spot_price: f64) -> f64 {
        (self.spot_s * spot_price + self.on_demand_s) / 3_600.0
    }
}

#[derive(Debug)]
struct Run {
    task: Task,
    machine: Machine,
    done_s: f64,
    restart_s: f64,
    bill: Bill,
}

/// One task from a tick on; `None` if the trace ends before its deadline.
pub fn run_task(trace: &SpotTrace, from: usize, task: Task, rule: Rule) -> Option<Bill> {
    let tick_s = trace.tick.as_secs_f64();
    let (work_s, deadline_s) = (task.work.as_secs_f64(), task.deadline.as_secs_f64());
    let there = trace.machines.get(from..)?;
    let mut run =
        Run { task, machine: Machine::None, done_s: 0.0, restart_s: 0.0, bill: Bill::default() };
    if there.len() as f64 * tick_s < deadline_s {
        return None;
    }
    for (tick, machines) in there.iter().enumerate() {
        let now_s = tick as f64 * tick_s;
        let next = run.choose(rule, now_s, tick_s, *machines > 0);
        run.work(next, tick_s);
        if run.done_s >= work_s {
            // A machine is paid for as long as it works.
            let end_s = now_s + tick_s - run.pay_back(work_s);
            run.bill.is_late = end_s > deadline_s;
            return Some(run.bill);
        }
    }
    run.bill.is_late = true;
    Some(run.bill)
}

impl Run {
    fn choose(&self, rule: Rule, now_s: f64, tick_s: f64, has_spot: bool) -> Machine {
        let Task { work, deadline, restart } = self.task;
        let [work_s, deadline_s, restart_s] = [work, deadline, restart].map(|it| it.as_secs_f64());
        // What is left of a restart is to be done as well.
        let slack_s = deadline_s - now_s - (work_s - self.done_s) - self.restart_s;
        let is_kept = self.machine == Machine::Spot && has_spot;
        // Safety net: on a spot machine, one restart is still to come.
        let needed_s = tick_s + restart_s * if is_kept { 1.0 } else { 2.0 };
        let is_short = slack_s < needed_s;
        let expected = |at_s: f64| at_s / deadline_s * work_s;
        let lags = |at_s: f64| self.done_s < expected(at_s);
        let is_held = match rule {
            Rule::Greedy => false,
            // Taking risks: a spot machine is taken wherever there is one.
            Rule::UniformProgress if has_spot => false,
            // Hysteresis, and uniform progress.
            Rule::UniformProgress => match self.machine {
                Machine::OnDemand => lags(now_s + 2.0 * restart_s),
                Machine::None | Machine::Spot => lags(now_s),
            },
        };
        if is_short || is_held {
            Machine::OnDemand
        } else if has_spot {
            Machine::Spot
        } else {
            Machine::None
        }
    }

    fn work(&mut self, next: Machine, tick_s: f64) {
        if next != self.machine && next != Machine::None {
            self.restart_s = self.task.restart.as_secs_f64();
            self.bill.restarts += 1;
        }
        self.machine = next;
        match next {
            Machine::None => return,
            Machine::Spot => self.bill.spot_s += tick_s,
            Machine::OnDemand => self.bill.on_demand_s += tick_s,
        }
        let restarting_s = self.restart_s.min(tick_s);
        self.restart_s -= restarting_s;
        self.done_s += tick_s - restarting_s;
    }

    /// What the last tick had more than was needed.
    fn pay_back(&mut self, work_s: f64) -> f64 {
        let more_s = self.done_s - work_s;
        match self.machine {
            Machine::Spot => self.bill.spot_s -= more_s,
            Machine::OnDemand | Machine::None => self.bill.on_demand_s -= more_s,
        }
        more_s
    }
}

/// What nobody can do better: each tick that a spot machine could be had is
/// used, restarts are free, and only the rest is on demand.
pub fn bound(trace: &SpotTrace, from: usize, task: Task) -> Bill {
    let tick_s = trace.tick.as_secs_f64();
    let (work_s, deadline_s) = (task.work.as_secs_f64(), task.deadline.as_secs_f64());
    let within = trace.machines.iter().skip(from).zip(0_u32..);
    let within = within.take_while(|(_, tick)| f64::from(*tick) * tick_s < deadline_s);
    let had_s = within.filter(|(machines, _)| **machines > 0).count() as f64 * tick_s;
    let spot_s = had_s.min(work_s);
    Bill { spot_s, on_demand_s: work_s - spot_s, ..Bill::default() }
}

/// How long machines lasted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survival {
    /// Ascending.
    spans_s: Vec<f64>,
}

impl Survival {
    pub fn of(mut spans_s: Vec<f64>) -> Self {
        spans_s.sort_by(f64::total_cmp);
        Self { spans_s }
    }

    pub fn mean_s(&self) -> f64 {
        self.spans_s.iter().sum::<f64>() / self.spans_s.len() as f64
    }

    /// How often a second a machine of this age is taken back: ends over
    /// exposure, until it is as old again, and over ten ends at least.
    pub fn hazard(&self, age_s: f64) -> f64 {
        let from = self.spans_s.partition_point(|span| *span <= age_s);
        let older = &self.spans_s[from.min(self.spans_s.len().saturating_sub(ENDS_MIN))..];
        let until_s = older.get(ENDS_MIN - 1).copied().unwrap_or(f64::MAX).max(2.0 * age_s);
        let ends = older.partition_point(|span| *span <= until_s);
        let exposure = |span: &f64| (span.min(until_s) - age_s).max(0.0);
        let exposed_s: f64 = older.iter().map(exposure).sum();
        if exposed_s > 0.0 { ends as f64 / exposed_s } else { self.mean_s().recip() }
    }
}

/// So many ends make a rate.
const ENDS_MIN: usize = 10;

/// When the next checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace<'a> {
    /// √(2 C M), M being the mean time between interruptions (Young 1974; the
    /// first term of Daly 2006).
    Mean(&'a Survival),
    /// The same with what the hazard is at this age.
    Hazard(&'a Survival),
}

impl Pace<'_> {
    fn interval_s(self, age_s: f64, cost_s: f64) -> f64 {
        match self {
            Self::Mean(survival) => (2.0 * cost_s * survival.mean_s()).sqrt(),
            Self::Hazard(survival) => (2.0 * cost_s / survival.hazard(age_s)).sqrt(),
        }
    }
}

/// The part of those spans that was spent on work that was kept.
pub fn kept(spans_s: &[f64], cost: Duration, pace: Pace<'_>) -> f64 {
    let cost_s = cost.as_secs_f64();
    let of_span = |span_s: &f64| {
        let (mut age_s, mut kept_s) = (0.0, 0.0);
        loop {
            let interval_s = pace.interval_s(age_s, cost_s).max(1.0);
            age_s += interval_s + cost_s;
            if age_s > *span_s {
                return kept_s;
            }
            kept_s += interval_s;
        }
    };
    spans_s.iter().map(of_span).sum::<f64>() / spans_s.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(runs: &[(u32, usize)]) -> SpotTrace {
        let machines = runs.iter().flat_map(|(machines, ticks)| vec![*machines; *ticks]).collect();
        SpotTrace { tick: Duration::from_secs(60), machines }
    }

    fn task(work_s: u64, deadline_s: u64, restart_s: u64) -> Task {
        let [work, deadline, restart] = [work_s, deadline_s, restart_s].map(Duration::from_secs);
        Task { work, deadline, restart }
    }

    #[test]
    fn a_trace_is_read_and_its_spans_are_those_whose_ends_were_seen() {
        let text = r#"{"metadata":{"gap_seconds":195},"data":[1,1,0,4,2,1,0,0,1]}"#;
        let trace = SpotTrace::read(text.as_bytes()).expect("a trace");
        assert_eq!(trace.tick, Duration::from_secs(195));
        assert_eq!(trace.spans_s(), [585.0]);
        for no in ["{}", r#"{"metadata":{"gap_seconds":-1},"data":[]}"#] {
            assert!(SpotTrace::read(no.as_bytes()).is_err(), "{no}");
        }
    }

    #[test]
    fn whoever_waits_for_spot_machines_goes_on_demand_in_time() {
        // None ever: 600 s of work from where two restarts and a tick are left.
        let never = trace(&[(0, 40)]);
        let bill = run_task(&never, 0, task(600, 1_200, 60), Rule::Greedy).expect("it ends");
        assert_eq!(bill, Bill { on_demand_s: 660.0, restarts: 1, ..Bill::default() });
        let always = trace(&[(1, 40)]);
        let bill = run_task(&always, 0, task(600, 1_200, 60), Rule::Greedy).expect("it ends");
        assert_eq!(bill, Bill { spot_s: 660.0, restarts: 1, ..Bill::default() });
        assert!(run_task(&always, 30, task(600, 1_200, 60), Rule::Greedy).is_none());
    }

    #[test]
    fn uniform_progress_works_on_demand_while_it_lags_behind() {
        // Spot machines come in the second half only: by then half is done.
        let late = trace(&[(0, 20), (1, 40)]);
        let task = task(1_200, 2_400, 0);
        let bill = run_task(&late, 0, task, Rule::UniformProgress).expect("it ends");
        assert!((bill.on_demand_s - 600.0).abs() < 61.0, "{bill:?}");
        assert!(!bill.is_late);
        assert!((bound(&late, 0, task).spot_s - 1_200.0).abs() < 1e-9);
    }

    #[test]
    fn whoever_lasts_has_fewer_checkpoints() {
        // Half end within a minute or two, the others last for hours.
        let spans: Vec<f64> =
            (0..200).map(|n| 60.0 + f64::from(n % 2) * 20_000.0 + f64::from(n)).collect();
        let survival = Survival::of(spans.clone());
        assert!(survival.hazard(0.0) > 5.0 * survival.hazard(1_000.0));
        let cost = Duration::from_secs(5);
        let [mean, hazard] = [Pace::Mean(&survival), Pace::Hazard(&survival)];
        assert!(kept(&spans, cost, hazard) > 0.0 && kept(&spans, cost, mean) > 0.0);
        assert!(hazard.interval_s(0.0, 5.0) < hazard.interval_s(1_000.0, 5.0));
    }
}
