//! One guest place: everything that is decided about the guest that is here.
//!
//! The promise: while the owner is here no guest runs, unless its job chose
//! to run on demoted, and while the owner claims the machine not even that
//! one does. Every attempt that was taken ends once. Knows nothing of
//! cgroups, sockets, other places, or of leases (which end guests by
//! [`Event::Retreat`] like anybody else).
//!
//! ```text
//!            take                busy, renice
//!   nobody ───────► running ◄──────────────────► demoted
//!    ▲ │             ▲ ▲ │ busy, suspend            │ claimed
//!    │ │ expect  away│ │ ▼                          ▼
//!    │ ▼             │ suspended ◄──────────────────┘
//!    │ arriving      │  │  ▲ patience over, migrate; busy, migrate
//!    │ │ landed      │  ▼  │ stay, cannot leave
//!    │ ▼       go on │ leaving: wished ─ depart ─► halting ─► packing ─► carried
//!    │ landed ───────┘  │
//!    │ exited           │ patience over, retreat; timeout; limit; cancel
//!    └── ending ◄───────┘
//! ```
//!
//! [`State`] is what the guest is to do, [`Process`] how far its process is.
//! Whether the guest stands still follows from them, in one place
//! ([`Guest::stands`]): no event freezes or thaws by itself.
//!
//! A guest that leaves stands still from before it says so until it is told
//! what became of it: cancelled (it goes on elsewhere), or to stay. One that
//! arrives stands still until it is told to go on. So there are never two. A
//! rank without a process that nobody has taken when its owner leaves begins
//! anew here.

mod arrival;
mod departure;
mod effect;
mod ending;
mod entry;
mod event;
mod image;
mod keeper;
mod owner;

use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::job::{JobSpec, Limits, OnBusy};
use gleaner_common::reaction::Keep;
pub use gleaner_common::reaction::Owner;
use gleaner_common::time::Moment;
use gleaner_common::wire::GuestState;

pub use self::arrival::ARRIVAL_WITHIN;
use self::arrival::Arrival;
use self::departure::Trip;
pub use self::effect::{Departure, Effect, GuestAt, NoImage, Start};
pub use self::entry::may_go_back;
pub use self::event::{Clock, End, Event, Exit, KeeperEvent, Left, Look, NotHere, Why, Word};
use self::image::Image;
use self::keeper::Keeper;
pub use self::owner::RETREAT_WITHIN;

/// Why a guest that is to leave is placed elsewhere as it was.
const NOT_BEGUN: &str = "its owner came before it began";

/// How often it is looked what a guest uses, and whether its keeper is awake.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// How long a keeper may be stopped under its guest: whoever stopped it may be looking
/// at it for a moment.
const STOPPED_MAX: Duration = Duration::from_secs(10);

/// What all places of a workstation have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The workstation's own limits of one guest, whatever is lent; 0: none.
    pub limits: Limits,
    /// Can guests be moved from and to here? If not, why.
    pub moves: Result<(), String>,
}

/// The part of a job's spec that decides about its guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    on_busy: OnBusy,
    timeout: Option<Duration>,
}

impl From<&JobSpec> for Terms {
    fn from(spec: &JobSpec) -> Self {
        Self { on_busy: spec.on_busy, timeout: spec.timeout }
    }
}

/// What comes of an event: orders for the shell, and words for the coordinator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Out {
    pub effects: Vec<Effect>,
    pub words: Vec<(Fence, Word)>,
}

/// What the guest is to do.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Its state is on its way here.
    Arriving,
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
    /// Stands still, or has lost its process, and is to go elsewhere.
    Leaving {
        keep: Keep,
        trip: Trip,
    },
    /// Its processes are to be gone; `None` if all has been said already.
    Ending(Option<End>),
    /// Nothing of it is here any more.
    Ended,
}

/// How far the guest's process is.
#[derive(Clone, Debug, PartialEq)]
enum Process {
    /// The files that it begins with are being laid; or they lie, and the keeper
    /// before its own is not gone yet.
    Preparing {
        laid: bool,
    },
    /// It comes from elsewhere, or out of a snapshot.
    Arriving(Arrival),
    Alive,
    /// Killed with everything at the place; does its rank stay? If that was for its
    /// keeper, which would have told of no end: why.
    Killed {
        stays: bool,
        orphaned: Option<&'static str>,
    },
    /// It is over; what it left is being looked at. Was its rank to stay? If nobody saw
    /// how it ended: why.
    Reaping {
        stays: bool,
        orphaned: Option<&'static str>,
    },
    /// There is none. Only a rank is here without one.
    Gone,
}

#[derive(Clone, Debug)]
struct Guest {
    start: Box<Start>,
    terms: Terms,
    state: State,
    process: Process,
    /// The router has its endpoint.
    endpoint: bool,
    image: Image,
    /// So many carriers have a hand in its process.
    carriers: u32,
    /// So many answers of the router's to [`Effect::Pack`] are on their way.
    packings: u32,
    /// It came from elsewhere: it has more than its beginning.
    came: bool,
    since: Moment,
    /// Since when it has stood still, if it does.
    stood: Moment,
    measured: Moment,
    clock: Clock,
    /// What cannot be carried away.
    cannot: Vec<Keep>,
    /// A move came to nothing: after its patience it goes without its state.
    gave_up: bool,
    /// What its move would take.
    cost: Duration,
}

/// What a guest works with while it handles an event.
#[derive(Debug)]
struct Turn<'a> {
    now: Moment,
    owner: Owner,
    site: &'a Site,
    keeper: &'a mut Keeper,
    out: Out,
}

impl Turn<'_> {
    fn order(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    fn say(&mut self, fence: Fence, word: Word) {
        self.out.words.push((fence, word));
    }
}

#[derive(Debug)]
pub struct Place {
    site: Arc<Site>,
    owner: Owner,
    keeper: Keeper,
    guest: Option<Guest>,
    /// What the freezer, and the scheduler, were told last.
    frozen: bool,
    hurries: bool,
}

impl Place {
    /// Starts busy: without evidence, the owner is here.
    pub fn new(id: PlaceId, site: Arc<Site>) -> Self {
        let (owner, keeper) = (Owner::Here, Keeper::new(id));
        Self { site, owner, keeper, guest: None, frozen: false, hurries: false }
    }

    /// Nobody is here, and nothing of anybody who was.
    pub fn is_free(&self) -> bool {
        self.guest.is_none() && !self.keeper.is_going()
    }

    pub fn has_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// Is this attempt here, even if it has been given up?
    pub fn holds(&self, fence: Fence) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.fence() == fence)
    }

    /// The attempt that is here and has not been given up.
    pub fn guest(&self) -> Option<(Fence, GuestState)> {
        let guest = self.guest.as_ref()?;
        let state = match guest.state {
            State::Arriving | State::Landed => GuestState::Waiting,
            State::Running | State::Ending(Some(_)) => GuestState::Running,
            State::Demoted | State::Retreating { .. } => GuestState::Demoted,
            State::Suspended(_) => GuestState::Suspended,
            State::Leaving { .. } => GuestState::Leaving,
            State::Ending(None) | State::Ended => return None,
        };
        Some((guest.fence(), state))
    }

    /// Is it being found out how its guest has ended?
    pub fn reaps(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| matches!(guest.process, Process::Reaping { .. }))
    }

    /// May its guest be running just now?
    pub fn runs(&self) -> bool {
        self.guest
            .as_ref()
            .is_some_and(|guest| guest.process == Process::Alive && guest.stands() == Some(false))
    }

    /// Since when the guest has been in its state.
    pub fn since(&self) -> Option<Moment> {
        self.guest.as_ref().map(|guest| guest.since)
    }

    /// Lets an attempt run here. Only a free place of an owner who is away
    /// takes one; nothing happens otherwise.
    #[must_use]
    pub fn take(&mut self, now: Moment, start: Start) -> Out {
        if !self.is_free() || self.owner != Owner::Away {
            return Out::default();
        }
        self.guest = Some(Guest::new(now, start));
        self.turn(now, Guest::enter_place)
    }

    /// The owner came, left, or claimed the machine.
    #[must_use]
    pub fn turned(&mut self, now: Moment, owner: Owner) -> Out {
        self.owner = owner;
        self.turn(now, |guest, turn| guest.follow(guest.terms.on_busy.when(owner), turn))
    }

    /// Takes in what concerns the guest that is here.
    #[must_use]
    pub fn handle(&mut self, now: Moment, event: Event) -> Out {
        self.turn(now, |guest, turn| guest.handle(event, turn))
    }

    /// Takes in what concerns the keeper.
    #[must_use]
    pub fn keeper_says(&mut self, now: Moment, event: KeeperEvent) -> Out {
        // It may have been let go before that was heard.
        let failed = matches!(event, KeeperEvent::Failed { .. });
        let event = if failed && self.keeper.is_going() { KeeperEvent::Gone } else { event };
        match &event {
            KeeperEvent::Gone | KeeperEvent::Failed { .. } => {
                self.keeper.gone(self.guest.is_none());
            }
            KeeperEvent::Ended { .. }
            | KeeperEvent::CannotStart { .. }
            | KeeperEvent::ProcessStands { .. }
            | KeeperEvent::NotBegun { .. }
            | KeeperEvent::Stopped { .. } => {}
        }
        self.turn(now, |guest, turn| guest.keeper_says(event, turn))
    }

    /// Are guests welcome at this workstation?
    pub fn set_open(&mut self, now: Moment, open: bool) {
        self.keeper.set_open(now, open);
    }

    /// When `wake` is due. Ask again after every call.
    pub fn deadline(&self) -> Option<Moment> {
        match &self.guest {
            Some(guest) => guest.deadline(),
            None => self.keeper.deadline(),
        }
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    #[must_use]
    pub fn wake(&mut self, now: Moment) -> Out {
        if self.deadline().is_none_or(|at| now < at) {
            return Out::default();
        }
        if self.guest.is_none() {
            return Out { effects: self.keeper.wake(now), words: vec![] };
        }
        self.turn(now, Guest::wake)
    }

    /// Has the guest do something, and orders what follows for the freezer.
    fn turn(&mut self, now: Moment, act: impl FnOnce(&mut Guest, &mut Turn<'_>)) -> Out {
        let before = self.guest();
        let Some(guest) = &mut self.guest else { return Out::default() };
        let (owner, site, keeper) = (self.owner, &self.site, &mut self.keeper);
        let mut turn = Turn { now, owner, site, keeper, out: Out::default() };
        act(guest, &mut turn);
        guest.image_after_all(&mut turn);
        let mut out = turn.out;
        let at = guest.start.at;
        if self.guest.take_if(|guest| guest.state == State::Ended).is_some() {
            self.keeper.rest(now);
        }
        self.order_freezer(at, &mut out);
        // What is asked for changes by the owner's coming and going, mostly.
        let after = self.guest().filter(|after| before.is_some_and(|before| before != *after));
        let is_said = |state| !matches!(state, GuestState::Waiting | GuestState::Leaving);
        if let Some((fence, state)) = after.filter(|(_, state)| is_said(*state)) {
            out.words.push((fence, Word::State(state)));
        }
        out
    }

    /// The only one who freezes and thaws: the freezer does what follows from
    /// the guest's state. Before anything else if it freezes, and last if it thaws.
    fn order_freezer(&mut self, at: GuestAt, out: &mut Out) {
        // A new keeper must get out of the group's freezer to begin.
        let spawn = |effect: &Effect| matches!(effect, Effect::SpawnKeeper { .. });
        let mut first = 0;
        if let Some(index) = out.effects.iter().position(spawn) {
            first = index + 1;
            if std::mem::take(&mut self.frozen) {
                out.effects.insert(index, Effect::Thaw(at));
                first += 1;
            }
        }
        let stands = self.guest.as_ref().map_or(Some(false), Guest::stands);
        let hurries = self.guest.as_ref().is_some_and(Guest::hurries);
        if std::mem::replace(&mut self.hurries, hurries) != hurries {
            let index = if hurries { first } else { out.effects.len() };
            out.effects.insert(index, Effect::Hurry(at, hurries));
        }
        match stands {
            Some(true) if !self.frozen => out.effects.insert(first, Effect::Freeze(at)),
            Some(false) if self.frozen => out.effects.push(Effect::Thaw(at)),
            Some(_) | None => {}
        }
        self.frozen = stands.unwrap_or(self.frozen);
    }
}

impl Guest {
    fn new(now: Moment, start: Start) -> Self {
        Self {
            terms: Terms::from(&*start.spec),
            start: Box::new(start),
            state: State::Running,
            process: Process::Preparing { laid: false },
            endpoint: false,
            image: Image::None,
            carriers: 0,
            packings: 0,
            came: false,
            since: now,
            stood: now,
            measured: now,
            clock: Clock::default(),
            cannot: vec![],
            gave_up: false,
            cost: Duration::ZERO,
        }
    }

    fn fence(&self) -> Fence {
        self.start.at.fence
    }

    fn is_rank(&self) -> bool {
        self.start.rank.is_some()
    }

    /// Does the guest stand still? `None` while it is being ended, and the
    /// freezer makes no difference.
    fn stands(&self) -> Option<bool> {
        match (&self.state, &self.process) {
            (State::Ending(_), _) | (_, Process::Killed { .. } | Process::Reaping { .. }) => None,
            (_, Process::Gone) => Some(false),
            // Whoever has a hand in it needs it to stand.
            _ if self.carriers > 0 || self.image.stands() => Some(true),
            (State::Leaving { trip, .. }, _) => Some(!trip.runs_on()),
            (State::Suspended(_), _) => Some(true),
            _ => Some(false),
        }
    }

    /// Is something done to it that should not take for ever?
    fn hurries(&self) -> bool {
        let leaves = matches!(&self.state, State::Leaving { trip, .. } if trip.is_under_way());
        let comes = matches!(&self.process, Process::Arriving(arrival) if arrival.keeper_has_it());
        leaves || comes || self.carriers > 0 || self.state == State::Landed
    }

    fn handle(&mut self, event: Event, turn: &mut Turn<'_>) {
        match event {
            Event::Depart { keep, to } => self.depart(keep, to, turn),
            Event::Stay => self.stay(turn),
            Event::GoOn => self.go_on(turn),
            Event::Cancel => self.cancel(turn),
            Event::Retreat => self.retreat_as_asked(turn),
            Event::OverLimit(what) => self.end(End::OverLimit(what), turn),
            Event::Faulted(what) => self.end(End::Fault(what), turn),
            Event::Measured { disk_bytes } => self.measured(disk_bytes, turn),
            Event::MoveTakes(cost) => self.cost = cost,
            Event::Returned => {
                if let State::Retreating { returned, .. } = &mut self.state {
                    *returned = true;
                }
            }
            Event::Laid(done) => self.laid(done, turn),
            Event::Failed { reason, hopeless } => {
                turn.keeper.drop_it(&mut turn.out);
                self.never_ran(reason, hopeless, turn);
            }
            Event::Exited { exit, stays } => self.exited(*exit, stays, turn),
            Event::Looked(look) => self.looked(look, turn),
            Event::Coming => self.coming(),
            Event::Header { pipes, lays } => self.header(pipes, lays, turn),
            Event::Known { keep } => self.known(keep, turn),
            Event::Whole { bytes } => self.whole(bytes, turn),
            Event::Unpacked(done) => self.unpacked(done, turn),
            Event::Verified(done) => self.verified(done, turn),
            Event::NotComing(reason) => self.not_coming(reason, turn),
            Event::HasImage => self.begin_with_image(turn),
            Event::Packed(done) => self.packed(done, turn),
            Event::CannotLeave(reason) => self.cannot_leave(reason, turn),
            Event::CarryingEnded => self.carriers = self.carriers.saturating_sub(1),
            Event::ImageWanted => self.image_wanted(turn),
            Event::PipesEmptied(done) => self.pipes_emptied(done, turn),
            Event::ImageWritten(done) => self.image_written(done, turn),
        }
    }

    fn keeper_says(&mut self, event: KeeperEvent, turn: &mut Turn<'_>) {
        match event {
            KeeperEvent::Failed { reason } => self.no_keeper(reason, turn),
            KeeperEvent::CannotStart { fence, .. }
            | KeeperEvent::ProcessStands { fence }
            | KeeperEvent::NotBegun { fence }
                if fence != self.fence() => {}
            KeeperEvent::CannotStart { why, hopeless, .. } => {
                self.cannot_start(why, hopeless, turn);
            }
            KeeperEvent::ProcessStands { .. } => self.process_stands(turn),
            KeeperEvent::NotBegun { .. } => self.not_begun(turn),
            KeeperEvent::Stopped { since } => self.keeper_stands(since, turn),
            // What was killed has ended when its keeper has.
            KeeperEvent::Ended { .. } if self.process != Process::Alive => {}
            KeeperEvent::Ended { last } => {
                self.reap(false, None, turn);
                if last {
                    turn.keeper.drop_it(&mut turn.out);
                }
            }
            KeeperEvent::Gone => self.keeper_gone(turn),
        }
    }

    // ── time ───────────────────────────────────────────────────────────────

    fn deadline(&self) -> Option<Moment> {
        let of_state = match &self.state {
            State::Suspended(until) => *until,
            State::Retreating { until, .. } => Some(*until),
            State::Running | State::Demoted => self.times_out_at(),
            State::Leaving { trip, .. } => trip.look_at(),
            State::Arriving | State::Landed | State::Ending(_) | State::Ended => None,
        };
        let of_process = match &self.process {
            Process::Arriving(arrival) => arrival.overdue_at(),
            Process::Alive
            | Process::Preparing { .. }
            | Process::Killed { .. }
            | Process::Reaping { .. }
            | Process::Gone => None,
        };
        [of_state, of_process, self.image.look_at(), self.measured_at()].into_iter().flatten().min()
    }

    /// When it is due to be looked at what a keeper has in hand.
    fn measured_at(&self) -> Option<Moment> {
        let is_in_hand = match &self.process {
            Process::Arriving(arrival) => arrival.keeper_has_it(),
            Process::Alive => true,
            Process::Preparing { .. }
            | Process::Killed { .. }
            | Process::Reaping { .. }
            | Process::Gone => false,
        };
        is_in_hand.then(|| self.measured + MEASURE_EVERY)
    }

    fn wake(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let due = |at: Option<Moment>| at.is_some_and(|at| now >= at);
        if due(self.measured_at()) {
            self.measured = now;
            turn.order(Effect::Measure(self.start.at));
        }
        if due(self.image.look_at()) {
            turn.order(Effect::Look(self.start.at));
            self.image.is_looked_at();
        }
        if let Process::Arriving(arrival) = &self.process
            && due(arrival.overdue_at())
        {
            return self.refuse(NotHere::NothingCame(ARRIVAL_WITHIN), turn);
        }
        match &self.state {
            State::Suspended(until) if due(*until) => self.patience_over(turn),
            State::Retreating { until, .. } if due(Some(*until)) => self.leave_bare(turn),
            State::Running | State::Demoted if due(self.times_out_at()) => {
                self.end(End::TimedOut, turn);
            }
            State::Leaving { trip, .. } if due(trip.look_at()) => self.look_again(turn),
            State::Suspended(_)
            | State::Retreating { .. }
            | State::Running
            | State::Demoted
            | State::Leaving { .. }
            | State::Arriving
            | State::Landed
            | State::Ending(_)
            | State::Ended => {}
        }
    }

    fn enter(&mut self, now: Moment, state: State) {
        self.count(now);
        if !matches!(self.state, State::Suspended(_) | State::Leaving { .. }) {
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
            State::Arriving | State::Landed | State::Ending(_) | State::Ended => {}
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
