//! What every daemon's shell shares: the clock, configuration files, logging,
//! identities, and QUIC with frames on its streams.
//!
//! Decides nothing about workstations or jobs. What it promises is that a
//! thing that goes wrong outside us comes back as one clear line: an error's
//! `Display` is all of it, its cause included (so it names no `source` that
//! would be printed again), and a `hint()` is the next step.
//!
//! ```text
//! connect ─► endpoint::Link ─► stream::open ─► FrameWriter, FrameReader      agents, collectors
//!                         └──► client::Client ─► request, rows, blobs        users
//! serve ───► quinn::Endpoint ─► accept_bi ─► stream::read_opening            the coordinator
//! ```

pub mod atomic;
pub mod backoff;
pub mod blob;
pub mod client;
pub mod clock;
pub mod config;
pub mod disk;
pub mod endpoint;
pub mod enrol;
pub mod identity;
pub mod lock;
pub mod log;
pub mod pool;
pub mod signals;
pub mod stream;
pub mod text;
