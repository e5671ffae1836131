//! Who waits for whom: what each endpoint can tell, and what follows.
//!
//! A rank is lost if it waits and nobody who could wake it ever will: every
//! rank that could is lost too or has ended, and nothing is under way to it.
//! With waits for any rank this is a knot, not only a cycle, of the graph of
//! waits; it is found by taking away, again and again, whoever can be woken.
//!
//! The facts of different ranks are told at different times. What is found is
//! therefore a suspicion until the same is found in facts that were asked for
//! after the first were told: a lost rank does nothing, so its facts stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::address::Rank;
use crate::complaint::Complaint;
use crate::wire::Wait;

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    ExitCode(i32),
    Signal(i32),
    /// By its own wish, early.
    Left,
    /// The workstation was wanted back, and the rank returned its work.
    Retreated,
    /// The rank was ended: cancelled, or over a limit.
    Stopped,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExitCode(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Left => f.write_str("it left"),
            Self::Retreated => f.write_str("it retreated"),
            Self::Stopped => f.write_str("it was stopped"),
        }
    }
}

/// What a rank does, as far as its endpoint knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stance {
    /// Computes, moves, or is about to begin.
    Active,
    /// Is blocked, and has read all that its agent has written.
    Waits(Wait),
    Ended(End),
}

/// The facts of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFacts {
    pub rank: Rank,
    pub stance: Stance,
    /// The number of the last piece sent to each rank.
    pub sent: Vec<(Rank, u64)>,
    /// The number of the last piece received from each rank.
    pub received: Vec<(Rank, u64)>,
}

impl RankFacts {
    fn sent_to(&self, rank: Rank) -> u64 {
        find(&self.sent, rank)
    }

    /// The number of the last piece received from that rank; 0 before the first.
    pub fn received_from(&self, rank: Rank) -> u64 {
        find(&self.received, rank)
    }
}

fn find(list: &[(Rank, u64)], rank: Rank) -> u64 {
    list.iter().find(|(of, _)| *of == rank).map_or(0, |(_, number)| *number)
}

/// The facts of all ranks of a program, and what follows from them: first
/// who waits for somebody who has ended, then who wait for each other.
pub fn diagnose(ranks: &[RankFacts]) -> Vec<Complaint> {
    let by_rank: BTreeMap<Rank, &RankFacts> =
        ranks.iter().map(|facts| (facts.rank, facts)).collect();
    let mut lost: BTreeSet<Rank> = by_rank
        .values()
        .filter(|facts| matches!(facts.stance, Stance::Waits(_)))
        .map(|facts| facts.rank)
        .collect();
    loop {
        let woken: Vec<Rank> =
            lost.iter().copied().filter(|rank| can_wake(*rank, &lost, &by_rank)).collect();
        if woken.is_empty() {
            break;
        }
        for rank in woken {
            lost.remove(&rank);
        }
    }
    complaints(&lost, &by_rank)
}

/// Can anybody outside `lost` wake this rank, or is something under way?
fn can_wake(rank: Rank, lost: &BTreeSet<Rank>, by_rank: &BTreeMap<Rank, &RankFacts>) -> bool {
    let Some(facts) = by_rank.get(&rank) else { return true };
    let Stance::Waits(wait) = &facts.stance else { return true };
    match wait {
        Wait::Message { from: Some(from), .. } => {
            // From oneself: only what is under way already can come.
            let Some(sender) = by_rank.get(from) else { return true };
            may_act(sender, lost) || sender.sent_to(rank) > facts.received_from(*from)
        }
        Wait::Message { from: None, .. } => by_rank.values().any(|sender| {
            may_act(sender, lost) || sender.sent_to(rank) > facts.received_from(sender.rank)
        }),
        // Room comes when the receiver takes what it has, or ends.
        Wait::Room { to } => by_rank.get(to).is_none_or(|receiver| {
            may_act(receiver, lost)
                || matches!(receiver.stance, Stance::Ended(_))
                || facts.sent_to(*to) > receiver.received_from(rank) && !lost.contains(to)
        }),
        Wait::End { rank } => by_rank.get(rank).is_none_or(|awaited| {
            may_act(awaited, lost) || matches!(awaited.stance, Stance::Ended(_))
        }),
        Wait::Answer { .. } => true,
    }
}

fn may_act(facts: &RankFacts, lost: &BTreeSet<Rank>) -> bool {
    !matches!(facts.stance, Stance::Ended(_)) && !lost.contains(&facts.rank)
}

fn complaints(lost: &BTreeSet<Rank>, by_rank: &BTreeMap<Rank, &RankFacts>) -> Vec<Complaint> {
    let (mut found, mut knot) = (vec![], vec![]);
    for facts in lost.iter().filter_map(|rank| by_rank.get(rank)) {
        let Stance::Waits(on) = facts.stance else { continue };
        match because(facts.rank, &on, lost, by_rank) {
            Some(because) => found.push(Complaint::NeverComes { rank: facts.rank, on, because }),
            None => knot.push((facts.rank, on)),
        }
    }
    if !knot.is_empty() {
        found.push(Complaint::Deadlock { waits: knot });
    }
    found
}

/// Why one wait has no end, if it is somebody's end; `None` if it is a knot.
fn because(
    rank: Rank,
    on: &Wait,
    lost: &BTreeSet<Rank>,
    by_rank: &BTreeMap<Rank, &RankFacts>,
) -> Option<String> {
    match on {
        Wait::Message { from: Some(from), .. } => {
            let Stance::Ended(end) = by_rank.get(from)?.stance else { return None };
            Some(format!("{from} has ended ({end})"))
        }
        Wait::Message { from: None, .. } => {
            lost.iter().all(|other| *other == rank).then(|| "every other rank has ended".to_owned())
        }
        Wait::Room { .. } | Wait::Answer { .. } | Wait::End { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Communicator, Tag};

    fn message(from: Option<u32>) -> Stance {
        Stance::Waits(Wait::Message {
            from: from.map(Rank),
            communicator: Communicator(0),
            tag: Some(Tag(7)),
        })
    }

    fn facts(rank: u32, stance: Stance) -> RankFacts {
        RankFacts { rank: Rank(rank), stance, sent: vec![], received: vec![] }
    }

    #[track_caller]
    fn check(ranks: &[RankFacts], expected: &[&str]) {
        let said: Vec<_> = diagnose(ranks).iter().map(ToString::to_string).collect();
        assert_eq!(said, expected);
    }

    const GONE: Stance = Stance::Ended(End::ExitCode(1));

    #[test]
    fn who_waits_for_an_ended_rank_is_told_so() {
        check(
            &[facts(3, message(Some(5))), facts(5, GONE)],
            &["rank 3 waits for a message of rank 5, tag 7, which will not come: rank 5 has \
               ended (exit code 1)"],
        );
    }

    #[test]
    fn what_is_under_way_may_still_wake_a_rank() {
        let mut ended = facts(5, GONE);
        ended.sent = vec![(Rank(3), 2)];
        let mut waits = facts(3, message(Some(5)));
        waits.received = vec![(Rank(5), 1)];
        check(&[waits, ended], &[]);
    }

    #[test]
    fn a_circle_of_waits_is_a_deadlock_and_names_everybody_in_it() {
        check(
            &[facts(0, message(Some(1))), facts(1, message(Some(2))), facts(2, message(Some(0)))],
            &["deadlock: rank 0 waits for a message of rank 1, tag 7; rank 1 waits for a message \
               of rank 2, tag 7; rank 2 waits for a message of rank 0, tag 7"],
        );
    }

    #[test]
    fn a_circle_with_one_active_rank_is_none() {
        check(
            &[facts(0, message(Some(1))), facts(1, message(Some(2))), facts(2, Stance::Active)],
            &[],
        );
    }

    #[test]
    fn a_wait_for_any_rank_is_over_only_when_nobody_is_left() {
        let others = [message(None), message(None)];
        check(&[facts(0, message(None)), facts(1, Stance::Active)], &[]);
        let [one, two] = others;
        check(
            &[facts(0, one), facts(1, two)],
            &["deadlock: rank 0 waits for a message of any rank, tag 7; rank 1 waits for a \
               message of any rank, tag 7"],
        );
        check(
            &[facts(0, message(None)), facts(1, GONE)],
            &["rank 0 waits for a message of any rank, tag 7, which will not come: every other \
               rank has ended"],
        );
    }

    #[test]
    fn two_that_flood_each_other_and_never_receive_are_a_deadlock() {
        let room = |to| Stance::Waits(Wait::Room { to: Rank(to) });
        check(
            &[facts(0, room(1)), facts(1, room(0))],
            &["deadlock: rank 0 waits for room to send to rank 1; rank 1 waits for room to send \
               to rank 0"],
        );
        check(&[facts(0, room(1)), facts(1, Stance::Active)], &[]);
        check(&[facts(0, room(1)), facts(1, GONE)], &[]);
    }

    #[test]
    fn whoever_waits_for_the_coordinator_is_not_lost() {
        let asks = Stance::Waits(Wait::Answer { request: crate::address::Request(1) });
        check(&[facts(0, asks), facts(1, message(Some(0)))], &[]);
    }
}
