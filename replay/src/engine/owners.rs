//! What owners do, and what guests do about it: the agent's own decision
//! (`gleaner_common::reaction`), carried out.

use gleaner_common::reaction::{Keep, Step};
use gleaner_common::time::Moment;
use gleaner_coordinator_core::residence::Wait;

use crate::lab::{Transition, nanos};
use crate::observer::{Observer, What};
use crate::program::{NONE, StepEnd};

use super::Engine;
use super::scratch::{PathRecordKind, RankState, RankTimerKind};

impl<O: Observer> Engine<'_, O> {
    pub(super) fn turned_busy(&mut self, transition: Transition) {
        let at = transition.at;
        self.tally.turned_busy(at);
        let guest = self.s.places.turned_busy(transition);
        if guest != NONE && self.s.ranks[guest as usize].state == RankState::Here {
            self.settle(guest, at);
            self.owner_is_here(guest, at);
        }
        // A rank that is on its way finds out when it arrives.
    }

    pub(super) fn turned_idle(&mut self, transition: Transition) {
        let Transition { at, until, workstation, .. } = transition;
        self.tally.turned_idle(at, until);
        let guest = self.s.places.turned_idle(transition, &self.chooser);
        if guest == NONE {
            self.became_free(workstation, at);
            return;
        }
        match self.s.ranks[guest as usize].state {
            RankState::Here => self.settle(guest, at),
            RankState::Frozen => self.thaw(guest, at),
            RankState::Waiting => return self.may_stay(guest, at),
            RankState::NotBegun | RankState::Moving | RankState::Finishing | RankState::Gone => {
                return;
            }
        }
        self.no_longer_stays(guest);
        self.tell(guest, at, What::Resumed);
        self.go_on(guest, at);
        self.schedule(at);
    }

    /// The owner of a rank's workstation returned, or was there before it.
    pub(super) fn owner_is_here(&mut self, rank: u32, now: u64) {
        let workstation = self.s.ranks[rank as usize].workstation;
        self.tally.encounters += 1;
        self.note(rank, now, 0, PathRecordKind::Busy);
        self.tell(rank, now, What::OwnerReturned { workstation });
        match self.model.on_busy.when_busy() {
            Step::Move(keep) => self.leave(rank, now, keep),
            Step::Freeze => self.freeze(rank, now),
            Step::Demote => {
                self.stays(rank, now, false);
                self.s.ranks[rank as usize].demoted = true;
                self.tell(rank, now, What::WasDemoted);
                self.go_on(rank, now);
            }
            Step::Stay => self.go_on(rank, now),
        }
    }

    fn freeze(&mut self, rank: u32, now: u64) {
        self.stays(rank, now, true);
        let it = &mut self.s.ranks[rank as usize];
        it.state = RankState::Frozen;
        it.stamp += 1;
        self.tell(rank, now, What::Froze);
        if let Some((patience, _)) = self.model.costs.patience(self.model.on_busy) {
            self.set_timer(now.saturating_add(nanos(patience)), rank, RankTimerKind::Patience);
        }
        self.schedule(now);
    }

    fn thaw(&mut self, rank: u32, now: u64) {
        let it = &mut self.s.ranks[rank as usize];
        let spent = now - it.since;
        it.clock = now;
        it.stamp += 1;
        self.tally.shared_frozen += u128::from(spent);
        self.note(rank, now, spent, PathRecordKind::Frozen);
    }

    pub(super) fn patience_ended(&mut self, rank: u32, now: u64, stamp: u32) {
        let it = &self.s.ranks[rank as usize];
        if it.state != RankState::Frozen || it.stamp != stamp {
            return; // The owner left in time.
        }
        if let Some((_, keep)) = self.model.costs.patience(self.model.on_busy) {
            self.thaw(rank, now);
            self.no_longer_stays(rank);
            self.leave(rank, now, keep);
        }
    }

    /// A rank under an owner leaves for a workstation that just became free.
    pub(super) fn escape(&mut self, rank: u32, now: u64) {
        let is_frozen = self.s.ranks[rank as usize].state == RankState::Frozen;
        let Some(keep) = self.escapes_with(is_frozen) else { return };
        if is_frozen {
            self.thaw(rank, now);
        } else {
            self.settle(rank, now);
        }
        self.no_longer_stays(rank);
        self.leave(rank, now, keep);
    }

    fn escapes_with(&self, is_frozen: bool) -> Option<Keep> {
        let keep = self.model.rules.escape.keep(self.model.on_busy, is_frozen);
        keep.filter(|_| self.model.grows)
    }

    fn stays(&mut self, rank: u32, now: u64, is_frozen: bool) {
        self.s.ranks[rank as usize].since = now;
        if self.escapes_with(is_frozen).is_some() {
            self.s.residence.stays(Moment(now), (), (rank, rank));
        }
    }

    pub(super) fn no_longer_stays(&mut self, rank: u32) {
        self.s.ranks[rank as usize].demoted = false;
        if self.model.grows {
            self.s.residence.no_longer_stays(rank);
        }
    }

    /// Is to give up a busy workstation, and its work as far as it is not kept.
    fn leave(&mut self, rank: u32, now: u64, keep: Keep) {
        let stays_until_it_goes = self.model.rules.wait == Wait::Here;
        let has_process = keep == Keep::State || stays_until_it_goes && keep != Keep::Nothing;
        if !has_process {
            self.lose_subtask(rank, now);
        }
        let it = &mut self.s.ranks[rank as usize];
        if !stays_until_it_goes {
            self.s.places.leave(it.workstation);
        }
        (it.keep, it.since) = (keep, now);
        let owner_leaves = self.s.places.until(it.workstation);
        it.held_until = if has_process { owner_leaves } else { 0 };
        self.seek_place(rank, now);
    }

    /// Back to the start of its subtask: to its last receive. What it has
    /// sent since is not sent twice, so only work has to be done again. One
    /// that is at a receive has no subtask to lose.
    pub(super) fn lose_subtask(&mut self, rank: u32, now: u64) {
        let first = self.program.first[rank as usize];
        let it = &mut self.s.ranks[rank as usize];
        if it.blocked {
            return;
        }
        let done = &self.program.steps[first as usize..it.at as usize];
        let since_receive = done.iter().rev().take_while(|step| step.kind() != StepEnd::Receive);
        let before: u64 = since_receive.map(|step| step.work).sum();
        let whole = before + self.program.steps[it.at as usize].work;
        let lost = whole - it.left;
        it.left = whole;
        if lost > 0 {
            self.tally.wasted += u128::from(lost);
            self.note(rank, now, lost, PathRecordKind::Repeated);
            self.tell(rank, now, What::Lost { work: lost });
        }
    }
}
