//! A guest's birth: a process of the keeper's becomes the guest's user, gives up
//! what the keeper has, and then becomes the guest's program.
//!
//! As `posix_spawn` does it: the child borrows the keeper's memory until its
//! program runs, and the keeper waits as long. So it neither copies page tables
//! nor returns before the program runs or is known not to. Between birth and
//! program the child only makes system calls: all that they need is laid out
//! beforehand.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io;
use std::os::fd::RawFd;

use rustix::process::Pid;

use super::filter::Filter;

/// Room for the child's few calls.
const STACK_BYTES: usize = 64 << 10;

/// What the guest is, and what it may.
#[derive(Debug)]
pub(super) struct Birth<'a> {
    pub(super) program: CString,
    pub(super) argv: Vec<CString>,
    pub(super) envp: Vec<CString>,
    /// Which descriptor goes where, in an order that overwrites none too early.
    pub(super) descriptors: Vec<(RawFd, RawFd)>,
    /// In a session of its own; otherwise a process group.
    pub(super) own_session: bool,
    /// System V and POSIX queues and shared memory of its own, and none of
    /// anybody before it.
    pub(super) own_ipc: bool,
    /// Who it is; `None` stays who we are.
    pub(super) uid: Option<u32>,
    pub(super) limits: Vec<(u32, libc::rlimit)>,
    /// Without one it may keep keys: those of whoever was that user before are
    /// forgotten.
    pub(super) filter: Option<&'a Filter>,
}

/// How far a child came that has not become its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// One of its walls could not be had.
    Walls,
    Program,
}

/// A child's failure.
#[derive(Debug)]
pub(super) struct Stillborn {
    pub(super) step: Step,
    pub(super) source: io::Error,
}

/// What the child reads, and where it says how far it came.
struct Plan<'a> {
    of: &'a Birth<'a>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    filters: Vec<libc::sock_fprog>,
    step: Step,
    error: c_int,
}

impl Birth<'_> {
    /// # Errors
    /// No process, or it has not become the program.
    #[expect(unsafe_code, reason = "a child that borrows our memory has no safe binding")]
    pub(super) fn give(&self) -> Result<Pid, Stillborn> {
        let programs = self.filter.iter().flat_map(|filter| &filter.0);
        let mut plan = Plan {
            of: self,
            argv: pointers(&self.argv),
            envp: pointers(&self.envp),
            filters: programs
                .map(|program| libc::sock_fprog {
                    len: u16::try_from(program.len()).unwrap_or(0),
                    filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut(),
                })
                .collect(),
            step: Step::Walls,
            error: 0,
        };
        let ipc = if self.own_ipc { libc::CLONE_NEWIPC } else { 0 };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | ipc | libc::SIGCHLD;
        let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
        let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
        let plan_address = (&raw mut plan).cast::<c_void>();
        // SAFETY: the child runs `born` alone, on a stack of its own that is
        // aligned and lives until after, and we do not run until it has become
        // another program or ended. `born` makes nothing but system calls, and
        // writes to nothing but the plan.
        let pid = unsafe { libc::clone(born, top.cast(), flags, plan_address) };
        let Some(pid) = Pid::from_raw(pid.max(0)) else {
            return Err(Stillborn { step: Step::Walls, source: io::Error::last_os_error() });
        };
        if plan.error == 0 {
            return Ok(pid);
        }
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        Err(Stillborn { step: plan.step, source: io::Error::from_raw_os_error(plan.error) })
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

#[expect(unsafe_code, reason = "the kernel calls it with what it was given")]
extern "C" fn born(plan: *mut c_void) -> c_int {
    // SAFETY: it is the plan of `give`, which waits; nobody else has it.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    // SAFETY: we are a child as `become_guest` wants it.
    plan.error = unsafe { become_guest(plan) }.err().unwrap_or(libc::ENOEXEC);
    // SAFETY: ends this process at once.
    unsafe { libc::_exit(127) }
}

/// Returns only if it fails, with the kernel's number for that.
#[expect(unsafe_code, reason = "only plain system calls are allowed here")]
unsafe fn become_guest(plan: &mut Plan<'_>) -> Result<(), c_int> {
    let of = plan.of;
    // SAFETY: plain system calls, on memory of the plan or of this stack. Users
    // are changed without the C library, which would tell threads that are not ours.
    unsafe {
        settle(of)?;
        for (resource, limit) in &of.limits {
            check(libc::setrlimit(*resource, limit).into())?;
        }
        if let Some(uid) = of.uid {
            check(libc::syscall(libc::SYS_setresgid, uid, uid, uid))?;
            check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
            check(set_rights(0))?;
        }
        if plan.filters.is_empty() {
            forget_keys();
        }
        for filter in &plan.filters {
            let mode = libc::SECCOMP_SET_MODE_FILTER;
            check(libc::syscall(libc::SYS_seccomp, mode, 0, &raw const *filter))?;
        }
        plan.step = Step::Program;
        let program: &CStr = &of.program;
        check(libc::execve(program.as_ptr(), plan.argv.as_ptr(), plan.envp.as_ptr()).into())
    }
}

/// Its descriptors, its signals and its session.
///
/// # Safety
/// As of [`become_guest`].
#[expect(unsafe_code, reason = "only plain system calls are allowed here")]
unsafe fn settle(of: &Birth<'_>) -> Result<(), c_int> {
    // SAFETY: plain system calls, on memory of the plan or of this stack.
    unsafe {
        check(if of.own_session { libc::setsid() } else { libc::setpgid(0, 0) }.into())?;
        for (from, to) in &of.descriptors {
            let done = if from == to {
                libc::fcntl(*to, libc::F_SETFD, 0)
            } else {
                libc::dup2(*from, *to)
            };
            check(done.into())?;
        }
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGPIPE, &raw const default, std::ptr::null_mut());
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()).into())
    }
}

fn check(result: c_long) -> Result<(), c_int> {
    if result >= 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

/// Leaves the calling process these rights, by their bits, and no others. As a
/// system call returns.
#[expect(unsafe_code, reason = "capset has no safe binding")]
pub(super) fn set_rights(rights: u32) -> c_long {
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    // Effective and permitted ones, none inherited; those with high numbers.
    let data: [u32; 6] = [rights, rights, 0, 0, 0, 0];
    // SAFETY: the layouts are those of capset(2), on our own stack.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }
}

/// Empties the keyrings that the kernel keeps for a user beyond the user's last
/// process, and leaves those of whoever started us.
///
/// Source: keyctl(2), keyrings(7). What cannot be had is not there.
#[expect(unsafe_code, reason = "keyrings have no safe binding")]
pub(super) fn forget_keys() {
    const CLEAR: c_int = 7;
    const GET_PERSISTENT: c_int = 22;
    const PROCESS: c_int = -2;
    const USER: c_int = -4;
    const USER_SESSION: c_int = -5;
    const OWN: c_int = -1;
    leave_session_keyring();
    // SAFETY: plain system calls.
    unsafe {
        let persistent = libc::syscall(libc::SYS_keyctl, GET_PERSISTENT, OWN, PROCESS);
        for keyring in [USER.into(), USER_SESSION.into(), persistent] {
            libc::syscall(libc::SYS_keyctl, CLEAR, keyring);
        }
    }
}

/// Exchanges the session keyring for an empty one: it is that of whoever started
/// us, and all in it would be ours to read.
#[expect(unsafe_code, reason = "keyrings have no safe binding")]
pub(super) fn leave_session_keyring() {
    const JOIN_SESSION: c_int = 1;
    // SAFETY: a plain system call; a keyring without a name.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION, std::ptr::null::<c_char>()) };
}
