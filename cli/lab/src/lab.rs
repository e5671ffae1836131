//! The whole lab: its daemons and its hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail, ensure};
use gleaner_shell::lock::Lock;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::cgroup::Cgroup;
use crate::daemon::{Daemon, Home};
use crate::host::{HostOptions, LabHost, Site};
use crate::leftovers;
use crate::network::{Network, SWITCH_ADDRESS};
use crate::small_disk::SmallDisk;
use crate::wait;

/// What a lab is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    pub hosts: usize,
    pub host: HostOptions,
    /// Lines for the coordinator's configuration.
    pub coordinator: String,
    /// Network namespaces, where the rights allow them.
    pub network: bool,
    pub collector: bool,
    /// Every daemon's files on a disk of its own of so many bytes, where the rights
    /// allow it.
    pub disk_bytes: Option<u64>,
    /// The binary to run.
    pub glean: PathBuf,
}

impl Options {
    /// A lab of `hosts` hosts that run the binary `glean`.
    pub fn new(glean: PathBuf, hosts: usize) -> Self {
        Self {
            hosts,
            host: HostOptions::default(),
            coordinator: String::new(),
            network: true,
            collector: true,
            disk_bytes: None,
            glean,
        }
    }
}

/// Coordinator, collector and hosts. Fields are dropped in this order:
/// daemons first, then their network, cgroup and files.
#[derive(Debug)]
pub struct Lab {
    pub hosts: Vec<LabHost>,
    pub collector: Option<Daemon>,
    pub coordinator: Option<Daemon>,
    pub collector_disk: Option<SmallDisk>,
    pub coordinator_disk: Option<SmallDisk>,
    pub network: Option<Network>,
    pub cgroup: Option<Cgroup>,
    /// What the rights do not allow, one line each.
    pub missing: Vec<String>,
    options: Options,
    address: String,
    dir: TempDir,
    /// Held while the lab lives.
    _lock: Lock,
}

impl Lab {
    /// Builds and starts everything; returns when every workstation is known
    /// to the coordinator. The calling thread moves into a mount namespace of
    /// its own and the switch's network where that is allowed, and must be the
    /// one that uses the lab.
    ///
    /// # Errors
    /// Something does not start; the message carries its log.
    pub fn start(options: Options) -> Result<Self> {
        let mut lab = Self::prepare(options)?;
        lab.mount_disks()?;
        lab.start_coordinator()?;
        if lab.options.collector {
            lab.enrol_collector()?;
            lab.start_collector()?;
        }
        for number in 1..=lab.options.hosts {
            lab.add_host(number)?;
        }
        lab.wait_for_workstations()?;
        Ok(lab)
    }

    fn prepare(options: Options) -> Result<Self> {
        leftovers::sweep(&std::env::temp_dir());
        let dir = tempfile::Builder::new().prefix(leftovers::PREFIX).tempdir()?;
        // Guests of another user must be able to walk through.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let lock = leftovers::claim(dir.path())?;
        let mut missing = vec![];
        let mounts = own_mounts();
        if let Err(error) = &mounts {
            missing.push(format!(
                "terminal file systems of their own: {error}; each host watches one terminal of this machine"
            ));
        }
        let network = match (&mounts, options.network) {
            (_, false) => None,
            (Err(_), true) => {
                missing.push(
                    "network namespaces: they need root; the hosts share this machine's network"
                        .into(),
                );
                None
            }
            (Ok(()), true) => match Network::create() {
                Ok(network) => {
                    // The users of the lab's thread dial from the switch.
                    network.switch.enter()?;
                    Some(network)
                }
                Err(error) => {
                    missing.push(format!(
                        "network namespaces: {error:#}; the hosts share this machine's network"
                    ));
                    None
                }
            },
        };
        let name = dir.path().file_name().unwrap_or_default();
        let cgroup = Cgroup::at_top(&name.to_string_lossy());
        if cgroup.is_none() {
            missing.push(
                "cgroups: not writable here; guests are stopped by signals, and the owners' load is not watched".into(),
            );
        }
        let ip = if network.is_some() { SWITCH_ADDRESS } else { "127.0.0.1" };
        let port = if network.is_some() { 4433 } else { free_port()? };
        Ok(Self {
            hosts: vec![],
            collector: None,
            coordinator: None,
            collector_disk: None,
            coordinator_disk: None,
            network,
            cgroup,
            missing,
            options,
            address: format!("{ip}:{port}"),
            dir,
            _lock: lock,
        })
    }

    fn mount_disks(&mut self) -> Result<()> {
        let Some(bytes) = self.disk_bytes() else { return Ok(()) };
        self.coordinator_disk = Some(SmallDisk::mount(&self.coordinator_data(), bytes)?);
        self.collector_disk = Some(SmallDisk::mount(&self.collector_data(), bytes)?);
        Ok(())
    }

    fn disk_bytes(&self) -> Option<u64> {
        self.options.disk_bytes.filter(|_| self.mounts())
    }

    /// May file systems be mounted, in the lab's own namespace?
    fn mounts(&self) -> bool {
        !self.missing.iter().any(|line| line.starts_with("terminal file systems"))
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn coordinator_data(&self) -> PathBuf {
        self.dir.path().join("coordinator")
    }

    pub fn collector_data(&self) -> PathBuf {
        self.dir.path().join("collector")
    }

    /// The administrator's identity, made by the coordinator.
    pub fn admin(&self) -> PathBuf {
        self.coordinator_data().join("admin")
    }

    /// Where the coordinator, the collector and the users' commands run.
    pub fn switch(&self) -> Home {
        Home { network: self.network.as_ref().map(|network| network.switch.clone()), cgroup: None }
    }

    /// # Errors
    /// The lab has no control groups, which `what` needs.
    pub fn expect_cgroups(&self, what: &str) -> Result<()> {
        ensure!(self.cgroup.is_some(), "{what} needs cgroups: {}", self.missing.join("; "));
        Ok(())
    }

    /// # Errors
    /// The daemon does not start.
    pub fn start_coordinator(&mut self) -> Result<()> {
        let config = self.dir.path().join("coordinator.toml");
        let data = self.coordinator_data();
        let text = format!(
            "listen = \"{}\"\ndata = \"{}\"\n{}\n",
            self.address,
            data.display(),
            self.options.coordinator
        );
        fs::write(&config, text)?;
        let arguments = ["coordinator", "--config", utf8(&config)?];
        let log = self.dir.path().join("coordinator.log");
        let said = fs::read_to_string(&log).unwrap_or_default().matches("listening on").count();
        let mut daemon =
            Daemon::start("coordinator", &self.options.glean, &arguments, &self.switch(), &log)?;
        // A restarted one appends to the same log.
        daemon.wait_for_log_times("listening on", said + 1, wait::PATIENCE)?;
        self.coordinator = Some(daemon);
        Ok(())
    }

    fn enrol_collector(&mut self) -> Result<()> {
        let token = self.token("collector")?;
        let identity = self.collector_data().join("identity");
        fs::create_dir_all(self.collector_data())?;
        let home = self.switch();
        self.enrol(&token, "collector", &identity, &home)
    }

    /// # Errors
    /// The daemon does not start.
    pub fn start_collector(&mut self) -> Result<()> {
        let config = self.dir.path().join("collector.toml");
        let data = self.collector_data();
        let text =
            format!("data_dir = \"{0}/usage\"\nidentity_dir = \"{0}/identity\"\n", data.display());
        fs::write(&config, text)?;
        let arguments = ["collector", "--config", utf8(&config)?];
        let log = self.dir.path().join("collector.log");
        let daemon =
            Daemon::start("collector", &self.options.glean, &arguments, &self.switch(), &log)?;
        self.collector = Some(daemon);
        Ok(())
    }

    fn add_host(&mut self, number: usize) -> Result<()> {
        let site = Site {
            dir: self.dir.path(),
            glean: &self.options.glean,
            network: self.network.as_ref(),
            cgroup: self.cgroup.as_ref(),
            mounts: self.mounts(),
            disk_bytes: self.disk_bytes(),
        };
        let mut host = LabHost::create(&site, number, &self.options.host)?;
        let token = self.token("agent")?;
        let home = Home { network: host.network.clone(), cgroup: None };
        self.enrol(&token, &host.name, &host.identity(), &home)?;
        host.start_agent()?;
        self.hosts.push(host);
        Ok(())
    }

    fn enrol(&self, token: &str, name: &str, identity: &Path, home: &Home) -> Result<()> {
        let identity = utf8(identity)?;
        let address = self.address.clone();
        let to = ["enrol", "--coordinator", &address, "--token", token];
        let arguments = [&to[..], &["--name", name, "--identity", identity]].concat();
        succeed(&self.run_at(home, &arguments)?, &arguments)?;
        Ok(())
    }

    fn token(&self, role: &str) -> Result<String> {
        let row: serde_json::Value = self.one(&["token", "create", "--role", role, "--json"])?;
        let text = row["token"].as_str().context("`token create --json` has no field `token`")?;
        Ok(text.to_owned())
    }

    /// Waits until every host's workstation is connected.
    ///
    /// # Errors
    /// A workstation is not connected, or a daemon has ended: the message carries the logs.
    pub fn wait_for_workstations(&self) -> Result<()> {
        let daemons = || {
            let agents = self.hosts.iter().filter_map(|host| host.agent.as_ref());
            self.coordinator.iter().chain(agents)
        };
        wait::until("every workstation is connected", wait::PATIENCE, || {
            let rows = self.rows::<serde_json::Value>(&["workstations", "--json"])?;
            let here = rows.iter().filter(|row| row["state"] != "away").count();
            if here < self.hosts.len() {
                daemons().try_for_each(Daemon::expect_alive)?;
            }
            Ok((here >= self.hosts.len()).then_some(()))
        })
        .with_context(|| daemons().map(Daemon::last_words).collect::<Vec<_>>().join("\n"))
    }

    /// Waits until a number of workstations are idle.
    ///
    /// # Errors
    /// The workstations do not turn idle; the message carries what they say.
    pub fn wait_for_idle(&self, count: usize) -> Result<()> {
        let mut last = String::new();
        wait::until(&format!("{count} workstations are idle"), wait::PATIENCE, || {
            let rows = self.rows::<serde_json::Value>(&["workstations", "--json"])?;
            last = format!("{rows:?}");
            let idle = rows.iter().filter(|row| row["state"] == "idle").count();
            Ok((idle >= count).then_some(()))
        })
        .with_context(|| last)
    }

    /// `glean ARGUMENTS` as the administrator, ready to be started.
    ///
    /// # Errors
    /// The command's namespace cannot be joined.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        self.command_at(&self.switch(), arguments)
    }

    fn command_at(&self, home: &Home, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(&self.options.glean);
        command.args(arguments).env("GLEAN_IDENTITY", self.admin()).stdin(Stdio::null());
        home.settle(&mut command)?;
        Ok(command)
    }

    fn run_at(&self, home: &Home, arguments: &[&str]) -> Result<Output> {
        let output = self.command_at(home, arguments)?.output();
        output.with_context(|| format!("cannot run glean {}", arguments.join(" ")))
    }

    /// Runs `glean ARGUMENTS` to its end, whatever that is.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        self.run_at(&self.switch(), arguments)
    }

    /// Runs `glean ARGUMENTS`, which must succeed, and gives what it printed.
    ///
    /// # Errors
    /// The command fails; the message carries what it said.
    pub fn text(&self, arguments: &[&str]) -> Result<String> {
        succeed(&self.run(arguments)?, arguments)
    }

    /// `glean coordinator WORDS FILE` with the lab's coordinator's configuration and one
    /// file of the lab's: `backup` or `restore`.
    ///
    /// # Errors
    /// The command cannot be started, or failed; the message carries what it said.
    pub fn with_backup(&self, words: &[&str]) -> Result<String> {
        let at = |name: &str| self.dir().join(name).display().to_string();
        let (file, config) = (at("coordinator.backup"), at("coordinator.toml"));
        self.text(&[&["coordinator"], words, &[&file, "--config", &config]].concat())
    }

    /// The records of a `--json` listing.
    ///
    /// # Errors
    /// The command fails or prints something else.
    pub fn rows<T: DeserializeOwned>(&self, arguments: &[&str]) -> Result<Vec<T>> {
        let text = self.text(arguments)?;
        let rows = text.lines().map(|line| {
            serde_json::from_str(line).with_context(|| format!("not a record: {line}"))
        });
        rows.collect()
    }

    /// The one record of a `--json` report.
    ///
    /// # Errors
    /// The command fails or prints another number of records.
    pub fn one<T: DeserializeOwned>(&self, arguments: &[&str]) -> Result<T> {
        let mut rows = self.rows(arguments)?;
        match (rows.pop(), rows.len()) {
            (Some(row), 0) => Ok(row),
            _ => bail!("glean {}: expected one record", arguments.join(" ")),
        }
    }

    /// Submits a job and gives its number.
    ///
    /// # Errors
    /// The job is refused.
    pub fn submit(&self, arguments: &[&str]) -> Result<u64> {
        let mut all = vec!["submit", "--json"];
        all.extend(arguments);
        let row: serde_json::Value = self.one(&all)?;
        row["job"].as_u64().context("`submit --json` has no field `job`")
    }

    /// A job's row, with its summary.
    ///
    /// # Errors
    /// There is no such job.
    pub fn job(&self, job: u64) -> Result<serde_json::Value> {
        self.one(&["jobs", &job.to_string(), "--json"])
    }

    /// Waits for a job's end and gives its row.
    ///
    /// # Errors
    /// The job does not end.
    pub fn wait_for_job(&self, job: u64) -> Result<serde_json::Value> {
        let mut last = String::new();
        wait::until(&format!("job {job} ends"), wait::PATIENCE * 3, || {
            let row = self.job(job)?;
            last = row.to_string();
            Ok((row["summary"]["state"] != "running").then_some(row))
        })
        .with_context(|| last)
    }
}

fn succeed(output: &Output, arguments: &[&str]) -> Result<String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("glean {}: {}: {}", arguments.join(" "), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// None of those, from 32768 on, which Linux gives to whoever asks for any:
/// nobody takes it before the coordinator does, or while that is dead.
fn free_port() -> Result<u16> {
    /// No two labs of this process try the same port.
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id().wrapping_mul(7_919) % 20_000)? + 10_000;
    let mut ports = (0..2_000).map(|_| first + TRIED.fetch_add(1, Ordering::Relaxed) % 2_000);
    ports
        .find(|port| std::net::UdpSocket::bind(("127.0.0.1", *port)).is_ok())
        .context("no port is free")
}

/// Gives the calling thread a mount namespace whose mounts nobody else sees.
pub(crate) fn own_mounts() -> Result<(), std::io::Error> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    private_mounts()?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    fs::create_dir_all("/run/netns")?;
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", "/run/netns", "tmpfs", flags, None)?;
    Ok(())
}

#[expect(unsafe_code, reason = "rustix marks unshare as unsafe")]
fn private_mounts() -> std::io::Result<()> {
    // SAFETY: a new mount namespace affects only how this thread, and what it
    // starts, resolve paths; no file descriptor or memory changes hands.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    Ok(())
}
