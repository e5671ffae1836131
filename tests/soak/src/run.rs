//! A soak from its beginning to its report.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use gleaner_common::time::Moment;
use gleaner_lab::{Lab, Options};
use gleaner_shell::clock::Clock;

use crate::growth::{Taken, left};
use crate::jump;
use crate::proxy::Proxy;
use crate::report::Report;
use crate::schedule::Schedule;
use crate::settled::Settled;
use crate::usage::Usage;
use crate::user::{Means, User};
use crate::watcher::Watcher;
use crate::witness::{Account, Owners, Stream};
use crate::world::World;

/// How much there is to be of it.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    For(Duration),
    Faults(u64),
}

/// What a soak is to be like.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub hosts: usize,
    pub length: Length,
    /// Everything must end so long after the last fault.
    pub calm: Duration,
    /// No guest may run for longer beside an owner who has typed.
    pub late: Duration,
    pub glean: PathBuf,
    pub guest: PathBuf,
    /// Where logs, the journal and what the witness saw are kept.
    pub keep: Option<PathBuf>,
}

/// The quiet period of all workstations: a key keeps guests away for so long.
const QUIET: Duration = Duration::from_secs(1);

/// Of each daemon's disk.
const DISK_BYTES: u64 = 256 << 20;

/// Short, so that many leases end in a soak.
const COORDINATOR: &str = "lease = \"3s\"\nheartbeat = \"800ms\"";

const PLACES: u16 = 2;

/// More than there are places, so that none is left idle.
const UNFINISHED_BY_PLACE: u32 = 2;

/// The agents dial the relay, which has the port beside the coordinator's.
const RELAY_PORT: u16 = 4434;

/// `Err(missing)`: this machine does not allow such a lab.
type Started = std::result::Result<World, String>;

/// `None`, and why, where the rights do not allow a lab.
///
/// # Errors
/// The lab fails in a way that is no daemon's.
pub fn run(plan: &Plan) -> Result<std::result::Result<Report, String>> {
    let mut world = match start(plan)? {
        Ok(world) => world,
        Err(missing) => return Ok(Err(missing)),
    };
    let before = Taken::by(&world.lab);
    let watcher = Watcher::start(world.lab.hosts.iter().map(gleaner_lab::LabHost::data).collect());
    let begun = Clock.now();
    let (faults, missed) = trouble(plan, &mut world, begun)?;
    let minutes = Clock.now().since(begun).as_secs_f64() / 60.0;
    let calm = calm_down(plan, &mut world)?;
    let usage = usage(&mut world)?;
    let places = plan.hosts * usize::from(PLACES);
    let after = left_over(&mut world, &before, faults.values().sum(), places)?;
    let streams = watcher.stop()?;
    let panics = panics(&world.lab);
    if let Some(to) = &plan.keep {
        keep(to, &world, &streams).with_context(|| format!("cannot keep in {}", to.display()))?;
    }
    let World { lab, proxy, user, keys, hung, deaths, lives, .. } = world;
    let owners = Owners { keys: &keys, hung: &hung };
    let (relayed, met) = proxy.settings.counts();
    let settled = user.settle()?;
    proxy.stop()?;
    drop(lab);
    let account = Account::new(&streams);
    let unwitnessed = settled.succeeded.iter().filter(|it| !account.ended(**it)).count();
    let Settled { jobs, unheard, subprograms, succeeded, cancelled, lost, wrong, stuck, .. } =
        settled;
    Ok(Ok(Report {
        seed: plan.seed,
        hosts: plan.hosts,
        places,
        minutes,
        faults,
        missed,
        skipped: jump::missing().into_iter().collect(),
        datagrams: [relayed, met[0], met[1], met[2], met[3]],
        jobs,
        unheard,
        subprograms,
        succeeded: succeeded.len(),
        cancelled,
        attempts: settled.attempts,
        failures: settled.failures,
        moves: settled.moves,
        retreats: settled.retreats,
        witnessed: account.stretches(),
        unwitnessed,
        lost,
        doubled: account.doubled(),
        wrong,
        stuck,
        calm_s: calm.as_secs_f64(),
        keys: keys.len(),
        late: account.late(owners, nanoseconds(plan.late), nanoseconds(QUIET)),
        late_after_s: plan.late.as_secs_f64(),
        deaths,
        panics,
        usage,
        before,
        after,
        lives: lives.longest(),
    }))
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn start(plan: &Plan) -> Result<Started> {
    let mut options = Options::new(plan.glean.clone(), plan.hosts);
    options.host.places = PLACES;
    options.host.quiet = QUIET;
    COORDINATOR.clone_into(&mut options.coordinator);
    options.disk_bytes = Some(DISK_BYTES);
    let mut lab = Lab::start(options)?;
    if !lab.missing.is_empty() {
        return Ok(Err(lab.missing.join("; ")));
    }
    let coordinator = lab.address().parse()?;
    let mut relay: std::net::SocketAddr = coordinator;
    relay.set_port(RELAY_PORT);
    let proxy = Proxy::start(relay, coordinator, plan.seed)?;
    dial(&mut lab, &relay.to_string())?;
    lab.wait_for_workstations()?;
    lab.wait_for_idle(plan.hosts)?;
    let places = u32::try_from(plan.hosts)? * u32::from(PLACES);
    let means = Means {
        seed: plan.seed,
        identity: lab.admin(),
        address: lab.address().to_owned(),
        guest: fs::read(&plan.guest)
            .with_context(|| format!("cannot read {}", plan.guest.display()))?,
        unfinished: places * UNFINISHED_BY_PLACE,
    };
    let user = User::start(means);
    Ok(Ok(World::new(lab, proxy, user, plan.seed)))
}

/// Lets all agents dial another address than they were enrolled by.
fn dial(lab: &mut Lab, relay: &str) -> Result<()> {
    let address = lab.address().to_owned();
    for host in &mut lab.hosts {
        host.agent.as_mut().context("no agent")?.stop()?;
        let sheet = host.identity().join("identity.toml");
        let text = fs::read_to_string(&sheet)?;
        if !text.contains(&address) {
            bail!("{} does not say {address}", sheet.display());
        }
        fs::write(&sheet, text.replace(&address, relay))?;
        host.start_agent()?;
    }
    Ok(())
}

/// So many faults lie between two looks at what the daemons hold.
const LOOK_EVERY: u64 = 100;

type Faults = BTreeMap<&'static str, u64>;

fn trouble(plan: &Plan, world: &mut World, begun: Moment) -> Result<(Faults, u64)> {
    let (mut faults, mut missed, mut all) = (Faults::new(), 0, 0);
    let mut due = begun;
    for (pause, fault) in Schedule::new(plan.seed, plan.hosts) {
        let is_over = match plan.length {
            Length::For(span) => Clock.now().since(begun) >= span,
            Length::Faults(count) => all >= count,
        };
        if is_over {
            break;
        }
        // A fault that took long is made up for: the next ones come closer together.
        due = due + pause;
        world.pass(due.since(Clock.now()))?;
        if world.carry_out(fault)? {
            all += 1;
            if all % LOOK_EVERY == 0 {
                world.look(all);
            }
            *faults.entry(fault.kind()).or_default() += 1;
        } else {
            missed += 1;
        }
    }
    Ok((faults, missed))
}

/// Until everything has ended, or the bound is reached.
fn calm_down(plan: &Plan, world: &mut World) -> Result<Duration> {
    world.calm()?;
    world.user.submits_no_more();
    let begun = Clock.now();
    let mut open = usize::MAX;
    while open > 0 && Clock.now().since(begun) < plan.calm {
        world.pass(Duration::from_millis(100))?;
        if world.user.open() < open {
            open = world.user.open();
            world.note(&format!("{open} jobs are to end"));
        }
    }
    Ok(Clock.now().since(begun))
}

/// How long the collector may take for the last records.
const USAGE_PATIENCE: Duration = Duration::from_secs(60);

fn usage(world: &mut World) -> Result<Usage> {
    let end = Clock.now() + USAGE_PATIENCE;
    loop {
        let usage = Usage::read(&world.lab, world.agents_killed)?;
        if usage.kept >= usage.told || Clock.now() >= end {
            return Ok(usage);
        }
        world.pass(Duration::from_secs(1))?;
    }
}

/// How long what has ended may take to be gone: a keeper at a place where nobody is waited
/// for stays for a minute after its guest.
const GONE_PATIENCE: Duration = Duration::from_secs(70);

/// What stays, once everything has ended.
fn left_over(world: &mut World, before: &Taken, faults: u64, places: usize) -> Result<Taken> {
    let end = Clock.now() + GONE_PATIENCE;
    loop {
        let after = Taken::by(&world.lab);
        if left(before, &after, faults, places).is_empty() || Clock.now() >= end {
            return Ok(after);
        }
        world.pass(Duration::from_millis(500))?;
    }
}

fn logs(lab: &Lab) -> Vec<(String, PathBuf)> {
    let daemons = ["coordinator", "collector"];
    let daemons = daemons.map(|name| (name.to_owned(), lab.dir().join(format!("{name}.log"))));
    let hosts = lab.hosts.iter().map(|host| (host.name.clone(), host.dir.join("agent.log")));
    daemons.into_iter().chain(hosts).collect()
}

fn panics(lab: &Lab) -> Vec<String> {
    let mut found = vec![];
    for (name, log) in logs(lab) {
        let text = fs::read_to_string(log).unwrap_or_default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if line.contains("panicked at") {
                let why = lines.peek().copied().unwrap_or_default();
                found.push(format!("{name}: {line} {why}"));
            }
        }
    }
    found
}

fn keep(to: &Path, world: &World, streams: &[Stream]) -> Result<()> {
    fs::create_dir_all(to)?;
    for (name, log) in logs(&world.lab) {
        fs::copy(&log, to.join(format!("{name}.log")))?;
    }
    fs::write(to.join("journal"), world.journal.join("\n"))?;
    let seen = streams.iter().map(|stream| {
        let name = stream.subprogram.map(|it| format!("{}.{}", it.job, it.index));
        let last = stream.stamps.last().copied().unwrap_or(0);
        let name = name.unwrap_or_default();
        format!("{name} host{} {} {last} {}", stream.host + 1, stream.began, stream.ended)
    });
    fs::write(to.join("witness"), seen.collect::<Vec<_>>().join("\n"))?;
    Ok(())
}
