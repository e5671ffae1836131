//! Runs a command as all ranks of a program, over real pipes to a model of
//! their agents.

#![allow(dead_code, reason = "each of its users needs a part of it")]
#![allow(clippy::unwrap_used, reason = "of a test")]

pub(crate) mod agent;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::JoinHandle;

use agent::{Agent, Ends, Setup};
use gleaner_program::RECORD_TO;
use gleaner_program_core::wire::PIPES_VARIABLE;
use rustix::io::{FdFlags, fcntl_setfd};

/// What a rank's process left.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) error: String,
}

pub(crate) struct Ran {
    pub(crate) ranks: BTreeMap<u32, Process>,
    pub(crate) complaints: Vec<String>,
}

/// An example of this package, built from the sources as they are.
pub(crate) fn example(name: &str) -> Command {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        // `cargo test` of one test builds no examples.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--offline", "--examples"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let target = built().parent().unwrap().to_owned();
        cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().unwrap().success());
    });
    Command::new(built().join("examples").join(name))
}

/// Where cargo puts what it builds: `target/debug`.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

pub(crate) fn run(ranks: u32, command: &mut Command) -> Ran {
    run_with(Setup { ranks, ..Setup::default() }, command)
}

/// Runs the command as every rank, those too that it spawns.
pub(crate) fn run_with(setup: Setup, command: &mut Command) -> Ran {
    let record = setup.record.clone();
    let (mut agent, pipes) = Agent::new(setup);
    let mut children = BTreeMap::new();
    let mut begin = |rank: u32, ends| {
        if let Some(directory) = &record {
            command.env(RECORD_TO, directory.join(format!("trace.{rank}")));
        }
        children.insert(rank, start(command, ends));
    };
    for (rank, ends) in (0..).zip(pipes) {
        begin(rank, ends);
    }
    agent.run(begin);
    for variable in [PIPES_VARIABLE, RECORD_TO] {
        command.env_remove(variable);
    }
    let complaints = agent.complaints.iter().map(ToString::to_string).collect();
    drop(agent);
    let ranks = children.into_iter().map(|(rank, child)| (rank, child.end())).collect();
    Ran { ranks, complaints }
}

struct Begun {
    child: Child,
    output: JoinHandle<String>,
    error: JoinHandle<String>,
}

fn start(command: &mut Command, ends: Ends) -> Begun {
    /// Another thread's process must not get these.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Ends { read, write } = ends;
    for fd in [&read, &write] {
        fcntl_setfd(fd, FdFlags::empty()).unwrap();
    }
    let mut child = command
        .env(PIPES_VARIABLE, format!("{},{}", read.as_raw_fd(), write.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (output, error) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    Begun { child, output: collect(output), error: collect(error) }
}

/// While it runs: what is not read would hold it up.
fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = vec![];
        from.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    })
}

impl Begun {
    fn end(mut self) -> Process {
        let status = self.child.wait().unwrap();
        let (output, error) = (self.output.join().unwrap(), self.error.join().unwrap());
        Process { status, output, error }
    }
}
