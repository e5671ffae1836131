//! The agents' side of a lab: what they are told, and what they order.

use std::time::Duration;

use gleaner_agent_core::agent::Event;
use gleaner_agent_core::guest::Effect;
use gleaner_agent_core::occupancy::Observation;
use gleaner_common::id::SubprogramId;
use gleaner_common::wire::{AgentFrame, AttemptEvent, Printed};
use rand::Rng;

use super::container::Reap;
use super::invariant::holds;
use super::router::RouterCommand;
use super::{Happening, Lab, Local};

impl Lab {
    pub(super) fn agent_starts(&mut self, id: u32) {
        let index = id as usize - 1;
        if self.hosts[index].agent.is_none() {
            if !self.usage.agent_starts(index) {
                return self.agent_loses_power(index);
            }
            let effects = self.hosts[index].start(self.now);
            self.apply(index, effects);
            let after = self.delay();
            self.plan(after, Happening::Dial(id));
        }
    }

    // ── what it hears ──────────────────────────────────────────────────────

    /// An agent takes one thing in after the other, and what comes of them last.
    pub(super) fn tell(&mut self, index: usize, event: Event) {
        self.hosts[index].queue.push_back(event);
        self.settle(index);
    }

    fn settle(&mut self, index: usize) {
        if std::mem::replace(&mut self.hosts[index].handles, true) {
            return;
        }
        while let Some(event) = self.hosts[index].queue.pop_front() {
            let now = self.hosts[index].clock.reads(self.now);
            let Some(agent) = &mut self.hosts[index].agent else { continue };
            let effects = agent.handle(now, event);
            for effect in effects {
                self.obey(index, effect);
            }
        }
        self.hosts[index].handles = false;
    }

    pub(super) fn wake(&mut self, index: usize) {
        let now = self.hosts[index].clock.reads(self.now);
        let Some(agent) = &mut self.hosts[index].agent else { return };
        let effects = agent.wake(now);
        self.apply(index, effects);
    }

    fn apply(&mut self, index: usize, effects: Vec<Effect>) {
        self.hosts[index].handles = true;
        for effect in effects {
            self.obey(index, effect);
        }
        self.hosts[index].handles = false;
        self.settle(index);
    }

    /// Something happens on this host, in this life of its agent.
    pub(super) fn happens_here(&mut self, index: usize, what: Local) {
        match what {
            Local::Tell(event) => self.tell(index, event),
            Local::Laid { at, fails } => self.laid(index, at, fails),
            Local::Keeper { place, number, work } => self.keeper_works(index, place, number, work),
            Local::KeeperDies { place, number } => self.keeper_dies(index, place, number),
            Local::ImageWritten { at, number, image } => {
                self.image_written(index, at, number, *image);
            }
            Local::RouterTurn => self.act(index, |_, _| {}),
            Local::RouterSays(said) => self.router_said(index, *said),
            Local::WayOpens(wanted) => self.way_opens(index, &wanted),
            Local::WayLost(at) => {
                let lost = RouterCommand::PeerStreamLost(at);
                self.act(index, |core, now| core.take(now, lost));
            }
            Local::Packets { way, from, frames } => self.packets_come(index, way, from, frames),
            Local::Stages { fence, snapshot, part } => self.stages(index, (fence, snapshot), *part),
            Local::Fetched { fence, hash } => self.fetched(index, fence, hash),
            Local::Runs(number) => self.rank_runs(index, number),
            Local::Faults(number) => self.faults(index, number),
            Local::Returns(fence) => self.returns(index, fence),
            Local::Carries(number) => self.carries(index, number),
            Local::CarrierEnds { number, cannot, taken } => {
                self.carrier_ends(index, number, cannot, taken);
            }
            Local::Streams(number) => self.streams_on(index, number),
            Local::Late(fence) => self.drop_late(index, fence),
            Local::Usage(what) => self.usage_at_agent(index, what),
        }
    }

    // ── what it orders ─────────────────────────────────────────────────────

    fn obey(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Freeze(at) => self.freeze(index, at),
            Effect::Thaw(at) => self.thaw(index, at),
            Effect::Hurry(at, hurries) => self.hurry(index, at, hurries),
            Effect::Kill(at) => self.kill(index, at),
            Effect::SpawnKeeper { place, staged } => self.spawn_keeper(index, place, staged),
            Effect::DropKeeper(place) => self.drop_keeper(index, place),
            Effect::Prepare(start) => drop(self.prepare(index, &start)),
            Effect::LayInputs(at) | Effect::LayRest(at) => self.lay(index, at),
            Effect::Launch { at, begins } => self.launch(index, at, begins),
            Effect::Reap { at, endpoint, stays, discard } => {
                self.reap(index, Reap { at, endpoint, stays, discard });
            }
            Effect::ClearGround(at) => self.clear_ground(index, at),
            Effect::Look(at) => self.look(index, at),
            Effect::Measure(at) => self.measure(index, at),
            Effect::Expect(start) => self.expect(index, &start),
            Effect::ExpectSnapshot(start) => self.expect_snapshot(index, &start),
            Effect::ReceiveProcess(at) => self.receive_process(index, at),
            Effect::Unpack(at) => self.unpack_at(index, at),
            Effect::Land(at) => self.land(index, at),
            Effect::Verify(at) => self.verify(index, at),
            Effect::Answer(at, no) => self.answer(index, at, no.as_deref()),
            Effect::SetGoing(at) => {
                self.went(index, at);
                self.command_router(index, RouterCommand::SetGoing(at.fence));
            }
            Effect::GoOn(at) => self.go_on(index, at),
            Effect::AskToRetreat { at, within } => {
                let clock = self.hosts[index].clock;
                let until = clock.when(clock.reads(self.now) + within);
                let place = &mut self.hosts[index].places[usize::from(at.place.0)];
                place.ordered.returns = Some(until);
                self.command_router(index, RouterCommand::Retreat { fence: at.fence, within });
                // Some take too long, and some do not listen.
                let after = self.up_to(within * 2);
                if self.rng.random_bool(0.9) {
                    self.plan_here(index, after, Local::Returns(at.fence));
                }
            }
            Effect::Pack(at, keep) => self.pack(index, at, keep),
            Effect::Stayed(at) => {
                self.hosts[index].places[usize::from(at.place.0)].ordered.packed = false;
                self.command_router(index, RouterCommand::Stayed(at.fence));
            }
            Effect::Carry(departure) => self.carry(index, departure),
            Effect::CallBack(at) => self.call_back(index, at.fence),
            Effect::DropEndpoint(at, to) => {
                let fence = at.fence;
                let command = match to {
                    Some(to) => RouterCommand::Left { fence, to: to.fence, at: to.workstation },
                    None => RouterCommand::Dropped(fence),
                };
                self.command_router(index, command);
            }
            Effect::Replug(at) => self.replug(index, at),
            Effect::EmptyPipes(at) => self.empty_pipes(index, at),
            Effect::WriteImage(at) => self.write_image(index, at),
            Effect::ImageEnded { at, done, stood } => self.image_ended(index, at, done, stood),
            Effect::Stage { job, .. } => {
                let after = self.up_to(Duration::from_millis(500));
                self.plan_here(index, after, Local::Tell(Event::Staged(job)));
            }
            Effect::Send(frame) => self.send_up(index, frame),
            Effect::Record(transition) => self.recorded(index, transition),
            Effect::Discard { .. }
            | Effect::Abandon { .. }
            | Effect::PersistPause(_)
            | Effect::ReadyToSleep
            | Effect::ReadyToStop => {}
        }
    }

    /// A rank that returns its work had been given a place, or had come with it.
    fn check_retreats(&self, frame: &AgentFrame) {
        let AgentFrame::Attempt(AttemptEvent::Retreated { fence, reason, .. }) = frame else {
            return;
        };
        let Some(attempt) = self.store.attempts.get(fence) else { return };
        let job = &self.store.jobs[&attempt.subprogram.job];
        let has_begun = job.spec.program.is_none() || self.witness.has_begun(*fence);
        holds!(BeginsWhole, has_begun, "{fence} retreats, and had not begun: {reason}");
    }

    /// What a guest of a replicated job printed, as its workstation tells it.
    pub(super) fn tells(&self, index: usize, frame: &mut AgentFrame) {
        self.check_retreats(frame);
        let AgentFrame::Attempt(AttemptEvent::Finished(finished)) = frame else { return };
        let Some(attempt) = self.store.attempts.get(&finished.fence) else { return };
        let id = attempt.subprogram;
        if self.store.jobs[&id.job].spec.replicas > 1 {
            let lies = self.hosts[index].id <= self.setting.liars;
            finished.stdout = Printed::Inline(if lies { b"a lie".into() } else { truth(id) });
        }
    }

    pub(super) fn owner_types(&mut self, id: u32) {
        let index = id as usize - 1;
        if !self.hosts[index].owner_here {
            return;
        }
        if self.hosts[index].is_up() {
            self.typed(index);
        } else {
            self.hosts[index].unheard |= self.hosts[index].stopped.is_some();
        }
        let next = self.up_to(self.setting.owner_quiet.mul_f64(0.75));
        self.plan(next, Happening::OwnerTypes(id));
    }

    pub(super) fn typed(&mut self, index: usize) {
        let (source, ago) = ("pts/1".to_owned(), Duration::ZERO);
        self.hosts[index].typed(self.now);
        self.tell(index, Event::Observed(Observation::Input { source, ago }));
    }
}

/// What an honest run of a subprogram prints.
pub(super) fn truth(id: SubprogramId) -> Vec<u8> {
    id.to_string().into_bytes()
}
