//! Attempts that leave their workstation and go on elsewhere, in two steps.
//!
//! The promise: of the two attempts of a move never both run, and a frozen
//! guest is not thrown away before it runs elsewhere. The old attempt is ended
//! only when the target's agent has said that all of the guest is there; the
//! new one runs only when that is durable.
//!
//! ```text
//! WantsAway ──► a target ──► Offer (new) and Depart (old)
//!                                ├─ Arrived ──► durable ──► Cancel (old), GoOn (new): it runs
//!                                ├─ Refused, or the target is lost ──► another, three times at most;
//!                                │                 if its owner has left meanwhile, it stays
//!                                ├─ CannotLeave, Stays, the old one ends ──► Cancel (new)
//!                                └─ the old one is lost, or given up ──► what is on its way is all there is
//! ```

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::time::Duration;

use gleaner_common::id::{Fence, WorkstationId};
use gleaner_common::program::{Arrival, Destination, Handover};
use gleaner_common::reaction::Keep;
use gleaner_common::report::SubprogramState;
use gleaner_common::wire::{CoordinatorFrame, GuestState, Offer};
use gleaner_program_core::address::Rank;

use super::ranks::rank_at;
use super::why::lacks_now;
use super::{Core, Draft};
use crate::attempt::{Attempt, Return, Stage};
use crate::event::Link;
use crate::job::Job;
use crate::record::Coming;
use crate::residence::{Turn, Workstations, moves_with};
use crate::workstation::{Workstation, clip};

/// How many workstations are tried before the owner's agent decides again.
const TARGETS_MAX: u32 = 3;

/// No guest is frozen for longer; what an agent says beyond is nonsense.
const FROZEN_MAX: Duration = Duration::from_secs(1_000_000_000);

/// An attempt that is to leave its workstation, known by its fence.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) keep: Keep,
    /// Workstations where this move has failed.
    tried: BTreeSet<WorkstationId>,
    failures: u32,
    /// The attempt that it is to become, if a target was found.
    pub(crate) new: Option<Fence>,
    /// It is to leave whatever its owner does: an admin wants the workstation
    /// empty. It runs on until there is a target.
    ordered: bool,
    /// It is to share a place, or not to any more: if that comes to nothing, it
    /// stays.
    folds: bool,
}

impl Moving {
    pub(super) fn new(keep: Keep, new: Option<Fence>) -> Self {
        Self { keep, tried: BTreeSet::new(), failures: 0, new, ordered: false, folds: false }
    }

    pub(super) fn to_fold(keep: Keep) -> Self {
        Self { ordered: true, folds: true, ..Self::new(keep, None) }
    }
}

impl Core {
    /// The owner wants the workstation back, and the guest is to leave. Its
    /// agent says so again on every connection.
    pub(super) fn wants_away(&mut self, draft: &mut Draft, fence: Fence, keep: Keep) {
        self.set_stage(draft, fence, Stage::Held(GuestState::Leaving));
        if self.moves.get(&fence).is_some_and(|moving| moving.keep == keep) {
            return self.send_depart(draft, fence);
        }
        self.stop_move(draft, fence, "its owner's agent has another wish");
        if keep == Keep::Nothing {
            self.returns_tasks(draft, fence);
        }
        self.moves.insert(fence, Moving::new(keep, None));
        self.residence.join(fence);
        self.moves_looked_at = None;
    }

    /// A rank has no process any more. It may wait for a place until others of
    /// its program have ended, and these may wait for the tasks that it held.
    pub(super) fn returns_tasks(&mut self, draft: &mut Draft, fence: Fence) {
        let Some(attempt) = self.attempts.get(&fence) else { return };
        let (id, position) = (attempt.job, attempt.position);
        let program = self.jobs.get_mut(&id).and_then(|job| job.program.as_mut());
        if let Some(program) = program {
            program.gone(Rank(position));
            self.obey_program(draft, id);
        }
    }

    /// Attempts that wait to move go before queued ones, because they are
    /// frozen.
    pub(super) fn try_moves(&mut self, draft: &mut Draft) {
        let version = self.pool.version();
        let is_looked_at = self.moves_looked_at == Some(version);
        if self.residence.nobody_waits() || is_looked_at || self.settling.everything() {
            return;
        }
        let mut asked = 0;
        while let Some((fence, turn)) = self.residence.next(&mut asked, &mut Targets(self)) {
            match turn {
                Turn::Stays => self.stays(draft, fence, "its owner has left"),
                Turn::GoesTo(target) => self.begin_move(draft, fence, target),
            }
            // A target whose connection is gone is none.
            asked += usize::from(self.residence.waits(fence));
        }
        self.moves_looked_at = Some(self.pool.version());
    }

    /// Whatever can leave a workstation is to leave it; the rest ends there.
    pub(super) fn empty(&mut self, workstation: WorkstationId) {
        for fence in self.attempts_at(workstation) {
            let attempt = self.attempts.get(&fence).filter(|it| it.coming.is_none());
            let job = attempt.and_then(|attempt| self.jobs.get(&attempt.job));
            let Some(keep) = job.and_then(moves_whole) else { continue };
            if let Entry::Vacant(vacant) = self.moves.entry(fence) {
                vacant.insert(Moving { ordered: true, ..Moving::new(keep, None) });
                self.residence.no_longer_stays(fence);
                self.residence.join(fence);
            }
        }
        self.moves_looked_at = None;
    }

    /// What is not on its way stays. It may have been, and stand still since: its
    /// agent hears of it.
    pub(super) fn fill_again(&mut self, draft: &mut Draft, workstation: WorkstationId) {
        for fence in self.attempts_at(workstation) {
            let waits = |moving: &Moving| moving.ordered && moving.new.is_none();
            if self.moves.get(&fence).is_some_and(waits) {
                self.stays(draft, fence, "its workstation is wanted again");
            }
        }
    }

    /// A workstation where this move has failed is tried once more only if no
    /// other has room: the others may have none for long.
    pub(super) fn target_for(&self, fence: Fence, moving: &Moving) -> Option<WorkstationId> {
        let attempt = self.attempts.get(&fence)?;
        let source = self.pool.get(attempt.workstation)?;
        source.session.as_ref()?;
        let job = self.jobs.get(&attempt.job)?;
        let (needs, reach) = (job.needs(), self.reach(job, attempt.position));
        let could_do = |id: WorkstationId, target: &Workstation| {
            id != attempt.workstation
                && reach.why_not(id).is_none()
                && needs.are_met(target)
                && misfit(source, target, moving.keep).is_none()
        };
        let is_new = |id: WorkstationId| !moving.tried.contains(&id);
        if moving.keep == Keep::SubtaskStart {
            // A target that restores images is preferred: only the source's
            // agent knows whether the guest goes back to one.
            let fits = |target: &Workstation| misfit(source, target, Keep::State).is_none();
            let best =
                self.pool.choose_where(needs, |id, at| is_new(id) && could_do(id, at) && fits(at));
            if best.is_some() {
                return best;
            }
        }
        let new = self.pool.choose_where(needs, |id, target| is_new(id) && could_do(id, target));
        new.or_else(|| self.pool.choose_where(needs, could_do))
    }

    /// Nothing is free for an attempt that its owner sends away.
    fn place_to_share_for(&self, fence: Fence, moving: &Moving) -> Option<WorkstationId> {
        if moving.ordered {
            return None;
        }
        self.place_to_share(fence, moving.keep).filter(|at| !moving.tried.contains(at))
    }

    pub(super) fn begin_move(&mut self, draft: &mut Draft, old: Fence, target: Target) {
        let Target { at, rides } = target;
        let Some(to) = self.link(at) else { return };
        let fence = self.next_fence(draft);
        let (Some(attempt), Some(moving)) = (self.attempts.get(&old), self.moves.get_mut(&old))
        else {
            return;
        };
        moving.new = Some(fence);
        let coming = Some(Coming { from: attempt.workstation, old, keep: moving.keep });
        let new = Attempt::new(attempt.job, attempt.position, at, draft.wall);
        self.open(draft, fence, Attempt { coming, rides, ..new });
        if let Some(job) = self.jobs.get_mut(&new.job).filter(|_| !rides) {
            job.sets_out();
        }
        self.schedule.changed(new.job);
        self.residence.leaves_line(old);
        self.offer(draft, to, fence);
        self.send_depart(draft, old);
    }

    /// Offers an agent an attempt.
    pub(super) fn offer(&mut self, draft: &mut Draft, to: Link, fence: Fence) {
        let Some(attempt) = self.attempts.get(&fence) else { return };
        let (id, position, coming) = (attempt.job, attempt.position, attempt.coming);
        let was_sent = self.change_workstation(draft.now, to.workstation, |w| w.mark_spec_sent(id));
        if was_sent == Some(false) {
            self.send_spec(draft, to, id);
        }
        let mut rank = self.rank_offer(id, position);
        if let (Some(rank), Some(_)) = (&mut rank, coming) {
            rank.cut = None;
        }
        let arrival = coming.map(|Coming { from, old, .. }| Arrival {
            from,
            name: self.workstation_name(from).unwrap_or_default().to_owned(),
            old,
            ticket: self.config.tickets.ticket(fence),
        });
        let Some(job) = self.jobs.get(&id) else { return };
        let subprogram = job.subprogram(position);
        let placed_here = job.fence(position) == Some(fence);
        draft.send(to, CoordinatorFrame::Offer(Offer { fence, subprogram, rank, arrival }));
        self.rank_is_at(draft, id, placed_here.then_some(position));
        if placed_here {
            self.send_past(draft, id, position);
        }
    }

    /// Tells the source's agent where the attempt is to go, again if it may not
    /// have heard so.
    pub(super) fn send_depart(&mut self, draft: &mut Draft, old: Fence) {
        let Some(Moving { keep, new: Some(new), ordered, .. }) = self.moves.get(&old) else {
            return;
        };
        let (Some(attempt), Some(target)) = (self.attempts.get(&old), self.attempts.get(new))
        else {
            return;
        };
        let (Some(from), Some(at)) =
            (self.link(attempt.workstation), self.pool.get(target.workstation))
        else {
            return;
        };
        let at = rank_at(attempt.position, *new, (target.workstation, at));
        let to = Destination { at, ticket: self.config.tickets.ticket(*new), ordered: *ordered };
        draft.send(from, CoordinatorFrame::Depart { fence: old, keep: *keep, to });
    }

    /// All of the guest is at the target: the old attempt ends, and then the
    /// new one runs.
    pub(super) fn arrived(
        &mut self,
        draft: &mut Draft,
        to: Link,
        fence: Fence,
        (bytes, frozen): (u64, Duration),
    ) {
        let Some(attempt) = self.attempts.get(&fence) else { return };
        let (id, position, workstation) = (attempt.job, attempt.position, attempt.workstation);
        let Some(coming) = attempt.coming else {
            // The arrival was acknowledged before; that frame may have been
            // lost, and what else was sent before the guest was there.
            draft.send(to, CoordinatorFrame::GoOn { fence });
            return self.send_past(draft, id, position);
        };
        let name = self.workstation_name(workstation).unwrap_or_default().to_owned();
        self.moves.remove(&coming.old);
        self.residence.leaves_line(coming.old);
        let ended = self.end(draft, coming.old, format!("moved to {name}"), 0);
        let source = ended.as_ref().map(|(attempt, _)| attempt.workstation);
        let (Some(job), Some(attempt)) = (self.jobs.get_mut(&id), self.attempts.get_mut(&fence))
        else {
            return;
        };
        // The source may have been lost meanwhile.
        let was_placed = job.fence(position) == Some(fence);
        let history = ended.map(|(_, history)| history).or_else(|| job.history(position).cloned());
        if let Some(mut history) = history {
            history.moves += 1;
            draft.change(job.subprogram_change(position, &history, SubprogramState::Queued));
            job.go_on(position, history, fence);
        }
        if !was_placed && attempt.rides {
            job.count_riding(true, true);
        } else if !was_placed {
            job.no_more_coming();
        }
        self.schedule.changed(id);
        (attempt.coming, attempt.arrived) = (None, true);
        draft.change(attempt.change(fence, job, None));
        let progress = job.progress_mut();
        progress.counts.moves += 1;
        progress.moved_bytes = progress.moved_bytes.saturating_add(bytes);
        progress.frozen = progress.frozen.saturating_add(frozen.min(FROZEN_MAX));
        if let Some(program) = job.program.as_mut().filter(|_| coming.keep == Keep::Nothing) {
            program.gone(Rank(position));
        }
        self.set_stage(draft, fence, Stage::Held(GuestState::Running));
        draft.job_record_changed(id);
        if let Some(from) = source {
            self.send(draft, from, CoordinatorFrame::Cancel { fence: coming.old });
        }
        draft.send(to, CoordinatorFrame::GoOn { fence });
        self.rank_is_at(draft, id, Some(position));
        self.send_past(draft, id, position);
        self.obey_program(draft, id);
    }

    /// The new attempt failed; the old one is frozen as before.
    pub(super) fn move_failed(&mut self, draft: &mut Draft, new: Fence, how: &str) {
        let Some(attempt) = self.attempts.get(&new) else { return };
        let (Some(coming), target, id) = (attempt.coming, attempt.workstation, attempt.job) else {
            return;
        };
        if !self.attempts.contains_key(&coming.old) {
            // The old attempt is lost: what was carried was all that was left.
            let why = "its workstation was lost while it moved, and the move came to nothing";
            return self.came_back(draft, new, &Return::Lost(why));
        }
        let position = attempt.position;
        self.end_coming(draft, new, how.to_owned());
        let Some(moving) = self.moves.get_mut(&coming.old) else { return };
        moving.new = None;
        moving.tried.insert(target);
        moving.failures += 1;
        // A rank without a process has nothing to stay for: it waits for
        // another target.
        let may_try = moving.failures < TARGETS_MAX || moving.keep == Keep::Nothing;
        let goes_on = may_try && !moving.folds;
        if moving.failures.is_multiple_of(TARGETS_MAX) {
            moving.tried.clear();
        }
        if goes_on {
            self.residence.join(coming.old);
            self.moves_looked_at = None;
            return;
        }
        self.moves.remove(&coming.old);
        self.may_stay(draft.now, coming.old);
        self.fold_ended(id, coming.old);
        self.send(draft, coming.from, CoordinatorFrame::Stay { fence: coming.old });
        let name = self.workstation_name(target).unwrap_or_default();
        let what = self.called(id, position);
        let note = format!("{what} found no place to move to, {name} said last: {how}");
        self.note(draft, id, note);
    }

    /// The attempt runs on where it is. Its agent hears so even if that is old
    /// news.
    pub(super) fn stays(&mut self, draft: &mut Draft, fence: Fence, why: &str) {
        if !self.moves.contains_key(&fence) {
            return;
        }
        self.stop_move(draft, fence, why);
        if let Some(at) = self.workstation_of(fence) {
            self.send(draft, at, CoordinatorFrame::Stay { fence });
        }
    }

    /// The agent cannot carry the guest in this way.
    pub(super) fn cannot_leave(
        &mut self,
        draft: &mut Draft,
        fence: Fence,
        keep: Keep,
        reason: &str,
    ) {
        if self.moves.get(&fence).is_none_or(|moving| moving.keep != keep) {
            // The owner has left meanwhile, and the agent has said so.
            return;
        }
        self.is_stuck(draft.now, fence);
        self.stays(draft, fence, reason);
        let Some(attempt) = self.attempts.get(&fence) else { return };
        let (id, position) = (attempt.job, attempt.position);
        if !attempt.stage.is_suspended() {
            // The guest ran again before it was to depart.
            return;
        }
        self.set_stage(draft, fence, Stage::Held(GuestState::Suspended));
        let name = self.workstation_of(fence).and_then(|at| self.workstation_name(at));
        let what = self.called(id, position);
        let note = format!("{what} cannot leave {}: {reason}", name.unwrap_or_default());
        self.note(draft, id, note);
    }

    fn called(&self, id: gleaner_common::id::JobId, position: u32) -> String {
        match self.jobs.get(&id) {
            Some(job) if job.program.is_none() => {
                format!("subprogram {}", job.subprogram(position))
            }
            Some(_) | None => format!("rank {position}"),
        }
    }

    /// Calls off an attempt's move, if it has one.
    pub(super) fn stop_move(&mut self, draft: &mut Draft, old: Fence, why: &str) {
        self.residence.leaves_line(old);
        if let Some(attempt) = self.attempts.get(&old) {
            self.fold_ended(attempt.job, old);
        }
        let Some(moving) = self.moves.remove(&old) else { return };
        self.may_stay(draft.now, old);
        let Some(new) = moving.new else { return };
        let at = self.workstation_of(new);
        self.end_coming(draft, new, format!("not needed: {why}"));
        if let Some(at) = at {
            self.send(draft, at, CoordinatorFrame::Cancel { fence: new });
        }
    }

    /// Takes an attempt that never ran out of everything that refers to it.
    fn end_coming(&mut self, draft: &mut Draft, new: Fence, mut outcome: String) {
        let Some(attempt) = self.attempts.remove(&new) else { return };
        self.change_workstation(draft.now, attempt.workstation, |w| w.remove(new));
        clip(&mut outcome);
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        job.untouch(attempt.position, attempt.workstation);
        if !attempt.rides {
            job.no_more_coming();
            self.schedule.lost(attempt.job);
            self.shares.ended(draft.now, &job.record().user, job.each());
        }
        draft.change(attempt.change(new, job, Some((draft.wall, outcome))));
        draft.job_changed(attempt.job);
        self.pass_place_on(draft, attempt.job, attempt.workstation);
    }

    /// Was this handover ordered, from this workstation to that one?
    pub fn carries(&self, from: WorkstationId, to: WorkstationId, what: &Handover) -> bool {
        self.attempts.get(&what.new).is_some_and(|attempt| {
            let is_it = |coming: Coming| (coming.from, coming.old) == (from, what.old);
            attempt.workstation == to
                && what.ticket == self.config.tickets.ticket(what.new)
                && attempt.coming.is_some_and(is_it)
        })
    }

    /// Which attempts of a job are to leave and have no target, and why.
    pub(super) fn why_not_all_moved(&self, job: &Job) -> Vec<String> {
        let waiting = job.placed().filter(|(_, fence)| self.residence.waits(*fence));
        let mut reasons = vec![];
        for (position, fence) in waiting.take(MOVES_NAMED) {
            let at = self.workstation_of(fence).and_then(|at| self.workstation_name(at));
            let what = self.called(job.id(), position);
            let there = format!("{what} wants to leave {}", at.unwrap_or("its workstation"));
            let why = self.why_not_moved(fence);
            reasons.extend(why.into_iter().map(|why| format!("{there}: {why}")));
        }
        reasons
    }

    /// Why does this attempt not leave, if it is to?
    pub(super) fn why_not_moved(&self, fence: Fence) -> Vec<String> {
        let (Some(moving), Some(attempt)) = (self.moves.get(&fence), self.attempts.get(&fence))
        else {
            return vec![];
        };
        if let Some(new) = moving.new.and_then(|new| self.attempts.get(&new)) {
            let name = self.workstation_name(new.workstation).unwrap_or_default();
            return vec![format!("it is on its way to {name}")];
        }
        let Some(source) = self.pool.get(attempt.workstation) else { return vec![] };
        let mut reasons: Vec<String> = vec![];
        let job = self.jobs.get(&attempt.job);
        let reach = job.map(|it| self.reach(it, attempt.position)).unwrap_or_default();
        for (id, target) in self.pool.free_ones() {
            let misfit = if let Some(why) = reach.why_not(id) {
                Some(why.to_owned())
            } else if moving.tried.contains(&id) {
                Some("it came to nothing there".to_owned())
            } else if let Some(lacks) = job.and_then(|job| lacks_now(job.needs(), target)) {
                Some(lacks)
            } else {
                misfit(source, target, moving.keep)
            };
            reasons.extend(misfit.map(|why| format!("not to {}: {why}", target.name)));
            if reasons.len() == MISFITS_NAMED {
                break;
            }
        }
        if reasons.is_empty() {
            reasons.push("it waits for a workstation to move to: none is free".to_owned());
        }
        reasons
    }
}

/// Where an attempt goes: to a place of its own, or to share another's of its
/// program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) at: WorkstationId,
    pub(super) rides: bool,
}

impl Target {
    pub(super) fn own(at: WorkstationId) -> Self {
        Self { at, rides: false }
    }

    pub(super) fn shared(at: WorkstationId) -> Self {
        Self { at, rides: true }
    }
}

/// The workstations, as attempts that are to leave theirs see them.
pub(super) struct Targets<'a>(pub(super) &'a Core);

impl Workstations<Fence> for Targets<'_> {
    type Id = Target;

    /// While nothing of the attempt is being carried. Its agent may not know that,
    /// and would not thaw it by itself.
    fn owner_has_left(&self, fence: Fence) -> bool {
        let Self(core) = self;
        let source = core.workstation_of(fence).and_then(|id| core.pool.get(id));
        core.moves.get(&fence).is_some_and(|moving| !moving.ordered)
            && source.is_some_and(|source| source.session.is_some() && !source.is_busy())
    }

    fn choose(&mut self, fence: Fence) -> Option<Target> {
        let Self(core) = self;
        let Some(moving) = core.moves.get(&fence) else {
            let moving = Moving::new(core.escapes_with(fence)?, None);
            return core.target_for(fence, &moving).map(Target::own);
        };
        let own = core.target_for(fence, moving).map(Target::own);
        own.or_else(|| core.place_to_share_for(fence, moving).map(Target::shared))
    }
}

/// What a guest takes along that can leave without a loss, as its job has chosen.
pub(super) fn moves_whole(job: &Job) -> Option<Keep> {
    moves_with(job.spec().on_busy).filter(|keep| *keep != Keep::Nothing)
}

/// How many unsuitable workstations are named.
const MISFITS_NAMED: usize = 5;

/// How many attempts that are to leave are named of one job.
const MOVES_NAMED: usize = 3;

/// Why a guest from the source cannot go on at the target.
pub(super) fn misfit(source: &Workstation, target: &Workstation, keep: Keep) -> Option<String> {
    if keep != Keep::State {
        return None;
    }
    match (&source.facts.fingerprint, &target.facts.fingerprint) {
        (Some(source), Some(target)) => source.suits(target).err().map(|no| no.to_string()),
        (None, _) => Some(format!("{} makes no images{}", source.name, why_not(source))),
        (_, None) => Some(format!("it restores no images{}", why_not(target))),
    }
}

fn why_not(workstation: &Workstation) -> String {
    workstation.facts.why_no_moves().map_or_else(String::new, |why| format!(" ({why})"))
}
