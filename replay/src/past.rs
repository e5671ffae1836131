//! What the past of a usage log teaches about each workstation, up to some
//! moment: no peeking.

use gleaner_common::time::WallTime;
use gleaner_coordinator_core::outlook::{Common, Outlook};

use crate::lab::{Lab, Learned};
use crate::usage::Usage;

/// Learns from a usage log as time goes on. Labs of one log are best made in
/// the order of their starts, so that it is read once.
#[derive(Debug)]
pub struct Learner<'a> {
    usage: &'a Usage,
    /// All changes: when, of which workstation, and whether it turned idle.
    changes: Vec<(i64, u32, bool)>,
    next: usize,
    common: Common,
    outlooks: Vec<Outlook>,
}

impl<'a> Learner<'a> {
    pub fn new(usage: &'a Usage) -> Self {
        let mut changes = vec![];
        for (id, workstation) in (0..).zip(0..usage.workstations()) {
            let past = usage.past(workstation);
            let of_one = past.changes.iter().enumerate();
            changes.extend(of_one.map(|(position, at)| (*at, id, past.is_idle_after(position))));
        }
        changes.sort_unstable();
        let mut learner =
            Self { usage, changes, next: 0, common: Common::default(), outlooks: vec![] };
        learner.forget();
        learner
    }

    fn forget(&mut self) {
        self.next = 0;
        self.common = Common::default();
        self.outlooks = vec![Outlook::default(); self.usage.workstations()];
    }

    /// Learns all that had happened by then, and nothing later.
    pub fn learn_until(&mut self, now: WallTime) {
        let goes_back = self.next > 0 && self.changes[self.next - 1].0 > now.0;
        if goes_back {
            self.forget();
        }
        while let Some((at, id, idle)) = self.changes.get(self.next).filter(|one| one.0 <= now.0) {
            let outlook = &mut self.outlooks[*id as usize];
            if *idle {
                outlook.turned_idle(WallTime(*at));
            } else {
                outlook.turned_busy(&mut self.common, WallTime(*at));
            }
            self.next += 1;
        }
    }

    /// Tells a lab that was selected from this log what its past teaches, for
    /// the policies that ask.
    pub fn teach(&mut self, lab: &mut Lab) {
        self.learn_until(lab.start);
        let mut common = self.common.clone();
        let outlooks = lab.chosen.iter().map(|id| {
            let mut outlook = self.outlooks[*id as usize].clone();
            // An idle period that still lasts counts as far as it has lasted.
            outlook.still_idle(&mut common, lab.start);
            outlook
        });
        let outlooks = outlooks.collect();
        lab.learned = Some(Box::new(Learned { common, outlooks }));
    }
}

#[cfg(test)]
mod tests;
