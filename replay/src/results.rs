//! The results of a campaign: one row an execution.
//!
//! ```text
//! DIR/campaign.json       what was asked for, and what was left out
//! DIR/chunks/000012.parquet   a part of the grid, whole or not there
//! DIR/results.parquet     all of it, once all chunks are there
//! DIR/results.csv         the same
//! ```
//!
//! Rows hold integers only (nanoseconds and counts) in the order of the grid,
//! so equal campaigns give equal bytes.

mod columns;
mod csv;
pub(crate) mod manifest;
mod parquet;
pub mod store;
pub(crate) mod table;

pub(crate) use columns::{Label, Legend, Measure, Row};
pub(crate) use parquet::read_rows;
