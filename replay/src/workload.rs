//! Jobs that arrive over time on a cluster, scheduled by the coordinator's own
//! scheduler.
//!
//! ```text
//! SWF ──► WorkloadJob ──► run_workload ──► Outcome, one by one ──► Summary
//!                             ▲  │
//!              Scheduler::cycle  └── ends, answers, changes of size
//! ```
//!
//! A discrete-event engine without any rule of scheduling in it (Ghafoor 2007,
//! Figure 4.3, with the live scheduler in place of his): it tells what happens,
//! carries out what is decided, and keeps what is true of each job, which the
//! scheduler only estimates. Its memory holds those that wait or run.

pub mod campaign;
pub mod elastisim;
mod engine;
pub mod generate;
mod measures;
mod rules;
mod site;
pub mod swf;
#[cfg(test)]
mod tests;

pub use self::engine::{WorkloadJob, run_on, run_workload};
pub use self::measures::{Outcome, Summary};
pub use self::rules::{ChangeCosts, Ramp, Rules};
pub use self::site::Site;
