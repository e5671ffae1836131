//! Means of results, by whatever was varied.
//!
//! One pass over the rows fills a cube; tables and figures then ask it. Sums
//! are taken in the order of the rows, so equal results give equal reports.

use std::collections::{BTreeMap, BTreeSet};

use crate::results::{Label, Measure, Row};

/// What rows can differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dim {
    Program,
    Policy,
    OnBusy,
    Criterion,
    TimeOfDay,
    Workstations,
    /// In nanoseconds.
    Cost,
    /// Phalen 1994, §7.4: by the mean length of the idle periods.
    IdleClass,
}

/// The upper ends of her classes but the last, in minutes.
const IDLE_CLASSES_MIN: [i64; 3] = [20, 40, 60];
pub(super) const IDLE_CLASSES: [&str; 4] =
    ["0 to 20 min", "20 to 40 min", "40 to 60 min", "over 60 min"];

impl Dim {
    fn of(self, row: &Row) -> i64 {
        match self {
            Self::Program => row.label(Label::Program).into(),
            Self::Policy => row.label(Label::Policy).into(),
            Self::OnBusy => row.label(Label::OnBusy).into(),
            Self::Criterion => row.label(Label::Criterion).into(),
            Self::TimeOfDay => row.label(Label::TimeOfDay).into(),
            Self::Workstations => row[Measure::Workstations],
            Self::Cost => row[Measure::Cost],
            Self::IdleClass => {
                let minutes = row[Measure::AverageIdle] / 60_000_000_000;
                IDLE_CLASSES_MIN.iter().map(|end| i64::from(minutes >= *end)).sum()
            }
        }
    }
}

/// What can be averaged. What is about a whole execution is missing where the
/// execution was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Phalen 1994, Table 9, in percent.
    Slowdown,
    /// 1 for an execution that ended, 0 for one that was given up.
    Finished,
    /// How many times as long as on workstations that are always idle. An
    /// execution that was given up counts with the time that it was given:
    /// what is hardly ever finished must not look fast.
    Stretch,
    /// Of the busy transitions, in percent.
    ShareOnPath,
    /// Of the workstations' idle time, what did useful work, in percent.
    Utilisation,
    /// Of all work done, what was lost, in percent.
    WastedShare,
    /// A count as it is.
    Count(Measure),
    /// Seconds, from nanoseconds.
    Seconds(Measure),
}

impl Quantity {
    fn of(self, row: &Row) -> Option<f64> {
        let ended = |value: f64| row.finished().then_some(value);
        let part = |part: i64, of: i64| (of > 0).then(|| 100.0 * part as f64 / of as f64);
        match self {
            Self::Slowdown => row.slowdown().map(|slowdown| 100.0 * slowdown),
            Self::Finished => Some(if row.finished() { 1.0 } else { 0.0 }),
            Self::Stretch => part(row[Measure::Execution], row[Measure::Undisturbed])
                .map(|percent| percent / 100.0),
            Self::ShareOnPath => part(row[Measure::OnCriticalPath], row[Measure::Transitions])
                .filter(|_| row.finished()),
            Self::Utilisation => {
                part(row[Measure::Useful], row[Measure::IdleTime]).filter(|_| row.finished())
            }
            Self::WastedShare => {
                part(row[Measure::Wasted], row[Measure::Useful] + row[Measure::Wasted])
            }
            Self::Count(measure) => ended(row[measure] as f64),
            Self::Seconds(measure) => ended(row[measure] as f64 / 1e9),
        }
    }
}

/// Sums of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) many: u64,
    sum: f64,
    squares: f64,
}

impl Sample {
    fn add(&mut self, value: f64) {
        self.many += 1;
        self.sum += value;
        self.squares += value * value;
    }

    fn join(&mut self, other: &Self) {
        self.many += other.many;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(super) fn mean(&self) -> Option<f64> {
        (self.many > 0).then(|| self.sum / self.many as f64)
    }

    /// Standard deviation of the values.
    pub(super) fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let variance = (self.squares / self.many as f64 - mean * mean).max(0.0);
        (self.many > 1).then(|| (variance * self.many as f64 / (self.many - 1) as f64).sqrt())
    }

    /// Standard error of the mean.
    pub(super) fn error(&self) -> Option<f64> {
        Some(self.deviation()? / (self.many as f64).sqrt())
    }
}

const DIMS_MAX: usize = 7;

/// Samples of some quantities by some dimensions.
pub(super) struct Cube {
    dims: &'static [Dim],
    quantities: &'static [Quantity],
    cells: BTreeMap<[i64; DIMS_MAX], Vec<Sample>>,
}

/// Which rows: those that have these values.
pub(super) type Filter<'a> = &'a [(Dim, i64)];

impl Cube {
    pub(super) fn new(dims: &'static [Dim], quantities: &'static [Quantity]) -> Self {
        assert!(dims.len() <= DIMS_MAX, "a cube has at most {DIMS_MAX} dimensions");
        Self { dims, quantities, cells: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, row: &Row) {
        let mut key = [0; DIMS_MAX];
        for (place, dim) in key.iter_mut().zip(self.dims) {
            *place = dim.of(row);
        }
        let empty = || vec![Sample::default(); self.quantities.len()];
        let samples = self.cells.entry(key).or_insert_with(empty);
        for (sample, quantity) in samples.iter_mut().zip(self.quantities) {
            if let Some(value) = quantity.of(row) {
                sample.add(value);
            }
        }
    }

    fn place(&self, dim: Dim) -> usize {
        let place = self.dims.iter().position(|known| *known == dim);
        place.unwrap_or_else(|| unreachable!("the cube is not by {dim:?}"))
    }

    fn quantity(&self, quantity: Quantity) -> usize {
        let place = self.quantities.iter().position(|known| *known == quantity);
        place.unwrap_or_else(|| unreachable!("the cube has no {quantity:?}"))
    }

    /// The values that a dimension takes, ascending.
    pub(super) fn values(&self, dim: Dim) -> Vec<i64> {
        let place = self.place(dim);
        self.cells.keys().map(|key| key[place]).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A quantity over all rows that pass the filter.
    pub(super) fn sample(&self, filter: Filter<'_>, quantity: Quantity) -> Sample {
        let mut all = Sample::default();
        self.visit(filter, quantity, |_, sample| all.join(sample));
        all
    }

    pub(super) fn mean(&self, filter: Filter<'_>, quantity: Quantity) -> Option<f64> {
        self.sample(filter, quantity).mean()
    }

    /// A quantity for each value of a dimension.
    pub(super) fn along(
        &self,
        dim: Dim,
        filter: Filter<'_>,
        quantity: Quantity,
    ) -> BTreeMap<i64, Sample> {
        let place = self.place(dim);
        let mut found = BTreeMap::<i64, Sample>::new();
        self.visit(filter, quantity, |key, sample| {
            found.entry(key[place]).or_default().join(sample);
        });
        found
    }

    fn visit<'a>(
        &'a self,
        filter: Filter<'_>,
        quantity: Quantity,
        mut visit: impl FnMut(&[i64; DIMS_MAX], &'a Sample),
    ) {
        let quantity = self.quantity(quantity);
        let filter: Vec<(usize, i64)> =
            filter.iter().map(|(dim, value)| (self.place(*dim), *value)).collect();
        for (key, samples) in &self.cells {
            if filter.iter().all(|(place, value)| key[*place] == *value) {
                visit(key, &samples[quantity]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workstations: i64, cost_s: i64, execution: i64) -> Row {
        let mut row = Row::EMPTY;
        row[Measure::Workstations] = workstations;
        row[Measure::Cost] = cost_s * 1_000_000_000;
        row[Measure::Finished] = 1;
        row[Measure::ZeroCost] = 100;
        row[Measure::Execution] = execution;
        row
    }

    fn cube(rows: &[Row]) -> Cube {
        let mut cube =
            Cube::new(&[Dim::Workstations, Dim::Cost], &[Quantity::Slowdown, Quantity::Finished]);
        for row in rows {
            cube.add(row);
        }
        cube
    }

    #[test]
    fn a_mean_is_over_the_rows_that_pass() {
        let cube = cube(&[row(30, 1, 110), row(30, 1, 130), row(30, 2, 200), row(50, 1, 150)]);
        assert_eq!(cube.mean(&[(Dim::Workstations, 30)], Quantity::Slowdown), Some(140.0 / 3.0));
        let along = cube.along(Dim::Cost, &[(Dim::Workstations, 30)], Quantity::Slowdown);
        assert_eq!(along[&1_000_000_000].mean(), Some(20.0));
        assert_eq!(along[&1_000_000_000].deviation().map(f64::round), Some(14.0));
        assert_eq!(cube.values(Dim::Workstations), [30, 50]);
    }

    #[test]
    fn what_was_given_up_counts_as_that_and_not_as_a_slowdown() {
        let mut given_up = row(30, 1, 900);
        given_up[Measure::Finished] = 0;
        let cube = cube(&[row(30, 1, 110), given_up]);
        assert_eq!(cube.mean(&[], Quantity::Slowdown), Some(10.0));
        assert_eq!(cube.mean(&[], Quantity::Finished), Some(0.5));
    }

    #[test]
    fn nothing_has_no_mean() {
        assert_eq!(cube(&[]).mean(&[], Quantity::Slowdown), None);
    }

    #[test]
    fn idle_times_fall_into_her_classes() {
        let class = |minutes: i64| {
            let mut row = Row::EMPTY;
            row[Measure::AverageIdle] = minutes * 60_000_000_000;
            Dim::IdleClass.of(&row)
        };
        assert_eq!([0, 19, 20, 39, 40, 59, 60, 999].map(class), [0, 0, 1, 1, 2, 2, 3, 3]);
    }
}
