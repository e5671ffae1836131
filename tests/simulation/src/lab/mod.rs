//! A whole lab on the virtual clock: the real core, the real cores of agents,
//! and between them a network, a store and machines that fail as a seed says.
//! Of a machine there are its kernel, its router and its link; whatever they
//! are asked for they answer later, and anything may happen before.
//!
//! Streams are reliable and in order while their connection lasts, as QUIC's
//! are; everything else goes wrong: connections break at one end first, what
//! was under way on an old one arrives after its successor's hello, frames
//! come twice, agents and the coordinator are killed at any moment, machines
//! fall asleep, commits hang, owners come and go.

mod agenda;
mod agents;
mod bound;
mod clock;
mod container;
mod coordinator;
mod copies;
mod cuts;
mod enrolment;
mod history;
mod host;
mod hosts;
pub(crate) mod invariant;
mod moves;
mod network;
mod outline;
mod place;
mod rank;
mod router;
mod setting;
mod shell;
mod stops;
mod store;
mod submissions;
mod troubles;
mod twins;
mod usage;
mod watch;
mod ways;
mod witness;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gleaner_agent_core::agent;
use gleaner_agent_core::guest::GuestAt;
use gleaner_agent_core::router::{Peer, Wanted};
use gleaner_common::id::{ContentHash, Fence, JobId, PlaceId, SubprogramId, WorkstationId};
use gleaner_common::job::Outcome;
use gleaner_common::program::Life;
use gleaner_common::report::SubprogramState;
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::{AgentFrame, AttemptEvent, CoordinatorFrame};
use gleaner_coordinator_core::{Core, Event, Link};
use gleaner_program_core::address::Snapshot;
use gleaner_program_core::wire::Between;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use self::agenda::Agenda;
use self::bound::news;
use self::clock::Clock;
use self::coordinator::Pending;
use self::copies::Copies;
use self::cuts::Cuts;
use self::enrolment::{Enrolment, Enrols};
use self::history::History;
use self::host::Host;
use self::hosts::{HOSTS_MAX, Hosts, Wakes};
pub use self::invariant::Invariant;
use self::invariant::holds;
use self::moves::Stream;
use self::network::Wire;
pub use self::outline::Outline;
use self::place::KeeperWork;
use self::rank::Image;
use self::router::Said;
pub use self::setting::{Setting, Troubles};
use self::stops::Halt;
use self::store::Store;
use self::troubles::Chances;
pub use self::troubles::Trouble;
use self::twins::Twins;
use self::usage::{AtAgent, OnTheWay, Usage};
use self::ways::DirectWay;
use self::witness::Witness;

thread_local! {
    static LAST_SEEN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Something that is to happen.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A frame arrives at the coordinator.
    Heard(Link, AgentFrame),
    /// A frame arrives at an agent.
    Told(Link, CoordinatorFrame),
    /// The agent, or the coordinator, notices that a connection broke.
    AgentLoses(Link),
    CoordinatorLoses(Link),
    Dial(u32),
    /// On this host, if its agent still lives that life.
    Here {
        host: u32,
        incarnation: u64,
        what: Local,
    },
    AgentStarts(u32),
    /// An admin empties a workstation, or takes it up again.
    Drains(u32, bool),
    /// A copy of a machine is switched off.
    TwinGoes(u32),
    OwnerLeaves(u32),
    OwnerTypes(u32),
    Awakes(u32),
    /// An agent's process that stood still goes on.
    Continues(u32),
    /// In this life of its agent: its supervisor looks, and its worker vouches.
    Watches(u32, u64),
    Vouches(u32, u64),
    CoordinatorStarts,
    CoordinatorContinues,
    /// In this life of the coordinator.
    Commit(u64),
    Submit,
    Cancel,
    Usage(OnTheWay),
    Enrols(Enrols),
    /// A direct way between agents breaks.
    WayEnds(u64),
    /// In this weather.
    Trouble(Trouble, u64),
}

/// Something that is to happen on one host.
#[derive(Debug)]
pub(crate) enum Local {
    Tell(agent::Event),
    /// Input files lie where they should, or cannot be laid.
    Laid {
        at: GuestAt,
        fails: bool,
    },
    Keeper {
        place: PlaceId,
        number: u64,
        work: KeeperWork,
    },
    KeeperDies {
        place: PlaceId,
        number: u64,
    },
    ImageWritten {
        at: GuestAt,
        number: u64,
        image: Box<Image>,
    },
    /// The router does what it was told, and says so.
    RouterTurn,
    RouterSays(Box<Said>),
    /// A direct way to another agent is opened, or is no more; what comes over one.
    WayOpens(Wanted),
    WayLost(WorkstationId),
    Packets {
        way: u64,
        from: Peer,
        frames: Vec<Between>,
    },
    /// A rank's part of a snapshot is staged, or here.
    Stages {
        fence: Fence,
        snapshot: Snapshot,
        part: Box<(bytes::Bytes, Option<Image>)>,
    },
    Fetched {
        fence: Fence,
        hash: ContentHash,
    },
    /// A rank's process goes on with its script, or does what it must not.
    Runs(u64),
    Faults(u64),
    /// A rank that was asked to return its work has done so.
    Returns(Fence),
    /// A guest is carried away, and that ends.
    Carries(u64),
    CarrierEnds {
        number: u64,
        cannot: Option<String>,
        taken: bool,
    },
    /// More of a guest comes, or nobody has expected it.
    Streams(u64),
    Late(Fence),
    Usage(AtAgent),
}

pub struct Lab {
    seed: u64,
    setting: Setting,
    rng: SmallRng,
    now: Moment,
    /// The coordinator's, and how far its wall clock has jumped.
    clock: Clock,
    wall_jumped_s: i64,
    history: History,
    chances: Chances,
    /// Changes with storms and calms.
    weather: u64,
    quiet: bool,
    agenda: Agenda<Happening>,
    hosts: Hosts,
    wires: BTreeMap<Link, Wire>,
    serials: u64,
    core: Option<Core>,
    /// Its process stands still.
    halted: Option<Halt>,
    /// When it went on last, and how long it had stood still.
    went_on: (Moment, Duration),
    /// The coordinator's lives are counted.
    life: u64,
    store: Store,
    pending: VecDeque<Pending>,
    commits_from: Moment,
    witness: Witness,
    cuts: Cuts,
    copies: Copies,
    twins: Twins,
    usage: Usage,
    enrolment: Enrolment,
    /// Guests on their way, by their carriers' numbers.
    streams: BTreeMap<u64, Stream>,
    /// Direct ways between agents; and those that broke, where all that was under
    /// way comes.
    ways: BTreeMap<u64, DirectWay>,
    over_ways: BTreeSet<u64>,
    /// Hosts whose agents do not reach each other until then.
    apart: BTreeMap<[usize; 2], Moment>,
    /// Whom the coordinator's shell passes something on to.
    welcomed: BTreeMap<WorkstationId, Link>,
    /// Ranks that lost their work and began anew, and programs of such ranks that
    /// cannot go on.
    anew: BTreeSet<(SubprogramId, Life)>,
    broken: BTreeSet<(JobId, Life)>,
    /// Programs with ranks that have failed: the others may wait for them in vain.
    failed: BTreeSet<(JobId, Life)>,
    /// Messages that ranks have received; negotiations of which a program has heard the
    /// end, and ranks that were to leave by them.
    received: u64,
    negotiated: u64,
    gave: u64,
    /// The next number of a keeper, a process or a carrier.
    numbers: u64,
    images: u64,
    /// How often an agent was told of ranks that share places.
    shared: u64,
    snapshots_with_image: u64,
    requests: u64,
    submitted: u32,
    /// Jobs that are still to be submitted.
    due_jobs: u32,
    accepted: BTreeSet<JobId>,
    /// Jobs that have waited, and how many of the first job were placed meanwhile.
    turns_waited: BTreeMap<JobId, usize>,
    waits: BTreeSet<JobId>,
    calm: bool,
    /// The longest calm, as a part of its bound.
    calm_part: f64,
    waste_part: f64,
}

impl Lab {
    pub fn new(seed: u64, setting: Setting) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let drift = setting.drift_ppm;
        let mut clock = |id: u32| {
            let ppm = if drift > 0 { rng.random_range(-drift..=drift) } else { 0 };
            Clock { offset: Duration::from_secs(u64::from(id) * 977), ppm }
        };
        let clocks: Vec<Clock> = (0..=setting.hosts).map(&mut clock).collect();
        let mut host = |id: u32| {
            let sizes = (rng.random_range(1..=4), rng.random_range(1..=3));
            Host::new(id, sizes, clocks[id as usize], setting.owner_quiet)
        };
        let mut hosts: Vec<Host> = (1..=setting.hosts).map(&mut host).collect();
        let twins = Twins::new(seed, &setting, &mut hosts);
        let usage = Usage::new(seed, &setting);
        let enrolment = Enrolment::new(seed, &setting);
        let store = Store::new(setting.hosts);
        let mut lab = Self {
            seed,
            witness: Witness::new(setting.check_all_every),
            setting,
            rng,
            now: Moment(1_000_000_000),
            clock: clocks[0],
            wall_jumped_s: 0,
            history: History::new(),
            chances: Chances::new(seed),
            weather: 0,
            quiet: false,
            agenda: Agenda::new(),
            hosts: Hosts::new(hosts),
            wires: BTreeMap::new(),
            serials: 0,
            core: None,
            halted: None,
            went_on: (Moment::ZERO, Duration::ZERO),
            life: 0,
            store,
            pending: VecDeque::new(),
            commits_from: Moment::ZERO,
            cuts: Cuts::default(),
            copies: Copies::default(),
            twins,
            usage,
            enrolment,
            streams: BTreeMap::new(),
            ways: BTreeMap::new(),
            over_ways: BTreeSet::new(),
            apart: BTreeMap::new(),
            welcomed: BTreeMap::new(),
            anew: BTreeSet::new(),
            broken: BTreeSet::new(),
            failed: BTreeSet::new(),
            received: 0,
            negotiated: 0,
            gave: 0,
            numbers: 0,
            images: 0,
            shared: 0,
            snapshots_with_image: 0,
            requests: 0,
            submitted: 0,
            due_jobs: 0,
            accepted: BTreeSet::new(),
            turns_waited: BTreeMap::new(),
            waits: BTreeSet::new(),
            calm: false,
            calm_part: 0.0,
            waste_part: 0.0,
        };
        lab.plan(Duration::ZERO, Happening::CoordinatorStarts);
        lab.plan(Duration::ZERO, Happening::Usage(OnTheWay::CollectorStarts));
        lab.newcomers_come();
        for id in 1..=lab.setting.hosts {
            lab.plan(Duration::from_millis(u64::from(id)), Happening::AgentStarts(id));
        }
        lab
    }

    /// Storms, and after each the calm in which all work must finish.
    pub fn run(mut self) -> Outline {
        for round in 0..self.setting.rounds {
            self.storm();
            self.calm();
            self.twins_go();
            self.usage_comes();
            if round + 1 < self.setting.rounds {
                self.quiet();
            }
        }
        self.workstations_are_free();
        self.check_end();
        Outline::of(&self)
    }

    /// How many faults and steps the lab had that last ran on this thread.
    pub fn last_seen() -> (u64, u64) {
        LAST_SEEN.get()
    }

    fn storm(&mut self) {
        (self.calm, self.quiet) = (false, false);
        self.plan_jobs(self.setting.jobs, self.setting.storm);
        self.plan_troubles();
        self.run_until(self.now + self.setting.storm, |_| false);
    }

    /// Little goes wrong, and little is to be done.
    fn quiet(&mut self) {
        (self.calm, self.quiet) = (false, true);
        self.plan_jobs(self.setting.quiet_jobs, self.setting.quiet);
        self.plan_troubles();
        self.run_until(self.now + self.setting.quiet, |_| false);
    }

    #[expect(clippy::print_stdout, reason = "a trace was asked for")]
    fn tell_trace(&self, what: &str) {
        println!("{} {what}", self.now.0);
    }

    fn plan_jobs(&mut self, jobs: u32, within: Duration) {
        self.due_jobs += jobs;
        for _ in 0..jobs {
            let after = self.up_to(within.mul_f64(0.7));
            self.plan(after, Happening::Submit);
        }
    }

    fn calm(&mut self) {
        self.become_calm();
        let (from, open) = (self.now, self.store.open_count());
        self.store.wasted = 0;
        let bound = self.setting.calm.unwrap_or_else(|| self.calm_bound());
        self.run_until(from + bound, Self::is_done);
        holds!(CalmInTime, self.is_done(), "{bound:?} were not enough: {}", self.left());
        let (wasted, most) = (self.store.wasted, self.waste_bound(open));
        holds!(CalmWithoutWaste, wasted <= most, "{wasted} attempts of {most} came to nothing");
        let took = self.now.since(from).as_secs_f64();
        self.calm_part = self.calm_part.max(took / bound.as_secs_f64());
        self.waste_part = self.waste_part.max(wasted as f64 / most as f64);
    }

    /// Nothing that a storm has left keeps a workstation from work.
    fn workstations_are_free(&mut self) {
        let until = self.now + news(&self.setting) + self.let_in_within();
        self.run_until(until, |lab| lab.kept_from_work().is_empty());
        let kept = self.kept_from_work();
        holds!(CalmInTime, kept.is_empty(), "they are not free again: {kept:?}");
    }

    /// Which workstations could take nothing now, and why. One of which somebody is told
    /// that guests fail there may rest for longer.
    fn kept_from_work(&self) -> Vec<String> {
        let own = self.clock.reads(self.now);
        let core = self.core.as_ref();
        let row = |id| core.and_then(|core| core.workstation_row(own, WorkstationId(id)));
        let rows = (1..=self.setting.hosts).filter_map(row);
        let kept = rows.filter(|row| row.troubles.is_empty() && !row.reason.starts_with("idle: "));
        kept.map(|row| format!("{}: {}", row.name, row.reason)).collect()
    }

    fn run_until(&mut self, until: Moment, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            // Nothing is due before the weather changes.
            let Some(at) = self.next_at().filter(|at| *at < until) else {
                self.now = self.now.max(until);
                return;
            };
            // One after the other, even if they are late.
            self.now = self.now.max(at);
            self.history.step(self.now);
            LAST_SEEN.set((self.chances.drawn(), self.history.steps));
            let goes_on = self.history.goes_on();
            holds!(ComesToRest, goes_on, "many steps at one moment: {}", self.left());
            self.advance();
            self.witness.check(self.now, &mut self.hosts, &self.store);
        }
    }

    fn next_at(&mut self) -> Option<Moment> {
        let core = self.core_deadline();
        [self.agenda.next_at(), core, self.hosts.next_at()].into_iter().flatten().min()
    }

    fn core_deadline(&self) -> Option<Moment> {
        let deadline = self.core.as_ref().filter(|_| self.halted.is_none())?.deadline()?;
        Some(self.clock.when(deadline))
    }

    /// Whatever is due first.
    fn advance(&mut self) {
        let now = self.now;
        match self.hosts.first_due(now) {
            Some(Wakes::Agent(index)) => {
                self.history.note(index as u64);
                return self.wake(index);
            }
            Some(Wakes::Router(index)) => {
                self.history.note(index as u64);
                return self.router_wakes(index);
            }
            Some(Wakes::Exit(index, at)) => return self.exits(index, at),
            None => {}
        }
        if self.core_deadline().is_some_and(|at| at <= now) {
            return self.coordinator_wakes();
        }
        if let Some(happening) = self.agenda.take_due(now) {
            if self.setting.trace {
                self.tell_trace(&format!("{happening:?}"));
            }
            self.happen(happening);
        }
    }

    fn happen(&mut self, happening: Happening) {
        let Some(happening) = self.coordinator_hears(happening) else { return };
        match happening {
            Happening::Heard(from, _) if !self.wires.contains_key(&from) => {}
            Happening::Heard(from, AgentFrame::Relay { to, bytes }) => {
                self.relays(from, to, bytes);
            }
            Happening::Heard(from, frame) => {
                let victim = self.victim(from, &frame);
                self.handle(Event::Heard { from, frame });
                if let Some(index) = victim {
                    self.agent_crashes(index);
                }
            }
            Happening::Told(to, _) if self.wires.get(&to).is_none_or(|wire| wire.down_gone) => {}
            Happening::Told(to, frame) => {
                let index = index_of(to);
                let told = self.holds_back(index, Happening::Told(to, frame));
                let Some(Happening::Told(_, frame)) = told else { return };
                if self.hosts[index].link == Some(to) {
                    self.tell_ranks(index, to, &frame);
                    self.tell(index, agent::Event::Frame(frame));
                }
            }
            Happening::AgentLoses(link) => {
                if self.holds_back(index_of(link), happening).is_some() {
                    self.agent_loses(link);
                }
            }
            Happening::CoordinatorLoses(link) if !self.wires.contains_key(&link) => {}
            Happening::CoordinatorLoses(link) => {
                let id = link.workstation;
                self.welcomed.retain(|of, known| *of != id || *known != link);
                self.handle(Event::Disconnected(link));
            }
            Happening::Dial(id) => {
                if self.holds_back(id as usize - 1, happening).is_some() {
                    self.dial(id);
                }
            }
            Happening::Here { host, incarnation, .. } => {
                let index = host as usize - 1;
                let known = &self.hosts[index];
                if known.incarnation != incarnation || known.agent.is_none() {
                    return;
                }
                let here = self.holds_back(index, happening);
                if let Some(Happening::Here { what, .. }) = here {
                    self.happens_here(index, what);
                }
            }
            Happening::AgentStarts(id) if !self.hosts[id as usize - 1].is_on => {}
            Happening::AgentStarts(id) => {
                if self.holds_back(id as usize - 1, happening).is_some() {
                    self.agent_starts(id);
                }
            }
            Happening::TwinGoes(id) => self.twin_goes(id as usize - 1),
            Happening::Drains(id, drained) => self.drains_workstation(id, drained),
            Happening::OwnerLeaves(id) => {
                self.hosts[id as usize - 1].owner_here = false;
                self.resume(id as usize - 1);
            }
            Happening::OwnerTypes(id) => self.owner_types(id),
            Happening::Awakes(id) => {
                let index = id as usize - 1;
                self.awakes(index);
                // The owner had left meanwhile.
                if !self.hosts[index].owner_here {
                    self.resume(index);
                }
            }
            Happening::Continues(id) => self.continues(id as usize - 1),
            Happening::Watches(id, life) => self.watches(id, life),
            Happening::Vouches(id, life) => self.vouches(id, life),
            Happening::CoordinatorStarts => self.coordinator_starts(),
            Happening::CoordinatorContinues => self.coordinator_continues(),
            Happening::Commit(life) if life == self.life => self.commit(),
            Happening::Submit => self.submit(),
            Happening::Cancel => self.cancel(),
            Happening::Usage(what) => self.usage_on_the_way(what),
            Happening::Enrols(what) => self.enrols(what),
            Happening::WayEnds(number) => self.way_ends(number),
            Happening::Trouble(trouble, of) if of == self.weather => self.trouble(trouble),
            Happening::Commit(_) | Happening::Trouble(..) => {}
        }
    }

    /// The host whose agent dies of what it has just started.
    fn victim(&self, from: Link, frame: &AgentFrame) -> Option<usize> {
        let AgentFrame::Attempt(AttemptEvent::Started { fence, .. }) = frame else { return None };
        let job = self.store.attempts.get(fence)?.subprogram.job;
        let index = index_of(from);
        let is_there = self.hosts[index].link == Some(from);
        (self.setting.killer && job == JobId(1) && is_there).then_some(index)
    }

    // ── the end ────────────────────────────────────────────────────────────

    fn is_done(&self) -> bool {
        self.due_jobs == 0
            && self.pending.is_empty()
            && self.core.as_ref().is_some_and(|core| core.jobs().next().is_none())
            && self.hosts.iter().filter(|host| host.is_on).all(|host| {
                let agent = host.agent.as_ref();
                agent.is_some_and(|agent| {
                    // Nobody listens to one that was refused; what waits there for a
                    // lease waits until somebody does.
                    let ends = || agent.status(host.clock.reads(self.now)).ends_waiting;
                    let stands = host.refusals > 0 && host.processes().next().is_none();
                    stands || !agent.has_guests() && ends() == 0
                })
            })
    }

    /// What has not ended.
    fn left(&self) -> String {
        let now = self.clock.reads(self.now);
        let why = |core: &Core, job| core.why_job(now, job).unwrap_or_default();
        let left: Vec<_> = self
            .core
            .iter()
            .flat_map(|core| core.jobs().map(move |job| (job, core.summary(job), why(core, job))))
            .collect();
        let status = |host: &Host| {
            host.agent.as_ref().map(|agent| agent.status(host.clock.reads(self.now)).guests)
        };
        let hosts: Vec<_> = self
            .hosts
            .iter()
            .filter(|host| host.agent.as_ref().is_none_or(agent::Agent::has_guests))
            .map(|host| (host.id, status(host), &host.places))
            .collect();
        format!("{left:?} {hosts:?}")
    }

    fn check_end(&self) {
        self.store.check_counters();
        for job in &self.accepted {
            holds!(AcknowledgedDurable, self.store.jobs.contains_key(job), "job {job} was lost");
        }
        for (id, job) in &self.store.jobs {
            let grows = job.spec.program.is_some_and(|program| program.increases);
            let is_once = job.progress.spawned <= 1;
            holds!(RankOrder, is_once || grows, "job {id}: a question was answered twice");
        }
        for (id, record) in &self.store.subprograms {
            // A rank that an earlier life had spawned.
            if self.store.jobs[&id.job].indexes().position(id.index).is_none() {
                continue;
            }
            let is_known = record.state != SubprogramState::Queued;
            holds!(
                AcknowledgedDurable,
                is_known,
                "{id} was forgotten: {record:?} of {:?}",
                self.store.jobs[&id.job].progress
            );
        }
        self.witness.check_results(&self.store, self.setting.failures > 0.0);
        self.store.check_nothing_is_left();
    }

    // ── chance and time ────────────────────────────────────────────────────

    fn plan(&mut self, after: Duration, happening: Happening) {
        self.plan_at(self.now + after, happening);
    }

    fn plan_at(&mut self, at: Moment, happening: Happening) {
        self.agenda.plan(at, happening);
    }

    fn plan_here(&mut self, index: usize, after: Duration, what: Local) {
        self.plan_here_at(index, self.now + after, what);
    }

    fn plan_here_at(&mut self, index: usize, at: Moment, what: Local) {
        let (host, incarnation) = (self.hosts[index].id, self.hosts[index].incarnation);
        self.plan_at(at, Happening::Here { host, incarnation, what });
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Does it go wrong where guests fail by themselves, so often of those?
    fn fails(&mut self, part: f64) -> bool {
        let often = self.setting.failures * part;
        self.rng.random_bool(often)
    }

    /// What only a machine in trouble does.
    fn breaks_down(&mut self, often: f64) -> bool {
        let may = self.setting.failures > 0.0;
        self.rng.random_bool(if may { often } else { 0.0 })
    }

    fn obstacle(&mut self, part: f64) -> bool {
        let often = self.setting.obstacles * part;
        self.rng.random_bool(often)
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.random::<f64>())
    }

    /// Every other job is of short subprograms, which are sent ahead.
    fn work(&mut self, job: JobId) -> Duration {
        let short = job.0.is_multiple_of(2);
        if short { self.up_to(Duration::from_millis(8)) } else { self.long_work() }
    }

    fn long_work(&mut self) -> Duration {
        let quiet = self.quiet;
        let longest = if quiet { self.setting.quiet_work_max } else { self.setting.work_max };
        self.up_to(longest)
    }

    fn outcome(&mut self) -> Outcome {
        let fails = self.rng.random_bool(self.setting.failures);
        match self.rng.random_bool(0.5) {
            true if fails => Outcome::ExitCode(1),
            false if fails => Outcome::Signal(11),
            _ => Outcome::Succeeded,
        }
    }

    fn wall(&self) -> WallTime {
        let passed = i64::try_from(self.now.0 / 1_000_000_000).unwrap_or(0);
        WallTime::from_unix_s(1_800_000_000 + passed + self.wall_jumped_s)
    }
}

/// Whose connection that is, where two machines may have one identity.
fn index_of(link: Link) -> usize {
    usize::try_from(link.serial % HOSTS_MAX).expect("few hosts")
}
