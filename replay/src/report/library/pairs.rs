//! Choices side by side: the same program in the same period at the same cost,
//! under every policy and reaction.
//!
//! Times are compared as ratios within such a pair and joined as geometric
//! means, so that no single execution outweighs the others and what is twice as
//! long makes up for what is half as long. Everything is summed by week, for
//! [`Estimate`].

use std::collections::{BTreeMap, BTreeSet};

use super::super::interval::Estimate;
use crate::results::{Label, Measure, Row};

/// A policy and a reaction, by their places in the legend.
pub(super) type Choice = (u16, u16);

/// What is the same for all choices of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PairKey {
    workstations: i64,
    program: u16,
    cost: i64,
    criterion: u16,
    period_s: i64,
}

/// One execution, as far as it is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) ended: bool,
    /// How many times as long as undisturbed; what was given up counts with the
    /// time that it was given.
    pub(super) stretch: f64,
    /// Workstations at useful work, on average.
    pub(super) at_work: f64,
    pub(super) useful_s: f64,
    pub(super) wasted_s: f64,
    pub(super) idle_s: f64,
    pub(super) took_s: f64,
    pub(super) moves: f64,
    pub(super) returns: f64,
    pub(super) beside_s: f64,
    pub(super) frozen_s: f64,
}

impl Outcome {
    fn of(row: &Row) -> Self {
        let seconds = |measure| row[measure] as f64 / 1e9;
        let took = seconds(Measure::Execution).max(1e-9);
        Self {
            ended: row.finished(),
            stretch: took / seconds(Measure::Undisturbed).max(1e-9),
            at_work: seconds(Measure::Useful) / took,
            useful_s: seconds(Measure::Useful),
            wasted_s: seconds(Measure::Wasted),
            idle_s: seconds(Measure::IdleTime),
            took_s: took,
            moves: row[Measure::Moves] as f64,
            returns: row[Measure::Transitions] as f64,
            beside_s: seconds(Measure::SharedComputing),
            frozen_s: seconds(Measure::SharedFrozen),
        }
    }
}

/// The executions of a pair.
#[derive(Debug)]
struct Pair {
    week: i64,
    hour: i64,
    outcomes: BTreeMap<Choice, Outcome>,
}

/// Which pairs; all programs and costs where none is named.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Where {
    pub(super) workstations: i64,
    pub(super) program: Option<u16>,
    pub(super) cost: Option<i64>,
    pub(super) hour: Option<i64>,
}

impl Where {
    pub(super) fn network(workstations: i64) -> Self {
        Self { workstations, ..Self::default() }
    }
}

/// All executions of some programs.
#[derive(Debug)]
pub(in super::super) struct Pairs {
    programs: Vec<u16>,
    pairs: BTreeMap<PairKey, Pair>,
}

impl Pairs {
    pub(super) fn of(programs: Vec<u16>) -> Self {
        Self { programs, pairs: BTreeMap::new() }
    }

    pub(in super::super) fn add(&mut self, row: &Row) {
        let program = row.label(Label::Program);
        if !self.programs.contains(&program) {
            return;
        }
        let key = PairKey {
            workstations: row[Measure::Workstations],
            program,
            cost: row[Measure::Cost],
            criterion: row.label(Label::Criterion),
            period_s: row[Measure::PeriodStart],
        };
        let pair = self.pairs.entry(key).or_insert_with(|| Pair {
            week: week_of(row),
            hour: row[Measure::Hour],
            outcomes: BTreeMap::new(),
        });
        let choice = (row.label(Label::Policy), row.label(Label::OnBusy));
        pair.outcomes.insert(choice, Outcome::of(row));
    }

    pub(super) fn programs(&self) -> &[u16] {
        &self.programs
    }

    fn distinct<T: Ord>(&self, of: impl Fn(&PairKey) -> T) -> Vec<T> {
        let all: BTreeSet<T> = self.pairs.keys().map(of).collect();
        all.into_iter().collect()
    }

    pub(super) fn networks(&self) -> Vec<i64> {
        self.distinct(|key| key.workstations)
    }

    pub(super) fn costs(&self) -> Vec<i64> {
        self.distinct(|key| key.cost)
    }

    /// Every choice that was tried.
    pub(super) fn choices(&self) -> Vec<Choice> {
        self.pairs
            .values()
            .next()
            .map_or_else(Vec::new, |pair| pair.outcomes.keys().copied().collect())
    }

    fn visit(&self, of: Where, mut visit: impl FnMut(&PairKey, &Pair)) {
        let passes = |key: &PairKey, pair: &Pair| {
            key.workstations == of.workstations
                && of.program.is_none_or(|program| key.program == program)
                && of.cost.is_none_or(|cost| key.cost == cost)
                && of.hour.is_none_or(|hour| pair.hour == hour)
        };
        let those = self.pairs.iter().filter(|(key, pair)| passes(key, pair));
        those.for_each(|(key, pair)| visit(key, pair));
    }

    /// What `take` makes of two choices, summed by week.
    fn weekly<const N: usize>(
        &self,
        of: Where,
        (choice, other): (Choice, Choice),
        take: impl Fn(&Outcome, &Outcome) -> [f64; N],
    ) -> Vec<[f64; N]> {
        let mut weeks: BTreeMap<i64, [f64; N]> = BTreeMap::new();
        self.visit(of, |_, pair| {
            let both = pair.outcomes.get(&choice).zip(pair.outcomes.get(&other));
            let Some((one, other)) = both else { return };
            let sums = weeks.entry(pair.week).or_insert([0.0; N]);
            sums.iter_mut().zip(take(one, other)).for_each(|(sum, value)| *sum += value);
        });
        weeks.into_values().collect()
    }

    /// The geometric mean of how many times as long as undisturbed it took.
    pub(super) fn stretch(&self, of: Where, choice: Choice) -> Option<Estimate> {
        let weeks = self.weekly(of, (choice, choice), |one, _| [one.stretch.ln(), 1.0]);
        Estimate::of(&weeks, |[logs, many]| (*many > 0.0).then(|| (logs / many).exp()))
    }

    /// How many times as long as with the other choice: the geometric mean of
    /// the pairs' ratios.
    pub(super) fn time_against(
        &self,
        of: Where,
        choice: Choice,
        other: Choice,
    ) -> Option<Estimate> {
        let weeks = self
            .weekly(of, (choice, other), |one, other| [(one.stretch / other.stretch).ln(), 1.0]);
        Estimate::of(&weeks, |[logs, many]| (*many > 0.0).then(|| (logs / many).exp()))
    }

    /// A quantity as a part of the other choice's.
    pub(super) fn part_of(
        &self,
        of: Where,
        (choice, other): (Choice, Choice),
        quantity: fn(&Outcome) -> f64,
    ) -> Option<Estimate> {
        let weeks = self.weekly(of, (choice, other), |one, other| [quantity(one), quantity(other)]);
        Estimate::of(&weeks, |[one, other]| (*other > 0.0).then(|| one / other))
    }

    /// A quantity's mean over executions.
    pub(super) fn mean(
        &self,
        of: Where,
        choice: Choice,
        quantity: fn(&Outcome) -> f64,
    ) -> Option<Estimate> {
        let weeks = self.weekly(of, (choice, choice), |one, _| [quantity(one), 1.0]);
        Estimate::of(&weeks, |[sum, many]| (*many > 0.0).then(|| sum / many))
    }

    /// One sum as a part of another.
    pub(super) fn share(
        &self,
        of: Where,
        choice: Choice,
        part: fn(&Outcome) -> f64,
        whole: fn(&Outcome) -> f64,
    ) -> Option<f64> {
        let weeks = self.weekly(of, (choice, choice), |one, _| [part(one), whole(one)]);
        let sum = |place: usize| weeks.iter().map(|week| week[place]).sum::<f64>();
        (sum(1) > 0.0).then(|| sum(0) / sum(1))
    }

    /// The median of how many times as long as undisturbed it took.
    pub(super) fn median(&self, of: Where, choice: Choice) -> Option<f64> {
        let mut values = vec![];
        self.visit(of, |_, pair| {
            values.extend(pair.outcomes.get(&choice).map(|outcome| outcome.stretch));
        });
        values.sort_by(f64::total_cmp);
        let middle = values.get(values.len() / 2)?;
        let below = values.get((values.len() - 1) / 2)?;
        Some(f64::midpoint(*below, *middle))
    }

    /// In what part of the pairs the one took longer than the other, by more
    /// than a hundredth.
    pub(super) fn longer_in(&self, of: Where, choice: Choice, other: Choice) -> Option<f64> {
        let weeks = self.weekly(of, (choice, other), |one, other| {
            [f64::from(u8::from(one.stretch > 1.01 * other.stretch)), 1.0]
        });
        let sum = |place: usize| weeks.iter().map(|week| week[place]).sum::<f64>();
        (sum(1) > 0.0).then(|| sum(0) / sum(1))
    }

    /// The weeks that the periods are from.
    pub(super) fn weeks(&self) -> usize {
        let weeks: BTreeSet<i64> = self.pairs.values().map(|pair| pair.week).collect();
        weeks.len()
    }
}

/// The week's number, by the owners' clock: from Monday's midnight.
fn week_of(row: &Row) -> i64 {
    const DAY_S: i64 = 86_400;
    // What is left of the zone is less than half a day either way, but for the
    // middle of the Pacific.
    let midnight = row[Measure::PeriodStart] - row[Measure::Hour] * 3_600;
    let day = (midnight + DAY_S / 2).div_euclid(DAY_S);
    (day - row[Measure::Weekday]).div_euclid(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(week: i64, policy: u16, took_s: i64) -> Row {
        let mut row = Row::EMPTY;
        row.labels[Label::Policy as usize] = policy;
        row[Measure::Workstations] = 30;
        row[Measure::PeriodStart] = week * 604_800 + 4 * 86_400;
        row[Measure::Execution] = took_s * 1_000_000_000;
        row[Measure::Undisturbed] = 100_000_000_000;
        row[Measure::Finished] = 1;
        row[Measure::Moves] = took_s / 100;
        row
    }

    /// Policy 1 is a tenth faster in every week, but for one execution that took
    /// a thousand times as long.
    fn pairs() -> Pairs {
        let mut pairs = Pairs::of(vec![0]);
        for week in 0..40 {
            pairs.add(&row(week, 0, 1_000));
            pairs.add(&row(week, 1, if week == 7 { 1_000_000 } else { 900 }));
        }
        pairs
    }

    const LAB: Where = Where { workstations: 30, program: None, cost: None, hour: None };

    #[test]
    fn one_execution_does_not_decide_which_policy_is_faster() {
        let against = pairs().time_against(LAB, (1, 0), (0, 0)).unwrap();
        // The mean of the ratios says 25.9.
        assert!(against.value < 1.2, "{against:?}");
        assert_eq!(against.compared(), super::super::super::interval::Compared::NoDifference);
        assert_eq!(pairs().median(LAB, (1, 0)), Some(9.0));
    }

    #[test]
    fn what_is_faster_every_week_is_faster() {
        let mut pairs = pairs();
        pairs.add(&row(7, 1, 900));
        let against = pairs.time_against(LAB, (1, 0), (0, 0)).unwrap();
        assert_eq!(against.spoken(2), "0.90 [0.90, 0.90]");
        let moves = pairs.part_of(LAB, ((1, 0), (0, 0)), |one| one.moves).unwrap();
        assert_eq!(moves.spoken(2), "0.90 [0.90, 0.90]");
        assert_eq!(pairs.longer_in(LAB, (0, 0), (1, 0)), Some(1.0));
    }

    /// 2016-11-06 was a Sunday, on which the clocks of New York were put back.
    #[test]
    fn a_week_begins_on_the_owners_monday() {
        let at = |start: &str, weekday, hour| {
            let mut row = Row::EMPTY;
            row[Measure::PeriodStart] = start.parse::<jiff::Timestamp>().unwrap().as_second();
            (row[Measure::Weekday], row[Measure::Hour]) = (weekday, hour);
            week_of(&row)
        };
        let monday = at("2016-10-31T04:00:00Z", 0, 0);
        assert_eq!(at("2016-11-07T04:00:00Z", 6, 23), monday);
        assert_eq!(at("2016-11-07T05:00:00Z", 0, 0), monday + 1);
        assert_eq!(at("2016-11-11T04:59:00Z", 3, 23), monday + 1);
    }
}
