//! Helpers in sessions: `glean presence` at real displays, and whoever lies.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use gleaner_agent::presence::Said;

use crate::agent::Lab;
use crate::machine::{is_root, until};
use crate::remote::{Program, busy, lab, measured, type_a, viewer};
use crate::sessions::Desktop;

pub(crate) const TESTS: &[crate::Test] = &[
    ("a_helper_at_an_x11_display_tells_of_a_key_at_once", x11),
    ("a_helper_at_a_wayland_display_tells_of_a_key_at_once", wayland),
    ("a_helper_at_gnomes_display_tells_of_a_key_at_once", mutter),
    ("a_helper_speaks_for_its_own_users_sessions_only", own_sessions_only),
    ("nobody_keeps_many_helpers_or_says_nonsense", bounded),
];

/// `processes presence SOCKET`: a helper, as the cli would start it.
pub(crate) fn main(socket: &str) -> ExitCode {
    match gleaner_agent::presence::run(Path::new(socket)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn helper(lab: &Lab) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("presence").arg(lab.config.presence_socket());
    command.env_remove("WAYLAND_DISPLAY").env_remove("XDG_SESSION_ID");
    command
}

fn health(lab: &Lab) -> String {
    let sensors = lab.status().sensors;
    sensors.into_iter().find(|of| of.sensor == "presence").unwrap().health
}

/// At a VNC server whose connections nobody follows, so that the helper alone
/// can tell.
fn x11() {
    let port = crate::remote::free_port();
    let display = format!(":{}", 200 + port % 1_000);
    let mut server = Command::new("Xtigervnc");
    server.args([&display, "-rfbport", &port.to_string(), "-SecurityTypes", "None"]);
    server.args(["-localhost", "yes", "-geometry", "640x480"]).stderr(Stdio::null());
    let Some(server) = Program::start(&mut server) else { return };
    let mut viewer = viewer(port);
    let mut lab = lab();
    lab.config.sensors.connections = false;
    lab.start();
    let Some(_helper) = Program::start(helper(&lab).env("DISPLAY", &display)) else { return };
    until("the helper is heard", || health(&lab) == "well");
    until("nobody uses it", || !lab.status().busy);
    type_a(&mut viewer);
    let who = format!("x11 {display} of root");
    measured("X11, one key, by the helper", busy(&lab, if is_root() { &who } else { "x11 :" }));
    drop(server);
    until("the helper goes with its session", || health(&lab) == "absent");
}

/// Waits until the helper is heard; `false` where it has given up.
fn is_heard(lab: &Lab, helper: &mut Program) -> bool {
    let mut ended = false;
    until("the helper is heard, or gives up", || {
        ended = helper.has_ended();
        ended || health(lab) == "well"
    });
    !ended
}

/// At sway without a screen, where `wtype` presses a key. Before sway 1.8 there is
/// no `ext-idle-notify-v1`.
fn wayland() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config");
    std::fs::write(&config, "xwayland disable\n").unwrap();
    let mut sway = Command::new("sway");
    sway.arg("-c").arg(&config).env("XDG_RUNTIME_DIR", home.path());
    sway.env("WLR_BACKENDS", "headless").env("WLR_LIBINPUT_NO_DEVICES", "1");
    sway.env("WLR_RENDERER", "pixman")
        .env("LIBSEAT_BACKEND", "noop")
        .env_remove("WAYLAND_DISPLAY")
        .env_remove("DISPLAY");
    let Some(mut sway) = Program::start(sway.stdout(Stdio::null()).stderr(Stdio::null())) else {
        return;
    };
    until("a display", || sway.has_ended() || home.path().join("wayland-1").exists());
    let mut lab = lab();
    lab.config.sensors.connections = false;
    lab.start();
    let here = |command: &mut Command| {
        Program::start(
            command.env("XDG_RUNTIME_DIR", home.path()).env("WAYLAND_DISPLAY", "wayland-1"),
        )
    };
    let mut helper = here(&mut helper(&lab)).unwrap();
    if !is_heard(&lab, &mut helper) {
        gleaner_skip::without("this sway does not tell how long nobody has used it");
        return;
    }
    until("nobody uses it", || !lab.status().busy);
    let Some(_typed) = here(Command::new("wtype").arg("a")) else { return };
    measured("Wayland, one key, by the helper", busy(&lab, "wayland wayland-1 of"));
}

/// At GNOME's compositor without a screen, where its remote desktop's interface
/// presses a key.
fn mutter() {
    let Some(desktop) = Desktop::start() else {
        gleaner_skip::without_lab("no dbus-daemon");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut mutter = Command::new("mutter");
    mutter.args(["--wayland", "--headless", "--no-x11", "--virtual-monitor", "640x480"]);
    mutter.args(["--wayland-display", "wayland-7"]).env("XDG_RUNTIME_DIR", home.path());
    mutter.env("DBUS_SESSION_BUS_ADDRESS", &desktop.address);
    mutter.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent");
    let Some(mut mutter) = Program::start(mutter.stdout(Stdio::null()).stderr(Stdio::null()))
    else {
        return;
    };
    until("a keyboard", || mutter.has_ended() || desktop.opens_keyboard());
    if mutter.has_ended() {
        gleaner_skip::without("mutter does not run without a screen here");
        return;
    }
    let mut lab = lab();
    lab.config.sensors.connections = false;
    lab.start();
    let mut helper = helper(&lab);
    helper.env("XDG_RUNTIME_DIR", home.path()).env("WAYLAND_DISPLAY", "wayland-7");
    helper.env("DBUS_SESSION_BUS_ADDRESS", &desktop.address);
    let mut helper = Program::start(&mut helper).unwrap();
    assert!(is_heard(&lab, &mut helper), "Mutter has an idle monitor");
    until("nobody uses it", || !lab.status().busy);
    desktop.press_a_key();
    measured("GNOME, one key, by the helper", busy(&lab, "wayland wayland-7 of"));
}

/// Speaks as this user, who need not be a helper at all; `None` if refused.
fn speak_as(uid: u32, lab: &Lab, said: &str) -> Program {
    let socket = lab.config.presence_socket().display().to_string();
    let script = format!(
        "import socket,time; s=socket.socket(socket.AF_UNIX); \
        s.connect({socket:?}); s.send({said:?}.encode()+b'\\n'); s.recv(1)"
    );
    Program::start(Command::new("python3").args(["-c", &script]).uid(uid)).expect("python3")
}

fn own_sessions_only() {
    if !is_root() {
        gleaner_skip::without_lab("only root can speak as others");
        return;
    }
    let Some(desktop) = Desktop::start() else {
        gleaner_skip::without_lab("no dbus-daemon");
        return;
    };
    let mut lab = lab();
    lab.bus = Some(desktop.address.clone());
    lab.config.sensors.sessions = true;
    lab.start();
    // Of ann, whose user number is 1000.
    desktop.screen("x11", "", false);
    let is = |text: &str| until(text, || lab.status().verdict.contains(text));
    is("nothing hears its input");
    let word = r#"{"session":"c1","display":"x11 :9","idle_ms":3600000}"#;
    let liar = speak_as(1_001, &lab, word);
    until("the liar is heard", || health(&lab) == "well");
    is("nothing hears its input");
    drop(liar);
    let own = speak_as(1_000, &lab, word);
    is("idle for");
    drop(own);
    is("nothing hears its input");
}

fn bounded() {
    let lab = lab();
    let mut lab = lab;
    lab.start();
    let connect = || UnixStream::connect(lab.config.presence_socket()).unwrap();
    let is_closed = |stream: &mut UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        matches!(stream.read(&mut [0]), Ok(0) | Err(_))
    };
    let word = |idle_ms| {
        let said = Said { session: None, display: "x11 :9".into(), idle_ms };
        let mut line = serde_json::to_vec(&said).unwrap();
        line.push(b'\n');
        line
    };
    let mut eight: Vec<_> = (0..8).map(|_| connect()).collect();
    for one in &mut eight {
        one.write_all(&word(u64::MAX)).unwrap();
    }
    until("they are heard", || health(&lab) == "well");
    assert!(is_closed(&mut connect()), "a ninth helper of one user");
    assert!(!lab.status().busy, "{}", lab.status().verdict);
    eight[0].write_all(&word(0)).unwrap();
    busy(&lab, "x11 :9 of ");
    for nonsense in [&b"{}\n"[..], b"\xff\n", &[b'x'; 5_000], br#"{"display":"x","idle_ms":-1}"#] {
        let mut one = eight.pop().unwrap();
        let _ = one.write_all(nonsense);
        let _ = one.shutdown(std::net::Shutdown::Write);
        assert!(is_closed(&mut one));
    }
    drop(eight);
    until("nobody speaks", || health(&lab) == "absent");
}
