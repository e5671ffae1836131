//! Processes: other users' rights, other guests' processes, too many of them, and
//! those that outlive their guest.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::escapes::number;
use crate::{Arguments, address, bits, call, tell};

/// Programs that make their user another: each prints its user.
pub(crate) fn become_root(programs: Arguments<'_>) -> io::Result<()> {
    for program in programs {
        let said = Command::new(program).arg("-u").output()?;
        let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        tell("runs as", Err::<(), _>(if said == "0" { "root".to_owned() } else { said }));
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let rights = status.lines().filter(|line| {
        ["NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapAmb"]
            .iter()
            .any(|key| line.starts_with(key))
    });
    rights.for_each(|line| tell("right", Err::<(), _>(line.replace('\t', " "))));
    Ok(())
}

/// Whom one sees, and who is not of this guest.
pub(crate) fn processes(_: Arguments<'_>) -> io::Result<()> {
    let own = std::process::id();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid != own {
            tell("sees process", Err::<(), _>(pid));
        }
    }
    Ok(())
}

/// As many processes as may be, each of which stays.
pub(crate) fn forks(_: Arguments<'_>) -> io::Result<()> {
    let mut count = 0;
    loop {
        // Nobody waits for them.
        match call(libc::SYS_clone, &[bits(libc::SIGCHLD)]) {
            Ok(0) => loop {
                std::thread::sleep(Duration::from_secs(1_000));
            },
            Ok(_) => count += 1,
            Err(error) => {
                tell(&format!("after {count} forks"), Err::<(), _>(error));
                return Ok(());
            }
        }
    }
}

/// So many bytes, all of them used.
pub(crate) fn memory(arguments: Arguments<'_>) -> io::Result<()> {
    let mut taken: Vec<Vec<u8>> = vec![];
    for _ in 0..number(arguments)? >> 20 {
        taken.push(vec![1; 1 << 20]);
    }
    tell("memory", Ok::<_, io::Error>(taken.len()));
    Ok(())
}

/// Leaves processes behind: in sessions of their own, whose parents are gone, some
/// with what the guest printed to open, and all of them deaf to signals.
pub(crate) fn daemon(arguments: Arguments<'_>) -> io::Result<()> {
    let own = std::env::current_exe()?;
    for kept in [true, false, true] {
        let mut command = Command::new("setsid");
        command.arg("-f").arg(&own).arg("sleep").args(arguments);
        if !kept {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        command.status()?;
    }
    let named = |pid: &str| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    loop {
        let others = fs::read_dir("/proc")?.flatten().filter(|entry| {
            let line = named(&entry.file_name().to_string_lossy());
            line.windows(7).any(|part| part == b"\0sleep\0")
        });
        if others.count() >= 3 {
            tell("left behind", Ok::<_, io::Error>(()));
            return Ok(());
        }
        std::thread::yield_now();
    }
}

pub(crate) fn sleep(_: Arguments<'_>) -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        // SAFETY: nothing of ours handles a signal.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    loop {
        std::thread::sleep(Duration::from_secs(1_000));
    }
}

/// As many open files as may be.
pub(crate) fn descriptors(_: Arguments<'_>) -> io::Result<()> {
    let more = libc::rlimit { rlim_cur: 20_000, rlim_max: 20_000 };
    let raise = [0, libc::RLIMIT_NOFILE as usize, address(&more), 0];
    tell("raise the limit", call(libc::SYS_prlimit64, &raise));
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls; the pointer is ours.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut most);
        most.rlim_cur = most.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most);
    }
    let mut open = vec![];
    while open.len() < 20_000 {
        match File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(error) => {
                tell(&format!("after {} files", open.len()), Err::<(), _>(error));
                return Ok(());
            }
        }
    }
    tell("20000 files", Ok::<_, io::Error>(()));
    Ok(())
}

/// Goes where it is carried, and tells when its user is another: with a file of the
/// system's open, and one that is deleted.
pub(crate) fn travel(arguments: Arguments<'_>) -> io::Result<()> {
    let mut passwd = File::open("/etc/passwd")?;
    let mut gone =
        File::options().read(true).write(true).create(true).truncate(true).open("gone")?;
    fs::remove_file("gone")?;
    gone.write_all(b"deleted")?;
    fs::write("kept", "kept")?;
    let user = call(libc::SYS_getuid, &[])?;
    println!("begun");
    io::stdout().flush()?;
    while call(libc::SYS_getuid, &[])? == user {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut text = String::new();
    gone.seek(SeekFrom::Start(0))?;
    gone.read_to_string(&mut text)?;
    let mut first = String::new();
    passwd.read_to_string(&mut first)?;
    let input = arguments.first().map(fs::read_to_string).transpose()?.unwrap_or_default();
    let system = first.starts_with("root:");
    println!("arrived: {text} {} {system} {input}", fs::read_to_string("kept")?);
    Ok(())
}
