//! APM: each processor to the job whose speed-up gains most by it
//! (Hungershöfer et al. 2001, by Ghafoor 2007, §2.2).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::partition::{Admission, Part, divide};
use crate::scheduler::cycle::Cycle;
use crate::scheduler::policy::{Named, Scheduling};

pub(super) const APM: Named = Named {
    name: "apm",
    line: "each processor goes where it adds most to the sum of all speed-ups; jobs start in order",
    source: "Hungershöfer et al. 2001; Ghafoor 2007, §2.2",
    build: |_| Box::new(Apm),
};

#[derive(Debug)]
struct Apm;

impl Scheduling for Apm {
    fn decide(&mut self, cycle: &mut Cycle<'_>) {
        divide(cycle, Admission::InOrder, greedy);
    }
}

/// What a processor more would bring to a part; of equals the first.
type Gain = (u64, Reverse<usize>, u32);

/// A gain of less than 0 is none: a job that gets slower takes no more.
fn gain(parts: &[Part<'_>], index: usize, size: u32) -> Option<Gain> {
    let Part { sizes, speedup } = parts.get(index)?;
    let next = sizes.at_least(size.checked_add(1)?)?;
    let each = (speedup.at(next) - speedup.at(size)) / f64::from(next - size);
    // Numbers that are not negative are ordered as their bits are.
    Some((each.max(0.0).to_bits(), Reverse(index), next))
}

fn greedy(parts: &[Part<'_>], total: u32) -> Vec<u32> {
    let mut targets: Vec<u32> = parts.iter().map(|part| part.sizes.min()).collect();
    let mut left = total - targets.iter().sum::<u32>();
    let mut gains: BinaryHeap<Gain> =
        (0..parts.len()).filter_map(|index| gain(parts, index, targets[index])).collect();
    while left > 0
        && let Some((_, Reverse(index), next)) = gains.pop()
    {
        let step = next - targets[index];
        if step <= left {
            (targets[index], left) = (next, left - step);
            gains.extend(gain(parts, index, next));
        }
    }
    targets
}
