//! From a log to the model of its owners.
//!
//! An idle period after a visit is either a pause, or the owner has left and
//! the rate of the hour decides when somebody comes. Which of both it was is
//! not in the log: expectation and maximisation (Dempster, Laird and Rubin
//! 1977) gives each idle period the chance that it was one or the other, and
//! fits both with these weights. A workstation's factor is fitted likewise,
//! drawn towards the mean as far as its own log is short.
//!
//! What the model does not have: terms and holidays (a rate is the mean over
//! the log), owners who come in crowds, and visits that last longer at some hours.
//!
//! What is cut off by a stop or by the end of the log counts for as long as it
//! lasted. A crash is seen only as a log that breaks off, somewhere after its
//! last record: it is counted there, and its length is not learned from. Loads, cores and what a CHANGE says are not in timelines: those
//! parts of the model are the default's.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;

use gleaner_common::usage::Cause;

use super::lengths;
use super::model::{Arrivals, LogNormal, OwnerModel, Pauses, Stops};
use crate::timeline::{Note, Period, PeriodState, Timeline};
use crate::week::{Calendar, HOUR_NS, HOURS, Week};

const STEPS: usize = 60;

/// Every hour of the week counts as if so many more had come in it at the mean
/// rate: an hour in which nobody was seen is not one in which nobody ever
/// comes, and what is rare does not get a rhythm out of chance.
const PRIOR: f64 = 2.0;

/// A stop so soon after a visit belongs to it: a guess, between the seconds
/// in which a lab's computers start anew for the next visitor and a night's stop.
const RESTART_H: f64 = 3.0 / 60.0;

/// Fewer idle periods than this are no log to learn from.
const PERIODS_MIN: usize = 10;

/// Why a log has no owner model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    #[error(
        "{idle} idle and {busy} busy periods to learn from: expected at least {PERIODS_MIN} of each"
    )]
    TooFew { idle: usize, busy: usize },
}

impl OwnerModel {
    /// The owners of some workstations, by their logs. Hours and days are those
    /// of `zone`.
    ///
    /// # Errors
    /// Too few periods.
    pub fn fit<'a>(
        timelines: impl IntoIterator<Item = &'a Timeline>,
        zone: &TimeZone,
    ) -> Result<Self, FitError> {
        let seen = LogFacts::of(timelines, zone);
        let (idle, busy) = (seen.idle.len(), seen.visits_s.len() + seen.loads_s.len());
        if idle < PERIODS_MIN || busy < PERIODS_MIN {
            return Err(FitError::TooFew { idle, busy });
        }
        let away = AwayModel::fit(&seen);
        let usual = Self::phalen1994();
        let kind = |lengths_s: Vec<f64>, usual: &[LogNormal]| {
            lengths::fit(lengths_s).map_or_else(|| usual.to_vec(), rounded)
        };
        let unannounced = seen.crashes_s.len() as f64 / seen.stops.max(1) as f64;
        let stops_s = if seen.stops_s.is_empty() { seen.crashes_s } else { seen.stops_s };
        Ok(Self {
            about: format!(
                "fitted to {} idle and {busy} busy periods of {} workstations; load and cores are not",
                idle, seen.workstations
            ),
            cores: usual.cores,
            spread: significant(away.variance.sqrt()),
            pauses: Pauses {
                chance: significant(away.pause_chance.min(0.999)),
                lengths: rounded(vec![away.pause]),
            },
            visits: Arrivals {
                per_hour: rates(&away.visits),
                lengths: kind(seen.visits_s, &usual.visits.lengths),
            },
            loads: Arrivals {
                per_hour: rates(&away.loads),
                lengths: kind(seen.loads_s, &usual.loads.lengths),
            },
            stops: Stops {
                unannounced: significant(unannounced),
                after_visit: significant(seen.restarts as f64 / seen.visits.max(1) as f64),
                per_hour: rates(&smoothed(&seen.stopped, &seen.up_h)),
                lengths: kind(stops_s, &usual.stops.lengths),
            },
            load: usual.load,
        })
    }
}

fn rates(hours: &[f64; HOURS]) -> Week {
    Week::from_hours(&hours.map(significant))
}

fn rounded(mut lengths: Vec<LogNormal>) -> Vec<LogNormal> {
    for part in &mut lengths {
        *part = LogNormal {
            share: significant(part.share),
            median_s: significant(part.median_s),
            sigma: significant(part.sigma),
        };
    }
    lengths
}

/// Four digits are more than any log tells.
fn significant(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Events per hour, hour by hour of the week.
fn smoothed(events: &[f64; HOURS], exposure_h: &[f64; HOURS]) -> [f64; HOURS] {
    let (all, time): (f64, f64) = (events.iter().sum(), exposure_h.iter().sum());
    if all <= 0.0 || time <= 0.0 {
        return [0.0; HOURS];
    }
    let prior_h = PRIOR * time / all;
    std::array::from_fn(|hour| (events[hour] + PRIOR) / (exposure_h[hour] + prior_h))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeriodKind {
    Visit,
    Load,
    /// Stopped, not known, or the end of the log.
    Else,
}

/// An idle period.
#[derive(Clone, Copy, Debug)]
struct Idle {
    workstation: usize,
    /// Hours from Monday's midnight to its start.
    week_h: f64,
    length_h: f64,
    after: PeriodKind,
    /// What ended it.
    then: PeriodKind,
}

/// A log, as far as a model learns from it.
struct LogFacts {
    workstations: usize,
    /// Hours idle, of each workstation.
    idle_h: Vec<f64>,
    idle: Vec<Idle>,
    visits_s: Vec<f64>,
    loads_s: Vec<f64>,
    stops_s: Vec<f64>,
    /// From the last record before a crash on.
    crashes_s: Vec<f64>,
    stops: u64,
    /// Visits, and those that ended with a stop.
    visits: u64,
    restarts: u64,
    /// Stops, and hours up, by the hour of the week.
    stopped: [f64; HOURS],
    up_h: [f64; HOURS],
}

/// Whether what comes after these periods is the end of a visit.
fn is_restart(before: &[Period]) -> bool {
    match before {
        [.., visit, idle] if idle.state == PeriodState::Idle => {
            idle.duration.as_secs_f64() < RESTART_H * 3_600.0
                && kind_of(Some(visit)) == PeriodKind::Visit
        }
        [.., last] => kind_of(Some(last)) == PeriodKind::Visit,
        [] => false,
    }
}

fn kind_of(period: Option<&Period>) -> PeriodKind {
    match period {
        Some(Period { state: PeriodState::Busy, cause, .. }) if *cause == Some(Cause::Load) => {
            PeriodKind::Load
        }
        Some(Period { state: PeriodState::Busy, .. }) => PeriodKind::Visit,
        _ => PeriodKind::Else,
    }
}

impl LogFacts {
    fn of<'a>(timelines: impl IntoIterator<Item = &'a Timeline>, zone: &TimeZone) -> Self {
        let calendar = Calendar::new(zone);
        let mut seen = Self {
            workstations: 0,
            idle_h: vec![],
            idle: vec![],
            visits_s: vec![],
            loads_s: vec![],
            stops_s: vec![],
            crashes_s: vec![],
            stops: 0,
            visits: 0,
            restarts: 0,
            stopped: [0.0; HOURS],
            up_h: [0.0; HOURS],
        };
        for timeline in timelines {
            seen.add(timeline, &calendar);
            seen.workstations += 1;
        }
        seen
    }

    fn add(&mut self, timeline: &Timeline, calendar: &Calendar) {
        let idle = timeline.periods.iter().filter(|period| period.state == PeriodState::Idle);
        self.idle_h.push(idle.map(|period| period.duration.as_secs_f64() / 3_600.0).sum());
        let moment = |note: &Note| if let Note::BrokeOff { at } = note { Some(*at) } else { None };
        let broke_off: BTreeSet<_> = timeline.notes.iter().filter_map(moment).collect();
        for (place, period) in timeline.periods.iter().enumerate() {
            let before = place.checked_sub(1).map(|before| &timeline.periods[before]);
            let next = timeline.periods.get(place + 1);
            let week_h = calendar.week_ns(period.start) as f64 / HOUR_NS as f64;
            let length_h = period.duration.as_secs_f64() / 3_600.0;
            if period.state != PeriodState::Unknown {
                spread_out(week_h, length_h, 1.0, &mut self.up_h);
            }
            match period.state {
                PeriodState::Idle => {
                    let is_stopped = next.is_some_and(|next| next.state == PeriodState::Unknown);
                    if is_stopped && is_restart(&timeline.periods[..=place]) {
                        continue;
                    }
                    self.idle.push(Idle {
                        workstation: self.workstations,
                        week_h,
                        length_h,
                        after: kind_of(before),
                        then: kind_of(next),
                    });
                }
                PeriodState::Busy => {
                    let is_load = kind_of(Some(period)) == PeriodKind::Load;
                    self.visits += u64::from(!is_load);
                    // A period whose start or end nobody saw has no length.
                    let is_whole = |period: Option<&Period>| {
                        period.is_some_and(|period| period.state == PeriodState::Idle)
                    };
                    if is_whole(before) && is_whole(next) {
                        let lengths = if is_load { &mut self.loads_s } else { &mut self.visits_s };
                        lengths.push(length_h * 3_600.0);
                    }
                }
                PeriodState::Unknown => {
                    // What was before the first record is no stop.
                    if before.is_some() {
                        self.stops += 1;
                        if is_restart(&timeline.periods[..place]) {
                            self.restarts += 1;
                        } else {
                            self.stopped[hour_at(week_h)] += 1.0;
                        }
                        if broke_off.contains(&period.start) {
                            self.crashes_s.push(length_h * 3_600.0);
                        } else {
                            self.stops_s.extend(next.map(|_| length_h * 3_600.0));
                        }
                    }
                }
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an hour of a week")]
fn hour_at(week_h: f64) -> usize {
    (week_h.max(0.0) as usize) % HOURS
}

/// Gives each hour of the week its part of a stretch. A clock that changes in
/// summer puts an hour of a long stretch beside its place.
fn spread_out(week_h: f64, length_h: f64, weight: f64, to: &mut [f64; HOURS]) {
    let weeks = (length_h / HOURS as f64).floor();
    if weeks > 0.0 {
        for hour in to.iter_mut() {
            *hour += weight * weeks;
        }
    }
    let (mut at, end) = (week_h, week_h + length_h - weeks * HOURS as f64);
    while at < end {
        let until = (at.floor() + 1.0).min(end);
        to[hour_at(at)] += weight * (until - at);
        at = until;
    }
}

/// What happens while no owner pauses.
struct AwayModel {
    visits: [f64; HOURS],
    loads: [f64; HOURS],
    pause_chance: f64,
    pause: LogNormal,
    /// How much each workstation is used; the mean over their idle time is 1.
    factors: Vec<f64>,
    /// The variance of the factors' logarithms.
    variance: f64,
}

impl AwayModel {
    fn fit(seen: &LogFacts) -> Self {
        let mut away = Self {
            visits: [0.5; HOURS],
            loads: [0.05; HOURS],
            pause_chance: 0.5,
            pause: LogNormal { share: 1.0, median_s: 300.0, sigma: 1.0 },
            factors: vec![1.0; seen.workstations],
            variance: 0.1,
        };
        for _ in 0..STEPS {
            let before = away.pause_chance;
            let weights = away.weigh(seen);
            away.learn(seen, &weights);
            if (away.pause_chance - before).abs() < 1e-5 {
                break;
            }
        }
        away
    }

    /// The chance of each idle period that the owner was away.
    fn weigh(&self, seen: &LogFacts) -> Vec<f64> {
        let sums = RateSums::of(&std::array::from_fn(|hour| self.visits[hour] + self.loads[hour]));
        let weigh = |idle: &Idle| {
            if idle.after != PeriodKind::Visit || idle.then == PeriodKind::Load {
                return 1.0;
            }
            let factor = self.factors[idle.workstation];
            let lasted = (-factor * sums.over(idle.week_h, idle.length_h)).exp();
            let length_s = idle.length_h * 3_600.0;
            let (away, pause) = if idle.then == PeriodKind::Visit {
                let hour = hour_at(idle.week_h + idle.length_h);
                let rate_s = factor * self.visits[hour] / 3_600.0;
                (rate_s * lasted, lengths::density(self.pause, length_s))
            } else {
                (lasted, lengths::survival(self.pause, length_s))
            };
            let (away, pause) = ((1.0 - self.pause_chance) * away, self.pause_chance * pause);
            if away + pause > 0.0 { away / (away + pause) } else { 1.0 }
        };
        seen.idle.iter().map(weigh).collect()
    }

    fn learn(&mut self, seen: &LogFacts, weights: &[f64]) {
        let mut exposure = [0.0; HOURS];
        let (mut visits, mut loads) = ([0.0; HOURS], [0.0; HOURS]);
        let (mut after_visits, mut pauses) = (0.0, 0.0);
        for (idle, away) in seen.idle.iter().zip(weights) {
            let factor = self.factors[idle.workstation];
            spread_out(idle.week_h, idle.length_h, away * factor, &mut exposure);
            let hour = hour_at(idle.week_h + idle.length_h);
            match idle.then {
                PeriodKind::Visit => visits[hour] += away,
                PeriodKind::Load => loads[hour] += away,
                PeriodKind::Else => {}
            }
            if idle.after == PeriodKind::Visit {
                after_visits += 1.0;
                pauses += 1.0 - away;
            }
        }
        (self.visits, self.loads) = (smoothed(&visits, &exposure), smoothed(&loads, &exposure));
        if after_visits > 0.0 {
            self.pause_chance = pauses / after_visits;
        }
        let ended =
            seen.idle.iter().zip(weights).filter(|(idle, _)| idle.then == PeriodKind::Visit);
        let lengths = ended.map(|(idle, away)| (idle.length_h * 3_600.0, 1.0 - away));
        if pauses > 1.0 {
            self.pause = lengths::fit_weighted(lengths);
        }
        self.learn_factors(seen, weights);
    }

    /// The logarithms of what came against what was expected, drawn towards
    /// their mean as far as the counts are small.
    ///
    /// A workstation counts as long as it was idle: one that somebody has kept
    /// busy for months tells nothing of how often owners come. The variance between them is
    /// what is left of the scatter without that of the counts, one by each.
    fn learn_factors(&mut self, seen: &LogFacts, weights: &[f64]) {
        let sums = RateSums::of(&std::array::from_fn(|hour| self.visits[hour] + self.loads[hour]));
        let mut counts = vec![(0.5, 0.5); seen.workstations];
        for (idle, away) in seen.idle.iter().zip(weights) {
            let (came, expected) = &mut counts[idle.workstation];
            *came += if idle.then == PeriodKind::Else { 0.0 } else { *away };
            *expected += away * sums.over(idle.week_h, idle.length_h);
        }
        let logs: Vec<(f64, f64)> =
            counts.iter().map(|(came, expected)| ((came / expected).ln(), *came)).collect();
        let idle_h: f64 = seen.idle_h.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let mean_of = |values: &mut dyn Iterator<Item = f64>| {
            seen.idle_h.iter().zip(values).map(|(hours, value)| hours * value).sum::<f64>() / idle_h
        };
        let mean = mean_of(&mut logs.iter().map(|(log, _)| *log));
        let scatter = mean_of(&mut logs.iter().map(|(log, _)| (log - mean).powi(2)));
        let chance = mean_of(&mut logs.iter().map(|(_, came)| 1.0 / came));
        self.variance = (scatter - chance).max(0.0);
        let drawn = |(log, came): &(f64, f64)| {
            let own = self.variance / (self.variance + 1.0 / came);
            (mean + own * (log - mean)).exp()
        };
        self.factors = logs.iter().map(drawn).collect();
        let mean = mean_of(&mut self.factors.iter().copied());
        for factor in &mut self.factors {
            *factor /= mean;
        }
        for rate in self.visits.iter_mut().chain(&mut self.loads) {
            *rate *= mean;
        }
    }
}

/// Rates added up over the week, so that a stretch of any length costs the same.
struct RateSums([f64; HOURS + 1]);

impl RateSums {
    fn of(rates: &[f64; HOURS]) -> Self {
        let mut sums = [0.0; HOURS + 1];
        for hour in 0..HOURS {
            sums[hour + 1] = sums[hour] + rates[hour];
        }
        Self(sums)
    }

    fn over(&self, week_h: f64, length_h: f64) -> f64 {
        self.up_to(week_h + length_h) - self.up_to(week_h)
    }

    fn up_to(&self, hours: f64) -> f64 {
        let weeks = (hours / HOURS as f64).floor();
        let rest = hours - weeks * HOURS as f64;
        let hour = hour_at(rest);
        let part = rest - hour as f64;
        weeks * self.0[HOURS] + self.0[hour] + part * (self.0[hour + 1] - self.0[hour])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_of_many_weeks_gives_every_hour_its_part() {
        let mut hours = [0.0; HOURS];
        spread_out(167.5, 2.0 * 168.0 + 1.0, 1.0, &mut hours);
        assert!((hours.iter().sum::<f64>() - 337.0).abs() < 1e-9);
        assert!((hours[167] - 2.5).abs() < 1e-9 && (hours[0] - 2.5).abs() < 1e-9);
        assert!((hours[80] - 2.0).abs() < 1e-9);
    }

    #[test]
    fn sums_over_a_stretch_are_those_of_its_hours() {
        let mut rates = [0.0; HOURS];
        (rates[0], rates[167]) = (1.0, 3.0);
        let sums = RateSums::of(&rates);
        assert!((sums.over(167.0, 2.0) - 4.0).abs() < 1e-9);
        assert!((sums.over(166.5, 1.0) - 1.5).abs() < 1e-9);
        assert!((sums.over(10.0, 3.0 * 168.0) - 12.0).abs() < 1e-9);
    }

    #[test]
    fn a_log_with_hardly_a_period_is_no_log_to_learn_from() {
        let said = OwnerModel::fit(&[Timeline::default()], &TimeZone::UTC).unwrap_err().to_string();
        assert_eq!(said, "0 idle and 0 busy periods to learn from: expected at least 10 of each");
    }
}
