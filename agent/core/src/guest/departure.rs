//! A guest that leaves: it is halted, its rank is packed, and it is carried. The
//! carrying is the shell's.
//!
//! ```text
//! wished ── depart ─► halting ─► packing (a rank) ─► carried ── cancelled: it goes on there
//!    ▲                 │  ▲ runs on for a moment       │
//!    │                 ▼  └──┐                         │
//!    └── stay ─────────┴─────┴─ cannot leave, stay ◄───┘ ─► runs, or waits for its owner
//! ```
//!
//! A process that is caught between `vfork` and `exec` cannot be looked into, so
//! it runs on for a few milliseconds first: twice as long each time, as it may
//! get no core.

use std::time::Duration;

use gleaner_common::program::Destination;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;

use super::image::Image;
use super::{Departure, Effect, Guest, Look, NOT_BEGUN, NoImage, Process, State, Turn, Why, Word};

/// How long a guest may take to stand: it does so when it gets a core, and comes
/// after everybody else who wants one.
pub(super) const STANDS_WITHIN: Duration = Duration::from_secs(10);

/// How soon it is looked at again.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(2);

/// How long it runs on, at first and at most, before it is looked at again.
const RUNS_ON: Duration = Duration::from_millis(2);
const RUNS_ON_MAX: Duration = Duration::from_millis(100);

/// How far a guest that is to leave has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trip {
    /// It wants away, and has been told of no place.
    Wished,
    /// It is made to stand still, to go there.
    Halting(Halt),
    /// The router packs its endpoint.
    Packing(Destination),
    /// It is being carried, or has been, to become that attempt.
    Carried(Destination),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Halt {
    to: Destination,
    /// Longer than that it is not tried.
    until: Moment,
    /// It is looked at again then; `None` while a look is taken.
    look: Option<Moment>,
    /// For how long it runs on, if that is what it does or must.
    runs_on: Duration,
    running: bool,
}

impl Trip {
    fn to(&self) -> Option<&Destination> {
        match self {
            Self::Wished => None,
            Self::Halting(Halt { to, .. }) | Self::Packing(to) | Self::Carried(to) => Some(to),
        }
    }

    pub(super) fn runs_on(&self) -> bool {
        matches!(self, Self::Halting(halt) if halt.running)
    }

    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, Self::Halting(_) | Self::Packing(_))
    }

    pub(super) fn look_at(&self) -> Option<Moment> {
        match self {
            Self::Halting(halt) => halt.look,
            Self::Wished | Self::Packing(_) | Self::Carried(_) => None,
        }
    }
}

impl Guest {
    /// It is to be carried there. Said again, it is on its way already.
    pub(super) fn depart(&mut self, keep: Keep, to: Destination, turn: &mut Turn<'_>) {
        let cannot = |reason: &str| Word::CannotLeave { keep, reason: reason.to_owned() };
        match &self.state {
            State::Leaving { trip, .. }
                if trip.to().is_some_and(|it| it.at.fence == to.at.fence) =>
            {
                return;
            }
            // Overtaken by another wish, of which the coordinator hears.
            State::Leaving { keep: wish, .. } if *wish != keep => return,
            // Not asked for here: it says so when it is without its process.
            State::Suspended(_) if keep == Keep::Nothing && self.is_rank() => {
                return self.leave_bare(turn);
            }
            State::Leaving { .. } => self.end_trip(turn),
            State::Suspended(_) => {}
            State::Running | State::Demoted if to.ordered => {}
            State::Running | State::Demoted | State::Retreating { .. } => {
                return turn.say(self.fence(), cannot("its owner has left"));
            }
            State::Arriving | State::Landed => {
                return turn.say(self.fence(), cannot("it has not begun here"));
            }
            State::Ending(_) | State::Ended => return,
        }
        let (until, look) = (turn.now + STANDS_WITHIN, None);
        let halt = Halt { to, until, look, runs_on: RUNS_ON, running: false };
        self.stand_still(turn.now, State::Leaving { keep, trip: Trip::Halting(halt) });
        turn.say(self.fence(), Word::Departs { keep });
        self.halt(turn);
    }

    fn halting(&mut self) -> Option<&mut Halt> {
        let State::Leaving { trip: Trip::Halting(halt), .. } = &mut self.state else { return None };
        Some(halt)
    }

    /// When everything stands, and can be looked into, it is carried. What a
    /// process says after its rank was packed would be lost.
    fn halt(&mut self, turn: &mut Turn<'_>) {
        match self.image {
            Image::None => {}
            // What is not being taken is not wanted now.
            Image::Waits => self.end_image(Err(NoImage::NotNow), turn),
            Image::Halting { .. } | Image::Writing { .. } => {
                let now = turn.now;
                if let Some(halt) = self.halting() {
                    (halt.until, halt.look) = (now + STANDS_WITHIN, Some(now + LOOK_AFTER));
                }
                return;
            }
        }
        match self.process {
            Process::Gone => self.pack(turn),
            Process::Preparing { .. } | Process::Arriving(_) => self.has_not_begun(turn),
            Process::Alive => turn.order(Effect::Look(self.start.at)),
            // It ends, and so does its leaving.
            Process::Killed { .. } | Process::Reaping { .. } => {}
        }
    }

    /// It did not stand still, or was given a moment.
    pub(super) fn look_again(&mut self, turn: &mut Turn<'_>) {
        if let Some(halt) = self.halting() {
            (halt.look, halt.running) = (None, false);
            self.halt(turn);
        }
    }

    /// What a look at it has shown.
    pub(super) fn looked(&mut self, look: Look, turn: &mut Turn<'_>) {
        if matches!(self.image, Image::Halting { .. }) {
            return self.looked_for_image(look, turn);
        }
        let now = turn.now;
        let Some(halt) = self.halting().filter(|halt| halt.look.is_none()) else { return };
        match look {
            Look::Steady => self.pack(turn),
            Look::NotBegun => self.has_not_begun(turn),
            Look::Failed(why) => self.cannot_leave(format!("cannot look at it: {why}"), turn),
            Look::Between | Look::Restless if now >= halt.until => {
                self.cannot_leave("it does not come to a stand".to_owned(), turn);
            }
            Look::Between => {
                (halt.look, halt.running) = (Some(now + halt.runs_on), true);
                halt.runs_on = (halt.runs_on * 2).min(RUNS_ON_MAX);
            }
            Look::Restless => halt.look = Some(now + LOOK_AFTER),
        }
    }

    /// There is nothing to carry: its work is placed elsewhere at once, unless
    /// it has more than its beginning.
    fn has_not_begun(&mut self, turn: &mut Turn<'_>) {
        if self.came {
            return self.cannot_leave(NOT_BEGUN.to_owned(), turn);
        }
        turn.keeper.drop_it(&mut turn.out);
        self.never_ran(NOT_BEGUN.to_owned(), false, turn);
    }

    fn pack(&mut self, turn: &mut Turn<'_>) {
        let (at, is_rank) = (self.start.at, self.is_rank());
        let State::Leaving { keep, trip } = &mut self.state else { return };
        let Trip::Halting(Halt { to, .. }) = trip else { return };
        let (keep, to) = (*keep, to.clone());
        if !is_rank {
            return self.carry(keep, to, turn);
        }
        *trip = Trip::Packing(to);
        self.packings += 1;
        turn.order(Effect::Pack(at, keep));
    }

    /// The router has packed what is to be carried of a rank.
    pub(super) fn packed(&mut self, done: Result<(), String>, turn: &mut Turn<'_>) {
        self.packings = self.packings.saturating_sub(1);
        // Answers come in order: an earlier one is to an earlier question. And
        // what has ended meanwhile does not leave.
        let is_here = matches!(self.process, Process::Alive | Process::Gone);
        if self.packings > 0 || !is_here {
            return;
        }
        let State::Leaving { keep, trip: Trip::Packing(to) } = &self.state else { return };
        match done {
            Ok(()) => self.carry(*keep, to.clone(), turn),
            Err(reason) => self.cannot_leave(reason, turn),
        }
    }

    fn carry(&mut self, keep: Keep, to: Destination, turn: &mut Turn<'_>) {
        let (at, subprogram, since) = (self.start.at, self.start.subprogram, self.stood);
        self.carriers += 1;
        self.state = State::Leaving { keep, trip: Trip::Carried(to.clone()) };
        turn.order(Effect::Carry(Departure { at, subprogram, keep, to, since }));
    }

    /// It cannot be carried like this.
    pub(super) fn cannot_leave(&mut self, reason: String, turn: &mut Turn<'_>) {
        let State::Leaving { keep, trip } = &self.state else { return };
        let keep = *keep;
        if *trip == Trip::Wished {
            return;
        }
        if keep == Keep::Nothing {
            // Its process is gone, and nothing of it can be carried.
            return self.retreat(Why::Asked, turn);
        }
        self.end_trip(turn);
        self.cannot.push(keep);
        self.settle_down(turn);
        turn.say(self.fence(), Word::CannotLeave { keep, reason });
    }

    /// What was to leave stays.
    pub(super) fn stay(&mut self, turn: &mut Turn<'_>) {
        let State::Leaving { keep, .. } = self.state else { return };
        self.end_trip(turn);
        if keep != Keep::Nothing {
            return self.settle_down(turn);
        }
        self.enter(turn.now, State::Leaving { keep, trip: Trip::Wished });
        if self.process == Process::Gone {
            self.goes_or_begins(turn);
        }
    }

    /// It does not go there: whoever has a hand in it hears so, its rank before
    /// its process runs or it is packed again.
    fn end_trip(&self, turn: &mut Turn<'_>) {
        let State::Leaving { trip, .. } = &self.state else { return };
        let at = self.start.at;
        if matches!(trip, Trip::Carried(_)) {
            turn.order(Effect::CallBack(at));
        }
        if self.endpoint && matches!(trip, Trip::Packing(_) | Trip::Carried(_)) {
            turn.order(Effect::Stayed(at));
        }
    }
}
