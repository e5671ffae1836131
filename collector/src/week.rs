//! The hours of a week, and where a moment lies among them.

use gleaner_common::time::WallTime;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;
pub(crate) const HOURS: usize = 168;

/// A number for each hour of the week, local time, 24 for each day from
/// midnight on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Week {
    pub monday: [f64; 24],
    pub tuesday: [f64; 24],
    pub wednesday: [f64; 24],
    pub thursday: [f64; 24],
    pub friday: [f64; 24],
    pub saturday: [f64; 24],
    pub sunday: [f64; 24],
}

impl Week {
    pub fn from_days(days: [[f64; 24]; 7]) -> Self {
        let [monday, tuesday, wednesday, thursday, friday, saturday, sunday] = days;
        Self { monday, tuesday, wednesday, thursday, friday, saturday, sunday }
    }

    pub(crate) fn days(&self) -> [&[f64; 24]; 7] {
        let Self { monday, tuesday, wednesday, thursday, friday, saturday, sunday } = self;
        [monday, tuesday, wednesday, thursday, friday, saturday, sunday]
    }

    /// The same in every hour.
    pub(crate) fn even(value: f64) -> Self {
        Self::from_days([[value; 24]; 7])
    }

    /// Hour by hour from Monday's midnight on.
    pub(crate) fn hours(&self) -> [f64; HOURS] {
        let mut hours = [0.0; HOURS];
        for (place, value) in self.days().into_iter().flatten().enumerate() {
            hours[place] = *value;
        }
        hours
    }

    pub(crate) fn from_hours(hours: &[f64; HOURS]) -> Self {
        let mut days = [[0.0; 24]; 7];
        for (place, value) in hours.iter().enumerate() {
            days[place / 24][place % 24] = *value;
        }
        Self::from_days(days)
    }
}

/// Where moments lie in the weeks of a zone.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    zone: TimeZone,
}

impl Calendar {
    pub(crate) fn new(zone: &TimeZone) -> Self {
        Self { zone: zone.clone() }
    }

    /// The local time since Monday's midnight.
    pub(crate) fn week_ns(&self, at: WallTime) -> i64 {
        let moment = Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or(Timestamp::UNIX_EPOCH);
        let offset = i64::from(self.zone.to_offset(moment).seconds()) * 1_000_000_000;
        // 1 January 1970 was a Thursday.
        at.0.saturating_add(offset).saturating_add(3 * 24 * HOUR_NS).rem_euclid(168 * HOUR_NS)
    }

    /// The hour of the week, and when the next one begins.
    pub(crate) fn hour(&self, at: WallTime) -> (usize, WallTime) {
        let into = self.week_ns(at);
        let hour = usize::try_from(into / HOUR_NS).unwrap_or_else(|_| unreachable!("below 168"));
        (hour, WallTime(at.0.saturating_add(HOUR_NS - into % HOUR_NS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_begins_on_monday_at_local_midnight() {
        let at = |text: &str| {
            WallTime(i64::try_from(text.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap())
        };
        let utc = Calendar::new(&TimeZone::UTC);
        assert_eq!(utc.hour(at("2026-01-05T00:00:00Z")), (0, at("2026-01-05T01:00:00Z")));
        assert_eq!(utc.hour(at("2026-01-04T23:59:59Z")).0, 167);
        let india = TimeZone::fixed(jiff::tz::Offset::from_seconds(19_800).unwrap());
        let india = Calendar::new(&india);
        assert_eq!(india.hour(at("2026-01-04T19:00:00Z")), (0, at("2026-01-04T19:30:00Z")));
    }

    #[test]
    fn days_and_hours_are_the_same_numbers() {
        let mut hours = [0.0; HOURS];
        for (place, hour) in hours.iter_mut().enumerate() {
            *hour = place as f64;
        }
        let week = Week::from_hours(&hours);
        assert_eq!((week.monday[5], week.sunday[23]), (5.0, 167.0));
        assert!(week.hours().iter().zip(hours).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}
