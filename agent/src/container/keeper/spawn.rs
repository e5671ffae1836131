//! Starting one guest: which program, with which words, descriptors and limits.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::Pid;

use super::birth::{Birth, Step, Stillborn};
use super::filter::Filter;
use super::limits;
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
    #[error("cannot shut `{program}` in: {source}")]
    Walls { program: String, source: io::Error },
    #[error("cannot enter {path}: {source}")]
    Enter { path: PathBuf, source: io::Error },
    /// Below what is offered, and chosen by the job.
    #[error("cannot enter {path}: {source}")]
    Shared { path: PathBuf, source: io::Error },
    #[error("no pipes came with a rank")]
    NoPipes,
}

impl SpawnError {
    /// Might another workstation be able to?
    pub(super) fn here_only(&self) -> bool {
        match self {
            Self::NoProgram(..) => false,
            // A directory that is not there is the job's mistake, and no workstation
            // rests for it.
            Self::Exec { source, .. } | Self::Shared { source, .. } => matches!(
                source.raw_os_error(),
                Some(
                    libc::EAGAIN
                        | libc::ENOMEM
                        | libc::ENFILE
                        | libc::EMFILE
                        | libc::EIO
                        | libc::ESTALE
                        | libc::ENOSPC
                        | libc::EDQUOT
                        | libc::EROFS
                )
            ),
            Self::Walls { .. } | Self::Enter { .. } | Self::NoPipes => true,
        }
    }
}

/// How every guest of a keeper is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    pub(super) stdin: BorrowedFd<'a>,
    pub(super) stdout: BorrowedFd<'a>,
    pub(super) stderr: BorrowedFd<'a>,
    /// A rank's, to read from and to write to.
    pub(super) pipes: Option<(BorrowedFd<'a>, BorrowedFd<'a>)>,
    /// In a session of its own: only so can it be restored elsewhere. Others are
    /// in the keeper's: each would cost a scheduling group where the kernel makes
    /// those for sessions.
    pub(super) own_session: bool,
    pub(super) own_ipc: bool,
    pub(super) uid: Option<u32>,
    pub(super) filter: Option<&'a Filter>,
}

impl Terms<'_> {
    /// Which descriptor goes where. In this order none is overwritten before
    /// its turn: the keeper's own socket is at the first pipe's number.
    fn descriptors(self) -> Vec<(RawFd, RawFd)> {
        let standard = [(self.stdin, 0), (self.stdout, 1), (self.stderr, 2)];
        let pipes = self.pipes.map(|(read, write)| [(read, PIPES_FD), (write, PIPES_FD + 1)]);
        let all = standard.into_iter().chain(pipes.into_iter().flatten());
        all.map(|(from, to)| (from.as_raw_fd(), to)).collect()
    }
}

/// Starts a guest where we are, in our own scheduling class.
pub(super) fn spawn(start: &StartGuest, terms: Terms<'_>) -> Result<Pid, SpawnError> {
    let environment = start.environment.iter();
    let birth = Birth {
        program: find(start)?,
        argv: start.command.iter().filter_map(|text| c_string(text)).collect(),
        envp: environment.filter_map(|(key, value)| c_string(&format!("{key}={value}"))).collect(),
        descriptors: terms.descriptors(),
        own_session: terms.own_session,
        own_ipc: terms.own_ipc,
        uid: terms.uid,
        limits: limits::to_be_set(start.limits),
        filter: terms.filter,
    };
    birth.give().map_err(|Stillborn { step, source }| {
        let program = start.command.first().cloned().unwrap_or_default();
        match step {
            Step::Walls => SpawnError::Walls { program, source },
            Step::Program => SpawnError::Exec { program, source },
        }
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
        .find(|file| may_run(file) && file.is_file())
        .and_then(|file| c_string(&file.to_string_lossy()))
        .ok_or_else(none)
}

/// As the guest's user, whose files we see as it does.
fn may_run(file: &Path) -> bool {
    accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Texts with a NUL byte were refused with the job.
fn c_string(text: &str) -> Option<CString> {
    CString::new(text).ok()
}
