//! From a log's records to periods of idle, busy and unknown.
//!
//! Source: Phalen 1994, §5.1. `BOTH`, `TTY`, `LOAD` and `CHANGE` identify busy
//! periods, `IDLE` idle ones. Her records were snapshots every three minutes,
//! so she estimates when a transition happened (Table 6); our agents write
//! the moment itself, which needs no estimate.
//!
//! The promise: a stretch is called idle or busy only where the records on
//! both sides of it say so. What lies between `FINISH` and `START`, beside a
//! missing record, or before a `START` that no `FINISH` preceded is unknown.
//! Lengths come from the machine's own clock; a wall clock that was set is
//! reported and stretches nothing.

use std::fmt;
use std::time::Duration;

use gleaner_common::id::BootId;
use gleaner_common::time::{Spoken, WallTime};
use gleaner_common::usage::{Cause, UsageRecord};
use serde::Serialize;

use crate::rows::spoken_time;

/// A wall clock that moves less than this against the machine's own between
/// two records was disciplined, not set.
const CLOCK_STEP_MIN: Duration = Duration::from_secs(2);

/// How the times of records are to be understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpretation {
    /// A record carries the moment of its transition: our agents' logs.
    #[default]
    Exact,
    /// A record carries the time of the snapshot that showed the transition
    /// (Phalen 1994, Table 6): logs imported from rwho.
    Snapshots { every: Duration },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Idle,
    Busy,
    Unknown,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
        }
    }
}

/// A stretch in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub state: State,
    pub start: WallTime,
    pub duration: Duration,
    /// What began it; `None` if it began because nothing was known.
    pub cause: Option<Cause>,
    /// Cores free of the owner when it began.
    pub slots: u16,
    /// How far the start may be off either way.
    pub margin: Duration,
}

impl Period {
    pub fn end(&self) -> WallTime {
        let nanos = i64::try_from(self.duration.as_nanos()).unwrap_or(i64::MAX);
        WallTime(self.start.0.saturating_add(nanos))
    }
}

/// What was strange about a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The wall clock was set between two records.
    ClockSet { at: WallTime, by_ns: i64 },
    /// Records `after + 1` to `before - 1` of a boot are not in the log.
    Missing { at: WallTime, boot: BootId, after: u64, before: u64 },
    /// The workstation stopped without saying so.
    BrokeOff { at: WallTime },
    /// Two boots say something of the same time; the earlier one is believed.
    Overlap { at: WallTime, by: Duration },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockSet { at, by_ns } => {
                let way = if *by_ns < 0 { "back" } else { "forward" };
                let by = Spoken(Duration::from_nanos(by_ns.unsigned_abs()));
                write!(f, "{}: the wall clock was set {way} by {by}", spoken_time(*at))
            }
            Self::Missing { at, boot, after, before } => {
                let (at, missing) = (spoken_time(*at), before - after - 1);
                write!(
                    f,
                    "{at}: {missing} records are missing between {after} and {before} of boot {boot}"
                )
            }
            Self::BrokeOff { at } => {
                write!(f, "{}: records break off without a FINISH", spoken_time(*at))
            }
            Self::Overlap { at, by } => {
                write!(f, "{}: two boots overlap by {}", spoken_time(*at), Spoken(*by))
            }
        }
    }
}

/// A log, interpreted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// One after the other; neighbours differ in state.
    pub periods: Vec<Period>,
    /// The state after the last record, whose end is not known yet.
    pub open: Option<(State, WallTime)>,
    pub notes: Vec<Note>,
}

/// Interprets the records of one workstation, in whatever order they came.
pub fn interpret(mut records: Vec<UsageRecord>, interpretation: Interpretation) -> Timeline {
    records.sort_unstable_by(|a, b| (a.boot, a.sequence).cmp(&(b.boot, b.sequence)));
    records.dedup_by(|a, b| (a.boot, a.sequence) == (b.boot, b.sequence));
    let mut notes = vec![];
    let mut boots: Vec<Vec<Fact>> = records
        .chunk_by(|a, b| a.boot == b.boot)
        .map(|boot| on_one_clock(boot, &mut notes))
        .collect();
    boots.sort_by_key(|boot| boot.first().map(|fact| fact.at));
    let mut weaver = Weaver { timeline: Timeline { notes, ..Timeline::default() }, floor: None };
    for facts in &mut boots {
        if let Interpretation::Snapshots { every } = interpretation {
            *facts = estimate(facts, every);
        }
        weaver.add_boot(facts);
    }
    weaver.timeline.notes.sort_by_key(Note::at);
    weaver.timeline
}

impl Note {
    fn at(&self) -> WallTime {
        match self {
            Self::ClockSet { at, .. }
            | Self::Missing { at, .. }
            | Self::BrokeOff { at }
            | Self::Overlap { at, .. } => *at,
        }
    }
}

/// A record, on a wall clock that does not jump.
#[derive(Clone, Copy, Debug)]
struct Fact {
    at: WallTime,
    cause: Cause,
    slots: u16,
    input_idle: Option<Duration>,
    margin: Duration,
    /// Records before this one are not in the log.
    after_a_hole: bool,
    /// Until the next record, by the machine's own clock; zero for the last.
    lasted: Duration,
}

/// Puts the records of a boot on the wall clock as it was last set: a machine
/// often boots with a wrong clock and then learns the right time, so what
/// came before is moved to fit what came after.
fn on_one_clock(records: &[UsageRecord], notes: &mut Vec<Note>) -> Vec<Fact> {
    let mut shift_ns = 0_i64;
    let mut facts = vec![];
    let mut next: Option<&UsageRecord> = None;
    for (position, record) in records.iter().enumerate().rev() {
        let mut lasted = Duration::ZERO;
        if let Some(next) = next {
            // A record whose own clock runs backwards has only its wall clock.
            lasted =
                next.since_boot.checked_sub(record.since_boot).unwrap_or(next.at.since(record.at));
            let lasted_ns = i64::try_from(lasted.as_nanos()).unwrap_or(i64::MAX);
            let step_ns = next.at.0.saturating_sub(record.at.0).saturating_sub(lasted_ns);
            if Duration::from_nanos(step_ns.unsigned_abs()) >= CLOCK_STEP_MIN {
                notes.push(Note::ClockSet { at: next.at, by_ns: step_ns });
                shift_ns = shift_ns.saturating_add(step_ns);
            }
        }
        let before = position.checked_sub(1).map_or(0, |before| records[before].sequence);
        let at = WallTime(record.at.0.saturating_add(shift_ns));
        let after_a_hole = record.sequence != before.saturating_add(1);
        if after_a_hole {
            let (boot, before, after) = (record.boot, record.sequence, before);
            notes.push(Note::Missing { at, boot, after, before });
        }
        facts.push(Fact {
            at,
            cause: record.cause,
            slots: record.slots,
            input_idle: record.input_idle,
            margin: Duration::ZERO,
            after_a_hole,
            lasted,
        });
        next = Some(record);
    }
    facts.reverse();
    facts
}

/// Builds a timeline out of boots, in order.
struct Weaver {
    timeline: Timeline,
    /// Up to here another boot has spoken already.
    floor: Option<WallTime>,
}

impl Weaver {
    fn add_boot(&mut self, facts: &[Fact]) {
        let (Some(first), Some(last)) = (facts.first(), facts.last()) else { return };
        self.close_before(first.at);
        for pair in facts.windows(2) {
            let (fact, next) = (&pair[0], &pair[1]);
            let broke_off = next.cause == Cause::Start && fact.cause != Cause::Finish;
            if broke_off {
                self.timeline.notes.push(Note::BrokeOff { at: fact.at });
            }
            let known = !broke_off && !next.after_a_hole;
            self.push(Period {
                state: if known { state_of(fact.cause) } else { State::Unknown },
                start: fact.at,
                duration: fact.lasted,
                cause: known.then_some(fact.cause),
                slots: fact.slots,
                margin: fact.margin,
            });
        }
        let state = state_of(last.cause);
        self.timeline.open = Some((state, last.at));
    }

    /// What lies between the last record of the boots so far and the first of
    /// the next boot.
    fn close_before(&mut self, next: WallTime) {
        let Some((state, since)) = self.timeline.open.take() else { return };
        if state != State::Unknown {
            self.timeline.notes.push(Note::BrokeOff { at: since });
        }
        if next < since {
            self.timeline.notes.push(Note::Overlap { at: next, by: since.since(next) });
            self.floor = Some(since);
        } else {
            self.push(Period {
                state: State::Unknown,
                start: since,
                duration: next.since(since),
                cause: None,
                slots: 0,
                margin: Duration::ZERO,
            });
        }
    }

    fn push(&mut self, mut period: Period) {
        if let Some(floor) = self.floor.filter(|floor| period.start < *floor) {
            let told = floor.since(period.start);
            period.duration = period.duration.saturating_sub(told);
            period.start = floor;
        }
        if period.duration.is_zero() {
            return;
        }
        if period.state == State::Unknown {
            (period.cause, period.slots) = (None, 0);
        }
        match self.timeline.periods.last_mut() {
            Some(last) if last.state == period.state => last.duration += period.duration,
            _ => self.timeline.periods.push(period),
        }
    }
}

fn state_of(cause: Cause) -> State {
    match cause.says_busy() {
        Some(true) => State::Busy,
        Some(false) => State::Idle,
        None => State::Unknown,
    }
}

/// Moves the facts of three-minute snapshots to when they most likely
/// happened, each with its margin.
///
/// Source: Phalen 1994, §5.1, Table 6. Its "prev time" is that of the previous
/// record; but its margins of three minutes, and its reasons, hold only if
/// that is the previous *snapshot*, and records are written at changes only.
/// So prev is here the later of the previous record and `every` before the
/// current one. Its fourth row prints (curr - prev)/2, which is a length; like
/// the first row, we add the previous time.
fn estimate(facts: &[Fact], every: Duration) -> Vec<Fact> {
    let mut estimated: Vec<Fact> = vec![];
    let mut before: Option<&Fact> = None;
    for fact in facts {
        let prev = before.map_or(fact.at, |before| before.at.max(back(fact.at, every)));
        let gap = fact.at.since(prev);
        let idle = fact.input_idle.unwrap_or(Duration::MAX);
        let moved = |at: WallTime, margin| Fact { at, margin, ..*fact };
        match (before.map(|before| state_of(before.cause)), state_of(fact.cause)) {
            // First row: busy and idle again since the previous snapshot.
            (Some(State::Idle), State::Idle) if idle < gap => {
                let idle_at = back(fact.at, idle);
                let margin = idle_at.since(prev) / 2;
                let busy =
                    Fact { cause: Cause::Tty, slots: 0, ..moved(back(idle_at, margin), margin) };
                estimated.push(busy);
                estimated.push(moved(idle_at, Duration::ZERO));
            }
            // Third row: the last input ended it.
            (Some(State::Busy), State::Idle) if idle < gap => {
                estimated.push(moved(back(fact.at, idle), Duration::ZERO));
            }
            // Second row: whoever kept it busy has left since, or the load fell.
            (Some(State::Busy), State::Idle) => estimated.push(moved(fact.at, gap)),
            // Fourth row.
            (Some(State::Idle), State::Busy) => {
                estimated.push(moved(back(fact.at, gap / 2), gap / 2));
            }
            (None | Some(State::Unknown), _) | (_, State::Unknown) | (Some(_), _) => {
                estimated.push(*fact);
            }
        }
        before = Some(fact);
    }
    for place in 1..estimated.len() {
        estimated[place - 1].lasted = estimated[place].at.since(estimated[place - 1].at);
    }
    estimated
}

fn back(at: WallTime, by: Duration) -> WallTime {
    WallTime(at.0.saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::tests::record;

    const MINUTE: Duration = Duration::from_secs(60);

    fn log(records: &[(u64, Cause)]) -> Vec<UsageRecord> {
        (1..).zip(records).map(|(sequence, (s, cause))| record(sequence, *s, *cause)).collect()
    }

    fn exact(records: Vec<UsageRecord>) -> Timeline {
        interpret(records, Interpretation::Exact)
    }

    #[track_caller]
    fn check(timeline: &Timeline, expected: &[(State, u64)]) {
        let periods: Vec<_> =
            timeline.periods.iter().map(|p| (p.state, p.duration.as_secs())).collect();
        assert_eq!(periods, expected, "{:?}", timeline.notes);
    }

    use Cause::{Change, Finish, Idle, Load, Start, Tty};

    #[test]
    fn exact_transitions_are_taken_at_their_word() {
        let log =
            log(&[(0, Start), (1, Idle), (101, Tty), (111, Change), (161, Idle), (200, Finish)]);
        let timeline = exact(log);
        check(
            &timeline,
            &[(State::Unknown, 1), (State::Idle, 100), (State::Busy, 60), (State::Idle, 39)],
        );
        assert_eq!(timeline.periods[2].cause, Some(Tty));
        assert_eq!(timeline.notes, []);
        assert_eq!(timeline.open.map(|open| open.0), Some(State::Unknown));
    }

    #[test]
    fn the_end_of_the_last_period_is_not_known_yet() {
        let timeline = exact(log(&[(0, Start), (1, Idle)]));
        check(&timeline, &[(State::Unknown, 1)]);
        assert_eq!(timeline.open, Some((State::Idle, WallTime::from_unix_s(1_700_000_001))));
    }

    #[test]
    fn a_missing_record_makes_its_surroundings_unknown() {
        let mut log = log(&[(0, Start), (10, Idle), (20, Tty), (30, Idle), (40, Load)]);
        log.remove(2);
        let timeline = exact(log);
        check(&timeline, &[(State::Unknown, 30), (State::Idle, 10)]);
        assert!(matches!(timeline.notes[..], [Note::Missing { after: 2, before: 4, .. }]));
    }

    #[test]
    fn a_start_without_a_finish_says_nothing_of_what_came_before() {
        let timeline =
            exact(log(&[(0, Start), (10, Idle), (5_000, Start), (5_010, Idle), (5_020, Tty)]));
        check(&timeline, &[(State::Unknown, 5_010), (State::Idle, 10)]);
        assert!(matches!(timeline.notes[..], [Note::BrokeOff { .. }]));
    }

    #[test]
    fn a_clock_that_is_set_is_reported_and_stretches_nothing() {
        let mut log = log(&[(0, Start), (10, Idle), (100, Tty), (200, Idle)]);
        for late in &mut log[2..] {
            late.at = WallTime(late.at.0 + 3_600_000_000_000);
        }
        let timeline = exact(log);
        check(&timeline, &[(State::Unknown, 10), (State::Idle, 90), (State::Busy, 100)]);
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
        let mut other = log(&[(50, Start), (60, Idle), (300, Finish)]);
        other.iter_mut().for_each(|record| record.boot = BootId([9; 16]));
        let timeline = exact([log(&[(0, Start), (10, Idle), (100, Finish)]), other].concat());
        check(&timeline, &[(State::Unknown, 10), (State::Idle, 290)]);
        assert!(matches!(timeline.notes[..], [Note::Overlap { .. }]));
    }

    #[test]
    fn a_workstation_that_was_off_is_unknown() {
        let mut second = log(&[(1_000, Start), (1_001, Idle), (1_101, Tty)]);
        second.iter_mut().for_each(|record| record.boot = BootId([1; 16]));
        let timeline = exact([log(&[(0, Start), (10, Idle), (100, Finish)]), second].concat());
        check(
            &timeline,
            &[(State::Unknown, 10), (State::Idle, 90), (State::Unknown, 901), (State::Idle, 100)],
        );
    }

    fn snapshots(records: &[(u64, Cause, u64)]) -> Timeline {
        let records = (1..).zip(records).map(|(sequence, (s, cause, idle_min))| UsageRecord {
            input_idle: Some(MINUTE * u32::try_from(*idle_min).unwrap()),
            ..record(sequence, *s, *cause)
        });
        interpret(records.collect(), Interpretation::Snapshots { every: 3 * MINUTE })
    }

    /// Phalen 1994, Table 6, first row.
    #[test]
    fn a_visit_between_two_snapshots_is_found() {
        let timeline = snapshots(&[(0, Idle, 9), (180, Idle, 1), (360, Finish, 4)]);
        check(&timeline, &[(State::Idle, 60), (State::Busy, 60), (State::Idle, 240)]);
        assert_eq!(timeline.periods[1].margin, MINUTE);
        assert_eq!(timeline.periods[2].margin, Duration::ZERO);
    }

    /// Second row.
    #[test]
    fn a_user_who_logged_off_left_within_one_snapshot() {
        let timeline = snapshots(&[(0, Tty, 0), (180, Idle, 50), (360, Finish, 53)]);
        check(&timeline, &[(State::Busy, 180), (State::Idle, 180)]);
        assert_eq!(timeline.periods[1].margin, 3 * MINUTE);
    }

    /// Third row.
    #[test]
    fn the_last_input_ends_a_busy_period() {
        let timeline = snapshots(&[(0, Tty, 0), (180, Idle, 2), (360, Finish, 5)]);
        check(&timeline, &[(State::Busy, 60), (State::Idle, 300)]);
        assert_eq!(timeline.periods[1].margin, Duration::ZERO);
    }

    /// Fourth row; the previous record is long past, the previous snapshot not.
    #[test]
    fn a_busy_period_begins_halfway_between_two_snapshots() {
        let timeline = snapshots(&[(0, Idle, 9), (3_600, Load, 69), (3_780, Finish, 72)]);
        check(&timeline, &[(State::Idle, 3_510), (State::Busy, 270)]);
        assert_eq!(timeline.periods[1].margin, Duration::from_secs(90));
    }
}
