//! The lab and what is wrong with it at the moment: carries faults out, and takes
//! them back when their time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use gleaner_common::time::Moment;
use gleaner_common::wire::Request;
use gleaner_lab::daemon::Daemon;
use gleaner_lab::host::is_keeper;
use gleaner_lab::network::{Namespace, SWITCH_ADDRESS};
use gleaner_lab::small_disk::SmallDisk;
use gleaner_lab::{Lab, LabHost, cgroup};
use gleaner_shell::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::growth::{Lives, Taken, worker};
use crate::jump::{self, set_wrong};
use crate::proxy::Proxy;
use crate::schedule::{Disk, Fault, Victim, Way, Weather};
use crate::user::User;

/// Between two keys of one owner: less than the quiet period, which they prolong.
const KEY_EVERY: Duration = Duration::from_millis(500);

/// Nobody has this one: what is sent there is lost in silence.
const NOBODY: &str = "02:00:0a:4d:ff:ff";

/// How often daemons are looked after that should be alive.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// What is to be done later.
#[derive(Debug)]
enum Later {
    Continue(OwnedFd),
    Start(Victim),
    PlugIn(usize),
    /// The plug is moved so many times more, the last time in.
    Flap(usize, u8, Duration),
    BothWays(usize, Way, String),
    Fine(Weather),
    Free(Disk),
    Key(usize, u8),
    Undrain(usize),
    /// Its clock is right again.
    SetRight(u32),
}

/// The lab, and what is under way.
#[derive(Debug)]
pub struct World {
    pub lab: Lab,
    pub proxy: Proxy,
    pub user: User,
    later: BTreeMap<(Moment, u64), Later>,
    laters: u64,
    /// Can clocks be made to jump here?
    jumps: bool,
    /// When the last backup was begun.
    saved: Option<Moment>,
    /// Links that are down, or work one way only.
    cut: BTreeSet<usize>,
    random: StdRng,
    looked: Moment,
    /// Keys by host and time.
    pub keys: Vec<(usize, u64)>,
    /// Hosts whose worker or supervisor stood still, and when.
    pub hung: Vec<(usize, Range<u64>)>,
    pub deaths: Vec<String>,
    /// Of agents or their workers.
    pub agents_killed: u64,
    /// What was done when, for whoever looks for a cause.
    pub journal: Vec<String>,
    /// What daemons hold as time goes on.
    pub lives: Lives,
}

impl World {
    pub fn new(lab: Lab, proxy: Proxy, user: User, seed: u64) -> Self {
        Self {
            lab,
            proxy,
            user,
            later: BTreeMap::new(),
            laters: 0,
            jumps: jump::missing().is_none(),
            saved: None,
            cut: BTreeSet::new(),
            random: StdRng::seed_from_u64(seed),
            looked: Clock.now(),
            keys: vec![],
            hung: vec![],
            deaths: vec![],
            agents_killed: 0,
            journal: vec![],
            lives: Lives::default(),
        }
    }

    /// Lets time pass, and takes back what is over meanwhile.
    ///
    /// # Errors
    /// The lab cannot do it.
    pub fn pass(&mut self, span: Duration) -> Result<()> {
        let end = Clock.now() + span;
        loop {
            self.take_back(Clock.now())?;
            self.look_after_daemons();
            let now = Clock.now();
            if now >= end {
                return Ok(());
            }
            std::thread::sleep(end.since(now).min(Duration::from_millis(20)));
        }
    }

    /// All faults are over.
    ///
    /// # Errors
    /// The lab cannot do it.
    pub fn calm(&mut self) -> Result<()> {
        self.note("calm");
        self.later.retain(|_, later| !matches!(later, Later::Key(..)));
        while !self.later.is_empty() {
            self.take_back(Moment::MAX)?;
        }
        Ok(())
    }

    fn take_back(&mut self, until: Moment) -> Result<()> {
        while let Some(due) = self.later.first_entry().filter(|entry| entry.key().0 <= until) {
            let later = due.remove();
            self.note(&format!("{later:?}"));
            self.carry_out_later(later)?;
        }
        Ok(())
    }

    fn after(&mut self, span: Duration, later: Later) {
        self.laters += 1;
        self.later.insert((Clock.now() + span, self.laters), later);
    }

    /// What is held after so many faults, for the report and for whoever waits for it.
    pub fn look(&mut self, faults: u64) {
        self.lives.look(&self.lab, faults);
        let taken = serde_json::to_string(&Taken::by(&self.lab)).unwrap_or_default();
        self.note(&format!("{faults} faults: {taken}"));
    }

    pub fn note(&mut self, what: &str) {
        let at = Clock.wall().0;
        self.journal.push(format!("{}.{:03} {what}", at / 1_000_000_000, at / 1_000_000 % 1_000));
    }

    /// `false`: there is nothing to be hit, or it has that already.
    ///
    /// # Errors
    /// The lab cannot do it.
    pub fn carry_out(&mut self, fault: Fault) -> Result<bool> {
        let done = match fault {
            Fault::Kill(victim, back) => self.kill(victim, back)?,
            Fault::Stop(victim, span) => self.stop(victim, span),
            Fault::Cut(host, span) => self.unplug(host, Later::PlugIn(host), span)?,
            Fault::Flap(host, times, each) => {
                self.unplug(host, Later::Flap(host, 2 * times - 1, each), each)?
            }
            Fault::OneWay(host, way, span) => self.one_way(host, way, span)?,
            Fault::Weather(weather, percent, span) => self.weather(weather, percent, span),
            Fault::FullDisk(disk, span) => self.fill(disk, span)?,
            Fault::Owner(host, keys) => {
                self.carry_out_later(Later::Key(host, keys))?;
                true
            }
            Fault::Drain { host, now, span } => {
                self.drain(host, true, now);
                self.after(span, Later::Undrain(host));
                true
            }
            Fault::Address(host) => self.change_address(host)?,
            Fault::Backup => self.back_up(),
            Fault::Restore(back) => self.go_back(back)?,
            Fault::Jump(victim, seconds, span) => self.jump(victim, seconds, span),
        };
        self.note(&format!("{}{fault:?}", if done { "" } else { "nothing to hit: " }));
        Ok(done)
    }

    fn carry_out_later(&mut self, later: Later) -> Result<()> {
        match later {
            // Who has died meanwhile needs it no more.
            Later::Continue(pid) => drop(pidfd_send_signal(pid, Signal::CONT)),
            Later::Start(victim) => self.start(victim),
            Later::PlugIn(host) => {
                self.cut.remove(&host);
                self.plug_in(host)?;
            }
            Later::Flap(host, left, each) => {
                if left % 2 == 1 {
                    self.plug_in(host)?;
                } else {
                    self.pull_out(host)?;
                }
                if left == 1 {
                    self.cut.remove(&host);
                } else {
                    self.after(each, Later::Flap(host, left - 1, each));
                }
            }
            Later::BothWays(host, way, address) => {
                self.cut.remove(&host);
                let (network, device, ..) = self.ends(host, way)?;
                // A change of address may have made the kernel forget it.
                let _ = network.ip(&["neigh", "del", &address, "dev", device]);
            }
            Later::Fine(weather) => self.proxy.settings.set(weather, 0),
            Later::Free(disk) => self.disk(disk).context("no disk")?.free()?,
            Later::Key(host, left) => {
                self.lab.hosts[host].type_key()?;
                self.keys.push((host, wall_ns()));
                if left > 1 {
                    self.after(KEY_EVERY, Later::Key(host, left - 1));
                }
            }
            Later::Undrain(host) => self.drain(host, false, false),
            // Who has died meanwhile has no clock any more.
            Later::SetRight(pid) => drop(set_wrong(pid, 0)),
        }
        Ok(())
    }

    // ── processes ──────────────────────────────────────────────────────────

    fn pid(&mut self, victim: Victim) -> Option<u32> {
        let supervisor = |host: usize| self.lab.hosts[host].agent.as_ref().and_then(Daemon::pid);
        match victim {
            Victim::Coordinator => self.lab.coordinator.as_ref().and_then(Daemon::pid),
            Victim::Collector => self.lab.collector.as_ref().and_then(Daemon::pid),
            Victim::Supervisor(host) => supervisor(host),
            Victim::Worker(host) => supervisor(host).and_then(worker),
            Victim::Keeper(host) => {
                let keepers = keepers(&self.lab.hosts[host]);
                let at = self.random.random_range(0..keepers.len().max(1));
                keepers.get(at).copied()
            }
        }
    }

    fn kill(&mut self, victim: Victim, back: Duration) -> Result<bool> {
        let Some(pid) = self.pid(victim) else { return Ok(false) };
        match victim {
            Victim::Worker(_) | Victim::Keeper(_) => {
                let Some(handle) = handle(pid) else { return Ok(false) };
                pidfd_send_signal(handle, Signal::KILL).context("cannot kill")?;
            }
            Victim::Supervisor(host) => self.lab.hosts[host].agent = None,
            Victim::Coordinator => self.lab.coordinator = None,
            Victim::Collector => self.lab.collector = None,
        }
        if matches!(victim, Victim::Worker(_) | Victim::Supervisor(_)) {
            self.agents_killed += 1;
        }
        if !matches!(victim, Victim::Worker(_) | Victim::Keeper(_)) {
            self.after(back, Later::Start(victim));
        }
        Ok(true)
    }

    fn stop(&mut self, victim: Victim, span: Duration) -> bool {
        let Some(handle) = self.pid(victim).and_then(handle) else { return false };
        let done = pidfd_send_signal(&handle, Signal::STOP).is_ok();
        if let Victim::Worker(host) | Victim::Supervisor(host) = victim {
            let from = wall_ns();
            self.hung.push((host, from..from + u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        }
        self.after(span, Later::Continue(handle));
        done
    }

    fn jump(&mut self, victim: Victim, seconds: i64, span: Duration) -> bool {
        let Some(pid) = self.pid(victim).filter(|_| self.jumps) else { return false };
        // Who dies under it has no clock any more.
        let done = set_wrong(pid, seconds).unwrap_or(false);
        if done {
            self.after(span, Later::SetRight(pid));
        }
        done
    }

    /// As a service manager does it: again, if it did not work.
    fn start(&mut self, victim: Victim) {
        let done = match victim {
            Victim::Supervisor(host) if self.lab.hosts[host].agent.is_none() => {
                self.lab.hosts[host].start_agent()
            }
            Victim::Coordinator if self.lab.coordinator.is_none() => self.lab.start_coordinator(),
            Victim::Collector if self.lab.collector.is_none() => self.lab.start_collector(),
            _ => Ok(()),
        };
        if let Err(error) = done {
            // A full disk is a reason; without one it is a finding.
            let full = self.disks_full();
            self.note(&format!("{victim:?} does not start (full disks: {full}): {error:#}"));
            if !full {
                self.deaths.push(format!("{victim:?} does not start: {error:#}"));
            }
            self.after(Duration::from_secs(1), Later::Start(victim));
        }
    }

    fn look_after_daemons(&mut self) {
        if Clock.now().since(self.looked) < LOOK_AFTER {
            return;
        }
        self.looked = Clock.now();
        let hosts = (0..self.lab.hosts.len()).map(Victim::Supervisor);
        for victim in hosts.chain([Victim::Coordinator, Victim::Collector]).collect::<Vec<_>>() {
            let daemon = match victim {
                Victim::Supervisor(host) => &mut self.lab.hosts[host].agent,
                Victim::Collector => &mut self.lab.collector,
                _ => &mut self.lab.coordinator,
            };
            let died =
                daemon.as_ref().and_then(|it| Some((it.expect_alive().err()?, it.last_words())));
            if let Some((error, words)) = died {
                *daemon = None;
                self.note(&format!("{victim:?} died: {error:#}"));
                self.deaths.push(format!("{victim:?}: {error:#}: {words}"));
                self.start(victim);
            }
        }
    }

    // ── links ──────────────────────────────────────────────────────────────

    fn unplug(&mut self, host: usize, back: Later, span: Duration) -> Result<bool> {
        if !self.cut.insert(host) {
            return Ok(false);
        }
        self.pull_out(host)?;
        self.after(span, back);
        Ok(true)
    }

    fn pull_out(&self, host: usize) -> Result<()> {
        self.lab.hosts[host].unplug(self.lab.network.as_ref().context("no network")?)
    }

    fn plug_in(&self, host: usize) -> Result<()> {
        self.lab.hosts[host].plug_in(self.lab.network.as_ref().context("no network")?)
    }

    /// Where packets of this way are sent from: whose table says to whom, by which
    /// device and for which address.
    fn ends(&self, host: usize, way: Way) -> Result<(&Namespace, &'static str, String)> {
        let at = &self.lab.hosts[host];
        match way {
            Way::ToCoordinator => {
                let network = at.network.as_ref().context("no network")?;
                Ok((network, "eth0", SWITCH_ADDRESS.to_owned()))
            }
            Way::FromCoordinator => {
                let network = self.lab.network.as_ref().context("no network")?;
                Ok((&network.switch, "lab", at.address()))
            }
        }
    }

    fn one_way(&mut self, host: usize, way: Way, span: Duration) -> Result<bool> {
        if !self.cut.insert(host) {
            return Ok(false);
        }
        let (network, device, address) = self.ends(host, way)?;
        let to =
            ["neigh", "replace", &address, "lladdr", NOBODY, "nud", "permanent", "dev", device];
        network.ip(&to)?;
        self.after(span, Later::BothWays(host, way, address));
        Ok(true)
    }

    fn change_address(&mut self, host: usize) -> Result<bool> {
        // What was changed for its address must be changed back for it.
        if self.cut.contains(&host) {
            return Ok(false);
        }
        self.lab.hosts[host].change_address()?;
        Ok(true)
    }

    fn weather(&mut self, weather: Weather, percent: u8, span: Duration) -> bool {
        if !self.proxy.settings.is_fine(weather) {
            return false;
        }
        self.proxy.settings.set(weather, percent);
        self.after(span, Later::Fine(weather));
        true
    }

    // ── disks and people ───────────────────────────────────────────────────

    fn disk(&self, disk: Disk) -> Option<&SmallDisk> {
        match disk {
            Disk::Host(host) => self.lab.hosts[host].disk.as_ref(),
            Disk::Coordinator => self.lab.coordinator_disk.as_ref(),
            Disk::Collector => self.lab.collector_disk.as_ref(),
        }
    }

    fn disks_full(&self) -> bool {
        let hosts = (0..self.lab.hosts.len()).map(Disk::Host);
        let mut all = hosts.chain([Disk::Coordinator, Disk::Collector]);
        all.any(|disk| self.disk(disk).is_some_and(SmallDisk::is_full))
    }

    fn fill(&mut self, disk: Disk, span: Duration) -> Result<bool> {
        let Some(found) = self.disk(disk).filter(|disk| !disk.is_full()) else { return Ok(false) };
        found.fill()?;
        self.after(span, Later::Free(disk));
        Ok(true)
    }

    // ── backups ────────────────────────────────────────────────────────────

    /// `glean coordinator .. FILE`: did it?
    fn with_backup(&mut self, what: &[&str]) -> bool {
        let Err(error) = self.lab.with_backup(what) else { return true };
        let said = format!("coordinator {}: {error:#}", what.join(" "));
        self.note(&said);
        if !self.disks_full() {
            self.deaths.push(said);
        }
        false
    }

    fn back_up(&mut self) -> bool {
        if self.lab.coordinator.is_none() {
            return false;
        }
        let begun = Clock.now();
        let done = self.with_backup(&["backup", "--force"]);
        self.saved = if done { Some(begun) } else { self.saved };
        done
    }

    fn go_back(&mut self, back: Duration) -> Result<bool> {
        let Some(saved) = self.saved.filter(|_| self.lab.coordinator.is_some()) else {
            return Ok(false);
        };
        self.lab.coordinator = None;
        let done = self.with_backup(&["restore"]);
        if done {
            self.user.went_back(saved);
            self.clear_replaced()?;
        }
        self.after(back, Later::Start(Victim::Coordinator));
        Ok(done)
    }

    /// What a restored store took the place of is kept beside it, for whoever wants it.
    /// Nobody does here, and its disk is small.
    fn clear_replaced(&self) -> Result<()> {
        for entry in fs::read_dir(self.lab.coordinator_data())? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("replaced-"))
            {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }

    fn drain(&self, host: usize, drained: bool, now: bool) {
        let name = self.lab.hosts[host].name.clone();
        self.user.ask(Request::WorkstationDrain { name, drained, now });
    }
}

fn keepers(host: &LabHost) -> Vec<u32> {
    let guests = host.cgroup.as_ref().map(|path| path.join("guests"));
    let mut found = guests.map(|path| cgroup::processes(&path)).unwrap_or_default();
    found.retain(|pid| is_keeper(*pid));
    found
}

/// As guests tell it.
fn wall_ns() -> u64 {
    Clock.wall().0.unsigned_abs()
}

/// Of the process that has the number now: another that gets it later is not hit.
fn handle(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()
}
