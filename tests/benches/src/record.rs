//! What a bench says: records, as JSON lines or a table.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

/// One measured figure.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Record {
    pub(super) bench: &'static str,
    pub(super) case: String,
    pub(super) unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max: Option<f64>,
    /// The same quantity at its barest, in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) floor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    /// "p99 <= 0.005"
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) met: Option<bool>,
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

impl Record {
    pub(super) fn value(bench: &'static str, case: &str, unit: &'static str, value: f64) -> Self {
        Self { bench, case: case.to_owned(), unit, value: Some(value), ..Self::default() }
    }

    /// Percentiles of spans, in seconds.
    pub(super) fn spans(bench: &'static str, case: &str, spans: &[Duration]) -> Self {
        let mut sorted: Vec<f64> = spans.iter().map(Duration::as_secs_f64).collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            bench,
            case: case.to_owned(),
            unit: "s",
            n: Some(sorted.len() as u64),
            p50: percentile(&sorted, 0.5),
            p99: percentile(&sorted, 0.99),
            max: sorted.last().copied(),
            ..Self::default()
        }
    }

    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.to_owned(), value.into());
        self
    }

    /// The floor, and the ratio of the figure (the value, else the median) to it.
    pub(super) fn over(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self.ratio = self.value.or(self.p50).map(|figure| figure / floor);
        self
    }

    pub(super) fn at_most(self, what: &str, limit: f64) -> Self {
        self.judged(what, "<=", limit, |figure, limit| figure <= limit)
    }

    pub(super) fn at_least(self, what: &str, limit: f64) -> Self {
        self.judged(what, ">=", limit, |figure, limit| figure >= limit)
    }

    fn judged(mut self, what: &str, sign: &str, limit: f64, holds: fn(f64, f64) -> bool) -> Self {
        let figure = match what {
            "value" => self.value,
            "p50" => self.p50,
            "p99" => self.p99,
            "max" => self.max,
            "ratio" => self.ratio,
            other => self.more.get(other).and_then(Value::as_f64),
        };
        self.goal = Some(format!("{what} {sign} {limit}"));
        self.met = Some(figure.is_some_and(|figure| holds(figure, limit)));
        self
    }
}

/// The smallest value that is at least as large as a share `part` of all
/// (nearest rank); `None` of nothing.
pub(super) fn percentile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "0 <= part <= 1")]
    let rank = (part * sorted.len() as f64).ceil() as usize;
    Some(sorted[rank.saturating_sub(1).min(last)])
}

/// The middle of some figures; not a number of none.
pub(super) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, 0.5).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let figures: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&figures, 0.5), Some(100.0));
        assert_eq!(percentile(&figures, 0.99), Some(198.0));
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn a_goal_without_its_figure_is_not_met() {
        let record = Record::value("b", "c", "s", 1.0).at_most("p99", 5.0);
        assert_eq!(record.met, Some(false));
    }

    #[test]
    fn a_record_is_one_flat_object() {
        let record = Record::value("b", "c", "1/s", 50.0).over(100.0).at_least("ratio", 0.5);
        let json = serde_json::to_string(&record.with("extra", 7)).unwrap();
        assert_eq!(
            json,
            r#"{"bench":"b","case":"c","unit":"1/s","value":50.0,"floor":100.0,"ratio":0.5,"goal":"ratio >= 0.5","met":true,"extra":7}"#
        );
    }
}
