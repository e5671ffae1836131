//! A guard for a program that lives a lab: whatever ends it, and whenever,
//! nothing of the lab is left behind.
//!
//! ```text
//! glean demo ── guard: waits, kills, clears away
//!                 └── glean demo: the lab, its daemons, its guests
//! ```
//!
//! The program runs itself once more below the guard. A lab that is interrupted
//! cannot be trusted to take itself down: it may be anywhere. The guard kills it
//! with all its descendants, and then removes the one directory that all its
//! files are in, and the cgroups that are named after what is in there.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

use crate::daemon::Home;
use crate::leftovers;

/// Set for whoever runs below a guard.
const GUARDED: &str = "GLEAN_LAB_GUARDED";

/// How often the guard looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(20);

/// Who the caller of [`guard`] is, and what became of the other.
#[derive(Debug)]
pub enum Guarded {
    /// The caller runs below a guard, and is to do the work.
    Below,
    /// The caller was the guard; the work has ended with this exit code.
    Ended(i32),
    /// The caller was the guard; the work was interrupted, or killed.
    Interrupted,
}

/// Runs this program once more, with the same arguments, and clears up after it.
///
/// # Errors
/// The program cannot be started.
pub fn guard() -> Result<Guarded> {
    if env::var_os(GUARDED).is_some() {
        return Ok(Guarded::Below);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    // Whose parent has died becomes ours, so that none escapes.
    set_child_subreaper(Pid::from_raw(1)).context("cannot become everybody's parent")?;
    leftovers::sweep(&env::temp_dir());
    let dir = tempfile::Builder::new().prefix(leftovers::PREFIX).tempdir()?;
    let status = watch(&dir, &interrupted);
    // First the groups: who is frozen in one dies only with it.
    leftovers::end_cgroups(dir.path());
    kill_descendants();
    dir.close().context("cannot remove the lab's directory")?;
    Ok(match status?.code() {
        Some(code) if !interrupted.load(Ordering::Relaxed) => Guarded::Ended(code),
        _ => Guarded::Interrupted,
    })
}

/// Waits for the end of the work, and makes it end if we are interrupted.
fn watch(dir: &TempDir, interrupted: &AtomicBool) -> Result<ExitStatus> {
    // Guests of another user must be able to walk through.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    let _lock = leftovers::claim(dir.path())?;
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(GUARDED, "1").env("TMPDIR", dir.path());
    Home::default().settle(&mut command)?;
    let mut child = command.spawn().context("cannot start the lab")?;
    loop {
        // All of them: those whose parents were killed are ours too, by the thousand.
        while let Some((pid, status)) = wait(WaitOptions::NOHANG)? {
            if pid.as_raw_pid().unsigned_abs() == child.id() {
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
        }
        if interrupted.load(Ordering::Relaxed) {
            child.kill()?;
        }
        std::thread::sleep(LOOK);
    }
}

/// Kills what is left of the work, and what that has started, until none is left.
fn kill_descendants() {
    let own = std::process::id();
    let children = format!("/proc/{own}/task/{own}/children");
    loop {
        let pids = fs::read_to_string(&children).unwrap_or_default();
        for pid in pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if wait(WaitOptions::empty()).is_err_and(|error| error == Errno::CHILD) {
            return;
        }
    }
}
