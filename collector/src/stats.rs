//! What the timelines of workstations come to: how long they stand idle, how
//! often their owners come and why, and at which hours.
//!
//! Knows nothing of files. Unknown time is counted as such and in nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, UsageRecord};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::archive::Span;
use crate::rows::spoken_time;
use crate::timeline::{Period, State, Timeline};

const DAY_S: u64 = 86_400;

/// The name of the row over all workstations.
pub const ALL: &str = "(all)";

/// Lengths of periods, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lengths {
    pub count: u64,
    pub mean_s: f64,
    pub p10_s: f64,
    pub median_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

impl Lengths {
    fn of(mut lengths: Vec<Duration>) -> Self {
        lengths.sort_unstable();
        let Some(max) = lengths.last() else { return Self::default() };
        // The smallest value that the given part of all does not exceed.
        let part = |percent: usize| {
            let rank = (lengths.len() * percent).div_ceil(100).max(1);
            lengths[rank - 1].as_secs_f64()
        };
        let sum: f64 = lengths.iter().map(Duration::as_secs_f64).sum();
        Self {
            count: lengths.len() as u64,
            mean_s: sum / lengths.len() as f64,
            p10_s: part(10),
            median_s: part(50),
            p90_s: part(90),
            p99_s: part(99),
            max_s: max.as_secs_f64(),
        }
    }
}

/// One workstation, or [`ALL`] of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatsRow {
    pub workstation: String,
    pub records: u64,
    /// The stretch that the periods cover.
    pub from: Option<String>,
    pub to: Option<String>,
    /// Machine-hours in each state.
    pub idle_h: f64,
    pub busy_h: f64,
    pub unknown_h: f64,
    /// Idle as a part of what is known; `None` if nothing is.
    pub idle_fraction: Option<f64>,
    /// Machine-hours that guests could have used: the idle ones, and those
    /// weighted by the cores that were free.
    pub harvestable_h: f64,
    pub harvestable_core_h: f64,
    pub idle: Lengths,
    pub busy: Lengths,
    /// Times an owner came (idle to busy), in all and per known day.
    pub returns: u64,
    pub returns_per_day: Option<f64>,
    /// Records of each cause.
    pub by_cause: BTreeMap<Cause, u64>,
    /// What was strange about the log, one line each.
    pub notes: Vec<String>,
}

/// One hour of the day, over all days and workstations asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HourRow {
    /// 0 to 23, local time.
    pub hour: u8,
    pub idle_h: f64,
    pub busy_h: f64,
    pub unknown_h: f64,
    pub idle_fraction: Option<f64>,
    pub returns: u64,
}

impl HourRow {
    fn add(&mut self, state: State, hours: f64) {
        match state {
            State::Idle => self.idle_h += hours,
            State::Busy => self.busy_h += hours,
            State::Unknown => self.unknown_h += hours,
        }
    }
}

/// Adds up timelines, one workstation at a time.
#[derive(Debug)]
pub struct Tally {
    span: Span,
    zone: TimeZone,
    rows: Vec<StatsRow>,
    hours: [HourRow; 24],
    all: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    records: u64,
    from: Option<WallTime>,
    to: Option<WallTime>,
    idle: Vec<Duration>,
    busy: Vec<Duration>,
    unknown: Duration,
    core_s: f64,
    returns: u64,
    by_cause: BTreeMap<Cause, u64>,
}

impl Tally {
    /// Only what lies in `span` is counted; hours are those of `zone`.
    pub fn new(span: Span, zone: TimeZone) -> Self {
        let mut hours = [HourRow::default(); 24];
        for (hour, row) in (0..).zip(&mut hours) {
            row.hour = hour;
        }
        Self { span, zone, rows: vec![], hours, all: Sums::default() }
    }

    pub fn count(&self, record: &UsageRecord, counted: &mut BTreeMap<Cause, u64>) {
        if self.span.contains(record.at) {
            *counted.entry(record.cause).or_default() += 1;
        }
    }

    /// Adds a workstation: the records counted for it, and its timeline.
    pub fn add(&mut self, workstation: &str, counted: BTreeMap<Cause, u64>, timeline: &Timeline) {
        let mut sums =
            Sums { records: counted.values().sum(), by_cause: counted, ..Sums::default() };
        let mut before = None;
        for period in &timeline.periods {
            if let Some(cut) = clip(period, self.span) {
                let returned = before == Some(State::Idle)
                    && cut.state == State::Busy
                    && cut.start == period.start;
                sums.add(&cut, returned);
                self.add_hours(&cut, returned);
            }
            before = Some(period.state);
        }
        let notes = timeline.notes.iter().map(ToString::to_string).collect();
        self.all.take_in(&sums);
        self.rows.push(sums.into_row(workstation, notes));
    }

    fn add_hours(&mut self, period: &Period, returned: bool) {
        let (mut at, end) = (period.start, period.end());
        let (first_hour, _) = hour_of(at, &self.zone);
        self.hours[usize::from(first_hour)].returns += u64::from(returned);
        // Whole days give each hour the same, so a month is no more work than
        // a minute; only the hour by which a clock changes in summer is off.
        let days = end.since(at).as_secs() / DAY_S;
        for row in &mut self.hours {
            row.add(period.state, days as f64);
        }
        at = Period { duration: Duration::from_secs(days * DAY_S), ..*period }.end();
        while at < end {
            let (hour, next) = hour_of(at, &self.zone);
            let until = next.min(end);
            let hours = until.since(at).as_secs_f64() / 3_600.0;
            self.hours[usize::from(hour)].add(period.state, hours);
            at = until;
        }
    }

    /// A row for each workstation in the order they were added, then one over
    /// all if there are several; and a row for each hour of the day.
    pub fn finish(mut self) -> (Vec<StatsRow>, Vec<HourRow>) {
        if self.rows.len() > 1 {
            self.rows.push(self.all.into_row(ALL, vec![]));
        }
        for row in &mut self.hours {
            let known = row.idle_h + row.busy_h;
            row.idle_fraction = (known > 0.0).then(|| row.idle_h / known);
        }
        (self.rows, self.hours.to_vec())
    }
}

impl Sums {
    fn add(&mut self, period: &Period, returned: bool) {
        self.from = self.from.into_iter().chain([period.start]).min();
        self.to = self.to.into_iter().chain([period.end()]).max();
        self.returns += u64::from(returned);
        match period.state {
            State::Idle => {
                self.idle.push(period.duration);
                self.core_s += period.duration.as_secs_f64() * f64::from(period.slots);
            }
            State::Busy => self.busy.push(period.duration),
            State::Unknown => self.unknown += period.duration,
        }
    }

    fn take_in(&mut self, other: &Self) {
        self.records += other.records;
        self.from = self.from.into_iter().chain(other.from).min();
        self.to = self.to.into_iter().chain(other.to).max();
        self.idle.extend(&other.idle);
        self.busy.extend(&other.busy);
        self.unknown += other.unknown;
        self.core_s += other.core_s;
        self.returns += other.returns;
        for (cause, count) in &other.by_cause {
            *self.by_cause.entry(*cause).or_default() += count;
        }
    }

    fn into_row(self, workstation: &str, notes: Vec<String>) -> StatsRow {
        let hours = |span: Duration| span.as_secs_f64() / 3_600.0;
        let idle_h = hours(self.idle.iter().sum());
        let busy_h = hours(self.busy.iter().sum());
        let known_h = idle_h + busy_h;
        StatsRow {
            workstation: workstation.to_owned(),
            records: self.records,
            from: self.from.map(spoken_time),
            to: self.to.map(spoken_time),
            idle_h,
            busy_h,
            unknown_h: hours(self.unknown),
            idle_fraction: (known_h > 0.0).then(|| idle_h / known_h),
            harvestable_h: idle_h,
            harvestable_core_h: self.core_s / 3_600.0,
            idle: Lengths::of(self.idle),
            busy: Lengths::of(self.busy),
            returns: self.returns,
            returns_per_day: (known_h > 0.0).then(|| self.returns as f64 / (known_h / 24.0)),
            by_cause: self.by_cause,
            notes,
        }
    }
}

/// The part of a period that lies in a span.
pub fn clip(period: &Period, span: Span) -> Option<Period> {
    let start = span.from.map_or(period.start, |from| from.max(period.start));
    let end = span.to.map_or(period.end(), |to| to.min(period.end()));
    (start < end).then(|| Period { start, duration: end.since(start), ..*period })
}

/// The local hour of a moment, and when the next one begins.
fn hour_of(at: WallTime, zone: &TimeZone) -> (u8, WallTime) {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let moment = Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or(Timestamp::UNIX_EPOCH);
    let offset_ns = i64::from(zone.to_offset(moment).seconds()) * 1_000_000_000;
    let local = at.0.saturating_add(offset_ns);
    let hour = local.div_euclid(HOUR_NS).rem_euclid(24);
    let next = at.0.saturating_add(HOUR_NS - local.rem_euclid(HOUR_NS));
    (u8::try_from(hour).unwrap_or_else(|_| unreachable!("below 24")), WallTime(next))
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::BootId;
    use proptest::prelude::*;

    use super::*;
    use crate::segment::tests::record;
    use crate::timeline::{Interpretation, interpret};

    fn tally(records: &[(u64, Cause)], span: Span) -> (StatsRow, Vec<HourRow>) {
        let mut tally = Tally::new(span, TimeZone::UTC);
        let records: Vec<_> =
            (1..).zip(records).map(|(sequence, (s, cause))| record(sequence, *s, *cause)).collect();
        let mut counted = BTreeMap::new();
        for record in &records {
            tally.count(record, &mut counted);
        }
        tally.add("ada", counted, &interpret(records, Interpretation::Exact));
        let (mut rows, hours) = tally.finish();
        (rows.remove(0), hours)
    }

    /// An hour idle, half an hour busy, an hour idle.
    const DAY: [(u64, Cause); 5] = [
        (0, Cause::Start),
        (0, Cause::Idle),
        (3_600, Cause::Tty),
        (5_400, Cause::Idle),
        (9_000, Cause::Finish),
    ];

    #[test]
    fn hours_and_lengths_add_up() {
        let (row, hours) = tally(&DAY, Span::default());
        assert_eq!((row.idle_h, row.busy_h, row.unknown_h), (2.0, 0.5, 0.0));
        assert_eq!(row.idle_fraction, Some(0.8));
        assert!((row.harvestable_core_h - 4.0).abs() < 1e-9);
        assert_eq!((row.idle.count, row.idle.mean_s, row.idle.median_s), (2, 3_600.0, 3_600.0));
        assert_eq!((row.returns, row.busy.max_s), (1, 1_800.0));
        assert_eq!(row.by_cause[&Cause::Idle], 2);
        let total: f64 = hours.iter().map(|hour| hour.idle_h + hour.busy_h).sum();
        assert!((total - 2.5).abs() < 1e-9);
        // 1,700,000,000 is 22:13:20 UTC: the owner came at 23:13:20.
        assert_eq!(hours[23].returns, 1);
    }

    #[test]
    fn only_what_lies_in_the_span_is_counted() {
        let from = WallTime::from_unix_s(1_700_000_000 + 4_500);
        let span = Span { from: Some(from), to: Some(WallTime(from.0 + 1_800_000_000_000)) };
        let (row, _) = tally(&DAY, span);
        assert_eq!((row.idle_h, row.busy_h, row.returns), (0.25, 0.25, 0));
        assert_eq!(row.records, 1);
    }

    #[test]
    fn a_long_period_gives_every_hour_its_share() {
        let (row, hours) =
            tally(&[(0, Cause::Idle), (10 * DAY_S + 3_600, Cause::Tty)], Span::default());
        assert!((row.idle_h - 241.0).abs() < 1e-9);
        assert!(hours.iter().all(|hour| hour.idle_h >= 10.0));
        let total: f64 = hours.iter().map(|hour| hour.idle_h).sum();
        assert!((total - 241.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_comes_to_nothing() {
        let (row, _) = tally(&[], Span::default());
        assert_eq!(row, StatsRow { workstation: "ada".into(), ..StatsRow::default() });
    }

    proptest! {
        /// Whatever agents write, adding it up neither fails nor takes long.
        #[test]
        fn no_records_are_too_strange_to_add_up(
            numbers in proptest::collection::vec((any::<u8>(), any::<u64>(), any::<i64>(), any::<u64>(), 0usize..7), 0..20),
            snapshots in any::<bool>(),
        ) {
            let records = numbers.into_iter().map(|(boot, sequence, at, since_boot, cause)| UsageRecord {
                boot: BootId([boot % 3; 16]),
                sequence: if sequence % 2 == 0 { sequence } else { sequence % 16 },
                at: WallTime(at),
                since_boot: Duration::new(since_boot, 999_999_999),
                input_idle: Some(Duration::from_secs(since_boot)),
                ..record(1, 1, Cause::ALL[cause])
            });
            let every = Duration::from_secs(180);
            let interpretation =
                if snapshots { Interpretation::Snapshots { every } } else { Interpretation::Exact };
            let timeline = interpret(records, interpretation);
            for note in &timeline.notes {
                prop_assert!(!note.to_string().is_empty());
            }
            let mut tally = Tally::new(Span::default(), TimeZone::UTC);
            tally.add("ada", BTreeMap::new(), &timeline);
            let (rows, _) = tally.finish();
            prop_assert!(rows[0].idle_h >= 0.0 && rows[0].unknown_h >= 0.0);
        }
    }

    #[test]
    fn a_zone_with_half_hours_has_its_own_hours() {
        let zone = TimeZone::fixed(jiff::tz::Offset::from_seconds(19_800).unwrap());
        let (hour, next) = hour_of(WallTime::from_unix_s(1_700_000_000), &zone);
        assert_eq!((hour, next), (3, WallTime::from_unix_s(1_700_001_000)));
    }
}
