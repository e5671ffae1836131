//! How long idle and busy periods last.

use gleaner_common::time::Spoken;
use gleaner_figure::{Axis, LineChart, Look, Series, counted};
use std::time::Duration;

use super::Scope;
use crate::survival::{Survival, lasted};
use crate::timeline::{PeriodState, Timeline};

const TICKS: [(f64, &str); 12] = [
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3_600.0, "1 h"),
    (21_600.0, "6 h"),
    (86_400.0, "1 d"),
    (604_800.0, "1 week"),
    (2_592_000.0, "30 d"),
    (7_776_000.0, "90 d"),
    (31_536_000.0, "1 year"),
    (315_360_000.0, "10 years"),
];

pub(super) fn chart(timelines: &[&Timeline], scope: &Scope) -> Option<LineChart> {
    let (mut series, mut ends) = (vec![], (f64::INFINITY, 0.0_f64));
    for state in [PeriodState::Idle, PeriodState::Busy] {
        let curve = Survival::of(lasted(timelines.iter().copied(), state, scope.span));
        series.extend(of_curve(state, &curve));
        // Where hardly any has ended there is nothing to see.
        let first = curve.points.iter().find(|point| point.part < 0.995);
        ends.0 = first.map_or(ends.0, |point| ends.0.min(point.length_s));
        ends.1 = curve.points.last().map_or(ends.1, |point| ends.1.max(point.length_s));
    }
    let ticks = TICKS.map(|(at, label)| (at, label.to_owned())).to_vec();
    (!series.is_empty()).then(|| LineChart {
        title: "How long idle and busy periods last".into(),
        subtitle: format!("{}; Kaplan-Meier, bands: 95 %", scope.spoken()),
        x_axis: Axis::log("length of a period")
            .from_to(ends.0.clamp(1.0, 60.0), ends.1.max(600.0))
            .with_ticks(ticks),
        y_axis: Axis::linear("periods that last longer (%)").from_to(0.0, 100.0),
        series,
        ..LineChart::default()
    })
}

fn of_curve(state: PeriodState, curve: &Survival) -> Option<Series> {
    let outline = curve.outline();
    let first = outline.first()?.length_s.max(1e-3);
    let median = curve.median_s.map_or_else(String::new, |median_s| {
        format!(", half longer than {}", Spoken(Duration::from_secs_f64(median_s)))
    });
    let shown = || outline.iter().filter(|point| point.length_s > 0.0);
    let start = (first.min(1.0), 100.0);
    let points = shown().map(|point| (point.length_s, 100.0 * point.part));
    let band = shown().map(|point| (point.length_s, 100.0 * point.low, 100.0 * point.high));
    let name = format!("{} ({} periods{median})", state.name(), counted(curve.periods));
    Some(
        Series::new(name, std::iter::once(start).chain(points).collect())
            .looking(Look::Steps)
            .with_band(band.collect()),
    )
}
