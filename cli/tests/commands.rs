//! The real binary: its exit codes, its lines of error, and its answers from a
//! real coordinator.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::Read;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use support::{Coordinator, glean, succeeds, wait_for};

#[track_caller]
fn fails(output: &Output, code: i32, lines: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let found: Vec<&str> = said.lines().collect();
    assert_eq!(found.len(), lines.len(), "{said}");
    for (found, expected) in found.iter().zip(lines) {
        assert!(found.contains(expected), "`{found}` lacks `{expected}`");
    }
}

/// The first record that a command prints.
fn record(lab: &Coordinator, arguments: &[&str]) -> Value {
    let text = succeeds(&lab.admin(arguments));
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

#[test]
fn without_an_identity_the_next_step_is_to_enrol() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [&["jobs"][..], &["submit", "--", "true"], &["doctor", "--identity", "none"]] {
        let output = glean(home.path()).args(arguments).output().unwrap();
        if arguments[0] == "doctor" {
            assert_eq!(output.status.code(), Some(1));
            assert!(String::from_utf8_lossy(&output.stdout).contains("not enrolled"));
            continue;
        }
        let lines = ["glean: not enrolled: no identity in ", "hint: glean enrol --coordinator"];
        fails(&output, 2, &lines);
    }
}

#[test]
fn a_text_that_is_no_token_is_refused_without_asking_anybody() {
    let home = tempfile::tempdir().unwrap();
    let arguments = ["enrol", "--coordinator", "127.0.0.1:9", "--token", "sesame"];
    let output = glean(home.path()).args(arguments).output().unwrap();
    let lines = ["glean: this is not a token: expected `glean-`", "hint: an admin makes one"];
    fails(&output, 2, &lines);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("sesame"));
}

#[test]
fn a_bad_configuration_is_named_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    for (daemon, text, expected) in [
        ("coordinator", "leese = \"10s\"\n", "c.toml:1:1: unknown field `leese`, expected"),
        (
            "coordinator",
            "lease = \"10 parsecs\"\n",
            "c.toml:1:9: `10 parsecs` is not a duration: expected",
        ),
        ("collector", "\ndata = \"/x\"\n", "c.toml:2:1: unknown field `data`, expected"),
        ("agent", "plaecs = 2\n", "c.toml:1:1: unknown field `plaecs`, expected"),
        ("agent", "[criteria]\nquiet = \"60\"\n", "c.toml:2:9: `60` is not a duration: expected"),
    ] {
        fs::write(home.path().join("c.toml"), text).unwrap();
        let output = glean(home.path()).args([daemon, "--config", "c.toml"]).output().unwrap();
        fails(&output, 2, &[expected, "hint: correct c.toml"]);
    }
    let output = glean(home.path()).args(["agent", "--config", "none.toml"]).output().unwrap();
    fails(&output, 2, &["glean: no configuration at none.toml: expected a TOML file"]);
}

#[test]
fn a_daemon_without_an_identity_says_how_to_get_one() {
    let home = tempfile::tempdir().unwrap();
    let text = "identity = \"none\"\ndata = \"data\"\nruntime = \"run\"\n";
    fs::write(home.path().join("c.toml"), text).unwrap();
    let output = glean(home.path()).args(["agent", "--config", "c.toml"]).output().unwrap();
    fails(
        &output,
        2,
        &["glean: not enrolled: no identity in none", "hint: sudo glean agent install"],
    );
}

#[test]
fn without_an_agent_the_owner_is_told_so() {
    let home = tempfile::tempdir().unwrap();
    let output = glean(home.path()).args(["agent", "status", "--socket", "none"]).output().unwrap();
    fails(
        &output,
        2,
        &["glean: no agent runs here: nothing listens at none", "hint: systemctl status"],
    );
}

#[test]
fn usage_records_that_are_elsewhere_are_looked_for_there() {
    let home = tempfile::tempdir().unwrap();
    let output = glean(home.path()).args(["usage", "ls", "--usage", "none"]).output().unwrap();
    fails(&output, 2, &["glean: cannot list none: No such file", "hint: the collector's host"]);
}

#[test]
fn glean_alone_shows_its_help_and_fails() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["token"], &["usage"]] {
        let output = glean(home.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("Usage: glean"));
    }
}

#[test]
fn mistakes_on_the_command_line_are_two_lines() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, what, hint) in [
        (
            &["submit", "--timeout", "90", "--", "x"][..],
            "`90` is not a duration",
            "glean submit --help",
        ),
        (&["jbos"], "unrecognized subcommand 'jbos'", "'jobs'"),
        (&["logs", "seven"], "expected a job's number", "glean logs --help"),
    ] {
        let output = glean(home.path()).args(arguments).output().unwrap();
        fails(&output, 2, &[what, hint]);
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let home = tempfile::tempdir().unwrap();
    let mut child = glean(home.path())
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_user_enrols_and_a_job_is_submitted_shown_explained_and_cancelled() {
    let lab = Coordinator::start();
    let home = tempfile::tempdir().unwrap();
    let token = succeeds(&lab.admin(&["token", "create", "--role", "user", "--name", "ada"]));
    let enrol = ["enrol", "--coordinator", &lab.address, "--name", "ada", "--token", token.trim()];
    succeeds(&glean(home.path()).args(enrol).output().unwrap());
    let again = glean(home.path()).args(enrol).output().unwrap();
    fails(&again, 2, &["holds the identity of user ada already", "hint: --force replaces it"]);
    let used = glean(home.path()).args(enrol).arg("--force").output().unwrap();
    fails(&used, 2, &["the token has been used"]);
    let ada = |arguments: &[&str]| glean(home.path()).args(arguments).output().unwrap();

    fs::write(home.path().join("input.txt"), "data").unwrap();
    let arguments = [
        "submit",
        "--count",
        "3",
        "--input",
        "input.txt",
        "--out",
        "out",
        "--",
        "/bin/cat",
        "input.txt",
    ];
    assert_eq!(succeeds(&ada(&arguments)), "1\n");
    let listed = succeeds(&ada(&["jobs"]));
    assert!(listed.contains("ada") && listed.contains("0/3"), "{listed}");
    let shown = succeeds(&ada(&["job", "1"]));
    assert!(shown.contains("/bin/cat input.txt") && shown.contains("1.2"), "{shown}");
    assert!(!succeeds(&ada(&["why", "1.0"])).is_empty());
    let answer: Value = serde_json::from_str(&succeeds(&ada(&["why", "1", "--json"]))).unwrap();
    assert!(answer["reasons"][0].is_string(), "{answer}");
    assert_eq!(ada(&["logs", "1"]).status.code(), Some(1), "nothing has been printed");
    assert_eq!(ada(&["fetch", "1"]).status.code(), Some(1), "nothing has been left");
    succeeds(&ada(&["cancel", "1"]));
    assert_eq!(record(&lab, &["jobs", "1", "--json"])["summary"]["state"], "cancelled");

    fails(&ada(&["job", "99"]), 1, &["99"]);
    fails(&ada(&["token", "create", "--role", "user"]), 1, &["glean: "]);
    let health = succeeds(&ada(&["doctor", "--json"]));
    assert!(health.contains("\"check\":\"trust\"") && health.contains("ada"), "{health}");
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let lab = Coordinator::start();
    let made =
        record(&lab, &["token", "create", "--role", "agent", "--lifetime", "5min", "--json"]);
    let id = made["id"].as_str().unwrap();
    assert!(made["token"].as_str().unwrap().starts_with("glean-"));
    assert_eq!(record(&lab, &["token", "ls", "--json"])["state"], "open");
    succeeds(&lab.admin(&["token", "revoke", id]));
    assert_eq!(record(&lab, &["token", "ls", "--json"])["state"], "revoked");
    let listed = succeeds(&lab.admin(&["workstations"]));
    assert!(listed.starts_with("NUMBER"), "{listed}");
}

#[test]
fn a_workstation_is_set_up_with_a_token_once_and_then_keeps_its_identity() {
    let lab = Coordinator::start();
    let token = succeeds(&lab.admin(&["token", "create", "--role", "agent"]));
    let root = lab.home.path().join("root");
    let root = root.to_str().unwrap();
    let install = ["agent", "install", "--root", root];
    let first =
        [&install[..], &["--coordinator", &lab.address, "--token", token.trim(), "--name", "ws-1"]]
            .concat();
    succeeds(&lab.admin(&first));
    let key = fs::read(format!("{root}/etc/gleaner/agent/key.pem")).unwrap();
    // The token is used up: only an identity that works makes this pass.
    let again = lab.admin(&first);
    succeeds(&again);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("enrolled already as agent ws-1, and 127.0.0.1"), "{said}");
    succeeds(&lab.admin(&install));
    assert_eq!(fs::read(format!("{root}/etc/gleaner/agent/key.pem")).unwrap(), key);
    assert_eq!(record(&lab, &["workstations", "--json"])["name"], "ws-1");

    let wrong = succeeds(&lab.admin(&["token", "create", "--role", "user"]));
    let other = ["collector", "install", "--root", root, "--coordinator", &lab.address, "--token"];
    let output = lab.admin(&[&other[..], &[wrong.trim()]].concat());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("glean: the token was for a user, not a collector: expected"), "{said}");
}

#[test]
fn ctrl_c_stops_waiting_and_not_the_job() {
    let lab = Coordinator::start();
    let mut waiting = lab
        .admin_command(&["submit", "--wait", "--", "/bin/true"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the job is there", || {
        lab.admin(&["jobs", "1", "--json"]).status.success().then_some(())
    });
    let pid = Pid::from_raw(i32::try_from(waiting.id()).unwrap()).unwrap();
    // Whether it waits already cannot be seen from outside: ask until it ends.
    let status = wait_for("it stopped waiting", || {
        let _ = kill_process(pid, Signal::INT);
        waiting.try_wait().unwrap()
    });
    let mut said = String::new();
    waiting.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    if status.code().is_some() {
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(
            said.contains("glean: stopped waiting: job 1 goes on\nhint: glean job 1"),
            "{said}"
        );
    }
    assert_eq!(record(&lab, &["jobs", "1", "--json"])["summary"]["state"], "running");
}

#[test]
fn a_coordinator_that_is_gone_is_named_with_its_address() {
    let mut lab = Coordinator::start();
    succeeds(&lab.admin(&["jobs"]));
    lab.child.kill().unwrap();
    lab.child.wait().unwrap();
    let output = lab.admin(&["jobs"]);
    let expected = format!("glean: cannot reach the coordinator at {}: ", lab.address);
    fails(&output, 2, &[expected.as_str(), "hint: "]);
}

#[test]
fn a_missing_input_or_program_is_named_before_anything_is_sent() {
    let lab = Coordinator::start();
    let output = lab.admin(&["submit", "--input", "none.txt", "--", "/bin/true"]);
    fails(&output, 2, &["glean: cannot read the input none.txt: No such file"]);
    let output = lab.admin(&["submit", "--", "./none"]);
    fails(&output, 2, &["glean: the program ./none is not there or not executable: expected"]);
    assert_eq!(lab.admin(&["jobs", "--json"]).stdout, b"");
}
