//! The desk's guests, from the offer to the acknowledged end.
//!
//! ```text
//! offered ─► waiting ─► at a place ─┬─► collected ─┬─► end told ─► acknowledged
//!               │                   │              │
//!               └───────────────────┴──────────────┘  refused, retreated, finished
//! ```

use std::sync::Arc;

use gleaner_common::id::{Fence, JobId, PlaceId, SubprogramId};
use gleaner_common::job::{JobSpec, Outcome, Reaction};
use gleaner_common::time::{Moment, Spoken};
use gleaner_common::wire::{AgentFrame, AttemptEvent, Finished, GuestState, Offer, Terms};

use super::{Desk, Effect, Exit, Left, Out, Start, WAITING_MAX};
use crate::place::{self, Clock, End, Owner, Why};

/// An attempt that was accepted and has not ended.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) subprogram: SubprogramId,
    pub(super) spec: Arc<JobSpec>,
    pub(super) offered: Moment,
    pub(super) stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    Waiting,
    At(PlaceId),
    /// Its processes have ended; what they left is being staged.
    Collecting(Box<Finished>),
}

/// A job whose attempts are offered on this connection.
#[derive(Debug)]
pub(super) struct Job {
    spec: Arc<JobSpec>,
    inputs: Inputs,
    /// No more of it will be offered.
    pub(super) forgotten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inputs {
    Elsewhere,
    OnTheirWay,
    Here,
}

impl Inputs {
    fn of(spec: &JobSpec) -> Self {
        if spec.inputs.is_empty() { Self::Here } else { Self::Elsewhere }
    }
}

impl Desk {
    // ── offers ─────────────────────────────────────────────────────────────

    pub(super) fn described(&mut self, job: JobId, spec: JobSpec) {
        let known = self.jobs.get(&job).filter(|known| *known.spec == spec);
        let inputs = known.map_or(Inputs::of(&spec), |known| known.inputs);
        self.jobs.insert(job, Job { spec: Arc::new(spec), inputs, forgotten: false });
    }

    pub(super) fn forget(&mut self, job: JobId, out: &mut Out) {
        if let Some(known) = self.jobs.get_mut(&job) {
            known.forgotten = true;
        }
        self.tidy(job, out);
    }

    /// A new connection: jobs are described again before they are offered. What
    /// was not described on the last one was forgotten while nobody listened.
    pub(super) fn doubt_jobs(&mut self, out: &mut Out) {
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.tidy(job, out);
        }
        for job in self.jobs.values_mut() {
            job.forgotten = true;
        }
    }

    /// Lets go of a forgotten job when nothing of it waits any more.
    fn tidy(&mut self, job: JobId, out: &mut Out) {
        let waits = |fence| self.attempts.get(fence).is_some_and(|a| a.subprogram.job == job);
        if self.jobs.get(&job).is_none_or(|known| !known.forgotten)
            || self.waiting.iter().any(waits)
        {
            return;
        }
        if let Some(known) = self.jobs.remove(&job)
            && !known.spec.inputs.is_empty()
        {
            out.then.push(Effect::Discard { job });
        }
    }

    pub(super) fn offered(&mut self, now: Moment, offer: &Offer, out: &mut Out) {
        let Offer { fence, subprogram } = *offer;
        // Answered already.
        if self.attempts.contains_key(&fence) || self.ends.contains_key(&fence) {
            return;
        }
        let spec = match self.judge(now, offer) {
            Ok(spec) => spec,
            Err(reason) => return self.tell(AttemptEvent::Refused { fence, reason }, out),
        };
        self.newest = fence;
        self.prepare(subprogram.job, out);
        let attempt = Attempt { subprogram, spec, offered: now, stage: Stage::Waiting };
        self.attempts.insert(fence, attempt);
        self.waiting.push_back(fence);
    }

    /// May it wait for a place here? If not, why not.
    fn judge(&self, now: Moment, offer: &Offer) -> Result<Arc<JobSpec>, String> {
        let Some(job) = self.jobs.get(&offer.subprogram.job) else {
            return Err(format!("job {} was not described", offer.subprogram.job));
        };
        if offer.fence <= self.newest {
            return Err(format!("overtaken by attempt {}", self.newest));
        }
        if self.leaving.is_some() || self.owner != Owner::Away {
            return Err(self.occupancy.verdict(now));
        }
        if self.places.is_empty() {
            return Err("no guest place is configured here".into());
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err(format!("{WAITING_MAX} attempts are waiting here already"));
        }
        match job.spec.on_busy.reaction {
            Reaction::Renice | Reaction::Suspend | Reaction::Retreat => Ok(job.spec.clone()),
            later @ (Reaction::Migrate | Reaction::Rollback) => {
                Err(format!("reaction {} is not available here", later.name()))
            }
        }
    }

    fn prepare(&mut self, job: JobId, out: &mut Out) {
        if let Some(known) = self.jobs.get_mut(&job)
            && known.inputs == Inputs::Elsewhere
        {
            known.inputs = Inputs::OnTheirWay;
            out.then.push(Effect::Prepare { job, spec: known.spec.clone() });
        }
    }

    pub(super) fn staged(&mut self, job: JobId) {
        if let Some(known) = self.jobs.get_mut(&job) {
            known.inputs = Inputs::Here;
        }
    }

    pub(super) fn staging_failed(
        &mut self,
        job: JobId,
        reason: &str,
        hopeless: bool,
        out: &mut Out,
    ) {
        if let Some(known) = self.jobs.get_mut(&job) {
            known.inputs = Inputs::of(&known.spec);
        }
        for fence in self.waiting_of(|attempt| attempt.subprogram.job == job) {
            self.end(not_started(fence, reason.to_owned(), hopeless), out);
        }
    }

    // ── places ─────────────────────────────────────────────────────────────

    /// Starts what waits, as far as owner, lease and places allow.
    pub(super) fn fill(&mut self, now: Moment, out: &mut Out) {
        while self.leaving.is_none() && self.owner == Owner::Away {
            let Some(free) = self.free_place(now) else { return };
            let Some(fence) = self.next_staged() else { return };
            if !self.lease.is_valid(now) {
                // Without guests it is renewed too seldom to last. Ask for it.
                if !self.lease.is_asking(now) {
                    self.beat(now, out);
                }
                return;
            }
            self.start(now, free, fence, out);
        }
    }

    /// A free place, if the owner leaves enough cores for one more guest.
    fn free_place(&self, now: Moment) -> Option<PlaceId> {
        let slots = self.occupancy.slots(now);
        // On a machine that nobody uses, its configuration says how many
        // guests run; cores that the owner needs come off that.
        let taken = self.setup.facts.cores.saturating_sub(slots);
        let guests = self.places.iter().filter(|place| !place.is_free()).count();
        let places = self.places.len().saturating_sub(usize::from(taken));
        if slots == 0 || guests >= places {
            return None;
        }
        let index = self.places.iter().position(place::Place::is_free)?;
        u16::try_from(index).ok().map(PlaceId)
    }

    /// The oldest attempt whose input files are here.
    fn next_staged(&self) -> Option<Fence> {
        self.waiting.iter().copied().find(|fence| {
            let job = self.attempts.get(fence).and_then(|a| self.jobs.get(&a.subprogram.job));
            job.is_some_and(|job| job.inputs == Inputs::Here)
        })
    }

    fn start(&mut self, now: Moment, place: PlaceId, fence: Fence, out: &mut Out) {
        self.waiting.retain(|waiting| *waiting != fence);
        let Some(attempt) = self.attempts.get_mut(&fence) else { return };
        attempt.stage = Stage::At(place);
        let terms = Terms::from(&*attempt.spec);
        let job = attempt.subprogram.job;
        let effects = self.places[usize::from(place.0)].take(now, fence, terms);
        self.carry_out(place, effects, None, out);
        self.tidy(job, out);
    }

    /// The owner came, left or claimed the machine.
    pub(super) fn turn_places(&mut self, now: Moment, owner: Owner, out: &mut Out) {
        for index in 0..self.places.len() {
            let effects = self.places[index].turned(now, owner);
            self.carry_out(place_id(index), effects, Some(now), out);
        }
        if owner != Owner::Away {
            let reason = self.occupancy.reason(now);
            for fence in self.waiting_of(|_| true) {
                let reason = format!("not started: {reason}");
                self.end(AttemptEvent::Retreated { fence, reason, suspensions: 0 }, out);
            }
        }
    }

    pub(super) fn wake_places(&mut self, now: Moment, out: &mut Out) {
        for index in 0..self.places.len() {
            let effects = self.places[index].wake(now);
            self.carry_out(place_id(index), effects, Some(now), out);
        }
    }

    /// When attempts have to be given up because nobody has been heard.
    pub(super) fn expires_at(&self) -> Option<Moment> {
        let until = self.lease.until()?;
        self.attempts.values().any(|attempt| attempt.is_under(until)).then_some(until)
    }

    /// Ends what the lease covered, if it has ended. The coordinator places
    /// it elsewhere from now on.
    pub(super) fn expire(&mut self, now: Moment, out: &mut Out) {
        let Some(until) = self.expires_at().filter(|until| now >= *until) else { return };
        let reason = format!("the lease ended {} ago", Spoken(now.since(until)));
        self.send_back(now, &reason, out, |_, attempt| attempt.is_under(until));
    }

    /// Abandons guests that run or wait, and returns their work. What has run
    /// to its end is kept.
    pub(super) fn send_back(
        &mut self,
        now: Moment,
        reason: &str,
        out: &mut Out,
        which: impl Fn(Fence, &Attempt) -> bool,
    ) {
        let chosen: Vec<_> = self
            .attempts
            .iter()
            .filter(|(fence, attempt)| which(**fence, attempt))
            .map(|(fence, attempt)| (*fence, attempt.place()))
            .collect();
        for (fence, place) in chosen {
            if let Some(place) = place {
                let effects = self.places[usize::from(place.0)].retreat(now);
                self.carry_out_because(place, effects, reason, out);
            } else if self.waiting.contains(&fence) {
                let reason = format!("not started: {reason}");
                self.end(AttemptEvent::Retreated { fence, reason, suspensions: 0 }, out);
            }
        }
    }

    // ── what the keepers say ───────────────────────────────────────────────

    pub(super) fn started(&mut self, now: Moment, fence: Fence, out: &mut Out) {
        let Some(attempt) = self.attempts.get(&fence) else { return };
        let Some(place) = attempt.place() else { return };
        let waited = now.since(attempt.offered);
        self.report(AttemptEvent::Started { fence, waited }, out);
        // The owner may have come while it was being started.
        match self.places[usize::from(place.0)].guest() {
            Some((_, GuestState::Suspended)) => {
                self.report(AttemptEvent::Suspended { fence }, out);
            }
            Some((_, GuestState::Demoted)) => self.report(AttemptEvent::Demoted { fence }, out),
            Some((_, GuestState::Running | GuestState::Waiting)) | None => {}
        }
    }

    pub(super) fn start_failed(
        &mut self,
        now: Moment,
        fence: Fence,
        reason: String,
        hopeless: bool,
        out: &mut Out,
    ) {
        for place in self.places.iter_mut().filter(|place| place.holds(fence)) {
            let _ = place.exited(now, fence);
        }
        if self.attempts.contains_key(&fence) {
            self.end(not_started(fence, reason, hopeless), out);
        }
    }

    pub(super) fn exited(&mut self, now: Moment, fence: Fence, exit: Exit, out: &mut Out) {
        let Some(place) = self.places.iter_mut().find(|place| place.holds(fence)) else { return };
        let Some(place::Effect::Finish { end, clock, .. }) = place.exited(now, fence).pop() else {
            return;
        };
        let Some(attempt) = self.attempts.get_mut(&fence) else { return };
        let mut finished = finished(fence, outcome(end, exit.outcome), clock);
        finished.cpu = exit.cpu;
        match exit.left {
            Some(left) => self.end(with(finished, left), out),
            None => attempt.stage = Stage::Collecting(Box::new(finished)),
        }
    }

    pub(super) fn collected(&mut self, fence: Fence, left: Left, out: &mut Out) {
        let Some(Attempt { stage: Stage::Collecting(finished), .. }) = self.attempts.get(&fence)
        else {
            return;
        };
        self.end(with((**finished).clone(), left), out);
    }

    pub(super) fn collecting_failed(&mut self, fence: Fence, reason: &str, out: &mut Out) {
        let Some(Attempt { stage: Stage::Collecting(finished), .. }) = self.attempts.get(&fence)
        else {
            return;
        };
        let suspensions = finished.suspensions;
        let reason = format!("its result was lost: {reason}");
        self.end(AttemptEvent::Retreated { fence, reason, suspensions }, out);
    }

    pub(super) fn over_limit(&mut self, now: Moment, fence: Fence, what: String, out: &mut Out) {
        let Some(index) = self.places.iter().position(|place| place.holds(fence)) else { return };
        let effects = self.places[index].over_limit(now, fence, what);
        self.carry_out(place_id(index), effects, Some(now), out);
    }

    // ── ends ───────────────────────────────────────────────────────────────

    /// Nobody wants it any more: no word of it.
    pub(super) fn cancel(&mut self, now: Moment, fence: Fence, out: &mut Out) {
        let Some(attempt) = self.attempts.remove(&fence) else { return };
        match attempt.stage {
            Stage::Waiting => self.waiting.retain(|waiting| *waiting != fence),
            Stage::At(place) => {
                let effects = self.places[usize::from(place.0)].cancel(now, fence);
                self.carry_out(place, effects, None, out);
            }
            Stage::Collecting(_) => out.then.push(Effect::Abandon { fence }),
        }
        self.tidy(attempt.subprogram.job, out);
    }

    /// The welcome says which of the held guests are still wanted.
    pub(super) fn keep_only(&mut self, now: Moment, keep: &[Fence], out: &mut Out) {
        let unwanted = self.attempts.keys().copied().filter(|fence| !keep.contains(fence));
        for fence in unwanted.collect::<Vec<_>>() {
            self.cancel(now, fence, out);
        }
    }

    pub(super) fn held(&self) -> Vec<(Fence, GuestState)> {
        self.attempts.iter().map(|(fence, attempt)| (*fence, self.state(attempt))).collect()
    }

    pub(super) fn state(&self, attempt: &Attempt) -> GuestState {
        match attempt.stage {
            Stage::Waiting => GuestState::Waiting,
            Stage::At(place) => self.places[usize::from(place.0)]
                .guest()
                .map_or(GuestState::Running, |(_, state)| state),
            Stage::Collecting(_) => GuestState::Running,
        }
    }

    /// Ends an accepted attempt.
    fn end(&mut self, end: AttemptEvent, out: &mut Out) {
        let fence = end.fence();
        let Some(attempt) = self.attempts.remove(&fence) else { return };
        if matches!(attempt.stage, Stage::Waiting) {
            self.waiting.retain(|waiting| *waiting != fence);
        }
        self.tell(end, out);
        self.tidy(attempt.subprogram.job, out);
    }

    /// Tells of an end now and on every connection until it is acknowledged.
    fn tell(&mut self, end: AttemptEvent, out: &mut Out) {
        self.ends.insert(end.fence(), end.clone());
        self.report(end, out);
    }

    fn report(&self, event: AttemptEvent, out: &mut Out) {
        if self.linked {
            out.send(AgentFrame::Attempt(event));
        }
    }

    fn waiting_of(&self, which: impl Fn(&Attempt) -> bool) -> Vec<Fence> {
        let known = |fence: &Fence| self.attempts.get(fence).is_some_and(&which);
        self.waiting.iter().copied().filter(known).collect()
    }

    /// Passes a place's orders on. A retreat's reason is the owner's.
    fn carry_out(
        &mut self,
        place: PlaceId,
        effects: Vec<place::Effect>,
        now: Option<Moment>,
        out: &mut Out,
    ) {
        if effects.is_empty() {
            return;
        }
        let reason = now.map_or_else(String::new, |now| self.occupancy.reason(now));
        self.carry_out_because(place, effects, &reason, out);
    }

    fn carry_out_because(
        &mut self,
        place: PlaceId,
        effects: Vec<place::Effect>,
        reason: &str,
        out: &mut Out,
    ) {
        let mut changed = None;
        for effect in effects {
            match effect {
                place::Effect::Start(fence) => {
                    let Some(attempt) = self.attempts.get(&fence) else { continue };
                    let Attempt { subprogram, spec, .. } = attempt;
                    let (subprogram, spec) = (*subprogram, spec.clone());
                    out.first.push(Effect::Start(Start { place, fence, subprogram, spec }));
                }
                place::Effect::Freeze(fence) => {
                    out.first.push(Effect::Freeze { place, fence });
                    changed = Some(fence);
                }
                place::Effect::Thaw(fence) => {
                    out.first.push(Effect::Thaw { place, fence });
                    changed = Some(fence);
                }
                place::Effect::Demote(fence) => {
                    out.first.push(Effect::Demote { place, fence });
                    changed = Some(fence);
                }
                place::Effect::Restore(fence) => {
                    out.first.push(Effect::Restore { place, fence });
                    changed = Some(fence);
                }
                place::Effect::Kill(fence) => out.first.push(Effect::Kill { place, fence }),
                place::Effect::Retreat { fence, why, suspensions } => {
                    let reason = match why {
                        Why::OwnerCame | Why::Asked => reason.to_owned(),
                        Why::OwnerStays(patience) => {
                            format!("suspended for {}: {reason}", Spoken(patience))
                        }
                    };
                    self.end(AttemptEvent::Retreated { fence, reason, suspensions }, out);
                }
                place::Effect::Finish { .. } => {
                    unreachable!("only an exit finishes a guest, and its handler takes it")
                }
            }
        }
        if let Some(fence) = changed {
            self.report_state(place, fence, out);
        }
    }

    fn report_state(&self, place: PlaceId, fence: Fence, out: &mut Out) {
        match self.places[usize::from(place.0)].guest() {
            Some((_, GuestState::Suspended)) => {
                self.report(AttemptEvent::Suspended { fence }, out);
            }
            Some((_, GuestState::Demoted)) => self.report(AttemptEvent::Demoted { fence }, out),
            Some((_, GuestState::Running)) => self.report(AttemptEvent::Resumed { fence }, out),
            Some((_, GuestState::Waiting)) | None => {}
        }
    }
}

impl Attempt {
    pub(super) fn place(&self) -> Option<PlaceId> {
        match self.stage {
            Stage::At(place) => Some(place),
            Stage::Waiting | Stage::Collecting(_) => None,
        }
    }

    /// Does it end with the lease that ends then? One that was offered later
    /// waits for a new lease, and one that has run to its end needs none.
    fn is_under(&self, until: Moment) -> bool {
        match self.stage {
            Stage::At(_) => true,
            Stage::Waiting => self.offered < until,
            Stage::Collecting(_) => false,
        }
    }
}

fn place_id(index: usize) -> PlaceId {
    PlaceId(u16::try_from(index).unwrap_or(u16::MAX))
}

fn finished(fence: Fence, outcome: Outcome, clock: Clock) -> Finished {
    let Clock { ran, suspended, suspensions } = clock;
    let Left { stdout, stderr, outputs } = Left::default();
    let cpu = std::time::Duration::ZERO;
    Finished { fence, outcome, cpu, ran, suspended, suspensions, stdout, stderr, outputs }
}

fn with(finished: Finished, left: Left) -> AttemptEvent {
    let Left { stdout, stderr, outputs } = left;
    AttemptEvent::Finished(Finished { stdout, stderr, outputs, ..finished })
}

/// A limit that was reached says more than the signal that followed.
fn outcome(end: End, exit: Outcome) -> Outcome {
    match end {
        End::Exited => exit,
        End::TimedOut => Outcome::TimedOut,
        End::OverLimit(what) => Outcome::OverLimit(what),
    }
}

/// What would fail anywhere is a result; what failed here is tried elsewhere.
fn not_started(fence: Fence, reason: String, hopeless: bool) -> AttemptEvent {
    if hopeless {
        let outcome = Outcome::CannotStart(reason);
        AttemptEvent::Finished(finished(fence, outcome, Clock::default()))
    } else {
        AttemptEvent::Refused { fence, reason }
    }
}
