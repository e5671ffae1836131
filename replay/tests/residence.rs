//! The live core and replay's engine, driven by the same owners, have every rank on
//! the same workstation at every moment.
//!
//! The live side is the core as it is, with agents that do what real ones do about
//! an owner and take as long for a move as replay has it take. One thing of them is
//! replay's: a guest on its way to a workstation whose owner has come back finds
//! that out when it arrives (Phalen 1994, §6.4), where a real agent refuses it at
//! once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use gleaner_common::fingerprint::{Fingerprint, Version};
use gleaner_common::id::{BootId, Fence, Incarnation, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Outcome, Reaction};
use gleaner_common::program::ProgramSpec;
use gleaner_common::reaction::{Keep, Step as Does};
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::trace::{Op, Trace};
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Finished, Presence, Printed,
};
use gleaner_coordinator_core::residence::Rules;
use gleaner_coordinator_core::{Config, Core, Effect, Event, Link, Policy, RequestId, Restored};
use gleaner_replay::{
    Costs, Lab, Machine, Model, Network, Owner, Placement, Program, Scratch, What, run_observed,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// When the period begins, on the core's clock.
const EPOCH: u64 = 1 << 60;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}

#[derive(Clone, Debug)]
struct Case {
    /// What each rank computes.
    works: Vec<u64>,
    owners: Vec<Owner>,
    machines: Vec<Machine>,
    span: Duration,
    policy: Policy,
    on_busy: OnBusy,
    cost: Duration,
    grows: bool,
}

/// What happened to each rank, in order.
type Course = Vec<Vec<(u64, What)>>;

impl Case {
    /// Times are a few seconds, so that much happens at the same moment.
    fn of_seed(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let span = s(rng.random_range(50..400));
        let moving = [Reaction::Migrate, Reaction::Rollback, Reaction::Retreat];
        let moves = *moving.choose(&mut rng).unwrap();
        let on_busy = match rng.random_range(0..6) {
            0 | 1 => OnBusy::at_once(moves),
            2 => OnBusy::at_once(Reaction::Renice),
            3 => OnBusy::suspend(None, moves),
            4 => OnBusy::suspend_by_cost(moves),
            _ => OnBusy::suspend(Some(s(rng.random_range(0..20))), moves),
        };
        let policies = [Policy::LastIdleFirst, Policy::FirstIdleFirst, Policy::Ranked];
        let works = 0..rng.random_range(1..6);
        let works = works.map(|_| nanos(s(rng.random_range(1..60)))).collect();
        let owners = 0..rng.random_range(1..9);
        let owners: Vec<Owner> = owners.map(|_| owner(&mut rng, span)).collect();
        let machines = owners.iter().map(|owner| machine(&mut rng, owner)).collect();
        Self {
            works,
            owners,
            machines,
            span,
            policy: *policies.choose(&mut rng).unwrap(),
            on_busy,
            cost: s(rng.random_range(0..9)),
            grows: rng.random_bool(0.5),
        }
    }

    fn in_replay(&self) -> Course {
        let of = |nanos: &u64| vec![Op::Compute { nanos: *nanos }];
        let trace = Trace { name: "apart".into(), ranks: self.works.iter().map(of).collect() };
        let program = Program::compile(&trace, Network::default()).unwrap();
        let lab = Lab::of_owners(&self.owners, self.span).with_machines(&self.machines);
        let model = Model {
            placement: Placement::Core(self.policy),
            on_busy: self.on_busy,
            costs: Costs { migrate: self.cost, rollback: self.cost, retreat: self.cost },
            renice_share: 1.0,
            grows: self.grows,
            rules: Rules::LIVE,
            ..Model::phalen1994(Duration::ZERO)
        };
        let mut observed = vec![];
        run_observed(&program, &lab, &model, &mut Scratch::default(), &mut observed);
        let mut course = vec![vec![]; self.works.len()];
        for one in observed.iter().filter(|one| !matches!(one.what, What::Lost { .. })) {
            course[one.rank as usize].push((one.at, one.what));
        }
        course
    }
}

fn owner(rng: &mut StdRng, span: Duration) -> Owner {
    let idle = rng.random_bool(0.7);
    let (mut at, mut is_idle, mut changes) = (Duration::ZERO, idle, vec![]);
    while at < span && rng.random_bool(0.97) {
        at += s(rng.random_range(1..=if is_idle { 60 } else { 20 }));
        is_idle = !is_idle;
        changes.push(at);
    }
    Owner { idle, since: s(rng.random_range(0..20)), changes }
}

fn machine(rng: &mut StdRng, owner: &Owner) -> Machine {
    let loads = 0..=owner.changes.len();
    Machine {
        speed: *[0.0, 500.0, 800.0].choose(rng).unwrap(),
        loads: loads.map(|_| *[0.0, 0.07, 0.21].choose(rng).unwrap()).collect(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Runs,
    Demoted,
    Frozen,
    /// It is to leave, and is still here.
    Wishes,
    /// It is being carried.
    Leaves,
}

#[derive(Clone, Copy, Debug)]
struct Guest {
    rank: usize,
    place: usize,
    does: Doing,
    /// What is left to compute, at `since`.
    left: u64,
    since: u64,
    /// Timers that were set before it changed last are void.
    plan: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrives,
    Patience,
    Finishes,
}

struct Live<'a> {
    case: &'a Case,
    core: Core,
    now: u64,
    idle: Vec<bool>,
    /// How often each owner has come or left.
    changes: Vec<usize>,
    guests: BTreeMap<Fence, Guest>,
    /// Those on their way: where to, and whose place they take.
    coming: BTreeMap<Fence, (usize, Fence)>,
    timers: BTreeSet<(u64, usize, Due, Fence, u32)>,
    course: Course,
}

impl<'a> Live<'a> {
    fn run(case: &'a Case) -> Course {
        let config = Config { policy: case.policy, lease: s(1 << 30), ..Config::default() };
        let wall = WallTime(EPOCH.cast_signed());
        let core = Core::restore(Moment(EPOCH), wall, config, Restored::default());
        let mut live = Live {
            case,
            core,
            now: 0,
            idle: case.owners.iter().map(|owner| owner.idle).collect(),
            changes: vec![0; case.owners.len()],
            guests: BTreeMap::new(),
            coming: BTreeMap::new(),
            timers: BTreeSet::new(),
            course: vec![vec![]; case.works.len()],
        };
        (0..case.owners.len()).for_each(|place| live.connect(place));
        live.submit();
        let mut changes: Vec<(u64, usize)> = vec![];
        for (place, owner) in case.owners.iter().enumerate() {
            changes.extend(owner.changes.iter().map(|at| (nanos(*at), place)));
        }
        changes.sort_unstable();
        let mut changes = VecDeque::from(changes);
        loop {
            let timer = live.timers.first().map(|timer| timer.0);
            let next = changes.front().map(|change| change.0).into_iter().chain(timer).min();
            let Some(now) = next.filter(|now| *now < nanos(case.span)) else { return live.course };
            live.now = now;
            live.heartbeats();
            if let Some((_, place)) = changes.pop_front_if(|change| change.0 == now) {
                live.owner_changes(place);
            } else if let Some((_, _, due, fence, plan)) = live.timers.pop_first() {
                live.is_due(due, fence, plan);
            }
        }
    }

    fn connect(&mut self, place: usize) {
        let owner = &self.case.owners[place];
        let machine = Fingerprint {
            architecture: "x86_64".into(),
            kernel: "6.12.1".into(),
            criu: Version { major: 4, minor: 1, patch: 1 },
            processor: "Xeon".into(),
            features: [].into(),
            system: "Debian 13".into(),
            root: [1; 16],
        };
        let memory_bytes = 1 << 31;
        let (fingerprint, speed) = (Some(Box::new(machine)), self.case.machines[place].speed);
        let hello = AgentFrame::Hello {
            incarnation: Incarnation(1),
            boot: BootId::default(),
            facts: Box::new(Facts {
                cores: 1,
                places: 1,
                memory_bytes,
                speed,
                fingerprint,
                ..Facts::default()
            }),
            presence: self.presence(place, owner.since),
            held: vec![],
            seen: gleaner_common::id::Fence::default(),
        };
        let from = link(place);
        let name = format!("host{place}");
        self.handle(Event::Enrolled { workstation: from.workstation, name });
        self.hear(place, hello);
    }

    fn submit(&mut self) {
        let ranks = u32::try_from(self.case.works.len()).unwrap();
        let mut spec = JobSpec::new(vec!["./apart".into()], IndexRange::count_of(ranks).unwrap());
        let program = ProgramSpec { increases: self.case.grows, ..ProgramSpec::default() };
        spec.program = Some(ProgramSpec { ranks_max: ranks, ..program });
        spec.on_busy = self.case.on_busy;
        // Ranks that ask for more than a core share no place, which replay's never do.
        spec.limits.memory_bytes_max = 1 << 30;
        let (request, spec) = (RequestId(1), Box::new(spec));
        self.handle(Event::Submitted { request, user: "ann".into(), spec });
        for rank in 0..self.case.works.len() {
            if self.course[rank].is_empty() {
                self.tell(rank, What::Waits);
            }
        }
    }

    /// All that are idle say so: what is known of them is not old.
    fn heartbeats(&mut self) {
        for place in 0..self.idle.len() {
            if self.idle[place] {
                let load = self.load(place);
                self.hear(place, AgentFrame::Heartbeat { sequence: 1, slots: 1, load });
            }
        }
    }

    fn load(&self, place: usize) -> LoadAverages {
        let one = self.case.machines[place].loads[self.changes[place]];
        LoadAverages { one, ..LoadAverages::default() }
    }

    fn presence(&self, place: usize, lasted: Duration) -> Presence {
        let (idle, load) = (self.idle[place], self.load(place));
        let (slots, reason) = (u16::from(idle), String::new());
        Presence { busy: !idle, reason, lasted, slots, load, users: 0 }
    }

    fn tell(&mut self, rank: usize, what: What) {
        self.course[rank].push((self.now, what));
    }

    // ── owners ─────────────────────────────────────────────────────────────

    fn owner_changes(&mut self, place: usize) {
        self.idle[place] = !self.idle[place];
        self.changes[place] += 1;
        let is_busy = !self.idle[place];
        let here = |(_, guest): &(&Fence, &Guest)| guest.place == place;
        let guest = self.guests.iter().find(here).map(|(fence, guest)| (*fence, guest.does));
        let presence = self.presence(place, Duration::ZERO);
        self.hear(place, AgentFrame::Presence(presence));
        let Some((fence, does)) = guest else { return };
        match (is_busy, does) {
            (true, Doing::Runs) => self.owner_is_here(fence),
            (false, Doing::Demoted | Doing::Frozen) => {
                self.goes_on(fence, What::Resumed);
                self.hear_of(fence, AttemptEvent::Resumed { fence });
            }
            (false, Doing::Wishes) => {
                self.goes_on(fence, What::Resumed);
                self.hear_of(fence, AttemptEvent::Stays { fence, keep: Keep::State });
            }
            (_, _) => {}
        }
    }

    fn owner_is_here(&mut self, fence: Fence) {
        self.stops(fence);
        let Guest { rank, place, .. } = self.guests[&fence];
        self.tell(rank, What::OwnerReturned { workstation: u32::try_from(place).unwrap() });
        match self.case.on_busy.when_busy() {
            Does::Move(keep) => self.wants_away(fence, keep),
            Does::Freeze => {
                self.set(fence, Doing::Frozen);
                self.tell(rank, What::Froze);
                if let Some((patience, _)) = self.case.on_busy.patience(self.case.cost) {
                    self.set_timer(fence, self.now + nanos(patience), Due::Patience);
                }
                self.hear_of(fence, AttemptEvent::Suspended { fence });
            }
            Does::Demote => {
                self.tell(rank, What::WasDemoted);
                self.runs(fence, Doing::Demoted);
                self.hear_of(fence, AttemptEvent::Demoted { fence });
            }
            Does::Stay => unreachable!("no reaction is to stay"),
        }
    }

    fn wants_away(&mut self, fence: Fence, keep: Keep) {
        self.set(fence, Doing::Wishes);
        if keep == Keep::Nothing {
            self.begins_anew(fence);
        }
        self.hear_of(fence, AttemptEvent::WantsAway { fence, keep, image_bytes: 1 });
        if let Some(Guest { does: Doing::Wishes, rank, .. }) = self.guests.get(&fence).copied() {
            self.tell(rank, What::Waits);
        }
    }

    // ── guests ─────────────────────────────────────────────────────────────

    fn is_due(&mut self, due: Due, fence: Fence, plan: u32) {
        if due == Due::Arrives {
            return self.arrives(fence);
        }
        let Some(guest) = self.guests.get(&fence).filter(|it| it.plan == plan).copied() else {
            return;
        };
        if due == Due::Patience {
            let (_, does) = self.case.on_busy.patience(self.case.cost).unwrap();
            let Does::Move(keep) = does else { unreachable!("it is patient for a move") };
            return self.wants_away(fence, keep);
        }
        self.tell(guest.rank, What::Finished);
        self.guests.remove(&fence);
        let finished = Finished {
            fence,
            outcome: Outcome::Succeeded,
            cpu: s(1),
            ran: s(1),
            suspended: Duration::ZERO,
            suspensions: 0,
            stdout: Printed::default(),
            stderr: Printed::default(),
            outputs: vec![],
        };
        self.hear(guest.place, AgentFrame::Attempt(AttemptEvent::Finished(finished)));
    }

    fn arrives(&mut self, fence: Fence) {
        let (place, old) = self.coming.remove(&fence).unwrap();
        let guest = self.guests.remove(&old).unwrap();
        let (does, since) = (Doing::Runs, self.now);
        self.guests.insert(fence, Guest { place, does, since, plan: 0, ..guest });
        self.hear_of(fence, AttemptEvent::Arrived { fence, bytes: 1, frozen: self.case.cost });
        if self.idle[place] {
            let workstation = u32::try_from(place).unwrap();
            self.goes_on(fence, What::Arrived { workstation });
        } else {
            self.owner_is_here(fence);
        }
    }

    fn set(&mut self, fence: Fence, does: Doing) {
        let guest = self.guests.get_mut(&fence).unwrap();
        (guest.does, guest.plan) = (does, guest.plan + 1);
    }

    /// Counts what it has computed.
    fn stops(&mut self, fence: Fence) {
        let guest = self.guests.get_mut(&fence).unwrap();
        if matches!(guest.does, Doing::Runs | Doing::Demoted) {
            guest.left -= self.now - guest.since;
        }
        guest.since = self.now;
    }

    fn begins_anew(&mut self, fence: Fence) {
        let guest = self.guests.get_mut(&fence).unwrap();
        guest.left = self.case.works[guest.rank];
    }

    fn goes_on(&mut self, fence: Fence, what: What) {
        self.stops(fence);
        self.tell(self.guests[&fence].rank, what);
        self.runs(fence, Doing::Runs);
    }

    fn runs(&mut self, fence: Fence, does: Doing) {
        self.set(fence, does);
        let guest = self.guests.get_mut(&fence).unwrap();
        guest.since = self.now;
        let ends = self.now + guest.left;
        self.set_timer(fence, ends, Due::Finishes);
    }

    fn set_timer(&mut self, fence: Fence, at: u64, due: Due) {
        let Guest { rank, plan, .. } = self.guests[&fence];
        self.timers.insert((at, rank, due, fence, plan));
    }

    // ── the core ───────────────────────────────────────────────────────────

    fn hear_of(&mut self, fence: Fence, event: AttemptEvent) {
        self.hear(self.guests[&fence].place, AgentFrame::Attempt(event));
    }

    fn hear(&mut self, place: usize, frame: AgentFrame) {
        self.handle(Event::Heard { from: link(place), frame });
    }

    fn handle(&mut self, event: Event) {
        let (now, wall) = (Moment(EPOCH + self.now), WallTime((EPOCH + self.now).cast_signed()));
        let mut step = self.core.handle(now, wall, event);
        let mut began = vec![];
        loop {
            for effect in step.effects {
                if let Effect::Send { to, frame } = effect {
                    began.extend(self.obey(to.workstation.0 as usize - 1, frame));
                }
            }
            if self.core.deadline().is_none_or(|due| due > now) {
                break;
            }
            step = self.core.wake(now, wall);
        }
        for fence in began {
            self.hear_of(fence, AttemptEvent::Started { fence, waited: Duration::ZERO });
        }
    }

    /// What an agent is told to do; a guest that has begun.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only places matter here")]
    fn obey(&mut self, place: usize, frame: CoordinatorFrame) -> Option<Fence> {
        match frame {
            CoordinatorFrame::Offer(offer) => {
                if let Some(arrival) = offer.arrival {
                    self.coming.insert(offer.fence, (place, arrival.old));
                    return None;
                }
                let rank = offer.subprogram.index as usize;
                let (does, left, since) = (Doing::Runs, self.case.works[rank], self.now);
                let guest = Guest { rank, place, does, left, since, plan: 0 };
                self.guests.insert(offer.fence, guest);
                self.tell(rank, What::Began { workstation: u32::try_from(place).unwrap() });
                self.runs(offer.fence, Doing::Runs);
                Some(offer.fence)
            }
            CoordinatorFrame::Depart { fence, keep, to } => {
                self.stops(fence);
                self.set(fence, Doing::Leaves);
                if keep != Keep::State {
                    self.begins_anew(fence);
                }
                let (until, to) = (self.now + nanos(self.case.cost), to.at);
                let rank = self.guests[&fence].rank;
                self.tell(rank, What::Moves { to: to.workstation.0 - 1, until });
                self.timers.insert((until, rank, Due::Arrives, to.fence, 0));
                None
            }
            _ => None,
        }
    }
}

/// The core's workstations count from 1.
fn link(place: usize) -> Link {
    Link { workstation: WorkstationId(u32::try_from(place).unwrap() + 1), serial: 1 }
}

fn check(seed: u64) -> Course {
    let case = Case::of_seed(seed);
    let (ours, theirs) = (Live::run(&case), case.in_replay());
    for (rank, (live, replay)) in ours.iter().zip(&theirs).enumerate() {
        let same = live.iter().zip(replay).take_while(|(live, replay)| live == replay).count();
        assert_eq!(
            (live.get(same), live.len()),
            (replay.get(same), replay.len()),
            "SEED={seed}, rank {rank}, live and in replay, after {:?}\n{case:?}",
            &live[..same]
        );
    }
    ours
}

/// `SEED=7` tries one case, `CASES=100000` more of them.
#[test]
fn live_and_in_replay_every_rank_is_on_the_same_workstation_at_every_moment() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("SEED") {
        check(seed);
        return;
    }
    let mut happened: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..number("CASES").unwrap_or(2_000) {
        for (_, what) in check(seed).iter().flatten() {
            let name = match what {
                What::Began { .. } => "began",
                What::Waits => "waits",
                What::Moves { .. } => "moves",
                What::Resumed => "resumed",
                What::Finished => "finished",
                What::OwnerReturned { .. }
                | What::Froze
                | What::WasDemoted
                | What::Arrived { .. }
                | What::Lost { .. }
                | What::Sent { .. }
                | What::Received { .. }
                | What::Spawned { .. } => continue,
            };
            *happened.entry(name).or_default() += 1;
        }
    }
    assert!(happened.len() == 5 && happened.values().all(|times| *times > 500), "{happened:?}");
}
