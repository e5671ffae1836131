//! How many processors a job can run on: as its submission says it.

pub use gleaner_common::sizes::{Allowed, Sizes, SizesError};
