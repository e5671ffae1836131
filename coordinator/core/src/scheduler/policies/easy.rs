//! EASY backfilling: the first in the queue is promised a start, and whoever is
//! not in its way overtakes.

use gleaner_common::time::Moment;

use crate::scheduler::cycle::Cycle;
use crate::scheduler::policy::{Named, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::state::{State, Turn, Waiting};

pub(super) const EASY: Named = Named {
    name: "easy",
    line: "first come first served, and whoever does not delay the first in the queue overtakes",
    source: "Lifka 1995; Mu'alem and Feitelson 2001, Figure 1",
    build: |_| Box::new(Easy { promise: None }),
};

/// What the first in the queue was promised.
#[derive(Clone, Copy, Debug)]
struct Promise {
    to: Turn,
    /// When enough will have ended ("shadow time").
    start: Moment,
    /// What the first does not need then ("extra nodes").
    extra: u32,
}

#[derive(Debug)]
struct Easy {
    /// Still true, as long as nothing but arrivals happens.
    promise: Option<Promise>,
}

impl Scheduling for Easy {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        let still = self.promise.take().filter(|promise| is_still_true(cycle, promise));
        if let Some(mut promise) = still {
            let mut arrived = cycle.changes().arrived.clone();
            arrived.sort_unstable();
            for turn in arrived {
                let fits = cycle.waiting_at(turn).is_some_and(|job| passes(cycle, job, &promise));
                consider(cycle, turn, fits, &mut promise);
            }
            self.promise = Some(promise);
            return;
        }
        while let Some((turn, first)) = cycle.first_waiting() {
            let needs = first.request.sizes.preferred();
            if !cycle.start(turn, needs) {
                self.promise = Some(backfill(cycle, turn, needs));
                return;
            }
        }
    }
}

fn is_still_true(cycle: &Cycle<'_>, promise: &Promise) -> bool {
    let changes = cycle.changes();
    let is_first = cycle.first_waiting().is_some_and(|(turn, _)| turn == promise.to);
    is_first && !changes.other && cycle.now() < promise.start
}

/// The first does not fit: promises it a start, and lets others pass.
fn backfill(cycle: &mut Cycle<'_>, first: Turn, needs: u32) -> Promise {
    let (start, extra) = shadow(cycle, needs, cycle.now());
    let mut promise = Promise { to: first, start, extra };
    cycle.reserve(first, needs, start);
    let mut at = first;
    while cycle.free() > 0 {
        let found = next_that_passes(cycle, at, &promise);
        let Some(turn) = found else { break };
        consider(cycle, turn, true, &mut promise);
        at = turn;
    }
    promise
}

fn consider(cycle: &mut Cycle<'_>, turn: Turn, passes: bool, promise: &mut Promise) {
    let Some(job) = cycle.waiting_at(turn) else { return };
    let size = job.request.sizes.preferred();
    let is_over_in_time = ends_by(cycle, job, promise.start);
    if passes && cycle.start(turn, size) {
        if !is_over_in_time {
            promise.extra -= size;
        }
        return;
    }
    let (job, start, free) = (promise.to.2, promise.start, cycle.free());
    let would_delay = size <= free;
    cycle.wait(
        turn,
        if would_delay {
            Reason::WouldDelay { job, start }
        } else {
            Reason::TooFewFree { needs: size, free }
        },
    );
}

fn ends_by(cycle: &Cycle<'_>, job: &Waiting, start: Moment) -> bool {
    let takes = job.request.takes(job.request.sizes.preferred());
    takes.is_some_and(|takes| cycle.now() + takes <= start)
}

fn passes(cycle: &Cycle<'_>, job: &Waiting, promise: &Promise) -> bool {
    let size = job.request.sizes.preferred();
    size <= cycle.free() && (size <= promise.extra || ends_by(cycle, job, promise.start))
}

fn next_that_passes(cycle: &Cycle<'_>, after: Turn, promise: &Promise) -> Option<Turn> {
    let mut behind = cycle.waiting_behind(after);
    behind.find(|(_, job)| passes(cycle, job, promise)).map(|(turn, _)| turn)
}

/// When so many will be free, and how many more than that. A job that outlives
/// its estimate is expected to end now.
fn shadow(state: &State, needs: u32, now: Moment) -> (Moment, u32) {
    let mut free = state.free();
    let mut start = now;
    let mut ends = state.ends().peekable();
    while free < needs {
        let Some((end, size)) = ends.next() else { return (Moment::MAX, 0) };
        (free, start) = (free + size, end.max(now));
    }
    while let Some((_, size)) = ends.next_if(|(end, _)| *end <= start) {
        free += size;
    }
    (start, free - needs)
}
