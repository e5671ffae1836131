//! Downey's model, extended to malleable jobs (Ghafoor 2007, §3.3.2).
//!
//! Jobs arrive at random (exponential times between them). Sizes and run times
//! are uniform in their logarithms, which is what Downey 1997, "A parallel
//! workload model and its implications for processor allocation", finds in the
//! logs of San Diego and Cornell. Ghafoor prints the bounds of both and no rate
//! of arrival: a campaign has to choose one, and its report says so.

use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::Request;
use serde::{Deserialize, Serialize};

use super::draws::{Draws, span};
use super::{Knobs, ModelError, expected, flexible, is_malleable};
use crate::campaign::values::Spelt;
use crate::workload::WorkloadJob;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Downey {
    pub jobs: u32,
    /// The fewest and the most processors of a rigid job.
    pub sizes: [u32; 2],
    /// The shortest and the longest run time.
    pub times: [Spelt; 2],
}

impl Downey {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let [least, most] = self.sizes;
        let [short, long] = self.times.map(|Spelt(time)| time);
        expected(least >= 1 && least <= most, "sizes", "the fewest and the most, from 1 on")?;
        let in_order = short > Duration::ZERO && short <= long;
        expected(in_order, "times", "the shortest, of more than nothing, and the longest")
    }

    pub(super) fn jobs(self, knobs: Knobs) -> impl Iterator<Item = WorkloadJob> {
        let mut draws = Draws::seeded(knobs.seed);
        let mut submitted = Moment::ZERO;
        let times = self.times.map(|Spelt(time)| time.as_secs_f64());
        (0..self.jobs).filter_map(move |number| {
            submitted = submitted + draws.exponential_span(knobs.gap);
            let size = draws.log_whole(self.sizes);
            let takes = span(draws.log_uniform(times));
            let request = Request::rigid(size, Some(takes)).ok()?;
            let job = WorkloadJob { number: JobId(number), submitted, takes, request };
            let range = knobs.range.filter(|_| is_malleable(number, knobs.malleable));
            Some(match range {
                Some(range) => flexible(job, range),
                None => job,
            })
        })
    }
}
