//! Who gets how many processors, of those that are looked at: steps by their worth
//! (rules 1 to 6 of the policy).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

use super::Gleaner;
use crate::scheduler::request::{Class, Request};
use crate::scheduler::sizes::Allowed;
use crate::scheduler::speedup::Speedup;
use crate::scheduler::state::{State, Turn};

/// A job of which nothing is known has this before it at least.
const UNKNOWN_S: f64 = 60.0;
/// Whoever is past its estimate is as good as done.
const WORK_MIN_S: f64 = 0.001;
/// Of the work that is left, in its weight: between 0, for the most work done
/// at any moment, and 1, for the most jobs done soon. Fitted; from 0.1 to 0.3 it
/// makes a difference of 2 %.
const EXPONENT: f64 = -0.2;
/// Of equal steps the one that is taken already goes first; otherwise rounded
/// numbers would go round in circles.
const HAIR: f64 = 1e-6;
/// So many that do not fit are tried before all others.
const TRIED_MAX: usize = 4;
/// With more jobs than that only one is: each try costs as much as the first.
const TRIED_AMONG: usize = 64;

/// What is to be done of it, on one processor.
pub(super) fn work_of(request: &Request) -> f64 {
    let alone = request.speedup.at(request.sizes.preferred());
    let takes_s = request.estimate.map_or(UNKNOWN_S, |takes| takes.as_secs_f64());
    (takes_s * alone).max(WORK_MIN_S)
}

#[derive(Clone, Copy, Debug)]
enum Whose {
    Running(JobId),
    Waiting(Turn),
}

/// A job that steps can be given to.
#[derive(Debug)]
struct Claim<'a> {
    whose: Whose,
    request: &'a Request,
    /// What is left, on one processor, and its weight.
    work_s: f64,
    weight: f64,
    /// What it has, and what of that cannot be taken back.
    size: u32,
    floor: u32,
    /// What its user may have it grow to.
    most: u32,
    /// What it does while it changes its size, spread over the time it has left.
    change: f64,
    /// It has waited for so long that it comes before all others, by age.
    overdue: Option<Duration>,
}

/// From one size of a job to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    /// Per processor.
    worth: f64,
    index: usize,
    from: u32,
    to: u32,
}

/// The longest overdue first, then higher priorities, then worth, then whoever
/// is first in the table.
type Key = (Option<Duration>, i8, u64, Reverse<usize>, u32, u32);

impl Claim<'_> {
    /// Whose it is, if it runs.
    fn job(&self) -> Option<JobId> {
        match self.whose {
            Whose::Running(job) => Some(job),
            Whose::Waiting(_) => None,
        }
    }

    /// Of a job that is to start where there are so many processors at most.
    fn first_size(&self, all: u32) -> u32 {
        let sizes = &self.request.sizes;
        let preferred = sizes.at_most(sizes.preferred().min(all));
        match self.request.class {
            // It never changes afterwards.
            Class::Moldable | Class::Rigid => preferred.unwrap_or_else(|| sizes.min()),
            Class::Malleable | Class::Evolving => sizes.min(),
        }
    }

    fn takes_s(&self, size: u32) -> f64 {
        self.work_s / self.request.speedup.at(size)
    }
}

/// What a guard lets start: whoever is over by then, or leaves enough.
#[derive(Clone, Copy, Debug)]
struct Guard {
    first: usize,
    in_s: f64,
    extra: u32,
}

/// Who gets how many, and what that is worth.
#[derive(Debug, Default)]
pub(super) struct Given {
    sizes: Vec<u32>,
    worth: f64,
    guard: Option<Guard>,
}

#[derive(Debug)]
pub(super) struct Table<'a> {
    state: &'a State,
    now: Moment,
    claims: Vec<Claim<'a>>,
    /// Processors for them.
    available: u32,
    /// What a step costs for each of its processors, by its speed-up: owners.
    risk: f64,
}

impl<'a> Table<'a> {
    pub(super) fn of(
        state: &'a State,
        now: Moment,
        by: &Gleaner,
        (running, waiting): (&[(Moment, JobId)], &[Turn]),
    ) -> Self {
        let cost_s = by.change_cost.as_secs_f64();
        let running = running.iter().filter_map(|(_, job)| Some((*job, state.get(*job)?)));
        let running = running.map(|(job, it)| {
            let behind_s = now.since(it.started).as_secs_f64();
            let left = it.progress.left(now).map(|left| left.as_secs_f64());
            let speedup = it.request.speedup.at(it.size);
            let alone = it.request.speedup.at(it.request.sizes.preferred());
            let work_s = left.map_or(behind_s.max(UNKNOWN_S) * speedup, |left| left * alone);
            let work_s = work_s.max(WORK_MIN_S);
            Claim {
                whose: Whose::Running(job),
                request: &it.request,
                work_s,
                weight: work_s.powf(EXPONENT),
                size: it.size,
                floor: it.request.sizes.min().min(it.size),
                most: it.size.saturating_add(state.places_for(&it.request)),
                change: cost_s * speedup * speedup / work_s,
                overdue: None,
            }
        });
        let waiting = waiting.iter().filter_map(|turn| Some((*turn, state.waiting_at(*turn)?)));
        let waiting = waiting.map(|(turn, it)| {
            let work_s = work_of(&it.request);
            Claim {
                whose: Whose::Waiting(turn),
                request: &it.request,
                work_s,
                weight: work_s.powf(EXPONENT),
                size: 0,
                floor: 0,
                most: state.places_for(&it.request),
                change: 0.0,
                overdue: Some(now.since(it.submitted)).filter(|waited| *waited > by.overtaken_max),
            }
        });
        let claims: Vec<Claim<'_>> = running.chain(waiting).collect();
        let theirs: u32 = claims.iter().map(|claim| claim.size).sum();
        let fixed = state.held() - theirs - state.releasing();
        let available = state.resources().processors.saturating_sub(fixed);
        Self { state, now, claims, available, risk: by.owners.hazard() * cost_s }
    }

    fn first_size(&self, index: usize) -> u32 {
        self.claims[index].first_size(self.state.resources().all)
    }

    /// Rules 1, 2, 4 and 5.
    fn step(&self, index: usize, from: u32) -> Option<Step> {
        let claim = &self.claims[index];
        let next = || self.next_size(index, from);
        let to = if from == 0 { Some(self.first_size(index)) } else { next() };
        let to = to.filter(|to| *to <= claim.most.max(claim.size))?;
        let at = |size| claim.request.speedup.at(size);
        let processors = f64::from(to - from);
        let mut gain = at(to) - at(from);
        // Whoever is to run at all bears the rest in any case.
        if from > 0 {
            gain -= self.risk * at(to) * processors;
            gain -= if from == claim.size { claim.change } else { 0.0 };
        }
        if to <= claim.size {
            gain += gain.abs() * HAIR + if to == claim.size { claim.change } else { 0.0 };
        }
        let worth = claim.weight * gain / processors;
        (worth > 0.0).then_some(Step { worth, index, from, to })
    }

    /// Where a speed-up is linear, all steps that are not at the present size are
    /// worth the same, and are taken at once.
    fn next_size(&self, index: usize, from: u32) -> Option<u32> {
        let Claim { request, size, most, .. } = &self.claims[index];
        let sizes = &request.sizes;
        let is_linear = matches!(request.speedup, Speedup::Linear) && self.risk <= 0.0;
        let is_even = is_linear && *sizes.allowed() == Allowed::Any && from != *size;
        let until = if from < *size { *size - 1 } else { sizes.max().min(*most) };
        sizes.at_least(from + 1).map(|next| if is_even { next.max(until) } else { next })
    }

    /// As much of a step as there is.
    fn cut(&self, Step { worth, index, from, to }: Step, left: u32) -> Option<Step> {
        if to - from <= left {
            return Some(Step { worth, index, from, to });
        }
        let fits = self.claims[index].request.sizes.at_most(from + left)?;
        (from > 0 && fits > from).then_some(Step { worth, index, from, to: fits })
    }

    fn key(&self, step: &Step) -> Key {
        let claim = &self.claims[step.index];
        let overdue = claim.overdue.filter(|_| step.from == 0);
        let priority = claim.request.priority;
        (overdue, priority, step.worth.to_bits(), Reverse(step.index), step.from, step.to)
    }

    /// Rule 3: whoever does not fit is tried before the others, but not before
    /// those that rule 6 is for.
    pub(super) fn give(&self) -> Given {
        let mut before = vec![];
        let mut best = self.give_after(&before).unwrap_or_default();
        let has_overdue = self.claims.iter().any(|claim| claim.overdue.is_some());
        let tried_max = if self.claims.len() <= TRIED_AMONG { TRIED_MAX } else { 1 };
        while !has_overdue
            && let Some(guard) = best.guard
            && before.len() < tried_max
        {
            before.push(guard.first);
            match self.give_after(&before) {
                Some(other) if other.worth > best.worth => best = other,
                Some(_) | None => break,
            }
        }
        best
    }

    /// `None` if those before all others do not fit.
    fn give_after(&self, before: &[usize]) -> Option<Given> {
        let mut sizes: Vec<u32> = self.claims.iter().map(|claim| claim.floor).collect();
        let mut left = self.available.saturating_sub(sizes.iter().sum());
        let mut given = Given::default();
        for index in before {
            let step = self.step(*index, 0)?;
            left = left.checked_sub(step.to)?;
            sizes[*index] = step.to;
            given.worth += step.worth * f64::from(step.to);
        }
        let first = |index: usize| self.step(index, sizes[index]).map(|step| self.key(&step));
        let mut heap: BinaryHeap<Key> = (0..self.claims.len()).filter_map(first).collect();
        while left > 0
            && let Some((_, _, worth, Reverse(index), from, to)) = heap.pop()
        {
            if from == 0 && !self.may_start(&mut given, index, to, left, &sizes) {
                continue;
            }
            let worth = f64::from_bits(worth);
            let Some(step) = self.cut(Step { worth, index, from, to }, left) else { continue };
            let (to, needs) = (step.to, step.to - from);
            (sizes[index], left) = (to, left - needs);
            given.worth += worth * f64::from(needs);
            // As long as nobody else comes before its next step, that is next.
            let mut next = self.step(index, to).map(|step| (self.key(&step), step));
            while let Some((key, step)) = next
                && heap.peek().is_none_or(|first| key > *first)
                && step.to - step.from <= left
            {
                let by = step.to - step.from;
                (sizes[index], left) = (step.to, left - by);
                given.worth += step.worth * f64::from(by);
                next = self.step(index, step.to).map(|step| (self.key(&step), step));
            }
            heap.extend(next.map(|(key, _)| key));
        }
        given.sizes = sizes;
        Some(given)
    }

    fn may_start(
        &self,
        given: &mut Given,
        index: usize,
        to: u32,
        left: u32,
        sizes: &[u32],
    ) -> bool {
        let Some(guard) = &mut given.guard else {
            if to > left {
                given.guard = Some(self.guard(index, to, sizes));
            }
            return to <= left;
        };
        if to > left {
            return false;
        }
        if self.claims[index].takes_s(to) <= guard.in_s {
            return true;
        }
        let is_left = to <= guard.extra;
        guard.extra -= if is_left { to } else { 0 };
        is_left
    }

    /// When there will be so many beside minimums, and how many more.
    fn guard(&self, first: usize, needs: u32, sizes: &[u32]) -> Guard {
        let all = self.state.resources().all;
        let minimum = |(claim, size): (&Claim<'_>, &u32)| match claim.size {
            0 if *size > 0 => claim.first_size(all),
            _ => claim.floor,
        };
        let minimums = self.claims.iter().zip(sizes).map(minimum);
        let mut free = self.available.saturating_sub(minimums.clone().sum());
        let new =
            minimums.clone().zip(&self.claims).filter(|(least, it)| *least > 0 && it.size == 0);
        let new = new.map(|(least, claim)| (claim.takes_s(least), least));
        let kept: BTreeMap<JobId, u32> = self
            .claims
            .iter()
            .zip(minimums)
            .filter_map(|(it, least)| Some((it.job()?, least)))
            .collect();
        let speed = self.state.resources().speed;
        // Who is promised a start is to have it even if all others shrink.
        let is_promised = self.claims[first].overdue.is_some();
        let held = self.state.ending().map(|(end, job, it)| {
            let least = it.request.sizes.min().min(it.size);
            let left = it.progress.left(self.now).filter(|_| is_promised);
            let on_least = left.map(|left| left.as_secs_f64() / it.request.rate_on(least, speed));
            let in_s = on_least.unwrap_or_else(|| end.since(self.now).as_secs_f64());
            (in_s, kept.get(&job).copied().unwrap_or(it.size))
        });
        let mut ends: Vec<(f64, u32)> = new.chain(held).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut in_s, mut ends) = (0.0, ends.into_iter());
        while free < needs {
            let Some((at_s, size)) = ends.next() else {
                return Guard { first, in_s: f64::INFINITY, extra: 0 };
            };
            (in_s, free) = (at_s, free + size);
        }
        Guard { first, in_s, extra: free - needs }
    }

    pub(super) fn orders(&self, given: &Given) -> Orders {
        let mut orders = Orders::default();
        for (claim, size) in self.claims.iter().zip(&given.sizes) {
            match claim.whose {
                Whose::Running(job) if *size < claim.size => {
                    orders.shrinks.push((job, claim.size - size));
                }
                Whose::Running(job) if *size > claim.size => {
                    orders.grows.push((job, size - claim.size));
                }
                Whose::Waiting(turn) if *size > 0 => orders.starts.push((turn, *size)),
                Whose::Running(_) | Whose::Waiting(_) => {}
            }
        }
        let first = given.guard.map(|guard| (&self.claims[guard.first], guard));
        if let Some((Claim { whose: Whose::Waiting(turn), .. }, guard)) = first {
            let start = Duration::try_from_secs_f64(guard.in_s).ok().map(|span| self.now + span);
            orders.reserved = Some((*turn, self.first_size(guard.first), start));
        }
        orders
    }
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) shrinks: Vec<(JobId, u32)>,
    pub(super) starts: Vec<(Turn, u32)>,
    pub(super) grows: Vec<(JobId, u32)>,
    pub(super) reserved: Option<(Turn, u32, Option<Moment>)>,
}
