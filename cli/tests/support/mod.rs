//! The real binary, and a coordinator of a test's own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use gleaner_shell::clock::Clock;

/// How long a fact may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// `glean`, for somebody who has nothing but this home.
pub(crate) fn glean(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_glean"));
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home);
    command.stdin(Stdio::null());
    command
}

#[track_caller]
pub(crate) fn succeeds(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Polls for a fact.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::new();
    let deadline = clock.now() + PATIENCE;
    while clock.now() < deadline {
        if let Some(found) = fact() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("still not so: {what}");
}

/// A coordinator of our own, killed when dropped.
pub(crate) struct Coordinator {
    pub(crate) child: Child,
    pub(crate) home: tempfile::TempDir,
    pub(crate) address: String,
}

impl Coordinator {
    pub(crate) fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = glean(home.path())
            .args(["coordinator", "--data", "data", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("listening") {
            assert!(log.read_line(&mut said).unwrap() > 0, "the coordinator ended: {said}");
        }
        let (_, address) = said.split_once("listening on ").unwrap();
        let address = address.trim().to_owned();
        // It must go on being read, or the coordinator would wait for us.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, home, address }
    }

    pub(crate) fn admin(&self, arguments: &[&str]) -> Output {
        self.admin_command(arguments).output().unwrap()
    }

    pub(crate) fn admin_command(&self, arguments: &[&str]) -> Command {
        let mut command = glean(self.home.path());
        command.args(arguments).env("GLEAN_IDENTITY", self.home.path().join("data/admin"));
        command
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
