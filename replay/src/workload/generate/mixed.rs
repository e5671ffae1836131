//! A workload with the knobs of today's literature: the share of each class,
//! the range of sizes, how well jobs scale and how much their submitters
//! overestimate (Zojer, Posner and Özden 2026, arXiv 2602.17318, vary the first
//! two; the others are those of the workload models that they name).

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{Allowed, Class, Request, Sizes, Speedup};
use serde::{Deserialize, Serialize};

use super::draws::{Draws, span};
use super::{Knobs, ModelError, Range, expected, flexible, is_malleable};
use crate::campaign::values::Spelt;
use crate::workload::WorkloadJob;

/// Half of the processors to twice as many.
const USUAL_RANGE: Range = Range::Percent { min: 50, max: 200 };

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    pub jobs: u32,
    /// The fewest and the most processors, all orders of magnitude as likely.
    pub sizes: [u32; 2],
    /// Sizes are powers of two, as most jobs' are (Downey 1997).
    #[serde(default)]
    pub powers_of_two: bool,
    /// The shortest and the longest run time, all orders of magnitude as likely.
    pub times: [Spelt; 2],
    /// How many of a hundred jobs that are not malleable can be moulded.
    #[serde(default)]
    pub moldable: u32,
    /// The parallel part of a job (Amdahl), uniform between these.
    pub parallel: Option<[f64; 2]>,
    /// How many times as long as it takes a job is said to take, uniform
    /// between these.
    #[serde(default = "exact")]
    pub estimates: [f64; 2],
}

fn exact() -> [f64; 2] {
    [1.0, 1.0]
}

impl Mixed {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let ([few, many], [short, long]) = (self.sizes, self.times.map(|Spelt(time)| time));
        expected(few >= 1 && few <= many, "sizes", "the fewest and the most, from 1 on")?;
        let in_order = !short.is_zero() && short <= long;
        expected(in_order, "times", "the shortest, of more than nothing, and the longest")?;
        expected(self.moldable <= 100, "moldable", "0 to 100 of a hundred")?;
        let parts = self.parallel.unwrap_or([0.0, 1.0]);
        let parts_fine = (0.0..=1.0).contains(&parts[0]) && (parts[0]..=1.0).contains(&parts[1]);
        expected(parts_fine, "parallel", "two parts from 0 to 1")?;
        let [least, most] = self.estimates;
        expected(least > 0.0 && least <= most, "estimates", "two factors above 0")
    }

    pub(super) fn jobs(self, knobs: Knobs) -> impl Iterator<Item = WorkloadJob> {
        let mut draws = Draws::seeded(knobs.seed);
        let mut submitted = Moment::ZERO;
        (0..self.jobs).filter_map(move |number| {
            submitted = submitted + draws.exponential_span(knobs.gap);
            let rigid = self.rigid(&mut draws, number, submitted)?;
            let can_be_moulded = draws.percent(self.moldable);
            let range = knobs.range.unwrap_or(USUAL_RANGE);
            Some(if is_malleable(number, knobs.malleable) {
                flexible(rigid, range)
            } else if can_be_moulded {
                let mut job = flexible(rigid, range);
                job.request.class = Class::Moldable;
                job
            } else {
                rigid
            })
        })
    }

    fn rigid(&self, draws: &mut Draws, number: u32, submitted: Moment) -> Option<WorkloadJob> {
        let most = draws.log_whole(self.sizes);
        let size = if self.powers_of_two { 1 << most.ilog2() } else { most };
        let takes = draws.log_uniform(self.times.map(|Spelt(time)| time.as_secs_f64()));
        let estimate = span(takes * draws.uniform(self.estimates));
        let sizes = Sizes::new([size; 3], Allowed::Any).ok()?;
        let mut request = Request::new(Class::Rigid, sizes, Some(estimate));
        if let Some(parts) = self.parallel {
            request.speedup = Speedup::Amdahl { parallel: draws.uniform(parts) };
        }
        Some(WorkloadJob { number: JobId(number), submitted, takes: span(takes), request })
    }
}
