//! What a job says of its size: who decides on it and when, between which
//! bounds, and what more places are to it.
//!
//! A bag of subprograms runs on any number of places, one for each that runs at
//! the time; the ranks of a program have a place each.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::ParseIdError;
use crate::sizes::{Allowed, Sizes, SizesError};

/// The longest list of sizes, and the longest table of speed-ups.
pub(crate) const LIST_MAX: usize = 1_000;

crate::named! {
    /// Who decides on a job's size, and when (Feitelson and Rudolph 1996, by
    /// Buisson et al. 2007, §II.A and §II.C, and Ghafoor 2007, §1.1).
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
    )]
    #[serde(rename_all = "lowercase")]
    pub enum Class {
        /// The submitter does, once.
        #[default]
        Rigid = "rigid",
        /// The scheduler does, at the start.
        Moldable = "moldable",
        /// The scheduler does, at any time.
        Malleable = "malleable",
        /// The job does, at any time; the scheduler answers.
        Evolving = "evolving",
    }
}

/// A number in millionths: equal where it was written alike, unlike a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millionths(pub u64);

impl Millionths {
    pub fn value(self) -> f64 {
        self.0 as f64 / 1e6
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is out of range is refused"
    )]
    fn parse(text: &str) -> Option<Self> {
        let value: f64 = text.trim().parse().ok()?;
        (0.0..=1e9).contains(&value).then(|| Self((value * 1e6).round() as u64))
    }
}

/// How much faster a job is on several places than on one, as its submitter
/// says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpeedupSpec {
    #[default]
    Linear,
    /// The part of it that is parallel.
    Amdahl(Millionths),
    /// Average parallelism and its variance.
    Downey(Millionths, Millionths),
    /// Places and speed-ups, ascending.
    Table(Vec<(u32, Millionths)>),
}

const SPEEDUPS: &str = "a speed-up: expected linear, amdahl:PART, downey:PARALLELISM:VARIANCE or \
                        table:1=1,2=1.8,..";

impl FromStr for SpeedupSpec {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let of = || match name {
            "linear" if rest.is_empty() => Some(Self::Linear),
            "amdahl" => Some(Self::Amdahl(Millionths::parse(rest)?)),
            "downey" => {
                let (parallelism, variance) = rest.split_once(':')?;
                Some(Self::Downey(Millionths::parse(parallelism)?, Millionths::parse(variance)?))
            }
            "table" => rest.split(',').map(entry).collect::<Option<_>>().map(Self::Table),
            _ => None,
        };
        of().ok_or_else(|| ParseIdError { text: text.to_owned(), expected: SPEEDUPS })
    }
}

fn entry(text: &str) -> Option<(u32, Millionths)> {
    let (places, speedup) = text.split_once('=')?;
    Some((places.trim().parse().ok()?, Millionths::parse(speedup)?))
}

/// What a job says of its size. What it does not say follows from what it is: a
/// bag is malleable from one place to as many as it has subprograms, a program
/// is rigid, malleable or evolving as its
/// [`ProgramSpec`](crate::program::ProgramSpec) says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub class: Option<Class>,
    pub min: Option<u32>,
    pub preferred: Option<u32>,
    pub max: Option<u32>,
    pub allowed: Allowed,
    /// How long it takes on the preferred number of places, as far as its
    /// submitter knows.
    pub estimate: Option<Duration>,
    pub speedup: SpeedupSpec,
}

impl Shape {
    pub fn class_of_bag(&self) -> Class {
        self.class.unwrap_or(Class::Malleable)
    }

    /// On how many places a bag of so many subprograms runs.
    ///
    /// # Errors
    /// Bounds that are not in order, or leave nothing.
    pub fn sizes_of_bag(&self, parts: u32) -> Result<Sizes, SizesError> {
        let max = self.max.unwrap_or(parts).min(parts);
        let is_rigid = self.class_of_bag() == Class::Rigid;
        let min = self.min.unwrap_or(if is_rigid { max } else { 1 });
        let three = [min, self.preferred.unwrap_or(min).min(parts), max];
        Sizes::new(three, self.allowed.clone())
    }

    /// The same of one that has so many left: on what is left if that is fewer
    /// than it was meant for.
    pub fn sizes_of_rest(&self, parts: u32) -> Option<Sizes> {
        let less = |bound: Option<u32>| bound.map(|bound| bound.min(parts));
        let rest = Self { min: less(self.min), max: less(self.max), ..self.clone() };
        rest.sizes_of_bag(parts).or_else(|_| Sizes::exactly(parts)).ok()
    }

    pub(crate) fn longest_list(&self) -> usize {
        let sizes = if let Allowed::List(sizes) = &self.allowed { sizes.len() } else { 0 };
        let table = if let SpeedupSpec::Table(table) = &self.speedup { table.len() } else { 0 };
        sizes.max(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_that_says_nothing_runs_on_any_number_of_places() {
        let sizes = Shape::default().sizes_of_bag(9).unwrap();
        assert_eq!((sizes.min(), sizes.preferred(), sizes.max()), (1, 1, 9));
        assert_eq!(Shape::default().class_of_bag(), Class::Malleable);
        assert!(Shape::default().sizes_of_bag(0).is_err());
    }

    #[test]
    fn a_rigid_bag_runs_all_at_once_and_then_what_is_left_of_it() {
        let rigid = Shape { class: Some(Class::Rigid), ..Shape::default() };
        assert_eq!(rigid.sizes_of_bag(8).map(|it| (it.min(), it.max())), Ok((8, 8)));
        let of_four = Shape { min: Some(4), max: Some(4), ..rigid };
        assert_eq!(of_four.sizes_of_bag(9).map(|it| (it.min(), it.max())), Ok((4, 4)));
        assert_eq!(of_four.sizes_of_rest(3).map(|it| (it.min(), it.max())), Some((3, 3)));
    }

    #[test]
    fn fewer_than_any_allowed_size_are_still_run() {
        let fours = Shape { allowed: Allowed::MultiplesOf(4), ..Shape::default() };
        assert_eq!(fours.sizes_of_rest(9).map(|it| (it.min(), it.max())), Some((4, 8)));
        assert_eq!(fours.sizes_of_rest(3).map(|it| (it.min(), it.max())), Some((3, 3)));
        assert_eq!(fours.sizes_of_rest(0), None);
    }

    #[test]
    fn speed_ups_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<SpeedupSpec>().ok();
        assert_eq!(read("linear"), Some(SpeedupSpec::Linear));
        assert_eq!(read("amdahl:0.95"), Some(SpeedupSpec::Amdahl(Millionths(950_000))));
        let downey = SpeedupSpec::Downey(Millionths(12_000_000), Millionths(500_000));
        assert_eq!(read("downey:12:0.5"), Some(downey));
        let table = vec![(1, Millionths(1_000_000)), (2, Millionths(1_800_000))];
        assert_eq!(read("table:1=1,2=1.8"), Some(SpeedupSpec::Table(table)));
        for wrong in ["", "amdahl", "amdahl:-1", "amdahl:nan", "downey:3", "table:", "linear:2"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
