//! Which records a log holds already: per life of a spool, ranges of sequence numbers.
//!
//! A spool numbers without gaps, so a life is nearly always one range, 1 to n,
//! whatever n is. Knows nothing of files.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::usage::{LifeAccount, LifeKept};
use gleaner_common::wire::RANGES_MAX;
use serde::{Deserialize, Serialize};

/// Inclusive ranges, by their first number; they neither touch nor overlap.
type Ranges = BTreeMap<u64, u64>;

/// What is known of one life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LifeIndex {
    boot: BootId,
    ranges: Ranges,
    /// Numbers up to here were given out, as the log itself says.
    given: u64,
}

impl LifeIndex {
    fn records(&self) -> u64 {
        // A range of all numbers there are is no peer's way to overflow a sum.
        let length = |(first, last): (&u64, &u64)| (last - first).saturating_add(1);
        self.ranges.iter().map(length).fold(0, u64::saturating_add)
    }

    fn last(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, last)| *last)
    }
}

/// The records of one workstation that are on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    lives: BTreeMap<SpoolLife, LifeIndex>,
}

impl Index {
    pub fn contains(&self, life: SpoolLife, sequence: u64) -> bool {
        self.lives
            .get(&life)
            .and_then(|life| life.ranges.range(..=sequence).next_back())
            .is_some_and(|(_, last)| sequence <= *last)
    }

    /// Adds a record; false if it was there.
    pub fn insert(&mut self, life: SpoolLife, boot: BootId, sequence: u64) -> bool {
        if self.contains(life, sequence) {
            return false;
        }
        unite(&mut self.life(life, boot).ranges, sequence, sequence);
        true
    }

    /// Numbers were given out whose records may never come.
    pub fn give(&mut self, account: &LifeAccount) {
        let life = self.life(account.life, account.boot);
        life.given = life.given.max(account.given);
    }

    fn life(&mut self, life: SpoolLife, boot: BootId) -> &mut LifeIndex {
        self.lives.entry(life).or_insert(LifeIndex { boot, ..LifeIndex::default() })
    }

    /// Takes in all that another index holds.
    pub fn merge(&mut self, other: &Self) {
        for (life, theirs) in &other.lives {
            let ours = self.life(*life, theirs.boot);
            ours.given = ours.given.max(theirs.given);
            theirs.ranges.iter().for_each(|(first, last)| unite(&mut ours.ranges, *first, *last));
        }
    }

    pub fn lives(&self) -> usize {
        self.lives.len()
    }

    pub fn boots(&self) -> usize {
        self.lives.values().map(|life| life.boot).collect::<BTreeSet<_>>().len()
    }

    /// How many separate ranges one life has: 1 if nothing is missing.
    pub fn ranges_of(&self, life: SpoolLife) -> usize {
        self.lives.get(&life).map_or(0, |life| life.ranges.len())
    }

    /// Is it known already that numbers up to this one were given out?
    pub fn knows(&self, life: SpoolLife, given: u64) -> bool {
        self.lives.get(&life).is_some_and(|life| life.given.max(life.last()) >= given)
    }

    /// What is there of a life.
    pub fn kept(&self, id: SpoolLife) -> LifeKept {
        let Some(life) = self.lives.get(&id) else {
            return LifeKept { life: id, ..LifeKept::default() };
        };
        let newest = life.ranges.iter().rev().take(RANGES_MAX);
        let mut ranges: Vec<_> = newest.map(|(first, last)| (*first, *last)).collect();
        ranges.reverse();
        LifeKept { life: id, records: life.records(), last: life.last(), ranges }
    }

    /// How many records of spools were numbered and are not there.
    pub fn missing(&self) -> u64 {
        let numbered_by_life =
            self.lives.iter().filter(|(id, life)| **id != SpoolLife::from(life.boot));
        let missing =
            |(_, life): (_, &LifeIndex)| life.given.max(life.last()).saturating_sub(life.records());
        numbered_by_life.map(missing).fold(0, u64::saturating_add)
    }
}

/// Adds a range, joining it with all it touches or overlaps.
fn unite(ranges: &mut Ranges, first: u64, last: u64) {
    let (mut first, mut last) = (first, last);
    while let Some((start, end)) =
        ranges.range(..=last.saturating_add(1)).next_back().map(|(start, end)| (*start, *end))
        && end.saturating_add(1) >= first
    {
        ranges.remove(&start);
        first = first.min(start);
        last = last.max(end);
    }
    ranges.insert(first, last);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_common::time::WallTime;
    use proptest::prelude::*;

    use super::*;

    const BOOT: BootId = BootId([1; 16]);
    const LIFE: SpoolLife = SpoolLife([2; 16]);

    #[test]
    fn a_life_without_gaps_is_one_range() {
        let mut index = Index::default();
        for sequence in (1..=100).rev() {
            assert!(index.insert(LIFE, BOOT, sequence));
        }
        assert_eq!(index.ranges_of(LIFE), 1);
    }

    #[test]
    fn the_last_number_there_is_has_no_successor() {
        let mut index = Index::default();
        assert!(index.insert(LIFE, BOOT, u64::MAX));
        assert!(index.insert(LIFE, BOOT, u64::MAX - 1));
        assert!(!index.insert(LIFE, BOOT, u64::MAX));
        assert_eq!(index.ranges_of(LIFE), 1);
    }

    #[test]
    fn what_is_missing_is_counted_where_a_spool_numbered() {
        let mut index = Index::default();
        for sequence in [1, 2, 5] {
            index.insert(LIFE, BOOT, sequence);
        }
        assert_eq!(index.missing(), 2);
        let kept = index.kept(LIFE);
        assert_eq!((kept.records, kept.last, kept.ranges), (3, 5, vec![(1, 2), (5, 5)]));
        let (at, since_boot) = (WallTime(0), Duration::ZERO);
        let account = LifeAccount {
            life: LIFE,
            boot: BOOT,
            given: 9,
            saved: 5,
            confirmed: 0,
            at,
            since_boot,
        };
        assert!(!index.knows(LIFE, 9));
        index.give(&account);
        assert_eq!((index.missing(), index.knows(LIFE, 9)), (6, true));
        index.insert(BOOT.into(), BOOT, 4);
        assert_eq!((index.missing(), index.boots(), index.lives()), (6, 1, 2));
    }

    /// What an agent still has is what came last.
    #[test]
    fn of_many_ranges_the_newest_are_told() {
        let mut index = Index::default();
        let count = RANGES_MAX as u64 + 1;
        for number in 1..=count {
            index.insert(LIFE, BOOT, 2 * number);
        }
        let kept = index.kept(LIFE);
        let newest: Vec<_> = (2..=count).map(|number| (2 * number, 2 * number)).collect();
        assert_eq!((kept.records, kept.last, kept.ranges), (count, 2 * count, newest));
    }

    proptest! {
        #[test]
        fn it_is_a_set(numbers in proptest::collection::vec(1u64..40, 0..60)) {
            let (mut index, mut model) = (Index::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(index.insert(LIFE, BOOT, number), model.insert(number));
            }
            for number in 1..42 {
                prop_assert_eq!(index.contains(LIFE, number), model.contains(&number));
            }
            let starts = model.iter().filter(|n| !model.contains(&(**n - 1))).count();
            prop_assert_eq!(index.ranges_of(LIFE), starts);
        }

        #[test]
        fn merging_is_union(
            ours in proptest::collection::vec(1u64..40, 0..40),
            theirs in proptest::collection::vec(1u64..40, 0..40),
        ) {
            let of = |numbers: &[u64]| {
                let mut index = Index::default();
                for number in numbers {
                    index.insert(LIFE, BOOT, *number);
                }
                index
            };
            let mut merged = of(&ours);
            merged.merge(&of(&theirs));
            prop_assert_eq!(merged, of(&[ours, theirs].concat()));
        }
    }
}
