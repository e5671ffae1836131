//! Workloads that are made up, by the models of the works that use them.
//!
//! The promise: the same seed gives the same jobs, one after the other, so that
//! none of them has to be kept; and what is varied changes nothing else: with
//! another share of malleable jobs the same jobs arrive at the same times.

mod bagga;
mod downey;
mod draws;
mod koala;
mod kumar;
mod mixed;
mod range;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::bagga::Bagga;
pub use self::downey::Downey;
pub(super) use self::draws::Draws;
pub use self::koala::Koala;
pub use self::kumar::{Kumar, KumarProfit, KumarSpeedup};
pub use self::mixed::Mixed;
pub use self::range::{ParseRangeError, Range, flexible, within};
use super::WorkloadJob;

/// What a workload is varied in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    pub seed: u64,
    /// The mean time from one arrival to the next.
    pub gap: Duration,
    /// How many of a hundred jobs are malleable.
    pub malleable: u32,
    /// The sizes of those that are; what the model says, if there is none.
    pub range: Option<Range>,
}

/// A model of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    Downey(Downey),
    Kumar(Kumar),
    Koala(Koala),
    Bagga(Bagga),
    Mixed(Mixed),
}

/// Why no jobs can be made of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("`{what}`: expected {expected}")]
    Value { what: &'static str, expected: &'static str },
    #[error("ranges of sizes: {0} has its own")]
    Range(&'static str),
}

impl Model {
    /// # Errors
    /// The first value that makes no sense.
    pub fn check(&self, range: Option<Range>) -> Result<(), ModelError> {
        let own = |name| if range.is_some() { Err(ModelError::Range(name)) } else { Ok(()) };
        match self {
            Self::Downey(model) => model.check(),
            Self::Mixed(model) => model.check(),
            Self::Kumar(model) => own("kumar").and_then(|()| model.check()),
            Self::Koala(model) => own("koala").and_then(|()| model.check()),
            Self::Bagga(model) => own("bagga").and_then(|()| model.check()),
        }
    }

    /// The jobs, in the order of their submission.
    pub fn jobs(&self, knobs: Knobs) -> Box<dyn Iterator<Item = WorkloadJob>> {
        match self.clone() {
            Self::Downey(model) => Box::new(model.jobs(knobs)),
            Self::Kumar(model) => Box::new(model.jobs(knobs)),
            Self::Koala(model) => Box::new(model.jobs(knobs)),
            Self::Bagga(model) => Box::new(model.jobs(knobs)),
            Self::Mixed(model) => Box::new(model.jobs(knobs)),
        }
    }
}

fn expected(holds: bool, what: &'static str, expected: &'static str) -> Result<(), ModelError> {
    if holds { Ok(()) } else { Err(ModelError::Value { what, expected }) }
}

/// Is this one of the malleable ones, which are "distributed uniformly through
/// out the workload" (Ghafoor 2007, §4.3.3)?
pub fn is_malleable(number: u32, percent: u32) -> bool {
    let until = |jobs: u64| jobs * u64::from(percent) / 100;
    until(u64::from(number) + 1) > until(u64::from(number))
}
