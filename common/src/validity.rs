//! From when to when a certificate is good.
//!
//! The promise: who holds one knows from it alone when to ask for the next,
//! whatever a coordinator was configured to do meanwhile. Reads no clock.

use std::time::Duration;

use crate::time::WallTime;

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
}

fn after(from: WallTime, span: Duration) -> WallTime {
    WallTime(from.0.saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_is_asked_for_when_two_thirds_are_over() {
        let from = WallTime::from_unix_s(1_800_000_000);
        let at = Validity::beginning(from, LIFE).renew_at();
        assert_eq!(at.since(from), Duration::from_secs(60 * 86_400));
        let endless = Validity::beginning(from, 2 * LIFE_MAX);
        assert_eq!(endless.renew_at(), from);
    }
}
