//! Who waits for whom for ever: all ranks are asked when one has waited for
//! long, and asked once more before anybody is told.
//!
//! A rank that only waits for room at one that computes is looked at again
//! later: the other may yet receive, and the user is told that it has not so
//! far.
//!
//! The promise: only what two whole rounds of facts say alike, the second
//! asked for after the first was told, is called a deadlock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_program_core::address::Rank;
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::facts::{RankFacts, Stance, diagnose};
use gleaner_program_core::wire::{ToRank, Wait};

use super::{Order, Past};

/// Facts may be lost with a connection: they are asked for again.
const PATIENCE: Duration = Duration::from_secs(5);

/// A rank that receives nothing for so long while others have no room left to
/// send to it is named, once to each of them.
const HELD_UP_FOR: Duration = Duration::from_secs(10);

/// Every rank of a large program is told, but not of every other one.
const NAMED_MAX: usize = 1_000;

#[derive(Debug)]
struct Round {
    asked: u64,
    answers: BTreeMap<Rank, RankFacts>,
    until: Moment,
}

/// A rank waits for room at another, which does not wait itself.
#[derive(Clone, Copy, Debug)]
struct HeldUp {
    /// What the other has received of it.
    received: u64,
    since: Moment,
}

#[derive(Debug, Default)]
pub(super) struct Waits {
    asked: u64,
    round: Option<Round>,
    /// Something was heard that the round under way may be too old for.
    again: bool,
    /// Has anybody waited for long in this life?
    is_waited: bool,
    /// The held-up ranks, by who waits and who is waited for.
    held_up: BTreeMap<(Rank, Rank), HeldUp>,
    /// The pairs of which the user was told: not again, however often it
    /// happens.
    reported_held_up: BTreeSet<(Rank, Rank)>,
    suspected: Vec<Complaint>,
    /// The complaints that the user was told already.
    reported: Vec<Complaint>,
}

impl Waits {
    pub(super) fn deadline(&self) -> Option<Moment> {
        match &self.round {
            Some(round) => Some(round.until),
            None if self.again => Some(Moment::ZERO),
            None => self.held_up.values().map(|held_up| held_up.since + HELD_UP_FOR).min(),
        }
    }

    /// A rank has ended, which may leave others without hope.
    pub(super) fn look_again(&mut self, _now: Moment) {
        self.again |= self.is_waited;
    }

    pub(super) fn facts(&mut self, _now: Moment, asked: Option<u64>, facts: RankFacts) {
        match (asked, &mut self.round) {
            (Some(asked), Some(round)) if asked == round.asked => {
                round.answers.insert(facts.rank, facts);
            }
            (Some(_), _) => {}
            (None, _) => {
                self.is_waited = true;
                self.again = true;
            }
        }
    }

    /// Begins a round if there is reason to, and ends one that is whole.
    pub(super) fn go_on(
        &mut self,
        now: Moment,
        past: &Past,
        live: &BTreeSet<Rank>,
        orders: &mut Vec<Order>,
    ) {
        if let Some(round) = &mut self.round {
            let missing: Vec<Rank> =
                asked_of(past, live).filter(|rank| !round.answers.contains_key(rank)).collect();
            if !missing.is_empty() {
                if round.until <= now {
                    round.until = now + PATIENCE;
                    ask(round.asked, missing, orders);
                }
                return;
            }
            let answers = std::mem::take(&mut round.answers);
            self.round = None;
            self.see_held_up(now, &answers, orders);
            self.conclude(past, &answers, orders);
        }
        let is_due = self.held_up.values().any(|held_up| held_up.since + HELD_UP_FOR <= now);
        self.again |= is_due;
        if std::mem::take(&mut self.again) {
            self.asked += 1;
            let until = now + PATIENCE;
            self.round = Some(Round { asked: self.asked, answers: BTreeMap::new(), until });
            ask(self.asked, asked_of(past, live).collect(), orders);
        }
    }

    /// Finds the ranks that have been without room for long, and at whom.
    fn see_held_up(
        &mut self,
        now: Moment,
        answers: &BTreeMap<Rank, RankFacts>,
        orders: &mut Vec<Order>,
    ) {
        let mut before = std::mem::take(&mut self.held_up);
        for (&rank, facts) in answers {
            let Stance::Waits(Wait::Room { to: by }) = facts.stance else { continue };
            let Some(busy) = answers.get(&by).filter(|it| it.stance == Stance::Active) else {
                continue;
            };
            if self.reported_held_up.contains(&(rank, by)) {
                continue;
            }
            let received = busy.received_from(rank);
            let known = before.remove(&(rank, by)).filter(|it| it.received == received);
            let held_up = known.unwrap_or(HeldUp { received, since: now });
            let span = now.since(held_up.since);
            if span >= HELD_UP_FOR {
                self.reported_held_up.insert((rank, by));
                orders.push(Order::Note(Complaint::HeldUp { rank, by, span }.to_string()));
            } else {
                self.held_up.insert((rank, by), held_up);
            }
        }
    }

    fn conclude(
        &mut self,
        past: &Past,
        answers: &BTreeMap<Rank, RankFacts>,
        orders: &mut Vec<Order>,
    ) {
        let facts: Vec<RankFacts> =
            (0..past.ranks()).map(|rank| facts_of(Rank(rank), past, answers)).collect();
        let found = diagnose(&facts);
        let confirmed = !found.is_empty() && found == self.suspected;
        self.again |= !found.is_empty() && !confirmed;
        self.suspected = if confirmed { vec![] } else { found.clone() };
        if !confirmed || found == self.reported {
            return;
        }
        for complaint in &found {
            orders.push(Order::Note(complaint.to_string()));
            let waits = if let Complaint::Deadlock { waits } = complaint {
                waits.clone()
            } else if let Complaint::NeverComes { rank, on, .. } = complaint {
                vec![(*rank, *on)]
            } else {
                continue;
            };
            for (rank, on) in &waits {
                let others = waits.iter().filter(|(other, _)| other != rank);
                let what = if waits.len() <= NAMED_MAX {
                    waits.clone()
                } else {
                    [(*rank, *on)].into_iter().chain(others.copied()).take(NAMED_MAX).collect()
                };
                orders.push(Order::Send { rank: *rank, what: ToRank::Deadlock(what) });
            }
        }
        self.reported = found;
    }
}

fn ask(asked: u64, ranks: Vec<Rank>, orders: &mut Vec<Order>) {
    let what = ToRank::TellFacts { asked };
    orders.extend(ranks.into_iter().map(|rank| Order::Send { rank, what: what.clone() }));
}

fn asked_of<'a>(past: &'a Past, live: &'a BTreeSet<Rank>) -> impl Iterator<Item = Rank> + 'a {
    live.iter().copied().filter(|rank| !past.state.ended.contains_key(rank))
}

/// What is known of a rank. One that has ended said then what it had sent; one
/// without a process, or being carried, is about to do something.
fn facts_of(rank: Rank, past: &Past, answers: &BTreeMap<Rank, RankFacts>) -> RankFacts {
    if let Some(ended) = past.state.ended.get(&rank) {
        let stance = Stance::Ended(ended.end);
        return RankFacts { rank, stance, sent: ended.sent.clone(), received: vec![] };
    }
    let active = || RankFacts { rank, stance: Stance::Active, sent: vec![], received: vec![] };
    answers.get(&rank).cloned().unwrap_or_else(active)
}

#[cfg(test)]
mod tests {
    use super::super::record::ProgramState;
    use super::*;

    fn s(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn facts(rank: u32, stance: Stance, received: u64) -> RankFacts {
        let received = vec![(Rank(1 - rank), received)];
        RankFacts { rank: Rank(rank), stance, sent: vec![], received }
    }

    /// One round: rank 0 waits for room at rank 1, which has received so much.
    fn round(waits: &mut Waits, now: Moment, received: u64) -> Vec<String> {
        let past = Past::begin(ProgramState::default());
        let live = BTreeSet::from([Rank(0), Rank(1)]);
        let mut orders = vec![];
        waits.go_on(now, &past, &live, &mut orders);
        let asked = Some(waits.asked);
        waits.facts(now, asked, facts(0, Stance::Waits(Wait::Room { to: Rank(1) }), 0));
        waits.facts(now, asked, facts(1, Stance::Active, received));
        waits.go_on(now, &past, &live, &mut orders);
        let note = |order| if let Order::Note(text) = order { Some(text) } else { None };
        orders.into_iter().filter_map(note).collect()
    }

    #[test]
    fn who_receives_nothing_for_long_while_another_has_no_room_is_named_once() {
        let mut waits = Waits::default();
        waits.facts(s(1), None, facts(0, Stance::Waits(Wait::Room { to: Rank(1) }), 0));
        assert_eq!(round(&mut waits, s(1), 7), [""; 0]);
        assert_eq!(waits.deadline(), Some(s(11)));
        // It has received something: its time begins anew.
        assert_eq!(round(&mut waits, s(11), 8), [""; 0]);
        assert_eq!(waits.deadline(), Some(s(21)));
        let told = "rank 0 has waited for room to send to rank 1, which has received nothing of \
                    it for 10 s";
        assert_eq!(round(&mut waits, s(21), 8), [told]);
        assert_eq!(waits.deadline(), None);
        // Nor when it happens again.
        for at in [30, 50] {
            waits.look_again(s(at));
            assert_eq!(round(&mut waits, s(at), 9), [""; 0]);
            assert_eq!(waits.deadline(), None);
        }
    }
}
