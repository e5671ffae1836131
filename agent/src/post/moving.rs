//! Ranks that leave and arrive: their endpoints as bytes, and with them what
//! they have saved.
//!
//! ```text
//! here                                     there
//! Depart ─► Packed ─────── bytes ────────► Arrive ─► Unpacked
//! Left (or Stayed)      the coordinator    SetGoing: only now it speaks
//! ```

use bytes::Bytes;
use gleaner_common::id::{Fence, WorkstationId};
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_program_core::address::Rank;
use gleaner_program_core::endpoint::{Back, Endpoint, Event, PipeRest};
use serde::{Deserialize, Serialize};

use super::kept::States;
use super::office::Office;
use super::pipes::Ends;
use super::seat::Seat;
use super::{Arrive, Told};
use crate::link::LinkEvent;

/// What travels with a rank. Its version is the endpoint's, which comes first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Luggage {
    pub(super) endpoint: Bytes,
    pub(super) states: States,
    pub(super) retreated: bool,
    pub(super) left: bool,
}

impl Office {
    pub(super) fn depart(&mut self, now: Moment, fence: Fence, keep: Keep) {
        // What the program has written whole is handled, and what follows from
        // it: also that a state is kept.
        while self.read(now, fence, 1) {}
        self.settle(now);
        let packed = self.pack(fence, keep);
        self.desk.tell(LinkEvent::Post(Told::Packed { fence, packed }));
    }

    fn pack(&mut self, fence: Fence, keep: Keep) -> Result<Vec<u8>, String> {
        let seat = self.seats.get_mut(&fence).ok_or("there is no such rank here")?;
        if let Some(fault) = &seat.fault {
            return Err(fault.clone());
        }
        if keep == Keep::SubtaskStart {
            can_go_back(&seat.endpoint)?;
        }
        let endpoint = if keep == Keep::State {
            let rest = seat.empty_pipes().map_err(|error| error.to_string())?.clone();
            seat.endpoint.pack(&rest)
        } else {
            // Its process is not needed there; here it may go on as it is.
            seat.endpoint.pack(&PipeRest::default())
        };
        let Seat { states, retreated, left, .. } = seat;
        // Borrowed and written as `Luggage` is.
        postcard::to_stdvec(&(Bytes::from(endpoint), &*states, *retreated, *left))
            .map_err(|error| error.to_string())
    }

    pub(super) fn stayed(&mut self, now: Moment, fence: Fence) {
        let Some(seat) = self.seats.get_mut(&fence) else { return };
        seat.refill_pipes(None);
        seat.flush(&self.watch);
        self.handle(now, fence, Event::Stayed);
    }

    pub(super) fn again(&mut self, now: Moment, fence: Fence, ends: Ends) {
        let Some(seat) = self.seats.get_mut(&fence) else { return };
        if let Err(error) = seat.plug(&self.watch, ends) {
            let rank = seat.rank();
            return self.cannot_watch(fence, rank, &error);
        }
        seat.states.interrupted();
        (seat.retreated, seat.left, seat.retreats_within) = (false, false, None);
        self.handle(now, fence, Event::RolledBack(Back::Nothing));
    }

    pub(super) fn has_left(&mut self, fence: Fence, to: Fence, at: WorkstationId) {
        let Some(seat) = self.seats.get(&fence) else { return };
        let (job, rank) = (seat.job, seat.rank());
        self.drop_seat(fence);
        if let Some(program) = self.programs.get_mut(&job) {
            program.directory.learn(rank, to, at);
            self.peer_at(job, rank);
        }
    }

    pub(super) fn arrive(&mut self, arrive: Arrive) {
        let fence = arrive.fence;
        let done = self.take_in(arrive);
        self.desk.tell(LinkEvent::Post(Told::Unpacked { fence, done }));
    }

    fn take_in(&mut self, arrive: Arrive) -> Result<(), String> {
        let Arrive { fence, job, life, rank, keep, packed, ends } = arrive;
        let luggage: Luggage =
            postcard::from_bytes(&packed).map_err(|error| format!("a rank's luggage: {error}"))?;
        let (endpoint, rest) =
            Endpoint::unpack(&luggage.endpoint, fence).map_err(|error| error.to_string())?;
        if endpoint.rank() != rank {
            return Err(format!("{} has come instead of {rank}", endpoint.rank()));
        }
        if self.program(job, life).is_none() {
            return Err("its program has begun again".to_owned());
        }
        let mut seat = Seat::new(job, life, endpoint);
        seat.plug(&self.watch, ends).map_err(|error| error.to_string())?;
        seat.states = luggage.states;
        seat.retreated = luggage.retreated && keep == Keep::State;
        seat.left = luggage.left && keep == Keep::State;
        seat.arriving = Some(keep);
        if keep == Keep::State {
            seat.refill_pipes(Some(rest));
            seat.flush(&self.watch);
        } else {
            seat.states.interrupted();
        }
        self.seats.insert(fence, seat);
        Ok(())
    }

    pub(super) fn set_going(&mut self, now: Moment, fence: Fence) {
        let Some(seat) = self.seats.get_mut(&fence) else { return };
        let Some(keep) = seat.arriving.take() else { return };
        let (job, life, rank) = (seat.job, seat.life, seat.rank());
        if !self.enter(job, life, rank, fence) {
            self.seats.remove(&fence);
            return;
        }
        self.handle(now, fence, Event::Arrived);
        match keep {
            Keep::State => {}
            Keep::SubtaskStart => self.handle(now, fence, Event::RolledBack(Back::Process)),
            Keep::Nothing => self.handle(now, fence, Event::RolledBack(Back::Nothing)),
        }
        self.is_here(now, job, rank, fence);
        self.hear_early(now, fence);
    }
}

fn can_go_back(endpoint: &Endpoint) -> Result<(), String> {
    let rank: Rank = endpoint.rank();
    match endpoint.way_back() {
        Some((_, Back::Process)) => Ok(()),
        Some((_, Back::Image | Back::Nothing)) => {
            Err(format!("{rank} cannot go back: images are not kept for it"))
        }
        None => Err(format!("{rank} cannot go back: no state is kept to go back to")),
    }
}
