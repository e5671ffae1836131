//! Removing a tree that a guest has made.
//!
//! A guest can nest directories deeper than any stack, and deeper than any path
//! is long. So a tree is taken apart by descriptors, one level at a time, with a
//! bounded number of them and in bounded memory: what lies too deep is first
//! brought up.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, chmodat, fchmod, fstat, openat,
    renameat, seek, statat, unlinkat,
};
use rustix::io::Errno;

/// How many levels are open at once while a tree is removed.
const LEVELS_MAX: usize = 16;

/// How much of a directory is read at once: some hundred names.
const ROOM: usize = 8 << 10;

/// Removes a file or a directory with all that is in it, also one whose owner
/// has taken its own rights away.
pub(crate) fn clear(path: &Path) {
    if let Err(error) = remove(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove what a guest left");
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    if !is_directory(CWD, &name)? {
        return Ok(unlinkat(CWD, &name, AtFlags::empty())?);
    }
    empty(open_fully(CWD, &name)?);
    Ok(unlinkat(CWD, &name, AtFlags::REMOVEDIR)?)
}

/// A directory on the way down.
#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    name: CString,
    /// Directories in it that were seen and are to be removed.
    below: Vec<CString>,
    /// Something was removed since the directory was begun to be read.
    progress: bool,
}

impl Level {
    fn new(directory: OwnedFd, name: CString) -> Self {
        Self { directory, name, below: vec![], progress: false }
    }

    /// Removes some of the files and notes directories. `false` when nothing
    /// more can be removed: entries may have been passed over meanwhile, so a
    /// directory is read until one whole reading removes nothing.
    fn sift(&mut self) -> bool {
        let some = some_of(&self.directory).unwrap_or_default();
        if some.is_empty() {
            return std::mem::take(&mut self.progress)
                && seek(&self.directory, SeekFrom::Start(0)).is_ok();
        }
        for (name, kind) in some {
            let unknown = kind == FileType::Unknown;
            if kind.is_dir() || unknown && is_directory(&self.directory, &name).unwrap_or(false) {
                self.below.push(name);
            } else {
                self.progress |= unlinkat(&self.directory, &name, AtFlags::empty()).is_ok();
            }
        }
        true
    }
}

/// Removes what is in a directory, as far as that can be.
fn empty(root: OwnedFd) {
    let mut levels = vec![Level::new(root, CString::default())];
    let mut brought_up = 0;
    loop {
        let depth = levels.len();
        let Some(top) = levels.last_mut() else { return };
        if let Some(name) = top.below.pop() {
            if depth == LEVELS_MAX {
                bring_up(&mut levels, &name, &mut brought_up);
            } else if let Ok(directory) = open_fully(&top.directory, &name) {
                levels.push(Level::new(directory, name));
            }
        } else if !top.sift() {
            let done = levels.pop();
            if let (Some(done), Some(above)) = (done, levels.last_mut()) {
                let removed = unlinkat(&above.directory, &done.name, AtFlags::REMOVEDIR);
                above.progress |= removed.is_ok();
            }
        }
    }
}

/// Moves a directory of the last level into the first, under a name that is free.
fn bring_up(levels: &mut [Level], name: &CStr, brought_up: &mut u64) {
    let [first, .., last] = levels else { return };
    loop {
        let to = format!(".brought-up-{brought_up}");
        *brought_up += 1;
        match renameat(&last.directory, name, &first.directory, &to) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR) => {}
            done => {
                last.progress |= done.is_ok();
                return;
            }
        }
    }
}

/// Opens a directory that is to be emptied. Without root, one without rights
/// cannot be emptied by its owner.
fn open_fully(at: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let at = at.as_fd();
    let directory = match open_directory(at, name) {
        Err(Errno::ACCESS) => {
            chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
            open_directory(at, name)?
        }
        opened => opened?,
    };
    let rights = Mode::from_raw_mode(fstat(&directory)?.st_mode);
    if !rights.contains(Mode::RWXU) {
        let _ = fchmod(&directory, Mode::RWXU);
    }
    Ok(directory)
}

/// Opens a directory below another, never through a link.
pub(super) fn open_directory(at: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

fn is_directory(at: impl AsFd, name: &CStr) -> rustix::io::Result<bool> {
    let about = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(about.st_mode).is_dir())
}

/// The next names in an open directory: a bounded number, and none at its end.
pub(super) fn some_of(directory: &OwnedFd) -> rustix::io::Result<Vec<(CString, FileType)>> {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut entries = RawDir::new(directory, &mut room);
    let mut some = vec![];
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            some.push((entry.file_name().to_owned(), entry.file_type()));
        }
        if entries.is_buffer_empty() && !some.is_empty() {
            break;
        }
    }
    Ok(some)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    /// So many directories, one in the other, with long names and a file each.
    pub(in crate::container) fn nest(into: &Path, depth: usize) {
        let name = CString::new("d".repeat(100)).unwrap();
        let path = CString::new(into.as_os_str().as_bytes()).unwrap();
        let mut here = open_directory(CWD, &path).unwrap();
        let file = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        for _ in 0..depth {
            mkdirat(&here, &name, Mode::RWXU).unwrap();
            here = open_directory(here.as_fd(), &name).unwrap();
            let opened = openat(&here, c"file", file, Mode::RWXU).unwrap();
            rustix::io::write(&opened, b"x").unwrap();
        }
    }

    /// On a stack like those of the threads that remove and count.
    pub(in crate::container) fn on_a_small_stack<T: Send>(act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            thread.spawn_scoped(scope, act).unwrap().join().unwrap()
        })
    }

    #[test]
    fn a_tree_deeper_than_a_stack_and_than_any_path_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        fs::create_dir_all(tree.join("wide")).unwrap();
        // Names that a guest might have taken.
        fs::create_dir_all(tree.join(".brought-up-0/full")).unwrap();
        fs::write(tree.join(".brought-up-1"), "").unwrap();
        for n in 0..1_000 {
            fs::create_dir(tree.join(format!("wide/{n}"))).unwrap();
        }
        nest(&tree, 3_000);
        on_a_small_stack(|| clear(&tree));
        assert!(!tree.exists());
    }

    #[test]
    fn closed_directories_are_removed_too() {
        let data = tempfile::tempdir().unwrap();
        let inner = data.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("c"), "x").unwrap();
        for mode in [0o0, 0o500] {
            fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).unwrap();
        }
        clear(&data.path().join("a"));
        assert!(!data.path().join("a").exists());
    }

    #[test]
    fn a_link_is_removed_and_what_it_leads_to_stays() {
        let data = tempfile::tempdir().unwrap();
        fs::create_dir_all(data.path().join("kept/inner")).unwrap();
        fs::create_dir(data.path().join("tree")).unwrap();
        std::os::unix::fs::symlink("../kept", data.path().join("tree/link")).unwrap();
        std::os::unix::fs::symlink("kept", data.path().join("link")).unwrap();
        clear(&data.path().join("tree"));
        clear(&data.path().join("link"));
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
        assert!(data.path().join("kept/inner").exists());
    }
}
