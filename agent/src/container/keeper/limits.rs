//! What the kernel enforces process by process.
//!
//! Hard limits, so that a guest cannot raise them; they are put upon the guest
//! between its birth and its program, and never upon the keeper.

use super::protocol::GuestLimits;

/// What programs begin with, as on most systems; they may raise it themselves.
const DESCRIPTORS_SOFT: u64 = 1_024;

/// Also timers: each of a process's timers has a signal set aside.
const SIGNALS_PENDING_MAX: u64 = 4_096;

/// The kernel's own default since 5.16.
const LOCKED_BYTES_MAX: u64 = 8 << 20;

/// The kernel's own default: ten queues of ten small messages.
const QUEUES_BYTES_MAX: u64 = 819_200;

/// A limit by the kernel's number (`RLIMIT_CPU` is 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) resource: u32,
    pub(crate) most: u64,
}

/// What no process of a guest may raise.
pub(crate) fn hard_limits(of: GuestLimits) -> impl Iterator<Item = Limit> {
    let given = [
        (libc::RLIMIT_FSIZE, of.file_bytes_max),
        (libc::RLIMIT_DATA, of.data_bytes_max),
        (libc::RLIMIT_NPROC, of.processes_max),
        (libc::RLIMIT_NOFILE, of.descriptors_max),
    ];
    let always = [
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_MEMLOCK, LOCKED_BYTES_MAX),
        (libc::RLIMIT_SIGPENDING, SIGNALS_PENDING_MAX),
        (libc::RLIMIT_MSGQUEUE, QUEUES_BYTES_MAX),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
    ];
    let given = given.into_iter().filter(|(_, most)| *most > 0);
    given.chain(always).map(|(resource, most)| Limit { resource, most })
}

/// As `setrlimit` takes them: never more than the calling process has.
#[expect(unsafe_code, reason = "by number: rustix knows resources by name only")]
pub(super) fn to_be_set(of: GuestLimits) -> Vec<(u32, libc::rlimit)> {
    let lowered = hard_limits(of).map(|Limit { resource, most }| {
        let mut own = libc::rlimit { rlim_cur: 0, rlim_max: most };
        // SAFETY: a plain system call; the out pointer is ours.
        unsafe { libc::getrlimit(resource, &raw mut own) };
        let most = most.min(own.rlim_max);
        let soft = if resource == libc::RLIMIT_NOFILE { DESCRIPTORS_SOFT } else { u64::MAX };
        (resource, libc::rlimit { rlim_cur: soft.min(most), rlim_max: most })
    });
    lowered.collect()
}
