//! Targets for fuzzers: each takes any bytes at all, and nothing but an answer
//! may come of them, neither a panic nor memory without bound.
//!
//! What reads both ways must also write what it read so that it reads the same.

mod files;
mod messages;
mod negotiation;
mod words;

pub use files::{archive, image, imports, logs, spool, stream, traces, workloads};
pub use messages::{core, frames, journal, programs};
pub use negotiation::{ranks, talks};
pub use words::{owner, settings, texts};

/// A target, and what a fuzzer may begin with.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Each run makes files: it is dear.
    pub makes_files: bool,
}

macro_rules! targets {
    ($($module:ident: $name:ident $makes_files:literal,)*) => {
        /// All of them, by name.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: $name,
            seeds: $module::seeds::$name,
            makes_files: $makes_files,
        },)*];
    };
}

targets! {
    messages: frames false,
    messages: core false,
    messages: programs false,
    messages: journal false,
    negotiation: talks false,
    negotiation: ranks false,
    words: texts false,
    words: settings false,
    words: owner false,
    files: spool true,
    files: logs true,
    files: imports true,
    files: traces false,
    files: workloads false,
    files: image false,
    files: archive true,
    files: stream true,
}
