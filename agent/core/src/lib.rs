//! The agent's brain: is the owner here, and what does that mean for the
//! guests?
//!
//! Pure and synchronous: every method takes the time and an event and returns
//! what is to be done. It has no socket, file, clock, thread or random
//! number; the shell (`agent`) owns those and decides nothing.
//!
//! ```text
//! sensors ──► occupancy ──► busy / idle ──┬─► guest (one per place) ──► freeze, thaw, kill
//!               ▲ load                    └─► agent ──► frames, usage records
//! coordinator ─────────────────────────────► agent ◄── lease
//! programs' pipes, other agents ───────────► router (of ranks' messages)
//! ```

pub mod agent;
pub mod guest;
mod lease;
pub mod load;
pub mod occupancy;
pub mod room;
pub mod router;
pub mod spool;
pub mod watchdog;
