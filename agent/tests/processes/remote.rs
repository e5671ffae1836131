//! People who work here from elsewhere: an agent beside real servers, with real
//! clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gleaner_agent::config::Network;
use gleaner_common::wire::AgentFrame;

use crate::agent::{Lab, script};
use crate::machine::{is_root, until};

pub(crate) const TESTS: &[crate::Test] = &[
    ("who_types_at_a_vnc_server_is_seen_at_any_port", vnc),
    ("who_works_over_ssh_without_a_terminal_is_seen", ssh),
    ("who_runs_a_cell_in_jupyter_is_seen", jupyter),
    ("a_guests_own_connections_do_not_count", guests_do_not_count),
];

/// A program that ends with its test.
pub(crate) struct Program(Child);

impl Program {
    /// `None` where it is not installed, which is said aloud.
    pub(crate) fn start(command: &mut Command) -> Option<Self> {
        match command.stdin(Stdio::null()).spawn() {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                let program = Path::new(command.get_program()).display().to_string();
                gleaner_skip::without(format!("{program}: {error}"));
                None
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A workstation that is idle, and stays busy for a few seconds.
pub(crate) fn lab() -> Lab {
    let mut lab = Lab::without_agent();
    lab.config.criteria.quiet = Duration::from_secs(4);
    lab.config.sensors.connections = true;
    lab
}

/// Waits until it is busy for that reason; how long that took.
#[track_caller]
pub(crate) fn busy(lab: &Lab, reason: &str) -> Duration {
    let from = Instant::now();
    lab.coordinator.expect(reason, |frame| match frame {
        AgentFrame::Presence(presence) => {
            (presence.busy && presence.reason.contains(reason)).then_some(())
        }
        _ => None,
    });
    from.elapsed()
}

pub(crate) fn measured(what: &str, took: Duration) {
    println!("measured: {what}: {:.2} s", took.as_secs_f64());
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Connects as soon as somebody listens.
pub(crate) fn connect(port: u16) -> TcpStream {
    let mut stream = None;
    until("somebody listens", || {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    stream.unwrap()
}

/// A viewer, as RFC 6143 has it: version, no security, shared, and what the
/// server says of its screen.
pub(crate) fn viewer(port: u16) -> TcpStream {
    let mut stream = connect(port);
    let mut version = [0; 12];
    stream.read_exact(&mut version).unwrap();
    stream.write_all(b"RFB 003.008\n").unwrap();
    let mut kinds = [0];
    stream.read_exact(&mut kinds).unwrap();
    stream.read_exact(&mut vec![0; usize::from(kinds[0])]).unwrap();
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    stream.write_all(&[1]).unwrap();
    let mut screen = [0; 24];
    stream.read_exact(&mut screen).unwrap();
    stream
}

/// The letter a, pressed and let go.
pub(crate) fn type_a(viewer: &mut TcpStream) {
    for pressed in [1, 0] {
        viewer.write_all(&[4, pressed, 0, 0, 0, 0, 0, b'a']).unwrap();
    }
}

fn vnc() {
    for port in [5_937, free_port()] {
        let mut server = Command::new("Xtigervnc");
        let display = format!(":{}", 100 + port % 1_000);
        server.args([&display, "-rfbport", &port.to_string(), "-SecurityTypes", "None"]);
        server.args(["-localhost", "yes", "-geometry", "640x480"]).stderr(Stdio::null());
        let Some(_server) = Program::start(&mut server) else { return };
        let mut viewer = viewer(port);
        let mut lab = lab();
        lab.start();
        let users = lab.status().users;
        type_a(&mut viewer);
        measured("VNC, one key", busy(&lab, "VNC from this machine"));
        until("they are logged in", || lab.status().users >= users.max(1));
    }
}

fn ssh() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    for name in ["host", "own"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(path(name))
            .status();
        if made.is_err() {
            gleaner_skip::without("no ssh-keygen");
            return;
        }
    }
    std::fs::copy(path("own.pub"), path("authorized_keys")).unwrap();
    let _ = std::fs::create_dir_all("/run/sshd");
    let port = free_port().to_string();
    let mut server = Command::new("/usr/sbin/sshd");
    server.args(["-D", "-p", &port, "-f", "/dev/null", "-o", "ListenAddress=127.0.0.1"]);
    server.arg("-o").arg(format!("HostKey={}", path("host").display()));
    server.arg("-o").arg(format!("AuthorizedKeysFile={}", path("authorized_keys").display()));
    server.args(["-o", "StrictModes=no", "-o", "PidFile=none", "-o", "PermitRootLogin=yes"]);
    let Some(_server) = Program::start(server.stderr(Stdio::null())) else { return };
    drop(connect(port.parse().unwrap()));
    let mut client = Command::new("ssh");
    client.args(["-T", "-p", &port, "-o", "StrictHostKeyChecking=no"]);
    client.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "ServerAliveInterval=5", "-i"]);
    client.arg(path("own")).args(["127.0.0.1", "cat"]);
    let mut client =
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut typed = client.stdin.take().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap());
    let mut say = |what: &str| {
        typed.write_all(format!("{what}\n").as_bytes()).unwrap();
        lines.read_line(&mut String::new()).unwrap_or(0) > 0
    };
    if !say("hello") {
        client.wait().unwrap();
        gleaner_skip::without("nobody can log in by ssh here");
        return;
    }
    let mut lab = lab();
    lab.start();
    assert!(say(&"x".repeat(1_000)));
    measured("ssh without a terminal", busy(&lab, "ssh from this machine"));
    drop(say);
    client.kill().unwrap();
    client.wait().unwrap();
}

fn jupyter() {}

fn guests_do_not_count() {
    if !is_root() {
        gleaner_skip::without_lab("guests have no users of their own without root");
        return;
    }
    let port = 5_938;
    let server = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in server.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut stream = stream;
                while let Ok(bytes @ 1..) = stream.read(&mut [0; 4_096]) {
                    count.fetch_add(bytes, Ordering::Relaxed);
                }
            });
        }
    });
    let mut lab = lab();
    lab.config.guests.network = Network::Host;
    lab.start();
    let line = "head -c 1000 /dev/zero >&3; sleep 0.1";
    let words = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; while :; do {line}; done");
    lab.offer(1, script(&format!("exec bash -c '{words}'")));
    lab.started();
    // Two looks at the least, at five seconds each.
    until("the guest has sent much", || received.load(Ordering::Relaxed) > 100_000);
    assert!(!lab.status().busy, "{}", lab.status().verdict);
    let mut client = connect(port);
    until("the owner's client is seen", || {
        client.write_all(&[0; 100]).unwrap();
        lab.status().verdict.contains("VNC from this machine")
    });
}
