//! What the collector decides: which records it has, which it lacks, and what lies
//! where in its logs.
//!
//! ```text
//! a stream's frames ─► stream ─► kept ─► log ─► segment ─► a Disk
//!                                        └─ index          (files, or simulated)
//! ```
//!
//! The promise: a record is kept once, is confirmed after it is on disk and not
//! before, and damage is reported and costs only what was damaged. Knows no socket,
//! thread or clock, and of files only what [`Disk`](gleaner_common::disk::Disk) says.

pub mod index;
pub mod kept;
pub mod log;
pub mod name;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod segment;
pub mod stream;
pub mod summary;
