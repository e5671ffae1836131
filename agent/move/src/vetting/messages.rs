//! The messages of CRIU's images: the fields that images of our guests have,
//! and what they may say.
//!
//! What is not here is no guest's of ours: forms of older CRIUs (credentials in
//! a file of their own), security labels and filters, namespaces and control
//! groups, terminals, devices, watches, and sockets with rights.
//!
//! Source: CRIU 4.1.1, `images/*.proto`; `criu/include/image.h` for areas.

use super::rules::Kind::{Bits, Bytes, Exactly, Is, Message, Number, Signed, UpTo, Wide};
use super::rules::{Field, Kind, YES_OR_NO, many, maybe, one, times};

/// The longest path that the kernel takes.
pub(super) const PATH_BYTES_MAX: usize = 4_096;

const SIGNALS: u64 = 64;

/// An area for each of the kernel's usual limit, and some.
const AREAS_MAX: usize = 1 << 20;

/// The kernel's own bound on process numbers.
pub(super) const PID_MAX: u64 = 1 << 22;

/// How a file is opened: all of the kernel's flags but those that create, empty or
/// lock (`O_CREAT`, `O_EXCL`, `O_NOCTTY`, `O_TRUNC`), which no open file has.
const OPEN_FLAGS: u64 = 0o37_776_003;

/// Which machine code it is.
const MACHINE: u64 = if cfg!(target_arch = "x86_64") { 1 } else { 3 };

pub(super) const INVENTORY: &[Field] = &[
    // The form with a head of two numbers in every file.
    one(1, "img_version", Is(&[2])),
    maybe(2, "fdinfo_per_id", YES_OR_NO),
    one(3, "root_ids", Message(IDS)),
    maybe(4, "ns_per_id", YES_OR_NO),
    maybe(5, "root_cg_set", Number),
    maybe(6, "lsmtype", UpTo(2)),
    maybe(8, "dump_uptime", Wide),
    maybe(9, "pre_dump_mode", UpTo(2)),
    maybe(10, "tcp_close", Is(&[0])),
    // Skipped: nothing was locked.
    maybe(11, "network_lock_method", Is(&[2])),
    maybe(12, "plugins_entry", Message(PLUGINS)),
    maybe(13, "dump_criu_run_id", Bytes(64)),
];

const PLUGINS: &[Field] = &[];

pub(super) const IDS: &[Field] = &[
    one(1, "vm_id", Number),
    one(2, "files_id", Number),
    one(3, "fs_id", Number),
    one(4, "sighand_id", Number),
    maybe(5, "pid_ns_id", Number),
    maybe(6, "net_ns_id", Number),
    maybe(7, "ipc_ns_id", Number),
    maybe(8, "uts_ns_id", Number),
    maybe(9, "mnt_ns_id", Number),
    maybe(10, "user_ns_id", Number),
    maybe(11, "cgroup_ns_id", Number),
    maybe(12, "time_ns_id", Number),
];

/// The first and the last field of [`IDS`] that names a namespace.
pub(super) const NAMESPACES: std::ops::RangeInclusive<u32> = 5..=12;

pub(super) const PSTREE: &[Field] = &[
    one(1, "pid", UpTo(PID_MAX)),
    one(2, "ppid", UpTo(PID_MAX)),
    one(3, "pgid", UpTo(PID_MAX)),
    one(4, "sid", UpTo(PID_MAX)),
    // Of a process that has ended CRIU writes whatever lay in its memory.
    many(5, "threads", UpTo(0xffff_ffff), 1 << 16),
];

pub(super) const CORE: &[Field] = &[
    one(1, "mtype", Is(&[MACHINE])),
    maybe(2, "thread_info", Message(X86)),
    maybe(3, "tc", Message(TASK)),
    maybe(5, "thread_core", Message(THREAD)),
    maybe(8, "ti_aarch64", Message(AARCH64)),
];

const TASK: &[Field] = &[
    // Alive, ended (its parent has not looked yet), or stopped.
    one(1, "task_state", Is(&[1, 2, 3])),
    one(2, "exit_code", Number),
    one(3, "personality", Number),
    one(4, "flags", Number),
    one(5, "blk_sigset", Wide),
    one(6, "comm", Bytes(16)),
    maybe(7, "timers", Message(TIMERS)),
    maybe(8, "rlimits", Message(LIMITS)),
    maybe(9, "cg_set", Number),
    maybe(10, "signals_s", Message(SIGNAL_QUEUE)),
    maybe(13, "loginuid", Number),
    maybe(14, "oom_score_adj", Signed),
    many(15, "sigactions", Message(SIGNAL_ACTION), 64),
    maybe(18, "child_subreaper", YES_OR_NO),
    maybe(20, "blk_sigset_extended", Wide),
    maybe(21, "stop_signo", UpTo(SIGNALS)),
    maybe(22, "membarrier_registration_mask", Number),
];

const THREAD: &[Field] = &[
    one(1, "futex_rla", Wide),
    one(2, "futex_rla_len", Number),
    // In zigzag: 0 to 19. Better than others nobody was.
    maybe(3, "sched_nice", NICE),
    // Normal, batch, idle.
    maybe(4, "sched_policy", Is(&[0, 3, 5])),
    maybe(5, "sched_prio", Is(&[0])),
    maybe(6, "blk_sigset", Wide),
    maybe(7, "sas", Message(SIGNAL_STACK)),
    maybe(8, "pdeath_sig", UpTo(SIGNALS)),
    maybe(9, "signals_p", Message(SIGNAL_QUEUE)),
    // Where it is missing, CRIU looks for a file of an older form.
    one(10, "creds", Message(CREDENTIALS)),
    maybe(11, "seccomp_mode", Is(&[0])),
    maybe(13, "comm", Bytes(16)),
    maybe(14, "blk_sigset_extended", Wide),
    maybe(15, "rseq_entry", Message(RSEQ)),
    maybe(16, "cg_set", Number),
];

const NICE: Kind = Is(&[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38]);

/// Whom it becomes and what it may is this place's to say: `Terms`.
const CREDENTIALS: &[Field] = &[
    one(1, "uid", Number),
    one(2, "gid", Number),
    one(3, "euid", Number),
    one(4, "egid", Number),
    one(5, "suid", Number),
    one(6, "sgid", Number),
    one(7, "fsuid", Number),
    one(8, "fsgid", Number),
    many(9, "cap_inh", Number, 4),
    many(10, "cap_prm", Number, 4),
    many(11, "cap_eff", Number, 4),
    many(12, "cap_bnd", Number, 4),
    one(13, "secbits", Is(&[0])),
    many(14, "groups", Number, 64),
    one(18, "no_new_privs", Is(&[1])),
    many(19, "cap_amb", Is(&[0]), 4),
];

const RSEQ: &[Field] = &[
    one(1, "rseq_abi_pointer", Wide),
    one(2, "rseq_abi_size", Number),
    one(3, "signature", Number),
    maybe(4, "rseq_cs_pointer", Wide),
];

const SIGNAL_STACK: &[Field] =
    &[one(1, "ss_sp", Wide), one(2, "ss_size", Wide), one(3, "ss_flags", Number)];

const SIGNAL_ACTION: &[Field] = &[
    one(1, "sigaction", Wide),
    one(2, "flags", Wide),
    one(3, "restorer", Wide),
    one(4, "mask", Wide),
    maybe(5, "compat_sigaction", YES_OR_NO),
    maybe(6, "mask_extended", Wide),
];

const SIGNAL_QUEUE: &[Field] = &[many(1, "signals", Message(SIGNAL), 1 << 16)];
const SIGNAL: &[Field] = &[one(1, "siginfo", Exactly(128))];

/// One for each of the kernel's resources: what is missing `Terms` cannot lower.
const LIMITS: &[Field] = &[times(1, "rlimits", Message(LIMIT), 16)];
const LIMIT: &[Field] = &[one(1, "cur", Wide), one(2, "max", Wide)];

const TIMERS: &[Field] = &[
    one(1, "real", Message(INTERVAL_TIMER)),
    one(2, "virt", Message(INTERVAL_TIMER)),
    one(3, "prof", Message(INTERVAL_TIMER)),
    many(4, "posix", Message(POSIX_TIMER), 1 << 16),
];

const INTERVAL_TIMER: &[Field] =
    &[one(1, "isec", Wide), one(2, "iusec", Wide), one(3, "vsec", Wide), one(4, "vusec", Wide)];

const POSIX_TIMER: &[Field] = &[
    one(1, "it_id", Number),
    // None that wakes the machine up.
    one(2, "clock_id", UpTo(7)),
    one(3, "si_signo", UpTo(SIGNALS)),
    one(4, "it_sigev_notify", UpTo(7)),
    one(5, "sival_ptr", Wide),
    one(6, "overrun", Number),
    one(7, "isec", Wide),
    one(8, "insec", Wide),
    one(9, "vsec", Wide),
    one(10, "vnsec", Wide),
    maybe(11, "notify_thread_id", Signed),
];

const X86: &[Field] = &[
    one(1, "clear_tid_addr", Wide),
    one(2, "gpregs", Message(X86_REGISTERS)),
    one(3, "fpregs", Message(X86_FLOATS)),
    many(4, "tls", Message(X86_SEGMENT), 8),
];

const X86_REGISTERS: &[Field] = &[
    one(1, "r15", Wide),
    one(2, "r14", Wide),
    one(3, "r13", Wide),
    one(4, "r12", Wide),
    one(5, "bp", Wide),
    one(6, "bx", Wide),
    one(7, "r11", Wide),
    one(8, "r10", Wide),
    one(9, "r9", Wide),
    one(10, "r8", Wide),
    one(11, "ax", Wide),
    one(12, "cx", Wide),
    one(13, "dx", Wide),
    one(14, "si", Wide),
    one(15, "di", Wide),
    one(16, "orig_ax", Wide),
    one(17, "ip", Wide),
    one(18, "cs", Wide),
    one(19, "flags", Wide),
    one(20, "sp", Wide),
    one(21, "ss", Wide),
    one(22, "fs_base", Wide),
    one(23, "gs_base", Wide),
    one(24, "ds", Wide),
    one(25, "es", Wide),
    one(26, "fs", Wide),
    one(27, "gs", Wide),
    maybe(28, "mode", Is(&[1, 2])),
];

const X86_FLOATS: &[Field] = &[
    one(1, "cwd", Number),
    one(2, "swd", Number),
    one(3, "twd", Number),
    one(4, "fop", Number),
    one(5, "rip", Wide),
    one(6, "rdp", Wide),
    one(7, "mxcsr", Number),
    one(8, "mxcsr_mask", Number),
    many(9, "st_space", Number, 32),
    many(10, "xmm_space", Number, 64),
    many(11, "padding", Number, 24),
    maybe(13, "xsave", Message(X86_XSAVE)),
];

const X86_XSAVE: &[Field] = &[
    one(1, "xstate_bv", Wide),
    many(2, "ymmh_space", Number, 64),
    many(3, "bndreg_state", Wide, 8),
    many(4, "bndcsr_state", Wide, 8),
    many(5, "opmask_reg", Wide, 8),
    many(6, "zmm_upper", Wide, 64),
    many(7, "hi16_zmm", Wide, 128),
    many(8, "pkru", Number, 2),
    maybe(9, "cet", Message(X86_CET)),
];

const X86_CET: &[Field] = &[one(1, "cet", Wide), one(2, "ssp", Wide)];

const X86_SEGMENT: &[Field] = &[
    one(1, "entry_number", Number),
    one(2, "base_addr", Number),
    one(3, "limit", Number),
    one(4, "seg_32bit", YES_OR_NO),
    one(5, "contents_h", YES_OR_NO),
    one(6, "contents_l", YES_OR_NO),
    one(7, "read_exec_only", YES_OR_NO),
    one(8, "limit_in_pages", YES_OR_NO),
    one(9, "seg_not_present", YES_OR_NO),
    one(10, "usable", YES_OR_NO),
];

const AARCH64: &[Field] = &[
    one(1, "clear_tid_addr", Wide),
    one(2, "tls", Wide),
    one(3, "gpregs", Message(AARCH64_REGISTERS)),
    one(4, "fpsimd", Message(AARCH64_FLOATS)),
    maybe(5, "pac_keys", Message(AARCH64_KEYS)),
];

const AARCH64_REGISTERS: &[Field] =
    &[many(1, "regs", Wide, 31), one(2, "sp", Wide), one(3, "pc", Wide), one(4, "pstate", Wide)];

const AARCH64_FLOATS: &[Field] =
    &[many(1, "vregs", Wide, 64), one(2, "fpsr", Number), one(3, "fpcr", Number)];

const AARCH64_KEYS: &[Field] = &[
    maybe(6, "pac_address_keys", Message(AARCH64_ADDRESS_KEYS)),
    maybe(7, "pac_generic_keys", Message(AARCH64_GENERIC_KEYS)),
];

const AARCH64_ADDRESS_KEYS: &[Field] = &[
    one(1, "apiakey_lo", Wide),
    one(2, "apiakey_hi", Wide),
    one(3, "apibkey_lo", Wide),
    one(4, "apibkey_hi", Wide),
    one(5, "apdakey_lo", Wide),
    one(6, "apdakey_hi", Wide),
    one(7, "apdbkey_lo", Wide),
    one(8, "apdbkey_hi", Wide),
    one(9, "pac_enabled_key", Wide),
];

const AARCH64_GENERIC_KEYS: &[Field] = &[one(1, "apgakey_lo", Wide), one(2, "apgakey_hi", Wide)];

pub(super) const MM: &[Field] = &[
    one(1, "mm_start_code", Wide),
    one(2, "mm_end_code", Wide),
    one(3, "mm_start_data", Wide),
    one(4, "mm_end_data", Wide),
    one(5, "mm_start_stack", Wide),
    one(6, "mm_start_brk", Wide),
    one(7, "mm_brk", Wide),
    one(8, "mm_arg_start", Wide),
    one(9, "mm_arg_end", Wide),
    one(10, "mm_env_start", Wide),
    one(11, "mm_env_end", Wide),
    one(12, "exe_file_id", Number),
    many(13, "mm_saved_auxv", Wide, 128),
    many(14, "vmas", Message(AREA), AREAS_MAX),
    maybe(15, "dumpable", UpTo(2)),
    many(16, "aios", Message(AIO), 64),
    maybe(17, "thp_disabled", YES_OR_NO),
];

const AIO: &[Field] =
    &[one(1, "id", Wide), one(2, "nr_req", UpTo(1 << 16)), one(3, "ring_len", UpTo(1 << 24))];

/// All that a process may have but memory of sockets, of plugins, of System V, and
/// the kernel's large pages.
const AREA: &[Field] = &[
    one(1, "start", Wide),
    one(2, "end", Wide),
    one(3, "pgoff", Wide),
    one(4, "shmid", Wide),
    one(5, "prot", Bits(0x0700_0007)),
    one(6, "flags", Bits(0x003b_f93f)),
    one(7, "status", Bits(0xf3ef)),
    // In zigzag: -1, none yet.
    one(8, "fd", Is(&[1])),
    maybe(9, "madv", Wide),
    maybe(10, "fdflags", Bits(OPEN_FLAGS)),
];

pub(super) const FDINFO: &[Field] = &[
    one(1, "id", Number),
    one(2, "flags", UpTo(1)),
    one(3, "type", TYPES),
    one(4, "fd", UpTo(1 << 20)),
];

/// Files, pipes, named ones, Internet and Unix sockets, counters, polls, signals,
/// timers, memory, processes.
const TYPES: Kind = Is(&[1, 2, 3, 4, 5, 6, 7, 9, 17, 18, 20]);

pub(super) const REG: u64 = 1;
pub(super) const FIFO: u64 = 3;
pub(super) const UNIX: u64 = 5;
pub(super) const MEMFD: u64 = 18;
pub(super) const PIDFD: u64 = 20;

/// In which field the description of a file of such a type is.
pub(super) fn member_of(kind: u64) -> Option<u32> {
    let members = [
        (1, 3),
        (2, 18),
        (3, 17),
        (4, 4),
        (5, 16),
        (6, 8),
        (7, 9),
        (9, 10),
        (17, 12),
        (18, 20),
        (20, 22),
    ];
    members.iter().find(|(known, _)| *known == kind).map(|(_, member)| *member)
}

pub(super) const FILE: &[Field] = &[
    one(1, "type", TYPES),
    one(2, "id", Number),
    maybe(3, "reg", Message(REG_FILE)),
    maybe(4, "isk", Message(INET_SOCKET)),
    maybe(8, "efd", Message(EVENT_COUNTER)),
    maybe(9, "epfd", Message(EVENT_POLL)),
    maybe(10, "sgfd", Message(SIGNAL_FILE)),
    maybe(12, "tfd", Message(TIMER_FILE)),
    maybe(16, "usk", Message(UNIX_SOCKET)),
    maybe(17, "fifo", Message(FIFO_FILE)),
    maybe(18, "pipe", Message(PIPE)),
    maybe(20, "memfd", Message(MEMFD_FILE)),
    maybe(22, "pidfd", Message(PIDFD_FILE)),
];

/// Who is to be signalled: nobody. CRIU would become another user to say so.
const SIGNALLED: &[Field] = &[
    one(1, "uid", Number),
    one(2, "euid", Number),
    one(3, "signum", UpTo(SIGNALS)),
    one(4, "pid_type", UpTo(2)),
    one(5, "pid", Is(&[0])),
];

const REG_FILE: &[Field] = &[
    one(1, "id", Number),
    one(2, "flags", Bits(OPEN_FLAGS)),
    one(3, "pos", Wide),
    one(5, "fown", Message(SIGNALLED)),
    one(6, "name", Bytes(PATH_BYTES_MAX)),
    // In zigzag: -1, as of a guest whose mounts are its keeper's.
    maybe(7, "mnt_id", Is(&[1])),
    maybe(8, "size", Wide),
    maybe(9, "ext", Is(&[0])),
    maybe(10, "mode", Number),
    many(11, "build_id", Number, 64),
    maybe(12, "checksum", Number),
    maybe(13, "checksum_config", Number),
    maybe(14, "checksum_parameter", Number),
];

const PIPE: &[Field] = &[
    one(1, "id", Number),
    one(2, "pipe_id", Number),
    one(3, "flags", Bits(OPEN_FLAGS)),
    one(4, "fown", Message(SIGNALLED)),
];

const FIFO_FILE: &[Field] =
    &[one(1, "id", Number), one(2, "pipe_id", Number), maybe(3, "regf_id", Number)];

const EVENT_COUNTER: &[Field] = &[
    one(1, "id", Number),
    // One of its own beside those of files: it counts down by one.
    one(2, "flags", Bits(OPEN_FLAGS | 1)),
    one(3, "fown", Message(SIGNALLED)),
    one(4, "counter", Wide),
];

const EVENT_POLL: &[Field] = &[
    one(1, "id", Number),
    one(2, "flags", Bits(OPEN_FLAGS)),
    one(3, "fown", Message(SIGNALLED)),
    many(4, "tfd", Message(EVENT_POLLED), 1 << 16),
];

const EVENT_POLLED: &[Field] = &[
    one(1, "id", Number),
    one(2, "tfd", UpTo(1 << 20)),
    one(3, "events", Number),
    one(4, "data", Wide),
    maybe(5, "dev", Number),
    maybe(6, "inode", Wide),
    maybe(7, "pos", Wide),
];

const SIGNAL_FILE: &[Field] = &[
    one(1, "id", Number),
    one(2, "flags", Bits(OPEN_FLAGS)),
    one(3, "fown", Message(SIGNALLED)),
    one(4, "sigmask", Wide),
];

const TIMER_FILE: &[Field] = &[
    one(1, "id", Number),
    one(2, "flags", Bits(OPEN_FLAGS)),
    one(3, "fown", Message(SIGNALLED)),
    one(4, "clockid", UpTo(7)),
    one(5, "ticks", Wide),
    one(6, "settime_flags", UpTo(3)),
    one(7, "vsec", Wide),
    one(8, "vnsec", Wide),
    one(9, "isec", Wide),
    one(10, "insec", Wide),
];

const MEMFD_FILE: &[Field] = &[
    one(1, "id", Number),
    one(2, "flags", Bits(OPEN_FLAGS)),
    one(3, "pos", Wide),
    one(4, "fown", Message(SIGNALLED)),
    one(5, "inode_id", Number),
];

const PIDFD_FILE: &[Field] = &[
    one(1, "id", Number),
    one(2, "ino", Number),
    one(3, "flags", Bits(OPEN_FLAGS)),
    one(4, "nspid", Signed),
    one(5, "fown", Message(SIGNALLED)),
];

pub(super) const MEMFD_INODE: &[Field] = &[
    one(1, "name", Bytes(256)),
    one(2, "uid", Number),
    one(3, "gid", Number),
    one(4, "size", Wide),
    one(5, "shmid", Number),
    one(6, "seals", Bits(0x3f)),
    one(7, "inode_id", Wide),
    maybe(9, "mode", Bits(0o100_777)),
];

/// Buffers no bigger than the kernel gives to whoever asks.
const SOCKET_BYTES_MAX: u64 = 64 << 20;

/// No mark, no device, no filter: those need rights.
const SOCKET_OPTIONS: &[Field] = &[
    one(1, "so_sndbuf", UpTo(SOCKET_BYTES_MAX)),
    one(2, "so_rcvbuf", UpTo(SOCKET_BYTES_MAX)),
    one(3, "so_snd_tmo_sec", Wide),
    one(4, "so_snd_tmo_usec", Wide),
    one(5, "so_rcv_tmo_sec", Wide),
    one(6, "so_rcv_tmo_usec", Wide),
    maybe(7, "reuseaddr", YES_OR_NO),
    maybe(8, "so_priority", UpTo(6)),
    maybe(9, "so_rcvlowat", Number),
    maybe(10, "so_mark", Is(&[0])),
    maybe(11, "so_passcred", YES_OR_NO),
    maybe(12, "so_passsec", Is(&[0])),
    maybe(13, "so_dontroute", YES_OR_NO),
    maybe(14, "so_no_check", YES_OR_NO),
    maybe(17, "so_reuseport", YES_OR_NO),
    maybe(18, "so_broadcast", YES_OR_NO),
    maybe(19, "so_keepalive", YES_OR_NO),
    maybe(20, "tcp_keepcnt", Number),
    maybe(21, "tcp_keepidle", Number),
    maybe(22, "tcp_keepintvl", Number),
    maybe(23, "so_oobinline", Number),
    maybe(24, "so_linger", Number),
    maybe(25, "so_buf_lock", UpTo(3)),
];

const UNIX_SOCKET: &[Field] = &[
    one(1, "id", Number),
    one(2, "ino", Number),
    // Stream, datagram, sequenced packets.
    one(3, "type", Is(&[1, 2, 5])),
    // Connected, not, listening.
    one(4, "state", Is(&[1, 7, 10])),
    one(5, "flags", Bits(OPEN_FLAGS)),
    // Its other end is in the image.
    one(6, "uflags", Is(&[0])),
    one(7, "backlog", Number),
    one(8, "peer", Number),
    one(9, "fown", Message(SIGNALLED)),
    one(10, "opts", Message(SOCKET_OPTIONS)),
    one(11, "name", Bytes(108)),
    maybe(12, "shutdown", UpTo(3)),
    maybe(13, "file_perms", Message(SOCKET_FILE)),
    maybe(15, "deleted", YES_OR_NO),
    maybe(16, "ns_id", Number),
    maybe(17, "mnt_id", Is(&[1])),
];

const SOCKET_FILE: &[Field] =
    &[one(1, "mode", Bits(0o140_777)), one(2, "uid", Number), one(3, "gid", Number)];

/// Connected to nobody: listening, or not yet of use.
const INET_SOCKET: &[Field] = &[
    one(1, "id", Number),
    one(2, "ino", Number),
    // Versions 4 and 6; TCP and UDP.
    one(3, "family", Is(&[2, 10])),
    one(4, "type", Is(&[1, 2])),
    one(5, "proto", Is(&[6, 17])),
    one(6, "state", Is(&[7, 10])),
    one(7, "src_port", UpTo(0xffff)),
    one(8, "dst_port", Is(&[0])),
    one(9, "flags", Bits(OPEN_FLAGS)),
    one(10, "backlog", Number),
    many(11, "src_addr", Number, 4),
    many(12, "dst_addr", Number, 4),
    one(13, "fown", Message(SIGNALLED)),
    one(14, "opts", Message(SOCKET_OPTIONS)),
    maybe(15, "v6only", YES_OR_NO),
    maybe(16, "ip_opts", Message(IP_OPTIONS)),
    maybe(18, "ns_id", Number),
    maybe(19, "shutdown", UpTo(3)),
    maybe(20, "tcp_opts", Message(TCP_OPTIONS)),
];

const IP_OPTIONS: &[Field] = &[
    maybe(1, "freebind", YES_OR_NO),
    maybe(5, "pktinfo", YES_OR_NO),
    maybe(6, "tos", UpTo(255)),
    maybe(7, "ttl", UpTo(255)),
];

const TCP_OPTIONS: &[Field] = &[
    maybe(1, "cork", YES_OR_NO),
    maybe(2, "nodelay", YES_OR_NO),
    maybe(3, "keepcnt", Number),
    maybe(4, "keepidle", Number),
    maybe(5, "keepintvl", Number),
];

pub(super) const FS: &[Field] =
    &[one(1, "cwd_id", Number), one(2, "root_id", Number), maybe(3, "umask", Bits(0o777))];

/// A deleted file whose content comes along, under a name of its own for a
/// moment.
pub(super) const REMAP: &[Field] =
    &[one(1, "orig_id", Number), one(2, "remap_id", Number), one(3, "remap_type", Is(&[1]))];

/// No device, and no link.
pub(super) const GHOST: &[Field] = &[
    one(1, "uid", Number),
    one(2, "gid", Number),
    one(3, "mode", Number),
    maybe(4, "dev", Number),
    maybe(5, "ino", Wide),
    maybe(7, "atim", Message(TIME)),
    maybe(8, "mtim", Message(TIME)),
    maybe(9, "chunks", YES_OR_NO),
    maybe(10, "size", Wide),
];

const TIME: &[Field] = &[one(1, "tv_sec", Wide), one(2, "tv_usec", Wide)];

pub(super) const PIPE_DATA: &[Field] =
    &[one(1, "pipe_id", Number), one(2, "bytes", UpTo(1 << 24)), maybe(3, "size", UpTo(1 << 24))];

pub(super) const SOCKET_DATA: &[Field] =
    &[one(1, "id_for", Number), one(2, "length", UpTo(1 << 24)), many(4, "scm", Message(SENT), 8)];

/// Files that are on their way over a socket.
const SENT: &[Field] = &[one(1, "type", Is(&[1])), many(2, "rights", Number, 253)];

/// Of files, not of leases on them.
pub(super) const LOCK: &[Field] = &[
    one(1, "flag", Is(&[1, 2, 4])),
    one(2, "type", UpTo(2)),
    one(3, "pid", Signed),
    one(4, "fd", Signed),
    one(5, "start", Wide),
    one(6, "len", Wide),
];

pub(super) const MAP_HEAD: &[Field] = &[one(1, "pages_id", Number)];

/// Here, perhaps only when asked for; not in an image before this one.
pub(super) const MAP: &[Field] =
    &[one(1, "vaddr", Wide), one(2, "nr_pages", Number), maybe(4, "flags", Is(&[4, 6]))];

/// There are no filters.
pub(super) const SECCOMP: &[Field] = &[];

/// Not read: a moved guest has its keeper's clocks.
pub(super) const CLOCKS: &[Field] =
    &[one(1, "monotonic", Message(CLOCK)), one(2, "boottime", Message(CLOCK))];

const CLOCK: &[Field] = &[one(1, "tv_sec", Wide), one(2, "tv_nsec", Wide)];
