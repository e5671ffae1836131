//! The keeper of one guest place: sandboxes itself, then starts one guest
//! after another and sees to it that nothing of one is left for the next.
//!
//! A keeper holds no secret and decides nothing. It reads its orders from the
//! socket it was made with and ends when the agent does: the kernel tells
//! ([`sandbox`]'s death signal), and so does the end of the socket.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_common::id::Fence;
use gleaner_move::landing::Restored;
use gleaner_move::stage::GROUND;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use rustix::process::Pid;

use super::birth::leave_session_keyring;
use super::filter::Filter;
use super::lease::LeaseTimer;
use super::place_files::{PlaceFiles, take_output};
use super::protocol::{
    DESCRIPTORS_MAX, Ended, Landing, MESSAGE_BYTES_MAX, Order, REASON_BYTES_MAX, Report, SOCKET_FD,
    Sandbox, StartGuest,
};
use super::sandbox;
use super::spawn::{SpawnError, Terms, spawn};
use super::staged::{self, PreparedRestore};
use super::view::Scratch;

/// `glean keeper`, which only an agent starts.
#[must_use]
pub fn keeper_main() -> ExitCode {
    match keep() {
        Ok(()) => ExitCode::SUCCESS,
        // The agent says it: nobody reads a keeper's words.
        Err(_) => ExitCode::from(2),
    }
}

#[expect(unsafe_code, reason = "the socket is inherited by number")]
fn keep() -> io::Result<()> {
    // SAFETY: the agent has put the socket there; nobody else in this process
    // has it. Were it not open, the first call would say so.
    let socket = unsafe { OwnedFd::from_raw_fd(SOCKET_FD) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    let _ = rustix::thread::set_name(c"glean-keeper");
    let mut keeper = Keeper {
        children: children_signal()?,
        alone: rustix::process::getpid().as_raw_nonzero().get() == 1,
        null: OpenOptions::new().read(true).write(true).open("/dev/null")?,
        sandbox: Sandbox::default(),
        files: None,
        scratch: None,
        socket,
        guest: None,
        buffer: vec![0; MESSAGE_BYTES_MAX],
        pipes: vec![],
        filter: None,
        prepared: None,
        landed: None,
        unfit: None,
        lease: None,
    };
    leave_session_keyring();
    // The guests' session, with no terminal: none of them leads it.
    let _ = rustix::process::setsid();
    // Where the kernel schedules sessions as groups and no control group holds
    // guests down, ours comes last.
    let _ = std::fs::write("/proc/self/autogroup", "19");
    if !keeper.alone {
        // Orphans of a guest come to us, not to the machine's init.
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    }
    while let Some(order) = keeper.next_order()? {
        keeper.obey(order)?;
    }
    keeper.sweep();
    Ok(())
}

/// One running guest.
#[derive(Debug)]
struct Guest {
    fence: Fence,
    pid: Pid,
    cpu: Duration,
}

#[derive(Debug)]
struct Keeper {
    socket: OwnedFd,
    /// Readable when a child has ended.
    children: File,
    null: File,
    sandbox: Sandbox,
    /// Are we the first process of our own pid namespace?
    alone: bool,
    /// The place's directories, until the agent makes them anew.
    files: Option<PlaceFiles>,
    /// Scratch directories of our own to empty.
    scratch: Option<Scratch>,
    guest: Option<Guest>,
    /// Room for one order.
    buffer: Vec<u8>,
    /// What came with the last order: the pipes of the guest to start.
    pipes: Vec<OwnedFd>,
    /// What guests are kept from, unless they can move.
    filter: Option<Filter>,
    /// For a guest whose image is on its way.
    prepared: Option<PreparedRestore>,
    /// The guest that has landed, and stands still.
    landed: Option<Restored>,
    /// Why no guest is taken.
    unfit: Option<String>,
    /// Ends us with the lease while there is a guest.
    lease: Option<LeaseTimer>,
}

impl Keeper {
    /// Waits for an order, reaping meanwhile; `None` if the agent is gone, or the
    /// lease is over.
    fn next_order(&mut self) -> io::Result<Option<Order>> {
        loop {
            let (ordered, ended, rang) = {
                let mut fds = vec![
                    PollFd::new(&self.socket, PollFlags::IN),
                    PollFd::new(&self.children, PollFlags::IN),
                ];
                fds.extend(self.lease.iter().map(|lease| PollFd::new(lease, PollFlags::IN)));
                match poll(&mut fds, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
                (ready(&fds[0]), ready(&fds[1]), fds.get(2).is_some_and(ready))
            };
            if ended {
                self.reap()?;
            }
            if rang
                && let Some(lease) = &self.lease
                && lease.is_over()?
            {
                return Ok(None);
            }
            if ordered {
                let n = match self.receive() {
                    Err(Errno::INTR) => continue,
                    got => got?,
                };
                if n == 0 {
                    return Ok(None);
                }
                let bytes = &self.buffer[..n];
                return postcard::from_bytes(bytes).map(Some).map_err(io::Error::other);
            }
        }
    }

    /// Takes one datagram, and the descriptors that ride along.
    fn receive(&mut self) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = rustix::net::recvmsg(&self.socket, &mut slices, &mut control, flags)?;
        self.pipes.clear();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.pipes.extend(descriptors);
            }
        }
        Ok(got.bytes)
    }

    fn obey(&mut self, order: Order) -> io::Result<()> {
        match order {
            Order::Expect(landing) => self.expect(*landing),
            Order::Land { fence, stopped } => self.land(fence, &stopped)?,
            Order::Go => {
                if let Some(landed) = self.landed.take() {
                    landed.resume();
                }
            }
            Order::Heed => self.lease = self.pipes.pop().map(LeaseTimer::new).transpose()?,
            Order::Prepare(sandbox) if sandbox.is_staged() => self.prepare_staged(*sandbox)?,
            Order::Prepare(sandbox) => self.prepare(*sandbox)?,
            Order::Start(start) => self.start(&start)?,
            Order::Freeze => self.signal_all(libc::SIGSTOP),
            Order::Thaw => self.signal_all(libc::SIGCONT),
            Order::Kill => self.signal_all(libc::SIGKILL),
        }
        Ok(())
    }

    /// For guests that cannot move, one after the other.
    fn prepare(&mut self, sandbox: Sandbox) -> io::Result<()> {
        let mut entered = sandbox::enter(&sandbox);
        if sandbox.filter {
            let filter = Filter::new();
            let failed = filter.as_ref().err();
            entered.missing.extend(failed.map(|error| format!("guest system calls: {error}")));
            self.filter = filter.ok();
        }
        self.scratch = sandbox.own_mounts.then(Scratch::open);
        self.unfit = entered.unfit;
        self.settle_in(sandbox);
        self.report(&Report::Ready { missing: entered.missing })
    }

    /// For one guest that can move. What it lacks is told when there is one.
    fn prepare_staged(&mut self, sandbox: Sandbox) -> io::Result<()> {
        let entered = staged::enter(&sandbox);
        self.settle_in(sandbox);
        if let Err(error) = entered {
            self.lack(&error);
        }
        self.report(&Report::Ready { missing: vec![] })
    }

    /// What is held open, and what guests inherit, must lead to where they are.
    fn settle_in(&mut self, sandbox: Sandbox) {
        let directory = if sandbox.own_mounts { GROUND.into() } else { sandbox.directory };
        self.sandbox = Sandbox { directory, ..sandbox };
        match OpenOptions::new().read(true).write(true).open("/dev/null") {
            Ok(null) => self.null = null,
            Err(error) => self.lack(&format!("/dev/null: {error}")),
        }
    }

    /// The first thing counts: the others may follow from it.
    fn lack(&mut self, what: &impl Display) {
        let guest = if self.sandbox.is_staged() { "guest that can move" } else { "guest" };
        self.unfit.get_or_insert_with(|| format!("{guest}: {what}"));
    }

    /// What is in the way of it is told when it is to land.
    fn expect(&mut self, landing: Landing) {
        let along = std::mem::take(&mut self.pipes);
        if self.unfit.is_some() {
            return;
        }
        match PreparedRestore::new(&self.sandbox, landing, along) {
            Ok(prepared) => self.prepared = Some(prepared),
            Err(error) => self.lack(&error),
        }
    }

    fn land(&mut self, fence: Fence, stopped: &[i32]) -> io::Result<()> {
        let prepared = self.prepared.take().ok_or_else(|| {
            self.unfit.clone().unwrap_or_else(|| "a keeper that expects nobody".to_owned())
        });
        let landed = prepared.and_then(|prepared| {
            prepared.land(&self.sandbox, stopped).map_err(|error| error.to_string())
        });
        let landed = landed.and_then(|landed| {
            let files =
                PlaceFiles::open(&self.sandbox.directory).map_err(|error| error.to_string())?;
            self.files = Some(files);
            Ok(landed)
        });
        let pid = landed.as_ref().ok().and_then(|landed| Pid::from_raw(landed.root));
        match (landed, pid) {
            (Ok(landed), Some(pid)) => {
                self.begin(Guest { fence, pid, cpu: Duration::ZERO })?;
                self.landed = Some(landed);
                self.report(&Report::Landed { fence })
            }
            (Ok(_), None) => self.cannot_start(fence, "it has no first process".into(), true),
            (Err(why), _) => self.cannot_start(fence, why, true),
        }
    }

    fn cannot_start(&self, fence: Fence, mut why: String, here_only: bool) -> io::Result<()> {
        why.truncate(why.floor_char_boundary(REASON_BYTES_MAX));
        self.report(&Report::CannotStart { fence, why, here_only })
    }

    fn report(&self, report: &Report) -> io::Result<()> {
        let bytes = postcard::to_stdvec(report).map_err(io::Error::other)?;
        rustix::net::send(&self.socket, &bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn start(&mut self, start: &StartGuest) -> io::Result<()> {
        let fence = start.fence;
        if self.sandbox.is_staged()
            && self.unfit.is_none()
            && let Err(error) = staged::shut_in(&self.sandbox)
        {
            self.lack(&error);
        }
        if let Some(why) = self.unfit.clone() {
            return self.cannot_start(fence, why, true);
        }
        if self.sandbox.is_staged() {
            self.report(&Report::Began { fence })?;
        }
        let spawned = self.spawn(start);
        // The guest's alone: its end must show when the guest has gone.
        self.pipes.clear();
        match spawned {
            Ok(pid) => self.begin(Guest { fence, pid, cpu: Duration::ZERO }),
            Err(error) => self.cannot_start(fence, error.to_string(), error.here_only()),
        }
    }

    fn begin(&mut self, guest: Guest) -> io::Result<()> {
        self.guest = Some(guest);
        self.lease.as_ref().map_or(Ok(()), LeaseTimer::begin)
    }

    fn spawn(&mut self, start: &StartGuest) -> Result<Pid, SpawnError> {
        let place = &self.sandbox.directory;
        let failed = |path: &Path, source| SpawnError::Enter { path: path.to_path_buf(), source };
        if start.fresh {
            self.files = None;
        }
        let files = match &mut self.files {
            Some(files) => files,
            none => none.insert(PlaceFiles::open(place).map_err(|error| failed(place, error))?),
        };
        files.enter(&start.directory).map_err(|source| {
            let path = start.directory.clone();
            let is_own = path.starts_with(GROUND) || path.starts_with(place);
            if is_own { failed(&path, source) } else { SpawnError::Shared { path, source } }
        })?;
        let pipes = match (start.pipes, self.pipes.as_slice()) {
            (true, [read, write]) => Some((read.as_fd(), write.as_fd())),
            (true, _) => return Err(SpawnError::NoPipes),
            (false, _) => None,
        };
        let staged = self.sandbox.is_staged();
        let terms = Terms {
            stdin: self.null.as_fd(),
            stdout: files.stdout.as_fd(),
            stderr: files.stderr.as_fd(),
            pipes,
            own_session: staged,
            // A keeper for one guest has one of its own, in which CRIU looks.
            own_ipc: self.alone && !staged && self.sandbox.uid.is_some(),
            uid: self.sandbox.uid,
            filter: self.filter.as_ref(),
        };
        spawn(start, terms)
    }

    /// Collects whoever has ended; reports the guest if it was among them.
    fn reap(&mut self) -> io::Result<()> {
        let mut notice = [0; 128];
        // Drained or not: below we ask until there is nobody.
        let _ = rustix::io::read(&self.children, &mut notice);
        while let Some(child) = wait_for_child(libc::WNOHANG) {
            let Some(guest) = &mut self.guest else { continue };
            guest.cpu += child.cpu;
            if guest.pid == child.pid
                && let Some(guest) = self.guest.take()
            {
                self.lease.as_ref().map_or(Ok(()), LeaseTimer::end)?;
                let cpu = guest.cpu + self.sweep();
                self.finish(&guest, child.status, cpu)?;
            }
        }
        Ok(())
    }

    fn finish(&self, guest: &Guest, status: i32, cpu: Duration) -> io::Result<()> {
        let Some(files) = &self.files else { unreachable!("a guest without its files") };
        let (stdout, stdout_bytes) = take_output(&files.stdout);
        let (stderr, stderr_bytes) = take_output(&files.stderr);
        self.report(&Report::Ended(Box::new(Ended {
            fence: guest.fence,
            status,
            cpu,
            stdout,
            stderr,
            stdout_bytes,
            stderr_bytes,
            clean: files.is_clean(),
            // The next guest must not find what this one left there, nor a keeper
            // that this one could change: one of its own user.
            last: self.sandbox.is_staged()
                || self.sandbox.uid.is_none()
                || self.scratch.as_ref().is_some_and(|scratch| !scratch.empty(&self.sandbox)),
        })))
    }

    /// Kills everything that a guest has left running; its CPU time.
    fn sweep(&self) -> Duration {
        let mut cpu = Duration::ZERO;
        loop {
            // Everything in our namespace is a descendant of ours, and whose
            // parent has gone is our child: no child, nobody.
            match wait_for_child(libc::WNOHANG) {
                Some(child) => {
                    cpu += child.cpu;
                    continue;
                }
                None if no_children() => return cpu,
                None => {}
            }
            self.signal_all(libc::SIGKILL);
            cpu += wait_for_child(0).map_or(Duration::ZERO, |child| child.cpu);
        }
    }

    /// Signals every process here but ourselves.
    #[expect(unsafe_code, reason = "signalling everybody has no safe binding")]
    fn signal_all(&self, signal: i32) {
        if self.alone {
            // SAFETY: a plain system call. We are pid 1 of a namespace, so
            // that "everybody" is the guest's processes and nobody else.
            unsafe { libc::kill(-1, signal) };
            return;
        }
        for pid in descendants() {
            // SAFETY: a plain system call on a descendant's number.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

/// A child that has ended.
struct Reaped {
    pid: Pid,
    status: i32,
    cpu: Duration,
}

#[expect(unsafe_code, reason = "wait4, which also tells the CPU time, has no safe binding")]
fn wait_for_child(options: i32) -> Option<Reaped> {
    let mut status = 0;
    // SAFETY: all zeroes is a valid rusage, and both out pointers are ours.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(-1, &raw mut status, options, &raw mut usage), usage)
    };
    let spent = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    let pid = Pid::from_raw(pid.max(0))?;
    Some(Reaped { pid, status, cpu: spent(usage.ru_utime) + spent(usage.ru_stime) })
}

#[expect(unsafe_code, reason = "waitid without reaping, through the C library")]
fn no_children() -> bool {
    // SAFETY: all zeroes is a valid siginfo; it is ours.
    let found = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_ALL, 0, &raw mut info, options)
    };
    found != 0
}

/// All descendants, parents first, without a pid namespace to tell.
pub(crate) fn descendants() -> Vec<i32> {
    let parents: Vec<(i32, i32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name may hold anything, so count from its closing bracket.
            let (_, rest) = stat.rsplit_once(')')?;
            Some((pid, rest.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let mut found = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// A descriptor that tells of ended children.
#[expect(unsafe_code, reason = "signalfd has no safe binding")]
fn children_signal() -> io::Result<File> {
    // SAFETY: the set is ours and initialised; the descriptor is new.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const signals, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(fd))
    }
}
