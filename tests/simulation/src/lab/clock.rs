//! A machine's clock: it starts somewhere else than the lab's, and goes faster
//! or slower.

use std::time::Duration;

use gleaner_common::time::Moment;

const MILLION: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) offset: Duration,
    /// How many millionths faster than time itself.
    pub(crate) ppm: i64,
}

impl Clock {
    /// What it shows.
    pub(crate) fn reads(self, at: Moment) -> Moment {
        let ppm = self.ppm.unsigned_abs();
        let off = at.0 / MILLION * ppm + at.0 % MILLION * ppm / MILLION;
        let own = if self.ppm < 0 { at.0 - off } else { at.0.saturating_add(off) };
        Moment(own) + self.offset
    }

    /// When it will show that: the first moment at which it has come so far.
    pub(crate) fn when(self, shows: Moment) -> Moment {
        let own = (shows - self.offset).0;
        let rate = MILLION.saturating_add_signed(self.ppm);
        let about =
            (own / rate).saturating_mul(MILLION).saturating_add(own % rate * MILLION / rate);
        let mut at = Moment(about.saturating_sub(2));
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
