//! What running jobs have been asked to give, and for whom: the agreements of
//! Posner, Hupfeld and Finnerty.
//!
//! They tie single nodes to a waiting job. Nodes are alike, so counts do; a node
//! that a job gives while it takes another one is a node that it keeps, and the
//! free one is put aside in its place until the job has answered.

use std::collections::BTreeMap;

use gleaner_common::id::JobId;

use crate::scheduler::cycle::Cycle;
use crate::scheduler::state::{State, Turn};

/// With which processors an agreement is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// Its own.
    Directly,
    /// Any that have been given for somebody.
    BySteal,
    /// Any that are free.
    FromPool,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    giver: JobId,
    taker: Turn,
    count: u32,
}

#[derive(Debug)]
pub(super) struct Agreements {
    met: Met,
    /// What each waiting job was promised in all.
    needs: BTreeMap<Turn, u32>,
    /// What has not been given yet, the earliest promised first.
    promises: Vec<Promise>,
    /// Given, and free until the agreement is met.
    given: u32,
    /// Free, and put aside until this job has answered.
    aside: BTreeMap<JobId, u32>,
}

impl Agreements {
    pub(super) fn new(met: Met) -> Self {
        let (needs, aside) = (BTreeMap::new(), BTreeMap::new());
        Self { met, needs, promises: vec![], given: 0, aside }
    }

    pub(super) fn has(&self, taker: Turn) -> bool {
        self.needs.contains_key(&taker)
    }

    /// Free processors without an agreement.
    pub(super) fn free(&self, state: &State) -> u32 {
        self.pool(state).saturating_sub(self.given)
    }

    /// Free processors that are not put aside.
    fn pool(&self, state: &State) -> u32 {
        state.free().saturating_sub(self.aside.values().sum())
    }

    pub(super) fn promise(&mut self, giver: JobId, taker: Turn, count: u32) {
        *self.needs.entry(taker).or_default() += count;
        self.promises.push(Promise { giver, taker, count });
    }

    /// Puts free processors aside, in place of those that this job keeps.
    pub(super) fn put_aside(&mut self, giver: JobId, count: u32) {
        *self.aside.entry(giver).or_default() += count;
    }

    /// Starts whoever has what was promised.
    pub(super) fn resolve(&mut self, cycle: &mut Cycle<'_>) {
        self.settle(cycle);
        let takers: Vec<(Turn, u32)> =
            self.needs.iter().map(|(turn, need)| (*turn, *need)).collect();
        for (taker, need) in takers {
            let is_met = match self.met {
                Met::Directly => self.promises.iter().all(|promise| promise.taker != taker),
                Met::BySteal => need <= self.given,
                Met::FromPool => need <= self.pool(cycle),
            };
            if is_met && cycle.start(taker, need) {
                self.needs.remove(&taker);
                self.use_up(need);
            }
        }
        // Nothing more will be given: jobs have declined, or owners have come.
        if self.promises.is_empty() {
            self.needs.clear();
            self.given = 0;
        }
    }

    /// Takes note of what has been given, or will never be taken.
    fn settle(&mut self, state: &State) {
        let is_pending =
            |job: JobId| state.get(job).is_some_and(|it| it.asked > 0 || it.offered > 0);
        let given = &mut self.given;
        self.promises.retain(|promise| {
            let is_pending = is_pending(promise.giver);
            *given += if is_pending { 0 } else { promise.count };
            is_pending
        });
        self.aside.retain(|job, _| is_pending(*job));
        let gone: Vec<Turn> =
            self.needs.keys().filter(|turn| state.waiting_at(**turn).is_none()).copied().collect();
        for turn in gone {
            let need = self.needs.remove(&turn).unwrap_or(0);
            self.use_up(need);
        }
    }

    /// Of those that were given first; of a pool, what is missing is no longer
    /// promised, the last promised first.
    fn use_up(&mut self, need: u32) {
        let mut missing = need.saturating_sub(self.given);
        self.given = self.given.saturating_sub(need);
        while missing > 0
            && let Some(last) = self.promises.last_mut()
        {
            let less = missing.min(last.count);
            last.count -= less;
            missing -= less;
            if last.count == 0 {
                self.promises.pop();
            }
        }
    }
}
