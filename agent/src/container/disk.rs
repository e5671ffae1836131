//! What a guest takes of the disk while it runs: what lies in its directories,
//! however deep, and files that it has deleted and still has open or mapped.
//!
//! The guest goes on meanwhile and moves things about. A count that it tears
//! apart is begun anew; a tree that never holds still, or is nested deeper than
//! anybody honest does, counts as more than anybody may have.
//!
//! No file system of a size of its own and no quota: neither can be had under the
//! service's restrictions (no loop device) and on file systems as they are
//! installed. What is only on its way in a socket is not seen: the kernel keeps
//! that to as many descriptors as a process may have.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, SeekFrom, Stat, fstat, seek, statat};

use super::tree::{open_directory, some_of};

/// What anything takes at least: its name, and its inode.
const ENTRY_BYTES_MIN: u64 = 512;

/// How many levels are open at once. One that is deeper finds its way back by
/// `..`, and only there can a guest tear a count apart.
const OPEN_MAX: usize = 32;

/// Nested deeper than anything that a program makes: 10 MB of our memory.
const DEPTH_MAX: usize = 100_000;

/// How often a torn count is begun.
const TRIES: u32 = 3;

/// Bytes on disk below a directory, and in deleted files that the processes of a
/// control group hold. What is mounted there is not looked through, and what has
/// many names counts once. A count that passes `bytes_max` is not finished.
pub(crate) fn disk_usage(directory: &Path, group: Option<&Path>, bytes_max: u64) -> u64 {
    for _ in 0..TRIES {
        let Ok(mut count) = Count::new(directory, bytes_max) else { return 0 };
        match count.below(directory) {
            Err(Uncounted::Torn(_)) => {}
            Err(Uncounted::Deep) => return u64::MAX,
            Ok(()) => {
                if let Some(group) = group {
                    count.held_by(group);
                }
                return count.bytes;
            }
        }
    }
    u64::MAX
}

#[derive(Debug, thiserror::Error)]
enum Uncounted {
    #[error("what is looked at moves")]
    Torn(#[from] io::Error),
    #[error("nested more than {DEPTH_MAX} deep")]
    Deep,
}

impl From<rustix::io::Errno> for Uncounted {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Torn(error.into())
    }
}

#[derive(Debug)]
struct Count {
    device: u64,
    bytes: u64,
    bytes_max: u64,
    /// Files that have other than one name, by their inodes.
    seen: BTreeSet<u64>,
}

/// A directory on the way down. Only the lowest are open.
#[derive(Debug)]
struct Level {
    directory: Option<OwnedFd>,
    inode: u64,
    /// How far it was read when it was closed.
    position: u64,
    /// Directories in it that are to be looked into.
    below: Vec<CString>,
}

impl Level {
    fn of(directory: OwnedFd) -> rustix::io::Result<Self> {
        let inode = fstat(&directory)?.st_ino;
        Ok(Self { directory: Some(directory), inode, position: 0, below: vec![] })
    }

    fn close(&mut self) -> rustix::io::Result<()> {
        if let Some(directory) = self.directory.take() {
            self.position = seek(&directory, SeekFrom::Current(0))?;
        }
        Ok(())
    }

    /// Opens it anew, from a directory in it.
    fn reopen(&mut self, from: &OwnedFd) -> Result<(), Uncounted> {
        if self.directory.is_some() {
            return Ok(());
        }
        let directory = open_directory(from.as_fd(), c"..")?;
        if fstat(&directory)?.st_ino != self.inode {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        seek(&directory, SeekFrom::Start(self.position))?;
        self.directory = Some(directory);
        Ok(())
    }
}

impl Count {
    fn new(directory: &Path, bytes_max: u64) -> io::Result<Self> {
        let about = fs::symlink_metadata(directory)?;
        let bytes = about.blocks().saturating_mul(512);
        Ok(Self { device: about.dev(), bytes, bytes_max, seen: BTreeSet::new() })
    }

    /// Counts what a directory entry or descriptor leads to, if it is on our
    /// file system; is it a directory there?
    fn add(&mut self, about: &Stat) -> bool {
        let directory = FileType::from_raw_mode(about.st_mode).is_dir();
        if about.st_dev != self.device {
            return false;
        }
        if directory || about.st_nlink == 1 || self.seen.insert(about.st_ino) {
            let bytes = about.st_blocks.unsigned_abs().saturating_mul(512);
            self.bytes = self.bytes.saturating_add(bytes.max(ENTRY_BYTES_MIN));
        }
        directory
    }

    fn below(&mut self, root: &Path) -> Result<(), Uncounted> {
        let root = CString::new(root.as_os_str().as_bytes()).map_err(io::Error::from)?;
        let mut levels = vec![Level::of(open_directory(CWD, &root)?)?];
        while let Some(top) = levels.last_mut() {
            if self.bytes > self.bytes_max {
                return Ok(());
            }
            let Some(directory) = &top.directory else { unreachable!("the lowest is open") };
            if let Some(name) = top.below.pop() {
                // One that is gone by now takes nothing.
                let Ok(inner) = open_directory(directory.as_fd(), &name) else { continue };
                if levels.len() >= DEPTH_MAX {
                    return Err(Uncounted::Deep);
                }
                levels.push(Level::of(inner)?);
                if let Some(far) = levels.len().checked_sub(OPEN_MAX + 1) {
                    levels[far].close()?;
                }
                continue;
            }
            let some = some_of(directory)?;
            if some.is_empty() {
                let done = levels.pop().and_then(|level| level.directory);
                if let (Some(done), Some(above)) = (done, levels.last_mut()) {
                    above.reopen(&done)?;
                }
                continue;
            }
            for (name, _) in some {
                let about = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW);
                if about.is_ok_and(|about| self.add(&about)) {
                    top.below.push(name);
                }
            }
        }
        Ok(())
    }

    /// Deleted files that processes of a group have open or mapped.
    fn held_by(&mut self, group: &Path) {
        for process in numbers(&group.join("cgroup.procs")) {
            self.open_in(Path::new(&format!("/proc/{process}/fd")));
            self.mapped_in(process);
            let tasks = fs::read_dir(format!("/proc/{process}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let number = task.file_name().to_str().and_then(|name| name.parse().ok());
                // A thread may have descriptors of its own.
                if number.is_some_and(|number| !shares_descriptors(process, number)) {
                    self.open_in(&task.path().join("fd"));
                }
            }
        }
    }

    fn open_in(&mut self, descriptors: &Path) {
        for entry in fs::read_dir(descriptors).into_iter().flatten().flatten() {
            self.add_deleted(&entry.path());
        }
    }

    fn mapped_in(&mut self, process: i32) {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let mut seen = BTreeSet::new();
        for line in maps.lines().filter(|line| line.ends_with(DELETED)) {
            let mut words = line.split_whitespace();
            let Some(range) = words.next() else { continue };
            // One file is often mapped in parts.
            if seen.insert((words.nth(2), words.next())) {
                self.add_deleted(Path::new(&format!("/proc/{process}/map_files/{range}")));
            }
        }
    }

    /// Adds what one of `/proc`'s links leads to, if that has no name any more.
    /// Nothing else is asked for: it may be on a file system that never answers.
    fn add_deleted(&mut self, link: &Path) {
        let deleted = fs::read_link(link)
            .is_ok_and(|target| target.as_os_str().as_bytes().ends_with(DELETED.as_bytes()));
        if deleted
            && let Ok(about) = statat(CWD, link, AtFlags::empty())
            && about.st_nlink == 0
        {
            self.add(&about);
        }
    }
}

/// How `/proc` marks what has no name any more.
const DELETED: &str = " (deleted)";

fn numbers(path: &Path) -> Vec<i32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Have a process's first thread and another one the same descriptors? Where the
/// kernel does not say, no.
#[expect(unsafe_code, reason = "kcmp has no safe binding")]
fn shares_descriptors(process: i32, thread: i32) -> bool {
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: a plain system call on numbers.
    process == thread
        || unsafe { libc::syscall(libc::SYS_kcmp, process, thread, KCMP_FILES, 0, 0) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::tree::tests::{nest, on_a_small_stack};

    const ALL: u64 = u64::MAX - 1;

    #[test]
    fn a_tree_deeper_than_a_stack_and_than_any_path_is_counted() {
        let home = tempfile::tempdir().unwrap();
        let (depth, levels) = (3_000, 3_000_u64);
        nest(home.path(), depth);
        let bytes = on_a_small_stack(|| disk_usage(home.path(), None, ALL));
        // A file of one byte at each level, and the directory.
        assert!(bytes >= levels * 2 * ENTRY_BYTES_MIN, "{bytes}");
        assert!(bytes < levels * 64 * 1_024, "{bytes}");
        assert!(disk_usage(home.path(), None, 9_000) < bytes, "one that is over is not finished");
    }

    #[test]
    fn a_file_of_many_names_counts_once() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("a"), vec![1; 1 << 20]).unwrap();
        let once = disk_usage(home.path(), None, ALL);
        fs::hard_link(home.path().join("a"), home.path().join("b")).unwrap();
        assert!(once >= 1 << 20 && disk_usage(home.path(), None, ALL) < once + (1 << 19));
    }
}
