//! What a guest sees of the file system: the system, its own place, and
//! nothing of anybody else's.
//!
//! Landlock keeps a guest from opening files; it does not keep it from
//! connecting to a socket that lies somewhere, and older kernels have none of
//! it. So the directories where people and daemons keep their things are
//! covered with empty ones, in the keeper's own mount namespace. What was
//! granted and lies below a covered one is shown again.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};

use super::place_files::{is_empty, open_directory};
use super::protocol::Sandbox;

/// Where the things of people and daemons are. Covered by emptiness.
const COVERED: [&str; 7] = ["/run", "/var", "/home", "/root", "/srv", "/mnt", "/media"];

/// Scratch directories that programs expect by name. Covered by memory of the
/// keeper's own; it empties them after each guest.
pub(super) const SCRATCH: [&str; 2] = ["/tmp", "/dev/shm"];

/// Scratch in memory where no memory limit says less.
const SCRATCH_BYTES_MAX: u64 = 1 << 30;

/// Puts the covers on. All or nothing of what matters: an error leaves mounts
/// that hide more than they should, never less.
pub(super) fn narrow(sandbox: &Sandbox) -> io::Result<()> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let granted: Vec<_> =
        granted_by(sandbox).filter_map(|path| Some((path, open_path(path).ok()?))).collect();
    for cover in COVERED {
        cover_with(cover, "mode=0755,size=64k")?;
    }
    let most = scratch_bytes_max(sandbox);
    for scratch in SCRATCH {
        cover_with(scratch, &format!("mode=1777,size={most}"))?;
    }
    for (path, opened) in granted {
        let covered = COVERED.iter().chain(&SCRATCH).any(|cover| path.starts_with(cover));
        if covered && !path.exists() {
            fs::create_dir_all(path)?;
            let from = format!("/proc/self/fd/{}", opened.as_raw_fd());
            rustix::mount::mount_bind_recursive(from, path)?;
        }
    }
    for cover in COVERED.into_iter().filter(|cover| is_real_directory(cover)) {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        // Only tidiness: nothing can be kept there that outlives the keeper.
        let _ = rustix::mount::mount_remount(cover, flags, "");
    }
    Ok(())
}

/// What each scratch directory may hold.
pub(super) fn scratch_bytes_max(sandbox: &Sandbox) -> u64 {
    match sandbox.limits.data_bytes_max {
        0 => SCRATCH_BYTES_MAX,
        bytes => bytes.min(SCRATCH_BYTES_MAX),
    }
}

fn cover_with(path: &str, options: &str) -> io::Result<()> {
    if !is_real_directory(path) {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = std::ffi::CString::new(options)?;
    Ok(rustix::mount::mount("gleaner", path, "tmpfs", flags, options.as_c_str())?)
}

/// A link leads to a directory that is covered under its own name.
fn is_real_directory(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}

fn open_path(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// The scratch directories, open: most guests leave them empty.
#[derive(Debug)]
pub(super) struct Scratch(Vec<(&'static str, OwnedFd)>);

impl Scratch {
    pub(super) fn open() -> Self {
        let open = |path| Some((path, open_directory(Path::new(path)).ok()?));
        Self(SCRATCH.into_iter().filter_map(open).collect())
    }

    /// Empties them; `false` if something stays.
    pub(super) fn empty(&self, sandbox: &Sandbox) -> bool {
        self.0.iter().all(|(path, opened)| is_empty(opened) || clear_below(path, sandbox))
    }
}

fn clear_below(scratch: &str, sandbox: &Sandbox) -> bool {
    let entries: Vec<PathBuf> = fs::read_dir(scratch)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| !leads_to_granted(path, sandbox))
        .collect();
    for path in &entries {
        if fs::symlink_metadata(path).is_ok_and(|about| about.is_dir()) {
            crate::container::tree::clear(path);
        } else {
            let _ = fs::remove_file(path);
        }
    }
    entries.iter().all(|path| fs::symlink_metadata(path).is_err())
}

/// Does something granted lie there? It is shown, not scratch.
fn leads_to_granted(path: &Path, sandbox: &Sandbox) -> bool {
    granted_by(sandbox).any(|granted| granted.starts_with(path))
}

fn granted_by(sandbox: &Sandbox) -> impl Iterator<Item = &PathBuf> {
    [&sandbox.directory].into_iter().chain(&sandbox.readable).chain(&sandbox.writable)
}
