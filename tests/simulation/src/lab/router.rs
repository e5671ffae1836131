//! Routers: the production one of each host, and the time that it takes.
//!
//! Commands of the event loop wait for whoever takes up the router next, as in
//! production; what it answers comes in order, in its own time.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_agent_core::guest::{self, Exit};
use gleaner_agent_core::router::{self, RouterEvent};
use gleaner_common::id::{Fence, WorkstationId};
use gleaner_common::job::Outcome;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_common::wire::CoordinatorFrame;
use gleaner_coordinator_core::Link;
use rand::Rng;

use super::place::Payload;
use super::rank::Image;
use super::shell::{Order, Pipe, Surroundings};
use super::{Lab, Local};

pub(crate) type RouterCommand = router::RouterCommand<Surroundings>;
pub(crate) type Said = RouterEvent<Surroundings>;
pub(crate) type Packed = router::Packed<Image>;
type Core = router::Router<Surroundings>;

/// What carries ranks' messages at a host.
#[derive(Debug)]
pub(crate) struct Router {
    core: Core,
    /// What the event loop has left for it.
    left: Vec<RouterCommand>,
    /// Commands are looked at in order, and answers come in order.
    told_until: Moment,
    says_until: Moment,
    /// Ends of which not all is known.
    pub(super) settling: BTreeMap<Fence, Box<Exit>>,
}

impl Default for Router {
    fn default() -> Self {
        let (told_until, says_until) = (Moment::ZERO, Moment::ZERO);
        let core = Core::new(Surroundings::default());
        Self { core, left: vec![], told_until, says_until, settling: BTreeMap::new() }
    }
}

impl Router {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn surroundings(&mut self) -> &mut Surroundings {
        self.core.shell()
    }
}

impl Lab {
    pub(super) fn command_router(&mut self, index: usize, command: RouterCommand) {
        let after = self.router_takes();
        let router = &mut self.hosts[index].router;
        router.left.push(command);
        router.told_until = router.told_until.max(self.now + after);
        let at = router.told_until;
        self.plan_here_at(index, at, Local::RouterTurn);
    }

    fn router_takes(&mut self) -> Duration {
        let long = self.rng.random_bool(0.05);
        self.up_to(Duration::from_millis(if long { 500 } else { 2 }))
    }

    /// The router does something, and all that follows from it.
    pub(super) fn act(&mut self, index: usize, act: impl FnOnce(&mut Core, Moment)) {
        let host = &mut self.hosts[index];
        let now = host.clock.reads(self.now);
        let Router { core, left, .. } = &mut host.router;
        left.drain(..).for_each(|command| core.take(now, command));
        act(core, now);
        for process in host.places.iter().filter_map(|place| place.process.as_ref()) {
            let Some(rank) = &process.rank else { continue };
            let (speaks, has_place) = rank.pipe.is_ready();
            if has_place {
                core.write(process.fence);
            }
            if speaks {
                core.hear(now, process.fence);
            }
        }
        core.settle(now);
        for order in core.shell().take() {
            self.router_orders(index, order);
        }
        let news = |(_, process): &(_, &super::place::Process)| {
            process.rank.as_ref().is_some_and(|rank| rank.pipe.take_news())
        };
        let hear: Vec<Fence> =
            self.hosts[index].processes().filter(news).map(|(_, process)| process.fence).collect();
        for fence in hear {
            self.kick(index, fence);
        }
    }

    /// It looks at what was left for it, and at its clock.
    pub(super) fn router_wakes(&mut self, index: usize) {
        self.act(index, Core::wake);
    }

    fn router_orders(&mut self, index: usize, order: Order) {
        match order {
            Order::Send(session, frame) => {
                if self.hosts[index].link.is_some_and(|link| link.serial == session) {
                    self.send_up(index, frame);
                }
            }
            Order::Have(request) => self.router_has(index, request),
            Order::Say(said) => {
                let after = self.router_takes();
                let router = &mut self.hosts[index].router;
                router.says_until = router.says_until.max(self.now + after);
                let at = router.says_until;
                self.plan_here_at(index, at, Local::RouterSays(Box::new(said)));
            }
            Order::Pass(number, frames) => self.pass(number, frames),
        }
    }

    /// The agent hears it now.
    pub(super) fn router_said(&mut self, index: usize, said: Said) {
        match said {
            Said::Faulted { fence, what } => {
                self.tell_guest(index, fence, guest::Event::Faulted(what));
            }
            Said::Settled { fence, fault, stays } => {
                let Some(mut exit) = self.hosts[index].router.settling.remove(&fence) else {
                    return;
                };
                if let Some(what) = fault {
                    exit.outcome = Outcome::Fault(what);
                }
                self.tell_guest(index, fence, guest::Event::Exited { exit, stays });
            }
            Said::Returned(fence) => self.tell_guest(index, fence, guest::Event::Returned),
            Said::Packed { fence, packed } => {
                let Some(at) = self.hosts[index].place_of(fence) else { return };
                let guest = self.hosts[index].places[at].guest.as_mut().expect("it is held");
                let done = packed.map(|packed| guest.packed = Some(packed));
                self.tell_guest(index, fence, guest::Event::Packed(done));
            }
            Said::WantsImage(fence) => {
                let Some(at) = self.hosts[index].place_of(fence) else { return };
                self.hosts[index].places[at].ordered.imaging = true;
                self.tell_guest(index, fence, guest::Event::ImageWanted);
            }
            Said::Emptied { fence, done } => {
                self.tell_guest(index, fence, guest::Event::PipesEmptied(done));
            }
            Said::HasImage { fence, bytes, image, .. } => {
                let image = Some(self.cuts.image(&image));
                let Some(at) = self.hosts[index].place_of(fence) else { return };
                let place = &mut self.hosts[index].places[at];
                let packed = Some(Packed { bytes, image: image.clone() });
                let keep = Keep::SubtaskStart;
                let payload = Payload { keep, image, packed, runs: 0, before: [].into() };
                place.ordered.imaging = false;
                place.guest.as_mut().expect("it is held").snapshot = Some(payload);
                self.tell_guest(index, fence, guest::Event::HasImage);
            }
            Said::Unpacked { fence, done } => {
                self.tell_guest(index, fence, guest::Event::Unpacked(done));
            }
        }
    }

    /// Its pipes may turn out to be sick.
    pub(super) fn may_sicken(&mut self, pipe: &Pipe, part: f64) {
        if self.obstacle(part) {
            pipe.sicken();
        }
    }

    // ── what it hears of the coordinator ───────────────────────────────────

    /// What an agent hears that is for its ranks.
    pub(super) fn tell_ranks(&mut self, index: usize, link: Link, frame: &CoordinatorFrame) {
        let command = match frame.clone() {
            CoordinatorFrame::ToRank { fence, life, bytes } => {
                RouterCommand::ToRank { fence, life, bytes }
            }
            CoordinatorFrame::Ranks { job, life, at } => {
                assert!(at.iter().all(|at| !at.name.is_empty()));
                RouterCommand::Ranks { job, life, at }
            }
            CoordinatorFrame::Relayed { from, bytes } => RouterCommand::Relayed { from, bytes },
            CoordinatorFrame::Forget { job } => RouterCommand::Forget(job),
            CoordinatorFrame::Welcome { workstation, .. } => {
                RouterCommand::Up { session: link.serial, own: workstation }
            }
            CoordinatorFrame::Cancel { .. }
            | CoordinatorFrame::HeartbeatAck { .. }
            | CoordinatorFrame::Job { .. }
            | CoordinatorFrame::Offer(_)
            | CoordinatorFrame::Acknowledge { .. }
            | CoordinatorFrame::Refused { .. }
            | CoordinatorFrame::Depart { .. }
            | CoordinatorFrame::Stay { .. }
            | CoordinatorFrame::GoOn { .. }
            | CoordinatorFrame::Revoked { .. }
            | CoordinatorFrame::GiveBack { .. }
            | CoordinatorFrame::Riders { .. } => return,
        };
        self.act(index, |core, now| core.take(now, command));
    }

    /// The coordinator's shell passes on what agents hand each other: to whom it
    /// has welcomed, if there is any.
    pub(super) fn relays(&mut self, from: Link, to: WorkstationId, bytes: Vec<u8>) {
        let Some(link) = self.welcomed.get(&to).copied() else { return };
        self.send_down(link, CoordinatorFrame::Relayed { from: from.workstation, bytes });
    }
}
