//! What an agent hears.

use std::net::SocketAddr;
use std::time::Duration;

use gleaner_common::id::{Fence, JobId, PlaceId};
use gleaner_common::wire::CoordinatorFrame;

use crate::guest::{self, KeeperEvent, Left};
use crate::occupancy::{Observation, Pause};
use crate::room::Room;

/// A fact for the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Observed(Observation),
    /// The file system that guests use, as it is now.
    Room(Room),
    /// Where other agents may reach this one, from the next connection on.
    Reachable(Vec<SocketAddr>),
    /// A stream to the coordinator is open: frames can be sent.
    LinkUp,
    LinkDown,
    Frame(CoordinatorFrame),
    /// The job's input files are here. Answers `Effect::Stage`.
    Staged(JobId),
    /// The input files are not here. `hopeless` if they would not be anywhere else either.
    StagingFailed {
        job: JobId,
        reason: String,
        hopeless: bool,
    },
    /// The guest runs. Answers `Effect::Launch`.
    Started(Fence),
    /// A fact about the guest that is this attempt, wherever it is.
    Guest(Fence, guest::Event),
    Keeper(PlaceId, KeeperEvent),
    /// A guest's memory in use, as far as it is known.
    Weighed {
        fence: Fence,
        bytes: u64,
    },
    /// A move from here has carried so much in so long.
    Carried {
        bytes: u64,
        took: Duration,
    },
    /// What a guest left is staged. Follows an exit without it.
    Collected {
        fence: Fence,
        left: Left,
    },
    /// What it left is lost: its work must be done again.
    CollectingFailed {
        fence: Fence,
        reason: String,
    },
    /// The owner: no guests until then.
    Pause(Pause),
    Resume,
    /// The owner: this guest must go.
    Stop {
        fence: Fence,
        by: String,
    },
    /// The machine is about to sleep; `Effect::ReadyToSleep` answers.
    AboutToSleep,
    Woke,
    /// The agent is to stop; `Effect::ReadyToStop` answers, at the latest
    /// when all guests have exited.
    ShutDown {
        reason: String,
    },
}
