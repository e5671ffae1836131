//! Memory for the big pieces of one program's messages. The pipes of its ranks
//! are lent it, page by page, instead of having it copied.
//!
//! What a pipe was lent, its program may go on seeing after it has read it: so
//! nothing but messages of the same program ever lies there, and what is let go
//! is unmapped. It is used again only when the pipe has let go of it
//! ([`Outbox`](super::pipes::Outbox)).

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_program_core::address::PIECE_BYTES_MAX;
use memmap2::MmapMut;

/// How many are kept for the next pieces: what may be under way between two
/// ranks ([`window`](gleaner_program_core::address::window)), and half as much.
const FREE_MAX: usize = 96;

/// The slabs of one program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slabs(Arc<Mutex<Rack>>);

#[derive(Debug, Default)]
struct Rack {
    free: Vec<MmapMut>,
    /// Where they begin that are mapped.
    ours: BTreeSet<usize>,
}

/// Place for a piece.
#[derive(Debug)]
pub(super) struct Slab {
    memory: Memory,
    rack: Slabs,
}

#[derive(Debug)]
enum Memory {
    /// `None` once it is given back.
    Mapped(Option<MmapMut>),
    /// Of no program, or there was no map to be had. Never lent.
    Heap(Vec<u8>),
}

impl Slabs {
    fn rack(&self) -> MutexGuard<'_, Rack> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Place for a piece; of what was there before, nothing may be relied on.
    pub(super) fn take(&self) -> Slab {
        let rack = self.clone();
        let mut inside = self.rack();
        if let Some(free) = inside.free.pop() {
            return Slab { memory: Memory::Mapped(Some(free)), rack };
        }
        let memory = match MmapMut::map_anon(PIECE_BYTES_MAX) {
            Ok(map) => {
                inside.ours.insert(map.as_ptr().addr());
                Memory::Mapped(Some(map))
            }
            Err(_) => Memory::Heap(vec![0; PIECE_BYTES_MAX]),
        };
        Slab { memory, rack }
    }

    /// Do these bytes lie in a slab that can be lent?
    pub(super) fn own(&self, bytes: &[u8]) -> bool {
        let at = bytes.as_ptr().addr();
        let rack = self.rack();
        rack.ours.range(..=at).next_back().is_some_and(|slab| at - slab < PIECE_BYTES_MAX)
    }
}

impl Slab {
    /// Of no program: never lent.
    pub(super) fn apart() -> Self {
        Self { memory: Memory::Heap(vec![0; PIECE_BYTES_MAX]), rack: Slabs::default() }
    }
}

impl Deref for Slab {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Mapped(map) => map.as_deref().unwrap_or_default(),
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Slab {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Mapped(map) => map.as_deref_mut().unwrap_or_default(),
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let Memory::Mapped(map) = &mut self.memory else { return };
        let Some(map) = map.take() else { return };
        let mut rack = self.rack.rack();
        if rack.free.len() < FREE_MAX {
            rack.free.push(map);
        } else {
            rack.ours.remove(&map.as_ptr().addr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_a_slab_is_its_own() {
        let (slabs, others) = (Slabs::default(), Slabs::default());
        let (slab, other) = (slabs.take(), others.take());
        assert!(slabs.own(&slab) && slabs.own(&slab[PIECE_BYTES_MAX - 1..]));
        assert!(!slabs.own(&other) && !slabs.own(&[1, 2, 3]));
    }

    #[test]
    fn slabs_are_used_again_and_not_kept_without_end() {
        let slabs = Slabs::default();
        let first = slabs.take();
        let place = first.as_ptr();
        drop(first);
        assert_eq!(slabs.take().as_ptr(), place);
        let many: Vec<Slab> = (0..FREE_MAX + 10).map(|_| slabs.take()).collect();
        drop(many);
        let rack = slabs.rack();
        assert_eq!((rack.free.len(), rack.ours.len()), (FREE_MAX, FREE_MAX));
    }
}
