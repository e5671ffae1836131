//! Wall times in words.

use gleaner_common::time::WallTime;
use jiff::Timestamp;

/// A wall time as RFC 3339 in UTC: `2026-01-05T09:03:00.25Z`.
pub fn spoken_time(at: WallTime) -> String {
    Timestamp::from_nanosecond(i128::from(at.0))
        .unwrap_or_else(|_| unreachable!("64-bit nanoseconds are within jiff's years"))
        .to_string()
}
