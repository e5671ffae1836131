//! What policies have in common that divide all processors anew at every
//! change: who is let in, and how sizes become decisions.
//!
//! Whoever is to shrink is asked first. Those who are to start or to grow wait
//! until that has been answered; the next stage divides anew, with whoever did
//! not do as expected left as it is.

use gleaner_common::id::JobId;

use crate::scheduler::cycle::{Cycle, Obligation};
use crate::scheduler::reason::Reason;
use crate::scheduler::request::Request;
use crate::scheduler::sizes::Sizes;
use crate::scheduler::speedup::Speedup;
use crate::scheduler::state::{Running, Turn};

/// Who may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Whoever fits on its minimum.
    FirstFit,
    /// In order, until one does not fit.
    InOrder,
}

/// A job that gets a part: one that runs and can change, or one that is let in.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) sizes: &'a Sizes,
    pub(super) speedup: &'a Speedup,
    /// What it has; 0, if it does not run.
    pub(super) size: u32,
}

impl<'a> Part<'a> {
    fn of(request: &'a Request, size: u32) -> Self {
        Self { sizes: &request.sizes, speedup: &request.speedup, size }
    }
}

/// Divides: gets the parts, those that run first and in order of their start,
/// and how many processors there are for them. Gives a size to each, of which
/// the job can run on; minimums fit.
pub(super) type Rule = fn(&[Part<'_>], u32) -> Vec<u32>;

pub(super) fn divide(cycle: &mut Cycle<'_>, admission: Admission, rule: Rule) {
    let processors = cycle.resources().processors;
    // All that is held and cannot be asked for, and what owners have taken of
    // minimums.
    let missing = |it: &Running| it.request.sizes.min().saturating_sub(it.size);
    let short: u32 = cycle.negotiable().map(|(_, it)| missing(it)).sum();
    let mut floor = cycle.held() - cycle.spare() + short;
    let admitted = admit(cycle, admission, &mut floor);
    let running: Vec<(JobId, u32)> = cycle.negotiable().map(|(id, it)| (id, it.size)).collect();
    let parts: Vec<_> = {
        let running = cycle.negotiable().map(|(_, it)| Part::of(&it.request, it.size));
        let new = admitted.iter().filter_map(|turn| cycle.waiting_at(*turn));
        running.chain(new.map(|it| Part::of(&it.request, 0))).collect()
    };
    // What is nobody's part: held by those that cannot change.
    let parts_min: u32 = parts.iter().map(|part| part.sizes.min()).sum();
    let for_parts = processors.saturating_sub(floor) + parts_min;
    if parts.is_empty() || parts_min > for_parts {
        return;
    }
    let targets = rule(&parts, for_parts);
    settle(cycle, &running, &admitted, &targets);
}

fn admit(cycle: &mut Cycle<'_>, admission: Admission, floor: &mut u32) -> Vec<Turn> {
    let processors = cycle.resources().processors;
    let (mut admitted, mut refused) = (vec![], vec![]);
    let least = cycle.least_needed().unwrap_or(0);
    for (turn, job) in cycle.waiting() {
        let needs = job.request.sizes.min();
        let free = processors.saturating_sub(*floor);
        if needs <= free {
            *floor += needs;
            admitted.push(turn);
        } else {
            refused.push((turn, Reason::TooFewFree { needs, free }));
            if admission == Admission::InOrder {
                break;
            }
        }
        // Nobody behind fits either.
        if processors.saturating_sub(*floor) < least {
            break;
        }
    }
    for (turn, reason) in refused {
        cycle.wait(turn, reason);
    }
    admitted
}

fn settle(cycle: &mut Cycle<'_>, running: &[(JobId, u32)], admitted: &[Turn], targets: &[u32]) {
    let mut changes =
        running.iter().zip(targets).map(|((job, size), target)| (*job, *size, *target));
    for (job, size, target) in changes.clone().filter(|(_, size, target)| target < size) {
        cycle.shrink(job, size - target, Obligation::Mandatory);
    }
    for (turn, target) in admitted.iter().zip(&targets[running.len()..]) {
        if !cycle.start(*turn, *target) {
            let processors = target.saturating_sub(cycle.free());
            return cycle.wait(*turn, Reason::Releasing { processors });
        }
    }
    if cycle.releasing() == 0 {
        changes.by_ref().filter(|(_, size, target)| target > size).for_each(
            |(job, size, target)| {
                cycle.grow(job, target - size, Obligation::Voluntary);
            },
        );
    }
}

/// The highest level that fits, one more for the first ones, and then whatever
/// sizes of more than one step leave, step by step in order. `at` says what a
/// part gets at a level, between its minimum and maximum.
pub(super) fn fill(parts: &[Part<'_>], total: u32, at: impl Fn(&Part<'_>, u32) -> u32) -> Vec<u32> {
    let sum = |level: u32| parts.iter().map(|part| u64::from(at(part, level))).sum::<u64>();
    let (mut fits, mut above) = (0, total.saturating_add(1));
    while above - fits > 1 {
        let middle = fits + (above - fits) / 2;
        if sum(middle) <= total.into() { fits = middle } else { above = middle }
    }
    let mut left = total - u32::try_from(sum(fits)).unwrap_or(total).min(total);
    let mut targets = vec![];
    for part in parts {
        let size = at(part, fits);
        let more = u32::from(left > 0 && at(part, fits + 1) > size);
        left -= more;
        let allowed = part.sizes.at_most(size + more).unwrap_or_else(|| part.sizes.min());
        left += size + more - allowed;
        targets.push(allowed);
    }
    step_up(parts, &mut targets, left);
    targets
}

fn step_up(parts: &[Part<'_>], targets: &mut [u32], mut left: u32) {
    loop {
        let before = left;
        for (part, target) in parts.iter().zip(&mut *targets) {
            let step = part.sizes.at_least(*target + 1).map(|next| next - *target);
            if let Some(step) = step.filter(|step| *step <= left) {
                *target += step;
                left -= step;
            }
        }
        if left == before || left == 0 {
            return;
        }
    }
}
