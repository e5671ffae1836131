//! The results by where in the grid they are, over all repetitions.

use std::collections::BTreeMap;

use crate::results::table::{Column, Table};
use crate::workload::campaign::{AXES, At, Key};

/// Values of the repetitions of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) many: u64,
    sum: f64,
    squares: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Default for Spread {
    fn default() -> Self {
        Self { many: 0, sum: 0.0, squares: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY }
    }
}

impl Spread {
    pub(super) fn add(&mut self, value: f64) {
        self.many += 1;
        self.sum += value;
        self.squares += value * value;
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    fn join(&mut self, other: &Self) {
        self.many += other.many;
        self.sum += other.sum;
        self.squares += other.squares;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum / self.many as f64
    }

    /// Of the mean; none of a single value.
    pub(super) fn error(&self) -> Option<f64> {
        let (many, mean) = (self.many as f64, self.mean());
        let variance = (self.squares / many - mean * mean).max(0.0) * many / (many - 1.0);
        (self.many > 1).then(|| (variance / many).sqrt())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) at: At,
    values: BTreeMap<String, Spread>,
}

/// All points, in the order of the results.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    pub(super) points: Vec<Point>,
    places: BTreeMap<String, usize>,
}

const REPEAT: &str = "repeat";

/// Where a row of results is.
pub(super) fn at(table: &Table, row: usize) -> At {
    let key = |axis: &str| {
        let column = table.column(axis)?;
        Some(match column {
            Column::Text(values) => Key::Text(values[row].clone()),
            Column::Integer(_) | Column::Real(_) => Key::Number(column.number(row)?),
        })
    };
    let axes = AXES.into_iter().filter(|axis| *axis != REPEAT);
    axes.filter_map(|axis| Some((axis.to_owned(), key(axis)?))).collect()
}

/// Is a point there?
pub(super) fn is_in(at: &At, filter: &At) -> bool {
    filter.iter().all(|(axis, key)| at.get(axis).is_some_and(|there| there.is(key)))
}

impl Grid {
    pub(super) fn take(&mut self, table: &Table) {
        let measures: Vec<&str> = table.names().filter(|name| !AXES.contains(name)).collect();
        for row in 0..table.rows() {
            let at = at(table, row);
            let name: Vec<String> = at.values().map(ToString::to_string).collect();
            let points = &mut self.points;
            let place = *self.places.entry(name.join("\u{1f}")).or_insert_with(|| {
                points.push(Point { at, values: BTreeMap::new() });
                points.len() - 1
            });
            let values = &mut points[place].values;
            for name in &measures {
                let value = table.column(name).and_then(|column| column.number(row));
                if let Some(value) = value {
                    values.entry((*name).to_owned()).or_default().add(value);
                }
            }
        }
    }

    /// A measure over all points that are there; `None` if there are none.
    pub(super) fn spread(&self, filter: &At, measure: &str) -> Option<Spread> {
        let mut all = Spread::default();
        let there = self.points.iter().filter(|point| is_in(&point.at, filter));
        there.filter_map(|point| point.values.get(measure)).for_each(|one| all.join(one));
        (all.many > 0).then_some(all)
    }

    /// The values of an axis, in the order of the results.
    pub(super) fn values(&self, axis: &str, filter: &At) -> Vec<Key> {
        let mut found: Vec<Key> = vec![];
        for point in self.points.iter().filter(|point| is_in(&point.at, filter)) {
            if let Some(key) = point.at.get(axis)
                && !found.iter().any(|known| known.is(key))
            {
                found.push(key.clone());
            }
        }
        found
    }

    /// The axes that have more than one value.
    pub(super) fn varied(&self) -> Vec<&'static str> {
        let is_varied = |axis: &&str| self.values(axis, &At::new()).len() > 1;
        AXES.into_iter().filter(|axis| *axis != REPEAT).filter(is_varied).collect()
    }

    /// A count over all runs.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a sum of counts"
    )]
    pub(super) fn total(&self, measure: &str) -> u64 {
        self.points.iter().filter_map(|point| point.values.get(measure)).map(|it| it.sum as u64).sum()
    }
}
