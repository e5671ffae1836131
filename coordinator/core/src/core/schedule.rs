//! What the scheduler hears of, and how what it decides is carried out.
//!
//! ```text
//! whatever changes a job ──► stale ─┐                     ┌─► placement: offers
//! ends, owners' returns ───► left ──┼─► facts ─► cycle ───┼─► growth: spawned ranks, frozen ones move
//! workstations ────────────► pool ──┤             ▲       └─► refusals
//! shares ──────────────────► claims ┘             └── what could be placed of it
//! ```
//!
//! The promise: between steps the scheduler's sizes are what jobs hold here, and
//! what it calls free is the pool's room. It rests on one rule: facts are not
//! told where things happen, but derived from jobs that changed, all of one
//! event together. What a job holds are its guests that do not stand still for
//! an owner, those on their way, and what it was given and is not placed yet.

mod asked;
mod check;
mod config;
mod decisions;
mod groups;
mod patience;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::{Fence, JobId};
use gleaner_common::job::JobSpec;
use gleaner_common::time::{Moment, WallTime};

pub(super) use self::asked::asked_for;
pub use self::config::{SchedulerConfig, UnknownPolicy};
use self::groups::Groups;
use self::patience::Patience;
use super::folding::Folding;
use super::placement::PLACEMENTS_MAX;
use super::{Core, Draft};
use crate::job::Job;
use crate::scheduler::{Allowed, Class, Fact, Request, Resources, Scheduler, Sizes, Speedup, User};

/// A cycle of more stages than this goes on after a pause: what agents say
/// meanwhile is not to wait for it, not even for one that never comes to rest.
const STAGES_MAX: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(10);

/// So many that wait for several cores of one workstation make way in one step.
const STAND_ASIDE_MAX: u32 = 100;

/// How old the claims of those may be whose usage has only decayed or grown by
/// time. A place counts a quantum at once, which is 60 s by default.
const CLAIMS_AGE_MAX: Duration = Duration::from_secs(1);

/// How many of a job's places have become free since it was told of.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// Their owners have come back, or the workstation has not kept the guest.
    lost: u32,
    /// What ran there has ended.
    done: u32,
}

#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) scheduler: Scheduler,
    numbers: BTreeMap<String, User>,
    names: Vec<String>,
    /// Jobs that are not as the scheduler knows them, and those that have changed since
    /// it began to decide.
    stale: BTreeSet<JobId>,
    decided: BTreeSet<JobId>,
    left: BTreeMap<JobId, Left>,
    /// What jobs were given and is not placed yet.
    unfilled: BTreeMap<JobId, u32>,
    /// Which groups of workstations what was given last goes to.
    groups: Groups,
    patience: Patience,
    /// Attempts whose agents were asked to return them.
    given_back: BTreeSet<Fence>,
    pub(super) folding: BTreeMap<JobId, Folding>,
    /// When those are asked again that could not give what they were asked for.
    pub(super) fold_again: Option<Moment>,
    /// The pool's version when it was last told that it has changed.
    suits_at: u64,
    /// For whom the pool keeps a workstation.
    kept_for: Option<JobId>,
    /// When all claims were told.
    claims_at: Moment,
    /// When a cycle of too many stages goes on.
    goes_on_at: Option<Moment>,
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new(&SchedulerConfig::default())
    }
}

impl Schedule {
    pub(super) fn new(config: &SchedulerConfig) -> Self {
        Self {
            scheduler: config.build(),
            numbers: BTreeMap::new(),
            names: vec![],
            stale: BTreeSet::new(),
            decided: BTreeSet::new(),
            left: BTreeMap::new(),
            unfilled: BTreeMap::new(),
            groups: Groups::default(),
            patience: Patience::default(),
            given_back: BTreeSet::new(),
            folding: BTreeMap::new(),
            fold_again: None,
            suits_at: 0,
            kept_for: None,
            claims_at: Moment::ZERO,
            goes_on_at: None,
        }
    }

    /// The job is not as it was.
    pub(super) fn changed(&mut self, job: JobId) {
        self.stale.insert(job);
        self.decided.insert(job);
    }

    /// One of the job's places is not its own any more.
    pub(super) fn lost(&mut self, job: JobId) {
        self.left.entry(job).or_default().lost += 1;
        self.changed(job);
    }

    /// What was called lost last is free because something has ended there.
    pub(super) fn was_done(&mut self, job: JobId) {
        let left = self.left.entry(job).or_default();
        if let Some(lost) = left.lost.checked_sub(1) {
            (left.lost, left.done) = (lost, left.done + 1);
        }
    }

    pub(super) fn unfilled(&self, job: JobId) -> u32 {
        self.unfilled.get(&job).copied().unwrap_or(0)
    }

    fn set_unfilled(&mut self, job: JobId, count: u32) {
        if count == 0 {
            self.unfilled.remove(&job);
            self.groups.forget(job);
        } else {
            self.unfilled.insert(job, count);
        }
    }

    /// Was the attempt's agent asked to return it?
    pub(super) fn is_given_back(&self, fence: Fence) -> bool {
        self.given_back.contains(&fence)
    }

    pub(super) fn forget_attempt(&mut self, fence: Fence) {
        self.given_back.remove(&fence);
    }

    /// For whom a workstation is kept.
    pub(super) fn kept_for(&self) -> Option<JobId> {
        self.kept_for
    }

    /// When somebody's patience ends first, or a cycle goes on.
    pub(super) fn first_due(&self) -> Option<Moment> {
        let others = self.fold_again.into_iter().chain(self.goes_on_at);
        self.patience.first_due().into_iter().chain(others).min()
    }

    fn user(&mut self, name: &str) -> User {
        if let Some(user) = self.numbers.get(name) {
            return *user;
        }
        let user = User(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), user);
        user
    }

    /// Users with something that waits or could grow, in turn.
    pub(super) fn users_in_turn(&self) -> impl Iterator<Item = &str> {
        let users = self.scheduler.state().users_in_turn();
        users.filter_map(|user| self.names.get(user.0 as usize).map(String::as_str))
    }
}

/// What a job holds, what waits of it, and what it could run on: in processors,
/// of which each of its subprograms takes some.
struct Demand {
    held: u32,
    queued: u32,
    sizes: Sizes,
}

impl Core {
    /// One cycle about all that this event has brought.
    pub(super) fn schedule(&mut self, draft: &mut Draft) {
        let goes_on = std::mem::take(&mut self.more_to_place)
            | self.schedule.goes_on_at.take_if(|at| *at <= draft.now).is_some();
        self.keep_no_more(draft);
        self.tell_scheduler(draft);
        self.conclude_folding(draft);
        self.schedule.decided.clear();
        if self.settling.everything() {
            return;
        }
        for id in self.schedule.unfilled.keys().copied().collect::<Vec<_>>() {
            if draft.step.placed >= PLACEMENTS_MAX {
                break;
            }
            self.fill_on(draft, id);
        }
        self.decide_all(draft, goes_on);
        for _ in 0..STAND_ASIDE_MAX {
            if !self.has_come_to_rest() || !self.stand_aside(draft) {
                break;
            }
            self.decide_all(draft, true);
        }
        for id in std::mem::take(&mut self.schedule.decided) {
            self.share_places(draft, id);
        }
        self.send_ahead(draft);
        // Others have looked at what was kept already, and found it kept.
        let is_let_go = self.keep_no_more(draft);
        self.tell_scheduler(draft);
        self.more_to_place |= is_let_go || !self.schedule.unfilled.is_empty();
    }

    /// All stages of a cycle, or of the rest of one that the last step began.
    fn decide_all(&mut self, draft: &mut Draft, goes_on: bool) {
        if !self.has_come_to_rest() {
            return;
        }
        for stage in 0..STAGES_MAX {
            if draft.step.placed >= PLACEMENTS_MAX {
                self.more_to_place |= self.pool.has_free() && !self.queues.is_empty();
                return;
            }
            self.tell_claims(draft.now);
            if stage == 0 && !goes_on && !self.schedule.scheduler.has_news() {
                return;
            }
            for decision in self.schedule.scheduler.cycle(draft.now) {
                self.carry_out(draft, decision);
            }
            if !self.schedule.scheduler.has_another_stage() {
                return;
            }
        }
        self.schedule.goes_on_at = Some(draft.now + PAUSE);
    }

    /// Did the last cycle end, or had it more stages than one step takes?
    pub fn has_come_to_rest(&self) -> bool {
        self.schedule.goes_on_at.is_none()
    }

    /// How many processors each part of the job takes.
    pub(super) fn each(&self, id: JobId) -> u32 {
        self.jobs.get(&id).map_or(1, Job::each)
    }

    // ── facts ──────────────────────────────────────────────────────────────

    pub(super) fn tell(&mut self, now: Moment, fact: Fact) {
        self.schedule.scheduler.handle(now, fact);
    }

    pub(super) fn tell_scheduler(&mut self, draft: &Draft) {
        for id in std::mem::take(&mut self.schedule.stale) {
            self.tell_of(draft, id);
        }
        self.tell_resources(draft.now);
        let version = self.pool.version();
        let suits = self.schedule.suits_at != version;
        if suits && self.schedule.scheduler.state().has_misfits() {
            self.schedule.suits_at = version;
            self.tell(draft.now, Fact::Suits);
        }
    }

    fn tell_resources(&mut self, now: Moment) {
        let resources = self.resources();
        if self.schedule.scheduler.state().resources() != resources {
            self.tell(now, Fact::Resources(resources));
        }
    }

    /// The places that are free, and those that jobs hold.
    fn resources(&self) -> Resources {
        let unfilled: u32 = self.schedule.unfilled.values().sum();
        let held = self.schedule.scheduler.state().held().saturating_sub(unfilled);
        resources(self.pool.room() + held)
    }

    fn tell_of(&mut self, draft: &Draft, id: JobId) {
        let left = self.schedule.left.remove(&id).unwrap_or_default();
        let Some(Demand { held, queued, sizes }) = self.demand(id) else {
            self.schedule.set_unfilled(id, 0);
            self.schedule.patience.forget(id);
            return self.tell(draft.now, Fact::Ended { job: id });
        };
        let state = self.schedule.scheduler.state();
        if !state.knows(id) {
            self.tell_submitted(draft, id, sizes);
        } else if state.sizes(id) != Some(&sizes) {
            self.tell(draft.now, Fact::Sized { job: id, sizes });
        }
        let Some(it) = self.schedule.scheduler.state().get(id) else {
            self.schedule.set_unfilled(id, 0);
            if held > 0 {
                self.tell(draft.now, Fact::Runs { job: id, size: held });
            }
            return;
        };
        // Whoever has too few to get on comes first.
        let is_needed = it.asked > 0 || self.schedule.scheduler.state().lacking().next().is_some();
        // Who cannot grow has no other way to come by it again.
        let keeps_it = self.schedule.scheduler.keeps() || it.request.class != Class::Malleable;
        let keeps = keeps_it && !is_needed;
        let each = self.each(id);
        let lost = each * (left.lost + if keeps { 0 } else { left.done });
        let (before, most) = (it.size, held.saturating_add(queued));
        let size = before.saturating_sub(lost).min(most).max(held);
        // What needs several and has none begins with all of them again.
        let is_too_few = held == 0 && size < it.request.sizes.min();
        let size = if is_too_few { 0 } else { size };
        if it.asked <= before.saturating_sub(size) {
            self.schedule.patience.end(id);
        }
        if size != before {
            self.tell(draft.now, Fact::Resized { job: id, size });
        }
        self.schedule.set_unfilled(id, size - held);
    }

    fn tell_submitted(&mut self, draft: &Draft, id: JobId, sizes: Sizes) {
        let Some(job) = self.jobs.get(&id) else { return };
        let submitted = moment_of(job.record().submitted, (draft.now, draft.wall));
        let user = job.record().user.clone();
        let request = request_of(job.spec(), sizes);
        let request = Request { user: Some(self.schedule.user(&user)), ..request };
        self.shares.touch(&user);
        self.tell(submitted, Fact::Submitted { job: id, request: Box::new(request) });
    }

    /// What a job is to the scheduler now; nothing, if nothing of it runs or
    /// could.
    fn demand(&self, id: JobId) -> Option<Demand> {
        let job = self.jobs.get(&id).filter(|job| !job.has_ended())?;
        if self.settling.holds(id) && job.held() == 0 {
            return None;
        }
        let (held, queued, each) = (job.held(), job.queued(), job.each());
        let least = held.saturating_add(queued);
        let (held, queued) = (held.saturating_mul(each), queued.saturating_mul(each));
        let sizes = match &job.program {
            Some(program) => {
                let more = self.frozen(job).count();
                let more = u32::try_from(more)
                    .unwrap_or(u32::MAX)
                    .saturating_add(program.could_add() + program.could_be_offered());
                let more = more.saturating_add(job.riding());
                let preferred = if least == 0 { more.min(1) } else { least };
                // One that has begun needs all its ranks to go on.
                let may_be_fewer = Self::folds(job) && (held == 0 || queued == 0);
                let fewest = if may_be_fewer { self.fewest_places(job) } else { preferred };
                let most = least.saturating_add(more);
                // It could have as many when it was submitted; what it has spawned since
                // shares them where there are no more.
                let first = job.spec().indexes.len().max(fewest);
                let begins = if held == 0 { preferred.min(first) } else { preferred };
                [fewest.min(preferred), begins, most]
            }
            // Nothing of it can run: its guests stand still where they are.
            None if least == 0 => return None,
            None => {
                return Some(Demand {
                    held,
                    queued,
                    sizes: job.spec().shape.sizes_of_rest(least)?.times(each).ok()?,
                });
            }
        };
        let sizes = Sizes::new(sizes, Allowed::Any).and_then(|sizes| sizes.times(each)).ok()?;
        Some(Demand { held, queued, sizes })
    }

    /// Tells the claims that have changed, and now and then all of those who
    /// wait.
    fn tell_claims(&mut self, now: Moment) {
        let mut users = self.shares.take_changed();
        if now.since(self.schedule.claims_at) >= CLAIMS_AGE_MAX {
            self.schedule.claims_at = now;
            users.extend(self.schedule.users_in_turn().map(str::to_owned));
        }
        for name in users {
            let Some(user) = self.schedule.numbers.get(&name).copied() else { continue };
            let (claim, places) = (self.shares.claim(now, &name), self.shares.places_left(&name));
            self.tell(now, Fact::Claim { user, claim, places });
        }
    }
}

/// So many processors. How many there would be without owners is not said: a
/// workstation that has not been heard of may have more.
fn resources(processors: u32) -> Resources {
    Resources { processors, all: u32::MAX, speed: 1.0 }
}

/// When that was, on this life's clock.
fn moment_of(at: WallTime, (now, wall): (Moment, WallTime)) -> Moment {
    Moment(now.0.saturating_sub(u64::try_from(wall.since(at).as_nanos()).unwrap_or(u64::MAX)))
}

/// The job as the scheduler sees it (`ARCHITECTURE.md` says which is which).
fn request_of(spec: &JobSpec, sizes: Sizes) -> Request {
    Request {
        priority: spec.priority,
        speedup: Speedup::of_parts(&spec.shape.speedup, spec.cores.into()),
        is_modest: spec.program.is_some_and(|program| program.increases),
        ..Request::new(spec.class(), sizes, spec.shape.estimate)
    }
}
