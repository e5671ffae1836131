//! The state machine itself: what it knows, and how a fact goes through it.
//!
//! The promises: at most one attempt of a subprogram can be running anywhere;
//! one result of it is accepted, once; no subprogram is forgotten. They rest
//! on three rules: an attempt is given up only when its agent has said so,
//! has begun a new life or has outlived its lease; only an open attempt, told
//! of by the workstation it was placed on, can end a subprogram; and every
//! change is durable before anybody hears of it.

mod ends;
mod folding;
mod grow;
mod links;
mod moves;
mod negotiations;
mod placement;
mod ranks;
mod replicas;
mod rows;
mod schedule;
mod settling;
mod submissions;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::moves::Moving;
use self::schedule::Schedule;
pub use self::schedule::{SchedulerConfig, UnknownPolicy};
use self::settling::Settling;
use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::CoordinatorFrame;
use gleaner_program_core::address::Rank;

use crate::attempt::{Attempt, Fences};
use crate::blame::Blame;
use crate::event::{Event, Link};
use crate::job::{Job, Position};
use crate::negotiation::Prices;
use crate::outlook::{Forgotten, Memory};
use crate::placement::Policy;
use crate::pool::Pool;
use crate::program::Program;
use crate::queue::Queues;
use crate::record::{AttemptRecord, Change, ProgramEvent, Restored, UsageRecord};
use crate::residence::Residence;
use crate::shares::{ShareConfig, Shares};
use crate::speaker::{Others, Speakers};
use crate::step::{Effect, Step};
use crate::tickets::TicketKey;
use crate::workstation::{Guest, Workstation};

/// When a deadline is acted on this late, the coordinator itself was asleep or
/// stalled, and what agents have said meanwhile is still to be read.
const ASLEEP_AFTER: Duration = Duration::from_secs(1);

/// A workstation is to stay idle for so long where the policy looks ahead. Of
/// the same library computers as in [`crate::outlook`], those that were chosen
/// to stay idle for two hours did so for half an hour as often as those chosen
/// for half an hour, and more often for two and four.
const IDLE_NEEDED: Duration = Duration::from_secs(7_200);

/// What a site can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which workstation is chosen.
    pub policy: Policy,
    /// Which job is, and how many places it has.
    pub scheduler: SchedulerConfig,
    /// How long guests may run without their agent being heard.
    pub lease: Duration,
    /// How often an agent is to be heard from while it has guests, and
    /// without any.
    pub heartbeat: Duration,
    pub heartbeat_without_guests: Duration,
    /// How far apart agents without guests are heard, all of them together: a few
    /// notice that a coordinator died as soon as they would with guests.
    pub quiet_beats_apart: Duration,
    /// For how long a workstation is to stay idle, where the policy looks
    /// ahead.
    pub idle_needed: Duration,
    pub shares: ShareConfig,
    /// For moves.
    pub tickets: TicketKey,
    /// What running jobs pay for processors that they are offered; `None`:
    /// nothing.
    pub prices: Option<Prices>,
}

impl Default for Config {
    /// With a lease of ten seconds, a cut-off guest's work runs elsewhere
    /// within eleven. Three heartbeats fit into it, so that two can be lost: a
    /// guess, not yet measured at a site. Agents without guests are to use next
    /// to nothing: four wake-ups a minute. All of them together are heard 500 times
    /// a second: ten thousand cost no more than with `heartbeat_without_guests`, and
    /// a thousand notice that a coordinator died as soon as they would with guests.
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            scheduler: SchedulerConfig::default(),
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            heartbeat_without_guests: Duration::from_secs(20),
            quiet_beats_apart: Duration::from_millis(2),
            idle_needed: IDLE_NEEDED,
            shares: ShareConfig::default(),
            tickets: TicketKey::default(),
            prices: None,
        }
    }
}

/// Why a program's journal is not what its ranks know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outdated {
    Unreadable,
    WentBack,
}

impl Outdated {
    fn why(self) -> &'static str {
        match self {
            Self::Unreadable => {
                "the coordinator was restarted, and cannot read what had happened to it"
            }
            Self::WentBack => "the coordinator's store went back to an earlier time",
        }
    }
}

/// The coordinator's brain.
#[derive(Debug, Default)]
pub struct Core {
    config: Config,
    /// Those that have not ended.
    jobs: BTreeMap<JobId, Job>,
    /// Of those, the ones with something queued, and whose turn it is.
    queues: Queues,
    shares: Shares,
    schedule: Schedule,
    /// Those that have not ended.
    attempts: BTreeMap<Fence, Attempt>,
    pool: Pool,
    fences: Fences,
    last_job: JobId,
    /// Attempts that are to leave their workstation; those of them without a
    /// target, and those that stay under their owners; and the pool's version when
    /// a target was last looked for.
    moves: BTreeMap<Fence, Moving>,
    residence: Residence<JobId, Fence>,
    /// Those that could not leave, and when they are asked again.
    stuck: BTreeSet<(Moment, Fence)>,
    blame: Blame,
    moves_looked_at: Option<u64>,
    /// The last attempts of ranks that have ended in their program's life.
    ended_ranks: BTreeMap<Fence, (JobId, Position)>,
    /// When each program is to be woken.
    timers: BTreeSet<(Moment, JobId)>,
    timer_of: BTreeMap<JobId, Moment>,
    /// There is more to place than one step places.
    more_to_place: bool,
    /// Programs that begin again.
    outdated: Vec<(JobId, Outdated)>,
    settling: Settling,
    /// What an earlier life learned of owners and this one cannot read.
    forgotten: Vec<Forgotten>,
    /// The latest of the fences that agents have seen and the store does not know.
    later_self: Option<(WorkstationId, Fence)>,
    /// Jobs that the store does not know, and the attempts at them.
    later_jobs: BTreeMap<JobId, BTreeSet<(Fence, WorkstationId)>>,
}

/// A step while it is being made, and the jobs that it changes.
#[derive(Debug)]
struct Draft {
    now: Moment,
    wall: WallTime,
    step: Step,
    /// Jobs whose summary changed; `true` if their record did.
    changed_jobs: BTreeMap<JobId, bool>,
    /// Ranks whose workstation has changed.
    moved_ranks: BTreeMap<JobId, BTreeSet<Position>>,
    /// Programs that gave places by sharing others: they take none back in this step,
    /// or a policy that wants the one and then the other would never come to rest.
    folded: BTreeSet<JobId>,
}

impl Draft {
    fn new(now: Moment, wall: WallTime) -> Self {
        Self {
            now,
            wall,
            step: Step::default(),
            changed_jobs: BTreeMap::new(),
            moved_ranks: BTreeMap::new(),
            folded: BTreeSet::new(),
        }
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
    fn job_changed(&mut self, job: JobId) {
        self.changed_jobs.entry(job).or_insert(false);
    }

    /// The job's summary and its record are different now.
    fn job_record_changed(&mut self, job: JobId) {
        self.changed_jobs.insert(job, true);
    }
}

impl Core {
    /// Starts from what the store holds, which is nothing the first time. The
    /// attempts found open get one lease for their agents to come back: an
    /// agent that is still within its lease was heard before `now`.
    pub fn restore(now: Moment, wall: WallTime, config: Config, restored: Restored) -> Self {
        let newest = restored.attempts.iter().map(|attempt| attempt.fence.next()).max();
        let fences_below = restored.fences_below.max(newest.unwrap_or_default());
        let newest_job = restored.jobs.iter().map(|job| job.job).max();
        let mut core = Self {
            shares: Shares::new(now, config.shares.clone()),
            schedule: Schedule::new(&config.scheduler),
            config,
            fences: Fences::new(fences_below, restored.newest),
            last_job: restored.last_job.max(newest_job).unwrap_or_default(),
            ..Self::default()
        };
        for (id, name) in restored.workstations {
            core.pool.enrol(id, name);
        }
        let (memory, forgotten) = Memory::read(&restored.learned, wall);
        core.pool.remember(memory);
        core.forgotten = forgotten;
        let others: BTreeMap<_, _> = restored.others.into_iter().collect();
        for (id, incarnation) in restored.incarnations {
            let others = others.get(&id).map(Vec::as_slice);
            let speakers = Speakers::restored(now, incarnation, others);
            core.change_workstation(now, id, |w| w.speakers = speakers);
        }
        for id in restored.drained {
            core.change_workstation(now, id, |w| w.drained = true);
        }
        for record in restored.jobs {
            core.jobs.insert(record.job, Job::new(record));
        }
        for record in restored.subprograms {
            if let Some(job) = core.jobs.get_mut(&record.subprogram.job) {
                job.restore_tried(record);
            }
        }
        for record in restored.replicas {
            if let Some(job) = core.jobs.get_mut(&record.subprogram.job) {
                job.restore_replica(record);
            }
        }
        if restored.is_copy {
            core.settle_everything(now);
        }
        core.restore_programs(now, &restored.events, restored.is_copy);
        core.restore_usage((now, wall), &restored.usage, &restored.attempts);
        core.restore_attempts(now, restored.attempts);
        core.settle_programs(now);
        let ids: Vec<JobId> = core.jobs.keys().copied().collect();
        for id in ids {
            if let Some(job) = core.jobs.get_mut(&id) {
                job.recount();
            }
            core.requeue(id);
        }
        core
    }

    /// Usage decayed while this coordinator was away, and the attempts found
    /// open had their places all the while.
    fn restore_usage(
        &mut self,
        (now, wall): (Moment, WallTime),
        usage: &[UsageRecord],
        attempts: &[AttemptRecord],
    ) {
        let mut written = BTreeMap::new();
        for UsageRecord { user, used_s, at } in usage {
            self.shares.restore(now, user, self.shares.decayed(*used_s, wall.since(*at)));
            written.insert(user.as_str(), *at);
        }
        for attempt in attempts {
            let Some(job) = self.jobs.get(&attempt.subprogram.job) else { continue };
            let user = &job.record().user;
            let from =
                written.get(user.as_str()).map_or(attempt.placed, |at| attempt.placed.max(*at));
            let used_s = self.shares.accrued(wall.since(from), job.each());
            self.shares.restore(now, user, used_s);
        }
    }

    fn restore_attempts(&mut self, now: Moment, attempts: Vec<AttemptRecord>) {
        let open: BTreeSet<Fence> = attempts.iter().map(|attempt| attempt.fence).collect();
        for attempt in attempts {
            let Some(job) = self.jobs.get_mut(&attempt.subprogram.job) else { continue };
            let position = job.position_of(attempt.subprogram.index, attempt.replica);
            let Some(position) = position else { continue };
            // The attempt that moves counts as placed until its successor has
            // arrived.
            let moves = attempt.coming.filter(|coming| open.contains(&coming.old));
            if moves.is_none() {
                job.restore_placed(position, attempt.fence);
            } else {
                job.sets_out();
            }
            job.touch(position, attempt.workstation);
            job.spec_sent_to.insert(attempt.workstation);
            if let Some(coming) = moves {
                self.moves.insert(coming.old, Moving::new(coming.keep, Some(attempt.fence)));
            }
            let workstation = attempt.workstation;
            if self.pool.get(workstation).is_none() {
                self.pool.enrol(workstation, workstation.to_string());
            }
            let (coming, arrived) = (attempt.coming, attempt.arrived);
            let restored =
                Attempt::new(attempt.subprogram.job, position, workstation, attempt.placed);
            self.attempts.insert(attempt.fence, Attempt { coming, arrived, ..restored });
            let asked = job.spec().asked();
            self.shares.placed(now, &job.record().user, asked.cores.into());
            let lease = self.config.lease;
            self.change_workstation(now, workstation, |w| {
                w.take(now, lease, attempt.fence, Guest { asked, expected: None });
            });
        }
    }

    /// Restores programs from their journals, and what their ended ranks have
    /// left to deliver.
    fn restore_programs(&mut self, now: Moment, events: &[ProgramEvent], is_copy: bool) {
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let Some(spec) = job.spec().program else { continue };
            let of = events.iter().filter(|event| event.job == id);
            let program =
                Program::restore(now, spec, of.map(|event| (event.life, event.bytes.as_slice())));
            if program.is_none() {
                self.outdated.push((id, Outdated::Unreadable));
            } else if is_copy {
                self.outdated.push((id, Outdated::WentBack));
            }
            let (ranks, floor) = (job.spec().indexes.len(), self.fences.floor());
            let anew = || Program::new(now, spec, ranks, floor).in_life(job.progress().life);
            job.program = Some(Box::new(program.unwrap_or_else(anew)));
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let over: Vec<_> = job
                .ended_ranks()
                .iter()
                .map(|(position, history)| {
                    (*position, history.last.fence, history.last.workstation)
                })
                .collect();
            let ended = job.program.as_ref().map(|program| program.past().state.ended.clone());
            for (position, fence, at) in over {
                self.ended_ranks.insert(fence, (id, position));
                let drained = ended.as_ref().and_then(|ended| ended.get(&Rank(position)));
                if drained.is_none_or(|ended| !ended.drained) {
                    if let Some(job) = self.jobs.get_mut(&id) {
                        job.spec_sent_to.insert(at);
                    }
                    self.change_workstation(now, at, |w| {
                        w.heard = w.heard.max(now);
                        w.undelivered.insert((id, position))
                    });
                }
            }
            self.set_timer(id);
        }
    }

    /// Takes an event in.
    #[must_use]
    pub fn handle(&mut self, now: Moment, wall: WallTime, event: Event) -> Step {
        self.handle_all(now, wall, [event])
    }

    /// Takes in all that has happened at one moment, and decides about it
    /// together.
    #[must_use]
    pub fn handle_all(
        &mut self,
        now: Moment,
        wall: WallTime,
        events: impl IntoIterator<Item = Event>,
    ) -> Step {
        let mut draft = Draft::new(now, wall);
        self.pool.set_time(now, wall);
        for event in events {
            self.take_in(&mut draft, event);
        }
        self.conclude(draft)
    }

    fn take_in(&mut self, draft: &mut Draft, event: Event) {
        let now = draft.now;
        match event {
            Event::Enrolled { workstation, name } => self.pool.enrol(workstation, name),
            Event::Removed(workstation) => self.removed(draft, workstation),
            Event::Drained { workstation, drained, now: at_once } => {
                draft.change(Change::Drained { workstation, drained });
                self.change_workstation(now, workstation, |w| w.drained = drained);
                if drained && at_once {
                    self.empty(workstation);
                } else if !drained {
                    self.blame.forgive(workstation);
                    self.change_workstation(now, workstation, Workstation::forgive);
                    let bytes = Others::default().to_bytes();
                    draft.change(Change::Others { workstation, bytes });
                    self.look_again();
                    self.fill_again(draft, workstation);
                }
            }
            Event::Heard { from, frame } => self.heard(draft, from, frame),
            Event::Unstaged { from, fence } => self.unstaged(draft, from, fence),
            Event::Disconnected(link) => self.disconnected(draft, link),
            Event::Submitted { request, user, spec } => {
                self.submitted(draft, request, user, *spec);
            }
            Event::CancelAsked { request, job } => self.cancel_asked(draft, request, job),
        }
    }

    /// When `wake` is due: ask again after every `handle` and `wake`. A time
    /// that has passed says that there is more to place than one step places.
    pub fn deadline(&self) -> Option<Moment> {
        if self.more_to_place || !self.outdated.is_empty() {
            return Some(Moment::ZERO);
        }
        let program = self.timers.first().map(|(at, _)| *at);
        let workstation = self.pool.first_due().map(|(at, _)| at);
        let settled = self.settling.first_due();
        let stuck = self.stuck.first().map(|(at, _)| *at);
        [workstation, program, settled, stuck, self.schedule.first_due(), self.blame.due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    ///
    /// A deadline that is acted on much too late says that this coordinator was
    /// asleep. What the agents said meanwhile is heard first then: to give up
    /// an attempt late is safe, to give up a live one is a pity.
    #[must_use]
    pub fn wake(&mut self, now: Moment, wall: WallTime) -> Step {
        let mut draft = Draft::new(now, wall);
        self.pool.set_time(now, wall);
        if self.pool.first_due().is_some_and(|(at, _)| at + ASLEEP_AFTER < now) {
            self.await_heartbeats(now);
        }
        while let Some((_, id)) = self.pool.first_due().filter(|(at, _)| *at <= now) {
            self.workstation_is_due(&mut draft, id);
        }
        if self.blame.take_what_is_due(now) {
            self.look_again();
        }
        self.renew_outdated(&mut draft);
        self.may_leave_again(now);
        self.settle_what_is_due(&mut draft);
        let due: Vec<JobId> =
            self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        for id in due {
            self.program_is_due(&mut draft, id);
        }
        self.take_what_is_due(&mut draft);
        self.conclude(draft)
    }

    /// Programs that know more than the store begin again.
    fn renew_outdated(&mut self, draft: &mut Draft) {
        for (id, why) in std::mem::take(&mut self.outdated) {
            let generation = self.fences.floor().generation;
            let program = self.jobs.get_mut(&id).and_then(|job| job.program.as_mut());
            if let Some(program) = program.filter(|_| why == Outdated::WentBack) {
                program.leave_lives_out(generation);
            }
            self.begin_again(draft, id, why.why(), false);
        }
    }

    /// Moves, and then one cycle of the scheduler about all that has happened;
    /// tells of every job that changed.
    fn conclude(&mut self, mut draft: Draft) -> Step {
        self.try_moves(&mut draft);
        self.schedule(&mut draft);
        self.send_places(&mut draft);
        for (id, durably) in std::mem::take(&mut draft.changed_jobs) {
            self.tell_of_job(&mut draft, id, durably);
        }
        // Nothing is written for usage alone: what has ended since is in the
        // step that says so, and what has not is counted from its placement.
        if !draft.step.changes.is_empty() {
            let due = self.shares.due(draft.now);
            draft.step.changes.extend(usage_changes(draft.wall, due));
        }
        let learned = self.pool.learned_due(draft.now);
        draft.step.changes.extend(learned.into_iter().map(Change::Learned));
        draft.step
    }

    /// All usage that is not written down yet, for a coordinator that stops.
    pub fn usage_to_keep(&mut self, now: Moment, wall: WallTime) -> Vec<Change> {
        usage_changes(wall, self.shares.all_unwritten(now)).collect()
    }

    /// All that was learned of owners and is not written down yet, for a
    /// coordinator that stops.
    pub fn learned_to_keep(&mut self) -> Vec<Change> {
        self.pool.learned_unwritten().into_iter().map(Change::Learned).collect()
    }

    /// What an earlier life learned of owners and this one learns anew, because
    /// it does not read.
    pub fn forgotten(&self) -> &[Forgotten] {
        &self.forgotten
    }

    fn change_workstation<R>(
        &mut self,
        now: Moment,
        id: WorkstationId,
        change: impl FnOnce(&mut Workstation) -> R,
    ) -> Option<R> {
        self.pool.update(now, &self.config, id, change)
    }

    /// Puts a job into its user's queue if it belongs there, or takes it out.
    fn requeue(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id) {
            self.queues.update(job);
        }
        self.schedule.changed(id);
    }

    /// What found no place may find one now.
    fn look_again(&mut self) {
        self.queues.jobs().for_each(|id| self.schedule.changed(id));
    }

    /// A fence that was never given out before.
    fn next_fence(&mut self, draft: &mut Draft) -> Fence {
        let (fence, reservation) = self.fences.next();
        draft.step.changes.extend(reservation.map(|below| Change::FencesReserved { below }));
        fence
    }

    /// Places an attempt, which is durable before anybody hears of it.
    fn open(&mut self, draft: &mut Draft, fence: Fence, attempt: Attempt) {
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        job.touch(attempt.position, attempt.workstation);
        let (now, lease) = (draft.now, self.config.lease);
        let guest = Guest { asked: job.spec().asked(), expected: job.expected() };
        draft.change(attempt.change(fence, job, None));
        if !attempt.rides {
            self.shares.placed(now, &job.record().user, job.each());
        }
        let (at, rides) = (attempt.workstation, attempt.rides);
        self.change_workstation(now, at, |w| {
            w.take(now, lease, fence, guest);
            w.set_rides(fence, rides);
        });
        self.attempts.insert(fence, attempt);
        draft.step.placed += 1;
        if rides {
            self.send_riders(draft, at);
        }
    }

    /// The workstation of an open attempt.
    fn workstation_of(&self, fence: Fence) -> Option<WorkstationId> {
        self.attempts.get(&fence).map(|attempt| attempt.workstation)
    }

    /// Sends a frame to an agent, if it is connected.
    fn send(&self, draft: &mut Draft, to: WorkstationId, frame: CoordinatorFrame) {
        if let Some(to) = self.link(to) {
            draft.send(to, frame);
        }
    }

    /// The connection to a workstation, if there is one.
    pub fn link(&self, id: WorkstationId) -> Option<Link> {
        let serial = self.pool.get(id)?.session.as_ref()?.serial;
        Some(Link { workstation: id, serial })
    }
}

fn usage_changes(at: WallTime, of: Vec<(String, f64)>) -> impl Iterator<Item = Change> {
    of.into_iter().map(move |(user, used_s)| Change::Usage(UsageRecord { user, used_s, at }))
}

#[cfg(test)]
mod tests;
