//! A daemon of the lab: the shipped binary, its log, and its end.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use crate::network::Namespace;
use crate::wait;

/// Where a process of the lab is to live.
#[derive(Clone, Debug, Default)]
pub struct Home {
    pub network: Option<Namespace>,
    pub cgroup: Option<PathBuf>,
}

impl Home {
    /// Makes `command` start there, and end with the thread that starts it.
    ///
    /// # Errors
    /// The cgroup is not there.
    #[expect(unsafe_code, reason = "namespaces and cgroups are joined between fork and exec")]
    pub fn settle(&self, command: &mut Command) -> Result<()> {
        let network = self.network.clone();
        let procs = match &self.cgroup {
            None => None,
            Some(path) => {
                let file = path.join("cgroup.procs");
                let open = fs::OpenOptions::new().write(true).open(&file);
                Some(open.with_context(|| format!("cannot open {}", file.display()))?)
            }
        };
        // SAFETY: only system calls without allocation run between fork and
        // exec: write, setns and prctl.
        unsafe {
            command.pre_exec(move || {
                if let Some(procs) = &procs {
                    rustix::io::write(procs, b"0")?;
                }
                if let Some(network) = &network {
                    network.enter()?;
                }
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        Ok(())
    }
}

/// One running daemon.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    child: Option<Child>,
    pub log: PathBuf,
}

impl Daemon {
    /// Starts `glean ARGUMENTS`, its log appended to `log`.
    ///
    /// # Errors
    /// The binary cannot be started.
    pub fn start(
        name: &str,
        glean: &Path,
        arguments: &[&str],
        home: &Home,
        log: &Path,
    ) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(glean);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output);
        home.settle(&mut command)?;
        let child = command.spawn().with_context(|| format!("cannot start {}", glean.display()))?;
        Ok(Self { name: name.to_owned(), child: Some(child), log: log.to_owned() })
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// # Errors
    /// The daemon has ended by itself.
    pub fn expect_alive(&self) -> Result<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        // Left to be collected: its exit status is asked for later.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Some(pid) = pid
            && let Some(status) = waitid(WaitId::Pid(pid), look)?
        {
            let code =
                status.exit_status().map_or("a signal".into(), |code| format!("code {code}"));
            bail!("{} ended with {code}", self.name);
        }
        Ok(())
    }

    /// The end of its log, with its name above.
    pub fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        format!("{}:\n{}", self.name, last_lines(&said))
    }

    /// SIGKILL: as when the power fails. Harmless if it is dead already.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and the exit status.
    ///
    /// # Errors
    /// The daemon does not end.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let Some(child) = self.child.as_mut() else { bail!("{} is not running", self.name) };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let fact = format!("{} ends after SIGTERM", self.name);
        let status = wait::until(&fact, wait::PATIENCE, || Ok(child.try_wait()?))?;
        self.child = None;
        Ok(status)
    }

    /// Waits until the log holds a text so many times; fails at once if the daemon
    /// ended.
    ///
    /// # Errors
    /// The daemon never said so, or ended; the message carries the log's end.
    pub fn wait_for_log_times(
        &mut self,
        text: &str,
        times: usize,
        patience: Duration,
    ) -> Result<()> {
        let fact = format!("the log of {} says `{text}`", self.name);
        let log = self.log.clone();
        let name = self.name.clone();
        let child = self.child.as_mut();
        let child = child.with_context(|| format!("{name} is not running"))?;
        wait::until(&fact, patience, || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.matches(text).count() >= times {
                return Ok(Some(()));
            }
            if let Some(status) = child.try_wait()? {
                bail!("{name} ended ({status}); its log:\n{}", last_lines(&said));
            }
            Ok(None)
        })
        .with_context(|| format!("log {}", log.display()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
