//! What the thesis prints of its results. Its figures have no numbers: only
//! tables and sentences can be compared.

/// Table 7: workstations, periods, executions.
pub(super) const TABLE_7: [(i64, u64, u64); 3] =
    [(30, 1_200, 120_000), (50, 1_600, 160_000), (100, 1_400, 140_000)];

/// Table 8: program and its length on the hypercube, in milliseconds.
pub(super) const TABLE_8: [(&str, &str, f64); 4] = [
    ("fft", "FFT, Fast Fourier Transform", 304_032.0),
    ("test", "TEST, Circuit Test generator", 148_000.0),
    ("msh", "MSH, Finite Differences", 195_663.0),
    ("det", "DET, Matrix Determinant", 375_507.0),
];

/// Table 10: workstations, least and greatest standard deviation in percent.
pub(super) const TABLE_10: [(i64, f64, f64); 3] =
    [(30, 0.04, 33.0), (50, 0.01, 4.20), (100, 0.01, 3.84)];

/// Table 11: at which slowdowns, in percent.
pub(super) const SLOWDOWNS: [f64; 4] = [5.0, 10.0, 50.0, 100.0];
/// Table 11: workstations, and the costs in seconds that cause them.
pub(super) const TABLE_11: [(i64, [f64; 4]); 3] = [
    (30, [10.0, 20.0, 46.0, 58.0]),
    (50, [9.0, 17.0, 50.0, 78.0]),
    (100, [11.0, 20.0, 56.0, 89.0]),
];

/// Table 12: at which costs, in seconds.
pub(super) const COSTS: [i64; 4] = [1, 10, 50, 99];
/// Table 12: workstations, and the slowdowns in percent that they cause.
pub(super) const TABLE_12: [(i64, [f64; 4]); 3] = [
    (30, [0.41, 4.83, 69.36, 343.85]),
    (50, [0.40, 5.62, 50.68, 145.89]),
    (100, [0.32, 4.62, 40.86, 119.14]),
];

/// §7.2.1: "approximately seven and a half" transitions on the critical path
/// with 30 workstations at 100 s.
pub(super) const ON_PATH_AT_30: f64 = 7.5;
/// §7.2.1: "There are never more than 20 transitions".
pub(super) const TRANSITIONS_MAX: f64 = 20.0;
