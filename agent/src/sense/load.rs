//! The owner's load: everything that wants a core, but for the guests and the
//! agent itself.
//!
//! Without guests the kernel's own averages say it all, at the price of one
//! small file every five seconds. With guests it looks every second at exact
//! CPU times: all tasks', less the guests' control group's, less the agent's.
//! A lab host that shares its machine with others counts one control group
//! instead of the machine.
//!
//! Knows nothing of criteria; the averages are made in `agent/core`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_agent_core::load::LoadSample;
use gleaner_agent_core::occupancy::{Health, Observation};
use gleaner_common::time::Moment;
use gleaner_common::usage::LoadAverages;

use super::Own;
use super::filesystem::Reread;
use super::share::{Guests, Share, cgroup_cpu, threads_of};
use crate::container::cgroup::is_inside;

/// How often the kernel takes its samples, too (`LOAD_FREQ`).
const IDLE_EVERY: Duration = Duration::from_secs(5);

/// The fast path: somebody is to be protected now.
const GUESTS_EVERY: Duration = Duration::from_secs(1);

/// How long CPU times are looked at after the last guest has gone: an owner
/// who has just driven it away goes on working.
const AFTER_GUESTS: Duration = Duration::from_secs(60);

/// What makes the load.
#[derive(Debug)]
enum Scope {
    Machine {
        averages: io::Result<Reread>,
        stat: io::Result<Reread>,
    },
    /// Everything in a control group and below it.
    Cgroup {
        path: PathBuf,
        agent_inside: bool,
    },
}

/// The sensor.
#[derive(Debug)]
pub(crate) struct LoadSensor {
    scope: Scope,
    guests_cgroup: Option<PathBuf>,
    keepers: Vec<u32>,
    guests: bool,
    /// There have been guests since the last sample.
    had_guests: bool,
    /// Until when CPU times are worth their price.
    measure_until: Moment,
    look_at: Moment,
    /// What the guests have used since the agent started, as far as seen.
    guests_cpu: Duration,
    /// What their group or keepers told at the last sample.
    guests_before: Option<Duration>,
    /// The owner's time never goes back, even where clocks of different grain are compared.
    owner_cpu: Duration,
    health: Health,
}

impl LoadSensor {
    pub(crate) fn open(now: Moment, own: &Own) -> Self {
        let scope = match &own.load_cgroup {
            Some(path) => {
                Scope::Cgroup { path: path.clone(), agent_inside: is_inside("self", path) }
            }
            None => Scope::Machine {
                averages: Reread::open(Path::new("/proc/loadavg")),
                stat: Reread::open(Path::new("/proc/stat")),
            },
        };
        Self {
            scope,
            guests_cgroup: own.guests_cgroup.clone(),
            keepers: vec![],
            guests: false,
            had_guests: false,
            measure_until: now,
            look_at: now,
            guests_cpu: Duration::ZERO,
            guests_before: None,
            owner_cpu: Duration::ZERO,
            health: Health::Well,
        }
    }

    pub(crate) fn set_guests(&mut self, now: Moment, present: bool, keepers: &[u32]) {
        if present && !self.guests {
            // The first look is the base of the next one's rates.
            self.look_at = self.look_at.min(now);
        }
        self.had_guests |= self.guests || present;
        self.guests = present;
        if self.guests_cgroup.is_none() && self.keepers != keepers {
            self.keepers = keepers.to_vec();
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.look_at
    }

    pub(crate) fn health(&self) -> Health {
        self.health.clone()
    }

    /// Takes a sample if one is due. Was one due?
    pub(crate) fn wake(&mut self, now: Moment, seen: &mut Vec<Observation>) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now + if self.guests { GUESTS_EVERY } else { IDLE_EVERY };
        if self.had_guests {
            self.measure_until = now + AFTER_GUESTS;
        }
        match self.sample(now) {
            Ok(sample) => {
                self.health = Health::Well;
                self.had_guests = self.guests;
                seen.push(Observation::Load(sample));
            }
            Err(error) => self.health = Health::Sick(error.to_string()),
        }
        true
    }

    fn sample(&mut self, now: Moment) -> io::Result<LoadSample> {
        let guests = self.guests_share()?;
        let measure = now < self.measure_until;
        let (mut kernel, mut agent_inside) = (None, true);
        let (all, cpu) = match &mut self.scope {
            Scope::Machine { averages, stat } => {
                let text = opened(averages, "/proc/loadavg")?.text()?;
                let (averages, running) = parse_loadavg(text)?;
                kernel = Some(averages);
                let all = if measure {
                    parse_stat(opened(stat, "/proc/stat")?.text()?)?
                } else {
                    Share::default()
                };
                (Share { running, ..all }, measure.then_some(all.cpu))
            }
            Scope::Cgroup { path, agent_inside: inside } => {
                agent_inside = *inside;
                let cpu = cgroup_cpu(path).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
                let (running, blocked) = threads_of(path);
                (Share { cpu, running, blocked }, Some(cpu))
            }
        };
        // Whoever reads these files is running at that moment.
        let (own, itself) = if agent_inside { (own_cpu(), 1) } else { (Duration::ZERO, 0) };
        let cpu = cpu.map(|all| {
            self.owner_cpu = self.owner_cpu.max(all.saturating_sub(guests.cpu + own));
            self.owner_cpu
        });
        Ok(LoadSample {
            running: f64::from(all.running.saturating_sub(guests.running + itself)),
            blocked: f64::from(all.blocked.saturating_sub(guests.blocked)),
            cpu,
            kernel,
            guests: self.had_guests,
        })
    }

    fn guests_share(&mut self) -> io::Result<Share> {
        let guests = match (&self.guests_cgroup, &self.scope) {
            // Elsewhere in the tree: nothing of theirs is counted to begin with.
            (Some(guests), Scope::Cgroup { path, .. }) if !guests.starts_with(path) => {
                return Ok(Share::default());
            }
            (Some(guests), _) => Guests::Cgroup(guests.clone()),
            (None, _) => Guests::Keepers(self.keepers.clone()),
        };
        if !self.had_guests {
            self.guests_before = None;
            return Ok(Share { cpu: self.guests_cpu, ..Share::default() });
        }
        let share = guests.share()?;
        let before = self.guests_before.replace(share.cpu).unwrap_or(share.cpu);
        // Their group may be a new one, which begins at nothing.
        self.guests_cpu += share.cpu.saturating_sub(before);
        Ok(Share { cpu: self.guests_cpu, ..share })
    }
}

fn opened<'a>(file: &'a mut io::Result<Reread>, path: &str) -> io::Result<&'a mut Reread> {
    file.as_mut().map_err(|error| io::Error::other(format!("{path}: {error}")))
}

/// CPU time of this process: staging files for guests is not the owner's work.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// `0.41 0.39 0.36 1/94 11987`: averages, then runnable of all tasks.
fn parse_loadavg(text: &str) -> io::Result<(LoadAverages, u32)> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<f32>().ok());
    let running = fields.get(3).and_then(|text| text.split_once('/')?.0.parse().ok());
    match (number(0), number(1), number(2), running) {
        (Some(one), Some(five), Some(fifteen), Some(running)) => {
            Ok((LoadAverages { one, five, fifteen }, running))
        }
        _ => Err(malformed("/proc/loadavg", text)),
    }
}

/// The tasks' times of the first line, in ticks (user, nice and system come
/// first; interrupts are nobody's task), and `procs_blocked`.
fn parse_stat(text: &str) -> io::Result<Share> {
    let mut ticks = None;
    let mut blocked = None;
    for line in text.lines() {
        if let Some(times) = line.strip_prefix("cpu ") {
            let times: Vec<u64> =
                times.split_ascii_whitespace().filter_map(|time| time.parse().ok()).collect();
            ticks = times.get(..3).map(|times| times.iter().sum::<u64>());
        } else if let Some(count) = line.strip_prefix("procs_blocked ") {
            blocked = count.trim().parse().ok();
        }
    }
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    match (ticks, blocked) {
        (Some(ticks), Some(blocked)) => {
            let cpu = Duration::from_secs_f64(ticks as f64 / per_second as f64);
            Ok(Share { cpu, running: 0, blocked })
        }
        _ => Err(malformed("/proc/stat", text)),
    }
}

fn malformed(path: &str, text: &str) -> io::Error {
    let start: String = text.chars().take(40).collect();
    io::Error::new(io::ErrorKind::InvalidData, format!("{path} begins `{}`", start.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_agent_core::load::Load;
    use std::process::{Child, Command};

    /// A process that uses one core, ended with the test.
    struct Burner(Child);

    fn burn() -> Burner {
        Burner(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }

    impl Drop for Burner {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sampled(sensor: &mut LoadSensor, at: Moment) -> LoadSample {
        let mut seen = vec![];
        assert!(sensor.wake(at, &mut seen), "{at:?}");
        match seen.pop() {
            Some(Observation::Load(sample)) => sample,
            other => panic!("{other:?}: {:?}", sensor.health()),
        }
    }

    #[test]
    fn the_kernels_files_are_read() {
        let (averages, running) = parse_loadavg("0.41 0.39 0.36 1/94 11987\n").unwrap();
        assert_eq!((averages.one, averages.fifteen, running), (0.41, 0.36, 1));
        assert!(parse_loadavg("0.41 0.39").is_err());
        let stat = "cpu  100 20 30 4000 9 5 5 77 0 0\ncpu0 1 1 1\nprocs_blocked 3\n";
        let share = parse_stat(stat).unwrap();
        let per_second = rustix::param::clock_ticks_per_second();
        assert_eq!(share.blocked, 3);
        assert_eq!(share.cpu, Duration::from_secs_f64(150.0 / per_second as f64));
        assert!(parse_stat("nothing").unwrap_err().to_string().contains("`nothing`"));
    }

    #[test]
    fn without_guests_it_looks_every_five_seconds_and_with_guests_every_second() {
        let own = Own::default();
        let mut sensor = LoadSensor::open(Moment::ZERO, &own);
        let sample = sampled(&mut sensor, Moment::ZERO);
        assert!(sample.kernel.is_some() && !sample.guests);
        assert_eq!(sensor.deadline(), Moment::ZERO + IDLE_EVERY);
        let soon = Moment::ZERO + Duration::from_millis(100);
        sensor.set_guests(soon, true, &[]);
        assert!(sampled(&mut sensor, soon).guests);
        assert_eq!(sensor.deadline(), soon + GUESTS_EVERY);
    }

    /// Guests and owner as real processes, told apart by their parents: needs
    /// no rights. How long it takes to have used some CPU time depends on the
    /// machine, so the clock of this test is the burner's own CPU time.
    #[test]
    fn a_guests_time_is_taken_out_and_an_owners_is_not() {
        let guest = burn();
        let keepers = [guest.0.id()];
        let own = Own::default();
        let mut sensor = LoadSensor::open(Moment::ZERO, &own);
        sensor.set_guests(Moment::ZERO, true, &keepers);
        let burnt = |burner: &Burner| Guests::Keepers(vec![burner.0.id()]).share().unwrap().cpu;
        let all = || parse_stat(&std::fs::read_to_string("/proc/stat").unwrap()).unwrap().cpu;
        // All is counted for longer than the sensor counts, the guest for less.
        let all_before = all();
        let before = sampled(&mut sensor, Moment::ZERO).cpu.unwrap();
        let guest_before = burnt(&guest);
        while burnt(&guest) < guest_before + Duration::from_millis(400) {
            std::thread::yield_now();
        }
        let guest = burnt(&guest).saturating_sub(guest_before);
        let later = Moment::ZERO + GUESTS_EVERY;
        let owner = sampled(&mut sensor, later).cpu.unwrap().saturating_sub(before);
        let all = all().saturating_sub(all_before);
        // Other tests burn, too; but what the guest burnt is not in it.
        let ticks = Duration::from_millis(120);
        assert!(owner <= all.saturating_sub(guest) + ticks, "{owner:?} of {all:?} less {guest:?}");
    }

    #[test]
    fn a_rise_of_the_owners_use_shows_in_the_next_sample() {
        let own = Own::default();
        let clock = gleaner_shell::clock::Clock::new();
        let mut sensor = LoadSensor::open(clock.now(), &own);
        let mut load = Load::new(64);
        sensor.set_guests(clock.now(), true, &[]);
        let owner = burn();
        // The burner is ours, and not below a keeper: an owner's.
        let deadline = clock.now() + Duration::from_secs(30);
        while load.use_cores().is_none_or(|used| used < 0.3) {
            let now = clock.now();
            assert!(now < deadline, "{:?}", load.use_cores());
            if now >= sensor.deadline() {
                load.sample(now, &sampled(&mut sensor, now));
            }
            std::thread::yield_now();
        }
        drop(owner);
    }

    /// A control group of this test's own, where the rights allow one.
    struct Group(PathBuf);

    impl Group {
        fn new(name: &str) -> Option<Self> {
            let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
            let root = mounts.into_iter().find(|m| Path::new(m).join("cgroup.procs").exists())?;
            let path = Path::new(root).join(format!("gleaner-test-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).ok()?;
            Some(Self(path))
        }

        fn add(&self, process: &Burner) {
            std::fs::write(self.0.join("cgroup.procs"), process.0.id().to_string()).unwrap();
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            // Processes leave it a moment after they have been waited for.
            while std::fs::remove_dir(&self.0)
                .is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
            {
                std::thread::yield_now();
            }
        }
    }

    /// A lab host: its own control group is its machine.
    #[test]
    fn of_a_lab_host_only_its_own_tasks_count_and_not_its_guests() {
        let Some(host) = Group::new("host") else {
            return gleaner_skip::without_lab("no right to make control groups");
        };
        let guests = Group(host.0.join("guests"));
        std::fs::create_dir(&guests.0).unwrap();
        let own = Own {
            guests_cgroup: Some(guests.0.clone()),
            load_cgroup: Some(host.0.clone()),
            ..Own::default()
        };
        let mut sensor = LoadSensor::open(Moment::ZERO, &own);
        let (stranger, guest, owner) = (burn(), burn(), burn());
        guests.add(&guest);
        sensor.set_guests(Moment::ZERO, true, &[]);
        let mut s = 0;
        let mut sample = |sensor: &mut LoadSensor| {
            s += 1;
            sampled(sensor, Moment::ZERO + Duration::from_secs(s))
        };
        let before = sample(&mut sensor).cpu.unwrap();
        let burnt = |group: &Group| cgroup_cpu(&group.0).unwrap();
        while burnt(&guests) < Duration::from_millis(200) {
            std::thread::yield_now();
        }
        // Times are added up a tick at a time, of one group after the other.
        let grain = Duration::from_millis(40);
        let earlier = burnt(&guests);
        let idle = sample(&mut sensor);
        let grain = grain + burnt(&guests).saturating_sub(earlier);
        assert!(idle.cpu.unwrap() <= before + grain, "a stranger or a guest counts: {idle:?}");
        assert!(idle.running < 0.5, "{idle:?}");

        host.add(&owner);
        let at_most = |guests: Duration| burnt(&host).saturating_sub(guests);
        let at_least = |all: Duration| all.saturating_sub(burnt(&guests));
        let begun = at_most(burnt(&guests));
        while at_least(burnt(&host)) < begun + Duration::from_millis(200) {
            std::thread::yield_now();
        }
        let busy = sample(&mut sensor);
        assert!(busy.cpu.unwrap() >= before + Duration::from_millis(150), "{busy:?}");
        assert!((0.5..1.5).contains(&busy.running), "{busy:?}");
        drop((stranger, guest, owner));
    }

    #[test]
    fn a_control_group_that_is_not_there_makes_the_sensor_sick() {
        let path = Some("/sys/fs/cgroup/nobody-has-this".into());
        let own = Own { load_cgroup: path, ..Own::default() };
        let mut sensor = LoadSensor::open(Moment::ZERO, &own);
        assert!(sensor.wake(Moment::ZERO, &mut vec![]));
        let Health::Sick(why) = sensor.health() else { panic!("{:?}", sensor.health()) };
        assert!(why.starts_with("/sys/fs/cgroup/nobody-has-this: "), "{why}");
    }
}
