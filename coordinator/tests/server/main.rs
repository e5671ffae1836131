//! A real coordinator on loopback, with scripted agents, users and collectors
//! on real connections: for what only those can show.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test binary: nothing is outside of it, and what surprises it should fail it"
)]

mod agent;
mod backup;
mod bad_input;
mod blobs;
mod coordinator;
mod disk;
mod durable;
mod enrolment;
mod jobs;
mod lease;
mod moves;
mod ranks;
mod relay;
mod replicas;
mod restart;
mod roles;
mod sight;
mod snapshots;
mod start;
