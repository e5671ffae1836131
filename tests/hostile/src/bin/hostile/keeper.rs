//! The keeper, which the next guest gets: read it, end it, slow it down.

use std::fs::File;
use std::io::{self, Read as _};

use crate::numbers::{IOPRIO_IDLE, IOPRIO_WHO_PROCESS, KEEPER};
use crate::{Arguments, address, bits, call, tell};

/// Its memory, its descriptors, its secrets.
pub(crate) fn trace(_: Arguments<'_>) -> io::Result<()> {
    for (what, request) in [("attach", libc::PTRACE_ATTACH), ("seize", libc::PTRACE_SEIZE)] {
        tell(what, call(libc::SYS_ptrace, &[request as usize, KEEPER, 0, 0]));
    }
    let mut taken = [0_u8; 8];
    let ours = libc::iovec { iov_base: taken.as_mut_ptr().cast(), iov_len: 8 };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(0x40_0000), iov_len: 8 };
    let vectors = [KEEPER, address(&ours), 1, address(&theirs), 1, 0];
    tell("read its memory", call(libc::SYS_process_vm_readv, &vectors));
    tell("write its memory", call(libc::SYS_process_vm_writev, &vectors));
    let pidfd = call(libc::SYS_pidfd_open, &[KEEPER, 0])?;
    for descriptor in 0..8 {
        tell("take a descriptor", call(libc::SYS_pidfd_getfd, &[bits(pidfd), descriptor, 0]));
    }
    for name in ["environ", "mem", "maps", "auxv", "stack", "syscall", "io"] {
        let read = File::open(format!("/proc/1/{name}")).and_then(|mut file| file.read(&mut taken));
        tell(&format!("its {name}"), read);
    }
    for name in ["fd", "root/", "cwd/", "map_files", "ns/net"] {
        tell(&format!("its {name}"), std::fs::read_dir(format!("/proc/1/{name}")));
    }
    Ok(())
}

/// Every signal, by every call.
pub(crate) fn signal(_: Arguments<'_>) -> io::Result<()> {
    // One of the same session may always be told to go on, as it does anyway.
    let goes_on = usize::try_from(libc::SIGCONT).map_err(io::Error::other)?;
    for signal in (1..=64).filter(|signal| *signal != goes_on) {
        tell(&format!("signal {signal}"), call(libc::SYS_kill, &[KEEPER, signal]));
    }
    let kill = bits(libc::SIGKILL);
    tell("its thread", call(libc::SYS_tgkill, &[KEEPER, KEEPER, kill]));
    let pidfd = call(libc::SYS_pidfd_open, &[KEEPER, 0])?;
    tell("by descriptor", call(libc::SYS_pidfd_send_signal, &[bits(pidfd), kill, 0, 0]));
    // Everybody that one may: the keeper among them, and not oneself.
    tell("everybody", call(libc::SYS_kill, &[bits(-1), bits(libc::SIGKILL)]));
    Ok(())
}

/// What it may use, when and where.
pub(crate) fn limit(_: Arguments<'_>) -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    for (what, resource) in [
        ("descriptors", libc::RLIMIT_NOFILE),
        ("processes", libc::RLIMIT_NPROC),
        ("memory", libc::RLIMIT_DATA),
        ("files", libc::RLIMIT_FSIZE),
        ("time", libc::RLIMIT_CPU),
    ] {
        let limits = [KEEPER, resource as usize, address(&none), 0];
        tell(&format!("limit its {what}"), call(libc::SYS_prlimit64, &limits));
    }
    let one = [1_u64; 16];
    tell("pin it", call(libc::SYS_sched_setaffinity, &[KEEPER, 128, address(&one)]));
    let idle = [IOPRIO_WHO_PROCESS, KEEPER, IOPRIO_IDLE];
    tell("slow its disk", call(libc::SYS_ioprio_set, &idle));
    tell("slow it", call(libc::SYS_setpriority, &[0, KEEPER, 19]));
    let batch = 0_i32;
    let class = [KEEPER, bits(libc::SCHED_BATCH), address(&batch)];
    tell("schedule it", call(libc::SYS_sched_setscheduler, &class));
    tell("move its pages", call(libc::SYS_migrate_pages, &[KEEPER, 0, 0, 0]));
    for (name, text) in [("oom_score_adj", "1000"), ("autogroup", "19"), ("comm", "x")] {
        tell(&format!("its {name}"), std::fs::write(format!("/proc/1/{name}"), text));
    }
    Ok(())
}
