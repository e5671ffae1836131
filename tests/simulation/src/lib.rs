//! Whole labs in one process, on a virtual clock: the state machines of
//! production between a network, disks and machines that fail as a seed says.

mod lab;
pub mod usage;

pub use lab::{Lab, Outline, Setting};
