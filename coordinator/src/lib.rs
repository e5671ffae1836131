//! The coordinator's shell around its brain ([`gleaner_coordinator_core`]): the store, the
//! QUIC server, enrolment, staged files, requests and the relay of usage
//! streams. Decides nothing about where work runs.
//!
//! ```text
//!  agents, users, collector ⇄ server ⇄ brain ⇄ core
//!                               │        └──► store's thread ──► SQLite
//!                             blobs
//! ```

mod agents;
mod backup;
mod blobs;
mod brain;
mod cleanup;
pub mod config;
mod limited_log;
mod outbox;
mod parts;
mod placement;
mod run;
mod server;
mod staging_room;
mod store;

pub use backup::{Backup, BackupError, backup, restore};
pub use blobs::OpenBlobsError;
pub use config::{ConfigMistake, CoordinatorConfig};
pub use run::{ADMIN, CoordinatorError, run, serve};
pub use store::OpenStoreError;
