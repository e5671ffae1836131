//! The critical path, walked backwards, and where its time went.
//!
//! Source: Phalen 1994, §7.2.2 and §8, which ask for "Computation time +
//! blocking time + total migration cost" of the critical path.
//!
//! The path begins at the end of the rank that finished last. Back from there, this
//! rank's time counts until a message that it had to wait for arrived; from
//! there on the sender's time counts, from when the message was sent; and so
//! on until the program's begin. So a move that was hidden behind blocking is
//! not on it, and one that made a rank late is. What is left of a stretch
//! when moves, waits and the rest are taken off is work.

use std::time::Duration;

use super::scratch::{PathRecordKind, Scratch};
use crate::execution::Breakdown;
use crate::program::{NONE, Program};

/// Where the path leads back from, and to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) begins: u64,
    pub(crate) end: u64,
    pub(crate) last: u32,
}

/// Nanoseconds of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct PathSums {
    compute: u64,
    repeated: u64,
    slowed: u64,
    messages: u64,
    waiting: u64,
    frozen: u64,
    moving: u64,
    busy: u32,
}

impl PathSums {
    /// Adds the records of a rank from the newest of some back to a moment,
    /// and returns how much time they explain.
    fn add_records(&mut self, scratch: &Scratch, mut head: u32, after: Option<u64>) -> u64 {
        let mut explained = 0;
        while let Some(record) = scratch.records.get(head as usize) {
            if after.is_some_and(|after| record.at <= after) {
                break;
            }
            explained += record.amount;
            match record.kind {
                PathRecordKind::Busy => self.busy += 1,
                PathRecordKind::Blocked => self.messages += record.amount,
                PathRecordKind::Waiting => self.waiting += record.amount,
                PathRecordKind::Frozen => self.frozen += record.amount,
                PathRecordKind::Moving => self.moving += record.amount,
                PathRecordKind::Slowed => self.slowed += record.amount,
                PathRecordKind::Repeated => self.repeated += record.amount,
            }
            head = record.previous;
        }
        explained
    }

    fn breakdown(self) -> Breakdown {
        Breakdown {
            compute: Duration::from_nanos(self.compute),
            repeated: Duration::from_nanos(self.repeated),
            slowed: Duration::from_nanos(self.slowed),
            messages: Duration::from_nanos(self.messages),
            waiting: Duration::from_nanos(self.waiting),
            frozen: Duration::from_nanos(self.frozen),
            moving: Duration::from_nanos(self.moving),
        }
    }
}

/// The critical path, and how many busy transitions lie on it. Begins with the
/// last rank's newest record and the last message that it waited for.
pub(crate) fn critical(
    program: &Program,
    scratch: &Scratch,
    route: Route,
    (mut head, mut binding): (u32, u32),
) -> (Breakdown, u32) {
    let mut sums = PathSums::default();
    let mut end = route.end;
    while binding != NONE {
        let message = scratch.messages[binding as usize];
        let explained = sums.add_records(scratch, head, Some(message.arrival));
        sums.compute += work(end - message.arrival, explained);
        let delay = program.delay(binding);
        sums.messages += delay;
        end = message.arrival - delay;
        (head, binding) = (message.head, message.cause);
    }
    let explained = sums.add_records(scratch, head, None);
    sums.compute += work(end - route.begins, explained);
    (sums.breakdown(), sums.busy)
}

/// Where the time of the rank that finished last went, from the program's
/// begin; it was blocked when it was nothing else.
pub(crate) fn of_last(program: &Program, scratch: &Scratch, route: Route, head: u32) -> Breakdown {
    let mut sums = PathSums { compute: program.works[route.last as usize], ..PathSums::default() };
    let explained = sums.add_records(scratch, head, None) - sums.messages;
    sums.messages = work(route.end - route.begins, sums.compute + explained);
    sums.breakdown()
}

fn work(stretch: u64, explained: u64) -> u64 {
    debug_assert!(explained <= stretch, "{explained} ns of {stretch} ns are explained");
    stretch.saturating_sub(explained)
}
