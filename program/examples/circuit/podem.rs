//! PODEM: a test for one fault, by deciding inputs one after the other and
//! taking back what leads nowhere.
//!
//! Source: Goel 1981, An implicit enumeration algorithm to generate tests for
//! combinational logic circuits, IEEE Transactions on Computers C-30(3).

use super::netlist::{Circuit, Fault, Gate, Kind};

/// Decisions taken back before the search is given up.
const BACKTRACKS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The inputs; `None` may be anything.
    Test(Vec<Option<bool>>),
    Untestable,
    GaveUp,
}

/// A wire's value without and with the fault; `None` is not known yet.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Pair {
    good: Option<bool>,
    bad: Option<bool>,
}

impl Pair {
    /// The fault shows on this wire.
    fn differs(self) -> bool {
        matches!((self.good, self.bad), (Some(good), Some(bad)) if good != bad)
    }

    fn is_open(self) -> bool {
        self.good.is_none() || self.bad.is_none()
    }
}

struct Decision {
    input: usize,
    value: bool,
    /// The other value was tried already.
    second: bool,
}

struct Search<'a> {
    circuit: &'a Circuit,
    fault: Fault,
    inputs: Vec<Option<bool>>,
    /// Which input a wire is.
    input_of: Vec<usize>,
    wires: Vec<Pair>,
    /// Does an open way lead from the wire to an output?
    reaches: Vec<bool>,
}

pub(crate) fn search(circuit: &Circuit, fault: Fault) -> Found {
    let mut input_of = vec![0; circuit.gates.len()];
    let input_wires =
        (0..circuit.gates.len()).filter(|wire| circuit.gates[*wire].kind == Kind::Input);
    for (input, wire) in input_wires.enumerate() {
        input_of[wire] = input;
    }
    let mut search = Search {
        circuit,
        fault,
        inputs: vec![None; circuit.inputs()],
        input_of,
        wires: vec![Pair::default(); circuit.gates.len()],
        reaches: vec![false; circuit.gates.len()],
    };
    search.run()
}

impl Search<'_> {
    fn run(&mut self) -> Found {
        let mut decisions: Vec<Decision> = vec![];
        let mut backtracks = 0;
        loop {
            self.imply();
            if self.circuit.outputs.iter().any(|output| self.wires[*output].differs()) {
                return Found::Test(self.inputs.clone());
            }
            if let Some((input, value)) = self.next_decision() {
                self.inputs[input] = Some(value);
                decisions.push(Decision { input, value, second: false });
                continue;
            }
            backtracks += 1;
            if backtracks > BACKTRACKS_MAX {
                return Found::GaveUp;
            }
            if !self.take_back(&mut decisions) {
                return Found::Untestable;
            }
        }
    }

    /// The last decision with another value left gets it.
    fn take_back(&mut self, decisions: &mut Vec<Decision>) -> bool {
        while let Some(last) = decisions.last_mut() {
            if !last.second {
                (last.value, last.second) = (!last.value, true);
                self.inputs[last.input] = Some(last.value);
                return true;
            }
            self.inputs[last.input] = None;
            decisions.pop();
        }
        false
    }

    /// What follows from the inputs decided so far.
    fn imply(&mut self) {
        for (wire, gate) in self.circuit.gates.iter().enumerate() {
            let mut pair = if gate.kind == Kind::Input {
                let value = self.inputs[self.input_of[wire]];
                Pair { good: value, bad: value }
            } else {
                let (a, b) = (self.wires[gate.a], self.wires[gate.b]);
                Pair { good: of(gate.kind, a.good, b.good), bad: of(gate.kind, a.bad, b.bad) }
            };
            if wire == self.fault.wire {
                pair.bad = Some(self.fault.stuck_at);
            }
            self.wires[wire] = pair;
        }
    }

    /// An input, and the value that brings the fault nearer to an output;
    /// `None` if nothing does.
    fn next_decision(&mut self) -> Option<(usize, bool)> {
        match self.wires[self.fault.wire].good {
            None => self.input_for(self.fault.wire, !self.fault.stuck_at),
            Some(good) if good == self.fault.stuck_at => None,
            Some(_) => {
                self.find_ways();
                let mut frontier = false;
                for (wire, gate) in self.circuit.gates.iter().enumerate() {
                    if !self.is_frontier(wire, *gate) {
                        continue;
                    }
                    frontier = true;
                    if let Some((input, value)) = self.beyond(*gate) {
                        return self.input_for(input, value);
                    }
                }
                // What is open is open with the fault only: any input will do.
                let any = || self.inputs.iter().position(Option::is_none);
                frontier.then(any).flatten().map(|input| (input, false))
            }
        }
    }

    /// The fault has come to this gate, and may pass.
    fn is_frontier(&self, wire: usize, gate: Gate) -> bool {
        let (a, b) = (self.wires[gate.a], self.wires[gate.b]);
        gate.kind != Kind::Input
            && self.wires[wire].is_open()
            && self.reaches[wire]
            && (a.differs() || b.differs())
    }

    /// Which open wires lead to an output by open wires only.
    fn find_ways(&mut self) {
        self.reaches.fill(false);
        for output in &self.circuit.outputs {
            self.reaches[*output] = self.wires[*output].is_open();
        }
        for (wire, gate) in self.circuit.gates.iter().enumerate().rev() {
            if self.reaches[wire] && gate.kind != Kind::Input {
                for read in [gate.a, gate.b] {
                    self.reaches[read] |= self.wires[read].is_open();
                }
            }
        }
    }

    /// The gate's open wire and the value that lets the fault pass.
    fn beyond(&self, gate: Gate) -> Option<(usize, bool)> {
        let open = [gate.a, gate.b].into_iter().find(|wire| self.wires[*wire].good.is_none())?;
        let value = match gate.kind {
            Kind::And | Kind::Nand => true,
            Kind::Or | Kind::Nor | Kind::Xor | Kind::Not | Kind::Input => false,
        };
        Some((open, value))
    }

    /// Back from a wire to an undecided input that may give it the value.
    fn input_for(&self, wire: usize, value: bool) -> Option<(usize, bool)> {
        let (mut wire, mut value) = (wire, value);
        loop {
            let gate = self.circuit.gates[wire];
            if gate.kind == Kind::Input {
                return Some((self.input_of[wire], value));
            }
            let open = |wire: usize| self.wires[wire].good.is_none();
            let (next, other) = match (open(gate.a), open(gate.b)) {
                // Hardest first if both are needed, else the easiest.
                (true, true) => {
                    let (near, far) = (gate.a.min(gate.b), gate.a.max(gate.b));
                    if needs_both(gate.kind, value) { (far, near) } else { (near, far) }
                }
                (true, false) => (gate.a, gate.b),
                (false, true) => (gate.b, gate.a),
                (false, false) => return None,
            };
            value = match gate.kind {
                Kind::Nand | Kind::Nor | Kind::Not => !value,
                Kind::Xor => value != self.wires[other].good.unwrap_or(false),
                Kind::And | Kind::Or | Kind::Input => value,
            };
            wire = next;
        }
    }
}

fn needs_both(kind: Kind, value: bool) -> bool {
    match kind {
        Kind::And | Kind::Nor => value,
        Kind::Or | Kind::Nand => !value,
        Kind::Xor | Kind::Not | Kind::Input => true,
    }
}

fn of(kind: Kind, a: Option<bool>, b: Option<bool>) -> Option<bool> {
    let and = |a: Option<bool>, b: Option<bool>| match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    let not = |a: Option<bool>| a.map(|a| !a);
    match kind {
        Kind::Input => a,
        Kind::And => and(a, b),
        Kind::Nand => not(and(a, b)),
        Kind::Or => not(and(not(a), not(b))),
        Kind::Nor => and(not(a), not(b)),
        Kind::Xor => a.zip(b).map(|(a, b)| a != b),
        Kind::Not => not(a),
    }
}
