//! A whole process as one rank.

use std::collections::BTreeMap;
use std::fs::File;

use gleaner_common::trace::{self, Op, Trace};
use gleaner_program_core::wire::PIPES_VARIABLE;

use super::{ConnectError, Live, Pipes};
use crate::communicator::{Communicator, Standing};
use crate::cpu::CpuClock;
use crate::error::{Error, Failure};
use crate::in_process::{Outcome, Run, RunError, run_in_process};

/// Where a live rank writes what it computed, sent and received: a trace in
/// which only this rank has done anything.
const RECORD_VARIABLE: &str = "GLEAN_RECORD";

/// Was this process started by an agent, as one rank of a program?
pub fn is_live() -> bool {
    std::env::var_os(PIPES_VARIABLE).is_some()
}

/// Runs a program: on a workstation, this process's rank of it; elsewhere all
/// of it, in this process. Only ranks that ran here have a value.
///
/// # Errors
/// As [`run_in_process`]; or there is no way to this rank's agent.
pub fn run<T: Send>(
    run: Run,
    program: impl Fn(&mut Communicator) -> Result<T, Failure> + Sync,
) -> Result<Outcome<T>, RunError> {
    if is_live() { run_live(program) } else { run_in_process(run, program) }
}

/// Runs this process's rank of a program.
///
/// # Errors
/// The rank fails, or there is no way to its agent.
pub fn run_live<T>(
    program: impl FnOnce(&mut Communicator) -> Result<T, Failure>,
) -> Result<Outcome<T>, RunError> {
    let pipes = Pipes::inherited().map_err(RunError::Agent)?;
    let record = std::env::var_os(RECORD_VARIABLE);
    let (outcome, ops) = perform(pipes, record.is_some(), program)?;
    if let (Some(path), Some((rank, ops))) = (record, ops) {
        let kept = File::create(path).map_err(|error| error.to_string()).and_then(|file| {
            trace::write(&alone(rank, ops), file).map_err(|error| error.to_string())
        });
        kept.map_err(|reason| RunError::Failed { rank, source: reason.into() })?;
    }
    Ok(outcome)
}

fn alone(rank: u32, ops: Vec<Op>) -> Trace {
    let mut ranks = vec![vec![]; rank as usize];
    ranks.push(ops);
    Trace { name: format!("rank {rank}"), ranks }
}

type Performed<T> = (Outcome<T>, Option<(u32, Vec<Op>)>);

/// Runs a rank on these pipes.
pub(super) fn perform<T>(
    pipes: Pipes,
    record: bool,
    program: impl FnOnce(&mut Communicator) -> Result<T, Failure>,
) -> Result<Performed<T>, RunError> {
    let (live, welcome) = Live::connect(pipes).map_err(RunError::Agent)?;
    let rank = welcome.rank;
    let clock = record.then(CpuClock::of_process);
    let mut comm = Communicator::new(Box::new(live), welcome, clock);
    let result = program(&mut comm);
    let retreated = comm.standing == Standing::Retreated;
    // What a rank has sent leaves, even if the rank has failed.
    let finished = comm.finish();
    let ops = comm.into_recorded().map(|ops| (rank, ops));
    let mut values = BTreeMap::new();
    match result {
        Ok(value) => {
            values.insert(rank, value);
        }
        Err(_) if retreated => {}
        Err(source) => return Err(RunError::Failed { rank, source }),
    }
    finished.map_err(|error: Error| RunError::Agent(ConnectError::Lost(error)))?;
    Ok((Outcome { values, trace: None, saved: BTreeMap::new() }, ops))
}
