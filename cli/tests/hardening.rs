//! FIELD.md I5: hardening of a service has silently blinded other detectors.
//! An agent with the rights that its shipped unit leaves it, and no others,
//! still runs guests and still sees a key.
//!
//! systemd itself is not needed: the settings that take rights away are read
//! from the unit and applied with `unshare` and `setpriv`. Of those, the device
//! policy cannot be tried this way; that no terminal needs to be opened to be
//! watched is the agent's own promise.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gleaner_lab::Terminal;
use gleaner_lab::cgroup::Cgroup;
use serde_json::Value;

use support::{Coordinator, glean, succeeds, wait_for};

/// Makes everything but the given directory read-only, as `ProtectSystem=strict`
/// does, puts scratch in the place of `/tmp`, as `PrivateTmp=` does, and gives up
/// every right but the given ones.
const SCRIPT: &str = "
mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro / && mount -t tmpfs tmpfs /tmp || exit 3
shift
exec setpriv --no-new-privs --inh-caps=-all --bounding-set \"$@\"
";

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The unit's `CapabilityBoundingSet=`, as setpriv takes it.
fn capabilities(unit: &str) -> String {
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.expect("the unit limits capabilities").to_lowercase();
    names.split(' ').fold("-all".to_owned(), |set, name| {
        format!("{set},+{}", name.strip_prefix("cap_").unwrap_or(name))
    })
}

fn may_try() -> bool {
    rustix::process::geteuid().is_root()
        && ["setpriv", "unshare"].iter().all(|tool| {
            Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
        })
        && Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|it| it.success())
}

#[test]
fn an_agent_under_its_units_hardening_runs_guests_and_sees_a_key() {
    if !may_try() {
        gleaner_skip::without_lab("it needs root, setpriv and unshare");
        return;
    }
    let Some(cgroup) = Cgroup::at_top(&format!("glean-hardening-{}", std::process::id())) else {
        gleaner_skip::without_lab("no cgroup v2 to write to");
        return;
    };
    let lab = Coordinator::start();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let home = dir.path().to_str().unwrap();
    let token = succeeds(&lab.admin(&["token", "create", "--role", "agent"]));
    let install = ["agent", "install", "--root", home, "--name", "ws-1", "--token", token.trim()];
    succeeds(&lab.admin(&[&install[..], &["--coordinator", &lab.address]].concat()));
    let unit = dir.path().join("etc/systemd/system/gleaner-agent.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(unit.contains("\nNoNewPrivileges=yes\n") && unit.contains("\nProtectSystem=strict\n"));

    // Each of these puts a filter upon the agent, and nothing moves from there.
    for filter in ["ProtectClock", "ProtectKernel", "Restrict", "LockPersonality", "SystemCall"] {
        assert!(!unit.lines().any(|line| line.starts_with(filter)), "{filter}");
    }

    let mut terminal = Terminal::open(None).unwrap();
    terminal.attach(Command::new("cat"), || Ok(())).unwrap();
    fs::write(dir.path().join("agent.toml"), configuration(home, &terminal.path, &cgroup)).unwrap();
    let socket = format!("{home}/run/agent.sock");
    let log = fs::File::create(dir.path().join("agent.log")).unwrap();
    // Wherever it was built, which may be below the `/tmp` that the agent does not see.
    let program = dir.path().join("glean");
    fs::copy(env!("CARGO_BIN_EXE_glean"), &program).unwrap();
    let agent = Command::new("unshare")
        .args(["--mount", "--propagation", "slave", "sh", "-c", SCRIPT, "sh", home])
        .arg(capabilities(&unit))
        .arg(program)
        .args(["agent", "--config"])
        .arg(dir.path().join("agent.toml"))
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let _agent = Killed(agent);

    let ask = || {
        let arguments = ["agent", "status", "--json", "--socket", &socket];
        let asked = glean(dir.path()).args(arguments).output().unwrap();
        serde_json::from_slice::<Value>(&asked.stdout).ok()
    };
    let idle = wait_for("the agent is idle", || {
        ask().filter(|status| status["busy"] == false && status["connected"] == true)
    });
    let terminals =
        idle["sensors"].as_array().unwrap().iter().find(|it| it["sensor"] == "terminals");
    assert_eq!(terminals.unwrap()["health"], "well", "{idle}");
    let missing = idle["missing"].to_string();
    assert!(!missing.contains("sandbox") && !missing.contains("CAP_"), "{idle}");
    succeeds(&lab.admin(&["submit", "--wait", "--", "/bin/true"]));

    // What moves here was tried within the unit's restrictions, and whoever asks
    // from outside of them hears of that.
    let found = idle["moves"]["detail"].as_str().unwrap();
    assert!(idle["moves"]["possible"] == true || found.starts_with("no criu here"), "{idle}");
    let config = dir.path().join("agent.toml");
    let doctor = ["doctor", "--agent", "--json", "--socket", &socket, "--config"];
    let doctor = glean(dir.path()).args(doctor).arg(config).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(said.contains(&format!("{found} (as the agent found)")), "{said}");

    let key = terminal.path.strip_prefix("/dev").unwrap().to_str().unwrap().to_owned();
    terminal.type_keys("x").unwrap();
    let busy = wait_for("a key turns it busy", || ask().filter(|status| status["busy"] == true));
    assert!(busy["reason"].as_str().unwrap().contains(&key), "{busy}");
}

fn configuration(home: &str, terminal: &Path, cgroup: &Cgroup) -> String {
    format!(
        "identity = \"{home}/etc/gleaner/agent\"
data = \"{home}/var/lib/gleaner/agent\"
runtime = \"{home}/run\"
places = 1
[criteria]
quiet = \"1s\"
load_idle_max = 1000.0
load_quiet = \"1s\"
rise_cores = 1000.0
required = [\"terminals\"]
[sensors]
terminals = [\"{}\"]
sessions = false
connections = false
slice = \"\"
[cgroup]
directory = \"{}\"
",
        terminal.display(),
        cgroup.path.display()
    )
}
