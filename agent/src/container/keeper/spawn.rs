//! Starting one guest: `posix_spawn`, which neither copies page tables nor
//! returns before the program runs or is known not to.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::Pid;

use super::protocol::{PIPES_FD, StartGuest};

/// Where programs without a `/` in their name are looked for.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a guest was not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("no program `{0}`: expected a path, or a name found in {1}")]
    NoProgram(String, String),
    #[error("cannot run `{program}`: {source}")]
    Exec { program: String, source: io::Error },
    #[error("cannot enter {path}: {source}")]
    Enter { path: PathBuf, source: io::Error },
    #[error("no pipes came with a rank")]
    NoPipes,
}

impl SpawnError {
    /// Might another workstation be able to?
    pub(super) fn here_only(&self) -> bool {
        match self {
            Self::NoProgram(..) => false,
            Self::Exec { source, .. } => matches!(
                source.raw_os_error(),
                Some(libc::EAGAIN | libc::ENOMEM | libc::ENFILE | libc::EMFILE | libc::EIO)
            ),
            Self::Enter { .. } | Self::NoPipes => true,
        }
    }
}

/// How every guest of a keeper is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors<'a> {
    pub(super) stdin: BorrowedFd<'a>,
    pub(super) stdout: BorrowedFd<'a>,
    pub(super) stderr: BorrowedFd<'a>,
    /// A rank's, to read from and to write to.
    pub(super) pipes: Option<(BorrowedFd<'a>, BorrowedFd<'a>)>,
    /// In a session of its own: only so can it be restored elsewhere.
    pub(super) own_session: bool,
}

impl<'a> Descriptors<'a> {
    /// Which descriptor goes where. In this order none is overwritten before
    /// its turn: the keeper's own socket is at the first pipe's number.
    fn places(self) -> impl Iterator<Item = (BorrowedFd<'a>, i32)> {
        let standard = [(self.stdin, 0), (self.stdout, 1), (self.stderr, 2)];
        let pipes = self.pipes.map(|(read, write)| [(read, PIPES_FD), (write, PIPES_FD + 1)]);
        standard.into_iter().chain(pipes.into_iter().flatten())
    }
}

/// Starts a guest where we are, in our own session and scheduling class: a
/// session for each would cost a scheduling group where the kernel makes
/// those for sessions.
pub(super) fn spawn(start: &StartGuest, descriptors: Descriptors<'_>) -> Result<Pid, SpawnError> {
    let program = find(start)?;
    let argv: Vec<_> = start.command.iter().filter_map(|text| c_string(text)).collect();
    let envp: Vec<_> = start
        .environment
        .iter()
        .filter_map(|(key, value)| c_string(&format!("{key}={value}")))
        .collect();
    posix_spawn(&program, &argv, &envp, descriptors).map_err(|source| SpawnError::Exec {
        program: start.command.first().cloned().unwrap_or_default(),
        source,
    })
}

/// The program's path: as given if it has a `/`, otherwise from the job's
/// `PATH` or ours.
fn find(start: &StartGuest) -> Result<CString, SpawnError> {
    let name = start.command.first().map_or("", String::as_str);
    let path = start.environment.iter().rev().find(|(key, _)| key == "PATH");
    let path = path.map_or(PATH, |(_, value)| value.as_str());
    let none = || SpawnError::NoProgram(name.to_owned(), path.to_owned());
    if name.contains('/') {
        return c_string(name).ok_or_else(none);
    }
    path.split(':')
        .filter(|dir| dir.starts_with('/') && !name.is_empty())
        .map(|dir| Path::new(dir).join(name))
        .find(|file| access(file, Access::EXEC_OK).is_ok() && file.is_file())
        .and_then(|file| c_string(&file.to_string_lossy()))
        .ok_or_else(none)
}

/// Texts with a NUL byte were refused with the job.
fn c_string(text: &str) -> Option<CString> {
    CString::new(text).ok()
}

fn pointers(texts: &[CString]) -> Vec<*mut c_char> {
    texts.iter().map(|text| text.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
}

/// `POSIX_SPAWN_SETSID`, which the `libc` crate does not know (spawn.h).
const SETSID: i32 = 0x80;

#[expect(unsafe_code, reason = "posix_spawn has no safe binding")]
fn posix_spawn(
    program: &CStr,
    argv: &[CString],
    envp: &[CString],
    descriptors: Descriptors<'_>,
) -> io::Result<Pid> {
    let check = |code: i32| match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    let mut pid = 0;
    // SAFETY: attributes and actions are initialised before use and destroyed
    // after; all pointers are to locals that outlive the calls; posix_spawn
    // does not write through argv or envp.
    let spawned = unsafe {
        let mut attributes: libc::posix_spawnattr_t = std::mem::zeroed();
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        check(libc::posix_spawnattr_init(&raw mut attributes))?;
        check(libc::posix_spawn_file_actions_init(&raw mut actions))?;
        let own = if descriptors.own_session { SETSID } else { libc::POSIX_SPAWN_SETPGROUP };
        let flags = own | libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::posix_spawnattr_setsigmask(&raw mut attributes, &raw const signals);
        libc::sigaddset(&raw mut signals, libc::SIGPIPE);
        libc::posix_spawnattr_setsigdefault(&raw mut attributes, &raw const signals);
        let flags = i16::try_from(flags).unwrap_or(i16::MAX);
        let prepared =
            check(libc::posix_spawnattr_setflags(&raw mut attributes, flags)).and_then(|()| {
                descriptors.places().try_for_each(|(from, to)| {
                    check(libc::posix_spawn_file_actions_adddup2(
                        &raw mut actions,
                        from.as_raw_fd(),
                        to,
                    ))
                })
            });
        let spawned = prepared.and_then(|()| {
            check(libc::posix_spawn(
                &raw mut pid,
                program.as_ptr(),
                &raw const actions,
                &raw const attributes,
                argv.as_ptr(),
                envp.as_ptr(),
            ))
        });
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        libc::posix_spawnattr_destroy(&raw mut attributes);
        spawned
    };
    spawned?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
}
