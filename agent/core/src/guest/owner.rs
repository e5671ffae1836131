//! What a guest does about its owner: from what it does to what it is to do.
//!
//! None of it freezes or thaws: that follows from the state ([`Guest::stands`]).

use std::time::Duration;

use gleaner_common::job::OnBusy;
use gleaner_common::reaction::{Keep, Owner, Step};
use gleaner_common::time::Moment;

use super::departure::Trip;
use super::{Effect, Guest, NotHere, Process, State, Turn, Why, Word};

/// How long a rank that retreats may take to return its work.
pub const RETREAT_WITHIN: Duration = Duration::from_millis(300);

impl Guest {
    /// From what it does to what it is to do.
    pub(super) fn follow(&mut self, step: Step, turn: &mut Turn<'_>) {
        match (&self.state, step) {
            // The latter was suspended for a claim that is over.
            (State::Running | State::Suspended(_), Step::Demote) => {
                self.enter(turn.now, State::Demoted);
            }
            (State::Running | State::Demoted, Step::Freeze) => {
                let patience = self.terms.on_busy.patience(self.cost);
                let until = patience.map(|(patience, _)| turn.now + patience);
                self.stand_still(turn.now, State::Suspended(until));
            }
            // Waits for its owner already, since a move came to nothing.
            (State::Suspended(_), Step::Move(_)) if self.gave_up => {}
            (State::Running | State::Demoted | State::Suspended(_), Step::Move(keep)) => {
                self.leave(keep, Why::OwnerCame, turn);
            }
            (State::Demoted, Step::Stay) => self.enter(turn.now, State::Running),
            (State::Suspended(_), Step::Stay) => {
                self.gave_up = false;
                self.enter(turn.now, State::Running);
            }
            (State::Leaving { keep: Keep::Nothing, trip: Trip::Wished }, Step::Stay)
                if self.process == Process::Gone =>
            {
                self.begin_again(turn);
            }
            (
                State::Leaving {
                    keep: keep @ (Keep::State | Keep::SubtaskStart),
                    trip: Trip::Wished,
                },
                Step::Stay,
            ) => {
                let keep = *keep;
                self.enter(turn.now, State::Running);
                turn.say(self.fence(), Word::Stays { keep });
            }
            (State::Arriving, Step::Demote | Step::Freeze | Step::Move(_)) => {
                self.refuse(NotHere::OwnerCame, turn);
            }
            (State::Retreating { .. }, _) if turn.owner == Owner::Claims => self.leave_bare(turn),
            // What returns its work is done with by itself, in no time; what is
            // on its way is another's to decide; what has landed stands still.
            (State::Running | State::Arriving, Step::Stay)
            | (State::Demoted, Step::Demote)
            | (State::Suspended(_), Step::Freeze)
            | (
                State::Landed
                | State::Retreating { .. }
                | State::Leaving { .. }
                | State::Ending(_)
                | State::Ended,
                _,
            ) => {}
        }
    }

    /// Off it goes with what it keeps, if it can.
    pub(super) fn leave(&mut self, keep: Keep, why: Why, turn: &mut Turn<'_>) {
        let stands = matches!(self.state, State::Suspended(_));
        let is_rank = self.is_rank();
        if keep == Keep::Nothing || keep == Keep::SubtaskStart && !is_rank {
            if !is_rank {
                return self.retreat(why, turn);
            }
            if stands || turn.owner == Owner::Claims {
                return self.leave_bare(turn);
            }
            let until = turn.now + RETREAT_WITHIN;
            self.enter(turn.now, State::Retreating { until, returned: false });
            let (at, within) = (self.start.at, RETREAT_WITHIN);
            return turn.order(Effect::AskToRetreat { at, within });
        }
        match (self.cannot.contains(&keep), stands) {
            (true, true) => self.leave(Keep::Nothing, why, turn),
            (true, false) => self.wait_for_owner(turn.now),
            (false, _) => {
                self.stand_still(turn.now, State::Leaving { keep, trip: Trip::Wished });
                turn.say(self.fence(), Word::WantsAway { keep });
            }
        }
    }

    /// A rank goes without its process. It says so once that is gone.
    pub(super) fn leave_bare(&mut self, turn: &mut Turn<'_>) {
        self.enter(turn.now, State::Leaving { keep: Keep::Nothing, trip: Trip::Wished });
        if self.process == Process::Gone {
            return self.goes_or_begins(turn);
        }
        self.kill(true, turn);
    }

    /// Without its process. It says that it wants away also where it does not,
    /// so that what it had in hand is returned.
    pub(super) fn goes_or_begins(&mut self, turn: &mut Turn<'_>) {
        turn.say(self.fence(), Word::WantsAway { keep: Keep::Nothing });
        if self.terms.on_busy.when(turn.owner) == Step::Stay {
            self.begin_again(turn);
        }
    }

    /// Into a state in which it stands still.
    pub(super) fn stand_still(&mut self, now: Moment, state: State) {
        if matches!(self.state, State::Running | State::Demoted) {
            self.clock.suspensions += 1;
        }
        self.enter(now, state);
    }

    /// A move came to nothing: it runs, or waits for its owner as a guest does
    /// that has named no patience.
    pub(super) fn settle_down(&mut self, turn: &mut Turn<'_>) {
        if self.terms.on_busy.when(turn.owner) == Step::Stay {
            self.gave_up = false;
            return self.enter(turn.now, State::Running);
        }
        self.wait_for_owner(turn.now);
    }

    pub(super) fn wait_for_owner(&mut self, now: Moment) {
        self.gave_up = true;
        let patience = OnBusy::default().patience(Duration::ZERO);
        self.stand_still(now, State::Suspended(patience.map(|(patience, _)| now + patience)));
    }

    /// Its owner has stayed for longer than it waits.
    pub(super) fn patience_over(&mut self, turn: &mut Turn<'_>) {
        let why = Why::OwnerStays(turn.now.since(self.since));
        let step = self.terms.on_busy.patience(self.cost).map(|(_, step)| step);
        let keep = match step {
            Some(Step::Move(keep)) if !self.gave_up => keep,
            _ => Keep::Nothing,
        };
        self.leave(keep, why, turn);
    }
}
