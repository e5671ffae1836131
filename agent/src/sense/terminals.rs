//! Terminals: who types where.
//!
//! inotify tells when a program has *read* from a terminal, which is when a
//! key was pressed there: console, serial line, ssh and multiplexer alike.
//! Output does not count.
//!
//! What the kernel gives, measured on 6.18 with `/dev/pts` and with a devpts
//! mounted elsewhere:
//!
//! - Opening a new terminal (`/dev/ptmx`) makes a `CREATE` in its directory
//!   before anybody can type there, so a new terminal is watched from its
//!   first keystroke on.
//! - A watch on the directory never tells of reads of the terminals in it
//!   (since 6.15 by intent: it would show strangers who types), so each has a
//!   watch of its own; that takes the right to read it.
//! - A watch with `ONESHOT` is gone after one event. It is set again when the
//!   terminal has been mute for a while: a flood of keys costs four events a
//!   second.
//! - The access *time* of a terminal moves only every 8 s (`tty_update_time`,
//!   so that it does not show the rhythm of passwords). It is good enough
//!   where there can be no watch: another user's terminal for an agent that
//!   is not root, or no watches left.
//!
//! Knows nothing of what follows from a keystroke.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_agent_core::occupancy::{Health, Observation};
use gleaner_common::time::{Moment, WallTime};
use gleaner_shell::clock::Clock;
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};

use super::filesystem::{Pattern, read_notices};
use super::{MUTED, Own};
use crate::config::SensorsConfig;

/// How often to look where nothing can be watched. Half of what the access
/// time takes to move would be enough.
const LOOK_EVERY: Duration = Duration::from_secs(4);

/// Who was to be heard again so long ago and was not may have typed meanwhile.
const LATE: Duration = Duration::from_millis(50);

/// More terminals than anybody has; beyond them the directory is not one of
/// terminals.
const TERMINALS_MAX: usize = 4_096;

/// The sensor.
#[derive(Debug)]
pub(crate) struct Terminals {
    inotify: Option<OwnedFd>,
    patterns: Vec<Pattern>,
    ignored: Vec<PathBuf>,
    guest_uids: Range<u32>,
    directories: BTreeMap<PathBuf, Directory>,
    known: BTreeMap<PathBuf, Listening>,
    watches: BTreeMap<i32, PathBuf>,
    look_at: Moment,
    /// One has come, gone, or changed its owner.
    owners_changed: bool,
}

/// How new terminals are noticed.
#[derive(Debug)]
enum Directory {
    Watched,
    /// By looking; why not by a watch.
    Looked(io::Error),
    /// New terminals are not noticed at all.
    Lost(io::Error),
}

/// How a terminal is listened to.
#[derive(Debug)]
enum Listening {
    Watched,
    /// The terminal is not heard before then: it was used a moment ago.
    Muted(Moment),
    /// By its access time; why not by a watch.
    Looked {
        accessed: WallTime,
        why: io::Error,
    },
}

impl Terminals {
    pub(crate) fn open(
        now: Moment,
        config: &SensorsConfig,
        own: &Own,
        seen: &mut Vec<Observation>,
    ) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Self::with(now, inotify::init(flags), config, own, seen)
    }

    fn with(
        now: Moment,
        inotify: rustix::io::Result<OwnedFd>,
        config: &SensorsConfig,
        own: &Own,
        seen: &mut Vec<Observation>,
    ) -> Self {
        let mut sensor = Self {
            inotify: inotify.ok(),
            patterns: config.terminals.iter().map(|text| Pattern::new(text)).collect(),
            ignored: config.terminals_ignored.clone(),
            guest_uids: own.guest_uids.clone(),
            directories: BTreeMap::new(),
            known: BTreeMap::new(),
            watches: BTreeMap::new(),
            look_at: now + LOOK_EVERY,
            owners_changed: false,
        };
        sensor.look_through();
        seen.extend(sensor.last_used());
        sensor
    }

    /// `None` where nothing can be watched.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Reads what inotify has to tell.
    pub(crate) fn ready(&mut self, now: Moment, seen: &mut Vec<Observation>) {
        let Some(inotify) = self.inotify.take() else { return };
        read_notices(&inotify, |watch, flags, name| self.notice(now, watch, flags, name, seen));
        self.inotify = Some(inotify);
        // Added here, not in `notice`: there the descriptor is in use.
        let unheard: Vec<_> = self.unheard().collect();
        for path in unheard {
            self.listen(&path);
        }
    }

    /// Has one come, gone, or changed its owner since this was asked last?
    pub(crate) fn owners_changed(&mut self) -> bool {
        std::mem::take(&mut self.owners_changed)
    }

    pub(crate) fn deadline(&self) -> Option<Moment> {
        let muted = self.known.values().filter_map(|listening| match listening {
            Listening::Muted(until) => Some(*until),
            Listening::Watched | Listening::Looked { .. } => None,
        });
        muted.chain(self.must_look().then_some(self.look_at)).min()
    }

    /// Listens again to those that were muted, and looks at those that cannot
    /// be listened to.
    pub(crate) fn wake(&mut self, now: Moment, seen: &mut Vec<Observation>) {
        let due = |(path, listening): (&PathBuf, &Listening)| match listening {
            Listening::Muted(until) if now >= *until => Some((path.clone(), *until)),
            Listening::Muted(_) | Listening::Watched | Listening::Looked { .. } => None,
        };
        for (path, until) in self.known.iter().filter_map(due).collect::<Vec<_>>() {
            self.listen(&path);
            // Nobody listened for longer than is allowed for: we stood still.
            if until > Moment::ZERO && now.since(until) > LATE {
                seen.push(used(short_name(&path)));
            }
        }
        if self.must_look() && now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.look_through();
            self.look_at_access_times(seen);
        }
    }

    pub(crate) fn health(&self) -> Health {
        let lost: Vec<_> = self
            .directories
            .iter()
            .filter_map(|(path, directory)| match directory {
                Directory::Lost(error) => Some(format!("{}: {error}", path.display())),
                Directory::Watched | Directory::Looked(_) => None,
            })
            .collect();
        if self.directories.is_empty() || lost.len() == self.directories.len() {
            return Health::Absent(format!("no terminals to watch: {}", lost.join(", ")));
        }
        if !lost.is_empty() {
            return Health::Sick(lost.join(", "));
        }
        match self.looked_at() {
            Some((path, error, more)) => Health::Degraded(format!(
                "{}{} cannot be watched ({error}); looked at every {} s instead",
                path.display(),
                if more > 0 { format!(" and {more} more") } else { String::new() },
                LOOK_EVERY.as_secs()
            )),
            None => Health::Well,
        }
    }

    /// The first thing that is looked at instead of watched, and how many more.
    fn looked_at(&self) -> Option<(&Path, &io::Error, usize)> {
        let directories = self.directories.iter().filter_map(|(path, directory)| match directory {
            Directory::Looked(error) => Some((path.as_path(), error)),
            Directory::Watched | Directory::Lost(_) => None,
        });
        let terminals = self.known.iter().filter_map(|(path, listening)| match listening {
            Listening::Looked { why, .. } => Some((path.as_path(), why)),
            Listening::Watched | Listening::Muted(_) => None,
        });
        let mut all = directories.chain(terminals);
        let (path, error) = all.next()?;
        Some((path, error, all.count()))
    }

    fn must_look(&self) -> bool {
        self.directories.values().any(|directory| !matches!(directory, Directory::Watched))
            || self.known.values().any(|listening| matches!(listening, Listening::Looked { .. }))
    }

    fn notice(
        &mut self,
        now: Moment,
        watch: i32,
        flags: ReadFlags,
        name: Option<&OsStr>,
        seen: &mut Vec<Observation>,
    ) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            // So much has happened that not all could be told.
            seen.push(used("a terminal"));
            self.known.clear();
            self.look_at = now;
            self.directories.values_mut().for_each(|directory| {
                *directory = Directory::Lost(io::Error::other("too many events"));
            });
            return;
        }
        let Some(path) = self.watches.get(&watch).cloned() else { return };
        if flags.contains(ReadFlags::IGNORED) {
            self.watches.remove(&watch);
            if let Some(directory) = self.directories.get_mut(&path) {
                *directory = Directory::Lost(io::Error::other("is gone"));
            }
            // Gone without having been used: see whether it is still there.
            if let Some(listening @ Listening::Watched) = self.known.get_mut(&path) {
                *listening = Listening::Muted(Moment::ZERO);
            }
            return;
        }
        match name {
            None if flags.contains(ReadFlags::ACCESS) => self.heard(now, &path, seen),
            None => {}
            Some(name) => self.changed(&path.join(name), flags),
        }
    }

    fn heard(&mut self, now: Moment, path: &Path, seen: &mut Vec<Observation>) {
        let Some(listening) = self.known.get_mut(path) else { return };
        *listening = Listening::Muted(now + MUTED);
        seen.push(used(short_name(path)));
    }

    /// A file of a watched directory came, went, or changed its owner.
    fn changed(&mut self, path: &Path, flags: ReadFlags) {
        self.owners_changed |= self.is_chosen(path);
        if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.known.remove(path);
        } else if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) || self.is_looked(path)
        {
            self.known.remove(path);
            // Listened to when all notices are read.
            if self.is_chosen(path) && self.known.len() < TERMINALS_MAX {
                self.known.insert(path.to_owned(), Listening::Muted(Moment::ZERO));
            }
        }
    }

    fn is_looked(&self, path: &Path) -> bool {
        matches!(self.known.get(path), Some(Listening::Looked { .. }))
    }

    fn unheard(&self) -> impl Iterator<Item = PathBuf> {
        self.known
            .iter()
            .filter(|(_, listening)| matches!(listening, Listening::Muted(Moment::ZERO)))
            .map(|(path, _)| path.clone())
    }

    fn is_chosen(&self, path: &Path) -> bool {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return false;
        };
        !self.ignored.iter().any(|ignored| ignored == path)
            && self.patterns.iter().any(|p| p.directory == directory && p.matches(name))
    }

    /// Goes through all directories that are not watched.
    fn look_through(&mut self) {
        for pattern in self.patterns.clone() {
            if matches!(self.directories.get(&pattern.directory), None | Some(Directory::Lost(_))) {
                let directory = self.watch_directory(&pattern.directory);
                self.directories.insert(pattern.directory.clone(), directory);
            }
        }
        // After the watches, so that none can appear unnoticed in between.
        for pattern in self.patterns.clone() {
            match pattern.files() {
                Ok(files) => files.iter().for_each(|path| self.found(path)),
                Err(error) => {
                    self.directories.insert(pattern.directory, Directory::Lost(error));
                }
            }
        }
    }

    fn found(&mut self, path: &Path) {
        let known = self.known.contains_key(path);
        if !known && self.is_chosen(path) && self.known.len() < TERMINALS_MAX {
            self.listen(path);
        }
    }

    fn watch_directory(&mut self, path: &Path) -> Directory {
        let flags = WatchFlags::ONLYDIR
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB;
        match self.watch(path, flags) {
            Ok(()) => Directory::Watched,
            Err(error) if path.is_dir() => Directory::Looked(error),
            Err(error) => Directory::Lost(error),
        }
    }

    /// Listens to a terminal, for the first time or again.
    fn listen(&mut self, path: &Path) {
        let Some(metadata) = self.terminal(path) else {
            self.known.remove(path);
            return;
        };
        let listening = match self.watch(path, WatchFlags::ACCESS | WatchFlags::ONESHOT) {
            Ok(()) => Listening::Watched,
            Err(why) => Listening::Looked { accessed: accessed(&metadata), why },
        };
        self.known.insert(path.to_owned(), listening);
    }

    /// Is it a terminal that counts?
    fn terminal(&self, path: &Path) -> Option<Metadata> {
        let metadata = std::fs::metadata(path).ok()?;
        let counts =
            metadata.file_type().is_char_device() && !self.guest_uids.contains(&metadata.uid());
        counts.then_some(metadata)
    }

    fn watch(&mut self, path: &Path, flags: WatchFlags) -> io::Result<()> {
        let Some(inotify) = &self.inotify else {
            return Err(io::Error::other("there is no inotify to be had"));
        };
        let watch = inotify::add_watch(inotify, path, flags)?;
        self.watches.insert(watch, path.to_owned());
        Ok(())
    }

    fn look_at_access_times(&mut self, seen: &mut Vec<Observation>) {
        let wall = Clock::new().wall();
        self.known.retain(|path, listening| {
            let Listening::Looked { accessed: before, .. } = listening else { return true };
            let Ok(metadata) = std::fs::metadata(path) else { return false };
            let now = accessed(&metadata);
            if now > *before {
                *before = now;
                let ago = wall.since(now).min(LOOK_EVERY);
                seen.push(Observation::Input { source: short_name(path), ago });
            }
            true
        });
    }

    /// When the terminals were last used before there was anybody to watch.
    fn last_used(&self) -> Option<Observation> {
        let last = self.known.keys().filter_map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            let never = metadata
                .created()
                .is_ok_and(|created| metadata.accessed().is_ok_and(|accessed| accessed <= created));
            (!never).then(|| (accessed(&metadata), path))
        });
        let (at, path) = last.max()?;
        let ago = Clock::new().wall().since(at);
        Some(Observation::Input { source: short_name(path), ago })
    }
}

fn accessed(metadata: &Metadata) -> WallTime {
    WallTime(metadata.atime().saturating_mul(1_000_000_000).saturating_add(metadata.atime_nsec()))
}

fn used(source: impl Into<String>) -> Observation {
    Observation::Input { source: source.into(), ago: Duration::ZERO }
}

/// "pts/3", "tty1": as `who` and people say it.
fn short_name(path: &Path) -> String {
    let Some(name) = path.file_name() else { return path.display().to_string() };
    let parent = path.parent().and_then(Path::file_name);
    match parent.filter(|_| name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)) {
        Some(parent) => format!("{}/{}", parent.display(), name.display()),
        None => name.display().to_string(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::pty;
    use rustix::time::Timespec;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Terminals have numbers, which are given again: one test at a time.
    static ONE: Mutex<()> = Mutex::new(());

    pub(in crate::sense) fn alone() -> MutexGuard<'static, ()> {
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A real terminal, with a program at its end: us.
    pub(in crate::sense) struct Outgoing {
        keyboard: OwnedFd,
        program: OwnedFd,
        path: PathBuf,
    }

    pub(in crate::sense) fn line() -> Outgoing {
        let keyboard = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
        pty::unlockpt(&keyboard).unwrap();
        let name = pty::ptsname(&keyboard, vec![]).unwrap();
        let path = PathBuf::from(name.to_str().unwrap());
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let program = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        let mut raw = rustix::termios::tcgetattr(&program).unwrap();
        raw.make_raw();
        let when = rustix::termios::OptionalActions::Now;
        rustix::termios::tcsetattr(&program, when, &raw).unwrap();
        Outgoing { keyboard, program, path }
    }

    impl Outgoing {
        pub(in crate::sense) fn name(&self) -> String {
            short_name(&self.path)
        }

        pub(in crate::sense) fn path(&self) -> &Path {
            &self.path
        }

        pub(in crate::sense) fn press_a_key(&self) {
            assert_eq!(rustix::io::write(&self.keyboard, b"k").unwrap(), 1);
            assert_eq!(rustix::io::read(&self.program, &mut [0; 8]).unwrap(), 1);
        }
    }

    fn config(terminals: &[&str]) -> SensorsConfig {
        SensorsConfig {
            terminals: terminals.iter().copied().map(String::from).collect(),
            ..SensorsConfig::default()
        }
    }

    fn opened(config: &SensorsConfig, own: &Own) -> Terminals {
        Terminals::open(Moment::ZERO, config, own, &mut vec![])
    }

    /// The notices that are there now; the kernel gives them at once.
    fn heard(sensor: &mut Terminals, now: Moment) -> Vec<String> {
        let mut seen = vec![];
        if let Some(inotify) = sensor.fd() {
            let mut set = [PollFd::new(&inotify, PollFlags::IN)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut set, Some(&at_once)).unwrap() == 0 {
                return vec![];
            }
        }
        sensor.ready(now, &mut seen);
        seen.into_iter()
            .filter_map(|seen| {
                let Observation::Input { source, .. } = seen else { return None };
                Some(source)
            })
            .collect()
    }

    /// How often this terminal was heard; other tests have theirs.
    fn times(sensor: &mut Terminals, now: Moment, line: &Outgoing) -> usize {
        let name = short_name(&line.path);
        heard(sensor, now).into_iter().filter(|source| *source == name).count()
    }

    #[test]
    fn a_new_terminal_is_heard_from_its_first_keystroke() {
        let _one = alone();
        let mut sensor = opened(&SensorsConfig::default(), &Own::default());
        let line = line();
        assert_eq!(times(&mut sensor, Moment::ZERO, &line), 0);
        line.press_a_key();
        assert_eq!(times(&mut sensor, Moment::ZERO, &line), 1);
    }

    #[test]
    fn output_is_not_input() {
        let _one = alone();
        let line = line();
        let mut sensor = opened(&SensorsConfig::default(), &Own::default());
        rustix::io::write(&line.program, b"a message to all").unwrap();
        assert_eq!(rustix::io::read(&line.keyboard, &mut [0; 64]).unwrap(), 16);
        assert_eq!(times(&mut sensor, Moment::ZERO, &line), 0);
    }

    #[test]
    fn a_flood_of_keys_is_one_event_until_the_terminal_is_heard_again() {
        let _one = alone();
        let line = line();
        let mut sensor = opened(&SensorsConfig::default(), &Own::default());
        (0..1_000).for_each(|_| line.press_a_key());
        assert_eq!(times(&mut sensor, Moment::ZERO, &line), 1);
        (0..1_000).for_each(|_| line.press_a_key());
        assert_eq!(times(&mut sensor, Moment::ZERO, &line), 0);
        sensor.wake(Moment::ZERO + MUTED, &mut vec![]);
        line.press_a_key();
        assert_eq!(times(&mut sensor, Moment::ZERO + MUTED, &line), 1);
    }

    #[test]
    fn who_may_have_typed_while_nobody_listened_has() {
        let _one = alone();
        let line = line();
        let mut sensor = opened(&SensorsConfig::default(), &Own::default());
        let mut types_and_wakes = |late: Duration| {
            line.press_a_key();
            assert_eq!(times(&mut sensor, Moment::ZERO, &line), 1);
            let mut seen = vec![];
            sensor.wake(Moment::ZERO + MUTED + late, &mut seen);
            seen.contains(&used(short_name(&line.path)))
        };
        assert!(!types_and_wakes(LATE));
        assert!(types_and_wakes(Duration::from_secs(1)));
    }

    #[test]
    fn a_number_that_is_used_again_is_a_new_terminal() {
        let _one = alone();
        let mut sensor = opened(&SensorsConfig::default(), &Own::default());
        for _ in 0..3 {
            let line = line();
            assert_eq!(times(&mut sensor, Moment::ZERO, &line), 0);
            line.press_a_key();
            assert_eq!(times(&mut sensor, Moment::ZERO, &line), 1);
        }
    }

    #[test]
    fn terminals_of_our_own_do_not_count() {
        let _one = alone();
        let line = line();
        let mut ignoring = SensorsConfig::default();
        ignoring.terminals_ignored.push(line.path.clone());
        let mut sensor = opened(&ignoring, &Own::default());
        let uid = rustix::process::getuid().as_raw();
        let guests = Own { guest_uids: uid..uid + 1, ..Own::default() };
        let mut of_guests = opened(&SensorsConfig::default(), &guests);
        line.press_a_key();
        assert_eq!(times(&mut sensor, Moment::ZERO, &line), 0);
        assert_eq!(times(&mut of_guests, Moment::ZERO, &line), 0);
    }

    #[test]
    fn where_nothing_can_be_watched_the_access_time_tells() {
        let _one = alone();
        let line = line();
        let own = Own::default();
        let none = Err(rustix::io::Errno::MFILE);
        let config = SensorsConfig::default();
        let mut sensor = Terminals::with(Moment::ZERO, none, &config, &own, &mut vec![]);
        let Health::Degraded(how) = sensor.health() else { panic!("{:?}", sensor.health()) };
        assert!(how.contains("looked at every 4 s"), "{how}");

        let mut seen = vec![];
        sensor.wake(Moment::ZERO + LOOK_EVERY, &mut seen);
        let name = short_name(&line.path);
        let named = |seen: &Observation| matches!(seen, Observation::Input { source, .. } if *source == name);
        assert!(!seen.iter().any(named));
        // Reading moves the time only every 8 s; a test does not wait for it.
        let wall = Clock::new().wall().0 + 9_000_000_000;
        let accessed = rustix::fs::Timespec { tv_sec: wall / 1_000_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: accessed, last_modification: accessed };
        rustix::fs::futimens(&line.program, &times).unwrap();
        sensor.wake(Moment::ZERO + LOOK_EVERY + LOOK_EVERY, &mut seen);
        assert_eq!(seen.iter().filter(|seen| named(seen)).count(), 1);
    }

    #[test]
    fn a_directory_that_is_missing_makes_the_sensor_absent_or_sick_and_is_found_later() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("pts");
        let missing = format!("{}/#", directory.display());
        let alone = opened(&config(&[&missing]), &Own::default());
        assert!(matches!(alone.health(), Health::Absent(_)), "{:?}", alone.health());
        let mut sensor = opened(&config(&["/dev/pts/#", &missing]), &Own::default());
        assert!(matches!(sensor.health(), Health::Sick(_)), "{:?}", sensor.health());
        std::fs::create_dir(&directory).unwrap();
        sensor.wake(sensor.deadline().unwrap(), &mut vec![]);
        // Degraded where there are other users' terminals and we are not root.
        let health = sensor.health();
        assert!(matches!(health, Health::Well | Health::Degraded(_)), "{health:?}");
    }
}
