//! What is measured, and the two ranks that it is measured between.

use std::io::{Read, Write};

use anyhow::{Result, bail};
use clap::ValueEnum;
use gleaner_program::{Communicator, Failure, Run, live};
use gleaner_shell::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::record::{median, percentile};
use gleaner_cli::output;

pub(super) const BLOCK_BYTES: usize = 16 << 20;
const BLOCKS: usize = 40;

const PING: u32 = 1;

/// Arguments of the hidden `glean-bench ping`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Args {
    /// How often a byte goes there and back.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) rounds: u32,
    /// Who this process is.
    #[arg(long, value_enum, default_value = "rank")]
    pub(crate) part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// One of two ranks.
    Rank,
    /// Passes on between two sockets, its standard input and output.
    Relay,
    /// Answers on a socket, its standard input.
    Echo,
}

/// What was found between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) rounds: u64,
    /// There and back.
    pub(super) p50_s: f64,
    pub(super) p99_s: f64,
    pub(super) max_s: f64,
    /// A block there and one byte back; the median.
    pub(super) block_s: f64,
}

/// What goes there; one byte comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    One,
    Block,
}

/// Times round trips and blocks after some that do not count.
pub(super) fn measure<E>(
    rounds: u32,
    mut round: impl FnMut(What) -> Result<(), E>,
) -> Result<Figures, E> {
    let mut spans = vec![];
    for number in 0..rounds + rounds / 10 {
        let begun = Clock.now();
        round(What::One)?;
        if number >= rounds / 10 {
            spans.push(Clock.now().since(begun).as_secs_f64());
        }
    }
    let mut blocks = vec![];
    for number in 0..BLOCKS + 2 {
        let begun = Clock.now();
        round(What::Block)?;
        if number >= 2 {
            blocks.push(Clock.now().since(begun).as_secs_f64());
        }
    }
    spans.sort_by(f64::total_cmp);
    let of = |part| percentile(&spans, part).unwrap_or(f64::NAN);
    Ok(Figures {
        rounds: u64::from(rounds),
        p50_s: of(0.5),
        p99_s: of(0.99),
        max_s: of(1.0),
        block_s: median(&blocks),
    })
}

/// # Errors
/// The other end is gone.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.part {
        Part::Rank => rank(args.rounds),
        Part::Relay => relay(),
        Part::Echo => echo(),
    }
}

fn rank(rounds: u32) -> Result<()> {
    let outcome = live::run(Run { ranks: 2, ..Run::default() }, |comm| {
        if comm.size() < 2 {
            return Err("1 rank: expected 2".into());
        }
        match comm.rank() {
            0 => ask(comm, rounds).map(Some),
            1 => answer(comm).map(|()| None),
            _ => Ok(None),
        }
    })?;
    match outcome.values.get(&0) {
        Some(Some(figures)) => output::record(figures),
        _ => Ok(()),
    }
}

fn ask(comm: &mut Communicator, rounds: u32) -> Result<Figures, Failure> {
    let bytes = vec![7; BLOCK_BYTES];
    let figures = measure(rounds, |what| {
        comm.send(1, PING, if what == What::One { b"x" } else { &bytes })?;
        comm.recv(1, PING)?;
        Ok::<_, Failure>(())
    })?;
    // An empty one is the last.
    comm.send(1, PING, &[])?;
    Ok(figures)
}

fn answer(comm: &mut Communicator) -> Result<(), Failure> {
    loop {
        let message = comm.recv(0, None)?;
        if message.bytes.is_empty() {
            return Ok(());
        }
        comm.send(0, PING, b"x")?;
    }
}

impl What {
    /// What is said to an echo, which answers with the first byte.
    pub(crate) fn spoken(self) -> Vec<u8> {
        match self {
            Self::One => vec![ONE],
            Self::Block => [vec![WHOLE], vec![7; BLOCK_BYTES]].concat(),
        }
    }

    /// How much an echo takes after the first byte.
    pub(crate) fn rest(first: u8) -> usize {
        if first == WHOLE { BLOCK_BYTES } else { 0 }
    }
}

const ONE: u8 = b'p';
const WHOLE: u8 = b'b';

/// Both ways at once, as an agent has to.
fn relay() -> Result<()> {
    let (one, other) = (socket(0)?, socket(1)?);
    let (one_back, other_back) = (one.try_clone()?, other.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| pass_on(one, other));
        scope.spawn(|| pass_on(other_back, one_back));
    });
    Ok(())
}

fn pass_on(mut from: std::fs::File, mut to: std::fs::File) {
    let mut buffer = vec![0; 256 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
    // The other side is to hear of the end; the rest follows from it.
    std::process::exit(0);
}

fn echo() -> Result<()> {
    let mut socket = socket(0)?;
    let (mut first, mut buffer) = ([0], vec![0; 256 << 10]);
    while socket.read(&mut first)? == 1 {
        let mut left = What::rest(first[0]);
        while left > 0 {
            let most = left.min(buffer.len());
            match socket.read(&mut buffer[..most])? {
                0 => bail!("the block was cut short"),
                read => left -= read,
            }
        }
        socket.write_all(&first)?;
    }
    Ok(())
}

/// The descriptor that this process was started with, as a file to read and
/// write.
fn socket(number: u32) -> Result<std::fs::File> {
    use std::os::fd::AsFd;
    let own = match number {
        0 => std::io::stdin().as_fd().try_clone_to_owned()?,
        _ => std::io::stdout().as_fd().try_clone_to_owned()?,
    };
    Ok(own.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_count_is_not_counted() {
        let (mut ones, mut blocks) = (0, 0);
        let figures = measure(100, |what| {
            match what {
                What::One => ones += 1,
                What::Block => blocks += 1,
            }
            Ok::<_, ()>(())
        });
        let figures = figures.unwrap();
        assert_eq!((figures.rounds, ones, blocks), (100, 110, BLOCKS + 2));
        assert!(figures.p50_s <= figures.p99_s && figures.p99_s <= figures.max_s);
    }

    #[test]
    fn two_ranks_of_one_process_are_measured_as_well() {
        let outcome = gleaner_program::run_in_process(Run { ranks: 2, ..Run::default() }, |comm| {
            if comm.rank() == 0 { ask(comm, 10).map(Some) } else { answer(comm).map(|()| None) }
        });
        assert_eq!(outcome.unwrap().values[&0].unwrap().rounds, 10);
    }

    #[test]
    fn an_echo_knows_how_much_comes() {
        for what in [What::One, What::Block] {
            let spoken = what.spoken();
            assert_eq!(1 + What::rest(spoken[0]), spoken.len());
        }
    }
}
