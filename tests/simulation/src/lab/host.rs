//! A workstation: the real core of an agent, and what there is of its machine:
//! places, a router, a link, an owner.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use gleaner_agent_core::agent::{Agent, Event, Setup, seats};
use gleaner_agent_core::guest::{Effect, Site};
use gleaner_agent_core::occupancy::Criteria;
use gleaner_common::amounts::Amounts;
use gleaner_common::fingerprint::{Fingerprint, Version};
use gleaner_common::id::{BootId, Fence, Incarnation, MachineId, WorkstationId};
use gleaner_common::job::{Limits, OnBusy, Reaction};
use gleaner_common::machine::Machine;
use gleaner_common::shape::Class;
use gleaner_common::time::Moment;
use gleaner_common::wire::Facts;
use gleaner_coordinator_core::Link;

use super::Happening;
use super::clock::Clock;
use super::invariant::holds;
use super::moves::Carrier;
use super::network::Ways;
use super::place::{Guest, Place, Process};
use super::router::Router;
use super::watch::{Supervisor, VOUCHED_FOR};

/// The most that a guest of a lab may leave on the disk.
pub(crate) const DISK_BYTES_MAX: u64 = 1 << 20;

/// Which workstation a machine says that it is, and what tells it from others that say so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) workstation: WorkstationId,
    pub(crate) machine: Option<MachineId>,
    pub(crate) boot: BootId,
}

impl Identity {
    fn of(id: u32) -> Self {
        let boot = BootId([u8::try_from(id % 256).unwrap_or(0); 16]);
        Self { workstation: WorkstationId(id), machine: None, boot }
    }
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub(crate) struct Host {
    pub(crate) id: u32,
    pub(crate) identity: Identity,
    /// A copy of a machine is there for a while only.
    pub(crate) is_on: bool,
    /// How often its agent was refused one after the other.
    pub(crate) refusals: u32,
    /// Another speaks in its place, and could not know that this one lives: until then
    /// its guests run.
    pub(crate) replaced_until: Option<Moment>,
    pub(crate) clock: Clock,
    /// How long nobody must have touched anything.
    quiet: Duration,
    pub(crate) ways: Ways,
    pub(crate) incarnation: u64,
    /// `None` while the agent is dead.
    pub(crate) agent: Option<Agent>,
    /// What it is to hear, one after the other.
    pub(crate) queue: VecDeque<Event>,
    pub(crate) handles: bool,
    pub(crate) places: Vec<Place>,
    pub(crate) router: Router,
    pub(crate) carriers: BTreeMap<u64, Carrier>,
    /// Attempts whose state is expected, and those that it comes from.
    pub(crate) expected: BTreeMap<Fence, Fence>,
    /// Streams that came before they were expected, and that are taken in.
    pub(crate) early: BTreeMap<Fence, u64>,
    pub(crate) taking: BTreeMap<Fence, u64>,
    /// The connection its agent uses; it may be broken already.
    pub(crate) link: Option<Link>,
    /// The machine sleeps: nothing here happens until it is awake.
    pub(crate) asleep: bool,
    /// Since when the agent's process stands still.
    pub(crate) stopped: Option<Moment>,
    pub(crate) supervisor: Supervisor,
    /// The owner has typed, and the agent could not hear it.
    pub(crate) unheard: bool,
    /// What it will hear when it goes on.
    pub(crate) held: Vec<Happening>,
    /// The owner sits there, typing.
    pub(crate) owner_here: bool,
    typed: Option<Moment>,
    pub(crate) paused: bool,
    cores: u16,
}

impl Host {
    pub(crate) fn new(id: u32, (cores, places): (u16, u16), clock: Clock, quiet: Duration) -> Self {
        Self {
            id,
            identity: Identity::of(id),
            is_on: true,
            refusals: 0,
            replaced_until: None,
            clock,
            quiet,
            ways: Ways::default(),
            incarnation: u64::from(id) * 1_000,
            agent: None,
            queue: VecDeque::new(),
            handles: false,
            places: (0..seats(places)).map(|_| Place::default()).collect(),
            router: Router::default(),
            carriers: BTreeMap::new(),
            expected: BTreeMap::new(),
            early: BTreeMap::new(),
            taking: BTreeMap::new(),
            link: None,
            asleep: false,
            stopped: None,
            supervisor: Supervisor::default(),
            unheard: false,
            held: vec![],
            owner_here: false,
            typed: None,
            paused: false,
            cores,
        }
    }

    /// Ranks of one program find room beside them.
    fn places_said(&self) -> u16 {
        u16::try_from(self.places.len()).unwrap_or(u16::MAX) / seats(1)
    }

    /// So many guests run side by side here, if no owner comes.
    pub(crate) fn cores_and_places(&self) -> (u16, u16) {
        (self.cores, self.places_said())
    }

    pub(crate) fn usable(&self) -> usize {
        self.places_said().min(self.cores).into()
    }

    /// The longest until its agent dials again, as production has it.
    pub(crate) fn pause(&self) -> Duration {
        let longest = if self.refusals == 0 { 3 } else { 1 << self.refusals.min(6) };
        Duration::from_secs(longest.min(60))
    }

    pub(crate) fn is_up(&self) -> bool {
        self.agent.is_some() && self.hears()
    }

    /// Does its agent hear anything now?
    pub(crate) fn hears(&self) -> bool {
        !self.asleep && self.stopped.is_none()
    }

    /// Do its guests' processes run, as far as nobody stops them?
    pub(crate) fn runs(&self) -> bool {
        self.agent.is_some() && !self.asleep
    }

    /// A new life of its agent.
    pub(crate) fn start(&mut self, now: Moment) -> Vec<Effect> {
        self.incarnation += 1;
        let named = Machine { hostname: format!("machine{}", self.id), ..Machine::default() };
        let facts = Facts {
            speed: 1_000.0 + self.id as f32,
            fingerprint: self.moves().then(|| Box::new(machine(self.id))),
            machine_id: self.identity.machine,
            machine: Box::new(named),
            addresses: self.addresses(),
            ..self.sizes()
        };
        let criteria = Criteria {
            quiet: self.quiet,
            load_quiet: Duration::ZERO,
            required: [].into(),
            ..Criteria::default()
        };
        let limits = Limits { disk_bytes_max: DISK_BYTES_MAX, ..Limits::default() };
        let moves = if self.moves() { Ok(()) } else { Err("no criu".to_owned()) };
        let setup = Setup {
            incarnation: Incarnation(self.incarnation),
            boot: self.identity.boot,
            facts,
            criteria,
            site: Site { limits, moves },
            pause: None,
        };
        let (agent, effects) = Agent::new(self.clock.reads(now), setup);
        self.agent = Some(agent);
        effects
    }

    fn sizes(&self) -> Facts {
        let places = self.places_said();
        let memory_lent_bytes = u64::from(places) << 31;
        Facts { cores: self.cores, places, memory_lent_bytes, ..Facts::default() }
    }

    /// Guests have no more together than is lent, whatever was offered. Ranks of
    /// a malleable program may share one place.
    pub(crate) fn check_lent(&self) {
        let lends = self.sizes().lends();
        let alive = self.processes().filter(|(_, process)| !process.killed);
        let guests = alive.filter_map(|(place, _)| place.guest.as_ref());
        let mut sharing = BTreeSet::new();
        let alone = guests.filter(|guest| {
            let (spec, job) = (&guest.start.spec, guest.start.subprogram.job);
            let shares = spec.program.is_some() && spec.class() == Class::Malleable;
            !shares || sharing.insert(job)
        });
        let parts = alone.map(|guest| lends.part(guest.start.spec.asked()));
        let taken = parts.fold(Amounts::default(), Amounts::plus);
        holds!(LentOnce, lends.covers(taken), "host{} lends {lends:?}: {taken:?}", self.id);
    }

    /// Can guests be moved from and to here?
    pub(crate) fn moves(&self) -> bool {
        !self.id.is_multiple_of(7)
    }

    /// The agent is killed: nothing of its guests outlives it.
    pub(crate) fn crash(&mut self) {
        let Self { id, identity, is_on, cores, clock, quiet, .. } = *self;
        let Self { incarnation, asleep, owner_here, ways, .. } = *self;
        let fresh = Self::new(id, (cores, self.places_said()), clock, quiet);
        *self = Self { identity, is_on, ways, incarnation, asleep, owner_here, ..fresh };
    }

    /// Where other agents reach it directly, if they do.
    fn addresses(&self) -> Vec<SocketAddr> {
        let last = u8::try_from(self.id % 256).unwrap_or(0);
        let address = SocketAddr::from(([10, 0, 0, last], 4433));
        if self.id.is_multiple_of(4) { vec![] } else { vec![address] }
    }

    /// When its router looks at its clock.
    pub(crate) fn router_deadline(&self) -> Option<Moment> {
        let deadline = self.router.core().deadline().filter(|_| self.is_up())?;
        Some(self.clock.when(deadline))
    }

    pub(crate) fn deadline(&self) -> Option<Moment> {
        let agent = self.agent.as_ref().filter(|_| self.hears())?;
        agent.deadline().map(|at| self.clock.when(at))
    }

    /// The first guest that ends by itself, when, and at which place.
    pub(crate) fn next_exit(&self) -> Option<(Moment, usize)> {
        let exits =
            self.places.iter().enumerate().filter_map(|(at, it)| Some((it.next_exit()?, at)));
        exits.min().filter(|_| !self.asleep)
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = (&Place, &Process)> {
        self.places.iter().filter_map(|place| Some((place, place.process.as_ref()?)))
    }

    pub(crate) fn place_of(&self, fence: Fence) -> Option<usize> {
        self.places.iter().position(|place| place.holds(fence))
    }

    pub(crate) fn guest(&self, fence: Fence) -> Option<&Guest> {
        self.places.iter().filter_map(|place| place.guest.as_ref()).find(|it| it.fence() == fence)
    }

    pub(crate) fn typed(&mut self, now: Moment) {
        self.typed = Some(now);
    }

    /// Nothing may run beside an owner, but what its job lets run demoted, what
    /// returns its work, and what runs on for a moment. A clock that goes fast
    /// has the owner gone a little earlier.
    pub(crate) fn check_owner(&self, now: Moment) {
        if let Some(since) = self.stopped {
            if self.supervisor.hangs {
                return;
            }
            let all_stand = now <= since + VOUCHED_FOR
                || self.places.iter().all(|place| place.let_run().is_none());
            holds!(OwnerFirst, all_stand, "host{} runs on unvouched for", self.id);
            return;
        }
        let quiet = self.quiet.mul_f64(0.98);
        let is_here = self.typed.is_some_and(|at| now < at + quiet);
        if !is_here && !self.paused {
            return;
        }
        for place in &self.places {
            let (Some(process), Some(guest)) = (place.let_run(), &place.guest) else { continue };
            let OnBusy { reaction, .. } = guest.start.spec.on_busy;
            let returns = place.ordered.returns.is_some_and(|until| now <= until);
            let demoted = !self.paused && (reaction == Reaction::Renice || returns);
            let fence = process.fence;
            let is_allowed = demoted || place.ordered.runs_on;
            holds!(OwnerFirst, is_allowed, "{fence} runs beside its owner: {place:?}");
        }
    }

    /// When time alone changes what may run here: a group stands still, or the
    /// time to return work is over.
    pub(crate) fn looks_at(&self, now: Moment) -> impl Iterator<Item = Moment> + '_ {
        let of = |place: &Place| {
            let returns = place.ordered.returns.map(|until| until + Duration::from_nanos(1));
            [place.frozen, returns]
        };
        let unvouched = self.stopped.map(|at| at + VOUCHED_FOR + Duration::from_nanos(1));
        let replaced = self.replaced_until.map(|until| until + Duration::from_nanos(1));
        let all = self.places.iter().flat_map(of).flatten().chain(unvouched).chain(replaced);
        all.filter(move |at| *at > now)
    }

    /// Another speaks in its place, and nothing that was given to this one is over yet.
    pub(crate) fn is_replaced(&self, now: Moment) -> bool {
        self.replaced_until.is_some_and(|until| now <= until)
    }

    /// When all places are free, nothing is left at them.
    pub(crate) fn check_free(&self) {
        if self.agent.as_ref().is_none_or(Agent::has_guests) || self.handles {
            return;
        }
        for place in &self.places {
            assert!(place.frozen.is_none() && !place.hurries, "left frozen: {place:?}");
            assert!(place.process.is_none(), "left running: {place:?}");
        }
    }
}

/// Two kinds of machine: what was made on the newer one suits no older one.
fn machine(id: u32) -> Fingerprint {
    Fingerprint {
        architecture: "x86_64".into(),
        kernel: if id.is_multiple_of(2) { "6.12.1" } else { "6.1.0" }.into(),
        criu: Version { major: 4, minor: 1, patch: 1 },
        processor: "Xeon".into(),
        features: [].into(),
        system: "Debian 13".into(),
        root: [1; 16],
    }
}
