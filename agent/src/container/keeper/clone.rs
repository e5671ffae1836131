//! How a keeper is made: cloned into its namespaces and control group, then
//! this same program anew.
//!
//! Between clone and exec the child shares nothing but a copy of a
//! multi-threaded parent's memory, so it may only make system calls: all that
//! they need is laid out beforehand.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::process::Pid;

use super::protocol::SOCKET_FD;

/// What the new process gets.
#[derive(Debug)]
pub(super) struct CloneArguments<'a> {
    /// This program, opened; above [`SOCKET_FD`].
    pub(super) program: BorrowedFd<'a>,
    pub(super) socket: BorrowedFd<'a>,
    /// `cgroup.procs` of the groups to join.
    pub(super) join: Vec<BorrowedFd<'a>>,
    pub(super) namespaces: Namespaces,
}

/// Which namespaces a keeper gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespaces {
    /// Pid, mount and IPC.
    pub(super) own: bool,
    /// A user namespace first, for those who are not root.
    pub(super) user: bool,
    pub(super) network: bool,
}

impl Namespaces {
    fn flags(self) -> u64 {
        let mut flags = 0;
        if self.own {
            flags |= libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
            if self.user {
                flags |= libc::CLONE_NEWUSER;
            }
            if self.network {
                flags |= libc::CLONE_NEWNET;
            }
        }
        u64::from(flags.cast_unsigned())
    }
}

/// The new process.
#[derive(Debug)]
pub(super) struct Cloned {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
}

/// Everything that the child needs, in memory that it only reads.
struct Plan {
    program: RawFd,
    socket: RawFd,
    join: Vec<RawFd>,
    user: bool,
    uid_map: CString,
    gid_map: CString,
    argv: [*const libc::c_char; 3],
    envp: [*const libc::c_char; 2],
}

/// Clones and executes. The child dies with the calling *thread*, so only the
/// thread that lives as long as the agent may call this.
///
/// # Errors
/// The clone is not allowed, or there are no processes left.
#[expect(unsafe_code, reason = "clone3 has no safe binding")]
pub(super) fn clone_keeper(arguments: &CloneArguments<'_>) -> io::Result<Cloned> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let map = |id: u32| CString::new(format!("{id} {id} 1")).map_err(io::Error::from);
    let plan = Plan {
        program: arguments.program.as_raw_fd(),
        socket: arguments.socket.as_raw_fd(),
        join: arguments.join.iter().map(BorrowedFd::as_raw_fd).collect(),
        user: arguments.namespaces.own && arguments.namespaces.user,
        uid_map: map(uid)?,
        gid_map: map(gid)?,
        argv: [c"glean".as_ptr(), c"keeper".as_ptr(), std::ptr::null()],
        envp: [c"PATH=/usr/local/bin:/usr/bin:/bin".as_ptr(), std::ptr::null()],
    };
    let mut pidfd: RawFd = -1;
    // SAFETY: all zeroes is a valid clone_args: every field is an integer.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = arguments.namespaces.flags() | u64::from(libc::CLONE_PIDFD.cast_unsigned());
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    // SAFETY: without CLONE_VM this is a fork. The child runs `become_keeper`
    // only, which makes nothing but system calls on the plan and never
    // returns. `args` and `pidfd` outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) };
    match i32::try_from(pid).ok().map(Pid::from_raw) {
        Some(None) => become_keeper(&plan),
        // SAFETY: the kernel has just made this descriptor for us.
        Some(Some(pid)) if pidfd >= 0 => {
            Ok(Cloned { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// The child's side: joins, drops in, and executes. It joins its groups by
/// itself: some kernels (6.18 is one) kill at once what `CLONE_INTO_CGROUP`
/// puts into a group that was ever killed through `cgroup.kill`.
#[expect(unsafe_code, reason = "after a fork of a threaded process only system calls are allowed")]
fn become_keeper(plan: &Plan) -> ! {
    // SAFETY: every call is a plain system call (async-signal-safe), on
    // memory of the plan that lives until exec replaces it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for procs in &plan.join {
            libc::write(*procs, c"0".as_ptr().cast(), 1);
        }
        if plan.user {
            put(c"/proc/self/setgroups", c"deny");
            put(c"/proc/self/uid_map", &plan.uid_map);
            put(c"/proc/self/gid_map", &plan.gid_map);
            keep_mount_rights();
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        if plan.socket == SOCKET_FD {
            libc::fcntl(SOCKET_FD, libc::F_SETFD, 0);
        } else {
            libc::dup2(plan.socket, SOCKET_FD);
        }
        // What was inherited by accident is no guest's.
        libc::syscall(
            libc::SYS_close_range,
            SOCKET_FD + 1,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        libc::syscall(
            libc::SYS_execveat,
            plan.program,
            c"".as_ptr(),
            plan.argv.as_ptr(),
            plan.envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        libc::_exit(127)
    }
}

#[expect(unsafe_code, reason = "after a fork of a threaded process only system calls are allowed")]
fn put(path: &std::ffi::CStr, text: &std::ffi::CStr) {
    // SAFETY: plain system calls on C strings that live.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, text.as_ptr().cast(), text.count_bytes());
            libc::close(fd);
        }
    }
}

/// A new user namespace grants all rights in it, and exec as anybody but root
/// takes them: keep those to mount and to raise the loopback device.
#[expect(unsafe_code, reason = "after a fork of a threaded process only system calls are allowed")]
fn keep_mount_rights() {
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_SYS_ADMIN: u32 = 21;
    const RIGHTS: u32 = 1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN;
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    let data: [u32; 6] = [RIGHTS, RIGHTS, RIGHTS, 0, 0, 0];
    // SAFETY: the layouts are those of capset(2), on our own stack.
    unsafe {
        libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr());
        for right in [CAP_NET_ADMIN, CAP_SYS_ADMIN] {
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, right, 0, 0);
        }
    }
}
