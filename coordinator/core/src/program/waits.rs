//! Who waits for whom for ever: all ranks are asked when one has waited for
//! long, and asked once more before anybody is told.
//!
//! The promise: only what two whole rounds of facts say alike, the second
//! asked for after the first was told, is called a deadlock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_program_core::address::Rank;
use gleaner_program_core::complaint::Complaint;
use gleaner_program_core::facts::{RankFacts, Stance, diagnose};
use gleaner_program_core::wire::ToRank;

use super::{Order, Past};

/// Facts may be lost with a connection: they are asked for again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Every rank of a large program is told, but not of every other one.
const NAMED_MAX: usize = 1_000;

#[derive(Debug)]
struct Round {
    asked: u64,
    told: BTreeMap<Rank, RankFacts>,
    until: Moment,
}

#[derive(Debug, Default)]
pub(super) struct Waits {
    asked: u64,
    round: Option<Round>,
    /// Something was heard that the round under way may be too old for.
    again: bool,
    /// Has anybody waited for long in this life?
    is_waited: bool,
    suspected: Vec<Complaint>,
    /// What was said already.
    said: Vec<Complaint>,
}

impl Waits {
    pub(super) fn deadline(&self) -> Option<Moment> {
        let due = (self.again && self.round.is_none()).then_some(Moment::ZERO);
        due.or(self.round.as_ref().map(|round| round.until))
    }

    /// Somebody's end may leave others without hope.
    pub(super) fn look_again(&mut self, _now: Moment) {
        self.again |= self.is_waited;
    }

    pub(super) fn facts(&mut self, _now: Moment, asked: Option<u64>, facts: RankFacts) {
        match (asked, &mut self.round) {
            (Some(asked), Some(round)) if asked == round.asked => {
                round.told.insert(facts.rank, facts);
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
                asked_of(past, live).filter(|rank| !round.told.contains_key(rank)).collect();
            if !missing.is_empty() {
                if round.until <= now {
                    round.until = now + PATIENCE;
                    ask(round.asked, missing, orders);
                }
                return;
            }
            let told = std::mem::take(&mut round.told);
            self.round = None;
            self.conclude(past, &told, orders);
        }
        if std::mem::take(&mut self.again) {
            self.asked += 1;
            let until = now + PATIENCE;
            self.round = Some(Round { asked: self.asked, told: BTreeMap::new(), until });
            ask(self.asked, asked_of(past, live).collect(), orders);
        }
    }

    fn conclude(&mut self, past: &Past, told: &BTreeMap<Rank, RankFacts>, orders: &mut Vec<Order>) {
        let facts: Vec<RankFacts> =
            (0..past.ranks()).map(|rank| facts_of(Rank(rank), past, told)).collect();
        let found = diagnose(&facts);
        let confirmed = !found.is_empty() && found == self.suspected;
        self.again |= !found.is_empty() && !confirmed;
        self.suspected = if confirmed { vec![] } else { found.clone() };
        if !confirmed || found == self.said {
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
                orders.push(Order::Tell { rank: *rank, what: ToRank::Deadlock(what) });
            }
        }
        self.said = found;
    }
}

fn ask(asked: u64, ranks: Vec<Rank>, orders: &mut Vec<Order>) {
    let what = ToRank::TellFacts { asked };
    orders.extend(ranks.into_iter().map(|rank| Order::Tell { rank, what: what.clone() }));
}

fn asked_of<'a>(past: &'a Past, live: &'a BTreeSet<Rank>) -> impl Iterator<Item = Rank> + 'a {
    live.iter().copied().filter(|rank| !past.ended.contains_key(rank))
}

/// Who has ended said then what it had sent; who is not there, or on its way,
/// is about to do something.
fn facts_of(rank: Rank, past: &Past, told: &BTreeMap<Rank, RankFacts>) -> RankFacts {
    if let Some(ended) = past.ended.get(&rank) {
        let stance = Stance::Ended(ended.end);
        return RankFacts { rank, stance, sent: ended.sent.clone(), received: vec![] };
    }
    let active = || RankFacts { rank, stance: Stance::Active, sent: vec![], received: vec![] };
    told.get(&rank).cloned().unwrap_or_else(active)
}
