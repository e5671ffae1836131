//! The watchdog: what becomes of guests whose worker is not heard.
//!
//! A worker may hang: stopped, swapped out, or stuck in the kernel. It then hears
//! neither its owner nor the end of its lease. So it vouches for its guests
//! whenever it has looked at its sensors and has done what follows, and what it
//! says holds for [`UNREAD_MAX`] and not beyond the lease. The watchdog, which is
//! the supervisor's, trusts nobody for longer.
//!
//! ```text
//!          it vouches              what it said is over, or it is stopped
//!  at rest ──────────► trusting ─────────────────────────────────────► doubting ─┐
//!    ▲                  │    ▲                                          │   ▲    │ lease
//!    └── nobody runs ◄──┴────┴────────── it has looked anew ◄───────────┘   └────┘ over: kill
//! ```
//!
//! The promises: no guest runs at a moment that nobody vouches for, and none is
//! let go on by what was said before it was doubted. Who is doubted need not ask:
//! to look at its sensors and its lease, and to say so, is all that sets its guests
//! going. This freezer is above those of the places, which stay the worker's: what
//! it has frozen itself stays frozen.
//!
//! Knows nothing of processes, control groups, or how the worker speaks.

use std::time::Duration;

use gleaner_common::time::Moment;

/// How often a worker vouches for guests that run, if nothing else happens: an
/// owner notices no delay of two tenths of a second, and ten wake-ups in a
/// second cost a hundredth of a percent of a core.
pub const BEAT_EVERY: Duration = Duration::from_millis(100);

/// The longest that sensors may go unread while guests run: half a beat more than
/// a beat. Whoever has real-time priority gets a core within far less.
pub const UNREAD_MAX: Duration = Duration::from_millis(150);

/// How long after the lease's end guests are killed that stand still since then. The
/// worker, if it is well, has ended them by itself, and knows why.
pub const KILL_AFTER: Duration = Duration::from_millis(50);

/// What a worker says of guests that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vouch {
    /// It had looked at its sensors then, and has done what follows.
    pub looked: Moment,
    pub lease_end: Moment,
}

impl Vouch {
    /// Nobody may run on its word from then on.
    pub fn until(self) -> Moment {
        (self.looked + UNREAD_MAX).min(self.lease_end)
    }
}

/// Is it time to say this, after that? To say it every time would be too often.
pub fn is_news(said: Option<Vouch>, now: Option<Vouch>) -> bool {
    match (said, now) {
        (Some(said), Some(now)) => {
            now.lease_end != said.lease_end || now.looked >= said.looked + BEAT_EVERY / 2
        }
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

/// A fact for the watchdog, with what the worker says just now: nothing, if no guest
/// of it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Says(Option<Vouch>),
    /// The worker was stopped, says the kernel.
    Stopped(Option<Vouch>),
    /// The worker is dead.
    Ended,
}

/// What is to be done to all guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Freeze,
    Thaw,
    Kill,
    /// Kill everything, and thaw: the next worker begins on free ground.
    Clear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No guest runs.
    Rests,
    Trusts(Vouch),
    /// Guests stand still, and what had been said by then does not count any more.
    Doubts {
        looked: Moment,
        /// `None` once that has been done.
        kills_at: Option<Moment>,
    },
}

#[derive(Debug)]
pub struct Watchdog(State);

impl Default for Watchdog {
    fn default() -> Self {
        Self(State::Rests)
    }
}

impl Watchdog {
    /// Say it again until there is no order: freezing may be followed by killing.
    #[must_use]
    pub fn handle(&mut self, now: Moment, event: Event) -> Option<Order> {
        match event {
            Event::Says(None) => self.rest(),
            Event::Says(Some(vouch)) => self.hear(now, vouch),
            Event::Stopped(None) => None,
            Event::Stopped(Some(vouch)) => self.doubt(vouch),
            Event::Ended => {
                self.0 = State::Rests;
                Some(Order::Clear)
            }
        }
    }

    /// When it is to be handled what the worker says, whatever that is.
    pub fn deadline(&self) -> Option<Moment> {
        match self.0 {
            State::Rests => None,
            State::Trusts(vouch) => Some(vouch.until()),
            State::Doubts { kills_at, .. } => kills_at,
        }
    }

    /// Does it look by itself what the worker says, soon enough? Otherwise the worker
    /// must wake it.
    pub fn looks(&self) -> bool {
        matches!(self.0, State::Trusts(_))
    }

    /// Nobody runs, or the worker has frozen them all.
    fn rest(&mut self) -> Option<Order> {
        let before = std::mem::replace(&mut self.0, State::Rests);
        matches!(before, State::Doubts { .. }).then_some(Order::Thaw)
    }

    fn hear(&mut self, now: Moment, vouch: Vouch) -> Option<Order> {
        let holds = now < vouch.until();
        match &mut self.0 {
            State::Rests | State::Trusts(_) if holds => {
                self.0 = State::Trusts(vouch);
                None
            }
            State::Rests | State::Trusts(_) => self.doubt(vouch),
            State::Doubts { looked, .. } if holds && vouch.looked > *looked => {
                self.0 = State::Trusts(vouch);
                Some(Order::Thaw)
            }
            State::Doubts { kills_at, .. } => {
                // Nobody has looked, but the lease may have been renewed before.
                *kills_at = kills_at.map(|at| at.max(vouch.lease_end + KILL_AFTER));
                kills_at.take_if(|at| now >= *at).map(|_| Order::Kill)
            }
        }
    }

    fn doubt(&mut self, vouch: Vouch) -> Option<Order> {
        if let State::Doubts { looked, .. } = &mut self.0 {
            *looked = vouch.looked.max(*looked);
            return None;
        }
        let kills_at = Some(vouch.lease_end + KILL_AFTER);
        self.0 = State::Doubts { looked: vouch.looked, kills_at };
        Some(Order::Freeze)
    }
}

#[cfg(test)]
mod tests;
