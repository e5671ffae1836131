//! System V and POSIX queues, semaphores and shared memory: they belong to a
//! namespace and to no process. CRIU writes down those of a namespace that it is
//! to make anew, and says nothing of those it leaves behind; here the namespace is
//! the keeper's, so a guest that has any is named and stays.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::inside::check;

/// What `/proc/sysvipc` has, and what that is called.
const SYSTEM_V: [(&str, &str); 3] = [
    ("msg", "a System V message queue"),
    ("sem", "System V semaphores"),
    ("shm", "System V shared memory"),
];

/// Something of that kind in a process's namespace, if there is anything.
///
/// # Errors
/// The process is gone, or we may not.
pub(crate) fn found_in(process: &OwnedFd) -> io::Result<Option<&'static str>> {
    // A thread of its own goes there, and never comes back.
    std::thread::scope(|scope| scope.spawn(|| look(process)).join())
        .unwrap_or_else(|_| Err(io::Error::other("a look at its queues ended early")))
}

#[expect(unsafe_code, reason = "joining a namespace has no safe binding for a pidfd")]
fn look(process: &OwnedFd) -> io::Result<Option<&'static str>> {
    // SAFETY: a plain system call, which changes this thread alone.
    check(unsafe { libc::setns(process.as_raw_fd(), libc::CLONE_NEWIPC) })?;
    for (file, what) in SYSTEM_V {
        // A headline, and a line for each. A kernel without it has none.
        let listed = fs::read_to_string(format!("/proc/sysvipc/{file}")).unwrap_or_default();
        if listed.lines().nth(1).is_some() {
            return Ok(Some(what));
        }
    }
    Ok(has_queues()?.then_some("a POSIX message queue"))
}

fn has_queues() -> io::Result<bool> {
    let system = match fsopen("mqueue", FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(rustix::io::Errno::NODEV) => return Ok(false),
        system => system?,
    };
    fsconfig_create(&system)?;
    let mount = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    Ok(fs::read_dir(path)?.next().is_some())
}
