//! When a program's ranks begin, and when it grows: the live coordinator's
//! scheduler with one job, under the live rules.
//!
//! As there, facts are derived from how things are (`core/schedule.rs`): what the
//! job holds are its ranks that do not stand still for an owner, those on their
//! way included; what it could use are those that have not begun, and those that
//! would leave their owners.

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::scheduler::{
    Allowed, Class, DEFAULT, Decision, Fact, Parameters, Request, Resources, Scheduler, Sizes,
    named,
};

use crate::model::Model;
use crate::observer::Observer;

use super::Engine;
use super::scratch::{RankState, RankTimerKind};

const JOB: JobId = JobId(1);

pub(super) struct Starts {
    scheduler: Scheduler,
    class: Class,
}

impl Starts {
    pub(super) fn new(model: &Model) -> Self {
        let Some(policy) = named(DEFAULT) else { unreachable!("there is a default") };
        let scheduler = Scheduler::new(resources(0), (policy.build)(&Parameters::default()));
        let class = match (model.grows, model.spawns) {
            (true, _) => Class::Malleable,
            (false, true) => Class::Evolving,
            (false, false) => Class::Rigid,
        };
        Self { scheduler, class }
    }

    fn tell(&mut self, now: Moment, held: u32, queued: u32, more: u32) {
        let least = held + queued;
        let min = if least == 0 { more.min(1) } else { least };
        let Ok(sizes) = Sizes::new([min, min, least + more], Allowed::Any) else { return };
        let state = self.scheduler.state();
        if !state.knows(JOB) {
            let request = Request {
                is_modest: self.class == Class::Malleable,
                ..Request::new(self.class, sizes, None)
            };
            let request = Box::new(request);
            return self.scheduler.handle(now, Fact::Submitted { job: JOB, request });
        }
        if state.sizes(JOB) != Some(&sizes) {
            self.scheduler.handle(now, Fact::Sized { job: JOB, sizes });
        }
        match self.scheduler.state().get(JOB).map(|it| it.size) {
            Some(size) if size != held => {
                self.scheduler.handle(now, Fact::Resized { job: JOB, size: held });
            }
            None if held > 0 => self.scheduler.handle(now, Fact::Runs { job: JOB, size: held }),
            Some(_) | None => {}
        }
    }
}

fn resources(processors: u32) -> Resources {
    Resources { processors, all: u32::MAX, speed: 1.0 }
}

impl<O: Observer> Engine<'_, O> {
    /// A rank is to begin. Those of one moment do so together.
    pub(super) fn begins_are_due(&mut self, now: u64) {
        let next = self.s.timers.peek().map(|timer| (timer.0.at, timer.0.kind));
        if next == Some((now, RankTimerKind::Begin)) {
            return;
        }
        self.schedule(now);
        for at in 0..self.s.newcomers.len() {
            let rank = self.s.newcomers[at];
            if self.s.ranks[rank as usize].state == RankState::NotBegun {
                self.begins_to_wait(rank, now);
            }
        }
    }

    /// One cycle of the scheduler about what has just happened, if it is asked.
    pub(super) fn schedule(&mut self, now: u64) {
        let Some(mut starts) = self.starts.take() else { return };
        loop {
            self.tell_scheduler(&mut starts, now);
            let decisions = starts.scheduler.cycle(Moment(now));
            if decisions.is_empty() {
                break;
            }
            for decision in decisions {
                match decision {
                    Decision::Start { size, .. } => _ = self.place_more(size, now),
                    Decision::Grow { by, .. } => {
                        let by = self.place_more(by, now);
                        starts.scheduler.handle(Moment(now), Fact::Answered { job: JOB, by });
                    }
                    Decision::Shrink { .. } => {
                        let none = Fact::Answered { job: JOB, by: 0 };
                        starts.scheduler.handle(Moment(now), none);
                    }
                    Decision::Offer { .. } => {
                        let none = Fact::Asked { job: JOB, more: 0, is_answer: true };
                        starts.scheduler.handle(Moment(now), none);
                    }
                    Decision::Reserve { .. } | Decision::Refuse { .. } => {}
                }
            }
        }
        self.starts = Some(starts);
    }

    fn tell_scheduler(&self, starts: &mut Starts, now: u64) {
        let holds = |state: RankState| {
            matches!(state, RankState::Here | RankState::Moving | RankState::Finishing)
        };
        let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
        let held = count(self.s.ranks.iter().filter(|rank| holds(rank.state)).count());
        let queued = count(self.s.newcomers.len());
        let more = count(self.s.residence.under_owners(()).count());
        starts.tell(Moment(now), held, queued, more);
        let resources = resources(self.s.places.free() + held);
        if starts.scheduler.state().resources() != resources {
            starts.scheduler.handle(Moment(now), Fact::Resources(resources));
        }
    }

    /// Newcomers first, and then ranks under owners; how many.
    fn place_more(&mut self, by: u32, now: u64) -> u32 {
        let place = |_: &u32| self.begin_one(now) || self.escape_one(now);
        u32::try_from((0..by).take_while(place).count()).unwrap_or(u32::MAX)
    }
}
