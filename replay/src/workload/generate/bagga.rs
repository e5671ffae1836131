//! Bagga's batches (Bagga 2014, §2.3.1.1 and §4.2).
//!
//! Batches of jobs that arrive at one moment, each with a burst of processor
//! cycles and a demand for processors of the clock that the load was made for.
//! He prints the distributions of neither. In his one worked job (§4.1) the
//! demand is what ends the burst in a second: 5 processors of 2.8 GHz for
//! 14,867,457,867 cycles (the other place where he prints it has a digit too
//! many), so that is how ours are made: a burst uniform between two bounds, and
//! the demand from it.

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{Allowed, Class, Request, Sizes};
use serde::{Deserialize, Serialize};

use super::draws::{Draws, span, whole_part};
use super::{Knobs, ModelError, expected};
use crate::workload::WorkloadJob;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bagga {
    pub batches: u32,
    /// The fewest and the most jobs of a batch.
    pub jobs: [u32; 2],
    /// The smallest and the largest burst, in 10⁹ cycles.
    pub burst: [f64; 2],
    /// The clock that demands are meant for, in GHz.
    pub meant: f64,
    /// No job uses more processors.
    pub most: u32,
}

impl Bagga {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let ([few, many], [small, large]) = (self.jobs, self.burst);
        expected(few >= 1 && few <= many, "jobs", "the fewest and the most of a batch")?;
        expected(small > 0.0 && small <= large, "burst", "the smallest and the largest")?;
        expected(self.meant > 0.0 && self.most > 0, "meant, most", "more than nothing")
    }

    pub(super) fn jobs(self, knobs: Knobs) -> impl Iterator<Item = WorkloadJob> {
        let mut draws = Draws::seeded(knobs.seed);
        let (mut submitted, mut left, mut batches) = (Moment::ZERO, 0, self.batches);
        let mut number = 0;
        std::iter::from_fn(move || {
            if left == 0 {
                batches = batches.checked_sub(1)?;
                submitted = submitted + draws.exponential_span(knobs.gap);
                left = draws.whole(self.jobs);
            }
            let burst = draws.uniform(self.burst);
            let request = self.request(burst)?;
            let takes = request.estimate?;
            let job = WorkloadJob { number: JobId(number), submitted, takes, request };
            (left, number) = (left - 1, number + 1);
            Some(job)
        })
    }

    fn request(&self, burst: f64) -> Option<Request> {
        let demand = whole_part((burst / self.meant).round_ties_even()).clamp(1, self.most);
        let sizes = Sizes::new([1, demand, self.most], Allowed::Any).ok()?;
        let takes = span(burst / (f64::from(demand) * self.meant));
        let request = Request::new(Class::Malleable, sizes, Some(takes));
        Some(Request { speed: Some(self.meant), ..request })
    }
}
