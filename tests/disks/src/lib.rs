//! Disks for tests: small ones that fill up, and slow ones that a test holds.

mod gate;
mod small;

pub use gate::SyncGate;
pub use small::SmallDisk;
