//! Real guests, moved by a real CRIU from one place to another on this
//! machine. Left out, aloud, where that cannot be had.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of this is tests, without the attribute that tells clippy so"
)]

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_move::Engine;
use gleaner_move::trial::{Site, trial};

/// Places have names: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

struct Lab {
    site: Site,
    _home: tempfile::TempDir,
    _one: MutexGuard<'static, ()>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.site.groups);
    }
}

fn lab() -> Option<Lab> {
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !rustix::process::geteuid().is_root() {
        println!("left out: guests can be moved by root only");
        return None;
    }
    let engine = match Engine::find(None) {
        Ok(engine) => engine,
        Err(error) => {
            println!("left out: {error}; {}", error.hint());
            return None;
        }
    };
    let mount = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.join("cgroup.procs").exists());
    let Some(mount) = mount else {
        println!("left out: no version 2 control groups");
        return None;
    };
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(0), Some(0)).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let groups = mount.join(format!("gleaner-move-{}", std::process::id()));
    let site = Site::new(engine, &groups, home.path()).unwrap();
    Some(Lab { site, _home: home, _one: one })
}

#[test]
fn a_guest_goes_on_elsewhere() {
    let Some(lab) = lab() else { return };
    let tried = trial(&lab.site).unwrap();
    println!("moved {} bytes in {:?}", tried.image_bytes, tried.moving);
}
