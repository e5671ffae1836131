//! What is known, or assumed, of the owners of a lab.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::week::Week;

/// The owners of a lab's workstations.
///
/// A workstation is idle until somebody comes, load appears, or it stops. All
/// three come at random with the rate of the hour of the week; what a
/// workstation's own owners do is that rate times the workstation's own
/// factor. After a visit the owner has either left, or only pauses and comes
/// back by a clock of their own: that gives the many short idle periods that
/// a rate by the hour alone would not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerModel {
    /// Where its numbers come from.
    pub about: String,
    /// How many cores each workstation has.
    pub cores: u16,
    /// How far workstations differ: the standard deviation of the logarithm
    /// of their factors, whose mean is 1. With 0 all are alike.
    pub spread: f64,
    pub visits: Arrivals,
    pub pauses: Pauses,
    pub loads: Arrivals,
    pub stops: Stops,
    pub load: Loads,
}

/// Busy periods of one kind: how often they begin, how long they last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// A mixture; its shares add up to 1. A visit lasts to the end of the
    /// quiet minute after the last input.
    pub lengths: Vec<LogNormal>,
    /// Per hour that a workstation is idle and its owner away.
    pub per_hour: Week,
}

/// Owners who come back: idle periods between the visits of one stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pauses {
    /// The chance that a visit is followed by a pause and not by leaving, unless it ends
    /// with a stop.
    pub chance: f64,
    pub lengths: Vec<LogNormal>,
}

/// Times at which a workstation is off, has crashed, or sends no record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stops {
    /// The part of them that no FINISH announces: crashes.
    pub unannounced: f64,
    /// The chance that a visit ends with a stop: labs that start anew for every
    /// visitor.
    pub after_visit: f64,
    pub lengths: Vec<LogNormal>,
    /// Per hour that a workstation is up.
    pub per_hour: Week,
}

/// Load averages, in runnable tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loads {
    /// While somebody is there: log-normal.
    pub visit_median: f64,
    pub visit_sigma: f64,
    /// While only load keeps a workstation busy: a quarter and this more.
    pub extra_median: f64,
    pub extra_sigma: f64,
    /// The mean time between two changes of the level, in seconds.
    pub change_every_s: f64,
    /// The system's own while idle: even, from 0 to this.
    pub idle_max: f64,
}

/// Lengths whose logarithms are normal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogNormal {
    /// The part of all lengths that are of this kind.
    pub share: f64,
    pub median_s: f64,
    /// The standard deviation of the natural logarithm.
    pub sigma: f64,
}

impl LogNormal {
    pub fn mean_s(self) -> f64 {
        self.median_s * (self.sigma * self.sigma / 2.0).exp()
    }
}

/// The mean of a mixture, in seconds.
pub fn mean_s(lengths: &[LogNormal]) -> f64 {
    lengths.iter().map(|part| part.share * part.mean_s()).sum()
}

/// Why a text is not an owner model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The message of the reader names the line.
    #[error("not an owner model: {0}")]
    Read(#[from] toml::de::Error),
    #[error("{what} is {value}: expected {expected}")]
    Value { what: String, value: f64, expected: &'static str },
    #[error("the shares of {what} add up to {sum}: expected 1")]
    Shares { what: &'static str, sum: f64 },
}

/// No arrival more often than every second: a bound for whoever writes rates.
const RATE_MAX: f64 = 3_600.0;

impl OwnerModel {
    /// Reads a model as [`OwnerModel::to_toml`] writes it, and checks it.
    ///
    /// # Errors
    /// No TOML, a missing or unknown field, or a value out of its range.
    pub fn from_toml(text: &str) -> Result<Self, ModelError> {
        let model: Self = toml::from_str(text)?;
        model.check()?;
        Ok(model)
    }

    /// As TOML, with a word on every unit.
    pub fn to_toml(&self) -> String {
        let body = toml::to_string(self)
            .unwrap_or_else(|error| unreachable!("no table before a value: {error}"));
        let mut text = String::new();
        for line in UNITS.lines() {
            let _ = writeln!(text, "# {line}");
        }
        text.push('\n');
        text + &body
    }

    fn check(&self) -> Result<(), ModelError> {
        let positive = "a number above 0";
        check(self.cores > 0, "cores", f64::from(self.cores), "at least 1")?;
        check((0.0..=5.0).contains(&self.spread), "spread", self.spread, "0 to 5")?;
        let chance = self.pauses.chance;
        // Pauses must end: an owner who always comes back never leaves.
        check((0.0..=0.999).contains(&chance), "pauses.chance", chance, "0 to 0.999")?;
        let unannounced = self.stops.unannounced;
        check((0.0..=1.0).contains(&unannounced), "stops.unannounced", unannounced, "0 to 1")?;
        let after = self.stops.after_visit;
        check((0.0..=1.0).contains(&after), "stops.after_visit", after, "0 to 1")?;
        check_lengths("visits.lengths", &self.visits.lengths)?;
        check_lengths("pauses.lengths", &self.pauses.lengths)?;
        check_lengths("loads.lengths", &self.loads.lengths)?;
        check_lengths("stops.lengths", &self.stops.lengths)?;
        check_rates("visits.per_hour", &self.visits.per_hour)?;
        check_rates("loads.per_hour", &self.loads.per_hour)?;
        check_rates("stops.per_hour", &self.stops.per_hour)?;
        let load = &self.load;
        for (what, value) in [
            ("load.visit_median", load.visit_median),
            ("load.extra_median", load.extra_median),
            ("load.change_every_s", load.change_every_s),
        ] {
            check(value > 0.0 && value.is_finite(), what, value, positive)?;
        }
        check(
            load.change_every_s >= 1.0,
            "load.change_every_s",
            load.change_every_s,
            "at least 1",
        )?;
        for (what, value) in
            [("load.visit_sigma", load.visit_sigma), ("load.extra_sigma", load.extra_sigma)]
        {
            check((0.0..=5.0).contains(&value), what, value, "0 to 5")?;
        }
        let idle = load.idle_max;
        check((0.0..0.25).contains(&idle), "load.idle_max", idle, "0 to less than 0.25")
    }
}

fn check(fits: bool, what: &str, value: f64, expected: &'static str) -> Result<(), ModelError> {
    if fits { Ok(()) } else { Err(ModelError::Value { what: what.to_owned(), value, expected }) }
}

fn check_lengths(what: &'static str, lengths: &[LogNormal]) -> Result<(), ModelError> {
    let sum: f64 = lengths.iter().map(|part| part.share).sum();
    if (sum - 1.0).abs() > 1e-3 || !sum.is_finite() {
        return Err(ModelError::Shares { what, sum });
    }
    for part in lengths {
        let name = |field: &str| format!("{what}.{field}");
        check(part.share >= 0.0, &name("share"), part.share, "0 to 1")?;
        let median = part.median_s;
        check((1.0..=1e9).contains(&median), &name("median_s"), median, "1 to 1000000000 seconds")?;
        check((0.0..=5.0).contains(&part.sigma), &name("sigma"), part.sigma, "0 to 5")?;
    }
    Ok(())
}

fn check_rates(what: &'static str, week: &Week) -> Result<(), ModelError> {
    for (hour, rate) in week.hours().into_iter().enumerate() {
        let name = format!("{what}, hour {} of day {}", hour % 24, hour / 24 + 1);
        check((0.0..=RATE_MAX).contains(&rate), &name, rate, "0 to 3600")?;
    }
    Ok(())
}

const UNITS: &str = "\
An owner model of gleaner: `glean usage generate --model THIS-FILE`.

cores             of each workstation
spread            how far workstations differ: standard deviation of the logarithm of their factors (mean 1)
visits, loads     busy periods by somebody's presence, and by load alone; both times the workstation's factor
  per_hour        begun per hour that a workstation is idle and its owner away; 24 hours of local time for each day
  lengths         a mixture of log-normal lengths: share of all, median in seconds, sigma of the natural logarithm
pauses            an owner who comes back: chance that a visit is followed by a pause, and how long it lasts
stops             off, crashed or not heard of; per_hour that a workstation is up; `unannounced`: part without FINISH;
  after_visit     chance that a visit ends with a stop, apart from those
load              one-minute averages in runnable tasks: while visited; above 0.25 while loaded; while idle";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_survives_being_written_and_read() {
        let model = OwnerModel::phalen1994();
        let text = model.to_toml();
        assert_eq!(OwnerModel::from_toml(&text).unwrap(), model);
        assert!(text.starts_with("# An owner model"), "{text}");
    }

    #[test]
    fn a_value_out_of_its_range_is_named() {
        let wrong = |change: fn(&mut OwnerModel)| {
            let mut model = OwnerModel::phalen1994();
            change(&mut model);
            OwnerModel::from_toml(&model.to_toml()).unwrap_err().to_string()
        };
        let said = wrong(|model| model.visits.per_hour.tuesday[3] = -1.0);
        assert_eq!(said, "visits.per_hour, hour 3 of day 2 is -1: expected 0 to 3600");
        let said = wrong(|model| model.pauses.chance = 1.0);
        assert_eq!(said, "pauses.chance is 1: expected 0 to 0.999");
        let said = wrong(|model| model.loads.lengths.extend(model.loads.lengths.clone()));
        assert_eq!(said, "the shares of loads.lengths add up to 2: expected 1");
        assert!(wrong(|model| model.load.change_every_s = f64::NAN).contains("change_every_s"));
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let text = OwnerModel::phalen1994().to_toml().replace("spread", "spraed");
        let said = OwnerModel::from_toml(&text).unwrap_err().to_string();
        assert!(said.contains("line") && said.contains("spraed"), "{said}");
    }
}
