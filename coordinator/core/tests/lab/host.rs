//! A workstation: the real desk of an agent, and a model of its keepers, its
//! owner and its machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_agent_core::desk::{Departure, Desk, Effect, Event, Exit, Left, Setup};
use gleaner_agent_core::occupancy::{Criteria, Observation};
use gleaner_common::fingerprint::{Fingerprint, Version};
use gleaner_common::id::{BootId, Fence, Incarnation, JobId, PlaceId, SubprogramId};
use gleaner_common::job::Outcome;
use gleaner_common::program::RankOffer;
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, Facts, Printed};
use gleaner_core::Link;

use super::cuts::cut_frame;
use super::rank::{Remains, Script};

/// A guest's processes.
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) subprogram: SubprogramId,
    pub(crate) frozen: bool,
    pub(crate) killed: bool,
    /// How much longer it runs, as of `since`.
    pub(crate) left: Duration,
    pub(crate) since: Moment,
    pub(crate) outcome: Outcome,
    /// How often it was set going: an image is of one time between.
    pub(crate) runs: u32,
    /// Its state comes from there, and from where it had come before.
    pub(crate) old: Option<Fence>,
    pub(crate) before: BTreeSet<Fence>,
    pub(crate) landed: bool,
    /// Has come, or is to, and was not set going.
    pub(crate) stopped: bool,
    /// If it is a rank.
    pub(crate) script: Option<Script>,
}

/// What a host wants of the world after an event.
#[derive(Debug)]
pub(crate) enum Want {
    Send(AgentFrame),
    /// A guest is being started.
    Spawn {
        fence: Fence,
        subprogram: SubprogramId,
        rank: Option<Box<RankOffer>>,
        /// Of a rank that lost its process and begins anew.
        script: Option<Script>,
    },
    /// What has landed is set going.
    Went(Fence),
    /// A guest is to be carried away.
    Carry(Departure),
    /// A guest was killed and will be reaped.
    Reap(Fence),
    Stage(JobId),
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) id: u32,
    /// Its clock's distance from the lab's: epochs differ.
    offset: Duration,
    pub(crate) incarnation: u64,
    /// `None` while the agent is dead.
    pub(crate) desk: Option<Desk>,
    pub(crate) processes: BTreeMap<Fence, Process>,
    /// Where each guest is being carried to.
    pub(crate) carrying: BTreeMap<Fence, Fence>,
    /// Scripts of ranks whose process is gone and that want away without it.
    pub(crate) bare: BTreeMap<Fence, Script>,
    pub(crate) remains: BTreeMap<Fence, Remains>,
    /// The connection its agent uses; it may be broken already.
    pub(crate) link: Option<Link>,
    /// The machine sleeps: nothing here happens.
    pub(crate) asleep: bool,
    /// The owner sits there, typing.
    pub(crate) owner_here: bool,
    cores: u16,
    places: u16,
}

impl Host {
    pub(crate) fn new(id: u32, cores: u16, places: u16) -> Self {
        Self {
            id,
            offset: Duration::from_secs(u64::from(id) * 977),
            incarnation: u64::from(id) * 1_000,
            desk: None,
            processes: BTreeMap::new(),
            carrying: BTreeMap::new(),
            bare: BTreeMap::new(),
            remains: BTreeMap::new(),
            link: None,
            asleep: false,
            owner_here: false,
            cores,
            places,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.desk.is_some() && !self.asleep
    }

    /// A new life of its agent.
    pub(crate) fn start(&mut self, now: Moment) -> Vec<Want> {
        self.incarnation += 1;
        let facts = Facts {
            cores: self.cores,
            places: self.places,
            speed: 1_000.0 + self.id as f32,
            fingerprint: (!self.id.is_multiple_of(5)).then(|| Box::new(machine(self.id))),
            ..Facts::default()
        };
        let criteria = Criteria {
            quiet: Duration::from_secs(2),
            load_quiet: Duration::ZERO,
            required: [].into(),
            ..Criteria::default()
        };
        let setup = Setup {
            incarnation: Incarnation(self.incarnation),
            boot: BootId([u8::try_from(self.id % 256).unwrap_or(0); 16]),
            facts,
            criteria,
            pause: None,
        };
        let (desk, effects) = Desk::new(now + self.offset, setup);
        self.desk = Some(desk);
        self.carry_out(now, effects)
    }

    /// The agent is killed: nothing of its guests outlives it.
    pub(crate) fn crash(&mut self) {
        self.desk = None;
        self.processes.clear();
        self.carrying.clear();
        self.bare.clear();
        self.remains.clear();
        self.link = None;
    }

    pub(crate) fn handle(&mut self, now: Moment, event: Event) -> Vec<Want> {
        let Some(desk) = &mut self.desk else { return vec![] };
        let effects = desk.handle(now + self.offset, event);
        self.carry_out(now, effects)
    }

    pub(crate) fn wake(&mut self, now: Moment) -> Vec<Want> {
        let Some(desk) = &mut self.desk else { return vec![] };
        let effects = desk.wake(now + self.offset);
        self.carry_out(now, effects)
    }

    pub(crate) fn deadline(&self) -> Option<Moment> {
        let desk = self.desk.as_ref().filter(|_| !self.asleep)?;
        desk.deadline().map(|at| at - self.offset)
    }

    pub(crate) fn typed(&mut self, now: Moment) -> Vec<Want> {
        let source = "pts/1".to_owned();
        self.handle(now, Event::Observed(Observation::Input { source, ago: Duration::ZERO }))
    }

    /// The first guest that ends by itself, and when.
    pub(crate) fn next_exit(&self) -> Option<(Moment, Fence)> {
        let running = self.processes.iter().filter(|(_, process)| process.runs());
        let running = running.filter(|_| !self.asleep);
        running.map(|(fence, process)| (process.since + process.left, *fence)).min()
    }

    pub(crate) fn exit_of(&mut self, now: Moment, fence: Fence) -> Vec<Want> {
        let Some(process) = self.processes.remove(&fence) else { return vec![] };
        let mut wants = vec![];
        if let Some(script) = process.script {
            if process.killed {
                self.bare.insert(fence, script);
            } else {
                let (job, rank, life) = (script.job, script.rank, script.life);
                let remains = Remains { job, rank, life, drained: false };
                wants.extend(remains.say(fence).into_iter().map(Want::Send));
                self.remains.insert(fence, remains);
            }
        }
        let left =
            Left { stdout: Printed::Inline(fence.to_string().into_bytes()), ..Left::default() };
        let exit = Exit { outcome: process.outcome, cpu: Duration::from_secs(1), left: Some(left) };
        wants.extend(self.handle(now, Event::Exited { fence, exit }));
        wants
    }

    /// What the ranks here say again on a new connection.
    pub(crate) fn say_again(&mut self) -> Vec<Want> {
        let mut said: Vec<AgentFrame> =
            self.remains.iter().flat_map(|(fence, remains)| remains.say(*fence)).collect();
        said.extend(self.processes.keys().copied().collect::<Vec<_>>().into_iter().filter_map(
            |fence| {
                let process = self.processes.get_mut(&fence)?;
                if process.runs() { process.ask(fence) } else { None }
            },
        ));
        let cuts = self.processes.iter().filter(|(_, process)| !process.killed);
        said.extend(cuts.filter_map(|(fence, process)| {
            let script = process.script.as_ref()?;
            Some(cut_frame(*fence, script.life, script.cut?))
        }));
        said.into_iter().map(Want::Send).collect()
    }

    /// A rank goes on, or has begun.
    pub(crate) fn kick(&mut self, fence: Fence) -> Vec<Want> {
        let process = self.processes.get_mut(&fence).filter(|process| process.runs());
        process.and_then(|process| process.ask(fence)).map(Want::Send).into_iter().collect()
    }

    pub(crate) fn falls_asleep(&mut self, now: Moment) {
        for process in self.processes.values_mut() {
            process.pause(now);
        }
        self.asleep = true;
    }

    /// The desk hears of the time before anything else gets the processor.
    pub(crate) fn awakes(&mut self, now: Moment) -> Vec<Want> {
        self.asleep = false;
        for process in self.processes.values_mut() {
            process.since = now;
        }
        let mut wants = self.wake(now);
        wants.extend(self.handle(now, Event::Woke));
        wants
    }

    fn carry_out(&mut self, now: Moment, effects: Vec<Effect>) -> Vec<Want> {
        let mut wants = vec![];
        for effect in effects {
            match effect {
                Effect::Start(start) => {
                    let (fence, subprogram) = (start.fence, start.subprogram);
                    let script = None;
                    wants.push(Want::Spawn { fence, subprogram, rank: start.rank, script });
                }
                Effect::Again(start) => {
                    let (fence, subprogram) = (start.fence, start.subprogram);
                    let mut script = self.bare.remove(&fence).expect("a rank without a process");
                    script.begin_anew();
                    let script = Some(script);
                    wants.push(Want::Spawn { fence, subprogram, rank: start.rank, script });
                }
                Effect::Expect(start) => {
                    let process = Process {
                        subprogram: start.subprogram,
                        frozen: false,
                        killed: false,
                        left: Duration::ZERO,
                        since: now,
                        outcome: Outcome::Succeeded,
                        runs: 0,
                        old: start.arrival.map(|arrival| arrival.old),
                        before: BTreeSet::new(),
                        landed: false,
                        stopped: true,
                        script: None,
                    };
                    self.processes.insert(start.fence, process);
                }
                Effect::Go { place, fence } => {
                    self.with(place, fence, |process| {
                        process.since = now;
                        process.stopped = false;
                    });
                    wants.push(Want::Went(fence));
                    wants.extend(self.kick(fence));
                }
                Effect::Depart(departure) => {
                    self.carrying.insert(departure.fence, departure.to.fence);
                    wants.push(Want::Carry(departure));
                }
                Effect::CallBack { fence, .. } => {
                    self.carrying.remove(&fence);
                }
                Effect::Freeze { place, fence } => self.with(place, fence, |process| {
                    process.pause(now);
                    process.frozen = true;
                }),
                Effect::Thaw { place, fence } => {
                    self.with(place, fence, |process| {
                        process.since = now;
                        process.frozen = false;
                        process.runs += 1;
                    });
                    wants.extend(self.kick(fence));
                }
                Effect::Kill { fence, .. } | Effect::Empty { fence, .. } => {
                    if let Some(process) = self.processes.get_mut(&fence) {
                        process.killed = true;
                    }
                    wants.push(Want::Reap(fence));
                }
                Effect::Prepare { job, .. } => wants.push(Want::Stage(job)),
                Effect::Send(frame) => wants.push(Want::Send(frame)),
                Effect::Demote { .. }
                | Effect::Restore { .. }
                | Effect::AskToRetreat { .. }
                | Effect::Discard { .. }
                | Effect::Abandon { .. }
                | Effect::Record(_)
                | Effect::PersistPause(_)
                | Effect::ReadyToSleep
                | Effect::ReadyToStop => {}
            }
        }
        wants
    }

    fn with(&mut self, _: PlaceId, fence: Fence, change: impl FnOnce(&mut Process)) {
        if let Some(process) = self.processes.get_mut(&fence) {
            change(process);
        }
    }
}

impl Process {
    pub(crate) fn is_still(&self) -> bool {
        self.frozen || self.stopped
    }

    pub(crate) fn runs(&self) -> bool {
        !self.is_still() && !self.killed
    }

    fn ask(&mut self, fence: Fence) -> Option<AgentFrame> {
        self.script.as_mut()?.ask(fence)
    }

    /// What it has run since it last went on is behind it.
    fn pause(&mut self, now: Moment) {
        if self.runs() {
            self.left = self.left.saturating_sub(now.since(self.since));
            self.since = now;
        }
    }
}

/// Two kinds of machine: what was made on the newer one suits no older one.
fn machine(id: u32) -> Fingerprint {
    Fingerprint {
        architecture: "x86_64".into(),
        kernel: if id.is_multiple_of(2) { "6.12.1" } else { "6.1.0" }.into(),
        criu: Version { major: 4, minor: 1, patch: 1 },
        processor: "Xeon".into(),
        features: [].into(),
        system: "Debian 13".into(),
        root: [1; 16],
    }
}
