//! The results by where in the grid they are, over all repetitions.

use std::collections::BTreeMap;

use crate::results::table::{Column, Table};
use crate::workload::campaign::{AXES, At, Key};

/// Values of the repetitions of a point, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread {
    values: Vec<f64>,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.values.push(value);
    }

    pub(super) fn many(&self) -> usize {
        self.values.len()
    }

    pub(super) fn mean(&self) -> f64 {
        mean(&self.values)
    }

    pub(super) fn least(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(super) fn most(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// By how much another is above this one, and the standard error of that.
    /// The same repetitions have the same jobs: they are compared one by one.
    pub(super) fn rise(&self, to: &Self) -> (f64, f64) {
        if self.many() == to.many() {
            let each = self.values.iter().zip(&to.values).map(|(before, after)| after - before);
            let each: Vec<f64> = each.collect();
            return (mean(&each), error(&each));
        }
        let both = error(&self.values).hypot(error(&to.values));
        (to.mean() - self.mean(), both)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of the mean; nothing of a single value.
fn error(values: &[f64]) -> f64 {
    let (many, mean) = (values.len() as f64, mean(values));
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if values.len() > 1 { (squares / (many - 1.0) / many).sqrt() } else { 0.0 }
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
        for one in there.filter_map(|point| point.values.get(measure)) {
            all.values.extend(&one.values);
        }
        (all.many() > 0).then_some(all)
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
        let sums = self.points.iter().filter_map(|point| point.values.get(measure));
        sums.flat_map(|it| &it.values).sum::<f64>() as u64
    }
}
