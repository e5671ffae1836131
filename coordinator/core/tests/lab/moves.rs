//! Guests on their way from host to host, and what ranks hear.

use std::time::Duration;

use gleaner_agent_core::desk::{self, Departure};
use gleaner_common::id::Fence;
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::wire::CoordinatorFrame;
use gleaner_program_core::wire::ToRank;
use rand::Rng;

use super::host::Process;
use super::{Happening, Lab, index_of};

/// A guest's state is about to be sent.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(super) host: u32,
    pub(super) incarnation: u64,
    pub(super) departure: Departure,
    pub(super) tries: u32,
}

/// It is being taken in.
#[derive(Debug)]
pub(crate) struct Landing {
    source: (u32, u64, Fence),
    target: (u32, u64, Fence),
    image: Process,
}

/// How often a source tries to reach a target, a second apart.
const TRIES_MAX: u32 = 40;

impl Lab {
    pub(super) fn carried(&mut self, mut carried: Carried) {
        let (index, old) = (carried.host as usize - 1, carried.departure.fence);
        let new = carried.departure.to.fence;
        let source = &self.hosts[index];
        if source.incarnation != carried.incarnation || source.carrying.get(&old) != Some(&new) {
            return;
        }
        let target = index_of(carried.departure.to.workstation);
        let is_awaited = self.hosts[target].is_up()
            && self.hosts[target]
                .processes
                .get(&new)
                .is_some_and(|process| !process.killed && !process.landed);
        if source.asleep || !is_awaited {
            carried.tries += 1;
            if carried.tries < TRIES_MAX {
                self.plan(Duration::from_secs(1), Happening::Carried(Box::new(carried)));
            }
            return;
        }
        let obstacle = self.rng.random_bool(self.setting.obstacles);
        if carried.departure.keep != Keep::Nothing && obstacle {
            let reason = "an open socket".to_owned();
            self.hosts[index].carrying.remove(&old);
            return self.tell(index, desk::Event::CannotLeave { fence: old, reason });
        }
        let Some(image) = self.image_of(index, &carried.departure) else { return };
        self.tell(target, desk::Event::Coming(new));
        let landing = Landing {
            source: (carried.host, carried.incarnation, old),
            target: (self.hosts[target].id, self.hosts[target].incarnation, new),
            image,
        };
        let after = self.up_to(Duration::from_secs(1));
        self.plan(after, Happening::Landing(Box::new(landing)));
    }

    fn image_of(&mut self, index: usize, departure: &Departure) -> Option<Process> {
        let (work, outcome) = (self.work(departure.subprogram.job), self.outcome());
        let host = &self.hosts[index];
        if departure.keep != Keep::Nothing {
            let process = host.processes.get(&departure.fence)?;
            assert!(process.frozen, "{} is carried while it runs", departure.fence);
            let mut image = process.clone();
            image.before.insert(departure.fence);
            return Some(image);
        }
        let mut script = host.bare.get(&departure.fence)?.clone();
        script.begin_anew();
        Some(Process {
            subprogram: departure.subprogram,
            frozen: false,
            killed: false,
            left: work,
            since: self.now,
            outcome,
            runs: 0,
            old: None,
            before: [departure.fence].into(),
            landed: false,
            stopped: false,
            script: Some(script),
        })
    }

    pub(super) fn landing(&mut self, landing: Landing) {
        let Landing { source: (from, life, old), target: (to, incarnation, new), image } = landing;
        let (source, index) = (&self.hosts[from as usize - 1], to as usize - 1);
        let is_called_back = source.incarnation != life || source.carrying.get(&old) != Some(&new);
        // All of it may have been on its way already when its source gave up.
        let fails = self.rng.random_bool(if is_called_back { 0.5 } else { self.setting.obstacles });
        if self.hosts[index].incarnation != incarnation {
            return;
        }
        if self.hosts[index].asleep {
            let landing =
                Landing { source: (from, life, old), target: (to, incarnation, new), image };
            return self.plan(Duration::from_secs(1), Happening::Landing(Box::new(landing)));
        }
        let Some(process) = self.hosts[index].processes.get_mut(&new) else { return };
        if process.killed {
            return;
        }
        if fails {
            self.hosts[index].processes.remove(&new);
            let reason = "the stream broke".to_owned();
            let event = desk::Event::StartFailed { fence: new, reason, hopeless: false };
            return self.tell(index, event);
        }
        let (old, frozen) = (process.old, process.frozen);
        self.witness.landed(old);
        *process = Process { frozen, killed: false, old, landed: true, stopped: true, ..image };
        let (bytes, frozen) = (1_000, Duration::from_millis(100));
        self.tell(index, desk::Event::Landed { fence: new, bytes, frozen });
    }

    /// What an agent hears that is for its ranks.
    pub(super) fn tell_ranks(&mut self, index: usize, frame: &CoordinatorFrame) {
        match frame {
            CoordinatorFrame::ToRank { fence, life, bytes } => {
                let told: ToRank = postcard::from_bytes(bytes).expect("it reads");
                self.tell_rank(index, *fence, *life, &told);
            }
            CoordinatorFrame::Ranks { job, life, at } => {
                self.hosts[index].remains.retain(|_, it| it.job != *job || it.life >= *life);
                for at in at {
                    assert!(!at.name.is_empty());
                }
            }
            CoordinatorFrame::Forget { job } => {
                self.hosts[index].remains.retain(|_, it| it.job != *job);
            }
            CoordinatorFrame::Cancel { fence } => {
                self.hosts[index].bare.remove(fence);
                self.hosts[index].carrying.remove(fence);
            }
            CoordinatorFrame::Welcome { .. }
            | CoordinatorFrame::HeartbeatAck { .. }
            | CoordinatorFrame::Job { .. }
            | CoordinatorFrame::Offer(_)
            | CoordinatorFrame::Acknowledge { .. }
            | CoordinatorFrame::Refused { .. }
            | CoordinatorFrame::Relayed { .. }
            | CoordinatorFrame::Depart { .. }
            | CoordinatorFrame::Stay { .. }
            | CoordinatorFrame::GoOn { .. } => {}
        }
    }

    fn tell_rank(&mut self, index: usize, fence: Fence, life: Life, told: &ToRank) {
        let is_here = self.hosts[index].processes.contains_key(&fence)
            || self.hosts[index].remains.contains_key(&fence);
        if let ToRank::Cut(snapshot) = told {
            if is_here {
                self.tell_to_cut(index, fence, *snapshot);
            }
            return;
        }
        let ToRank::Answered { request, answer } = told else { return };
        // What stands still hears nothing, and asks again.
        let Some(process) = self.hosts[index].processes.get_mut(&fence) else { return };
        if !process.runs() {
            return;
        }
        let Some(script) = &mut process.script else { return };
        assert_eq!(script.life, life, "{fence} is told of another life");
        let job = script.job;
        if let Some(task) = script.answered(*request, answer) {
            self.witness.accepted(job, life, task);
        }
        let wants = self.hosts[index].kick(fence);
        self.grant(index, wants);
    }
}
