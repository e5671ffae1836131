//! The jobs of a soak: each drawn from the seed and its number, each with an answer
//! that is computed here in another way than the guests do it.

use std::time::Duration;

use gleaner_common::id::ContentHash;
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Reaction, StagedFile};
use gleaner_common::program::ProgramSpec;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The guests' program, in their directories.
const GUEST: &str = "soak-guest";

/// Ranks of a ring: few, so that they find room beside whatever is broken.
const RANKS: u32 = 3;

/// So many failures of one subprogram are made good. Its program does not fail; what
/// fails is under it, and that is counted on its own.
const RETRIES: u32 = 100;

/// What a job computes. A step takes 20 ms at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Subprogram `i` adds up the squares of `steps` numbers from `first + i` on.
    Sums { count: u32, first: u64, steps: u64 },
    /// A number goes round all ranks and grows.
    Ring { first: u64, rounds: u64 },
}

/// One job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub number: u64,
    pub work: Work,
    pub on_busy: OnBusy,
    pub checkpoint_every: Option<Duration>,
    /// Its user changes their mind after so long.
    pub cancelled_after: Option<Duration>,
}

impl Job {
    pub fn draw(seed: u64, number: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let first = random.random_range(0..1_000_000);
        let short = Duration::from_millis(random.random_range(200..2_000));
        let count = random.random_range(2..9);
        let kind = random.random_range(0..10);
        let (work, on_busy) = match kind {
            0..4 => {
                let steps = random.random_range(5..60);
                let on_busy = OnBusy::suspend(Some(short), Reaction::Retreat);
                (Work::Sums { count, first, steps }, on_busy)
            }
            4..6 => {
                let steps = random.random_range(5..60);
                (Work::Sums { count, first, steps }, OnBusy::at_once(Reaction::Retreat))
            }
            6..8 => {
                let steps = random.random_range(50..250);
                let on_busy = OnBusy::suspend(Some(short), Reaction::Migrate);
                (Work::Sums { count: count.min(4), first, steps }, on_busy)
            }
            _ => {
                let rounds = random.random_range(5..40);
                let then = if kind == 8 { Reaction::Migrate } else { Reaction::Rollback };
                (Work::Ring { first, rounds }, OnBusy::suspend(Some(short), then))
            }
        };
        let checkpoint_every = random.random::<bool>().then_some(Duration::from_secs(1));
        let cancelled_after = random.random_bool(0.1).then_some(short);
        Self { number, work, on_busy, checkpoint_every, cancelled_after }
    }

    /// The job of a name that [`Self::spec`] gave.
    pub fn named(seed: u64, name: &str) -> Option<Self> {
        Some(Self::draw(seed, name.strip_prefix("soak-")?.parse().ok()?))
    }

    pub fn subprograms(&self) -> u32 {
        match self.work {
            Work::Sums { count, .. } => count,
            Work::Ring { .. } => RANKS,
        }
    }

    /// As it is submitted; the guests' program is staged already.
    pub fn spec(&self, guest: ContentHash, guest_bytes: u64) -> JobSpec {
        let (what, first, steps) = match self.work {
            Work::Sums { first, steps, .. } => ("sum", first, steps),
            Work::Ring { first, rounds } => ("ring", first, rounds),
        };
        // Its own number, and not what gleaner calls it, which is another's once a store
        // has gone back.
        let command = format!("./{GUEST} {what} {first} {steps} {} {{i}}", self.number);
        let command = command.split(' ').map(str::to_owned).collect();
        let indexes = IndexRange { first: 0, last: self.subprograms() - 1, step: 1 };
        let mut spec = JobSpec::new(command, indexes);
        spec.name = format!("soak-{}", self.number);
        spec.retries = RETRIES;
        spec.on_busy = self.on_busy;
        spec.inputs = vec![StagedFile {
            path: GUEST.to_owned(),
            hash: guest,
            size_bytes: guest_bytes,
            executable: true,
        }];
        spec.program = matches!(self.work, Work::Ring { .. }).then_some(ProgramSpec {
            increases: false,
            spawns: false,
            ranks_max: RANKS,
            checkpoint_every: self.checkpoint_every,
            record: false,
        });
        spec
    }

    /// What the subprogram of this index is to print: the guests go step by step,
    /// this is the sum in closed form.
    pub fn answer(&self, index: u32) -> String {
        match self.work {
            Work::Sums { first, steps, .. } => {
                let (a, n) = (first + u64::from(index), steps);
                let squares = (n - 1) * n * (2 * n - 1) / 6;
                format!("{}\n", n * a * a + a * n * (n - 1) + squares)
            }
            Work::Ring { first, rounds } if index == 0 => {
                let ranks = u64::from(RANKS);
                format!("{}\n", first + rounds * (rounds - 1) / 2 * (ranks * (ranks + 1) / 2))
            }
            Work::Ring { .. } => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(work: Work) -> Job {
        Job { work, ..Job::draw(1, 1) }
    }

    #[test]
    fn a_sum_in_closed_form_is_the_sum() {
        let job = job(Work::Sums { count: 3, first: 10, steps: 4 });
        assert_eq!(job.answer(2), format!("{}\n", 144 + 169 + 196 + 225));
    }

    #[test]
    fn a_ring_in_closed_form_is_what_goes_round() {
        let job = job(Work::Ring { first: 5, rounds: 3 });
        // In rounds 0, 1 and 2 each of the ranks adds its number from 1 times the round.
        assert_eq!(job.answer(0), format!("{}\n", 5 + 6 + 12));
        assert_eq!(job.answer(1), "");
    }

    #[test]
    fn a_job_is_known_by_its_name_and_can_be_submitted() {
        for number in 0..200 {
            let job = Job::draw(9, number);
            let spec = job.spec(ContentHash([0; 32]), 1);
            spec.check().unwrap();
            assert_eq!(Job::named(9, &spec.name), Some(job));
        }
    }
}
