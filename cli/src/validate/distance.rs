//! How far what was simulated is from what was seen.
//!
//! Source: Ghafoor 2007, §5.1 and §5.3.1: the one-dimensional Euclidean
//! distance of start and completion times, over what the real system took.

use std::time::Duration;

use serde::Serialize;

/// A subprogram's times, from the program's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) start: Duration,
    pub(super) end: Duration,
}

/// Where a subprogram went, by number, and when it was sent there: seconds from
/// the program's start.
pub(super) type Visits = Vec<(u32, f64)>;

/// |real − simulated| / real; 0 if both are nothing.
pub(super) fn normalised(real: Duration, simulated: Duration) -> f64 {
    let apart = real.abs_diff(simulated).as_secs_f64();
    if apart == 0.0 { 0.0 } else { apart / real.as_secs_f64() }
}

/// Mean and standard deviation over what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) deviation: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "as many as there are ranks and runs")]
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let max = values.iter().copied().fold(0.0, f64::max);
        Self { mean, deviation: variance.sqrt(), max }
    }
}

/// The distances of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Distances {
    /// The distance of the subprograms' end times (§5.1.1), each over its own real one.
    pub(super) ends: Spread,
    /// The distance of the whole program's turn-around time (§5.1.2).
    pub(super) whole: f64,
    /// The distance of its subprograms' mean turn-around time (§5.1.2).
    pub(super) turnaround: f64,
}

impl Distances {
    pub(super) fn between(real: &[Times], simulated: &[Times]) -> Self {
        let pairs = || real.iter().zip(simulated);
        let ends: Vec<f64> = pairs().map(|(a, b)| normalised(a.end, b.end)).collect();
        let last = |times: &[Times]| times.iter().map(|times| times.end).max().unwrap_or_default();
        let mean = |times: &[Times]| {
            let sum: Duration = times.iter().map(|one| one.end.saturating_sub(one.start)).sum();
            sum / u32::try_from(times.len().max(1)).unwrap_or(u32::MAX)
        };
        Self {
            ends: Spread::of(&ends),
            whole: normalised(last(real), last(simulated)),
            turnaround: normalised(mean(real), mean(simulated)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(seconds: &[u64]) -> Vec<Times> {
        let end = |s: &u64| Times { start: Duration::ZERO, end: Duration::from_secs(*s) };
        seconds.iter().map(end).collect()
    }

    #[test]
    fn the_same_times_are_at_no_distance() {
        let times = ending(&[3, 7]);
        assert_eq!(Distances::between(&times, &times), Distances::default());
        assert_eq!(normalised(Duration::ZERO, Duration::ZERO).to_bits(), 0);
    }

    #[test]
    fn distances_are_relative_to_what_was_real() {
        let found = Distances::between(&ending(&[10, 20]), &ending(&[11, 16]));
        assert!((found.ends.mean - 0.15).abs() < 1e-12, "{found:?}");
        assert!((found.ends.deviation - 0.05).abs() < 1e-12 && found.ends.max > 0.199, "{found:?}");
        assert!((found.whole - 0.2).abs() < 1e-12, "{found:?}");
        assert!((found.turnaround - 0.1).abs() < 1e-12, "{found:?}");
    }
}
