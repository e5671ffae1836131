//! How long placing a subprogram took, over the last placements.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many placements are remembered.
const REMEMBERED: usize = 8_192;

#[derive(Debug, Default)]
pub(crate) struct PlacementTimes(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    times_ns: Vec<u32>,
    next: usize,
}

/// Percentiles in seconds; zero where nothing was placed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(clippy::struct_field_names, reason = "the unit, as everywhere")]
pub(crate) struct Percentiles {
    pub(crate) p50_s: f64,
    pub(crate) p99_s: f64,
    pub(crate) max_s: f64,
}

impl PlacementTimes {
    /// `placed` subprograms were placed in `took` altogether.
    pub(crate) fn note(&self, placed: u32, took: Duration) {
        if placed == 0 {
            return;
        }
        let each = u32::try_from((took / placed).as_nanos()).unwrap_or(u32::MAX);
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..placed {
            let next = ring.next;
            if next < ring.times_ns.len() {
                ring.times_ns[next] = each;
            } else {
                ring.times_ns.push(each);
            }
            ring.next = (next + 1) % REMEMBERED;
        }
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner).times_ns.clone();
        times.sort_unstable();
        // The nearest-rank method: the smallest time that so many in a thousand
        // keep.
        let at = |per_mille: usize| {
            let rank = (times.len() * per_mille).div_ceil(1_000);
            times.get(rank.saturating_sub(1)).map_or(0.0, |ns| f64::from(*ns) / 1e9)
        };
        Percentiles { p50_s: at(500), p99_s: at(990), max_s: at(1_000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_placements_count() {
        let times = PlacementTimes::default();
        assert_eq!(times.percentiles(), Percentiles::default());
        times.note(1, Duration::from_secs(1));
        times.note(98, Duration::from_micros(98));
        times.note(1, Duration::from_micros(3));
        let found = times.percentiles();
        assert_eq!(found, Percentiles { p50_s: 1e-6, p99_s: 3e-6, max_s: 1.0 });
        times.note(8_192, Duration::from_micros(8_192));
        assert_eq!(times.percentiles(), Percentiles { p50_s: 1e-6, p99_s: 1e-6, max_s: 1e-6 });
    }
}
