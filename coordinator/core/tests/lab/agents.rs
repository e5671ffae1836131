//! The agents' side of a lab: what their desks are told, and what they want.

use std::time::Duration;

use gleaner_agent_core::desk;
use gleaner_common::id::{SubprogramId, WorkstationId};
use gleaner_common::program::RankOffer;
use gleaner_common::wire::AgentFrame;
use gleaner_core::Link;
use rand::Rng;

use super::host::{Process, Want};
use super::moves::Carried;
use super::rank::Script;
use super::{Happening, Lab, Wire, index_of};

impl Lab {
    pub(super) fn agent_starts(&mut self, id: u32) {
        let index = id as usize - 1;
        if self.hosts[index].desk.is_none() {
            let wants = self.hosts[index].start(self.now);
            self.grant(index, wants);
            let after = self.delay();
            self.plan(after, Happening::Dial(id));
        }
    }

    pub(super) fn dial(&mut self, id: u32) {
        let index = id as usize - 1;
        let host = &self.hosts[index];
        if host.desk.is_none() || host.link.is_some() {
            return;
        }
        if host.asleep || self.core.is_none() {
            return self.plan(Duration::from_millis(500), Happening::Dial(id));
        }
        self.serials += 1;
        let link = Link { workstation: WorkstationId(id), serial: self.serials };
        self.wires.insert(link, Wire::default());
        self.hosts[index].link = Some(link);
        self.tell(index, desk::Event::LinkUp);
        let again = self.hosts[index].say_again();
        self.grant(index, again);
    }

    pub(super) fn agent_loses(&mut self, link: Link) {
        let index = index_of(link.workstation);
        if self.hosts[index].link != Some(link) {
            return;
        }
        if self.hosts[index].asleep {
            return self.plan(Duration::from_millis(200), Happening::AgentLoses(link));
        }
        self.hosts[index].link = None;
        self.tell(index, desk::Event::LinkDown);
        let after = self.up_to(Duration::from_secs(3));
        self.plan(after, Happening::Dial(link.workstation.0));
    }

    pub(super) fn tell(&mut self, index: usize, event: desk::Event) {
        let wants = self.hosts[index].handle(self.now, event);
        self.grant(index, wants);
    }

    pub(super) fn tell_life(&mut self, host: u32, incarnation: u64, event: desk::Event) {
        let index = host as usize - 1;
        if self.hosts[index].incarnation == incarnation {
            self.tell(index, event);
        }
    }

    pub(super) fn grant(&mut self, index: usize, wants: Vec<Want>) {
        let (host, incarnation) = (self.hosts[index].id, self.hosts[index].incarnation);
        for want in wants {
            match want {
                Want::Send(frame) => self.send_up(index, frame),
                Want::Went(fence) => self.witness.went(&self.hosts, index, fence),
                Want::Carry(departure) => {
                    let after = self.up_to(Duration::from_millis(300));
                    let carried = Carried { host, incarnation, departure, tries: 0 };
                    self.plan(after, Happening::Carried(Box::new(carried)));
                }
                Want::Spawn { fence, subprogram, rank, script } => {
                    let after = self.up_to(Duration::from_millis(5));
                    if self.rng.random_bool(0.01) {
                        self.plan(after, Happening::StartFails { host, incarnation, fence });
                        continue;
                    }
                    let script =
                        script.or_else(|| rank.map(|rank| self.script_of(subprogram, &rank)));
                    let process = Process {
                        subprogram,
                        frozen: false,
                        killed: false,
                        left: self.work(subprogram.job),
                        since: self.now,
                        outcome: self.outcome(),
                        runs: 0,
                        old: None,
                        before: [].into(),
                        landed: false,
                        stopped: false,
                        script,
                    };
                    self.hosts[index].processes.insert(fence, process);
                    self.plan(after, Happening::Started { host, incarnation, fence });
                }
                Want::Reap(fence) => {
                    let after = self.up_to(Duration::from_millis(20));
                    self.plan(after, Happening::Reaped { host, incarnation, fence });
                }
                Want::Stage(job) => {
                    let after = self.up_to(Duration::from_millis(500));
                    self.plan(after, Happening::Staged { host, incarnation, job });
                }
            }
        }
    }

    fn script_of(&mut self, id: SubprogramId, rank: &RankOffer) -> Script {
        let program = self.store.jobs[&id.job].spec.program;
        let bag = program.is_some_and(|spec| spec.checkpoint_every.is_none());
        let kept = self.cuts.begin(&self.store, id, rank.life, rank.cut);
        kept.unwrap_or_else(|| Script::new(id.job, id.index, rank.life, bag))
    }

    pub(super) fn send_up(&mut self, index: usize, frame: AgentFrame) {
        let Some(link) = self.hosts[index].link else { return };
        let (delay, twice) = (self.delay(), self.rng.random_bool(0.01));
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.broken) else { return };
        wire.up_at = wire.up_at.max(self.now + delay);
        let at = wire.up_at;
        if twice && !matches!(frame, AgentFrame::Hello { .. }) {
            let again = at + self.up_to(Duration::from_secs(5));
            self.plan_at(again, Happening::Heard(link, frame.clone()));
        }
        self.plan_at(at, Happening::Heard(link, frame));
    }

    pub(super) fn owner_types(&mut self, id: u32) {
        let index = id as usize - 1;
        if !self.hosts[index].owner_here {
            return;
        }
        if self.hosts[index].is_up() {
            let wants = self.hosts[index].typed(self.now);
            self.grant(index, wants);
        }
        let next = self.up_to(Duration::from_millis(1_500));
        self.plan(next, Happening::OwnerTypes(id));
    }
}
