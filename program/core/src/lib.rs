//! The rank-message layer: how the parts of a program talk while they move.
//!
//! ```text
//!  program ⇄ its agent        wire::{ProgramFrame, AgentFrame}    two inherited pipes, framing
//!            endpoint         one per rank at its agent: numbers, keeps, delivers, suppresses
//!            directory        one per agent and job: where ranks are, and whose word counts
//!  agent ⇄ agent              wire::Packet                        QUIC, or through the coordinator
//!  coordinator                bag (tasks), snapshots (coordinated checkpoints), facts (who waits for whom)
//!  job ⇄ coordinator          negotiation: what the job has, in a rank's questions and between them
//! ```
//!
//! Between two ranks messages arrive once and in order through any number of
//! moves of either end and of repeats of a subtask. Everything here is a
//! machine that takes an event (and the time, where it counts) and says what
//! is to be done: no pipe, socket, thread or clock.

pub mod address;
pub mod bag;
pub mod complaint;
pub mod directory;
pub mod endpoint;
pub mod facts;
pub mod framing;
pub mod negotiation;
#[cfg(feature = "simulated")]
pub mod simulated;
pub mod snapshots;
pub mod wire;

mod incoming;
mod log;
mod outgoing;
mod packed;
mod peer;
