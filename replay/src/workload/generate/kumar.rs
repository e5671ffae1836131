//! Kumar's workloads (Kumar 2001, §4.1.1 and §4.2).
//!
//! Times between arrivals and numbers of iterations are exponential. An
//! adaptive job has a minimum that is uniform up to all processors, which are
//! its maximum; a traditional one has such a size. A malleable share of 100 is
//! his adaptive column, one of 0 his traditional one.

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    Allowed, Class, KUMAR_TABLE, Profit, Request, Sizes, Speedup,
};
use serde::{Deserialize, Serialize};

use super::draws::{Draws, span};
use super::{Knobs, ModelError, expected, is_malleable};
use crate::campaign::values::Spelt;
use crate::workload::WorkloadJob;

/// "The simulations modeled an Adaptive Job Scheduler with 64 processors."
const PROCESSORS: u32 = 64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kumar {
    pub jobs: u32,
    /// The least minimum, or size of a traditional job: 16 or 1.
    pub least: u32,
    /// The mean time on all 64 processors.
    pub takes: Spelt,
    pub speedup: KumarSpeedup,
    pub profit: Option<KumarProfit>,
    /// A job's work is drawn with the very number that the time before it was
    /// drawn with: a long gap brings a long job. He does not say so, and his
    /// response times are nearer to what comes of it.
    #[serde(default)]
    pub one_stream: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KumarSpeedup {
    /// Tables 4.2, 4.5 and 4.6.
    Linear,
    /// Table 4.1.
    Table,
}

/// What jobs pay (§4.2): all of it until half of the time to the deadline is
/// over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KumarProfit {
    /// Exponential with this mean.
    pub most: f64,
    /// From the arrival on. He prints the mean only: ours are exponential.
    pub deadline: Spelt,
}

impl Kumar {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        expected((1..=PROCESSORS).contains(&self.least), "least", "1 to 64 processors")?;
        expected(!self.takes.0.is_zero(), "takes", "more than nothing")
    }

    fn speedup(&self) -> Speedup {
        match self.speedup {
            KumarSpeedup::Linear => Speedup::Linear,
            KumarSpeedup::Table => Speedup::Table(KUMAR_TABLE.to_vec()),
        }
    }

    pub(super) fn jobs(self, knobs: Knobs) -> impl Iterator<Item = WorkloadJob> {
        let mut draws = Draws::seeded(knobs.seed);
        let mut submitted = Moment::ZERO;
        let speedup = self.speedup();
        (0..self.jobs).filter_map(move |number| {
            let unit = draws.exponential(1.0);
            submitted = submitted + span(unit * knobs.gap.as_secs_f64());
            let unit = if self.one_stream { unit } else { draws.exponential(1.0) };
            let on_all_s = unit * self.takes.0.as_secs_f64();
            let least = draws.whole([self.least, PROCESSORS]);
            let is_malleable = is_malleable(number, knobs.malleable);
            let (class, three) = if is_malleable {
                (Class::Malleable, [least, PROCESSORS, PROCESSORS])
            } else {
                (Class::Rigid, [least; 3])
            };
            let sizes = Sizes::new(three, Allowed::Any).ok()?;
            let slower = speedup.at(PROCESSORS) / speedup.at(sizes.preferred());
            let takes = span(on_all_s * slower);
            let mut request = Request::new(class, sizes, Some(takes));
            request.speedup = speedup.clone();
            if let Some(KumarProfit { most, deadline }) = self.profit {
                let deadline = submitted + draws.exponential_span(deadline.0);
                let most = draws.exponential(most);
                request.deadline = Some(deadline);
                request.profit = Some(Profit::of(most, submitted, deadline));
            }
            Some(WorkloadJob { number: JobId(number), submitted, takes, request })
        })
    }
}
