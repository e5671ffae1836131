//! The agent and its guest places: who runs where, and what is told of guests.
//!
//! Guests have as much as they ask for, and never more together than is lent:
//! whatever the coordinator says, the owner's part stays the owner's.
//!
//! What is told of a move is told again on every new connection for as long as
//! it holds: whoever did not hear it would wait for ever.

use std::time::Duration;

use gleaner_common::amounts::Amounts;
use gleaner_common::id::{Fence, PlaceId};
use gleaner_common::job::{JobSpec, Limits, Outcome};
use gleaner_common::reaction::Keep;
use gleaner_common::time::{Moment, Spoken};
use gleaner_common::wire::{AgentFrame, AttemptEvent, Blame, Finished, GuestState};

use super::offers::{Attempt, Stage};
use super::{Agent, Given, Out};
use crate::guest::{
    self, ARRIVAL_WITHIN, Clock, Effect, End, Exit, GuestAt, KeeperEvent, Left, NotHere, Owner,
    Place, Start, Why, Word,
};

impl Agent {
    /// Starts what waits, as far as owner, lease and places allow.
    pub(super) fn fill(&mut self, now: Moment, out: &mut Out) {
        while self.leaving.is_none() && self.owner == Owner::Away {
            let Some((place, fence)) = self.next_start(now) else { return };
            if !self.lease.is_valid(now) {
                // Without guests it is renewed too seldom to last. Ask for it.
                if !self.lease.is_asking(now) {
                    self.beat(now, out);
                }
                return;
            }
            self.start(now, place, fence, out);
        }
    }

    /// Who is next, and where, if the owner leaves cores for guests.
    fn next_start(&self, now: Moment) -> Option<(PlaceId, Fence)> {
        let has_slots = self.occupancy.slots(now) > 0;
        let index = self.places.iter().position(Place::is_free).filter(|_| has_slots)?;
        let fence = self.next_staged(self.free(now))?;
        u16::try_from(index).ok().map(|index| (PlaceId(index), fence))
    }

    /// What of the lent part no guest has.
    fn free(&self, now: Moment) -> Amounts {
        let slots = self.occupancy.slots(now);
        // On a machine that nobody uses, its configuration says how much is
        // lent; cores that the owner needs come off that.
        let needed = self.setup.facts.cores.saturating_sub(slots);
        let lends = self.setup.facts.lends();
        let cores = if slots == 0 { 0 } else { lends.cores.saturating_sub(needed) };
        let taken = self.held_by_guests().map(|given| given.part);
        let taken = taken.fold(Amounts::default(), Amounts::plus);
        Amounts { cores, ..lends }.minus(taken)
    }

    /// What each of the guests has that share nobody's place.
    fn held_by_guests(&self) -> impl Iterator<Item = &Given> {
        let rides = |place: &Place| self.riders.iter().any(|fence| place.holds(*fence));
        let places = self.places.iter().zip(&self.given);
        places.filter(move |(place, _)| place.has_guest() && !rides(place)).map(|(_, given)| given)
    }

    /// So many GPUs that no guest has, the first ones first.
    fn free_gpus(&self, count: u16) -> Vec<u16> {
        let is_free = |gpu: &u16| !self.held_by_guests().any(|given| given.gpus.contains(gpu));
        (0..self.setup.facts.gpus).filter(is_free).take(count.into()).collect()
    }

    fn start(&mut self, now: Moment, place: PlaceId, fence: Fence, out: &mut Out) {
        self.waiting.retain(|waiting| *waiting != fence);
        let Some(spec) = self.attempts.get(&fence).map(|attempt| attempt.spec.clone()) else {
            return;
        };
        let part = self.setup.facts.lends().part(spec.asked());
        let gpus = self.free_gpus(part.gpus);
        let limits = limits(self.setup.site.limits, &spec, part);
        let Some(attempt) = self.attempts.get_mut(&fence) else { return };
        attempt.stage = Stage::At(place);
        let Attempt { subprogram, rank, arrival, .. } = attempt;
        let start = Start {
            at: GuestAt { place, fence },
            subprogram: *subprogram,
            spec,
            limits,
            gpus: gpus.clone(),
            rank: rank.clone(),
            arrival: arrival.clone(),
        };
        let (job, cost) = (subprogram.job, self.experience.patience_for(0));
        self.given[usize::from(place.0)] = Given { part, gpus };
        let done = self.places[usize::from(place.0)].take(now, start);
        self.carry_out(done, "", out);
        self.guest_event(now, fence, guest::Event::MoveTakes(cost), out);
        self.tidy(job, out);
    }

    /// The owner came, left or claimed the machine.
    pub(super) fn turn_places(&mut self, now: Moment, owner: Owner, out: &mut Out) {
        let reason = self.occupancy.reason(now);
        for index in 0..self.places.len() {
            let done = self.places[index].turned(now, owner);
            self.carry_out(done, &reason, out);
        }
        if owner != Owner::Away {
            for fence in self.waiting_of(|_| true) {
                self.not_started_after_all(fence, &reason, out);
            }
        }
    }

    /// The work of a waiting attempt goes back; what has its state elsewhere goes on there, and a
    /// rank of which nothing has begun takes nothing of its program with it.
    fn not_started_after_all(&mut self, fence: Fence, reason: &str, out: &mut Out) {
        let reason = format!("not started: {reason}");
        let attempt = self.attempts.get(&fence);
        let refuses = attempt.is_some_and(|it| it.arrival.is_some() || it.rank.is_some());
        let end = if refuses {
            refused(fence, reason)
        } else {
            AttemptEvent::Retreated { fence, reason, suspensions: 0 }
        };
        self.end(end, out);
    }

    pub(super) fn wake_places(&mut self, now: Moment, out: &mut Out) {
        for index in 0..self.places.len() {
            let was_free = self.places[index].is_free();
            let done = self.places[index].wake(now);
            let spawns = done.effects.iter().any(|it| matches!(it, Effect::SpawnKeeper { .. }));
            let reason =
                if done.words.is_empty() { String::new() } else { self.occupancy.reason(now) };
            self.carry_out(done, &reason, out);
            // One at a time: it takes a moment, and an owner may come.
            if was_free && spawns {
                return;
            }
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
                let done = self.places[usize::from(place.0)].handle(now, guest::Event::Retreat);
                self.carry_out(done, reason, out);
            } else if self.waiting.contains(&fence) {
                self.not_started_after_all(fence, reason, out);
            }
        }
    }

    /// What waits here for a place, and its state for it, waits only so long.
    pub(super) fn overdue_at(&self) -> Option<Moment> {
        self.expected().map(|(_, at)| at).min()
    }

    pub(super) fn refuse_overdue(&mut self, now: Moment, out: &mut Out) {
        let overdue: Vec<_> =
            self.expected().filter(|(_, at)| now >= *at).map(|(fence, _)| fence).collect();
        for fence in overdue {
            let reason = format!("no place became free within {}", Spoken(ARRIVAL_WITHIN));
            self.end(refused(fence, reason), out);
        }
    }

    /// Attempts that wait for a place while their state is on its way.
    fn expected(&self) -> impl Iterator<Item = (Fence, Moment)> {
        self.waiting.iter().filter_map(|fence| {
            let attempt = self.attempts.get(fence)?;
            attempt.arrival.as_ref().map(|_| (*fence, attempt.offered + ARRIVAL_WITHIN))
        })
    }

    // ── what is heard of guests ────────────────────────────────────────────

    pub(super) fn guest_event(
        &mut self,
        now: Moment,
        fence: Fence,
        event: guest::Event,
        out: &mut Out,
    ) {
        let Some(place) = self.places.iter_mut().find(|place| place.holds(fence)) else { return };
        let done = place.handle(now, event);
        if done != guest::Out::default() {
            let reason = self.occupancy.reason(now);
            self.carry_out(done, &reason, out);
        }
    }

    pub(super) fn keeper_event(
        &mut self,
        now: Moment,
        place: PlaceId,
        event: KeeperEvent,
        out: &mut Out,
    ) {
        let Some(place) = self.places.get_mut(usize::from(place.0)) else { return };
        let done = place.keeper_says(now, event);
        let reason = self.occupancy.reason(now);
        self.carry_out(done, &reason, out);
    }

    /// What held of its move holds no more, if it is that.
    pub(super) fn hush(&mut self, fence: Fence, which: impl Fn(&AttemptEvent) -> bool) {
        if let Some(attempt) = self.attempts.get_mut(&fence) {
            let _ = attempt.word.take_if(|word| which(word));
        }
    }

    pub(super) fn started(&mut self, now: Moment, fence: Fence, out: &mut Out) {
        let Some(attempt) = self.attempts.get(&fence) else { return };
        let Some(place) = attempt.place() else { return };
        let waited = now.since(attempt.offered);
        self.report(AttemptEvent::Started { fence, waited }, out);
        // The owner may have come while it was being started.
        if let Some((_, state)) = self.places[usize::from(place.0)].guest()
            && state != GuestState::Running
        {
            self.report_state(fence, state, out);
        }
    }

    pub(super) fn weighed(&mut self, now: Moment, fence: Fence, bytes: u64, out: &mut Out) {
        let Some(attempt) = self.attempts.get_mut(&fence) else { return };
        attempt.bytes = bytes;
        let cost = self.experience.patience_for(bytes);
        self.guest_event(now, fence, guest::Event::MoveTakes(cost), out);
    }

    /// What a guest left is staged, or is lost. The router may not have said yet
    /// that it has read everything of a rank's: then that is waited for.
    pub(super) fn collected(&mut self, fence: Fence, left: Result<Left, String>, out: &mut Out) {
        let Some(attempt) = self.attempts.get_mut(&fence) else { return };
        match &attempt.stage {
            Stage::Waiting => {}
            Stage::At(place) => {
                let reaps = self.places[usize::from(place.0)].reaps();
                attempt.collected = Some(left).filter(|_| reaps);
            }
            Stage::Collecting(finished) => {
                let finished = (**finished).clone();
                self.end(brought(finished, left), out);
            }
        }
    }

    // ── what is told of them ───────────────────────────────────────────────

    /// Passes a place's orders on, and tells what it has to say. A retreat's
    /// reason is the owner's, unless somebody else has one.
    pub(super) fn carry_out(&mut self, done: guest::Out, reason: &str, out: &mut Out) {
        out.first.extend(done.effects);
        for (fence, word) in done.words {
            self.tell_word(fence, word, reason, out);
        }
    }

    fn tell_word(&mut self, fence: Fence, word: Word, reason: &str, out: &mut Out) {
        let bytes = self.attempts.get(&fence).map_or(0, |attempt| attempt.bytes);
        let wants_away = |keep| AttemptEvent::WantsAway { fence, keep, image_bytes: bytes };
        match word {
            Word::State(state) => self.report_state(fence, state, out),
            Word::WantsAway { keep } => {
                // What came of a process that it has lost is not its result. One with
                // something to keep has its process, or what that came to.
                let lost = (keep == Keep::Nothing).then(|| self.attempts.get_mut(&fence));
                if let Some(attempt) = lost.flatten() {
                    attempt.collected = None;
                }
                self.say(wants_away(keep), out);
            }
            // This is told again until it is known what came of it, also if it was the
            // coordinator's wish: one that begins anew may not know of it.
            Word::Departs { keep } => self.keep_saying(wants_away(keep)),
            Word::Stays { keep } => self.say(AttemptEvent::Stays { fence, keep }, out),
            Word::CannotLeave { keep, reason } => {
                self.say(AttemptEvent::CannotLeave { fence, keep, reason }, out);
            }
            Word::Arrived { bytes, frozen } => {
                self.say(AttemptEvent::Arrived { fence, bytes, frozen }, out);
            }
            Word::Refused(why) => self.not_here(fence, why, reason, out),
            Word::NotStarted { reason, hopeless } => {
                self.end(not_started(fence, reason, hopeless), out);
            }
            Word::Retreated { why, suspensions } => {
                let reason = match why {
                    Why::OwnerCame | Why::Asked => reason.to_owned(),
                    Why::OwnerStays(patience) => {
                        format!("suspended for {}: {reason}", Spoken(patience))
                    }
                };
                self.end(AttemptEvent::Retreated { fence, reason, suspensions }, out);
            }
            Word::Lost { reason, suspensions } => {
                self.end(AttemptEvent::Lost { fence, reason, suspensions }, out);
            }
            Word::Finished { end, clock, exit } => self.finished(fence, end, clock, *exit, out),
        }
    }

    fn finished(&mut self, fence: Fence, end: End, clock: Clock, exit: Exit, out: &mut Out) {
        let Some(attempt) = self.attempts.get_mut(&fence) else { return };
        let mut finished = finished(fence, outcome(end, exit.outcome), clock);
        finished.cpu = exit.cpu;
        match exit.left.map(Ok).or_else(|| attempt.collected.take()) {
            Some(left) => self.end(brought(finished, left), out),
            None => attempt.stage = Stage::Collecting(Box::new(finished)),
        }
    }

    fn report_state(&self, fence: Fence, state: GuestState, out: &mut Out) {
        match state {
            GuestState::Suspended => self.report(AttemptEvent::Suspended { fence }, out),
            GuestState::Demoted => self.report(AttemptEvent::Demoted { fence }, out),
            GuestState::Running => self.report(AttemptEvent::Resumed { fence }, out),
            GuestState::Waiting | GuestState::Leaving => {}
        }
    }

    /// Tells the coordinator now, and again on every connection while it holds.
    fn say(&mut self, event: AttemptEvent, out: &mut Out) {
        self.keep_saying(event.clone());
        self.report(event, out);
    }

    fn keep_saying(&mut self, event: AttemptEvent) {
        if let Some(attempt) = self.attempts.get_mut(&event.fence()) {
            attempt.word = Some(event);
        }
    }

    pub(super) fn say_again(&mut self, out: &mut Out) {
        for attempt in self.attempts.values_mut() {
            let Some(word) = attempt.word.clone() else { continue };
            // What needs no answer was perhaps heard, and is said twice at most.
            if matches!(word, AttemptEvent::Stays { .. } | AttemptEvent::CannotLeave { .. }) {
                attempt.word = None;
            }
            out.send(AgentFrame::Attempt(word));
        }
    }

    /// The guest was never set going here.
    fn not_here(&mut self, fence: Fence, why: NotHere, reason: &str, out: &mut Out) {
        let reason = match why {
            NotHere::OwnerCame | NotHere::Asked => format!("not taken in: {reason}"),
            NotHere::NothingCame(within) => format!("nothing came within {}", Spoken(within)),
            NotHere::Ended => "its processes ended before they were set going".to_owned(),
        };
        self.end(refused(fence, reason), out);
    }
}

/// What a guest may use: its part, and no more than the workstation's own limits.
fn limits(site: Limits, spec: &JobSpec, part: Amounts) -> Limits {
    let lower = |ours: u64, theirs: u64| match (ours, theirs) {
        (0, one) | (one, 0) => one,
        (ours, theirs) => ours.min(theirs),
    };
    let processes_max = lower(site.processes_max.into(), spec.limits.processes_max.into());
    Limits {
        memory_bytes_max: lower(site.memory_bytes_max, part.memory_bytes),
        processes_max: u32::try_from(processes_max).unwrap_or(site.processes_max),
        disk_bytes_max: lower(site.disk_bytes_max, part.disk_bytes),
    }
}

fn finished(fence: Fence, outcome: Outcome, clock: Clock) -> Finished {
    let Clock { ran, suspended, suspensions } = clock;
    let Left { stdout, stderr, outputs } = Left::default();
    let cpu = Duration::ZERO;
    Finished { fence, outcome, cpu, ran, suspended, suspensions, stdout, stderr, outputs }
}

fn brought(finished: Finished, left: Result<Left, String>) -> AttemptEvent {
    match left {
        Ok(Left { stdout, stderr, outputs }) => {
            AttemptEvent::Finished(Finished { stdout, stderr, outputs, ..finished })
        }
        Err(reason) => {
            let Finished { fence, suspensions, .. } = finished;
            let reason = format!("its result was lost: {reason}");
            AttemptEvent::Retreated { fence, reason, suspensions }
        }
    }
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

/// It is not the job's fault: what this workstation lacks, another may have.
pub(super) fn refused(fence: Fence, reason: String) -> AttemptEvent {
    AttemptEvent::Refused { fence, reason, blame: Blame::Workstation }
}

/// What would fail anywhere is a result; what failed here is tried elsewhere.
pub(super) fn not_started(fence: Fence, reason: String, hopeless: bool) -> AttemptEvent {
    if hopeless {
        let outcome = Outcome::CannotStart(reason);
        AttemptEvent::Finished(finished(fence, outcome, Clock::default()))
    } else {
        refused(fence, reason)
    }
}
