//! The coordinator's store goes back in time: a backup is restored, or a machine is
//! reverted, and nobody marked its store.
//!
//! What the later self gave out is known to agents only, and ends with their leases
//! at the latest. Whoever brings a copy back sees to the clock: it is not behind what
//! the later self drew its generations from. In some labs nobody does, and an agent that
//! knows better is the first to say so. Staged files come back as well.

use std::collections::BTreeSet;
use std::time::Duration;

use gleaner_common::id::{Fence, Generation};
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::{AgentFrame, CoordinatorFrame};
use gleaner_coordinator_core::{Effect, Event, Link, Step};

use super::Lab;
use super::invariant::holds;
use super::store::Store;

/// 2024-01-01 in Unix time, from which generations count.
const ORIGIN_S: i64 = 1_704_067_200;

/// How often an agent's lease is longer than the coordinator thinks, by clocks that
/// are wrong; and what it takes to see that it is over.
pub(super) const LEASE_PART: f64 = 1.02;
pub(super) const SEEN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Copies {
    taken: Option<Store>,
    /// What any of the store's selves has begun.
    begun: BTreeSet<Generation>,
    /// The store went back, and nothing has started from it yet; in which life that
    /// happened.
    is_fresh: bool,
    /// Nobody marked it then, or sees to the clock.
    is_behind: bool,
    began: Option<u64>,
    /// The newest attempt that it knew then.
    known: Fence,
    pub(crate) restored: u64,
}

impl Copies {
    pub(super) fn began(&mut self, below: Fence) {
        self.begun.insert(below.generation);
    }
}

impl Lab {
    /// Takes a copy of the store, or brings the last one back.
    pub(super) fn store_goes_back(&mut self, long: f64, which: f64) {
        let Some(copy) = self.copies.taken.clone().filter(|_| which > 0.4) else {
            self.copies.taken = Some(self.store.clone());
            return;
        };
        self.coordinator_crashes(self.setting.away.mul_f64(long), 0.0);
        let later = std::mem::replace(&mut self.store, copy);
        // A program's ranks may know more than a journal that nobody marked.
        let is_marked = which < 0.7 || self.setting.programs > 0.0;
        if is_marked {
            self.store.mark(&later);
        }
        (self.copies.is_fresh, self.copies.restored) = (true, self.copies.restored + 1);
        self.copies.is_behind = !is_marked && which * 100.0 % 1.0 < self.setting.clocks_behind;
        self.accepted.retain(|job| self.store.jobs.contains_key(job));
        self.cuts.come_back(&self.store);
        let kept: Vec<_> = self.store.directory().cloned().collect();
        self.enrolment.store_went_back(&kept, is_marked);
        let lease = self.setting.config.lease.mul_f64(LEASE_PART) + SEEN;
        self.witness.went_back(self.now + lease, &later, &self.store);
        (0..self.hosts.len()).for_each(|index| self.hosts.touch(index));
    }

    /// A life begins: no self of the store has begun its generation. If the store went
    /// back, the wall clock is right, or so far behind that agents have seen later ones.
    pub(super) fn look_at_the_clock(&mut self) {
        let seconds = self.wall().since(WallTime::from_unix_s(ORIGIN_S)).as_secs();
        let shown = Generation(u32::try_from(seconds).unwrap_or(u32::MAX));
        let known = Generation(self.store.fences_below.generation.0 + 1);
        let newest = self.copies.begun.last().copied().unwrap_or_default();
        let is_fresh = std::mem::take(&mut self.copies.is_fresh);
        // Of several generations that are later an agent may have seen the first only, and
        // nobody would know of the others.
        let is_one = self.copies.begun.range(known..).count() == 1 && known < newest;
        let is_behind = is_fresh && self.copies.is_behind && is_one;
        if is_fresh {
            let of_store = self.store.attempts.keys().next_back().copied();
            (self.copies.began, self.copies.known) =
                (Some(self.life), of_store.unwrap_or_default());
        }
        if is_behind {
            self.witness.is_behind(self.copies.known);
        }
        let least = match (is_behind, is_fresh) {
            (true, _) => known.0,
            (false, true) => known.max(shown).0.max(newest.0 + 1),
            (false, false) => known.max(shown).0,
        };
        let is_free = |it: &u32| !self.copies.begun.contains(&Generation(*it));
        let free = (least..=u32::MAX).find(is_free).unwrap_or(least);
        if is_behind || free > known.0 {
            self.wall_jumped_s += i64::from(free) - i64::from(shown.0);
        }
    }

    /// An agent that has seen more than the store knew when it came back is heard of.
    /// What is between what that knew is of a copy's copy, and was told before.
    pub(super) fn greeting(&self, event: &Event) -> Option<(Link, Fence)> {
        let Event::Heard { from, frame: AgentFrame::Hello { seen, .. } } = event else {
            return None;
        };
        let is_lost = *seen > self.copies.known && !self.store.attempts.contains_key(seen);
        (self.copies.began == Some(self.life) && is_lost).then_some((*from, *seen))
    }
}

pub(super) fn check_greeting((from, seen): (Link, Fence), step: &Step) {
    let welcomed = step.effects.iter().any(|effect| {
        matches!(effect, Effect::Send { to, frame: CoordinatorFrame::Welcome { .. } } if *to == from)
    });
    let told = step.effects.iter().any(|effect| matches!(effect, Effect::WentBack { .. }));
    let name = from.workstation;
    holds!(
        AcknowledgedDurable,
        told || !welcomed,
        "workstation {name} has seen {seen}, which the store lost, and nobody is told"
    );
}

/// Nothing unknown runs any more from then on.
pub(super) fn is_over(now: Moment, until: Option<Moment>) -> bool {
    until.is_none_or(|until| until < now)
}
