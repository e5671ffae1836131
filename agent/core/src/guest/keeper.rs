//! The keeper that waits at a place: when one is made, and when it goes.
//!
//! Where the last guest could move, the next one may come from elsewhere, and
//! somebody waits for it: a keeper for it is kept ready while guests are
//! welcome here.

use std::time::Duration;

use gleaner_common::id::PlaceId;
use gleaner_common::time::Moment;

use super::{Effect, Out, Turn};

/// How long a keeper without a guest stays, so that an idle agent is small.
const STAYS: Duration = Duration::from_secs(60);

/// One that is kept ready is made anew after so long: it sees what was mounted
/// when it was born.
const RENEWED_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Keeper {
    place: PlaceId,
    /// Is there one, and is it for guests that can move?
    here: Option<Kind>,
    /// Is the next one to be for a guest that can move?
    restocks: bool,
    /// Are guests welcome?
    open: bool,
    /// Was it there before the guest?
    kept: bool,
    idle_since: Moment,
    born: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// With a root directory of its own, for one guest only.
    Staged,
}

impl Kind {
    fn of(staged: bool) -> Self {
        if staged { Self::Staged } else { Self::Plain }
    }
}

impl Keeper {
    pub(super) fn new(place: PlaceId) -> Self {
        let (idle_since, born) = (Moment::ZERO, Moment::ZERO);
        Self { place, here: None, restocks: false, open: false, kept: false, idle_since, born }
    }

    pub(super) fn is_staged(&self) -> bool {
        self.here == Some(Kind::Staged)
    }

    /// Is one of this kind here?
    pub(super) fn is(&self, staged: bool) -> bool {
        self.here == Some(Kind::of(staged))
    }

    /// Its guest has gone.
    pub(super) fn rest(&mut self, now: Moment) {
        (self.idle_since, self.kept) = (now, true);
    }

    /// One that was there before the guest may have died of anything. One that was
    /// made for it would be made again and again.
    pub(super) fn was_kept(&self) -> bool {
        self.kept
    }

    /// It is dead. What one without a guest has died of, the next one would.
    pub(super) fn gone(&mut self, without_guest: bool) {
        self.here = None;
        self.restocks &= !without_guest;
    }

    pub(super) fn drop_it(&mut self, out: &mut Out) {
        if self.here.take().is_some() {
            out.effects.push(Effect::DropKeeper(self.place));
        }
    }

    pub(super) fn set_open(&mut self, now: Moment, open: bool) {
        if std::mem::replace(&mut self.open, open) && !open {
            self.idle_since = self.idle_since.max(now);
        }
    }

    fn spawn(&mut self, now: Moment, staged: bool) -> Effect {
        self.here = Some(Kind::of(staged));
        (self.restocks, self.born, self.kept) = (staged, now, false);
        Effect::SpawnKeeper { place: self.place, staged }
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        match self.here {
            Some(Kind::Staged) if self.open => Some(self.born + RENEWED_AFTER),
            Some(_) => Some(self.idle_since + STAYS),
            None => (self.open && self.restocks).then_some(self.idle_since),
        }
    }

    /// One goes that has had no guest for a while, or one is made ready.
    pub(super) fn wake(&mut self, now: Moment) -> Vec<Effect> {
        let mut out = Out::default();
        if self.deadline().is_none_or(|at| now < at) {
            return out.effects;
        }
        if self.here.is_some() {
            self.drop_it(&mut out);
        } else {
            let spawn = self.spawn(now, true);
            self.kept = true;
            out.effects.push(spawn);
        }
        out.effects
    }
}

impl Turn<'_> {
    /// Sees to it that there is a keeper of this kind.
    pub(super) fn need_keeper(&mut self, staged: bool) {
        if !self.keeper.is(staged) {
            self.keeper.drop_it(&mut self.out);
            let spawn = self.keeper.spawn(self.now, staged);
            self.order(spawn);
        }
    }
}
