//! Moving a guest: its process tree is written down while it stands still,
//! carried elsewhere as it is written, and set going there.
//!
//! ```text
//! old machine                                  new machine
//! Dump::start  (frozen, header)  ── stream ──► Arrival  (decide by its header)
//! Dump::run    (CRIU ► frames)   ── stream ──► Arrival  (files in memory)
//!                                              Image::adapt (this place's user and limits)
//!                                              keeper: settle_in, shut in, restore
//! destroy the frozen one  ◄── it stands there ──
//!                         ── go ─────────────► Restored::resume
//! ```
//!
//! Never two running, never none: the old one stands still until it is
//! destroyed, the new one until it is told to go, and a failure at any step
//! leaves the old one as it was.
//!
//! What a keeper has to do for a guest that shall be able to move:
//! - a network namespace of its own, and no Landlock scope for abstract sockets
//!   (the namespace is that scope): CRIU talks to its messenger in the guest
//!   over one. Guests on the workstation's own network cannot move.
//! - [`stage::Stage`] as its root directory, and grants beside the usual ones: to
//!   list `/`, and while it takes a guest in, to use the image's memory.
//! - the guest in a session of its own, with nothing open but its pipes, plain
//!   devices, and files opened by the keeper after it entered the stage.
//! - a control group for keeper and guest alone.
//!
//! What comes is data from a stranger: it is looked at before CRIU sees it
//! ([`Refusal`]), and CRIU has no more rights than the guest will have.
//!
//! Knows nothing of owners, jobs, or how machines reach each other: it reads and
//! writes bytes.

mod archive;
mod capture;
mod dump;
mod engine;
mod fingerprint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guest;
mod image;
mod inside;
mod ipc;
mod knowledge;
pub mod landing;
mod memory;
mod obstacle;
mod pack;
mod pages;
mod serve;
mod sink;
mod socket;
pub mod stage;
mod stream;
mod vetting;
mod wire;

pub use dump::{Dump, DumpError, keep};
pub use engine::{Engine, MissingEngine};
pub use fingerprint::{Fingerprint, Unsuitable, Version, of_this_machine};
pub use guest::{GuestProcess, awaits_exec, state_of};
pub use image::Terms;
pub use knowledge::{KNOWLEDGE_FILE, LearnError};
pub use memory::Memory;
pub use obstacle::{Hold, Obstacle};
pub use pack::{Outlet, Sent};
pub use serve::Serving;
pub use sink::{AdaptError, Arrival, ArrivalError, Image};
pub use stream::{Header, Plug};
pub use vetting::{Reach, Refusal, Wrong};
