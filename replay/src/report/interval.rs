//! Estimates with intervals, by drawing weeks anew.
//!
//! What happens in one week is alike: terms, deadlines, holidays. So the weeks
//! are what is drawn, with all that lies in them (the cluster bootstrap of
//! B. Efron and R. Tibshirani, "An Introduction to the Bootstrap", 1993, ch. 8
//! and, for intervals by percentiles, 13). The draws have a seed: equal results
//! give equal intervals.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub(super) const SEED: u64 = 15;
pub(super) const DRAWS: usize = 2_000;
/// With fewer weeks, percentiles of draws are narrower than the truth: a guess.
pub(super) const WEEKS_MIN: usize = 8;

/// A figure, and where it lies in 95 of 100 draws of the weeks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    /// `None` where there are too few weeks.
    pub(crate) between: Option<(f64, f64)>,
}

/// How something compares with what it is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Less,
    NoDifference,
    More,
    TooFewWeeks,
}

impl Estimate {
    /// Of sums over each week, the figure that `of` makes of the sums over
    /// several; `None` if it makes none of all weeks.
    pub(crate) fn of<const N: usize>(
        weeks: &[[f64; N]],
        of: impl Fn(&[f64; N]) -> Option<f64>,
    ) -> Option<Self> {
        let value = of(&sum(weeks.iter()))?;
        if weeks.len() < WEEKS_MIN {
            return Some(Self { value, between: None });
        }
        let mut rng = StdRng::seed_from_u64(SEED);
        let mut draw = || {
            let drawn = (0..weeks.len()).map(|_| &weeks[rng.random_range(0..weeks.len())]);
            of(&sum(drawn))
        };
        let mut values: Vec<f64> = (0..DRAWS).filter_map(|_| draw()).collect();
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values.get(values.len() * part / 1_000).copied();
        Some(Self { value, between: at(25).zip(at(975)) })
    }

    /// As a ratio, against 1.
    pub(crate) fn compared(&self) -> Compared {
        match self.between {
            None => Compared::TooFewWeeks,
            Some((_, high)) if high < 1.0 => Compared::Less,
            Some((low, _)) if low > 1.0 => Compared::More,
            Some(_) => Compared::NoDifference,
        }
    }

    /// `0.24 [0.19, 0.31]`.
    pub(crate) fn spoken(&self, digits: usize) -> String {
        let Self { value, between } = self;
        match between {
            Some((low, high)) => format!("{value:.digits$} [{low:.digits$}, {high:.digits$}]"),
            None => format!("{value:.digits$}"),
        }
    }
}

fn sum<'a, const N: usize>(weeks: impl Iterator<Item = &'a [f64; N]>) -> [f64; N] {
    weeks.fold([0.0; N], |mut all, week| {
        all.iter_mut().zip(week).for_each(|(all, one)| *all += one);
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(weeks: &[[f64; 2]]) -> Estimate {
        Estimate::of(weeks, |[sum, many]| (*many > 0.0).then(|| sum / many)).unwrap()
    }

    #[test]
    fn one_wild_week_makes_the_interval_wide_and_not_the_verdict() {
        let calm: Vec<[f64; 2]> = (0..50).map(|week| [9.0 + f64::from(week % 3), 10.0]).collect();
        let estimate = mean(&calm);
        let (low, high) = estimate.between.unwrap();
        assert!(low < estimate.value && estimate.value < high && high - low < 0.1, "{estimate:?}");
        let wild: Vec<[f64; 2]> = [&calm[..49], &[[500.0, 10.0]]].concat();
        let estimate = mean(&wild);
        assert!(estimate.value > 1.9, "{estimate:?}");
        assert_eq!(estimate.compared(), Compared::NoDifference);
    }

    #[test]
    fn equal_weeks_give_equal_intervals_and_few_weeks_give_none() {
        let weeks: Vec<[f64; 2]> = (1..=20).map(|week| [f64::from(week), 10.0]).collect();
        assert_eq!(mean(&weeks), mean(&weeks));
        assert_eq!(mean(&weeks[..WEEKS_MIN - 1]).between, None);
        assert_eq!(mean(&weeks[..WEEKS_MIN - 1]).compared(), Compared::TooFewWeeks);
        assert_eq!(mean(&[[2.0, 1.0]; 9]).spoken(2), "2.00 [2.00, 2.00]");
    }

    /// Of a normal mean, 95 % intervals hold the truth about as often.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut weeks = || -> Vec<[f64; 2]> {
            // The sum of twelve is near enough to a normal one.
            let one = |rng: &mut StdRng| (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 5.0;
            (0..40).map(|_| [one(&mut rng), 1.0]).collect()
        };
        let held = (0..60).filter(|_| mean(&weeks()).compared() == Compared::NoDifference).count();
        assert!((51..=60).contains(&held), "{held} of 60");
    }
}
