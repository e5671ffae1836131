//! A guest place's directories and files.
//!
//! ```text
//! DATA/places/p0/            root's, so that a guest cannot swap what is in it
//!   guest/work  guest/output the guest's own
//!   tmp  stdout  stderr      the guest's own
//! DATA/outgoing/FENCE/       what a guest left, out of the next one's reach
//! ```
//!
//! The promise: a guest starts in empty directories. What the last one left is
//! moved away by renaming, whatever its size. Knows nothing of processes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};

use gleaner_common::id::{Fence, PlaceId};
use rustix::fs::{Mode, OFlags};

use super::tree::clear;

/// Where a guest runs, below its place.
pub const WORK: &str = "guest/work";

/// What a guest owns at its place.
const OWNED: [&str; 3] = [WORK, "guest/output", "tmp"];
const PRINTED: [&str; 2] = ["stdout", "stderr"];

/// Why a place has no directories to run a guest in.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare {path}")]
pub struct DirectoriesError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// One place's directories.
#[derive(Debug)]
pub struct PlaceDirectories {
    root: PathBuf,
    outgoing: PathBuf,
    uid: Option<u32>,
}

impl PlaceDirectories {
    /// # Errors
    /// The directories cannot be made.
    pub fn prepare(
        data: &Path,
        place: PlaceId,
        uid: Option<u32>,
    ) -> Result<Self, DirectoriesError> {
        let directories = Self {
            root: data.join("places").join(place.to_string()),
            outgoing: data.join("outgoing"),
            uid,
        };
        clear(&directories.root);
        directory(&directories.outgoing, 0o700)?;
        directories.lay()?;
        Ok(directories)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a guest runs.
    pub fn work(&self) -> PathBuf {
        self.root.join(WORK)
    }

    /// The directory that guests run in as it is now, wherever it is moved to.
    ///
    /// # Errors
    /// The directory is not there.
    pub fn open_work(&self) -> Result<OwnedFd, DirectoriesError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = self.work();
        rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|error| DirectoriesError { path, source: error.into() })
    }

    pub fn output(&self) -> PathBuf {
        self.root.join("guest/output")
    }

    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub fn uid(&self) -> Option<u32> {
        self.uid
    }

    /// Moves away all that a guest left, and makes the directories anew. Returns
    /// where it is now.
    ///
    /// # Errors
    /// What was left cannot be moved, or the directories not be made anew.
    pub fn take_away(&self, fence: Fence) -> Result<PathBuf, DirectoriesError> {
        let to = self.outgoing.join(fence.packed().to_string());
        clear(&to);
        directory(&to, 0o700)?;
        for name in ["guest", "tmp", "stdout", "stderr"] {
            let from = self.root.join(name);
            match fs::rename(&from, to.join(name)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(DirectoriesError { path: from, source }),
            }
        }
        self.lay()?;
        Ok(to)
    }

    fn lay(&self) -> Result<(), DirectoriesError> {
        directory(&self.root.join("guest"), 0o755)?;
        for name in OWNED {
            let path = self.root.join(name);
            directory(&path, 0o700)?;
            self.give(&path)?;
        }
        for name in PRINTED {
            let path = self.root.join(name);
            OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&path)
                .map_err(|source| DirectoriesError { path: path.clone(), source })?;
            self.give(&path)?;
        }
        Ok(())
    }

    fn give(&self, path: &Path) -> Result<(), DirectoriesError> {
        chown(path, self.uid, self.uid)
            .map_err(|source| DirectoriesError { path: path.to_path_buf(), source })
    }
}

/// Opens a file that a guest may have put there: never through a link, and
/// only a regular file.
///
/// # Errors
/// Anything else than a regular file, or one that cannot be opened.
pub fn open_strange(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("expected a regular file"))
    }
}

fn directory(path: &Path, mode: u32) -> Result<(), DirectoriesError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|source| DirectoriesError { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_guest_starts_on_empty_ground() {
        let data = tempfile::tempdir().unwrap();
        let directories = PlaceDirectories::prepare(data.path(), PlaceId(0), None).unwrap();
        fs::write(directories.work().join("x"), "left").unwrap();
        fs::write(directories.root().join("stdout"), "said").unwrap();
        let away = directories.take_away(Fence::of(7)).unwrap();
        assert_eq!(fs::read_to_string(away.join("guest/work/x")).unwrap(), "left");
        assert_eq!(fs::read_to_string(away.join("stdout")).unwrap(), "said");
        assert_eq!(fs::read_dir(directories.work()).unwrap().count(), 0);
        assert_eq!(fs::metadata(directories.root().join("stdout")).unwrap().len(), 0);
    }

    #[test]
    fn a_link_is_not_followed_and_a_pipe_not_waited_for() {
        let data = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", data.path().join("link")).unwrap();
        assert!(open_strange(&data.path().join("link")).is_err());
        assert!(open_strange(data.path()).is_err());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            data.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(open_strange(&data.path().join("pipe")).is_err());
    }
}
