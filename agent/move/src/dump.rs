//! Writing a guest down.
//!
//! ```text
//! frozen ──start──► CRIU inside its namespaces ──pipes──► run ──► frames
//!    ▲               .. and then the processes' memory ──► run ──► frames
//!    │                                                      │
//!    └─────────────── still frozen, whatever happens ───────┘
//! ```
//!
//! The promise: writing a guest down does not end it and does not set it
//! going. It stands still before and after; who asked for the dump then
//! destroys it (the new one is there) or thaws it (it is not).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use gleaner_shell::pool::Pool;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, SpliceFlags};
use rustix::time::ClockId;

use crate::archive;
use crate::capture::{Capture, Left, buffers};
use crate::engine::Engine;
use crate::fingerprint::Fingerprint;
use crate::guest::{GuestProcess, Process, ProcessTree, freeze, is_frozen, is_to_stand, thaw};
use crate::inside;
use crate::knowledge;
use crate::memory::Memory;
use crate::obstacle::Obstacle;
use crate::pack::{Outlet, Packer, Sent};
use crate::pages::Pages;
use crate::sink::Image;
use crate::stage::{GROUND, TREES};
use crate::stream::{Header, Plug};

const LOG: &str = "dump.log";

/// The directory that CRIU takes for the guest's group.
const FREEZER: &str = "freezer";

/// What CRIU says before it has a log.
const PRINTED: &str = "dump.out";

/// The biggest deleted file that goes with its guest: what programs keep open
/// and unnamed is scratch.
const DELETED_BYTES_MAX: &str = "64M";

/// Why a guest could not be written down. It is as it was, frozen, in every
/// case but [`Self::Lost`].
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error("not root: guests cannot be moved from here")]
    NotRoot,
    #[error("it does not stand still")]
    Restless,
    #[error(transparent)]
    Cannot(#[from] Obstacle),
    #[error("cannot look at it")]
    Look(#[source] io::Error),
    #[error("cannot start criu")]
    Start(#[source] io::Error),
    #[error("cannot send it")]
    Send(#[source] io::Error),
    #[error("it ended while it was written down")]
    Lost,
}

/// Where CRIU puts the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Stream,
    Memory,
}

/// A CRIU at work. It is never killed: it has a hand in the guest.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

/// A guest that stands still and is about to be written down.
#[derive(Debug)]
pub struct Dump {
    guest: GuestProcess,
    header: Header,
    tree: ProcessTree,
    /// The guest's processes, opened.
    opened: Vec<OwnedFd>,
    memory: Memory,
    /// Dropped before CRIU is waited for: nobody listens to it then.
    capture: Option<Capture>,
    criu: Running,
    /// Lent until CRIU has ended.
    _freezer: LentFreezer,
}

impl Dump {
    /// Brings the guest to a stand, if it does not stand yet, and starts to
    /// write it down.
    ///
    /// # Errors
    /// The guest cannot be moved. If it ran before, it runs again.
    pub fn start(
        engine: &Engine,
        fingerprint: &Fingerprint,
        guest: &GuestProcess,
    ) -> Result<Self, DumpError> {
        if !rustix::process::geteuid().is_root() {
            return Err(DumpError::NotRoot);
        }
        Self::start_as(engine, fingerprint, guest, Way::Stream)
    }

    fn start_as(
        engine: &Engine,
        fingerprint: &Fingerprint,
        guest: &GuestProcess,
        way: Way,
    ) -> Result<Self, DumpError> {
        let stood = is_frozen(&guest.group).map_err(DumpError::Look)?;
        let started = if freeze(&guest.group).map_err(DumpError::Look)? {
            begin_dump(engine, fingerprint, guest, way)
        } else {
            Err(DumpError::Restless)
        };
        if started.is_err() && !stood {
            thaw(&guest.group).map_err(DumpError::Look)?;
        }
        started
    }

    /// Writes a guest down into this machine's memory, with no stream at all:
    /// the floor that moves are measured against.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn into_memory(
        engine: &Engine,
        fingerprint: &Fingerprint,
        guest: &GuestProcess,
    ) -> Result<Image, DumpError> {
        let mut dump = Self::start_as(engine, fingerprint, guest, Way::Memory)?;
        let status = dump.criu.0.wait().map_err(DumpError::Start)?;
        if status.success() {
            dump.memory.open_up().map_err(DumpError::Look)?;
            Ok(Image::there(dump.header, dump.memory))
        } else {
            Err(dump.obstacle().into())
        }
    }

    fn obstacle(&self) -> Obstacle {
        Obstacle::find(&self.memory.text(LOG), &self.memory.text(PRINTED), &self.tree)
    }

    /// Writes the whole stream. Blocks as long as that takes; the guest stands
    /// still all the time, and afterwards.
    ///
    /// # Errors
    /// The guest cannot be moved, or `out` takes no more. The receiver is told.
    pub fn run(self, out: impl Outlet) -> Result<Sent, DumpError> {
        let (root, group) = (self.guest.root, self.guest.group.clone());
        match self.pass(out) {
            Ok(sent) => Ok(sent),
            Err(_) if Process::read(root).is_err() => Err(DumpError::Lost),
            Err(error) => {
                // CRIU freezes the group as it leaves; if it could not, we do.
                let _ = freeze(&group);
                Err(error)
            }
        }
    }

    /// What the guest has on its ground and in its scratch directories: its open
    /// files are there.
    fn files(&self, packer: &mut Packer<impl Outlet>) -> io::Result<()> {
        let root = PathBuf::from(format!("/proc/{}/root", self.guest.root));
        let inside = |path: &str| root.join(path.trim_start_matches('/'));
        // Only a guest on a stage of its own has these for itself.
        if !inside(GROUND).is_dir() {
            return Ok(());
        }
        let ground = self.header.left_out.iter().map(String::as_str).collect();
        let nothing = BTreeSet::new();
        for (name, path) in TREES {
            let file = packer.open(name)?;
            let left_out = if path == GROUND { &ground } else { &nothing };
            archive::pack(&inside(path), left_out, packer.file(file))?;
            packer.close(file)?;
        }
        Ok(())
    }

    fn pass(mut self, out: impl Outlet) -> Result<Sent, DumpError> {
        let mut packer = Packer::new(out, &self.header).map_err(DumpError::Send)?;
        match self.write(&mut packer) {
            Ok(()) => packer.end().map_err(DumpError::Send),
            Err(error) => {
                packer.give_up(&error.to_string());
                Err(error)
            }
        }
    }

    /// What it is first, then what it has in its memory: that can be most of
    /// it, and the other side begins without.
    fn write(&mut self, packer: &mut Packer<impl Outlet>) -> Result<(), DumpError> {
        let engine = inside::open_process(i32::try_from(self.criu.0.id()).unwrap_or(0))
            .map_err(DumpError::Start)?;
        let buffers = buffers();
        // Returning drops the pipes: CRIU gives up when nobody reads them.
        let passed = match self.capture.take() {
            Some(capture) => capture.run(engine.as_fd(), packer, &buffers),
            None => Ok(vec![]),
        };
        let status = self.criu.0.wait().map_err(DumpError::Start)?;
        let maps = passed.map_err(DumpError::Send)?;
        if !status.success() {
            return Err(self.obstacle().into());
        }
        // CRIU leaves it as it was. It must not have run since: its memory would
        // be another than the rest of it.
        if !is_to_stand(&self.guest.group).map_err(DumpError::Look)?
            || !freeze(&self.guest.group).map_err(DumpError::Look)?
        {
            return Err(DumpError::Restless);
        }
        self.files(packer).and_then(|()| packer.known()).map_err(DumpError::Send)?;
        for map in maps {
            if let Some(left) = map.left().map_err(DumpError::Look)? {
                self.memory_of(left, &buffers, packer)?;
            }
        }
        Ok(())
    }

    fn memory_of(
        &self,
        left: Left,
        buffers: &Pool,
        packer: &mut Packer<impl Outlet>,
    ) -> Result<(), DumpError> {
        let all = self.tree.processes.iter().zip(&self.opened);
        let process = all.clone().find(|(process, _)| process.inner == left.process);
        let (process, opened) = process.ok_or(DumpError::Lost)?;
        let mut pages = Pages::new((process.pid, opened), left.areas, buffers);
        while let Some(bytes) = pages.next().map_err(DumpError::Look)? {
            packer.shared_data(left.file, &bytes).map_err(DumpError::Send)?;
        }
        packer.close(left.file).map_err(DumpError::Send)
    }
}

/// Writes a guest down as it is now, to go back to: it stands still meanwhile
/// and goes on afterwards, if it went before. What is in `out` is a stream like
/// any other, files of its ground included.
///
/// # Errors
/// As [`Dump::start`] and [`Dump::run`].
pub fn keep(
    engine: &Engine,
    fingerprint: &Fingerprint,
    guest: &GuestProcess,
    out: impl Outlet,
) -> Result<Sent, DumpError> {
    let stood = is_frozen(&guest.group).map_err(DumpError::Look)?;
    let done = Dump::start(engine, fingerprint, guest).and_then(|dump| dump.run(out));
    if !stood {
        thaw(&guest.group).map_err(DumpError::Look)?;
    }
    done
}

fn begin_dump(
    engine: &Engine,
    fingerprint: &Fingerprint,
    guest: &GuestProcess,
    way: Way,
) -> Result<Dump, DumpError> {
    let tree = ProcessTree::read(guest).map_err(DumpError::Look)?;
    let Some(root) = tree.processes.first() else { return Err(DumpError::Lost) };
    if let Some(stray) = tree.strays.first() {
        return Err(Obstacle::left_behind(stray).into());
    }
    if let Some(obstacle) = Obstacle::before_trying(root, &tree) {
        return Err(obstacle.into());
    }
    let opened = tree.processes.iter().map(|process| inside::open_process(process.pid));
    let opened = opened.collect::<io::Result<_>>().map_err(DumpError::Look)?;
    let header = Header {
        fingerprint: fingerprint.clone(),
        root: root.inner,
        last_pid: tree.threads.iter().copied().max().unwrap_or(0),
        joins_session: !leads_session(guest.root),
        memory_bytes: tree.memory_bytes(),
        clocks: clocks_of(guest.root),
        plugs: guest
            .plugs
            .iter()
            .map(|fd| plug(guest.root, *fd))
            .collect::<io::Result<_>>()
            .map_err(DumpError::Look)?,
        left_out: guest.left_out.clone(),
    };
    let memory = Memory::new().map_err(DumpError::Start)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let group = rustix::fs::open(&guest.group, flags, Mode::empty())
        .map_err(|error| DumpError::Look(error.into()))?;
    let process = inside::open_process(guest.root).map_err(DumpError::Look)?;
    let mut command = command(engine, &header, &memory, root.user);
    memory.take_output(PRINTED, &mut command).map_err(DumpError::Start)?;
    let freezer = LentFreezer::new(&guest.group, root.user).map_err(DumpError::Start)?;
    show_group(&group, &tree, &memory).map_err(DumpError::Start)?;
    memory.lend(root.user).map_err(DumpError::Start)?;
    let capture = match way {
        Way::Stream => {
            command.arg("--stream");
            Some(Capture::listen(&memory).map_err(DumpError::Start)?)
        }
        Way::Memory => None,
    };
    let keep = [memory.as_fd(), group.as_fd()];
    let criu = inside::spawn(command, &process, root.user, &keep).map_err(DumpError::Start)?;
    let (guest, criu) = (guest.clone(), Running(criu));
    Ok(Dump { guest, header, tree, opened, memory, capture, criu, _freezer: freezer })
}

/// What of the guest's group CRIU freezes and thaws: it may, as its user, for as
/// long as this is held.
#[derive(Debug)]
struct LentFreezer(PathBuf);

impl LentFreezer {
    fn new(group: &Path, (uid, gid): (u32, u32)) -> io::Result<Self> {
        let path = group.join("cgroup.freeze");
        chown(&path, Some(uid), Some(gid))?;
        Ok(Self(path))
    }
}

impl Drop for LentFreezer {
    fn drop(&mut self) {
        // Gone with the guest, or the agent's own again.
        let _ = chown(&self.0, Some(0), Some(0));
    }
}

/// Shows CRIU a group without the keeper, which it may not look into, and which is
/// frozen and thawed with the guest.
fn show_group(group: &OwnedFd, tree: &ProcessTree, memory: &Memory) -> io::Result<()> {
    let directory = format!("{}/{FREEZER}", memory.path());
    fs::create_dir(&directory)?;
    for name in ["cgroup.freeze", "cgroup.events"] {
        let real = format!("/proc/self/fd/{}/{name}", group.as_raw_fd());
        symlink(real, format!("{directory}/{name}"))?;
    }
    let threads: Vec<String> = tree.threads.iter().map(i32::to_string).collect();
    fs::write(format!("{directory}/cgroup.threads"), threads.join("\n"))
}

fn command(engine: &Engine, header: &Header, memory: &Memory, user: (u32, u32)) -> Command {
    let mut command = engine.command_as(user, "dump", knowledge::RUN);
    command
        .args(["--leave-running", "--file-locks"])
        // CRIU's own, of 10 s, is short on a machine whose owner is at work.
        .args(["--timeout", "30"])
        // Nothing of the network goes along, so nothing of it is held meanwhile.
        .args(["--manage-cgroups=ignore", "--network-lock", "skip", "--ghost-limit"])
        .args([DELETED_BYTES_MAX, "--log-file", LOG, "--images-dir", &memory.path()])
        .args(["--tree", &header.root.to_string(), "--freeze-cgroup"])
        .arg(format!("{}/{FREEZER}", memory.path()));
    if header.joins_session {
        command.arg("--shell-job");
    }
    command
}

fn leads_session(pid: i32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid);
    rustix::process::getsid(pid).is_ok_and(|session| Some(session) == pid)
}

/// What the guest reads from its clocks: ours, and what its time namespace
/// adds.
fn clocks_of(pid: i32) -> (Duration, Duration) {
    let offsets = fs::read_to_string(format!("/proc/{pid}/timens_offsets")).unwrap_or_default();
    let read = |id: ClockId, name: &str| {
        let here = rustix::time::clock_gettime(id);
        let mut words = offsets
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
            .split_whitespace()
            .map(|word| word.parse::<i64>().unwrap_or(0));
        let nanos = i128::from(here.tv_sec + words.next().unwrap_or(0)) * 1_000_000_000
            + i128::from(here.tv_nsec + words.next().unwrap_or(0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    };
    (read(ClockId::Monotonic, "monotonic"), read(ClockId::Boottime, "boottime"))
}

/// Looks into a pipe of the guest's without taking anything out.
fn plug(pid: i32, fd: i32) -> io::Result<Plug> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let about = fs::metadata(&path)?;
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("0");
    let flags = OFlags::from_bits_retain(u32::from_str_radix(flags.trim(), 8).unwrap_or(0));
    let reads = (flags & OFlags::RWMODE) == OFlags::RDONLY;
    if !is_pipe(Path::new(&path)) {
        return Err(io::Error::other(format!("its descriptor {fd} is no pipe")));
    }
    let unread = if reads { peek(&path)? } else { vec![] };
    Ok(Plug { fd, pipe: about.ino(), unread })
}

fn is_pipe(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("pipe:["))
}

fn peek(path: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(path, flags, Mode::empty())?;
    let room = rustix::pipe::fcntl_getpipe_size(&theirs)?;
    let (ours, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    rustix::pipe::fcntl_setpipe_size(&into, room)?;
    let length = match rustix::pipe::tee(&theirs, &into, room, SpliceFlags::NONBLOCK) {
        Err(rustix::io::Errno::AGAIN) => 0,
        done => done?,
    };
    let mut unread = vec![0; length];
    io::Read::read_exact(&mut fs::File::from(ours), &mut unread)?;
    Ok(unread)
}
