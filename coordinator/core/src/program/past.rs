//! What follows for a program from what has happened to it, and from that alone.

use std::collections::BTreeSet;

use gleaner_common::id::Fence;
use gleaner_program_core::address::{Rank, Request, Snapshot};
use gleaner_program_core::bag::{self, Bag, Limits};
use gleaner_program_core::endpoint::OPEN_ASKS_MAX;
use gleaner_program_core::wire::Answer;

use super::record::{Asked, Ended, Group, Happened, PackedPast, ProgramState, Whole};

/// What one program's bag may hold. Guesses; they bound what a program can
/// make the coordinator remember.
const BAG: Limits = Limits { tasks_max: 1_000_000, bytes_max: 64 << 20 };

/// Was this question to the bag heard before?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    New,
    Again,
    /// The question is of a process that is gone.
    Void,
}

/// All that outlives a restart of the coordinator, of one life of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) state: ProgramState,
    /// The snapshot that this life began with, if it was one.
    base: Option<Snapshot>,
    pub(super) bag: Bag,
    asked: Asked,
}

impl Past {
    pub(super) fn begin(state: ProgramState) -> Self {
        let base = state.whole.as_ref().map(|whole| whole.snapshot);
        // A rank that had asked and not heard by then asks again.
        let spawned = state.whole.as_ref().map(|whole| whole.spawned.clone()).unwrap_or_default();
        let negotiator = state.whole.as_ref().and_then(|whole| whole.negotiator);
        let asked = Asked { spawned, negotiator, ..Asked::default() };
        Self { state, base, bag: Bag::new(BAG, None), asked }
    }

    /// What the next life begins with. `counts`: this life failed by itself. If
    /// it had begun with a snapshot and made no other, that snapshot may be
    /// why. A rank that had ended there and was lost before it was known what it
    /// came to begins again, and can do so only with all of them: nobody keeps what
    /// it was sent.
    pub(super) fn again(
        &self,
        floor: Fence,
        counts: bool,
        finished: &BTreeSet<Rank>,
    ) -> ProgramState {
        let (failures, newest) = (self.state.failures + u32::from(counts), self.state.newest);
        let next = ProgramState { floor, failures, newest, ..ProgramState::default() };
        let is_of_use = |whole: &Whole| {
            let failed_from_it = counts && self.base == Some(whole.snapshot);
            let is_known = whole.ended.keys().all(|rank| finished.contains(rank));
            !self.has_used_bag() && !failed_from_it && is_known
        };
        let Some(whole) = self.state.whole.clone().filter(is_of_use) else {
            let groups = self.state.groups.iter().take(1).copied().collect();
            return ProgramState { groups, ..next };
        };
        let (groups, ended) = (whole.groups.clone(), whole.ended.clone());
        ProgramState { groups, ended, whole: Some(whole), ..next }
    }

    pub(super) fn apply(&mut self, happened: Happened) -> Vec<bag::Effect> {
        match happened {
            Happened::Began(state) => *self = Self::begin(*state),
            // Such an event comes only first in a journal, where the past is
            // made of it.
            Happened::AllThis(_) => {}
            Happened::Asked { rank, request, ask } => {
                self.asked.questions.insert(rank, request);
                return self.bag.ask(rank, request, ask);
            }
            Happened::Gone { rank, lost } => {
                if let Some(newest) = self.asked.questions.get(&rank) {
                    self.asked.void.insert(rank, *newest);
                }
                return self.bag.gone(rank, lost);
            }
            Happened::Spawned { by, request, first, count } => {
                self.state.groups.push(Group { first: first.0, count, parent: Some(by) });
                let answers = self.asked.spawned.entry(by).or_default();
                answers.push_back((request, Answer::Spawned { first, count }));
                if answers.len() > OPEN_ASKS_MAX {
                    answers.pop_front();
                }
            }
            Happened::Grew { first, count } => {
                self.state.groups.push(Group { first: first.0, count, parent: None });
            }
            Happened::Ended { rank, end, snapshot, sent } => {
                self.state.ended.insert(rank, Ended { end, snapshot, sent, drained: false });
            }
            Happened::Drained(rank) => {
                if let Some(ended) = self.state.ended.get_mut(&rank) {
                    ended.drained = true;
                }
            }
            Happened::CutBegan(snapshot) => self.state.newest = snapshot,
            Happened::Negotiates(rank) => self.asked.negotiator = Some(rank),
            Happened::Whole { snapshot, parts } => {
                let over = |(rank, _): &(&Rank, &Ended)| !parts.contains_key(rank);
                let ended = self.state.ended.iter().filter(over);
                self.state.whole = Some(Whole {
                    snapshot,
                    groups: self.state.groups.clone(),
                    spawned: self.asked.spawned.clone(),
                    negotiator: self.asked.negotiator,
                    ended: ended.map(|(rank, ended)| (*rank, ended.clone())).collect(),
                    parts,
                });
            }
        }
        vec![]
    }

    /// How many ranks there are.
    pub(crate) fn ranks(&self) -> u32 {
        self.state.groups.last().map_or(0, |group| group.first.saturating_add(group.count))
    }

    /// How many ranks have not ended.
    pub(crate) fn size(&self) -> u32 {
        let ended = u32::try_from(self.state.ended.len()).unwrap_or(u32::MAX);
        self.ranks().saturating_sub(ended)
    }

    /// The rank that speaks for the program, unless it has ended.
    pub(crate) fn negotiator(&self) -> Option<Rank> {
        self.asked.negotiator.filter(|rank| !self.state.ended.contains_key(rank))
    }

    /// The group that this rank began with.
    pub(crate) fn group(&self, rank: Rank) -> Option<Group> {
        let of = |group: &&Group| {
            group.first <= rank.0 && rank.0 < group.first.saturating_add(group.count)
        };
        self.state.groups.iter().find(of).copied()
    }

    /// The snapshot that this life began with: a later one is for the next.
    pub(crate) fn base(&self) -> Option<&Whole> {
        self.state.whole.as_ref().filter(|whole| Some(whole.snapshot) == self.base)
    }

    pub(super) fn has_used_bag(&self) -> bool {
        !self.asked.questions.is_empty()
    }

    pub(super) fn is_known_to_bag(&self, rank: Rank) -> bool {
        self.asked.questions.contains_key(&rank)
    }

    pub(super) fn question(&self, rank: Rank, request: Request) -> Question {
        if self.asked.void.get(&rank).is_some_and(|void| request <= *void) {
            Question::Void
        } else if self.asked.questions.get(&rank).is_some_and(|newest| request <= *newest) {
            Question::Again
        } else {
            Question::New
        }
    }

    pub(super) fn spawned_before(&self, by: Rank, request: Request) -> Option<Answer> {
        let answers = self.asked.spawned.get(&by)?;
        answers.iter().find(|(of, _)| *of == request).map(|(_, answer)| answer.clone())
    }
}

impl From<Past> for PackedPast {
    fn from(Past { state, base, bag, asked }: Past) -> Self {
        Self { state, base, bag: bag.into(), asked }
    }
}

impl TryFrom<PackedPast> for Past {
    type Error = bag::ContradictoryBag;

    fn try_from(packed: PackedPast) -> Result<Self, bag::ContradictoryBag> {
        let PackedPast { state, base, bag, asked } = packed;
        Ok(Self { state, base, bag: bag.try_into()?, asked })
    }
}
