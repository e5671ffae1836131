//! A keeper for one guest that can move: it has a root directory of its own,
//! which looks the same on every workstation, and brings to life what comes
//! from another.
//!
//! ```text
//! root directory ─► .. who will it be? ..
//!   one is started:  user ─► Landlock ─► the guest's user ─► the guest
//!   one comes:       numbers and clocks ─► Landlock ─► CRIU begins, as the guest's user
//!                    ─► .. all is known .. ─► files ─► CRIU goes on ─► user ─► told to go
//! ```
//!
//! The first step is most of the work, and asks for nothing of the guest: it can
//! be done before there is one.
//!
//! What CRIU makes begins within the keeper's walls: it runs inside of them.
//! Every wall counts here: a guest that came and one that was started must not
//! be shut in differently, so one that cannot be had is a failure.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use gleaner_move::landing::{self, RestoreError, Restored, Restoring};
use gleaner_move::stage::GROUND;
use gleaner_move::{KNOWLEDGE_FILE, Memory, Reach};
use landlock::{AccessFs, Scope};
use rustix::process::DumpableBehavior;

use super::protocol::{Landing, Sandbox};
use super::sandbox::{self, Grants, KEPT_FOR_GUESTS, KEPT_TO_KILL};
use super::view::{SCRATCH, stage};
use crate::failure::one_line;

/// Why a keeper is not fit for a guest that can move.
#[derive(Debug, thiserror::Error)]
pub(super) enum StagedError {
    #[error("a keeper without namespaces of its own")]
    NoNamespaces,
    #[error("{what}: {source}")]
    Wall { what: &'static str, source: io::Error },
    #[error("{}", one_line(.0))]
    Restore(#[from] RestoreError),
    #[error("no image came with the order to land it")]
    NoImage,
}

fn wall(what: &'static str) -> impl FnOnce(io::Error) -> StagedError {
    move |source| StagedError::Wall { what, source }
}

/// A guest's image, and who waits for it.
#[derive(Debug)]
pub(super) struct PreparedRestore {
    landing: Landing,
    memory: Memory,
    restoring: Restoring,
    /// The guest's alone, once CRIU has them.
    plugs: Vec<OwnedFd>,
}

/// Gives the calling keeper its root directory; it is root still, and is to be
/// shut in when it is known whom for.
///
/// # Errors
/// The keeper has no namespaces of its own, or something cannot be mounted.
pub(super) fn enter(sandbox: &Sandbox) -> Result<(), StagedError> {
    if !sandbox.own_mounts || !sandbox.own_network {
        return Err(StagedError::NoNamespaces);
    }
    sandbox::raise_loopback().map_err(wall("loopback device"))?;
    stage(sandbox).enter().map_err(wall("root directory"))
}

/// Shuts the calling keeper in, for a guest that is started here.
///
/// # Errors
/// A wall that cannot be had.
pub(super) fn shut_in(sandbox: &Sandbox) -> Result<(), StagedError> {
    become_keeper(sandbox, KEPT_FOR_GUESTS)?;
    restrict(sandbox, None)
}

/// As for every guest, and for CRIU: its images, what it knows of the kernel,
/// and the listing of the root directory, in which there is nothing to hide.
/// No scope for abstract sockets: the network is the guest's own, and CRIU's
/// messenger in the guest comes to it over one.
fn restrict(sandbox: &Sandbox, image: Option<BorrowedFd<'_>>) -> Result<(), StagedError> {
    let mut further = vec![(Path::new("/"), AccessFs::ReadDir.into())];
    // A guest's user finds it beside the image.
    if image.is_some() && sandbox.uid.is_none() {
        further.push((Path::new(KNOWLEDGE_FILE), AccessFs::ReadFile.into()));
    }
    sandbox::restrict(Grants {
        sandbox,
        ground: Path::new(GROUND),
        scratch: &SCRATCH,
        further,
        opened: image,
        scope: Scope::Signal.into(),
    })
    .map_err(wall("Landlock"))
}

/// Whose the guest is, and CRIU with it.
fn user(sandbox: &Sandbox) -> (u32, u32) {
    let uid = sandbox.uid.unwrap_or(0);
    (uid, uid)
}

/// For good: the lowest scheduling class, the keepers' user, few rights.
fn become_keeper(sandbox: &Sandbox, kept: u32) -> Result<(), StagedError> {
    sandbox::no_cores().map_err(wall("limits"))?;
    sandbox::schedule_idle().map_err(wall("scheduling"))?;
    sandbox::give_up_root(sandbox, kept).map_err(wall("user"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| wall("memory protection")(error.into()))
}

impl PreparedRestore {
    /// Shuts the calling keeper in, for a guest that comes: with its image's
    /// directory and its ends of its pipes. The keeper is still root afterwards.
    ///
    /// # Errors
    /// A wall that cannot be had, or no CRIU.
    pub(super) fn new(
        sandbox: &Sandbox,
        landing: Landing,
        along: Vec<OwnedFd>,
    ) -> Result<Self, StagedError> {
        let mut along = along.into_iter();
        let memory = Memory::inherited(along.next().ok_or(StagedError::NoImage)?);
        let plugs: Vec<OwnedFd> = along.collect();
        if let Some(uid) = sandbox.uid {
            sandbox::forget_keys_of(uid);
        }
        landing::settle_in(&landing.header)?;
        rustix::thread::set_no_new_privs(true).map_err(|error| wall("rights")(error.into()))?;
        restrict(sandbox, Some(memory.as_fd()))?;
        let ends: Vec<_> = plugs.iter().map(OwnedFd::as_fd).collect();
        let Landing { engine, header } = &landing;
        let knowledge = sandbox.knowledge.as_deref().unwrap_or_default();
        let restoring =
            landing::begin((engine, knowledge), user(sandbox), &memory, (header, &ends))?;
        Ok(Self { landing, memory, restoring, plugs })
    }

    /// Brings the guest to life, and gives up what that needed.
    ///
    /// # Errors
    /// The guest cannot be restored here. Nothing of it runs.
    pub(super) fn land(self, sandbox: &Sandbox, stopped: &[i32]) -> Result<Restored, StagedError> {
        let reach =
            Reach { readable: sandbox.readable.clone(), writable: sandbox.writable.clone() };
        landing::lay_ground(&self.memory, user(sandbox), &reach)?;
        let ends: Vec<_> = self.plugs.iter().map(OwnedFd::as_fd).collect();
        let guest = (&self.landing.header, ends.as_slice());
        let restored = self.restoring.finish(&self.memory, guest, stopped)?;
        drop(self.plugs);
        become_keeper(sandbox, KEPT_TO_KILL)?;
        Ok(restored)
    }
}
