//! Everything an agent decides, but for what is decided about a guest at its
//! place (`guest`): offers, lease, occupancy, ends.
//!
//! The agent hears the sensors, the coordinator, the keepers and the owner, and
//! gives orders. The promises: the owner comes first and locally (no guest
//! runs while the owner is here, unless its job chose to run demoted), no
//! guest runs after the lease, and every attempt that was accepted ends once
//! and is told of until the coordinator has acknowledged it.
//!
//! Knows nothing of cgroups, sockets, files or the wall clock.

mod delivered;
mod event;
mod offers;
mod patience;
mod places;
mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gleaner_common::amounts::Amounts;
use gleaner_common::id::{BootId, Fence, Generation, Incarnation, JobId, PlaceId};
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Presence};

use self::delivered::Delivered;
pub use self::event::Event;
use self::offers::{Attempt, Job};
use self::patience::Experience;
use self::places::refused;
pub use self::status::{GuestStatus, Status};
use crate::guest::{self, Effect, Owner, Place, Site};
use crate::lease::{Grant, Lease};
use crate::occupancy::{Criteria, Health, Observation, Occupancy, Pause, Transition};
use crate::room::Room;

/// The most attempts that wait here for a place; further ones are refused.
pub const WAITING_MAX: usize = 64;

/// What an agent needs to know of its workstation.
#[derive(Clone, Debug)]
pub struct Setup {
    pub incarnation: Incarnation,
    pub boot: BootId,
    /// `missing` holds what has nothing to do with sensors; their troubles
    /// are added at every connection.
    pub facts: Facts,
    pub criteria: Criteria,
    pub site: Site,
    /// A pause that has survived a restart.
    pub pause: Option<Pause>,
}

/// The machine is about to sleep, or the agent to stop.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    stop: bool,
    /// The shell knows that all guests are gone.
    said: bool,
}

/// What the guest at a place was given, for as long as the place is not free.
#[derive(Clone, Debug, Default)]
struct Given {
    part: Amounts,
    /// Which GPUs, by number.
    gpus: Vec<u16>,
}

/// Effects being collected: what touches guests goes first.
#[derive(Debug, Default)]
struct Out {
    first: Vec<Effect>,
    then: Vec<Effect>,
}

impl Out {
    fn send(&mut self, frame: AgentFrame) {
        self.then.push(Effect::Send(frame));
    }

    fn record(&mut self, transition: Option<Transition>) {
        self.then.extend(transition.map(Effect::Record));
    }

    fn into_effects(mut self) -> Vec<Effect> {
        self.first.append(&mut self.then);
        self.first
    }
}

/// How many guests find room beside each other at so many places: two at each,
/// since ranks of one program may share places.
pub fn seats(places: u16) -> u16 {
    places.saturating_mul(2)
}

/// The agent's brain.
#[derive(Debug)]
pub struct Agent {
    setup: Setup,
    occupancy: Occupancy,
    owner: Owner,
    lease: Lease,
    places: Vec<Place>,
    /// What each of them was given last.
    given: Vec<Given>,
    /// Accepted and not ended: they wait, are at a place, or are collected.
    attempts: BTreeMap<Fence, Attempt>,
    waiting: VecDeque<Fence>,
    /// Those that share the place of another rank of their program.
    riders: BTreeSet<Fence>,
    jobs: BTreeMap<JobId, Job>,
    /// Ends that are not acknowledged yet.
    ends: BTreeMap<Fence, AttemptEvent>,
    /// Those that are.
    delivered: Delivered,
    /// The coordinator's life, as it said last.
    generation: Generation,
    /// The newest attempt that was accepted, and the newest that was offered.
    newest: Fence,
    seen: Fence,
    linked: bool,
    /// As the coordinator knows it.
    shown: Option<(bool, u16, bool, u32)>,
    /// What is missing here, as the coordinator knows it.
    shown_missing: Vec<String>,
    leaving: Option<Leaving>,
    /// Why nothing new is begun here, whoever is idle.
    unready: Option<String>,
    refused: Option<String>,
    experience: Experience,
}

impl Agent {
    /// Starts busy: without evidence, the owner is here. The effects hold the
    /// START record.
    pub fn new(now: Moment, setup: Setup) -> (Self, Vec<Effect>) {
        let (mut occupancy, start) = Occupancy::new(now, setup.facts.cores, setup.criteria.clone());
        let mut out = Out::default();
        out.record(Some(start));
        if let Some(pause) = setup.pause.clone() {
            out.record(occupancy.observe(now, Observation::Paused(pause)));
        }
        let site = Arc::new(setup.site.clone());
        let mut agent = Self {
            occupancy,
            owner: Owner::Here,
            lease: Lease::new(),
            places: (0..seats(setup.facts.places))
                .map(|id| Place::new(PlaceId(id), Arc::clone(&site)))
                .collect(),
            given: vec![Given::default(); seats(setup.facts.places).into()],
            attempts: BTreeMap::new(),
            waiting: VecDeque::new(),
            riders: BTreeSet::new(),
            jobs: BTreeMap::new(),
            ends: BTreeMap::new(),
            delivered: Delivered::default(),
            generation: Generation::default(),
            newest: Fence::default(),
            seen: Fence::default(),
            linked: false,
            shown: None,
            shown_missing: vec![],
            leaving: None,
            unready: None,
            refused: None,
            experience: Experience::default(),
            setup,
        };
        agent.settle(now, &mut out);
        (agent, out.into_effects())
    }

    /// Takes a fact in and says what is to be done about it.
    #[must_use]
    pub fn handle(&mut self, now: Moment, event: Event) -> Vec<Effect> {
        let mut out = Out::default();
        if matches!(event, Event::LinkDown) {
            // First: what expires now is told on the next connection.
            self.link_down();
        }
        self.expire(now, &mut out);
        self.take_in(now, event, &mut out);
        self.settle(now, &mut out);
        out.into_effects()
    }

    /// When `wake` is due. Ask again after every `handle` and `wake`.
    pub fn deadline(&self) -> Option<Moment> {
        [
            self.occupancy.deadline(),
            self.pause_end(),
            self.lease.beat_due(!self.attempts.is_empty()),
            self.expires_at(),
            self.overdue_at(),
        ]
        .into_iter()
        .chain(self.places.iter().map(Place::deadline))
        .flatten()
        .min()
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    #[must_use]
    pub fn wake(&mut self, now: Moment) -> Vec<Effect> {
        let mut out = Out::default();
        self.expire(now, &mut out);
        self.settle(now, &mut out);
        out.into_effects()
    }

    pub fn presence(&self, now: Moment) -> Presence {
        self.occupancy.presence(now)
    }

    /// Would a guest that is offered now be taken?
    pub fn is_open(&self) -> bool {
        self.linked && self.leaving.is_none() && self.unready.is_none() && !self.occupancy.is_busy()
    }

    /// Are there guests? The load sensor looks more often then.
    pub fn has_guests(&self) -> bool {
        !self.attempts.is_empty() || self.places.iter().any(|place| !place.is_free())
    }

    /// May a guest be running just now? Somebody must vouch for it then.
    pub fn runs_guests(&self) -> bool {
        self.places.iter().any(Place::runs)
    }

    /// When guests must be gone unless the coordinator is heard; `None` if there
    /// never was a lease.
    pub fn lease_end(&self) -> Option<Moment> {
        self.lease.until()
    }

    /// Is this attempt still wanted? What was collected of another can go.
    pub fn knows(&self, fence: Fence) -> bool {
        self.attempts.contains_key(&fence)
    }

    fn take_in(&mut self, now: Moment, event: Event, out: &mut Out) {
        match event {
            Event::Observed(observation) => self.observe(now, observation, out),
            Event::Room(room) => self.learn_room(&room, out),
            Event::Reachable(addresses) => self.setup.facts.addresses = addresses,
            Event::LinkUp => self.greet(now, out),
            Event::Frame(frame) if self.linked => self.hear(now, frame, out),
            // Taken in already; and of a connection that is gone, whose
            // successor says it again.
            Event::LinkDown | Event::Frame(_) => {}
            Event::Staged(job) => self.staged(job),
            Event::StagingFailed { job, reason, hopeless } => {
                self.staging_failed(job, &reason, hopeless, out);
            }
            Event::Started(fence) => self.started(now, fence, out),
            Event::Guest(fence, event) => self.guest_event(now, fence, event, out),
            Event::Keeper(place, event) => self.keeper_event(now, place, event, out),
            Event::Weighed { fence, bytes } => self.weighed(now, fence, bytes, out),
            Event::Carried { bytes, took } => self.experience.carried(bytes, took),
            Event::Collected { fence, left } => self.collected(fence, Ok(left), out),
            Event::CollectingFailed { fence, reason } => self.collected(fence, Err(reason), out),
            Event::Pause(pause) => {
                self.observe(now, Observation::Paused(pause.clone()), out);
                out.then.push(Effect::PersistPause(Some(pause)));
            }
            Event::Resume => self.resume(now, out),
            Event::Stop { fence, by } => {
                self.send_back(now, &format!("stopped by {by}"), out, |here, _| here == fence);
            }
            Event::AboutToSleep => self.about_to_sleep(now, out),
            Event::Woke => self.woke(now, out),
            Event::ShutDown { reason } => self.shut_down(now, reason, out),
        }
    }

    fn link_down(&mut self) {
        self.linked = false;
        self.shown = None;
        self.lease.disconnect();
    }

    fn observe(&mut self, now: Moment, observation: Observation, out: &mut Out) {
        let of_health = matches!(observation, Observation::Health { .. });
        let transition = self.occupancy.observe(now, observation);
        self.follow_owner(now, out);
        out.record(transition);
        if of_health && self.linked {
            self.show_missing(out);
        }
    }

    /// Everything that is due.
    fn settle(&mut self, now: Moment, out: &mut Out) {
        if self.pause_end().is_some_and(|end| now >= end) {
            self.resume(now, out);
        }
        let transition = self.occupancy.wake(now);
        self.follow_owner(now, out);
        out.record(transition);
        self.wake_places(now, out);
        self.refuse_overdue(now, out);
        self.fill(now, out);
        let open = self.is_open();
        // Where more guests may come than places are lent (two may share one, and one
        // that is cleared away has another beside it), nobody waits for them.
        let lent = usize::from(self.setup.facts.places);
        for (index, place) in self.places.iter_mut().enumerate() {
            place.set_open(now, open && index < lent);
        }
        if self.lease.beat_due(!self.attempts.is_empty()).is_some_and(|due| now >= due) {
            self.beat(now, out);
        }
        self.say_when_left(out);
    }

    /// The verdict may have changed: guests first, then everybody else.
    fn follow_owner(&mut self, now: Moment, out: &mut Out) {
        let owner = match (self.occupancy.is_claimed(), self.occupancy.is_busy()) {
            (true, _) => Owner::Claims,
            (false, true) => Owner::Here,
            (false, false) => Owner::Away,
        };
        // Said before what becomes of the guests, or they would be placed here
        // again; what is done to them comes before everything that is said.
        self.show(now, out);
        if owner != self.owner {
            self.owner = owner;
            self.experience.turned(now, owner != Owner::Away);
            self.turn_places(now, owner, out);
        }
    }

    fn show(&mut self, now: Moment, out: &mut Out) {
        let shown = self.occupancy.told(now);
        if self.linked && self.shown != Some(shown) {
            self.shown = Some(shown);
            out.send(AgentFrame::Presence(self.occupancy.presence(now)));
        }
    }

    /// A sensor is well again, or not any more.
    fn show_missing(&mut self, out: &mut Out) {
        let missing = self.missing();
        if self.shown_missing != missing {
            self.shown_missing.clone_from(&missing);
            out.send(AgentFrame::Missing(missing));
        }
    }

    /// What runs goes on: it may need no more room, and has limits of its own.
    fn learn_room(&mut self, room: &Room, out: &mut Out) {
        let unready = room.lacks(self.unready.is_some());
        let turned = self.unready.is_some() != unready.is_some();
        self.unready = unready;
        // How much is free changes all the time, and is not told each time.
        if turned && self.linked {
            out.send(AgentFrame::Unready(self.unready.clone()));
        }
        if turned && let Some(reason) = self.unready.clone() {
            for fence in self.waiting_of(|_| true) {
                self.end(refused(fence, reason.clone()), out);
            }
        }
    }

    fn resume(&mut self, now: Moment, out: &mut Out) {
        self.observe(now, Observation::Unpaused, out);
        out.then.push(Effect::PersistPause(None));
    }

    fn pause_end(&self) -> Option<Moment> {
        Some(self.occupancy.pause()?.until.as_ref()?.at)
    }

    // ── the coordinator ────────────────────────────────────────────────────

    fn greet(&mut self, now: Moment, out: &mut Out) {
        self.linked = true;
        self.refused = None;
        self.lease.greet(now);
        self.doubt_jobs(out);
        self.shown = Some(self.occupancy.told(now));
        self.shown_missing = self.missing();
        let (missing, unready) = (self.shown_missing.clone(), self.unready.clone());
        let facts = Facts { missing, unready, ..self.setup.facts.clone() };
        out.send(AgentFrame::Hello {
            incarnation: self.setup.incarnation,
            boot: self.setup.boot,
            facts: Box::new(facts),
            presence: self.occupancy.presence(now),
            held: self.held(),
            seen: self.seen,
        });
        let ends = self.ends.values().cloned();
        out.then.extend(ends.map(|end| Effect::Send(AgentFrame::Attempt(end))));
        self.say_again(out);
    }

    fn hear(&mut self, now: Moment, frame: CoordinatorFrame, out: &mut Out) {
        match frame {
            CoordinatorFrame::Welcome {
                lease,
                heartbeat,
                heartbeat_without_guests,
                keep,
                generation,
                newest,
                ..
            } => {
                self.refused = None;
                self.lease.grant(Grant { lease, heartbeat, heartbeat_without_guests });
                self.keep_only(now, &keep, out);
                self.generation = generation;
                for end in self.delivered.take_unknown(generation, newest) {
                    self.tell(end, out);
                }
                let unknown = self.delivered.whose_unknown(generation, newest);
                if !unknown.is_empty() {
                    out.send(AgentFrame::Unknown(unknown));
                }
                // It tells of them, if there are any.
                self.riders.clear();
            }
            CoordinatorFrame::HeartbeatAck { sequence } => self.lease.acknowledge(sequence),
            CoordinatorFrame::Job { job, spec } => self.described(job, *spec),
            CoordinatorFrame::Forget { job } => self.forget(job, out),
            CoordinatorFrame::Offer(offer) => self.offered(now, &offer, out),
            CoordinatorFrame::Cancel { fence } => self.cancel(now, fence, out),
            CoordinatorFrame::Acknowledge { fence } => {
                if let Some(end) = self.ends.remove(&fence) {
                    self.delivered.keep(end, self.generation);
                }
            }
            CoordinatorFrame::Refused { reason } => self.refused = Some(reason),
            CoordinatorFrame::Depart { fence, keep, to } => {
                self.guest_event(now, fence, guest::Event::Depart { keep, to }, out);
            }
            // Each tells of what it settles: said twice, one may come late.
            CoordinatorFrame::Stay { fence } => {
                self.hush(fence, |word| !matches!(word, AttemptEvent::Arrived { .. }));
                self.guest_event(now, fence, guest::Event::Stay, out);
            }
            CoordinatorFrame::GoOn { fence } => {
                self.hush(fence, |word| matches!(word, AttemptEvent::Arrived { .. }));
                self.guest_event(now, fence, guest::Event::GoOn, out);
            }
            CoordinatorFrame::GiveBack { fence } => {
                let reason = "another job needs its place";
                self.send_back(now, reason, out, |held, _| held == fence);
            }
            CoordinatorFrame::Riders { fences } => self.riders = fences.into_iter().collect(),
            // For the ranks' endpoints and the port for other agents, which are not here.
            CoordinatorFrame::Revoked { .. }
            | CoordinatorFrame::Ranks { .. }
            | CoordinatorFrame::Relayed { .. }
            | CoordinatorFrame::ToRank { .. } => {}
        }
    }

    /// What the machine lacks and which sensors are not well. One that watches
    /// what many machines do not have is not missed where it is absent.
    fn missing(&self) -> Vec<String> {
        let mut missing = self.setup.facts.missing.clone();
        let told =
            self.occupancy.sensors().into_iter().filter(|(sensor, health)| {
                !(sensor.is_extra() && matches!(health, Health::Absent(_)))
            });
        missing.extend(told.filter_map(|(sensor, health)| {
            Some(format!("{sensor}: {}: {}", health.name(), health.trouble()?))
        }));
        missing
    }

    fn beat(&mut self, now: Moment, out: &mut Out) {
        let Some(sequence) = self.lease.beat(now) else { return };
        let (slots, load) = (self.occupancy.slots(now), self.occupancy.load());
        out.send(AgentFrame::Heartbeat { sequence, slots, load });
    }

    // ── leaving ────────────────────────────────────────────────────────────

    fn about_to_sleep(&mut self, now: Moment, out: &mut Out) {
        if self.leaving.is_none() {
            let finish = self.occupancy.observe(now, Observation::AboutToSleep);
            self.leave(now, false, "the machine is about to sleep".into(), out);
            out.record(finish);
        }
    }

    fn woke(&mut self, now: Moment, out: &mut Out) {
        if self.leaving.is_none_or(|leaving| !leaving.stop) {
            self.leaving = None;
            self.observe(now, Observation::Woke, out);
        }
    }

    fn shut_down(&mut self, now: Moment, reason: String, out: &mut Out) {
        if self.leaving.is_none_or(|leaving| !leaving.stop) {
            let finish = self.occupancy.finish(now, reason.clone());
            self.leave(now, true, reason, out);
            out.record(Some(finish));
        }
    }

    fn leave(&mut self, now: Moment, stop: bool, reason: String, out: &mut Out) {
        self.leaving = Some(Leaving { stop, said: false });
        self.send_back(now, &reason, out, |_, _| true);
        self.follow_owner(now, out);
        if self.linked {
            out.send(AgentFrame::Leaving { reason });
        }
    }

    fn say_when_left(&mut self, out: &mut Out) {
        let Some(leaving) = &mut self.leaving else { return };
        if !leaving.said && self.places.iter().all(Place::is_free) {
            leaving.said = true;
            out.then.push(if leaving.stop { Effect::ReadyToStop } else { Effect::ReadyToSleep });
        }
    }
}

#[cfg(test)]
mod tests;
