//! What the owner is shown: why busy or idle, and who runs what here.

use std::time::Duration;

use gleaner_common::id::{Fence, PlaceId, SubprogramId};
use gleaner_common::time::Moment;
use gleaner_common::wire::{GuestState, Presence};

use super::Agent;
use super::offers::Attempt;
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
    /// Why nothing new is begun here, whoever is idle.
    pub unready: Option<String>,
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

impl Agent {
    pub fn status(&self, now: Moment) -> Status {
        let (at_places, waiting): (Vec<_>, Vec<_>) =
            self.attempts.iter().partition(|(_, attempt)| attempt.place().is_some());
        let guests = at_places.into_iter().chain(waiting);
        Status {
            presence: self.occupancy.presence(now),
            verdict: self.occupancy.verdict(now),
            sensors: self.occupancy.sensors(),
            pause: self.occupancy.pause().cloned(),
            connected: self.lease.is_welcome(),
            lease_left: self.lease.left(now),
            guests: guests.map(|(fence, attempt)| self.guest(now, *fence, attempt)).collect(),
            ends_waiting: self.ends.len(),
            unready: self.unready.clone(),
            refused: self.refused.clone(),
        }
    }

    fn guest(&self, now: Moment, fence: Fence, attempt: &Attempt) -> GuestStatus {
        let place = attempt.place();
        let since = place.and_then(|place| self.places[usize::from(place.0)].since());
        GuestStatus {
            fence,
            subprogram: attempt.subprogram,
            name: attempt.spec.name.clone(),
            place,
            state: self.state(attempt),
            lasted: now.since(since.unwrap_or(attempt.offered)),
        }
    }
}
