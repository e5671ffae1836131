//! How a rigid job becomes a malleable one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use gleaner_coordinator_core::scheduler::{Allowed, Class, Request, Sizes};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::draws::{span, whole_part};
use crate::workload::WorkloadJob;

/// The sizes of malleable jobs, as a campaign file says them: `2-128`
/// processors, or `50%-200%` of what the job would have been rigid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    Processors { min: u32, max: u32 },
    Percent { min: u32, max: u32 },
}

/// Why a text is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of sizes: expected such as `2-128` or `50%-200%`")]
pub struct ParseRangeError(String);

impl FromStr for Range {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = |min: &str, max: &str| {
            let (min, max) = (min.parse().ok()?, max.parse().ok()?);
            (1..=max).contains(&min).then_some((min, max))
        };
        let parts = text.split_once('-').and_then(|(min, max)| {
            match (min.strip_suffix('%'), max.strip_suffix('%')) {
                (Some(min), Some(max)) => {
                    numbers(min, max).map(|(min, max)| Self::Percent { min, max })
                }
                _ => numbers(min, max).map(|(min, max)| Self::Processors { min, max }),
            }
        });
        parts.ok_or_else(|| ParseRangeError(text.to_owned()))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processors { min, max } => write!(f, "{min}-{max}"),
            Self::Percent { min, max } => write!(f, "{min}%-{max}%"),
        }
    }
}

impl Serialize for Range {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Range {
    fn bounds(self, size: u32) -> (u32, u32) {
        match self {
            Self::Processors { min, max } => (min, max),
            Self::Percent { min, max } => {
                let part = |percent: u32| f64::from(size) * f64::from(percent) / 100.0;
                let least = whole_part(part(min).ceil()).max(1);
                (least, whole_part(part(max)).max(least))
            }
        }
    }
}

/// The same work with other sizes (Ghafoor 2007, §3.3.2). A job that was larger
/// than the range, or smaller, holds the same work on the range's end, by its
/// speed-up; he does not say what his do.
pub fn flexible(job: WorkloadJob, range: Range) -> WorkloadJob {
    let size = job.request.sizes.preferred();
    let (min, max) = range.bounds(size);
    let job = resized(job, [min, size.clamp(min, max), max], Allowed::Any);
    WorkloadJob { request: Request { class: Class::Malleable, ..job.request }, ..job }
}

/// A job that prefers more than there are at most, but can do with less, for a
/// site of so many: policies start what they start on what it prefers.
pub fn within(job: WorkloadJob, most: u32) -> WorkloadJob {
    let sizes = &job.request.sizes;
    match sizes.at_most(most) {
        Some(preferred) if sizes.preferred() > most => {
            let three = [sizes.min(), preferred, sizes.max()];
            let allowed = sizes.allowed().clone();
            resized(job, three, allowed)
        }
        Some(_) | None => job,
    }
}

fn resized(job: WorkloadJob, three: [u32; 3], allowed: Allowed) -> WorkloadJob {
    let before = job.request.sizes.preferred();
    let Ok(sizes) = Sizes::new(three, allowed) else { return job };
    let after = sizes.preferred();
    let speedup = &job.request.speedup;
    let stretch = speedup.at(before) / speedup.at(after);
    let stretched = |takes: Duration| {
        if before == after { takes } else { span(takes.as_secs_f64() * stretch) }
    };
    let estimate = job.request.estimate.map(stretched);
    let takes = stretched(job.takes);
    WorkloadJob { takes, request: Request { sizes, estimate, ..job.request }, ..job }
}
