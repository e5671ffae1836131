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
use gleaner_program_core::endpoint::{Back, Endpoint, Event, PipeRest};
use serde::{Deserialize, Serialize};

use super::imaging::{Kept, way_back};
use super::local_rank::LocalRank;
use super::saved_states::States;
use super::shell::Shell;
use super::{Arrive, Packed, Router, RouterEvent};

/// What travels with a rank. It has no version but the endpoint's, which comes first: a
/// change here, in [`States`] or in a snapshot's `Part` raises that
/// (`program/core`, `packed::VERSION`).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PackedRank {
    pub(super) endpoint: Bytes,
    pub(super) states: States,
    pub(super) retreated: bool,
    pub(super) left: bool,
}

impl<S: Shell> Router<S> {
    pub(super) fn depart(&mut self, now: Moment, fence: Fence, keep: Keep) {
        // What the program has written whole is handled, and what follows from
        // it: also that a state is kept.
        while self.read(now, fence, 1) {}
        self.settle(now);
        let packed = self.pack(fence, keep);
        self.outgoing.shell.say(RouterEvent::Packed { fence, packed });
    }

    fn pack(&mut self, fence: Fence, keep: Keep) -> Result<Packed<S::Image>, String> {
        let local_rank = self.local_ranks.get_mut(&fence).ok_or("there is no such rank here")?;
        if let Some(fault) = &local_rank.fault {
            return Err(fault.clone());
        }
        // Where its process is not needed, it may go on here as it is.
        let (rest, image) = match keep {
            Keep::State => {
                (local_rank.empty_pipes().map_err(|error| error.to_string())?.clone(), None)
            }
            Keep::SubtaskStart => match way_back(local_rank)? {
                Some(Kept { rest, image, .. }) => (rest, Some(image)),
                None => (PipeRest::default(), None),
            },
            Keep::Nothing => (PipeRest::default(), None),
        };
        let endpoint = local_rank.endpoint.pack(&rest);
        let LocalRank { states, retreated, left, .. } = local_rank;
        // Borrowed and written as `PackedRank` is.
        let bytes = postcard::to_stdvec(&(Bytes::from(endpoint), &*states, *retreated, *left));
        Ok(Packed { bytes: bytes.map_err(|error| error.to_string())?, image })
    }

    pub(super) fn stayed(&mut self, now: Moment, fence: Fence) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        local_rank.refill_pipes();
        self.handle(now, fence, Event::Stayed);
    }

    pub(super) fn again(&mut self, now: Moment, fence: Fence, ends: S::Ends) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        if let Err(error) = local_rank.plug(&mut self.outgoing.shell, ends) {
            let rank = local_rank.rank();
            return self.cannot_watch(fence, rank, error);
        }
        local_rank.states.interrupted();
        (local_rank.retreated, local_rank.left, local_rank.retreats_within) = (false, false, None);
        self.handle(now, fence, Event::RolledBack(Back::Nothing));
    }

    pub(super) fn has_left(&mut self, fence: Fence, to: Fence, at: WorkstationId) {
        let Some(local_rank) = self.local_ranks.get(&fence) else { return };
        let (job, rank) = (local_rank.job, local_rank.rank());
        self.drop_rank(fence);
        if let Some(program) = self.programs.get_mut(&job) {
            program.directory.learn(rank, to, at);
            self.peer_at(job, rank);
        }
    }

    pub(super) fn arrive(&mut self, arrive: Arrive<S>) {
        let fence = arrive.fence;
        let done = self.take_in(arrive);
        self.outgoing.shell.say(RouterEvent::Unpacked { fence, done });
    }

    fn take_in(&mut self, arrive: Arrive<S>) -> Result<(), String> {
        let Arrive { fence, job, life, rank, keep, packed, image, ends } = arrive;
        let packed_rank: PackedRank = postcard::from_bytes(&packed)
            .map_err(|error| format!("a rank's packed_rank: {error}"))?;
        let (endpoint, rest) =
            Endpoint::unpack(&packed_rank.endpoint, fence).map_err(|error| error.to_string())?;
        if endpoint.rank() != rank {
            return Err(format!("{} has come instead of {rank}", endpoint.rank()));
        }
        let Some(program) = self.program(job, life) else {
            return Err("its program has begun again".to_owned());
        };
        let slabs = program.slabs.clone();
        let way = endpoint.way_back().filter(|_| keep == Keep::SubtaskStart);
        let mut local_rank = LocalRank::new(job, life, endpoint, slabs);
        local_rank.image = match (way, image) {
            (Some((boundary, Back::Image)), Some(image)) => {
                Some(Kept { boundary, rest: rest.clone(), image })
            }
            (Some((_, Back::Image)), None) => {
                return Err(format!("{rank} comes without its image"));
            }
            (Some(_), Some(_)) => {
                return Err(format!("{rank} comes with an image of another time"));
            }
            (_, None) | (None, _) => None,
        };
        local_rank.plug(&mut self.outgoing.shell, ends).map_err(|error| error.to_string())?;
        local_rank.states = packed_rank.states;
        local_rank.retreated = packed_rank.retreated && keep == Keep::State;
        local_rank.left = packed_rank.left && keep == Keep::State;
        local_rank.arriving = Some(keep);
        if keep != Keep::State {
            local_rank.states.interrupted();
        }
        if keep == Keep::State || local_rank.image.is_some() {
            local_rank.rest = rest;
            local_rank.refill_pipes();
        }
        self.local_ranks.insert(fence, local_rank);
        Ok(())
    }

    pub(super) fn set_going(&mut self, now: Moment, fence: Fence) {
        let Some(local_rank) = self.local_ranks.get_mut(&fence) else { return };
        let Some(keep) = local_rank.arriving.take() else { return };
        let has_image = local_rank.image.is_some();
        let (job, life, rank) = (local_rank.job, local_rank.life, local_rank.rank());
        if self.enter(job, life, rank, fence).is_none() {
            self.local_ranks.remove(&fence);
            return;
        }
        let back = match keep {
            Keep::State => None,
            Keep::SubtaskStart if has_image => Some(Back::Image),
            Keep::SubtaskStart => Some(Back::Process),
            Keep::Nothing => Some(Back::Nothing),
        };
        // First: what it was about to do there is not done here.
        if let Some(back) = back {
            self.handle(now, fence, Event::RolledBack(back));
        }
        self.handle(now, fence, Event::Arrived);
        self.miss_image(now, fence);
        self.is_here(now, job, rank, fence);
        self.hear_early(now, fence);
    }
}
