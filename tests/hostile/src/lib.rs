//! Attacks on a lab of real daemons, by whoever could make them: a guest
//! (`bin/hostile`), a user, another agent, a login on a workstation, the source of a
//! guest that moves. `SECURITY.md` lists them.
//!
//! One lab is shared by all of them, since an attack that fails disturbs nobody;
//! what takes parts of it down comes last, alone ([`attacks`]).

#![allow(clippy::wildcard_enum_match_arm, reason = "all of this is tests")]

pub mod attacks;
pub mod hostage;
pub mod image_stream;
pub mod message;
pub mod peer;
pub mod world;

pub use peer::Peer;
pub use world::{User, World};
