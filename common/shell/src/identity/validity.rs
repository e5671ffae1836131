//! From when to when a certificate is good.
//!
//! The promise: who holds one knows from it alone when to ask for the next,
//! whatever a coordinator was configured to do meanwhile. Reads no clock.

use std::time::Duration;

use gleaner_common::time::WallTime;
use rcgen::{CertificateParams, date_time_ymd};

use super::subject::{SEQUENCE, fields_of, take, take_any};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// How long a machine's or a person's certificate is good unless a site says
/// otherwise: a quarter of a year, as the web's mostly are.
pub const LIFE: Duration = Duration::from_secs(90 * 86_400);

/// The longest: what is made beside the authority's own key. Certificates of
/// before they ran out are longer, and agents do not take them from each other.
pub const LIFE_MAX: Duration = Duration::from_secs(3_653 * 86_400);

/// From when to when a certificate is good, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: WallTime,
    pub until: WallTime,
}

impl Validity {
    /// What is more than a whole second of either is left out.
    pub fn beginning(from: WallTime, life: Duration) -> Self {
        let from = WallTime::from_unix_s(from.0.div_euclid(1_000_000_000));
        Self { from, until: after(from, Duration::from_secs(life.as_secs())) }
    }

    pub fn life(self) -> Duration {
        self.until.since(self.from)
    }

    /// When two thirds of it are over; at once for what is longer than any may
    /// be.
    pub fn renew_at(self) -> WallTime {
        if self.life() > LIFE_MAX { self.from } else { after(self.from, self.life() * 2 / 3) }
    }

    /// The one in a certificate in DER; `None` if that does not read.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let mut rest = fields_of(certificate)?;
        // Serial number, algorithm and issuer.
        for _ in 0..3 {
            rest = take_any(rest)?.2;
        }
        let (times, _) = take(rest, SEQUENCE)?;
        let (kind, from, times) = take_any(times)?;
        let (other, until, _) = take_any(times)?;
        Some(Self { from: time(kind, from)?, until: time(other, until)? })
    }

    pub(super) fn put_into(self, params: &mut CertificateParams) {
        let at = |time: WallTime| date_time_ymd(1970, 1, 1) + time.since(WallTime(0));
        (params.not_before, params.not_after) = (at(self.from), at(self.until));
    }
}

fn after(from: WallTime, span: Duration) -> WallTime {
    WallTime(from.0.saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
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
                assert_eq!(Validity::of(&certificate(validity)), Some(validity));
            }
        }
    }

    #[test]
    fn the_next_one_is_asked_for_when_two_thirds_are_over() {
        let from = WallTime::from_unix_s(1_800_000_000);
        let at = Validity::beginning(from, LIFE).renew_at();
        assert_eq!(at.since(from), Duration::from_secs(60 * 86_400));
        let endless = Validity::beginning(from, 2 * LIFE_MAX);
        assert_eq!(endless.renew_at(), from);
    }

    #[test]
    fn what_is_cut_short_or_spoilt_has_a_validity_or_none_but_no_panic() {
        let whole = certificate(Validity::beginning(WallTime(0), LIFE));
        for at in 0..whole.len() {
            let _ = Validity::of(&whole[..at]);
            for flip in [0xff, 0x01, 0x0f] {
                let mut spoilt = whole.clone();
                spoilt[at] ^= flip;
                let _ = Validity::of(&spoilt);
            }
        }
    }
}
