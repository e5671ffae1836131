//! What labs leave behind that were killed: directories and cgroups. The next
//! lab clears them away, so that nobody does so by hand and hits one that lives.
//!
//! A lab holds a lock in its directory for as long as it lives. Only what is
//! known to be dead is touched: there is a lock, and nobody holds it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use gleaner_shell::lock::Lock;

use crate::cgroup::Cgroup;

/// How the name of a lab's directory begins, which is its cgroup's as well.
pub(crate) const PREFIX: &str = "glean-lab-";

/// In a lab's directory: locked while it lives.
const LOCK: &str = "lock";

/// Says that the lab of this directory lives, until it is dropped.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn claim(dir: &Path) -> Result<Lock> {
    // Under its name it is locked from the first moment on.
    let unnamed = dir.join("lock.new");
    let lock = Lock::take(File::create(&unnamed)?)?.context("somebody else holds a new lock")?;
    fs::rename(&unnamed, dir.join(LOCK))?;
    Ok(lock)
}

/// Clears away what dead labs of this user have left in a directory.
pub(crate) fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link's target is not ours, nor what somebody else may have put there.
        let is_ours = entry.metadata().is_ok_and(|found| {
            found.is_dir() && found.uid() == rustix::process::geteuid().as_raw()
        });
        if name.starts_with(PREFIX) && is_ours && is_dead(&entry.path()) {
            tracing::debug!(lab = name, "removing what a dead lab has left");
            clear(&entry.path());
        }
    }
}

/// Clears away a dead lab's directory, or one that labs were in.
pub(crate) fn clear(dir: &Path) {
    end_cgroups(dir);
    let _ = fs::remove_dir_all(dir);
}

/// Ends the cgroups that are named after a directory and after those in it.
pub(crate) fn end_cgroups(dir: &Path) {
    let inside = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    for name in inside.chain(dir.file_name().map(ToOwned::to_owned)) {
        let name = name.to_string_lossy();
        drop(name.starts_with(PREFIX).then(|| Cgroup::left(&name)));
    }
}

fn is_dead(dir: &Path) -> bool {
    File::open(dir.join(LOCK)).and_then(Lock::take).is_ok_and(|lock| lock.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_labs_are_cleared_away_and_living_ones_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = parent.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("coordinator.log"), "").unwrap();
            dir
        };
        let [living, dead] = ["glean-lab-a", "glean-lab-b"].map(make);
        let [unmarked, other] = ["glean-lab-c", "d"].map(make);
        let _living = claim(&living).unwrap();
        drop(claim(&dead).unwrap());
        drop(claim(&other).unwrap());
        sweep(parent.path());
        let left = [&living, &dead, &unmarked, &other].map(|dir| dir.exists());
        assert_eq!(left, [true, false, true, true]);
    }
}
