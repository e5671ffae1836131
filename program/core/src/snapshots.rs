//! Coordinated checkpoints of a program: which are whole, and which to go
//! back to when a workstation dies.
//!
//! The promise: there is at most one snapshot under way, a snapshot counts
//! only when the parts of all ranks are kept, and the last one that counts is
//! kept until the next does. Lives at the coordinator. How the parts fit
//! together is the endpoints' business ([`endpoint`](crate::endpoint)).

use std::collections::BTreeSet;
use std::time::Duration;

use gleaner_common::time::Moment;
use serde::{Deserialize, Serialize};

use crate::address::{Rank, Snapshot};

/// How long a snapshot may take before it comes to nothing. A guess.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The rank's part is kept.
    Kept { rank: Rank, snapshot: Snapshot },
    /// The rank takes no part.
    NotKept { rank: Rank, snapshot: Snapshot },
    /// A rank has begun (spawned), and its endpoint with the newest snapshot.
    Began(Rank),
    /// The rank has ended, and nobody lacks anything of it.
    Drained(Rank),
    /// A workstation has died with this rank: there is no way on.
    Lost(Rank),
    /// All ranks have begun again where the last `GoBack` said.
    WentBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask every rank's endpoint to take part.
    Cut(Snapshot),
    /// All parts are kept: this is where the program goes back to.
    Whole(Snapshot),
    /// The parts of this snapshot are not needed any more.
    Forget(Snapshot),
    /// End every process; begin again with the parts of this snapshot, or
    /// from the start.
    GoBack(Option<Snapshot>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    Idle { due: Moment },
    Cutting { snapshot: Snapshot, missing: BTreeSet<Rank>, until: Moment },
    GoingBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshots {
    every: Duration,
    /// The ranks the program begins with.
    first: BTreeSet<Rank>,
    ranks: BTreeSet<Rank>,
    /// The ranks of the last whole snapshot: those that begin again.
    whole: Option<(Snapshot, BTreeSet<Rank>)>,
    newest: Snapshot,
    state: State,
}

impl Snapshots {
    pub fn new(now: Moment, every: Duration, ranks: impl IntoIterator<Item = Rank>) -> Self {
        let first: BTreeSet<Rank> = ranks.into_iter().collect();
        Self {
            every,
            ranks: first.clone(),
            first,
            whole: None,
            newest: Snapshot(0),
            state: State::Idle { due: now + every },
        }
    }

    /// The next snapshot has a higher number than this one.
    #[must_use]
    pub fn after(mut self, newest: Snapshot) -> Self {
        self.newest = self.newest.max(newest);
        self
    }

    /// The newest snapshot that was begun: for endpoints that begin.
    pub fn newest(&self) -> Snapshot {
        self.newest
    }

    #[must_use]
    pub fn handle(&mut self, now: Moment, event: Event) -> Vec<Effect> {
        match event {
            Event::Kept { rank, snapshot } => self.kept(now, rank, snapshot),
            Event::NotKept { snapshot, .. } => self.come_to_nothing(now, snapshot),
            // Whoever let it begin may have its cut before or after that: the
            // snapshot under way would have the one without the other.
            Event::Began(rank) => {
                self.ranks.insert(rank);
                self.come_to_nothing(now, self.newest)
            }
            // What the others have of it, they may have had after their cuts: then it is
            // in its part, which nobody keeps of a rank that is gone.
            Event::Drained(rank) => {
                let was_there = self.ranks.remove(&rank);
                if was_there { self.come_to_nothing(now, self.newest) } else { vec![] }
            }
            Event::Lost(_) => self.go_back(),
            Event::WentBack => {
                if self.state == State::GoingBack {
                    self.state = State::Idle { due: now + self.every };
                }
                vec![]
            }
        }
    }

    /// When `wake` is due. Ask again after every `handle` and `wake`.
    pub fn deadline(&self) -> Option<Moment> {
        match self.state {
            State::Idle { due } => (!self.ranks.is_empty()).then_some(due),
            State::Cutting { until, .. } => Some(until),
            State::GoingBack => None,
        }
    }

    /// Begins a snapshot that is due, or gives up one that takes too long.
    #[must_use]
    pub fn wake(&mut self, now: Moment) -> Vec<Effect> {
        if self.deadline().is_none_or(|at| now < at) {
            return vec![];
        }
        if let State::Cutting { snapshot, .. } = self.state {
            return self.come_to_nothing(now, snapshot);
        }
        self.newest = Snapshot(self.newest.0 + 1);
        let (snapshot, missing) = (self.newest, self.ranks.clone());
        self.state = State::Cutting { snapshot, missing, until: now + PATIENCE };
        vec![Effect::Cut(snapshot)]
    }

    fn kept(&mut self, now: Moment, rank: Rank, kept: Snapshot) -> Vec<Effect> {
        let State::Cutting { snapshot, missing, .. } = &mut self.state else { return vec![] };
        if *snapshot != kept || !missing.remove(&rank) || !missing.is_empty() {
            return vec![];
        }
        self.state = State::Idle { due: now + self.every };
        let before = self.whole.replace((kept, self.ranks.clone()));
        let mut effects = vec![Effect::Whole(kept)];
        effects.extend(before.map(|(snapshot, _)| Effect::Forget(snapshot)));
        effects
    }

    fn come_to_nothing(&mut self, now: Moment, which: Snapshot) -> Vec<Effect> {
        match self.state {
            State::Cutting { snapshot, .. } if snapshot == which => {
                self.state = State::Idle { due: now + self.every };
                vec![Effect::Forget(snapshot)]
            }
            State::Cutting { .. } | State::Idle { .. } | State::GoingBack => vec![],
        }
    }

    fn go_back(&mut self) -> Vec<Effect> {
        let mut effects = vec![];
        match std::mem::replace(&mut self.state, State::GoingBack) {
            State::Cutting { snapshot, .. } => effects.push(Effect::Forget(snapshot)),
            State::Idle { .. } => {}
            // More than one died; all go back already.
            State::GoingBack => return vec![],
        }
        let ranks = self.whole.as_ref().map_or(&self.first, |(_, ranks)| ranks);
        self.ranks.clone_from(ranks);
        effects.push(Effect::GoBack(self.whole.as_ref().map(|(snapshot, _)| *snapshot)));
        effects
    }
}

#[cfg(test)]
mod tests;
