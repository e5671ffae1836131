//! System calls that a guest which cannot move is kept from: those by which
//! others have got out of such walls, and that no program here needs.
//!
//! Answered as by a kernel that lacks them or forbids them; never by killing.
//! Only the machine's own kind of system call is answered at all: 32-bit programs
//! call others, whose numbers mean something else.
//!
//! A guest that can move has none of this: CRIU lets nobody be written down who
//! has a filter, unless it may look into that, and a target could not trust what
//! came.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// Not there, as to programs that know what to do without: they ask `clone`
/// instead, whose words can be looked at.
const ABSENT: [libc::c_long; 4] = [
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

const FORBIDDEN: [libc::c_long; 20] = [
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_syslog,
];

/// Flags of `clone` and `unshare`. That of time namespaces means a signal there.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Families of sockets that guests may have. Of netlink only what tells of
/// network devices and addresses, which the C library asks.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Two programs for the kernel, one for each answer.
#[derive(Clone, Debug)]
pub(super) struct Filter(pub(super) [BpfProgram; 2]);

impl Filter {
    /// # Errors
    /// A machine of another kind than those that are known.
    pub(super) fn new() -> Result<Self, seccompiler::BackendError> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let absent = ABSENT.map(|call| (call, vec![])).into();
        let mut forbidden: BTreeMap<_, _> = FORBIDDEN.map(|call| (call, vec![])).into();
        for call in [libc::SYS_clone, libc::SYS_unshare] {
            forbidden
                .insert(call, NAMESPACES.map(with_flag).into_iter().collect::<Result<_, _>>()?);
        }
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            forbidden.insert(call, vec![of_other_family()?, of_other_netlink()?]);
        }
        let answer = |calls, error: libc::c_int| {
            let answer = SeccompAction::Errno(error.unsigned_abs());
            let filter = SeccompFilter::new(calls, SeccompAction::Allow, answer, arch)?;
            Ok::<_, seccompiler::BackendError>(native_only(filter.try_into()?))
        };
        Ok(Self([answer(absent, libc::ENOSYS)?, answer(forbidden, libc::EPERM)?]))
    }
}

type Rule = Result<SeccompRule, seccompiler::BackendError>;

fn is(
    argument: u8,
    how: SeccompCmpOp,
    value: libc::c_int,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
}

fn with_flag(flag: libc::c_int) -> Rule {
    let mask = SeccompCmpOp::MaskedEq(u64::from(flag.cast_unsigned()));
    SeccompRule::new(vec![is(0, mask, flag)?])
}

fn of_other_family() -> Rule {
    let none_of = FAMILIES.map(|family| is(0, SeccompCmpOp::Ne, family));
    SeccompRule::new(none_of.into_iter().collect::<Result<_, _>>()?)
}

fn of_other_netlink() -> Rule {
    let netlink = is(0, SeccompCmpOp::Eq, libc::AF_NETLINK)?;
    SeccompRule::new(vec![netlink, is(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE)?])
}

/// Numbers of x32 begin here: another kind of call with the same kind's mark.
const X32: u32 = 0x4000_0000;

/// Answers calls of another kind before the program sees them: it would kill.
///
/// Source: Linux, `Documentation/userspace-api/seccomp_filter.rst`: a filter must
/// look at `arch`, and on x86-64 at the numbers of x32.
fn native_only(program: BpfProgram) -> BpfProgram {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    const KIND: u32 = 4;
    let step = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    let absent = || step(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs());
    // The program begins with the same question, and knows this machine's answer.
    let Some(own) = program.get(1).map(|question| question.k) else { return program };
    let mut whole = vec![
        step(LOAD, KIND),
        sock_filter { code: EQUAL, jt: 1, jf: 0, k: own },
        absent(),
        step(LOAD, NUMBER),
        sock_filter { code: AT_LEAST, jt: 0, jf: 1, k: X32 },
        absent(),
    ];
    whole.extend(program);
    whole
}
