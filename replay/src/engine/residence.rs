//! How ranks come by workstations, leave for others and go on there.

use crate::observer::{Observer, What};

use super::Engine;
use super::scratch::{PathRecordKind, RankState, RankTimerKind};

impl<O: Observer> Engine<'_, O> {
    pub(super) fn rank_begins(&mut self, rank: u32, now: u64) {
        self.s.ranks[rank as usize].since = now;
        self.seek_place(rank, now);
    }

    /// Takes a free workstation, or waits for one.
    pub(super) fn seek_place(&mut self, rank: u32, now: u64) {
        if let Some(workstation) = self.s.places.choose(&self.chooser, now) {
            self.take(rank, workstation, now);
        } else {
            self.s.ranks[rank as usize].state = RankState::Waiting;
            self.s.waiting.push_back(rank);
            self.tally.waits += 1;
            self.tell(rank, now, What::Waits);
        }
    }

    /// An idle workstation has no guest any more: the next rank takes it.
    pub(super) fn became_free(&mut self, workstation: u32, now: u64) {
        if let Some(rank) = self.s.waiting.pop_front() {
            self.take(rank, workstation, now);
            return;
        }
        self.s.places.set_free(workstation, &self.chooser, now);
        if let Some((_, rank)) = self.s.under_owners.first().copied() {
            self.escape(rank, now);
        }
    }

    /// The rank moves there; or begins there, which costs nothing.
    fn take(&mut self, rank: u32, workstation: u32, now: u64) {
        self.s.places.take(workstation, rank);
        let it = &mut self.s.ranks[rank as usize];
        let begins = !std::mem::replace(&mut it.placed, true);
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
        let workstation = it.workstation;
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
