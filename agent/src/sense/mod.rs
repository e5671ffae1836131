//! The senses: what the machine says of its owner.
//!
//! Each sensor watches file descriptors, or looks from time to time, and
//! reports observations; what they mean is decided in `agent/core`. All of
//! them hang on one epoll descriptor, [`Senses::fd`], so that the event loop waits
//! for one thing. Synchronous, and never waits itself.
//!
//! The promise: a keystroke is reported as soon as a program has read it, a
//! flood of them costs four looks a second, and what cannot be watched is
//! said, never passed over.

mod filesystem;
mod input;
mod load;
mod share;
mod sleep;
mod terminals;
mod users;

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use gleaner_agent_core::occupancy::{Observation, Sensor};
use gleaner_common::time::Moment;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;

pub(crate) use self::filesystem::{Reread, read_notices};
use self::input::InputSensor;
use self::load::LoadSensor;
pub(crate) use self::share::parse_cpu;
use self::sleep::{ClockEvent, ClockWatch};
use self::terminals::Terminals;
use self::users::Users;
use crate::config::SensorsConfig;

/// What the senses must know of the agent itself, to look past it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// The control group (v2) above all guest places, where there is one.
    pub(crate) guests_cgroup: Option<PathBuf>,
    /// Guests' user ids: their terminals and logins do not count.
    pub(crate) guest_uids: Range<u32>,
    pub(crate) cores: u16,
    /// Only the tasks of this control group (v2) make the load: for lab hosts
    /// that share a machine.
    pub(crate) load_cgroup: Option<PathBuf>,
}

const TERMINALS: u64 = 0;
/// Input devices have odd numbers from here on.
const INPUT: u64 = 1;

/// All sensors but logind's.
#[derive(Debug)]
pub(crate) struct Senses {
    epoll: OwnedFd,
    terminals: Terminals,
    input: InputSensor,
    load: LoadSensor,
    users: Users,
    clock: ClockWatch,
    /// What each last said of its health.
    health: Vec<Observation>,
}

impl Senses {
    /// Opens everything. The observations are the first ones: each sensor's
    /// health, when the terminals were last used, the load, the users.
    ///
    /// # Errors
    /// Only if there are no file descriptors left at all: a sensor that fails
    /// reports itself sick instead.
    pub(crate) fn open(
        now: Moment,
        config: &SensorsConfig,
        own: &Own,
    ) -> io::Result<(Self, Vec<Observation>)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut seen = vec![];
        let terminals = Terminals::open(now, config, own, &mut seen);
        if let Some(inotify) = terminals.fd() {
            epoll::add(&epoll, inotify, EventData::new_u64(TERMINALS), EventFlags::IN)?;
        }
        let input = InputSensor::open(now, &config.input, epoll.try_clone()?, INPUT);
        let load = LoadSensor::open(now, own);
        let users = Users::new(config, own);
        let clock = ClockWatch::new();
        let mut senses = Self { epoll, terminals, input, load, users, clock, health: vec![] };
        seen.append(&mut senses.wake(now));
        Ok((senses, seen))
    }

    /// Readable when [`Senses::ready`] has something to read.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Reads what has come. Without anything to read it costs one call.
    pub(crate) fn ready(&mut self, now: Moment) -> Vec<Observation> {
        let mut seen = vec![];
        let mut events = [MaybeUninit::uninit(); 16];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error means that a signal came between: the caller comes back.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&at_once)) else {
            return seen;
        };
        for event in events {
            let token = event.data.u64();
            if token == TERMINALS {
                self.terminals.ready(now, &mut seen);
                if self.terminals.owners_changed() {
                    self.users.look(now, true, &mut seen);
                }
            } else {
                self.input.ready(now, token, &mut seen);
            }
        }
        self.tell_health(&mut seen);
        seen
    }

    /// When [`Senses::wake`] is due. Ask again after every `ready` and `wake`.
    pub(crate) fn deadline(&self) -> Moment {
        [self.terminals.deadline(), self.input.deadline(), Some(self.load.deadline())]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Moment::MAX)
    }

    /// Looks where looking is due; too early or too often is harmless.
    pub(crate) fn wake(&mut self, now: Moment) -> Vec<Observation> {
        let mut seen = vec![];
        for event in self.clock.look() {
            match event {
                ClockEvent::Slept(span) => {
                    tracing::info!(?span, "the machine slept");
                    seen.push(Observation::Woke);
                }
                ClockEvent::WallSet { by_s } => tracing::warn!(by_s, "the wall clock was set"),
            }
        }
        self.terminals.wake(now, &mut seen);
        self.input.wake(now, &mut seen);
        if self.load.wake(now, &mut seen) {
            self.users.look(now, false, &mut seen);
        }
        self.tell_health(&mut seen);
        seen
    }

    /// Are there guests now? The load is then looked at every second, without
    /// their share. `keepers` are the processes above them, for machines
    /// without control groups.
    pub(crate) fn set_guests(&mut self, now: Moment, present: bool, keepers: &[u32]) {
        self.load.set_guests(now, present, keepers);
    }

    /// Each sensor's health, when it is another than before.
    fn tell_health(&mut self, seen: &mut Vec<Observation>) {
        let now = [
            (Sensor::Terminals, self.terminals.health()),
            (Sensor::Input, self.input.health()),
            (Sensor::Load, self.load.health()),
        ]
        .map(|(sensor, health)| Observation::Health { sensor, health });
        seen.extend(now.iter().filter(|health| !self.health.contains(health)).cloned());
        self.health = now.to_vec();
    }
}

/// How long a device is not listened to after it was used. Terminals are
/// really not heard meanwhile, see `occupancy::INPUT_BLIND`.
const MUTED: Duration = gleaner_agent_core::occupancy::INPUT_BLIND;

#[cfg(test)]
mod tests {
    use super::terminals::tests::{alone, line};
    use super::*;
    use gleaner_agent_core::occupancy::Health;
    use gleaner_shell::clock::Clock;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(senses: &Senses) -> bool {
        let fd = senses.fd();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_once)).unwrap() > 0
    }

    fn opened(now: Moment, config: &SensorsConfig) -> (Senses, Vec<Observation>) {
        Senses::open(now, config, &Own { cores: 2, ..Own::default() }).unwrap()
    }

    #[test]
    fn at_first_every_sensor_says_how_it_is_and_the_load_and_users_are_told() {
        let (_, seen) = opened(Clock::new().now(), &SensorsConfig::default());
        for sensor in [Sensor::Terminals, Sensor::Input, Sensor::Load] {
            let of = |seen: &&Observation| matches!(seen, Observation::Health { sensor: s, .. } if *s == sensor);
            assert_eq!(seen.iter().filter(of).count(), 1, "{sensor}: {seen:?}");
        }
        assert!(seen.iter().any(|seen| matches!(seen, Observation::Load(_))));
        assert!(seen.iter().any(|seen| matches!(seen, Observation::Users { .. })));
    }

    #[test]
    fn a_keystroke_makes_the_one_descriptor_readable() {
        let _one = alone();
        let clock = Clock::new();
        let (mut senses, _) = opened(clock.now(), &SensorsConfig::default());
        let line = line();
        senses.ready(clock.now());
        line.press_a_key();
        assert!(is_readable(&senses));
        let now = clock.now();
        let seen = senses.ready(now);
        let name = line.name();
        let ours = |seen: &Observation| matches!(seen, Observation::Input { source, .. } if *source == name);
        assert!(seen.iter().any(ours), "{seen:?}");
        assert!(senses.deadline() <= now + MUTED, "it is to be heard again");
    }

    #[test]
    fn who_comes_to_a_terminal_is_counted_at_once() {
        let _one = alone();
        let now = Clock::new().now();
        let parent = tempfile::tempdir().unwrap();
        let pattern = format!("{}/#", parent.path().display());
        let config = SensorsConfig { terminals: vec![pattern], ..SensorsConfig::default() };
        let (mut senses, _) = opened(now, &config);
        let line = line();
        // Stands for a new terminal of the owner's.
        std::os::unix::fs::symlink(line.path(), parent.path().join("7")).unwrap();
        let uid = rustix::process::getuid().as_raw();
        let came = Observation::Users { by: Sensor::Terminals, uids: [uid].into() };
        assert!(senses.ready(now).contains(&came), "not in the next minute");
        std::fs::remove_file(parent.path().join("7")).unwrap();
        let went = Observation::Users { by: Sensor::Terminals, uids: [].into() };
        assert!(senses.ready(now).contains(&went));
    }

    #[test]
    fn a_change_of_health_is_told_once() {
        let parent = tempfile::tempdir().unwrap();
        let config = SensorsConfig { input: parent.path().to_owned(), ..SensorsConfig::default() };
        let now = Clock::new().now();
        let (mut senses, _) = opened(now, &config);
        let path = parent.path().join("event0");
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let sick = |seen: &Observation| {
            matches!(seen, Observation::Health { sensor: Sensor::Input, health: Health::Sick(_) })
        };
        assert!(senses.ready(now).iter().any(sick));
        assert!(!senses.ready(now).iter().any(sick));
    }
}
