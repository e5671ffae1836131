//! KOALA's malleability manager (Buisson et al. 2007, §V.B and §V.C): when jobs
//! change their sizes, PRA or PWA, and whose sizes change, FPSMA or EGS.

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::policy::{Named, Parameters, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::request::Class;
use crate::scheduler::state::{State, Turn};

pub(super) const PRA_FPSMA: Named = Named {
    name: "pra-fpsma",
    line: "running jobs grow before others start, the earliest started first; nobody shrinks",
    source: "Buisson et al. 2007, §V.B (PRA) and Figure 4 (FPSMA)",
    build: |parameters| Koala::boxed(parameters, Precedence::Running, Manager::Fpsma),
};

pub(super) const PRA_EGS: Named = Named {
    name: "pra-egs",
    line: "running jobs grow before others start, all by the same; nobody shrinks",
    source: "Buisson et al. 2007, §V.B (PRA) and Figure 5 (EGS)",
    build: |parameters| Koala::boxed(parameters, Precedence::Running, Manager::Egs),
};

pub(super) const PWA_FPSMA: Named = Named {
    name: "pwa-fpsma",
    line: "running jobs shrink for those that wait, the last started first, and grow in turn",
    source: "Buisson et al. 2007, §V.B (PWA) and Figure 4 (FPSMA)",
    build: |parameters| Koala::boxed(parameters, Precedence::Waiting, Manager::Fpsma),
};

pub(super) const PWA_EGS: Named = Named {
    name: "pwa-egs",
    line: "running jobs shrink for those that wait, and grow, all by the same",
    source: "Buisson et al. 2007, §V.B (PWA) and Figure 5 (EGS)",
    build: |parameters| Koala::boxed(parameters, Precedence::Waiting, Manager::Egs),
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precedence {
    Running,
    Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    /// Favour previously started malleable applications.
    Fpsma,
    /// Equi-grow and shrink.
    Egs,
}

#[derive(Debug)]
struct Koala {
    precedence: Precedence,
    manager: Manager,
    kept_free: u32,
    tries_max: u64,
    /// A scan of the queue counts as one try, however many stages it takes.
    scanned_at: Option<Moment>,
}

impl Koala {
    fn boxed(
        parameters: &Parameters,
        precedence: Precedence,
        manager: Manager,
    ) -> Box<dyn Scheduling> {
        let Parameters { kept_free, tries_max, .. } = *parameters;
        Box::new(Self { precedence, manager, kept_free, tries_max, scanned_at: None })
    }

    /// What jobs may be given: the threshold is left to owners.
    fn budget(&self, state: &State) -> u32 {
        state.free().saturating_sub(self.kept_free)
    }

    /// §V.B: waiting jobs are not considered as long as at least one running
    /// malleable job can still be grown.
    fn running_first(&mut self, cycle: &mut Cycle<'_>) {
        let grown = self.grow(cycle);
        let budget = self.budget(cycle);
        let can_grow = cycle.can_take().any(|(_, it)| it.request.sizes.taken(it.size, budget) > 0);
        if grown || can_grow {
            if let Some((turn, _)) = cycle.first_waiting() {
                cycle.wait(turn, Reason::RunningFirst);
            }
            return;
        }
        self.scan(cycle);
    }

    /// §V.B: whoever cannot be placed has running jobs shrunk for it; where
    /// even that is not enough, running jobs are considered for growing.
    fn waiting_first(&mut self, cycle: &mut Cycle<'_>) {
        self.scan(cycle);
        if cycle.releasing() == 0 {
            self.grow(cycle);
        }
    }

    /// The placement queue from head to tail.
    fn scan(&mut self, cycle: &mut Cycle<'_>) {
        if self.scanned_at != Some(cycle.now()) {
            self.scanned_at = Some(cycle.now());
            cycle.scan();
        }
        let mut next = cycle.first_waiting().map(|(turn, _)| turn);
        while let Some(turn) = next {
            if self.tries_max == 0 && !self.may_place_any(cycle) {
                return;
            }
            next = cycle.next_waiting(turn).map(|(turn, _)| turn);
            if !self.try_to_place(cycle, turn) {
                return;
            }
        }
    }

    /// Is there enough for whoever needs least? Otherwise the rest of the scan
    /// would find nothing, and nobody is refused for that.
    fn may_place_any(&self, state: &State) -> bool {
        let could_give = match self.precedence {
            Precedence::Running => 0,
            Precedence::Waiting => state.spare() + state.releasing(),
        };
        state.least_needed().is_some_and(|least| least <= self.budget(state) + could_give)
    }

    /// Goes the scan on?
    fn try_to_place(&self, cycle: &mut Cycle<'_>, turn: Turn) -> bool {
        let Some(job) = cycle.waiting_at(turn) else { return true };
        let (budget, needs) = (self.budget(cycle), job.request.sizes.min());
        let tries = cycle.scans() - job.scans_before;
        // The initial number of processors considers how many are available.
        let size = job.request.sizes.at_most(budget.min(job.request.sizes.preferred()));
        if size.is_some_and(|size| cycle.start(turn, size)) {
            return true;
        }
        let missing = needs.saturating_sub(budget).saturating_sub(cycle.releasing());
        let can_have = self.precedence == Precedence::Waiting && missing <= cycle.spare();
        if can_have {
            self.shrink(cycle, missing);
            let processors = cycle.releasing();
            cycle.wait(turn, Reason::Releasing { processors });
            return false;
        }
        if self.tries_max > 0 && tries >= self.tries_max {
            cycle.refuse(turn, Reason::OutOfTries { tries });
        } else {
            cycle.wait(turn, Reason::TooFewFree { needs, free: budget });
        }
        true
    }

    /// Is anything on offer now? The manager is initiated once a cycle.
    fn grow(&self, cycle: &mut Cycle<'_>) -> bool {
        let value = self.budget(cycle);
        if value == 0 || !cycle.changes().is_news || !cycle.can_any_take() {
            return false;
        }
        match self.manager {
            Manager::Fpsma => fpsma_grow(cycle, value),
            Manager::Egs => equi_grow(cycle, value),
        }
    }

    fn shrink(&self, cycle: &mut Cycle<'_>, value: u32) {
        match self.manager {
            Manager::Fpsma => fpsma_shrink(cycle, value),
            Manager::Egs => equi_shrink(cycle, value),
        }
    }
}

impl Scheduling for Koala {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        match self.precedence {
            Precedence::Running => self.running_first(cycle),
            Precedence::Waiting => self.waiting_first(cycle),
        }
    }
}

/// Figure 4, `FPSMA_GROW`: all to the earliest started, and what it does not
/// take to the next.
fn fpsma_grow(cycle: &mut Cycle<'_>, mut value: u32) -> bool {
    let list: Vec<JobId> = cycle.can_take().map(|(job, _)| job).collect();
    let before = value;
    for job in list {
        value -= cycle.grow(job, value, Obligation::Voluntary);
        if value == 0 {
            break;
        }
    }
    value < before
}

/// Figure 4, `FPSMA_SHRINK`: as many as the latest started can give, and then
/// from the one before.
fn fpsma_shrink(cycle: &mut Cycle<'_>, mut value: u32) {
    while value > 0 {
        let Some((job, _)) = cycle.can_give().next_back() else { return };
        value = value.saturating_sub(cycle.shrink(job, value, Obligation::Mandatory));
    }
}

/// Figure 5, `EQUI_GROW`: equal parts of what is free to all malleable jobs
/// that run, those at their maximum as well, and the remainder to the earliest
/// started.
fn equi_grow(cycle: &mut Cycle<'_>, value: u32) -> bool {
    let malleable = cycle.running().filter(|(_, it)| it.request.class == Class::Malleable);
    let list: Vec<JobId> = malleable.map(|(job, _)| job).collect();
    let mut any = false;
    for (job, part) in equal_parts(&list, value) {
        any |= cycle.grow(job, part, Obligation::Voluntary) > 0;
    }
    any
}

/// Figure 5, `EQUI_SHRINK`, with two departures. Its line 5 reclaims the
/// remainder from all but so many jobs (i ≥ shrinkRemainder), which is not what
/// is missing; the text says "from the most recently started jobs", and so do
/// we. And only those that can give are asked: the others would leave the
/// waiting job without what PWA has promised it.
fn equi_shrink(cycle: &mut Cycle<'_>, value: u32) {
    let mut missing = value;
    while missing > 0 {
        let list: Vec<JobId> = cycle.can_give().rev().map(|(job, _)| job).collect();
        if list.is_empty() {
            return;
        }
        for (job, part) in equal_parts(&list, missing) {
            missing = missing.saturating_sub(cycle.shrink(job, part, Obligation::Mandatory));
        }
    }
}

/// Equal parts, and one more for the first ones: `remainder` of them.
fn equal_parts(list: &[JobId], value: u32) -> impl Iterator<Item = (JobId, u32)> {
    let jobs = u32::try_from(list.len()).unwrap_or(u32::MAX).max(1);
    let (part, remainder) = (value / jobs, value % jobs);
    let bonus = move |index: u32| u32::from(index < remainder);
    let parts = list.iter().zip(0..).map(move |(job, index)| (*job, part + bonus(index)));
    parts.filter(|(_, part)| *part > 0)
}
