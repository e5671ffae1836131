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
//!    ▲ │             ▲ ▲ │ busy, suspend            │ claimed
//!    │ │ expect  away│ │ ▼                          ▼
//!    │ ▼             │ suspended ◄──────────────────┘
//!    │ arriving      │  │  ▲ patience over, migrate; busy, migrate
//!    │ │ landed      │  ▼  │ stay, cannot leave
//!    │ ▼    go ahead │ leaving: asked ── depart ──► on its way
//!    │ landed ───────┘  │
//!    │ exited           │ patience over, retreat; timeout; limit; cancel
//!    └── ending ◄───────┘
//! ```
//!
//! A guest that leaves stands still from before it says so until it is told
//! what became of it: cancelled (it goes on elsewhere), or to stay. One that
//! arrives stands still until it is told to go. So there are never two. A rank
//! without a process that nobody has taken when its owner leaves begins anew here.

use std::time::Duration;

use gleaner_common::id::Fence;
use gleaner_common::job::OnBusy;
pub use gleaner_common::reaction::Owner;
use gleaner_common::reaction::{Keep, Step};
use gleaner_common::time::Moment;
use gleaner_common::wire::{GuestState, Terms};

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
    /// End its processes; the rank stays, to leave without them.
    Empty(Fence),
    /// Wait for its state, which comes from elsewhere.
    Expect(Fence),
    /// Set going what has landed.
    Go(Fence),
    /// Begin its rank anew: its process is gone, and its owner has left.
    Again(Fence),
    /// Let it return its work within that time; it runs on demoted.
    AskToRetreat {
        fence: Fence,
        within: Duration,
    },
    /// It stands still and is to leave with what it keeps.
    WantsAway {
        fence: Fence,
        keep: Keep,
    },
    /// Carry it there; it has stood still since then.
    Depart {
        fence: Fence,
        keep: Keep,
        since: Moment,
    },
    /// Stop carrying it: it is not awaited there any more.
    CallBack(Fence),
    /// Its owner has left before anything was carried.
    Stays(Fence),
    /// Nor will it, like this.
    CannotLeave {
        fence: Fence,
        keep: Keep,
        reason: String,
    },
    /// It never ran here.
    Refuse {
        fence: Fence,
        why: NotHere,
    },
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

/// Why what was on its way does not run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHere {
    /// The owner came before it.
    OwnerCame,
    /// Nothing came for so long.
    NothingCame(Duration),
    /// Its processes ended before they were set going.
    Ended,
    /// Somebody asked for it, who knows why.
    Asked,
}

/// What is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub terms: Terms,
    /// Is it a rank of a program? Its endpoint stays when its process goes.
    pub rank: bool,
    /// Does its state come from elsewhere?
    pub arrives: bool,
}

/// How long an expected guest's state may be on its way before anything of it
/// comes: its source must stop it, find the way here and look at it first.
pub const ARRIVAL_WITHIN: Duration = Duration::from_secs(30);

/// How long a rank that retreats may take to return its work.
pub const RETREAT_WITHIN: Duration = Duration::from_millis(300);

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As the kernel tells it.
    Exited,
    TimedOut,
    OverLimit(String),
    /// It did what no program of ranks may.
    Fault(String),
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
    /// Its state is on its way here; until then, if nothing of it has come.
    Arriving(Option<Moment>),
    /// All of it is here and stands still.
    Landed,
    Running,
    Demoted,
    /// Until then, if it does not wait for ever.
    Suspended(Option<Moment>),
    /// Returns its work, demoted, until then; has it?
    Retreating {
        until: Moment,
        returned: bool,
    },
    /// Stands still; on its way to become that attempt, if somebody takes it.
    Leaving {
        keep: Keep,
        to: Option<Fence>,
    },
    /// Killed; `None` if all has been said already.
    Ending(Option<End>),
}

impl State {
    fn is_still(&self) -> bool {
        matches!(self, Self::Suspended(_) | Self::Leaving { .. })
    }

    /// Is the process killed already, or gone?
    fn is_killed(&self) -> bool {
        matches!(self, Self::Ending(_) | Self::Leaving { keep: Keep::Nothing, .. })
    }
}

#[derive(Clone, Debug)]
struct Guest {
    fence: Fence,
    terms: Terms,
    rank: bool,
    state: State,
    since: Moment,
    /// Since when it has stood still, if it does.
    stood: Moment,
    clock: Clock,
    /// What cannot be carried away.
    cannot: Vec<Keep>,
    /// A move came to nothing: after its patience it goes without its state.
    gave_up: bool,
    /// What its move would take.
    cost: Duration,
    /// Of a rank that leaves without its process: that is gone already.
    bare: bool,
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
            State::Arriving(_) | State::Landed => GuestState::Waiting,
            State::Running | State::Ending(Some(_)) => GuestState::Running,
            State::Demoted | State::Retreating { .. } => GuestState::Demoted,
            State::Suspended(_) => GuestState::Suspended,
            State::Leaving { .. } => GuestState::Leaving,
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
    pub fn take(&mut self, now: Moment, fence: Fence, entry: Entry) -> Vec<Effect> {
        if self.guest.is_some() || self.owner != Owner::Away {
            return vec![];
        }
        let (state, effect) = if entry.arrives {
            (State::Arriving(Some(now + ARRIVAL_WITHIN)), Effect::Expect(fence))
        } else {
            (State::Running, Effect::Start(fence))
        };
        self.guest = Some(Guest {
            fence,
            terms: entry.terms,
            rank: entry.rank,
            state,
            since: now,
            stood: now,
            clock: Clock::default(),
            cannot: vec![],
            gave_up: false,
            cost: Duration::ZERO,
            bare: false,
        });
        vec![effect]
    }

    /// What moving this guest would take.
    pub fn weigh(&mut self, fence: Fence, cost: Duration) {
        if let Some(guest) = self.guest_of(fence) {
            guest.cost = cost;
        }
    }

    fn guest_of(&mut self, fence: Fence) -> Option<&mut Guest> {
        self.guest.as_mut().filter(|guest| guest.fence == fence)
    }

    /// The first of its state has come: the rest may take its time.
    pub fn coming(&mut self, fence: Fence) {
        if let Some(guest) = self.guest_of(fence)
            && let State::Arriving(until) = &mut guest.state
        {
            *until = None;
        }
    }

    /// All of it is here and stands still. Was it awaited?
    pub fn landed(&mut self, now: Moment, fence: Fence) -> bool {
        let guest = self.guest_of(fence).filter(|it| matches!(it.state, State::Arriving(_)));
        guest.map(|guest| guest.enter(now, State::Landed)).is_some()
    }

    /// It is to be carried there. Said again, it is on its way already.
    #[must_use]
    pub fn depart(&mut self, now: Moment, fence: Fence, keep: Keep, to: Fence) -> Vec<Effect> {
        let Some(guest) = self.guest_of(fence) else { return vec![] };
        let cannot =
            |reason: &str| vec![Effect::CannotLeave { fence, keep, reason: reason.to_owned() }];
        let mut effects = match guest.state {
            State::Leaving { to: Some(before), .. } if before == to => return vec![],
            // Overtaken by another wish, of which the coordinator hears.
            State::Leaving { keep: wish, .. } if wish != keep => return vec![],
            // Not asked for here: it says so when it is without its process.
            State::Suspended(_) if keep == Keep::Nothing && guest.rank => {
                return guest.leave_bare(now);
            }
            State::Leaving { to: Some(_), .. } => vec![Effect::CallBack(fence)],
            State::Leaving { to: None, .. } | State::Suspended(_) => vec![],
            State::Running | State::Demoted | State::Retreating { .. } => {
                return cannot("its owner has left");
            }
            State::Arriving(_) | State::Landed => return cannot("it has not begun here"),
            State::Ending(_) => return vec![],
        };
        guest.enter(now, State::Leaving { keep, to: Some(to) });
        effects.push(Effect::Depart { fence, keep, since: guest.stood });
        effects
    }

    /// What has landed goes on. It may be told so twice, and may want away
    /// again by then.
    #[must_use]
    pub fn go_on(&mut self, now: Moment, fence: Fence) -> Vec<Effect> {
        let owner = self.owner;
        match self.guest_of(fence) {
            Some(guest) if guest.state == State::Landed => guest.go_ahead(now, owner),
            Some(_) | None => vec![],
        }
    }

    /// What leaves stays.
    #[must_use]
    pub fn stay(&mut self, now: Moment, fence: Fence) -> Vec<Effect> {
        let owner = self.owner;
        let Some(guest) = self.guest_of(fence) else { return vec![] };
        match guest.state {
            State::Leaving { keep: Keep::State | Keep::SubtaskStart, to } => {
                let mut effects = guest.settle_down(now, owner);
                if to.is_some() {
                    effects.insert(0, Effect::CallBack(fence));
                }
                effects
            }
            State::Leaving { keep: Keep::Nothing, to } => {
                let mut effects: Vec<Effect> =
                    to.map(|_| Effect::CallBack(fence)).into_iter().collect();
                guest.enter(now, State::Leaving { keep: Keep::Nothing, to: None });
                if guest.bare {
                    effects.extend(guest.goes_or_begins(now, owner));
                }
                effects
            }
            State::Arriving(_)
            | State::Landed
            | State::Running
            | State::Demoted
            | State::Suspended(_)
            | State::Retreating { .. }
            | State::Ending(_) => vec![],
        }
    }

    /// Carrying it has shown that it cannot be carried like this.
    #[must_use]
    pub fn cannot_leave(&mut self, now: Moment, fence: Fence, reason: String) -> Vec<Effect> {
        let owner = self.owner;
        let Some(guest) = self.guest_of(fence) else { return vec![] };
        let State::Leaving { keep, to: Some(_) } = guest.state else { return vec![] };
        if keep == Keep::Nothing {
            // Its process is gone, and nothing of it can be carried.
            return self.retreat(now);
        }
        guest.cannot.push(keep);
        let mut effects = guest.settle_down(now, owner);
        effects.push(Effect::CannotLeave { fence, keep, reason });
        effects
    }

    /// It has returned its work and ends.
    pub fn returned(&mut self, fence: Fence) {
        if let Some(guest) = self.guest_of(fence)
            && let State::Retreating { returned, .. } = &mut guest.state
        {
            *returned = true;
        }
    }

    /// The owner came, left, or claimed the machine.
    #[must_use]
    pub fn turned(&mut self, now: Moment, owner: Owner) -> Vec<Effect> {
        self.owner = owner;
        let Some(guest) = &mut self.guest else { return vec![] };
        let step = guest.terms.on_busy.when(owner);
        guest.go(now, step, owner)
    }

    /// The guest and all its processes are gone. Of one that had been given
    /// up, everything has been said.
    #[must_use]
    pub fn exited(&mut self, now: Moment, fence: Fence) -> Vec<Effect> {
        let owner = self.owner;
        if let Some(guest) = self.guest_of(fence)
            && guest.lost_only_its_process(now)
        {
            let wants = matches!(guest.state, State::Leaving { to: None, .. });
            return if wants { guest.goes_or_begins(now, owner) } else { vec![] };
        }
        let Some(mut guest) = self.guest.take_if(|guest| guest.fence == fence) else {
            return vec![];
        };
        guest.count(now);
        let end = match guest.state {
            State::Ending(None) => return vec![],
            State::Arriving(_) | State::Landed => {
                return vec![Effect::Refuse { fence, why: NotHere::Ended }];
            }
            State::Ending(Some(end)) => end,
            State::Running
            | State::Demoted
            | State::Suspended(_)
            | State::Retreating { .. }
            | State::Leaving { .. } => End::Exited,
        };
        vec![Effect::Finish { fence, end, clock: guest.clock }]
    }

    /// The guest used more than it may.
    #[must_use]
    pub fn over_limit(&mut self, now: Moment, fence: Fence, what: String) -> Vec<Effect> {
        self.end(now, fence, End::OverLimit(what))
    }

    /// The guest broke the rules of its program's messages.
    #[must_use]
    pub fn faulted(&mut self, now: Moment, fence: Fence, what: String) -> Vec<Effect> {
        self.end(now, fence, End::Fault(what))
    }

    /// Abandons the guest and returns its work.
    #[must_use]
    pub fn retreat(&mut self, now: Moment) -> Vec<Effect> {
        let guest = self.guest.as_mut().filter(|guest| !matches!(guest.state, State::Ending(None)));
        let Some(guest) = guest else { return vec![] };
        let effects = match guest.state {
            State::Arriving(_) | State::Landed => guest.refuse(now, NotHere::Asked),
            State::Running
            | State::Demoted
            | State::Suspended(_)
            | State::Retreating { .. }
            | State::Leaving { .. }
            | State::Ending(_) => guest.retreat(now, Why::Asked),
        };
        self.clear_bare(effects)
    }

    /// Ends the guest; nobody wants to hear of it again.
    #[must_use]
    pub fn cancel(&mut self, now: Moment, fence: Fence) -> Vec<Effect> {
        let Some(guest) = self.guest.as_mut().filter(|guest| guest.fence == fence) else {
            return vec![];
        };
        let killed = guest.state.is_killed();
        guest.enter(now, State::Ending(None));
        let effects = if killed { vec![] } else { vec![Effect::Kill(fence)] };
        self.clear_bare(effects)
    }

    /// A place whose guest has no process has nothing to wait for.
    fn clear_bare(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let _ = self.guest.take_if(|guest| guest.bare);
        effects
    }

    /// When `wake` is due. Ask again after every call.
    pub fn deadline(&self) -> Option<Moment> {
        let guest = self.guest.as_ref()?;
        match guest.state {
            State::Suspended(until) | State::Arriving(until) => until,
            State::Retreating { until, .. } => Some(until),
            State::Running | State::Demoted => guest.times_out_at(),
            State::Landed | State::Leaving { .. } | State::Ending(_) => None,
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
            State::Suspended(_) => guest.patience_over(now, self.owner),
            State::Arriving(_) => guest.refuse(now, NotHere::NothingCame(ARRIVAL_WITHIN)),
            State::Retreating { .. } => guest.leave_bare(now),
            State::Running | State::Demoted => {
                let fence = guest.fence;
                self.end(now, fence, End::TimedOut)
            }
            State::Landed | State::Leaving { .. } | State::Ending(_) => vec![],
        }
    }

    /// Kills the guest for a reason of its own; `exited` finishes it.
    fn end(&mut self, now: Moment, fence: Fence, end: End) -> Vec<Effect> {
        let guest = self.guest.as_mut().filter(|guest| guest.fence == fence);
        let Some(guest) = guest.filter(|guest| !guest.state.is_killed()) else { return vec![] };
        guest.enter(now, State::Ending(Some(end)));
        vec![Effect::Kill(fence)]
    }
}

impl Guest {
    /// From what it does to what it is to do.
    fn go(&mut self, now: Moment, step: Step, owner: Owner) -> Vec<Effect> {
        let fence = self.fence;
        match (&self.state, step) {
            (State::Running, Step::Demote) => {
                self.enter(now, State::Demoted);
                vec![Effect::Demote(fence)]
            }
            (State::Running, Step::Freeze) => self.suspend(now),
            // Waits for its owner already, since a move came to nothing.
            (State::Suspended(_), Step::Move(_)) if self.gave_up => vec![],
            (State::Running | State::Demoted | State::Suspended(_), Step::Move(keep)) => {
                self.leave(now, keep, owner, Why::OwnerCame)
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
                self.gave_up = false;
                self.enter(now, State::Running);
                vec![Effect::Thaw(fence)]
            }
            (State::Leaving { keep: Keep::Nothing, to: None }, Step::Stay) if self.bare => {
                self.begin_again(now)
            }
            (State::Leaving { keep: Keep::State | Keep::SubtaskStart, to: None }, Step::Stay) => {
                self.enter(now, State::Running);
                vec![Effect::Thaw(fence), Effect::Stays(fence)]
            }
            // Was suspended for a claim that is over.
            (State::Suspended(_), Step::Demote) => {
                self.enter(now, State::Demoted);
                vec![Effect::Demote(fence), Effect::Thaw(fence)]
            }
            (State::Arriving(_), Step::Demote | Step::Freeze | Step::Move(_)) => {
                self.refuse(now, NotHere::OwnerCame)
            }
            (State::Retreating { .. }, _) if owner == Owner::Claims => self.leave_bare(now),
            // What returns its work is done with by itself, in no time; what is
            // on its way is another's to decide; what has landed stands still.
            (State::Running | State::Arriving(_), Step::Stay)
            | (State::Demoted, Step::Demote)
            | (State::Suspended(_), Step::Freeze)
            | (
                State::Landed | State::Retreating { .. } | State::Leaving { .. } | State::Ending(_),
                _,
            ) => vec![],
        }
    }

    /// Off it goes with what it keeps, if it can.
    fn leave(&mut self, now: Moment, keep: Keep, owner: Owner, why: Why) -> Vec<Effect> {
        let fence = self.fence;
        let stands = matches!(self.state, State::Suspended(_));
        if keep == Keep::Nothing || keep == Keep::SubtaskStart && !self.rank {
            if !self.rank {
                return self.retreat(now, why);
            }
            if stands || owner == Owner::Claims {
                return self.leave_bare(now);
            }
            let until = now + RETREAT_WITHIN;
            self.enter(now, State::Retreating { until, returned: false });
            return vec![Effect::AskToRetreat { fence, within: RETREAT_WITHIN }];
        }
        match (self.cannot.contains(&keep), stands) {
            (true, true) => self.leave(now, Keep::Nothing, owner, why),
            (true, false) => self.wait_for_owner(now, false),
            (false, _) => {
                let mut effects = self.stand_still(now, State::Leaving { keep, to: None });
                effects.extend(self.wants_away());
                effects
            }
        }
    }

    /// A rank goes without its process. It says so once that is gone.
    fn leave_bare(&mut self, now: Moment) -> Vec<Effect> {
        self.enter(now, State::Leaving { keep: Keep::Nothing, to: None });
        vec![Effect::Empty(self.fence)]
    }

    /// Without its process. It says that it wants away also where it does not,
    /// so that what it had in hand is returned.
    fn goes_or_begins(&mut self, now: Moment, owner: Owner) -> Vec<Effect> {
        let mut effects = self.wants_away();
        if self.terms.on_busy.when(owner) == Step::Stay {
            effects.extend(self.begin_again(now));
        }
        effects
    }

    fn begin_again(&mut self, now: Moment) -> Vec<Effect> {
        (self.bare, self.gave_up) = (false, false);
        self.cannot.clear();
        self.enter(now, State::Running);
        vec![Effect::Again(self.fence), Effect::Stays(self.fence)]
    }

    fn wants_away(&self) -> Vec<Effect> {
        let State::Leaving { keep, .. } = self.state else { return vec![] };
        vec![Effect::WantsAway { fence: self.fence, keep }]
    }

    /// Into a state in which it stands still.
    fn stand_still(&mut self, now: Moment, state: State) -> Vec<Effect> {
        let (demoted, runs) = match self.state {
            State::Demoted => (true, true),
            State::Running => (false, true),
            State::Suspended(_)
            | State::Leaving { .. }
            | State::Arriving(_)
            | State::Landed
            | State::Retreating { .. }
            | State::Ending(_) => (false, false),
        };
        self.enter(now, state);
        if !runs {
            return vec![];
        }
        self.clock.suspensions += 1;
        let mut effects = vec![Effect::Freeze(self.fence)];
        effects.extend(demoted.then_some(Effect::Restore(self.fence)));
        effects
    }

    /// A move came to nothing: it runs, or waits for its owner as a guest does
    /// that has named no patience.
    fn settle_down(&mut self, now: Moment, owner: Owner) -> Vec<Effect> {
        if self.terms.on_busy.when(owner) == Step::Stay {
            self.gave_up = false;
            self.enter(now, State::Running);
            return vec![Effect::Thaw(self.fence)];
        }
        self.wait_for_owner(now, true)
    }

    fn wait_for_owner(&mut self, now: Moment, stands: bool) -> Vec<Effect> {
        self.gave_up = true;
        let patience = OnBusy::default().patience(Duration::ZERO);
        let until = patience.map(|(patience, _)| now + patience);
        if stands {
            self.enter(now, State::Suspended(until));
            return vec![];
        }
        self.stand_still(now, State::Suspended(until))
    }

    /// It has landed, and runs as if it had begun here: what its job says of
    /// an owner who has come meanwhile happens before.
    fn go_ahead(&mut self, now: Moment, owner: Owner) -> Vec<Effect> {
        self.enter(now, State::Running);
        let step = self.terms.on_busy.when(owner);
        if step == Step::Move(Keep::Nothing) && self.rank {
            return self.leave_bare(now);
        }
        let mut effects = self.go(now, step, owner);
        if !matches!(self.state, State::Ending(_)) {
            effects.push(Effect::Go(self.fence));
        }
        effects
    }

    /// Its owner has stayed for longer than it waits.
    fn patience_over(&mut self, now: Moment, owner: Owner) -> Vec<Effect> {
        let why = Why::OwnerStays(now.since(self.since));
        let step = self.terms.on_busy.patience(self.cost).map(|(_, step)| step);
        let keep = match step {
            Some(Step::Move(keep)) if !self.gave_up => keep,
            _ => Keep::Nothing,
        };
        self.leave(now, keep, owner, why)
    }

    /// Has a rank that leaves without its process lost that?
    fn lost_only_its_process(&mut self, now: Moment) -> bool {
        match self.state {
            State::Retreating { returned: true, .. } => {
                self.enter(now, State::Leaving { keep: Keep::Nothing, to: None });
            }
            State::Leaving { keep: Keep::Nothing, .. } if self.rank => {}
            State::Arriving(_)
            | State::Landed
            | State::Running
            | State::Demoted
            | State::Suspended(_)
            | State::Retreating { .. }
            | State::Leaving { .. }
            | State::Ending(_) => return false,
        }
        !std::mem::replace(&mut self.bare, true)
    }

    fn suspend(&mut self, now: Moment) -> Vec<Effect> {
        let patience = self.terms.on_busy.patience(self.cost);
        self.enter(now, State::Suspended(patience.map(|(patience, _)| now + patience)));
        self.clock.suspensions += 1;
        vec![Effect::Freeze(self.fence)]
    }

    fn retreat(&mut self, now: Moment, why: Why) -> Vec<Effect> {
        let (fence, suspensions) = (self.fence, self.clock.suspensions);
        let killed = self.state.is_killed();
        self.enter(now, State::Ending(None));
        let retreat = Effect::Retreat { fence, why, suspensions };
        if killed { vec![retreat] } else { vec![Effect::Kill(fence), retreat] }
    }

    fn refuse(&mut self, now: Moment, why: NotHere) -> Vec<Effect> {
        self.enter(now, State::Ending(None));
        vec![Effect::Kill(self.fence), Effect::Refuse { fence: self.fence, why }]
    }

    fn enter(&mut self, now: Moment, state: State) {
        self.count(now);
        if !self.state.is_still() {
            self.stood = now;
        }
        self.state = state;
    }

    /// Adds the time in the current state to where it belongs.
    fn count(&mut self, now: Moment) {
        let spent = now.since(self.since);
        match self.state {
            State::Running | State::Demoted | State::Retreating { .. } => self.clock.ran += spent,
            State::Suspended(_) | State::Leaving { .. } => self.clock.suspended += spent,
            State::Arriving(_) | State::Landed | State::Ending(_) => {}
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
