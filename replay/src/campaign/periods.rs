//! Which periods of a usage log a campaign looks at.
//!
//! Phalen 1994, §6.2: "They covered two different days from nine weeks spanning
//! from October to January. The days were selected with the intent of providing
//! equal coverage of the different days of the week." Her periods are an hour
//! long ("between 10:00 and 11:00 a.m."). Which weeks, days and hours she took
//! is not printed; here they are drawn with a seed, evenly over the weeks, the
//! days of the week and the hours of the day.

use std::time::Duration;

use gleaner_common::time::WallTime;
use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

const HOURS: i8 = 24;
const WEEKDAYS: usize = 7;

/// A stretch of days, and which hours of them to take.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeriodChoice {
    pub from: Date,
    /// The last day.
    pub to: Date,
    /// Whose midnight a day begins with: `UTC`, `America/New_York`.
    #[serde(default = "utc")]
    pub zone: String,
    /// Only so many weeks of the stretch, evenly spaced.
    pub weeks: Option<u32>,
    /// Only so many days of each week, the days of the week in turn.
    pub days_per_week: Option<u32>,
    /// How long a period is. By the rule of Phalen 1994, §5.1, a workstation
    /// takes part if it has a transition before the period and one after it;
    /// an execution that has not ended by then is given up, and counted. Her
    /// segments are an hour; ours go on, so that slow executions end too.
    #[serde(default = "six_hours", with = "gleaner_common::units::duration")]
    pub length: Duration,
}

fn utc() -> String {
    "UTC".to_owned()
}

fn six_hours() -> Duration {
    Duration::from_secs(6 * 3_600)
}

/// Why there are no such periods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    #[error("no time zone is called `{0}` here: expected such as UTC or America/New_York")]
    NoZone(String),
    #[error("[periods] ends on {to}, before it begins on {from}")]
    Backwards { from: Date, to: Date },
    #[error("[periods] holds {whole} whole weeks from Monday to Sunday: fewer than {wanted}")]
    TooFewWeeks { whole: usize, wanted: u32 },
    #[error("{0} days of each week: expected 1 to 7")]
    DaysPerWeek(u32),
    #[error("[periods] have no length: expected such as 6h")]
    NoLength,
}

gleaner_common::named! {
    /// The four times of day of Phalen 1994, §7.3.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum TimeOfDay {
        /// Midnight to 6 a.m.
        Night = "night",
        /// 6 a.m. to noon.
        Morning = "morning",
        /// Noon to 6 p.m.
        Afternoon = "afternoon",
        /// 6 p.m. to midnight.
        Evening = "evening",
    }
}

impl TimeOfDay {
    pub(crate) fn of_hour(hour: i8) -> Self {
        match hour {
            ..6 => Self::Night,
            6..12 => Self::Morning,
            12..18 => Self::Afternoon,
            18.. => Self::Evening,
        }
    }
}

/// One period: when it starts, and what hour of the week that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeriodStart {
    pub(crate) at: WallTime,
    /// The hour of the day, on the owners' clock.
    pub(crate) hour: i8,
    /// The day of the week, from 0 for Monday.
    pub(crate) weekday: i8,
}

impl PeriodStart {
    pub(crate) fn time_of_day(self) -> TimeOfDay {
        TimeOfDay::of_hour(self.hour)
    }
}

impl PeriodChoice {
    /// Every period that may be taken, in the order in which they are: after
    /// any number of them the hours of the day are covered as evenly as that
    /// number allows.
    ///
    /// # Errors
    /// A stretch that is empty, too short, or on an unknown clock.
    pub(crate) fn candidates(&self, seed: u64) -> Result<Vec<PeriodStart>, PeriodError> {
        if self.length.is_zero() {
            return Err(PeriodError::NoLength);
        }
        let zone = self.time_zone()?;
        let days = self.days()?;
        let mut rng = StdRng::seed_from_u64(seed);
        // For each hour of the day, the days in an order of its own.
        let mut by_hour: Vec<_> = (0..HOURS)
            .map(|_| {
                let mut days = days.clone();
                days.shuffle(&mut rng);
                days.into_iter()
            })
            .collect();
        let mut starts = Vec::with_capacity(days.len() * by_hour.len());
        for round in 0..days.len() {
            for hour in hours_of_round(round) {
                let day = by_hour[usize::try_from(hour).unwrap_or(0)].next();
                starts.extend(day.and_then(|day| start(day, hour, &zone)));
            }
        }
        Ok(starts)
    }

    /// The owners' clock.
    ///
    /// # Errors
    /// A zone that this machine does not know.
    pub(crate) fn time_zone(&self) -> Result<TimeZone, PeriodError> {
        zone(&self.zone)
    }

    fn days(&self) -> Result<Vec<Date>, PeriodError> {
        if self.to < self.from {
            return Err(PeriodError::Backwards { from: self.from, to: self.to });
        }
        let all = self.from.series(1.day()).take_while(|day| *day <= self.to);
        let per_week = self.days_per_week.unwrap_or(7);
        if !(1..=7).contains(&per_week) {
            return Err(PeriodError::DaysPerWeek(per_week));
        }
        if self.weeks.is_none() && per_week == 7 {
            return Ok(all.collect());
        }
        let mondays: Vec<Date> = all
            .filter(|day| day.weekday() == jiff::civil::Weekday::Monday)
            .filter(|monday| monday.checked_add(6.days()).is_ok_and(|last| last <= self.to))
            .collect();
        let wanted = self.weeks.map_or(mondays.len(), |weeks| weeks as usize);
        if wanted == 0 || wanted > mondays.len() {
            let (whole, wanted) = (mondays.len(), self.weeks.unwrap_or(1));
            return Err(PeriodError::TooFewWeeks { whole, wanted });
        }
        Ok(days_of_weeks(&mondays, wanted, per_week as usize))
    }
}

/// A clock by its name.
///
/// # Errors
/// One that this machine does not know.
pub(crate) fn zone(name: &str) -> Result<TimeZone, PeriodError> {
    if name == "UTC" {
        // Also where the machine knows no zones at all.
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| PeriodError::NoZone(name.to_owned()))
}

/// Evenly spaced weeks, and in each the next days of the week in steps of
/// three: 7 is prime, so every day of the week comes equally often.
fn days_of_weeks(mondays: &[Date], wanted: usize, per_week: usize) -> Vec<Date> {
    let mut days = vec![];
    for week in 0..wanted {
        let monday = mondays[(2 * week + 1) * mondays.len() / (2 * wanted)];
        let mut offsets: Vec<usize> =
            (0..per_week).map(|day| (week * per_week + day) * 3 % WEEKDAYS).collect();
        offsets.sort_unstable();
        for offset in offsets {
            let offset = i64::try_from(offset).unwrap_or(0);
            days.extend(monday.checked_add(offset.days()).ok());
        }
    }
    days
}

/// All hours of the day, the four times of day in turn.
fn hours_of_round(round: usize) -> impl Iterator<Item = i8> {
    let turn = i8::try_from(round % 24).unwrap_or(0);
    (0..HOURS).map(move |place| {
        let place = (place + turn) % HOURS;
        place % 4 * 6 + place / 4
    })
}

/// `None` at the end of time.
fn start(day: Date, hour: i8, zone: &TimeZone) -> Option<PeriodStart> {
    let zoned = day.at(hour, 0, 0, 0).to_zoned(zone.clone()).ok()?;
    let at = WallTime(i64::try_from(zoned.timestamp().as_nanosecond()).ok()?);
    Some(PeriodStart { at, hour, weekday: day.weekday().to_monday_zero_offset() })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn phalen() -> PeriodChoice {
        PeriodChoice {
            from: jiff::civil::date(1993, 10, 4),
            to: jiff::civil::date(1994, 1, 30),
            zone: utc(),
            weeks: Some(9),
            days_per_week: Some(2),
            length: six_hours(),
        }
    }

    #[test]
    fn two_days_of_nine_weeks_are_432_different_hours() {
        let starts = phalen().candidates(1).unwrap();
        assert_eq!(starts.len(), 432);
        assert_eq!(starts.iter().map(|start| start.at).collect::<BTreeSet<_>>().len(), 432);
    }

    #[test]
    fn the_days_of_the_week_are_covered_evenly() {
        let mut seen = BTreeMap::<i8, u32>::new();
        for day in phalen().days().unwrap() {
            *seen.entry(day.weekday().to_monday_zero_offset()).or_default() += 1;
        }
        assert_eq!(seen.len(), 7);
        assert!(seen.values().all(|days| (2..=3).contains(days)), "{seen:?}");
    }

    #[test]
    fn any_number_of_periods_covers_the_times_of_day_evenly() {
        let starts = phalen().candidates(1994).unwrap();
        for many in [4, 100, 300, 350, 400] {
            let mut seen = BTreeMap::<TimeOfDay, usize>::new();
            for start in &starts[..many] {
                *seen.entry(start.time_of_day()).or_default() += 1;
            }
            let spread = seen.values().max().unwrap() - seen.values().min().unwrap();
            assert!(seen.len() == 4 && spread <= 1, "{many}: {seen:?}");
        }
    }

    #[test]
    fn another_seed_takes_other_periods_and_the_same_seed_the_same() {
        let first = |seed| phalen().candidates(seed).unwrap()[..50].to_vec();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn every_day_is_taken_where_no_weeks_are_asked_for() {
        let choice = PeriodChoice { weeks: None, days_per_week: None, ..phalen() };
        assert_eq!(choice.candidates(1).unwrap().len(), 119 * 24);
    }

    #[test]
    fn a_stretch_that_cannot_be_had_is_refused() {
        let (from, to) = (phalen().from, phalen().to);
        for (choice, expected) in [
            (
                PeriodChoice { from: to, to: from, ..phalen() },
                PeriodError::Backwards { from: to, to: from },
            ),
            (
                PeriodChoice { weeks: Some(40), ..phalen() },
                PeriodError::TooFewWeeks { whole: 17, wanted: 40 },
            ),
            (PeriodChoice { days_per_week: Some(8), ..phalen() }, PeriodError::DaysPerWeek(8)),
            (
                PeriodChoice { zone: "Mars".to_owned(), ..phalen() },
                PeriodError::NoZone("Mars".to_owned()),
            ),
        ] {
            assert_eq!(choice.candidates(1), Err(expected));
        }
    }
}
