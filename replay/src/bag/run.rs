//! Runs a bag in a lab: one event for each subtask, transition and move.
//!
//! Transitions of one moment come before everything else, by workstation;
//! then workers, by number.

mod copies;
mod early;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use gleaner_common::reaction::{Keep, Step};
use gleaner_coordinator_core::residence::{Residence, Rules, Turn};

use super::{Bag, BagExecution, BagModel, Workers};
use crate::engine::{Scratch, Tally, WHOLE, at_share, share_of};
use crate::lab::{Lab, Transition, nanos};
use crate::places::{Chooser, Places, Sought};
use crate::program::NONE;

/// What a bag's execution works in.
#[derive(Debug, Default)]
pub(crate) struct BagScratch {
    workers: Vec<Worker>,
    /// Subtasks that nobody works on.
    bag: VecDeque<u32>,
    /// Workers without a subtask on a workstation of their own.
    without_subtask: VecDeque<u32>,
    /// Workers without a workstation.
    residence: Residence<(), u32>,
    timers: BinaryHeap<Reverse<WorkerTimer>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WorkerTimer {
    at: u64,
    worker: u32,
    /// The worker's stamp when the timer was set; a timer with an older stamp is
    /// void.
    stamp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerState {
    Working,
    WithoutSubtask,
    Frozen,
    Moving,
    Waiting,
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    state: WorkerState,
    demoted: bool,
    workstation: u32,
    subtask: u32,
    /// What is left of the subtask, at `clock`.
    left: u64,
    clock: u64,
    /// Since when the worker has been frozen or away.
    since: u64,
    held_until: u64,
    /// What the worker's next move costs.
    cost: u64,
    stamp: u32,
}

/// Runs a bag once.
pub fn run_bag(bag: &Bag, lab: &Lab, model: &BagModel, scratch: &mut Scratch) -> BagExecution {
    let Scratch { places, bag: room, .. } = scratch;
    let chooser = Chooser::new(model.placement, model.idle_needed, lab);
    places.open(lab, &chooser);
    room.workers.clear();
    room.bag.clear();
    room.bag.extend(&bag.roots);
    room.without_subtask.clear();
    room.residence.clear(Rules::PHALEN_1994);
    room.timers.clear();
    let mut run = Run {
        bag,
        lab,
        model,
        share: share_of(model.renice_share),
        chooser,
        places,
        room,
        tally: Tally::open(lab, nanos(model.begins)),
        next: 0,
        alive: 0,
        coming: 0,
        useful: 0,
        outcome: BagExecution::default(),
    };
    let end = run.run();
    run.conclude(end)
}

struct Run<'a> {
    bag: &'a Bag,
    lab: &'a Lab,
    model: &'a BagModel,
    /// What a demoted worker gets, in millionths.
    share: u64,
    chooser: Chooser<'a>,
    places: &'a mut Places,
    room: &'a mut BagScratch,
    tally: Tally,
    /// The lab's next transition.
    next: usize,
    alive: u32,
    /// Workers on their way without a subtask.
    coming: u32,
    useful: u64,
    outcome: BagExecution,
}

impl Run<'_> {
    /// When the last subtask was done, if it was.
    fn run(&mut self) -> Option<u64> {
        let mut begins = Some(nanos(self.model.begins));
        loop {
            let due = self.lab.transitions.get(self.next).map_or(u64::MAX, |due| due.at);
            let timer = self.room.timers.peek().map_or(u64::MAX, |timer| timer.0.at);
            let timer = begins.map_or(timer, |begins| begins.min(timer));
            let now = due.min(timer);
            if now >= self.lab.end {
                return None;
            }
            self.tally.events += 1;
            if due <= timer {
                let transition = self.lab.transitions[self.next];
                self.next += 1;
                if transition.busy {
                    self.turned_busy(transition);
                } else {
                    self.turned_idle(transition);
                }
            } else if begins.take().is_some() {
                self.begin_workers(now);
            } else if let Some(Reverse(timer)) = self.room.timers.pop() {
                self.handle(timer);
                if self.outcome.done as usize == self.bag.subtasks() {
                    return Some(now);
                }
            }
        }
    }

    fn handle(&mut self, WorkerTimer { at, worker, stamp }: WorkerTimer) {
        let it = self.room.workers[worker as usize];
        if it.stamp != stamp {
            return;
        }
        match it.state {
            WorkerState::Working => self.subtask_done(worker, at),
            WorkerState::Moving => self.arrived(worker, at),
            WorkerState::Frozen => self.patience_ended(worker, at),
            WorkerState::WithoutSubtask | WorkerState::Waiting | WorkerState::Gone => {}
        }
    }

    // Workers and subtasks.

    fn begin_workers(&mut self, now: u64) {
        let many = match self.model.workers {
            Workers::Number(many) => many,
            Workers::All => self.places.free().max(1),
        };
        (0..many).for_each(|_| self.begin_worker(now, 0));
    }

    fn begin_worker(&mut self, now: u64, cost: u64) {
        let worker = u32::try_from(self.room.workers.len()).unwrap_or(NONE);
        self.room.workers.push(Worker {
            state: WorkerState::Waiting,
            demoted: false,
            workstation: NONE,
            subtask: NONE,
            left: 0,
            clock: now,
            since: now,
            held_until: 0,
            cost,
            stamp: 0,
        });
        self.alive += 1;
        self.outcome.workers += 1;
        self.outcome.workers_most = self.outcome.workers_most.max(self.alive);
        self.seek_place(worker, now);
    }

    fn subtask_done(&mut self, worker: u32, now: u64) {
        self.settle(worker, now);
        let it = &mut self.room.workers[worker as usize];
        let done = std::mem::replace(&mut it.subtask, NONE);
        self.outcome.done += 1;
        self.useful += self.bag.works[done as usize];
        self.drop_copies(done, now);
        let children = self.bag.children_of(done);
        self.room.bag.extend(children);
        self.next_subtask(worker, now);
        if !children.is_empty() {
            self.give_out_subtasks(now);
            while self.model.spawns && self.has_work() && !self.places.none_is_free() {
                self.begin_worker(now, nanos(self.model.start));
            }
        }
    }

    /// Whether there is more in the bag than workers that come for it.
    fn has_work(&self) -> bool {
        self.room.bag.len() > self.coming as usize
    }

    /// Lets a worker go on with its own subtask, or with one from the bag.
    fn next_subtask(&mut self, worker: u32, now: u64) {
        let it = &mut self.room.workers[worker as usize];
        it.clock = now;
        if it.subtask == NONE {
            let Some(subtask) = self.room.bag.pop_front().or_else(|| self.take_copy()) else {
                return self.found_nothing(worker, now);
            };
            let it = &mut self.room.workers[worker as usize];
            (it.subtask, it.left) = (subtask, self.bag.works[subtask as usize]);
            if self.leaves_early(worker, now) {
                return;
            }
        }
        let it = &mut self.room.workers[worker as usize];
        it.state = WorkerState::Working;
        let took = if it.demoted { at_share(it.left, self.share) } else { it.left };
        self.set_timer(worker, now.saturating_add(took));
    }

    fn found_nothing(&mut self, worker: u32, now: u64) {
        let it = &mut self.room.workers[worker as usize];
        it.stamp += 1;
        if !self.model.spawns {
            it.state = WorkerState::WithoutSubtask;
            self.room.without_subtask.push_back(worker);
            return;
        }
        it.state = WorkerState::Gone;
        let workstation = it.workstation;
        self.alive -= 1;
        if self.places.leave(workstation) {
            self.became_free(workstation, now);
        }
    }

    fn give_out_subtasks(&mut self, now: u64) {
        while !self.room.bag.is_empty()
            && let Some(worker) = self.room.without_subtask.pop_front()
        {
            // A worker that has lost its workstation since gets a subtask when
            // it has another.
            if self.room.workers[worker as usize].state == WorkerState::WithoutSubtask {
                self.next_subtask(worker, now);
            }
        }
    }

    /// Brings a worker's subtask up to date, where something changes for it.
    fn settle(&mut self, worker: u32, now: u64) {
        let it = &mut self.room.workers[worker as usize];
        let spent = now - it.clock;
        it.clock = now;
        if it.state != WorkerState::Working {
            return;
        }
        let mut work = spent;
        if it.demoted {
            let share = u128::from(spent) * u128::from(self.share) / u128::from(WHOLE);
            work = u64::try_from(share).unwrap_or(u64::MAX).min(it.left);
            self.tally.shared_computing += u128::from(spent);
        }
        it.left -= work.min(it.left);
    }

    /// Sets a worker's timer; the one that it had is void.
    fn set_timer(&mut self, worker: u32, at: u64) {
        let it = &mut self.room.workers[worker as usize];
        it.stamp += 1;
        self.room.timers.push(Reverse(WorkerTimer { at, worker, stamp: it.stamp }));
    }

    // Owners.

    fn turned_busy(&mut self, transition: Transition) {
        self.tally.turned_busy(transition.at);
        let worker = self.places.turned_busy(transition);
        if worker == NONE {
            return;
        }
        let state = self.room.workers[worker as usize].state;
        if matches!(state, WorkerState::Working | WorkerState::WithoutSubtask) {
            self.settle(worker, transition.at);
            self.owner_is_here(worker, transition.at);
        }
    }

    fn turned_idle(&mut self, transition: Transition) {
        let Transition { at, until, workstation, .. } = transition;
        self.tally.turned_idle(at, until);
        let worker = self.places.turned_idle(transition, &self.chooser);
        if worker == NONE {
            self.became_free(workstation, at);
            return;
        }
        let state = self.room.workers[worker as usize].state;
        match state {
            WorkerState::Frozen => self.thaw(worker, at),
            WorkerState::Working | WorkerState::WithoutSubtask => self.settle(worker, at),
            WorkerState::Moving | WorkerState::Waiting | WorkerState::Gone => return,
        }
        self.room.workers[worker as usize].demoted = false;
        if state != WorkerState::WithoutSubtask {
            self.next_subtask(worker, at);
        }
    }

    fn owner_is_here(&mut self, worker: u32, now: u64) {
        self.tally.encounters += 1;
        match self.model.on_busy.when_busy() {
            Step::Move(keep) => self.leave(worker, now, keep),
            Step::Freeze => self.freeze(worker, now),
            step @ (Step::Demote | Step::Stay) => {
                let it = &mut self.room.workers[worker as usize];
                it.demoted = step == Step::Demote;
                if it.state != WorkerState::WithoutSubtask {
                    self.next_subtask(worker, now);
                }
            }
        }
    }

    fn freeze(&mut self, worker: u32, now: u64) {
        let it = &mut self.room.workers[worker as usize];
        (it.state, it.since) = (WorkerState::Frozen, now);
        it.stamp += 1;
        if let Some((patience, _)) = self.model.costs.patience(self.model.on_busy) {
            self.set_timer(worker, now.saturating_add(nanos(patience)));
        }
    }

    fn thaw(&mut self, worker: u32, now: u64) {
        self.tally.shared_frozen += u128::from(now - self.room.workers[worker as usize].since);
    }

    fn patience_ended(&mut self, worker: u32, now: u64) {
        self.thaw(worker, now);
        if let Some((_, keep)) = self.model.costs.patience(self.model.on_busy) {
            self.leave(worker, now, keep);
        }
    }

    fn leave(&mut self, worker: u32, now: u64, keep: Keep) {
        let it = &mut self.room.workers[worker as usize];
        let workstation = it.workstation;
        it.demoted = false;
        it.since = now;
        it.cost = nanos(self.model.costs.of(keep));
        let owner_leaves = self.places.until(workstation);
        it.held_until = if keep == Keep::State { owner_leaves } else { 0 };
        // The worker is out of every list before anybody else is served.
        it.state = WorkerState::Waiting;
        it.stamp += 1;
        if keep != Keep::State && it.subtask != NONE {
            let whole = self.bag.works[it.subtask as usize];
            self.tally.wasted += u128::from(whole - it.left);
            it.left = whole;
            if keep == Keep::Nothing {
                let subtask = std::mem::replace(&mut it.subtask, NONE);
                self.outcome.abandoned += 1;
                if !self.model.copies || self.holders(subtask) == 0 {
                    self.room.bag.push_front(subtask);
                }
            }
        }
        self.places.leave(workstation);
        self.seek_place(worker, now);
        self.give_out_subtasks(now);
    }

    // Workstations.

    fn seek_place(&mut self, worker: u32, now: u64) {
        let mut sought = Sought { places: self.places, by: &self.chooser, now, here: &|_| NONE };
        if let Some(turn) = self.room.residence.seek(worker, &mut sought) {
            self.obey(worker, turn, now);
        } else {
            self.room.workers[worker as usize].state = WorkerState::Waiting;
            self.tally.waits += 1;
        }
    }

    fn obey(&mut self, worker: u32, turn: Turn<u32>, now: u64) {
        match turn {
            Turn::GoesTo(workstation) => self.take(worker, workstation, now),
            Turn::Stays => unreachable!("a worker that leaves is nowhere until it has arrived"),
        }
    }

    fn became_free(&mut self, workstation: u32, now: u64) {
        self.places.set_free(workstation, &self.chooser, now);
        let mut sought = Sought { places: self.places, by: &self.chooser, now, here: &|_| NONE };
        if let Some((worker, turn)) = self.room.residence.next(&mut 0, &mut sought) {
            self.room.residence.leaves_line(worker);
            return self.obey(worker, turn, now);
        }
        if self.model.grows && self.has_work() {
            self.begin_worker(now, nanos(self.model.start));
        }
    }

    fn take(&mut self, worker: u32, workstation: u32, now: u64) {
        self.places.take(workstation, worker);
        let it = &mut self.room.workers[worker as usize];
        let begins = it.workstation == NONE;
        it.workstation = workstation;
        it.state = WorkerState::Moving;
        self.coming += u32::from(it.subtask == NONE);
        let until = now.saturating_add(it.cost);
        let held = until.min(it.held_until).min(self.lab.end).saturating_sub(it.since);
        self.tally.shared_frozen += u128::from(held);
        self.tally.moves += u32::from(!begins);
        self.set_timer(worker, until);
    }

    fn arrived(&mut self, worker: u32, now: u64) {
        let it = &mut self.room.workers[worker as usize];
        it.clock = now;
        self.coming -= u32::from(it.subtask == NONE);
        let workstation = it.workstation;
        if self.places.is_idle(workstation) {
            self.next_subtask(worker, now);
        } else {
            self.owner_is_here(worker, now);
        }
    }

    fn conclude(mut self, end: Option<u64>) -> BagExecution {
        let finished = end.is_some();
        let end = end.unwrap_or(self.lab.end);
        for worker in 0..self.room.workers.len() {
            let it = self.room.workers[worker];
            match it.state {
                WorkerState::Working => self.settle(u32::try_from(worker).unwrap_or(NONE), end),
                WorkerState::Frozen => self.tally.shared_frozen += u128::from(end - it.since),
                WorkerState::Waiting => {
                    let held = it.held_until.min(end).saturating_sub(it.since);
                    self.tally.shared_frozen += u128::from(held);
                }
                WorkerState::WithoutSubtask | WorkerState::Moving | WorkerState::Gone => {}
            }
        }
        self.tally.close(end);
        let mut shared = self.tally.outcome();
        (shared.finished, shared.nodes_used) = (finished, self.places.used());
        shared.useful = Duration::from_nanos(self.useful);
        BagExecution { shared, ..self.outcome }
    }
}
