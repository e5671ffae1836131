//! Whole labs in one process, on a virtual clock: the state machines of
//! production between a network, disks and machines that fail as a seed says.

mod lab;
mod shrink;
mod swarm;
mod trial;
pub mod usage;

pub use lab::{Invariant, Lab, Outline, Setting, Trouble, Troubles};
pub use shrink::shrink;
pub use swarm::{Changes, draw};
pub use trial::{Failure, Trial, run, run_twice};
