//! What the timelines of workstations come to: how long they stand idle, how
//! often their owners come and why, and at which hours.
//!
//! Knows nothing of files. Unknown time is counted as such and in nothing else.
//!
//! [`Lengths`] are of the periods as they lie in the log, those that unknown
//! time cut off among them, so they tell what was to be had. How long a period
//! lasts is another question: its answer is a survival curve, which takes a
//! period that was cut off for one that lasted *at least* so long
//! ([`crate::survival`]).

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::usage::Cause;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::archive::Span;
use crate::survival::{Lasted, Survival, lasted};
use crate::timeline::{Period, PeriodState, Timeline};
use crate::wall::spoken_time;
use crate::week::{Calendar, HOURS};

const WEEK_S: u64 = 7 * 86_400;

/// Lengths at which survival curves are printed, in seconds: from a pause to
/// a vacation.
const LENGTHS_S: [u64; 17] = [
    10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 86_400, 172_800,
    345_600, 604_800,
];

const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

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
    /// From idle to busy and from busy to idle.
    pub transitions: u64,
    pub transitions_per_day: Option<f64>,
    /// Records of each cause.
    pub by_cause: BTreeMap<Cause, u64>,
    /// What was strange about the log, one line each.
    pub notes: Vec<String>,
}

/// How workstations spend a stretch of the day or the week, over all that were
/// asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Hours {
    pub idle_h: f64,
    pub busy_h: f64,
    pub unknown_h: f64,
    pub idle_fraction: Option<f64>,
    pub returns: u64,
}

impl Hours {
    fn add(&mut self, state: PeriodState, hours: f64) {
        match state {
            PeriodState::Idle => self.idle_h += hours,
            PeriodState::Busy => self.busy_h += hours,
            PeriodState::Unknown => self.unknown_h += hours,
        }
    }

    /// Some stretches in one.
    fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for part in parts {
            sum.idle_h += part.idle_h;
            sum.busy_h += part.busy_h;
            sum.unknown_h += part.unknown_h;
            sum.returns += part.returns;
        }
        let known = sum.idle_h + sum.busy_h;
        sum.idle_fraction = (known > 0.0).then(|| sum.idle_h / known);
        sum
    }
}

/// One hour of the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HourRow {
    /// 0 to 23, local time.
    pub hour: u8,
    #[serde(flatten)]
    pub hours: Hours,
}

/// One day of the week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DayRow {
    pub day: &'static str,
    #[serde(flatten)]
    pub hours: Hours,
}

/// One hour of the week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WeekRow {
    pub day: &'static str,
    pub hour: u8,
    #[serde(flatten)]
    pub hours: Hours,
}

/// The periods that began for one cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseRow {
    pub state: PeriodState,
    pub cause: Cause,
    pub hours: f64,
    #[serde(flatten)]
    pub lengths: Lengths,
}

/// A survival curve at one length (Kaplan and Meier 1958).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SurvivalRow {
    pub state: PeriodState,
    pub longer_than_s: f64,
    /// The part of periods that lasts longer, and where the true part lies,
    /// with 95 of 100.
    pub part: f64,
    pub low: f64,
    pub high: f64,
    /// What holds of the whole curve: its periods, those whose end was not seen, and the
    /// length that half of them outlast.
    pub periods: u64,
    pub cut_off: u64,
    pub median_s: Option<f64>,
}

/// What logs come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// One for each workstation, then one over all if there are several.
    pub workstations: Vec<StatsRow>,
    /// 24 rows, 7 and 168.
    pub hours: Vec<HourRow>,
    pub days: Vec<DayRow>,
    pub week: Vec<WeekRow>,
    pub causes: Vec<CauseRow>,
    pub survival: Vec<SurvivalRow>,
    /// What is damaged in the logs or left open by them, one line each.
    pub notes: Vec<String>,
}

/// Adds up timelines, one workstation at a time.
#[derive(Debug)]
pub struct Tally {
    span: Span,
    calendar: Calendar,
    rows: Vec<StatsRow>,
    week: [Hours; HOURS],
    all: StatsSums,
    by_cause: BTreeMap<(PeriodState, Cause), Vec<Duration>>,
    idle: Vec<Lasted>,
    busy: Vec<Lasted>,
}

#[derive(Debug, Default)]
struct StatsSums {
    records: u64,
    from: Option<WallTime>,
    to: Option<WallTime>,
    idle: Vec<Duration>,
    busy: Vec<Duration>,
    unknown: Duration,
    core_s: f64,
    returns: u64,
    transitions: u64,
    by_cause: BTreeMap<Cause, u64>,
}

impl Tally {
    /// Only what lies in `span` is counted; hours are those of `zone`.
    pub fn new(span: Span, zone: &TimeZone) -> Self {
        Self {
            span,
            calendar: Calendar::new(zone),
            rows: vec![],
            week: [Hours::default(); HOURS],
            all: StatsSums::default(),
            by_cause: BTreeMap::new(),
            idle: vec![],
            busy: vec![],
        }
    }

    /// Adds a workstation: the records of each cause, and its timeline.
    pub fn add(&mut self, workstation: &str, counted: BTreeMap<Cause, u64>, timeline: &Timeline) {
        let mut sums = StatsSums {
            records: counted.values().sum(),
            by_cause: counted,
            ..StatsSums::default()
        };
        let mut before = None;
        for period in &timeline.periods {
            if let Some(cut) = clip(period, self.span) {
                let came = (cut.start == period.start).then_some(()).and(before);
                let came = came.map(|before| (before, cut.state));
                let returned = came == Some((PeriodState::Idle, PeriodState::Busy));
                sums.add(&cut);
                sums.returns += u64::from(returned);
                let left = came == Some((PeriodState::Busy, PeriodState::Idle));
                sums.transitions += u64::from(returned || left);
                self.add_hours(&cut, returned);
                if let Some(cause) = cut.cause {
                    self.by_cause.entry((cut.state, cause)).or_default().push(cut.duration);
                }
            }
            before = Some(period.state);
        }
        self.idle.extend(lasted([timeline], PeriodState::Idle, self.span));
        self.busy.extend(lasted([timeline], PeriodState::Busy, self.span));
        let mut notes: Vec<String> = timeline.notes.iter().map(ToString::to_string).collect();
        notes.extend(timeline.unsure.note());
        self.all.take_in(&sums);
        self.rows.push(sums.into_row(workstation, notes));
    }

    fn add_hours(&mut self, period: &Period, returned: bool) {
        let (mut at, end) = (period.start, period.end());
        let (first_hour, _) = self.calendar.hour(at);
        self.week[first_hour].returns += u64::from(returned);
        // Whole weeks give each hour the same, so a year is no more work than
        // a minute; only the hour by which a clock changes in summer is off.
        let weeks = end.since(at).as_secs() / WEEK_S;
        if weeks > 0 {
            for hours in &mut self.week {
                hours.add(period.state, weeks as f64);
            }
        }
        at = Period { duration: Duration::from_secs(weeks * WEEK_S), ..*period }.end();
        while at < end {
            let (hour, next) = self.calendar.hour(at);
            let until = next.min(end);
            let hours = until.since(at).as_secs_f64() / 3_600.0;
            self.week[hour].add(period.state, hours);
            at = until;
        }
    }

    pub fn finish(mut self) -> Stats {
        if self.rows.len() > 1 {
            self.rows.push(self.all.into_row(ALL, vec![]));
        }
        let week = &self.week;
        let every_day = |hour: usize| Hours::sum((0..7).map(|day| &week[day * 24 + hour]));
        let whole_day = |day: usize| Hours::sum(&week[day * 24..][..24]);
        let hour_of_week = |(place, hour): (u8, usize)| WeekRow {
            day: WEEKDAYS[hour / 24],
            hour: place % 24,
            hours: Hours::sum([&week[hour]]),
        };
        let mut causes: Vec<CauseRow> = vec![];
        for ((state, cause), lengths) in self.by_cause {
            let hours = lengths.iter().sum::<Duration>().as_secs_f64() / 3_600.0;
            causes.push(CauseRow { state, cause, hours, lengths: Lengths::of(lengths) });
        }
        let curves = [(PeriodState::Idle, self.idle), (PeriodState::Busy, self.busy)];
        Stats {
            workstations: self.rows,
            hours: (0..24)
                .zip(0..)
                .map(|(hour, place)| HourRow { hour, hours: every_day(place) })
                .collect(),
            days: WEEKDAYS
                .into_iter()
                .zip(0..)
                .map(|(day, place)| DayRow { day, hours: whole_day(place) })
                .collect(),
            week: (0..168).zip(0..).map(hour_of_week).collect(),
            causes,
            survival: curves.into_iter().flat_map(|(state, ends)| survival(state, ends)).collect(),
            notes: vec![],
        }
    }
}

/// A curve at [`LENGTHS_S`], as far as there is one.
fn survival(state: PeriodState, ends: Vec<Lasted>) -> Vec<SurvivalRow> {
    let curve = Survival::of(ends);
    let (periods, cut_off, median_s) = (curve.periods, curve.cut_off, curve.median_s);
    let Some(last) = curve.points.last() else { return vec![] };
    let row = |length: &u64| {
        let longer_than_s = *length as f64;
        let falls = curve.points.partition_point(|point| point.length_s <= longer_than_s);
        let point = falls.checked_sub(1).map(|place| curve.points[place]);
        let (part, low, high) = point.map_or((1.0, 1.0, 1.0), |p| (p.part, p.low, p.high));
        SurvivalRow { state, longer_than_s, part, low, high, periods, cut_off, median_s }
    };
    LENGTHS_S.iter().filter(|length| **length as f64 <= last.length_s).map(row).collect()
}

impl StatsSums {
    fn add(&mut self, period: &Period) {
        self.from = self.from.into_iter().chain([period.start]).min();
        self.to = self.to.into_iter().chain([period.end()]).max();
        match period.state {
            PeriodState::Idle => {
                self.idle.push(period.duration);
                self.core_s += period.duration.as_secs_f64() * f64::from(period.slots);
            }
            PeriodState::Busy => self.busy.push(period.duration),
            PeriodState::Unknown => self.unknown += period.duration,
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
        self.transitions += other.transitions;
        for (cause, count) in &other.by_cause {
            *self.by_cause.entry(*cause).or_default() += count;
        }
    }

    fn into_row(self, workstation: &str, notes: Vec<String>) -> StatsRow {
        let hours = |span: Duration| span.as_secs_f64() / 3_600.0;
        let idle_h = hours(self.idle.iter().sum());
        let busy_h = hours(self.busy.iter().sum());
        let known_h = idle_h + busy_h;
        let per_day = |many: u64| (known_h > 0.0).then(|| many as f64 / (known_h / 24.0));
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
            returns_per_day: per_day(self.returns),
            transitions: self.transitions,
            transitions_per_day: per_day(self.transitions),
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

#[cfg(test)]
mod tests {
    use gleaner_common::id::BootId;
    use gleaner_common::usage::UsageRecord;
    use proptest::prelude::*;

    use super::*;
    use crate::timeline::{Interpretation, interpret};
    use gleaner_collector_core::samples::record;

    fn stats(records: &[(u64, Cause)], span: Span) -> Stats {
        let mut tally = Tally::new(span, &TimeZone::UTC);
        let records: Vec<_> =
            (1..).zip(records).map(|(sequence, (s, cause))| record(sequence, *s, *cause)).collect();
        let mut counted = BTreeMap::new();
        for record in records.iter().filter(|record| span.contains(record.at)) {
            *counted.entry(record.cause).or_default() += 1;
        }
        tally.add("ada", counted, &interpret(records, Interpretation::Exact));
        tally.finish()
    }

    fn tally(records: &[(u64, Cause)], span: Span) -> (StatsRow, Vec<Hours>) {
        let mut stats = stats(records, span);
        (stats.workstations.remove(0), stats.hours.iter().map(|row| row.hours).collect())
    }

    #[test]
    fn days_hours_and_the_week_are_the_same_time() {
        let stats = stats(&DAY, Span::default());
        let sum = |hours: Vec<Hours>| Hours::sum(&hours);
        let days = sum(stats.days.iter().map(|row| row.hours).collect());
        let hours = sum(stats.hours.iter().map(|row| row.hours).collect());
        let week = sum(stats.week.iter().map(|row| row.hours).collect());
        for all in [days, hours, week] {
            assert!((all.idle_h - 2.0).abs() < 1e-9 && (all.busy_h - 0.5).abs() < 1e-9, "{all:?}");
            assert_eq!(all.returns, 1);
        }
        // 14 November 2023 was a Tuesday.
        assert!(stats.days[1].hours.returns == 1 && stats.days[1].day == "tuesday");
        assert!(stats.week[47].hours.returns == 1 && stats.week[47].hour == 23);
    }

    #[test]
    fn periods_are_told_by_what_began_them_and_by_how_long_they_last() {
        let stats = stats(&DAY, Span::default());
        let causes: Vec<_> =
            stats.causes.iter().map(|row| (row.state, row.cause, row.lengths.count)).collect();
        assert_eq!(
            causes,
            [(PeriodState::Idle, Cause::Idle, 2), (PeriodState::Busy, Cause::Tty, 1)]
        );
        assert_eq!((stats.workstations[0].transitions, stats.workstations[0].returns), (2, 1));
        // The first period has no beginning, the last no end: one busy one.
        let busy: Vec<_> = stats.survival.iter().filter(|r| r.state == PeriodState::Busy).collect();
        assert_eq!((busy[0].periods, busy[0].cut_off, busy[0].median_s), (1, 0, Some(1_800.0)));
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
            tally(&[(0, Cause::Idle), (10 * 86_400 + 3_600, Cause::Tty)], Span::default());
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
            let mut tally = Tally::new(Span::default(), &TimeZone::UTC);
            tally.add("ada", BTreeMap::new(), &timeline);
            let rows = tally.finish().workstations;
            prop_assert!(rows[0].idle_h >= 0.0 && rows[0].unknown_h >= 0.0);
        }
    }
}
