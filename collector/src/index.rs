//! Which records a log holds already: per boot, ranges of sequence numbers.
//!
//! An agent numbers without gaps, so a boot is nearly always one range,
//! 1 to n, whatever n is. Knows nothing of files.

use std::collections::BTreeMap;

use gleaner_common::id::BootId;
use serde::{Deserialize, Serialize};

/// Inclusive ranges, by their first number; they neither touch nor overlap.
type Ranges = BTreeMap<u64, u64>;

/// The records of one workstation that are on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    boots: BTreeMap<BootId, Ranges>,
}

impl Index {
    pub(crate) fn contains(&self, boot: BootId, sequence: u64) -> bool {
        self.boots
            .get(&boot)
            .and_then(|ranges| ranges.range(..=sequence).next_back())
            .is_some_and(|(_, last)| sequence <= *last)
    }

    /// Adds a record; false if it was there.
    pub(crate) fn insert(&mut self, boot: BootId, sequence: u64) -> bool {
        if self.contains(boot, sequence) {
            return false;
        }
        let ranges = self.boots.entry(boot).or_default();
        let (mut first, mut last) = (sequence, sequence);
        if let Some((before, end)) = ranges.range(..sequence).next_back()
            && end.checked_add(1) == Some(sequence)
        {
            first = *before;
        }
        if let Some(after) = sequence.checked_add(1)
            && let Some(end) = ranges.remove(&after)
        {
            last = end;
        }
        ranges.insert(first, last);
        true
    }

    /// Takes in all that another index holds.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (boot, ranges) in &other.boots {
            match self.boots.get_mut(boot) {
                None => {
                    self.boots.insert(*boot, ranges.clone());
                }
                Some(ours) => ranges.iter().for_each(|(first, last)| unite(ours, *first, *last)),
            }
        }
    }

    pub(crate) fn boots(&self) -> usize {
        self.boots.len()
    }

    /// How many separate ranges one boot has: 1 if nothing is missing.
    pub(crate) fn ranges_of(&self, boot: BootId) -> usize {
        self.boots.get(&boot).map_or(0, BTreeMap::len)
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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const BOOT: BootId = BootId([1; 16]);

    #[test]
    fn a_boot_without_gaps_is_one_range() {
        let mut index = Index::default();
        for sequence in (1..=100).rev() {
            assert!(index.insert(BOOT, sequence));
        }
        assert_eq!(index.ranges_of(BOOT), 1);
    }

    #[test]
    fn the_last_number_there_is_has_no_successor() {
        let mut index = Index::default();
        assert!(index.insert(BOOT, u64::MAX));
        assert!(index.insert(BOOT, u64::MAX - 1));
        assert!(!index.insert(BOOT, u64::MAX));
        assert_eq!(index.ranges_of(BOOT), 1);
    }

    proptest! {
        #[test]
        fn it_is_a_set(numbers in proptest::collection::vec(1u64..40, 0..60)) {
            let (mut index, mut model) = (Index::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(index.insert(BOOT, number), model.insert(number));
            }
            for number in 1..42 {
                prop_assert_eq!(index.contains(BOOT, number), model.contains(&number));
            }
            let starts = model.iter().filter(|n| !model.contains(&(**n - 1))).count();
            prop_assert_eq!(index.ranges_of(BOOT), starts);
        }

        #[test]
        fn merging_is_union(
            ours in proptest::collection::vec(1u64..40, 0..40),
            theirs in proptest::collection::vec(1u64..40, 0..40),
        ) {
            let of = |numbers: &[u64]| {
                let mut index = Index::default();
                for number in numbers {
                    index.insert(BOOT, *number);
                }
                index
            };
            let mut merged = of(&ours);
            merged.merge(&of(&theirs));
            prop_assert_eq!(merged, of(&[ours, theirs].concat()));
        }
    }
}
