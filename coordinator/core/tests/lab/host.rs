//! A workstation: the real desk of an agent, and a model of its keepers, its
//! owner and its machine.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_agent_core::desk::{Desk, Effect, Event, Exit, Left, Setup};
use gleaner_agent_core::occupancy::{Criteria, Observation};
use gleaner_common::id::{BootId, Fence, Incarnation, JobId, PlaceId, SubprogramId};
use gleaner_common::job::Outcome;
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, Facts, Printed};
use gleaner_core::Link;

/// A guest's processes.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) subprogram: SubprogramId,
    pub(crate) frozen: bool,
    pub(crate) killed: bool,
    /// How much longer it runs, as of `since`.
    pub(crate) left: Duration,
    pub(crate) since: Moment,
    pub(crate) outcome: Outcome,
}

/// What a host wants of the world after an event.
#[derive(Debug)]
pub(crate) enum Want {
    Send(AgentFrame),
    /// A guest is being started.
    Spawn {
        fence: Fence,
        subprogram: SubprogramId,
    },
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
        let running =
            self.processes.iter().filter(|(_, process)| !process.frozen && !process.killed);
        let running = running.filter(|_| !self.asleep);
        running.map(|(fence, process)| (process.since + process.left, *fence)).min()
    }

    pub(crate) fn exit_of(&mut self, now: Moment, fence: Fence) -> Vec<Want> {
        let Some(process) = self.processes.remove(&fence) else { return vec![] };
        let left =
            Left { stdout: Printed::Inline(fence.to_string().into_bytes()), ..Left::default() };
        let exit = Exit { outcome: process.outcome, cpu: Duration::from_secs(1), left: Some(left) };
        self.handle(now, Event::Exited { fence, exit })
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
                    wants.push(Want::Spawn { fence, subprogram });
                }
                Effect::Freeze { place, fence } => self.with(place, fence, |process| {
                    process.pause(now);
                    process.frozen = true;
                }),
                Effect::Thaw { place, fence } => self.with(place, fence, |process| {
                    process.since = now;
                    process.frozen = false;
                }),
                Effect::Kill { fence, .. } => {
                    if let Some(process) = self.processes.get_mut(&fence) {
                        process.killed = true;
                    }
                    wants.push(Want::Reap(fence));
                }
                Effect::Expect(_)
                | Effect::Go { .. }
                | Effect::AskToRetreat { .. }
                | Effect::Depart(_)
                | Effect::CallBack { .. } => unreachable!("no job of this lab moves"),
                Effect::Prepare { job, .. } => wants.push(Want::Stage(job)),
                Effect::Send(frame) => wants.push(Want::Send(frame)),
                Effect::Demote { .. }
                | Effect::Restore { .. }
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
    /// What it has run since it last went on is behind it.
    fn pause(&mut self, now: Moment) {
        if !self.frozen {
            self.left = self.left.saturating_sub(now.since(self.since));
            self.since = now;
        }
    }
}
