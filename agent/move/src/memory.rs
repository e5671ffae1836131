//! A directory in memory that is mounted nowhere: only who holds it sees it,
//! and it is gone with the last holder.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::vetting::FILE_BYTES_MAX;

/// An unmounted tmpfs.
#[derive(Debug)]
pub struct Memory {
    directory: OwnedFd,
    /// The mount is dissolved when this is closed.
    mount: Option<OwnedFd>,
}

impl Memory {
    /// # Errors
    /// Not root, or a kernel before 5.2.
    pub fn new() -> io::Result<Self> {
        let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(context.as_fd(), "mode", "0700")?;
        // Fewer, larger pages where the kernel has them: an image is big and whole.
        let _ = rustix::mount::fsconfig_set_string(context.as_fd(), "huge", "within_size");
        rustix::mount::fsconfig_create(context.as_fd())?;
        let mount = rustix::mount::fsmount(
            context.as_fd(),
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        )?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&mount, ".", flags, Mode::empty())?;
        Ok(Self { directory, mount: Some(mount) })
    }

    /// From a directory that another process has made and handed over.
    pub fn inherited(directory: OwnedFd) -> Self {
        Self { directory, mount: None }
    }

    /// The mount itself, if it is ours.
    pub(crate) fn mount(&self) -> Option<BorrowedFd<'_>> {
        self.mount.as_ref().map(AsFd::as_fd)
    }

    /// How a program finds it that has inherited the descriptor.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.directory.as_raw_fd())
    }

    /// Whoever has the directory may read its files.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        Ok(File::from(rustix::fs::openat(&self.directory, name, flags, mode)?))
    }

    /// Lets a user work in it, who is CRIU's.
    pub(crate) fn lend(&self, (uid, gid): (u32, u32)) -> io::Result<()> {
        use rustix::fs::{Gid, Uid};
        Ok(rustix::fs::fchown(&self.directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
    }

    /// Lets everybody who has the directory read what CRIU has put there.
    pub(crate) fn open_up(&self) -> io::Result<()> {
        let readable = Mode::from_raw_mode(0o755);
        self.names()?.iter().try_for_each(|name| {
            Ok(rustix::fs::chmodat(&self.directory, name, readable, AtFlags::empty())?)
        })
    }

    /// Listens there for CRIU, whoever it is.
    pub(crate) fn listen(&self, name: &str) -> io::Result<UnixListener> {
        let listener = UnixListener::bind(format!("{}/{name}", self.path()))?;
        let everybody = Mode::from_raw_mode(0o666);
        rustix::fs::chmodat(&self.directory, name, everybody, AtFlags::empty())?;
        Ok(listener)
    }

    /// CRIU may have put something else in its place: nothing is followed, and
    /// nobody waited for.
    pub(crate) fn open(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, name, flags, Mode::empty())?.into())
    }

    /// All of a file, or a little more than may be.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = vec![];
        self.open(name)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A command writes what it prints into such a file.
    pub(crate) fn take_output(&self, name: &str, command: &mut Command) -> io::Result<()> {
        let file = self.create(name)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(())
    }

    /// All of a text file, or nothing.
    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.read(name).unwrap_or_default()).into_owned()
    }

    /// Puts other content in the place of a file, if there is one.
    pub(crate) fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        match self.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        io::Write::write_all(&mut self.create(name)?, content)
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::statat(&self.directory, name, flags).is_ok()
    }

    /// The names of its files, sorted.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = vec![];
        for entry in Dir::read_from(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_there_and_nowhere_else() {
        let Ok(memory) = Memory::new() else {
            gleaner_skip::without_lab("needs root");
            return;
        };
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        memory.create("a").unwrap();
        memory.replace("a", b"content").unwrap();
        assert_eq!(memory.read("a").unwrap(), b"content");
        assert_eq!(memory.names().unwrap(), ["a"]);
        drop(memory);
        let after = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(before.lines().count(), after.lines().count());
    }
}
