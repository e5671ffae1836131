//! The agent's configuration: one TOML file, everything in it optional.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use gleaner_agent_core::agent::seats;
use gleaner_agent_core::occupancy::Criteria;
use gleaner_common::id::PlaceId;
use gleaner_common::program::ADDRESSES_MAX;
use gleaner_common::units;
use serde::{Deserialize, Serialize};

/// The configuration with its defaults and what each setting is for.
pub const EXAMPLE: &str = include_str!("agent.toml");

/// `/etc/gleaner/agent.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    pub identity: PathBuf,
    pub data: PathBuf,
    pub runtime: PathBuf,
    /// How many cores are lent; 0: all. The owner keeps the rest.
    pub places: u16,
    pub log: String,
    pub criteria: Criteria,
    pub sensors: SensorsConfig,
    pub cgroup: CgroupConfig,
    pub guests: GuestsConfig,
    pub peers: PeersConfig,
    pub moves: MovesConfig,
    pub attributes: AttributesConfig,
}

/// What the site says of this workstation, for jobs that require it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttributesConfig {
    pub set: BTreeMap<String, Written>,
    /// A program that says more of it.
    pub from: Option<PathBuf>,
}

/// An attribute as a configuration says it: sizes are texts there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Written {
    Flag(bool),
    Number(f64),
    Text(String),
}

/// Where the owner is looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each sensor has a switch of its own")]
pub struct SensorsConfig {
    /// Terminals, as patterns of file names: `*` stands for any characters,
    /// `#` for digits. A directory stands for its numbered files.
    pub terminals: Vec<String>,
    /// Terminals that say nothing of the owner: a modem, a console that a
    /// program reads all the time.
    pub terminals_ignored: Vec<PathBuf>,
    /// The directory of keyboards, pointers and touch screens.
    pub input: PathBuf,
    /// Listen to the desktop's sessions where there is a system bus.
    pub sessions: bool,
    /// Follow connections to remote desktops and development servers.
    pub connections: bool,
    /// Servers beside those that are known.
    pub servers: Vec<ServerConfig>,
    /// Known servers that say nothing of the owner, by name.
    pub servers_ignored: Vec<String>,
    /// Listen to helpers inside people's sessions.
    pub presence: bool,
    /// Look whether a microphone or a camera is in use.
    pub calls: bool,
    /// The control group of everybody who is logged in; none if empty.
    pub slice: String,
    /// No guests while a battery feeds the machine.
    pub power: bool,
    /// No guests while the network is paid for by what it carries.
    pub metered: Metered,
    /// No guests above `criteria.celsius_max`.
    pub heat: bool,
    /// Where `dev`, `proc/asound` and `sys` are: for containers.
    pub root: PathBuf,
}

/// Is the network paid for by what it carries?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metered {
    /// `NetworkManager` knows, where it runs.
    Ask,
    Yes,
    No,
}

/// A server by which people work here from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// For people.
    pub name: String,
    pub ports: Vec<u16>,
    /// Its programs' names, or the name of a directory that they are in.
    pub programs: Vec<String>,
    /// What its clients send at once with nobody at them.
    #[serde(with = "units::size")]
    pub burst: u64,
    #[serde(with = "units::size")]
    pub per_minute: u64,
}

/// Control groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CgroupConfig {
    /// Where guests' groups are made; found by itself if left out.
    pub directory: Option<PathBuf>,
    /// Take the owner's load from this group instead of the whole machine:
    /// for lab hosts, which share a kernel.
    pub load: Option<PathBuf>,
}

/// What guests may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestsConfig {
    /// Whom guests' keepers run as. Place N runs its guests as this user number
    /// plus 1 plus N.
    pub uid_base: u32,
    pub network: Network,
    /// What guests may read and run programs from.
    pub readable: Vec<PathBuf>,
    /// Below these a job may choose its working directory.
    pub shared_directories: Vec<PathBuf>,
    /// Memory that all guests may have together; 0: a half of the machine's.
    #[serde(with = "units::size")]
    pub memory_lent: u64,
    pub processes_max: u32,
    /// Of one process; 0: as many as the agent may have.
    pub descriptors_max: u32,
    /// Disk space that all guests may have together; 0: 10 GiB for each place, and a
    /// half of what is free at most.
    #[serde(with = "units::size")]
    pub disk_lent: u64,
    /// Nothing is begun with less than that free; 0: a twentieth of the file
    /// system, and 256 MiB at most.
    #[serde(with = "units::size")]
    pub disk_free_min: u64,
    /// How many GPUs are lent.
    pub gpus: u16,
    /// Keep guests that cannot move from rare system calls; 32-bit programs do not
    /// run then.
    pub filter: bool,
    /// How much of each of stdout and stderr is brought back.
    #[serde(with = "units::size")]
    pub output_bytes_max: u64,
    /// How much staged input is kept for later guests.
    #[serde(with = "units::size")]
    pub cache_bytes_max: u64,
}

/// What of the network guests see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// A loopback device of their own and nothing else.
    None,
    /// What the workstation sees.
    Host,
}

/// How other agents reach this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeersConfig {
    /// Speak to other agents directly; otherwise only through the coordinator.
    pub enabled: bool,
    /// The UDP port; 0 is any.
    pub listen: SocketAddr,
    /// What others are told; if empty, the address that the coordinator is
    /// reached from.
    pub addresses: Vec<SocketAddr>,
}

/// Moving guests with their state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MovesConfig {
    pub enabled: bool,
    /// The program, or the directory of a private tree; found by itself if
    /// left out.
    pub criu: Option<PathBuf>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            identity: "/etc/gleaner/agent".into(),
            data: "/var/lib/gleaner/agent".into(),
            runtime: "/run/gleaner".into(),
            places: 0,
            log: "info".into(),
            criteria: Criteria::default(),
            sensors: SensorsConfig::default(),
            cgroup: CgroupConfig::default(),
            guests: GuestsConfig::default(),
            peers: PeersConfig::default(),
            moves: MovesConfig::default(),
            attributes: AttributesConfig::default(),
        }
    }
}

impl Default for SensorsConfig {
    fn default() -> Self {
        let terminals = ["/dev/pts/#", "/dev/tty#", "/dev/ttyS#", "/dev/ttyACM#", "/dev/ttyUSB#"];
        Self {
            terminals: terminals.map(String::from).to_vec(),
            terminals_ignored: vec![],
            input: "/dev/input".into(),
            sessions: true,
            connections: true,
            servers: vec![],
            servers_ignored: vec![],
            presence: true,
            calls: true,
            slice: "user.slice".into(),
            power: true,
            metered: Metered::Ask,
            heat: true,
            root: "/".into(),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        let (burst, per_minute) = (512, 4 << 10);
        Self { name: "server".into(), ports: vec![], programs: vec![], burst, per_minute }
    }
}

impl Default for MovesConfig {
    fn default() -> Self {
        Self { enabled: true, criu: None }
    }
}

impl Default for PeersConfig {
    fn default() -> Self {
        let any = Ipv6Addr::UNSPECIFIED;
        Self { enabled: true, listen: SocketAddr::from((any, 0)), addresses: vec![] }
    }
}

impl Default for GuestsConfig {
    fn default() -> Self {
        Self {
            // Between what distributions give to people (from 1000) and to
            // containers (from 65536 or 100000): a guess.
            uid_base: 61_000,
            network: Network::None,
            readable: ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/sys"]
                .map(PathBuf::from)
                .to_vec(),
            shared_directories: vec![],
            memory_lent: 0,
            processes_max: 512,
            descriptors_max: 4_096,
            disk_lent: 0,
            disk_free_min: 0,
            gpus: 0,
            filter: true,
            output_bytes_max: 64 << 20,
            cache_bytes_max: 2 << 30,
        }
    }
}

/// What the disk of one place is, where nobody has said more.
const DISK_OF_PLACE: u64 = 10 << 30;

impl GuestsConfig {
    /// How much of the machine's memory guests may have together.
    pub fn memory_lent(&self, all: u64) -> u64 {
        if self.memory_lent == 0 { all / 2 } else { self.memory_lent }
    }

    /// How much disk space, with so much of it free.
    pub fn disk_lent(&self, places: u16, free: Option<u64>) -> u64 {
        let half = free.unwrap_or(u64::MAX) / 2;
        let usual = (DISK_OF_PLACE * u64::from(places.max(1))).min(half.max(1));
        if self.disk_lent == 0 { usual } else { self.disk_lent }
    }

    /// Who guests of a place are.
    pub fn uid(&self, place: PlaceId) -> u32 {
        self.uid_base.saturating_add(1).saturating_add(place.0.into())
    }
}

/// What a configuration says that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    #[error("criteria.{0} is {1}: expected a number from 0 up")]
    Number(&'static str, String),
    #[error("guests.uid_base is {0}: expected 1000 or more, so that no system user is a guest")]
    Uid(u32),
    #[error("peers.addresses has {0} addresses: expected at most {ADDRESSES_MAX}")]
    Addresses(usize),
    #[error("guests.shared_directories holds `{0}`: expected an absolute path")]
    Shared(PathBuf),
}

impl AgentConfig {
    /// How many cores are lent.
    pub fn places(&self, cores: u16) -> u16 {
        if self.places == 0 { cores.max(1) } else { self.places }
    }

    /// Whose user numbers are guests' and their keepers'. Without root they have
    /// the agent's.
    pub fn guest_uids(&self, places: u16) -> std::ops::Range<u32> {
        let base = self.guests.uid_base;
        if rustix::process::geteuid().is_root() {
            base..self.guests.uid(PlaceId(seats(places)))
        } else {
            0..0
        }
    }

    /// Can all of it be? Its format alone does not tell.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        let of = &self.criteria;
        for (name, value) in [
            ("load_idle_max", of.load_idle_max),
            ("rise_cores", of.rise_cores),
            ("change_fraction", of.change_fraction),
            ("celsius_max", f64::from(of.celsius_max)),
        ] {
            if !value.is_finite() || value < 0.0 {
                return Err(InvalidConfig::Number(name, value.to_string()));
            }
        }
        if self.guests.uid_base < 1_000 {
            return Err(InvalidConfig::Uid(self.guests.uid_base));
        }
        if let Some(path) = self.guests.shared_directories.iter().find(|path| !path.is_absolute()) {
            return Err(InvalidConfig::Shared(path.clone()));
        }
        if self.peers.addresses.len() > ADDRESSES_MAX {
            return Err(InvalidConfig::Addresses(self.peers.addresses.len()));
        }
        Ok(())
    }

    /// Where the owner reaches the agent.
    pub fn owner_socket(&self) -> PathBuf {
        self.runtime.join("agent.sock")
    }

    /// Where helpers in sessions say when those were used.
    pub fn presence_socket(&self) -> PathBuf {
        self.runtime.join("presence.sock")
    }

    /// Whose workstation is this directory: may a job run in it?
    pub fn allows_shared(&self, directory: &Path) -> bool {
        self.guests.shared_directories.iter().any(|shared| directory.starts_with(shared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parse(text: &str) -> Result<AgentConfig, String> {
        gleaner_shell::config::parse(Path::new("agent.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn the_example_says_the_defaults() {
        assert_eq!(parse(EXAMPLE), Ok(AgentConfig::default()));
        let settings: String = EXAMPLE
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .collect::<Vec<_>>()
            .join("\n");
        let written = toml::to_string(&AgentConfig::default()).unwrap();
        for key in written.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key) {
            assert!(settings.contains(&format!("{key} = ")), "the example leaves out {key}");
        }
    }

    #[test]
    fn unknown_keys_and_bad_units_are_named() {
        assert!(parse("plaecs = 2").unwrap_err().contains("plaecs"));
        let error = parse("[criteria]\nquiet = \"60\"").unwrap_err();
        assert!(error.contains("`60` is not a duration"), "{error}");
        let error = parse("[criteria]\nrequired = [\"mice\"]").unwrap_err();
        assert!(error.contains("`mice`") && error.contains("`terminals`"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut config = AgentConfig::default();
        assert_eq!(config.check(), Ok(()));
        let guests = &config.guests;
        assert_eq!((guests.memory_lent(8 << 30), guests.disk_lent(4, None)), (4 << 30, 40 << 30));
        assert_eq!(guests.disk_lent(4, Some(30 << 30)), 15 << 30, "half of what is free");
        config.guests.uid_base = 0;
        assert_eq!(config.check(), Err(InvalidConfig::Uid(0)));
    }
}
