//! From a cube to the charts that most reports share.

use std::collections::BTreeMap;

use gleaner_figure::{Axis, LineChart, Series, series_colour};

use super::cube::{Cube, Dim, Filter, IDLE_CLASSES, Quantity, Sample};
use crate::results::{Label, Legend};

const COST_LABEL: &str = "cost of a move (s)";

/// A cube whose labels have names.
pub(super) struct Named {
    pub(super) cube: Cube,
    pub(super) legend: Legend,
}

impl Named {
    /// What a dimension's value is called.
    pub(super) fn name(&self, dim: Dim, value: i64) -> String {
        let text = |label| {
            let place = usize::try_from(value).unwrap_or(usize::MAX);
            self.legend.texts(label).get(place).cloned().unwrap_or_default()
        };
        match dim {
            Dim::Program => text(Label::Program),
            Dim::Policy => text(Label::Policy),
            Dim::OnBusy => text(Label::OnBusy),
            Dim::Criterion => text(Label::Criterion),
            Dim::TimeOfDay => text(Label::TimeOfDay),
            Dim::Workstations => format!("{value} workstations"),
            Dim::Cost => format!("{} s", seconds(value)),
            Dim::IdleClass => {
                let place = usize::try_from(value).unwrap_or(0);
                IDLE_CLASSES.get(place).copied().unwrap_or_default().to_owned()
            }
        }
    }

    /// The position of a label's text, as a dimension's value.
    pub(super) fn value(&self, label: Label, text: &str) -> Option<i64> {
        let texts = self.legend.texts(label);
        texts.iter().position(|known| known == text).and_then(|place| i64::try_from(place).ok())
    }

    /// A quantity against the cost of a move, one line for each value of a
    /// dimension.
    pub(super) fn against_cost(
        &self,
        title: &str,
        y_label: &str,
        by: Dim,
        filter: Filter<'_>,
        quantity: Quantity,
    ) -> LineChart {
        // A value keeps its colour also where another has no line.
        let lines = self.cube.values(by).into_iter().enumerate().map(|(place, value)| {
            let filter = [filter, &[(by, value)]].concat();
            let along = self.cube.along(Dim::Cost, &filter, quantity);
            Series::new(self.name(by, value), points(&along, seconds))
                .coloured(series_colour(place))
        });
        let series = lines.filter(|line| !line.points.is_empty());
        LineChart {
            title: title.to_owned(),
            x_axis: Axis::linear(COST_LABEL),
            y_axis: Axis::linear(y_label),
            series: series.collect(),
            ..LineChart::default()
        }
    }
}

/// Means as points; where there is none, there is no point.
pub(super) fn points(along: &BTreeMap<i64, Sample>, place: impl Fn(i64) -> f64) -> Vec<(f64, f64)> {
    along.iter().filter_map(|(at, sample)| Some((place(*at), sample.mean()?))).collect()
}

pub(super) fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

pub(super) fn nanos(seconds: i64) -> i64 {
    seconds * 1_000_000_000
}

pub(super) fn weekday(from_monday: i64) -> &'static str {
    match from_monday {
        0 => "Mon",
        1 => "Tue",
        2 => "Wed",
        3 => "Thu",
        4 => "Fri",
        5 => "Sat",
        _ => "Sun",
    }
}

/// Where a line first comes up to a height, between its points linearly;
/// `None` if it stays below.
pub(super) fn crossing(line: &[(f64, f64)], height: f64) -> Option<f64> {
    let mut before = (0.0, 0.0);
    for &(x, y) in line {
        if y >= height {
            let part = if y > before.1 { (height - before.1) / (y - before.1) } else { 1.0 };
            return Some(before.0 + part * (x - before.0));
        }
        before = (x, y);
    }
    None
}

/// The exponent k of y = a x^k that fits a line best between two x, by least
/// squares of the logarithms: 1 is linear, more is superlinear.
pub(super) fn exponent(line: &[(f64, f64)], from: f64, to: f64) -> Option<f64> {
    let inside: Vec<(f64, f64)> = line
        .iter()
        .filter(|(x, y)| (from..=to).contains(x) && *x > 0.0 && *y > 0.0)
        .map(|(x, y)| (x.ln(), y.ln()))
        .collect();
    let many = inside.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| inside.iter().map(of).sum::<f64>() / many;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = inside.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = inside.iter().map(|point| (point.0 - x).powi(2)).sum();
    (inside.len() > 2 && under > 0.0).then(|| over / under)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossing_lies_between_the_points_around_it() {
        let line = [(1.0, 2.0), (2.0, 4.0), (3.0, 10.0)];
        assert_eq!(crossing(&line, 1.0), Some(0.5));
        assert_eq!(crossing(&line, 7.0), Some(2.5));
        assert_eq!(crossing(&line, 11.0), None);
    }

    #[test]
    fn an_exponent_is_found_again() {
        let line: Vec<_> = (1..100).map(f64::from).map(|x| (x, 3.0 * x.powf(1.7))).collect();
        assert!((exponent(&line, 1.0, 100.0).unwrap() - 1.7).abs() < 1e-9);
        assert_eq!(exponent(&line, 200.0, 300.0), None);
    }
}
