//! Bagga's demand adjustable policies (Bagga 2014, §3.4 and §3.6).
//!
//! A job's demand is its preferred size. The promise of his model: what is
//! offered is adjusted to what is demanded, or the other way about, and nobody
//! behind waits for somebody in front.

use std::time::Duration;

use gleaner_common::id::JobId;

use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::policy::{Named, Parameters, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::request::Request;
use crate::scheduler::state::{Resources, Running, Turn};

pub(super) const SDF: Named = Named {
    name: "sdf",
    line: "strictly demand fit: whoever's demand fits starts, in order, others wait",
    source: "Bagga 2014, §3.4.1, Figure 3.3",
    build: |_| Box::new(Demand { scheme: Scheme::Sdf, barrier: None }),
};

pub(super) const EEMA: Named = Named {
    name: "eema",
    line: "extreme-ending: as sdf, and the first that does not fit gets what is left",
    source: "Bagga 2014, §3.4.2, Figure 3.5",
    build: |_| Box::new(Demand { scheme: Scheme::Eema, barrier: None }),
};

pub(super) const M_LIDA: Named = Named {
    name: "m-lida",
    line: "demands adjusted to the speed of the processors, as eema, and to what is left to do",
    source: "Bagga 2014, §3.4.3, Figure 3.6, and §3.6",
    build: |parameters| Demand::adjusting(Scheme::MLida, parameters),
};

pub(super) const PWP: Named = Named {
    name: "pwp",
    line: "a whole batch starts at once, each job on its proportion of what is free",
    source: "Bagga 2014, §3.4.4, Figure 3.8, and §3.6",
    build: |parameters| Demand::adjusting(Scheme::Pwp, parameters),
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Sdf,
    Eema,
    MLida,
    Pwp,
}

#[derive(Debug)]
struct Demand {
    scheme: Scheme,
    /// The unit of time of run-time adjustments, for schemes that make them.
    barrier: Option<Duration>,
}

impl Scheduling for Demand {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        self.adjust_down(cycle);
        match self.scheme {
            Scheme::Sdf | Scheme::Eema | Scheme::MLida => self.one_by_one(cycle),
            Scheme::Pwp => {
                batches(cycle);
                self.adjust_up(cycle);
            }
        }
    }
}

impl Demand {
    fn adjusting(scheme: Scheme, parameters: &Parameters) -> Box<dyn Scheduling> {
        Box::new(Self { scheme, barrier: Some(parameters.barrier) })
    }

    /// `SetMode(Wait)` or `Allocate`, for each job in the front-end queue.
    fn one_by_one(&self, cycle: &mut Cycle<'_>) {
        let mut next = cycle.first_waiting().map(|(turn, _)| turn);
        while let Some(turn) = next.filter(|_| cycle.free() > 0) {
            next = cycle.next_waiting(turn).map(|(turn, _)| turn);
            let Some(job) = cycle.waiting_at(turn) else { continue };
            let (needs, free) = (self.demand(&job.request, cycle.resources()), cycle.free());
            let rest = match self.scheme {
                Scheme::Sdf => None,
                // With nothing left he makes a job active on no processors; it
                // waits here.
                Scheme::Eema | Scheme::MLida | Scheme::Pwp => job.request.sizes.at_most(free),
            };
            let size = if needs <= free { Some(needs) } else { rest };
            if !size.is_some_and(|size| cycle.start(turn, size)) {
                cycle.wait(turn, Reason::TooFewFree { needs, free });
            }
        }
    }

    /// `Adj_Dem` (§3.4.3); what the job asked for, where speeds play no part.
    fn demand(&self, request: &Request, resources: Resources) -> u32 {
        let demand = request.sizes.preferred();
        match (self.scheme, request.speed) {
            (Scheme::MLida, Some(meant)) => {
                let adjusted = rounded(f64::from(demand) * meant / resources.speed);
                let allowed = request.sizes.at_most(adjusted);
                allowed.unwrap_or_else(|| request.sizes.min())
            }
            (Scheme::MLida | Scheme::Sdf | Scheme::Eema | Scheme::Pwp, _) => demand,
        }
    }

    /// Run-time demand adjustment (§3.6): a job that has less left to do than
    /// its processors can do in a unit of time gives up some.
    fn adjust_down(&self, cycle: &mut Cycle<'_>) {
        for (job, it) in self.adjusted(cycle) {
            if it.0 > it.1 {
                cycle.shrink(job, it.0 - it.1, Obligation::Mandatory);
            }
        }
    }

    /// "The remaining POS will be adjusted to currently active jobs to fulfill
    /// their processing needs" (§4.3).
    fn adjust_up(&self, cycle: &mut Cycle<'_>) {
        for (job, it) in self.adjusted(cycle) {
            if it.1 > it.0 {
                cycle.grow(job, it.1 - it.0, Obligation::Voluntary);
            }
        }
    }

    /// Jobs, their sizes and their adjusted demands, in order of their start.
    fn adjusted(&self, cycle: &Cycle<'_>) -> Vec<(JobId, (u32, u32))> {
        let Some(barrier) = self.barrier else { return vec![] };
        let (now, resources) = (cycle.now(), cycle.resources());
        let demand = |it: &Running| {
            let left = it.progress.left(now)?.as_secs_f64() / barrier.as_secs_f64();
            let sizes = &it.request.sizes;
            let speeds = it.request.speed.map_or(1.0, |meant| meant / resources.speed);
            let demand = rounded(left * f64::from(sizes.preferred()) * speeds);
            let least = sizes.at_least(demand.min(sizes.max()));
            Some(least.unwrap_or_else(|| sizes.max()))
        };
        let running = cycle.negotiable();
        running.filter_map(|(job, it)| Some((job, (it.size, demand(it)?)))).collect()
    }
}

/// `CInt` and `Round` of his Visual Basic: to the nearest, and of two to the
/// even one. A job gets one processor at least.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the clamp keeps it between 1 and what a u32 holds"
)]
fn rounded(demand: f64) -> u32 {
    demand.round_ties_even().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// Proportionate processor width partitioning: batch by batch, those that were
/// submitted at the same moment.
fn batches(cycle: &mut Cycle<'_>) {
    while let Some((first, job)) = cycle.first_waiting().filter(|_| cycle.free() > 0) {
        let submitted = job.submitted;
        let of_batch = cycle.waiting().filter(|(_, job)| job.submitted == submitted);
        let batch: Vec<(Turn, u32)> =
            of_batch.map(|(turn, job)| (turn, job.request.sizes.preferred())).collect();
        let (jobs, free) = (u32::try_from(batch.len()).unwrap_or(u32::MAX), cycle.free());
        if jobs > free {
            return cycle.wait(first, Reason::BatchTooLarge { jobs, free });
        }
        if !start_batch(cycle, &batch) {
            return;
        }
    }
}

/// "During each adjustment total availability as well as total batch demand
/// will be changed." Have all of them started?
fn start_batch(cycle: &mut Cycle<'_>, batch: &[(Turn, u32)]) -> bool {
    let mut demanded: u64 = batch.iter().map(|(_, demand)| u64::from(*demand)).sum();
    let (mut available, mut have_all) = (cycle.free(), true);
    for ((turn, demand), behind) in batch.iter().zip((0..batch.len()).rev()) {
        let proportion = (f64::from(available) / demanded as f64).min(1.0);
        // One is kept for each of those behind, which rounding may leave
        // without any: he does not say what a job on none would do.
        let most = available.saturating_sub(u32::try_from(behind).unwrap_or(u32::MAX));
        let adjusted = rounded(f64::from(*demand) * proportion).min(most);
        let size = cycle.waiting_at(*turn).and_then(|job| job.request.sizes.at_most(adjusted));
        let started = size.filter(|size| cycle.start(*turn, *size));
        if started.is_none() {
            let free = cycle.free();
            cycle.wait(*turn, Reason::TooFewFree { needs: *demand, free });
        }
        available -= started.unwrap_or(0);
        demanded -= u64::from(*demand);
        have_all &= started.is_some();
    }
    have_all
}
