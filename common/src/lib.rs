//! The language every program of gleaner speaks: identifiers, time, usage
//! records, the job model and the wire's frames.
//!
//! Pure: no socket, file, clock or thread. What every daemon's shell shares
//! (clock, configuration, identity, QUIC) is `common/shell`.

pub mod amounts;
pub mod checked;
pub mod disk;
pub mod fingerprint;
pub mod frame;
pub mod id;
pub mod job;
pub mod lines;
pub mod machine;
mod names;
pub mod plain;
pub mod program;
pub mod reaction;
pub mod report;
pub mod requirement;
pub mod shape;
pub mod sizes;
pub mod time;
pub mod trace;
pub mod units;
pub mod usage;
pub mod validity;
pub mod wire;
