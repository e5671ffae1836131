use super::*;
use gleaner_collector::timeline::{Period, PeriodState, Timeline};

/// A log of seconds, each state until the next begins.
fn log(states: &[(i64, PeriodState)], until: i64) -> Timeline {
    let ends = states.iter().skip(1).map(|(at, _)| *at).chain([until]);
    let periods = states.iter().zip(ends).map(|((at, state), end)| Period {
        state: *state,
        start: WallTime::from_unix_s(*at),
        duration: Duration::from_secs((end - at).unsigned_abs()),
        cause: None,
        slots: 0,
        load_1m: 0.0,
        margin: Duration::ZERO,
    });
    Timeline { periods: periods.collect(), ..Timeline::default() }
}

fn usage() -> Usage {
    use PeriodState::{Busy, Idle, Unknown};
    Usage::from_timelines([
        ("begins-late".to_owned(), log(&[(101, Idle)], 300)),
        ("a".to_owned(), log(&[(0, Idle), (90, Busy), (120, Idle), (150, Busy)], 300)),
        ("ends-early".to_owned(), log(&[(0, Busy), (120, Idle)], 199)),
        ("b".to_owned(), log(&[(0, Busy), (50, Idle), (110, Unknown), (115, Busy)], 200)),
        ("c".to_owned(), log(&[(0, Unknown), (30, Idle), (150, Busy), (160, Idle)], 230)),
        ("nothing".to_owned(), Timeline::default()),
    ])
}

fn selection(count: u32, order: Order) -> Selection {
    let start = WallTime::from_unix_s(100);
    Selection { start, span: Duration::from_secs(100), count, order }
}

#[test]
fn only_who_is_known_before_and_after_takes_part_in_the_order_read() {
    let lab = Lab::select(&usage(), &selection(3, Order::AsRead)).unwrap();
    assert_eq!(lab.chosen, [1, 3, 4]);
    let one = Lab::select(&usage(), &selection(1, Order::AsRead)).unwrap();
    assert_eq!(one.chosen, [1]);
    let error = Lab::select(&usage(), &selection(4, Order::AsRead)).unwrap_err();
    assert_eq!(error, SelectError { eligible: 3, wanted: 4 });
}

/// Its log has no word of going down: what was there was killed all the same.
#[test]
fn a_reboot_is_as_if_the_owner_had_come_for_a_moment() {
    use PeriodState::Idle;
    let usage = Usage::from_timelines([("a".to_owned(), log(&[(0, Idle), (130, Idle)], 300))]);
    let lab = Lab::select(&usage, &selection(1, Order::AsRead)).unwrap();
    let seen: Vec<_> = lab.transitions.iter().map(|one| (one.at, one.until, one.busy)).collect();
    let at = 30_000_000_000;
    assert_eq!(seen, [(at, at, true), (at, 200_000_000_000, false)]);
}

#[test]
fn a_seed_chooses_the_same_again() {
    let chosen = |seed| Lab::select(&usage(), &selection(2, Order::Shuffled { seed })).unwrap();
    assert_eq!(chosen(5), chosen(5));
    assert!((0..20).any(|seed| chosen(seed).chosen != [1, 3]));
}

#[test]
fn unknown_time_is_busy_and_the_end_of_the_log_ends_idleness() {
    let lab = Lab::select(&usage(), &selection(3, Order::AsRead)).unwrap();
    let s = |seconds: u64| seconds * 1_000_000_000;
    let start =
        |idle, since, until| WorkstationStart { idle, since, until, ..WorkstationStart::default() };
    assert_eq!(lab.starts[0], start(false, s(10), s(20)));
    assert_eq!(lab.starts[1], start(true, s(50), s(10)));
    assert_eq!(lab.starts[2], start(true, s(70), s(50)));
    let transition =
        |at, until, workstation, busy| Transition { at, until, workstation, busy, load_1m: 0.0 };
    assert_eq!(
        lab.transitions,
        [
            transition(s(10), NEVER, 1, true),
            transition(s(20), s(50), 0, false),
            transition(s(50), NEVER, 0, true),
            transition(s(50), s(60), 2, true),
            transition(s(60), s(130), 2, false),
        ]
    );
    assert_eq!(lab.busy_periods()[2], [(Duration::from_secs(50), Duration::from_secs(60))]);
}
