//! What the four programs of the thesis (Phalen 1994, Table 8) share: sixteen
//! nodes and a host, in one process or each on a workstation; recording; and
//! how the answer is told.
//!
//! The host distributes the input and collects the answer, as on the hypercube
//! that the thesis's traces came from (§6.3).

mod tell;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;

use clap::Parser;
use gleaner_common::trace::{self, Trace};
use gleaner_program::{Communicator, Failure, RECORD_TO, Run, live};
use tell::Answer;

/// Ranks 0 to 15.
pub(crate) const NODES: u32 = 16;
pub(crate) const HOST: u32 = NODES;

#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// How large the problem is; what it counts is the program's own.
    #[arg(long, value_name = "N")]
    pub(crate) size: Option<usize>,
    /// Record the run's compute times and messages as a trace.
    #[arg(long, value_name = "FILE", env = RECORD_TO)]
    pub(crate) record: Option<PathBuf>,
    /// Stretch the recorded compute times so that the critical path takes so long.
    #[arg(long, value_name = "SECONDS", requires = "record", value_parser = seconds)]
    pub(crate) scale_to: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "expected seconds, such as 304.032".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// What a program found out, and whether it is right.
#[derive(Debug)]
pub(crate) struct Solved {
    pub(crate) trace: Option<Trace>,
    pub(crate) answer: Answer,
}

/// What only the host needs. Where all ranks are in one process it is made
/// before they begin, so that it is no part of what is recorded.
pub(crate) fn prepare<T, F: FnOnce() -> T>(make: F) -> LazyLock<T, F> {
    let prepared = LazyLock::new(make);
    if !live::is_live() {
        LazyLock::force(&prepared);
    }
    prepared
}

/// Runs all ranks, or on a workstation this process's own, and checks what the
/// host has.
pub(crate) fn play<T: Send>(
    run: Run,
    rank: impl Fn(&mut Communicator) -> Result<T, Failure> + Sync,
    check: impl FnOnce(&T) -> Result<String, String>,
) -> Result<Solved, Failure> {
    let outcome = live::run(run, |comm| {
        if comm.size() == NODES + 1 {
            return rank(comm);
        }
        let (expected, found) = (NODES + 1, comm.size());
        Err(format!("{found} ranks: expected {expected}, sixteen nodes and a host").into())
    })?;
    let answer = match outcome.values.get(&HOST) {
        Some(found) => check(found).map(Some),
        None if live::is_live() => Ok(None),
        None => return Err("the host returned nothing".into()),
    };
    Ok(Solved { trace: outcome.trace, answer })
}

/// Sixteen nodes and a host.
pub(crate) fn run(record: Option<&str>) -> Run {
    Run { ranks: NODES + 1, record: record.map(str::to_owned), ..Run::default() }
}

/// Runs a program as the command line says.
pub(crate) fn perform(
    name: &str,
    size: usize,
    solve: impl FnOnce(Run, usize) -> Result<Solved, Failure>,
) -> ExitCode {
    let options = Options::parse();
    let record = options.record.as_ref().map(|_| name);
    let solved = solve(run(record), options.size.unwrap_or(size));
    tell::tell(name, solved.and_then(|solved| keep(&options, solved)))
}

fn keep(options: &Options, solved: Solved) -> Result<Answer, Failure> {
    if let (Some(path), Some(trace), Ok(_)) = (&options.record, &solved.trace, &solved.answer) {
        let own = trace.critical_path()?;
        let trace = options.scale_to.map(|to| trace.scaled_to(to)).transpose()?;
        let trace = trace.as_ref().or(solved.trace.as_ref()).ok_or("nothing was recorded")?;
        trace::write(trace, File::create(path)?)?;
        let (operations, path) = (trace.operations(), path.display());
        eprintln!("{path}: {operations} operations, critical path {own:.3?} as recorded");
    }
    Ok(solved.answer)
}
