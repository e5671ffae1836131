//! What an execution adds up to, as it goes.

use std::time::Duration;

use crate::execution::Execution;
use crate::lab::{Lab, NEVER};
use crate::program::NONE;

/// Sums of nanoseconds over thousands of workstations outgrow 64 bits.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) begins: u64,
    /// When the last rank so far finished, and which.
    pub(crate) finish: u64,
    pub(crate) last: u32,
    pub(crate) encounters: u32,
    pub(crate) moves: u32,
    pub(crate) waits: u32,
    pub(crate) events: u64,
    pub(crate) wasted: u128,
    pub(crate) shared_computing: u128,
    pub(crate) shared_frozen: u128,
    lab_end: u64,
    /// How many workstations are idle, and since when that many.
    idle: u64,
    idle_from: u64,
    idle_time: u128,
    periods: u128,
    periods_time: u128,
}

impl Tally {
    pub(crate) fn open(lab: &Lab, begins: u64) -> Self {
        let (lab_end, idle_from) = (lab.end, begins);
        let mut tally = Self { begins, lab_end, idle_from, last: NONE, ..Self::default() };
        for start in lab.starts.iter().filter(|start| start.idle) {
            tally.idle += 1;
            tally.add_period(start.until, u128::from(start.since));
        }
        tally
    }

    /// An idle period until then, of which so much is over at time 0.
    fn add_period(&mut self, until: u64, before: u128) {
        let until = if until == NEVER { self.lab_end } else { until };
        if until > self.begins {
            self.periods += 1;
            self.periods_time += u128::from(until) + before;
        }
    }

    pub(crate) fn turned_busy(&mut self, at: u64) {
        self.count_idle_time(at);
        self.idle -= 1;
    }

    pub(crate) fn turned_idle(&mut self, at: u64, until: u64) {
        self.count_idle_time(at);
        self.idle += 1;
        self.add_period(until, 0);
        if until > self.begins {
            self.periods_time -= u128::from(at);
        }
    }

    fn count_idle_time(&mut self, at: u64) {
        // Nothing counts before the program begins.
        let at = at.max(self.begins);
        self.idle_time += u128::from(self.idle) * u128::from(at - self.idle_from);
        self.idle_from = at;
    }

    pub(crate) fn close(&mut self, end: u64) {
        self.count_idle_time(end);
        self.finish = end;
    }

    pub(crate) fn outcome(&self) -> Execution {
        Execution {
            execution: Duration::from_nanos(self.finish - self.begins),
            busy_transitions: self.encounters,
            moves: self.moves,
            waits: self.waits,
            average_idle: span(self.periods_time.checked_div(self.periods).unwrap_or(0)),
            last: self.last,
            wasted: span(self.wasted),
            idle_time: span(self.idle_time),
            shared_computing: span(self.shared_computing),
            shared_frozen: span(self.shared_frozen),
            events: self.events,
            ..Execution::default()
        }
    }
}

pub(crate) fn span(nanos: u128) -> Duration {
    const S: u128 = 1_000_000_000;
    Duration::new(u64::try_from(nanos / S).unwrap_or(u64::MAX), (nanos % S) as u32)
}
