//! Parts of snapshots in a lab: staged, gone back to, thrown away.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use gleaner_common::id::{ContentHash, Fence, JobId, SubprogramId};
use gleaner_common::program::Life;
use gleaner_program_core::address::Snapshot;
use rand::Rng;

use super::Lab;
use super::rank::Image;
use super::router::RouterCommand;
use super::store::Store;

/// What was staged of a rank.
#[derive(Debug)]
struct Part {
    of: SubprogramId,
    bytes: Bytes,
    image: Option<Image>,
    /// A rank of its program had lost its work by then.
    broken: bool,
}

/// What is staged, by its hash.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    staged: BTreeMap<ContentHash, Part>,
    gone: BTreeSet<ContentHash>,
    /// How often the store went back.
    selves: u32,
    /// Ranks that began with a part.
    pub(crate) begun: u64,
}

impl Cuts {
    /// Nobody goes back to these any more.
    pub(super) fn drop(&mut self, parts: Vec<ContentHash>, store: &Store) {
        for part in &parts {
            let is_kept = store.cuts.values().any(|parts| parts.contains(part));
            assert!(!is_kept, "{part} is dropped and gone back to");
        }
        self.gone.extend(parts);
    }

    /// The store went back: what it goes back to was kept with it, and what comes now
    /// is something else.
    pub(super) fn come_back(&mut self, store: &Store) {
        self.selves += 1;
        for part in store.cuts.values().flatten() {
            self.gone.remove(part);
        }
    }

    fn hash_of(&self, fence: Fence, snapshot: Snapshot, life: Life) -> ContentHash {
        let mut hash = [0; 32];
        let of = [fence.packed(), snapshot.0.into(), life.0.into(), self.selves.into()];
        for (bytes, number) in hash.chunks_exact_mut(8).zip(of) {
            bytes.copy_from_slice(&number.to_be_bytes());
        }
        ContentHash(hash)
    }

    /// A rank of the present life begins with its part of the last whole
    /// snapshot, or, if there is none, from nothing. Is it a part of a program that
    /// had lost work?
    pub(super) fn begins(
        &mut self,
        store: &Store,
        (id, fence): (SubprogramId, Fence),
        life: Life,
        cut: Option<ContentHash>,
    ) -> bool {
        let kept = store.cuts.get(&id.job).map(Vec::as_slice).unwrap_or_default();
        let part = kept.iter().find(|part| self.staged[part].of.index == id.index).copied();
        let progress = store.jobs.get(&id.job).map(|job| &job.progress);
        let is_wanted = store.attempts.contains_key(&fence)
            && progress.is_some_and(|it| it.life == life && !it.state.has_ended());
        if is_wanted {
            assert_eq!(cut, part, "{id} begins somewhere else than the others");
        }
        let Some(cut) = cut else { return false };
        assert!(!is_wanted || !self.gone.contains(&cut), "{id} begins with what is gone");
        self.begun += 1;
        assert_eq!(self.staged[&cut].of, id);
        self.staged[&cut].broken
    }

    /// The image that a part names.
    pub(super) fn image(&self, name: &[u8]) -> Image {
        let hash = ContentHash(name.try_into().expect("it is named by its part's hash"));
        self.staged[&hash].image.clone().expect("it was staged with an image")
    }
}

impl Lab {
    pub(super) fn stages(
        &mut self,
        index: usize,
        (fence, snapshot): (Fence, Snapshot),
        (bytes, image): (Bytes, Option<Image>),
    ) {
        // Nobody hears of it any more.
        let Some((job, life, rank)) = self.hosts[index].router.core().rank(fence) else { return };
        let part = if self.rng.random_bool(0.03) {
            Err("the coordinator does not take it".to_owned())
        } else {
            let hash = self.cuts.hash_of(fence, snapshot, life);
            let (of, broken) = (SubprogramId { job, index: rank.0 }, self.is_broken(job, life));
            let size_bytes = bytes.len() as u64;
            self.cuts.staged.insert(hash, Part { of, bytes, image, broken });
            Ok((hash, size_bytes))
        };
        let staged = RouterCommand::Staged { fence, snapshot, part };
        self.act(index, |core, now| core.take(now, staged));
    }

    fn is_broken(&self, job: JobId, life: Life) -> bool {
        self.broken.contains(&(job, life))
    }

    /// The part, and the image behind it: its name stands for it.
    pub(super) fn fetched(&mut self, index: usize, fence: Fence, hash: ContentHash) {
        let part = &self.cuts.staged[&hash];
        let mut bytes = part.bytes.to_vec();
        if part.image.is_some() {
            bytes.extend_from_slice(&hash.0);
        }
        let fetched = RouterCommand::Fetched { fence, part: Ok(bytes) };
        self.act(index, |core, now| core.take(now, fetched));
    }
}
