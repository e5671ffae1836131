//! Supervisors: the watchdog's own core over workers that stop, hang or are slow.
//!
//! A worker that is well beats ten times a second, of which nothing follows: so
//! it is said only when it matters what it has said last. From then on the
//! watchdog has the deadlines that it has in production, read late by as much
//! as a process of real-time priority may be.

use std::time::Duration;

use gleaner_agent_core::agent;
use gleaner_agent_core::guest::KeeperEvent;
use gleaner_agent_core::watchdog::{BEAT_EVERY, Event, Order, Vouch, Watchdog};
use gleaner_common::id::PlaceId;
use gleaner_common::time::Moment;
use rand::Rng;

use super::{Happening, Lab};

/// How late a supervisor is at most.
const LATE_MAX: Duration = Duration::from_millis(30);

/// How soon a worker that goes on has looked at everything.
const LOOKS_WITHIN: Duration = Duration::from_millis(5);

/// From when on all guests of a worker that stands still do: the watchdog's time, with
/// what a clock is wrong, and the supervisor late. Not derived from the core's own figure,
/// which may be what is wrong.
pub(crate) const VOUCHED_FOR: Duration = Duration::from_millis(185);

#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    dog: Watchdog,
    /// What its worker has said last.
    said: Option<Vouch>,
    /// It has frozen everything.
    pub(super) holds: bool,
    /// It stands still with its worker: nothing is left but the keepers' timers.
    pub(super) hangs: bool,
    /// Whose keepers have died while the worker could not hear of it: it is still to.
    ended: Vec<PlaceId>,
}

impl Supervisor {
    pub(super) fn ended(&mut self, at: PlaceId) {
        self.ended.push(at);
    }

    /// Its keeper is dead, and the worker is about to hear of it.
    pub(super) fn will_tell(&self, at: PlaceId) -> bool {
        self.ended.contains(&at)
    }

    /// The worker has heard of it, or does not listen to that keeper any more.
    pub(super) fn told_of(&mut self, at: PlaceId) {
        self.ended.retain(|other| *other != at);
    }
}

impl Lab {
    /// What the worker says if it looks now, or has looked so long ago.
    fn vouch_of(&self, index: usize, ago: Duration) -> Option<Vouch> {
        let host = &self.hosts[index];
        let agent = host.agent.as_ref().filter(|agent| agent.runs_guests())?;
        let looked = host.clock.reads(self.now) - ago;
        Some(Vouch { looked, lease_end: agent.lease_end()? })
    }

    /// This was the last beat before the worker stands still, or its machine sleeps.
    pub(super) fn last_beat(&mut self, index: usize) {
        let ago = self.up_to(BEAT_EVERY);
        self.hosts[index].supervisor.said = self.vouch_of(index, ago);
    }

    /// A process that is stopped, of which the kernel tells; one that hangs, of
    /// which nobody does; or both processes hang.
    pub(super) fn worker_stops(&mut self, index: usize, long: Duration, which: f64) {
        if !self.hosts[index].is_up() {
            return;
        }
        self.hosts[index].stopped = Some(self.now);
        self.plan(long, Happening::Continues(self.hosts[index].id));
        self.last_beat(index);
        let hangs = (0.9..1.0).contains(&which);
        let supervisor = &mut self.hosts[index].supervisor;
        supervisor.hangs = hangs;
        let said = supervisor.said;
        if hangs {
            let end = said.map(|vouch| self.hosts[index].clock.when(vouch.lease_end));
            return self.plan_look(index, end);
        }
        // The page is as it was before.
        self.watchdog(index, Event::Says(said));
        if which < 0.5 {
            self.watchdog(index, Event::Stopped(said));
        }
        self.looks(index);
    }

    fn plan_look(&mut self, index: usize, at: Option<Moment>) {
        let Some(at) = at else { return };
        let (id, life) = (self.hosts[index].id, self.hosts[index].incarnation);
        self.plan_at(at.max(self.now), Happening::Watches(id, life));
    }

    /// The supervisor wakes, or its keepers' timers do, which nobody freezes.
    pub(super) fn watches(&mut self, id: u32, life: u64) {
        let (index, now) = (id as usize - 1, self.now);
        let host = &self.hosts[index];
        if host.asleep || host.incarnation != life || host.agent.is_none() {
            return;
        }
        if !host.supervisor.hangs {
            return self.looks(index);
        }
        let own = host.clock.reads(now);
        if host.supervisor.said.is_some_and(|vouch| own >= vouch.lease_end) {
            self.keepers_end(index);
        }
    }

    /// Until there is no order more; then it sleeps until its next deadline.
    fn looks(&mut self, index: usize) {
        if !self.hosts[index].hears() {
            let said = self.hosts[index].supervisor.said;
            while self.watchdog(index, Event::Says(said)) {}
            let deadline = self.hosts[index].supervisor.dog.deadline();
            let late = self.up_to(LATE_MAX);
            let at = deadline.map(|at| self.hosts[index].clock.when(at) + late);
            self.plan_look(index, at);
        }
    }

    fn watchdog(&mut self, index: usize, event: Event) -> bool {
        let now = self.now;
        let host = &mut self.hosts[index];
        let own = host.clock.reads(now);
        let order = host.supervisor.dog.handle(own, event);
        match order {
            Some(Order::Freeze) => {
                host.supervisor.holds = true;
                host.places.iter_mut().for_each(|place| place.hold(now));
            }
            Some(Order::Thaw) => self.let_go(index),
            Some(Order::Kill) => self.keepers_end(index),
            Some(Order::Clear) => unreachable!("the worker lives"),
            None => {}
        }
        order.is_some()
    }

    /// All keepers die, and their guests; the worker will hear of it.
    fn keepers_end(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        for (place, at) in host.places.iter_mut().zip(0..) {
            if place.keeper.is_some() {
                place.clear();
                host.supervisor.ended(PlaceId(at));
            }
        }
    }

    /// The supervisor was not faster than the worker, or it was.
    pub(super) fn supervisor_goes_on(&mut self, index: usize) {
        let first = self.rng.random_bool(0.5);
        let supervisor = &mut self.hosts[index].supervisor;
        let (said, hung) = (supervisor.said, std::mem::take(&mut supervisor.hangs));
        if hung || first {
            while self.watchdog(index, Event::Says(said)) {}
        }
    }

    /// The worker hears first who has died, as its loop has it, and looks at its
    /// lease; when it has heard all that was said meanwhile it vouches again.
    pub(super) fn worker_goes_on(&mut self, index: usize) {
        // Of one the worker hears, and of its lease: it may want others killed that
        // have died, too.
        while let Some(place) = self.hosts[index].supervisor.ended.first().copied() {
            self.tell(index, agent::Event::Keeper(place, KeeperEvent::Gone));
            self.hosts[index].supervisor.told_of(place);
        }
        self.wake(index);
        self.plan_beat(index, LOOKS_WITHIN);
    }

    fn plan_beat(&mut self, index: usize, within: Duration) {
        let after = self.up_to(within);
        let (id, life) = (self.hosts[index].id, self.hosts[index].incarnation);
        self.plan(after, Happening::Vouches(id, life));
    }

    pub(super) fn vouches(&mut self, id: u32, life: u64) {
        let index = id as usize - 1;
        if !self.hosts[index].is_up() || self.hosts[index].incarnation != life {
            return;
        }
        let said = self.vouch_of(index, Duration::ZERO);
        self.hosts[index].supervisor.said = said;
        while self.watchdog(index, Event::Says(said)) {}
        if self.hosts[index].supervisor.holds {
            self.worker_goes_on(index);
        }
    }

    /// The supervisor lets go of what it has frozen.
    fn let_go(&mut self, index: usize) {
        let now = self.now;
        self.hosts[index].supervisor.holds = false;
        for at in 0..self.hosts[index].places.len() {
            let place = &mut self.hosts[index].places[at];
            let (works, keeper) = (place.let_go(now), place.keeper);
            let fence = place.process.as_ref().map(|process| process.fence);
            let at = PlaceId(u16::try_from(at).expect("few places"));
            for work in works {
                self.keeper_will(index, at, keeper, work, Duration::from_millis(2));
            }
            if let Some(fence) = fence {
                self.kick(index, fence);
            }
        }
    }
}
