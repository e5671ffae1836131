//! What only real files, processes and connections can show: a collector that
//! is killed, a disk that is full, files that come back as they went, and
//! streams that a coordinator passes on.

#![expect(clippy::unwrap_used, reason = "what fails in the test's lab fails the test")]

mod crash;
mod disk;
mod durable;
mod exchange;
mod input;
mod receive;
mod records;
mod rwho;
mod traces;
