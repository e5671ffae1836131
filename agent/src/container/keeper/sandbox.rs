//! What a keeper takes away from itself, and so from every guest, before the
//! first one starts.
//!
//! In this order, because each step needs rights that a later one gives up: the
//! loopback device, a root directory of its own, the user, Landlock. A keeper
//! that cannot have a root directory takes no guests. Another layer that cannot
//! be had is named and the rest goes on: the caller decides whether a machine is
//! good enough.
//!
//! A keeper is nobody's guest: its user is not that of its guests, who could
//! limit it, slow it down and pin it for those after them.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use gleaner_move::stage::{DEVICES, GROUND};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};
use rustix::process::{Resource, Rlimit};

use super::birth::{forget_keys, set_rights};
use super::protocol::Sandbox;
use super::view;

/// The newest Landlock that we know how to use; older kernels give less.
const LANDLOCK: ABI = ABI::V6;

/// How it went.
pub(super) struct Entered {
    /// What could not be done, one line each.
    pub(super) missing: Vec<String>,
    /// Why no guest may be started, if that is so.
    pub(super) unfit: Option<String>,
}

/// Takes the rights away from a keeper whose guests cannot move.
pub(super) fn enter(sandbox: &Sandbox) -> Entered {
    let mut missing = vec![];
    let mut note = |what: &str, done: io::Result<()>| {
        if let Err(error) = &done {
            missing.push(format!("guest {what}: {error}"));
        }
        done.is_ok()
    };
    if sandbox.own_network {
        note("loopback device", raise_loopback());
    }
    let mut unfit = None;
    if sandbox.own_mounts {
        let stage = view::stage(sandbox).enter();
        unfit = stage.as_ref().err().map(|error| format!("guest root directory: {error}"));
        if note("root directory", stage) && own_number() != Some(rustix::process::getpid()) {
            note("private /proc", Err(io::ErrorKind::Unsupported.into()));
        }
    }
    note("limits", no_cores());
    note("scheduling", schedule_idle());
    note("user", give_up_root(sandbox, KEPT_FOR_GUESTS));
    note("Landlock", restrict_files(sandbox));
    note(
        "memory protection",
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .map_err(Into::into),
    );
    Entered { missing, unfit }
}

/// Our number as `/proc` has it: another one's `/proc` shows another.
fn own_number() -> Option<rustix::process::Pid> {
    let own = std::fs::read_link("/proc/self").ok()?;
    rustix::process::Pid::from_raw(own.to_str()?.parse().ok()?)
}

/// Programs that talk to themselves over 127.0.0.1 expect it to be there.
#[expect(unsafe_code, reason = "interface flags are set by an ioctl without a safe binding")]
pub(super) fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    // SAFETY: all zeroes is a valid ifreq; the request only reads and writes it.
    let done = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l'.cast_signed();
        request.ifr_name[1] = b'o'.cast_signed();
        request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(1);
        libc::ioctl(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::SIOCSIFFLAGS,
            &raw const request,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nothing is written down of who crashes: it might hold what a guest was given.
pub(super) fn no_cores() -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    Ok(rustix::process::setrlimit(Resource::Core, none)?)
}

/// Runs only when nobody else wants the core, as every guest then does: the
/// class is inherited, and without privileges there is no way back.
#[expect(unsafe_code, reason = "the scheduling class has no safe binding")]
pub(super) fn schedule_idle() -> io::Result<()> {
    // SAFETY: all zeroes is a valid priority; a plain system call.
    let done = unsafe {
        let priority: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const fn right(capability: u32) -> u32 {
    1 << capability
}

/// `CAP_KILL`: guests are other users than their keeper.
pub(super) const KEPT_TO_KILL: u32 = right(5);

/// With it, to start guests: `CAP_SETGID` and `CAP_SETUID`, and `CAP_SYS_ADMIN`
/// for IPC namespaces. Landlock lets even that one mount nothing.
pub(super) const KEPT_FOR_GUESTS: u32 = KEPT_TO_KILL | right(6) | right(7) | right(21);

/// Root no more, for good, and no right but those comes back, also not with a
/// set-user-id program.
pub(super) fn give_up_root(sandbox: &Sandbox, kept: u32) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    match sandbox.uid {
        Some(uid) => become_keeper(sandbox.keeper_uid, uid, kept),
        // As root without a guest user there is nothing to come back: the sandbox
        // does not rest on it.
        None if rustix::process::geteuid().is_root() => Ok(()),
        None => drop_rights(),
    }
}

/// Becomes the keepers' user. Files are reached as the guests' user reaches them:
/// that goes for nothing else, and gives nobody a hold on us.
#[expect(unsafe_code, reason = "changing the user of the whole process has no safe binding")]
fn become_keeper(keeper: u32, guest: u32, kept: u32) -> io::Result<()> {
    // SAFETY: plain system calls; this process has one thread.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0
            && libc::setresgid(keeper, keeper, keeper) == 0
            && libc::setresuid(keeper, keeper, keeper) == 0
            && set_rights(KEPT_FOR_GUESTS) == 0
            && {
                libc::setfsgid(guest);
                libc::setfsuid(guest);
                // They say who it was before.
                libc::setfsgid(guest).cast_unsigned() == guest
                    && libc::setfsuid(guest).cast_unsigned() == guest
            }
            && set_rights(kept) == 0
            // Changing the user has cleared this.
            && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "ambient capabilities have no safe binding")]
fn drop_rights() -> io::Result<()> {
    // SAFETY: a plain system call.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    if set_rights(0) == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Empties the keyrings of a user, whose guest comes from elsewhere: those of
/// guests before it are nothing to it. Call it as root.
#[expect(unsafe_code, reason = "fork has no safe binding")]
pub(super) fn forget_keys_of(uid: u32) {
    // SAFETY: this process has one thread, so that the child may go on like any
    // program; it ends at once.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            if libc::setresuid(uid, uid, uid) == 0 {
                forget_keys();
            }
            libc::_exit(0);
        }
        if child > 0 {
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
}

/// What guests may open.
pub(super) struct Grants<'a> {
    pub(super) sandbox: &'a Sandbox,
    /// The place's directory, as the guest knows it.
    pub(super) ground: &'a Path,
    /// Scratch directories that are the keeper's own.
    pub(super) scratch: &'a [&'a str],
    /// More of them: a path, and what with it.
    pub(super) further: Vec<(&'a Path, BitFlags<AccessFs>)>,
    /// An open directory, all of it.
    pub(super) opened: Option<BorrowedFd<'a>>,
    pub(super) scope: BitFlags<Scope>,
}

/// The system read-only, the place's own directory and nothing else to write;
/// no signals and no abstract sockets out of here.
fn restrict_files(sandbox: &Sandbox) -> io::Result<()> {
    let staged = sandbox.own_mounts;
    restrict(Grants {
        sandbox,
        ground: if staged { Path::new(GROUND) } else { &sandbox.directory },
        scratch: if staged { &view::SCRATCH } else { &[] },
        further: vec![],
        opened: None,
        scope: Scope::from_all(LANDLOCK),
    })
}

pub(super) fn restrict(of: Grants<'_>) -> io::Result<()> {
    let failed = |error: landlock::RulesetError| io::Error::other(error.to_string());
    let all = AccessFs::from_all(LANDLOCK);
    let read = AccessFs::from_read(LANDLOCK);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(failed)?
        .scope(of.scope)
        .map_err(failed)?
        .create()
        .map_err(failed)?;
    let sandbox = of.sandbox;
    let grants = sandbox
        .readable
        .iter()
        .map(|path| (path.as_path(), read))
        .chain([(Path::new("/proc"), read), (of.ground, all)])
        .chain(sandbox.writable.iter().map(|path| (path.as_path(), all)))
        .chain(of.scratch.iter().map(|path| (Path::new(path), all)))
        .chain(DEVICES.iter().map(|path| (Path::new(path), read | AccessFs::WriteFile)))
        .chain(of.further);
    for (path, access) in grants {
        // What is not there needs no grant.
        let Ok(fd) = PathFd::new(path) else { continue };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
        rules = rules.add_rule(PathBeneath::new(fd, access)).map_err(failed)?;
    }
    if let Some(opened) = of.opened {
        rules = rules.add_rule(PathBeneath::new(opened, all)).map_err(failed)?;
    }
    let status = rules.restrict_self().map_err(failed)?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        return Err(io::Error::other("not in this kernel: guests can read what everybody can"));
    }
    Ok(())
}
