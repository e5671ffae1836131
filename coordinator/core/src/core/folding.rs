//! Folding: the ranks of a program on fewer places than it has ranks, and back
//! (Kumar 2001, §2.2; `McCann` and Zahorjan 1994).
//!
//! ```text
//!            fold: beside another rank of its program, here or by a move
//!  own place ───────────────────────────────────────────────► rides
//!            ◄───────────────────────────────────────────────
//!            unfold: a place is free, here or by a move; or whose place it shares has left
//! ```
//!
//! The promise: a place is shared by ranks of one program alone, and one of them
//! holds it: to the pool and to the scheduler the others are not there. Nobody
//! needs to be asked, so that this is how a program of ranks gives what it must.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::amounts::Amounts;
use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::reaction::Keep;
use gleaner_common::shape::Class;
use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::CoordinatorFrame;

use super::moves::{Moving, Target, misfit, moves_whole};
use super::{Core, Draft};
use crate::attempt::Attempt;
use crate::job::{Job, Turn};
use crate::scheduler::Fact;
use crate::workstation::{Standing, Workstation};

/// A rank that is sent away before its process has greeted its agent begins anew.
/// A guess.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// Who could not give what was asked of it is asked again after so long.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The ranks of one program at one workstation.
#[derive(Debug, Default)]
struct Team {
    /// Those with a place of their own, and those that share one.
    own: Vec<Fence>,
    riders: Vec<Fence>,
}

impl Team {
    fn len(&self) -> usize {
        self.own.len() + self.riders.len()
    }
}

/// What is under way of a program's folding.
#[derive(Debug, Default)]
pub(super) struct Folding {
    /// The ranks that are to leave for it.
    leaving: BTreeSet<Fence>,
    /// Its negotiations wait for what comes of it.
    enforced: bool,
}

impl Core {
    // ── what can be done ───────────────────────────────────────────────────

    /// May the scheduler run the program on fewer places than it has ranks? What
    /// a rank asks for beside its core is its own.
    pub(super) fn folds(job: &Job) -> bool {
        let is_modest = job.spec().asked() == Amounts::ONE_CORE;
        job.program.is_some() && job.spec().class() == Class::Malleable && is_modest
    }

    /// On how few places the program can run now: as few as its submitter allows,
    /// two ranks at each, and none without a place where ranks cannot leave, or
    /// not before they have begun.
    pub(super) fn fewest_places(&self, job: &Job) -> u32 {
        let least = job.spec().needs_at_once();
        let is_asked = job.program.as_ref().is_some_and(|it| it.negotiator().is_some());
        let teams = self.teams(job);
        let all = || teams.values().flat_map(|team| team.own.iter().chain(&team.riders));
        let can_leave = moves_whole(job).is_some() && all().all(|fence| self.has_begun(*fence));
        if is_asked {
            return least;
        }
        if can_leave {
            // It may have more ranks than its submitter knew of.
            let ranks = job.held() + job.riding() + job.queued();
            return least.max(ranks.div_ceil(2));
        }
        let fixed: usize = teams.values().map(|team| team.len().div_ceil(2)).sum();
        least.max(u32::try_from(fixed).unwrap_or(u32::MAX))
    }

    /// Its ranks that are there and nowhere else, and do not stand still for an
    /// owner.
    fn teams(&self, job: &Job) -> BTreeMap<WorkstationId, Team> {
        let mut teams: BTreeMap<WorkstationId, Team> = BTreeMap::new();
        for (_, fence) in job.placed() {
            let Some(attempt) = self.attempts.get(&fence) else { continue };
            if attempt.stage.is_suspended() || self.moves.contains_key(&fence) {
                continue;
            }
            let team = teams.entry(attempt.workstation).or_default();
            if attempt.rides { team.riders.push(fence) } else { team.own.push(fence) }
        }
        teams
    }

    /// How many ranks more of the program can share its places there: each place
    /// by two, so that agents have seats for all whatever other programs do.
    fn seats_of(&self, id: JobId, at: WorkstationId) -> usize {
        let here = self.attempts_at(at).into_iter().filter_map(|fence| {
            let attempt = self.attempts.get(&fence)?;
            (attempt.job == id && !self.moves.contains_key(&fence)).then_some(attempt)
        });
        let (riders, own): (Vec<_>, Vec<_>) = here.partition(|attempt| attempt.rides);
        own.len().saturating_sub(riders.len())
    }

    fn has_begun(&self, fence: Fence) -> bool {
        self.attempts.get(&fence).is_some_and(Attempt::has_begun)
    }

    /// Has it begun, as far as its agent would carry it? What has not is placed
    /// elsewhere anew.
    fn has_settled(&self, fence: Fence, wall: WallTime) -> bool {
        let attempt = self.attempts.get(&fence);
        let is_old = |at: WallTime| wall.since(at) >= SETTLED_AFTER;
        attempt.is_some_and(|it| it.has_begun() && (it.arrived || is_old(it.placed)))
    }

    // ── fold ───────────────────────────────────────────────────────────────

    /// Has ranks of the program share places until it has given so many; how
    /// many it gives now or when moves have ended.
    pub(super) fn fold(&mut self, draft: &mut Draft, id: JobId, by: u32) -> u32 {
        let mut given = 0;
        while given < by && (self.fold_here(draft, id) || self.fold_away(draft, id)) {
            given += 1;
        }
        if given > 0 {
            draft.folded.insert(id);
        }
        given
    }

    /// Two ranks of one workstation share a place: where the program has most.
    fn fold_here(&mut self, draft: &mut Draft, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id).filter(|job| Self::folds(job)) else { return false };
        let teams = self.teams(job);
        // The one that shares gives its own place.
        let gives = |at: WorkstationId| self.seats_of(id, at) > 1 && self.pool.is_open(at);
        let several = teams.iter().filter(|(at, _)| gives(**at));
        let most = several.max_by_key(|(_, team)| team.own.len());
        // The newest has the least to lose by waiting for its turns.
        let Some(newest) = most.and_then(|(_, team)| team.own.iter().max().copied()) else {
            return false;
        };
        self.set_rides(draft, newest, true);
        true
    }

    /// All ranks of one workstation go where others of the program are.
    fn fold_away(&mut self, draft: &mut Draft, id: JobId) -> bool {
        let Some((keep, moves)) = self.evacuation(id, draft.wall) else { return false };
        for (fence, target) in moves {
            self.moves.insert(fence, Moving::to_fold(keep));
            self.begin_move(draft, fence, Target::shared(target));
            self.schedule.folding.entry(id).or_default().leaving.insert(fence);
        }
        true
    }

    /// The workstation with the fewest ranks that all have somewhere to go.
    fn evacuation(&self, id: JobId, wall: WallTime) -> Option<(Keep, Vec<(Fence, WorkstationId)>)> {
        let job = self.jobs.get(&id).filter(|job| Self::folds(job))?;
        let keep = moves_whole(job)?;
        let teams = self.teams(job);
        let mut sources: Vec<_> = teams.iter().filter(|(_, team)| team.own.len() == 1).collect();
        sources.sort_by_key(|(at, team)| (team.len(), std::cmp::Reverse(**at)));
        let is_settled = |team: &Team| {
            team.own.iter().chain(&team.riders).all(|fence| self.has_settled(*fence, wall))
        };
        sources.into_iter().filter(|(_, team)| is_settled(team)).find_map(|(from, team)| {
            let ranks = team.own.iter().chain(&team.riders).copied();
            let moves = self.to_others(id, &teams, (*from, ranks.collect()), keep)?;
            Some((keep, moves))
        })
    }

    fn to_others(
        &self,
        id: JobId,
        teams: &BTreeMap<WorkstationId, Team>,
        (from, ranks): (WorkstationId, Vec<Fence>),
        keep: Keep,
    ) -> Option<Vec<(Fence, WorkstationId)>> {
        let source = self.pool.get(from).filter(|it| it.session.is_some())?;
        let takes = |at: &WorkstationId| {
            let target = self.pool.get(*at).filter(|_| self.pool.is_open(*at))?;
            let suits = *at != from && misfit(source, target, keep).is_none();
            suits.then_some((*at, teams[at].len(), self.seats_of(id, *at)))
        };
        let with_places = teams.iter().filter(|(_, team)| !team.own.is_empty());
        let mut targets: Vec<_> = with_places.filter_map(|(at, _)| takes(at)).collect();
        let mut moves = vec![];
        for fence in ranks {
            let open = targets.iter_mut().filter(|(_, _, seats)| *seats > 0);
            let (at, ranks, seats) = open.min_by_key(|(at, ranks, _)| (*ranks, *at))?;
            (*ranks, *seats) = (*ranks + 1, *seats - 1);
            moves.push((fence, *at));
        }
        Some(moves)
    }

    /// Where a rank that wants to leave its owner can share a place: nothing is
    /// free.
    pub(super) fn place_to_share(&self, fence: Fence, keep: Keep) -> Option<WorkstationId> {
        let attempt = self.attempts.get(&fence)?;
        let job = self.jobs.get(&attempt.job).filter(|job| Self::folds(job))?;
        let source = self.pool.get(attempt.workstation).filter(|it| it.session.is_some())?;
        let teams = self.teams(job);
        let with_places = teams.iter().filter(|(at, team)| {
            **at != attempt.workstation
                && !team.own.is_empty()
                && self.seats_of(attempt.job, **at) > 0
        });
        let suits = |at: WorkstationId| {
            let target = self.pool.get(at).filter(|_| self.pool.is_open(at));
            target.is_some_and(|it| misfit(source, it, keep).is_none())
        };
        let suiting = with_places.filter(|(at, _)| suits(**at));
        suiting.min_by_key(|(at, team)| (team.len(), **at)).map(|(at, _)| *at)
    }

    // ── ranks that wait ────────────────────────────────────────────────────

    /// What the program has no place for goes where others of it are, once it
    /// runs on as many as it must.
    pub(super) fn share_places(&mut self, draft: &mut Draft, id: JobId) {
        while let Some((turn, at)) = self.next_to_share(id) {
            self.assign_to(draft, (id, turn), at, true);
        }
    }

    fn next_to_share(&self, id: JobId) -> Option<(Turn, WorkstationId)> {
        let job = self.jobs.get(&id).filter(|job| Self::folds(job) && job.queued() > 0)?;
        if self.schedule.unfilled(id) > 0 || job.held() < job.spec().needs_at_once() {
            return None;
        }
        let (turn, _) = job.turns().next()?;
        let teams = self.teams(job);
        let with_places = teams.iter().filter(|(at, team)| {
            !team.own.is_empty() && self.seats_of(id, **at) > 0 && self.pool.is_open(**at)
        });
        let (at, _) = with_places.min_by_key(|(at, team)| (team.len() / team.own.len(), **at))?;
        Some((turn, *at))
    }

    // ── unfold ─────────────────────────────────────────────────────────────

    /// Gives one of the ranks that share a place one of its own, if that can be.
    pub(super) fn unfold(&mut self, draft: &mut Draft, id: JobId) -> bool {
        if draft.folded.contains(&id) {
            return false;
        }
        let Some(job) = self.jobs.get(&id).filter(|job| job.riding() > 0) else { return false };
        let riders: Vec<(WorkstationId, Fence)> = self
            .teams(job)
            .into_iter()
            .flat_map(|(at, team)| team.riders.into_iter().map(move |fence| (at, fence)))
            .collect();
        let keep = moves_whole(job);
        let asked = job.spec().asked();
        let has_room = |at: WorkstationId| {
            self.pool.standing(at) == Some(Standing::Free)
                && self.pool.get(at).is_some_and(|it| it.has_free(asked))
        };
        if let Some((_, fence)) = riders.iter().find(|(at, _)| has_room(*at)) {
            self.set_rides(draft, *fence, false);
            return true;
        }
        let Some(keep) = keep else { return false };
        riders.into_iter().any(|(_, fence)| self.unfold_away(draft, fence, keep))
    }

    fn unfold_away(&mut self, draft: &mut Draft, fence: Fence, keep: Keep) -> bool {
        if !self.has_settled(fence, draft.wall) {
            return false;
        }
        let moving = Moving::to_fold(keep);
        let Some(target) = self.target_for(fence, &moving) else { return false };
        self.moves.insert(fence, moving);
        self.begin_move(draft, fence, Target::own(target));
        true
    }

    // ── bookkeeping ────────────────────────────────────────────────────────

    /// The attempt shares a place from now on, or has one of its own.
    pub(super) fn set_rides(&mut self, draft: &mut Draft, fence: Fence, rides: bool) {
        let Some(attempt) = self.attempts.get_mut(&fence).filter(|it| it.rides != rides) else {
            return;
        };
        attempt.rides = rides;
        let (id, at) = (attempt.job, attempt.workstation);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let counted = if job.fence(attempt.position) == Some(fence) {
            job.count_riding(!attempt.stage.is_suspended(), rides);
            !attempt.stage.is_suspended()
        } else {
            if rides {
                job.no_more_coming();
            } else {
                job.sets_out();
            }
            true
        };
        let (user, each) = (job.record().user.clone(), job.each());
        if rides {
            self.shares.ended(draft.now, &user, each);
        } else {
            self.shares.placed(draft.now, &user, each);
        }
        self.change_workstation(draft.now, at, |w| w.set_rides(fence, rides));
        if rides && counted {
            self.schedule.lost(id);
        }
        self.schedule.changed(id);
        self.send_riders(draft, at);
    }

    /// Its agent does not count them.
    pub(super) fn send_riders(&self, draft: &mut Draft, at: WorkstationId) {
        let Some(workstation) = self.pool.get(at) else { return };
        let fences = workstation.riders().collect();
        self.send(draft, at, CoordinatorFrame::Riders { fences });
    }

    /// An attempt of the job has left. If too few places are left to share, one
    /// of those who shared has its place.
    pub(super) fn pass_place_on(&mut self, draft: &mut Draft, id: JobId, at: WorkstationId) {
        let of_it = |fence: &Fence| self.attempts.get(fence).filter(|it| it.job == id);
        let left: Vec<Fence> = self.attempts_at(at);
        let left = left.into_iter().filter_map(|fence| Some((fence, of_it(&fence)?.rides)));
        let (riders, own): (Vec<_>, Vec<_>) = left.partition(|(_, rides)| *rides);
        if let Some((first, _)) = riders.first().filter(|_| riders.len() > own.len()) {
            self.set_rides(draft, *first, false);
        }
    }

    /// More guests are there than places: those of one program share, as they
    /// did before the coordinator forgot.
    pub(super) fn share_again(&mut self, draft: &mut Draft, at: WorkstationId) {
        while self.pool.get(at).is_some_and(Workstation::is_overfull) {
            let mut seen = BTreeSet::new();
            let surplus = self.attempts_at(at).into_iter().find(|fence| {
                let attempt = self.attempts.get(fence).filter(|it| !it.rides);
                attempt.is_some_and(|it| {
                    let folds = self.jobs.get(&it.job).is_some_and(Self::folds);
                    folds && !seen.insert(it.job)
                })
            });
            let Some(fence) = surplus else { return };
            self.set_rides(draft, fence, true);
        }
    }

    /// A rank that was to leave so that places are shared has left, or stays.
    pub(super) fn fold_ended(&mut self, id: JobId, fence: Fence) {
        if let Some(folding) = self.schedule.folding.get_mut(&id) {
            folding.leaving.remove(&fence);
        }
    }

    /// The places are to be taken from a program that does not give them.
    pub(super) fn enforce(&mut self, draft: &mut Draft, id: JobId, by: u32) {
        let given = self.fold(draft, id, by);
        let note = if given == by {
            format!("{by} of its processors are taken: its ranks share the others")
        } else {
            format!("{by} of its processors were to be taken, and {given} can be")
        };
        self.note(draft, id, note);
        self.schedule.folding.entry(id).or_default().enforced = true;
    }

    /// Says of foldings that are over that nothing more comes of them: what came
    /// was told as it did.
    pub(super) fn conclude_folding(&mut self, draft: &mut Draft) {
        let over = self.schedule.folding.iter().filter(|(_, it)| it.leaving.is_empty());
        for (id, enforced) in over.map(|(id, it)| (*id, it.enforced)).collect::<Vec<_>>() {
            self.schedule.folding.remove(&id);
            match self.jobs.get_mut(&id).and_then(|job| job.program.as_mut()) {
                Some(program) if enforced => {
                    program.enforced(0);
                    self.obey_program(draft, id);
                }
                Some(_) | None => self.gives_no_more(draft, id),
            }
        }
    }

    /// What could not be given may be by now.
    pub(super) fn ask_again(&mut self, now: Moment) {
        if self.schedule.fold_again.take_if(|at| *at <= now).is_some() {
            self.tell(now, Fact::Suits);
        }
    }

    fn gives_no_more(&mut self, draft: &Draft, id: JobId) {
        if self.schedule.scheduler.state().get(id).is_some_and(|it| it.asked > 0) {
            self.schedule.fold_again.get_or_insert(draft.now + ASKED_AGAIN_AFTER);
            self.tell(draft.now, Fact::Answered { job: id, by: 0 });
        }
    }

    /// Asks a program that does not negotiate for places: what can be shared at
    /// once is given at once.
    pub(super) fn shrink_by_folding(&mut self, draft: &mut Draft, id: JobId, by: u32) {
        self.fold(draft, id, by);
        self.schedule.folding.entry(id).or_default();
        self.tell_scheduler(draft);
        self.conclude_folding(draft);
    }
}
