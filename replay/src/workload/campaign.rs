//! A campaign of workloads: jobs that arrive, under every combination of what
//! is to be varied.
//!
//! ```text
//! file ─► grid of runs ─► chunks ─┬─► threads ─► chunk files ─► results.parquet, results.csv
//! logs ───────────────────────────┘                             (and jobs.parquet, jobs.csv)
//! ```
//!
//! Why this is a second format, beside that of [`campaign`](crate::campaign):
//! there a row is one execution of one program in one period of a usage log,
//! and the axes are programs, networks, periods, costs of a move and reactions
//! to owners. Here a row is a whole workload under one scheduling policy, and
//! the axes are models of workloads, shares and ranges of malleable jobs, times
//! between arrivals, sites, and costs of negotiations and adaptations. Name,
//! seed and the usage log are all that both have, and no column of the results
//! but the policy's. What is the same is the same code: usage logs, values with
//! units, chunks, shards, resuming, and the directory of results.
//!
//! The promise: what a campaign gives depends on its file and its logs only,
//! never on threads, shards, or how often it was interrupted. A run keeps the
//! jobs that wait or run, and those that have ended only if each is asked for.

mod columns;
mod experiment;
pub mod file;
mod inputs;
mod manifest;
mod plan;
mod printed;
mod run;

pub(crate) use self::columns::AXES;
pub use self::experiment::Experiment;
pub use self::inputs::{WorkloadInputs, prepare};
pub(crate) use self::manifest::WorkloadManifest;
pub use self::plan::RunRow;
pub(crate) use self::printed::{At, Key, Printed, PrintedRow, of_where};
pub use self::run::{
    WorkloadOutcome, first_run_as_log, join_campaign, run_campaign, run_here, shards_left, take_in,
};
