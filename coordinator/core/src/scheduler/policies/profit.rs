//! Kumar's profit driven strategies: a job is accepted if it brings more than
//! the others lose by it, and it ends before its deadline.
//!
//! The simple one looks at what can be had now (Kumar 2001, §3.2.4); the lazy
//! one keeps a job that can be had later, when the accepted job with the first
//! deadline has ended (§3.2.5). Whoever is not accepted is refused.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::policy::{Named, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::request::{Class, Request};
use crate::scheduler::state::{Running, State, Turn};
use crate::scheduler::work::Progress;

pub(super) const SIMPLE: Named = Named {
    name: "kumar-profit",
    line: "a job that pays more than the others lose is accepted; others are refused",
    source: "Kumar 2001, §3.2.4, AcceptJob",
    build: |_| Box::new(ForProfit { lazy: None, planned: BTreeMap::new() }),
};

pub(super) const LAZY: Named = Named {
    name: "kumar-lazy",
    line: "as kumar-profit, and a job that can be had when the first deadline is over is kept",
    source: "Kumar 2001, §3.2.5, LazyAcceptJob",
    build: |_| Box::new(ForProfit { lazy: Some(Lazy::default()), planned: BTreeMap::new() }),
};

#[derive(Debug)]
struct ForProfit {
    lazy: Option<Lazy>,
    /// Accepted for a size that others are still to make room for.
    planned: BTreeMap<Turn, u32>,
}

/// What the lazy strategy remembers.
#[derive(Debug, Default)]
struct Lazy {
    /// Accepted, and not running (`acptq`).
    accepted: BTreeSet<Turn>,
    /// `currentLookahead`: kept until that job has ended.
    ahead: Option<(JobId, Moment)>,
}

impl Scheduling for ForProfit {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        self.start_planned(cycle);
        if !self.planned.is_empty() {
            return;
        }
        if cycle.changes().is_news && self.lazy.is_some() && !self.look_ahead(cycle) {
            return;
        }
        while let Some(turn) = self.next_new(cycle) {
            if !self.accept(cycle, turn) {
                return;
            }
        }
        give_idle(cycle);
    }

    fn would_take(&self, state: &State, now: Moment, request: &Request) -> Result<(), Reason> {
        let bid = Bid::make(state, now, request, Terms::Profit);
        match (bid, &self.lazy) {
            (Ok(_), _) => Ok(()),
            (Err(why), None) => Err(why),
            (Err(why), Some(lazy)) => {
                if lazy.is_schedulable(state, now, request, None) {
                    Ok(())
                } else {
                    Err(why)
                }
            }
        }
    }
}

impl ForProfit {
    fn start_planned(&mut self, cycle: &mut Cycle<'_>) {
        for (turn, size) in std::mem::take(&mut self.planned) {
            let Some(job) = cycle.waiting_at(turn) else { continue };
            let sizes = &job.request.sizes;
            // Somebody gave less than was agreed on: on less, if that will do.
            let least = deadline_size(cycle, &job.request).unwrap_or_else(|| sizes.min());
            let less = sizes.at_most(cycle.free().min(size)).filter(|less| *less >= least);
            let started = cycle.start(turn, size)
                || cycle.releasing() == 0 && less.is_some_and(|less| cycle.start(turn, less));
            if !started && cycle.releasing() > 0 {
                self.planned.insert(turn, size);
            }
        }
    }

    /// Somebody about whom nothing has been decided.
    fn next_new(&self, state: &State) -> Option<Turn> {
        let is_kept =
            |turn: &Turn| self.lazy.as_ref().is_some_and(|lazy| lazy.accepted.contains(turn));
        state.waiting().map(|(turn, _)| turn).find(|turn| !is_kept(turn))
    }

    /// Accepts, keeps or refuses. Goes it on, with nobody asked to give?
    fn accept(&mut self, cycle: &mut Cycle<'_>, turn: Turn) -> bool {
        let Some(job) = cycle.waiting_at(turn) else { return true };
        let why = match Bid::make(cycle, cycle.now(), &job.request, Terms::Profit) {
            Ok(bid) => return self.commit(cycle, turn, &bid),
            Err(why) => why,
        };
        let request = &job.request;
        let lazy = self.lazy.as_mut();
        let keeps = lazy.filter(|lazy| lazy.is_schedulable(cycle, cycle.now(), request, None));
        match keeps {
            Some(lazy) => {
                lazy.accepted.insert(turn);
                let ahead = lazy.ahead.map_or(turn.2, |(job, _)| job);
                cycle.wait(turn, Reason::LookAhead(ahead));
            }
            None => cycle.refuse(turn, why),
        }
        true
    }

    /// "Commits the virtual adds and deletes."
    fn commit(&mut self, cycle: &mut Cycle<'_>, turn: Turn, bid: &Bid) -> bool {
        for (job, by) in &bid.from {
            cycle.shrink(*job, *by, Obligation::Mandatory);
        }
        if let Some(lazy) = &mut self.lazy {
            lazy.accepted.remove(&turn);
        }
        if cycle.start(turn, bid.size) {
            return true;
        }
        cycle.wait(turn, Reason::Releasing { processors: cycle.releasing() });
        self.planned.insert(turn, bid.size);
        false
    }

    /// Goes through what was accepted and put off. Goes it on?
    fn look_ahead(&mut self, cycle: &mut Cycle<'_>) -> bool {
        let now = cycle.now();
        let Some(lazy) = &mut self.lazy else { return true };
        lazy.accepted.retain(|turn| cycle.waiting_at(*turn).is_some());
        lazy.choose_ahead(cycle);
        for turn in lazy.accepted.clone() {
            let (Some(job), Some(lazy)) = (cycle.waiting_at(turn), &self.lazy) else { continue };
            let request = &job.request;
            let profitable = Bid::make(cycle, now, request, Terms::Profit);
            let bid = profitable.ok().or_else(|| {
                let can_wait = lazy.is_schedulable(cycle, now, request, Some(turn));
                // `forceAllocate`: what was accepted has to run.
                let forced = || Bid::make(cycle, now, request, Terms::Force).ok();
                if can_wait { None } else { forced() }
            });
            if let Some(bid) = bid
                && !self.commit(cycle, turn, &bid)
            {
                return false;
            }
        }
        true
    }
}

impl Lazy {
    /// `getLookAhead`: the job with the first deadline, kept until it has ended.
    fn choose_ahead(&mut self, state: &State) {
        let is_there = |job| state.get(job).is_some() || state.turn(job).is_some();
        self.ahead = self.ahead.filter(|(job, _)| is_there(*job)).or_else(|| {
            let running = state.running().map(|(job, it)| (it.request.deadline, job));
            let kept = self
                .accepted
                .iter()
                .filter_map(|turn| Some((state.waiting_at(*turn)?.request.deadline, turn.2)));
            let first = running.chain(kept).filter_map(|(at, job)| Some((at?, job))).min()?;
            Some((first.1, first.0))
        });
    }

    /// `isSchedulable`: does the job fit on its future minimum when the
    /// look-ahead job has ended, beside the current minimums of those that run
    /// and the future ones of those that are kept?
    fn is_schedulable(
        &self,
        state: &State,
        now: Moment,
        request: &Request,
        own: Option<Turn>,
    ) -> bool {
        let Some((first, at)) = self.ahead else { return false };
        let own_min = future_min(request, at);
        let running = state.running().filter(|(job, _)| *job != first);
        let held: u32 = running.map(|(_, it)| floor(it, now)).sum();
        let others = self.accepted.iter().filter(|turn| Some(**turn) != own && turn.2 != first);
        let promised = others.filter_map(|turn| future_min(&state.waiting_at(*turn)?.request, at));
        let taken = held.saturating_add(promised.sum());
        own_min.is_some_and(|min| taken.saturating_add(min) <= state.resources().processors)
    }
}

/// The fewest on which the job ends by its deadline if it starts then.
fn future_min(request: &Request, start: Moment) -> Option<u32> {
    smallest_by(request, |size| {
        let takes = request.takes(size)?;
        Some(start + takes)
    })
}

/// The fewest on which a running job ends by its deadline; its minimum, if it
/// has none, and its size, if it is not to be changed or late anyway.
fn floor(job: &Running, now: Moment) -> u32 {
    if job.request.class != Class::Malleable {
        return job.size;
    }
    let least = smallest_by(&job.request, |size| Some(end_on(job, now, size)));
    least.unwrap_or(job.size).min(job.size)
}

fn end_on(job: &Running, now: Moment, size: u32) -> Moment {
    Progress::new(now, job.progress.left(now), job.request.rate(size)).end()
}

/// The smallest size that ends by the deadline. Speed-ups do not fall.
fn smallest_by(request: &Request, end: impl Fn(u32) -> Option<Moment>) -> Option<u32> {
    let sizes = &request.sizes;
    let Some(deadline) = request.deadline else { return Some(sizes.min()) };
    let in_time = |size: u32| end(size).is_some_and(|end| end <= deadline);
    let (mut low, mut high) = (sizes.min(), sizes.max());
    if !in_time(high) {
        return None;
    }
    while low < high {
        let middle = sizes.at_most(low + (high - low) / 2).unwrap_or(low);
        if in_time(middle) {
            high = middle;
        } else {
            low = sizes.at_least(middle + 1)?;
        }
    }
    Some(low)
}

fn deadline_size(cycle: &Cycle<'_>, request: &Request) -> Option<u32> {
    future_min(request, cycle.now())
}

fn worth(request: &Request, end: Moment) -> f64 {
    request.profit.map_or(0.0, |profit| profit.at(end))
}

/// On what terms processors are taken from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terms {
    /// Only if it pays.
    Profit,
    /// Whatever it costs (`forceAllocate`).
    Force,
}

/// A size for a new job, and who is to give how much of it.
#[derive(Debug)]
struct Bid {
    size: u32,
    from: BTreeMap<JobId, u32>,
}

/// What giving up the next processors would lose a job: the least first, of
/// equals the earliest started.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Loss {
    each: f64,
    rank: usize,
    by: u32,
}

impl Eq for Loss {}

impl PartialOrd for Loss {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Loss {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.each.total_cmp(&other.each).then(self.rank.cmp(&other.rank))
    }
}

/// A running job of which processors may be taken, virtually.
#[derive(Clone, Debug)]
struct Giver<'a> {
    job: JobId,
    it: &'a Running,
    size: u32,
    floor: u32,
}

impl Giver<'_> {
    /// `compute_loss(j, 1)`, or of as many as its sizes make one step.
    fn loss(&self, rank: usize, now: Moment) -> Option<Loss> {
        let next = self.it.request.sizes.at_most(self.size.checked_sub(1)?)?;
        if next < self.floor {
            return None;
        }
        let worth_on = |size| worth(&self.it.request, end_on(self.it, now, size));
        let by = self.size - next;
        let each = (worth_on(self.size) - worth_on(next)) / f64::from(by);
        Some(Loss { each, rank, by })
    }
}

/// What can be had, and the heap of what it loses others.
///
/// Processors that are idle are taken first: they are nobody's loss. In the
/// thesis there are none, because what is idle has been given to running jobs;
/// where all of these have their maximum, there are some.
#[derive(Debug)]
struct Market<'a> {
    now: Moment,
    idle: u32,
    /// What is held and not there any more: owners have taken it, and whatever is
    /// given makes up for that first.
    owed: u32,
    givers: Vec<Giver<'a>>,
    losses: BinaryHeap<Reverse<Loss>>,
    had: u32,
}

impl<'a> Market<'a> {
    fn open(state: &'a State, now: Moment) -> Self {
        let giver = |(job, it): (JobId, &'a Running)| Giver {
            job,
            it,
            size: it.size,
            floor: floor(it, now),
        };
        let givers: Vec<Giver<'a>> = state.can_give().map(giver).collect();
        let losses = givers.iter().enumerate();
        let losses = losses.filter_map(|(rank, giver)| giver.loss(rank, now).map(Reverse));
        let owed = state.held().saturating_sub(state.resources().processors);
        Self { now, idle: state.free(), owed, losses: losses.collect(), givers, had: 0 }
    }

    fn available(&self) -> u32 {
        let spare = self.givers.iter().map(|it| it.size.saturating_sub(it.floor));
        (self.idle + spare.sum::<u32>()).saturating_sub(self.owed)
    }

    /// Takes until there are so many; what that loses others. `None` if there
    /// are not so many, or they would lose more than that: part of it may have
    /// been taken then.
    fn take(&mut self, until: u32, loss_max: f64) -> Option<f64> {
        let mut lost = 0.0;
        while self.had < until + self.owed {
            if self.idle > 0 {
                let part = self.idle.min(until + self.owed - self.had);
                (self.idle, self.had) = (self.idle - part, self.had + part);
                continue;
            }
            let Reverse(next) = self.losses.pop()?;
            lost += next.each * f64::from(next.by);
            if lost > loss_max {
                return None;
            }
            let giver = &mut self.givers[next.rank];
            giver.size -= next.by;
            self.had += next.by;
            self.losses.extend(giver.loss(next.rank, self.now).map(Reverse));
        }
        Some(lost)
    }

    fn taken(&self) -> BTreeMap<JobId, u32> {
        let from = self.givers.iter().map(|giver| (giver.job, giver.it.size - giver.size));
        from.filter(|(_, by)| *by > 0).collect()
    }
}

impl Bid {
    /// `AcceptJob` (§3.2.4).
    fn make(state: &State, now: Moment, request: &Request, terms: Terms) -> Result<Self, Reason> {
        let mut market = Market::open(state, now);
        let available = market.available();
        let least = match terms {
            Terms::Profit => future_min(request, now),
            Terms::Force => Some(future_min(request, now).unwrap_or(request.sizes.min())),
        };
        let too_few = Reason::Deadline { needs: least.unwrap_or(request.sizes.max()), available };
        let size = least.filter(|needs| *needs <= available).ok_or(too_few)?;
        let lost = market.take(size, f64::INFINITY).ok_or(too_few)?;
        let gain = worth_on(request, now, size) - lost;
        if terms == Terms::Profit && gain < 0.0 {
            return Err(Reason::Unprofitable { gain });
        }
        let mut bid = Self { size, from: market.taken() };
        while bid.gets_more(&mut market, request, terms).is_some() {}
        Ok(bid)
    }

    /// "Allocate more processors if it is profitable"; what is idle anyway is
    /// given by [`give_idle`] if this job does not profit by it.
    fn gets_more(
        &mut self,
        market: &mut Market<'_>,
        request: &Request,
        terms: Terms,
    ) -> Option<()> {
        let next = request.sizes.at_least(self.size + 1)?;
        let profit = worth_on(request, market.now, next) - worth_on(request, market.now, self.size);
        if terms == Terms::Force || profit <= 0.0 || market.take(next, profit)? >= profit {
            return None;
        }
        (self.size, self.from) = (next, market.taken());
        Some(())
    }
}

/// What a new job would bring on so many.
fn worth_on(request: &Request, now: Moment, size: u32) -> f64 {
    worth(request, Progress::new(now, request.estimate, request.rate(size)).end())
}

/// What is idle goes where it brings most (§3.2.4, the last paragraph); of
/// equals to the earliest started, so that nothing stays idle that can be used.
fn give_idle(cycle: &mut Cycle<'_>) {
    let now = cycle.now();
    let mut left = cycle.free();
    if left == 0 || !cycle.can_any_take() {
        return;
    }
    let takers: Vec<(JobId, u32)> = cycle.can_take().map(|(job, it)| (job, it.size)).collect();
    let gain = |rank: usize, size: u32| -> Option<(Loss, u32)> {
        let it = cycle.get(takers[rank].0)?;
        let next = it.request.sizes.at_least(size + 1)?;
        let worth_on = |size| worth(&it.request, end_on(it, now, size));
        let by = next - size;
        let each = (worth_on(size) - worth_on(next)) / f64::from(by);
        Some((Loss { each, rank, by }, next))
    };
    let mut heap: BinaryHeap<Reverse<(Loss, u32)>> =
        (0..takers.len()).filter_map(|rank| gain(rank, takers[rank].1).map(Reverse)).collect();
    let mut sizes: Vec<u32> = takers.iter().map(|(_, size)| *size).collect();
    while left > 0
        && let Some(Reverse((Loss { rank, by, .. }, next))) = heap.pop()
    {
        if by <= left {
            (left, sizes[rank]) = (left - by, next);
            heap.extend(gain(rank, next).map(Reverse));
        }
    }
    for ((job, before), size) in takers.into_iter().zip(sizes) {
        if size > before {
            cycle.grow(job, size - before, Obligation::Voluntary);
        }
    }
}
