//! The coordinator's own scheduling code on a virtual clock, fed by collected
//! usage logs and program traces.
//!
//! ```text
//! Trace ─────► Program ─┐
//! Timelines ─► Usage ─► Lab ─┼─► run ─► Execution (Phalen 1994, Table 9, and more)
//!              Model ───┘     (or Bag ─► run_bag ─► BagExecution)
//! ```
//!
//! The engine is a pure core: no clock, no file, no random number; equal
//! inputs give equal executions, whatever thread they run on.

mod bag;
pub mod campaign;
mod engine;
mod execution;
pub mod gantt;
mod lab;
mod model;
mod observer;
mod past;
mod places;
mod program;
pub mod queue;
pub mod report;
pub mod results;
pub mod spot;
mod usage;
pub mod workload;

pub use bag::{Bag, BagError, BagExecution, BagModel, Subtask, Workers, run_bag};
pub use engine::{Scratch, run, run_observed};
pub use execution::{Breakdown, Execution};
pub use lab::{Lab, Machine, Order, Owner, SelectError, Selection};
pub use model::{Costs, Model, Placement, RulesOf};
pub use observer::{Observed, Observer, What};
pub use past::Learner;
pub use program::{CompileError, Network, Program};
pub use usage::Usage;
