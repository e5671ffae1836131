use super::*;
use gleaner_collector_core::samples::record;

const MINUTE: Duration = Duration::from_secs(60);

fn log(records: &[(u64, Cause)]) -> Vec<UsageRecord> {
    (1..).zip(records).map(|(sequence, (s, cause))| record(sequence, *s, *cause)).collect()
}

fn of_boot(boot: u8, records: &[(u64, Cause)]) -> Vec<UsageRecord> {
    let boot = BootId([boot; 16]);
    log(records).into_iter().map(|record| UsageRecord { boot, ..record }).collect()
}

fn exact(records: Vec<UsageRecord>) -> Timeline {
    interpret(records, Interpretation::Exact)
}

#[track_caller]
fn check(timeline: &Timeline, expected: &[(PeriodState, u64)]) {
    let periods: Vec<_> =
        timeline.periods.iter().map(|p| (p.state, p.duration.as_secs())).collect();
    assert_eq!(periods, expected, "{:?}", timeline.notes);
}

use Cause::{Change, Finish, Idle, Load, Start, Tty};

#[test]
fn exact_transitions_are_taken_at_their_word() {
    let log = log(&[(0, Start), (1, Idle), (101, Tty), (111, Change), (161, Idle), (200, Finish)]);
    let timeline = exact(log);
    check(
        &timeline,
        &[
            (PeriodState::Unknown, 1),
            (PeriodState::Idle, 100),
            (PeriodState::Busy, 60),
            (PeriodState::Idle, 39),
        ],
    );
    assert_eq!(timeline.periods[2].cause, Some(Tty));
    assert_eq!(timeline.notes, []);
    assert_eq!(timeline.open.map(|open| open.0), Some(PeriodState::Unknown));
}

#[test]
fn a_period_has_the_load_of_the_record_that_began_it() {
    let mut log =
        log(&[(0, Start), (1, Idle), (101, Load), (111, Change), (161, Idle), (200, Finish)]);
    for (record, load) in log.iter_mut().zip([9.0, 0.1, 0.5, 2.0, 0.2, 9.0]) {
        record.load.one = load;
    }
    let loads: Vec<f32> = exact(log).periods.iter().map(|period| period.load_1m).collect();
    assert_eq!(loads, [0.0, 0.1, 0.5, 0.2]);
}

#[test]
fn the_end_of_the_last_period_is_not_known_yet() {
    let timeline = exact(log(&[(0, Start), (1, Idle)]));
    check(&timeline, &[(PeriodState::Unknown, 1)]);
    assert_eq!(timeline.open, Some((PeriodState::Idle, WallTime::from_unix_s(1_700_000_001))));
}

#[test]
fn a_missing_record_makes_its_surroundings_unknown() {
    let mut log = log(&[(0, Start), (10, Idle), (20, Tty), (30, Idle), (40, Load)]);
    log.remove(2);
    let timeline = exact(log);
    check(&timeline, &[(PeriodState::Unknown, 30), (PeriodState::Idle, 10)]);
    assert!(matches!(timeline.notes[..], [Note::Missing { after: 2, before: 4, .. }]));
}

#[test]
fn a_start_without_a_finish_says_nothing_of_what_came_before() {
    let timeline =
        exact(log(&[(0, Start), (10, Idle), (5_000, Start), (5_010, Idle), (5_020, Tty)]));
    check(&timeline, &[(PeriodState::Unknown, 5_010), (PeriodState::Idle, 10)]);
    assert!(matches!(timeline.notes[..], [Note::BrokeOff { .. }]));
}

#[test]
fn a_clock_that_is_set_is_reported_and_stretches_nothing() {
    let mut log = log(&[(0, Start), (10, Idle), (100, Tty), (200, Idle)]);
    for late in &mut log[2..] {
        late.at = WallTime(late.at.0 + 3_600_000_000_000);
    }
    let timeline = exact(log);
    check(
        &timeline,
        &[(PeriodState::Unknown, 10), (PeriodState::Idle, 90), (PeriodState::Busy, 100)],
    );
    let [Note::ClockSet { by_ns, .. }] = timeline.notes[..] else { panic!("{timeline:?}") };
    assert_eq!(by_ns, 3_600_000_000_000);
    assert_eq!(timeline.periods[1].end(), timeline.periods[2].start);
}

#[test]
fn order_of_arrival_and_repetition_do_not_matter() {
    let log = log(&[(0, Start), (10, Idle), (100, Tty), (200, Idle), (300, Finish)]);
    let mut shuffled = log.clone();
    shuffled.reverse();
    shuffled.extend(log.clone());
    assert_eq!(exact(shuffled), exact(log));
}

#[test]
fn overlapping_boots_are_reported_and_counted_once() {
    let other = of_boot(9, &[(50, Start), (60, Idle), (300, Finish)]);
    let timeline = exact([log(&[(0, Start), (10, Idle), (100, Finish)]), other].concat());
    check(&timeline, &[(PeriodState::Unknown, 10), (PeriodState::Idle, 290)]);
    assert!(matches!(timeline.notes[..], [Note::Overlap { .. }]));
}

#[test]
fn a_workstation_that_was_off_is_unknown() {
    let second = of_boot(1, &[(1_000, Start), (1_001, Idle), (1_101, Tty)]);
    let timeline = exact([log(&[(0, Start), (10, Idle), (100, Finish)]), second].concat());
    check(
        &timeline,
        &[
            (PeriodState::Unknown, 10),
            (PeriodState::Idle, 90),
            (PeriodState::Unknown, 901),
            (PeriodState::Idle, 100),
        ],
    );
}

fn snapshots(records: &[(u64, Cause, u64)]) -> Timeline {
    interpreted(Interpretation::Snapshots { every: 3 * MINUTE }, records)
}

fn interpreted(interpretation: Interpretation, records: &[(u64, Cause, u64)]) -> Timeline {
    let records = (1..).zip(records).map(|(sequence, (s, cause, idle_min))| UsageRecord {
        input_idle: Some(MINUTE * u32::try_from(*idle_min).unwrap()),
        ..record(sequence, *s, *cause)
    });
    interpret(records, interpretation)
}

/// Phalen 1994, Table 6, first row.
#[test]
fn table_6_row_1_a_visit_between_two_snapshots_is_found() {
    let timeline = snapshots(&[(0, Idle, 9), (180, Idle, 1), (360, Finish, 4)]);
    check(&timeline, &[(PeriodState::Idle, 60), (PeriodState::Busy, 60), (PeriodState::Idle, 240)]);
    assert_eq!(timeline.periods[1].margin, MINUTE);
    assert_eq!(timeline.periods[2].margin, Duration::ZERO);
}

#[test]
fn each_boot_is_taken_as_it_was_recorded() {
    let transitions = [(0, Idle), (3_600, Load), (3_780, Finish)];
    let of = |boot: BootId| {
        let records = log(&transitions).into_iter().map(|record| UsageRecord { boot, ..record });
        interpret(records, Interpretation::AsTaken)
    };
    let ada = gleaner_collector_core::samples::name("ada");
    let start = WallTime::from_unix_s(1_700_000_000);
    check(
        &of(Origin::Rwho.boot(&ada, start)),
        &[(PeriodState::Idle, 3_510), (PeriodState::Busy, 270)],
    );
    check(
        &of(Origin::Csv.boot(&ada, start)),
        &[(PeriodState::Idle, 3_600), (PeriodState::Busy, 180)],
    );
    check(&of(BootId([7; 16])), &[(PeriodState::Idle, 3_600), (PeriodState::Busy, 180)]);
}

#[test]
fn interpretations_are_read_by_name() {
    let every = |s| Interpretation::Snapshots { every: Duration::from_secs(s) };
    assert_eq!("exact".parse(), Ok(Interpretation::Exact));
    assert_eq!("as-taken".parse(), Ok(Interpretation::default()));
    assert_eq!("snapshots".parse(), Ok(every(180)));
    assert_eq!("snapshots:5min".parse(), Ok(every(300)));
    for text in ["exact", "as-taken", "snapshots:3m", "previous-record"] {
        assert_eq!(text.parse::<Interpretation>().unwrap().to_string(), text);
    }
    for text in ["", "guess", "snapshots:", "snapshots:5", "exact:5min"] {
        assert!(text.parse::<Interpretation>().is_err(), "{text}");
    }
}

/// Second row.
#[test]
fn table_6_row_2_a_user_who_logged_off_left_within_one_snapshot() {
    let timeline = snapshots(&[(0, Tty, 0), (180, Idle, 50), (360, Finish, 53)]);
    check(&timeline, &[(PeriodState::Busy, 180), (PeriodState::Idle, 180)]);
    assert_eq!(timeline.periods[1].margin, 3 * MINUTE);
}

/// Third row.
#[test]
fn table_6_row_3_the_last_input_ends_a_busy_period() {
    let timeline = snapshots(&[(0, Tty, 0), (180, Idle, 2), (360, Finish, 5)]);
    check(&timeline, &[(PeriodState::Busy, 60), (PeriodState::Idle, 300)]);
    assert_eq!(timeline.periods[1].margin, Duration::ZERO);
}

/// Fourth row; the previous record is long past, the previous snapshot not.
#[test]
fn table_6_row_4_a_busy_period_begins_halfway_between_two_snapshots() {
    let timeline = snapshots(&[(0, Idle, 9), (3_600, Load, 69), (3_780, Finish, 72)]);
    check(&timeline, &[(PeriodState::Idle, 3_510), (PeriodState::Busy, 270)]);
    assert_eq!(timeline.periods[1].margin, Duration::from_secs(90));
}

/// The footnote's "previous transition record", to the letter.
#[test]
fn table_6_by_its_footnote_begins_a_busy_period_halfway_since_the_previous_record() {
    let by_footnote = |records| interpreted(Interpretation::PreviousRecord, records);
    let row_4 = by_footnote(&[(0, Idle, 9), (3_600, Load, 69), (3_780, Finish, 72)]);
    check(&row_4, &[(PeriodState::Idle, 1_800), (PeriodState::Busy, 1_980)]);
    let row_1 = by_footnote(&[(0, Idle, 9), (3_600, Idle, 10), (3_780, Finish, 13)]);
    check(
        &row_1,
        &[(PeriodState::Idle, 1_500), (PeriodState::Busy, 1_500), (PeriodState::Idle, 780)],
    );
    let row_3 = by_footnote(&[(0, Load, 9), (3_600, Idle, 10), (3_780, Finish, 13)]);
    check(&row_3, &[(PeriodState::Busy, 3_000), (PeriodState::Idle, 780)]);
}

/// Row 1 prints a margin of "at most 1 minute", for an idle duration of "at
/// least 1 minute".
#[test]
fn table_6_row_1_has_its_largest_margin_at_the_shortest_idle_time() {
    for (idle_min, margin_s) in [(1, 60), (2, 30)] {
        let timeline = snapshots(&[(0, Idle, 9), (180, Idle, idle_min), (360, Finish, 9)]);
        assert_eq!(timeline.periods[1].margin, Duration::from_secs(margin_s));
    }
}

/// Rows 2 and 3 leave out idle = curr - prev: we take it for row 2.
#[test]
fn table_6_between_rows_2_and_3_the_later_end_is_taken() {
    let timeline = snapshots(&[(0, Tty, 0), (180, Idle, 3), (360, Finish, 6)]);
    check(&timeline, &[(PeriodState::Busy, 180), (PeriodState::Idle, 180)]);
    assert_eq!(timeline.periods[1].margin, 3 * MINUTE);
}

/// The fifth sequence that the text counts is no transition: busy goes on.
#[test]
fn table_6_has_no_row_for_busy_after_busy() {
    let timeline = snapshots(&[(0, Tty, 0), (180, Change, 3), (360, Idle, 6), (540, Finish, 9)]);
    check(&timeline, &[(PeriodState::Busy, 360), (PeriodState::Idle, 180)]);
}
