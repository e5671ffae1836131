//! An owner's terminal: a real pseudo-terminal with a program that reads it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, ptsname, unlockpt};

/// The owner holds the master's end; a shell's stand-in reads the other.
#[derive(Debug)]
pub struct Terminal {
    master: File,
    pub path: PathBuf,
    reader: Option<Child>,
}

impl Terminal {
    /// Opens a new terminal of the file system mounted at `devpts`, or of the
    /// machine's own for `None`. Nobody reads it yet.
    ///
    /// # Errors
    /// No pseudo-terminal is to be had.
    pub fn open(devpts: Option<&Path>) -> Result<Self> {
        let (master, path) = if let Some(mount) = devpts {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            let master = rustix::fs::open(mount.join("ptmx"), flags, Mode::empty())
                .with_context(|| format!("cannot open {}/ptmx", mount.display()))?;
            unlockpt(&master)?;
            let name = ptsname(&master, vec![])?;
            let number = name.to_str()?.rsplit('/').next().unwrap_or_default().to_owned();
            (master, mount.join(number))
        } else {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let master = rustix::pty::openpt(flags).context("cannot open /dev/ptmx")?;
            grantpt(&master)?;
            unlockpt(&master)?;
            let path = PathBuf::from(ptsname(&master, vec![])?.to_str()?);
            (master, path)
        };
        Ok(Self { master: File::from(master), path, reader: None })
    }

    /// Starts `command` on this terminal, as a login would: in a session of
    /// its own with the terminal as its controlling one. `enter` runs in the
    /// new process first (to join namespaces).
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn attach(
        &mut self,
        mut command: Command,
        enter: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Result<u32> {
        let slave: OwnedFd =
            rustix::fs::open(&self.path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
                .with_context(|| format!("cannot open {}", self.path.display()))?;
        // As a shell's line editor has it: every key is read as it is typed.
        let mut modes = rustix::termios::tcgetattr(&slave)?;
        modes.make_raw();
        rustix::termios::tcsetattr(&slave, rustix::termios::OptionalActions::Now, &modes)?;
        let (input, output) = (slave.try_clone()?, slave.try_clone()?);
        command.stdin(input).stdout(output).stderr(Stdio::null());
        login(&mut command, slave, enter);
        let child = command.spawn().context("cannot start a program on the terminal")?;
        let pid = child.id();
        self.reader = Some(child);
        Ok(pid)
    }

    /// A person types: the bytes reach the program that reads the terminal.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn type_keys(&mut self, keys: &str) -> Result<()> {
        self.master.write_all(keys.as_bytes()).context("cannot type")?;
        self.drain();
        Ok(())
    }

    /// Throws the echo away, so that the terminal never fills.
    fn drain(&mut self) {
        let mut echo = [0; 4096];
        let mut poll = [rustix::event::PollFd::new(&self.master, rustix::event::PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        if matches!(rustix::event::poll(&mut poll, Some(&now)), Ok(n) if n > 0) {
            let _ = self.master.read(&mut echo);
        }
    }

    /// All that a program shows that was attached, once it has ended.
    ///
    /// # Errors
    /// The program cannot be waited for.
    pub fn shown(&mut self) -> Result<Vec<u8>> {
        let mut shown = vec![];
        let mut piece = [0; 4096];
        // Without anybody at the other end, reading fails.
        while let Ok(count @ 1..) = self.master.read(&mut piece) {
            shown.extend_from_slice(&piece[..count]);
        }
        if let Some(mut child) = self.reader.take() {
            child.wait().context("cannot wait for the program on the terminal")?;
        }
        Ok(shown)
    }

    /// `pts/3`, as the agent names it.
    pub fn name(&self) -> String {
        let number = self.path.file_name().unwrap_or_default().to_string_lossy();
        format!("pts/{number}")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(mut child) = self.reader.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[expect(unsafe_code, reason = "the child has to take the terminal between fork and exec")]
fn login(
    command: &mut Command,
    slave: OwnedFd,
    mut enter: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: only system calls without allocation run between fork and exec:
    // setsid, ioctl, prctl and those of `enter`, which keeps the same rule.
    unsafe {
        command.pre_exec(move || {
            enter()?;
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(slave.as_fd())?;
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}
