//! Runs a program in a lab: Phalen 1994, §6.4, and its variations.
//!
//! Conservative run-ahead. A rank depends on others through messages only, and
//! on the lab only when its workstation changes. So it runs, operation after
//! operation and without an event for each, until a message is missing or its
//! *horizon* is reached: the next change of its workstation, which a log of
//! the past tells. What is left for a queue are the lab's transitions, sorted
//! once and for all, and a heap of few timers: ranks that begin, arrive, lose
//! patience or finish.
//!
//! ```text
//!            ┌── runs ahead ◄── message ──┐
//! begins ─► here ── blocked ──────────────┘──► finished
//!  │         ▲ │ owner returns                 (its workstation is free)
//!  │         │ ├─► demoted ──┐ owner leaves
//!  │         │ ├─► frozen ───┴─► here
//!  ▼         │ ▼    └ patience ends
//! waiting ─► moving ─► here, or the owner is there already
//! ```
//!
//! What happens at one moment happens in this order: transitions, by
//! workstation; then ranks run as far as they can; then timers, by rank, and
//! after each ranks run as far as they can. A workstation that turns busy in
//! the moment in which a piece of work ends interrupts it.

mod advance;
mod owners;
mod path;
mod residence;
mod scratch;
mod starts;
mod tally;

use std::cmp::Reverse;
use std::time::Duration;

use gleaner_common::reaction::Keep;
use gleaner_coordinator_core::residence::Rules;

use crate::execution::Execution;
use crate::lab::{Lab, nanos};
use crate::model::Model;
use crate::observer::{Observed, Observer, What};
use crate::places::Chooser;
use crate::program::{NONE, Program};

pub(crate) use advance::at_share;
use path::Route;
pub(crate) use scratch::PathRecordKind;
pub use scratch::Scratch;
use scratch::{PathRecord, RankProgress, RankState, RankTimer, RankTimerKind};
use starts::Starts;
pub(crate) use tally::{Tally, span};

/// A share of 1, in the millionths that the engine counts in.
pub(crate) const WHOLE: u64 = 1_000_000;

/// Runs a program once.
pub fn run(program: &Program, lab: &Lab, model: &Model, scratch: &mut Scratch) -> Execution {
    run_observed(program, lab, model, scratch, &mut ())
}

/// Runs a program once, and tells somebody what happens.
pub fn run_observed(
    program: &Program,
    lab: &Lab,
    model: &Model,
    scratch: &mut Scratch,
    observer: &mut impl Observer,
) -> Execution {
    scratch.prepare(program, model.rules);
    let mut engine = Engine {
        program,
        lab,
        model,
        chooser: Chooser::new(model.placement, model.idle_needed, lab),
        share: share_of(model.renice_share),
        starts: (model.rules == Rules::LIVE).then(|| Starts::new(model)),
        s: scratch,
        observer,
        now: 0,
        next: 0,
        running: program.ranks(),
        tally: Tally::open(lab, nanos(model.begins)),
    };
    engine.begin();
    let finished = engine.run();
    engine.conclude(finished)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
pub(crate) fn share_of(share: f64) -> u64 {
    (share * WHOLE as f64).clamp(1.0, WHOLE as f64) as u64
}

struct Engine<'a, O> {
    program: &'a Program,
    lab: &'a Lab,
    model: &'a Model,
    chooser: Chooser<'a>,
    /// What a demoted guest gets, in millionths.
    share: u64,
    /// The live coordinator's scheduler, if ranks begin when it says so.
    starts: Option<Starts>,
    s: &'a mut Scratch,
    observer: &'a mut O,
    now: u64,
    /// The lab's next transition.
    next: usize,
    /// Ranks that have not finished.
    running: u32,
    tally: Tally,
}

impl<O: Observer> Engine<'_, O> {
    fn begin(&mut self) {
        self.s.places.open(self.lab, &self.chooser);
        for rank in 0..self.program.ranks() {
            if self.program.spawner[rank as usize] == NONE || !self.model.spawns {
                self.set_timer(self.tally.begins, rank, RankTimerKind::Begin);
            }
        }
    }

    /// Whether all ranks finished before the lab's period ended.
    fn run(&mut self) -> bool {
        while self.running > 0 {
            while let Some(rank) = self.s.ready.pop() {
                // The rank may have left since it became ready.
                if self.s.ranks[rank as usize].state == RankState::Here {
                    self.advance(rank);
                }
            }
            let due = self.lab.transitions.get(self.next).map_or(u64::MAX, |due| due.at);
            let timer = self.s.timers.peek().map_or(u64::MAX, |timer| timer.0.at);
            self.now = due.min(timer);
            if self.now >= self.lab.end {
                return false;
            }
            if due <= timer {
                self.handle_transitions();
            } else {
                self.handle_timer();
            }
        }
        true
    }

    /// Handles all transitions of this moment.
    fn handle_transitions(&mut self) {
        while let Some(due) = self.lab.transitions.get(self.next).filter(|due| due.at == self.now) {
            self.next += 1;
            self.tally.events += 1;
            if due.busy {
                self.turned_busy(*due);
            } else {
                self.turned_idle(*due);
            }
        }
    }

    fn handle_timer(&mut self) {
        let Some(Reverse(RankTimer { at, rank, kind, stamp, .. })) = self.s.timers.pop() else {
            return;
        };
        self.tally.events += 1;
        match kind {
            RankTimerKind::Step => self.steps_on(rank),
            RankTimerKind::Begin => self.rank_begins(rank, at),
            RankTimerKind::Arrive => self.arrived(rank, at),
            RankTimerKind::Patience => self.patience_ended(rank, at, stamp),
            RankTimerKind::Finish => self.finished(rank, at),
        }
    }

    fn finished(&mut self, rank: u32, at: u64) {
        self.tell(rank, at, What::Finished);
        let place = self.s.ranks[rank as usize].workstation;
        self.s.ranks[rank as usize].state = RankState::Gone;
        self.running -= 1;
        if self.tally.finish < at || self.tally.last == NONE {
            (self.tally.finish, self.tally.last) = (at, rank);
        }
        if self.s.places.leave(place) {
            self.became_free(place, at);
        } else {
            self.schedule(at);
        }
    }

    /// What is kept of a rank that moves costs so much.
    fn cost(&self, keep: Keep) -> u64 {
        nanos(self.model.costs.of(keep))
    }

    fn set_timer(&mut self, at: u64, rank: u32, kind: RankTimerKind) {
        let stamp = self.s.ranks[rank as usize].stamp;
        let late = kind != RankTimerKind::Step;
        self.s.timers.push(Reverse(RankTimer { at, late, rank, kind, stamp }));
    }

    fn tell(&mut self, rank: u32, at: u64, what: What) {
        self.observer.observe(Observed { at, rank, what });
    }

    /// Notes where a rank's time went, for the critical path.
    fn note(&mut self, rank: u32, at: u64, amount: u64, kind: PathRecordKind) {
        let rank = &mut self.s.ranks[rank as usize];
        let previous = rank.head;
        rank.head = u32::try_from(self.s.records.len()).unwrap_or(NONE);
        self.s.records.push(PathRecord { at, amount, previous, kind });
    }

    fn conclude(mut self, finished: bool) -> Execution {
        let end = if finished { self.tally.finish } else { self.lab.end };
        if !finished {
            self.stop_at(end);
        }
        self.tally.close(end);
        let mut execution = self.tally.outcome();
        (execution.finished, execution.nodes_used) = (finished, self.s.places.used());
        execution.useful = self.useful(finished);
        if finished {
            let route = Route { begins: self.tally.begins, end, last: self.tally.last };
            let head = self.s.ranks[route.last as usize].head;
            let binding = self.s.ranks[route.last as usize].binding;
            (execution.path, execution.on_critical_path) =
                path::critical(self.program, self.s, route, (head, binding));
            execution.last_rank = path::of_last(self.program, self.s, route, head);
        }
        execution
    }

    /// The work that was done and kept.
    fn useful(&self, finished: bool) -> Duration {
        if finished {
            return self.program.work();
        }
        let done = |(rank, &first): (&RankProgress, &u32)| {
            let steps = &self.program.steps[first as usize..=rank.at as usize];
            let before: u128 = steps.iter().map(|step| u128::from(step.work)).sum();
            // After a rank lost its subtask, more is left than its step's work.
            before - u128::from(rank.left)
        };
        span(self.s.ranks.iter().zip(&self.program.first).map(done).sum())
    }
}
