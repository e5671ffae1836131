//! The state machine itself: what it knows, and how a fact goes through it.
//!
//! The promises: at most one attempt of a subprogram can be running anywhere;
//! one result of it is accepted, once; no subprogram is forgotten. They rest
//! on three rules: an attempt is given up only when its agent has said so,
//! has begun a new life or has outlived its lease; only an open attempt, told
//! of by the workstation it was placed on, can end a subprogram; and every
//! change is durable before anybody hears of it.

mod ends;
mod grow;
mod links;
mod moves;
mod placement;
mod ranks;
mod rows;
mod submissions;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::moves::Moving;
use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::CoordinatorFrame;
use gleaner_program_core::address::Rank;

use crate::attempt::{Attempt, Fences, Stage};
use crate::event::{Event, Link};
use crate::job::{Job, Position};
use crate::placement::Policy;
use crate::pool::Pool;
use crate::program::Program;
use crate::record::{AttemptRecord, Change, ProgramEvent, Restored};
use crate::step::{Effect, Step};
use crate::tickets::TicketKey;
use crate::workstation::Workstation;

/// When a deadline is heard of this late, the coordinator itself was asleep or
/// stalled, and what agents have said meanwhile is still to be read.
const DEAF_AFTER: Duration = Duration::from_secs(1);

/// Of the same library computers as in [`crate::outlook`], those that were
/// chosen to stay idle for two hours did so for half an hour as often as those
/// chosen for half an hour, and more often for two and four.
pub const IDLE_NEEDED: Duration = Duration::from_secs(7_200);

/// What a site can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub policy: Policy,
    /// How long guests may run unheard.
    pub lease: Duration,
    /// How often an agent is to be heard from while it has guests, and
    /// without any.
    pub heartbeat: Duration,
    pub heartbeat_without_guests: Duration,
    /// For how long a workstation is to stay idle, where the policy looks
    /// ahead.
    pub idle_needed: Duration,
    /// For moves.
    pub tickets: TicketKey,
}

impl Default for Config {
    /// With a lease of ten seconds, a cut-off guest's work runs elsewhere
    /// within eleven. Three heartbeats fit into it, so that two can be lost.
    /// Idle agents are to use next to nothing: four wake-ups a minute.
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            heartbeat_without_guests: Duration::from_secs(20),
            idle_needed: IDLE_NEEDED,
            tickets: TicketKey::default(),
        }
    }
}

/// The coordinator's brain.
#[derive(Debug)]
pub struct Core {
    config: Config,
    /// Those that have not ended.
    jobs: BTreeMap<JobId, Job>,
    /// Of those, the ones with something queued, and of these the short ones.
    queued: BTreeSet<JobId>,
    short: BTreeSet<JobId>,
    /// Those that have not ended.
    attempts: BTreeMap<Fence, Attempt>,
    pool: Pool,
    fences: Fences,
    last_job: JobId,
    /// Attempts that want away, those of them without a target, and the state
    /// of the pool that these last looked at.
    moves: BTreeMap<Fence, Moving>,
    waiting_moves: BTreeSet<Fence>,
    moves_looked_at: Option<u64>,
    /// Programs that react to increases, and what was free when they last did.
    growing: BTreeSet<JobId>,
    grown_at: Option<u64>,
    /// The last attempts of ranks that have ended in their program's life.
    ended_ranks: BTreeMap<Fence, (JobId, Position)>,
    /// When each program is to be woken.
    timers: BTreeSet<(Moment, JobId)>,
    timer_of: BTreeMap<JobId, Moment>,
    /// There was more to place than one step places.
    more_to_place: bool,
    /// Programs whose past does not read: they begin again.
    unreadable: Vec<JobId>,
}

/// A step in the making, and what it is made for.
#[derive(Debug)]
struct Draft {
    now: Moment,
    wall: WallTime,
    step: Step,
    /// Jobs whose summary changed; `true` if their record did.
    moved: BTreeMap<JobId, bool>,
    /// Ranks that are at another place than before.
    places: BTreeMap<JobId, BTreeSet<Position>>,
}

impl Draft {
    fn new(now: Moment, wall: WallTime) -> Self {
        Self { now, wall, step: Step::default(), moved: BTreeMap::new(), places: BTreeMap::new() }
    }

    fn change(&mut self, change: Change) {
        self.step.changes.push(change);
    }

    fn effect(&mut self, effect: Effect) {
        self.step.effects.push(effect);
    }

    fn send(&mut self, to: Link, frame: CoordinatorFrame) {
        self.effect(Effect::Send { to, frame });
    }

    /// The job's summary is different now.
    fn moves(&mut self, job: JobId) {
        self.moved.entry(job).or_insert(false);
    }

    /// So is its record.
    fn advances(&mut self, job: JobId) {
        self.moved.insert(job, true);
    }
}

impl Core {
    /// Starts from what the store holds; from nothing the first time. The
    /// attempts found open get one lease for their agents to come back: an
    /// agent that is still within its lease was heard before `now`.
    pub fn restore(now: Moment, config: Config, restored: Restored) -> Self {
        let newest = restored.attempts.iter().map(|attempt| attempt.fence.0 + 1).max();
        let fences_below = restored.fences_below.0.max(newest.unwrap_or(0));
        let newest_job = restored.jobs.iter().map(|job| job.job).max();
        let mut core = Self {
            config,
            jobs: BTreeMap::new(),
            queued: BTreeSet::new(),
            short: BTreeSet::new(),
            attempts: BTreeMap::new(),
            pool: Pool::default(),
            fences: Fences::new(Fence(fences_below)),
            last_job: restored.last_job.max(newest_job).unwrap_or_default(),
            moves: BTreeMap::new(),
            waiting_moves: BTreeSet::new(),
            moves_looked_at: None,
            growing: BTreeSet::new(),
            grown_at: None,
            ended_ranks: BTreeMap::new(),
            timers: BTreeSet::new(),
            timer_of: BTreeMap::new(),
            more_to_place: false,
            unreadable: vec![],
        };
        for (id, name) in restored.workstations {
            core.pool.enrol(id, name);
        }
        for (id, incarnation) in restored.incarnations {
            core.change_workstation(now, id, |w| w.incarnation = Some(incarnation));
        }
        for record in restored.jobs {
            core.jobs.insert(record.job, Job::new(record));
        }
        for record in &restored.subprograms {
            if let Some(job) = core.jobs.get_mut(&record.subprogram.job) {
                job.restore_tried(record);
            }
        }
        core.restore_programs(now, &restored.events);
        core.restore_attempts(now, restored.attempts);
        let ids: Vec<JobId> = core.jobs.keys().copied().collect();
        for id in ids {
            if let Some(job) = core.jobs.get_mut(&id) {
                job.recount();
            }
            core.requeue(id);
        }
        core
    }

    fn restore_attempts(&mut self, now: Moment, attempts: Vec<AttemptRecord>) {
        let open: BTreeSet<Fence> = attempts.iter().map(|attempt| attempt.fence).collect();
        for attempt in attempts {
            let Some(job) = self.jobs.get_mut(&attempt.subprogram.job) else { continue };
            let index = attempt.subprogram.index;
            // The one that moves has the place until it has arrived.
            let moves = attempt.coming.filter(|coming| open.contains(&coming.old));
            let position = match moves {
                Some(_) => job.position(index),
                None => job.restore_placed(index, attempt.fence),
            };
            let Some(position) = position else { continue };
            job.told.insert(attempt.workstation);
            if let Some(coming) = moves {
                self.moves.insert(coming.old, Moving::new(coming.keep, Some(attempt.fence)));
            }
            let workstation = attempt.workstation;
            if self.pool.get(workstation).is_none() {
                self.pool.enrol(workstation, workstation.to_string());
            }
            self.attempts.insert(
                attempt.fence,
                Attempt {
                    job: attempt.subprogram.job,
                    position,
                    workstation,
                    placed: attempt.placed,
                    stage: Stage::Offered,
                    suspensions: 0,
                    coming: attempt.coming,
                    arrived: attempt.arrived,
                },
            );
            let lease = self.config.lease;
            self.change_workstation(now, workstation, |w| {
                w.take(now, lease, attempt.fence, None);
            });
        }
    }

    /// What was written down of programs, and what their ended ranks left.
    fn restore_programs(&mut self, now: Moment, events: &[ProgramEvent]) {
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let Some(spec) = job.spec().program else { continue };
            let of = events.iter().filter(|event| event.job == id);
            let program =
                Program::restore(now, spec, of.map(|event| (event.life, event.bytes.as_slice())));
            if program.is_none() {
                self.unreadable.push(id);
            }
            let (ranks, floor) = (job.spec().indexes.len(), self.fences.floor());
            let anew = || Program::new(now, spec, ranks, floor).in_life(job.progress().life);
            job.program = Some(Box::new(program.unwrap_or_else(anew)));
            self.may_grow(id);
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let over: Vec<_> = job
                .over()
                .iter()
                .map(|(position, history)| {
                    (*position, history.last.fence, history.last.workstation)
                })
                .collect();
            let ended = job.program.as_ref().map(|program| program.past().ended.clone());
            for (position, fence, at) in over {
                self.ended_ranks.insert(fence, (id, position));
                let drained = ended.as_ref().and_then(|ended| ended.get(&Rank(position)));
                if drained.is_none_or(|ended| !ended.drained) {
                    if let Some(job) = self.jobs.get_mut(&id) {
                        job.told.insert(at);
                    }
                    self.change_workstation(now, at, |w| {
                        w.heard = w.heard.max(now);
                        w.remains.insert((id, position))
                    });
                }
            }
            self.set_timer(id);
        }
    }

    /// Takes a fact in.
    #[must_use]
    pub fn handle(&mut self, now: Moment, wall: WallTime, event: Event) -> Step {
        let mut draft = Draft::new(now, wall);
        self.pool.tell_time(now, wall);
        match event {
            Event::Enrolled { workstation, name } => self.pool.enrol(workstation, name),
            Event::Heard { from, frame } => self.heard(&mut draft, from, frame),
            Event::Disconnected(link) => self.disconnected(&draft, link),
            Event::Submitted { request, user, spec } => {
                self.submitted(&mut draft, request, user, *spec);
            }
            Event::CancelAsked { request, job } => self.cancel_asked(&mut draft, request, job),
        }
        self.conclude(draft)
    }

    /// When `wake` is due. Ask again after every `handle` and `wake`. It may
    /// have passed already: then there is more to place than one step places.
    pub fn deadline(&self) -> Option<Moment> {
        if self.more_to_place || !self.unreadable.is_empty() {
            return Some(Moment::ZERO);
        }
        let program = self.timers.first().map(|(at, _)| *at);
        [self.pool.first_due().map(|(at, _)| at), program].into_iter().flatten().min()
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    ///
    /// One that is heard of much too late says that this coordinator was
    /// asleep. What the agents said meanwhile is heard first then: to give up
    /// an attempt late is safe, to give up a live one is a pity.
    #[must_use]
    pub fn wake(&mut self, now: Moment, wall: WallTime) -> Step {
        let mut draft = Draft::new(now, wall);
        self.pool.tell_time(now, wall);
        if self.pool.first_due().is_some_and(|(at, _)| at + DEAF_AFTER < now) {
            self.listen_first(now);
        }
        while let Some((_, id)) = self.pool.first_due().filter(|(at, _)| *at <= now) {
            self.workstation_is_due(&mut draft, id);
        }
        for id in std::mem::take(&mut self.unreadable) {
            let why = "the coordinator was restarted, and cannot read what had happened to it";
            self.begin_again(&mut draft, id, why, false);
        }
        let due: Vec<JobId> =
            self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        for id in due {
            self.program_is_due(&mut draft, id);
        }
        self.conclude(draft)
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Places what can be placed, and tells of every job that moved.
    fn conclude(&mut self, mut draft: Draft) -> Step {
        self.try_moves(&mut draft);
        self.place(&mut draft);
        self.grow(&mut draft);
        self.send_places(&mut draft);
        for (id, durably) in std::mem::take(&mut draft.moved) {
            self.job_moved(&mut draft, id, durably);
        }
        draft.step
    }

    fn change_workstation<R>(
        &mut self,
        now: Moment,
        id: WorkstationId,
        change: impl FnOnce(&mut Workstation) -> R,
    ) -> Option<R> {
        self.pool.update(now, &self.config, id, change)
    }

    /// Brings the queues of jobs up to date with one of them.
    fn requeue(&mut self, id: JobId) {
        let job = self.jobs.get(&id).filter(|job| job.queued() > 0);
        let (waits, short) = (job.is_some(), job.is_some_and(Job::is_short));
        for (queue, belongs) in [(&mut self.queued, waits), (&mut self.short, short)] {
            if belongs {
                queue.insert(id);
            } else {
                queue.remove(&id);
            }
        }
    }

    /// The connection to a workstation, if there is one.
    fn link(&self, id: WorkstationId) -> Option<Link> {
        let serial = self.pool.get(id)?.session.as_ref()?.serial;
        Some(Link { workstation: id, serial })
    }
}

#[cfg(test)]
mod tests;
