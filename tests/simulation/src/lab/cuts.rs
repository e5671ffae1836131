//! Parts of snapshots in a lab: staged, gone back to, thrown away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, SubprogramId};
use gleaner_common::program::Life;
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::address::Snapshot;
use gleaner_program_core::wire::FromRank;
use rand::Rng;

use super::rank::{Image, Script, frame};
use super::store::Store;
use super::{Lab, Local};

/// What is staged, by its hash.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    staged: BTreeMap<ContentHash, (Script, Option<Image>)>,
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

    fn hash_of(&self, script: &Script, snapshot: Snapshot) -> ContentHash {
        let mut hash = [0; 32];
        let of = [script.job.0, script.rank, script.life.0, snapshot.0, self.selves];
        for (bytes, number) in hash.chunks_exact_mut(4).zip(of) {
            bytes.copy_from_slice(&number.to_be_bytes());
        }
        ContentHash(hash)
    }

    /// A rank of the present life begins with its part of the last whole
    /// snapshot, or, if there is none, from nothing.
    pub(super) fn begin(
        &mut self,
        store: &Store,
        (id, fence): (SubprogramId, Fence),
        life: Life,
        cut: Option<ContentHash>,
    ) -> Option<(Script, Option<Image>)> {
        let kept = store.cuts.get(&id.job).map(Vec::as_slice).unwrap_or_default();
        let part = kept.iter().find(|part| self.staged[part].0.rank == id.index).copied();
        let progress = store.jobs.get(&id.job).map(|job| &job.progress);
        let is_wanted = store.attempts.contains_key(&fence)
            && progress.is_some_and(|it| it.life == life && !it.state.has_ended());
        if is_wanted {
            assert_eq!(cut, part, "{id} begins somewhere else than the others");
        }
        let cut = cut?;
        assert!(!is_wanted || !self.gone.contains(&cut), "{id} begins with what is gone");
        self.begun += 1;
        let (mut script, image) = self.staged[&cut].clone();
        assert_eq!((script.job, script.rank), (id.job, id.index));
        (script.life, script.cut) = (life, None);
        Some((script, image))
    }
}

impl Lab {
    /// Also a frozen rank has a part: what it saved last, or its last image.
    pub(super) fn tell_to_cut(&mut self, index: usize, fence: Fence, snapshot: Snapshot) {
        let after = self.up_to(Duration::from_secs(1));
        self.plan_here(index, after, Local::Cut { fence, snapshot });
    }

    pub(super) fn cut_is_staged(&mut self, index: usize, fence: Fence, snapshot: Snapshot) {
        let fails = self.rng.random_bool(0.03);
        let Some(endpoint) = self.hosts[index].router.endpoints.get_mut(&fence) else { return };
        let Script { job, rank, life, .. } = endpoint.script;
        let said = if endpoint.ended.is_some() {
            let script = Script::new(job, rank, life, false);
            let part = self.cuts.hash_of(&script, snapshot);
            self.cuts.staged.insert(part, (script, None));
            cut_frame(fence, life, (snapshot, part))
        } else if endpoint.is_set_going() {
            if endpoint.script.cut.is_some_and(|(of, _)| of >= snapshot) {
                return;
            }
            match endpoint.way_back() {
                Ok(image) if !fails => {
                    let part = self.cuts.hash_of(&endpoint.script, snapshot);
                    endpoint.script.cut = Some((snapshot, part));
                    self.cuts.staged.insert(part, (endpoint.script.clone(), image));
                    cut_frame(fence, life, (snapshot, part))
                }
                // The rank waits for an image, but not for ever.
                Err(_) if self.rng.random_bool(0.8) => {
                    self.want_image(index, fence);
                    return self.tell_to_cut(index, fence, snapshot);
                }
                Ok(_) | Err(_) => frame(fence, life, &FromRank::NoCut(snapshot)),
            }
        } else {
            return;
        };
        self.send_up(index, said);
    }
}

pub(super) fn cut_frame(
    fence: Fence,
    life: Life,
    (snapshot, part): (Snapshot, ContentHash),
) -> AgentFrame {
    frame(fence, life, &FromRank::Cut { snapshot, part, size_bytes: 100 })
}
