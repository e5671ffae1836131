//! Times of a local clock that is put forward and back.
//!
//! The promise: what a local time leaves open is told, and not decided here:
//! that is for who knows what came before. Knows nothing of rows.

use gleaner_common::plain::quoted;
use gleaner_common::time::WallTime;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::Serialize;

use crate::wall::is_leap_second;

/// Local times that are not one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LocalTimes {
    /// Times that came twice, because the clock was put back: taken for the first
    /// unless what stood before them was later.
    #[serde(rename = "times_twice")]
    pub twice: u64,
    /// Times that never came, because the clock was put forward over them: taken
    /// for the moment it was.
    #[serde(rename = "times_never")]
    pub never: u64,
}

impl LocalTimes {
    pub(super) fn count(&mut self, local: LocalMoment) {
        match local {
            LocalMoment::Once(_) => {}
            LocalMoment::Twice { .. } => self.twice += 1,
            LocalMoment::Never(_) => self.never += 1,
        }
    }
}

/// What a local time can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalMoment {
    Once(WallTime),
    /// The clock was put back: an hour came twice.
    Twice {
        first: WallTime,
        second: WallTime,
    },
    /// The clock was put forward over it, at this moment.
    Never(WallTime),
}

impl LocalMoment {
    /// The first moment that it can mean that is not before another one; the
    /// last that it can mean if all are.
    pub(super) fn from(self, earliest: WallTime) -> WallTime {
        match self {
            Self::Once(at) | Self::Never(at) => at,
            Self::Twice { first, second } => {
                if first < earliest {
                    second
                } else {
                    first
                }
            }
        }
    }
}

impl From<WallTime> for LocalMoment {
    fn from(at: WallTime) -> Self {
        Self::Once(at)
    }
}

/// Reads times of a local clock.
#[derive(Debug)]
pub(super) struct LocalClock {
    zone: TimeZone,
    /// The local hour last looked up, in hours from 1970, and its offset
    /// where the whole of it has one.
    known: Option<(i64, i64)>,
}

const HOUR_S: i64 = 3_600;
const NANOS_PER_S: i64 = 1_000_000_000;

impl LocalClock {
    pub(super) fn new(zone: Option<TimeZone>) -> Self {
        Self { zone: zone.unwrap_or(TimeZone::UTC), known: None }
    }

    /// Reads `2016-04-09 11:50:40.383`.
    pub(super) fn read(&mut self, text: &str) -> Result<LocalMoment, String> {
        let local = parse_local(text).ok_or_else(|| {
            let text = quoted(text);
            format!(
                "`{text}` is not a time: expected one such as \
                 2016-04-09 11:50:40.383, with no offset or zone"
            )
        })?;
        self.moment(local).ok_or_else(|| format!("`{}` is too far from now", quoted(text)))
    }

    /// `None` if it is centuries away.
    pub(super) fn moment(&mut self, local: DateTime) -> Option<LocalMoment> {
        let local_ns = local.to_zoned(TimeZone::UTC).ok()?.timestamp().as_nanosecond();
        let local_ns = i64::try_from(local_ns).ok()?;
        let utc = |offset_s: i64| local_ns.checked_sub(offset_s * NANOS_PER_S).map(WallTime);
        let hour = local_ns.div_euclid(HOUR_S * NANOS_PER_S);
        if let Some((known, offset_s)) = self.known
            && known == hour
        {
            return utc(offset_s).map(LocalMoment::Once);
        }
        let offset_s = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.seconds(),
            AmbiguousOffset::Fold { before, after } => {
                let (first, second) = (utc(before.seconds().into())?, utc(after.seconds().into())?);
                return Some(LocalMoment::Twice { first, second });
            }
            AmbiguousOffset::Gap { before, after } => {
                let change = self.put_forward(local_ns, before.seconds(), after.seconds());
                return Some(LocalMoment::Never(change));
            }
        };
        // Clocks change on the hour or the half: an hour whose two ends are
        // clear and agree has one offset.
        self.known = self.is_uniform(hour, offset_s).then_some((hour, offset_s.into()));
        utc(offset_s.into()).map(LocalMoment::Once)
    }

    /// Does a whole local hour have this offset?
    fn is_uniform(&self, hour: i64, offset_s: i32) -> bool {
        let quarter = |part: i64| {
            let at = jiff::Timestamp::from_second(hour * HOUR_S + part * 899).ok()?;
            let local = TimeZone::UTC.to_datetime(at);
            match self.zone.to_ambiguous_timestamp(local).offset() {
                AmbiguousOffset::Unambiguous { offset } => Some(offset.seconds()),
                AmbiguousOffset::Fold { .. } | AmbiguousOffset::Gap { .. } => None,
            }
        };
        (0..=4).all(|part| quarter(part) == Some(offset_s))
    }

    /// The moment at which the clock was put forward over a local time.
    fn put_forward(&self, local_ns: i64, before_s: i32, after_s: i32) -> WallTime {
        let utc_of = |offset_s: i32| local_ns.saturating_sub(i64::from(offset_s) * NANOS_PER_S);
        let earliest = i128::from(utc_of(before_s.max(after_s)));
        let change = jiff::Timestamp::from_nanosecond(earliest)
            .ok()
            .and_then(|at| self.zone.following(at).next())
            .and_then(|change| i64::try_from(change.timestamp().as_nanosecond()).ok());
        WallTime(change.unwrap_or(utc_of(before_s)))
    }
}

/// `2016-04-09 11:50:40.383`, with as many decimals as there are, and nothing
/// else: the parser reads over an offset and a zone.
fn parse_local(text: &str) -> Option<DateTime> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 19 && bytes[10] == b' ' && bytes[13] == b':' && bytes[16] == b':';
    let shaped = shaped && bytes[16..].iter().skip(1).all(|b| b.is_ascii_digit() || *b == b'.');
    (shaped && !is_leap_second(text)).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> LocalClock {
        LocalClock::new(Some(TimeZone::get("America/New_York").unwrap()))
    }

    /// What a time can mean, in UTC.
    #[track_caller]
    fn check(clock: &mut LocalClock, local: &str, utc: &[&str]) {
        let can_mean = match clock.read(local).unwrap() {
            LocalMoment::Once(at) => vec![at],
            LocalMoment::Twice { first, second } => vec![first, second],
            LocalMoment::Never(at) => vec![at, at],
        };
        let can_mean: Vec<_> = can_mean.into_iter().map(crate::wall::spoken_time).collect();
        assert_eq!(can_mean, utc, "{local}");
    }

    #[test]
    fn local_times_follow_the_zone_through_the_year() {
        let mut clock = clock();
        check(&mut clock, "2016-01-09 11:50:40.383", &["2016-01-09T16:50:40.383Z"]);
        check(&mut clock, "2016-01-09 11:59:59.999", &["2016-01-09T16:59:59.999Z"]);
        check(&mut clock, "2016-07-09 11:50:40", &["2016-07-09T15:50:40Z"]);
    }

    #[test]
    fn an_hour_that_came_twice_can_mean_either() {
        let mut clock = clock();
        check(&mut clock, "2016-11-06 00:59:59", &["2016-11-06T04:59:59Z"]);
        let first = ["2016-11-06T05:00:00Z", "2016-11-06T06:00:00Z"];
        check(&mut clock, "2016-11-06 01:00:00", &first);
        let last = ["2016-11-06T05:59:59Z", "2016-11-06T06:59:59Z"];
        check(&mut clock, "2016-11-06 01:59:59", &last);
        check(&mut clock, "2016-11-06 02:00:00", &["2016-11-06T07:00:00Z"]);
        let twice = clock.read("2016-11-06 01:30:00").unwrap();
        let LocalMoment::Twice { first, second } = twice else { panic!("{twice:?}") };
        assert_eq!((twice.from(first), twice.from(WallTime(first.0 + 1))), (first, second));
    }

    #[test]
    fn a_time_that_never_was_is_when_the_clock_was_put_forward() {
        let mut clock = clock();
        let change = "2016-03-13T07:00:00Z";
        check(&mut clock, "2016-03-13 01:59:59", &["2016-03-13T06:59:59Z"]);
        check(&mut clock, "2016-03-13 02:00:00", &[change, change]);
        check(&mut clock, "2016-03-13 02:59:59", &[change, change]);
        check(&mut clock, "2016-03-13 03:00:00", &[change]);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2016",
            "2016-04-09",
            "2016-04-09 11:50",
            "2016-04-31 11:50:40",
            "now",
            "2016-12-31 23:59:60",
        ] {
            assert!(clock().read(text).is_err(), "{text}");
        }
        for suffix in ["Z", "+05:00", "-11", "[America/New_York]", "-05:00[America/New_York]"] {
            for time in ["2016-04-09 11:50:40", "2016-04-09 11:50:40.383"] {
                let error = clock().read(&format!("{time}{suffix}")).unwrap_err();
                assert!(error.ends_with("with no offset or zone"), "{suffix}: {error}");
            }
        }
        assert!(clock().read("9999-12-31 23:59:59").unwrap_err().ends_with("too far from now"));
    }
}
