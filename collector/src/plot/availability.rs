//! How many workstations are idle and busy, over time.

use gleaner_common::time::WallTime;
use gleaner_figure::{Axis, Colour, LineChart, Look, OKABE_ITO, Series};
use jiff::ToSpan;
use jiff::civil::Date;

use super::{Scope, known, local};
use crate::timeline::{PeriodState, Timeline};
use crate::week::HOUR_NS;

/// Up to so many days are drawn hour by hour, more of them day by day.
const HOURLY_DAYS_MAX: usize = 21;
const DAY_H: usize = 24;

pub(super) fn chart(timelines: &[&Timeline], scope: &Scope) -> LineChart {
    let counts = Counts::of(timelines, scope);
    let days = counts.hours.len() / DAY_H;
    let is_hourly = days <= HOURLY_DAYS_MAX;
    let (series, mean_of) =
        if is_hourly { (counts.hourly(), "hour") } else { (counts.daily(scope), "day") };
    let bands = if is_hourly { "" } else { "; band: its least and its most idle hour" };
    LineChart {
        title: "Workstations idle and busy over time".into(),
        subtitle: format!("{}; mean of each {mean_of}{bands}", scope.spoken()),
        x_axis: Axis::linear("")
            .from_to(scope.from.unix_s(), scope.to.unix_s())
            .with_ticks(ticks(scope)),
        y_axis: Axis::linear("workstations"),
        series,
        ..LineChart::default()
    }
}

/// Machine-hours idle and busy in each hour since the first.
struct Counts {
    /// Counted from 1970: an hour that has begun before all time has no moment.
    first_hour: i64,
    hours: Vec<[f64; 2]>,
}

impl Counts {
    fn of(timelines: &[&Timeline], scope: &Scope) -> Self {
        let mut counts = Self { first_hour: scope.from.0.div_euclid(HOUR_NS), hours: vec![] };
        for period in timelines.iter().flat_map(|timeline| known(timeline, scope.span)) {
            counts.add(period.start, period.end(), period.state);
        }
        counts
    }

    fn add(&mut self, from: WallTime, to: WallTime, state: PeriodState) {
        let mut at = from;
        while at < to {
            let hour = at.0.div_euclid(HOUR_NS);
            let until = begins(hour + 1).min(to);
            let hour = usize::try_from(hour - self.first_hour)
                .unwrap_or_else(|_| unreachable!("after the first"));
            if self.hours.len() <= hour {
                self.hours.resize(hour + 1, [0.0; 2]);
            }
            self.hours[hour][usize::from(state == PeriodState::Busy)] +=
                (until.0 - at.0) as f64 / HOUR_NS as f64;
            at = until;
        }
    }

    fn moment(&self, hour: usize) -> WallTime {
        begins(self.first_hour.saturating_add_unsigned(hour as u64))
    }

    fn hourly(&self) -> Vec<Series> {
        let of = |pick: fn(&[f64; 2]) -> f64| {
            // The point stands in the middle of its hour.
            let place = |(hour, count)| (self.moment(hour).unix_s() + 1_800.0, pick(count));
            self.hours.iter().enumerate().map(place).collect()
        };
        drawn(of(|c| c[0]), vec![], of(|c| c[1]), of(|c| c[0] + c[1]))
    }

    fn daily(&self, scope: &Scope) -> Vec<Series> {
        let (mut idle, mut band, mut busy, mut all) = (vec![], vec![], vec![], vec![]);
        let hours: Vec<_> = self.hours.iter().enumerate().collect();
        let day = |hour: usize| local(self.moment(hour), &scope.zone).date();
        for of_day in hours.chunk_by(|a, b| day(a.0) == day(b.0)) {
            // The first and the last day may be cut.
            if of_day.len() < DAY_H - 1 {
                continue;
            }
            let noon = self.moment(of_day[of_day.len() / 2].0).unix_s();
            let mean = |pick: fn(&[f64; 2]) -> f64| {
                of_day.iter().map(|(_, count)| pick(count)).sum::<f64>() / of_day.len() as f64
            };
            let each = || of_day.iter().map(|(_, count)| count[0]);
            idle.push((noon, mean(|c| c[0])));
            busy.push((noon, mean(|c| c[1])));
            all.push((noon, mean(|c| c[0] + c[1])));
            let (low, high) = (each().fold(f64::INFINITY, f64::min), each().fold(0.0, f64::max));
            band.push((noon, low, high));
        }
        drawn(idle, band, busy, all)
    }
}

type Points = Vec<(f64, f64)>;

fn drawn(idle: Points, band: Vec<(f64, f64, f64)>, busy: Points, all: Points) -> Vec<Series> {
    vec![
        Series::new("up and known", all).coloured(Colour(150, 150, 150)),
        Series::new("idle", idle).coloured(OKABE_ITO[0]).with_band(band),
        Series::new("busy", busy).coloured(OKABE_ITO[1]).looking(Look::Line),
    ]
}

/// The moment at which an hour since 1970 begins, or the end of all time before it.
fn begins(hour: i64) -> WallTime {
    WallTime(hour.saturating_mul(HOUR_NS))
}

/// Years, months, weeks or days: what gives a handful of labels.
fn ticks(scope: &Scope) -> Vec<(f64, String)> {
    let first = local(scope.from, &scope.zone).date();
    let days = scope.to.since(scope.from).as_secs() / 86_400;
    let month = first.first_of_month();
    let (start, step, format) = match days {
        0..=10 => (first, 1.day(), "%a %-d %b"),
        11..=60 => (first, 7.days(), "%-d %b"),
        61..=120 => (first, 14.days(), "%-d %b"),
        121..=270 => (month, 1.month(), "%b %Y"),
        271..=1_000 => (month, 3.months(), "%b %Y"),
        _ => (first.first_of_year(), 1.year(), "%Y"),
    };
    let start = if days > 10 && days <= 120 { monday_before(start) } else { start };
    let mut ticks = vec![];
    let mut day = Some(start);
    while let Some(date) = day {
        let at = date.to_zoned(scope.zone.clone()).map(|at| at.timestamp());
        let Ok(at) = at else { break };
        let at_s = at.as_nanosecond() as f64 / 1e9;
        if at_s > scope.to.unix_s() {
            break;
        }
        ticks.push((at_s, date.strftime(format).to_string()));
        day = date.checked_add(step).ok();
    }
    ticks
}

fn monday_before(date: Date) -> Date {
    let back = i64::from(date.weekday().to_monday_zero_offset());
    date.checked_sub(back.days()).unwrap_or(date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_hour_of_all_time_are_counted() {
        for (from, to) in [(i64::MIN, i64::MIN + 5), (i64::MAX - 5, i64::MAX)] {
            let first_hour = from.div_euclid(HOUR_NS);
            let mut counts = Counts { first_hour, hours: vec![] };
            counts.add(WallTime(from), WallTime(to), PeriodState::Idle);
            assert_eq!(counts.hours.len(), 1);
            counts.moment(0);
        }
    }
}
