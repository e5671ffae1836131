//! A place's directories and files as its keeper holds them: open from one
//! guest to the next, because most guests leave them as they found them.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gleaner_common::wire::INLINE_OUTPUT_BYTES_MAX;
use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom};

/// What a guest may fill, within its place.
const OWNED: [&str; 3] = ["guest/work", "guest/output", "tmp"];

/// A place's directories and files, open.
#[derive(Debug)]
pub(super) struct PlaceFiles {
    pub(super) stdout: File,
    pub(super) stderr: File,
    owned: Vec<OwnedFd>,
    /// How its directories and files were when it was laid.
    laid: Vec<Option<Traits>>,
    /// Where we have gone last.
    entered: Option<PathBuf>,
}

impl PlaceFiles {
    /// # Errors
    /// Something is not there, or is not what it should be.
    pub(super) fn open(place: &Path) -> io::Result<Self> {
        let owned = OWNED.iter().map(|name| open_directory(&place.join(name)));
        let mut files = Self {
            stdout: open_output(&place.join("stdout"))?,
            stderr: open_output(&place.join("stderr"))?,
            owned: owned.collect::<io::Result<_>>()?,
            laid: vec![],
            entered: None,
        };
        files.laid = files.traits();
        Ok(files)
    }

    /// Goes where the next guest starts.
    ///
    /// # Errors
    /// The directory cannot be entered.
    pub(super) fn enter(&mut self, directory: &Path) -> io::Result<()> {
        if self.entered.as_deref() != Some(directory) {
            rustix::process::chdir(directory)?;
            self.entered = Some(directory.to_path_buf());
        }
        Ok(())
    }

    /// Is there nothing in it that a guest left, and nothing that it changed?
    pub(super) fn is_clean(&self) -> bool {
        self.owned.iter().all(is_empty) && self.laid == self.traits()
    }

    fn traits(&self) -> Vec<Option<Traits>> {
        let printed = [self.stdout.as_fd(), self.stderr.as_fd()];
        self.owned.iter().map(AsFd::as_fd).chain(printed).map(Traits::of).collect()
    }
}

/// What the owner of a file can change of it beside its content.
#[derive(Debug, PartialEq, Eq)]
struct Traits {
    mode: u32,
    uid: u32,
    gid: u32,
    /// The names of its extended attributes, in a row.
    attributes: Vec<u8>,
}

impl Traits {
    /// `None` if they cannot be had, as of who has too many.
    fn of(file: BorrowedFd<'_>) -> Option<Self> {
        let about = rustix::fs::fstat(file).ok()?;
        let mut names = [0; 1_024];
        let length = match rustix::fs::flistxattr(file, &mut names[..]) {
            Err(rustix::io::Errno::OPNOTSUPP) => 0,
            length => length.ok()?,
        };
        let attributes = names[..length].to_vec();
        Some(Self { mode: about.st_mode, uid: about.st_uid, gid: about.st_gid, attributes })
    }
}

/// What a guest printed, if it rides inline; the file is then empty again.
pub(super) fn take_output(file: &File) -> (Vec<u8>, u64) {
    let size = file.metadata().map_or(0, |data| data.len());
    let room = usize::try_from(size).unwrap_or(usize::MAX);
    if size == 0 || room > INLINE_OUTPUT_BYTES_MAX {
        return (vec![], size);
    }
    let mut bytes = vec![0; room];
    match file.read_exact_at(&mut bytes, 0).and_then(|()| file.set_len(0)) {
        Ok(()) => (bytes, size),
        Err(_) => (vec![], size),
    }
}

fn open_output(path: &Path) -> io::Result<File> {
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().read(true).append(true).custom_flags(nofollow).open(path)
}

pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Is nothing in an open directory? An unreadable one counts as full.
pub(super) fn is_empty(directory: &OwnedFd) -> bool {
    let mut room = [MaybeUninit::uninit(); 1_024];
    if rustix::fs::seek(directory, SeekFrom::Start(0)).is_err() {
        return false;
    }
    let mut entries = RawDir::new(directory, &mut room);
    while let Some(entry) = entries.next() {
        match entry.map(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")) {
            Ok(true) => {}
            Ok(false) | Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_a_guest_leaves_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        for name in OWNED {
            std::fs::create_dir_all(home.path().join(name)).unwrap();
        }
        for name in ["stdout", "stderr"] {
            std::fs::write(home.path().join(name), "").unwrap();
        }
        let files = PlaceFiles::open(home.path()).unwrap();
        assert!(files.is_clean());
        for name in ["guest/work/.hidden", "guest/output/x", "tmp/y"] {
            let path = home.path().join(name);
            std::fs::write(&path, "").unwrap();
            assert!(!files.is_clean(), "{name}");
            std::fs::remove_file(&path).unwrap();
            assert!(files.is_clean(), "{name}");
        }
    }

    #[test]
    fn what_a_guest_changes_of_its_ground_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        for name in OWNED {
            std::fs::create_dir_all(home.path().join(name)).unwrap();
        }
        for name in ["stdout", "stderr"] {
            std::fs::write(home.path().join(name), "").unwrap();
        }
        for name in ["guest/work", "tmp", "stdout"] {
            let files = PlaceFiles::open(home.path()).unwrap();
            let path = home.path().join(name);
            let before = path.metadata().unwrap().permissions();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
            assert!(!files.is_clean(), "{name}: its mode");
            std::fs::set_permissions(&path, before).unwrap();
            assert!(files.is_clean(), "{name}");
            let flags = rustix::fs::XattrFlags::empty();
            match rustix::fs::setxattr(&path, "user.left", b"x", flags) {
                Ok(()) => assert!(!files.is_clean(), "{name}: its attributes"),
                Err(error) => assert_eq!(error, rustix::io::Errno::OPNOTSUPP),
            }
        }
    }
}
