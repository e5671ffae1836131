//! A machine's clock: it starts somewhere else than the lab's, and goes faster
//! or slower.

use std::time::Duration;

use gleaner_common::time::Moment;

const MILLION: i128 = 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) offset: Duration,
    /// How many millionths faster than time itself.
    pub(crate) ppm: i64,
}

impl Clock {
    /// What it shows.
    pub(crate) fn reads(self, at: Moment) -> Moment {
        let own = i128::from(at.0) + i128::from(at.0) * i128::from(self.ppm) / MILLION;
        Moment(u64::try_from(own).unwrap_or(u64::MAX)) + self.offset
    }

    /// When it will show that: the first moment at which it has come so far.
    pub(crate) fn when(self, shows: Moment) -> Moment {
        let own = i128::from((shows - self.offset).0);
        let about = own * MILLION / (MILLION + i128::from(self.ppm));
        let mut at = Moment(u64::try_from(about).unwrap_or(u64::MAX).saturating_sub(2));
        while self.reads(at) < shows && self.offset < shows.since(Moment::ZERO) {
            at.0 += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_at_the_moment_it_names_and_not_before() {
        for ppm in [-10_000, -333, 0, 1, 9_999] {
            let clock = Clock { offset: Duration::from_secs(977), ppm };
            for at in [1_000_000_000, 1_234_567_891, 86_400_000_000_001, 999_999_999_999_999] {
                let shows = clock.reads(Moment(at));
                let named = clock.when(shows);
                assert!(named.0 <= at && clock.reads(named) >= shows, "{ppm} {at} {named:?}");
                let before = Moment(named.0 - 1);
                assert!(clock.reads(before) < shows, "{ppm} {at} {named:?}");
            }
        }
    }
}
