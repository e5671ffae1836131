//! How much faster a job is on several processors than on one.

use gleaner_common::shape::SpeedupSpec;

/// A job's speed-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Speedup {
    /// S(n) = n (Ghafoor 2007, §3.3.1, fourth assumption).
    #[default]
    Linear,
    /// S(n) = 1 / ((1 - p) + p / n), p being the parallel part (Amdahl 1967).
    Amdahl { parallel: f64 },
    /// By the average parallelism A and its variance σ (Downey 1997, "A model
    /// for speedup of parallel programs").
    Downey { parallelism: f64, variance: f64 },
    /// Measured: processors and speed-ups, ascending; straight lines between
    /// them, from (0, 0), and nothing gained beyond the last.
    Table(Vec<(u32, f64)>),
    /// That of parts, each of which takes so many processors.
    Parts { each: u32, of: Box<Self> },
}

impl From<&SpeedupSpec> for Speedup {
    fn from(said: &SpeedupSpec) -> Self {
        match said {
            SpeedupSpec::Linear => Self::Linear,
            SpeedupSpec::Amdahl(parallel) => Self::Amdahl { parallel: parallel.value() },
            SpeedupSpec::Downey(parallelism, variance) => {
                let (parallelism, variance) = (parallelism.value(), variance.value());
                Self::Downey { parallelism, variance }
            }
            SpeedupSpec::Table(table) => {
                Self::Table(table.iter().map(|(n, speedup)| (*n, speedup.value())).collect())
            }
        }
    }
}

impl Speedup {
    /// Of a job whose parts take so many processors each: what was said is about
    /// parts, and one of them is the unit.
    pub fn of_parts(said: &SpeedupSpec, each: u32) -> Self {
        match Self::from(said) {
            of if each <= 1 => of,
            of => Self::Parts { each, of: Box::new(of) },
        }
    }
}

/// Why this is no speed-up.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpeedupError {
    #[error("a parallel part of {0}: expected a number from 0 to 1")]
    Part(f64),
    #[error(
        "a parallelism of {parallelism} and a variance of {variance}: expected at least 1 and 0"
    )]
    Downey { parallelism: f64, variance: f64 },
    #[error("a table of speed-ups that is empty or does not ascend from 1 processor on")]
    Table,
}

/// The speed-up of Kumar's molecular dynamics program (Kumar 2001, Table 4.1).
pub const KUMAR_TABLE: [(u32, f64); 7] =
    [(1, 1.0), (2, 1.8), (4, 3.4), (8, 6.3), (16, 11.2), (32, 18.1), (64, 26.3)];

impl Speedup {
    /// # Errors
    /// If a parameter is outside of what the formula is for.
    pub fn check(&self) -> Result<(), SpeedupError> {
        match *self {
            Self::Linear => Ok(()),
            Self::Amdahl { parallel } if (0.0..=1.0).contains(&parallel) => Ok(()),
            Self::Amdahl { parallel } => Err(SpeedupError::Part(parallel)),
            Self::Downey { parallelism, variance }
                if parallelism >= 1.0
                    && parallelism.is_finite()
                    && variance >= 0.0
                    && variance.is_finite() =>
            {
                Ok(())
            }
            Self::Downey { parallelism, variance } => {
                Err(SpeedupError::Downey { parallelism, variance })
            }
            Self::Parts { ref of, .. } => of.check(),
            Self::Table(ref table) => {
                let ascends = table.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
                let sane = |(n, s): &(u32, f64)| *n > 0 && *s > 0.0 && s.is_finite();
                let fine = ascends && !table.is_empty() && table.iter().all(sane);
                if fine { Ok(()) } else { Err(SpeedupError::Table) }
            }
        }
    }

    /// S(n); 0 on no processors.
    pub fn at(&self, processors: u32) -> f64 {
        let n = f64::from(processors);
        match self {
            _ if processors == 0 => 0.0,
            Self::Linear => n,
            Self::Amdahl { parallel } => 1.0 / ((1.0 - parallel) + parallel / n),
            Self::Downey { parallelism, variance } => downey(n, *parallelism, *variance),
            Self::Table(table) => between(table, processors),
            Self::Parts { each, of } => of.at(processors / each),
        }
    }
}

/// Downey 1997, equations for low (σ ≤ 1) and high variance.
fn downey(n: f64, a: f64, sigma: f64) -> f64 {
    if sigma <= 1.0 {
        if n <= a {
            a * n / (a + sigma / 2.0 * (n - 1.0))
        } else if n <= 2.0 * a - 1.0 {
            a * n / (sigma * (a - 0.5) + n * (1.0 - sigma / 2.0))
        } else {
            a
        }
    } else if n <= a + a * sigma - sigma {
        n * a * (sigma + 1.0) / (sigma * (n + a - 1.0) + a)
    } else {
        a
    }
}

fn between(table: &[(u32, f64)], processors: u32) -> f64 {
    let next = table.partition_point(|(n, _)| *n < processors);
    let Some(&(right, high)) = table.get(next) else {
        return table.last().map_or(1.0, |(_, speedup)| *speedup);
    };
    let (left, low) = next.checked_sub(1).map_or((0, 0.0), |before| table[before]);
    low + (high - low) * f64::from(processors - left) / f64::from(right - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(speedup: &Speedup, points: &[(u32, f64)]) {
        assert_eq!(speedup.check(), Ok(()));
        for (n, expected) in points {
            assert!((speedup.at(*n) - expected).abs() < 1e-9, "S({n}) = {}", speedup.at(*n));
        }
    }

    #[test]
    fn speedups_are_what_their_authors_say() {
        check(&Speedup::Linear, &[(1, 1.0), (128, 128.0)]);
        check(&Speedup::Amdahl { parallel: 0.9 }, &[(1, 1.0), (9, 5.0)]);
        // All parallelism is there all the time: linear up to A, nothing beyond.
        let steady = Speedup::Downey { parallelism: 8.0, variance: 0.0 };
        check(&steady, &[(1, 1.0), (8, 8.0), (15, 8.0), (99, 8.0)]);
        let varied = Speedup::Downey { parallelism: 8.0, variance: 1.0 };
        check(&varied, &[(1, 1.0), (8, 64.0 / 11.5), (15, 8.0)]);
        let much = Speedup::Downey { parallelism: 8.0, variance: 2.0 };
        check(&much, &[(1, 1.0), (22, 8.0), (30, 8.0)]);
        let table = Speedup::Table(KUMAR_TABLE.to_vec());
        check(&table, &[(1, 1.0), (3, 2.6), (64, 26.3), (128, 26.3)]);
    }

    #[test]
    fn what_is_no_speedup_is_told() {
        for no in [
            Speedup::Amdahl { parallel: f64::NAN },
            Speedup::Downey { parallelism: 0.5, variance: 0.0 },
            Speedup::Table(vec![]),
            Speedup::Table(vec![(2, 1.5), (1, 1.0)]),
            Speedup::Table(vec![(0, 1.0)]),
        ] {
            assert!(no.check().is_err(), "{no:?}");
        }
    }
}
