//! One guest place: what happens to the attempt that runs here.
//!
//! The promise: while the owner is here no guest runs, unless its job chose
//! to run on demoted, and while the owner claims the machine not even that
//! one does. Every attempt that was taken ends once. Knows nothing of
//! cgroups, sockets, other places, or of leases (which end guests by
//! [`Place::retreat`] like anybody else).
//!
//! ```text
//!            take                busy, renice
//!   nobody ───────► running ◄──────────────────► demoted
//!     ▲              ▲ │ busy, suspend              │ claimed
//!     │         away │ ▼                            ▼
//!     │            suspended ◄──────────────────────┘
//!     │ exited         │ patience over; busy, retreat; timeout; limit; cancel
//!     └── ending ◄─────┘
//! ```

use std::time::Duration;

use gleaner_common::id::Fence;
pub use gleaner_common::reaction::Owner;
use gleaner_common::reaction::Step;
use gleaner_common::time::Moment;
use gleaner_common::wire::{GuestState, Terms};

/// What a move is taken to cost where none was measured: that of 512 MiB.
const MOVE_COST: Duration = Duration::from_secs(2);

/// What to do about the guest, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Start(Fence),
    Freeze(Fence),
    Thaw(Fence),
    Demote(Fence),
    Restore(Fence),
    /// End its processes, frozen or not; the place is free when they have.
    Kill(Fence),
    /// Its work is returned.
    Retreat {
        fence: Fence,
        why: Why,
        suspensions: u32,
    },
    /// It has ended by itself or by a limit.
    Finish {
        fence: Fence,
        end: End,
        clock: Clock,
    },
}

/// Why a guest is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The owner came, and this is the job's reaction.
    OwnerCame,
    /// The owner stayed for longer than this.
    OwnerStays(Duration),
    /// Somebody asked for it, who knows why.
    Asked,
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As the kernel tells it.
    Exited,
    TimedOut,
    OverLimit(String),
}

/// What a guest has had of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    pub ran: Duration,
    pub suspended: Duration,
    pub suspensions: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Running,
    Demoted,
    /// Until then, if it does not wait for ever.
    Suspended(Option<Moment>),
    /// Killed; `None` if all has been said already.
    Ending(Option<End>),
}

#[derive(Clone, Debug)]
struct Guest {
    fence: Fence,
    terms: Terms,
    state: State,
    since: Moment,
    clock: Clock,
}

#[derive(Debug)]
pub struct Place {
    owner: Owner,
    guest: Option<Guest>,
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// Starts busy: without evidence, the owner is here.
    pub fn new() -> Self {
        Self { owner: Owner::Here, guest: None }
    }

    pub fn is_free(&self) -> bool {
        self.guest.is_none()
    }

    /// Is this attempt here, even if it has been given up?
    pub fn holds(&self, fence: Fence) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.fence == fence)
    }

    /// The attempt that is here and has not been given up.
    pub fn guest(&self) -> Option<(Fence, GuestState)> {
        let guest = self.guest.as_ref()?;
        let state = match guest.state {
            State::Running | State::Ending(Some(_)) => GuestState::Running,
            State::Demoted => GuestState::Demoted,
            State::Suspended(_) => GuestState::Suspended,
            State::Ending(None) => return None,
        };
        Some((guest.fence, state))
    }

    /// Since when the guest has been in its state.
    pub fn since(&self) -> Option<Moment> {
        self.guest.as_ref().map(|guest| guest.since)
    }

    /// Lets an attempt run here. Only a free place of an owner who is away
    /// takes one; the answer is empty otherwise.
    #[must_use]
    pub fn take(&mut self, now: Moment, fence: Fence, terms: Terms) -> Vec<Effect> {
        if self.guest.is_some() || self.owner != Owner::Away {
            return vec![];
        }
        let clock = Clock::default();
        self.guest = Some(Guest { fence, terms, state: State::Running, since: now, clock });
        vec![Effect::Start(fence)]
    }

    /// The owner came, left, or claimed the machine.
    #[must_use]
    pub fn turned(&mut self, now: Moment, owner: Owner) -> Vec<Effect> {
        self.owner = owner;
        let Some(guest) = &mut self.guest else { return vec![] };
        let step = guest.terms.on_busy.when(owner);
        guest.go(now, step)
    }

    /// The guest and all its processes are gone. Of one that had been given
    /// up, everything has been said.
    #[must_use]
    pub fn exited(&mut self, now: Moment, fence: Fence) -> Vec<Effect> {
        let Some(mut guest) = self.guest.take_if(|guest| guest.fence == fence) else {
            return vec![];
        };
        guest.count(now);
        let end = match guest.state {
            State::Ending(None) => return vec![],
            State::Ending(Some(end)) => end,
            State::Running | State::Demoted | State::Suspended(_) => End::Exited,
        };
        vec![Effect::Finish { fence, end, clock: guest.clock }]
    }

    /// The guest used more than it may.
    #[must_use]
    pub fn over_limit(&mut self, now: Moment, fence: Fence, what: String) -> Vec<Effect> {
        self.end(now, fence, End::OverLimit(what))
    }

    /// Abandons the guest and returns its work.
    #[must_use]
    pub fn retreat(&mut self, now: Moment) -> Vec<Effect> {
        let guest = self.guest.as_mut().filter(|guest| !matches!(guest.state, State::Ending(None)));
        guest.map_or_else(Vec::new, |guest| guest.retreat(now, Why::Asked))
    }

    /// Ends the guest; nobody wants to hear of it again.
    #[must_use]
    pub fn cancel(&mut self, now: Moment, fence: Fence) -> Vec<Effect> {
        let Some(guest) = self.guest.as_mut().filter(|guest| guest.fence == fence) else {
            return vec![];
        };
        let killed = matches!(guest.state, State::Ending(_));
        guest.enter(now, State::Ending(None));
        if killed { vec![] } else { vec![Effect::Kill(fence)] }
    }

    /// When `wake` is due. Ask again after every call.
    pub fn deadline(&self) -> Option<Moment> {
        let guest = self.guest.as_ref()?;
        match guest.state {
            State::Suspended(until) => until,
            State::Running | State::Demoted => guest.times_out_at(),
            State::Ending(_) => None,
        }
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    #[must_use]
    pub fn wake(&mut self, now: Moment) -> Vec<Effect> {
        if self.deadline().is_none_or(|at| now < at) {
            return vec![];
        }
        let Some(guest) = &mut self.guest else { return vec![] };
        match guest.state {
            // Whatever was to follow: the moves that keep state are not yet.
            State::Suspended(_) => {
                let stayed = now.since(guest.since);
                guest.retreat(now, Why::OwnerStays(stayed))
            }
            State::Running | State::Demoted => {
                let fence = guest.fence;
                self.end(now, fence, End::TimedOut)
            }
            State::Ending(_) => vec![],
        }
    }

    /// Kills the guest for a reason of its own; `exited` finishes it.
    fn end(&mut self, now: Moment, fence: Fence, end: End) -> Vec<Effect> {
        let guest = self.guest.as_mut().filter(|guest| guest.fence == fence);
        let Some(guest) = guest.filter(|guest| !matches!(guest.state, State::Ending(_))) else {
            return vec![];
        };
        guest.enter(now, State::Ending(Some(end)));
        vec![Effect::Kill(fence)]
    }
}

impl Guest {
    /// From what it does to what it is to do.
    fn go(&mut self, now: Moment, step: Step) -> Vec<Effect> {
        let fence = self.fence;
        match (&self.state, step) {
            (State::Running, Step::Demote) => {
                self.enter(now, State::Demoted);
                vec![Effect::Demote(fence)]
            }
            (State::Running, Step::Freeze) => self.suspend(now),
            // The moves across machines will have arms of their own; until
            // then a guest that ought to move returns its work.
            (State::Running | State::Demoted | State::Suspended(_), Step::Move(_)) => {
                self.retreat(now, Why::OwnerCame)
            }
            // Restored as well, so that a thaw finds it as it should be.
            (State::Demoted, Step::Freeze) => {
                let mut effects = self.suspend(now);
                effects.push(Effect::Restore(fence));
                effects
            }
            (State::Demoted, Step::Stay) => {
                self.enter(now, State::Running);
                vec![Effect::Restore(fence)]
            }
            (State::Suspended(_), Step::Stay) => {
                self.enter(now, State::Running);
                vec![Effect::Thaw(fence)]
            }
            // Was suspended for a claim that is over.
            (State::Suspended(_), Step::Demote) => {
                self.enter(now, State::Demoted);
                vec![Effect::Demote(fence), Effect::Thaw(fence)]
            }
            (State::Running, Step::Stay)
            | (State::Demoted, Step::Demote)
            | (State::Suspended(_), Step::Freeze)
            | (State::Ending(_), _) => vec![],
        }
    }

    fn suspend(&mut self, now: Moment) -> Vec<Effect> {
        let patience = self.terms.on_busy.patience(MOVE_COST);
        self.enter(now, State::Suspended(patience.map(|(patience, _)| now + patience)));
        self.clock.suspensions += 1;
        vec![Effect::Freeze(self.fence)]
    }

    fn retreat(&mut self, now: Moment, why: Why) -> Vec<Effect> {
        let (fence, suspensions) = (self.fence, self.clock.suspensions);
        let killed = matches!(self.state, State::Ending(_));
        self.enter(now, State::Ending(None));
        let retreat = Effect::Retreat { fence, why, suspensions };
        if killed { vec![retreat] } else { vec![Effect::Kill(fence), retreat] }
    }

    fn enter(&mut self, now: Moment, state: State) {
        self.count(now);
        self.state = state;
    }

    /// Adds the time in the current state to where it belongs.
    fn count(&mut self, now: Moment) {
        let spent = now.since(self.since);
        match self.state {
            State::Running | State::Demoted => self.clock.ran += spent,
            State::Suspended(_) => self.clock.suspended += spent,
            State::Ending(_) => {}
        }
        self.since = now;
    }

    fn times_out_at(&self) -> Option<Moment> {
        let left = self.terms.timeout?.saturating_sub(self.clock.ran);
        Some(self.since + left)
    }
}

#[cfg(test)]
mod tests;
