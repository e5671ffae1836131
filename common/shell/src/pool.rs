//! Buffers that are used again and again instead of being fresh each time: the
//! kernel clears a page before it first gives it.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memmap2::MmapMut;

/// Buffers of one size, each a mapping of its own.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes: usize,
    kept_max: usize,
    rack: Mutex<Rack>,
}

#[derive(Debug, Default)]
struct Rack {
    free: Vec<MmapMut>,
    /// Where they begin that are mapped.
    ours: BTreeSet<usize>,
}

/// A buffer in use. Of what was in it before, nothing may be relied on.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    pool: Option<Pool>,
}

#[derive(Debug)]
enum Memory {
    /// `None` once it is given back.
    Mapped(Option<MmapMut>),
    /// The buffer is of no pool, or there was no mapping to be had.
    Heap(Vec<u8>),
}

impl Pool {
    /// Buffers of that many bytes, of which so many are kept for later.
    pub fn new(bytes: usize, kept_max: usize) -> Self {
        Self(Arc::new(Shared { bytes, kept_max, rack: Mutex::default() }))
    }

    fn rack(&self) -> MutexGuard<'_, Rack> {
        self.0.rack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take(&self) -> Buffer {
        let mut rack = self.rack();
        let memory = if let Some(free) = rack.free.pop() {
            Memory::Mapped(Some(free))
        } else if let Ok(map) = MmapMut::map_anon(self.0.bytes) {
            rack.ours.insert(map.as_ptr().addr());
            Memory::Mapped(Some(map))
        } else {
            Memory::Heap(vec![0; self.0.bytes])
        };
        Buffer { memory, pool: Some(self.clone()) }
    }

    /// Do these bytes lie in a mapping of this pool?
    pub fn owns(&self, bytes: &[u8]) -> bool {
        let at = bytes.as_ptr().addr();
        let rack = self.rack();
        rack.ours.range(..=at).next_back().is_some_and(|begin| at - begin < self.0.bytes)
    }
}

impl Buffer {
    /// A buffer of no pool.
    pub fn apart(bytes: usize) -> Self {
        Self { memory: Memory::Heap(vec![0; bytes]), pool: None }
    }

    /// The buffer's first bytes, not to be changed any more: the buffer goes back to its pool
    /// when they are dropped.
    pub fn filled(self, bytes: usize) -> Bytes {
        let bytes = bytes.min(self.len());
        Bytes::from_owner(self).slice(..bytes)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Mapped(map) => map.as_deref().unwrap_or_default(),
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Mapped(map) => map.as_deref_mut().unwrap_or_default(),
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let (Memory::Mapped(map), Some(pool)) = (&mut self.memory, &self.pool) else { return };
        let Some(map) = map.take() else { return };
        let mut rack = pool.rack();
        if rack.free.len() < pool.0.kept_max {
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
    fn only_what_lies_in_its_buffers_is_a_pools_own() {
        let (pool, other) = (Pool::new(8_192, 4), Pool::new(8_192, 4));
        let (own, foreign) = (pool.take(), other.take());
        assert!(pool.owns(&own) && pool.owns(&own[8_191..]));
        assert!(!pool.owns(&foreign) && !pool.owns(&[1, 2, 3]));
    }

    #[test]
    fn buffers_are_used_again_and_not_kept_without_end() {
        let pool = Pool::new(8_192, 4);
        let mut first = pool.take();
        first[..3].copy_from_slice(b"abc");
        let place = first.as_ptr();
        let filled = first.filled(3);
        assert_eq!((&filled[..], pool.owns(&filled)), (&b"abc"[..], true));
        assert_ne!(pool.take().as_ptr(), place, "it is in use");
        drop(filled);
        assert_eq!(pool.take().as_ptr(), place);
        let many: Vec<Buffer> = (0..10).map(|_| pool.take()).collect();
        drop(many);
        let rack = pool.rack();
        assert_eq!((rack.free.len(), rack.ours.len()), (4, 4));
    }
}
