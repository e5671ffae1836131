//! How long periods last, where the end of some was not seen.
//!
//! Source: Kaplan and Meier 1958; the variance by Greenwood 1926.

use std::time::Duration;

use serde::Serialize;

use crate::archive::Span;
use crate::timeline::{PeriodState, Timeline};

/// More points than this draw no better curve.
const POINTS_MAX: usize = 400;

/// A length, and whether its end was seen: it may have lasted longer if not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lasted {
    pub length: Duration,
    pub ended: bool,
}

/// How long a state lasts, in periods that begin in a span. The first period of
/// a log has no beginning; one that the log's end or unknown time cuts off has
/// no end.
pub(crate) fn lasted<'a>(
    timelines: impl IntoIterator<Item = &'a Timeline>,
    state: PeriodState,
    span: Span,
) -> Vec<Lasted> {
    let mut all = vec![];
    for timeline in timelines {
        for (place, period) in timeline.periods.iter().enumerate().skip(1) {
            if period.state == state && span.contains(period.start) {
                let next = timeline.periods.get(place + 1);
                let ended = next.is_some_and(|next| next.state != PeriodState::Unknown);
                all.push(Lasted { length: period.duration, ended });
            }
        }
    }
    all
}

/// A curve at one length: the part of periods that lasts longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    pub length_s: f64,
    pub part: f64,
    /// Where the true part lies, with 95 of 100.
    pub low: f64,
    pub high: f64,
}

/// A survival curve: it falls at every length with which a period ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Survival {
    pub periods: u64,
    /// Periods whose end was not seen.
    pub cut_off: u64,
    /// The points in order of length; each part holds from there to the next.
    pub points: Vec<Point>,
    /// Half of the periods last longer; `None` if too few ends were seen.
    pub median_s: Option<f64>,
}

impl Survival {
    pub(crate) fn of(mut lasted: Vec<Lasted>) -> Self {
        lasted.sort_unstable();
        let mut curve = Self { periods: lasted.len() as u64, ..Self::default() };
        let (mut part, mut variance) = (1.0, 0.0);
        let mut at_risk = lasted.len();
        for alike in lasted.chunk_by(|a, b| a.length == b.length) {
            let ended = alike.iter().filter(|lasted| lasted.ended).count();
            curve.cut_off += (alike.len() - ended) as u64;
            if ended > 0 {
                let (risk, ends) = (at_risk as f64, ended as f64);
                part *= (risk - ends) / risk;
                // The last of all ends the curve; its variance is of no use.
                if ended < at_risk {
                    variance += ends / (risk * (risk - ends));
                }
                let length_s = alike[0].length.as_secs_f64();
                let (low, high) = bounds(part, variance);
                curve.points.push(Point { length_s, part, low, high });
                if part <= 0.5 {
                    curve.median_s.get_or_insert(length_s);
                }
            }
            at_risk -= alike.len();
        }
        curve
    }

    /// The part of periods that lasts longer than this.
    #[cfg(test)]
    fn at(&self, length: Duration) -> f64 {
        let length_s = length.as_secs_f64();
        let later = self.points.partition_point(|point| point.length_s <= length_s);
        later.checked_sub(1).map_or(1.0, |last| self.points[last].part)
    }

    /// Points enough to draw it: where it has fallen far enough since the last
    /// one, or the length has grown far enough.
    pub(crate) fn outline(&self) -> Vec<Point> {
        let mut outline: Vec<Point> = vec![];
        let least = 1.0 / POINTS_MAX as f64;
        for (place, point) in self.points.iter().enumerate() {
            let is_end = place == 0 || place + 1 == self.points.len();
            let is_far = outline.last().is_none_or(|last| {
                last.part - point.part >= least || point.length_s > 1.1 * last.length_s
            });
            if is_end || is_far {
                outline.push(*point);
            }
        }
        outline
    }
}

/// On the scale of log(-log), so that they stay between 0 and 1.
///
/// Source: Kalbfleisch and Prentice 1980.
fn bounds(part: f64, variance: f64) -> (f64, f64) {
    if part <= 0.0 || part >= 1.0 {
        return (part, part);
    }
    let wide = 1.96 * variance.sqrt() / part.ln().abs();
    (part.powf(wide.exp()), part.powf((-wide).exp()))
}

#[cfg(test)]
mod tests {
    use gleaner_common::usage::Cause;

    use super::*;
    use crate::timeline::{Interpretation, interpret};
    use gleaner_collector_core::samples::record;

    fn of(lengths: &[(u64, bool)]) -> Survival {
        let lasted = |&(s, ended): &(u64, bool)| Lasted { length: Duration::from_secs(s), ended };
        Survival::of(lengths.iter().map(lasted).collect())
    }

    #[track_caller]
    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-4, "{value} {expected}");
    }

    /// Source: the remission times of Freireich et al. 1963, as worked through in
    /// every textbook: 6, 6, 6, 6+, 7, 9+, 10, 10+, 11+, 13, 16, 17+, 19+, 20+, 22,
    /// 23, 25+, 32+, 32+, 34+, 35+.
    #[test]
    fn the_textbook_example_comes_out_right() {
        let ends = [6, 6, 6, 7, 10, 13, 16, 22, 23];
        let cut_off = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35];
        let lengths = ends.map(|s| (s, true)).into_iter().chain(cut_off.map(|s| (s, false)));
        let curve = of(&lengths.collect::<Vec<_>>());
        assert_eq!((curve.periods, curve.cut_off), (21, 12));
        for (s, part) in [
            (5, 1.0),
            (6, 0.8571),
            (7, 0.8067),
            (10, 0.7529),
            (13, 0.6902),
            (16, 0.6275),
            (22, 0.5378),
            (40, 0.4482),
        ] {
            near(curve.at(Duration::from_secs(s)), part);
        }
        near(curve.median_s.unwrap(), 23.0);
        // Greenwood's standard error at 6 is 0.0764.
        let six = curve.points[0];
        assert!(six.low < 0.8571 - 0.1 && six.high > 0.8571 + 0.08, "{six:?}");
    }

    #[test]
    fn without_cut_off_ends_it_is_the_share_that_is_longer() {
        let curve = of(&[(1, true), (2, true), (3, true), (4, true)]);
        let parts: Vec<f64> = curve.points.iter().map(|point| point.part).collect();
        assert_eq!(parts, [0.75, 0.5, 0.25, 0.0]);
        assert_eq!(curve.median_s, Some(2.0));
        assert_eq!(of(&[]), Survival::default());
        assert_eq!(of(&[(5, false)]).median_s, None);
    }

    #[test]
    fn what_the_end_of_the_log_cuts_off_has_not_ended() {
        let causes = [
            (0, Cause::Idle),
            (100, Cause::Tty),
            (150, Cause::Idle),
            (400, Cause::Load),
            (900, Cause::Finish),
            (950, Cause::Start),
        ];
        let records = (1..).zip(causes).map(|(sequence, (s, cause))| record(sequence, s, cause));
        let timeline = [interpret(records, Interpretation::Exact)];
        let lengths = |state| -> Vec<(u64, bool)> {
            lasted(&timeline, state, Span::default())
                .iter()
                .map(|l| (l.length.as_secs(), l.ended))
                .collect()
        };
        assert_eq!(lengths(PeriodState::Idle), [(250, true)]);
        assert_eq!(lengths(PeriodState::Busy), [(50, true), (500, false)]);
    }

    #[test]
    fn an_outline_is_short_and_keeps_both_ends() {
        let lengths: Vec<_> = (1..20_000).map(|s| (s, true)).collect();
        let curve = of(&lengths);
        let outline = curve.outline();
        assert!(outline.len() <= POINTS_MAX + 120, "{}", outline.len());
        assert_eq!((outline.first(), outline.last()), (curve.points.first(), curve.points.last()));
    }
}
