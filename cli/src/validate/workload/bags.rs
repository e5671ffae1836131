//! A job of a workload as a bag of subprograms that sleep: many of them run on
//! a machine of two cores as they would on sixteen.
//!
//! Its work is what Ghafoor's application does (2007, §4.3.4): a list of
//! structures, divided among as many processes as there are, in a time that is
//! proportional to how many are left.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gleaner_common::job::{IndexRange, JobSpec};
use gleaner_common::shape::{Class, Shape};
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::Speedup;
use gleaner_replay::workload::WorkloadJob;

/// A job as the lab gets it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bag {
    pub(super) submitted: Moment,
    class: Class,
    sizes: [u32; 3],
    estimate: Option<Duration>,
    /// How many subprograms there are, and how long each sleeps.
    pub(super) parts: u32,
    pub(super) sleeps: Duration,
}

impl Bag {
    /// So many times shorter, in parts of about this length if it can change
    /// its size, and in one on each place if it cannot.
    ///
    /// # Errors
    /// A job that a bag cannot stand for.
    pub(super) fn of(job: &WorkloadJob, faster: u32, part: Duration) -> Result<Self> {
        let request = &job.request;
        ensure!(
            matches!(request.speedup, Speedup::Linear),
            "job {}: a bag is as many times faster as it has places: expected a linear speed-up",
            job.number
        );
        let sizes = [request.sizes.min(), request.sizes.preferred(), request.sizes.max()];
        let takes = job.takes / faster;
        let work = takes * sizes[1];
        let parts = match request.class {
            Class::Rigid => sizes[1],
            Class::Moldable | Class::Malleable => {
                let parts = (work.as_secs_f64() / part.as_secs_f64()).round();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a float saturates, and no part is negative"
                )]
                let parts = parts as u32;
                parts.max(sizes[2])
            }
            Class::Evolving => bail!("job {} asks for more by itself: a bag does not", job.number),
        };
        Ok(Self {
            submitted: Moment(job.submitted.0 / u64::from(faster)),
            class: request.class,
            sizes,
            estimate: request.estimate.map(|estimate| estimate / faster),
            parts,
            sleeps: Duration::from_millis(u64::try_from((work / parts).as_millis())?),
        })
    }

    /// Do all of its parts begin at once?
    pub(super) fn is_rigid(&self) -> bool {
        self.class == Class::Rigid
    }

    /// How long it takes on its preferred number of places, if each part takes
    /// so much longer than it sleeps.
    pub(super) fn takes(&self, longer: Duration) -> Duration {
        (self.sleeps + longer) * self.parts / self.sizes[1]
    }

    /// # Errors
    /// A job that is no job.
    pub(super) fn spec(&self) -> Result<JobSpec> {
        let [min, preferred, max] = self.sizes.map(Some);
        let seconds = format!("{:.3}", self.sleeps.as_secs_f64());
        let parts = IndexRange::count_of(self.parts).context("a job of no parts")?;
        let mut spec = JobSpec::new(vec!["sleep".into(), seconds], parts);
        let (class, estimate) = (Some(self.class), self.estimate);
        spec.shape = Shape { class, min, preferred, max, estimate, ..Shape::default() };
        spec.check()?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::JobId;
    use gleaner_coordinator_core::scheduler::{Allowed, Request, Sizes};

    use super::*;

    fn job(class: Class, sizes: [u32; 3]) -> WorkloadJob {
        let takes = Duration::from_secs(100);
        let sizes = Sizes::new(sizes, Allowed::Any).unwrap();
        let request = Request::new(class, sizes, Some(takes));
        let submitted = Moment::ZERO + Duration::from_secs(50);
        WorkloadJob { number: JobId(0), submitted, takes, request }
    }

    #[test]
    fn a_bag_has_the_work_of_its_job_in_parts_that_it_can_be_divided_into() {
        let part = Duration::from_secs(1);
        let rigid = Bag::of(&job(Class::Rigid, [3; 3]), 10, part).unwrap();
        assert_eq!((rigid.parts, rigid.sleeps), (3, Duration::from_secs(10)));
        assert_eq!(rigid.submitted, Moment::ZERO + Duration::from_secs(5));
        let malleable = Bag::of(&job(Class::Malleable, [2, 4, 8]), 10, part).unwrap();
        assert_eq!((malleable.parts, malleable.sleeps), (40, part));
        assert_eq!(malleable.takes(Duration::ZERO), Duration::from_secs(10));
        assert_eq!(malleable.takes(part / 10), Duration::from_secs(11));
        let spec = malleable.spec().unwrap();
        assert_eq!(spec.shape.sizes_of_bag(40).unwrap().max(), 8);
        assert!(Bag::of(&job(Class::Evolving, [2, 4, 8]), 10, part).is_err());
    }

    #[test]
    fn a_short_job_has_a_part_for_each_place_at_least() {
        let bag = Bag::of(&job(Class::Malleable, [2, 4, 8]), 1000, Duration::from_secs(1)).unwrap();
        assert_eq!((bag.parts, bag.sleeps), (8, Duration::from_millis(50)));
    }
}
