//! The coordinator's brain: which subprogram runs where, and whose result
//! counts.
//!
//! Pure and synchronous: [`Core::handle`] takes the time and a fact, changes
//! the state and returns a [`Step`]: what must be durable, and what is to be
//! done once it is. No socket, file, clock, thread or random number; equal
//! inputs give equal steps. The live coordinator drives it with QUIC and a
//! store, replay with an event queue, the tests with a hostile network.
//!
//! ```text
//! Event ──► Core::handle ──► Step { changes ──► store (committed first)
//!                  ▲                effects ──► connections, watchers }
//!        jobs · attempts · pool
//! ```
//!
//! What is over leaves the core's memory: ended jobs and subprograms are the
//! store's, whose records turn into rows by themselves.

mod attempt;
mod blame;
mod core;
pub mod directory;
mod event;
mod generation;
mod job;
mod needs;
mod negotiation;
pub mod outlook;
pub mod placement;
mod pool;
mod program;
mod queue;
mod record;
mod replicas;
pub mod residence;
pub mod scheduler;
pub mod shares;
mod speaker;
mod step;
mod tickets;
mod workstation;

pub use crate::core::{Config, Core, SchedulerConfig, UnknownPolicy};
pub use crate::event::{Event, Link, RequestId};
pub use crate::negotiation::Prices;
pub use crate::placement::Policy;
pub use crate::record::{
    AttemptRecord, Change, Coming, History, JobProgress, JobRecord, LastAttempt, ProgramEvent,
    ReplicaRecord, Restored, SubprogramRecord, UsageRecord, untried_row,
};
pub use crate::step::{Answer, Effect, Step};
pub use crate::tickets::TicketKey;
