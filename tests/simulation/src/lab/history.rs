//! A lab's history, as one number: equal seeds give equal ones.

use gleaner_common::time::Moment;
use serde::Serialize;

/// FNV, 64 bits: what is told apart here was not chosen to collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    hash: u64,
    pub(crate) steps: u64,
    /// When the last step was, and how many there were at that moment.
    last: (Moment, u64),
}

/// So many steps at one moment are an endless loop.
const STEPS_AT_ONCE_MAX: u64 = 20_000;

impl History {
    pub(crate) fn new() -> Self {
        Self { hash: 0xCBF2_9CE4_8422_2325, steps: 0, last: (Moment::ZERO, 0) }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn step(&mut self, now: Moment) {
        self.steps += 1;
        let before = if self.last.0 == now { self.last.1 } else { 0 };
        self.last = (now, before + 1);
        self.note(now.0);
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.last.1 < STEPS_AT_ONCE_MAX
    }

    pub(crate) fn note(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    }

    /// A frame leaves.
    pub(crate) fn frame(&mut self, frame: &impl Serialize) {
        let hashed = postcard::serialize_with_flavor(frame, Hashing(self.hash));
        self.hash = hashed.expect("it serialises");
    }
}

struct Hashing(u64);

impl postcard::ser_flavors::Flavor for Hashing {
    type Output = u64;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<u64> {
        Ok(self.0)
    }
}
