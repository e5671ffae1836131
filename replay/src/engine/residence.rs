//! How ranks come by workstations, leave for others and go on there: what the
//! live coordinator's `residence` decides, in simulated time.

use gleaner_common::reaction::Keep;
use gleaner_coordinator_core::residence::{Escape, Residence, Turn, Wait};

use crate::observer::{Observer, What};
use crate::places::Sought;
use crate::program::NONE;

use super::Engine;
use super::scratch::{PathRecordKind, RankState, RankTimerKind, Scratch};

impl<O: Observer> Engine<'_, O> {
    /// Asks about ranks that seek a workstation, and the workstations as they see
    /// them.
    fn ask<R>(
        &mut self,
        now: u64,
        ask: impl FnOnce(&mut Residence<(), u32>, &mut Sought<'_, '_>) -> R,
    ) -> R {
        let Scratch { residence, places, ranks, .. } = &mut *self.s;
        let here = |rank: u32| ranks[rank as usize].workstation;
        ask(residence, &mut Sought { places, by: &self.chooser, now, here: &here })
    }

    pub(super) fn rank_begins(&mut self, rank: u32, now: u64) {
        self.s.ranks[rank as usize].since = now;
        if self.starts.is_some() {
            self.s.newcomers.push_back(rank);
            return self.begins_are_due(now);
        }
        self.seek_place(rank, now);
    }

    /// Goes to a free workstation, or waits for one.
    pub(super) fn seek_place(&mut self, rank: u32, now: u64) {
        match self.ask(now, |residence, sought| residence.seek(rank, sought)) {
            Some(turn) => self.obey(rank, turn, now),
            None => self.begins_to_wait(rank, now),
        }
    }

    pub(super) fn begins_to_wait(&mut self, rank: u32, now: u64) {
        self.s.ranks[rank as usize].state = RankState::Waiting;
        self.tally.waits += 1;
        self.tell(rank, now, What::Waits);
    }

    /// An idle workstation has no guest any more: the next rank takes it.
    pub(super) fn became_free(&mut self, workstation: u32, now: u64) {
        self.s.places.set_free(workstation, &self.chooser, now);
        let next = self.ask(now, |residence, sought| residence.next(&mut 0, sought));
        if let Some((rank, turn)) = next {
            self.s.residence.leaves_line(rank);
            self.obey(rank, turn, now);
        } else if self.model.rules.escape == Escape::AtIncreases {
            self.escape_one(now);
        }
        self.schedule(now);
    }

    /// One of the ranks under owners goes elsewhere.
    pub(super) fn escape_one(&mut self, now: u64) -> bool {
        let escapes = self.ask(now, |residence, sought| residence.escape((), sought));
        escapes.map(|(rank, _)| self.escape(rank, now)).is_some()
    }

    /// A newcomer takes a free workstation.
    pub(super) fn begin_one(&mut self, now: u64) -> bool {
        let Some(rank) = self.s.newcomers.front().copied() else { return false };
        let turn = self.ask(now, |residence, sought| residence.turn(rank, sought));
        let Some(turn) = turn else { return false };
        self.s.newcomers.pop_front();
        self.obey(rank, turn, now);
        true
    }

    /// The owner has left whose workstation a rank still waits at.
    pub(super) fn may_stay(&mut self, rank: u32, now: u64) {
        let turn = self.ask(now, |residence, sought| residence.turn(rank, sought));
        let Some(turn) = turn else { return };
        self.s.residence.leaves_line(rank);
        self.obey(rank, turn, now);
        self.schedule(now);
    }

    fn obey(&mut self, rank: u32, turn: Turn<u32>, now: u64) {
        match turn {
            Turn::GoesTo(workstation) => self.take(rank, workstation, now),
            Turn::Stays => {
                let it = &mut self.s.ranks[rank as usize];
                let (waited, held_until) = (now - it.since, it.held_until);
                it.stamp += 1;
                let held = now.min(held_until).saturating_sub(it.since);
                self.tally.shared_frozen += u128::from(held);
                self.note(rank, now, waited, PathRecordKind::Waiting);
                self.tell(rank, now, What::Resumed);
                self.go_on(rank, now);
            }
        }
    }

    /// The rank moves there; or begins there, which costs nothing.
    fn take(&mut self, rank: u32, workstation: u32, now: u64) {
        self.s.places.take(workstation, rank);
        let it = &mut self.s.ranks[rank as usize];
        let begins = !std::mem::replace(&mut it.placed, true);
        let stays_until_it_goes = self.model.rules.wait == Wait::Here;
        let loses = stays_until_it_goes && !begins && it.keep == Keep::SubtaskStart;
        if stays_until_it_goes {
            it.from = it.workstation;
        }
        if loses {
            self.lose_subtask(rank, now);
        }
        let it = &mut self.s.ranks[rank as usize];
        it.workstation = workstation;
        let (waited, keep, held_until) = (now - it.since, it.keep, it.held_until);
        if it.state == RankState::Waiting {
            self.note(rank, now, waited, PathRecordKind::Waiting);
        }
        if begins {
            self.tell(rank, now, What::Began { workstation });
            self.go_on(rank, now);
            return;
        }
        let cost = self.cost(keep);
        let until = now.saturating_add(cost);
        let it = &mut self.s.ranks[rank as usize];
        it.state = RankState::Moving;
        self.tally.moves += 1;
        let held = until.min(held_until).min(self.lab.end).saturating_sub(it.since);
        self.tally.shared_frozen += u128::from(held);
        self.note(rank, until, cost, PathRecordKind::Moving);
        self.tell(rank, now, What::Moves { to: workstation, until });
        self.set_timer(until, rank, RankTimerKind::Arrive);
    }

    pub(super) fn arrived(&mut self, rank: u32, now: u64) {
        let it = &mut self.s.ranks[rank as usize];
        it.clock = now;
        let (workstation, from) = (it.workstation, std::mem::replace(&mut it.from, NONE));
        if from != NONE && self.s.places.leave(from) {
            self.became_free(from, now);
        }
        if self.s.places.is_idle(workstation) {
            self.tell(rank, now, What::Arrived { workstation });
            self.go_on(rank, now);
        } else {
            self.owner_is_here(rank, now);
        }
    }

    /// The rank runs from now on, where it is, until something changes there.
    pub(super) fn go_on(&mut self, rank: u32, now: u64) {
        let it = &mut self.s.ranks[rank as usize];
        it.state = RankState::Here;
        it.clock = now;
        it.horizon = self.s.places.until(it.workstation).min(self.lab.end);
        self.s.ready.push(rank);
    }

    /// The lab's period ended first: what was still going on counts up to
    /// then.
    pub(super) fn stop_at(&mut self, end: u64) {
        for rank in 0..self.program.ranks() {
            let it = self.s.ranks[rank as usize];
            match it.state {
                RankState::Here => self.settle(rank, end),
                RankState::Frozen => self.tally.shared_frozen += u128::from(end - it.since),
                RankState::Waiting => {
                    let held = it.held_until.min(end).saturating_sub(it.since);
                    self.tally.shared_frozen += u128::from(held);
                }
                RankState::NotBegun
                | RankState::Moving
                | RankState::Finishing
                | RankState::Gone => {}
            }
        }
    }
}
