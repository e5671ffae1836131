//! Values with units in configuration files and on the command line:
//! `30s`, `2h 15min`, `512MiB`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Why a text is not a value with a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUnitError {
    #[error("`{0}` is not a duration: expected a number with a unit, such as 30s, 5min or 2h")]
    Duration(String),
    #[error("`{0}` is not a size: expected a whole number with a unit, such as 512MiB or 2GiB")]
    Size(String),
}

/// Reads `30s`, `250ms`, `2h 15min`.
///
/// # Errors
/// A missing or unknown unit, or a span too long to count in nanoseconds.
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    humantime::parse_duration(text.trim())
        .ok()
        .filter(|span| u64::try_from(span.as_nanos()).is_ok())
        .ok_or_else(|| ParseUnitError::Duration(text.to_owned()))
}

/// Reads `4096B`, `64KiB`, `512MiB`, `2GiB`, `1TiB` (and `kB`, `MB`, `GB`, `TB`
/// in powers of ten) as bytes.
///
/// # Errors
/// A missing or unknown unit, or more than `u64` holds.
pub fn parse_size(text: &str) -> Result<u64, ParseUnitError> {
    let wrong = || ParseUnitError::Size(text.to_owned());
    let trimmed = text.trim();
    let unit_at = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = trimmed.split_at(unit_at);
    let factor: u64 = match unit.trim() {
        "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(wrong)
}

/// Bytes as a person would say them: `5.8 MiB`.
pub fn spoken_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A span as [`parse_duration`] reads it and as a person would write it. Its
/// months and years are averages with minutes and seconds, so days are counted.
fn spelled(span: Duration) -> String {
    const DAY_S: u64 = 86_400;
    let days = span.as_secs() / DAY_S;
    let rest = span.saturating_sub(Duration::from_secs(days * DAY_S));
    let whole = if days == 1 { "1day".to_owned() } else { format!("{days}days") };
    match (days, rest.is_zero()) {
        (0, _) => humantime::format_duration(rest).to_string(),
        (_, true) => whole,
        (_, false) => format!("{whole} {}", humantime::format_duration(rest)),
    }
}

/// `#[serde(with = "gleaner_common::units::duration")]`: a duration as text.
pub mod duration {
    use super::{Deserialize, Deserializer, Duration, Serializer, de, parse_duration, spelled};

    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&spelled(*span))
    }

    /// # Errors
    /// What is not a duration, named.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

/// `#[serde(with = "gleaner_common::units::size")]`: bytes as text.
pub mod size {
    use super::{Deserialize, Deserializer, Serializer, de, parse_size};

    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
        let (number, unit) = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
            .into_iter()
            .find(|(factor, _)| *bytes > 0 && bytes.is_multiple_of(*factor))
            .map_or((*bytes, "B"), |(factor, unit)| (bytes / factor, unit));
        to.collect_str(&format_args!("{number}{unit}"))
    }

    /// # Errors
    /// What is not a size, named.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        parse_size(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_without_a_known_unit_are_refused() {
        for text in ["", "30", "s", "5 parsecs", "-3s", "999999999999y"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["", "30", "MiB", "5 blocks", "-3MiB", "1.5GiB", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_with_a_unit_are_read() {
        assert_eq!(parse_duration("2h 15min"), Ok(Duration::from_secs(8_100)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("2 GB"), Ok(2_000_000_000));
        assert_eq!(spoken_size(6_081_741), "5.8 MiB");
    }
    #[test]
    fn a_span_is_written_in_days_and_read_back() {
        let day = Duration::from_secs(86_400);
        for (span, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(90_500), "1m 30s 500ms"),
            (day, "1day"),
            (60 * day, "60days"),
            (400 * day + Duration::from_secs(60), "400days 1m"),
        ] {
            assert_eq!(spelled(span), text);
            assert_eq!(parse_duration(text), Ok(span));
        }
    }
}
