//! The program's library for C: `glean.h` says what each function does.
//!
//! The promise: no panic and no unwinding crosses the boundary; every failure
//! is a number, and in words on the thread's [`glean_error`](error::glean_error).
//! Pointers are checked for null; that they are what they say is the caller's
//! word, as in all of C.

#![expect(unsafe_code, reason = "C gives pointers")]
#![expect(clippy::missing_safety_doc, reason = "as `glean.h` says of each")]

mod bag;
mod collective;
mod error;
mod message;
mod moving;
mod offers;
mod run;

pub use bag::*;
pub use collective::*;
pub use error::glean_error;
pub use message::*;
pub use moving::*;
pub use offers::*;
pub use run::*;
