use super::super::{Interpretation, PeriodState, Reading, Timeline, interpret};
use super::*;
use gleaner_collector_core::samples::record;
use gleaner_common::usage::{LoadAverages, UsageRecord};

use Cause::{Both, Change, Finish, Idle, Load, Start, Tty};

const S: Duration = Duration::from_secs(1);

/// Second, cause, load and seconds since the last input.
type Row = (u64, Cause, f32, u64);

fn read(rows: &[Row], interpretation: Interpretation, criterion: Criterion) -> Timeline {
    let records = (1..).zip(rows).map(|(sequence, (second, cause, one, idle))| UsageRecord {
        load: LoadAverages { one: *one, five: 0.0, fifteen: 0.0 },
        input_idle: Some(S * u32::try_from(*idle).unwrap()),
        ..record(sequence, *second, *cause)
    });
    interpret(records, Reading { interpretation, criterion: Some(criterion) })
}

fn exact(rows: &[Row], criterion: Criterion) -> Timeline {
    read(rows, Interpretation::Exact, criterion)
}

#[track_caller]
fn check(timeline: &Timeline, expected: &[(PeriodState, u64)]) {
    let periods: Vec<_> =
        timeline.periods.iter().map(|p| (p.state, p.duration.as_secs())).collect();
    assert_eq!(periods, expected, "{:?}", timeline.unsure);
}

/// Idle at 100; load from 200, more of it from 400, idle from 600; the owner
/// types from 800 to 940; idle from 1,000, down at 1,200.
const LAB: [Row; 8] = [
    (0, Start, 0.0, 500),
    (100, Idle, 0.0, 600),
    (200, Load, 0.3, 700),
    (400, Change, 0.9, 900),
    (600, Idle, 0.2, 1_100),
    (800, Tty, 0.1, 0),
    (1_000, Idle, 0.1, 60),
    (1_200, Finish, 0.1, 260),
];

fn only_load(load_max: f32) -> Criterion {
    Criterion { load_max: Some(load_max), tty: None }
}

fn only_tty(quiet: u32) -> Criterion {
    Criterion { load_max: None, tty: Some(S * quiet) }
}

#[test]
fn the_recorded_criterion_changes_nothing() {
    let of = |criterion| {
        let records = (1..).zip(&LAB).map(|(sequence, (second, cause, one, idle))| UsageRecord {
            load: LoadAverages { one: *one, five: 0.0, fifteen: 0.0 },
            input_idle: Some(S * u32::try_from(*idle).unwrap()),
            ..record(sequence, *second, *cause)
        });
        interpret(records, Reading { interpretation: Interpretation::Exact, criterion })
    };
    assert_eq!(of(Some(Criterion::default())).periods, of(None).periods);
}

#[test]
fn a_higher_threshold_is_read_from_load_and_change_records() {
    let half = Criterion { load_max: Some(0.5), ..Criterion::default() };
    let timeline = exact(&LAB, half);
    check(
        &timeline,
        &[
            (PeriodState::Unknown, 100),
            (PeriodState::Idle, 300),
            (PeriodState::Busy, 200),
            (PeriodState::Idle, 200),
            (PeriodState::Busy, 200),
            (PeriodState::Idle, 200),
        ],
    );
    assert_eq!(timeline.periods[2].cause, Some(Load));
    assert!(timeline.unsure.is_nothing(), "{:?}", timeline.unsure);
}

#[test]
fn a_lower_threshold_is_judged_at_the_records_and_says_so() {
    let tenth = Criterion { load_max: Some(0.15), ..Criterion::default() };
    let timeline = exact(&LAB, tenth);
    check(
        &timeline,
        &[
            (PeriodState::Unknown, 100),
            (PeriodState::Idle, 100),
            (PeriodState::Busy, 800),
            (PeriodState::Idle, 200),
        ],
    );
    assert_eq!(timeline.unsure.low_load, S * 500);
    assert!(timeline.unsure.to_string().contains("idle in the log"), "{}", timeline.unsure);
}

#[test]
fn terminals_alone_see_no_load() {
    check(
        &exact(&LAB, only_tty(60)),
        &[
            (PeriodState::Unknown, 100),
            (PeriodState::Idle, 700),
            (PeriodState::Busy, 200),
            (PeriodState::Idle, 200),
        ],
    );
}

#[test]
fn load_alone_sees_no_input() {
    check(
        &exact(&LAB, only_load(RECORDED_LOAD)),
        &[
            (PeriodState::Unknown, 100),
            (PeriodState::Idle, 100),
            (PeriodState::Busy, 400),
            (PeriodState::Idle, 600),
        ],
    );
}

#[test]
fn a_quiet_period_can_be_longer_or_shorter_than_the_recorded_one() {
    let visits = [
        (0, Start, 0.0, 500),
        (0, Idle, 0.0, 500),
        (100, Tty, 0.0, 0),
        (200, Idle, 0.0, 60),
        (300, Tty, 0.0, 0),
        (400, Idle, 0.0, 60),
        (1_000, Finish, 0.0, 660),
    ];
    let idle_100 = (PeriodState::Idle, 100);
    check(
        &exact(&visits, only_tty(60)),
        &[
            idle_100,
            (PeriodState::Busy, 100),
            idle_100,
            (PeriodState::Busy, 100),
            (PeriodState::Idle, 600),
        ],
    );
    check(
        &exact(&visits, only_tty(300)),
        &[idle_100, (PeriodState::Busy, 540), (PeriodState::Idle, 360)],
    );
    check(
        &exact(&visits, only_tty(20)),
        &[
            idle_100,
            (PeriodState::Busy, 60),
            (PeriodState::Idle, 140),
            (PeriodState::Busy, 60),
            (PeriodState::Idle, 640),
        ],
    );
}

#[test]
fn what_held_it_busy_without_load_or_input_is_the_owners() {
    // A film: nothing is touched for two hours.
    let film = [
        (0, Start, 0.0, 9),
        (0, Tty, 0.0, 0),
        (7_200, Idle, 0.0, 7_200),
        (7_300, Finish, 0.0, 7_300),
    ];
    check(&exact(&film, only_tty(60)), &[(PeriodState::Busy, 7_200), (PeriodState::Idle, 100)]);
}

#[test]
fn input_under_load_is_known_by_its_last_and_counted_as_unsure() {
    let log = [
        (0, Start, 0.0, 900),
        (0, Load, 2.0, 900),
        (1_000, Idle, 0.1, 400),
        (1_300, Finish, 0.1, 700),
    ];
    let timeline = exact(&log, only_tty(60));
    check(&timeline, &[(PeriodState::Busy, 660), (PeriodState::Idle, 640)]);
    assert_eq!(timeline.unsure.input, S * 600);
}

#[test]
fn a_load_that_may_have_fallen_under_input_counts_to_the_next_record() {
    let log =
        [(0, Start, 0.0, 9), (0, Both, 2.0, 0), (1_000, Idle, 0.1, 60), (1_300, Finish, 0.1, 360)];
    let timeline = exact(&log, only_load(0.5));
    check(&timeline, &[(PeriodState::Busy, 1_000), (PeriodState::Idle, 300)]);
    assert_eq!(timeline.unsure.fallen_load, S * 1_000);
}

#[test]
fn an_import_that_tells_no_input_keeps_its_sessions() {
    let rows = [(0, Start), (0, Tty), (500, Idle), (900, Finish)];
    let records = (1..).zip(rows).map(|(sequence, (second, cause))| UsageRecord {
        load: LoadAverages::default(),
        input_idle: None,
        ..record(sequence, second, cause)
    });
    let reading = Reading { criterion: Some(only_tty(60)), ..Reading::default() };
    check(&interpret(records, reading), &[(PeriodState::Busy, 500), (PeriodState::Idle, 400)]);
}

/// Table 6 is applied to the transitions of the new criterion.
#[test]
fn snapshots_are_judged_before_their_times_are_estimated() {
    let every = Duration::from_secs(180);
    let rows = [
        (0, Start, 0.0, 900),
        (0, Idle, 0.0, 900),
        (360, Load, 0.4, 1_260),
        (720, Change, 0.6, 1_620),
        (1_080, Finish, 0.6, 1_980),
    ];
    let half = Criterion { load_max: Some(0.5), ..Criterion::default() };
    let timeline = read(&rows, Interpretation::Snapshots { every }, half);
    check(&timeline, &[(PeriodState::Idle, 630), (PeriodState::Busy, 450)]);
    assert_eq!(timeline.periods[1].margin, Duration::from_secs(90));
}

fn lengths(timeline: &Timeline, state: PeriodState) -> Duration {
    let of_state = timeline.periods.iter().filter(|period| period.state == state);
    of_state.map(|period| period.duration).sum()
}

proptest::proptest! {
    #[test]
    fn a_criterion_moves_time_between_idle_and_busy_and_a_higher_load_never_to_busy(
        steps in proptest::collection::vec((1_u64..900, 0_usize..7, 0_u8..20, 0_u64..1_500), 1..40),
        quiet in 1_u32..600,
        loads in (25_u8..100, 0_u8..100),
        snapshots in proptest::prelude::any::<bool>(),
    ) {
        let (mut second, mut rows) = (0, vec![]);
        for (after, cause, tenths, idle) in steps {
            second += after;
            rows.push((second, Cause::ALL[cause], f32::from(tenths) / 10.0, idle));
        }
        let every = Duration::from_secs(180);
        let interpretation =
            if snapshots { Interpretation::Snapshots { every } } else { Interpretation::Exact };
        let of = |hundredths: u8| {
            let load_max = Some(f32::from(hundredths) / 100.0);
            read(&rows, interpretation, Criterion { load_max, tty: Some(S * quiet) })
        };
        let (lower, higher) = (of(loads.0), of(loads.0 + loads.1));
        let known = |timeline: &Timeline| {
            lengths(timeline, PeriodState::Idle) + lengths(timeline, PeriodState::Busy)
        };
        // Table 6 moves a transition beside unknown time, too.
        if !snapshots {
            proptest::prop_assert_eq!(known(&lower), known(&higher));
            let recorded = exact(&rows, Criterion::default());
            proptest::prop_assert_eq!(known(&lower), known(&recorded));
            proptest::prop_assert!(lengths(&higher, PeriodState::Idle) >= lengths(&lower, PeriodState::Idle));
        }
        for timeline in [lower, higher] {
            let gapless = timeline.periods.windows(2).all(|pair| pair[0].end() == pair[1].start);
            proptest::prop_assert!(gapless, "{:?}", timeline.periods);
        }
    }
}
