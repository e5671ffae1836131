//! A combinational circuit of gates with two inputs, its stuck-at faults, and
//! three ways to evaluate it.

/// A gate; its number is that of the wire that it drives. Gates stand in an
/// order in which each is after those it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(crate) kind: Kind,
    pub(crate) a: usize,
    pub(crate) b: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Input,
    And,
    Or,
    Nand,
    Nor,
    Xor,
    Not,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Input, Self::And, Self::Or, Self::Nand, Self::Nor, Self::Xor, Self::Not];

    /// Bit by bit.
    fn of(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Input => a,
            Self::And => a & b,
            Self::Or => a | b,
            Self::Nand => !(a & b),
            Self::Nor => !(a | b),
            Self::Xor => a ^ b,
            Self::Not => !a,
        }
    }
}

/// A wire that keeps one value whatever drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    pub(crate) wire: usize,
    pub(crate) stuck_at: bool,
}

impl Fault {
    pub(crate) fn to_word(self) -> u32 {
        u32::try_from(2 * self.wire + usize::from(self.stuck_at)).unwrap_or(u32::MAX)
    }

    pub(crate) fn from_word(word: u32) -> Self {
        Self { wire: word as usize / 2, stuck_at: word % 2 == 1 }
    }
}

/// The inputs' values, 64 to a word.
pub(crate) type Test = Vec<u64>;

pub(crate) fn pack(inputs: impl Iterator<Item = bool>) -> Test {
    let mut words = vec![];
    for (place, input) in inputs.enumerate() {
        if place % 64 == 0 {
            words.push(0);
        }
        if let Some(last) = words.last_mut() {
            *last |= u64::from(input) << (place % 64);
        }
    }
    words
}

fn bit(test: &[u64], place: usize) -> bool {
    test[place / 64] >> (place % 64) & 1 == 1
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Circuit {
    pub(crate) gates: Vec<Gate>,
    pub(crate) outputs: Vec<usize>,
    inputs: usize,
}

impl Circuit {
    /// A unit that adds, multiplies and compares two words of so many bits.
    /// The comparison is what random inputs hardly ever show.
    pub(crate) fn arithmetic(bits: usize) -> Self {
        let mut it = Self::default();
        let a: Vec<usize> = (0..bits).map(|_| it.input()).collect();
        let b: Vec<usize> = (0..bits).map(|_| it.input()).collect();
        let sum = it.add(&a, &b);
        let product = it.multiply(&a, &b);
        let same: Vec<usize> = (0..bits).map(|i| it.equal(a[i], b[i])).collect();
        let all_same = it.all(&same);
        // Whether the halves of the product are alike, where the words are.
        let alike: Vec<usize> =
            (0..bits).map(|i| it.equal(product[i], product[bits + i])).collect();
        let all_alike = it.all(&alike);
        let either = it.gate(Kind::Nor, all_same, all_alike);
        let mixed: Vec<usize> =
            sum.iter().zip(&product).map(|(s, p)| it.gate(Kind::Xor, *s, *p)).collect();
        let gated: Vec<usize> =
            mixed.iter().map(|wire| it.gate(Kind::Nand, *wire, all_same)).collect();
        it.outputs = [&sum[..], &product, &gated, &[all_same, all_alike, either]].concat();
        it
    }

    fn gate(&mut self, kind: Kind, a: usize, b: usize) -> usize {
        self.gates.push(Gate { kind, a, b });
        self.gates.len() - 1
    }

    fn input(&mut self) -> usize {
        self.inputs += 1;
        self.gate(Kind::Input, 0, 0)
    }

    fn equal(&mut self, a: usize, b: usize) -> usize {
        let differ = self.gate(Kind::Xor, a, b);
        self.gate(Kind::Not, differ, differ)
    }

    fn all(&mut self, wires: &[usize]) -> usize {
        let mut all = wires[0];
        for wire in &wires[1..] {
            all = self.gate(Kind::And, all, *wire);
        }
        all
    }

    /// (sum, carry) of two bits, or of three.
    fn half(&mut self, a: usize, b: usize) -> (usize, usize) {
        (self.gate(Kind::Xor, a, b), self.gate(Kind::And, a, b))
    }

    fn full(&mut self, a: usize, b: usize, c: usize) -> (usize, usize) {
        let (ab, first) = self.half(a, b);
        let (sum, second) = self.half(ab, c);
        (sum, self.gate(Kind::Or, first, second))
    }

    /// As many bits as the words, and the carry.
    fn add(&mut self, a: &[usize], b: &[usize]) -> Vec<usize> {
        let (first, mut carry) = self.half(a[0], b[0]);
        let mut sum = vec![first];
        for (a, b) in a[1..].iter().zip(&b[1..]) {
            let (bit, next) = self.full(*a, *b, carry);
            sum.push(bit);
            carry = next;
        }
        sum.push(carry);
        sum
    }

    /// Twice as many bits as the words: row by row, as on paper.
    fn multiply(&mut self, a: &[usize], b: &[usize]) -> Vec<usize> {
        let row = |it: &mut Self, bit: usize| -> Vec<usize> {
            a.iter().map(|wire| it.gate(Kind::And, *wire, bit)).collect()
        };
        let mut rest = row(self, b[0]);
        let mut product = vec![];
        for (number, bit) in b.iter().enumerate().skip(1) {
            let next = row(self, *bit);
            product.push(rest.remove(0));
            // The first partial sum has no carry yet: one bit less.
            rest = if number == 1 {
                let (upper, top) = next.split_at(next.len() - 1);
                let mut sum = self.add(&rest, upper);
                let carry = sum.remove(sum.len() - 1);
                let (last, over) = self.half(top[0], carry);
                sum.extend([last, over]);
                sum
            } else {
                self.add(&rest, &next)
            };
        }
        product.extend(rest);
        product
    }

    pub(crate) fn gates(&self) -> usize {
        self.gates.len() - self.inputs
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many words a test has.
    pub(crate) fn test_words(&self) -> usize {
        self.inputs.div_ceil(64)
    }

    /// Every wire stuck at 0 and at 1.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let wires = 0..self.gates.len();
        wires.flat_map(|wire| [false, true].map(|stuck_at| Fault { wire, stuck_at })).collect()
    }

    /// For a message.
    pub(crate) fn to_words(&self) -> Vec<u32> {
        let word = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let gates =
            self.gates.iter().flat_map(|gate| [gate.kind as u32, word(gate.a), word(gate.b)]);
        let outputs = self.outputs.iter().map(|output| word(*output));
        [word(self.gates.len())].into_iter().chain(gates).chain(outputs).collect()
    }

    pub(crate) fn from_words(words: &[u32]) -> Self {
        let (gates, outputs) = words[1..].split_at(3 * words[0] as usize);
        let gates: Vec<Gate> = gates
            .chunks(3)
            .map(|gate| {
                let kind = Kind::ALL[gate[0] as usize];
                Gate { kind, a: gate[1] as usize, b: gate[2] as usize }
            })
            .collect();
        let inputs = gates.iter().filter(|gate| gate.kind == Kind::Input).count();
        Self { gates, outputs: outputs.iter().map(|output| *output as usize).collect(), inputs }
    }

    /// Every wire's value for up to 64 tests, one in each bit.
    pub(crate) fn evaluate(&self, tests: &[&[u64]]) -> Vec<u64> {
        let mut values = Vec::with_capacity(self.gates.len());
        let mut inputs = 0;
        for gate in &self.gates {
            let value = if gate.kind == Kind::Input {
                inputs += 1;
                let bits = tests.iter().map(|test| u64::from(bit(test, inputs - 1)));
                bits.enumerate().fold(0, |word, (place, bit)| word | bit << place)
            } else {
                gate.kind.of(values[gate.a], values[gate.b])
            };
            values.push(value);
        }
        values
    }

    /// The tests in which a fault changes an output. `scratch` is a copy of
    /// the good values, and is again afterwards.
    pub(crate) fn differs(&self, good: &[u64], scratch: &mut [u64], fault: Fault) -> u64 {
        let stuck = if fault.stuck_at { u64::MAX } else { 0 };
        if good[fault.wire] == stuck {
            return 0;
        }
        scratch[fault.wire] = stuck;
        for (wire, gate) in self.gates.iter().enumerate().skip(fault.wire + 1) {
            if gate.kind != Kind::Input {
                scratch[wire] = gate.kind.of(scratch[gate.a], scratch[gate.b]);
            }
        }
        let changed = self.outputs.iter().map(|output| good[*output] ^ scratch[*output]);
        let changed = changed.fold(0, |all, one| all | one);
        scratch[fault.wire..].copy_from_slice(&good[fault.wire..]);
        changed
    }

    /// The outputs for one test, wire by wire: slow and plain, for checking.
    pub(crate) fn outputs_of(&self, test: &[u64], fault: Option<Fault>) -> Vec<bool> {
        let mut values: Vec<bool> = vec![];
        let mut inputs = 0;
        for (wire, gate) in self.gates.iter().enumerate() {
            let read = |wire: usize| values.get(wire).copied().unwrap_or(false);
            let (a, b) = (read(gate.a), read(gate.b));
            let driven = match gate.kind {
                Kind::Input => {
                    inputs += 1;
                    bit(test, inputs - 1)
                }
                Kind::And => a && b,
                Kind::Or => a || b,
                Kind::Nand => !(a && b),
                Kind::Nor => !(a || b),
                Kind::Xor => a != b,
                Kind::Not => !a,
            };
            let stuck = fault.filter(|fault| fault.wire == wire);
            values.push(stuck.map_or(driven, |fault| fault.stuck_at));
        }
        self.outputs.iter().map(|output| values[*output]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circuit_adds_multiplies_and_compares() {
        let bits = 4;
        let circuit = Circuit::arithmetic(bits);
        for (a, b) in (0..16_u64).flat_map(|a| (0..16_u64).map(move |b| (a, b))) {
            let out = circuit.outputs_of(&[a | b << bits], None);
            let number =
                |out: &[bool]| out.iter().rev().fold(0, |number, bit| number * 2 + u64::from(*bit));
            assert_eq!(number(&out[..5]), a + b);
            assert_eq!(number(&out[5..13]), a * b, "{a} * {b}");
            assert_eq!(out[out.len() - 3], a == b);
        }
    }

    #[test]
    fn a_circuit_comes_back_from_its_words() {
        let circuit = Circuit::arithmetic(3);
        assert_eq!(Circuit::from_words(&circuit.to_words()), circuit);
    }
}
