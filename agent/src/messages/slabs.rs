//! Memory for the big pieces of one program's messages. The pipes of its ranks
//! are lent it, page by page, instead of having it copied.
//!
//! What a pipe was lent, its program may go on seeing after it has read it: so
//! nothing but messages of the same program ever lies there, and what is let go
//! is unmapped. It is used again only when the pipe has let go of it
//! ([`Outbox`](super::pipes::Outbox)).

use gleaner_program_core::address::PIECE_BYTES_MAX;
use gleaner_shell::pool::{Buffer, Pool};

/// How many are kept for the next pieces: what may be under way between two
/// ranks ([`window`](gleaner_program_core::address::window)), and half as much.
const FREE_MAX: usize = 96;

/// The slabs of one program, each with place for a piece.
#[derive(Clone, Debug)]
pub(crate) struct Slabs(Pool);

impl Default for Slabs {
    fn default() -> Self {
        Self(Pool::new(PIECE_BYTES_MAX, FREE_MAX))
    }
}

impl Slabs {
    pub(super) fn take(&self) -> Buffer {
        self.0.take()
    }

    /// Do these bytes lie in a slab, so that they can be lent?
    pub(super) fn own(&self, bytes: &[u8]) -> bool {
        self.0.owns(bytes)
    }
}
