//! What a subprogram links to talk with the other ranks of its program.
//!
//! ```text
//! the program ─► Communicator ─► Transport ─► orders ─► in_process::Hub ─► the other ranks' threads
//!                 │  ▲ mailbox ◄──────────── events ◄──┘
//!                 └► record ─► a trace of its own compute times and messages
//! ```
//!
//! Messages are addressed to ranks, never to machines. Between two ranks those
//! of one tag arrive once and in the order they were sent. Knows nothing of
//! workstations, owners or moves.

mod bag;
mod checkpoint;
mod collective;
mod communicator;
mod cpu;
mod error;
pub mod in_process;
pub mod live;
mod mailbox;
mod offers;
mod record;
mod tasks;
mod transport;
mod value;

pub use bag::{Task, TaskId};
pub use collective::Group;
pub use communicator::{ANY, Communicator, Receiving, Sending, TAG_MAX};
pub use cpu::CpuClock;
pub use error::{Awaited, Ending, Error, Failure};
pub use gleaner_program_core::negotiation::side::{Agreed, Proposal, Response};
pub use gleaner_program_core::negotiation::{Change, Obligation};
pub use in_process::{Outcome, Retreat, Run, RunError, run_in_process};
pub use mailbox::{Message, Wanted};
pub use transport::{Beginning, Event, Order, Transport};
pub use value::Value;

/// The environment variable that names the file in which a program that is run
/// by itself is to keep its recording.
pub const RECORD_TO: &str = "GLEAN_RECORD";
