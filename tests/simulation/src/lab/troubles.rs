//! What goes wrong in a lab.

use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::occupancy::Pause;
use gleaner_common::id::WorkstationId;
use gleaner_coordinator_core::Link;
use rand::Rng;

use super::{Happening, Lab};

#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    Cut,
    AgentCrash,
    Sleep,
    CoordinatorCrash,
    CommitHangs,
    Owner,
    /// An admin empties a workstation, and takes it up again later.
    Drain,
}

impl Lab {
    pub(super) fn plan_trouble(&mut self, trouble: Trouble) {
        let often = match trouble {
            Trouble::Cut => self.setting.cut,
            Trouble::AgentCrash => self.setting.agent_crash,
            Trouble::Sleep => self.setting.sleep,
            Trouble::CoordinatorCrash => self.setting.coordinator_crash,
            Trouble::CommitHangs => self.setting.commit_hangs,
            Trouble::Owner => self.setting.owner,
            Trouble::Drain => self.setting.drain,
        };
        if let Some(mean) = often {
            let after = self.up_to(mean * 2);
            self.plan(after, Happening::Trouble(trouble));
        }
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) {
        self.plan_trouble(trouble);
        let index = self.rng.random_range(0..self.hosts.len());
        let id = self.hosts[index].id;
        match trouble {
            Trouble::Cut => {
                if let Some(link) = self.hosts[index].link {
                    self.cut(link);
                }
            }
            Trouble::AgentCrash => self.agent_crashes(index),
            Trouble::Sleep => {
                let now = self.now;
                // The agent may be told before, and has a moment then.
                if self.rng.random_bool(0.3) && self.hosts[index].is_up() {
                    self.tell(index, Event::AboutToSleep);
                }
                self.hosts[index].places.iter_mut().for_each(|place| place.account(now));
                self.hosts[index].asleep = true;
                let after = self.up_to(Duration::from_secs(30));
                self.plan(after, Happening::Awakes(id));
            }
            Trouble::CoordinatorCrash => self.coordinator_crashes(),
            Trouble::Drain => {
                self.drains_workstation(id, true);
                let after = self.up_to(Duration::from_secs(20));
                self.plan(after, Happening::Undrained(id));
            }
            Trouble::CommitHangs => {
                self.commits_from = self.now + self.up_to(Duration::from_secs(8));
            }
            Trouble::Owner => {
                self.hosts[index].owner_here = true;
                self.plan(Duration::ZERO, Happening::OwnerTypes(id));
                if self.rng.random_bool(0.1) {
                    self.pause(index);
                }
                if self.fails(0.5) {
                    self.stop_a_guest(index);
                }
                let after = self.up_to(Duration::from_secs(30));
                self.plan(after, Happening::OwnerLeaves(id));
            }
        }
    }

    pub(super) fn drains_workstation(&mut self, id: u32, drained: bool) {
        let workstation = WorkstationId(id);
        self.handle(gleaner_coordinator_core::Event::Drained { workstation, drained, now: true });
    }

    /// The owner claims the machine.
    fn pause(&mut self, index: usize) {
        if self.hosts[index].is_up() {
            self.tell(index, Event::Pause(Pause { by: "ann".to_owned(), until: None }));
            self.hosts[index].paused = true;
        }
    }

    pub(super) fn resume(&mut self, index: usize) {
        if self.hosts[index].paused && self.hosts[index].is_up() {
            self.hosts[index].paused = false;
            self.tell(index, Event::Resume);
        }
    }

    fn stop_a_guest(&mut self, index: usize) {
        let guests = self.hosts[index].agent.iter().flat_map(|it| it.status(self.now).guests);
        let Some(fence) = guests.last().map(|guest| guest.fence) else { return };
        if self.hosts[index].is_up() {
            self.tell(index, Event::Stop { fence, by: "ann".to_owned() });
        }
    }

    pub(super) fn agent_crashes(&mut self, index: usize) {
        let (id, link) = (self.hosts[index].id, self.hosts[index].link);
        self.hosts[index].crash();
        self.streams_end(id);
        if let Some(link) = link {
            self.cut(link);
        }
        let after = self.up_to(Duration::from_secs(20));
        self.plan(after, Happening::AgentStarts(id));
    }

    pub(super) fn coordinator_crashes(&mut self) {
        if self.core.take().is_none() {
            return;
        }
        self.pending.clear();
        let links: Vec<Link> = self.wires.keys().copied().collect();
        for link in links {
            self.cut(link);
        }
        // Nothing that was under way reaches the next life.
        self.life += 1;
        self.wires.clear();
        let after = self.up_to(self.setting.away);
        self.plan(after, Happening::CoordinatorStarts);
    }

    /// A connection breaks. What is under way may still arrive at the
    /// coordinator; each end notices in its own time.
    pub(super) fn cut(&mut self, link: Link) {
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.broken) else { return };
        wire.broken = true;
        let agent = self.up_to(Duration::from_secs(12));
        let coordinator = self.up_to(Duration::from_secs(20));
        self.plan(agent, Happening::AgentLoses(link));
        self.plan(coordinator, Happening::CoordinatorLoses(link));
    }

    pub(super) fn become_calm(&mut self) {
        self.calm = true;
        self.commits_from = self.now;
        for index in 0..self.hosts.len() {
            self.hosts[index].owner_here = false;
            self.resume(index);
            let id = self.hosts[index].id;
            self.plan(Duration::ZERO, Happening::Awakes(id));
            self.plan(Duration::ZERO, Happening::AgentStarts(id));
            self.plan(Duration::ZERO, Happening::Undrained(id));
        }
    }
}
