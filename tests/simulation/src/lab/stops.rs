//! Machines that sleep, and processes that stop and continue: agents' and the
//! coordinator's.
//!
//! Asleep, nothing at all happens on a machine. While only the agent's process
//! stands still its guests go on, until the supervisor misses its beat.

use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_common::time::Moment;
use gleaner_coordinator_core::{AttemptRecord, Change, Step};
use rand::Rng;

use super::copies::LEASE_PART;
use super::enrolment::Enrols;
use super::invariant::holds;
use super::network::Way;
use super::usage::OnTheWay;
use super::{Happening, Lab};

/// How much later than a lease a coordinator goes on that must know by it that it stood
/// still: what it adds to leases, and a second.
const LATE: Duration = Duration::from_secs(2);

/// So much may have come to the coordinator when it looks at its clock again.
const HEARD_FIRST_MAX: usize = 8;

/// A coordinator that stands still: since when, and what it will hear.
#[derive(Debug)]
pub(crate) struct Halt {
    since: Moment,
    pub(crate) held: Vec<Happening>,
}

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
        self.supervisor_goes_on(index);
        if self.hosts[index].hears() {
            self.worker_goes_on(index);
            self.tell(index, Event::Woke);
            self.goes_on(index);
        } else {
            self.watches(self.hosts[index].id, self.hosts[index].incarnation);
        }
    }

    fn goes_on(&mut self, index: usize) {
        let held = std::mem::take(&mut self.hosts[index].held);
        self.plan_all(held);
    }

    pub(super) fn plan_all(&mut self, held: Vec<Happening>) {
        for happening in held {
            self.plan(Duration::ZERO, happening);
        }
    }

    // ── the agent's process ────────────────────────────────────────────────

    /// The agent's process goes on: it looks at its clock, and then the
    /// supervisor lets go of what it has frozen.
    pub(super) fn continues(&mut self, index: usize) {
        if self.hosts[index].stopped.take().is_none() || !self.hosts[index].hears() {
            return;
        }
        self.supervisor_goes_on(index);
        self.worker_goes_on(index);
        if std::mem::take(&mut self.hosts[index].unheard) {
            self.typed(index);
        }
        if !self.hosts[index].owner_here {
            self.resume(index);
        }
        self.goes_on(index);
    }

    // ── the coordinator's process ──────────────────────────────────────────

    /// It says nothing any more. What comes waits in its sockets' queues, or finds no room
    /// there and is sent again.
    pub(super) fn coordinator_stops(&mut self, long: Duration, which: f64) {
        if self.core.is_none() || self.halted.is_some() {
            return;
        }
        self.halted = Some(Halt { since: self.now, held: vec![] });
        self.plan(long, Happening::CoordinatorContinues);
        let ways: &[Way] = if which < 0.7 { &[Way::Down] } else { &[Way::Up, Way::Down] };
        (0..self.hosts.len()).for_each(|index| self.falls_silent(index, ways, long));
        self.collector_falls_silent(&[Way::Up, Way::Down], long);
    }

    /// It does not hear this now: it will when it goes on.
    pub(super) fn coordinator_hears(&mut self, happening: Happening) -> Option<Happening> {
        let is_its = matches!(
            happening,
            Happening::Heard(..)
                | Happening::CoordinatorLoses(_)
                | Happening::Commit(_)
                | Happening::Submit
                | Happening::Cancel
                | Happening::Drains(..)
                | Happening::Enrols(Enrols::Asked(..))
                | Happening::Usage(
                    OnTheWay::Up { .. } | OnTheWay::Back { .. } | OnTheWay::CollectorLost(_)
                )
        );
        let Some(halt) = self.halted.as_mut().filter(|_| is_its) else { return Some(happening) };
        halt.held.push(happening);
        None
    }

    /// It goes on, and looks at its clock when it has heard nothing yet, or some of it.
    pub(super) fn coordinator_continues(&mut self) {
        let Some(Halt { since, mut held }) = self.halted.take() else { return };
        self.went_on = (self.now, self.now.since(since));
        let most = if self.rng.random_bool(0.5) { HEARD_FIRST_MAX } else { 0 };
        let first = self.rng.random_range(0..=most).min(held.len());
        let later = held.split_off(first);
        for happening in held {
            self.happen(happening);
        }
        self.plan_all(later);
    }

    /// Whoever waited to be heard is heard before anything is given up.
    pub(super) fn check_gives_up(&self, step: &Step) {
        let (at, stood_still) = self.went_on;
        let most = self.setting.config.lease.mul_f64(LEASE_PART) + LATE;
        if at != self.now || stood_still <= most {
            return;
        }
        let is_unheard = |change: &&Change| {
            let Change::Attempt(AttemptRecord { end: Some((_, how)), .. }) = change else {
                return false;
            };
            how == "lost: the lease ended unheard"
        };
        let unheard = step.changes.iter().find(is_unheard);
        holds!(HeardFirst, unheard.is_none(), "after {stood_still:?}: {unheard:?}");
    }
}
