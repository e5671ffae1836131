use std::time::Duration;

use gleaner_collector::timeline::{Period, PeriodState, Timeline};
use gleaner_coordinator_core::Policy;

use super::*;
use crate::lab::{Order, Selection};
use crate::model::{Model, Placement};
use crate::observer::What;
use crate::program::{Network, Program};
use crate::{Bag, BagModel, Scratch, run_bag, run_observed};
use gleaner_common::trace::{Op, Trace};

const DAY: i64 = 86_400;

/// Idle and busy in turn, for so many seconds each.
fn log(idle_s: i64, busy_s: i64, from: i64) -> Timeline {
    let (mut at, mut idle, mut periods) = (from, true, vec![]);
    while at < 40 * DAY {
        let length = if idle { idle_s } else { busy_s };
        periods.push(Period {
            state: if idle { PeriodState::Idle } else { PeriodState::Busy },
            start: WallTime::from_unix_s(at),
            duration: Duration::from_secs(length.unsigned_abs()),
            cause: None,
            slots: 0,
            load_1m: 0.0,
            margin: Duration::ZERO,
        });
        (at, idle) = (at + length, !idle);
    }
    Timeline { periods, ..Timeline::default() }
}

fn usage() -> Usage {
    Usage::from_timelines([
        ("restless".to_owned(), log(600, 300, 0)),
        ("calm".to_owned(), log(20_000, 300, -77)),
    ])
}

fn lab(usage: &Usage, start_s: i64) -> Lab {
    let (start, span) = (WallTime::from_unix_s(start_s), Duration::from_secs(3_600));
    Lab::select(usage, &Selection { start, span, count: 2, order: Order::AsRead }).unwrap()
}

fn chosen(lab: &Lab) -> u32 {
    chosen_by(Policy::LikelyLongest, lab)
}

fn chosen_by(policy: Policy, lab: &Lab) -> u32 {
    let ranks = vec![vec![Op::Compute { nanos: 1 }]];
    let program = Program::compile(&Trace { name: String::new(), ranks }, Network::default());
    let placement = Placement::Core(policy);
    let model = Model { placement, ..Model::phalen1994(Duration::ZERO) };
    let mut observed = vec![];
    run_observed(&program.unwrap(), lab, &model, &mut Scratch::default(), &mut observed);
    let What::Began { workstation } = observed[0].what else { panic!("{:?}", observed[0]) };
    workstation
}

#[test]
fn a_calm_past_is_preferred_once_it_is_known() {
    let usage = usage();
    // Both idle; the restless one for a minute, so the last idle first.
    let start = 20 * DAY + 60;
    let mut taught = lab(&usage, start);
    assert_eq!(chosen(&taught), 0, "without a past the last idle is as good as any");
    Learner::new(&usage).teach(&mut taught);
    assert_eq!(chosen(&taught), 1);
}

#[test]
fn what_is_learned_does_not_depend_on_what_was_asked_before() {
    let usage = usage();
    let mut learner = Learner::new(&usage);
    let past_of = |learner: &mut Learner<'_>, day: i64| {
        let mut lab = lab(&usage, day * DAY);
        learner.teach(&mut lab);
        lab.learned
    };
    let straight = past_of(&mut Learner::new(&usage), 9);
    for before in [3, 20, 9] {
        past_of(&mut learner, before);
        assert_eq!(past_of(&mut learner, 9), straight);
    }
}

/// One owner comes at four every afternoon; another has just left for weeks.
#[test]
fn a_worker_leaves_between_two_subtasks_before_the_owner_comes() {
    const HOUR: i64 = 3_600;
    let regular = ("regular".to_owned(), log(16 * HOUR, 8 * HOUR, 0));
    let leaves = 30 * DAY + 14 * HOUR;
    let seldom = ("seldom".to_owned(), log(20 * DAY, HOUR, leaves - 20 * DAY - HOUR));
    let usage = Usage::from_timelines([regular, seldom]);
    let start = WallTime::from_unix_s(30 * DAY + 13 * HOUR);
    let span = Duration::from_secs(86_400);
    let mut lab =
        Lab::select(&usage, &Selection { start, span, count: 2, order: Order::AsRead }).unwrap();
    Learner::new(&usage).teach(&mut lab);
    let hour = Duration::from_secs(3_600);
    let bag = Bag::divided("hours", 4 * hour, hour).unwrap();
    let model = BagModel {
        placement: Placement::Core(Policy::LikelyLongest),
        ..BagModel::of_table1(1, 1, Duration::from_secs(60)).unwrap()
    };
    let run = |leaves_early| {
        run_bag(&bag, &lab, &BagModel { leaves_early, ..model }, &mut Scratch::default())
    };
    let (left, stayed) = (run(true), run(false));
    assert_eq!((left.left_early, left.shared.busy_transitions, left.done), (1, 0, 4));
    assert_eq!((stayed.left_early, stayed.shared.busy_transitions, stayed.abandoned), (0, 1, 1));
    assert!(left.shared.execution < stayed.shared.execution, "{left:?} {stayed:?}");
}

/// Two workstations that turned idle long before, with these loads.
fn loaded(loads: [f32; 2]) -> Usage {
    Usage::from_timelines(loads.map(|load_1m| {
        let mut log = log(10 * DAY, 300, 0);
        log.periods.iter_mut().for_each(|period| period.load_1m = load_1m);
        (format!("of {load_1m}"), log)
    }))
}

#[test]
fn the_ranked_policy_looks_at_the_logs_load_and_at_speeds_and_says_what_is_missing() {
    let mut usage = loaded([0.2, 0.1]);
    let chosen = |usage: &Usage| chosen_by(Policy::Ranked, &lab(usage, DAY));
    assert_eq!(chosen(&usage), 1, "the less loaded one");
    assert_eq!(usage.ranked_lacks().len(), 1, "of no machine the speed is known");
    usage.know_speeds(&[("of 0.2".to_owned(), 900.0), ("of 0.1".to_owned(), 300.0)].into());
    assert_eq!(chosen(&usage), 0, "the faster one");
    assert_eq!(usage.ranked_lacks(), Vec::<String>::new());
    let silent = loaded([0.0, 0.0]).ranked_lacks();
    assert!(silent[0].contains("tells no load"), "{silent:?}");
}
