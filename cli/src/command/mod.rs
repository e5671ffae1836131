//! The commands: what each takes and does.

pub mod cancel;
pub mod coordinator_backup;
pub mod daemon;
pub mod doctor;
pub mod enrol;
pub mod fetch;
pub mod identity;
pub mod job;
pub mod jobs;
pub mod logs;
mod machine;
pub mod owner;
pub mod pages;
pub mod policies;
pub mod presence;
pub mod replay;
pub mod shares;
mod show;
pub mod submit;
pub mod token;
pub mod trace;
pub mod usage;
pub mod users;
mod watch;
mod whereabouts;
pub mod why;
pub mod workstations;
