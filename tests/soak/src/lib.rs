//! Real daemons under real faults, and a witness who does not ask them.
//!
//! ```text
//! schedule ─► world ─► the lab: kills, stops, cuts, full disks, owners ─┐
//!  (a seed)     └────► proxy: drops, doubles, delays, corrupts          │
//! jobs ─► user ─► submits, cancels, and compares with its own answers   ▼
//!          watcher ◄── logs that the guests write in their own directories
//!             └─► witness: doubled? beside its owner?   report: lost, wrong, stuck
//! ```
//!
//! The promise: what is counted here is counted from outside. Guests write their log
//! themselves, answers are computed again in another way, and processes, descriptors
//! and mounts are the kernel's. The one thing that the daemons are asked is what
//! became of a job.

#![allow(clippy::wildcard_enum_match_arm, reason = "all of this is tests")]

pub mod growth;
pub mod jobs;
pub mod jump;
pub mod proxy;
pub mod report;
pub mod run;
pub mod schedule;
pub mod settled;
pub mod usage;
pub mod user;
pub mod watcher;
pub mod witness;
pub mod world;
