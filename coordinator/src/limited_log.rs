//! Log lines about peers that do wrong: few enough for the log of a quiet lab,
//! however many frames such peers send.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_shell::clock::Clock;

const WINDOW: Duration = Duration::from_secs(10);
const LINES_MAX: u32 = 20;

#[derive(Debug, Default)]
pub(crate) struct LimitedLog {
    clock: Clock,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    began: Moment,
    lines: u32,
    left_out: u64,
}

impl LimitedLog {
    pub(crate) fn log(&self, complaint: impl fmt::Display) {
        let (allowed, left_out) = self.allow(self.clock.now());
        if left_out > 0 {
            tracing::warn!("{left_out} more such lines were left out");
        }
        if allowed {
            tracing::warn!("{complaint}");
        }
    }

    /// May a line be logged, and how many were left out in the window before?
    fn allow(&self, now: Moment) -> (bool, u64) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        if now.since(window.began) >= WINDOW {
            left_out = window.left_out;
            *window = Window { began: now, lines: 0, left_out: 0 };
        }
        window.lines += 1;
        let allowed = window.lines <= LINES_MAX;
        if !allowed {
            window.left_out += 1;
        }
        (allowed, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_a_few_lines_and_a_count() {
        let limited_log = LimitedLog::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let allowed = (0..1_000).filter(|_| limited_log.allow(at(100)).0).count();
        assert_eq!(allowed, 20);
        assert_eq!(limited_log.allow(at(111)), (true, 980));
        assert_eq!(limited_log.allow(at(112)), (true, 0));
    }
}
