//! What Ghafoor prints of his prototype and his simulator.
//!
//! Source: Ghafoor 2007, Tables 5.5 and 5.6. Of rigid jobs he prints no mean of
//! the distances, but that each is below 0.1 % (§5.3.1), which the 1.5 % between
//! the mean turnarounds contradicts.

use serde::Serialize;

use super::Row;

/// Distances between what was real and what was simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Printed {
    /// Mean and standard deviation, over jobs.
    pub(super) starts: Option<(f64, f64)>,
    pub(super) ends: Option<(f64, f64)>,
    pub(super) utilisation: Option<f64>,
    pub(super) turnaround: Option<f64>,
}

/// By how many of a hundred jobs are malleable.
const TABLES: [(u32, Printed); 6] = [
    (0, row(None, [0.000_373, 0.014_915])),
    (10, row(Some([0.0007, 0.002, 0.001, 0.003]), [0.000_652, 0.007_473])),
    (33, row(Some([0.036, 0.025, 0.042, 0.049]), [0.000_798, 0.003_756])),
    (50, row(Some([0.017, 0.09, 0.016, 0.025]), [0.000_642, 0.015_005])),
    (75, row(Some([0.009, 0.007, 0.01, 0.008]), [0.000_94, 0.016_286])),
    (100, row(Some([0.022, 0.013, 0.024, 0.023]), [0.0055, 0.026_824])),
];

const fn row(of_jobs: Option<[f64; 4]>, [utilisation, turnaround]: [f64; 2]) -> Printed {
    let (starts, ends) = match of_jobs {
        Some([start, start_by, end, end_by]) => (Some((start, start_by)), Some((end, end_by))),
        None => (None, None),
    };
    Printed { starts, ends, utilisation: Some(utilisation), turnaround: Some(turnaround) }
}

pub(super) fn of(malleable: u32) -> Option<Printed> {
    TABLES.iter().find(|(percent, _)| *percent == malleable).map(|(_, printed)| *printed)
}

impl Printed {
    /// Those of his distances that this row's are above.
    pub(super) fn below(&self, row: &Row) -> Vec<&'static str> {
        let pairs = [
            ("starts", row.starts.mean, self.starts.map(|(mean, _)| mean)),
            ("ends", row.ends.mean, self.ends.map(|(mean, _)| mean)),
            ("utilisation", row.utilisation, self.utilisation),
            ("turnaround", row.turnaround, self.turnaround),
        ];
        let above = pairs.into_iter().filter(|(_, ours, his)| his.is_some_and(|his| *ours > his));
        above.map(|(what, ..)| what).collect()
    }
}
