//! What has happened to a program, and what follows from it alone.

use std::collections::{BTreeMap, VecDeque};

use gleaner_common::id::{ContentHash, Fence};
use gleaner_program_core::address::{Rank, Request, Snapshot};
use gleaner_program_core::bag::{self, Bag, Limits};
use gleaner_program_core::endpoint::OPEN_ASKS_MAX;
use gleaner_program_core::facts::End;
use gleaner_program_core::wire::{Answer, Ask};
use serde::{Deserialize, Serialize};

/// What one program's bag may hold. Guesses; they bound what a program can
/// make the coordinator remember.
const BAG: Limits = Limits { tasks_max: 1_000_000, bytes_max: 64 << 20 };

/// Ranks that began together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) parent: Option<Rank>,
}

/// A rank that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) snapshot: Snapshot,
    /// The number of the last piece to each rank.
    pub(crate) sent: Vec<(Rank, u64)>,
    /// Nobody lacks anything of it.
    pub(crate) drained: bool,
}

impl Ended {
    pub(crate) fn last_to(&self, to: Rank) -> u64 {
        self.sent.iter().find(|(rank, _)| *rank == to).map_or(0, |(_, last)| *last)
    }
}

/// A snapshot to go back to, and what was true of the program then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whole {
    pub(crate) snapshot: Snapshot,
    pub(crate) parts: BTreeMap<Rank, ContentHash>,
    groups: Vec<Group>,
    ended: BTreeMap<Rank, Ended>,
    spawned: BTreeMap<Rank, VecDeque<(Request, Answer)>>,
}

impl Whole {
    pub(crate) fn hashes(&self) -> Vec<ContentHash> {
        self.parts.values().copied().collect()
    }
}

/// What a life begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beginning {
    pub(crate) floor: Fence,
    /// Lives before this one that a failure ended.
    pub(crate) failures: u32,
    pub(crate) groups: Vec<Group>,
    pub(crate) ended: BTreeMap<Rank, Ended>,
    pub(crate) newest: Snapshot,
    /// Where it begins, if that is not the start.
    pub(crate) whole: Option<Whole>,
}

/// Written down before anybody hears of it: append, never reorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Happened {
    Began(Box<Beginning>),
    Asked {
        rank: Rank,
        request: Request,
        ask: Ask,
    },
    Gone {
        rank: Rank,
        lost: bool,
    },
    Spawned {
        by: Rank,
        request: Request,
        first: Rank,
        count: u32,
    },
    Ended {
        rank: Rank,
        end: End,
        snapshot: Snapshot,
        sent: Vec<(Rank, u64)>,
    },
    Drained(Rank),
    CutBegan(Snapshot),
    Whole {
        snapshot: Snapshot,
        parts: BTreeMap<Rank, ContentHash>,
    },
    Grew {
        first: Rank,
        count: u32,
    },
    /// All that had happened so far in this life: a journal begins anew.
    AllThis(Box<Past>),
}

impl Happened {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let written = postcard::to_stdvec(self);
        written.unwrap_or_else(|error| unreachable!("an event that does not serialise: {error}"))
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// Was this question heard before?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    New,
    Again,
    /// Of a process that is gone.
    Void,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
            Happened::AllThis(past) => *self = *past,
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
