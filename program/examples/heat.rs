//! Heat on a plate, by a program that changes its size as it runs: rows of a
//! mesh, divided among as many ranks as there are, and divided anew whenever
//! that was agreed. What it comes to is the same to the last bit, whatever the
//! sizes were; it is compared with what one rank alone computes.
//!
//! Rank 0 speaks for the program. It takes what it is offered up to `--max`, in
//! whole multiples of `--multiple` ranks, and gives down to `--min`; with
//! `--request N` it also asks for more in the middle of its rounds, and with
//! `--release N` it gives some back after that.
//!
//! Sources: Ghafoor 2007, §4.3.4, for what a malleable program must be able to
//! do; Buisson et al. 2007, §VI.A, for one that takes less than it is offered.

#![expect(clippy::print_stdout, reason = "a program's answer")]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::Parser;
use gleaner_program::{
    Agreed, Change, Communicator, Error, Failure, Obligation, Proposal, Response, Run, live,
};

/// Sweeps between two looks at what was agreed.
const SWEEPS: usize = 5;

const DOWN: u32 = 1;
const UP: u32 = 2;
const PLAN: u32 = 3;
const ROWS: u32 = 4;
const RESULT: u32 = 5;

#[derive(Clone, Debug, Parser)]
struct Options {
    /// Points of a side.
    #[arg(long, value_name = "N", default_value = "64")]
    size: usize,
    /// How often all ranks look at what was agreed.
    #[arg(long, value_name = "N", default_value = "40")]
    rounds: u32,
    /// Sleep so long in each round, as if there were more to compute.
    #[arg(long, value_name = "MS", default_value = "0")]
    linger: u64,
    #[arg(long, value_name = "N", default_value = "1")]
    min: u32,
    #[arg(long, value_name = "N", default_value = "16")]
    max: u32,
    /// Runs on multiples of so many ranks alone.
    #[arg(long, value_name = "N", default_value = "1")]
    multiple: u32,
    /// Asks for so many more after a third of its rounds.
    #[arg(long, value_name = "N", default_value = "0")]
    request: u32,
    /// Gives so many back after half of them.
    #[arg(long, value_name = "N", default_value = "0")]
    release: u32,
    /// Run by itself: how many ranks begin, and how many more there could be.
    #[arg(long, value_name = "N", default_value = "2")]
    ranks: u32,
    #[arg(long, value_name = "N", default_value = "4")]
    processors: u32,
    /// Run by itself: what it is offered (3) or asked for (-2), in this order.
    #[arg(long, value_name = "CHANGE", allow_hyphen_values = true)]
    offer: Vec<i32>,
}

fn main() -> ExitCode {
    match perform(&Options::parse()) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(told)) => {
            println!("heat: {told}");
            if told.starts_with("answer ok") { ExitCode::SUCCESS } else { ExitCode::from(100) }
        }
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "why it failed")]
            {
                eprintln!("heat: {error}");
            }
            ExitCode::from(2)
        }
    }
}

/// What rank 0 says of the answer, if it is here.
fn perform(options: &Options) -> Result<Option<String>, Failure> {
    if options.size < 2 || options.multiple == 0 || options.min == 0 {
        return Err("--size: expected at least 2; --multiple and --min: at least 1".into());
    }
    let change = |by: &i32| match *by {
        by if by < 0 => (Change::Shrink { by: by.unsigned_abs() }, Obligation::Mandatory),
        by => (Change::Grow { by: by.unsigned_abs() }, Obligation::Voluntary),
    };
    let run = Run {
        ranks: options.ranks,
        processors: options.processors,
        offers: options.offer.iter().map(change).collect(),
        ..Run::default()
    };
    let outcome = live::run(run, |comm| rank(comm, options))?;
    Ok(outcome.values.into_values().flatten().next())
}

/// Who works on the mesh from this round on, in the order of their rows, and
/// who did before.
#[derive(Clone, Debug, PartialEq)]
struct Plan {
    round: u32,
    before: Vec<u32>,
    team: Vec<u32>,
}

impl Plan {
    fn to_values(&self) -> Vec<u32> {
        let before = u32::try_from(self.before.len()).unwrap_or(0);
        [&[self.round, before][..], &self.before, &self.team].concat()
    }

    fn from_values(values: &[u32]) -> Result<Self, Failure> {
        let [round, before, ranks @ ..] = values else { return Err("no plan".into()) };
        let (before, team) = ranks.split_at_checked(*before as usize).ok_or("half a plan")?;
        Ok(Self { round: *round, before: before.to_vec(), team: team.to_vec() })
    }
}

/// The rows of the one at this place of so many.
fn rows(place: usize, of: usize, size: usize) -> Range<usize> {
    place * size / of..(place + 1) * size / of
}

fn place(rank: u32, team: &[u32]) -> Option<usize> {
    team.iter().position(|other| *other == rank)
}

/// The rows that this rank of a team has.
fn rows_of(rank: u32, team: &[u32], size: usize) -> Range<usize> {
    place(rank, team).map_or(0..0, |at| rows(at, team.len(), size))
}

fn both(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let first = one.start.max(other.start);
    first..one.end.min(other.end).max(first)
}

struct Mesh {
    size: usize,
    rows: Range<usize>,
    /// With one row more at either end: a neighbour's, or the edge.
    values: Vec<f64>,
}

impl Mesh {
    fn new(size: usize, rows: Range<usize>) -> Self {
        let mut values = vec![0.0; (rows.len() + 2) * size];
        if rows.start == 0 {
            // The upper edge is hot, and more so to the right.
            for (column, value) in values[..size].iter_mut().enumerate() {
                *value = 100.0 + column as f64;
            }
        }
        Self { size, rows, values }
    }

    fn part(&self, rows: Range<usize>) -> &[f64] {
        let from = |row: usize| (row + 1 - self.rows.start) * self.size;
        &self.values[from(rows.start)..from(rows.end)]
    }

    /// Puts rows in from this one on; the one before the first is row 0 here.
    fn put(&mut self, at: usize, values: &[f64]) {
        let at = at * self.size;
        self.values[at..at + values.len()].copy_from_slice(values);
    }

    fn sweep(&mut self) {
        let size = self.size;
        let old = &self.values;
        let of = |at: usize| {
            let column = at % size;
            let left = if column == 0 { 0.0 } else { old[at - 1] };
            let right = if column + 1 == size { 0.0 } else { old[at + 1] };
            0.25 * (old[at - size] + old[at + size] + left + right)
        };
        let own = size..size * (self.rows.len() + 1);
        let next: Vec<f64> = own.clone().map(of).collect();
        self.values[own].copy_from_slice(&next);
    }

    /// The rows at either end go to the neighbours, and theirs come.
    fn exchange(&mut self, comm: &mut Communicator, team: &[u32]) -> Result<(), Failure> {
        let Some(at) = place(comm.rank(), team) else { return Ok(()) };
        let (above, below) = (at.checked_sub(1).map(|at| team[at]), team.get(at + 1).copied());
        let (first, last) = (self.rows.start, self.rows.end);
        if let Some(above) = above {
            comm.send_values(above, UP, self.part(first..first + 1))?;
        }
        if let Some(below) = below {
            comm.send_values(below, DOWN, self.part(last - 1..last))?;
        }
        if let Some(above) = above {
            let row: Vec<f64> = comm.recv_values(above, DOWN)?;
            self.put(0, &row);
        }
        if let Some(below) = below {
            let row: Vec<f64> = comm.recv_values(below, UP)?;
            self.put(last + 1 - first, &row);
        }
        Ok(())
    }

    /// The same values, divided among another team.
    fn redistribute(&mut self, comm: &mut Communicator, plan: &Plan) -> Result<(), Failure> {
        let (size, own) = (self.size, comm.rank());
        let new = rows_of(own, &plan.team, size);
        for to in plan.team.iter().copied().filter(|to| *to != own) {
            let common = both(&self.rows, &rows_of(to, &plan.team, size));
            if !common.is_empty() {
                comm.send_values(to, ROWS, self.part(common))?;
            }
        }
        let mut next = Self::new(size, new.clone());
        let kept = both(&self.rows, &new);
        if !kept.is_empty() {
            next.put(kept.start + 1 - new.start, self.part(kept));
        }
        for from in plan.before.iter().copied().filter(|from| *from != own) {
            let common = both(&rows_of(from, &plan.before, size), &new);
            if !common.is_empty() {
                let values: Vec<f64> = comm.recv_values(from, ROWS)?;
                next.put(common.start + 1 - new.start, &values);
            }
        }
        *self = next;
        Ok(())
    }
}

/// Gives what rank 0 says of the answer.
fn rank(comm: &mut Communicator, options: &Options) -> Result<Option<String>, Failure> {
    let (own, size) = (comm.rank(), options.size);
    let began_later = comm.members().start > 0;
    let mut plan = if began_later {
        match comm.recv_values::<u32>(0, PLAN) {
            // It was over before this rank began.
            Err(Error::PeerGone { .. }) => return Ok(None),
            values => Plan::from_values(&values?)?,
        }
    } else {
        let team: Vec<u32> = comm.members().collect();
        Plan { round: 0, before: team.clone(), team }
    };
    let mut mesh = Mesh::new(size, rows_of(own, &plan.before, size));
    if began_later {
        mesh.redistribute(comm, &plan)?;
    }
    let mut leader = if own == 0 { Some(Leader::new(comm, options, &plan)?) } else { None };
    while plan.round < options.rounds {
        for _ in 0..SWEEPS {
            mesh.exchange(comm, &plan.team)?;
            mesh.sweep();
        }
        std::thread::sleep(Duration::from_millis(options.linger));
        plan = match &mut leader {
            Some(leader) => leader.look(comm, options, &plan)?,
            None => Plan::from_values(&comm.recv_values(0, PLAN)?)?,
        };
        if plan.team != plan.before {
            mesh.redistribute(comm, &plan)?;
        }
        if place(own, &plan.team).is_none() {
            comm.leave()?;
            return Ok(None);
        }
    }
    let Some(leader) = leader else {
        comm.send_values(0, RESULT, mesh.part(mesh.rows.clone()))?;
        return Ok(None);
    };
    let mut found = mesh.part(mesh.rows.clone()).to_vec();
    for other in &plan.team[1..] {
        found.extend(comm.recv_values::<f64>(*other, RESULT)?);
    }
    Ok(Some(check(&found, options, &leader.sizes)))
}

fn check(found: &[f64], options: &Options, sizes: &[usize]) -> String {
    let mut alone = Mesh::new(options.size, 0..options.size);
    (0..options.rounds as usize * SWEEPS).for_each(|_| alone.sweep());
    let expected = alone.part(0..options.size);
    let is_same = found.len() == expected.len()
        && found.iter().zip(expected).all(|(one, other)| one.to_bits() == other.to_bits());
    let verdict = if is_same { "answer ok" } else { "wrong answer" };
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    format!("{verdict}: {0} x {0} points by {1} ranks", options.size, sizes.join(", then "))
}

/// Rank 0, which decides for all.
struct Leader {
    /// How many work on it: what an offer is answered by. 0: it is about to end.
    size: Arc<AtomicU32>,
    sizes: Vec<usize>,
}

impl Leader {
    fn new(comm: &mut Communicator, options: &Options, plan: &Plan) -> Result<Self, Failure> {
        let size = Arc::new(AtomicU32::new(u32::try_from(plan.team.len())?));
        let (seen, options) = (Arc::clone(&size), options.clone());
        comm.on_offer(move |proposal| answer(proposal, seen.load(Ordering::Relaxed), &options))?;
        Ok(Self { size, sizes: vec![plan.team.len()] })
    }

    /// Offers are answered by this from now on.
    fn is_now(&self, team: &[u32], is_last: bool) -> Result<(), Failure> {
        let size = if is_last { 0 } else { u32::try_from(team.len())? };
        self.size.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// What follows for all from what was agreed since.
    fn look(
        &mut self,
        comm: &mut Communicator,
        options: &Options,
        plan: &Plan,
    ) -> Result<Plan, Failure> {
        let (round, mut team) = (plan.round + 1, plan.team.clone());
        let (is_last, mut too_late) = (round >= options.rounds, vec![]);
        if is_last {
            self.is_now(&team, is_last)?;
            // With its answer all is here that was agreed before.
            comm.processors()?;
        }
        let shrink = |team: &mut Vec<u32>, by: u32| {
            team.truncate(team.len().saturating_sub(by as usize).max(1));
        };
        while let Some(agreed) = comm.agreed()? {
            match agreed {
                Agreed::More(ranks) if is_last => too_late.extend(ranks),
                Agreed::More(ranks) => team.extend(ranks),
                Agreed::Fewer { by, enforced: false } => shrink(&mut team, by),
                // The ranks go on, on fewer processors.
                Agreed::Fewer { enforced: true, .. } => {}
            }
            self.is_now(&team, is_last)?;
        }
        if options.request > 0 && round == options.rounds / 3 {
            team.extend(comm.request(options.request)?);
        }
        if options.release > 0 && round == options.rounds / 2 {
            let by = comm.release(options.release)?;
            shrink(&mut team, by);
        }
        if team.len() != plan.team.len() {
            self.sizes.push(team.len());
        }
        self.is_now(&team, is_last)?;
        let next = Plan { round, before: plan.team.clone(), team };
        let newcomers = next.team.iter().filter(|rank| place(**rank, &plan.team).is_none());
        for to in plan.team[1..].iter().chain(newcomers).chain(&too_late) {
            comm.send_values(*to, PLAN, &next.to_values())?;
        }
        Ok(next)
    }
}

/// As many as make a whole multiple, within the bounds.
fn answer(proposal: &Proposal, size: u32, options: &Options) -> Response {
    if size == 0 {
        return Response::Decline;
    }
    let whole = |size: u32| size - size % options.multiple;
    let by = match proposal.change {
        Change::Grow { by } => whole(size.saturating_add(by).min(options.max)).saturating_sub(size),
        Change::Shrink { by } => {
            size.saturating_sub(whole(size.saturating_sub(by)).max(options.min))
        }
    };
    Response::instead(proposal, by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_sizes(arguments: &str, sizes: &str) {
        let options = Options::parse_from(["heat"].into_iter().chain(arguments.split(' ')));
        let told = perform(&options).unwrap().unwrap();
        assert_eq!(told, format!("answer ok: 20 x 20 points by {sizes} ranks"), "{arguments}");
    }

    #[test]
    fn the_answer_is_the_same_whatever_the_sizes_were() {
        for (arguments, sizes) in [
            ("--size 20 --ranks 1", "1"),
            ("--size 20 --ranks 3", "3"),
            ("--size 20 --offer 3", "2, then 5"),
            ("--size 20 --offer 3 --offer -2 --offer 1", "2, then 5, then 3, then 4"),
            // It takes less than it is offered, and gives more than it is asked for.
            ("--size 20 --offer 3 --multiple 2", "2, then 4"),
            ("--size 20 --ranks 4 --offer -1 --multiple 2", "4, then 2"),
            ("--size 20 --offer 3 --max 3", "2, then 3"),
            ("--size 20 --request 9 --release 3", "2, then 6, then 3"),
        ] {
            check_sizes(arguments, sizes);
        }
    }

    #[test]
    fn rows_are_divided_without_gaps() {
        for of in 1..9 {
            let all: Vec<usize> = (0..of).flat_map(|place| rows(place, of, 20)).collect();
            assert_eq!(all, (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_wrong_value_is_found_out() {
        let options = Options::parse_from(["heat", "--size", "4", "--rounds", "1"]);
        assert!(check(&[0.0; 16], &options, &[1]).starts_with("wrong answer"));
    }
}
