//! Servers by which people work here from elsewhere, and what their clients
//! send with nobody at them.
//!
//! The one place of this knowledge; `sensors.servers` in the configuration adds
//! to it. A server is known by its port, or by its program's name.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::Path;

use gleaner_agent_core::occupancy::Allowance;

use crate::config::{SensorsConfig, ServerConfig};

/// A kind of server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltIn {
    pub(crate) name: &'static str,
    ports: &'static [RangeInclusive<u16>],
    /// The names of its programs, or of a directory that its programs are in.
    programs: &'static [&'static str],
    /// A screen: whoever it belongs to is logged in while somebody looks at it.
    screen: bool,
    burst_bytes: u64,
    bytes_per_minute: u64,
}

/// Bytes by measurement where a comment says so, else a guess on the safe side:
/// too little is busy.
pub(crate) const BUILT_IN: [BuiltIn; 6] = [
    BuiltIn {
        name: "VNC",
        ports: &[5900..=5999],
        programs: &[
            "Xvnc",
            "Xtigervnc",
            "Xtightvnc",
            "x11vnc",
            "x0vncserver",
            "x0tigervncserver",
            "wayvnc",
            "krfb",
            "vino-server",
        ],
        screen: true,
        // A key is 16 (pressed and let go), a request for a clock's new picture 10.
        burst_bytes: 12,
        bytes_per_minute: 30,
    },
    BuiltIn {
        name: "remote desktop",
        ports: &[3389..=3390],
        programs: &["xrdp", "gnome-remote-desktop-daemon", "gnome-remote-de", "krdpserver"],
        screen: true,
        // A key is two TLS records of 33 bytes or more.
        burst_bytes: 60,
        bytes_per_minute: 60,
    },
    BuiltIn {
        name: "NoMachine",
        ports: &[4000..=4000],
        programs: &["nxd", "nxserver.bin", "nxnode.bin"],
        screen: true,
        burst_bytes: 1_024,
        bytes_per_minute: 6_144,
    },
    BuiltIn {
        name: "ssh",
        ports: &[22..=22],
        programs: &["sshd", "dropbear"],
        screen: false,
        // A keep-alive is 52 bytes (measured), and a VS Code window sends one every 5 s
        // in each of its three streams.
        burst_bytes: 512,
        bytes_per_minute: 4_096,
    },
    BuiltIn {
        name: "Jupyter",
        ports: &[8888..=8899],
        programs: &[
            "jupyter",
            "jupyter-lab",
            "jupyter-notebook",
            "jupyter-server",
            "jupyterhub",
            "jupyterlab",
            "notebook",
            "rserver",
            "rsession",
        ],
        screen: false,
        // Measured: a cell of one letter is 394, alone; a page that nobody sees answers
        // pings of a few bytes. One that is seen asks every 10 s.
        burst_bytes: 300,
        bytes_per_minute: 200,
    },
    BuiltIn {
        name: "VS Code",
        ports: &[],
        programs: &[
            "vscode-server",
            "vscode-server-insiders",
            "cursor-server",
            "code-server",
            "code-tunnel",
        ],
        screen: false,
        burst_bytes: 512,
        bytes_per_minute: 4_096,
    },
];

/// A server as it is looked for.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    ports: Vec<RangeInclusive<u16>>,
    programs: Vec<String>,
    pub(super) screen: bool,
    pub(super) allowance: Allowance,
}

/// All servers that are looked for.
#[derive(Debug)]
pub(super) struct Known(Vec<Server>);

impl Known {
    /// The site's own come first.
    pub(super) fn new(config: &SensorsConfig) -> Self {
        let wanted = |server: &&BuiltIn| !config.servers_ignored.iter().any(|it| it == server.name);
        let own = config.servers.iter().map(Server::from);
        Self(own.chain(BUILT_IN.iter().filter(wanted).map(Server::from)).collect())
    }

    pub(super) fn of_port(&self, port: u16) -> Option<&Server> {
        self.0.iter().find(|server| server.ports.iter().any(|ports| ports.contains(&port)))
    }

    /// By what a process calls itself and by its first words.
    pub(super) fn of_program(&self, name: &str, words: &[String]) -> Option<&Server> {
        let of = |server: &&Server| {
            server
                .programs
                .iter()
                .any(|program| program == name || words.iter().any(|word| is_in(word, program)))
        };
        self.0.iter().find(of)
    }
}

/// Is that the program, or does it lie in a directory of that name? `.vscode-server`
/// is `vscode-server`, hidden.
fn is_in(word: &str, program: &str) -> bool {
    let mut parts = Path::new(word).iter().filter_map(OsStr::to_str);
    parts.any(|part| part.strip_prefix('.').unwrap_or(part) == program)
}

impl From<&BuiltIn> for Server {
    fn from(of: &BuiltIn) -> Self {
        let allowance =
            Allowance { burst_bytes: of.burst_bytes, bytes_per_minute: of.bytes_per_minute };
        Self {
            name: of.name.to_owned(),
            ports: of.ports.to_vec(),
            programs: of.programs.iter().copied().map(str::to_owned).collect(),
            screen: of.screen,
            allowance,
        }
    }
}

impl From<&ServerConfig> for Server {
    fn from(of: &ServerConfig) -> Self {
        let ServerConfig { name, ports, programs, burst, per_minute } = of;
        Self {
            name: name.clone(),
            ports: ports.iter().map(|port| *port..=*port).collect(),
            programs: programs.clone(),
            screen: false,
            allowance: Allowance { burst_bytes: *burst, bytes_per_minute: *per_minute },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<'a>(known: &'a Known, comm: &str, words: &[&str]) -> Option<&'a str> {
        let words: Vec<String> = words.iter().copied().map(str::to_owned).collect();
        known.of_program(comm, &words).map(|server| server.name.as_str())
    }

    #[test]
    fn servers_are_known_by_port_and_by_program() {
        let known = Known::new(&SensorsConfig::default());
        let by_port = |port| known.of_port(port).map(|server| server.name.as_str());
        let ports = [(5_901, "VNC"), (3_389, "remote desktop"), (22, "ssh"), (8_889, "Jupyter")];
        for (port, name) in ports {
            assert_eq!(by_port(port), Some(name));
        }
        assert_eq!(by_port(80), None);
        let node = "/home/ann/.vscode-server/cli/servers/Stable-1/server/node";
        assert_eq!(name(&known, "node", &[node, "out/server-main.js"]), Some("VS Code"));
        assert_eq!(name(&known, "node", &["node", "/srv/shop/index.js"]), None);
        let lab = ["/usr/bin/python3", "/home/ann/.local/bin/jupyter-lab"];
        assert_eq!(name(&known, "jupyter-lab", &lab), Some("Jupyter"));
        assert_eq!(name(&known, "python3", &lab), Some("Jupyter"));
    }

    #[test]
    fn a_site_adds_its_own_and_leaves_out_what_it_does_not_want() {
        let own = ServerConfig {
            name: "render".into(),
            ports: vec![7_001],
            programs: vec!["renderd".into()],
            ..ServerConfig::default()
        };
        let config = SensorsConfig {
            servers: vec![own],
            servers_ignored: vec!["ssh".into()],
            ..SensorsConfig::default()
        };
        let known = Known::new(&config);
        assert_eq!(known.of_port(7_001).map(|server| server.name.as_str()), Some("render"));
        assert!(known.of_port(22).is_none() && known.of_port(5_900).is_some());
    }
}
