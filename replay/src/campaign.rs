//! A campaign: the same programs executed again and again under every
//! combination of what is to be varied (Phalen 1994, §6.2, Table 7).
//!
//! ```text
//! file ─► plan ─► chunks ─┬─► threads ─► chunk files ─► results.parquet, results.csv
//! usage, traces ──────────┘
//! ```
//!
//! The promise: what a campaign gives depends on its file, its traces and its
//! usage data only, never on threads, shards, or how often it was interrupted.

pub mod criterion;
pub mod file;
mod generated;
pub mod inputs;
mod machines;
mod owners;
mod periods;
pub mod plan;
pub mod run;
mod runnable;
pub mod values;
