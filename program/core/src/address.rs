//! The numbers of the rank-message layer, each a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number!(
    /// A subprogram's number in its program: 0, 1, .. It never changes, and it
    /// is all that a message is addressed to.
    Rank(u32),
    "rank "
);
number!(
    /// What a message is about, chosen by the program.
    Tag(u32),
    "tag "
);
number!(
    /// A separate space of tags. 0 is the program's own; the library takes
    /// others for collective operations.
    Communicator(u32),
    "communicator "
);
number!(
    /// A state that a program has saved, counted for each rank. 0 is its start.
    Boundary(u64),
    "boundary "
);
number!(
    /// A coordinated checkpoint of a whole program; grows, also over those
    /// that came to nothing. 0 is none.
    Snapshot(u32),
    "snapshot "
);
number!(
    /// A question of a rank to the coordinator, counted for each rank from 1.
    Request(u64),
    "request "
);
number!(
    /// One unit of a task bag.
    Task(u64),
    "task "
);
number!(
    /// A negotiation of one job, counted from 1 by the side that opened it.
    Negotiation(u64),
    "negotiation "
);

/// The most bytes of a message that travel in one piece. Longer messages are
/// cut into pieces of exactly this length and a shorter last one: always the
/// same way, so that a repeated subtask sends the same pieces again.
pub const PIECE_BYTES_MAX: usize = 64 << 10;

/// The longest message.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 40;

/// What a piece costs beside its bytes when room is counted: a bound on its
/// bookkeeping at either agent, so that empty messages are not free.
pub const PIECE_COST: u64 = 64;

/// The most ranks of a program.
pub const RANKS_MAX: u32 = 65_536;

/// The bytes that the windows of one rank may take together, both ways.
pub const WINDOWS_BYTES: u64 = 64 << 20;
pub const WINDOW_BYTES_MIN: u64 = 256 << 10;
pub const WINDOW_BYTES_MAX: u64 = 4 << 20;

/// What counts against room: a piece's bytes and its bookkeeping.
pub fn cost(payload_bytes: usize) -> u64 {
    payload_bytes as u64 + PIECE_COST
}

/// How much may be under way from one rank to another, in cost. Both ends
/// compute it from the most ranks the program may have.
///
/// A guess, not yet measured: 4 MiB fill 10 Gb/s for 3 ms.
pub fn window(ranks_max: u32) -> u64 {
    (WINDOWS_BYTES / u64::from(ranks_max.max(1))).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

/// Which part of a message a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    Whole,
    /// More follow; the message is this long.
    First {
        bytes: u64,
    },
    Middle,
    Last,
}

/// What is written on a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    pub communicator: Communicator,
    pub tag: Tag,
    pub part: Part,
}

impl Envelope {
    pub fn whole(communicator: Communicator, tag: Tag) -> Self {
        Self { communicator, tag, part: Part::Whole }
    }
}

/// Cuts a message into the parts in which it travels: which part, and where
/// in the message its bytes are.
pub fn pieces(bytes: usize) -> impl Iterator<Item = (Part, std::ops::Range<usize>)> {
    let count = bytes.div_ceil(PIECE_BYTES_MAX).max(1);
    (0..count).map(move |index| {
        let start = index * PIECE_BYTES_MAX;
        let part = match index {
            _ if count == 1 => Part::Whole,
            0 => Part::First { bytes: bytes as u64 },
            _ if index + 1 == count => Part::Last,
            _ => Part::Middle,
        };
        (part, start..bytes.min(start + PIECE_BYTES_MAX))
    })
}

/// Follows the pieces of one pair and says if they make messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// Bytes of the begun message that are still to come.
    left: u64,
}

impl Inside {
    /// Is a message begun and not whole?
    pub fn is_open(self) -> bool {
        self.left > 0
    }

    /// Can a message be so long?
    pub(crate) fn is_possible(self) -> bool {
        self.left <= MESSAGE_BYTES_MAX
    }

    /// Takes the next piece. `false`: it cannot be the next one.
    #[must_use]
    pub fn accept(&mut self, part: Part, bytes: usize) -> bool {
        let (full, length) = (bytes == PIECE_BYTES_MAX, bytes as u64);
        match part {
            Part::Whole => !self.is_open() && bytes <= PIECE_BYTES_MAX,
            Part::First { bytes: total } => {
                let good = !self.is_open() && full && total > length && total <= MESSAGE_BYTES_MAX;
                if good {
                    self.left = total - length;
                }
                good
            }
            Part::Middle => {
                let good = full && self.left > length;
                if good {
                    self.left -= length;
                }
                good
            }
            Part::Last => {
                let good = self.is_open() && bytes <= PIECE_BYTES_MAX && self.left == length;
                if good {
                    self.left = 0;
                }
                good
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_pieces_of_a_message_are_accepted_and_hold_every_byte_once(
            bytes in prop_oneof![0usize..3, Just(PIECE_BYTES_MAX), 0usize..1_000_000]
        ) {
            let (mut inside, mut next) = (Inside::default(), 0);
            for (part, range) in pieces(bytes) {
                prop_assert_eq!(range.start, next);
                next = range.end;
                prop_assert!(inside.accept(part, range.len()));
            }
            prop_assert_eq!(next, bytes);
            prop_assert!(!inside.is_open());
        }
    }

    #[test]
    fn pieces_that_make_no_message_are_refused() {
        let full = PIECE_BYTES_MAX;
        let total = Part::First { bytes: 2 * full as u64 + 5 };
        let mut inside = Inside::default();
        assert!(!inside.accept(Part::Middle, full), "a middle without a first");
        assert!(!inside.accept(Part::Last, 5), "a last without a first");
        assert!(!inside.accept(total, 10), "a short first");
        assert!(!inside.accept(Part::First { bytes: full as u64 }, full), "nothing would follow");
        assert!(inside.accept(total, full));
        assert!(!inside.accept(Part::Whole, 1), "a message inside another");
        assert!(!inside.accept(Part::Last, 5), "too early");
        assert!(inside.accept(Part::Middle, full));
        assert!(!inside.accept(Part::Middle, full), "too many");
        assert!(!inside.accept(Part::Last, 6), "too long");
        assert!(inside.accept(Part::Last, 5));
    }

    #[test]
    fn a_window_holds_at_least_two_pieces_however_many_ranks_there_are() {
        for ranks in [0, 1, 16, 17, 1_000, RANKS_MAX] {
            assert!(window(ranks) >= 2 * cost(PIECE_BYTES_MAX), "{ranks}");
            assert!(window(ranks) <= WINDOW_BYTES_MAX, "{ranks}");
        }
    }
}
