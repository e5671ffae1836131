//! What is left of a job that changes its size: phases, and no work lost
//! between them.
//!
//! Ghafoor 2007, §3.3.3: a job that takes `t_d` on `p_d` processors holds the work
//! `W = p_d t_d` (3.5); a phase of `t_i` on `p_i` processors does `p_i t_i` of it
//! (3.12), and what is left takes `W_r / p` (3.13). He assumes a linear speed-up;
//! with S(p) in place of p the equations hold for any. What is left is kept as
//! time on `p_d` processors, so that a job that never changes its size ends to
//! the nanosecond when it says.

use std::time::Duration;

use gleaner_common::time::Moment;

use super::speedup::Speedup;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What was left when the phase began, as time at the reference size;
    /// `None` if nobody knows.
    left: Option<Duration>,
    /// `S(p) / S(p_d)` of this phase.
    rate: f64,
    /// When the phase begins to get on with the work: after its adaptation.
    since: Moment,
}

impl Progress {
    /// A job that begins now and would take so long on `reference` processors.
    pub fn new(now: Moment, takes: Option<Duration>, rate: f64) -> Self {
        Self { left: takes, rate, since: now }
    }

    /// `S(p) / S(p_d)`.
    pub fn rate(speedup: &Speedup, size: u32, reference: u32) -> f64 {
        if size == reference { 1.0 } else { speedup.at(size) / speedup.at(reference) }
    }

    /// What is left, as time at the reference size (3.12).
    pub fn left(&self, now: Moment) -> Option<Duration> {
        let done = scaled(now.since(self.since), self.rate);
        self.left.map(|left| left.saturating_sub(done))
    }

    /// When all is done if nothing changes (3.13); never, if nobody knows.
    pub fn end(&self) -> Moment {
        match self.left {
            Some(left) if self.rate > 0.0 => self.since + scaled(left, 1.0 / self.rate),
            Some(_) | None => Moment::MAX,
        }
    }

    /// A new phase, which costs so much before it gets on (3.15, `C_a`).
    pub fn enter(&mut self, now: Moment, rate: f64, cost: Duration) {
        self.left = self.left(now);
        self.rate = rate;
        // A job that is still adapting has that to do first.
        self.since = self.since.max(now) + cost;
    }
}

/// A span times a factor, to the nanosecond; exact for a factor of 1.
fn scaled(span: Duration, by: f64) -> Duration {
    if by.to_bits() == 1.0_f64.to_bits() {
        return span;
    }
    Duration::try_from_secs_f64(span.as_secs_f64() * by.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(s: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn three_phases_take_what_equation_3_15_says() {
        // W = 8 × 100 s; 8 for 10 s, 4 for 50 s and 16 to the end, each change
        // for 2 s: 800 - 80 - 200 = 520, which 16 do in 32.5 s.
        let mut job = Progress::new(at(0), Some(Duration::from_secs(100)), 1.0);
        job.enter(at(10), 0.5, Duration::from_secs(2));
        job.enter(at(62), 2.0, Duration::from_secs(2));
        assert_eq!(job.end(), at(64) + Duration::from_millis(32_500));
    }

    #[test]
    fn a_job_that_keeps_its_size_ends_to_the_nanosecond() {
        let takes = Duration::from_nanos(u64::MAX / 3);
        assert_eq!(Progress::new(Moment(7), Some(takes), 1.0).end(), Moment(7) + takes);
    }

    #[test]
    fn a_job_of_unknown_length_never_ends() {
        assert_eq!(Progress::new(at(1), None, 1.0).end(), Moment::MAX);
        assert_eq!(Progress::new(at(1), Some(Duration::MAX), 0.0).end(), Moment::MAX);
    }

    proptest! {
        /// Equations 3.5 to 3.15: the work of all phases is the work of the job.
        #[test]
        fn work_is_conserved_over_phases(
            takes in 1..100_000_u64, phases in prop::collection::vec((1..64_u32, 1..500_u64, 0..9_u64), 0..12)
        ) {
            let (linear, reference) = (Speedup::Linear, 16);
            let mut job = Progress::new(at(0), Some(Duration::from_secs(takes)), 1.0);
            let (mut size, mut since, mut now, mut done) = (reference, 0, 0, 0.0);
            for (next, span, cost) in phases {
                let then = now + span;
                if job.end() <= at(then) {
                    break;
                }
                done += f64::from(size) * (then.saturating_sub(since)) as f64;
                job.enter(at(then), Progress::rate(&linear, next, reference), Duration::from_secs(cost));
                (size, since, now) = (next, since.max(then) + cost, then);
            }
            let last = job.end().since(at(since)).as_secs_f64();
            done += f64::from(size) * last;
            let whole = (takes * u64::from(reference)) as f64;
            prop_assert!((done - whole).abs() < 1e-5 * whole.max(1.0), "{done} of {whole}");
        }
    }
}
