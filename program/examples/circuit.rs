//! A test generator for a circuit of logic gates: inputs that show every wire
//! that is stuck at 0 or 1. The faults are divided among sixteen nodes. In each
//! round a node searches a test for one of its faults, all exchange what they
//! found along the dimensions of the hypercube, and each drops those of its
//! faults that the new tests show as well.
//!
//! Sources: Goel 1981 (PODEM, the search); Waicukauski and others 1985 (the
//! simulation of 64 tests at once). The answer, which tests show which faults,
//! is checked by a serial simulation of its own.

#![expect(clippy::print_stdout, reason = "a program's answer")]

#[path = "circuit/netlist.rs"]
mod netlist;
#[path = "circuit/podem.rs"]
mod podem;
mod support;

use std::process::ExitCode;

use gleaner_program::{Communicator, Failure, Run};
use netlist::{Circuit, Fault, Test};
use podem::{Found, search};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::{HOST, NODES, Solved};

/// Bits of a word of the circuit.
const SIZE: usize = 24;

const GATES: u32 = 0;
const FAULTS: u32 = 1;
const FATES: u32 = 2;
const TESTS: u32 = 3;
const EXCHANGE: u32 = 4;
const PROGRESS: u32 = 5;

/// What became of a fault. Its discriminant travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open = 0,
    Shown = 1,
    /// No input shows it: a part of the circuit does nothing.
    Untestable = 2,
    /// The search was given up.
    Aborted = 3,
}

impl Fate {
    const ALL: [Self; 4] = [Self::Open, Self::Shown, Self::Untestable, Self::Aborted];
}

/// What the host has in the end.
#[derive(Debug, Default)]
struct Answer {
    tests: Vec<Test>,
    fates: Vec<(Fault, Fate)>,
    rounds: usize,
}

fn main() -> ExitCode {
    support::perform("test", SIZE, solve)
}

fn solve(run: Run, size: usize) -> Result<Solved, Failure> {
    if !(2..=32).contains(&size) {
        return Err("--size: expected 2 to 32, the bits of a word".into());
    }
    let circuit = support::prepare(|| Circuit::arithmetic(size));
    let rank = |comm: &mut Communicator| {
        if comm.rank() == HOST {
            host(comm, &circuit)
        } else {
            node(comm).map(|()| Answer::default())
        }
    };
    support::play(run, rank, |answer| check(&circuit, answer))
}

/// Deals out the faults, hears of every round, and collects.
fn host(comm: &mut Communicator, circuit: &Circuit) -> Result<Answer, Failure> {
    let faults = circuit.faults();
    for node in 0..NODES {
        comm.send_values(node, GATES, &circuit.to_words())?;
        let dealt = faults.iter().skip(node as usize).step_by(NODES as usize);
        comm.send_values(node, FAULTS, &dealt.map(|fault| fault.to_word()).collect::<Vec<_>>())?;
    }
    let mut answer = Answer::default();
    while comm.recv_values::<u32>(0, PROGRESS)?[0] > 0 {
        answer.rounds += 1;
    }
    let words: Vec<u64> = comm.recv_values(0, TESTS)?;
    answer.tests = words.chunks(circuit.test_words()).map(<[u64]>::to_vec).collect();
    for node in 0..NODES {
        let fates: Vec<(u32, u32)> = comm.recv_values(node, FATES)?;
        for (fault, fate) in fates {
            let fate = Fate::ALL.get(fate as usize).ok_or("a fate that is none")?;
            answer.fates.push((Fault::from_word(fault), *fate));
        }
    }
    Ok(answer)
}

fn node(comm: &mut Communicator) -> Result<(), Failure> {
    let circuit = Circuit::from_words(&comm.recv_values::<u32>(HOST, GATES)?);
    let dealt: Vec<u32> = comm.recv_values(HOST, FAULTS)?;
    let mut fates: Vec<(Fault, Fate)> =
        dealt.into_iter().map(|word| (Fault::from_word(word), Fate::Open)).collect();
    let mut rng = SmallRng::seed_from_u64(u64::from(comm.rank()));
    let mut tests: Vec<u64> = vec![];
    loop {
        let open = fates.iter().filter(|(_, fate)| *fate == Fate::Open).count();
        let found = next_test(&circuit, &mut fates, &mut rng);
        let (left, new) = exchange(comm, u64::try_from(open)?, found)?;
        if comm.rank() == 0 {
            comm.send_values(HOST, PROGRESS, &[u32::try_from(left)?])?;
        }
        if left == 0 {
            break;
        }
        drop_shown(&circuit, &mut fates, &new);
        tests.extend(new);
    }
    if comm.rank() == 0 {
        comm.send_values(HOST, TESTS, &tests)?;
    }
    let fates: Vec<(u32, u32)> =
        fates.iter().map(|(fault, fate)| (fault.to_word(), *fate as u32)).collect();
    Ok(comm.send_values(HOST, FATES, &fates)?)
}

/// A test for the first open fault for which there is one to be found.
fn next_test(circuit: &Circuit, fates: &mut [(Fault, Fate)], rng: &mut SmallRng) -> Test {
    for (fault, fate) in fates.iter_mut().filter(|(_, fate)| *fate == Fate::Open) {
        match search(circuit, *fault) {
            Found::Test(inputs) => {
                // What the test leaves open may show other faults.
                let filled = inputs.iter().map(|input| input.unwrap_or_else(|| rng.random()));
                return netlist::pack(filled);
            }
            Found::Untestable => *fate = Fate::Untestable,
            Found::GaveUp => *fate = Fate::Aborted,
        }
    }
    vec![]
}

/// Everybody's number of open faults, added up, and everybody's tests by rank.
fn exchange(comm: &mut Communicator, open: u64, mine: Test) -> Result<(u64, Vec<u64>), Failure> {
    let mut known = vec![open];
    known.extend(mine);
    for dimension in 0..NODES.trailing_zeros() {
        let neighbour = comm.rank() ^ (1 << dimension);
        comm.send_values(neighbour, EXCHANGE, &known)?;
        let theirs: Vec<u64> = comm.recv_values(neighbour, EXCHANGE)?;
        let sum = known[0] + theirs[0];
        let (lower, upper) =
            if neighbour > comm.rank() { (&known, &theirs) } else { (&theirs, &known) };
        known = [&[sum], &lower[1..], &upper[1..]].concat();
    }
    let tests = known.split_off(1);
    Ok((known[0], tests))
}

/// Simulates up to 64 tests at once.
fn drop_shown(circuit: &Circuit, fates: &mut [(Fault, Fate)], new: &[u64]) {
    let tests: Vec<&[u64]> = new.chunks(circuit.test_words()).collect();
    for tests in tests.chunks(64) {
        let good = circuit.evaluate(tests);
        let mut scratch = good.clone();
        let all = u64::MAX >> (64 - tests.len());
        let unshown = [Fate::Open, Fate::Aborted];
        for (fault, fate) in fates.iter_mut().filter(|(_, fate)| unshown.contains(fate)) {
            if circuit.differs(&good, &mut scratch, *fault) & all != 0 {
                *fate = Fate::Shown;
            }
        }
    }
}

/// By an evaluation of the whole circuit for each test and fault.
fn check(circuit: &Circuit, answer: &Answer) -> Result<String, String> {
    let mut dealt: Vec<Fault> = answer.fates.iter().map(|(fault, _)| *fault).collect();
    dealt.sort_unstable();
    let mut faults = circuit.faults();
    faults.sort_unstable();
    if dealt != faults {
        return Err(format!("{} faults came back of {}", dealt.len(), faults.len()));
    }
    let good: Vec<Vec<bool>> =
        answer.tests.iter().map(|test| circuit.outputs_of(test, None)).collect();
    let shows = |fault: Fault| {
        let mut tests = answer.tests.iter().zip(&good);
        tests.any(|(test, good)| circuit.outputs_of(test, Some(fault)) != *good)
    };
    for (fault, fate) in &answer.fates {
        if shows(*fault) != (*fate == Fate::Shown) {
            return Err(format!("{fault:?} is said to be {fate:?}, and is not"));
        }
    }
    let count = |wanted| answer.fates.iter().filter(|(_, fate)| *fate == wanted).count();
    let detected = count(Fate::Shown);
    if detected * 10 < faults.len() * 9 {
        return Err(format!("only {detected} of {} faults are shown", faults.len()));
    }
    let (untestable, aborted) = (count(Fate::Untestable), count(Fate::Aborted));
    Ok(format!(
        "{} tests in {} rounds show {detected} of {} faults of {} gates; {untestable} cannot be \
         shown, {aborted} were given up",
        answer.tests.len(),
        answer.rounds,
        faults.len(),
        circuit.gates(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_circuit_is_tested_and_records_a_trace() {
        let solved = solve(support::run(Some("test")), 4).unwrap();
        solved.answer.unwrap();
        assert!(solved.trace.unwrap().messages().0 > 16 * 4);
    }

    #[test]
    fn a_fault_that_is_not_shown_is_found_out() {
        let circuit = Circuit::arithmetic(2);
        let fates = circuit.faults().into_iter().map(|fault| (fault, Fate::Shown)).collect();
        let answer = Answer { tests: vec![vec![0]], fates, rounds: 1 };
        assert!(check(&circuit, &answer).unwrap_err().contains("is said to be Shown"));
    }

    /// By trying all inputs of a circuit of six.
    #[test]
    fn the_search_finds_a_test_exactly_where_there_is_one() {
        let circuit = Circuit::arithmetic(3);
        let inputs = u32::try_from(circuit.inputs()).unwrap();
        for fault in circuit.faults() {
            let all = (0..1_u64 << inputs).map(|test| [test]);
            let shown = |test: [u64; 1]| {
                circuit.outputs_of(&test, None) != circuit.outputs_of(&test, Some(fault))
            };
            match search(&circuit, fault) {
                Found::Test(found) => {
                    let filled = found.iter().map(|input| input.unwrap_or(false));
                    let test = netlist::pack(filled);
                    assert!(shown([test[0]]), "{fault:?} is not shown by {found:?}");
                }
                Found::Untestable => assert!(!all.clone().any(shown), "{fault:?}"),
                Found::GaveUp => panic!("{fault:?} was given up"),
            }
        }
    }
}
