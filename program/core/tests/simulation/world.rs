//! Hosts, a network that loses, delays and repeats, and everything that can
//! happen to a rank; drawn from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::program::Life;
use gleaner_common::time::Moment;
use gleaner_program_core::address::{Boundary, Rank, Request, Snapshot, window};
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::directory::{Directory, Route, Taken};
use gleaner_program_core::endpoint::{Back, Config, Effect, Endpoint, Event, PipeRest};
use gleaner_program_core::facts::{End, diagnose};
use gleaner_program_core::framing::{FrameReader, decode, encode_whole};
use gleaner_program_core::simulated::{self, Found, Habits, Op, Program, Progress};
use gleaner_program_core::snapshots::{self as coordinator, Snapshots};
use gleaner_program_core::wire::{AgentFrame, Answer, Packet, PeerFrame, ProgramFrame};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

mod network;
mod running;
mod snapshots;
mod trouble;

const JOB: JobId = JobId(1);
const RANKS_MAX: u32 = 4_096;

/// What a seed draws first.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub(crate) struct Chaos {
    pub(crate) hosts: usize,
    pub(crate) ranks: usize,
    pub(crate) steps: usize,
    pub(crate) lose: f64,
    pub(crate) repeat: f64,
    pub(crate) delay_max_us: u64,
    pub(crate) log_bytes_max: u64,
    pub(crate) snapshots: bool,
    /// How often something befalls a rank or a host, in microseconds.
    pub(crate) every_us: u64,
    pub(crate) moves: bool,
    pub(crate) rollbacks: bool,
    pub(crate) crashes: bool,
    pub(crate) partitions: bool,
    pub(crate) lasts: Duration,
}

impl Chaos {
    pub(crate) fn draw(random: &mut SmallRng) -> Self {
        let ranks = random.random_range(2..6);
        let log = [0, 0, 120_000, 600_000, 64 << 20, 64 << 20];
        Self {
            hosts: random.random_range(2..5),
            ranks,
            steps: random.random_range(20..250),
            lose: if random.random_bool(0.5) { random.random_range(0.0..0.2) } else { 0.0 },
            repeat: if random.random_bool(0.5) { random.random_range(0.0..0.2) } else { 0.0 },
            delay_max_us: random.random_range(1..2_000),
            log_bytes_max: log[random.random_range(0..log.len())],
            snapshots: random.random_bool(0.6),
            every_us: random.random_range(500..20_000),
            moves: random.random_bool(0.7),
            rollbacks: random.random_bool(0.6),
            crashes: random.random_bool(0.3),
            partitions: random.random_bool(0.3),
            lasts: Duration::from_millis(random.random_range(10..400)),
        }
    }
}

/// How a rank ended: after which snapshot, the number of its last piece to
/// each rank, and in which run.
type Ended = (End, Snapshot, Vec<(Rank, u64)>, u64);

/// A process with its pipes, as an image keeps it.
#[derive(Clone)]
struct Image {
    program: Program,
    rest: Vec<u8>,
}

struct LocalRank {
    host: usize,
    endpoint: Endpoint,
    program: Option<Program>,
    to_agent: VecDeque<ProgramFrame>,
    to_program: VecDeque<AgentFrame>,
    /// Counts processes and places, so that what is late is known.
    life: u64,
    frozen: bool,
    packed: Option<Vec<u8>>,
    stepping: bool,
    waking: Option<Moment>,
    parts: Vec<u8>,
}

/// What is kept somewhere durable: states and images of boundaries.
#[derive(Default)]
struct Store {
    states: BTreeMap<(Rank, Boundary), Vec<u8>>,
    images: BTreeMap<(Rank, Boundary), Image>,
    cuts: BTreeMap<(Snapshot, Rank), (Vec<u8>, Boundary)>,
}

enum Due {
    Packet { host: usize, from_host: usize, packet: Vec<u8> },
    Local { host: usize, packet: Packet },
    Step(Rank),
    Wake(Rank),
    Place { host: usize, rank: Rank },
    Answer { rank: Rank, request: Request },
    Kept { rank: Rank, life: u64, boundary: Boundary, well: bool },
    Trouble,
    Arrive { rank: Rank, life: u64, to: usize },
    Image { rank: Rank, life: u64 },
    Imaged { rank: Rank, life: u64 },
    PeerEnded { to: Rank, rank: Rank, run: u64 },
    Cut { rank: Rank, snapshot: Snapshot, run: u64 },
    CutKept { rank: Rank, snapshot: Snapshot, run: u64 },
    Snapshots,
    Heal { a: usize, b: usize },
}

pub(crate) struct World {
    pub(crate) chaos: Chaos,
    random: SmallRng,
    pub(crate) now: Moment,
    queue: BinaryHeap<Reverse<(Moment, u64)>>,
    due: BTreeMap<u64, Due>,
    next: u64,
    scripts: Vec<Rc<Vec<Op>>>,
    hosts: Vec<Directory>,
    /// What came before the place of its sender: host, from where, and it.
    early: Vec<(usize, usize, Packet)>,
    ranks_here: BTreeMap<Rank, LocalRank>,
    place: BTreeMap<Rank, (Fence, usize)>,
    fence: u32,
    floor: Fence,
    store: Store,
    snapshots: Snapshots,
    /// Counts how often all went back.
    run: u64,
    ended: BTreeMap<Rank, Ended>,
    cut: BTreeSet<(usize, usize)>,
    answers: BTreeMap<(Rank, Request), u32>,
    pub(crate) complaints: Vec<Complaint>,
    pub(crate) happened: BTreeMap<&'static str, u32>,
    effects: Vec<Effect>,
    /// Says everything, to look into one seed.
    tells: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let chaos = Chaos::draw(&mut random);
        Self::with(chaos, random)
    }

    pub(crate) fn with(chaos: Chaos, mut random: SmallRng) -> Self {
        let habits = Habits::draw(&mut random);
        let scripts = simulated::draw(&mut random, chaos.ranks, chaos.steps, habits);
        let ranks = (0..chaos.ranks as u32).map(Rank);
        let every = Duration::from_millis(random.random_range(2..60));
        let mut world = Self {
            chaos,
            random,
            now: Moment(1_000),
            queue: BinaryHeap::new(),
            due: BTreeMap::new(),
            next: 0,
            scripts: scripts.into_iter().map(Rc::new).collect(),
            hosts: (0..chaos.hosts)
                .map(|h| Directory::new(Life(1), WorkstationId(h as u32)))
                .collect(),
            early: vec![],
            ranks_here: BTreeMap::new(),
            place: BTreeMap::new(),
            fence: 0,
            floor: Fence::of(0),
            store: Store::default(),
            snapshots: Snapshots::new(Moment(1_000), every, ranks.clone()),
            run: 0,
            ended: BTreeMap::new(),
            cut: BTreeSet::new(),
            answers: BTreeMap::new(),
            complaints: vec![],
            happened: BTreeMap::new(),
            effects: vec![],
            tells: std::env::var_os("GLEAN_TELL").is_some(),
        };
        ranks.for_each(|rank| world.begin(rank));
        world.after(0, Due::Trouble);
        if chaos.snapshots {
            world.after(0, Due::Snapshots);
        }
        world
    }

    fn note(&mut self, what: &'static str) {
        if self.tells {
            println!("{} {what}", self.now.0);
        }
        *self.happened.entry(what).or_default() += 1;
    }

    fn after(&mut self, us: u64, due: Due) {
        self.at(self.now + Duration::from_micros(us), due);
    }

    fn at(&mut self, at: Moment, due: Due) {
        self.next += 1;
        self.queue.push(Reverse((at, self.next)));
        self.due.insert(self.next, due);
    }

    fn soon(&mut self) -> u64 {
        self.random.random_range(1..500)
    }

    fn new_fence(&mut self) -> Fence {
        self.fence += 1;
        Fence::of(self.fence)
    }

    fn is_calm(&self) -> bool {
        self.now.since(Moment::ZERO) > self.chaos.lasts
    }

    // ── life of ranks ──────────────────────────────────────────────────────

    fn begin(&mut self, rank: Rank) {
        let config = Config {
            rank,
            ranks: self.chaos.ranks as u32,
            first: Rank(0),
            members: self.chaos.ranks as u32,
            parent: None,
            ranks_max: RANKS_MAX,
            log_bytes_max: self.chaos.log_bytes_max,
            snapshot: self.snapshots.newest(),
            floor: self.floor,
        };
        let fence = self.new_fence();
        self.put_rank(rank, Endpoint::new(config, fence));
        self.begin_process(rank);
    }

    /// Puts an endpoint on some host.
    fn put_rank(&mut self, rank: Rank, endpoint: Endpoint) {
        let host = self.random.random_range(0..self.chaos.hosts);
        let life = self.ranks_here.get(&rank).map_or(0, |local| local.life) + 1;
        let fence = endpoint.fence();
        let local = LocalRank {
            host,
            endpoint,
            program: None,
            to_agent: VecDeque::new(),
            to_program: VecDeque::new(),
            life,
            frozen: false,
            packed: None,
            stepping: false,
            waking: None,
            parts: vec![],
        };
        self.ranks_here.insert(rank, local);
        self.placed(rank, fence, host);
    }

    fn placed(&mut self, rank: Rank, fence: Fence, host: usize) {
        self.place.insert(rank, (fence, host));
        self.learn(host, rank, fence, host);
        for other in 0..self.chaos.hosts {
            let us = self.soon();
            self.after(us, Due::Place { host: other, rank });
        }
    }

    fn learn(&mut self, host: usize, rank: Rank, fence: Fence, at: usize) {
        if self.hosts[host].learn(rank, fence, WorkstationId(at as u32)) {
            let here: Vec<Rank> = self.ranks_at(host);
            for own in here {
                self.tell(own, Event::PeerAt(rank));
            }
            self.take_early(host, rank);
        }
    }

    fn ranks_at(&self, host: usize) -> Vec<Rank> {
        self.ranks_here
            .iter()
            .filter(|(_, local)| local.host == host)
            .map(|(rank, _)| *rank)
            .collect()
    }

    fn begin_process(&mut self, rank: Rank) {
        let script = Rc::clone(&self.scripts[rank.0 as usize]);
        let local = self.ranks_here.get_mut(&rank).unwrap();
        local.program = Some(Program::new(rank, script));
        local.to_agent.clear();
        local.to_program.clear();
        local.parts.clear();
        local.frozen = false;
        self.step_soon(rank);
    }

    fn step_soon(&mut self, rank: Rank) {
        let us = self.random.random_range(1..200);
        let Some(local) = self.ranks_here.get_mut(&rank) else { return };
        if !local.stepping && !local.frozen && local.program.is_some() {
            local.stepping = true;
            self.after(us, Due::Step(rank));
        }
    }

    fn step(&mut self, rank: Rank) {
        let Some(local) = self.ranks_here.get_mut(&rank) else { return };
        local.stepping = false;
        if local.frozen {
            return;
        }
        let Some(program) = &mut local.program else { return };
        let progress = program.step(&mut local.to_program, &mut local.to_agent);
        let Found { wrong, deadlock, .. } = &program.found;
        assert_eq!((wrong, deadlock), (&None, &None));
        // The agent reads the pipe now and then.
        if progress != Progress::Moved || self.random.random_bool(0.5) {
            self.drain(rank);
        }
        match progress {
            Progress::Moved => self.step_soon(rank),
            Progress::Blocked => {}
            Progress::Over => {
                if let Some(local) = self.ranks_here.get_mut(&rank) {
                    local.life += 1;
                    self.tell(rank, Event::Ended(End::ExitCode(0)));
                }
            }
        }
    }

    /// Handles all that the program has written.
    fn drain(&mut self, rank: Rank) {
        while let Some(frame) = self.ranks_here.get_mut(&rank).and_then(|s| s.to_agent.pop_front())
        {
            let mut bytes = vec![];
            encode_whole(&frame, &mut bytes).unwrap();
            let frame = decode(&Bytes::from(bytes).slice(4..)).unwrap();
            self.tell(rank, Event::FromProgram(frame));
        }
    }

    fn tell(&mut self, rank: Rank, event: Event) {
        let now = self.now;
        let Some(local) = self.ranks_here.get_mut(&rank) else { return };
        let mut effects = std::mem::take(&mut self.effects);
        let said = self.tells.then(|| format!("{event:.200?}"));
        local.endpoint.handle(now, event, &mut effects);
        if let Some(said) = said {
            let (now, host) = (self.now.0, local.host);
            println!("{now} {rank} at {host}: {said:.150} -> {:.250}", format!("{effects:?}"));
        }
        self.carry_out(rank, effects);
    }

    fn carry_out(&mut self, rank: Rank, mut effects: Vec<Effect>) {
        for effect in effects.drain(..) {
            self.carry_out_one(rank, effect);
        }
        self.effects = effects;
        let Some(local) = self.ranks_here.get_mut(&rank) else { return };
        local.endpoint.check().unwrap();
        assert!(local.endpoint.held() <= 2 * window(RANKS_MAX) * 8 + self.chaos.log_bytes_max);
        if let Some(at) =
            local.endpoint.deadline().filter(|at| local.waking.is_none_or(|w| *at < w))
        {
            local.waking = Some(at);
            self.at(at, Due::Wake(rank));
        }
    }

    fn carry_out_one(&mut self, rank: Rank, effect: Effect) {
        let us = self.soon();
        let run = self.run;
        let local = self.ranks_here.get_mut(&rank).unwrap();
        let life = local.life;
        match effect {
            Effect::ToProgram(frame) => {
                let mut bytes = vec![];
                encode_whole(&frame, &mut bytes).unwrap();
                local.to_program.push_back(decode(&Bytes::from(bytes).slice(4..)).unwrap());
                self.step_soon(rank);
            }
            Effect::Restore(boundary) => {
                let state = self.store.states[&(rank, boundary)].clone().into();
                local.to_program.push_back(AgentFrame::State { last: true, state });
            }
            Effect::ToPeer { to, frame } => self.send(rank, to, frame),
            Effect::Ask { request, .. } => self.after(us, Due::Answer { rank, request }),
            Effect::Keep { boundary, last, state } => {
                local.parts.extend_from_slice(&state);
                if last {
                    let parts = std::mem::take(&mut local.parts);
                    self.store.states.insert((rank, boundary), parts);
                    let well = self.random.random_bool(0.95);
                    self.after(us, Due::Kept { rank, life, boundary, well });
                }
            }
            Effect::Forget(_) | Effect::Retreated => {}
            Effect::Complain(complaint) => {
                assert!(!complaint.is_fatal(), "{complaint}");
                self.complaints.push(complaint);
            }
            Effect::Ended { end, snapshot, sent } => {
                let run = self.run;
                self.ended.insert(rank, (end, snapshot, sent, run));
                for to in 0..self.chaos.ranks as u32 {
                    let us = self.soon();
                    self.after(us, Due::PeerEnded { to: Rank(to), rank, run });
                }
            }
            Effect::Drained => {
                self.ranks_here.remove(&rank);
                let now = self.now;
                let effects = self.snapshots.handle(now, coordinator::Event::Drained(rank));
                self.snapshot_effects(effects);
            }
            Effect::Cut { snapshot, boundary, state } => {
                self.note("cut");
                self.store.cuts.insert((snapshot, rank), (state, boundary));
                self.after(us, Due::CutKept { rank, snapshot, run });
            }
            Effect::TakeImage => self.after(us, Due::Image { rank, life }),
            Effect::Negotiate(said) => panic!("nobody negotiates here: {said:?}"),
            Effect::NoCut(snapshot) => {
                let now = self.now;
                let event = coordinator::Event::NotKept { rank, snapshot };
                let effects = self.snapshots.handle(now, event);
                self.snapshot_effects(effects);
            }
        }
    }
}
