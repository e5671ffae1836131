//! What generators draw.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1};

#[derive(Clone, Debug)]
pub(in crate::workload) struct Draws(StdRng);

impl Draws {
    pub(in crate::workload) fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        let unit: f64 = Exp1.sample(&mut self.0);
        unit * mean
    }

    pub(super) fn exponential_span(&mut self, mean: Duration) -> Duration {
        span(self.exponential(mean.as_secs_f64()))
    }

    /// All numbers between are as likely.
    pub(super) fn uniform(&mut self, [from, to]: [f64; 2]) -> f64 {
        from + (to - from) * self.0.random::<f64>()
    }

    /// All orders of magnitude between are as likely.
    pub(super) fn log_uniform(&mut self, [from, to]: [f64; 2]) -> f64 {
        self.uniform([from.ln(), to.ln()]).exp()
    }

    /// The random ramp: "the probability decreases linearly as the negotiation
    /// cost increases" (Ghafoor 2007, §3.3.4), to nothing at the end.
    pub(in crate::workload) fn ramp_span(&mut self, [from, to]: [Duration; 2]) -> Duration {
        let part = 1.0 - self.uniform([0.0, 1.0]).sqrt();
        from + to.saturating_sub(from).mul_f64(part)
    }

    /// One of the whole numbers from the first to the last.
    pub(super) fn whole(&mut self, [from, to]: [u32; 2]) -> u32 {
        self.0.random_range(from..=to)
    }

    /// One of the whole numbers, all orders of magnitude as likely.
    pub(super) fn log_whole(&mut self, [from, to]: [u32; 2]) -> u32 {
        let drawn = self.log_uniform([f64::from(from), f64::from(to) + 1.0]);
        whole_part(drawn).clamp(from, to)
    }

    pub(in crate::workload) fn percent(&mut self, percent: u32) -> bool {
        self.whole([0, 99]) < percent
    }
}

/// Seconds as a span; nothing, if they are none.
pub(super) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the clamp keeps it between 0 and what a u32 holds"
)]
pub(super) fn whole_part(number: f64) -> u32 {
    number.clamp(0.0, f64::from(u32::MAX)) as u32
}
