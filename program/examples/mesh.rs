//! Finite differences on a mesh: Poisson's equation on the unit square, solved
//! by Jacobi's iteration with Chebyshev's acceleration on a 4 x 4 grid of
//! nodes. A node keeps a margin of its neighbours' points some sweeps deep,
//! works it off, and then exchanges margins; every few rounds all agree on
//! whether the residual is small enough.
//!
//! Sources: Golub and Varga 1961 (the acceleration); Phalen 1994, Table 8,
//! program MSH. The answer is checked against the equation's known solution.

#![expect(clippy::print_stdout, reason = "a program's answer")]

mod support;

use std::f64::consts::PI;
use std::ops::Range;
use std::process::ExitCode;

use gleaner_program::{Communicator, Failure, Run};
use support::{HOST, NODES, Solved};

/// Inner points of a side: a multiple of [`GRID`].
const SIZE: usize = 256;
/// Nodes of a side.
const GRID: usize = 4;
/// Sweeps between two exchanges, at most; less where a block is smaller.
const DEPTH_MAX: usize = 40;
/// Rounds between two looks at the residual.
const LOOK_EVERY: usize = 5;
const ROUNDS_MAX: usize = 500;
/// Of the solution, whose largest value is about 0.07; on a fine mesh below
/// what its spacing leaves.
const TOLERANCE: f64 = 1e-5;

const INPUT: u32 = 0;
const OUTPUT: u32 = 1;
const WESTWARD: u32 = 2;
const EASTWARD: u32 = 3;
const NORTHWARD: u32 = 4;
const SOUTHWARD: u32 = 5;

fn main() -> ExitCode {
    support::perform("msh", SIZE, solve)
}

fn solve(run: Run, size: usize) -> Result<Solved, Failure> {
    if size < 2 * GRID || !size.is_multiple_of(GRID) {
        return Err(format!("--size: expected a multiple of {GRID}, from {}", 2 * GRID).into());
    }
    let sources = support::prepare(|| {
        (0..NODES).map(|node| source_of(node, size)).collect::<Vec<Vec<f64>>>()
    });
    let rank = |comm: &mut Communicator| {
        if comm.rank() == HOST {
            host(comm, &sources, size)
        } else {
            node(comm, size).map(|()| vec![])
        }
    };
    support::play(run, rank, |found| check(found, size))
}

fn check(found: &[f64], size: usize) -> Result<String, String> {
    let error = largest_error(found, size);
    let limit = 0.5 / (size as f64 + 1.0).powi(2);
    let told = format!("{size} x {size} points, largest error {error:.1e}, limit {limit:.1e}");
    if error < limit { Ok(told) } else { Err(told) }
}

/// The known solution, zero on the border: x(1-x)eˣ · y(1-y)e⁻ʸ.
fn solution(x: f64, y: f64) -> f64 {
    x * (1.0 - x) * x.exp() * y * (1.0 - y) * (-y).exp()
}

/// Minus its Laplacian.
fn source(x: f64, y: f64) -> f64 {
    let (ex, ey) = (x.exp(), (-y).exp());
    let (across, down) = (x * (1.0 - x) * ex, y * (1.0 - y) * ey);
    let (across_bent, down_bent) = (-x * (3.0 + x) * ex, (-4.0 + 5.0 * y - y * y) * ey);
    -(across_bent * down + across * down_bent)
}

fn coordinate(point: usize, size: usize) -> f64 {
    (point as f64 + 1.0) / (size as f64 + 1.0)
}

fn largest_error(found: &[f64], size: usize) -> f64 {
    let error = |(place, value): (usize, &f64)| {
        let (row, column) = (place / size, place % size);
        (value - solution(coordinate(column, size), coordinate(row, size))).abs()
    };
    if found.len() == size * size {
        found.iter().enumerate().map(error).fold(0.0, f64::max)
    } else {
        f64::INFINITY
    }
}

/// The source times the square of the spacing, in a node's block and margin.
fn source_of(node: u32, size: usize) -> Vec<f64> {
    let spacing = 1.0 / (size as f64 + 1.0);
    let layout = Layout::of(node, size);
    let value = |(i, j)| match (layout.row(i), layout.column(j)) {
        (Some(row), Some(column)) => {
            source(coordinate(column, size), coordinate(row, size)) * spacing * spacing
        }
        _ => 0.0,
    };
    let points = (0..layout.width).flat_map(|i| (0..layout.width).map(move |j| (i, j)));
    points.map(value).collect()
}

/// Gives each node its part of the source, and puts the solution's blocks
/// together.
fn host(comm: &mut Communicator, sources: &[Vec<f64>], size: usize) -> Result<Vec<f64>, Failure> {
    for (node, source) in (0..NODES).zip(sources) {
        comm.send_values(node, INPUT, source)?;
    }
    let mut found = vec![0.0; size * size];
    for node in 0..NODES {
        let layout = Layout::of(node, size);
        let block: Vec<f64> = comm.recv_values(node, OUTPUT)?;
        for (row, values) in block.chunks(layout.side).enumerate() {
            let at = (layout.place.0 * layout.side + row) * size + layout.place.1 * layout.side;
            found[at..at + layout.side].copy_from_slice(values);
        }
    }
    Ok(found)
}

/// Where a node's block lies in the mesh.
#[derive(Clone, Copy)]
struct Layout {
    size: usize,
    /// Points of a side of the block.
    side: usize,
    /// Points of the margin all round it.
    depth: usize,
    /// Points of a side with both margins.
    width: usize,
    /// (row, column) in the grid of nodes.
    place: (usize, usize),
}

impl Layout {
    fn of(node: u32, size: usize) -> Self {
        let own = size / GRID;
        let depth = DEPTH_MAX.min(own);
        let place = (node as usize / GRID, node as usize % GRID);
        Self { size, side: own, depth, width: own + 2 * depth, place }
    }

    /// The mesh's row at a row of the block, `None` beyond the border.
    fn row(&self, row: usize) -> Option<usize> {
        let row = (self.place.0 * self.side + row).checked_sub(self.depth)?;
        (row < self.size).then_some(row)
    }

    fn column(&self, column: usize) -> Option<usize> {
        let column = (self.place.1 * self.side + column).checked_sub(self.depth)?;
        (column < self.size).then_some(column)
    }

    /// The block's rows or columns that are the mesh's, at most so many points
    /// beyond the block's own.
    fn within(&self, place: usize, beyond: usize) -> Range<usize> {
        let first = self.depth.saturating_sub(place * self.side);
        let last = self.size + self.depth - place * self.side;
        (self.depth - beyond).max(first)..(self.depth + self.side + beyond).min(last)
    }

    /// The node so many rows and columns away, if there is one.
    fn neighbour(&self, down: isize, right: isize) -> Option<u32> {
        let row = self.place.0.checked_add_signed(down).filter(|row| *row < GRID)?;
        let column = self.place.1.checked_add_signed(right).filter(|column| *column < GRID)?;
        u32::try_from(row * GRID + column).ok()
    }
}

/// A stretch of rows and columns of a block with its margin.
#[derive(Clone)]
struct Patch {
    rows: Range<usize>,
    columns: Range<usize>,
}

/// What a block gives to a neighbour, and what it gets.
struct Side {
    neighbour: Option<u32>,
    gives: (u32, Patch),
    gets: (u32, Patch),
}

/// A node's part of the mesh.
struct Block {
    layout: Layout,
    /// The source times the square of the spacing.
    source: Vec<f64>,
    now: Vec<f64>,
    before: Vec<f64>,
    sweeps: usize,
    omega: f64,
    /// Jacobi's spectral radius, cos πh.
    radius: f64,
}

fn node(comm: &mut Communicator, size: usize) -> Result<(), Failure> {
    let layout = Layout::of(comm.rank(), size);
    let points = layout.width * layout.width;
    let source: Vec<f64> = comm.recv_values(HOST, INPUT)?;
    let (now, before) = (vec![0.0; points], vec![0.0; points]);
    let radius = (PI / (size as f64 + 1.0)).cos();
    let mut block = Block { layout, source, now, before, sweeps: 0, omega: 1.0, radius };
    let tolerance = TOLERANCE.min((size as f64 + 1.0).powi(-2));
    for round in 1..=ROUNDS_MAX {
        let mut residual = 0.0;
        for sweep in 1..=layout.depth {
            residual = block.sweep(layout.depth - sweep);
        }
        if round % LOOK_EVERY == 0 {
            let worst = comm.group(0..NODES)?.allreduce(&[residual], f64::max)?[0];
            // An error of the smoothest kind shows in the residual by 1 - cos πh.
            if worst < tolerance * (1.0 - radius) {
                return Ok(comm.send_values(HOST, OUTPUT, &block.solution())?);
            }
        }
        block.exchange(comm)?;
    }
    Err(format!("no solution after {ROUNDS_MAX} rounds").into())
}

impl Block {
    /// One sweep of the block and of so many points beyond it; gives the
    /// largest residual there.
    fn sweep(&mut self, beyond: usize) -> f64 {
        let (layout, omega) = (self.layout, self.next_omega());
        let columns = layout.within(layout.place.1, beyond);
        let mut largest = 0.0_f64;
        for row in layout.within(layout.place.0, beyond) {
            let (from, to) = (row * layout.width + columns.start, row * layout.width + columns.end);
            let above = &self.now[from - layout.width..to - layout.width];
            let below = &self.now[from + layout.width..to + layout.width];
            let here = &self.now[from - 1..=to];
            let (source, before) = (&self.source[from..to], &mut self.before[from..to]);
            for at in 0..to - from {
                let jacobi = 0.25 * (above[at] + below[at] + here[at] + here[at + 2] + source[at]);
                largest = largest.max((jacobi - here[at + 1]).abs());
                before[at] += omega * (jacobi - before[at]);
            }
        }
        std::mem::swap(&mut self.now, &mut self.before);
        largest
    }

    /// 1, then 1/(1 - ρ²/2), then 1/(1 - ρ²ω/4) with the ω before.
    fn next_omega(&mut self) -> f64 {
        let square = self.radius * self.radius;
        self.omega = match self.sweeps {
            0 => 1.0,
            1 => 1.0 / (1.0 - square / 2.0),
            _ => 1.0 / (1.0 - square * self.omega / 4.0),
        };
        self.sweeps += 1;
        self.omega
    }

    /// Margins first to the sides, then up and down with their corners.
    fn exchange(&mut self, comm: &mut Communicator) -> Result<(), Failure> {
        let Layout { side, depth, width, .. } = self.layout;
        let (low, high) = (depth..2 * depth, side..side + depth);
        let (below_low, above_high) = (0..depth, depth + side..width);
        let beside =
            |columns: &Range<usize>| Patch { rows: depth..depth + side, columns: columns.clone() };
        let west = Side {
            neighbour: self.layout.neighbour(0, -1),
            gives: (WESTWARD, beside(&low)),
            gets: (EASTWARD, beside(&below_low)),
        };
        let east = Side {
            neighbour: self.layout.neighbour(0, 1),
            gives: (EASTWARD, beside(&high)),
            gets: (WESTWARD, beside(&above_high)),
        };
        self.exchange_with(comm, &[west, east])?;
        let across = |rows: &Range<usize>| Patch { rows: rows.clone(), columns: 0..width };
        let north = Side {
            neighbour: self.layout.neighbour(-1, 0),
            gives: (NORTHWARD, across(&low)),
            gets: (SOUTHWARD, across(&below_low)),
        };
        let south = Side {
            neighbour: self.layout.neighbour(1, 0),
            gives: (SOUTHWARD, across(&high)),
            gets: (NORTHWARD, across(&above_high)),
        };
        self.exchange_with(comm, &[north, south])
    }

    fn exchange_with(&mut self, comm: &mut Communicator, sides: &[Side]) -> Result<(), Failure> {
        for side in sides {
            if let Some(neighbour) = side.neighbour {
                comm.send_values(neighbour, side.gives.0, &self.cut(&side.gives.1))?;
            }
        }
        for side in sides {
            if let Some(neighbour) = side.neighbour {
                let values: Vec<f64> = comm.recv_values(neighbour, side.gets.0)?;
                self.paste(&side.gets.1, &values);
            }
        }
        Ok(())
    }

    /// A patch of both iterates, which the acceleration needs.
    fn cut(&self, patch: &Patch) -> Vec<f64> {
        let mut values = vec![];
        for row in patch.rows.clone() {
            let line = row * self.layout.width;
            let columns = line + patch.columns.start..line + patch.columns.end;
            values.extend_from_slice(&self.now[columns.clone()]);
            values.extend_from_slice(&self.before[columns]);
        }
        values
    }

    fn paste(&mut self, patch: &Patch, values: &[f64]) {
        let columns = patch.columns.len();
        for (row, values) in patch.rows.clone().zip(values.chunks(2 * columns)) {
            let at = row * self.layout.width + patch.columns.start;
            let (now, before) = values.split_at(columns);
            self.now[at..at + columns].copy_from_slice(now);
            self.before[at..at + columns].copy_from_slice(before);
        }
    }

    fn solution(&self) -> Vec<f64> {
        let Layout { side, depth, width, .. } = self.layout;
        let rows = self.now.chunks(width).skip(depth).take(side);
        rows.flat_map(|row| &row[depth..depth + side]).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_mesh_is_solved_and_records_a_trace() {
        let solved = solve(support::run(Some("msh")), 32).unwrap();
        solved.answer.unwrap();
        assert!(solved.trace.unwrap().messages().0 > 16 * 10);
    }

    #[test]
    fn blocks_of_two_points_are_solved_as_well() {
        solve(support::run(None), 8).unwrap().answer.unwrap();
    }

    #[test]
    fn a_wrong_value_is_found_out() {
        let size = 8;
        let mut found: Vec<f64> = (0..size * size)
            .map(|at| solution(coordinate(at % size, size), coordinate(at / size, size)))
            .collect();
        assert!(largest_error(&found, size) < 1e-15);
        found[13] += 0.1;
        assert!(largest_error(&found, size) > 0.09);
    }
}
