//! Owners as Phalen's text lets us imagine them.

use super::model::{Arrivals, Loads, LogNormal, OwnerModel, Pauses, Stops};
use crate::week::Week;

/// Visits begun per idle hour on a weekday, by the hour.
///
/// The order night < evening, morning, afternoon is Phalen's (1994, §7.3:
/// "the night time hours would provide the best potential"). The shape within
/// the day is a guess after the hours of use in `data`'s library log and
/// Mutka and Livny 1991; the height is fitted (see [`OwnerModel::phalen1994`]).
const WEEKDAY: [f64; 24] = [
    0.30, 0.20, 0.14, 0.10, 0.08, 0.08, 0.10, 0.16, 0.40, 0.80, 1.05, 1.15, 1.10, 1.20, 1.30, 1.30,
    1.20, 1.05, 0.80, 0.75, 0.80, 0.75, 0.60, 0.45,
];

/// A weekend's hour has this part of a weekday's: a guess.
const WEEKEND: f64 = 0.5;

impl OwnerModel {
    /// The 170 workstations of Brown's computer science department, September
    /// 1993 to February 1994, as far as the thesis tells.
    pub fn phalen1994() -> Self {
        let weekend = WEEKDAY.map(|rate| rate * WEEKEND);
        let week = |factor: f64| {
            let (day, end) = (WEEKDAY.map(|rate| rate * factor), weekend.map(|rate| rate * factor));
            Week::from_days([day, day, day, day, day, end, end])
        };
        let one = |share, median_s, sigma| LogNormal { share, median_s, sigma };
        Self {
            about: ABOUT.to_owned(),
            cores: 1,
            spread: 0.6,
            visits: Arrivals {
                lengths: vec![one(0.55, 240.0, 0.7), one(0.45, 1_500.0, 0.9)],
                per_hour: week(1.0),
            },
            pauses: Pauses { chance: 0.6, lengths: vec![one(1.0, 420.0, 0.9)] },
            loads: Arrivals {
                lengths: vec![one(0.7, 300.0, 0.8), one(0.3, 5_400.0, 1.2)],
                per_hour: week(0.35),
            },
            stops: Stops {
                unannounced: 0.5,
                lengths: vec![one(0.8, 600.0, 0.8), one(0.2, 28_800.0, 1.0)],
                per_hour: Week::even(1.0 / (14.0 * 24.0)),
            },
            load: Loads {
                visit_median: 0.12,
                visit_sigma: 1.0,
                extra_median: 0.6,
                extra_sigma: 0.6,
                change_every_s: 600.0,
                idle_max: 0.12,
            },
        }
    }
}

const ABOUT: &str = "made to resemble Phalen 1994";
