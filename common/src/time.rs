//! Time: a core's own, and the wall's.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment of a core: nanoseconds from an epoch that its shell supplies.
///
/// Live shells count `CLOCK_BOOTTIME`, which goes on while a workstation
/// sleeps, so that a lease ends on time whether or not anybody was awake.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Saturates: a moment that far away never comes.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A moment of the wall clock: nanoseconds since 1970-01-01 00:00 UTC.
///
/// It may jump; only logs and people use it, never a lease.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallTime(pub i64);

impl WallTime {
    pub fn from_unix_s(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    pub fn unix_s(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(if self > earlier { self.0.abs_diff(earlier.0) } else { 0 })
    }
}

/// A span as a person would say it: `0.4 s`, `12 s`, `3 min`, `2 h 5 min`.
#[derive(Clone, Copy, Debug)]
pub struct Spoken(pub Duration);

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0.as_secs();
        match s {
            0..10 => write!(f, "{:.1} s", self.0.as_secs_f64()),
            10..120 => write!(f, "{s} s"),
            120..7_200 => write!(f, "{} min", s / 60),
            7_200..172_800 if s % 3_600 < 60 => write!(f, "{} h", s / 3_600),
            7_200..172_800 => write!(f, "{} h {} min", s / 3_600, s % 3_600 / 60),
            _ => write!(f, "{} d {} h", s / 86_400, s % 86_400 / 3_600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_saturate_at_both_ends() {
        assert_eq!(Moment::MAX + Duration::from_secs(1), Moment::MAX);
        assert_eq!(Moment(5) - Duration::from_secs(1), Moment::ZERO);
        assert_eq!(Moment(5).since(Moment(9)), Duration::ZERO);
    }

    #[test]
    fn from_the_first_moment_of_the_wall_clock_to_its_last_is_no_less_than_that() {
        let (first, last) = (WallTime(i64::MIN), WallTime(i64::MAX));
        assert_eq!(last.since(first), Duration::from_nanos(u64::MAX));
        assert_eq!(first.since(last), Duration::ZERO);
    }

    #[test]
    fn spans_are_spoken_in_the_unit_that_fits() {
        for (s, text) in [
            (2.04, "2.0 s"),
            (59.0, "59 s"),
            (180.0, "3 min"),
            (7_200.0, "2 h"),
            (7_500.0, "2 h 5 min"),
            (180_000.0, "2 d 2 h"),
        ] {
            assert_eq!(Spoken(Duration::from_secs_f64(s)).to_string(), text);
        }
    }
}
