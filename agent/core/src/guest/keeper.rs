//! The keeper that waits at a place: when one is made, and when it goes.
//!
//! Where the last guest could move, the next one may come from elsewhere, and
//! somebody waits for it: a keeper for it is kept ready while guests are
//! welcome here.
//!
//! There is one at a time. One that is let go may have much to clear away, and
//! nobody waits for it but who comes after it: the place is its own until it is
//! gone.

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
    hold: Hold,
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
enum Hold {
    Nobody,
    Here(Kind),
    /// It was let go, and is not gone: nobody else can be here.
    Going,
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
        let (hold, restocks, open, kept) = (Hold::Nobody, false, false, false);
        Self { place, hold, restocks, open, kept, idle_since, born }
    }

    pub(super) fn is_staged(&self) -> bool {
        self.hold == Hold::Here(Kind::Staged)
    }

    pub(super) fn is_going(&self) -> bool {
        self.hold == Hold::Going
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

    /// It is dead. What one without a guest has died of, the next one would, if
    /// it was not let go.
    pub(super) fn gone(&mut self, without_guest: bool) {
        self.restocks &= self.is_going() || !without_guest;
        self.hold = Hold::Nobody;
    }

    pub(super) fn drop_it(&mut self, out: &mut Out) {
        if let Hold::Here(_) = self.hold {
            self.hold = Hold::Going;
            out.effects.push(Effect::DropKeeper(self.place));
        }
    }

    pub(super) fn set_open(&mut self, now: Moment, open: bool) {
        if std::mem::replace(&mut self.open, open) && !open {
            self.idle_since = self.idle_since.max(now);
        }
    }

    fn spawn(&mut self, now: Moment, staged: bool) -> Effect {
        self.hold = Hold::Here(Kind::of(staged));
        (self.restocks, self.born, self.kept) = (staged, now, false);
        Effect::SpawnKeeper { place: self.place, staged }
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        match self.hold {
            Hold::Here(Kind::Staged) if self.open => Some(self.born + RENEWED_AFTER),
            Hold::Here(_) => Some(self.idle_since + STAYS),
            Hold::Going => None,
            Hold::Nobody => (self.open && self.restocks).then_some(self.idle_since),
        }
    }

    /// One goes that has had no guest for a while, or one is made ready.
    pub(super) fn wake(&mut self, now: Moment) -> Vec<Effect> {
        let mut out = Out::default();
        if self.deadline().is_none_or(|at| now < at) {
            return out.effects;
        }
        if let Hold::Here(_) = self.hold {
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
    /// Sees to it that there is a keeper of this kind; `false` while another one must
    /// go first.
    pub(super) fn has_keeper(&mut self, staged: bool) -> bool {
        match self.keeper.hold {
            Hold::Here(kind) if kind == Kind::of(staged) => return true,
            Hold::Here(_) => self.keeper.drop_it(&mut self.out),
            Hold::Going => {}
            Hold::Nobody => {
                let spawn = self.keeper.spawn(self.now, staged);
                self.order(spawn);
                return true;
            }
        }
        false
    }
}
