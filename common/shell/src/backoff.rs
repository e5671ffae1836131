//! How long to wait before the next attempt to reach somebody.
//!
//! Doubles up to a limit. Each wait is drawn between half and all of its
//! length, so that ten thousand agents do not return to a restarted
//! coordinator in the same instant.

use std::time::Duration;

/// An endless iterator of waits. Start anew (`reset`) after a success.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.next.min(self.longest);
        self.next = wait.saturating_mul(2).min(self.longest);
        Some(wait.mul_f64(0.5 + 0.5 * fraction()))
    }
}

/// Between 0 and 1. Without randomness the waits are merely less spread.
fn fraction() -> f64 {
    let number = getrandom::u32().unwrap_or(u32::MAX);
    f64::from(number) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_start_anew() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, longest);
        for full in [100, 200, 400, 800, 1_000, 1_000].map(Duration::from_millis) {
            let wait = backoff.next().unwrap();
            assert!(wait >= full / 2 && wait <= full, "{wait:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next().unwrap() <= first);
    }
}
