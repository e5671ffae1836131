//! What a guest sees of the file system: the system, its own place, and
//! nothing of anybody else's ([`gleaner_move::stage`]). What it leaves in scratch
//! directories is removed before the next one comes.
//!
//! Landlock keeps a guest from opening files; it does not keep it from looking
//! whether they are there, nor from connecting to a socket that lies somewhere,
//! and older kernels have none of it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use gleaner_move::stage::Stage;

use super::place_files::{is_empty, open_directory};
use super::protocol::Sandbox;
use crate::container::tree::clear;

/// Scratch directories that programs expect by name: memory of the keeper's own,
/// emptied after each guest.
pub(super) const SCRATCH: [&str; 2] = ["/tmp", "/dev/shm"];

/// Scratch in memory where no memory limit says less.
const SCRATCH_BYTES_MAX: u64 = 1 << 30;

/// The root directory that a keeper makes for itself.
pub(super) fn stage(sandbox: &Sandbox) -> Stage {
    Stage {
        readable: sandbox.readable.clone(),
        writable: sandbox.writable.clone(),
        ground: sandbox.directory.clone(),
        scratch_bytes_max: scratch_bytes_max(sandbox),
        knowledge: sandbox.knowledge.clone().unwrap_or_default(),
    }
}

/// What each scratch directory may hold.
fn scratch_bytes_max(sandbox: &Sandbox) -> u64 {
    match sandbox.limits.data_bytes_max {
        0 => SCRATCH_BYTES_MAX,
        bytes => bytes.min(SCRATCH_BYTES_MAX),
    }
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
        clear(path);
    }
    entries.iter().all(|path| fs::symlink_metadata(path).is_err())
}

/// Does something granted lie there? It is shown, not scratch.
fn leads_to_granted(path: &Path, sandbox: &Sandbox) -> bool {
    let mut granted = sandbox.readable.iter().chain(&sandbox.writable);
    granted.any(|granted| granted.starts_with(path))
}
