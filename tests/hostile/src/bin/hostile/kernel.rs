//! Ways out that others have found: rare sockets, namespaces, rings, keys, and
//! what only root may.

use std::ffi::CString;
use std::fs;
use std::io;

use crate::numbers::{KEEPER, KEYCTL_JOIN_SESSION, RING_PARAMETERS, USER_KEYRING};
use crate::{Arguments, address, bits, call, tell, text};

pub(crate) fn sockets(_: Arguments<'_>) -> io::Result<()> {
    for (what, family, kind, protocol) in [
        ("the hypervisor", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
        ("packets", libc::AF_PACKET, libc::SOCK_RAW, 0x0300),
        ("ciphers", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        ("sockets of others", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG),
        ("the kernel's events", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT),
        ("auditing", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
        ("filters", libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER),
        ("Bluetooth", libc::AF_BLUETOOTH, libc::SOCK_RAW, 1),
        ("the bus of cars", libc::AF_CAN, libc::SOCK_RAW, 1),
        ("raw datagrams", libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        ("cluster calls", libc::AF_TIPC, libc::SOCK_DGRAM, 0),
        ("shared rings", libc::AF_XDP, libc::SOCK_RAW, 0),
    ] {
        let arguments = [bits(family), bits(kind), bits(protocol)];
        tell(&format!("a socket to {what}"), call(libc::SYS_socket, &arguments));
    }
    Ok(())
}

pub(crate) fn namespaces(_: Arguments<'_>) -> io::Result<()> {
    for (what, flag) in [
        ("user", libc::CLONE_NEWUSER),
        ("mount", libc::CLONE_NEWNS),
        ("process", libc::CLONE_NEWPID),
        ("network", libc::CLONE_NEWNET),
        ("IPC", libc::CLONE_NEWIPC),
        ("host name", libc::CLONE_NEWUTS),
        ("group", libc::CLONE_NEWCGROUP),
    ] {
        tell(&format!("a {what} namespace"), call(libc::SYS_unshare, &[bits(flag)]));
    }
    let both = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    tell("both", call(libc::SYS_unshare, &[bits(both)]));
    let child = call(libc::SYS_clone, &[bits(libc::CLONE_NEWUSER | libc::SIGCHLD)]);
    if matches!(child, Ok(0)) {
        std::process::exit(0);
    }
    tell("a child in a user namespace", child);
    tell("clone3", call(libc::SYS_clone3, &[0, 0]));
    for name in ["user", "mnt", "net", "pid"] {
        let entered = fs::File::open(format!("/proc/1/ns/{name}"));
        tell(&format!("the keeper's {name} namespace"), entered);
    }
    Ok(())
}

/// What root of a namespace of one's own may do to what is outside of it.
pub(crate) fn within(_: Arguments<'_>) -> io::Result<()> {
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET] {
        // Where they cannot be had, all the better.
        let _ = call(libc::SYS_unshare, &[bits(flag)]);
    }
    let mount = |from: &std::ffi::CStr, to: &std::ffi::CStr, kind: &std::ffi::CStr, flags| {
        call(libc::SYS_mount, &[text(from), text(to), text(kind), flags, 0])
    };
    let bind = usize::try_from(libc::MS_BIND).map_err(io::Error::other)?;
    tell("bind", mount(c"/usr", c"/tmp", c"none", bind));
    tell("a new one", mount(c"none", c"/tmp", c"tmpfs", 0));
    tell("processes", mount(c"none", c"/tmp", c"proc", 0));
    tell("all of /sys", mount(c"none", c"/tmp", c"sysfs", 0));
    tell("what lies below", call(libc::SYS_umount2, &[text(c"/"), bits(libc::MNT_DETACH)]));
    tell("pivot", call(libc::SYS_pivot_root, &[text(c"/tmp"), text(c"/tmp")]));
    tell("end the keeper", call(libc::SYS_kill, &[KEEPER, bits(libc::SIGKILL)]));
    tell("read the keeper", call(libc::SYS_ptrace, &[libc::PTRACE_ATTACH as usize, KEEPER, 0, 0]));
    tell("limit the keeper", fs::write("/proc/1/oom_score_adj", "1000"));
    tell("read hashes", fs::File::open("/etc/shadow"));
    tell("write to the system", fs::File::create("/usr/hostile"));
    tell("name the host", fs::write("/proc/sys/kernel/hostname", "hostile"));
    tell("set the time", call(libc::SYS_settimeofday, &[address(&[0_u64; 2]), 0]));
    tell("load a module", call(libc::SYS_init_module, &[address(&[0_u8; 8]), 1, text(c"")]));
    tell("go first", call(libc::SYS_setpriority, &[0, 0, bits(-5)]));
    tell("the keeper's mounts", fs::File::open("/proc/1/ns/mnt"));
    Ok(())
}

pub(crate) fn rings(_: Arguments<'_>) -> io::Result<()> {
    let parameters = [0_u8; RING_PARAMETERS];
    tell("set up", call(libc::SYS_io_uring_setup, &[8, address(&parameters)]));
    tell("enter", call(libc::SYS_io_uring_enter, &[0, 1, 0, 0]));
    tell("register", call(libc::SYS_io_uring_register, &[0, 0, 0, 0]));
    Ok(())
}

pub(crate) fn keys(_: Arguments<'_>) -> io::Result<()> {
    let secret = b"secret";
    let added = [text(c"user"), text(c"left"), address(secret), 6, bits(USER_KEYRING)];
    tell("add", call(libc::SYS_add_key, &added));
    tell("ask", call(libc::SYS_request_key, &[text(c"user"), text(c"left"), 0, 0]));
    tell("join", call(libc::SYS_keyctl, &[KEYCTL_JOIN_SESSION, 0]));
    Ok(())
}

/// What looks into others' memory, and into what the machine does.
pub(crate) fn eyes(_: Arguments<'_>) -> io::Result<()> {
    let event = [0_u8; 128];
    let perf = [address(&event), 0, bits(-1), bits(-1), 0];
    tell("userfaultfd", call(libc::SYS_userfaultfd, &[0]));
    tell("bpf", call(libc::SYS_bpf, &[0, address(&event), 128]));
    tell("perf", call(libc::SYS_perf_event_open, &perf));
    tell("fanotify", call(libc::SYS_fanotify_init, &[0, 0]));
    tell("the kernel's log", call(libc::SYS_syslog, &[3, address(&event), 128]));
    for path in ["/dev/kmsg", "/proc/kcore", "/proc/kallsyms_all", "/dev/mem", "/proc/kpagecount"] {
        tell(&format!("read {path}"), fs::File::open(path));
    }
    for path in ["/sys/kernel/debug/tracing", "/sys/kernel/tracing/trace", "/sys/fs/bpf/x"] {
        tell(&format!("read {path}"), fs::read_dir(path));
    }
    Ok(())
}

pub(crate) fn mounts(_: Arguments<'_>) -> io::Result<()> {
    let bind = usize::try_from(libc::MS_BIND).map_err(io::Error::other)?;
    let here = std::env::current_dir()?;
    let here = CString::new(here.into_os_string().into_encoded_bytes())?;
    let mount = |flags: usize, kind: &std::ffi::CStr| {
        call(libc::SYS_mount, &[text(c"/usr"), text(&here), text(kind), flags, 0])
    };
    tell("bind", mount(bind, c"none"));
    tell("a new one", mount(0, c"tmpfs"));
    tell("processes", mount(0, c"proc"));
    tell("unmount", call(libc::SYS_umount2, &[text(c"/"), bits(libc::MNT_DETACH)]));
    tell("pivot", call(libc::SYS_pivot_root, &[text(&here), text(&here)]));
    tell("chroot", call(libc::SYS_chroot, &[text(&here)]));
    tell("open tree", call(libc::SYS_open_tree, &[bits(libc::AT_FDCWD), text(c"/"), 1]));
    tell("open", call(libc::SYS_fsopen, &[text(c"tmpfs"), 0]));
    let moved = [bits(libc::AT_FDCWD), text(c"/usr"), bits(libc::AT_FDCWD), text(&here), 0];
    tell("move", call(libc::SYS_move_mount, &moved));
    tell("by handle", call(libc::SYS_open_by_handle_at, &[3, address(&[0_u8; 64]), 0]));
    Ok(())
}

/// One call for each right of root's.
pub(crate) fn root(_: Arguments<'_>) -> io::Result<()> {
    let nothing = [0_u8; 256];
    let at = address(&nothing);
    let path = text(c"/etc/hostname");
    for (what, number, arguments) in [
        ("be root", libc::SYS_setuid, vec![0]),
        ("be in root's group", libc::SYS_setgid, vec![0]),
        ("be in more groups", libc::SYS_setgroups, vec![1, at]),
        ("own another's file", libc::SYS_chown, vec![path, 0, 0]),
        ("set the host's name", libc::SYS_sethostname, vec![at, 1]),
        ("set the time", libc::SYS_settimeofday, vec![at, 0]),
        ("switch off", libc::SYS_reboot, vec![0xfee1_dead, 0x2812_1969, 0, 0]),
        ("load a module", libc::SYS_init_module, vec![at, 1, at]),
        ("load a kernel", libc::SYS_kexec_load, vec![0, 0, 0, 0]),
        ("swap", libc::SYS_swapon, vec![path, 0]),
        ("account", libc::SYS_acct, vec![path]),
        ("set a quota", libc::SYS_quotactl, vec![0x8000_0700, path, 0, at]),
        ("hang up terminals", libc::SYS_vhangup, vec![]),
    ] {
        tell(what, call(number, &arguments));
    }
    tell("write to the kernel", fs::write("/proc/sys/kernel/core_pattern", "|/bin/sh"));
    tell("ask for all to be ended", fs::write("/proc/sysrq-trigger", "i"));
    tell("be killed last", fs::write("/proc/self/oom_score_adj", "-1000"));
    tell("be another's user", fs::write("/proc/self/uid_map", "0 0 1"));
    Ok(())
}

/// Devices, where a guest may make files.
pub(crate) fn devices(_: Arguments<'_>) -> io::Result<()> {
    for (what, kind, number) in [
        ("memory", libc::S_IFCHR, 0x101),
        ("a disk", libc::S_IFBLK, 0x800),
        ("a terminal", libc::S_IFCHR, 0x400),
        ("FUSE", libc::S_IFCHR, 0xae5),
    ] {
        let made = [bits(libc::AT_FDCWD), text(c"device"), bits(kind | 0o666), number];
        tell(&format!("make {what}"), call(libc::SYS_mknodat, &made));
    }
    for path in ["/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/sda", "/dev/vda", "/dev/input"] {
        tell(&format!("open {path}"), fs::File::open(path));
    }
    Ok(())
}

/// Before the owner, instead of after.
pub(crate) fn schedule(_: Arguments<'_>) -> io::Result<()> {
    for (what, class, priority) in [
        ("at once", libc::SCHED_FIFO, 50_i32),
        ("in turn", libc::SCHED_RR, 50),
        ("as anybody", libc::SCHED_OTHER, 0),
        ("in batches", libc::SCHED_BATCH, 0),
    ] {
        let arguments = [0, bits(class), address(&priority)];
        tell(what, call(libc::SYS_sched_setscheduler, &arguments));
    }
    tell("before others", call(libc::SYS_setpriority, &[0, 0, bits(-5)]));
    let realtime = [1, 0, 1 << 13];
    tell("at the disk", call(libc::SYS_ioprio_set, &realtime));
    Ok(())
}

/// Control groups, out of one's own.
pub(crate) fn groups(_: Arguments<'_>) -> io::Result<()> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
        tell(&format!("leave for {mount}"), fs::write(format!("{mount}/cgroup.procs"), "0"));
        tell(&format!("make one in {mount}"), fs::create_dir(format!("{mount}/hostile")));
        for line in own.lines() {
            let path = line.rsplit(':').next().unwrap_or_default();
            for (file, value) in
                [("memory.max", "max"), ("pids.max", "max"), ("cgroup.freeze", "0")]
            {
                tell(&format!("its {file}"), fs::write(format!("{mount}{path}/{file}"), value));
            }
        }
    }
    Ok(())
}
