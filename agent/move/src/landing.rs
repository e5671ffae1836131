//! The keeper's part: a guest comes to life in the keeper's own namespaces.
//!
//! ```text
//! keeper, root, in its namespaces and group
//!   settle_in   numbers and clocks go on where they stood
//!   .. shuts itself in (Landlock), as for any guest ..
//!   begin       CRIU starts, inside of it all, and waits for the image
//!   lay_ground  the guest's files are laid
//!   finish      CRIU goes on, the processes are made; they stand still
//!   .. becomes the keepers' user, for good ..
//!   resume      they go
//! ```
//!
//! CRIU restores no Landlock domain, and one taken on afterwards, process by
//! process, would cut the guest's processes off from each other. So CRIU itself
//! runs inside the keeper's domain, and what it makes is born in it. For that
//! the keeper needs a root directory of its own with nothing in it that guests
//! may not see ([`crate::stage`]), and a few grants more than a guest does. And
//! it runs as the guest's user: what an image makes it open, the guest could.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::time::ClockId;

use crate::archive::{self, UnpackError};
use crate::engine::Engine;
use crate::image::number_in;
use crate::inside::{CLONE_NEWTIME, become_guest, check};
use crate::knowledge;
use crate::memory::Memory;
use crate::obstacle::first_error;
use crate::serve::{is_served, let_read};
use crate::stage::TREES;
use crate::stream::Header;
use crate::vetting::Reach;

const LOG: &str = "restore.log";

/// What CRIU says before it has a log.
const PRINTED: &str = "restore.out";

/// Numbers that the guest has given out already are not given out again, and
/// none of CRIU's own processes takes one of the guest's.
const NUMBERS_APART: i32 = 1_000;

/// Why a guest was not restored. Nothing of it runs.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("cannot let its process numbers and clocks go on")]
    SettleIn(#[source] io::Error),
    #[error("cannot lay its files in {0}")]
    Ground(&'static str, #[source] UnpackError),
    #[error("{given} pipes for a guest with {wanted}")]
    Plugs { given: usize, wanted: usize },
    #[error("cannot start criu")]
    Start(#[source] io::Error),
    #[error("nobody serves its image any more")]
    Unserved(#[source] io::Error),
    #[error("criu cannot restore it: {0}")]
    Refused(String),
}

/// The first step, before the keeper shuts itself in: what was counted there
/// goes on counting here. Needs root, and to be the first process of its
/// namespace.
///
/// # Errors
/// The rights for it are gone already.
pub fn settle_in(header: &Header) -> Result<(), RestoreError> {
    let apart = header.last_pid.saturating_add(NUMBERS_APART);
    fs::write("/proc/sys/kernel/ns_last_pid", apart.to_string()).map_err(RestoreError::SettleIn)?;
    let (monotonic, boottime) = header.clocks;
    // SAFETY: a plain system call. Only children are in the new namespace.
    #[expect(unsafe_code, reason = "rustix does not know this namespace")]
    check(unsafe { libc::unshare(CLONE_NEWTIME) }).map_err(RestoreError::SettleIn)?;
    let offsets =
        [("monotonic", ClockId::Monotonic, monotonic), ("boottime", ClockId::Boottime, boottime)]
            .map(|(name, id, theirs)| offset(name, id, theirs))
            .concat();
    fs::write("/proc/self/timens_offsets", offsets).map_err(RestoreError::SettleIn)
}

/// `monotonic -5 250000000`: seconds round down, so that the rest is positive.
fn offset(name: &str, id: ClockId, theirs: Duration) -> String {
    let here = rustix::time::clock_gettime(id);
    let nanos = i128::try_from(theirs.as_nanos()).unwrap_or(i128::MAX)
        - i128::from(here.tv_sec) * 1_000_000_000
        - i128::from(here.tv_nsec);
    format!("{name} {} {}\n", nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000))
}

/// The files that came along, laid where the guest had them and given to the
/// place's user. The keeper calls it once it has shut itself in and is still
/// root: no path leads elsewhere.
///
/// # Errors
/// The files do not fit, or are no guest's.
pub fn lay_ground(memory: &Memory, user: (u32, u32), reach: &Reach) -> Result<(), RestoreError> {
    for (name, path) in TREES {
        // A guest without a stage of its own brings none.
        let Ok(packed) = memory.open(name) else { continue };
        archive::unpack(packed, Path::new(path), user, reach)
            .map_err(|error| RestoreError::Ground(path, error))?;
    }
    Ok(())
}

/// A guest that is there, whole, and stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The guest's first process, now the keeper's child.
    pub root: i32,
    /// Who is to go.
    pub processes: Vec<i32>,
}

impl Restored {
    /// Sets it going.
    pub fn resume(&self) {
        for pid in &self.processes {
            // Who was killed meanwhile needs nothing.
            let pid = rustix::process::Pid::from_raw(*pid);
            let _ =
                pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::CONT));
        }
    }
}

/// CRIU, which makes the guest's processes.
#[derive(Debug)]
pub enum Restoring {
    /// CRIU is there already, and waits to be served.
    Begun(Child),
    /// The guest's image lies there whole.
    ToBegin(Command),
}

/// Makes CRIU ready to make the guest's processes, as children of the calling
/// keeper and with no more rights than they will have. `knowledge` is from
/// [`Engine::learn`], `plugs` are the guest's ends of its new pipes, in the header's order:
/// where its image is served CRIU has them from now on, else they are to stay
/// open until it is finished.
///
/// # Errors
/// CRIU cannot be started.
pub fn begin(
    (engine, knowledge): (&Engine, &[u8]),
    user: (u32, u32),
    memory: &Memory,
    (header, plugs): (&Header, &[BorrowedFd<'_>]),
) -> Result<Restoring, RestoreError> {
    if plugs.len() != header.plugs.len() {
        return Err(RestoreError::Plugs { given: plugs.len(), wanted: header.plugs.len() });
    }
    let mut keep: Vec<RawFd> = plugs.iter().map(BorrowedFd::as_raw_fd).collect();
    keep.push(memory.as_fd().as_raw_fd());
    let mut command = engine.command_as(user, "restore", &memory.path());
    command
        .args(["--restore-detached", "--leave-stopped"])
        .args(["--file-locks", "--manage-cgroups=ignore", "--log-file", LOG])
        .args(["--images-dir", &memory.path()])
        .args(plug_words(header, plugs));
    memory.take_output(PRINTED, &mut command).map_err(RestoreError::Start)?;
    memory.replace(knowledge::NAME, knowledge).map_err(RestoreError::Start)?;
    memory.lend(user).map_err(RestoreError::Start)?;
    give_plugs(plugs, user).map_err(RestoreError::Start)?;
    if header.joins_session {
        command.arg("--shell-job");
    }
    #[expect(unsafe_code, reason = "handing descriptors over between fork and exec")]
    // SAFETY: the closure makes nothing but system calls.
    unsafe {
        command.pre_exec(move || {
            keep.iter().try_for_each(|fd| check(libc::fcntl(*fd, libc::F_SETFD, 0)))?;
            become_guest(user)
        });
    }
    if is_served(memory) {
        command.arg("--stream");
        return command.spawn().map(Restoring::Begun).map_err(RestoreError::Start);
    }
    Ok(Restoring::ToBegin(command))
}

/// CRIU opens the guest's pipes anew, for which they must be its user's, and
/// should be nobody's else afterwards.
fn give_plugs(plugs: &[BorrowedFd<'_>], (uid, gid): (u32, u32)) -> io::Result<()> {
    use rustix::fs::{Gid, Uid, fchown};
    let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    plugs.iter().try_for_each(|plug| Ok(fchown(plug, owner.0, owner.1)?))
}

impl Restoring {
    /// Makes them, standing still, once their files are laid. `stopped` is what [`crate::Image::adapt`]
    /// returned.
    ///
    /// # Errors
    /// Something that the image needs is not here. Nothing of it is left running.
    pub fn finish(
        self,
        memory: &Memory,
        (header, plugs): (&Header, &[BorrowedFd<'_>]),
        stopped: &[i32],
    ) -> Result<Restored, RestoreError> {
        let status = match self {
            Self::Begun(mut criu) => {
                let_read(memory).map_err(RestoreError::Unserved)?;
                // A CRIU that ended before all was known may have been reaped already.
                criu.wait().ok()
            }
            Self::ToBegin(mut command) => Some(command.status().map_err(RestoreError::Start)?),
        };
        if !status.is_some_and(|status| status.success()) {
            let why = first_error(&memory.text(LOG), &memory.text(PRINTED));
            return Err(RestoreError::Refused(why));
        }
        give_plugs(plugs, (0, 0)).map_err(RestoreError::Start)?;
        let names = memory.names().map_err(RestoreError::Start)?;
        // Each process has one of these, and threads have none.
        let processes = names.iter().filter_map(|name| number_in(name, "mm-"));
        let processes = processes.filter(|pid| !stopped.contains(pid)).collect();
        Ok(Restored { root: header.root, processes })
    }
}

fn plug_words(header: &Header, plugs: &[BorrowedFd<'_>]) -> Vec<OsString> {
    let words = header.plugs.iter().zip(plugs).flat_map(|(plug, fd)| {
        ["--inherit-fd".into(), format!("fd[{}]:pipe:[{}]", fd.as_raw_fd(), plug.pipe).into()]
    });
    words.collect()
}
