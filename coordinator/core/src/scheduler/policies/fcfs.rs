//! First come, first served: whoever does not fit holds up all behind.

use crate::scheduler::cycle::Cycle;
use crate::scheduler::policy::{Named, Scheduling};
use crate::scheduler::reason::Reason;

pub(super) const FCFS: Named = Named {
    name: "fcfs",
    line: "in order of priority and age, each on its preferred size; nobody overtakes",
    source: "the rival that every one of the four works names",
    build: |_| Box::new(Fcfs),
};

#[derive(Debug)]
struct Fcfs;

impl Scheduling for Fcfs {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        while let Some((turn, first)) = cycle.first_waiting() {
            let needs = first.request.sizes.preferred();
            if !cycle.start(turn, needs) {
                let free = cycle.free();
                return cycle.wait(turn, Reason::TooFewFree { needs, free });
            }
        }
    }
}
