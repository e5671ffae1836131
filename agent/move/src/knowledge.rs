//! What CRIU finds out about a kernel, found out once.
//!
//! CRIU tries some forty features of the kernel each time it starts, 20 to 30
//! ms of a move's frozen time, unless it finds them written down in
//! `/run/criu.kdat`. Not all of the tries work where we run it: inside of a
//! keeper, which can neither mount nor write to `/proc`. So it is run once,
//! outside, and keepers show guests' CRIU the file.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::ptr;

use crate::engine::Engine;
use crate::inside::{CHECKPOINT_RESTORE, become_guest, check, enter_pid_namespace};
use crate::memory::Memory;
use crate::obstacle::first_error;

/// Where CRIU looks for it as root, and finds it as a guest's user too, who may
/// not look there for another end.
pub const KNOWLEDGE_FILE: &str = "/run/criu.kdat";

/// The directory it is in there.
pub(crate) const RUN: &str = "/run";

/// Who looks: somebody with no more rights than a guest. What root may, CRIU would
/// try as a guest's user, in vain.
const NOBODY: (u32, u32) = (65_534, 65_534);

/// What it is called wherever it lies.
pub(crate) const NAME: &str = "criu.kdat";

/// Why CRIU cannot say what this kernel can.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    #[error("not root: guests cannot be moved here")]
    NotRoot,
    #[error("no right {0}: guests cannot be moved here")]
    NoRight(&'static str),
    #[error("a system call filter is upon this process: criu cannot work under one")]
    Filtered,
    #[error("cannot run criu")]
    Run(#[source] io::Error),
    #[error("this kernel lacks what criu needs: {0}")]
    Kernel(String),
}

impl Engine {
    /// Lets CRIU look at this kernel: a tenth of a second, once for each start
    /// of an agent.
    ///
    /// # Errors
    /// Not root, or a kernel on which nothing can be moved.
    pub fn learn(&self) -> Result<Vec<u8>, LearnError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LearnError::NotRoot);
        }
        look_at_rights(&fs::read_to_string("/proc/self/status").map_err(LearnError::Run)?)?;
        let memory = Memory::new().map_err(LearnError::Run)?;
        let mount = memory.mount().map_or(-1, |mount| mount.as_raw_fd());
        memory.lend(NOBODY).map_err(LearnError::Run)?;
        let mut command = self.command_as(NOBODY, "check", RUN);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[expect(unsafe_code, reason = "making namespaces between fork and exec")]
        // SAFETY: the closure makes nothing but system calls on constants.
        unsafe {
            command.pre_exec(move || {
                check(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWPID))?;
                enter_pid_namespace()?;
                stage(mount)?;
                become_guest(NOBODY)
            });
        }
        let output = command.output().map_err(LearnError::Run)?;
        match memory.read(NAME) {
            Ok(knowledge) if output.status.success() => Ok(knowledge),
            Ok(_) | Err(_) => {
                let printed = [output.stderr, output.stdout].concat();
                let words = first_error("", &String::from_utf8_lossy(&printed));
                Err(LearnError::Kernel(words))
            }
        }
    }
}

/// What joining namespaces (`setns`), going on with clocks (`timens_offsets`),
/// looking into processes, and CRIU need; by number, as in `capabilities(7)`. A
/// kernel that does not know the last one moves nothing.
const RIGHTS: [(u32, &str); 8] = [
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (12, "CAP_NET_ADMIN"),
    (18, "CAP_SYS_CHROOT"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (25, "CAP_SYS_TIME"),
    (CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE"),
];

/// Root under a service manager may lack what moving needs. A filter is what a
/// service's `RestrictRealtime=`, `LockPersonality=`, `ProtectClock=` and the
/// like put upon it: who has one may not suspend another's.
fn look_at_rights(status: &str) -> Result<(), LearnError> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let held = field("CapEff:").and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0);
    if let Some((_, name)) = RIGHTS.iter().find(|(number, _)| held & 1 << number == 0) {
        return Err(LearnError::NoRight(name));
    }
    if field("Seccomp:").is_some_and(|mode| mode != "0") {
        Err(LearnError::Filtered)
    } else {
        Ok(())
    }
}

/// Our memory in the place of `/run`, and an audit user that cannot be
/// written: then CRIU knows that it cannot restore it, and does not try.
#[expect(unsafe_code, reason = "plain system calls between fork and exec")]
fn stage(memory: RawFd) -> io::Result<()> {
    const AUDIT_USER: &CStr = c"/proc/1/loginuid";
    // SAFETY: constant strings and a descriptor; nothing is allocated.
    unsafe {
        let none = ptr::null();
        let mount = |from: *const libc::c_char, to: &CStr, kind, flags| {
            check(libc::mount(from, to.as_ptr(), kind, flags, ptr::null()))
        };
        mount(none, c"/", none, libc::MS_REC | libc::MS_PRIVATE)?;
        check(
            libc::c_int::from(
                libc::syscall(
                    libc::SYS_move_mount,
                    memory,
                    c"".as_ptr(),
                    libc::AT_FDCWD,
                    c"/run".as_ptr(),
                    libc::MOVE_MOUNT_F_EMPTY_PATH,
                ) == 0,
            ) - 1,
        )?;
        mount(c"proc".as_ptr(), c"/proc", c"proc".as_ptr(), 0)?;
        // Kernels without audit have no such file.
        if mount(AUDIT_USER.as_ptr(), AUDIT_USER, none, libc::MS_BIND).is_ok() {
            let read_only = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
            mount(none, AUDIT_USER, none, read_only)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_lacks_is_named() {
        let all = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        look_at_rights(all).unwrap();
        let said = |status: &str| look_at_rights(status).unwrap_err().to_string();
        let no_time = said("CapEff:\t000001fffdffffff\nSeccomp:\t0\n");
        assert_eq!(no_time, "no right CAP_SYS_TIME: guests cannot be moved here");
        let filtered = said("CapEff:\t000001ffffffffff\nSeccomp:\t2\n");
        assert!(filtered.starts_with("a system call filter"), "{filtered}");
    }

    #[test]
    fn a_kernel_is_learned_without_a_trace() {
        let Ok(engine) = Engine::find(None) else {
            gleaner_skip::without_lab("no criu");
            return;
        };
        let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        match engine.learn() {
            Ok(knowledge) => assert!(knowledge.len() > 100),
            Err(error @ (LearnError::NotRoot | LearnError::NoRight(_) | LearnError::Filtered)) => {
                gleaner_skip::without_lab(error);
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    }
}
