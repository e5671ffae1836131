//! What replay says of a run that has been: its trace, its owners and the
//! measured cost of its moves go in; nothing else of it is known.

use std::time::Duration;

use anyhow::{Context, Result};
use gleaner_collector::timeline::{PeriodState, Timeline};
use gleaner_common::time::WallTime;
use gleaner_common::trace::Trace;
use gleaner_replay::{Lab, Model, Network, Observed, Owner, Program, Scratch, What, run_observed};

use super::distance::{Times, Visits};

/// What was predicted.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    /// Each rank's times.
    pub(super) times: Vec<Times>,
    pub(super) visits: Vec<Visits>,
    pub(super) moves: u32,
}

/// Predicts a run that began at `start`.
///
/// # Errors
/// A trace that cannot be replayed, or a program that does not end within
/// `span`.
pub(super) fn predict(
    trace: &Trace,
    timelines: &[Timeline],
    start: WallTime,
    span: Duration,
    model: &Model,
) -> Result<Prediction> {
    let program = Program::compile(trace, Network::default()).context("the recorded trace")?;
    let owners: Vec<Owner> = timelines.iter().map(|timeline| owner(timeline, start)).collect();
    let lab = Lab::of_owners(&owners, span);
    let mut observed: Vec<Observed> = vec![];
    let execution = run_observed(&program, &lab, model, &mut Scratch::default(), &mut observed);
    anyhow::ensure!(execution.finished, "in replay the program does not end within {span:?}");
    let mut times = vec![Times::default(); trace.ranks.len()];
    let mut visits = vec![Visits::default(); trace.ranks.len()];
    for one in observed {
        let rank = one.rank as usize;
        let (Some(of), Some(visits)) = (times.get_mut(rank), visits.get_mut(rank)) else {
            continue;
        };
        let at = Duration::from_nanos(one.at);
        if let What::Began { workstation: to } | What::Moves { to, .. } = one.what {
            visits.push((to, at.as_secs_f64()));
        }
        if matches!(one.what, What::Began { .. }) {
            of.start = at;
        } else if one.what == What::Finished {
            of.end = at;
        }
    }
    Ok(Prediction { times, visits, moves: execution.moves })
}

/// When the owner was there, from `start` on. What is not known counts as
/// busy, and the last state as one that stays.
fn owner(timeline: &Timeline, start: WallTime) -> Owner {
    let known = timeline.periods.iter().map(|period| (period.state, period.start));
    let mut owner = Owner::default();
    let mut begun = start;
    for (state, from) in known.chain(timeline.open) {
        let idle = state == PeriodState::Idle;
        if from <= start {
            if idle != owner.idle || begun == start {
                begun = from;
            }
            owner.idle = idle;
        } else if idle != (owner.idle == owner.changes.len().is_multiple_of(2)) {
            owner.changes.push(from.since(start));
        }
    }
    owner.since = start.since(begun);
    owner
}

#[cfg(test)]
mod tests {
    use gleaner_collector::timeline::Period;
    use gleaner_common::trace::Op;

    use super::*;

    fn at(seconds: i64) -> WallTime {
        WallTime::from_unix_s(1_000_000 + seconds)
    }

    fn period(state: PeriodState, from: i64, to: i64) -> Period {
        Period {
            state,
            start: at(from),
            duration: at(to).since(at(from)),
            cause: None,
            slots: 1,
            load_1m: 0.0,
            margin: Duration::ZERO,
        }
    }

    fn timeline(periods: Vec<Period>, open: (PeriodState, i64)) -> Timeline {
        Timeline { periods, open: Some((open.0, at(open.1))), ..Timeline::default() }
    }

    #[test]
    fn an_owner_is_what_the_timeline_says_from_the_start_on() {
        let periods = vec![
            period(PeriodState::Unknown, -50, -40),
            period(PeriodState::Idle, -40, 10),
            period(PeriodState::Busy, 10, 15),
            period(PeriodState::Unknown, 15, 18),
        ];
        let found = owner(&timeline(periods, (PeriodState::Idle, 18)), at(0));
        let changes = [10, 18].map(Duration::from_secs).to_vec();
        assert_eq!(found, Owner { idle: true, since: Duration::from_secs(40), changes });
    }

    #[test]
    fn a_return_moves_the_rank_and_costs_what_moves_cost() {
        let compute = vec![Op::Compute { nanos: 20_000_000_000 }];
        let trace = Trace { name: "one".into(), ranks: vec![compute] };
        let first = timeline(vec![period(PeriodState::Idle, -1, 5)], (PeriodState::Busy, 5));
        let second = timeline(vec![], (PeriodState::Idle, -9));
        let model = Model::phalen1994(Duration::from_secs(3));
        let span = Duration::from_secs(100);
        let found = predict(&trace, &[first, second], at(0), span, &model).unwrap();
        assert_eq!((found.moves, found.times[0].end), (1, Duration::from_secs(23)));
        let short = Duration::from_secs(10);
        assert!(
            predict(&trace, &[timeline(vec![], (PeriodState::Idle, -9))], at(0), short, &model)
                .is_err()
        );
    }
}
