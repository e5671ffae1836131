//! What the owner is shown: why busy or idle, and who runs what here.

use std::time::Duration;

use gleaner_common::id::{Fence, PlaceId, SubprogramId};
use gleaner_common::wire::{GuestState, Presence};

use crate::occupancy::{Health, Pause, Sensor};

/// A snapshot for `glean agent status`.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub presence: Presence,
    /// "busy: pts/3, 2.0 s ago" or "idle for 12 min"
    pub verdict: String,
    /// Every sensor; one that never reported is absent.
    pub sensors: Vec<(Sensor, Health)>,
    pub pause: Option<Pause>,
    pub connected: bool,
    /// `None`: no lease, nothing may start.
    pub lease_left: Option<Duration>,
    /// At their places, then those that wait.
    pub guests: Vec<GuestStatus>,
    /// Ends the coordinator has not acknowledged yet.
    pub ends_waiting: usize,
    /// Why the coordinator wants nothing of us, if it said so.
    pub refused: Option<String>,
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestStatus {
    pub fence: Fence,
    pub subprogram: SubprogramId,
    /// The job's name.
    pub name: String,
    /// `None` while it waits for one.
    pub place: Option<PlaceId>,
    pub state: GuestState,
    /// How long it has been in this state.
    pub lasted: Duration,
}
