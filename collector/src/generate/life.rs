//! Who is where, when: the life of one workstation, without loads and records.

use std::time::Duration;

use gleaner_common::time::WallTime;
use jiff::tz::TimeZone;
use rand::Rng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp1, StandardNormal};

use super::lengths::draw;
use super::model::OwnerModel;
use crate::week::{Calendar, HOUR_NS, HOURS};

/// A life begins that long before anybody looks, so that it shows no beginning.
const BEFORE: Duration = Duration::from_secs(14 * 86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerDoing {
    /// The owner is away.
    Away,
    /// The owner pauses, and is still logged in.
    Pausing,
    /// Somebody is at the machine.
    Visited,
    /// Only load keeps the workstation busy.
    Loaded,
    /// The workstation is off, has crashed, or no record comes from it.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) doing: OwnerDoing,
    pub(super) start: WallTime,
    pub(super) end: WallTime,
}

pub(super) struct Life<'a> {
    model: &'a OwnerModel,
    calendar: Calendar,
    chance: StdRng,
    /// How much this workstation is used, against the mean of all.
    factor: f64,
    /// Per hour: somebody or load; and of these, load.
    arrivals: [f64; HOURS],
    loads: [f64; HOURS],
    stops: [f64; HOURS],
}

impl<'a> Life<'a> {
    pub(super) fn new(model: &'a OwnerModel, zone: &TimeZone, mut chance: StdRng) -> Self {
        let normal: f64 = StandardNormal.sample(&mut chance);
        // The mean of a log-normal is 1 with this median.
        let factor = (model.spread * normal - model.spread * model.spread / 2.0).exp();
        let (visits, loads) = (model.visits.per_hour.hours(), model.loads.per_hour.hours());
        let mut arrivals = visits;
        arrivals.iter_mut().zip(loads).for_each(|(rate, load)| *rate += load);
        let stops = model.stops.per_hour.hours();
        Self { model, calendar: Calendar::new(zone), chance, factor, arrivals, loads, stops }
    }

    /// Stretches one after the other, from the one moment to the other.
    pub(super) fn live(mut self, from: WallTime, to: WallTime) -> Vec<Stretch> {
        let mut stretches = vec![];
        let mut at = WallTime(from.0.saturating_sub(nanos(BEFORE.as_secs_f64())));
        let mut doing = OwnerDoing::Away;
        let mut stop = self.next_stop(at, to);
        while at < to {
            let (end, next) = self.next(doing, at, to);
            let (end, next) = if doing != OwnerDoing::Stopped && stop < end {
                (stop, OwnerDoing::Stopped)
            } else {
                (end, next)
            };
            if doing == OwnerDoing::Stopped {
                stop = self.next_stop(end, to);
            }
            let stretch = Stretch { doing, start: at.max(from), end: end.min(to) };
            if stretch.start < stretch.end {
                stretches.push(stretch);
            }
            (at, doing) = (end, next);
        }
        stretches
    }

    /// When what it does ends, and what comes then.
    fn next(&mut self, doing: OwnerDoing, at: WallTime, to: WallTime) -> (WallTime, OwnerDoing) {
        let model = self.model;
        match doing {
            OwnerDoing::Away => {
                let Some(end) =
                    arrival(&mut self.chance, &self.calendar, &self.arrivals, self.factor, at, to)
                else {
                    return (later(to, 1.0), OwnerDoing::Visited);
                };
                let (hour, _) = self.calendar.hour(end);
                let is_load = self.chance.random::<f64>() * self.arrivals[hour] < self.loads[hour];
                (end, if is_load { OwnerDoing::Loaded } else { OwnerDoing::Visited })
            }
            OwnerDoing::Pausing => (self.after(at, &model.pauses.lengths), OwnerDoing::Visited),
            OwnerDoing::Visited => {
                let end = self.after(at, &model.visits.lengths);
                let stops = self.chance.random_bool(model.stops.after_visit);
                let pauses = self.chance.random_bool(model.pauses.chance);
                let next = match (stops, pauses) {
                    (true, _) => OwnerDoing::Stopped,
                    (false, true) => OwnerDoing::Pausing,
                    (false, false) => OwnerDoing::Away,
                };
                (end, next)
            }
            OwnerDoing::Loaded => (self.after(at, &model.loads.lengths), OwnerDoing::Away),
            OwnerDoing::Stopped => (self.after(at, &model.stops.lengths), OwnerDoing::Away),
        }
    }

    fn after(&mut self, at: WallTime, lengths: &[super::LogNormal]) -> WallTime {
        later(at, draw(lengths, &mut self.chance))
    }

    fn next_stop(&mut self, at: WallTime, to: WallTime) -> WallTime {
        let next = arrival(&mut self.chance, &self.calendar, &self.stops, 1.0, at, to);
        next.unwrap_or(WallTime(i64::MAX))
    }
}

/// The next arrival of a Poisson process whose rate changes with the hour:
/// the hour in which the rates have added up to an exponential number.
fn arrival(
    chance: &mut StdRng,
    calendar: &Calendar,
    per_hour: &[f64; HOURS],
    factor: f64,
    from: WallTime,
    to: WallTime,
) -> Option<WallTime> {
    let mut left: f64 = Exp1.sample(chance);
    let mut at = from;
    while at < to {
        let (hour, next) = calendar.hour(at);
        let rate = per_hour[hour] * factor;
        let hours = (next.0 - at.0) as f64 / HOUR_NS as f64;
        if left < rate * hours {
            return Some(later(at, left / rate * 3_600.0).min(next));
        }
        left -= rate * hours;
        at = next;
    }
    None
}

pub(super) fn later(at: WallTime, seconds: f64) -> WallTime {
    WallTime(at.0.saturating_add(nanos(seconds)))
}

#[expect(clippy::cast_possible_truncation, reason = "saturates, far beyond any log")]
fn nanos(seconds: f64) -> i64 {
    (seconds * 1e9) as i64
}
