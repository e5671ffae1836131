//! How much of a workstation: what it lends, what a guest asks for and takes.
//!
//! The promise: coordinator and agent come to the same amounts, so that what one
//! of them places the other has room for. What guests take together is never
//! more than what is lent, in any of the four.

use serde::{Deserialize, Serialize};

use crate::units::spoken_size;

/// The most cores, and the most GPUs, that one guest may ask for.
pub const CORES_MAX: u16 = 1_024;
pub const GPUS_MAX: u16 = 64;

/// Nobody has said how much there is: it is tried.
pub const UNKNOWN: u64 = u64::MAX;

/// What is lent, asked for, taken or free. Who asks for no memory or disk gets
/// the part of it that goes with its cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    pub cores: u16,
    pub gpus: u16,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
}

impl Amounts {
    /// What who says nothing asks for.
    pub const ONE_CORE: Self = Self { cores: 1, gpus: 0, memory_bytes: 0, disk_bytes: 0 };

    /// What a guest takes of what is lent here.
    #[must_use]
    pub fn part(self, asked: Self) -> Self {
        let of = |lent: u64, asked_bytes: u64| match (lent, asked_bytes) {
            (UNKNOWN, 0) => 0,
            (lent, 0) => {
                lent / u64::from(self.cores.max(1)) * u64::from(asked.cores.min(self.cores))
            }
            (_, bytes) => bytes,
        };
        Self {
            memory_bytes: of(self.memory_bytes, asked.memory_bytes),
            disk_bytes: of(self.disk_bytes, asked.disk_bytes),
            ..asked
        }
    }

    pub fn covers(self, other: Self) -> bool {
        self.cores >= other.cores
            && self.gpus >= other.gpus
            && self.memory_bytes >= other.memory_bytes
            && self.disk_bytes >= other.disk_bytes
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cores: self.cores.saturating_add(other.cores),
            gpus: self.gpus.saturating_add(other.gpus),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            disk_bytes: self.disk_bytes.saturating_add(other.disk_bytes),
        }
    }

    /// What is left; nothing of what there is less of.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            cores: self.cores.saturating_sub(other.cores),
            gpus: self.gpus.saturating_sub(other.gpus),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            disk_bytes: self.disk_bytes.saturating_sub(other.disk_bytes),
        }
    }

    /// The larger of the two, in each of the four.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        Self {
            cores: self.cores.max(other.cores),
            gpus: self.gpus.max(other.gpus),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            disk_bytes: self.disk_bytes.max(other.disk_bytes),
        }
    }

    /// How many guests that take so much find room at once.
    pub fn count_of(self, each: Self) -> u32 {
        let fit = |has: u64, takes: u64| has.checked_div(takes).unwrap_or(u64::MAX);
        let all = [
            fit(self.cores.into(), each.cores.into()),
            fit(self.gpus.into(), each.gpus.into()),
            fit(self.memory_bytes, each.memory_bytes),
            fit(self.disk_bytes, each.disk_bytes),
        ];
        let least = all.into_iter().min().unwrap_or(0);
        u32::try_from(least).unwrap_or(u32::MAX)
    }

    /// What of this is more than there is, in words, and how much there is.
    pub fn lacking(self, there_is: Self) -> Vec<(String, String)> {
        let count = |n: u16, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let size = |bytes: u64, of: &str| format!("{} of {of}", spoken_size(bytes));
        let all = [
            (self.cores > there_is.cores, count(self.cores, "core"), count(there_is.cores, "core")),
            (self.gpus > there_is.gpus, count(self.gpus, "GPU"), count(there_is.gpus, "GPU")),
            (
                self.memory_bytes > there_is.memory_bytes,
                size(self.memory_bytes, "memory"),
                size(there_is.memory_bytes, "memory"),
            ),
            (
                self.disk_bytes > there_is.disk_bytes,
                size(self.disk_bytes, "disk"),
                size(there_is.disk_bytes, "disk"),
            ),
        ];
        all.into_iter().filter(|(is, ..)| *is).map(|(_, asked, has)| (asked, has)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amounts() -> impl Strategy<Value = Amounts> {
        (0..9_u16, 0..3_u16, 0..20_u64, prop_oneof![0..20_u64, Just(UNKNOWN)]).prop_map(
            |(cores, gpus, memory_bytes, disk_bytes)| Amounts {
                cores,
                gpus,
                memory_bytes,
                disk_bytes,
            },
        )
    }

    #[test]
    fn who_says_nothing_of_memory_takes_the_part_that_goes_with_its_cores() {
        let lent = Amounts { cores: 4, gpus: 1, memory_bytes: 8 << 30, disk_bytes: UNKNOWN };
        let two = lent.part(Amounts { cores: 2, ..Amounts::ONE_CORE });
        assert_eq!((two.memory_bytes, two.disk_bytes, two.gpus), (4 << 30, 0, 0));
        let asks = lent.part(Amounts { memory_bytes: 7 << 30, ..Amounts::ONE_CORE });
        assert_eq!(asks.memory_bytes, 7 << 30);
        assert_eq!(lent.count_of(two), 2);
        assert!(!lent.minus(asks).covers(lent.part(Amounts::ONE_CORE)), "1 GiB is left");
    }

    #[test]
    fn what_is_lacking_is_told_in_words() {
        let lent = Amounts { cores: 1, gpus: 0, memory_bytes: 4 << 30, disk_bytes: UNKNOWN };
        let asked = Amounts { cores: 2, gpus: 1, memory_bytes: 8 << 30, disk_bytes: 1 };
        let told: Vec<_> =
            asked.lacking(lent).into_iter().map(|(asked, has)| format!("{asked}: {has}")).collect();
        let expected = ["2 cores: 1 core", "1 GPU: 0 GPUs", "8.0 GiB of memory: 4.0 GiB of memory"];
        assert_eq!(told, expected);
    }

    proptest! {
        #[test]
        fn so_many_fit_and_not_one_more(has in amounts(), each in amounts()) {
            let disk_bytes = each.disk_bytes.min(20);
            let each = Amounts { cores: each.cores.max(1), disk_bytes, ..each };
            let count = has.count_of(each);
            let taken = (0..count).fold(Amounts::default(), |taken, _| taken.plus(each));
            prop_assert!(has.covers(taken));
            prop_assert!(!has.covers(taken.plus(each)));
            prop_assert_eq!(has.lacking(has), vec![]);
            prop_assert_eq!(each.lacking(has).is_empty(), has.covers(each));
        }

        #[test]
        fn all_cores_without_a_word_take_no_more_than_is_lent(lent in amounts(), cores in 1..4_u16) {
            let each = lent.part(Amounts { cores, ..Amounts::ONE_CORE });
            let guests = lent.cores / cores;
            let taken = (0..guests).fold(Amounts::default(), |taken, _| taken.plus(each));
            prop_assert!(lent.covers(taken));
        }
    }
}
