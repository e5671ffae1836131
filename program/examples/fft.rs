//! Fast Fourier transforms of signals that sixteen nodes hold together: the
//! binary-exchange algorithm, one exchange with a neighbour in each dimension
//! of the hypercube, then a transform of each node's own points.
//!
//! Source: Kumar, Grama, Gupta and Karypis 1994, Introduction to Parallel
//! Computing, §10.2.1 (decimation in frequency). The answer is checked against
//! the definition of the transform at some frequencies, and by Parseval's
//! theorem over all.

#![expect(clippy::print_stdout, reason = "a program's answer")]

mod support;

use std::f64::consts::TAU;
use std::process::ExitCode;

use gleaner_program::{Communicator, Failure, Run};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{HOST, NODES, Solved};

type Complex = (f64, f64);
/// Each node's block of each signal.
type Blocks = Vec<Vec<Vec<Complex>>>;

const SIGNALS: usize = 10;
/// log2 of the points of a signal.
const SIZE: usize = 19;

const INPUT: u32 = 0;
const OUTPUT: u32 = 1;
const EXCHANGE: u32 = 2;

fn main() -> ExitCode {
    support::perform("fft", SIZE, solve)
}

fn solve(run: Run, size: usize) -> Result<Solved, Failure> {
    if !(8..=24).contains(&size) {
        return Err("--size: expected 8 to 24, the logarithm of how many points".into());
    }
    let signals = support::prepare(|| {
        (0..SIGNALS as u64).map(|seed| signal(seed, size)).collect::<Vec<Vec<Complex>>>()
    });
    let rank = |comm: &mut Communicator| {
        if comm.rank() == HOST { host(comm, &signals) } else { node(comm, size).map(|()| vec![]) }
    };
    support::play(run, rank, |blocks| {
        let spectra: Vec<Vec<Complex>> = blocks.iter().map(|blocks| blocks.concat()).collect();
        check(&signals, &spectra)
    })
}

fn signal(seed: u64, size: usize) -> Vec<Complex> {
    let mut rng = SmallRng::seed_from_u64(seed);
    (0..1 << size).map(|_| (rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0))).collect()
}

/// One signal after the other, each node a block of its points. Gives the
/// spectra as the nodes' blocks: to put them together would be the longest
/// thing in the program.
fn host(comm: &mut Communicator, signals: &[Vec<Complex>]) -> Result<Blocks, Failure> {
    let mut spectra = vec![];
    for signal in signals {
        let block = signal.len() / NODES as usize;
        for (node, points) in (0..NODES).zip(signal.chunks(block)) {
            comm.send_values(node, INPUT, points)?;
        }
        let spectrum = (0..NODES).map(|node| comm.recv_values(node, OUTPUT));
        spectra.push(spectrum.collect::<Result<_, _>>()?);
    }
    Ok(spectra)
}

fn node(comm: &mut Communicator, size: usize) -> Result<(), Failure> {
    let points = (1 << size) / NODES as usize;
    let roots = roots(points);
    let twiddles: Vec<Vec<Complex>> =
        dimensions().map(|bit| twiddles(comm.rank(), bit, points)).collect();
    for _ in 0..SIGNALS {
        let mut block: Vec<Complex> = comm.recv_values(HOST, INPUT)?;
        for (bit, twiddles) in dimensions().zip(&twiddles) {
            let neighbour = comm.rank() ^ bit;
            comm.send_values(neighbour, EXCHANGE, &block)?;
            let theirs: Vec<Complex> = comm.recv_values(neighbour, EXCHANGE)?;
            let upper = comm.rank() & bit != 0;
            for ((mine, theirs), twiddle) in block.iter_mut().zip(theirs).zip(twiddles) {
                *mine =
                    if upper { times(minus(theirs, *mine), *twiddle) } else { plus(*mine, theirs) };
            }
        }
        transform(&mut block, &roots);
        comm.send_values(HOST, OUTPUT, &block)?;
    }
    Ok(())
}

/// The neighbours' bits, from the farthest to the nearest.
fn dimensions() -> impl Iterator<Item = u32> {
    (0..NODES.trailing_zeros()).rev().map(|dimension| 1 << dimension)
}

/// What the upper node multiplies its half of a butterfly with.
fn twiddles(rank: u32, bit: u32, points: usize) -> Vec<Complex> {
    let span = bit as usize * points;
    let first = (rank & (bit - 1)) as usize * points;
    (first..first + points).map(|place| root(place, 2 * span)).collect()
}

/// exp(-2πi place/of).
fn root(place: usize, of: usize) -> Complex {
    let (sin, cos) = (-TAU * place as f64 / of as f64).sin_cos();
    (cos, sin)
}

fn roots(points: usize) -> Vec<Complex> {
    (0..points / 2).map(|place| root(place, points)).collect()
}

/// Decimation in frequency, in place: the result is in bit-reversed order.
fn transform(points: &mut [Complex], roots: &[Complex]) {
    let mut span = points.len() / 2;
    while span > 0 {
        let stride = roots.len() / span;
        for group in points.chunks_mut(2 * span) {
            let (lower, upper) = group.split_at_mut(span);
            for ((a, b), root) in lower.iter_mut().zip(upper).zip(roots.iter().step_by(stride)) {
                (*a, *b) = (plus(*a, *b), times(minus(*a, *b), *root));
            }
        }
        span /= 2;
    }
}

fn plus(a: Complex, b: Complex) -> Complex {
    (a.0 + b.0, a.1 + b.1)
}

fn minus(a: Complex, b: Complex) -> Complex {
    (a.0 - b.0, a.1 - b.1)
}

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

fn energy(points: &[Complex]) -> f64 {
    points.iter().map(|point| point.0 * point.0 + point.1 * point.1).sum()
}

fn check(signals: &[Vec<Complex>], spectra: &[Vec<Complex>]) -> Result<String, String> {
    let mut worst = 0.0_f64;
    for (number, (signal, spectrum)) in signals.iter().zip(spectra).enumerate() {
        let points = signal.len();
        if spectrum.len() != points {
            return Err(format!("signal {number}: {} frequencies of {points}", spectrum.len()));
        }
        let roots: Vec<Complex> = (0..points).map(|place| root(place, points)).collect();
        // By its place in the spectrum, which is the frequency's bits reversed.
        for place in [0, 1, points / 3, points - 1 - number] {
            let frequency = place.reverse_bits() >> (usize::BITS - points.trailing_zeros());
            let terms = signal.iter().enumerate();
            let direct = terms
                .map(|(time, point)| times(*point, roots[frequency * time % points]))
                .fold((0.0, 0.0), plus);
            let off = minus(direct, spectrum[place]);
            worst = worst.max(off.0.hypot(off.1) / (points as f64).sqrt());
        }
        let parseval = energy(spectrum) / (points as f64 * energy(signal)) - 1.0;
        worst = worst.max(parseval.abs());
    }
    let (count, points) = (spectra.len(), signals[0].len());
    if count == signals.len() && worst < 1e-9 {
        Ok(format!("{count} transforms of {points} points, largest error {worst:.1e}"))
    } else {
        Err(format!("{count} transforms, largest error {worst:.1e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_transform_is_right_and_records_a_trace() {
        let solved = solve(support::run(Some("fft")), 10).unwrap();
        solved.answer.unwrap();
        assert_eq!(solved.trace.unwrap().messages().0, 10 * (16 * 4 + 32));
    }

    #[test]
    fn a_wrong_spectrum_is_found_out() {
        let mut spectrum = vec![signal(1, 10)];
        spectrum[0][5].0 += 0.1;
        check(&[signal(1, 10)], &spectrum).unwrap_err();
    }
}
