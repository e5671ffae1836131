//! A program, ready to run many times: its trace in flat arrays, every
//! receive matched with its send.
//!
//! Source: Phalen 1994, §6.3 and §6.4: ranks accrue the times of their
//! subtasks; sends are signals that never block; a receive waits for its
//! signal. The k-th receive of a sender and tag takes the k-th message that
//! this sender sent with it, so who receives what is known before the run.

mod matching;

use std::time::Duration;

use gleaner_common::trace::{Op, Trace};

use crate::lab::nanos;

use self::matching::{Mark, Matching};

/// No message, no rank, nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// How long a message takes: `latency + bytes / bytes_per_s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    pub latency: Duration,
    pub bytes_per_s: f64,
}

impl Default for Network {
    /// Messages take no time, as in Phalen 1994, §6.4.
    fn default() -> Self {
        Self { latency: Duration::ZERO, bytes_per_s: f64::INFINITY }
    }
}

impl Network {
    fn delay(self, bytes: u64) -> u64 {
        let transfer = bytes as f64 / self.bytes_per_s;
        let transfer = Duration::try_from_secs_f64(transfer).unwrap_or(Duration::MAX);
        nanos(self.latency.saturating_add(transfer))
    }
}

/// Why a trace is no program. Ranks and operations are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("the trace has no ranks")]
    Empty,
    #[error("the trace has too many ranks or operations: expected fewer than 2^30")]
    TooLarge,
    #[error("rank {rank}, operation {operation}: rank {named} does not exist")]
    BadRank { rank: u32, operation: u32, named: u32 },
    #[error(
        "rank {rank}, operation {operation}: nothing that rank {from} sends with tag {tag} is left to receive"
    )]
    Unmatched { rank: u32, operation: u32, from: u32, tag: u32 },
    #[error("rank {rank}, operation {operation}: rank {spawned} is spawned twice")]
    SpawnedTwice { rank: u32, operation: u32, spawned: u32 },
    #[error("rank {rank} waits for ever at operation {operation}")]
    Deadlock { rank: u32, operation: u32 },
    #[error("the work of all ranks takes more than 100 years")]
    TooLong,
}

/// What a step ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepEnd {
    Receive,
    Send,
    Spawn,
    End,
}

/// Some work, and then one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) work: u64,
    /// [`NONE`] at the end.
    pub(crate) message: u32,
    /// The other rank, and the kind in the two highest bits.
    code: u32,
}

const PEER: u32 = (1 << 30) - 1;

impl Step {
    fn new(work: u64, message: u32, peer: u32, kind: StepEnd) -> Self {
        Self { work, message, code: peer | ((kind as u32) << 30) }
    }

    #[inline]
    pub(crate) fn kind(self) -> StepEnd {
        match self.code >> 30 {
            0 => StepEnd::Receive,
            1 => StepEnd::Send,
            2 => StepEnd::Spawn,
            _ => StepEnd::End,
        }
    }

    #[inline]
    pub(crate) fn peer(self) -> u32 {
        self.code & PEER
    }
}

/// A compiled trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    name: String,
    pub(crate) steps: Vec<Step>,
    /// Where each rank's steps begin; one more than ranks.
    pub(crate) first: Vec<u32>,
    /// Who lets each rank begin; [`NONE`] if it begins with the program.
    pub(crate) spawner: Vec<u32>,
    /// For each message, how long it is on its way; empty if none takes time.
    pub(crate) delays: Vec<u64>,
    /// For each message, who sends and who receives it.
    pub(crate) ends: Vec<(u32, u32)>,
    /// The work of each rank, summed.
    pub(crate) works: Vec<u64>,
    operations: u64,
    critical_path: u64,
}

impl Program {
    /// Matches a trace's messages and checks that it can run to its end.
    ///
    /// # Errors
    /// If the trace names ranks that do not exist, receives what nobody
    /// sends, spawns a rank twice, or waits for ever.
    pub fn compile(trace: &Trace, network: Network) -> Result<Self, CompileError> {
        let operations: usize = trace.ranks.iter().map(Vec::len).sum();
        let most = PEER as usize;
        match trace.ranks.len() {
            0 => return Err(CompileError::Empty),
            ranks if ranks > most || operations > most => return Err(CompileError::TooLarge),
            _ => {}
        }
        let mut matching = Matching::of(trace)?;
        let mut program = Self {
            name: trace.name.clone(),
            steps: Vec::with_capacity(operations + trace.ranks.len()),
            first: Vec::with_capacity(trace.ranks.len() + 1),
            spawner: matching.spawner.clone(),
            delays: vec![],
            ends: vec![],
            works: vec![],
            operations: operations as u64,
            critical_path: 0,
        };
        for (rank, ops) in ranks(trace) {
            program.first.push(index(program.steps.len()));
            program.add_rank(rank, ops, &mut matching, network)?;
        }
        program.first.push(index(program.steps.len()));
        matching.check_all_sent()?;
        (program.ends, program.delays) = (matching.ends, matching.delays);
        if program.delays.iter().all(|delay| *delay == 0) {
            program.delays.clear();
        }
        program.works = program.sums();
        program.critical_path = program.run_alone().map_err(|stuck| stuck.blame(trace))?;
        Ok(program)
    }

    fn add_rank(
        &mut self,
        rank: u32,
        ops: &[Op],
        matching: &mut Matching,
        network: Network,
    ) -> Result<(), CompileError> {
        if let Some(spawn) = matching.begin(rank) {
            self.steps.push(Step::new(0, spawn, self.spawner[rank as usize], StepEnd::Receive));
        }
        let mut work = 0_u64;
        for op in ops {
            let (message, peer, kind) = match *op {
                Op::Compute { nanos } => {
                    work = work.checked_add(nanos).ok_or(CompileError::TooLong)?;
                    continue;
                }
                Op::Send { to, bytes, tag } => (
                    matching.send((rank, to, Mark::Tag(tag)), network.delay(bytes)),
                    to,
                    StepEnd::Send,
                ),
                Op::Receive { from, tag } => {
                    (matching.receive((from, rank, Mark::Tag(tag))), from, StepEnd::Receive)
                }
                Op::Spawn { rank: to } => {
                    (matching.send((rank, to, Mark::Spawn), network.delay(0)), to, StepEnd::Spawn)
                }
            };
            self.steps.push(Step::new(std::mem::take(&mut work), message, peer, kind));
        }
        self.steps.push(Step::new(work, NONE, rank, StepEnd::End));
        Ok(())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn ranks(&self) -> u32 {
        index(self.spawner.len())
    }

    /// The trace's operations: computing, sending, receiving, spawning.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    pub fn messages(&self) -> u32 {
        index(self.ends.len())
    }

    /// Who sends a message, and who receives it or would.
    pub fn message(&self, message: u32) -> (u32, u32) {
        self.ends[message as usize]
    }

    /// How long the program takes where no owner ever comes.
    pub fn critical_path(&self) -> Duration {
        Duration::from_nanos(self.critical_path)
    }

    /// The work of all ranks.
    pub fn work(&self) -> Duration {
        Duration::from_nanos(self.works.iter().sum())
    }

    /// The work of each rank. Saturates: what is too long is refused later.
    fn sums(&self) -> Vec<u64> {
        let sum = |rank: &[u32]| {
            let steps = &self.steps[rank[0] as usize..rank[1] as usize];
            steps.iter().fold(0, |sum: u64, step| sum.saturating_add(step.work))
        };
        self.first.windows(2).map(sum).collect()
    }

    #[inline]
    pub(crate) fn delay(&self, message: u32) -> u64 {
        self.delays.get(message as usize).copied().unwrap_or(0)
    }

    /// Runs where no owner ever comes, and says how long that takes.
    fn run_alone(&self) -> Result<u64, Stuck> {
        const CENTURY: u128 = 100 * 365 * 86_400 * 1_000_000_000;
        if self.steps.iter().map(|step| u128::from(step.work)).sum::<u128>()
            + self.delays.iter().map(|delay| u128::from(*delay)).sum::<u128>()
            > CENTURY
        {
            return Err(Stuck::TooLong);
        }
        let mut alone = Alone {
            arrival: vec![None; self.ends.len()],
            clock: vec![0; self.spawner.len()],
            at: self.first[..self.spawner.len()].to_vec(),
            ready: (0..self.ranks()).rev().collect(),
        };
        while let Some(rank) = alone.ready.pop() {
            alone.advance(self, rank);
        }
        for (rank, (at, end)) in (0..).zip(alone.at.iter().zip(&self.first[1..])) {
            if at < end {
                let before = at - self.first[rank as usize];
                let begins = u32::from(self.spawner[rank as usize] != NONE);
                return Err(Stuck::Waits { rank, step: before.checked_sub(begins) });
            }
        }
        Ok(alone.clock.iter().copied().max().unwrap_or(0))
    }
}

/// Ranks that nobody disturbs.
struct Alone {
    arrival: Vec<Option<u64>>,
    clock: Vec<u64>,
    at: Vec<u32>,
    ready: Vec<u32>,
}

impl Alone {
    /// Until it blocks or ends.
    fn advance(&mut self, program: &Program, rank: u32) {
        let (clock, at) = (&mut self.clock[rank as usize], &mut self.at[rank as usize]);
        let mut clock_now = *clock;
        let mut at_now = *at;
        while at_now < program.first[rank as usize + 1] {
            let step = program.steps[at_now as usize];
            match step.kind() {
                StepEnd::Receive => {
                    let Some(arrival) = self.arrival[step.message as usize] else { break };
                    clock_now = (clock_now + step.work).max(arrival);
                }
                StepEnd::Send | StepEnd::Spawn => {
                    clock_now += step.work;
                    let arrival = clock_now + program.delay(step.message);
                    self.arrival[step.message as usize] = Some(arrival);
                    self.ready.push(step.peer());
                }
                StepEnd::End => clock_now += step.work,
            }
            at_now += 1;
        }
        (*clock, *at) = (clock_now, at_now);
    }
}

/// Why a program does not come to its end.
enum Stuck {
    TooLong,
    /// A rank waits for ever at this step of its own; before them all if it was
    /// never spawned.
    Waits {
        rank: u32,
        step: Option<u32>,
    },
}

impl Stuck {
    /// Finds the operation of a step.
    fn blame(self, trace: &Trace) -> CompileError {
        let Self::Waits { rank, step } = self else { return CompileError::TooLong };
        let ops = (0..).zip(trace.ranks.get(rank as usize).map_or(&[][..], Vec::as_slice));
        let mut steps = ops.filter(|(_, op)| !matches!(op, Op::Compute { .. }));
        let named = step.and_then(|step| steps.nth(step as usize));
        let operation = named.map_or(0, |(operation, _)| operation);
        CompileError::Deadlock { rank, operation }
    }
}

fn ranks(trace: &Trace) -> impl Iterator<Item = (u32, &[Op])> {
    (0..).zip(trace.ranks.iter().map(Vec::as_slice))
}

/// Counts are checked against 2^30 before anything is compiled.
fn index(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(NONE)
}

#[cfg(test)]
mod tests;
