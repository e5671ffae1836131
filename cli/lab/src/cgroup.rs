//! The lab's part of the cgroup v2 tree, where it may be written.

use std::fs;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::wait;

/// Where cgroup v2 may be mounted: alone, or beside v1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A cgroup that is killed and removed, with all below it, when dropped.
#[derive(Debug)]
pub struct Cgroup {
    pub path: PathBuf,
}

impl Cgroup {
    /// A new one at the top of the tree; `None` where that is not allowed.
    pub fn at_top(name: &str) -> Option<Self> {
        let path = top()?.join(name);
        fs::create_dir(&path).ok()?;
        path.join("cgroup.kill").exists().then_some(Self { path })
    }

    /// A cgroup that a lab has left at the top of the tree, to be dropped.
    pub(crate) fn left(name: &str) -> Option<Self> {
        let path = top()?.join(name);
        path.is_dir().then_some(Self { path })
    }

    /// # Errors
    /// The kernel refuses.
    pub fn create(&self, below: &str) -> Result<PathBuf> {
        let path = self.path.join(below);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        // On a loaded machine it takes a while until what was killed has ended.
        let gone = wait::until("the lab's cgroup is gone", wait::PATIENCE, || {
            remove_tree(&self.path);
            Ok((!self.path.exists()).then_some(()))
        });
        if let Err(error) = gone {
            tracing::warn!(cgroup = %self.path.display(), "{error}");
        }
        remove_legacy(&self.path);
    }
}

fn top() -> Option<&'static Path> {
    MOUNTS.into_iter().map(Path::new).find(|at| at.join("cgroup.procs").exists())
}

/// Removes what agents of the lab have made in the hierarchies of version 1,
/// under names of the lab's and the host's.
fn remove_legacy(lab: &Path) {
    let name = format!("{}-", lab.file_name().unwrap_or_default().to_string_lossy());
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controller), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mount = Path::new("/sys/fs/cgroup").join(controller);
        let inside = mount.join(path.trim_start_matches('/'));
        for parent in [mount, inside] {
            for group in subgroups(&parent) {
                let found = group.file_name().unwrap_or_default().to_string_lossy();
                if !controller.is_empty() && found.starts_with(&name) {
                    remove_tree(&group);
                }
            }
        }
    }
}

fn remove_tree(path: &Path) {
    for below in subgroups(path) {
        remove_tree(&below);
    }
    let _ = fs::remove_dir(path);
}

/// The cgroups directly below one.
pub fn subgroups(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return vec![] };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The processes of a cgroup and of all below it.
pub fn processes(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let own = text.lines().filter_map(|line| line.parse().ok());
    own.chain(subgroups(path).iter().flat_map(|below| processes(below))).collect()
}

/// CPU time used so far by a cgroup, in microseconds.
pub fn cpu_us(path: &Path) -> u64 {
    let text = fs::read_to_string(path.join("cpu.stat")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("usage_usec "))
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// A watch on one cgroup's frozen state that costs one `read` a look.
#[derive(Debug)]
pub struct FrozenWatch(fs::File);

impl FrozenWatch {
    /// # Errors
    /// The cgroup is not there.
    pub fn new(path: &Path) -> Result<Self> {
        let file = path.join("cgroup.events");
        Ok(Self(fs::File::open(&file).with_context(|| format!("cannot open {}", file.display()))?))
    }

    pub fn is_frozen(&mut self) -> bool {
        let mut text = [0; 64];
        let _ = self.0.rewind();
        let read = self.0.read(&mut text).unwrap_or(0);
        text[..read].windows(8).any(|word| word == b"frozen 1")
    }
}
