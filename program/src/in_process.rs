//! A whole program in one process: a thread for each rank.
//!
//! For recording traces, for tests, and for trying programs out. A rank that
//! fails or panics is named to all that wait for it; if all wait for each
//! other, each is told what everybody waits for.

mod hub;

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};

use gleaner_common::trace::{self, Lines, Op, Problem, Trace};
use gleaner_program_core::negotiation::{Change, Obligation};

use crate::communicator::{Communicator, Standing};
use crate::cpu::CpuClock;
use crate::error::{Ending, Error, Failure};
use crate::transport::Beginning;
use hub::{Hub, HubTransport, Notice};

/// How to run a program.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// How many ranks begin with the program.
    pub ranks: u32,
    /// Records a trace, under this name.
    pub record: Option<String>,
    /// How many ranks more may be spawned.
    pub processors: u32,
    /// Owners that come back, for programs with a task bag.
    pub retreats: Vec<Retreat>,
    /// What the program is offered, or asked for, one after the other, once a
    /// rank of it negotiates.
    pub offers: Vec<(Change, Obligation)>,
    /// What ranks saved in an earlier run.
    pub saved: BTreeMap<u32, Vec<u8>>,
}

/// A rank is asked to retreat when it is given its n-th task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retreat {
    pub rank: u32,
    pub task: u32,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What each rank returned; nothing for those that retreated.
    pub values: BTreeMap<u32, T>,
    pub trace: Option<Trace>,
    /// What ranks saved last.
    pub saved: BTreeMap<u32, Vec<u8>>,
}

/// Why a program did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("a program of no ranks")]
    NoRanks,
    #[error("cannot start a thread for rank {rank}: {source}")]
    Thread { rank: u32, source: io::Error },
    /// The first that failed by itself, not by what another did.
    #[error("rank {rank} failed: {source}")]
    Failed { rank: u32, source: Failure },
    #[error("rank {rank} panicked: {message}")]
    Panicked { rank: u32, message: String },
    #[error("the recorded trace cannot be replayed: {0}")]
    Trace(Problem),
    /// On a workstation: no way to the rank's agent.
    #[error("cannot reach this rank's agent: {0}")]
    Agent(#[source] crate::live::ConnectError),
}

/// How a rank came to its end.
enum End<T> {
    Value(T),
    Retreated,
    Failed(Failure),
    Panicked(String),
}

struct Finished<T> {
    rank: u32,
    end: End<T>,
    ops: Option<Vec<Op>>,
}

/// Runs a program, each rank on a thread of its own.
///
/// # Errors
/// A rank that fails, panics, or waits for what never comes.
pub fn run_in_process<T: Send>(
    run: Run,
    program: impl Fn(&mut Communicator) -> Result<T, Failure> + Sync,
) -> Result<Outcome<T>, RunError> {
    if run.ranks == 0 {
        return Err(RunError::NoRanks);
    }
    let (notices, heard) = channel();
    let retreats = run.retreats.iter().map(|retreat| (retreat.rank, retreat.task)).collect();
    let processors = (run.processors, run.offers);
    let hub = Hub::new(run.ranks, processors, retreats, run.saved.clone(), notices);
    let shared = Shared {
        hub: Arc::new(hub),
        program: &program,
        record: run.record.is_some(),
        finished: Mutex::new(vec![]),
    };
    std::thread::scope(|scope| {
        for rank in 0..run.ranks {
            let state = run.saved.get(&rank).cloned();
            shared.begin(scope, Beginning { rank, members: 0..run.ranks, parent: None, state })?;
        }
        shared.heed(scope, &heard)
    })?;
    let saved = shared.hub.saved();
    let finished = shared.finished.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (values, ops) = sum_up(finished)?;
    let trace = run.record.map(|name| recorded(name, ops)).transpose()?;
    Ok(Outcome { values, trace, saved })
}

/// What all threads of a run share.
struct Shared<'a, T, P> {
    hub: Arc<Hub>,
    program: &'a P,
    record: bool,
    /// In the order they ended.
    finished: Mutex<Vec<Finished<T>>>,
}

impl<T: Send, P: Fn(&mut Communicator) -> Result<T, Failure> + Sync> Shared<'_, T, P> {
    fn begin<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        beginning: Beginning,
    ) -> Result<(), RunError> {
        let rank = beginning.rank;
        let thread = Builder::new().name(format!("rank {rank}"));
        let started = thread.spawn_scoped(scope, move || self.perform(beginning));
        started.map(|_| ()).map_err(|source| {
            // The others must not wait for a rank that never was.
            self.hub.end(rank, &Ending::Failed("no thread could be started".to_owned()));
            RunError::Thread { rank, source }
        })
    }

    fn heed<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        heard: &Receiver<Notice>,
    ) -> Result<(), RunError> {
        while let Ok(Notice::Begin(beginning)) = heard.recv() {
            self.begin(scope, beginning)?;
        }
        Ok(())
    }

    fn perform(&self, beginning: Beginning) {
        let rank = beginning.rank;
        let transport = HubTransport { rank, hub: Arc::clone(&self.hub), orders: 0 };
        let clock = self.record.then_some(CpuClock::Thread);
        let mut comm = Communicator::new(Box::new(transport), beginning, clock);
        let result = catch_unwind(AssertUnwindSafe(|| (self.program)(&mut comm)));
        let retreated = comm.standing == Standing::Retreated;
        let ops = comm.into_recorded();
        let (end, ending) = match result {
            Ok(Ok(value)) => (End::Value(value), Ending::Returned),
            Ok(Err(_)) if retreated => (End::Retreated, Ending::Retreated),
            Ok(Err(failure)) => {
                let ending = Ending::Failed(failure.to_string());
                (End::Failed(failure), ending)
            }
            Err(panic) => {
                let message = said_by(&*panic);
                (End::Panicked(message.clone()), Ending::Panicked(message))
            }
        };
        let finished = Finished { rank, end, ops };
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).push(finished);
        self.hub.end(rank, &ending);
    }
}

fn said_by(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a word".to_owned())
}

type Sums<T> = (BTreeMap<u32, T>, BTreeMap<u32, Vec<Op>>);

fn sum_up<T>(finished: Vec<Finished<T>>) -> Result<Sums<T>, RunError> {
    let (mut values, mut ops) = (BTreeMap::new(), BTreeMap::new());
    let mut consequence = None;
    for Finished { rank, end, ops: done } in finished {
        ops.insert(rank, done.unwrap_or_default());
        match end {
            End::Value(value) => {
                values.insert(rank, value);
            }
            End::Retreated => {}
            End::Panicked(message) => return Err(RunError::Panicked { rank, message }),
            End::Failed(source) => {
                let follows = source.downcast_ref().is_some_and(Error::is_consequence);
                let error = RunError::Failed { rank, source };
                if !follows {
                    return Err(error);
                }
                consequence = consequence.or(Some(error));
            }
        }
    }
    consequence.map_or(Ok((values, ops)), Err)
}

fn recorded(name: String, ops: BTreeMap<u32, Vec<Op>>) -> Result<Trace, RunError> {
    let trace = Trace { name, ranks: ops.into_values().collect() };
    match trace::check(&trace, &Lines::default()).into_iter().next() {
        Some(problem) => Err(RunError::Trace(problem)),
        None => Ok(trace),
    }
}

#[cfg(test)]
mod tests;
