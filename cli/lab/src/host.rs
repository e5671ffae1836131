//! A lab host: one workstation of a lab, with its owner's terminals.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cgroup;
use crate::daemon::{Daemon, Home};
use crate::network::{Namespace, address, change_address};
use crate::small_disk::SmallDisk;
use crate::terminal::Terminal;
use crate::wait;

/// What a test or a demo may choose about a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    pub places: u16,
    /// The quiet period before a busy workstation counts as idle.
    pub quiet: Duration,
    /// Look at the load of the whole machine, as an installed agent does, and
    /// find none of it too high: it is not this host's owner's.
    pub whole_machine: bool,
    /// More lines for the top of the agent's configuration, where `{number}` is
    /// the host's.
    pub extra: String,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            places: 2,
            quiet: Duration::from_secs(1),
            whole_machine: false,
            extra: String::new(),
        }
    }
}

/// One workstation: its agent, its terminals, its network and its cgroup.
#[derive(Debug)]
pub struct LabHost {
    pub name: String,
    pub number: usize,
    pub dir: PathBuf,
    pub network: Option<Namespace>,
    /// The host's cgroup, with `agent` and `owner` below it, and `guests` by the agent.
    pub cgroup: Option<PathBuf>,
    devpts: Option<DevPts>,
    pub terminals: Vec<Terminal>,
    owners: Vec<Child>,
    pub agent: Option<Daemon>,
    /// The agent's own, if the lab's daemons have such.
    pub disk: Option<SmallDisk>,
    glean: PathBuf,
    generation: u8,
}

/// What a lab gives to each of its hosts.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) glean: &'a Path,
    pub(crate) network: Option<&'a crate::network::Network>,
    pub(crate) cgroup: Option<&'a cgroup::Cgroup>,
    /// May file systems be mounted (in the lab's own namespace)?
    pub(crate) mounts: bool,
    pub(crate) disk_bytes: Option<u64>,
}

impl LabHost {
    pub(crate) fn create(site: &Site<'_>, number: usize, options: &HostOptions) -> Result<Self> {
        let name = format!("host{number}");
        let dir = site.dir.join(&name);
        fs::create_dir_all(&dir)?;
        let devpts = if site.mounts { Some(DevPts::mount(&dir)?) } else { None };
        let disk = site.disk_bytes.map(|bytes| SmallDisk::mount(&dir.join("data"), bytes));
        let disk = disk.transpose()?;
        let network = site.network.map(|network| network.plug(&name, number)).transpose()?;
        let cgroup = match site.cgroup {
            None => None,
            Some(lab) => {
                let path = lab.create(&name)?;
                for below in ["agent", "owner"] {
                    lab.create(&format!("{name}/{below}"))?;
                }
                Some(path)
            }
        };
        let mut host = Self {
            name,
            number,
            dir,
            network,
            cgroup,
            devpts,
            terminals: vec![],
            owners: vec![],
            agent: None,
            disk,
            glean: site.glean.to_owned(),
            generation: 0,
        };
        host.open_terminal()?;
        host.configure(options)?;
        Ok(host)
    }

    /// Opens one more terminal, with a program that reads it.
    ///
    /// # Errors
    /// No terminal is to be had.
    pub fn open_terminal(&mut self) -> Result<&mut Terminal> {
        let mut terminal = Terminal::open(self.devpts.as_ref().map(|devpts| devpts.0.as_path()))?;
        let home = self.owner_home();
        let procs = home.cgroup.map(|path| path.join("cgroup.procs"));
        let procs = procs.map(|path| fs::OpenOptions::new().write(true).open(path)).transpose()?;
        let mut reader = Command::new("cat");
        reader.current_dir("/");
        terminal.attach(reader, move || {
            if let Some(procs) = &procs {
                rustix::io::write(procs, b"0")?;
            }
            Ok(())
        })?;
        self.terminals.push(terminal);
        Ok(self.terminals.last_mut().unwrap_or_else(|| unreachable!("it was pushed just now")))
    }

    /// The owner comes: types one key on the first terminal.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn type_key(&mut self) -> Result<()> {
        self.terminals[0].type_keys("x")
    }

    /// The owner computes: starts `threads` busy loops beside the guests.
    ///
    /// # Errors
    /// No process can be started.
    pub fn owner_works(&mut self, threads: usize) -> Result<()> {
        for _ in 0..threads {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            self.owner_home().settle(&mut command)?;
            self.owners.push(command.spawn().context("cannot start the owner's program")?);
        }
        Ok(())
    }

    /// The owner's programs end.
    pub fn owner_rests(&mut self) {
        for mut owner in self.owners.drain(..) {
            let _ = owner.kill();
            let _ = owner.wait();
        }
    }

    fn owner_home(&self) -> Home {
        let cgroup = self.cgroup.as_ref().map(|path| path.join("owner"));
        Home { network: self.network.clone(), cgroup }
    }

    pub fn config(&self) -> PathBuf {
        self.dir.join("agent.toml")
    }

    /// The agent's lasting files.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub fn identity(&self) -> PathBuf {
        self.dir.join("identity")
    }

    pub fn owner_socket(&self) -> PathBuf {
        self.dir.join("run").join("agent.sock")
    }

    /// Writes the agent's configuration anew; it is read at its next start.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn configure(&self, options: &HostOptions) -> Result<()> {
        let dir = self.dir.display();
        let mut text = format!(
            "identity = \"{dir}/identity\"\ndata = \"{dir}/data\"\nruntime = \"{dir}/run\"\n\
             places = {}\n{}\n",
            options.places,
            options.extra.replace("{number}", &self.number.to_string())
        );
        let quiet = options.quiet.as_millis();
        let _ = writeln!(text, "[criteria]\nquiet = \"{quiet}ms\"\nload_quiet = \"{quiet}ms\"");
        if self.cgroup.is_none() || options.whole_machine {
            // The machine's load is everybody's here, and says nothing of one
            // host's owner: no load is too high.
            let _ = writeln!(text, "load_idle_max = 1000.0\nrise_cores = 1000.0");
        }
        let terminals: Vec<_> = match &self.devpts {
            Some(devpts) => vec![devpts.0.display().to_string()],
            None => self.terminals.iter().map(|one| one.path.display().to_string()).collect(),
        };
        let _ = writeln!(text, "[sensors]\nterminals = {terminals:?}\ninput = \"{dir}/input\"");
        // Nor do the machine's own people, power and heat.
        text.push_str("connections = false\nslice = \"\"\ncalls = false\npower = false\n");
        text.push_str("heat = false\nmetered = \"no\"\n");
        if let Some(path) = &self.cgroup {
            let path = path.display();
            let _ = writeln!(text, "[cgroup]\ndirectory = \"{path}\"");
            if !options.whole_machine {
                let _ = writeln!(text, "load = \"{path}\"");
            }
        }
        fs::write(self.config(), text)?;
        Ok(())
    }

    /// Starts the agent and returns at once.
    ///
    /// # Errors
    /// The agent cannot be started, or the former one does not come to its end.
    pub fn start_agent(&mut self) -> Result<()> {
        self.agent = None;
        let cgroup = self.cgroup.as_ref().map(|path| path.join("agent"));
        if let Some(group) = &cgroup {
            // As a service manager does: who was killed has a worker, which keeps
            // the data directory for the moment that it lives longer.
            let fact = format!("nothing is left of the former agent of {}", self.name);
            wait::until(&fact, wait::PATIENCE, || {
                Ok(cgroup::processes(group).is_empty().then_some(()))
            })?;
        }
        let home = Home { network: self.network.clone(), cgroup };
        let config = self.config();
        let arguments = ["agent", "--config", config.to_str().context("a path in UTF-8")?];
        let log = self.dir.join("agent.log");
        self.agent = Some(Daemon::start(&self.name, &self.glean, &arguments, &home, &log)?);
        Ok(())
    }

    /// The worker process of the agent, the supervisor's child.
    ///
    /// # Errors
    /// The agent is not running.
    pub fn agent_worker(&self) -> Result<u32> {
        let supervisor =
            self.agent.as_ref().and_then(Daemon::pid).context("the agent is not running")?;
        wait::until("the agent has a worker", wait::PATIENCE, || {
            let path = format!("/proc/{supervisor}/task/{supervisor}/children");
            let text = fs::read_to_string(path).unwrap_or_default();
            Ok(text.split_whitespace().next().and_then(|pid| pid.parse().ok()))
        })
    }

    /// The cgroup of each guest place that exists by now.
    pub fn places(&self) -> Vec<PathBuf> {
        self.cgroup.as_ref().map_or(vec![], |path| cgroup::subgroups(&path.join("guests")))
    }

    /// Guests that run or are frozen here now: all processes in the places
    /// but their keepers.
    pub fn guests(&self) -> Vec<u32> {
        let Some(path) = &self.cgroup else { return vec![] };
        let mut found = cgroup::processes(&path.join("guests"));
        found.retain(|pid| !is_keeper(*pid));
        found
    }

    /// Pulls the plug out of the switch: nothing arrives and nobody is told.
    ///
    /// # Errors
    /// There is no network of the host's own.
    pub fn unplug(&self, network: &crate::network::Network) -> Result<()> {
        network.switch.ip(&["link", "set", &self.name, "down"])
    }

    /// # Errors
    /// There is no network of the host's own.
    pub fn plug_in(&self, network: &crate::network::Network) -> Result<()> {
        network.switch.ip(&["link", "set", &self.name, "up"])
    }

    /// The host's address on the bridge as it is now.
    pub fn address(&self) -> String {
        address(self.number, self.generation)
    }

    /// Gives the host another address, as a change of network does.
    ///
    /// # Errors
    /// There is no network of the host's own, or it has not the new address alone.
    pub fn change_address(&mut self) -> Result<()> {
        let network = self.network.clone().context("the host has no network of its own")?;
        let old = self.address();
        self.generation += 1;
        change_address(&network, &old, &self.address())
    }
}

impl Drop for LabHost {
    fn drop(&mut self) {
        self.owner_rests();
        self.agent = None;
    }
}

/// Is this a process of gleaner's own in a guest place: its keeper, also while
/// that is being born?
pub fn is_keeper(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    program.is_empty() || program.rsplit(|byte| *byte == b'/').next() == Some(b"glean")
}

/// A file system of terminals that nobody else's are in.
#[derive(Debug)]
struct DevPts(PathBuf);

impl DevPts {
    fn mount(dir: &Path) -> Result<Self> {
        let at = dir.join("pts");
        fs::create_dir_all(&at)?;
        rustix::mount::mount(
            "devpts",
            &at,
            "devpts",
            rustix::mount::MountFlags::empty(),
            Some(c"newinstance,ptmxmode=0666,mode=0620"),
        )
        .with_context(|| format!("cannot mount a terminal file system at {}", at.display()))?;
        Ok(Self(at))
    }
}

/// The lab's directory cannot be removed while something is mounted in it.
impl Drop for DevPts {
    fn drop(&mut self) {
        // The terminals in it may be open for a moment longer.
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
