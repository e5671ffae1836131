//! How long a bag that is asked for places may wait for its subprograms to end, before
//! they are taken.
//!
//! ```text
//! asked ──► patience ──► taken ──┬─► another job has them ───────────────► patience as before
//!    ▲                           └─► they suit nobody, and come back ──► twice the patience
//!    └────────────────────────────────────────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

/// Patience is doubled so often at most: ten minutes, the default, to less than three hours.
const DOUBLED_MAX: u32 = 4;

/// Who was taken from is not asked again within less, however impatient others are.
const LEAST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Patience {
    until: BTreeMap<JobId, Moment>,
    taken: BTreeMap<JobId, Taken>,
}

/// What was taken from a job, of which nobody has come to anything yet.
#[derive(Debug, Default)]
struct Taken {
    /// So often in a row it came back.
    in_vain: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Settled,
    Taken,
    /// Somebody was to start, and what was free did not suit.
    SuitsNobody,
}

impl Patience {
    /// A job was asked for places, if it was not before.
    pub(super) fn begin(&mut self, now: Moment, job: JobId, patience: Duration) {
        let in_vain = self.taken.get(&job).map_or(0, |taken| taken.in_vain);
        let patience = if in_vain == 0 { patience } else { patience.max(LEAST) };
        let until = now + patience.saturating_mul(1 << in_vain.min(DOUBLED_MAX));
        self.until.entry(job).or_insert(until);
    }

    /// Its agents were asked to return guests of it. They are asked again if that
    /// comes to nothing.
    pub(super) fn took(&mut self, now: Moment, job: JobId, patience: Duration) {
        self.taken.entry(job).or_default().stage = Stage::Taken;
        self.until.insert(job, now + patience.max(LEAST));
    }

    /// It has given what it was asked for.
    pub(super) fn end(&mut self, job: JobId) {
        self.until.remove(&job);
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.until.remove(&job);
        self.taken.remove(&job);
    }

    pub(super) fn suits_nobody(&mut self) {
        for taken in self.taken.values_mut().filter(|taken| taken.stage == Stage::Taken) {
            taken.stage = Stage::SuitsNobody;
        }
    }

    /// This job has begun on more places.
    pub(super) fn is_given(&mut self, job: JobId) {
        for (giver, taken) in &mut self.taken {
            match (std::mem::take(&mut taken.stage), *giver == job) {
                (Stage::Settled, _) | (Stage::Taken, true) => {}
                (Stage::SuitsNobody, true) => taken.in_vain += 1,
                (Stage::Taken | Stage::SuitsNobody, false) => taken.in_vain = 0,
            }
        }
        self.taken.retain(|_, taken| taken.in_vain > 0 || taken.stage != Stage::Settled);
    }

    /// Takes out the jobs whose time is over.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<JobId> {
        self.until.extract_if(.., |_, until| *until <= now).map(|(job, _)| job).collect()
    }

    pub(super) fn first_due(&self) -> Option<Moment> {
        self.until.values().copied().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);
    const GIVER: JobId = JobId(1);
    const OTHER: JobId = JobId(2);

    /// How long it takes from a question to taking, in seconds.
    fn waits(patience: &mut Patience) -> u64 {
        let now = Moment(7_000_000_000);
        patience.begin(now, GIVER, PATIENCE);
        let due = patience.first_due().unwrap();
        assert_eq!(patience.take_due(due), [GIVER]);
        patience.took(due, GIVER, PATIENCE);
        patience.end(GIVER);
        due.since(now).as_secs()
    }

    #[test]
    fn what_suits_nobody_is_taken_ever_later() {
        let mut patience = Patience::default();
        let mut waited = vec![];
        for _ in 0..9 {
            waited.push(waits(&mut patience));
            patience.suits_nobody();
            patience.is_given(GIVER);
        }
        assert_eq!(waited, [2, 4, 8, 16, 32, 32, 32, 32, 32]);
        // Of use at last.
        waits(&mut patience);
        patience.suits_nobody();
        patience.is_given(OTHER);
        assert_eq!(waits(&mut patience), 2);
    }

    #[test]
    fn what_somebody_has_use_for_is_taken_as_soon_as_ever() {
        let mut patience = Patience::default();
        for goes_to in [OTHER, GIVER, OTHER, GIVER] {
            assert_eq!(waits(&mut patience), 2);
            patience.is_given(goes_to);
        }
        patience.forget(GIVER);
        assert!(patience.first_due().is_none() && patience.taken.is_empty());
    }
}
