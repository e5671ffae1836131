//! People who work here from elsewhere: an agent beside real servers, with real
//! clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gleaner_agent::config::Network;
use gleaner_common::wire::AgentFrame;
use gleaner_shell::clock::Clock;

use crate::agent::{Lab, script};
use crate::machine::{is_root, until};

pub(crate) const TESTS: &[crate::Test] = &[
    ("who_types_at_a_vnc_server_is_seen_at_any_port", vnc),
    ("who_works_over_ssh_without_a_terminal_is_seen", ssh),
    ("who_runs_a_cell_in_jupyter_is_seen", jupyter),
    ("a_guests_own_connections_do_not_count", guests_do_not_count),
    ("a_call_and_a_battery_close_the_workstation", call_and_battery),
    ("people_who_work_in_their_control_group_are_seen", slice),
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

impl Program {
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
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
    let from = Clock.now();
    lab.coordinator.expect(reason, |frame| match frame {
        AgentFrame::Presence(presence) => {
            (presence.busy && presence.reason.contains(reason)).then_some(())
        }
        _ => None,
    });
    Clock.now().since(from)
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
    client.kill().unwrap();
    client.wait().unwrap();
}

/// Opens a kernel's channels and runs a cell for each line it is given.
const NOTEBOOK: &str = r#"
import json, sys, uuid, urllib.request, websocket
at = f"127.0.0.1:{sys.argv[1]}/api/kernels"
new = urllib.request.Request(f"http://{at}", b"{}", {"Content-Type": "application/json"})
kernel = json.load(urllib.request.urlopen(new))["id"]
channels = websocket.create_connection(f"ws://{at}/{kernel}/channels")
def run(code):
    header = {"msg_id": uuid.uuid4().hex, "session": "s", "username": "ann",
              "msg_type": "execute_request", "version": "5.3", "date": "2026-01-01T00:00:00Z"}
    content = {"code": code, "silent": False, "store_history": True,
               "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
    channels.send(json.dumps({"header": header, "parent_header": {}, "metadata": {},
                              "content": content, "channel": "shell", "buffers": []}))
    while True:
        answer = channels.recv()
        if '"execute_reply"' in answer: return
run("1 + 1")
print("ready", flush=True)
for line in sys.stdin:
    run(line)
    print("done", flush=True)
"#;

fn jupyter() {
    let found = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).find(|path| path.join("jupyter-server").exists())
    });
    let Some(programs) = found else {
        gleaner_skip::without("no jupyter-server: pip install jupyter-server ipykernel");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    let mut server = Command::new(programs.join("jupyter-server"));
    server.args(["--allow-root", "--no-browser", "--ip=127.0.0.1", "--port", &port]);
    server.args(["--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"]);
    server.current_dir(home.path()).env("HOME", home.path()).stderr(Stdio::null());
    let Some(_server) = Program::start(&mut server) else { return };
    drop(connect(port.parse().unwrap()));
    let mut client = Command::new(programs.join("python3"));
    client.args(["-c", NOTEBOOK, &port]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let mut cells = client.stdin.take().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap());
    let mut said = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(said(), "ready\n");
    let mut lab = lab();
    lab.start();
    cells.write_all(b"2 + 2\n").unwrap();
    assert_eq!(said(), "done\n");
    measured("Jupyter, one cell", busy(&lab, "Jupyter from this machine"));
    client.kill().unwrap();
    client.wait().unwrap();
}

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

/// On a laptop whose files are the test's own.
fn call_and_battery() {
    let mut lab = lab();
    let root = lab.config.sensors.root.clone();
    let set = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    set("sys/class/power_supply/AC/type", "Mains\n");
    set("sys/class/power_supply/AC/online", "1\n");
    set("sys/class/power_supply/BAT0/type", "Battery\n");
    set("sys/class/power_supply/BAT0/status", "Charging\n");
    set("sys/class/power_supply/BAT0/capacity", "57\n");
    let microphone = "proc/asound/card0/pcm0c/sub0/status";
    set(microphone, "closed\n");
    set("dev/snd/pcmC0D0c", "");
    lab.start();
    set(microphone, "state: RUNNING\nowner_pid   : 1234\n");
    // Somebody opens the device.
    drop(std::fs::File::open(root.join("dev/snd/pcmC0D0c")).unwrap());
    measured("a call", busy(&lab, "the microphone is in use"));
    set(microphone, "closed\n");
    drop(std::fs::File::open(root.join("dev/snd/pcmC0D0c")).unwrap());
    lab.wait_for_idle();
    set("sys/class/power_supply/AC/online", "0\n");
    set("sys/class/power_supply/BAT0/status", "Discharging\n");
    measured("a battery", busy(&lab, "on battery, 57 %"));
    set("sys/class/power_supply/AC/online", "1\n");
    lab.wait_for_idle();
}

/// A control group with somebody's program in it, as their slice.
fn slice() {
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let mount = mounts.into_iter().find(|mount| Path::new(mount).join("cgroup.procs").exists());
    let name = format!("gleaner-people-{}", std::process::id());
    let made = mount.map(|mount| Path::new(mount).join(&name));
    let Some(group) = made.filter(|path| std::fs::create_dir(path).is_ok()) else {
        gleaner_skip::without_lab("no control group of version 2 can be made");
        return;
    };
    let mut lab = lab();
    lab.config.sensors.root = "/".into();
    lab.config.sensors.slice = name;
    lab.config.criteria.rise_cores = 0.1;
    lab.config.criteria.load_quiet = Duration::from_secs(4);
    lab.start();
    let mut busy_program = Command::new("sh");
    let program = Program::start(busy_program.args(["-c", "while :; do :; done"])).unwrap();
    std::fs::write(group.join("cgroup.procs"), program.0.id().to_string()).unwrap();
    measured("a program of somebody's", busy(&lab, "people's processes use"));
    drop(program);
    drop(lab);
    until("the group is empty", || std::fs::remove_dir(&group).is_ok());
}
