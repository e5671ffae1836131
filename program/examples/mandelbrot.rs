//! The Mandelbrot set by a bag of tasks, as Piranha's programs are made
//! (Phalen 1994, §4.1.1): rank 0 puts in bands of rows, whoever is free takes
//! one. Who is asked to retreat hands in the rows that are ready and puts the
//! others back as a task of their own. Models 1 to 4 of Table 1; the README
//! says how.
//!
//! The answer, how many steps the points take, is checked by the set's
//! symmetry (a row and its mirror are done by different ranks at different
//! times) and by rows that rank 0 computes itself.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program's answer")]

#[path = "support/tell.rs"]
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Parser;
use gleaner_program::{Communicator, Error, Failure, Run, TaskId, live};
use serde::{Deserialize, Serialize};
use tell::Answer;

#[derive(Clone, Debug, Parser)]
struct Options {
    /// Points of a side; an even number.
    #[arg(long, value_name = "N", default_value_t = 512)]
    size: u32,
    /// Steps after which a point counts as one of the set.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    depth: u32,
    /// Rows of a task.
    #[arg(long, value_name = "N", default_value_t = 8)]
    rows: u32,
    /// Rank 0 begins alone, asks how many processors there are, and spawns as
    /// many workers, but no more than this (models 3 and 4).
    #[arg(long, value_name = "MAX")]
    spawn: Option<u32>,
    /// Asks again with each result, and spawns more (model 4).
    #[arg(long, requires = "spawn")]
    again: bool,
    /// Waits so long after each row: to watch many ranks on few processors.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    linger: u64,
    /// Ranks of a run in one process.
    #[arg(long, value_name = "N", default_value_t = 5)]
    ranks: u32,
}

/// A row and how many steps its points take.
type Row = (u32, u64);

/// What rank 0 has collected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Collected {
    /// By row: one may come twice, from a worker that had no time to hand in
    /// what was ready.
    rows: BTreeMap<u32, u64>,
    tasks: u32,
    workers: BTreeSet<u32>,
}

fn main() -> ExitCode {
    tell::tell("mandelbrot", solve(&Options::parse()))
}

fn solve(options: &Options) -> Result<Answer, Failure> {
    if options.size == 0 || !options.size.is_multiple_of(2) || options.rows == 0 {
        return Err("--size: expected an even number; --rows: expected 1 or more".into());
    }
    let run = match options.spawn {
        Some(most) => Run { ranks: 1, processors: most, ..Run::default() },
        None => Run { ranks: options.ranks, ..Run::default() },
    };
    let outcome = live::run(run, |comm| {
        if comm.rank() == 0 {
            host(comm, options).map(Some)
        } else {
            work(comm, options).map(|()| None)
        }
    })?;
    Ok(match outcome.values.get(&0) {
        Some(Some(collected)) => check(collected, options),
        _ => Ok(None),
    })
}

fn host(comm: &mut Communicator, options: &Options) -> Result<Collected, Failure> {
    let mut collected = match comm.restore() {
        Some(state) => postcard::from_bytes(&state)?,
        None => put_all(comm, options)?,
    };
    let mut spawned = 0;
    while collected.rows.len() < options.size as usize {
        if spawned == 0 || options.again {
            spawned += spawn(comm, options.spawn.unwrap_or(0).saturating_sub(spawned))?;
        }
        let (_, result) = comm.next_result()?.ok_or("the bag was closed by somebody else")?;
        collected.add(postcard::from_bytes(&result)?);
        comm.save(&bytes(&collected))?;
    }
    // Not before: a worker that retreats puts tasks in.
    comm.close_bag()?;
    Ok(collected)
}

fn put_all(comm: &mut Communicator, options: &Options) -> Result<Collected, Failure> {
    for first in (0..options.size).step_by(options.rows as usize) {
        let end = options.size.min(first + options.rows);
        comm.add_task(&bytes(&(first..end)))?;
    }
    let collected = Collected::default();
    comm.save(&bytes(&collected))?;
    Ok(collected)
}

/// As many as there are processors; gives how many began.
fn spawn(comm: &mut Communicator, most: u32) -> Result<u32, Failure> {
    if most == 0 {
        return Ok(0);
    }
    let wanted = most.min(comm.processors()?);
    match comm.spawn(wanted) {
        Ok(_) => Ok(wanted),
        // Somebody was faster.
        Err(Error::NoProcessors { .. }) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// What a worker has in hand: its task, and the rows that are ready.
#[derive(Clone, Debug)]
struct InHand {
    task: TaskId,
    ready: Vec<Row>,
    rows: Range<u32>,
}

type Hand = Arc<Mutex<Option<InHand>>>;

fn open(hand: &Hand) -> MutexGuard<'_, Option<InHand>> {
    hand.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(comm: &mut Communicator, options: &Options) -> Result<(), Failure> {
    let hand = Hand::default();
    let left = Arc::clone(&hand);
    comm.on_retreat(move |comm| {
        let in_hand = open(&left).take();
        in_hand.map_or(Ok(()), |in_hand| hand_in(comm, &in_hand))
    });
    while let Some(task) = comm.next_task()? {
        let rows: Range<u32> = postcard::from_bytes(&task.work)?;
        *open(&hand) = Some(InHand { task: task.id, ready: vec![], rows: rows.clone() });
        for row in rows {
            let steps = row_steps(row, options);
            std::thread::sleep(Duration::from_millis(options.linger));
            if let Some(in_hand) = open(&hand).as_mut() {
                in_hand.ready.push((row, steps));
            }
            // The owner may be back: a row is ready, and so never done again.
            comm.heed()?;
        }
        let in_hand = open(&hand).clone();
        in_hand.map_or(Ok(()), |in_hand| hand_in(comm, &in_hand))?;
        *open(&hand) = None;
    }
    if comm.parent().is_some() {
        // Its processor is free before its process has ended.
        comm.leave()?;
        println!("mandelbrot: rank {} has left", comm.rank());
    }
    Ok(())
}

/// First what is left, then what is ready: between the two a row may come to
/// be done twice, but never not at all.
fn hand_in(comm: &mut Communicator, in_hand: &InHand) -> Result<(), Error> {
    let InHand { task, ready, rows } = in_hand;
    let left = rows.start + u32::try_from(ready.len()).unwrap_or(0);
    if left < rows.end {
        comm.add_task(&bytes(&(left..rows.end)))?;
    }
    comm.done(*task, &bytes(&(comm.rank(), ready)))
}

fn bytes(of: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(of).unwrap_or_else(|error| unreachable!("it is written to memory: {error}"))
}

impl Collected {
    /// Takes in a result: the worker's rank, and its rows.
    fn add(&mut self, (worker, rows): (u32, Vec<Row>)) {
        self.workers.insert(worker);
        self.tasks += 1;
        self.rows.extend(rows);
    }
}

/// The steps of a row's points, together.
fn row_steps(row: u32, options: &Options) -> u64 {
    (0..options.size).map(|column| u64::from(steps(column, row, options))).sum()
}

fn steps(column: u32, row: u32, options: &Options) -> u32 {
    let size = f64::from(options.size);
    // Exactly mirrored at the real axis.
    let place = |at: u32| (2.0 * f64::from(at) + 1.0 - size) / size;
    let (real, imaginary) = (1.25 * place(column) - 0.75, 1.25 * place(row));
    let (mut x, mut y) = (0.0, 0.0);
    for step in 0..options.depth {
        let (xx, yy) = (x * x, y * y);
        if xx + yy > 4.0 {
            return step;
        }
        y = 2.0 * x * y + imaginary;
        x = xx - yy + real;
    }
    options.depth
}

fn check(collected: &Collected, options: &Options) -> Answer {
    let Options { size, .. } = *options;
    let rows = &collected.rows;
    for row in 0..size {
        let found = rows.get(&row).ok_or_else(|| format!("row {row} is missing"))?;
        if Some(found) != rows.get(&(size - 1 - row)) {
            return Err(format!("row {row} is not its mirror: {found} steps"));
        }
        let expected = (row % 64 == 0).then(|| row_steps(row, options));
        if expected.is_some_and(|expected| expected != *found) {
            return Err(format!("row {row}: {found} steps, expected {expected:?}"));
        }
    }
    let (steps, tasks) = (rows.values().sum::<u64>(), collected.tasks);
    let workers: Vec<String> = collected.workers.iter().map(ToString::to_string).collect();
    let (count, named) = (workers.len(), workers.join(" "));
    let told =
        format!("{size} x {size} points, {steps} steps, {tasks} tasks by {count} ranks: {named}");
    Ok(Some(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_row_is_found_out() {
        let options = Options::parse_from(["", "--size", "4"]);
        let mut collected = Collected::default();
        (0..4).for_each(|row| {
            collected.rows.insert(row, row_steps(row, &options));
        });
        check(&collected, &options).unwrap();
        collected.rows.insert(2, 1);
        check(&collected, &options).unwrap_err();
        collected.rows.remove(&1);
        check(&collected, &options).unwrap_err();
    }
}
