//! The states that a program saves at its boundaries.
//!
//! States lie in memory: they are needed when the rank goes back, here or, carried
//! along, elsewhere. A state over the bound is not kept, and the program told
//! nothing: it only cannot go back.

use std::collections::BTreeMap;

use bytes::Bytes;
use gleaner_program_core::address::Boundary;
use serde::{Deserialize, Serialize};

/// The most that is kept for one rank, the state being saved included.
pub(super) const STATES_BYTES_MAX: usize = 256 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct States {
    /// The state being saved, and whether it was too long already.
    saving: Vec<Bytes>,
    saving_bytes: usize,
    kept: BTreeMap<Boundary, Vec<Bytes>>,
    kept_bytes: usize,
}

impl States {
    /// Takes a part. With the last one: is the state kept?
    pub(super) fn keep(&mut self, boundary: Boundary, last: bool, part: Bytes) -> Option<bool> {
        self.saving_bytes += part.len();
        if self.saving_bytes + self.kept_bytes > STATES_BYTES_MAX {
            self.saving.clear();
        } else {
            self.saving.push(part);
        }
        if !last {
            return None;
        }
        let (parts, bytes) =
            (std::mem::take(&mut self.saving), std::mem::take(&mut self.saving_bytes));
        let fits = bytes + self.kept_bytes <= STATES_BYTES_MAX;
        if fits {
            self.kept_bytes += bytes;
            self.kept.insert(boundary, parts);
        }
        Some(fits)
    }

    /// What is before this boundary is not needed any more.
    pub(super) fn forget_before(&mut self, boundary: Boundary) {
        self.kept = self.kept.split_off(&boundary);
        self.kept_bytes = self.kept.values().flatten().map(Bytes::len).sum();
    }

    /// The parts of a state.
    pub(super) fn get(&self, boundary: Boundary) -> Option<&[Bytes]> {
        self.kept.get(&boundary).map(Vec::as_slice)
    }

    /// Only the state of one boundary.
    pub(super) fn only(&self, boundary: Boundary) -> Self {
        let kept: BTreeMap<_, _> = self
            .kept
            .get_key_value(&boundary)
            .map(|(at, it)| (*at, it.clone()))
            .into_iter()
            .collect();
        let kept_bytes = kept.values().flatten().map(Bytes::len).sum();
        Self { kept, kept_bytes, ..Self::default() }
    }

    /// The process has gone in the middle of saving.
    pub(super) fn interrupted(&mut self) {
        self.saving.clear();
        self.saving_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_kept_whole_or_not_at_all() {
        let part = Bytes::from(vec![1; STATES_BYTES_MAX / 2]);
        let mut states = States::default();
        assert_eq!(states.keep(Boundary(1), false, part.clone()), None);
        assert_eq!(states.keep(Boundary(1), true, Bytes::from_static(b"end")), Some(true));
        assert_eq!(states.get(Boundary(1)).map(<[Bytes]>::len), Some(2));
        assert_eq!(states.keep(Boundary(2), true, part.clone()), Some(false), "too much with it");
        assert_eq!(states.get(Boundary(2)), None);
        states.forget_before(Boundary(2));
        assert_eq!(states.get(Boundary(1)), None);
        assert_eq!(states.keep(Boundary(3), true, part), Some(true), "there is room again");
    }

    #[test]
    fn half_a_state_of_a_process_that_ended_is_no_part_of_the_next() {
        let mut states = States::default();
        assert_eq!(states.keep(Boundary(1), false, Bytes::from_static(b"half")), None);
        states.interrupted();
        assert_eq!(states.keep(Boundary(1), true, Bytes::from_static(b"new")), Some(true));
        assert_eq!(states.get(Boundary(1)), Some(&[Bytes::from_static(b"new")][..]));
    }
}
