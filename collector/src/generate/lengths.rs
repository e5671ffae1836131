//! Mixtures of log-normal lengths: drawing from them, and fitting them.

use rand::Rng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};

use super::model::LogNormal;

/// No length is shorter, or longer than a year.
const LEAST_S: f64 = 1.0;
const MOST_S: f64 = 366.0 * 86_400.0;

/// A length in seconds.
pub(super) fn draw(lengths: &[LogNormal], chance: &mut StdRng) -> f64 {
    let mut left: f64 = chance.random();
    let normal: f64 = StandardNormal.sample(chance);
    let part = lengths.iter().find(|part| {
        left -= part.share;
        left < 0.0
    });
    let Some(part) = part.or(lengths.last()) else { return LEAST_S };
    (part.median_s * (part.sigma * normal).exp()).clamp(LEAST_S, MOST_S)
}

/// More lengths say no more of a mixture: as many of their quantiles stand for
/// all.
const SAMPLE_MAX: usize = 20_000;
const STEPS: usize = 200;
/// The least sigma of a logarithm: lengths that are all alike are not a mixture of points.
const SIGMA_MIN: f64 = 0.02;

/// The mixture of at most three parts that fits best, by the Bayesian
/// information criterion (Schwarz 1978); `None` without lengths.
pub(super) fn fit(mut lengths_s: Vec<f64>) -> Option<Vec<LogNormal>> {
    lengths_s.sort_unstable_by(f64::total_cmp);
    let every = lengths_s.len().div_ceil(SAMPLE_MAX).max(1);
    let logs: Vec<f64> = lengths_s
        .iter()
        .skip(every / 2)
        .step_by(every)
        .map(|length| length.max(LEAST_S).ln())
        .collect();
    if logs.is_empty() {
        return None;
    }
    let many = logs.len() as f64;
    let candidates = (1..=3).filter(|parts| logs.len() > 20 * (parts - 1));
    let fits = candidates.map(|parts| {
        let (mixture, likelihood) = fit_parts(&logs, parts);
        let free = (3 * parts - 1) as f64;
        (free * many.ln() - 2.0 * likelihood, mixture)
    });
    let (_, best) = fits.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(best.into_iter().map(MixturePart::as_lengths).collect())
}

#[derive(Clone, Copy, Debug)]
struct MixturePart {
    share: f64,
    mean: f64,
    sigma: f64,
}

impl MixturePart {
    fn as_lengths(self) -> LogNormal {
        LogNormal { share: self.share, median_s: self.mean.exp().max(1.0), sigma: self.sigma }
    }

    fn density(self, log: f64) -> f64 {
        let z = (log - self.mean) / self.sigma;
        self.share / self.sigma * (-0.5 * z * z).exp() * 0.398_942_280_401_432_7
    }
}

/// Expectation and maximisation (Dempster, Laird and Rubin 1977), from equal
/// slices of the sorted logarithms. Gives the log-likelihood too.
fn fit_parts(logs: &[f64], parts: usize) -> (Vec<MixturePart>, f64) {
    let slice = logs.len().div_ceil(parts);
    let mut mixture: Vec<MixturePart> = logs
        .chunks(slice)
        .map(|slice| moments(slice.iter().map(|log| (*log, 1.0)), logs.len() as f64))
        .collect();
    let mut likelihood = f64::NEG_INFINITY;
    for _ in 0..STEPS {
        let mut sums = vec![(0.0, 0.0, 0.0); mixture.len()];
        let mut next = 0.0;
        for log in logs {
            let densities: Vec<f64> = mixture.iter().map(|part| part.density(*log)).collect();
            let all: f64 = densities.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            next += all.ln();
            for (sum, density) in sums.iter_mut().zip(densities) {
                let weight = density / all;
                sum.0 += weight;
                sum.1 += weight * log;
                sum.2 += weight * log * log;
            }
        }
        for (part, (weight, sum, squares)) in mixture.iter_mut().zip(sums) {
            *part = of_sums(weight, sum, squares, logs.len() as f64);
        }
        if (next - likelihood).abs() < 1e-9 * next.abs() {
            break;
        }
        likelihood = next;
    }
    (mixture, likelihood)
}

fn of_sums(weight: f64, sum: f64, squares: f64, all: f64) -> MixturePart {
    let weight = weight.max(1e-9);
    let mean = sum / weight;
    let sigma = (squares / weight - mean * mean).max(0.0).sqrt().max(SIGMA_MIN);
    MixturePart { share: weight / all, mean, sigma }
}

/// The moments of weighted logarithms, as one log-normal.
fn moments(weighted: impl Iterator<Item = (f64, f64)>, all: f64) -> MixturePart {
    let (mut weight, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (log, one) in weighted {
        weight += one;
        sum += one * log;
        squares += one * log * log;
    }
    of_sums(weight, sum, squares, all)
}

/// One log-normal for weighted lengths in seconds.
pub(super) fn fit_weighted(lengths: impl Iterator<Item = (f64, f64)>) -> LogNormal {
    let part = moments(lengths.map(|(length, weight)| (length.max(LEAST_S).ln(), weight)), 1.0);
    LogNormal { share: 1.0, ..part.as_lengths() }
}

/// The density of a length in seconds, per second.
pub(super) fn density(of: LogNormal, length_s: f64) -> f64 {
    let length = length_s.max(LEAST_S);
    let part = MixturePart { share: 1.0, mean: of.median_s.ln(), sigma: of.sigma.max(SIGMA_MIN) };
    part.density(length.ln()) / length
}

/// The part of lengths that is longer.
pub(super) fn survival(of: LogNormal, length_s: f64) -> f64 {
    let z = (length_s.max(LEAST_S) / of.median_s).ln() / of.sigma.max(SIGMA_MIN);
    0.5 * erfc(z / std::f64::consts::SQRT_2)
}

/// The complementary error function, to 1.2e-7.
///
/// Source: Press et al. 1992, Numerical Recipes, §6.2 (`erfcc`).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let terms = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let sum = terms.iter().rev().fold(0.0, |sum, term| sum * t + term);
    let tail = t * (-x * x + sum).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::generate::model::mean_s;

    #[test]
    fn a_mixture_is_found_again() {
        let truth = [
            LogNormal { share: 0.6, median_s: 120.0, sigma: 0.6 },
            LogNormal { share: 0.4, median_s: 3_600.0, sigma: 0.8 },
        ];
        let mut chance = StdRng::seed_from_u64(7);
        let lengths: Vec<f64> = (0..20_000).map(|_| draw(&truth, &mut chance)).collect();
        let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
        assert!((mean / mean_s(&truth) - 1.0).abs() < 0.05, "{mean}");
        let found = fit(lengths).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        for (found, truth) in found.iter().zip(truth) {
            assert!((found.share - truth.share).abs() < 0.03, "{found:?}");
            assert!((found.median_s / truth.median_s - 1.0).abs() < 0.06, "{found:?}");
            assert!((found.sigma - truth.sigma).abs() < 0.05, "{found:?}");
        }
    }

    #[test]
    fn few_lengths_make_a_simple_mixture() {
        assert_eq!(fit(vec![]), None);
        assert_eq!(fit(vec![60.0, 60.0]).unwrap().len(), 1);
        assert_eq!(fit(vec![60.0; 1_000]).unwrap().len(), 1);
    }

    #[test]
    fn half_of_all_lengths_are_longer_than_the_median() {
        let lengths = LogNormal { share: 1.0, median_s: 100.0, sigma: 1.0 };
        assert!((survival(lengths, 100.0) - 0.5).abs() < 1e-6);
        assert!((survival(lengths, 100.0 * 1.96_f64.exp()) - 0.025).abs() < 1e-4);
        let step = 0.01;
        let area: f64 =
            (0..2_000_000).map(|n| density(lengths, 1.0 + f64::from(n) * step) * step).sum();
        assert!((area - 1.0).abs() < 1e-3, "{area}");
    }
}
