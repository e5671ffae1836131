//! What goes wrong in a lab.
//!
//! When each trouble comes, where, and how long it lasts is drawn by a chance
//! of its own and depends on nothing else: a fault keeps its number and its
//! time when another is left out.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::occupancy::Pause;
use gleaner_common::id::WorkstationId;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::network::Way;
use super::setting::Setting;
use super::usage::Which;
use super::{Happening, Lab};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// A connection breaks, and each end finds out in its own time.
    Cut,
    /// What comes is not what was sent: both ends close the connection.
    Corruption,
    /// One direction is silent, while the other works; or both are.
    Silence,
    /// Datagrams are lost, so that frames come late.
    Loss,
    AgentCrash,
    KeeperDeath,
    /// The agent's process stops and continues, while guests go on until their
    /// supervisor freezes them.
    WorkerStop,
    Sleep,
    CoordinatorCrash,
    CommitHangs,
    /// The coordinator's disk is full for a while.
    StoreFull,
    /// The coordinator's wall clock jumps.
    WallJump,
    Owner,
    /// An admin empties a workstation, and takes it up again later.
    Drain,
    /// An agent's disk is full for a while, or the collector's; or takes nothing.
    DiskFull,
    SyncRefused,
    /// One bit of such a disk turns over.
    BitFlip,
    /// A machine's power goes, an agent's or the collector's: what its disk had not
    /// synced is lost or torn.
    PowerLoss,
    /// An older copy of an agent's disk takes its place, or of the collector's.
    DiskRestored,
    CollectorCrash,
    /// Its connection breaks, is silent for a while, or loses much.
    CollectorCut,
    /// An older copy of the coordinator's store takes its place.
    Restored,
    /// A machine's image is cloned, identity and all: the copy is there for a while.
    Twin,
    /// The coordinator's process stops and continues.
    CoordinatorStop,
    /// Two agents do not reach each other for a while, and the coordinator both.
    Apart,
}

impl Trouble {
    pub const ALL: [Self; 25] = [
        Self::Cut,
        Self::Corruption,
        Self::Silence,
        Self::Loss,
        Self::AgentCrash,
        Self::KeeperDeath,
        Self::WorkerStop,
        Self::Sleep,
        Self::CoordinatorCrash,
        Self::CommitHangs,
        Self::StoreFull,
        Self::WallJump,
        Self::Owner,
        Self::Drain,
        Self::DiskFull,
        Self::SyncRefused,
        Self::BitFlip,
        Self::PowerLoss,
        Self::DiskRestored,
        Self::CollectorCrash,
        Self::CollectorCut,
        Self::Restored,
        Self::Twin,
        Self::CoordinatorStop,
        Self::Apart,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Corruption => "corruption",
            Self::Silence => "silence",
            Self::Loss => "loss",
            Self::AgentCrash => "agent-crash",
            Self::KeeperDeath => "keeper-death",
            Self::WorkerStop => "worker-stop",
            Self::Sleep => "sleep",
            Self::CoordinatorCrash => "coordinator-crash",
            Self::CommitHangs => "commit-hangs",
            Self::StoreFull => "store-full",
            Self::WallJump => "wall-jump",
            Self::Owner => "owner",
            Self::Drain => "drain",
            Self::DiskFull => "disk-full",
            Self::SyncRefused => "sync-refused",
            Self::BitFlip => "bit-flip",
            Self::PowerLoss => "power-loss",
            Self::DiskRestored => "disk-restored",
            Self::CollectorCrash => "collector-crash",
            Self::CollectorCut => "collector-cut",
            Self::Restored => "restored",
            Self::Twin => "twin",
            Self::CoordinatorStop => "coordinator-stop",
            Self::Apart => "apart",
        }
    }
}

/// One fault, as it was drawn: where, how long (of its longest), and which of
/// its kinds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    host: usize,
    long: f64,
    which: f64,
}

/// The chances of all troubles, and how often each has come.
#[derive(Debug)]
pub(super) struct Chances {
    of: BTreeMap<Trouble, SmallRng>,
    /// Faults so far, with those that were left out.
    drawn: u64,
    pub(super) counts: BTreeMap<Trouble, u64>,
}

impl Chances {
    pub(super) fn new(seed: u64) -> Self {
        let of = Trouble::ALL.into_iter().map(|trouble| {
            let own = seed ^ (trouble as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (trouble, SmallRng::seed_from_u64(own))
        });
        Self { of: of.collect(), drawn: 0, counts: BTreeMap::new() }
    }

    fn gap(&mut self, trouble: Trouble, mean: Duration) -> Duration {
        let chance = self.of.get_mut(&trouble).expect("each has one");
        mean.mul_f64(2.0 * chance.random::<f64>()) + Duration::from_micros(1)
    }

    /// The next fault of this kind, unless it is left out.
    fn draw(&mut self, trouble: Trouble, setting: &Setting) -> Option<Fault> {
        let chance = self.of.get_mut(&trouble).expect("each has one");
        let host = chance.random_range(0..setting.hosts as usize);
        let fault = Fault { host, long: chance.random(), which: chance.random() };
        self.drawn += 1;
        (!setting.without.contains(&self.drawn)).then(|| {
            *self.counts.entry(trouble).or_default() += 1;
            fault
        })
    }

    pub(super) fn drawn(&self) -> u64 {
        self.drawn
    }
}

impl Lab {
    /// The weather has changed: from now on these come.
    pub(super) fn plan_troubles(&mut self) {
        self.weather += 1;
        for trouble in Trouble::ALL {
            self.plan_trouble(trouble);
        }
    }

    fn plan_trouble(&mut self, trouble: Trouble) {
        let troubles =
            if self.quiet { &self.setting.quiet_troubles } else { &self.setting.troubles };
        if let Some(mean) = troubles.every(trouble) {
            let after = self.chances.gap(trouble, mean);
            self.plan(after, Happening::Trouble(trouble, self.weather));
        }
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) {
        self.plan_trouble(trouble);
        let Some(fault) = self.chances.draw(trouble, &self.setting) else { return };
        if self.setting.trace {
            let number = self.chances.drawn();
            self.tell_trace(&format!("fault {number}: {} {fault:?}", trouble.name()));
        }
        let Fault { host, long, which } = fault;
        let index = self.struck(trouble, host, long);
        let up_to = |seconds: f64| Duration::from_secs_f64(seconds * long);
        let disk = if which < 0.6 { Which::Agent(index) } else { Which::Collector };
        match trouble {
            Trouble::Cut => {
                if let Some(link) = self.hosts[index].link {
                    self.cut(link);
                }
            }
            Trouble::Corruption => self.corrupted(index),
            Trouble::Silence => {
                let ways: &[Way] = match which {
                    0.0..0.4 => &[Way::Up],
                    0.4..0.8 => &[Way::Down],
                    _ => &[Way::Up, Way::Down],
                };
                self.falls_silent(index, ways, up_to(90.0));
            }
            Trouble::Loss => {
                let until = self.now + up_to(120.0);
                self.hosts[index].ways.lossy(until, 0.05 + 0.6 * which);
            }
            Trouble::AgentCrash => self.agent_crashes(index),
            Trouble::KeeperDeath => self.a_keeper_dies(index, which, long > 0.8),
            Trouble::WorkerStop => {
                let longest = match which * 30.0 % 3.0 {
                    0.0..1.0 => 0.4,
                    1.0..2.0 => 60.0,
                    _ => 2.0,
                };
                self.worker_stops(index, up_to(longest), which);
            }
            Trouble::Sleep => self.falls_asleep(index, self.setting.sleeps.mul_f64(long), which),
            Trouble::CoordinatorCrash => {
                self.coordinator_crashes(self.setting.away.mul_f64(long), which);
            }
            Trouble::CommitHangs => self.commits_from = self.now + up_to(8.0),
            Trouble::StoreFull => self.commits_from = self.now + up_to(90.0),
            Trouble::WallJump => {
                let far = i64::try_from(up_to(100_000.0).as_secs()).unwrap_or(0);
                self.wall_jumped_s += if which < 0.5 { far } else { -far };
            }
            Trouble::Owner => {
                self.owner_comes(index, which);
                let after = self.setting.owner_stays.mul_f64(long);
                self.plan(after, Happening::OwnerLeaves(self.hosts[index].id));
            }
            Trouble::Drain => {
                let id = self.hosts[index].id;
                self.happen(Happening::Drains(id, true));
                self.plan(up_to(20.0), Happening::Drains(id, false));
            }
            Trouble::Restored => self.store_goes_back(long, which),
            Trouble::Twin => self.twin_comes(index, which, up_to(300.0)),
            Trouble::CoordinatorStop => {
                let leases = self.setting.config.lease.as_secs_f64() * 3.0;
                let longest = [0.5, 3.0, leases, 90.0][host % 4];
                self.coordinator_stops(up_to(longest), which);
            }
            Trouble::Apart => {
                // Some stay apart, whatever the weather.
                let longest = if long < 0.7 { 300.0 } else { 1e6 };
                self.agents_part(index, which, up_to(longest));
            }
            Trouble::DiskFull => {
                let free = up_to(1_000.0).as_secs().saturating_sub(500);
                self.disk_is_full(disk, free, up_to(300.0));
            }
            Trouble::SyncRefused => self.disk_refuses(disk, up_to(90.0)),
            Trouble::BitFlip => self.a_bit_flips(index, disk == Which::Collector),
            Trouble::PowerLoss => {
                self.power_goes(disk, u32::try_from(up_to(6.0).as_secs()).unwrap_or(0));
            }
            Trouble::DiskRestored => self.a_disk_goes_back(index),
            Trouble::CollectorCrash => self.collector_dies(false),
            Trouble::CollectorCut => match which {
                0.0..0.4 => self.collector_is_cut(),
                0.4..0.5 => self.collector_falls_silent(&[Way::Up, Way::Down], up_to(90.0)),
                0.5..0.6 => self.collector_falls_silent(&[Way::Up], up_to(90.0)),
                0.6..0.7 => self.collector_falls_silent(&[Way::Down], up_to(90.0)),
                _ => self.collector_loses_frames(up_to(120.0), which - 0.35),
            },
        }
    }

    fn falls_asleep(&mut self, index: usize, long: Duration, which: f64) {
        let (id, now) = (self.hosts[index].id, self.now);
        if !self.hosts[index].asleep {
            // The agent may be told before, and has a moment then.
            if which < 0.3 && self.hosts[index].is_up() {
                self.tell(index, Event::AboutToSleep);
            }
            if self.hosts[index].is_up() {
                self.last_beat(index);
            }
            self.hosts[index].places.iter_mut().for_each(|place| place.account(now));
            self.hosts[index].asleep = true;
        }
        self.plan(long, Happening::Awakes(id));
    }

    fn owner_comes(&mut self, index: usize, which: f64) {
        let id = self.hosts[index].id;
        if !std::mem::replace(&mut self.hosts[index].owner_here, true) {
            self.plan(Duration::ZERO, Happening::OwnerTypes(id));
        }
        if which < 0.1 {
            self.pause(index);
        }
        if which > 0.9 && self.setting.failures > 0.0 {
            self.stop_a_guest(index);
        }
    }

    /// Or is stopped, which is as good for its guest, in a while.
    fn a_keeper_dies(&mut self, index: usize, which: f64, is_stopped: bool) {
        let keepers: Vec<_> = self.hosts[index]
            .places
            .iter()
            .zip(0..)
            .filter_map(|(place, at)| Some((at, place.keeper?.number)))
            .collect();
        let chosen = keepers
            .iter()
            .zip(1..)
            .find(|(_, nth)| which * keepers.len() as f64 <= f64::from(*nth));
        let chosen = chosen.map(|(keeper, _)| *keeper);
        let Some((at, number)) = chosen.filter(|_| !self.hosts[index].asleep) else { return };
        if is_stopped {
            let host = &mut self.hosts[index];
            let now = host.clock.reads(self.now);
            if let Some(keeper) = &mut host.places[usize::from(at)].keeper {
                keeper.stopped.get_or_insert(now);
            }
        } else {
            self.keeper_dies(index, gleaner_common::id::PlaceId(at), number);
        }
    }

    pub(super) fn drains_workstation(&mut self, id: u32, drained: bool) {
        if self.core.is_none() && !drained {
            // The admin tries again.
            return self.plan(Duration::from_secs(1), Happening::Drains(id, drained));
        }
        let workstation = WorkstationId(id);
        self.handle(gleaner_coordinator_core::Event::Drained { workstation, drained, now: true });
    }

    /// The owner claims the machine.
    fn pause(&mut self, index: usize) {
        if self.hosts[index].is_up() {
            self.tell(index, Event::Pause(Pause { by: "ann".to_owned(), until: None }));
            self.hosts[index].paused = true;
        }
    }

    pub(super) fn resume(&mut self, index: usize) {
        if self.hosts[index].paused && self.hosts[index].is_up() {
            self.hosts[index].paused = false;
            self.tell(index, Event::Resume);
        }
    }

    fn stop_a_guest(&mut self, index: usize) {
        let now = self.hosts[index].clock.reads(self.now);
        let guests = self.hosts[index].agent.iter().flat_map(|it| it.status(now).guests);
        let Some(fence) = guests.last().map(|guest| guest.fence) else { return };
        if self.hosts[index].is_up() {
            self.tell(index, Event::Stop { fence, by: "ann".to_owned() });
        }
    }

    pub(super) fn agent_crashes(&mut self, index: usize) {
        let (id, link) = (self.hosts[index].id, self.hosts[index].link);
        self.hosts[index].crash();
        self.usage.agent_dies(index);
        self.streams_end(id);
        self.ways_end(index);
        if let Some(link) = link {
            self.cut(link);
        }
        let after = self.up_to(Duration::from_secs(20));
        self.plan(after, Happening::AgentStarts(id));
    }

    /// Nothing goes wrong any more, and what has gone wrong is over.
    pub(super) fn become_calm(&mut self) {
        self.weather += 1;
        self.calm = true;
        self.commits_from = self.now;
        self.usage_becomes_calm();
        self.plan(Duration::ZERO, Happening::CoordinatorContinues);
        for index in 0..self.hosts.len() {
            self.hosts[index].owner_here = false;
            self.hosts[index].ways.heal(self.now);
            self.resume(index);
            let id = self.hosts[index].id;
            self.plan(Duration::ZERO, Happening::Continues(id));
            self.plan(Duration::ZERO, Happening::Awakes(id));
            self.plan(Duration::ZERO, Happening::AgentStarts(id));
            if id <= self.setting.hosts {
                self.plan(Duration::ZERO, Happening::Drains(id, false));
            }
        }
    }
}
