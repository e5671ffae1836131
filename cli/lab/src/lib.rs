//! Labs for the demo, the benches and the whole-system tests: a coordinator, a
//! collector and several *lab hosts* on one machine, each with its own network
//! namespace, terminals and cgroup where the rights allow.
//!
//! Everything in it is real: the daemons are the shipped binary, terminals are
//! pseudo-terminals with a program reading them, links go down in the kernel.
//! What the rights do not allow is left out and said ([`Lab::missing`]).
//!
//! Nothing of a lab outlives it: mounts and networks live in namespaces of the
//! lab's own thread, processes in its cgroup or under a death signal. What a lab
//! leaves that was killed itself, its guard clears away ([`guard`]), or the next one.

pub mod blocking_client;
pub mod cgroup;
pub mod daemon;
pub mod guard;
pub mod host;
pub mod lab;
mod leftovers;
pub mod network;
pub mod owners;
pub mod small_disk;
pub mod terminal;
pub mod wait;

pub use host::{HostOptions, LabHost};
pub use lab::{Lab, Options};
pub use terminal::Terminal;
