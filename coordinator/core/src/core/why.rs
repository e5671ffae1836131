//! Why is this subprogram not running, and this workstation not used?
//!
//! Every answer is a list of sentences, the deciding one first. They come from
//! what the core decides by: a workstation's standing, a subprogram's turn and
//! its last attempt's end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gleaner_common::id::{Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::report::SubprogramState;
use gleaner_common::time::{Moment, Spoken};

use super::Core;
use super::ends::placed_state;
use crate::job::{Job, Position, Whereabouts};
use crate::needs::{Needs, Unmet};
use crate::record::{History, short};
use crate::scheduler::Reason;
use crate::workstation::{Standing, Workstation};

impl Core {
    /// Why is this subprogram not running, or where does it? `None` if it has
    /// ended or never was.
    pub fn why_subprogram(&self, now: Moment, id: SubprogramId) -> Option<Vec<String>> {
        let job = self.jobs.get(&id.job)?;
        let position = job.position(id.index)?;
        let history = job.known(position);
        let mut reasons = match job.whereabouts(position) {
            Whereabouts::Ended => return None,
            Whereabouts::Placed(fence) => self.why_placed(now, fence)?,
            Whereabouts::Queued { before } => {
                let avoided = job.avoided(position).rather;
                self.why_queued(now, job, before, &avoided)
            }
        };
        reasons.extend(self.why_undecided(job, position));
        reasons.extend(history.map(|history| self.what_happened(job, &history)));
        Some(reasons)
    }

    /// Why has this job not ended? `None` if it has or never was.
    pub fn why_job(&self, now: Moment, id: JobId) -> Option<Vec<String>> {
        let job = self.jobs.get(&id)?;
        let summary = job.summary();
        let mut reasons = vec![];
        if summary.queued > 0 {
            reasons.extend(self.why_not_settled(now, id));
            reasons.extend(self.what_nobody_has(job));
            reasons.extend(self.too_few(job));
            reasons.extend(self.why_nothing_is_free());
            reasons.extend(self.why_nothing_free_suits(job));
            reasons.extend(self.why_not_scheduled(job));
            reasons.extend(self.who_is_before(now, job));
            reasons.push(format!("{} queued", subprograms(summary.queued.into())));
        }
        if let Some((position, oldest)) = job.placed().min_by_key(|(_, fence)| *fence) {
            let placed = summary.running + summary.suspended;
            let suspended = summary.suspended;
            reasons.push(format!("{placed} are on workstations, {suspended} of them suspended"));
            if job.riding() > 0 {
                reasons.push(format!("{} of them share places of others", job.riding()));
            }
            let id = job.subprogram(position);
            let where_it_is = self.why_placed(now, oldest)?.into_iter().next()?;
            reasons.push(format!("the one placed first, {id}, {where_it_is}"));
            reasons.extend(self.why_not_all_moved(job));
        }
        Some(reasons)
    }

    /// Why is this workstation not used, or by whom is it?
    pub fn why_workstation(&self, now: Moment, id: WorkstationId) -> Option<Vec<String>> {
        let workstation = self.pool.get(id)?;
        let standing = self.pool.standing(id)?;
        let mut reasons = vec![];
        if standing == Standing::Free && self.queues.is_empty() {
            reasons.push("nothing is queued".to_owned());
        } else if standing == Standing::Free {
            reasons.push("what is queued failed or ran here and waits for a choice".to_owned());
        }
        reasons.push(self.standing_reason(now, id)?);
        for fence in workstation.attempts() {
            let Some(attempt) = self.attempts.get(&fence) else { continue };
            let Some(job) = self.jobs.get(&attempt.job) else { continue };
            let subprogram = job.subprogram(attempt.position);
            let (state, user) = (placed_state(attempt.stage).name(), &job.record().user);
            reasons.push(format!("subprogram {subprogram} of {user} is {state} there ({fence})"));
        }
        reasons.extend(workstation.facts.missing.iter().map(|what| format!("it lacks {what}")));
        Some(reasons)
    }

    /// A workstation's standing in words.
    pub(super) fn standing_reason(&self, now: Moment, id: WorkstationId) -> Option<String> {
        let workstation = self.pool.get(id)?;
        let presence = workstation.presence.as_ref().map_or("nothing heard", |p| p.reason.as_str());
        let guests = workstation.attempts().len();
        let places = workstation.facts.places;
        let reason = match self.pool.standing(id)? {
            Standing::Drained => match guests {
                0 => "drained: an admin wants nothing placed here".to_owned(),
                _ => {
                    format!("drained: nothing new is placed, guests that finish or leave: {guests}")
                }
            },
            Standing::Away => match workstation.since {
                Some(at) => format!("not connected for {}", Spoken(now.since(at))),
                None => "not connected since the coordinator started".to_owned(),
            },
            Standing::Leaving => {
                let reason = workstation.leaving.as_deref().unwrap_or_default();
                format!("leaving: {reason}")
            }
            Standing::Busy => format!("busy: {presence}"),
            Standing::Silent => {
                format!("not heard from for {}", Spoken(now.since(workstation.heard)))
            }
            Standing::Resting => match &workstation.rest {
                Some((_, reason)) => format!("returned work just now: {reason}"),
                None => String::new(),
            },
            Standing::Unready => String::new(),
            Standing::NoSlots if places == 0 => "it offers no places".to_owned(),
            Standing::NoSlots => format!("no core is free of its owner: {presence}"),
            Standing::Full => {
                let room = workstation.capacity().cores;
                format!("full: guests: {guests}, room: {room}, places: {places}")
            }
            Standing::Free if self.pool.kept() == Some(id) => match self.schedule.kept_for() {
                Some(job) => format!("kept until there is enough free for job {job}"),
                None => "kept until more of it is free".to_owned(),
            },
            Standing::Free => format!("idle: {presence}"),
        };
        let is_told = self.pool.standing(id)? == Standing::Drained;
        let reason =
            if workstation.drained && !is_told { format!("{reason}; drained") } else { reason };
        let all = [reason].into_iter().filter(|reason| !reason.is_empty());
        Some(all.chain(self.troubles(now, id)).collect::<Vec<_>>().join("; "))
    }

    /// What somebody should see to at a workstation.
    pub(super) fn troubles(&self, now: Moment, id: WorkstationId) -> Vec<String> {
        let Some(workstation) = self.pool.get(id) else { return vec![] };
        let unready = workstation.facts.unready.as_ref().filter(|_| workstation.session.is_some());
        let unready = unready.map(|why| format!("not ready: {why}"));
        let accusers = self.blame.accusers(now, id);
        let fails = match &workstation.blamed {
            Some((until, reason)) if now < *until => {
                Some(format!("rests for {} more: {reason}", Spoken(until.since(now))))
            }
            _ if accusers.is_empty() => None,
            _ => {
                Some(format!("what {} submits fails here and works elsewhere", accusers.join(", ")))
            }
        };
        let copy = workstation.copy.as_ref().filter(|copy| copy.is_told(now)).map(|copy| {
            let (own, other) = (&workstation.facts.machine.hostname, &copy.host);
            let span = Spoken(now.since(copy.since));
            format!("two machines have its identity: {own}, and {other}, refused for {span}")
        });
        [unready, fails, copy].into_iter().flatten().collect()
    }

    fn why_placed(&self, now: Moment, fence: Fence) -> Option<Vec<String>> {
        let attempt = self.attempts.get(&fence)?;
        let name = self.workstation_name(attempt.workstation)?;
        let there = self.standing_reason(now, attempt.workstation)?;
        Some(match placed_state(attempt.stage) {
            SubprogramState::Placed => vec![
                format!("is placed on {name} ({fence}) and has not started"),
                format!("{name} is {there}"),
            ],
            state @ (SubprogramState::Suspended | SubprogramState::Demoted) => {
                let mut reasons = vec![format!("is {} on {name} ({fence}): {there}", state.name())];
                reasons.extend(self.why_not_moved(fence));
                reasons
            }
            SubprogramState::Running
            | SubprogramState::Queued
            | SubprogramState::Succeeded
            | SubprogramState::Failed
            | SubprogramState::Cancelled => {
                let mut reasons = vec![format!("runs on {name} ({fence})")];
                reasons.extend(self.why_not_moved(fence));
                reasons
            }
        })
    }

    fn why_queued(
        &self,
        now: Moment,
        job: &Job,
        before: u32,
        avoided: &[WorkstationId],
    ) -> Vec<String> {
        let mut reasons: Vec<String> = self.why_not_settled(now, job.id()).into_iter().collect();
        reasons.extend(self.what_nobody_has(job));
        reasons.extend(self.too_few(job));
        reasons.extend(self.why_nothing_is_free());
        reasons.extend(self.why_nothing_free_suits(job));
        reasons.extend(self.why_not_scheduled(job));
        if !avoided.is_empty() && self.pool.has_free() {
            let names = self.names(avoided);
            reasons.push(format!("it failed on {names} and waits for another workstation"));
        }
        let suspected = self.suspected(now, job);
        if !suspected.is_empty() && self.pool.has_free() {
            let names = self.names(&suspected);
            reasons.push(format!("others of its job or user fail on {names}, one after the other"));
        }
        if before > 0 {
            reasons.push(format!("{} of its job before it", subprograms(before.into())));
        }
        reasons.extend(self.who_is_before(now, job));
        if reasons.is_empty() {
            reasons.push("it is about to be placed".to_owned());
        }
        reasons
    }

    /// The scheduler's own reason, if it says more than that nothing is free.
    fn why_not_scheduled(&self, job: &Job) -> Option<String> {
        let reason = self.schedule.scheduler.why(job.id())?;
        let is_plain = matches!(reason, Reason::TooFewFree { needs: 0 | 1, .. });
        (!is_plain).then(|| reason.to_string())
    }

    /// Why no workstation is free: how many are in which state.
    fn why_nothing_is_free(&self) -> Option<String> {
        if self.pool.has_free() {
            return None;
        }
        if self.pool.len() == 0 {
            return Some("no workstation is enrolled".to_owned());
        }
        let kinds = [
            (Standing::Free, "kept until more of it is free"),
            (Standing::Full, "full"),
            (Standing::Drained, "drained"),
            (Standing::Busy, "busy with their owners"),
            (Standing::Unready, "not ready for guests"),
            (Standing::NoSlots, "without a core free of their owners"),
            (Standing::Resting, "just returned work"),
            (Standing::Silent, "silent"),
            (Standing::Leaving, "about to sleep or stop"),
            (Standing::Away, "not connected"),
        ];
        let counts: Vec<String> = kinds
            .into_iter()
            .filter(|(standing, _)| self.pool.count(*standing) > 0)
            .map(|(standing, what)| format!("{} {what}", self.pool.count(standing)))
            .collect();
        Some(format!("no workstation is free; of {}: {}", self.pool.len(), counts.join(", ")))
    }

    /// Of those that are free, which condition excludes how many now.
    fn why_nothing_free_suits(&self, job: &Job) -> Option<String> {
        let needs = job.needs();
        if !self.pool.has_free() || self.pool.room_for(1, needs) > 0 {
            return None;
        }
        let mut excludes = Excludes::default();
        for (_, workstation) in self.pool.free_ones() {
            let lacking = lacking_now(needs, workstation).into_iter().map(|(what, _)| what);
            excludes.count(needs.unmet(workstation).into_iter().map(|it| it.what).chain(lacking));
        }
        Some(format!("none of the {} with a free core suits it now: {excludes}", excludes.of))
    }

    /// Which users come first and why, and what of the user's own.
    fn who_is_before(&self, now: Moment, job: &Job) -> Vec<String> {
        let user = job.record().user.as_str();
        let mut reasons = vec![];
        let waiting = self.waiting(now);
        let first: Vec<&str> =
            waiting.iter().map(|next| next.user).take_while(|other| *other != user).collect();
        if let Some(other) = first.first() {
            let why = self.why_first(now, other, user);
            let users = if first.len() == 1 { "1 user comes" } else { "users come" };
            let count = if first.len() == 1 { String::new() } else { format!("{} ", first.len()) };
            reasons.push(format!("{count}{users} first: {why}"));
        }
        let running_max = self.shares.config().running_max;
        if !self.shares.may_run(user) {
            reasons.push(format!("{user} has {running_max} places, as many as one user may"));
        }
        let Some(own) = self.queues.of(user) else { return reasons };
        let (jobs, waiting) = (own.before(job).count(), self.queued_of(own.before(job)));
        if jobs > 0 {
            let before = format!("{} of {user}'s own", subprograms(waiting));
            reasons
                .push(format!("{before} before it, of higher priority or earlier ({jobs} jobs)"));
        }
        reasons
    }

    fn why_first(&self, now: Moment, other: &str, user: &str) -> String {
        let (theirs, ours) = (self.shares.claim(now, other), self.shares.claim(now, user));
        if !theirs.order(&ours).is_lt() {
            return format!("{other} was earlier, with as much used");
        }
        match self.shares.group(other) {
            Some(group) if self.shares.group(user) != Some(group) => {
                format!("{other}'s group {group} used less of its share")
            }
            Some(_) | None => format!("{other} used less of their share"),
        }
    }

    /// What the job asks for and no workstation has.
    fn what_nobody_has(&self, job: &Job) -> Vec<String> {
        self.unmet(job.needs()).into_iter().collect()
    }

    /// There are fewer workstations than a subprogram is to run on.
    pub(super) fn too_few(&self, job: &Job) -> Option<String> {
        let wanted = job.replicas()?.wanted();
        let known = self.pool.known().count();
        (known > 0 && known < wanted as usize).then(|| {
            format!("of {wanted} workstations that each subprogram is to run on there are {known}")
        })
    }

    /// How its replicas stand, of a replicated subprogram.
    fn why_undecided(&self, job: &Job, subprogram: Position) -> Vec<String> {
        let mut reasons = vec![];
        let Some(replicas) = job.replicas() else { return reasons };
        let (mut answered, mut waiting) = (vec![], 0);
        for position in replicas.of(subprogram) {
            let last = replicas.trail(position).last().copied();
            match (replicas.answer(position), job.fence(position)) {
                (Some(answer), _) => {
                    let name = self.names(last.as_slice());
                    answered.push(format!("{name} ({})", short(answer)));
                }
                (None, None) => {
                    waiting += 1;
                    reasons.extend(self.why_not_elsewhere(job, position));
                }
                (None, Some(_)) => {}
            }
        }
        reasons.truncate(1);
        if waiting > 0 {
            reasons.insert(0, format!("replicas of it that wait: {waiting}"));
        }
        if !answered.is_empty() {
            let (wanted, answered) = (replicas.wanted(), answered.join(", "));
            let quorum = wanted / 2 + 1;
            reasons.push(format!("it counts when {quorum} agree; so far answered {answered}"));
        }
        reasons
    }

    /// Where a waiting replica cannot go, if that is all that there is.
    fn why_not_elsewhere(&self, job: &Job, position: Position) -> Option<String> {
        let barred = job.avoided(position).never;
        let mut free = self.pool.free_ones().peekable();
        let only_these = free.peek().is_some() && free.all(|(id, _)| barred.contains(&id));
        only_these.then(|| {
            let there = self.names(&barred);
            format!("it waits for another workstation than {there}, where others of it have run")
        })
    }

    /// Why no workstation that was heard of could ever take it: which condition
    /// excludes how many, and which workstation is nearest.
    pub(super) fn unmet(&self, needs: Needs<'_>) -> Option<String> {
        if needs.are_none() {
            return None;
        }
        let mut excludes = Excludes::default();
        let mut nearest: Option<(Vec<Unmet>, &Workstation)> = None;
        for workstation in self.pool.known() {
            let unmet = needs.unmet(workstation);
            if unmet.is_empty() {
                return None;
            }
            excludes.count(unmet.iter().map(|it| it.what.clone()));
            let rank = |unmet: &[Unmet], it: &Workstation| (unmet.len(), Reverse(order(needs, it)));
            let is_nearer = nearest
                .as_ref()
                .is_none_or(|(least, it)| rank(&unmet, workstation) < rank(least, it));
            if is_nearer {
                nearest = Some((unmet, workstation));
            }
        }
        let (lacks, Workstation { name, .. }) = nearest?;
        let lacks: Vec<_> = lacks.iter().map(ToString::to_string).collect();
        Some(format!(
            "no workstation meets all that is required; of {}: {excludes}; the nearest is {name}, \
             without {}",
            excludes.of,
            lacks.join(" and ")
        ))
    }

    fn what_happened(&self, job: &Job, history: &History) -> String {
        let name = self.workstation_name(history.last.workstation).unwrap_or("a workstation");
        let (outcome, retries) = (&history.last.outcome, job.spec().retries);
        let (attempts, failures) = (history.attempts, history.failures);
        format!(
            "its last attempt, on {name}, {outcome} (attempts: {attempts}, failures: {failures}, \
             retries: {retries})"
        )
    }
}

/// Which conditions exclude how many of so many workstations.
#[derive(Debug, Default)]
struct Excludes {
    of: usize,
    by: BTreeMap<String, usize>,
}

impl Excludes {
    /// One workstation, and each condition that excludes it.
    fn count(&mut self, those: impl Iterator<Item = String>) {
        self.of += 1;
        for what in those.collect::<BTreeSet<_>>() {
            *self.by.entry(what).or_default() += 1;
        }
    }
}

impl fmt::Display for Excludes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |(what, count): (&String, &usize)| format!("`{what}` excludes {count}");
        f.write_str(&self.by.iter().map(of).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lends {
            Some(lends) => write!(f, "`{}` (it lends {lends})", self.what),
            None => write!(f, "`{}`", self.what),
        }
    }
}

/// How near a workstation comes to what is asked: the amounts in the order in
/// which they are lacking most often.
fn order(needs: Needs<'_>, of: &Workstation) -> (u16, u16, u64, u64) {
    let (asked, lends) = (needs.asked, of.facts.lends());
    (
        lends.gpus.min(asked.gpus),
        lends.cores.min(asked.cores),
        lends.memory_bytes.min(asked.memory_bytes),
        lends.disk_bytes.min(asked.disk_bytes),
    )
}

/// What of the amounts asked is lent there and not free now, and what is.
fn lacking_now(needs: Needs<'_>, at: &Workstation) -> Vec<(String, String)> {
    at.facts.lends().part(needs.asked).lacking(at.free())
}

/// What somebody who needs this misses there now.
pub(super) fn lacks_now(needs: Needs<'_>, at: &Workstation) -> Option<String> {
    let unmet = needs.unmet(at).into_iter().map(|it| it.what);
    let lacking = lacking_now(needs, at).into_iter().map(|(what, _)| what);
    unmet.chain(lacking).next().map(|what| format!("`{what}` is not to be had there"))
}

fn subprograms(count: u64) -> String {
    if count == 1 { "1 subprogram".to_owned() } else { format!("{count} subprograms") }
}
