//! Moving a guest: its process tree is written down while it stands still,
//! carried elsewhere as it is written, and set going there.
//!
//! Knows nothing of owners, jobs, or how machines reach each other: it reads
//! and writes bytes.

mod engine;
mod fingerprint;

pub use engine::{Engine, FetchError, MissingEngine, TREE, Version, fetch};
pub use fingerprint::{Fingerprint, Unsuitable};
