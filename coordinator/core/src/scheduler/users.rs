//! Whose turn it is among users: what the queue is ordered by first.
//!
//! The promise: whoever has the lowest claim comes first, of equals whoever came
//! first; a change of a claim costs the logarithm of how many users there are.
//! Knows nothing of how claims are made: they are told
//! ([`Fact::Claim`](super::Fact::Claim)).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use gleaner_common::id::JobId;

use super::state::Turn;
use crate::shares::Claim;

/// A user, by a number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct User(pub u32);

/// A claim whose order is that of its numbers, which are not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimKey([u64; 2]);

impl From<Claim> for ClaimKey {
    fn from(claim: Claim) -> Self {
        Self([claim.group, claim.own].map(|part| part.max(0.0).to_bits()))
    }
}

/// A user among the others.
type Standing = (ClaimKey, JobId, User);

#[derive(Debug, Default)]
struct OneUser {
    claim: ClaimKey,
    /// How many processors more the user may have.
    places: u32,
    waiting: BTreeSet<Turn>,
    /// Jobs that run and could use more.
    growing: BTreeSet<Turn>,
    /// All of these, the oldest first.
    jobs: BTreeSet<JobId>,
}

impl OneUser {
    fn standing(&self, user: User) -> Option<Standing> {
        Some((self.claim, *self.jobs.first()?, user))
    }
}

/// Which of a user's jobs: those that wait, or those that could grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Waiting,
    Growing,
}

#[derive(Debug, Default)]
pub(super) struct Users {
    all: BTreeMap<User, OneUser>,
    /// Those with a job that waits or could grow.
    order: BTreeSet<Standing>,
}

impl Users {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// One of a user's jobs waits or could grow from now on, or does not any
    /// more. Who is new may have nothing until a claim is told.
    pub(super) fn put(&mut self, user: User, turn: Turn, kind: Kind, belongs: bool) {
        self.change(user, |one| {
            let set = match kind {
                Kind::Waiting => &mut one.waiting,
                Kind::Growing => &mut one.growing,
            };
            if belongs {
                set.insert(turn);
            } else {
                set.remove(&turn);
            }
            if one.waiting.contains(&turn) || one.growing.contains(&turn) {
                one.jobs.insert(turn.2);
            } else {
                one.jobs.remove(&turn.2);
            }
        });
    }

    pub(super) fn claim(&mut self, user: User, claim: Claim, places: u32) {
        self.change(user, |one| (one.claim, one.places) = (claim.into(), places));
    }

    /// So many processors more are the user's.
    pub(super) fn charge(&mut self, user: User, places: u32) {
        if let Some(one) = self.all.get_mut(&user) {
            one.places = one.places.saturating_sub(places);
        }
    }

    /// How many processors more a user may have.
    pub(super) fn places(&self, user: User) -> u32 {
        self.all.get(&user).map_or(0, |one| one.places)
    }

    fn change(&mut self, user: User, change: impl FnOnce(&mut OneUser)) {
        let one = self.all.entry(user).or_default();
        let before = one.standing(user);
        change(one);
        let after = one.standing(user);
        if before == after {
            return;
        }
        before.map(|standing| self.order.remove(&standing));
        after.map(|standing| self.order.insert(standing));
    }

    /// Those whose jobs wait or could grow, in turn.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = User> {
        self.order.iter().map(|(.., user)| *user)
    }

    fn able(&self) -> impl Iterator<Item = &OneUser> {
        self.in_turn().filter_map(|user| self.all.get(&user)).filter(|one| one.places > 0)
    }

    /// All that wait of those who may have more, in turn.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Turn> {
        self.able().flat_map(|one| one.waiting.iter().copied())
    }

    /// The same behind one of this user's.
    pub(super) fn waiting_behind(&self, user: User, after: Turn) -> impl Iterator<Item = Turn> {
        let one = self.all.get(&user);
        let own =
            one.into_iter().flat_map(move |one| one.waiting.range((Excluded(after), Unbounded)));
        // Whose only job has just started stands where it stood.
        let from = one.map(|one| one.standing(user).unwrap_or((one.claim, after.2, user)));
        let behind = from.map(|from| self.order.range((Excluded(from), Unbounded)));
        let behind = behind.into_iter().flatten().filter_map(|(.., user)| self.all.get(user));
        let behind = behind.filter(|one| one.places > 0).flat_map(|one| one.waiting.iter());
        own.chain(behind).copied()
    }

    /// All that wait or could grow of those who may have more, in turn.
    pub(super) fn claimants(&self) -> impl Iterator<Item = Turn> {
        self.able().flat_map(|one| one.waiting.union(&one.growing).copied())
    }
}
