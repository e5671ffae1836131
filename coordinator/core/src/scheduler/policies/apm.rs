//! APM: each processor to the job whose speed-up gains most by it
//! (Hungershöfer et al. 2001, by Ghafoor 2007, §2.2).
//!
//! The sum of all speed-ups is improved from the sizes that jobs have, one
//! processor after the other, until no exchange of one makes it larger. With
//! speed-ups that rise ever less this is what giving out all processors anew
//! would come to, at the cost of what changes; and jobs that gain alike are
//! left as they are.

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
        divide(cycle, Admission::InOrder, |parts, total| Exchange::of(parts, total).run());
    }
}

/// A step from one size to the next: what each processor of it is worth, whose
/// it is, and the two sizes. Worths are not negative, so their bits are in
/// their order.
type Step = (u64, Reverse<usize>, [u32; 2]);

/// What could be given and taken. Steps of sizes that have changed since are
/// void.
struct Exchange<'a, 'b> {
    parts: &'b [Part<'a>],
    sizes: Vec<u32>,
    /// Processors that nobody has; fewer than none, at first.
    left: i64,
    up: BinaryHeap<Step>,
    down: BinaryHeap<Reverse<Step>>,
}

impl<'a, 'b> Exchange<'a, 'b> {
    fn of(parts: &'b [Part<'a>], total: u32) -> Self {
        let sizes: Vec<u32> = parts.iter().map(|part| part.size.max(part.sizes.min())).collect();
        let left = i64::from(total) - sizes.iter().map(|size| i64::from(*size)).sum::<i64>();
        let (up, down) = (BinaryHeap::new(), BinaryHeap::new());
        let mut exchange = Self { parts, sizes, left, up, down };
        (0..parts.len()).for_each(|index| exchange.offer(index));
        exchange
    }

    /// The steps that a job could take from its size.
    fn offer(&mut self, index: usize) {
        let (part, size) = (&self.parts[index], self.sizes[index]);
        let worth = |low: u32, high: u32| {
            let each = (part.speedup.at(high) - part.speedup.at(low)) / f64::from(high - low);
            each.max(0.0).to_bits()
        };
        if let Some(more) = part.sizes.at_least(size.saturating_add(1)) {
            self.up.push((worth(size, more), Reverse(index), [size, more]));
        }
        if let Some(less) = part.sizes.at_most(size - 1) {
            self.down.push(Reverse((worth(less, size), Reverse(index), [size, less])));
        }
    }

    fn take(&mut self, (_, Reverse(index), [from, to]): Step) {
        self.left += i64::from(from) - i64::from(to);
        self.sizes[index] = to;
        self.offer(index);
    }

    fn is_void(&self, (_, Reverse(index), [from, _]): Step) -> bool {
        self.sizes[index] != from
    }

    fn best(&mut self) -> Option<Step> {
        while self.up.peek().is_some_and(|step| self.is_void(*step)) {
            self.up.pop();
        }
        self.up.peek().copied()
    }

    fn least(&mut self) -> Option<Step> {
        while self.down.peek().is_some_and(|Reverse(step)| self.is_void(*step)) {
            self.down.pop();
        }
        self.down.peek().map(|Reverse(step)| *step)
    }

    fn run(mut self) -> Vec<u32> {
        while self.left < 0
            && let Some(step) = self.least()
        {
            self.take(step);
        }
        while let Some(gain) = self.best() {
            let [from, to] = gain.2;
            let needs = i64::from(to - from);
            if needs <= self.left {
                self.take(gain);
                continue;
            }
            match self.least().filter(|loss| pays(gain, *loss, needs - self.left)) {
                Some(loss) => {
                    self.take(loss);
                    self.take(gain);
                }
                // Another one may take a smaller step.
                None => _ = self.up.pop(),
            }
        }
        self.sizes
    }
}

/// Does one job gain more than the other loses, by a step that gives enough?
/// By a hair it does not: sums of rounded numbers would go round in circles.
fn pays(gain: Step, loss: Step, missing: i64) -> bool {
    let gives = i64::from(loss.2[0] - loss.2[1]);
    let [up, down] = [(gain, 1.0), (loss, 1.0 + 1e-9)]
        .map(|(step, by)| f64::from(step.2[0].abs_diff(step.2[1])) * f64::from_bits(step.0) * by);
    gain.1 != loss.1 && gives >= missing && up > down
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scheduler::{Allowed, Sizes, Speedup};

    /// Gives out everything anew, one after the other.
    fn anew(parts: &[Part<'_>], total: u32) -> Vec<u32> {
        let mut sizes: Vec<u32> = parts.iter().map(|part| part.sizes.min()).collect();
        while sizes.iter().sum::<u32>() < total {
            let gain = |index: &usize| {
                let (part, size) = (&parts[*index], sizes[*index]);
                part.speedup.at(size + 1) - part.speedup.at(size)
            };
            let can = (0..parts.len()).filter(|index| sizes[*index] < parts[*index].sizes.max());
            let Some(best) = can.max_by(|a, b| gain(a).total_cmp(&gain(b))) else { break };
            sizes[best] += 1;
        }
        sizes
    }

    proptest! {
        #[test]
        fn exchanging_comes_to_what_giving_out_anew_would(
            jobs in prop::collection::vec((1..4_u32, 0..20_u32, 0.0..0.999_f64, 0..40_u32), 1..12),
            more in 0..120_u32
        ) {
            let of = |(min, room, parallel, size): (u32, u32, f64, u32)| {
                let sizes = Sizes::new([min, min, min + room], Allowed::Any).expect("in order");
                (sizes, Speedup::Amdahl { parallel }, size.min(min + room))
            };
            let jobs: Vec<_> = jobs.into_iter().map(of).collect();
            let parts = jobs.iter();
            let parts = parts.map(|(sizes, speedup, size)| Part { sizes, speedup, size: *size });
            let parts: Vec<Part<'_>> = parts.collect();
            let total = jobs.iter().map(|(sizes, ..)| sizes.min()).sum::<u32>() + more;
            let sum = |sizes: &[u32]| -> f64 {
                parts.iter().zip(sizes).map(|(part, size)| part.speedup.at(*size)).sum()
            };
            let exchanged = Exchange::of(&parts, total).run();
            let expected = anew(&parts, total);
            prop_assert!((sum(&exchanged) - sum(&expected)).abs() < 1e-6);
            prop_assert_eq!(exchanged.iter().sum::<u32>(), expected.iter().sum::<u32>());
        }
    }
}
