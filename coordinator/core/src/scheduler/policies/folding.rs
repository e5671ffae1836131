//! Folding: sizes are halved to let others in, and doubled when there is room
//! (Utrera et al. 2004, by Buisson et al. 2007, §III).

use std::cmp::Reverse;

use gleaner_common::id::JobId;

use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::policy::{Named, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::request::{Class, Request};
use crate::scheduler::state::{Running, State};

pub(super) const FOLDING: Named = Named {
    name: "folding",
    line: "the largest job is halved for the first in the queue; jobs double when nobody waits",
    source: "McCann and Zahorjan 1994; Utrera et al. 2004; Buisson et al. 2007, §III",
    build: |_| Box::new(Folding),
};

#[derive(Debug)]
struct Folding;

impl Scheduling for Folding {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        while let Some((turn, first)) = cycle.first_waiting() {
            let (free, needs) = (cycle.free(), first.request.sizes.min());
            let size = folded(&first.request, free);
            if size.is_some_and(|size| cycle.start(turn, size)) {
                continue;
            }
            let reason = match largest(cycle) {
                _ if cycle.releasing() > 0 => Reason::Releasing { processors: cycle.releasing() },
                Some((job, half)) => {
                    cycle.shrink(job, half, Obligation::Mandatory);
                    Reason::Releasing { processors: half }
                }
                None => Reason::TooFewFree { needs, free },
            };
            return cycle.wait(turn, reason);
        }
        while let Some((job, size)) = smallest(cycle) {
            if cycle.grow(job, size, Obligation::Voluntary) == 0 {
                return;
            }
        }
    }
}

/// The preferred size, halved until it fits.
fn folded(request: &Request, free: u32) -> Option<u32> {
    let mut size = request.sizes.preferred();
    while size > free {
        if size % 2 == 1 || request.class == Class::Rigid {
            return None;
        }
        size /= 2;
    }
    request.sizes.contains(size).then_some(size)
}

fn largest(state: &State) -> Option<(JobId, u32)> {
    let halves = state
        .can_give()
        .filter(|(_, it)| it.size.is_multiple_of(2) && it.request.sizes.contains(it.size / 2));
    let largest = halves.max_by_key(|(job, it)| (it.size, Reverse(*job)))?;
    Some((largest.0, largest.1.size / 2))
}

/// The smallest of those that can double.
fn smallest(state: &State) -> Option<(JobId, u32)> {
    let doubles = |it: &Running| it.size <= state.free() && it.request.sizes.contains(it.size * 2);
    let can = state.can_take().filter(|(_, it)| doubles(it));
    can.min_by_key(|(job, it)| (it.size, *job)).map(|(job, it)| (job, it.size))
}
