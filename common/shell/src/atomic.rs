//! Replacing a file so that a reader, or a machine that loses power at
//! any moment, sees the old content or the new and never half of one.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Only the owner may read or write.
pub const PRIVATE: u32 = 0o600;
/// Everybody may read.
pub const PUBLIC: u32 = 0o644;

/// What was written to so long ago is nobody's who is still at it.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// Why a file was not replaced; it is then as it was.
#[derive(Debug)]
pub struct ReplaceError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl fmt::Display for ReplaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: {}", self.path.display(), self.source)
    }
}

/// By hand, because the message holds the source already.
impl std::error::Error for ReplaceError {}

impl ReplaceError {
    fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self { path: path.to_owned(), source }
    }
}

/// Replaces a file by `content`, durably.
///
/// # Errors
/// Those of [`Replacement`].
pub fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), ReplaceError> {
    let replacement = Replacement::begin(path, mode)?;
    replacement.file().write_all(content).map_err(ReplaceError::of(path))?;
    replacement.finish()
}

/// What is to take a file's place: a temporary file beside it, which is removed
/// if it is dropped unfinished.
#[derive(Debug)]
pub struct Replacement {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl Replacement {
    /// A link is followed: what it leads to is replaced.
    ///
    /// # Errors
    /// A directory that cannot be written, and what is there and no file: a rename would
    /// put a file in the place of a device or a pipe that others use.
    pub fn begin(path: &Path, mode: u32) -> Result<Self, ReplaceError> {
        let path = target(path).map_err(ReplaceError::of(path))?;
        let temporary = beside(&path, "new");
        let file = create(&temporary, mode).map_err(ReplaceError::of(&path))?;
        Ok(Self { path, temporary, file })
    }

    /// Where the new content is written to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Brings the content to the disk, renames it over the old file and brings
    /// the directory to the disk.
    ///
    /// # Errors
    /// Any of these failing; the file is then as it was.
    pub fn finish(self) -> Result<(), ReplaceError> {
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.temporary, &self.path))
            .and_then(|()| sync_directory(&self.path))
            .map_err(ReplaceError::of(&self.path))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // Renamed already, if all went well; else what went wrong first is what
        // matters.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// The file that is meant: this path, or where it leads as a link.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            Err(io::Error::other("it is no file: expected one, or nothing yet"))
        }
        Ok(_) if path.is_symlink() => fs::canonicalize(path),
        // Also a link to nothing: it is replaced.
        Ok(_) | Err(_) => Ok(path.to_owned()),
    }
}

/// A name beside a file, for what is to become of it. The process's number in it keeps
/// two writers apart; what those left that were killed is cleared away.
pub fn beside(path: &Path, what: &str) -> PathBuf {
    let mut begin = path.file_name().unwrap_or_default().to_owned();
    begin.push(format!(".{what}-"));
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let entries = fs::read_dir(directory.unwrap_or(Path::new("."))).into_iter().flatten();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.as_bytes().strip_prefix(begin.as_bytes());
        if pid.is_some_and(|pid| !is_alive(pid)) && is_old(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
    begin.push(std::process::id().to_string());
    path.with_file_name(begin)
}

/// Where processes are seen, which is not so for those of other machines.
fn is_alive(pid: &[u8]) -> bool {
    !pid.iter().all(u8::is_ascii_digit) || Path::new("/proc").join(OsStr::from_bytes(pid)).exists()
}

fn is_old(entry: &fs::DirEntry) -> bool {
    let written = entry.metadata().and_then(|it| it.modified()).ok();
    written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > LEFT_AFTER)
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    // A leftover of a process with our number may have other rights.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_new_content_replaces_the_old_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        replace(&path, b"old", PUBLIC).unwrap();
        replace(&path, b"new", PRIVATE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_replacement_that_is_not_finished_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        replace(&path, b"old", PUBLIC).unwrap();
        let replacement = Replacement::begin(&path, PUBLIC).unwrap();
        replacement.file().write_all(b"half of").unwrap();
        drop(replacement);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_writer_left_is_cleared_away_and_what_others_write_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let alive = std::os::unix::process::parent_id();
        // Beyond the largest number that a process can have.
        let names = ["new-99999999", "new-99999998", "copy-99999999", "new-x"].map(str::to_owned);
        for name in names.iter().chain([&format!("new-{alive}")]) {
            let file = File::create(dir.path().join(format!("state.{name}"))).unwrap();
            if name != "new-99999998" {
                let now = file.metadata().unwrap().modified().unwrap();
                file.set_modified(now - LEFT_AFTER * 2).unwrap();
            }
        }
        replace(&path, b"new", PRIVATE).unwrap();
        assert!(!dir.path().join("state.new-99999999").exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
    }

    #[test]
    fn a_link_is_followed_and_nothing_but_a_file_is_replaced() {
        use std::os::unix::fs::FileTypeExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"new", PUBLIC).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        let socket = dir.path().join("socket");
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [socket.as_path(), dir.path()] {
            let refused = replace(path, b"new", PUBLIC).unwrap_err().to_string();
            assert!(refused.ends_with("it is no file: expected one, or nothing yet"), "{refused}");
        }
        assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = replace(Path::new("/nowhere/at/all"), b"", PUBLIC).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all: "), "{error}");
    }
}
