//! The collector: receives the workstations' usage records, keeps them for
//! ever, interprets and exports them.
//!
//! ```text
//! agents ─► coordinator ─► receiver ─► store ─► segment logs ─► archive ─► timeline ─► stats, load ─► replay
//!                                        ▲                         └────► export
//!                          import ───────┘
//! ```
//!
//! The promise: a record is confirmed after it is on disk and not before, is
//! kept once, and damage to a log is reported and costs only what was damaged.

pub mod archive;
mod config;
pub mod export;
pub mod generate;
pub mod import;
pub mod load;
mod origin;
pub mod plot;
mod progress;
mod receiver;
pub mod rows;
pub mod stats;
pub mod store;
mod survival;
pub mod threads;
pub mod timeline;
pub mod usage;
pub mod wall;
mod week;

pub use gleaner_collector_core::{log, name};

pub use config::CollectorConfig;
pub use receiver::{CollectorError, run};
