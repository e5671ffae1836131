//! Running CRIU where the guest is: in its namespaces, so that those are the
//! keeper's own on both machines and no part of an image.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags};
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

/// Starts a command in a process's namespaces, with [`become_guest`]. The child
/// that is returned waits for it outside, and ends as it does.
pub(crate) fn spawn(
    mut command: Command,
    process: &OwnedFd,
    user: (u32, u32),
    keep: &[BorrowedFd<'_>],
) -> io::Result<Child> {
    let process = process.as_raw_fd();
    let keep: Vec<RawFd> = keep.iter().map(BorrowedFd::as_raw_fd).collect();
    #[expect(unsafe_code, reason = "joining namespaces between fork and exec")]
    // SAFETY: the closure makes nothing but system calls, on values that were
    // laid out before the fork.
    unsafe {
        command.pre_exec(move || {
            enter(process)?;
            for fd in &keep {
                check(libc::fcntl(*fd, libc::F_SETFD, 0))?;
            }
            become_guest(user)
        });
    }
    command.spawn()
}

/// Is CRIU run as root, for guests that are? A lab host may have it so.
pub(crate) fn is_root(user: (u32, u32)) -> bool {
    user.0 == 0
}

/// The one right that CRIU needs beside the guest's own: to give processes the
/// numbers they had, and to follow the kernel's links to files that are mapped.
/// By number, as in `capabilities(7)`; since Linux 5.9.
pub(crate) const CHECKPOINT_RESTORE: u32 = 40;

/// Leaves the calling process with its guest's user and that right. What opens a
/// path afterwards opens what the guest could, wherever the path leads. The right
/// outlives an exec in the ambient set, also where no rights may be gained
/// (`NoNewPrivileges=`): an effective user that is not the real one would not,
/// before Linux 6.17.
#[expect(unsafe_code, reason = "plain system calls between fork and exec")]
pub(crate) fn become_guest(user: (u32, u32)) -> io::Result<()> {
    const BIT: u32 = 1 << (CHECKPOINT_RESTORE - 32);
    let (uid, gid) = user;
    let header: [u32; 2] = [0x2008_0522, 0];
    // Effective, permitted, inheritable: of the first 32 rights, and the others.
    let rights: [u32; 6] = [0, 0, 0, BIT, BIT, BIT];
    // SAFETY: plain system calls; the layouts are those of capset(2).
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        if is_root(user) {
            return Ok(());
        }
        // As root, CRIU lifts this by itself: it has the guest's files open, and its own.
        let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files))?;
        files.rlim_cur = files.rlim_max;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files))?;
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))?;
        let set = libc::syscall(libc::SYS_capset, header.as_ptr(), rights.as_ptr());
        check(libc::c_int::from(set == 0) - 1)?;
        let raise = libc::PR_CAP_AMBIENT_RAISE;
        check(libc::prctl(libc::PR_CAP_AMBIENT, raise, CHECKPOINT_RESTORE, 0, 0))
    }
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
