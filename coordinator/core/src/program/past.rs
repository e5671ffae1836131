//! What follows for a program from what has happened to it, and from that alone.

use std::collections::{BTreeMap, VecDeque};

use gleaner_common::id::Fence;
use gleaner_program_core::address::{Rank, Request, Snapshot};
use gleaner_program_core::bag::{self, Bag, Limits};
use gleaner_program_core::endpoint::OPEN_ASKS_MAX;
use gleaner_program_core::wire::Answer;

use super::record::{Beginning, Ended, Group, Happened, PackedPast, Whole};

/// What one program's bag may hold. Guesses; they bound what a program can
/// make the coordinator remember.
const BAG: Limits = Limits { tasks_max: 1_000_000, bytes_max: 64 << 20 };

/// Was this question heard before?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    New,
    Again,
    /// Of a process that is gone.
    Void,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) floor: Fence,
    pub(crate) failures: u32,
    pub(crate) groups: Vec<Group>,
    pub(crate) ended: BTreeMap<Rank, Ended>,
    /// The newest snapshot that was begun.
    pub(crate) newest: Snapshot,
    pub(super) whole: Option<Whole>,
    /// The snapshot that this life began with, if it was one.
    base: Option<Snapshot>,
    pub(super) bag: Bag,
    /// The newest question to the bag of each rank, and of those, the newest
    /// of a process that is gone.
    questions: BTreeMap<Rank, Request>,
    void: BTreeMap<Rank, Request>,
    /// The last answers of their kind: a question may come again.
    spawned: BTreeMap<Rank, VecDeque<(Request, Answer)>>,
}

impl Past {
    pub(super) fn begin(beginning: Beginning) -> Self {
        let whole = beginning.whole.as_ref();
        // Who had asked and not heard by then asks again.
        let spawned = whole.map(|whole| whole.spawned.clone()).unwrap_or_default();
        Self {
            floor: beginning.floor,
            failures: beginning.failures,
            groups: beginning.groups,
            ended: beginning.ended,
            newest: beginning.newest,
            base: beginning.whole.as_ref().map(|whole| whole.snapshot),
            whole: beginning.whole,
            bag: Bag::new(BAG, None),
            questions: BTreeMap::new(),
            void: BTreeMap::new(),
            spawned,
        }
    }

    /// What the next life begins with. `counts`: this one failed by itself. If
    /// it had begun with a snapshot and came to no other, that may be why.
    pub(super) fn again(&self, floor: Fence, counts: bool) -> Beginning {
        let failures = self.failures + u32::from(counts);
        let newest = self.newest;
        let is_of_use = |whole: &Whole| {
            let failed_from_it = counts && self.base == Some(whole.snapshot);
            !self.has_used_bag() && !failed_from_it
        };
        match self.whole.clone().filter(is_of_use) {
            Some(whole) => Beginning {
                floor,
                failures,
                groups: whole.groups.clone(),
                ended: whole.ended.clone(),
                newest,
                whole: Some(whole),
            },
            None => Beginning {
                floor,
                failures,
                groups: self.groups.first().copied().into_iter().collect(),
                ended: BTreeMap::new(),
                newest,
                whole: None,
            },
        }
    }

    pub(super) fn apply(&mut self, happened: Happened) -> Vec<bag::Effect> {
        match happened {
            Happened::Began(beginning) => *self = Self::begin(*beginning),
            // Only a journal's first event, and the past is made of it there.
            Happened::AllThis(_) => {}
            Happened::Asked { rank, request, ask } => {
                self.questions.insert(rank, request);
                return self.bag.ask(rank, request, ask);
            }
            Happened::Gone { rank, lost } => {
                if let Some(newest) = self.questions.get(&rank) {
                    self.void.insert(rank, *newest);
                }
                return self.bag.gone(rank, lost);
            }
            Happened::Spawned { by, request, first, count } => {
                self.groups.push(Group { first: first.0, count, parent: Some(by) });
                let answers = self.spawned.entry(by).or_default();
                answers.push_back((request, Answer::Spawned { first, count }));
                if answers.len() > OPEN_ASKS_MAX {
                    answers.pop_front();
                }
            }
            Happened::Grew { first, count } => {
                self.groups.push(Group { first: first.0, count, parent: None });
            }
            Happened::Ended { rank, end, snapshot, sent } => {
                self.ended.insert(rank, Ended { end, snapshot, sent, drained: false });
            }
            Happened::Drained(rank) => {
                if let Some(ended) = self.ended.get_mut(&rank) {
                    ended.drained = true;
                }
            }
            Happened::CutBegan(snapshot) => self.newest = snapshot,
            Happened::Whole { snapshot, parts } => {
                let over = |(rank, _): &(&Rank, &Ended)| !parts.contains_key(rank);
                let ended = self.ended.iter().filter(over);
                self.whole = Some(Whole {
                    snapshot,
                    groups: self.groups.clone(),
                    spawned: self.spawned.clone(),
                    ended: ended.map(|(rank, ended)| (*rank, ended.clone())).collect(),
                    parts,
                });
            }
        }
        vec![]
    }

    /// How many ranks there are.
    pub(crate) fn ranks(&self) -> u32 {
        self.groups.last().map_or(0, |group| group.first.saturating_add(group.count))
    }

    /// Whom this rank began with.
    pub(crate) fn group(&self, rank: Rank) -> Option<Group> {
        let of = |group: &&Group| {
            group.first <= rank.0 && rank.0 < group.first.saturating_add(group.count)
        };
        self.groups.iter().find(of).copied()
    }

    /// The snapshot that this life began with: a later one is for the next.
    pub(crate) fn base(&self) -> Option<&Whole> {
        self.whole.as_ref().filter(|whole| Some(whole.snapshot) == self.base)
    }

    pub(super) fn has_used_bag(&self) -> bool {
        !self.questions.is_empty()
    }

    pub(super) fn is_known_to_bag(&self, rank: Rank) -> bool {
        self.questions.contains_key(&rank)
    }

    pub(super) fn undecided(&self, rank: Rank, request: Request) -> Undecided {
        if self.void.get(&rank).is_some_and(|void| request <= *void) {
            Undecided::Void
        } else if self.questions.get(&rank).is_some_and(|newest| request <= *newest) {
            Undecided::Again
        } else {
            Undecided::New
        }
    }

    pub(super) fn spawned_before(&self, by: Rank, request: Request) -> Option<Answer> {
        let answers = self.spawned.get(&by)?;
        answers.iter().find(|(of, _)| *of == request).map(|(_, answer)| answer.clone())
    }
}

impl From<Past> for PackedPast {
    fn from(past: Past) -> Self {
        let Past { floor, failures, groups, ended, newest, whole, base, .. } = past;
        let Past { bag, questions, void, spawned, .. } = past;
        let bag = bag.into();
        Self { floor, failures, groups, ended, newest, whole, base, bag, questions, void, spawned }
    }
}

impl TryFrom<PackedPast> for Past {
    type Error = bag::ContradictoryBag;

    fn try_from(packed: PackedPast) -> Result<Self, bag::ContradictoryBag> {
        let PackedPast { floor, failures, groups, ended, newest, whole, base, .. } = packed;
        let PackedPast { bag, questions, void, spawned, .. } = packed;
        let bag = bag.try_into()?;
        Ok(Self {
            floor,
            failures,
            groups,
            ended,
            newest,
            whole,
            base,
            bag,
            questions,
            void,
            spawned,
        })
    }
}
