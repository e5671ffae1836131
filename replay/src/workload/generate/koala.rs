//! The four workloads of the KOALA experiments (Buisson et al. 2007, §VI).
//!
//! Two programs, each half of the jobs, which begin on 2 processors: GADGET 2
//! on any number up to 46, FT on powers of two up to 32. Workload Wm has
//! malleable jobs only and Wmr as many rigid ones of 2 processors; a job comes
//! every 2 minutes, and every 30 s in W'm and W'mr.
//!
//! The text prints four points of Figure 6: on 2 processors GADGET 2 takes 600 s
//! and FT 120 s, at best they take 240 s and 60 s. Where the best is, and how
//! they get there, is in the picture only. Our curves are a fixed part and one
//! that is divided among the processors, with the best on 40 and 16 and nothing
//! gained beyond: "greater than the sizes for which we have observed the minimum
//! execution times" (§VI.C).

use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{Allowed, Class, Request, Sizes, Speedup};
use serde::{Deserialize, Serialize};

use super::draws::Draws;
use super::{Knobs, ModelError, expected};
use crate::workload::WorkloadJob;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Koala {
    /// 300 in each of theirs.
    pub jobs: u32,
}

/// Every job's minimum, and what it begins with.
const LEAST: u32 = 2;

/// A program by what is printed of it.
struct Application {
    /// On the least processors.
    takes_s: f64,
    /// On `best_on`.
    best_s: f64,
    best_on: u32,
    most: u32,
    allowed: Allowed,
}

const GADGET_2: Application =
    Application { takes_s: 600.0, best_s: 240.0, best_on: 40, most: 46, allowed: Allowed::Any };

const FT: Application = Application {
    takes_s: 120.0,
    best_s: 60.0,
    best_on: 16,
    most: 32,
    allowed: Allowed::PowersOfTwo,
};

impl Application {
    fn time_s(&self, processors: u32) -> f64 {
        let part = |processors: u32| 1.0 / f64::from(processors);
        let divided = (self.takes_s - self.best_s) / (part(LEAST) - part(self.best_on));
        let fixed = self.best_s - divided * part(self.best_on);
        fixed + divided * part(processors.min(self.best_on))
    }

    fn speedup(&self) -> Speedup {
        let at = |processors| (processors, self.time_s(1) / self.time_s(processors));
        Speedup::Table((1..=self.best_on).map(at).collect())
    }

    fn request(&self, class: Class) -> Option<Request> {
        let most = if class == Class::Malleable { self.most } else { LEAST };
        let sizes = Sizes::new([LEAST, LEAST, most], self.allowed.clone()).ok()?;
        let takes = Duration::from_secs_f64(self.takes_s);
        Some(Request { speedup: self.speedup(), ..Request::new(class, sizes, Some(takes)) })
    }
}

impl Koala {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        expected(self.jobs > 0, "jobs", "at least one")
    }

    pub(super) fn jobs(self, knobs: Knobs) -> impl Iterator<Item = WorkloadJob> {
        let mut draws = Draws::seeded(knobs.seed);
        (0..self.jobs).filter_map(move |number| {
            let application = if draws.percent(50) { &GADGET_2 } else { &FT };
            let is_malleable = draws.percent(knobs.malleable);
            let class = if is_malleable { Class::Malleable } else { Class::Rigid };
            Some(WorkloadJob {
                number: JobId(number),
                submitted: Moment::ZERO + knobs.gap * number,
                takes: Duration::from_secs_f64(application.takes_s),
                request: application.request(class)?,
            })
        })
    }
}
