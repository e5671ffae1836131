//! An integral by halves: a rank that has an interval spawns another for one
//! half of it, keeps the other, and so on; where no processor is free it does
//! both. A spawned rank sends its part to whoever spawned it, and leaves. So
//! the program itself says how many processors it wants (models 7 and 8 of
//! Phalen 1994, Table 1).
//!
//! The answer is checked against the integral in closed form.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program's answer")]

#[path = "support/tell.rs"]
mod tell;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gleaner_program::{Communicator, Ending, Error, Failure, Run, live};
use tell::Answer;

const INTERVAL: u32 = 0;
const PART: u32 = 1;

/// Where the function has its peaks, and how narrow they are.
const PEAKS: [(f64, f64); 3] = [(0.3, 1e-3), (0.52, 1e-2), (0.9, 1e-3)];

#[derive(Clone, Debug, Parser)]
struct Options {
    /// How often the interval is halved.
    #[arg(long, value_name = "N", default_value_t = 3)]
    halvings: u32,
    /// Points at which the function is computed for each of the last parts.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    points: u32,
    /// Waits so long after each part: to watch many ranks on few processors.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    linger: u64,
    /// Processors of a run in one process.
    #[arg(long, value_name = "N", default_value_t = 4)]
    processors: u32,
}

/// What a rank has found: its part of the integral, and how many ranks did it.
type Part = (f64, u32);

#[derive(Clone, Copy, Debug)]
struct Interval {
    from: f64,
    to: f64,
    halvings: u32,
}

fn main() -> ExitCode {
    tell::tell("quadrature", solve(&Options::parse()))
}

fn solve(options: &Options) -> Result<Answer, Failure> {
    if options.halvings > 20 || options.points == 0 || options.processors == 0 {
        return Err("expected at most 20 halvings, and 1 or more of all else".into());
    }
    let run = Run { ranks: 1, processors: options.processors - 1, ..Run::default() };
    let outcome = live::run(run, |comm| match comm.parent() {
        None => {
            let whole = Interval { from: 0.0, to: 1.0, halvings: options.halvings };
            integrate(comm, whole, options).map(Some)
        }
        Some(parent) => help(comm, parent, options).map(|()| None),
    })?;
    Ok(match outcome.values.get(&0) {
        Some(Some(found)) => check(*found, options),
        _ => Ok(None),
    })
}

fn help(comm: &mut Communicator, parent: u32, options: &Options) -> Result<(), Failure> {
    let told: Vec<f64> = comm.recv_values(parent, INTERVAL)?;
    let &[from, to] = &told[..] else { return Err("an interval that is none".into()) };
    let halvings: Vec<u32> = comm.recv_values(parent, INTERVAL)?;
    let interval = Interval { from, to, halvings: halvings[0] };
    let part = integrate(comm, interval, options)?;
    comm.send_values(parent, PART, &[part])?;
    Ok(comm.leave()?)
}

fn integrate(
    comm: &mut Communicator,
    interval: Interval,
    options: &Options,
) -> Result<Part, Failure> {
    let Interval { from, to, halvings } = interval;
    if halvings == 0 {
        let part = simpson(from, to, options.points);
        std::thread::sleep(Duration::from_millis(options.linger));
        return Ok((part, 1));
    }
    let middle = f64::midpoint(from, to);
    let (left, right) = (
        Interval { from, to: middle, halvings: halvings - 1 },
        Interval { from: middle, to, halvings: halvings - 1 },
    );
    let helper = match comm.spawn(1) {
        Ok(ranks) => ranks.start,
        // All are busy: one after the other.
        Err(Error::NoProcessors { .. }) => {
            let (left, right) = (integrate(comm, left, options)?, integrate(comm, right, options)?);
            return Ok((left.0 + right.0, left.1 + right.1 - 1));
        }
        Err(error) => return Err(error.into()),
    };
    comm.send_values(helper, INTERVAL, &[right.from, right.to])?;
    comm.send_values(helper, INTERVAL, &[right.halvings])?;
    let mine = integrate(comm, left, options)?;
    let theirs: Vec<Part> = comm.recv_values(helper, PART)?;
    let ending = comm.join(helper)?;
    if ending != Ending::Left {
        return Err(format!("rank {helper} {ending}").into());
    }
    Ok((mine.0 + theirs[0].0, mine.1 + theirs[0].1))
}

fn function(x: f64) -> f64 {
    PEAKS.iter().map(|(at, width)| width / ((x - at) * (x - at) + width * width)).sum()
}

/// Simpson's rule.
fn simpson(from: f64, to: f64, points: u32) -> f64 {
    let width = (to - from) / f64::from(points);
    let part = |number: u32| {
        let (low, high) = (from + width * f64::from(number), from + width * f64::from(number + 1));
        function(low) + 4.0 * function(f64::midpoint(low, high)) + function(high)
    };
    (0..points).map(part).sum::<f64>() * width / 6.0
}

fn check((found, ranks): Part, options: &Options) -> Answer {
    let exact: f64 =
        PEAKS.iter().map(|(at, width)| ((1.0 - at) / width).atan() + (at / width).atan()).sum();
    let off = (found - exact).abs();
    let parts = 1_u64 << options.halvings;
    let told = format!("{found:.12} of {parts} parts by {ranks} ranks, off by {off:.1e}");
    if off < 1e-9 { Ok(Some(told)) } else { Err(told) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_integral_is_found_out() {
        let options = Options::parse_from([""]);
        let found = simpson(0.0, 1.0, 100_000);
        check((found, 1), &options).unwrap();
        check((found + 1e-6, 1), &options).unwrap_err();
    }

    #[test]
    fn a_program_that_gets_no_processor_does_it_alone() {
        let options = Options::parse_from(["", "--processors", "1", "--points", "20000"]);
        let told = solve(&options).unwrap().unwrap().unwrap();
        assert!(told.contains("8 parts by 1 ranks"), "{told}");
    }
}
