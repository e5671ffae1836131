//! Machines that sleep, and agents whose process stops and continues.
//!
//! Asleep, nothing at all happens on a machine. While only the agent's process
//! stands still its guests go on, until the supervisor misses its beat.

use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_common::id::PlaceId;
use gleaner_common::time::Moment;

use super::{Happening, Lab};

/// How long after an agent's last sign of life its supervisor freezes what it
/// cannot vouch for.
pub(crate) const VOUCHED_FOR: Duration = Duration::from_millis(1_200);

impl Lab {
    /// The agent does not hear this now: it will when it goes on.
    pub(super) fn holds_back(&mut self, index: usize, happening: Happening) -> Option<Happening> {
        if self.hosts[index].hears() {
            return Some(happening);
        }
        self.hosts[index].held.push(happening);
        None
    }

    /// The agent hears of the time before anything else gets the processor.
    pub(super) fn awakes(&mut self, index: usize) {
        let now = self.now;
        if !std::mem::take(&mut self.hosts[index].asleep) {
            return;
        }
        for place in &mut self.hosts[index].places {
            if let Some(process) = &mut place.process {
                process.since = now;
            }
        }
        if self.hosts[index].hears() {
            self.wake(index);
            self.tell(index, Event::Woke);
            self.let_go(index);
            self.goes_on(index);
        }
    }

    fn goes_on(&mut self, index: usize) {
        for happening in std::mem::take(&mut self.hosts[index].held) {
            self.plan(Duration::ZERO, happening);
        }
    }

    // ── the agent's process ────────────────────────────────────────────────

    pub(super) fn worker_stops(&mut self, index: usize, long: Duration) {
        let host = &self.hosts[index];
        if !host.is_up() {
            return;
        }
        let (id, life, now) = (host.id, host.incarnation, self.now);
        let own = host.clock.reads(now);
        let left = host.agent.as_ref().and_then(|agent| agent.status(own).lease_left);
        let until = left.map(|left| host.clock.when(own + left));
        self.hosts[index].stopped = Some(now);
        self.plan(VOUCHED_FOR, Happening::Unvouched(id, life, now));
        if let Some(until) = until {
            // The keepers' own timers end with the lease, whoever vouches.
            let until = until.max(now);
            self.plan_at(until, Happening::Outlived(id, life, now));
        }
        self.plan(long, Happening::Continues(id));
    }

    /// The supervisor freezes all groups.
    pub(super) fn unvouched(&mut self, id: u32, life: u64, since: Moment) {
        let (index, now) = (id as usize - 1, self.now);
        if self.hosts[index].stopped != Some(since) || self.hosts[index].incarnation != life {
            return;
        }
        for place in &mut self.hosts[index].places {
            place.hold(now);
        }
    }

    /// The lease is over, and nobody has looked after the guests.
    pub(super) fn outlived(&mut self, id: u32, life: u64, since: Moment) {
        let index = id as usize - 1;
        if self.hosts[index].stopped == Some(since) && self.hosts[index].incarnation == life {
            self.agent_crashes(index);
        }
    }

    /// The agent's process goes on: it looks at its clock, and then the
    /// supervisor lets go of what it has frozen.
    pub(super) fn continues(&mut self, index: usize) {
        if self.hosts[index].stopped.take().is_none() || !self.hosts[index].hears() {
            return;
        }
        self.wake(index);
        self.let_go(index);
        if !self.hosts[index].owner_here {
            self.resume(index);
        }
        self.goes_on(index);
    }

    /// The supervisor hears from the agent again.
    fn let_go(&mut self, index: usize) {
        let now = self.now;
        for at in 0..self.hosts[index].places.len() {
            let place = &mut self.hosts[index].places[at];
            let (works, keeper) = (place.let_go(now), place.keeper);
            let at = PlaceId(u16::try_from(at).expect("few places"));
            for work in works {
                self.keeper_will(index, at, keeper, work, Duration::from_millis(2));
            }
        }
    }
}
