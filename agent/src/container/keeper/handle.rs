//! The agent's hold on one keeper.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_move::stage::GROUND;
use gleaner_shell::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;

use super::clone::{CloneArguments, Cloned, Namespaces, clone_keeper};
use super::protocol::{
    DESCRIPTORS_MAX, MESSAGE_BYTES_MAX, Order, REPORT_BYTES_MAX, Report, SOCKET_FD, Sandbox,
};
use crate::container::cgroup::PlaceGroup;

/// What can go wrong with a keeper.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("cannot open this program to run a keeper")]
    Program(#[source] io::Error),
    #[error("cannot start a keeper")]
    Start(#[source] io::Error),
    #[error("cannot reach a keeper")]
    Send(#[source] io::Error),
    /// An order cannot reach it, or no report will come any more.
    #[error("a keeper is gone")]
    Gone,
    /// The last order, at least, has not reached it. What it said before is still
    /// to be heard.
    #[error("a keeper died before it took in an order")]
    Unheard,
    #[error("a keeper says what is not a report")]
    Malformed(#[source] postcard::Error),
    #[error("an order of {0} bytes: expected at most {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
}

/// This program, held open so that an upgrade on disk does not part us from
/// our keepers.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// # Errors
    /// `/proc` is not there.
    pub fn own() -> Result<Self, KeeperError> {
        Self::at(Path::new("/proc/self/exe"))
    }

    /// Another program that can be a keeper.
    ///
    /// # Errors
    /// The program is not there.
    pub fn at(path: &Path) -> Result<Self, KeeperError> {
        let open = || -> rustix::io::Result<OwnedFd> {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
            let fd = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
            // Above the number that a keeper finds its socket at.
            rustix::io::fcntl_dupfd_cloexec(fd, SOCKET_FD + 1)
        };
        open().map(Self).map_err(|error| KeeperError::Program(error.into()))
    }
}

/// One running keeper. Dropping it kills it, and with it its guest, and waits
/// until all of that is gone, unless it has been [reaped](Self::has_ended).
#[derive(Debug)]
pub struct Keeper {
    socket: OwnedFd,
    pid: Pid,
    pidfd: OwnedFd,
    /// With its own, it is their pid 1: its death ends its guest.
    namespaces: Namespaces,
    /// Its last report has been heard.
    silent: bool,
    reaped: bool,
    /// Room for one report.
    buffer: Vec<u8>,
}

impl Keeper {
    /// Starts a keeper, and orders it to sandbox itself: its first report is
    /// [`Report::Ready`]. It dies with the calling thread. With it comes what
    /// could not be had of its namespaces.
    ///
    /// # Errors
    /// No processes left, or no memory.
    pub fn spawn(
        program: &Program,
        group: Option<&PlaceGroup>,
        own_network: bool,
        mut sandbox: Sandbox,
    ) -> Result<(Self, Option<String>), KeeperError> {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| KeeperError::Start(error.into()))?;
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4 * MESSAGE_BYTES_MAX);
        let user = !rustix::process::geteuid().is_root();
        let mut namespaces = Namespaces { own: true, user, network: own_network };
        let clone = |namespaces| {
            clone_keeper(&CloneArguments {
                program: program.0.as_fd(),
                socket: theirs.as_fd(),
                join: group.into_iter().flat_map(PlaceGroup::procs).collect(),
                namespaces,
            })
        };
        let mut missing = None;
        let Cloned { pid, pidfd } = clone(namespaces)
            .or_else(|error| {
                missing = Some(format!("guest namespaces: {error}"));
                namespaces.own = false;
                clone(namespaces)
            })
            .map_err(KeeperError::Start)?;
        let buffer = vec![0; REPORT_BYTES_MAX];
        sandbox.own_mounts = namespaces.own;
        sandbox.own_network = namespaces.own && namespaces.network;
        let keeper =
            Self { socket: ours, pid, pidfd, namespaces, silent: false, reaped: false, buffer };
        keeper.send(&Order::Prepare(Box::new(sandbox)))?;
        Ok((keeper, missing))
    }

    /// # Errors
    /// The keeper is gone, or the order too long.
    pub fn send(&self, order: &Order) -> Result<(), KeeperError> {
        self.send_with(order, &[])
    }

    /// Sends descriptors along: a rank's two pipe ends, and an image's directory.
    ///
    /// # Errors
    /// As [`Keeper::send`].
    pub fn send_with(&self, order: &Order, along: &[BorrowedFd<'_>]) -> Result<(), KeeperError> {
        let bytes = postcard::to_stdvec(order).map_err(KeeperError::Malformed)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(KeeperError::TooLong(bytes.len()));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !along.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(along));
            assert!(fits, "no order takes more than {DESCRIPTORS_MAX} descriptors along");
        }
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags)
            .map(|_| ())
            .map_err(|error| match error {
                Errno::PIPE | Errno::CONNRESET => KeeperError::Gone,
                error => KeeperError::Send(error.into()),
            })
    }

    /// The next report if there is one; `Ok(None)` if not yet.
    ///
    /// # Errors
    /// The keeper has gone.
    pub fn receive(&mut self) -> Result<Option<Report>, KeeperError> {
        let bytes = &mut self.buffer;
        match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            // The kernel says so first, and once: something lay there unread when the
            // other end was closed.
            Err(Errno::CONNRESET) => Err(KeeperError::Unheard),
            Err(error) => Err(KeeperError::Send(error.into())),
            Ok((0, _)) => {
                self.silent = true;
                Err(KeeperError::Gone)
            }
            Ok((n, _)) => {
                postcard::from_bytes(&bytes[..n]).map(Some).map_err(KeeperError::Malformed)
            }
        }
    }

    /// Is there a report that nobody has received?
    pub fn has_report(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&now)).is_ok_and(|n| n > 0)
    }

    /// Waits for a report.
    ///
    /// # Errors
    /// The keeper has gone.
    pub fn receive_within(&mut self, at_most: Duration) -> Result<Option<Report>, KeeperError> {
        let end = Clock.now() + at_most;
        loop {
            let left = end.since(Clock.now());
            match self.receive()? {
                None if !left.is_zero() => {}
                answer => return Ok(answer),
            }
            let timeout = Timespec::try_from(left).ok();
            // Interrupted or not: the loop looks again.
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref());
        }
    }

    /// Readable when there is a report, or none will come any more.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What is readable when there is a report or none will come any more, and what
    /// is when it has ended.
    pub fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let socket = (!self.silent).then(|| self.socket.as_fd());
        [Some(self.pidfd.as_fd()), socket].into_iter().flatten()
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The first process that it has started and that lives.
    pub fn first_process(&self) -> Option<i32> {
        let pid = self.pid.as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().filter_map(|child| child.parse().ok()).find(|pid| lives(*pid))
    }

    /// Has somebody stopped it? The freezer is not meant.
    pub fn is_stopped(&self) -> bool {
        gleaner_move::state_of(self.pid.as_raw_nonzero().get()) == Some('T')
    }

    pub fn is_contained(&self) -> bool {
        self.namespaces.own
    }

    /// A path below a place's directory, as its guests see it.
    pub fn as_seen(&self, directory: &Path, path: &Path) -> PathBuf {
        match path.strip_prefix(directory) {
            Ok(inside) if self.namespaces.own => Path::new(GROUND).join(inside),
            Ok(_) | Err(_) => path.to_path_buf(),
        }
    }

    /// Kills it and, by the kernel, everything in its namespace.
    pub fn kill(&self) {
        use rustix::process::{Signal, pidfd_send_signal};
        let signal = |signal| {
            // It has gone if that fails.
            let _ = pidfd_send_signal(&self.pidfd, signal);
        };
        if self.namespaces.own {
            return signal(Signal::KILL);
        }
        // The guests would outlive their keeper: it kills them before it goes, also if
        // somebody has stopped it.
        let _ = self.send(&Order::Kill);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        signal(Signal::CONT);
    }

    /// Has it ended? Then it is reaped. Of a contained keeper every process of its
    /// namespace is gone before: until long after its socket is closed, if there
    /// were many, or much memory.
    pub fn has_ended(&mut self) -> bool {
        self.reaped |= self.reap(rustix::process::WaitOptions::NOHANG);
        self.reaped
    }

    /// Nobody else reaps it: if it is not there, it is gone.
    fn reap(&self, options: rustix::process::WaitOptions) -> bool {
        loop {
            match rustix::process::waitpid(Some(self.pid), options) {
                Err(Errno::INTR) => {}
                answer => return !matches!(answer, Ok(None)),
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap(rustix::process::WaitOptions::empty());
        }
    }
}

/// One that has ended stays, by its number, until its parent has heard of it.
fn lives(pid: i32) -> bool {
    gleaner_move::state_of(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
