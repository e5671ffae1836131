//! The determinant of a dense matrix: elimination with partial pivoting by
//! panels of columns, dealt out to sixteen nodes in turn. The owner of a panel
//! eliminates in it and broadcasts it; everybody updates the columns to its
//! right.
//!
//! Source: Golub and Van Loan 1996, Matrix Computations, §3.4 and §6.3 (the
//! column-cyclic distribution). The answer is checked against the determinant
//! that the matrix was built to have.

#![expect(clippy::print_stdout, reason = "a program's answer")]

mod support;

use std::process::ExitCode;

use gleaner_program::{Communicator, Failure, Run};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{HOST, NODES, Solved};

/// Columns of the matrix: a multiple of [`PANELS`].
const SIZE: usize = 1_024;
const PANELS: usize = 64;

const INPUT: u32 = 0;
const OUTPUT: u32 = 1;

/// A determinant as its sign and the logarithm of its size, which would not
/// fit itself.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Determinant {
    sign: f64,
    log: f64,
}

impl Determinant {
    const ONE: Self = Self { sign: 1.0, log: 0.0 };

    fn times(self, factor: f64) -> Self {
        Self { sign: self.sign * factor.signum(), log: self.log + factor.abs().ln() }
    }
}

fn main() -> ExitCode {
    support::perform("det", SIZE, solve)
}

fn solve(run: Run, size: usize) -> Result<Solved, Failure> {
    if size == 0 || !size.is_multiple_of(PANELS) {
        return Err(format!("--size: expected a multiple of {PANELS}, the columns").into());
    }
    let input = support::prepare(|| {
        let (matrix, expected) = matrix(size);
        (dealt(&matrix), expected)
    });
    let rank = |comm: &mut Communicator| {
        if comm.rank() == HOST { host(comm, &input.0) } else { node(comm, size) }
    };
    support::play(run, rank, |found| check(*found, input.1, size))
}

/// Each node's columns.
fn dealt(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    (0..NODES).map(|node| deal(matrix, node)).collect()
}

/// A dense matrix, as columns, and its determinant: (I - 2vvᵀ) D (I - 2wwᵀ)
/// with unit vectors v and w has that of the diagonal D, and is as well
/// conditioned; each pair of rows swapped then changes the sign.
fn matrix(size: usize) -> (Vec<Vec<f64>>, Determinant) {
    let mut rng = SmallRng::seed_from_u64(1994);
    let mut random =
        |low, high| (0..size).map(|_| rng.random_range(low..high)).collect::<Vec<f64>>();
    let (mut v, mut w) = (random(-1.0, 1.0), random(-1.0, 1.0));
    let signs = random(-1.0, 1.0);
    let diagonal: Vec<f64> =
        random(0.5, 2.0).iter().zip(&signs).map(|(value, sign)| value * sign.signum()).collect();
    for vector in [&mut v, &mut w] {
        let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        for x in vector {
            *x /= norm;
        }
    }
    let vdw: f64 = (0..size).map(|i| v[i] * diagonal[i] * w[i]).sum();
    // (D - 2v(vᵀD))(I - 2wwᵀ) = D - 2v(Dv)ᵀ - 2(Dw)wᵀ + 4(vᵀDw)vwᵀ
    let entry = |i: usize, j: usize| {
        let on = if i == j { diagonal[i] } else { 0.0 };
        on - 2.0 * v[i] * diagonal[j] * v[j] - 2.0 * diagonal[i] * w[i] * w[j]
            + 4.0 * vdw * v[i] * w[j]
    };
    let mut columns: Vec<Vec<f64>> =
        (0..size).map(|j| (0..size).map(|i| entry(i, j)).collect()).collect();
    let mut expected = diagonal.iter().fold(Determinant::ONE, |det, value| det.times(*value));
    for row in 1..size {
        let other = rng.random_range(0..row);
        for column in &mut columns {
            column.swap(row, other);
        }
        expected.sign = -expected.sign;
    }
    (columns, expected)
}

/// The panel of columns that a node has as its `turn`-th.
fn panel_of(node: u32, turn: usize) -> usize {
    turn * NODES as usize + node as usize
}

/// A node's columns, one after the other.
fn deal(matrix: &[Vec<f64>], node: u32) -> Vec<f64> {
    let width = matrix.len() / PANELS;
    let panels = (0..PANELS / NODES as usize).map(|turn| panel_of(node, turn));
    let columns = panels.flat_map(|panel| &matrix[panel * width..(panel + 1) * width]);
    columns.flatten().copied().collect()
}

fn host(comm: &mut Communicator, dealt: &[Vec<f64>]) -> Result<Determinant, Failure> {
    for (node, columns) in (0..NODES).zip(dealt) {
        comm.send_values(node, INPUT, columns)?;
    }
    let mut product = Determinant::ONE;
    for node in 0..NODES {
        let part: Vec<f64> = comm.recv_values(node, OUTPUT)?;
        product.sign *= part[0];
        product.log += part[1];
    }
    Ok(product)
}

/// A node's part of the determinant: that of the panels it owns.
fn node(comm: &mut Communicator, size: usize) -> Result<Determinant, Failure> {
    let width = size / PANELS;
    let values: Vec<f64> = comm.recv_values(HOST, INPUT)?;
    let mut columns: Vec<Vec<f64>> = values.chunks(size).map(<[f64]>::to_vec).collect();
    let mut part = Determinant::ONE;
    for (panel, owner) in (0..PANELS).zip((0..NODES).cycle()) {
        let top = panel * width;
        // Panels before this one are done with, and this one too.
        let mine = columns.len() - columns_right_of(comm.rank(), panel) * width;
        let mut eliminated = vec![];
        if owner == comm.rank() {
            let own = &mut columns[mine - width..mine];
            let pivots = eliminate(own, top, &mut part);
            eliminated.extend(pivots.iter().map(|pivot| *pivot as f64));
            eliminated.extend(own.iter().flat_map(|column| &column[top..]));
        }
        let eliminated = comm.group(0..NODES)?.broadcast(owner, eliminated)?;
        let (pivots, lower) = eliminated.split_at(width);
        let lower: Vec<&[f64]> = lower.chunks(size - top).collect();
        for column in &mut columns[mine..] {
            update(&mut column[top..], pivots, &lower);
        }
    }
    comm.send_values(HOST, OUTPUT, &[part.sign, part.log])?;
    Ok(part)
}

/// How many of a node's panels are still to come after one.
fn columns_right_of(node: u32, panel: usize) -> usize {
    (0..PANELS / NODES as usize).filter(|turn| panel_of(node, *turn) > panel).count()
}

/// Eliminates in a panel whose diagonal begins at row `top`, and gives the
/// pivots' rows counted from there. The factors stay below the diagonal.
fn eliminate(panel: &mut [Vec<f64>], top: usize, part: &mut Determinant) -> Vec<usize> {
    let mut pivots = vec![];
    for step in 0..panel.len() {
        let row = top + step;
        let candidates = panel[step].iter().enumerate().skip(row);
        let pivot =
            candidates.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).map_or(row, |(i, _)| i);
        for column in &mut *panel {
            column.swap(row, pivot);
        }
        *part = part.times(panel[step][row]);
        if pivot != row {
            part.sign = -part.sign;
        }
        pivots.push(pivot - top);
        let (left, right) = panel.split_at_mut(step + 1);
        let diagonal = left[step][row];
        left[step][row + 1..].iter_mut().for_each(|value| *value /= diagonal);
        for column in right {
            subtract(&mut column[row..], &left[step][row + 1..]);
        }
    }
    pivots
}

/// Does to a column what was done to the panel.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a row's number")]
fn update(column: &mut [f64], pivots: &[f64], lower: &[&[f64]]) {
    for (step, pivot) in pivots.iter().enumerate() {
        column.swap(step, *pivot as usize);
    }
    for (step, factors) in lower.iter().enumerate() {
        subtract(&mut column[step..], &factors[step + 1..]);
    }
}

/// Takes the factors times its first value from a column's other values.
fn subtract(column: &mut [f64], factors: &[f64]) {
    let (first, rest) = column.split_at_mut(1);
    for (value, factor) in rest.iter_mut().zip(factors) {
        *value -= factor * first[0];
    }
}

fn check(found: Determinant, expected: Determinant, size: usize) -> Result<String, String> {
    let off = (found.log - expected.log).abs();
    let sign = if found.sign > 0.0 { '+' } else { '-' };
    let told = format!("det of {size} x {size} = {sign}exp({:.9}), off by {off:.1e}", found.log);
    if found.sign * expected.sign > 0.0 && off < 1e-9 * size as f64 { Ok(told) } else { Err(told) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_determinant_is_right_and_records_a_trace() {
        let solved = solve(support::run(Some("det")), 64).unwrap();
        solved.answer.unwrap();
        assert_eq!(solved.trace.unwrap().messages().0, 64 * 15 + 32);
    }

    /// Fraction-free elimination (Bareiss 1968): exact in whole numbers.
    fn exact(mut m: Vec<Vec<i128>>) -> i128 {
        let (n, mut before, mut sign) = (m.len(), 1, 1);
        for k in 0..n - 1 {
            let Some(pivot) = (k..n).find(|i| m[*i][k] != 0) else { return 0 };
            if pivot != k {
                m.swap(pivot, k);
                sign = -sign;
            }
            for i in k + 1..n {
                for j in k + 1..n {
                    m[i][j] = (m[i][j] * m[k][k] - m[i][k] * m[k][j]) / before;
                }
            }
            before = m[k][k];
        }
        sign * m[n - 1][n - 1]
    }

    #[test]
    fn the_determinant_of_whole_numbers_is_the_exact_one() {
        let mut rng = SmallRng::seed_from_u64(7);
        let corner: Vec<Vec<i128>> =
            (0..16).map(|_| (0..16).map(|_| rng.random_range(-3..4)).collect()).collect();
        // The rest is the identity, far enough from the corner to be swapped in.
        let place = |i: usize| i.checked_sub(20).filter(|i| *i < 16);
        let columns: Vec<Vec<f64>> = (0..64)
            .map(|j| {
                let entry = |i: usize| match (place(i), place(j)) {
                    (Some(i), Some(j)) => corner[i][j] as f64,
                    _ => f64::from(u8::from(i == j)),
                };
                (0..64).map(entry).collect()
            })
            .collect();
        let dealt = dealt(&columns);
        let rank = |comm: &mut Communicator| {
            if comm.rank() == HOST { host(comm, &dealt) } else { node(comm, 64) }
        };
        let found = std::sync::Mutex::new(Determinant::ONE);
        let keep = |determinant: &Determinant| {
            *found.lock().unwrap() = *determinant;
            Ok(String::new())
        };
        support::play(support::run(None), rank, keep).unwrap().answer.unwrap();
        let found = found.into_inner().unwrap();
        let expected = exact(corner) as f64;
        assert!(
            (found.sign * found.log.exp() / expected - 1.0).abs() < 1e-10,
            "{found:?} {expected}"
        );
    }

    #[test]
    fn a_wrong_sign_is_found_out() {
        let minus = Determinant { sign: -1.0, log: 0.0 };
        check(minus, Determinant::ONE, 64).unwrap_err();
    }
}
