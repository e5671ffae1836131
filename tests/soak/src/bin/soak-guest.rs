//! What the jobs of the soak run: it computes slowly, and says in a log of its own
//! when it did.
//!
//! ```text
//! start JOB.INDEX NS      then  tick NS  ..  end NS
//! ```
//!
//! The log lies in its working directory and goes wherever that goes. Times are the
//! wall clock's, which no move of a process shifts.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program's answer")]

use std::fs::File;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_program::{Communicator, Failure, Run, live};
use rustix::time::{ClockId, clock_gettime};

/// How long a step takes, at least.
const STEP: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [what, first, steps, job, index] = words[..] else {
        eprintln!("soak-guest: expected sum or ring, FIRST, STEPS, JOB and INDEX");
        return ExitCode::from(2);
    };
    let mut log = Log::begin(&format!("{job}.{index}"));
    let done = match what {
        "sum" => sum(&mut log, first, steps, index),
        _ => ring(&log, first, steps),
    };
    match done {
        Ok(()) => {
            log.say("end");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("soak-guest: {error}");
            ExitCode::from(2)
        }
    }
}

/// The log. A disk that is full costs lines of it, and nothing else.
struct Log(Option<File>);

impl Log {
    fn begin(name: &str) -> Self {
        let mut log = Self(File::options().create(true).append(true).open("witness").ok());
        log.say(&format!("start {name}"));
        log
    }

    fn again(&self) -> Self {
        Self(self.0.as_ref().and_then(|file| file.try_clone().ok()))
    }

    /// In one write, so that no line is half of one and half of another.
    fn say(&mut self, what: &str) {
        let now = clock_gettime(ClockId::Realtime);
        let line = format!(
            "{what} {}\n",
            i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
        );
        if let Some(file) = &mut self.0 {
            let _ = file.write_all(line.as_bytes());
        }
    }

    fn step(&mut self) {
        self.say("tick");
        std::thread::sleep(STEP);
    }
}

/// The sum of the squares of so many numbers from `first + index` on, one a step.
fn sum(log: &mut Log, first: &str, steps: &str, index: &str) -> Result<(), Failure> {
    let (first, steps, index): (u64, u64, u64) = (first.parse()?, steps.parse()?, index.parse()?);
    let first = first + index;
    let mut sum = 0_u64;
    for number in first..first + steps {
        log.step();
        sum = sum.wrapping_add(number.wrapping_mul(number));
    }
    // What cannot be said has not been computed.
    Ok(writeln!(std::io::stdout(), "{sum}")?)
}

/// A number goes round all ranks, each of which adds something in each round.
fn ring(log: &Log, first: &str, rounds: &str) -> Result<(), Failure> {
    let (first, rounds): (u64, u64) = (first.parse()?, rounds.parse()?);
    live::run(Run { ranks: 3, ..Run::default() }, |comm| {
        let mut log = log.again();
        let (round, value) = match comm.restore() {
            Some(state) => saved(&state).ok_or("a state that is none")?,
            None => (0, first),
        };
        let value = (round..rounds).try_fold(value, |value, round| {
            log.step();
            let value = go_round(comm, value, round)?;
            comm.save(&[(round + 1).to_le_bytes(), value.to_le_bytes()].concat())?;
            Ok::<_, Failure>(value)
        })?;
        if comm.rank() == 0 {
            println!("{value}");
        }
        Ok(())
    })?;
    Ok(())
}

fn go_round(comm: &mut Communicator, value: u64, round: u64) -> Result<u64, Failure> {
    let (rank, size) = (comm.rank(), comm.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let own = (u64::from(rank) + 1) * round;
    if rank == 0 {
        comm.send_values(right, 1, &[value])?;
    }
    let heard: Vec<u64> = comm.recv_values(left, 1)?;
    let [value] = heard[..] else { return Err("expected one number".into()) };
    let value = value.wrapping_add(own);
    if rank != 0 {
        comm.send_values(right, 1, &[value])?;
    }
    Ok(value)
}

fn saved(state: &[u8]) -> Option<(u64, u64)> {
    let (round, value) = state.split_at_checked(8)?;
    Some((u64::from_le_bytes(round.try_into().ok()?), u64::from_le_bytes(value.try_into().ok()?)))
}
