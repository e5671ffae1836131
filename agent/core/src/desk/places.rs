//! The desk and its guest places: who runs where, and what the keepers say.

use std::time::Duration;

use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::job::Outcome;
use gleaner_common::time::{Moment, Spoken};
use gleaner_common::wire::{AttemptEvent, Finished, GuestState, Terms};

use super::guests::{Attempt, Stage};
use super::{Desk, Effect, Exit, Left, Out, Start};
use crate::place::{self, Clock, End, Entry, Owner, Place, Why};

impl Desk {
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
        let index = self.places.iter().position(Place::is_free)?;
        u16::try_from(index).ok().map(PlaceId)
    }

    fn start(&mut self, now: Moment, place: PlaceId, fence: Fence, out: &mut Out) {
        self.waiting.retain(|waiting| *waiting != fence);
        let Some(attempt) = self.attempts.get_mut(&fence) else { return };
        attempt.stage = Stage::At(place);
        let terms = Terms::from(&*attempt.spec);
        let job = attempt.subprogram.job;
        let entry =
            Entry { terms, rank: attempt.rank.is_some(), arrives: attempt.arrival.is_some() };
        let patience = self.patience_for(0);
        let effects = self.places[usize::from(place.0)].take(now, fence, entry);
        self.places[usize::from(place.0)].weigh(fence, patience);
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
                self.not_started_after_all(fence, &reason, out);
            }
        }
    }

    /// Its work goes back; what has its state elsewhere goes on there, and a
    /// rank of which nothing has begun takes nothing of its program with it.
    fn not_started_after_all(&mut self, fence: Fence, reason: &str, out: &mut Out) {
        let reason = format!("not started: {reason}");
        let attempt = self.attempts.get(&fence);
        let refuses = attempt.is_some_and(|it| it.arrival.is_some() || it.rank.is_some());
        let end = if refuses {
            AttemptEvent::Refused { fence, reason }
        } else {
            AttemptEvent::Retreated { fence, reason, suspensions: 0 }
        };
        self.end(end, out);
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
                self.not_started_after_all(fence, reason, out);
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
        if self.places[usize::from(place.0)].guest() != Some((fence, GuestState::Running)) {
            self.report_state(place, fence, out);
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
            // Nothing of it is left, not even for a rank to leave with.
            let _ = place.cancel(now, fence);
            let _ = place.exited(now, fence);
        }
        if self.attempts.contains_key(&fence) {
            self.end(not_started(fence, reason, hopeless), out);
        }
    }

    pub(super) fn exited(&mut self, now: Moment, fence: Fence, exit: Exit, out: &mut Out) {
        let Some(index) = self.places.iter().position(|place| place.holds(fence)) else { return };
        let mut effects = self.places[index].exited(now, fence);
        let Some(place::Effect::Finish { end, clock, .. }) =
            effects.pop_if(|effect| matches!(effect, place::Effect::Finish { .. }))
        else {
            return self.carry_out(place_id(index), effects, Some(now), out);
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

    pub(super) fn faulted(&mut self, now: Moment, fence: Fence, what: String, out: &mut Out) {
        let Some(index) = self.places.iter().position(|place| place.holds(fence)) else { return };
        let effects = self.places[index].faulted(now, fence, what);
        self.carry_out(place_id(index), effects, Some(now), out);
    }

    /// Passes a place's orders on. A retreat's reason is the owner's.
    pub(super) fn carry_out(
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
                    out.first.extend(self.entering(place, fence).map(Effect::Start));
                }
                place::Effect::Expect(fence) => {
                    out.first.extend(self.entering(place, fence).map(Effect::Expect));
                }
                place::Effect::Again(fence) => {
                    out.first.extend(self.entering(place, fence).map(Effect::Again));
                }
                place::Effect::Go(fence) => {
                    out.first.push(Effect::Go { place, fence });
                    changed = Some(fence);
                }
                place::Effect::AskToRetreat { fence, within } => {
                    out.first.push(Effect::AskToRetreat { place, fence, within });
                    changed = Some(fence);
                }
                place::Effect::WantsAway { fence, keep } => {
                    let image_bytes = self.attempts.get(&fence).map_or(0, |it| it.bytes);
                    self.say(AttemptEvent::WantsAway { fence, keep, image_bytes }, out);
                }
                place::Effect::Depart { fence, keep, since } => {
                    self.send_away(place, (fence, keep), since, out);
                }
                // Before it is thawed, or departs elsewhere.
                place::Effect::CallBack(fence) => {
                    out.first.push(Effect::CallBack { place, fence });
                }
                place::Effect::Stays(fence) => self.say(AttemptEvent::Stays { fence }, out),
                place::Effect::CannotLeave { fence, keep, reason } => {
                    self.say(AttemptEvent::CannotLeave { fence, keep, reason }, out);
                }
                place::Effect::Refuse { fence, why } => self.not_here(fence, why, reason, out),
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
                place::Effect::Empty(fence) => out.first.push(Effect::Empty { place, fence }),
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

    fn entering(&self, place: PlaceId, fence: Fence) -> Option<Start> {
        let attempt = self.attempts.get(&fence)?;
        let Attempt { subprogram, spec, rank, arrival, .. } = attempt;
        let (subprogram, spec, rank, arrival) = (*subprogram, spec.clone(), rank.clone(), *arrival);
        Some(Start { place, fence, subprogram, spec, rank, arrival })
    }

    pub(super) fn report_state(&self, place: PlaceId, fence: Fence, out: &mut Out) {
        match self.places[usize::from(place.0)].guest() {
            Some((_, GuestState::Suspended)) => {
                self.report(AttemptEvent::Suspended { fence }, out);
            }
            Some((_, GuestState::Demoted)) => self.report(AttemptEvent::Demoted { fence }, out),
            Some((_, GuestState::Running)) => self.report(AttemptEvent::Resumed { fence }, out),
            Some((_, GuestState::Waiting | GuestState::Leaving)) | None => {}
        }
    }
}

fn place_id(index: usize) -> PlaceId {
    PlaceId(u16::try_from(index).unwrap_or(u16::MAX))
}

fn finished(fence: Fence, outcome: Outcome, clock: Clock) -> Finished {
    let Clock { ran, suspended, suspensions } = clock;
    let Left { stdout, stderr, outputs } = Left::default();
    let cpu = Duration::ZERO;
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
        End::Fault(what) => Outcome::Fault(what),
    }
}

/// What would fail anywhere is a result; what failed here is tried elsewhere.
pub(super) fn not_started(fence: Fence, reason: String, hopeless: bool) -> AttemptEvent {
    if hopeless {
        let outcome = Outcome::CannotStart(reason);
        AttemptEvent::Finished(finished(fence, outcome, Clock::default()))
    } else {
        AttemptEvent::Refused { fence, reason }
    }
}
