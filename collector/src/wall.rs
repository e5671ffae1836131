//! Wall times in words, and from them; and where they are read.

use std::ffi::OsStr;
use std::fs;

use gleaner_common::time::WallTime;
use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;

/// Clocks differ from UTC by less (RFC 3339, §5.6).
const OFFSET_S_MAX: i32 = 86_400 - 1;

/// No file that describes a zone has a hundredth of it.
const ZONE_BYTES_MAX: u64 = 1 << 20;

/// A wall time as RFC 3339 in UTC: `2026-01-05T09:03:00.25Z`.
pub fn spoken_time(at: WallTime) -> String {
    Timestamp::from_nanosecond(i128::from(at.0))
        .unwrap_or_else(|_| unreachable!("64-bit nanoseconds are within jiff's years"))
        .to_string()
}

/// A time with its offset from UTC, as RFC 3339 has it; `None` if it is none, lies
/// centuries away or in a leap second, if it names a zone, which may say otherwise, or if
/// its offset is a day or more.
pub fn read_time(text: &str) -> Option<WallTime> {
    let pieces = Pieces::parse(text).ok()?;
    let offset = pieces.to_numeric_offset()?;
    if offset.seconds().abs() > OFFSET_S_MAX || is_leap_second(text) || text.contains('[') {
        return None;
    }
    let at: Timestamp = text.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok().map(WallTime)
}

/// Does a time say `:60`? The parser takes that for `:59`, which may put it before what
/// happened earlier.
pub fn is_leap_second(text: &str) -> bool {
    let clock = text.split_once(['T', 't', ' ']).map_or(text, |(_, clock)| clock);
    let digits = clock.bytes().filter(|byte| *byte != b':').take_while(u8::is_ascii_digit);
    digits.skip(4).take(2).eq(*b"60")
}

/// This machine's zone, or the one that `TZ` names. `TZ` may also name a file; one that
/// has no end, or that nobody writes to, is not read: then it is UTC, as where there is
/// no such zone.
pub fn system_zone() -> TimeZone {
    if std::env::var_os("TZ").is_some_and(|named| !is_readable(&named)) {
        return TimeZone::UTC;
    }
    TimeZone::system()
}

fn is_readable(named: &OsStr) -> bool {
    let file = named.to_str().map_or(named, |text| OsStr::new(text.trim_start_matches(':')));
    // What is not there is a name, and a directory cannot be read.
    fs::metadata(file).map_or(true, |it| it.is_dir() || it.is_file() && it.len() <= ZONE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_cannot_be_meant_is_none() {
        let second = |text: &str| read_time(text).map(|at| at.0 / 1_000_000_000);
        assert_eq!(second("1970-01-02T00:00:00+23:59"), Some(60));
        assert_eq!(second("1970-01-01t00:00:59.5z"), Some(59));
        assert_eq!(second("19700101T010000+0100"), Some(0));
        for text in [
            "2026-01-05T09:00:00+25:00",
            "2026-01-05T09:00:00-24:00",
            "2016-12-31T23:59:60Z",
            "2016-12-31 23:59:60.5+00:00",
            "20161231T235960Z",
            "2016-12-31T23:59:59",
            "2026-01-05T09:00:00Z[America/New_York]",
            "9999-12-31T23:59:59Z",
            "60",
        ] {
            assert_eq!(read_time(text), None, "{text}");
        }
    }

    /// A zone that never ended took all memory there is.
    #[test]
    fn no_zone_is_read_from_what_has_no_end() {
        for (named, readable) in
            [("/dev/zero", false), (":/dev/zero", false), ("Europe/Berlin", true), ("/", true)]
        {
            assert_eq!(is_readable(OsStr::new(named)), readable, "{named}");
        }
        let large = tempfile::NamedTempFile::new().unwrap();
        large.as_file().set_len(1 << 40).unwrap();
        assert!(!is_readable(large.path().as_os_str()));
    }
}
