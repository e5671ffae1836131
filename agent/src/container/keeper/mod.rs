//! Containment: guests are strangers, and nothing of them outlives the agent.
//!
//! ```text
//! event loop ──spawn──► keeper (pid 1 of a pid namespace, the place's own user)
//!            ⇄ orders and reports over a socket pair
//!                         └──posix_spawn──► guest, its children, their children ..
//! ```
//!
//! One keeper per guest place sandboxes itself once, then starts one guest
//! after another at little more than the cost of a bare spawn. If the keeper
//! or the agent dies, the kernel kills the whole namespace. Where the rights
//! for a layer are missing, the keeper goes on without it and says so.

mod clone;
mod handle;
mod main;
mod place_files;
mod protocol;
mod sandbox;
mod spawn;
mod staged;
mod view;

pub use handle::{Keeper, KeeperError, Program};
pub(crate) use main::descendants;
pub use main::keeper_main;
pub(crate) use protocol::PIPES_FD;
pub use protocol::{Ended, GuestLimits, Landing, Order, Report, Sandbox, StartGuest};
pub(crate) use spawn::PATH;
