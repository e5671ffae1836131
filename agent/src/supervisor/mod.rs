//! The supervisor: a process that only waits, so that the one that works may
//! die at any moment.
//!
//! ```text
//! supervisor ──fork──► worker (event loop, link) ──► keepers ──► guests
//! ```
//!
//! The promise: no guest outlives its agent. If the worker dies, the
//! supervisor kills what is left of the guests and starts another worker; if
//! the supervisor dies, the kernel kills the worker, and with it the keepers
//! and their namespaces. Knows nothing of what a worker does.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_shell::backoff::Backoff;
use gleaner_shell::clock::Clock;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use crate::container::cgroup::Tree;

/// A worker that dies at once is not started again at once.
const RESTART_FIRST: Duration = Duration::from_millis(10);
const RESTART_MAX: Duration = Duration::from_secs(5);

/// A worker that lived so long had come up well.
const WELL_AFTER: Duration = Duration::from_secs(10);

/// How long a worker may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// The code with which a worker says that another would fail as well.
pub(crate) const HOPELESS: u8 = 2;

/// Runs `work` in a process of its own, again and again until it is done.
/// Must be called before there is any thread.
///
/// # Errors
/// No process can be made.
pub(crate) fn supervise(tree: Option<&Tree>, work: impl Fn() -> ExitCode) -> io::Result<ExitCode> {
    let signals = block_signals()?;
    // What a worker leaves without namespaces comes to us.
    let _ = rustix::process::set_child_subreaper(Pid::from_raw(1));
    let mut backoff = Backoff::new(RESTART_FIRST, RESTART_MAX);
    loop {
        let begun = Clock.now();
        let worker = fork(&signals, &work)?;
        crate::memory_trim::trim();
        let (status, told_to_stop) = watch(worker, &signals);
        if let Some(tree) = tree {
            tree.kill_all();
        }
        reap_strays();
        match status.and_then(WaitStatus::exit_status) {
            Some(0) => return Ok(ExitCode::SUCCESS),
            Some(code) if code == i32::from(HOPELESS) => return Ok(ExitCode::from(HOPELESS)),
            _ if told_to_stop => return Ok(ExitCode::SUCCESS),
            _ => {}
        }
        if Clock.now().since(begun) > WELL_AFTER {
            backoff.reset();
        }
        let pause = backoff.next().unwrap_or(RESTART_MAX);
        tracing::error!(?status, "the worker died: its guests are dead; another starts");
        if pause > RESTART_FIRST * 2 && stops_within(&signals, pause) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Waits for the worker's end, passing a request to stop on.
fn watch(worker: Pid, signals: &libc::sigset_t) -> (Option<WaitStatus>, bool) {
    let mut give_up_at: Option<Moment> = None;
    loop {
        match rustix::process::waitpid(Some(worker), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return (Some(status), give_up_at.is_some()),
            Ok(None) => {}
            Err(_) => return (None, give_up_at.is_some()),
        }
        let patience = give_up_at.map(|at| at.since(Clock.now()));
        if patience.is_some_and(|left| left.is_zero()) {
            let _ = rustix::process::kill_process(worker, Signal::KILL);
            give_up_at = Some(Moment::MAX);
            continue;
        }
        if let Some(signal) = next_signal(signals, patience)
            && signal != libc::SIGCHLD
            && give_up_at.is_none()
        {
            let _ = rustix::process::kill_process(worker, Signal::TERM);
            give_up_at = Some(Clock.now() + STOP_WITHIN);
        }
    }
}

/// Kills and collects orphans that have come to us; there are none where
/// guests have namespaces.
fn reap_strays() {
    for _ in 0..10_000 {
        match rustix::process::waitpid(None, WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => {
                for pid in
                    crate::container::keeper::descendants().into_iter().filter_map(Pid::from_raw)
                {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
                std::thread::yield_now();
            }
            Err(_) => return,
        }
    }
}

#[expect(unsafe_code, reason = "fork has no safe binding")]
fn fork(signals: &libc::sigset_t, work: &impl Fn() -> ExitCode) -> io::Result<Pid> {
    let supervisor = rustix::process::getpid();
    // SAFETY: this process has one thread, so that the child's memory is
    // whole and it may go on like any program.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(worker) = Pid::from_raw(pid) {
        return Ok(worker);
    }
    // SAFETY: plain system calls on an initialised set.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::sigprocmask(libc::SIG_UNBLOCK, std::ptr::from_ref(signals), std::ptr::null_mut());
    }
    if rustix::process::getppid() != Some(supervisor) {
        // The supervisor died before we asked to be told.
        std::process::exit(1);
    }
    let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    // Anything but the two known codes means: start another.
    let code = match code {
        Ok(code) if code == ExitCode::SUCCESS => 0,
        Ok(code) if code == ExitCode::from(HOPELESS) => i32::from(HOPELESS),
        Ok(_) | Err(_) => 101,
    };
    std::process::exit(code)
}

#[expect(unsafe_code, reason = "signal sets are the C library's")]
fn block_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: the set is ours and initialised before use.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut signals, signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(signals)
    }
}

/// The next of the blocked signals; `None` if none came in time.
#[expect(unsafe_code, reason = "waiting for signals is the C library's")]
fn next_signal(signals: &libc::sigset_t, patience: Option<Duration>) -> Option<i32> {
    // SAFETY: the set is initialised; a null info is allowed.
    let signal = unsafe {
        match patience.filter(|patience| *patience < Duration::from_secs(3_600)) {
            None => libc::sigwaitinfo(std::ptr::from_ref(signals), std::ptr::null_mut()),
            Some(patience) => {
                let timeout = libc::timespec {
                    tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: patience.subsec_nanos().into(),
                };
                libc::sigtimedwait(
                    std::ptr::from_ref(signals),
                    std::ptr::null_mut(),
                    &raw const timeout,
                )
            }
        }
    };
    (signal > 0).then_some(signal)
}

/// Are we told to stop within this time?
fn stops_within(signals: &libc::sigset_t, span: Duration) -> bool {
    let end = Clock.now() + span;
    loop {
        let left = end.since(Clock.now());
        if left.is_zero() {
            return false;
        }
        if next_signal(signals, Some(left)).is_some_and(|signal| signal != libc::SIGCHLD) {
            return true;
        }
    }
}
