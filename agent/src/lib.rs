//! The agent: what lives on a workstation.
//!
//! This is the shell: processes, control groups, files, sockets and the
//! connection to the coordinator. What it does with them is decided by
//! `agent/core`.

pub mod cgroup;
pub mod contain;
pub mod sense;
