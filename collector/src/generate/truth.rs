//! A life with its loads: what an agent or rwho would have seen.

use gleaner_common::time::WallTime;
use rand::Rng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp1, StandardNormal};

use super::life::{OwnerDoing, Stretch, later};
use super::model::Loads;

/// Phalen 1994, §5: idle when the one-minute load is less than this.
pub(super) const IDLE_LOAD: f64 = 0.25;

/// A part of a stretch in which the load stays about the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Beat {
    pub(super) doing: OwnerDoing,
    pub(super) start: WallTime,
    pub(super) end: WallTime,
    /// The one-minute load average.
    pub(super) load: f64,
    /// Begins a stretch.
    pub(super) is_first: bool,
    /// When its stretch ends.
    pub(super) stretch_end: WallTime,
}

/// Cuts stretches where their load changes.
pub(super) fn truth(loads: &Loads, stretches: &[Stretch], mut chance: StdRng) -> Vec<Beat> {
    let mut beats = vec![];
    for stretch in stretches {
        let Stretch { doing, mut start, end } = *stretch;
        let mut is_first = true;
        while start < end {
            let wait: f64 = Exp1.sample(&mut chance);
            // No agent tells of changes closer than a minute.
            let next = later(start, (wait * loads.change_every_s).max(60.0));
            let is_busy = matches!(doing, OwnerDoing::Visited | OwnerDoing::Loaded);
            let next = if is_busy { next.min(end) } else { end };
            let load = level(loads, doing, &mut chance);
            beats.push(Beat { doing, start, end: next, load, is_first, stretch_end: end });
            (start, is_first) = (next, false);
        }
    }
    beats
}

/// Tasks that a workstation runs at once; more is no load any more.
const LOAD_MAX: f64 = 64.0;

fn level(loads: &Loads, doing: OwnerDoing, chance: &mut StdRng) -> f64 {
    let normal: f64 = StandardNormal.sample(chance);
    let drawn = |median: f64, sigma: f64| (median * (sigma * normal).exp()).min(LOAD_MAX);
    // Records tell hundredths: what is under the criterion stays under it.
    let level = match doing {
        OwnerDoing::Visited => drawn(loads.visit_median, loads.visit_sigma),
        OwnerDoing::Loaded => IDLE_LOAD + drawn(loads.extra_median, loads.extra_sigma),
        OwnerDoing::Away | OwnerDoing::Pausing => loads.idle_max * chance.random::<f64>(),
        OwnerDoing::Stopped => 0.0,
    };
    (level * 100.0).floor() / 100.0
}
