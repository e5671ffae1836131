//! Machines that sleep, and agents whose process stops and continues.
//!
//! Asleep, nothing at all happens on a machine. While only the agent's process
//! stands still its guests go on, until the supervisor misses its beat.

use std::time::Duration;

use gleaner_agent_core::agent::Event;

use super::{Happening, Lab};

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
        for happening in std::mem::take(&mut self.hosts[index].held) {
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
}
