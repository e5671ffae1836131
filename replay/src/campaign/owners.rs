//! What a usage log says of its owners as a whole: how much idle time there
//! is, in which hours of the week, and in pieces of what length.

use gleaner_common::time::WallTime;
use jiff::{Timestamp, ToSpan};

use super::periods::PeriodChoice;
use crate::Usage;
use crate::results::manifest::{IDLE_LENGTHS_MIN, OwnerFacts};

const HOUR_NS: i64 = 3_600_000_000_000;
const HOURS_OF_WEEK: usize = 168;

/// Adds up a log over the days that a campaign's periods are from.
///
/// Time that the log says nothing of is unknown, if it lies before a
/// workstation's first record or after its last, and busy otherwise.
pub(crate) fn facts(usage: &Usage, choice: &PeriodChoice) -> OwnerFacts {
    let Some(week) = WeekHours::new(choice) else { return OwnerFacts::default() };
    let mut sums = OwnerSums::new();
    for workstation in 0..usage.workstations() {
        let past = usage.past(workstation);
        let mut from = week.from;
        for (place, at) in past.changes.iter().enumerate() {
            let state = if place == 0 {
                OwnerState::Unknown
            } else if past.is_idle_after(place - 1) {
                OwnerState::Idle { length: at - past.changes[place - 1] }
            } else {
                OwnerState::Busy
            };
            from = sums.add(&week, from, *at, state);
        }
        if let Some(last) = past.changes.len().checked_sub(1) {
            let state = if past.is_idle_after(last) {
                OwnerState::Idle { length: past.known_until - past.changes[last] }
            } else {
                OwnerState::Busy
            };
            from = sums.add(&week, from, past.known_until, state);
        }
        sums.add(&week, from, week.to, OwnerState::Unknown);
    }
    sums.facts(usage, &week)
}

/// The hours of a stretch of days, and what hour of the week each is.
struct WeekHours {
    from: i64,
    to: i64,
    /// By the calendar: a day on which the clock changes has 23 or 25 hours.
    days: u32,
    hours: Vec<u8>,
}

impl WeekHours {
    fn new(choice: &PeriodChoice) -> Option<Self> {
        let zone = choice.time_zone().ok()?;
        let midnight = |day: jiff::civil::Date| {
            let zoned = day.at(0, 0, 0, 0).to_zoned(zone.clone()).ok()?;
            i64::try_from(zoned.timestamp().as_nanosecond()).ok()
        };
        let from = midnight(choice.from)?;
        let to = midnight(choice.to.checked_add(1.day()).ok()?)?;
        let many = usize::try_from((to - from).div_euclid(HOUR_NS)).ok()?;
        let hour = |place: usize| {
            let at = from.saturating_add(HOUR_NS.saturating_mul(i64::try_from(place).ok()?));
            let at = Timestamp::from_nanosecond(at.into()).ok()?.to_zoned(zone.clone());
            let day = u8::try_from(at.weekday().to_monday_zero_offset()).ok()?;
            Some(day * 24 + u8::try_from(at.hour()).ok()?)
        };
        let hours: Option<Vec<u8>> = (0..many).map(hour).collect();
        let days = choice.from.until(choice.to).ok()?.get_days() + 1;
        Some(Self { from, to, days: u32::try_from(days).ok()?, hours: hours? })
    }
}

#[derive(Clone, Copy)]
enum OwnerState {
    Idle { length: i64 },
    Busy,
    Unknown,
}

struct OwnerSums {
    idle: [i64; HOURS_OF_WEEK],
    busy: [i64; HOURS_OF_WEEK],
    unknown: [i64; HOURS_OF_WEEK],
    by_length: [i64; IDLE_LENGTHS_MIN.len() + 1],
    idle_periods: u64,
}

impl OwnerSums {
    fn new() -> Self {
        let none = [0; HOURS_OF_WEEK];
        let by_length = [0; IDLE_LENGTHS_MIN.len() + 1];
        Self { idle: none, busy: none, unknown: none, by_length, idle_periods: 0 }
    }

    /// Adds what lies between; gives where to go on.
    fn add(&mut self, week: &WeekHours, from: i64, to: i64, state: OwnerState) -> i64 {
        let to = to.min(week.to);
        if to <= from {
            return from;
        }
        if let OwnerState::Idle { length } = state {
            let minutes = u64::try_from(length / 60_000_000_000).unwrap_or(0);
            let class = IDLE_LENGTHS_MIN.iter().filter(|most| minutes >= **most).count();
            self.by_length[class] += to - from;
            self.idle_periods += 1;
        }
        let sums = match state {
            OwnerState::Idle { .. } => &mut self.idle,
            OwnerState::Busy => &mut self.busy,
            OwnerState::Unknown => &mut self.unknown,
        };
        let mut at = from;
        while at < to {
            let place = (at - week.from) / HOUR_NS;
            let end = (week.from + (place + 1) * HOUR_NS).min(to);
            let hour = usize::try_from(place).ok().and_then(|place| week.hours.get(place));
            if let Some(hour) = hour {
                sums[usize::from(*hour)] += end - at;
            }
            at = end;
        }
        to
    }

    fn facts(&self, usage: &Usage, week: &WeekHours) -> OwnerFacts {
        let seconds = |sums: &[i64]| -> Vec<u64> {
            sums.iter().map(|sum| sum.unsigned_abs() / 1_000_000_000).collect()
        };
        OwnerFacts {
            workstations: u32::try_from(usage.workstations()).unwrap_or(u32::MAX),
            days: week.days,
            idle_s: seconds(&self.idle),
            busy_s: seconds(&self.busy),
            unknown_s: seconds(&self.unknown),
            idle_s_by_length: seconds(&self.by_length),
            idle_periods: self.idle_periods,
        }
    }
}

/// The stretch of days as moments.
pub(crate) fn span(choice: &PeriodChoice) -> Option<(WallTime, WallTime)> {
    let week = WeekHours::new(choice)?;
    Some((WallTime(week.from), WallTime(week.to)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::civil::date;

    use super::*;

    /// The clocks of New York were put forward on 13 March 2016 and back on 6
    /// November.
    #[test]
    fn a_day_on_which_the_clock_changes_is_a_day() {
        for (from, to, days) in [
            (date(2016, 3, 7), date(2016, 3, 20), 14),
            (date(2016, 11, 6), date(2016, 11, 6), 1),
            (date(2016, 1, 4), date(2016, 10, 30), 301),
        ] {
            let choice = PeriodChoice {
                from,
                to,
                zone: "America/New_York".to_owned(),
                weeks: None,
                days_per_week: None,
                length: Duration::from_secs(3_600),
            };
            assert_eq!(facts(&Usage::from_timelines([]), &choice).days, days, "{from} to {to}");
        }
    }
}
