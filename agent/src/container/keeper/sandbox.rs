//! What a keeper takes away from itself, and so from every guest, before the
//! first one starts.
//!
//! In this order, because each step needs rights that a later one gives up:
//! its own `/proc`, the loopback device, limits, the user, Landlock. A layer
//! that cannot be had is named and the rest goes on: the caller decides
//! whether a machine is good enough.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use gleaner_move::stage::DEVICES;
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};
use rustix::mount::MountFlags;
use rustix::process::{Resource, Rlimit};

use super::protocol::{GuestLimits, Sandbox};

/// The newest Landlock that we know how to use; older kernels give less.
const LANDLOCK: ABI = ABI::V6;

/// How it went.
pub(super) struct Entered {
    /// What could not be done, one line each.
    pub(super) missing: Vec<String>,
    /// Are `/tmp` and the like the keeper's own?
    pub(super) scratch: bool,
}

/// Takes the rights away.
pub(super) fn enter(sandbox: &Sandbox) -> Entered {
    let (mut missing, mut scratch) = (vec![], false);
    let mut note = |what: &str, done: io::Result<()>| {
        if let Err(error) = done {
            missing.push(format!("guest {what}: {error}"));
        }
    };
    if sandbox.own_mounts {
        let narrowed = super::view::narrow(sandbox);
        scratch = narrowed.is_ok();
        note("private mounts", narrowed);
        note("private /proc", own_proc());
    }
    if sandbox.own_network {
        note("loopback device", raise_loopback());
    }
    note("limits", limit_hard(sandbox.limits));
    note("scheduling", schedule_idle());
    if let Some(uid) = sandbox.uid {
        note("user", become_user(uid));
    }
    note("rights", drop_rights());
    note("Landlock", restrict_files(sandbox, scratch));
    note(
        "memory protection",
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .map_err(Into::into),
    );
    Entered { missing, scratch }
}

/// A `/proc` that shows the guest's own processes only.
fn own_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("proc", "/proc", "proc", flags, None)?)
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

/// Hard limits: what no guest can raise.
pub(super) fn limit_hard(limits: GuestLimits) -> io::Result<()> {
    let set = |resource, value: u64| {
        let most = lower(value, rustix::process::getrlimit(resource).maximum);
        rustix::process::setrlimit(resource, Rlimit { current: most, maximum: most })
    };
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none)?;
    set(Resource::Fsize, limits.file_bytes_max)?;
    set(Resource::Nproc, limits.processes_max)?;
    set(Resource::Data, limits.data_bytes_max)?;
    Ok(())
}

/// The lower of a limit of ours, where 0 is none, and the kernel's.
pub(super) fn lower(ours: u64, kernels: Option<u64>) -> Option<u64> {
    if ours == 0 { kernels } else { Some(kernels.map_or(ours, |most| most.min(ours))) }
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

/// Becomes the place's own user, for good.
#[expect(unsafe_code, reason = "changing the user of the whole process has no safe binding")]
pub(super) fn become_user(uid: u32) -> io::Result<()> {
    // SAFETY: plain system calls; this process has one thread.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(uid, uid, uid) == 0
            && libc::setresuid(uid, uid, uid) == 0
            // Changing the user has cleared this.
            && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// No right is left, and none comes back with a set-user-id program.
#[expect(unsafe_code, reason = "ambient capabilities have no safe binding")]
pub(super) fn drop_rights() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    // As root without a guest user (a lab host's choice) there is nothing to
    // come back: the bounding set stays, the sandbox does not rest on it.
    if !rustix::process::geteuid().is_root() {
        let header: [u32; 2] = [0x2008_0522, 0];
        let none: [u32; 6] = [0; 6];
        // SAFETY: plain system calls; the layouts are those of capset(2).
        unsafe {
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
            if libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
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
fn restrict_files(sandbox: &Sandbox, scratch: bool) -> io::Result<()> {
    restrict(Grants {
        sandbox,
        ground: &sandbox.directory,
        scratch: if scratch { &super::view::SCRATCH } else { &[] },
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
