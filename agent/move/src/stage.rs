//! What a guest sees of the machine: the same paths on every machine, whatever
//! its place is called there.
//!
//! ```text
//! /usr /etc ..     what guests may read, as on the workstation
//! /place           the place's ground
//! /tmp /dev/shm    scratch in memory
//! /proc /dev       its own
//! ```
//!
//! A root directory of its own, and nothing else: the old one is gone from the
//! namespace. That is what makes it safe to grant the listing of `/`, which
//! CRIU needs to restore from inside.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::inside::check;
use crate::knowledge::KNOWLEDGE_FILE;

/// Where a guest finds its ground.
pub const GROUND: &str = "/place";

/// What goes along with a guest, and what it is called on the way.
pub(crate) const TREES: [(&str, &str); 3] =
    [("files-place.tar", GROUND), ("files-tmp.tar", "/tmp"), ("files-shm.tar", "/dev/shm")];

/// Needed by nearly every program, and harmless.
pub const DEVICES: [&str; 5] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Where the new root is put together: is on every machine, and is covered.
const BUILD: &str = "/tmp";

const SCRATCH: [&str; 2] = ["tmp", "dev/shm"];

/// What to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Directories (or links to some) that guests may read.
    pub readable: Vec<PathBuf>,
    /// Directories that they may also write, under their own names.
    pub writable: Vec<PathBuf>,
    /// The place's directory; shown at [`GROUND`].
    pub ground: PathBuf,
    pub scratch_bytes_max: u64,
    /// From [`crate::Engine::learn`]; nothing for a guest that cannot move.
    pub knowledge: Vec<u8>,
}

impl Stage {
    /// Leaves the calling process with this as its root directory. It must have
    /// the rights to, in a mount namespace of its own, and in a pid namespace whose
    /// `/proc` it may mount.
    ///
    /// # Errors
    /// The first thing that cannot be mounted.
    pub fn enter(&self) -> io::Result<()> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private)?;
        // Opened now: they may lie below what is about to be covered.
        let shown: Vec<_> = self
            .readable
            .iter()
            .chain(&self.writable)
            .map(|path| (path.as_path(), path.as_path()))
            .chain([(self.ground.as_path(), Path::new(GROUND))])
            .filter_map(|(from, to)| Some((open_path(from).ok()?, from, inside(to))))
            .collect();
        mount_memory(Path::new(BUILD), "mode=0755,size=1m")?;
        self.scratch()?;
        for (opened, from, to) in shown {
            let link = fs::read_link(from);
            match link {
                Ok(target) => {
                    parent_of(&to)?;
                    symlink(target, &to)?;
                }
                Err(_) => bind(&format!("/proc/self/fd/{}", opened.as_raw_fd()), &to)?,
            }
        }
        devices()?;
        let proc = inside(Path::new("/proc"));
        fs::create_dir_all(&proc)?;
        let strict = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let own = rustix::mount::mount("proc", &proc, "proc", strict, None);
        if self.knowledge.is_empty() {
            // Within some containers nobody may have one: the machine's must do.
            own.or_else(|_| rustix::mount::mount_bind_recursive("/proc", &proc))?;
        } else {
            own?;
            self.keep_knowledge()?;
        }
        change_root()
    }

    fn scratch(&self) -> io::Result<()> {
        SCRATCH.iter().try_for_each(|scratch| {
            let path = Path::new(BUILD).join(scratch);
            fs::create_dir_all(&path)?;
            mount_memory(&path, &format!("mode=1777,size={}", self.scratch_bytes_max))
        })
    }

    fn keep_knowledge(&self) -> io::Result<()> {
        let path = inside(Path::new(KNOWLEDGE_FILE));
        parent_of(&path)?;
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
        io::Write::write_all(&mut &file, &self.knowledge)
    }
}

fn inside(path: &Path) -> PathBuf {
    Path::new(BUILD).join(path.strip_prefix("/").unwrap_or(path))
}

fn parent_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn open_path(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    // A link is shown as one: `/bin` and `/lib` are on most systems.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

fn bind(from: &str, to: &Path) -> io::Result<()> {
    if fs::metadata(from)?.is_dir() {
        fs::create_dir_all(to)?;
    } else {
        parent_of(to)?;
        fs::File::create(to)?;
    }
    Ok(rustix::mount::mount_bind_recursive(from, to)?)
}

fn mount_memory(path: &Path, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("gleaner", path, "tmpfs", flags, options.as_c_str())?)
}

fn devices() -> io::Result<()> {
    for device in DEVICES {
        bind(device, &inside(Path::new(device)))?;
    }
    let names = [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")];
    for (name, number) in names {
        symlink(format!("/proc/self/fd{number}"), inside(Path::new("/dev")).join(name))?;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "pivot_root has no safe binding that takes one directory twice")]
fn change_root() -> io::Result<()> {
    rustix::process::chdir(BUILD)?;
    // SAFETY: plain system calls on constant strings. The old root is put over
    // the new one and taken off (pivot_root(2), "pivot_root(".", ".")").
    unsafe {
        let here = c".".as_ptr();
        let done = libc::syscall(libc::SYS_pivot_root, here, here);
        check(if done == 0 { 0 } else { -1 })?;
        check(libc::umount2(here, libc::MNT_DETACH))?;
    }
    rustix::process::chdir("/")?;
    let flags = MountFlags::RDONLY | MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount_remount("/", flags, "")?)
}
