//! Keyboards, pointers, touch screens: `/dev/input/event*`.
//!
//! Below X11 and Wayland, where idle detectors for one of them are blind to
//! the other, and whoever sits there, logged in or not. Devices that are
//! plugged in later are found by a watch on their directory; `udev` grants
//! access a moment after a device appears, which the watch tells as well.
//!
//! After an event a device is not polled for a while; the kernel keeps what
//! comes meanwhile, so nothing is lost and a moving mouse costs four looks a
//! second. A device that another program grabs for itself (`EVIOCGRAB`) shows
//! nothing here.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_agent_core::occupancy::{Health, Observation};
use gleaner_common::time::Moment;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::MUTED;
use super::filesystem::read_notices;

/// How often to see whether a missing directory has come.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The size of the kernel's `struct input_event`: two longs of time, then
/// type, code and value in eight bytes.
const EVENT_BYTES: usize = 2 * size_of::<libc::c_ulong>() + 8;

/// More than a device's buffer holds in the kernel.
const READS_MAX: usize = 16;

/// Event types, from `linux/input-event-codes.h`.
const EV_SYN: u16 = 0x00;
const EV_KEY: u16 = 0x01;
const EV_REL: u16 = 0x02;
const EV_ABS: u16 = 0x03;
const EV_SW: u16 = 0x05;

/// The code of an `EV_SYN` that says that events were dropped.
const SYN_DROPPED: u16 = 3;

/// The value of an `EV_KEY` that repeats by itself: a book on the keyboard.
const REPEATED: i32 = 2;

/// The sensor. Its devices hang on an epoll descriptor that it is given.
#[derive(Debug)]
pub(crate) struct InputSensor {
    directory: PathBuf,
    epoll: OwnedFd,
    /// What its own descriptors are known by there: the directory's by this,
    /// the devices' by the next ones.
    token: u64,
    inotify: Option<OwnedFd>,
    devices: BTreeMap<u64, Device>,
    /// Devices that cannot be read, and why.
    deaf: BTreeMap<PathBuf, io::Error>,
    /// Why the directory cannot be watched.
    lost: Option<io::Error>,
    next: u64,
    look_at: Moment,
}

#[derive(Debug)]
struct Device {
    path: PathBuf,
    /// "event2 (AT Translated Set 2 keyboard)"
    name: String,
    file: OwnedFd,
    muted: Option<Moment>,
}

impl InputSensor {
    pub(crate) fn open(now: Moment, directory: &Path, epoll: OwnedFd, token: u64) -> Self {
        let mut sensor = Self {
            directory: directory.to_owned(),
            epoll,
            token,
            inotify: None,
            devices: BTreeMap::new(),
            deaf: BTreeMap::new(),
            lost: None,
            next: token + 1,
            look_at: now,
        };
        sensor.look_through(now);
        sensor
    }

    /// Reads the descriptor with this token.
    pub(crate) fn ready(&mut self, now: Moment, token: u64, seen: &mut Vec<Observation>) {
        if token == self.token {
            self.read_directory();
            return;
        }
        let Some(device) = self.devices.get_mut(&token) else { return };
        match used(&device.file) {
            Ok(false) => {}
            Ok(true) => {
                let source = device.name.clone();
                seen.push(Observation::Input { source, ago: Duration::ZERO });
                device.muted = Some(now + MUTED);
                self.poll(token, EventFlags::empty());
            }
            Err(_) => self.forget(token),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Moment> {
        let muted = self.devices.values().filter_map(|device| device.muted);
        muted.chain(self.lost.as_ref().map(|_| self.look_at)).min()
    }

    /// Polls again the devices that were muted, and looks for a directory
    /// that was missing.
    pub(crate) fn wake(&mut self, now: Moment, _seen: &mut Vec<Observation>) {
        let due = |device: &Device| device.muted.is_some_and(|until| now >= until);
        let tokens = self.devices.iter().filter(|(_, device)| due(device));
        for token in tokens.map(|(token, _)| *token).collect::<Vec<_>>() {
            if let Some(device) = self.devices.get_mut(&token) {
                device.muted = None;
            }
            self.poll(token, EventFlags::IN);
        }
        if self.lost.is_some() && now >= self.look_at {
            self.look_through(now);
        }
    }

    pub(crate) fn health(&self) -> Health {
        if let Some((path, error)) = self.deaf.first_key_value() {
            let repair = if error.kind() == io::ErrorKind::PermissionDenied {
                "; put the agent's user into the group `input`"
            } else {
                ""
            };
            return Health::Sick(format!("{}: {error}{repair}", path.display()));
        }
        match &self.lost {
            Some(error) if self.directory.is_dir() => {
                Health::Sick(format!("{}: {error}", self.directory.display()))
            }
            Some(_) => Health::Absent(format!("{}: no such directory", self.directory.display())),
            None if self.devices.is_empty() => {
                Health::Absent(format!("{}: no keyboard or pointer", self.directory.display()))
            }
            None => Health::Well,
        }
    }

    fn look_through(&mut self, now: Moment) {
        self.look_at = now + LOOK_EVERY;
        // The watch comes first, so that none can appear unnoticed in between.
        self.lost = self.watch().err();
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            self.appeared(&entry.file_name());
        }
    }

    fn watch(&mut self) -> io::Result<()> {
        if self.inotify.is_none() {
            let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
            let inotify = inotify::init(flags)?;
            epoll::add(&self.epoll, &inotify, EventData::new_u64(self.token), EventFlags::IN)?;
            self.inotify = Some(inotify);
        }
        let Some(inotify) = &self.inotify else { return Ok(()) };
        let flags = WatchFlags::ONLYDIR
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE;
        inotify::add_watch(inotify, &self.directory, flags)?;
        Ok(())
    }

    fn read_directory(&mut self) {
        let Some(inotify) = self.inotify.take() else { return };
        let (mut came, mut went) = (vec![], vec![]);
        read_notices(&inotify, |_, flags, name| match name {
            Some(name) if flags.contains(ReadFlags::DELETE) => went.push(name.to_owned()),
            Some(name) => came.push(name.to_owned()),
            None if flags.contains(ReadFlags::IGNORED) => {
                self.lost = Some(io::Error::other("is gone"));
            }
            None => {}
        });
        self.inotify = Some(inotify);
        for name in went {
            let path = self.directory.join(name);
            self.deaf.remove(&path);
            let token = self.devices.iter().find(|(_, device)| device.path == path);
            if let Some(token) = token.map(|(token, _)| *token) {
                self.forget(token);
            }
        }
        for name in &came {
            self.appeared(name);
        }
    }

    fn appeared(&mut self, name: &OsStr) {
        let path = self.directory.join(name);
        let is_event = name.to_str().is_some_and(|name| name.starts_with("event"));
        if !is_event || self.devices.values().any(|device| device.path == path) {
            return;
        }
        match self.listen(&path) {
            Ok(()) => {
                self.deaf.remove(&path);
            }
            // Gone again already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.deaf.insert(path, error);
            }
        }
    }

    fn listen(&mut self, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let token = self.next;
        epoll::add(&self.epoll, &file, EventData::new_u64(token), EventFlags::IN)?;
        self.next += 1;
        let (path, name) = (path.to_owned(), full_name(path));
        self.devices.insert(token, Device { path, name, file, muted: None });
        Ok(())
    }

    fn poll(&mut self, token: u64, flags: EventFlags) {
        let Some(device) = self.devices.get(&token) else { return };
        if epoll::modify(&self.epoll, &device.file, EventData::new_u64(token), flags).is_err() {
            self.forget(token);
        }
    }

    fn forget(&mut self, token: u64) {
        if let Some(device) = self.devices.remove(&token) {
            // Closing it would do, but for a copy in a child.
            let _ = epoll::delete(&self.epoll, &device.file);
        }
    }
}

/// Reads what a device has to say: has somebody used it?
///
/// Reads all of it, so that what happened long ago is not taken for news when
/// the device is polled again; a device that never stops is left in between.
fn used(device: &OwnedFd) -> io::Result<bool> {
    let mut buffer = [0; EVENT_BYTES * 64];
    let mut used = false;
    for _ in 0..READS_MAX {
        match rustix::io::read(device, &mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                used |= buffer[..length].chunks_exact(EVENT_BYTES).any(is_use);
                if length < buffer.len() {
                    break;
                }
            }
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(used)
}

/// Does this event come from a hand? Keys and buttons pressed or let go,
/// motion, a lid; not frame marks, lamps, scan codes, or a key that repeats.
fn is_use(event: &[u8]) -> bool {
    let [.., t0, t1, c0, c1, v0, v1, v2, v3] = *event else { return false };
    let kind = u16::from_ne_bytes([t0, t1]);
    let code = u16::from_ne_bytes([c0, c1]);
    let value = i32::from_ne_bytes([v0, v1, v2, v3]);
    match kind {
        EV_KEY => value != REPEATED,
        EV_REL | EV_ABS | EV_SW => true,
        EV_SYN => code == SYN_DROPPED,
        _ => false,
    }
}

/// "event2 (AT Translated Set 2 keyboard)"
fn full_name(path: &Path) -> String {
    let short = path.file_name().map_or_else(String::new, |name| name.display().to_string());
    let name = std::fs::read_to_string(format!("/sys/class/input/{short}/device/name"));
    match name.as_deref().map(str::trim) {
        Ok(name) if !name.is_empty() => format!("{short} ({name})"),
        Ok(_) | Err(_) => short,
    }
}

#[cfg(test)]
mod tests {
    //! Test machines have no `/dev/input` and no `/dev/uinput` to make one, so
    //! a FIFO in a private directory stands for a device: it is polled and
    //! read in the same way. What a real device would write is written by hand.

    use super::*;
    use rustix::fs::mknodat;
    use rustix::fs::{CWD, FileType};
    use rustix::time::Timespec;
    use std::mem::MaybeUninit;

    const TOKEN: u64 = 1;

    struct Desk {
        directory: tempfile::TempDir,
        epoll: OwnedFd,
        sensor: InputSensor,
    }

    fn desk() -> Desk {
        let directory = tempfile::tempdir().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mine = epoll.try_clone().unwrap();
        let sensor = InputSensor::open(Moment::ZERO, directory.path(), mine, TOKEN);
        Desk { directory, epoll, sensor }
    }

    impl Desk {
        fn plug_in(&self, name: &str) -> OwnedFd {
            let path = self.directory.path().join(name);
            let mode = Mode::RUSR | Mode::WUSR;
            mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
            rustix::fs::open(&path, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).unwrap()
        }

        /// Who is said to have been used now.
        fn heard(&mut self, now: Moment) -> Vec<String> {
            let mut events = [MaybeUninit::uninit(); 8];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let (events, _) = epoll::wait(&self.epoll, &mut events, Some(&at_once)).unwrap();
            let mut seen = vec![];
            for event in events {
                self.sensor.ready(now, event.data.u64(), &mut seen);
            }
            let source = |seen| {
                let Observation::Input { source, .. } = seen else { panic!("{seen:?}") };
                source
            };
            seen.into_iter().map(source).collect()
        }
    }

    fn event(kind: u16, code: u16, value: i32) -> Vec<u8> {
        let mut bytes = vec![0; EVENT_BYTES - 8];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
        bytes
    }

    #[track_caller]
    fn check(events: &[(u16, u16, i32)], used: bool) {
        let mut desk = desk();
        let device = desk.plug_in("event0");
        assert_eq!(desk.heard(Moment::ZERO), Vec::<String>::new());
        let bytes: Vec<u8> = events.iter().flat_map(|(k, c, v)| event(*k, *c, *v)).collect();
        rustix::io::write(&device, &bytes).unwrap();
        assert_eq!(desk.heard(Moment::ZERO) == ["event0"], used, "{events:?}");
    }

    #[test]
    fn the_parser_reads_what_the_kernel_writes() {
        assert_eq!(EVENT_BYTES, size_of::<libc::input_event>());
    }

    #[test]
    fn only_a_hand_is_a_use() {
        check(&[(EV_KEY, 30, 1), (EV_SYN, 0, 0)], true);
        check(&[(0x04, 4, 30), (EV_KEY, 30, 0)], true);
        check(&[(EV_REL, 0, -1)], true);
        check(&[(EV_ABS, 0x35, 700)], true);
        check(&[(EV_SW, 0, 0)], true);
        check(&[(EV_SYN, SYN_DROPPED, 0)], true);
        check(&[(EV_SYN, 0, 0)], false);
        check(&[(EV_KEY, 30, REPEATED), (EV_SYN, 0, 1)], false);
        check(&[(0x11, 0, 1), (0x14, 0, 250)], false);
    }

    #[test]
    fn a_device_is_heard_when_it_is_plugged_in_and_forgotten_when_it_goes() {
        let mut desk = desk();
        assert!(matches!(desk.sensor.health(), Health::Absent(_)));
        let device = desk.plug_in("event7");
        desk.plug_in("mouse0");
        assert_eq!(desk.heard(Moment::ZERO), Vec::<String>::new());
        assert_eq!(desk.sensor.health(), Health::Well);
        rustix::io::write(&device, &event(EV_KEY, 30, 1)).unwrap();
        assert_eq!(desk.heard(Moment::ZERO), ["event7"]);
        std::fs::remove_file(desk.directory.path().join("event7")).unwrap();
        desk.heard(Moment::ZERO);
        assert!(matches!(desk.sensor.health(), Health::Absent(_)));
        assert_eq!(desk.sensor.deadline(), None);
    }

    #[test]
    fn a_moving_mouse_is_heard_four_times_a_second() {
        let mut desk = desk();
        let mouse = desk.plug_in("event0");
        desk.heard(Moment::ZERO);
        let mut times = 0;
        for ms in 0..1_000 {
            let now = Moment::ZERO + Duration::from_millis(ms);
            rustix::io::write(&mouse, &event(EV_REL, 0, 1)).unwrap();
            desk.sensor.wake(now, &mut vec![]);
            times += desk.heard(now).len();
        }
        assert_eq!(times, 4);
    }

    #[test]
    fn a_device_that_cannot_be_read_is_named_and_tried_again() {
        let mut desk = desk();
        let path = desk.directory.path().join("event3");
        // A link to itself cannot be opened by anybody, not even by root.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        desk.heard(Moment::ZERO);
        let Health::Sick(why) = desk.sensor.health() else { panic!("{:?}", desk.sensor.health()) };
        assert!(why.contains("event3: "), "{why}");
        std::fs::remove_file(&path).unwrap();
        let _device = desk.plug_in("event3");
        desk.heard(Moment::ZERO);
        assert_eq!(desk.sensor.health(), Health::Well);
    }

    #[test]
    fn a_missing_directory_is_absent_until_it_comes() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("input");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut sensor = InputSensor::open(Moment::ZERO, &directory, epoll, TOKEN);
        assert!(matches!(sensor.health(), Health::Absent(_)));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("event0"), "").unwrap();
        sensor.wake(sensor.deadline().unwrap(), &mut vec![]);
        // A plain file cannot be polled, which is said.
        assert!(matches!(sensor.health(), Health::Sick(_)), "{:?}", sensor.health());
    }
}
