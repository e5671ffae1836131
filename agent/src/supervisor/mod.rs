//! The supervisor: a process that only waits, so that the one that works may
//! die or hang at any moment.
//!
//! ```text
//! supervisor ──fork──► worker (event loop, link) ──► keepers ──► guests
//!     ▲ ╎                 │ beats                       │ the lease's end
//!     ╎ └╌╌ freezes, kills ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╎╌╌╌╌╌╌► guests
//!     └── page ◄──────────┴─────────────────────────────┘
//! ```
//!
//! The promises: no guest outlives its agent, and none runs while nobody looks
//! after its owner and its lease. If the worker dies, the supervisor kills what is
//! left of the guests and starts another worker; if the supervisor dies, the kernel
//! kills the worker, and with it the keepers and their namespaces. A worker that
//! hangs does not vouch for its guests ([`beats`]): they are frozen, and killed at
//! the lease's end ([`watch`]); should the supervisor hang as well, each keeper ends
//! by a timer of its own. Knows nothing of what a worker does.

mod beats;
mod hold;
mod watch;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gleaner_agent_core::watchdog::{Order, Watchdog};
use gleaner_shell::backoff::Backoff;
use gleaner_shell::clock::{Alarm, Clock};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

pub(crate) use self::beats::{Beats, lease_end_in};
use self::hold::Hold;
use self::watch::{Signals, Watch};
use crate::container::cgroup::Tree;

/// A worker that dies at once is not started again at once.
const RESTART_FIRST: Duration = Duration::from_millis(10);
const RESTART_MAX: Duration = Duration::from_secs(5);

/// A worker that lived so long had come up well.
const WELL_AFTER: Duration = Duration::from_secs(10);

/// How long a worker may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// What a dead worker leaves is killed by the kernel in milliseconds; what is stuck
/// there takes longer than anybody waits.
const STRAYS_EVERY: Duration = Duration::from_millis(1);
const STRAYS_LOOKED_FOR: u32 = 1_000;

/// The code with which a worker says that another would fail as well.
pub(crate) const HOPELESS: u8 = 2;

/// Runs `work` in a process of its own, again and again until it is done.
/// Must be called before there is any thread.
///
/// # Errors
/// No process can be made.
pub(crate) fn supervise(
    tree: Option<&Tree>,
    work: impl Fn(&Arc<Beats>) -> ExitCode,
) -> io::Result<ExitCode> {
    let signals = Signals::block()?;
    let (alarm, mut hold) = (Alarm::new()?, Hold::new(tree));
    // What a worker leaves without namespaces comes to us.
    let _ = rustix::process::set_child_subreaper(Pid::from_raw(1));
    if let Err(error) = crate::realtime::claim() {
        tracing::debug!(%error, "the supervisor queues for a core like everybody");
    }
    let mut backoff = Backoff::new(RESTART_FIRST, RESTART_MAX);
    loop {
        let begun = Clock.now();
        let beats = Arc::new(Beats::new()?);
        let worker = fork(&signals, || work(&beats))?;
        stay_in_memory();
        // Whatever it takes to freeze is in memory from now on.
        hold.obey(Order::Thaw, worker);
        let watch = Watch {
            worker,
            signals: &signals,
            alarm: &alarm,
            beats: &beats,
            hold: &mut hold,
            watchdog: Watchdog::default(),
            give_up_at: None,
        };
        let (status, told_to_stop) = watch.until_its_end();
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
        if pause > RESTART_FIRST * 2 && signals.stops_before(&alarm, Clock.now() + pause) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// What the supervisor has used stays in memory: it is needed where there is none.
#[expect(unsafe_code, reason = "locking memory as it is used has no safe binding")]
fn stay_in_memory() {
    // SAFETY: plain system calls. Locked memory cannot be given back.
    unsafe { libc::munlockall() };
    crate::memory_trim::trim();
    // SAFETY: as above. Where it is not allowed, what is swapped out comes late.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) };
}

/// Kills and collects orphans that have come to us. What does not die soon is
/// collected when it does, as the next worker is watched.
fn reap_strays() {
    for _ in 0..STRAYS_LOOKED_FOR {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => continue,
            Ok(None) => {}
            Err(_) => return,
        }
        for pid in crate::container::keeper::descendants().into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(STRAYS_EVERY);
    }
}

#[expect(unsafe_code, reason = "fork has no safe binding")]
fn fork(signals: &Signals, work: impl Fn() -> ExitCode) -> io::Result<Pid> {
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
        libc::sigprocmask(libc::SIG_UNBLOCK, signals.set(), std::ptr::null_mut());
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
