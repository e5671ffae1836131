//! Whole labs in one process, on a virtual clock: the state machines of
//! production between a network, disks and machines that fail as a seed says.

mod lab;

pub use lab::{Invariant, Lab, Outline, Setting, Trouble, Troubles};
