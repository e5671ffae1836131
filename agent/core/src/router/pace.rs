//! How often an image of a rank's process is taken.
//!
//! The process stands still for an image, and goes back to the last one: more
//! of them cost more, and lose less. So images take a fixed small share of its
//! time, by what the last one took: the longer it stood, the later the next.

use std::time::Duration;

use gleaner_common::time::Moment;

/// Images take one part in so many of a rank's time: 2 %. A guess; with an
/// image of a tenth of a second, five seconds' work is lost at most.
const SHARE: u32 = 50;

/// Where none could be taken now, another is asked for so much later. Also the
/// least time between two.
const SOON: Duration = Duration::from_secs(1);

/// Where none could be taken at all: what was in its way may be gone then.
const LATER: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Pace {
    ask_at: Option<Moment>,
}

impl Pace {
    /// An image was taken, for which the process stood so long.
    pub(super) fn taken(&mut self, now: Moment, stood: Duration) {
        self.ask_at = Some(now + (stood * (SHARE - 1)).max(SOON));
    }

    pub(super) fn not_now(&mut self, now: Moment) {
        self.ask_at = Some(now + SOON);
    }

    pub(super) fn cannot(&mut self, now: Moment) {
        self.ask_at = Some(now + LATER);
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.ask_at
    }

    /// Is it time to ask for one, once?
    pub(super) fn is_due(&mut self, now: Moment) -> bool {
        self.ask_at.take_if(|at| *at <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_take_their_share_of_the_time_and_no_more() {
        let (mut pace, mut now, mut stood) = (Pace::default(), Moment(1), Duration::ZERO);
        for seed in 0..2_000_u64 {
            let nanos = seed.wrapping_mul(6_364_136_223_846_793_005) % 2_000_000_000;
            let cost = Duration::from_nanos(nanos >> (seed % 31));
            now = now + cost;
            pace.taken(now, cost);
            stood += cost;
            let next = pace.deadline().unwrap();
            assert!(next >= now + SOON);
            assert!(!pace.is_due(Moment(next.0 - 1)));
            now = next;
            assert!(pace.is_due(now) && !pace.is_due(now), "it is asked for once");
            assert!(stood * SHARE <= now.since(Moment(1)), "{stood:?}");
        }
    }
}
