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
pub mod config;
pub mod export;
pub mod generate;
pub mod import;
pub mod index;
pub mod load;
pub mod log;
pub mod name;
pub mod origin;
pub mod plot;
mod progress;
pub mod receiver;
pub mod rows;
pub mod segment;
pub mod stats;
pub mod store;
pub mod summary;
pub mod survival;
pub mod timeline;
pub mod usage;
pub mod wall;
mod week;

pub use config::CollectorConfig;
pub use receiver::{CollectorError, run};
