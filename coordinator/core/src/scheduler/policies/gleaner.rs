//! Ours: each processor goes where it brings the completion of a job nearest.
//!
//! The rules, all of them:
//! 1. *Equal margins.* A step of a job from one size to the next is worth
//!    `w (S(b) - S(a))` and takes `b - a` processors. Steps are given out by
//!    their worth per processor until no processor is left. Since speed-ups rise
//!    ever less, the sum of worths is then as large as it can be (Fox 1966), and
//!    jobs that are alike get equal parts.
//! 2. *Shorter ones weigh more.* `w = W^(-1/5)`, W being what is left to do on
//!    one processor. Were sizes alone to count, this would be the least work
//!    first (Schrage 1968; for several processors at once, smallest area first:
//!    Carastan-Santos et al. 2019). With speed-ups, all to the shortest wastes
//!    what it cannot use well, and the best is in between (heSRPT: Berg, Vesilo
//!    and Harchol-Balter 2020).
//! 3. *Whoever waits takes part*, with its first step. One that is larger than
//!    what is left is taken before all others, if everything together comes to
//!    more with it. If not, those worth less start only if they do not delay it,
//!    as under EASY (Lifka 1995): only what running jobs cannot give back counts.
//! 4. *A change must pay.* It takes `change_cost` until a change has come about.
//!    What the job would have done by then is set against the steps that leave
//!    its present size, spread over the time that it has left.
//! 5. *Owners.* A processor whose owner returns costs its job a change. How
//!    often that happens is counted, and each step but the first pays for what it
//!    brings. An owner's return is a shrink that has been carried out: the next cycle gives
//!    out what there is. Which workstations are likely to last is placement's.
//!
//! 6. *Nobody is overtaken for ever.* Whoever has waited for longer than
//!    `overtaken_max` comes before all others that wait, by age and whatever it
//!    is worth, and nobody starts who would delay it. Where estimates hold, it
//!    waits from then on for those that run, at most until their ends on
//!    minimums, and for those that are overdue before it.
//!
//! Where nobody can change its size, that is a list schedule in the order of
//! rule 2. Trying orders instead, for the smallest sum of ends of all who wait,
//! was no better (0.961 of EASY's mean turnaround on 30 unseen inputs without
//! malleable jobs, against 0.958): with a handful waiting, little is left to
//! choose.
//!
//! One number is fitted: the exponent of rule 2, to the mean turnaround of
//! inputs 1 to 8 of `replay`'s generator of Posner's kind. A job of unknown
//! length is taken to have as much before it as it has behind it
//! (Harchol-Balter and Downey 1997).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::policy::{Named, Scheduling};
use crate::scheduler::reason::Reason;
use crate::scheduler::request::{Class, Request};
use crate::scheduler::state::{State, Turn, Want};

pub(super) const GLEANER: Named = Named {
    name: "gleaner",
    line: "each processor goes where it brings a job's end nearest, if the change pays",
    source: "ours: Fox 1966; Berg et al. 2020 (heSRPT); Carastan-Santos et al. 2019; Lifka 1995",
    build: |parameters| {
        let (change_cost, overtaken_max) = (parameters.change_cost, parameters.overtaken_max);
        let (owners, asked) = (Owners::default(), Asked::default());
        let (shortest, oldest) = (Ranked::default(), Ranked::default());
        let (after, last) = (None, None);
        Box::new(Gleaner {
            change_cost,
            overtaken_max,
            owners,
            asked,
            after,
            last,
            shortest,
            oldest,
        })
    },
};

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
/// So many of those that run are looked at in a stage, and in the next one those
/// behind them: what a stage costs does not grow with how many there are.
const LOOKED_AT: usize = 128;
/// Of those that wait, so many of the first and as many of the shortest.
const WAITING_LOOKED_AT: usize = 64;

#[derive(Debug)]
struct Gleaner {
    change_cost: Duration,
    overtaken_max: Duration,
    owners: Owners,
    asked: Asked,
    /// Behind which of those that run this moment's are, and which is the last.
    after: Option<(Moment, JobId)>,
    last: Option<(Moment, JobId)>,
    /// Those that wait, by their work and by their age.
    shortest: Ranked,
    oldest: Ranked,
}

/// Some that wait, the lowest number first; some of them may have gone.
#[derive(Debug, Default)]
struct Ranked(BTreeSet<(u64, Turn)>);

impl Ranked {
    /// The first ones that have not gone. Of those that have, so many are
    /// forgotten each time.
    fn first(&mut self, state: &State) -> impl Iterator<Item = Turn> {
        let first = self.0.iter().take(2 * WAITING_LOOKED_AT);
        let (there, gone): (Vec<_>, Vec<_>) =
            first.partition(|(_, turn)| state.waiting_at(*turn).is_some());
        for gone in gone {
            self.0.remove(&gone);
        }
        there.into_iter().take(WAITING_LOOKED_AT).map(|(_, turn)| turn)
    }
}

/// Whom it has asked for processors at this moment, and how often.
#[derive(Debug, Default)]
struct Asked {
    at: Moment,
    times: BTreeMap<JobId, u32>,
}

impl Asked {
    fn go_to(&mut self, now: Moment) {
        if self.at != now {
            (self.at, self.times) = (now, BTreeMap::new());
        }
    }

    /// Has it been asked again after it had grown? Then who starts depends on
    /// its size, and both would go on in turn for ever.
    fn goes_in_circles(&self, job: JobId) -> bool {
        self.times.get(&job).is_some_and(|times| *times > 1)
    }
}

/// How often owners return: measured, over all processors.
#[derive(Debug, Default)]
struct Owners {
    last: Option<(Moment, u32)>,
    returns: f64,
    processor_s: f64,
}

impl Owners {
    fn note(&mut self, now: Moment, processors: u32) {
        if let Some((then, before)) = self.last {
            self.processor_s += f64::from(before) * now.since(then).as_secs_f64();
            self.returns += f64::from(before.saturating_sub(processors));
        }
        self.last = Some((now, processors));
    }

    /// Of one processor, a second.
    fn hazard(&self) -> f64 {
        if self.processor_s > 0.0 { self.returns / self.processor_s } else { 0.0 }
    }
}

impl Scheduling for Gleaner {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        self.owners.note(cycle.now(), cycle.resources().processors);
        self.note_arrivals(cycle);
        meet_wants(cycle);
        let is_wanted = cycle.waiting_count() > 0 || cycle.can_any_take();
        let is_later_stage = !cycle.changes().is_news && self.asked.at == cycle.now();
        let is_over = is_later_stage && cycle.waiting_count() == 0 && cycle.free() == 0;
        self.asked.go_to(cycle.now());
        if !is_wanted || is_over || cycle.free() + cycle.spare() == 0 {
            return;
        }
        // All stages of a cycle look at the same ones.
        self.after = if is_later_stage { self.after } else { self.last };
        let running: Vec<_> =
            cycle.negotiable_after(self.after).take(LOOKED_AT).map(|(at, _)| at).collect();
        // Whoever sees all of them sees them in the same order.
        self.last = running.last().copied().filter(|_| running.len() == LOOKED_AT);
        let waiting = self.waiting(cycle);
        let table = Table::of(cycle, cycle.now(), self, (&running, &waiting));
        let given = table.give();
        let orders = table.orders(&given);
        carry_out(cycle, orders, &mut self.asked);
    }
}

impl Gleaner {
    fn note_arrivals(&mut self, cycle: &Cycle<'_>) {
        for turn in &cycle.changes().arrived {
            let Some(it) = cycle.waiting_at(*turn) else { continue };
            self.shortest.0.insert((work_of(&it.request).to_bits(), *turn));
            self.oldest.0.insert((it.submitted.0, *turn));
        }
    }

    /// Those that wait and are looked at, in turn.
    fn waiting(&mut self, state: &State) -> Vec<Turn> {
        let in_turn = state.waiting().map(|(turn, _)| turn);
        let all: Vec<Turn> = in_turn.take(3 * WAITING_LOOKED_AT).collect();
        let (shortest, oldest) = (self.shortest.first(state), self.oldest.first(state));
        if all.len() < 3 * WAITING_LOOKED_AT {
            return all;
        }
        let may = |turn: &Turn| {
            state.waiting_at(*turn).is_some_and(|it| state.places_for(&it.request) > 0)
        };
        let first = all.iter().copied().take(WAITING_LOOKED_AT);
        let chosen: BTreeSet<Turn> = first.chain(shortest.chain(oldest).filter(may)).collect();
        chosen.into_iter().collect()
    }
}

/// What is to be done of it, on one processor.
fn work_of(request: &Request) -> f64 {
    let alone = request.speedup.at(request.sizes.preferred());
    let takes_s = request.estimate.map_or(UNKNOWN_S, |takes| takes.as_secs_f64());
    (takes_s * alone).max(WORK_MIN_S)
}

/// A running job that has asked for more gets it, or is told what is free.
fn meet_wants(cycle: &mut Cycle<'_>) {
    let wants: Vec<(JobId, Want)> = cycle.wanting().collect();
    for (job, Want { more, is_answer }) in wants {
        let free = cycle.free();
        if more <= free && cycle.grow(job, more, Obligation::Mandatory) > 0 {
            continue;
        }
        if more <= free || is_answer { cycle.drop_want(job) } else { cycle.offer(job, free) }
    }
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
struct Given {
    sizes: Vec<u32>,
    worth: f64,
    guard: Option<Guard>,
}

#[derive(Debug)]
struct Table<'a> {
    state: &'a State,
    now: Moment,
    claims: Vec<Claim<'a>>,
    /// Processors for them.
    available: u32,
    /// What a step costs for each of its processors, by its speed-up: owners.
    risk: f64,
}

impl<'a> Table<'a> {
    fn of(
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
        let next = || claim.request.sizes.at_least(from + 1);
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

    fn key(&self, step: &Step) -> Key {
        let claim = &self.claims[step.index];
        let overdue = claim.overdue.filter(|_| step.from == 0);
        let priority = claim.request.priority;
        (overdue, priority, step.worth.to_bits(), Reverse(step.index), step.from, step.to)
    }

    /// Rule 3: whoever does not fit is tried before the others, but not before
    /// those that rule 6 is for.
    fn give(&self) -> Given {
        let mut before = vec![];
        let mut best = self.give_after(&before).unwrap_or_default();
        let has_overdue = self.claims.iter().any(|claim| claim.overdue.is_some());
        while !has_overdue
            && let Some(guard) = best.guard
            && before.len() < TRIED_MAX
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
            let needs = to - from;
            if from == 0 && !self.may_start(&mut given, index, to, left, &sizes) || needs > left {
                continue;
            }
            (sizes[index], left) = (to, left - needs);
            given.worth += f64::from_bits(worth) * f64::from(needs);
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
        let ends = minimums.zip(&self.claims).filter(|(minimum, _)| *minimum > 0);
        // Who is promised a start is to have it even if all others shrink.
        let is_promised = self.claims[first].overdue.is_some();
        let ends = ends.map(|(minimum, claim)| {
            let size = if is_promised { minimum } else { claim.size.max(minimum) };
            (claim.takes_s(size), minimum)
        });
        let whose = |claim: &Claim<'_>| match claim.whose {
            Whose::Running(job) => Some(job),
            Whose::Waiting(_) => None,
        };
        let here: BTreeSet<JobId> = self.claims.iter().filter_map(whose).collect();
        let fixed = self.state.running().filter(|(job, _)| !here.contains(job));
        let speed = self.state.resources().speed;
        let fixed = fixed.map(|(_, it)| {
            let least = it.request.sizes.min().min(it.size);
            let left = it.progress.left(self.now).filter(|_| is_promised);
            let on_least = left.map(|left| left.as_secs_f64() / it.request.rate_on(least, speed));
            let as_it_is = || it.progress.end().since(self.now).as_secs_f64();
            (on_least.unwrap_or_else(as_it_is), it.size)
        });
        let mut ends: Vec<(f64, u32)> = ends.chain(fixed).collect();
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

    fn orders(&self, given: &Given) -> Orders {
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
struct Orders {
    shrinks: Vec<(JobId, u32)>,
    starts: Vec<(Turn, u32)>,
    grows: Vec<(JobId, u32)>,
    reserved: Option<(Turn, u32, Option<Moment>)>,
}

fn carry_out(cycle: &mut Cycle<'_>, orders: Orders, asked: &mut Asked) {
    for (job, by) in orders.shrinks {
        cycle.shrink(job, by, Obligation::Mandatory);
        *asked.times.entry(job).or_default() += 1;
    }
    let mut missing = 0;
    for (turn, size) in orders.starts {
        let Some(job) = cycle.waiting_at(turn) else { continue };
        // A malleable job begins with what is there and gets the rest later.
        let is_fixed = !matches!(job.request.class, Class::Malleable);
        let most = if is_fixed { size } else { size.min(cycle.free()) };
        let size_now = job.request.sizes.at_most(most);
        if !size_now.is_some_and(|now| cycle.start(turn, now)) {
            let processors = size.saturating_sub(cycle.free());
            cycle.wait(turn, Reason::Releasing { processors });
            missing += if processors > 0 { size } else { 0 };
        }
    }
    if let Some((turn, size, start)) = orders.reserved {
        match start {
            Some(start) if start > cycle.now() => cycle.reserve(turn, size, start),
            Some(_) | None => {
                let free = cycle.free();
                cycle.wait(turn, Reason::TooFewFree { needs: size, free });
            }
        }
    }
    for (job, by) in orders.grows {
        if asked.goes_in_circles(job) {
            continue;
        }
        let by = by.min(cycle.free().saturating_sub(missing));
        cycle.grow(job, by, Obligation::Voluntary);
    }
}
