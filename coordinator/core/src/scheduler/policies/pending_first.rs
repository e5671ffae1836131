//! Ghafoor's scheduler: first come first served, maximum fit, pending jobs
//! first, and running jobs that give and take one after the other
//! (Ghafoor 2007, §4.2.4 and §4.3.1).
//!
//! He takes from the earliest started and leaves the choice open (§2.4); the
//! other selections are ours.

use gleaner_common::id::JobId;

use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::policy::{Named, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::state::{Running, State, Turn, Want};

pub(super) const EARLIEST_STARTED: Named = Named {
    name: "ghafoor",
    line: "as many start as fit on minimums; for more, the earliest started give all they can",
    source: "Ghafoor 2007, §4.2.4, Figure 4.6",
    build: |_| Box::new(PendingFirst { selection: Selection::EarliestStarted }),
};

pub(super) const LATEST_STARTED: Named = Named {
    name: "ghafoor-latest",
    line: "as ghafoor, but the latest started give first",
    source: "Ghafoor 2007, §4.2.4; §2.4 leaves the selection open",
    build: |_| Box::new(PendingFirst { selection: Selection::LatestStarted }),
};

pub(super) const MOST_TO_GIVE: Named = Named {
    name: "ghafoor-most",
    line: "as ghafoor, but whoever can give most gives first",
    source: "Ghafoor 2007, §4.2.4; §2.4 leaves the selection open",
    build: |_| Box::new(PendingFirst { selection: Selection::MostToGive }),
};

pub(super) const FEWEST_ASKED: Named = Named {
    name: "ghafoor-fewest",
    line: "as ghafoor, with as few negotiations as will do, and the smallest that does last",
    source: "Ghafoor 2007, §4.2.4; §2.4 leaves the selection open",
    build: |_| Box::new(PendingFirst { selection: Selection::FewestAsked }),
};

/// Who is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    EarliestStarted,
    LatestStarted,
    MostToGive,
    FewestAsked,
}

#[derive(Debug)]
struct PendingFirst {
    selection: Selection,
}

impl Scheduling for PendingFirst {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        let Owed { kept, to_come } = self.meet_wants(cycle);
        start_all_that_fit(cycle, kept);
        let budget = cycle.free().saturating_sub(kept);
        if !self.preempt_for_pending(cycle, budget, to_come) {
            expand(cycle, budget);
        }
    }
}

/// What running jobs that asked for more will get.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    /// Of what is free.
    kept: u32,
    /// Of what others are to give.
    to_come: u32,
}

impl PendingFirst {
    /// Running jobs that have asked for more (§3.1.1.4).
    fn meet_wants(&self, cycle: &mut Cycle<'_>) -> Owed {
        let wants: Vec<(JobId, Want)> = cycle.wanting().collect();
        let mut owed = Owed::default();
        for (job, Want { more, is_answer }) in wants {
            let free = cycle.free().saturating_sub(owed.kept);
            if more <= free {
                if cycle.grow(job, more, Obligation::Mandatory) == 0 {
                    cycle.drop_want(job);
                }
                continue;
            }
            let (missing, to_come) = (more - free, cycle.releasing().saturating_sub(owed.to_come));
            let available = free + to_come + cycle.spare();
            if more <= available {
                self.preempt(cycle, missing.saturating_sub(to_come));
                owed = Owed { kept: owed.kept + free, to_come: owed.to_come + missing };
            } else if is_answer {
                // Less can be had than it was told: it may ask again.
                cycle.drop_want(job);
            } else {
                cycle.offer(job, available);
            }
        }
        owed
    }

    /// Does anybody give way? As many pending jobs as possible start on their
    /// minimum, if those that run give what is missing.
    fn preempt_for_pending(&self, cycle: &mut Cycle<'_>, budget: u32, owed: u32) -> bool {
        let to_come = budget + cycle.releasing().saturating_sub(owed);
        let (mut left, mut needed, mut ahead) = (to_come + cycle.spare(), 0, vec![]);
        for (turn, job) in cycle.waiting() {
            let needs = job.request.sizes.min();
            if needs > left {
                ahead.push((turn, Reason::TooFewFree { needs, free: budget }));
                break;
            }
            ahead.push((turn, Reason::Releasing { processors: needs }));
            (left, needed) = (left - needs, needed + needs);
            if left == 0 {
                break;
            }
        }
        for (turn, reason) in ahead {
            cycle.wait(turn, reason);
        }
        self.preempt(cycle, needed.saturating_sub(to_come));
        needed > 0
    }

    /// "Preempt the maximum possible number of processors from jobs starting
    /// with the first."
    fn preempt(&self, cycle: &mut Cycle<'_>, mut missing: u32) {
        while missing > 0 {
            let Some(job) = self.select(cycle, missing) else { return };
            missing = missing.saturating_sub(cycle.shrink(job, missing, Obligation::Mandatory));
        }
    }

    fn select(&self, state: &State, missing: u32) -> Option<JobId> {
        let spare = |&(_, it): &(JobId, &Running)| it.spare();
        let found = match self.selection {
            Selection::EarliestStarted => state.can_give().next(),
            Selection::LatestStarted => state.can_give().next_back(),
            // Of equals the earliest started: the last that `rev` comes to.
            Selection::MostToGive => state.can_give().rev().max_by_key(spare),
            Selection::FewestAsked => {
                let enough = state.can_give().filter(|one| spare(one) >= missing);
                let most = || state.can_give().rev().max_by_key(spare);
                enough.min_by_key(spare).or_else(most)
            }
        };
        found.map(|(job, _)| job)
    }
}

/// Maximum fit: everybody in order on its minimum, and then what is left to
/// these in the same order, as much as each can use.
fn start_all_that_fit(cycle: &mut Cycle<'_>, kept: u32) {
    let mut left = cycle.free().saturating_sub(kept);
    let mut list: Vec<(Turn, u32)> = vec![];
    for (turn, job) in cycle.waiting() {
        let min = job.request.sizes.min();
        if min > left {
            break;
        }
        left -= min;
        list.push((turn, min));
    }
    for (turn, min) in list {
        let Some(job) = cycle.waiting_at(turn) else { continue };
        let more = job.request.sizes.taken(min, left);
        if cycle.start(turn, min + more) {
            left -= more;
        }
    }
}

/// What is left goes to running jobs, the earliest started first.
fn expand(cycle: &mut Cycle<'_>, mut left: u32) {
    while left > 0 {
        let takes = |it: &Running| it.request.sizes.taken(it.size, left);
        let Some((job, _)) = cycle.can_take().find(|(_, it)| takes(it) > 0) else { return };
        left -= cycle.grow(job, left, Obligation::Voluntary);
    }
}
