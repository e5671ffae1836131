//! Labs of all kinds: a seed draws how large one is, how long it goes on, which
//! faults there are in it at all, and how often each of them comes.
//!
//! Where everything goes wrong at once, much is never reached: what needs an
//! hour without a crash, or two cuts and nothing else. So most seeds have few
//! kinds of faults (swarm testing, Groce et al. 2012).

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use gleaner_coordinator_core::scheduler::ALL;
use gleaner_coordinator_core::{Config, Policy, SchedulerConfig};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::lab::{Setting, Trouble, Troubles};

/// What differs from what a seed draws: a failure is shrunk by such changes,
/// and repeated with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub rounds: Option<u32>,
    pub hosts: Option<u32>,
    pub submits: Option<u32>,
    /// Kinds of faults that there are not, and single faults by number.
    pub never: BTreeSet<Trouble>,
    pub without: BTreeSet<u64>,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (flag, value) in
            [("rounds", self.rounds), ("hosts", self.hosts), ("submits", self.submits)]
        {
            value.map_or(Ok(()), |value| write!(f, " --{flag} {value}"))?;
        }
        if !self.never.is_empty() {
            let names: Vec<_> = self.never.iter().map(|it| it.name()).collect();
            write!(f, " --never {}", names.join(","))?;
        }
        if !self.without.is_empty() {
            write!(f, " --without {}", ranges(&self.without))?;
        }
        Ok(())
    }
}

/// `1..4,7` for 1, 2, 3, 4 and 7.
fn ranges(numbers: &BTreeSet<u64>) -> String {
    let mut runs: Vec<(u64, u64)> = vec![];
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let said =
        runs.iter().map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}..{last}") }
            },
        );
    said.collect::<Vec<_>>().join(",")
}

/// The lab of this seed.
pub fn draw(seed: u64, changes: &Changes) -> Setting {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x5EED_0F5E_77E5);
    let mut setting = sizes(&mut rng);
    setting.config = config(&mut rng);
    setting.troubles = storm(&mut rng);
    setting.quiet_troubles = breeze(&mut rng, &setting.troubles);
    chances(&mut rng, &mut setting);
    setting.config.quiet_beats_apart = quiet_beats_apart(seed);
    later(&mut SmallRng::seed_from_u64(seed ^ 0x5EED_0001_A7E4), &mut setting);
    setting.newcomers = newcomers(seed);
    changes_sizes(seed, &mut setting);
    latest(&mut SmallRng::seed_from_u64(seed ^ 0x5EED_0004_1A7E), &mut setting);
    let Changes { rounds, hosts, submits, never, without } = changes;
    setting.rounds = rounds.unwrap_or(setting.rounds);
    setting.hosts = hosts.unwrap_or(setting.hosts);
    setting.jobs = submits.unwrap_or(setting.jobs);
    for trouble in never {
        setting.troubles = setting.troubles.without(*trouble);
        setting.quiet_troubles = setting.quiet_troubles.without(*trouble);
    }
    setting.without.clone_from(without);
    setting
}

fn sizes(rng: &mut SmallRng) -> Setting {
    let s = Duration::from_secs;
    Setting {
        hosts: rng.random_range(2..=8),
        jobs: rng.random_range(1..=6),
        quiet_jobs: rng.random_range(0..=3),
        rounds: rng.random_range(2..=8),
        storm: s(rng.random_range(30..=240)),
        quiet: s(rng.random_range(600..=12 * 3_600)),
        work_max: s(rng.random_range(1..=30)),
        quiet_work_max: s(rng.random_range(10..=1_800)),
        subprograms_max: *[1, 8, 40, 120].choose(rng).unwrap_or(&8),
        users: rng.random_range(1..=3),
        away: s(*[1, 15, 60].choose(rng).unwrap_or(&15)),
        sleeps: s(*[5, 30, 300].choose(rng).unwrap_or(&30)),
        ..Setting::default()
    }
}

fn config(rng: &mut SmallRng) -> Config {
    let lease = Duration::from_secs(*[5, 10, 10, 10, 30, 60].choose(rng).unwrap_or(&10));
    let idle = *[20, 20, 60, 120].choose(rng).unwrap_or(&20);
    let mut scheduler = SchedulerConfig::default();
    if rng.random_bool(0.2) {
        scheduler = another_policy(rng);
    }
    Config {
        policy: *Policy::ALL.choose(rng).unwrap_or(&Policy::default()),
        scheduler,
        lease,
        heartbeat: lease.mul_f64(0.3),
        heartbeat_without_guests: Duration::from_secs(idle),
        ..Config::default()
    }
}

fn another_policy(rng: &mut SmallRng) -> SchedulerConfig {
    // Two of them refuse jobs for good, and one has a batch of more jobs than there are
    // processors wait for ever, as its thesis does.
    let ends = |name: &&str| !name.starts_with("kumar-") && *name != "pwp";
    let names: Vec<_> = ALL.iter().map(|it| it.name).filter(ends).collect();
    let policy = (*names.choose(rng).unwrap_or(&"fair")).to_owned();
    SchedulerConfig { policy, patience: Duration::from_secs(2), ..SchedulerConfig::default() }
}

/// In some labs most jobs are programs that policies can make larger and smaller.
fn changes_sizes(seed: u64, setting: &mut Setting) {
    if seed % 8 != 5 {
        return;
    }
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x5EED_0003_51CE);
    setting.programs = rng.random_range(0.6..1.0);
    setting.increases = 0.9;
    setting.jobs = rng.random_range(4..=12);
    setting.quiet_jobs = rng.random_range(0..=8);
    setting.work_max = setting.work_max.max(Duration::from_secs(20));
    setting.config.scheduler = another_policy(&mut rng);
}

/// In most labs agents without guests say as little as if there were thousands of
/// them: otherwise nearly every step would be one's beat in a lab that stands still.
fn quiet_beats_apart(seed: u64) -> Duration {
    let few = Config::default().quiet_beats_apart;
    if seed % 8 == 1 { few } else { Duration::from_secs(10) }
}

/// In half of the labs others enrol and are taken out.
fn newcomers(seed: u64) -> u32 {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x5EED_0002_E270);
    if rng.random_bool(0.5) { rng.random_range(1..=8) } else { 0 }
}

/// Some of the troubles, each as seldom or as often as comes.
fn storm(rng: &mut SmallRng) -> Troubles {
    let many = rng.random_range(0.1..0.7);
    let first = Trouble::ALL.into_iter().filter(|trouble| *trouble < LATER);
    first.fold(Troubles::default(), |troubles, trouble| may_come(rng, many, troubles, trouble))
}

fn may_come(rng: &mut SmallRng, often: f64, troubles: Troubles, trouble: Trouble) -> Troubles {
    let every = 2.0 * 40.0f64.powf(rng.random());
    let comes = rng.random_bool(often);
    if comes { troubles.with(trouble, Duration::from_secs_f64(every)) } else { troubles }
}

/// Troubles from this one on came to labs later: they are drawn by themselves, so that
/// the labs of the corpus stay what they were.
const LATER: Trouble = Trouble::DiskFull;

fn later(rng: &mut SmallRng, setting: &mut Setting) {
    let many = rng.random_range(0.0..0.6);
    setting.collector_goes_back = rng.random_bool(0.5);
    for trouble in Trouble::ALL.into_iter().filter(|trouble| *trouble >= LATER) {
        setting.troubles = may_come(rng, many, std::mem::take(&mut setting.troubles), trouble);
        let every = Duration::from_secs(rng.random_range(1_800..=20_000));
        if setting.troubles.every(trouble).is_some() && rng.random_bool(0.5) {
            let quiet = std::mem::take(&mut setting.quiet_troubles);
            setting.quiet_troubles = quiet.with(trouble, every);
        }
    }
}

/// What came to labs last is drawn by itself as well; append here.
fn latest(rng: &mut SmallRng, setting: &mut Setting) {
    setting.clocks_behind = sometimes(rng, 0.6, 2.0);
    let restores = setting.troubles.every(Trouble::Restored).is_some();
    if setting.clocks_behind > 0.0 && restores && rng.random_bool(0.5) {
        // Copies that nobody marked come to labs without programs only.
        setting.programs = 0.0;
    }
    if rng.random_bool(0.1) {
        many_moves(rng, setting);
    }
}

/// Owners come and go by the minute, and what runs moves away from them.
fn many_moves(rng: &mut SmallRng, setting: &mut Setting) {
    let s = Duration::from_secs;
    setting.moves = rng.random_range(0.5..1.0);
    (setting.hosts, setting.jobs) = (setting.hosts.max(4), setting.jobs.max(6));
    setting.work_max = s(rng.random_range(20..=60));
    setting.subprograms_max = setting.subprograms_max.clamp(8, 40);
    (setting.owner_quiet, setting.owner_stays) = (s(2), s(rng.random_range(5..=20)));
    let (owner, drain) = (s(rng.random_range(1..=5)), s(rng.random_range(5..=30)));
    let troubles = std::mem::take(&mut setting.troubles);
    setting.troubles = troubles.with(Trouble::Owner, owner).with(Trouble::Drain, drain);
    let quiet = std::mem::take(&mut setting.quiet_troubles);
    setting.quiet_troubles = quiet.with(Trouble::Owner, s(rng.random_range(60..=300)));
}

/// In between, the same ones come now and then, and owners to their machines.
fn breeze(rng: &mut SmallRng, storm: &Troubles) -> Troubles {
    let mut quiet = Troubles::default();
    for trouble in storm.kinds() {
        let every = Duration::from_secs(rng.random_range(1_800..=20_000));
        if rng.random_bool(0.5) {
            quiet = quiet.with(trouble, every);
        }
    }
    if rng.random_bool(0.7) {
        quiet = quiet.with(Trouble::Owner, Duration::from_secs(rng.random_range(300..=3_600)));
    }
    quiet
}

/// One of these, or never.
fn sometimes(rng: &mut SmallRng, often: f64, most: f64) -> f64 {
    let value = rng.random_range(0.0..most);
    if rng.random_bool(often) { value } else { 0.0 }
}

fn chances(rng: &mut SmallRng, setting: &mut Setting) {
    setting.late_frames = sometimes(rng, 0.3, 0.02);
    setting.repeats = sometimes(rng, 0.5, 0.05);
    setting.programs = sometimes(rng, 0.6, 1.0);
    setting.obstacles = sometimes(rng, 0.6, 0.4);
    setting.failures = sometimes(rng, 0.4, 0.2);
    let replicated = sometimes(rng, 0.3, 1.0);
    // Replicas that fail in different ways need ever more workstations.
    setting.replicated = if setting.failures > 0.0 { 0.0 } else { replicated };
    let large = sometimes(rng, 0.3, 0.8);
    setting.large = large;
    setting.drift_ppm = *[0, 100, 10_000, 10_000].choose(rng).unwrap_or(&0);
    if rng.random_bool(0.3) {
        setting.owner_quiet = Duration::from_secs(300);
        setting.owner_stays = Duration::from_secs(3_600);
    }
}
