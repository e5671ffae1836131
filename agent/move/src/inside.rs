//! Running CRIU where the guest is: in its namespaces, so that those are the
//! keeper's own on both machines and no part of an image.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::CapabilitySet;
use rustix::time::Timespec;

/// Every kind that a keeper makes, and the clocks that a moved guest has.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWUTS
    | CLONE_NEWTIME;

/// Not in the `libc` crate for every platform.
pub(crate) const CLONE_NEWTIME: libc::c_int = 0x80;

pub(crate) fn open_process(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Has this process not ended?
pub(crate) fn lives(process: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec::default()))? == 0)
}

/// Starts a command in a process's namespaces. The child that is returned
/// waits for it outside, and ends as it does.
///
/// The kernel lets a process look at the limits of its own real user's processes,
/// and of others' only with a right that containers lack. There `user` becomes its
/// real user, and root stays its effective one, which kernels before 6.17 take
/// away from whoever may gain no rights (`NoNewPrivileges=`).
pub(crate) fn spawn(
    mut command: Command,
    process: &OwnedFd,
    user: (u32, u32),
    keep: &[BorrowedFd<'_>],
) -> io::Result<Child> {
    let process = process.as_raw_fd();
    let keep: Vec<RawFd> = keep.iter().map(BorrowedFd::as_raw_fd).collect();
    let rights = rustix::thread::capabilities(None)?.effective;
    let user = if rights.contains(CapabilitySet::SYS_RESOURCE) { (0, 0) } else { user };
    #[expect(unsafe_code, reason = "joining namespaces between fork and exec")]
    // SAFETY: the closure makes nothing but system calls, on values that were
    // laid out before the fork.
    unsafe {
        command.pre_exec(move || {
            enter(process)?;
            for fd in &keep {
                check(libc::fcntl(*fd, libc::F_SETFD, 0))?;
            }
            check(libc::setresgid(user.1, 0, 0))?;
            check(libc::setresuid(user.0, 0, 0))
        });
    }
    command.spawn()
}

#[expect(unsafe_code, reason = "a plain system call between fork and exec")]
fn enter(process: RawFd) -> io::Result<()> {
    // SAFETY: a plain system call.
    check(unsafe { libc::setns(process, NAMESPACES) })?;
    enter_pid_namespace()
}

/// A process enters a pid namespace only by being born in it: the child goes
/// on, and its parent waits and ends as the child does.
#[expect(unsafe_code, reason = "plain system calls between fork and exec")]
pub(crate) fn enter_pid_namespace() -> io::Result<()> {
    // SAFETY: plain system calls; the waiting side never returns.
    unsafe {
        let child = libc::fork();
        if child <= 0 {
            return check(child);
        }
        // Whoever waits for the exec waits on a descriptor of ours too.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        let mut status = 0;
        while libc::waitpid(child, &raw mut status, 0) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
        let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 };
        libc::_exit(code)
    }
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
