//! Did the machine sleep, or did somebody set the clock?
//!
//! Where no system bus announces the sleep, it shows afterwards: the clock
//! that counts sleep is then ahead of the one that does not. Knows nothing of
//! what follows from it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Smaller differences are the time between two looks at two clocks, or a
/// time daemon at work.
const NOTICED_NS: i128 = 1_000_000_000;

/// What a look at the clocks has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ClockEvent {
    Slept(Duration),
    /// Forward, or backward if negative.
    WallSet {
        by_s: f64,
    },
}

/// The clocks' distances from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Distances {
    asleep_ns: i128,
    wall_ns: i128,
}

/// Compares the clocks from time to time.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    before: Distances,
}

impl ClockWatch {
    pub(crate) fn new() -> Self {
        Self { before: Distances::read() }
    }

    /// What has happened since the last look.
    pub(crate) fn look(&mut self) -> Vec<ClockEvent> {
        let now = Distances::read();
        let events = self.before.until(now);
        if !events.is_empty() {
            self.before = now;
        }
        events
    }
}

impl Distances {
    fn read() -> Self {
        let [monotonic, boot, wall] = [ClockId::Monotonic, ClockId::Boottime, ClockId::Realtime]
            .map(|clock| {
                let time = clock_gettime(clock);
                i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
            });
        Self { asleep_ns: boot - monotonic, wall_ns: wall - boot }
    }

    fn until(self, now: Self) -> Vec<ClockEvent> {
        let mut events = vec![];
        let slept_ns = now.asleep_ns - self.asleep_ns;
        if slept_ns >= NOTICED_NS {
            let slept_ns = u64::try_from(slept_ns).unwrap_or(u64::MAX);
            events.push(ClockEvent::Slept(Duration::from_nanos(slept_ns)));
        }
        let set_ns = now.wall_ns - self.wall_ns;
        if set_ns.abs() >= NOTICED_NS {
            events.push(ClockEvent::WallSet { by_s: set_ns as f64 / 1e9 });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_happens_to_the_clocks_between_two_looks() {
        assert_eq!(ClockWatch::new().look(), []);
    }

    #[test]
    fn a_sleep_and_a_set_clock_are_told_apart() {
        let before = Distances { asleep_ns: 10, wall_ns: 20 };
        let slept = Distances { asleep_ns: 5_000_000_010, wall_ns: 20 };
        assert_eq!(before.until(slept), [ClockEvent::Slept(Duration::from_secs(5))]);
        let set = Distances { asleep_ns: 10, wall_ns: -3_600_000_000_000 + 20 };
        assert_eq!(before.until(set), [ClockEvent::WallSet { by_s: -3600.0 }]);
        let drifted = Distances { asleep_ns: 10, wall_ns: 500_000 };
        assert_eq!(before.until(drifted), []);
    }
}
