//! How many processors a job can run on.
//!
//! The promise: whatever is asked or offered, what comes out is a size that
//! the job can run on. Knows nothing of time and of other jobs.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::ParseIdError;

/// Which numbers between the least and the most are sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowed {
    #[default]
    Any,
    /// 1, 2, 4, 8, ..: what many parallel programs want (Ghafoor 2007, §2.4).
    PowersOfTwo,
    MultiplesOf(u32),
    /// These, ascending.
    List(Vec<u32>),
}

impl Allowed {
    fn at_most(&self, most: u32) -> Option<u32> {
        let found = match self {
            Self::Any => most,
            Self::PowersOfTwo => most.checked_ilog2().map_or(0, |power| 1 << power),
            Self::MultiplesOf(step) => most - most.checked_rem(*step)?,
            Self::List(sizes) => {
                let end = sizes.partition_point(|size| *size <= most);
                *sizes.get(end.checked_sub(1)?)?
            }
        };
        (found > 0).then_some(found)
    }

    fn at_least(&self, least: u32) -> Option<u32> {
        match self {
            Self::Any => Some(least),
            Self::PowersOfTwo => least.checked_next_power_of_two(),
            Self::MultiplesOf(0) => None,
            Self::MultiplesOf(step) => least.checked_next_multiple_of(*step),
            Self::List(sizes) => sizes.get(sizes.partition_point(|size| *size < least)).copied(),
        }
    }
}

impl Allowed {
    /// The same of parts that take so many processors each.
    fn times(self, each: u32) -> Self {
        match self {
            _ if each == 1 => self,
            Self::Any => Self::MultiplesOf(each),
            Self::PowersOfTwo => {
                Self::List((0..u32::BITS).filter_map(|n| each.checked_mul(1 << n)).collect())
            }
            Self::MultiplesOf(step) => Self::MultiplesOf(step.saturating_mul(each)),
            Self::List(sizes) => {
                Self::List(sizes.into_iter().map(|size| size.saturating_mul(each)).collect())
            }
        }
    }
}

impl FromStr for Allowed {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0);
        let of = || match text.split_once(':') {
            None if text == "any" => Some(Self::Any),
            None if text == "powers" => Some(Self::PowersOfTwo),
            Some(("multiples", step)) => Some(Self::MultiplesOf(number(step)?)),
            // An empty list is one, and refused as such.
            Some(("list", "")) => Some(Self::List(vec![])),
            Some(("list", list)) => {
                list.split(',').map(number).collect::<Option<_>>().map(Self::List)
            }
            None | Some(_) => None,
        };
        let expected = "a set of sizes: expected any, powers, multiples:K or list:2,4,8";
        of().ok_or_else(|| ParseIdError { text: text.to_owned(), expected })
    }
}

/// Why these cannot be a job's sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    #[error("a job of no processors: expected a minimum of at least 1")]
    Nothing,
    #[error("the minimum of {min} processors is above the maximum of {max}")]
    MinAboveMax { min: u32, max: u32 },
    #[error("the list of sizes is empty: expected at least one, such as 4,8,12")]
    EmptyList,
    #[error("no allowed size is between {min} and {max} processors")]
    NoneAllowed { min: u32, max: u32 },
    #[error("{preferred} processors are preferred, which is not between {min} and {max}")]
    PreferredOutside { preferred: u32, min: u32, max: u32 },
}

/// The sizes of one job: the least, the preferred, the most, and which between
/// them. All three are allowed themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    min: u32,
    preferred: u32,
    max: u32,
    allowed: Allowed,
}

impl Sizes {
    /// Exactly so many.
    ///
    /// # Errors
    /// If there are none.
    pub fn exactly(size: u32) -> Result<Self, SizesError> {
        Self::new([size; 3], Allowed::Any)
    }

    /// The least, the preferred and the most; what is not allowed between them
    /// is narrowed to what is.
    ///
    /// # Errors
    /// If no size is left, or they are not in order.
    pub fn new([min, preferred, max]: [u32; 3], mut allowed: Allowed) -> Result<Self, SizesError> {
        if let Allowed::List(sizes) = &mut allowed {
            sizes.sort_unstable();
            sizes.dedup();
            if sizes.is_empty() {
                return Err(SizesError::EmptyList);
            }
        }
        if min == 0 {
            return Err(SizesError::Nothing);
        }
        if min > max {
            return Err(SizesError::MinAboveMax { min, max });
        }
        if !(min..=max).contains(&preferred) {
            return Err(SizesError::PreferredOutside { preferred, min, max });
        }
        let none = SizesError::NoneAllowed { min, max };
        let (Some(least), Some(most)) = (allowed.at_least(min), allowed.at_most(max)) else {
            return Err(none);
        };
        if least > most {
            return Err(none);
        }
        let preferred = allowed.at_most(preferred).unwrap_or(least).max(least);
        Ok(Self { min: least, preferred, max: most, allowed })
    }

    /// The same of parts that take so many processors each: more of them than can
    /// be counted are as many as can.
    ///
    /// # Errors
    /// If not even the least can be counted.
    pub fn times(self, each: u32) -> Result<Self, SizesError> {
        let most = (u32::MAX / each.max(1)).min(self.max);
        let three =
            [self.min, self.preferred.min(most), most].map(|size| size.saturating_mul(each));
        Self::new(three, self.allowed.times(each))
    }

    pub fn min(&self) -> u32 {
        self.min
    }

    pub fn preferred(&self) -> u32 {
        self.preferred
    }

    pub fn max(&self) -> u32 {
        self.max
    }

    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    pub fn contains(&self, size: u32) -> bool {
        self.at_most(size) == Some(size)
    }

    /// The largest size of at most so many processors.
    pub fn at_most(&self, most: u32) -> Option<u32> {
        let found = self.allowed.at_most(most.min(self.max))?;
        (found >= self.min).then_some(found)
    }

    /// The smallest size of at least so many processors.
    pub fn at_least(&self, least: u32) -> Option<u32> {
        let found = self.allowed.at_least(least.max(self.min))?;
        (found <= self.max).then_some(found)
    }

    /// How many of the offered processors a job of this size makes use of.
    pub fn taken(&self, size: u32, offered: u32) -> u32 {
        self.at_most(size.saturating_add(offered)).map_or(0, |next| next.saturating_sub(size))
    }

    /// How many processors a job of this size gives if it is asked for some:
    /// as few as will do, or as many as it can if nothing will do.
    ///
    /// Ghafoor 2007, §3.1.1.1: asked for five of eight, a job of powers of two
    /// from 2 to 16 gives six.
    pub fn given(&self, size: u32, asked: u32) -> u32 {
        let left = self.at_most(size.saturating_sub(asked)).unwrap_or(self.min);
        size.saturating_sub(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn sizes(three: [u32; 3], allowed: Allowed) -> Sizes {
        Sizes::new(three, allowed).expect("these are sizes")
    }

    #[test]
    fn a_job_of_powers_of_two_gives_six_of_eight_when_asked_for_five() {
        let job = sizes([2, 8, 16], Allowed::PowersOfTwo);
        assert_eq!(job.given(8, 5), 6); // Ghafoor 2007, §3.1.1.1
        assert_eq!(job.given(8, 7), 6, "no more than it can");
        assert_eq!(job.given(2, 1), 0);
    }

    #[test]
    fn a_job_of_powers_of_two_takes_eight_of_fifteen() {
        let job = sizes([8, 8, 32], Allowed::PowersOfTwo);
        assert_eq!(job.taken(8, 15), 8); // Ghafoor 2007, §4.3.2, the first example
        assert_eq!(job.taken(8, 7), 0);
    }

    #[test]
    fn what_is_not_allowed_is_narrowed_to_what_is() {
        let job = sizes([3, 7, 31], Allowed::MultiplesOf(4));
        assert_eq!((job.min(), job.preferred(), job.max()), (4, 4, 28));
        let job = sizes([3, 10, 31], Allowed::List(vec![12, 6, 9, 40]));
        assert_eq!((job.min(), job.preferred(), job.max()), (6, 9, 12));
    }

    #[test]
    fn what_makes_no_sense_is_told_in_one_line() {
        for (three, allowed, text) in [
            ([0, 0, 0], Allowed::Any, "a job of no processors"),
            ([4, 4, 2], Allowed::Any, "the minimum of 4 processors is above the maximum of 2"),
            ([2, 9, 8], Allowed::Any, "9 processors are preferred"),
            ([2, 4, 8], Allowed::List(vec![]), "the list of sizes is empty"),
            ([5, 6, 7], Allowed::PowersOfTwo, "no allowed size is between 5 and 7"),
            ([1, 1, 9], Allowed::MultiplesOf(0), "no allowed size"),
            ([u32::MAX; 3], Allowed::PowersOfTwo, "no allowed size"),
        ] {
            let told = Sizes::new(three, allowed).expect_err("no sizes").to_string();
            assert!(told.starts_with(text), "{told}");
        }
    }

    #[test]
    fn parts_of_several_processors_have_sizes_of_whole_parts() {
        let each = |three, allowed| {
            let sizes = sizes(three, allowed).times(3).expect("sizes");
            (sizes.min(), sizes.preferred(), sizes.max(), sizes.at_most(13))
        };
        assert_eq!(each([2, 4, 9], Allowed::Any), (6, 12, 27, Some(12)));
        assert_eq!(each([2, 4, 9], Allowed::PowersOfTwo), (6, 12, 24, Some(12)));
        assert_eq!(each([2, 4, 9], Allowed::MultiplesOf(2)), (6, 12, 24, Some(12)));
        assert_eq!(each([1, 3, 9], Allowed::List(vec![1, 3, 7])), (3, 9, 21, Some(9)));
        let many = sizes([1, 1, u32::MAX], Allowed::Any).times(1_024).expect("sizes");
        assert!(many.max().is_multiple_of(1_024));
    }

    fn any_allowed() -> impl Strategy<Value = Allowed> {
        prop_oneof![
            Just(Allowed::Any),
            Just(Allowed::PowersOfTwo),
            (1..9_u32).prop_map(Allowed::MultiplesOf),
            prop::collection::vec(0..70_u32, 1..6).prop_map(Allowed::List),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_asked_or_offered_a_size_comes_out(
            allowed in any_allowed(), mut three in any::<[u8; 3]>(), by in 0..80_u32
        ) {
            three.sort_unstable();
            let Ok(job) = Sizes::new(three.map(|n| u32::from(n % 64)), allowed) else { return Ok(()) };
            for size in (job.min()..=job.max()).filter(|size| job.contains(*size)) {
                prop_assert!(job.contains(size - job.given(size, by)));
                prop_assert!(job.contains(size + job.taken(size, by)));
                prop_assert!(job.taken(size, by) <= by);
                prop_assert!(job.given(size, by) >= by.min(size - job.min()));
            }
        }
    }
}
