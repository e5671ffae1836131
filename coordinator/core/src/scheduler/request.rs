//! What a job asks for: its class, its sizes, how long it takes, what it is
//! worth and until when.

use std::time::Duration;

pub use gleaner_common::shape::Class;
use gleaner_common::time::Moment;

use super::sizes::{Sizes, SizesError};
use super::speedup::{Speedup, SpeedupError};
use super::users::User;
use super::work::Progress;

/// What finishing a job brings: all of it until half of the time to its
/// deadline is over, then less, and nothing at the deadline (Kumar 2001, §4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profit {
    pub most: f64,
    /// Until then, `most`.
    pub full_until: Moment,
    /// From then on, nothing; in between along a straight line.
    pub zero_from: Moment,
}

impl Profit {
    pub fn of(most: f64, submitted: Moment, deadline: Moment) -> Self {
        let full_until = submitted + deadline.since(submitted) / 2;
        Self { most, full_until, zero_from: deadline }
    }

    pub fn at(&self, end: Moment) -> f64 {
        if end <= self.full_until {
            return self.most;
        }
        let falls = self.zero_from.since(self.full_until).as_secs_f64();
        let left = self.zero_from.since(end).as_secs_f64();
        if falls > 0.0 { self.most * left / falls } else { 0.0 }
    }
}

/// A job as it was submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub class: Class,
    pub sizes: Sizes,
    /// How long it is said to take on its preferred number of processors.
    pub estimate: Option<Duration>,
    pub speedup: Speedup,
    pub deadline: Option<Moment>,
    pub profit: Option<Profit>,
    /// Higher goes first.
    pub priority: i8,
    /// The speed of the processors that its sizes were meant for, in the unit
    /// of [`Resources::speed`](super::state::Resources); any, if it is `None`.
    pub speed: Option<f64>,
    /// Who has submitted it, where that matters.
    pub user: Option<User>,
    /// It grows only into what nobody waits for (Phalen 1994, §2.1.2: a program
    /// that reacts to increases).
    pub is_modest: bool,
}

/// Why this is no request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Sizes(#[from] SizesError),
    #[error(transparent)]
    Speedup(#[from] SpeedupError),
    #[error("a rigid job of {min} to {max} processors: expected one number")]
    RigidRange { min: u32, max: u32 },
    #[error("a processor's speed of {0}: expected a number above 0")]
    Speed(f64),
}

impl Request {
    /// A rigid job.
    ///
    /// # Errors
    /// If it wants no processors.
    pub fn rigid(size: u32, estimate: Option<Duration>) -> Result<Self, RequestError> {
        Ok(Self::new(Class::Rigid, Sizes::exactly(size)?, estimate))
    }

    pub fn new(class: Class, sizes: Sizes, estimate: Option<Duration>) -> Self {
        Self {
            class,
            sizes,
            estimate,
            speedup: Speedup::Linear,
            deadline: None,
            profit: None,
            priority: 0,
            speed: None,
            user: None,
            is_modest: false,
        }
    }

    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), RequestError> {
        let (min, max) = (self.sizes.min(), self.sizes.max());
        if self.class == Class::Rigid && min != max {
            return Err(RequestError::RigidRange { min, max });
        }
        if let Some(speed) = self.speed.filter(|speed| !(speed.is_finite() && *speed > 0.0)) {
            return Err(RequestError::Speed(speed));
        }
        Ok(self.speedup.check()?)
    }

    /// S(p) over the speed-up of the size that the estimate is for.
    pub fn rate(&self, size: u32) -> f64 {
        Progress::rate(&self.speedup, size, self.sizes.preferred())
    }

    /// The same on processors of this speed, against those that it was meant
    /// for.
    pub fn rate_on(&self, size: u32, speed: f64) -> f64 {
        self.rate(size) * self.speed.map_or(1.0, |meant| speed / meant)
    }

    /// How long it is said to take on so many processors; `None` if nobody
    /// knows.
    pub fn takes(&self, size: u32) -> Option<Duration> {
        let end = Progress::new(Moment::ZERO, self.estimate, self.rate(size)).end();
        (end < Moment::MAX).then(|| end.since(Moment::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::sizes::Allowed;

    fn at(s: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn profit_falls_to_nothing_over_the_second_half_of_the_deadline() {
        let profit = Profit::of(1000.0, at(100), at(300));
        let points = [(0, 1000.0), (200, 1000.0), (250, 500.0), (300, 0.0), (900, 0.0)];
        for (end, worth) in points {
            assert!((profit.at(at(end)) - worth).abs() < 1e-9, "at {end}");
        }
    }

    #[test]
    fn a_request_that_makes_no_sense_is_told() {
        let sizes = Sizes::new([2, 4, 8], Allowed::Any).expect("sizes");
        let job = Request::new(Class::Rigid, sizes, None);
        assert_eq!(job.check(), Err(RequestError::RigidRange { min: 2, max: 8 }));
        let job = Request { class: Class::Moldable, speed: Some(f64::NAN), ..job };
        assert!(matches!(job.check(), Err(RequestError::Speed(_))));
        assert!(Request::rigid(0, None).is_err());
    }
}
