//! Makes a failure small: fewer rounds, kinds of faults, hosts and jobs, and
//! then fewer single faults, as long as the same promise is broken.

use std::collections::BTreeSet;

use crate::lab::Trouble;
use crate::swarm::{Changes, draw};
use crate::trial::{Failure, run};

struct Shrink {
    seed: u64,
    kind: String,
    /// How many more labs may run for it.
    left: u32,
    best: (Changes, Failure),
}

/// The smallest changes that were found with so many labs, and how it fails
/// with them.
pub fn shrink(seed: u64, changes: &Changes, failure: &Failure, left: u32) -> (Changes, Failure) {
    let best = (changes.clone(), failure.clone());
    let mut shrink = Shrink { seed, kind: failure.kind().to_owned(), left, best };
    while shrink.pass() {}
    shrink.best
}

impl Shrink {
    /// Is it still the same failure?
    fn accepts(&mut self, changes: Changes) -> bool {
        if self.left == 0 || changes == self.best.0 {
            return false;
        }
        self.left -= 1;
        let Err(failure) = run(self.seed, draw(self.seed, &changes)).outcome else { return false };
        if failure.kind() != self.kind {
            return false;
        }
        self.best = (changes, failure);
        true
    }

    fn accepts_with(&mut self, change: impl FnOnce(&mut Changes)) -> bool {
        let mut changes = self.best.0.clone();
        change(&mut changes);
        self.accepts(changes)
    }

    /// True if something became smaller.
    fn pass(&mut self) -> bool {
        let before = self.best.0.clone();
        let drawn = draw(self.seed, &before);
        for rounds in 1..drawn.rounds {
            if self.accepts_with(|it| it.rounds = Some(rounds)) {
                break;
            }
        }
        for trouble in Trouble::ALL {
            let comes = drawn.troubles.every(trouble).is_some();
            if comes || drawn.quiet_troubles.every(trouble).is_some() {
                self.accepts_with(|it| {
                    it.never.insert(trouble);
                });
            }
        }
        for hosts in 1..drawn.hosts {
            if self.accepts_with(|it| it.hosts = Some(hosts)) {
                break;
            }
        }
        for jobs in 0..drawn.jobs {
            if self.accepts_with(|it| it.submits = Some(jobs)) {
                break;
            }
        }
        self.faults();
        self.best.0 != before
    }

    /// Leaves out halves of the faults that there were, then quarters, and so
    /// on, the last ones first.
    fn faults(&mut self) {
        let mut size = self.best.1.faults.div_ceil(2);
        while size > 0 {
            let mut last = self.best.1.faults;
            while last > 0 {
                let first = last.saturating_sub(size) + 1;
                let these: BTreeSet<u64> = (first..=last).collect();
                if !these.is_subset(&self.best.0.without) {
                    self.accepts_with(|it| it.without.extend(&these));
                }
                last = first - 1;
            }
            size /= 2;
        }
    }
}
