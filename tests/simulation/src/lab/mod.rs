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

mod agents;
mod container;
mod cuts;
mod host;
mod moves;
mod outline;
mod place;
mod rank;
mod router;
mod store;
mod troubles;
mod witness;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gleaner_agent_core::agent;
use gleaner_agent_core::guest::{self, GuestAt, Start};
use gleaner_common::id::{ContentHash, Fence, JobId, PlaceId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Outcome, Patience, Reaction, StagedFile};
use gleaner_common::program::ProgramSpec;
use gleaner_common::report::SubprogramState;
use gleaner_common::shape::Shape;
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::{AgentFrame, AttemptEvent, CoordinatorFrame};
use gleaner_coordinator_core::{
    Answer, Change, Config, Core, Effect, Event, Link, RequestId, Step,
};
use gleaner_program_core::address::Snapshot;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use self::cuts::Cuts;
use self::host::Host;
use self::moves::Stream;
pub use self::outline::Outline;
use self::place::KeeperWork;
use self::rank::{Image, Packed};
use self::router::RouterCommand;
use self::store::Store;
use self::troubles::Trouble;
use self::witness::Witness;

/// What a lab is like.
#[derive(Clone, Debug)]
pub struct Setting {
    pub hosts: u32,
    pub jobs: u32,
    /// How long things go wrong, and how long the calm may take.
    pub storm: Duration,
    pub calm: Duration,
    /// The longest a guest runs.
    pub work_max: Duration,
    pub config: Config,
    /// How often each trouble comes, on average; `None` for never.
    pub cut: Option<Duration>,
    pub agent_crash: Option<Duration>,
    pub sleep: Option<Duration>,
    pub coordinator_crash: Option<Duration>,
    pub commit_hangs: Option<Duration>,
    pub owner: Option<Duration>,
    /// How often an admin empties a workstation.
    pub drain: Option<Duration>,
    /// How often a frame is on its way for up to fifteen seconds.
    pub late_frames: f64,
    /// How many of the jobs are programs of ranks.
    pub programs: f64,
    /// How often a guest cannot be carried, or is not taken in.
    pub obstacles: f64,
    /// How often a guest fails by itself.
    pub failures: f64,
    /// The longest that the coordinator is away.
    pub away: Duration,
    /// The first job kills every agent that starts one of it.
    pub killer: bool,
    /// How many of the jobs that are no programs are replicated, on how many
    /// workstations at most, and how many hosts lie about what came of it.
    pub replicated: f64,
    pub replicas_max: u8,
    pub liars: u32,
    /// The first job is one user's, of so many subprograms; each of the others is
    /// another's, of a single one.
    pub crowd: Option<u32>,
    /// On so many hosts, every guest fails at once, and the agents do not know why.
    pub black_holes: u32,
    /// How many of the jobs ask for two cores or for memory.
    pub large: f64,
}

/// Something that is to happen.
#[expect(clippy::large_enum_variant, reason = "frames are most of what happens")]
#[derive(Debug)]
enum Happening {
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
    Undrained(u32),
    OwnerLeaves(u32),
    OwnerTypes(u32),
    Awakes(u32),
    CoordinatorStarts,
    Commit,
    Submit,
    Cancel,
    Trouble(Trouble),
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
        image: Image,
    },
    /// The router does what it was told, and says so.
    RouterCommand(RouterCommand),
    RouterSays {
        fence: Fence,
        event: Box<guest::Event>,
    },
    Packed {
        fence: Fence,
        packed: Box<Result<Packed, String>>,
    },
    Fetched(Box<Start>),
    WantsImage(Fence),
    Faults(Fence),
    /// A rank that was asked to return its work has done so.
    Returns(Fence),
    Drains(Fence),
    /// A rank's part of a snapshot is staged.
    Cut {
        fence: Fence,
        snapshot: Snapshot,
    },
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
}

/// One connection, as the network sees it.
#[derive(Debug, Default)]
struct Wire {
    up_at: Moment,
    down_at: Moment,
    broken: bool,
}

pub struct Lab {
    setting: Setting,
    rng: SmallRng,
    now: Moment,
    /// By time, then in the order in which they were planned.
    agenda: BTreeMap<(Moment, u64), Happening>,
    planned: u64,
    hosts: Vec<Host>,
    wires: BTreeMap<Link, Wire>,
    serials: u64,
    core: Option<Core>,
    store: Store,
    pending: VecDeque<Step>,
    commits_from: Moment,
    witness: Witness,
    cuts: Cuts,
    /// Guests on their way, by their carriers' numbers.
    streams: BTreeMap<u64, Stream>,
    /// The next number of a keeper, a process or a carrier.
    numbers: u64,
    images: u64,
    /// How often an agent was told of ranks that share places.
    shared: u64,
    snapshots_with_image: u64,
    requests: u64,
    submitted: u32,
    accepted: BTreeSet<JobId>,
    /// Jobs that have waited, and how many of the first job were placed meanwhile.
    turns_waited: BTreeMap<JobId, usize>,
    waits: BTreeSet<JobId>,
    calm: bool,
}

impl Lab {
    pub fn new(seed: u64, setting: Setting) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let hosts = (1..=setting.hosts)
            .map(|id| Host::new(id, rng.random_range(1..=4), rng.random_range(1..=3)))
            .collect();
        let mut lab = Self {
            setting,
            rng,
            now: Moment(1_000_000_000),
            agenda: BTreeMap::new(),
            planned: 0,
            hosts,
            wires: BTreeMap::new(),
            serials: 0,
            core: None,
            store: Store::default(),
            pending: VecDeque::new(),
            commits_from: Moment::ZERO,
            witness: Witness::default(),
            cuts: Cuts::default(),
            streams: BTreeMap::new(),
            numbers: 0,
            images: 0,
            shared: 0,
            snapshots_with_image: 0,
            requests: 0,
            submitted: 0,
            accepted: BTreeSet::new(),
            turns_waited: BTreeMap::new(),
            waits: BTreeSet::new(),
            calm: false,
        };
        lab.plan(Duration::ZERO, Happening::CoordinatorStarts);
        for id in 1..=lab.setting.hosts {
            lab.plan(Duration::from_millis(u64::from(id)), Happening::AgentStarts(id));
        }
        for _ in 0..lab.setting.jobs {
            let after = lab.up_to(lab.setting.storm.mul_f64(0.7));
            lab.plan(after, Happening::Submit);
        }
        for trouble in [
            Trouble::Cut,
            Trouble::AgentCrash,
            Trouble::Sleep,
            Trouble::CoordinatorCrash,
            Trouble::CommitHangs,
            Trouble::Owner,
            Trouble::Drain,
        ] {
            lab.plan_trouble(trouble);
        }
        lab
    }

    /// The storm, then the calm in which all work must finish.
    pub fn run(mut self) -> Outline {
        let calm_from = self.now + self.setting.storm;
        self.run_until(calm_from, |_| false);
        self.become_calm();
        let until = self.now + self.setting.calm;
        self.run_until(until, Self::is_done);
        self.check_end();
        Outline::of(&self)
    }

    fn run_until(&mut self, until: Moment, done: impl Fn(&Self) -> bool) {
        while self.now < until && !done(self) {
            let Some(at) = self.next_at() else { return };
            // One after the other, even if they are late.
            self.now = self.now.max(at);
            self.advance();
            self.witness.check(self.now, &self.hosts, &self.store);
        }
    }

    fn next_at(&self) -> Option<Moment> {
        let agenda = self.agenda.keys().next().map(|(at, _)| *at);
        let core = self.core.as_ref().and_then(Core::deadline);
        let hosts = self.hosts.iter().flat_map(|host| {
            [host.deadline(), host.next_exit().map(|(at, _)| at)].into_iter().flatten()
        });
        agenda.into_iter().chain(core).chain(hosts).min()
    }

    /// Whatever is due first.
    fn advance(&mut self) {
        let now = self.now;
        for index in 0..self.hosts.len() {
            if self.hosts[index].deadline().is_some_and(|at| at <= now) {
                return self.wake(index);
            }
            if let Some((_, at)) = self.hosts[index].next_exit().filter(|(at, _)| *at <= now) {
                return self.exits(index, at);
            }
        }
        if self.core.as_ref().and_then(Core::deadline).is_some_and(|at| at <= now) {
            let wall = self.wall();
            let step = self.core.as_mut().expect("it has a deadline").wake(now, wall);
            return self.take_step(step);
        }
        if let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let happening = entry.remove();
            self.happen(happening);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Heard(from, frame) => {
                let victim = self.victim(from, &frame);
                self.handle(Event::Heard { from, frame });
                if let Some(index) = victim {
                    self.agent_crashes(index);
                }
            }
            Happening::Told(to, frame) => {
                let index = index_of(to.workstation);
                if self.hosts[index].asleep {
                    // Read when it is awake again.
                    self.plan(Duration::from_millis(100), Happening::Told(to, frame));
                } else if self.hosts[index].link == Some(to) {
                    self.tell_ranks(index, &frame);
                    self.tell(index, agent::Event::Frame(frame));
                }
            }
            Happening::AgentLoses(link) => self.agent_loses(link),
            Happening::CoordinatorLoses(link) => self.handle(Event::Disconnected(link)),
            Happening::Dial(id) => self.dial(id),
            Happening::Here { host, incarnation, what } => {
                let index = host as usize - 1;
                if self.hosts[index].incarnation == incarnation && self.hosts[index].agent.is_some()
                {
                    self.happens_here(index, what);
                }
            }
            Happening::AgentStarts(id) => self.agent_starts(id),
            Happening::Undrained(id) => self.drains_workstation(id, false),
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
            Happening::CoordinatorStarts => self.coordinator_starts(),
            Happening::Commit => self.commit(),
            Happening::Submit => self.submit(),
            Happening::Cancel => self.cancel(),
            Happening::Trouble(trouble) if !self.calm => self.trouble(trouble),
            Happening::Trouble(_) => {}
        }
    }

    /// The host whose agent dies of what it has just started.
    fn victim(&self, from: Link, frame: &AgentFrame) -> Option<usize> {
        let AgentFrame::Attempt(AttemptEvent::Started { fence, .. }) = frame else { return None };
        let job = self.store.attempts.get(fence)?.subprogram.job;
        let index = index_of(from.workstation);
        let is_there = self.hosts[index].link == Some(from);
        (self.setting.killer && job == JobId(1) && is_there).then_some(index)
    }

    // ── the coordinator ────────────────────────────────────────────────────

    fn coordinator_starts(&mut self) {
        let restored = self.store.restored(self.setting.hosts);
        let core = Core::restore(self.now, self.wall(), self.setting.config.clone(), restored);
        self.witness.check_restored(&core, &self.store);
        self.core = Some(core);
        self.commits_from = self.now;
    }

    fn handle(&mut self, event: Event) {
        let (now, wall) = (self.now, self.wall());
        let Some(core) = &mut self.core else { return };
        let step = core.handle(now, wall, event);
        self.take_step(step);
    }

    fn take_step(&mut self, step: Step) {
        let core = self.core.as_ref().expect("somebody made this step");
        self.witness.check_placements(self.now, core, &step);
        core.check_places().expect("the scheduler counts as the pool does");
        self.count_turns(&step);
        // A heartbeat is acknowledged whatever the disk does.
        let is_ack = |effect: &Effect| {
            matches!(effect, Effect::Send { frame: CoordinatorFrame::HeartbeatAck { .. }, .. })
        };
        if step.changes.is_empty() && step.effects.iter().all(is_ack) {
            return step.effects.into_iter().for_each(|effect| self.carry_out(effect));
        }
        if self.pending.is_empty() {
            let gap = Duration::from_micros(self.rng.random_range(200..6_000));
            self.plan(gap, Happening::Commit);
        }
        self.pending.push_back(step);
    }

    /// In the order of the changes: of those who wait, each sees the first job's
    /// attempts that begin before its own.
    fn count_turns(&mut self, step: &Step) {
        if self.setting.crowd.is_none() {
            return;
        }
        for change in &step.changes {
            if let Change::Job(record) = change {
                self.waits.insert(record.job);
            }
            // Whoever has been cancelled waits no more.
            if let Change::Progress(progress) = change
                && progress.state.has_ended()
            {
                self.waits.remove(&progress.job);
            }
            let Change::Attempt(attempt) = change else { continue };
            if attempt.end.is_some() || attempt.coming.is_some() {
                continue;
            }
            let job = attempt.subprogram.job;
            self.waits.remove(&job);
            for waits in self.waits.iter().filter(|_| job == JobId(1)) {
                *self.turns_waited.entry(*waits).or_default() += 1;
            }
        }
    }

    /// All steps so far in one go, then what they want to be done.
    fn commit(&mut self) {
        if self.now < self.commits_from {
            return self.plan_at(self.commits_from, Happening::Commit);
        }
        let steps = std::mem::take(&mut self.pending);
        for step in &steps {
            self.store.commit(step);
        }
        for effect in steps.into_iter().flat_map(|step| step.effects) {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, frame } => {
                if let CoordinatorFrame::Offer(offer) = &frame {
                    let placed = &self.store.attempts[&offer.fence];
                    assert_eq!(
                        (placed.subprogram, placed.workstation),
                        (offer.subprogram, to.workstation)
                    );
                }
                if let CoordinatorFrame::Riders { fences } = &frame {
                    self.shared += u64::from(!fences.is_empty());
                }
                if let CoordinatorFrame::Cancel { fence } = frame {
                    self.witness.cancels(&self.hosts, &self.store, index_of(to.workstation), fence);
                }
                if self.wires.get(&to).is_some_and(|wire| !wire.broken) {
                    let delay = self.delay();
                    let wire = self.wires.get_mut(&to).expect("it was there");
                    wire.down_at = wire.down_at.max(self.now + delay);
                    let at = wire.down_at;
                    self.plan_at(at, Happening::Told(to, frame));
                }
            }
            Effect::Refuse { link, .. } | Effect::Replace(link) => self.cut(link),
            Effect::Answer { answer: Answer::Submitted(job), .. } => {
                assert!(self.store.jobs.contains_key(&job), "answered before it was durable");
                self.accepted.insert(job);
            }
            Effect::Answer { answer: Answer::Cancelled(_) | Answer::No(_), .. } => {}
            Effect::Progress(summary) => self.witness.progressed(&summary),
            Effect::Unneeded(parts) => self.cuts.drop(parts, &self.store),
        }
    }

    fn submit(&mut self) {
        self.submitted += 1;
        if self.core.is_none() {
            // The user tries again.
            self.submitted -= 1;
            return self.plan(Duration::from_secs(1), Happening::Submit);
        }
        let count = self.rng.random_range(1..=150);
        let mut spec = JobSpec::new(
            vec!["work".into(), "{i}".into()],
            IndexRange { first: 3, last: 3 + (count - 1) * 2, step: 2 },
        );
        spec.retries = self.rng.random_range(0..4);
        let reaction = [Reaction::Renice, Reaction::Suspend, Reaction::Retreat, Reaction::Migrate];
        spec.on_busy = OnBusy {
            reaction: reaction[self.rng.random_range(0..4)],
            patience: Patience::For(Duration::from_secs(self.rng.random_range(1..20))),
            then: [Reaction::Retreat, Reaction::Migrate][self.rng.random_range(0..2)],
        };
        if self.rng.random_bool(self.setting.programs) {
            let ranks = self.rng.random_range(1..=4);
            spec.indexes = IndexRange { first: 0, last: ranks - 1, step: 1 };
            let checkpoint_every = self.rng.random_bool(0.5).then_some(Duration::from_secs(2));
            let (ranks_max, increases) = (ranks + 2, self.rng.random_bool(0.3));
            let program = ProgramSpec { ranks_max, increases, ..ProgramSpec::default() };
            spec.program = Some(ProgramSpec { checkpoint_every, ..program });
            // On so many places at least: its ranks share them.
            let min = increases.then(|| self.rng.random_range(1..=ranks));
            spec.shape = Shape { min, ..Shape::default() };
            if self.rng.random_bool(0.3) {
                spec.on_busy.reaction = Reaction::Rollback;
            }
        }
        if spec.program.is_none() && self.rng.random_bool(self.setting.replicated) {
            spec.replicas = self.rng.random_range(2..=self.setting.replicas_max);
        }
        if self.rng.random_bool(0.3) {
            let (path, hash) = ("input".to_owned(), ContentHash([1; 32]));
            spec.inputs = vec![StagedFile { path, hash, size_bytes: 1, executable: false }];
        }
        if self.setting.large > 0.0 && self.rng.random_bool(self.setting.large) {
            spec.cores = self.rng.random_range(1..=2);
            spec.limits.memory_bytes_max = self.rng.random_range(0..=3) << 30;
        }
        if let Some(crowd) = self.setting.crowd {
            let count = if self.submitted == 1 { crowd } else { 1 };
            spec.indexes = IndexRange::count_of(count).expect("there is one at least");
            spec.retries = spec.retries.max(self.setting.black_holes.min(1));
        }
        let may_time_out = self.setting.failures > 0.0 && self.rng.random_bool(0.2);
        spec.timeout = may_time_out.then_some(self.setting.work_max / 2);
        self.requests += 1;
        let one_each = self.setting.crowd.is_some();
        let user = if one_each { format!("user{}", self.submitted) } else { "ann".to_owned() };
        let request = RequestId(self.requests);
        self.handle(Event::Submitted { request, user, spec: Box::new(spec) });
        if self.rng.random_bool(0.15) {
            let after = self.up_to(Duration::from_secs(60));
            self.plan(after, Happening::Cancel);
        }
    }

    fn cancel(&mut self) {
        let jobs = self.core.iter().flat_map(Core::jobs);
        let Some(job) = jobs.last() else { return };
        self.requests += 1;
        self.handle(Event::CancelAsked { request: RequestId(self.requests), job });
    }

    // ── the end ────────────────────────────────────────────────────────────

    fn is_done(&self) -> bool {
        self.submitted == self.setting.jobs
            && self.pending.is_empty()
            && self.core.as_ref().is_some_and(|core| core.jobs().next().is_none())
            && self.hosts.iter().all(|host| {
                let agent = host.agent.as_ref();
                agent.is_some_and(|agent| {
                    !agent.has_guests() && agent.status(self.now).ends_waiting == 0
                })
            })
    }

    fn check_end(&self) {
        let left: Vec<_> = self
            .core
            .iter()
            .flat_map(|core| {
                core.jobs().flat_map(|job| core.why_job(self.now, job).unwrap_or_default())
            })
            .collect();
        let status = |host: &Host| host.agent.as_ref().map(|agent| agent.status(self.now).guests);
        let hosts: Vec<_> = self
            .hosts
            .iter()
            .filter(|host| host.agent.as_ref().is_none_or(agent::Agent::has_guests))
            .map(|host| (status(host), &host.places))
            .collect();
        assert!(self.is_done(), "the calm was not enough: {left:#?} {hosts:#?}");
        self.store.check_counters();
        for job in &self.accepted {
            assert!(self.store.jobs.contains_key(job), "job {job} was lost");
        }
        for (id, job) in &self.store.jobs {
            let grows = job.spec.program.is_some_and(|program| program.increases);
            let is_once = job.progress.spawned <= 1;
            assert!(is_once || grows, "job {id}: a question was answered twice");
        }
        for (id, record) in &self.store.subprograms {
            // A rank that an earlier life had spawned.
            if self.store.jobs[&id.job].indexes().position(id.index).is_none() {
                continue;
            }
            assert_ne!(record.state, SubprogramState::Queued, "{id} was forgotten");
        }
        self.witness.check_results(&self.store, self.setting.failures > 0.0);
        self.store.check_nothing_is_left();
    }

    // ── chance and time ────────────────────────────────────────────────────

    fn plan(&mut self, after: Duration, happening: Happening) {
        self.plan_at(self.now + after, happening);
    }

    fn plan_at(&mut self, at: Moment, happening: Happening) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), happening);
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

    /// Mostly a local network's; now and then much worse.
    fn delay(&mut self) -> Duration {
        let late = !self.calm && self.rng.random_bool(self.setting.late_frames);
        let longest = match self.rng.random_range(0..50) {
            _ if late => Duration::from_secs(15),
            0 => Duration::from_secs(1),
            _ => Duration::from_millis(2),
        };
        self.up_to(longest)
    }

    /// Every other job is of short subprograms, which are sent ahead.
    fn work(&mut self, job: JobId) -> Duration {
        let short = job.0.is_multiple_of(2);
        self.up_to(if short { Duration::from_millis(8) } else { self.setting.work_max })
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
        WallTime::from_unix_s(800_000_000 + i64::try_from(self.now.0 / 1_000_000_000).unwrap_or(0))
    }
}

fn index_of(id: WorkstationId) -> usize {
    id.0 as usize - 1
}
