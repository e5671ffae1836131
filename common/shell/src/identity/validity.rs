//! The validity that is written into a certificate, and read from one.

use gleaner_common::time::WallTime;
use gleaner_common::validity::Validity;
use rcgen::{CertificateParams, date_time_ymd};

use super::subject::{SEQUENCE, fields_of, take, take_any};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The one in a certificate in DER; `None` if that does not read.
pub(crate) fn validity_of(certificate: &[u8]) -> Option<Validity> {
    let mut rest = fields_of(certificate)?;
    // Serial number, algorithm and issuer.
    for _ in 0..3 {
        rest = take_any(rest)?.2;
    }
    let (times, _) = take(rest, SEQUENCE)?;
    let (kind, from, times) = take_any(times)?;
    let (other, until, _) = take_any(times)?;
    Some(Validity { from: time(kind, from)?, until: time(other, until)? })
}

pub(super) fn put_into(validity: Validity, params: &mut CertificateParams) {
    let at = |time: WallTime| date_time_ymd(1970, 1, 1) + time.since(WallTime(0));
    (params.not_before, params.not_after) = (at(validity.from), at(validity.until));
}

/// RFC 5280, §4.1.2.5: `YYMMDDHHMMSSZ` of 1950 to 2049, else with four digits.
fn time(kind: u8, text: &[u8]) -> Option<WallTime> {
    let (year, rest) = match kind {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let rest = rest.strip_suffix(b"Z").filter(|rest| rest.len() == 10)?;
    let mut parts = rest.chunks(2).map(number);
    let mut next = || parts.next().flatten();
    let (month, day) = (next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let valid = (1..=12).contains(&month) && (1..=31).contains(&day);
    let days = valid.then(|| days_since_1970(year, month, day))?;
    Some(WallTime::from_unix_s(days * 86_400 + hour * 3_600 + minute * 60 + second))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().all(u8::is_ascii_digit).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The days of a date of the Gregorian calendar. Source: Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_common::validity::{LIFE, LIFE_MAX};
    use gleaner_common::wire::Role;

    use super::super::{Authority, Key};
    use super::*;

    fn certificate(validity: Validity) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let key = Key::generate().unwrap().spki();
        authority.issue(&key, Role::Agent, "ws1", validity).unwrap()
    }

    #[test]
    fn what_is_written_into_a_certificate_reads_back() {
        // 2000-02-29, 2026-11-22, the last second of 2049 and the first of 2050.
        for from_s in [951_782_400, 1_795_382_400, 2_524_607_999, 2_524_608_000] {
            let from = WallTime::from_unix_s(from_s);
            for life in [Duration::from_secs(1), LIFE, LIFE_MAX] {
                let validity = Validity::beginning(from, life);
                assert_eq!(validity_of(&certificate(validity)), Some(validity));
            }
        }
    }

    #[test]
    fn what_is_cut_short_or_spoilt_has_a_validity_or_none_but_no_panic() {
        let whole = certificate(Validity::beginning(WallTime(0), LIFE));
        for at in 0..whole.len() {
            let _ = validity_of(&whole[..at]);
            for flip in [0xff, 0x01, 0x0f] {
                let mut spoilt = whole.clone();
                spoilt[at] ^= flip;
                let _ = validity_of(&spoilt);
            }
        }
    }
}
