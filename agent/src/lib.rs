//! The agent: what lives on a workstation.
//!
//! This is the shell: processes, control groups, files, sockets and the
//! connection to the coordinator. What it does with them is decided by
//! `agent/core`.
//!
//! ```text
//! run ─► supervisor ─fork─► worker: event loop ──► keepers ──► guests
//!                                   link thread ──► coordinator, owner, files
//! ```

mod attributes;
pub mod config;
pub mod container;
pub mod doctor;
mod event_loop;
mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
pub mod machine;
mod memory_trim;
mod messages;
mod moving;
pub mod owner;
mod pause;
pub mod presence;
pub mod probe;
mod realtime;
mod run;
mod sense;
mod speed;
mod spool;
mod supervisor;

pub use config::AgentConfig;
pub use container::keeper::keeper_main;
pub use run::{AgentError, run};
