//! Guests that come: what of that is done at the place itself. The taking in is
//! the link's (`crate::moving`).

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use gleaner_agent_core::agent;
use gleaner_agent_core::guest::{Event, GuestAt, KeeperEvent, Start};
use gleaner_common::id::Fence;
use gleaner_move::{Header, Memory, Reach, Serving, Terms};
use gleaner_program_core::address::Rank;
use gleaner_shell::clock::Clock;

use super::{Answers, Container, GuestLimits, Site, StartError};
use crate::container::keeper::{KeeperError, Landing, Limit, Order, hard_limits};
use crate::container::place_directories::WORK;
use crate::link::LinkOrder;
use crate::messages::{self, Arrive, PipeEnds, RouterCommand};
use crate::moving::{Expectation, KnownGuest};

/// What is kept in memory of an image beside the guest's own memory: its
/// files, and what CRIU writes of them.
const BESIDE_BYTES_MAX: u64 = 256 << 20;

impl Container {
    /// Makes room for a guest whose state is on its way.
    pub(crate) fn expect(&mut self, site: &Site, start: &Start, answers: &mut Answers) {
        match self.expectation(site, start) {
            Ok(expectation) => answers.orders.push(LinkOrder::Expect(Box::new(expectation))),
            Err(error) => answers.failed(start.at.fence, &error),
        }
    }

    /// A rank's state is here, with the snapshot that it began with.
    pub(crate) fn expect_snapshot(&mut self, site: &Site, start: &Start, answers: &mut Answers) {
        let snapshot = self.guest(start.at.fence).and_then(|guest| guest.snapshot.take());
        // The pipes close only now that their process is gone.
        let Some((endpoint, image, _)) = snapshot else { return };
        match self.expectation(site, start) {
            Ok(expectation) => {
                let expectation = Box::new(expectation);
                answers.orders.push(LinkOrder::TakeIn { expectation, endpoint, image });
            }
            Err(error) => answers.failed(start.at.fence, &error),
        }
    }

    fn expectation(&mut self, site: &Site, start: &Start) -> Result<Expectation, StartError> {
        let user = self.try_prepare(site, start)?.unwrap_or(0);
        let limits = terms_of(site.guest_limits(start.limits));
        let guests = &site.config.guests;
        let reach = Reach {
            readable: guests.readable.clone(),
            writable: guests.shared_directories.clone(),
        };
        Ok(Expectation {
            fence: start.at.fence,
            from: start.arrival.clone(),
            bytes_max: start.limits.memory_bytes_max.saturating_add(BESIDE_BYTES_MAX),
            directory: site.config.data.clone(),
            terms: Terms { uid: user, gid: user, limits, reach },
            mover: site.mover.as_ref().ok().cloned(),
        })
    }

    /// The header of an image tells what comes.
    pub(crate) fn header(
        &mut self,
        fence: Fence,
        (header, memory): (Box<Header>, Arc<Memory>),
        answers: &mut Answers,
    ) {
        let Some(guest) = self.guest(fence) else { return };
        let (pipes, lays) = (header.plugs.len(), !header.left_out.is_empty());
        guest.header = Some((header, memory));
        answers.guest(fence, Event::Header { pipes, lays });
    }

    /// Has the keeper prepare for the process that comes.
    pub(crate) fn receive_process(&mut self, site: &Site, at: GuestAt, answers: &mut Answers) {
        let fence = at.fence;
        match self.try_receive(site, fence) {
            Ok(Ok(())) => {}
            Ok(Err(KeeperError::Gone)) => {
                let not_begun = KeeperEvent::NotBegun { fence };
                answers.events.push(agent::Event::Keeper(at.place, not_begun));
            }
            Ok(Err(error)) => answers.guest(fence, Event::NotComing(error.to_string())),
            Err(reason) => answers.guest(fence, Event::NotComing(reason)),
        }
    }

    fn try_receive(
        &mut self,
        site: &Site,
        fence: Fence,
    ) -> Result<Result<(), KeeperError>, String> {
        let mover = site.mover.clone()?;
        let guest = self.guest(fence).ok_or("not expected")?;
        let (header, memory) = guest.header.as_ref().ok_or("no header has come")?;
        let mut header = header.clone();
        header.left_out.clear();
        for plug in &mut header.plugs {
            plug.unread.clear();
        }
        let memory = Arc::clone(memory);
        let pipes = (!header.plugs.is_empty()).then(pipes).transpose()?;
        let landing = Landing { engine: mover.engine.clone(), header: *header };
        let expect = Order::Expect(Box::new(landing));
        let (ours, theirs) = pipes.unzip();
        guest.ours = ours;
        let mut along = vec![memory.as_fd()];
        if let Some(theirs) = &theirs {
            along.extend([theirs.read.as_fd(), theirs.write.as_fd()]);
        }
        self.told = None;
        let keeper = self.keeper.as_ref().ok_or("its keeper is gone")?;
        Ok(keeper.send_with(&expect, &along))
    }

    /// Input files that lie there as they were staged are laid here from what
    /// is staged here.
    pub(crate) fn lay_rest(&mut self, at: GuestAt, answers: &mut Answers) {
        let Some(guest) = self.guest(at.fence) else { return };
        let Some((header, _)) = &guest.header else { return };
        let below =
            |name: &String| Path::new(name).strip_prefix(WORK).ok()?.to_str().map(str::to_owned);
        let only = header.left_out.iter().filter_map(below).collect();
        self.lay(at.fence, Some(only), answers);
    }

    /// Everything of a guest has come but its memory.
    pub(crate) fn known(&mut self, fence: Fence, known: Box<KnownGuest>, answers: &mut Answers) {
        let Some(guest) = self.guest(fence) else { return };
        let keep = known.keep;
        guest.known = Some(known);
        answers.guest(fence, Event::Known { keep });
    }

    /// Hands a rank's endpoint to the router, with our ends of its pipes.
    pub(crate) fn unpack(&mut self, at: GuestAt, answers: &mut Answers) {
        match self.try_unpack(at.fence) {
            Ok(arrive) => answers.commands.push(RouterCommand::Arrive(Box::new(arrive))),
            Err(reason) => answers.guest(at.fence, Event::NotComing(reason)),
        }
    }

    fn try_unpack(&mut self, fence: Fence) -> Result<Arrive, String> {
        let guest = self.guest(fence).ok_or("not expected")?;
        let ends = if let Some(ours) = guest.ours.take() {
            ours
        } else {
            let (ours, theirs) = pipes()?;
            guest.theirs = Some(theirs);
            ours
        };
        let offer = guest.start.rank.as_ref().ok_or("it is no rank")?;
        let known = guest.known.as_mut().ok_or("nothing is known of it")?;
        Ok(Arrive {
            fence,
            job: guest.start.subprogram.job,
            life: offer.life,
            rank: Rank(guest.start.subprogram.index),
            keep: known.keep,
            packed: std::mem::take(&mut known.endpoint),
            image: known.image.take(),
            ends,
        })
    }

    /// Has the keeper bring a guest's process to life.
    pub(crate) fn land(&mut self, at: GuestAt, answers: &mut Answers) {
        let fence = at.fence;
        let Some(known) = self.guest(fence).and_then(|guest| guest.known.as_ref()) else { return };
        let order = Order::Land { fence, stopped: known.stopped.clone() };
        if let Err(reason) = self.order(&order) {
            answers.guest(fence, Event::NotComing(reason));
        }
    }

    /// Was all of the image handed on as it came?
    pub(crate) fn verify(&mut self, at: GuestAt, answers: &mut Answers) {
        let Some(known) = self.guest(at.fence).and_then(|guest| guest.known.take()) else { return };
        let failure = known.serving.as_ref().and_then(Serving::failure).map(str::to_owned);
        let frozen = Clock.now().since(known.since);
        answers.guest(at.fence, Event::Verified(failure.map_or(Ok(frozen), Err)));
    }

    /// Sets a process going that has come.
    pub(crate) fn go_on(&mut self) {
        let done = self.order(&Order::Go);
        self.complain("set going", done);
    }
}

/// A rank's pipes: our ends, and its process's.
fn pipes() -> Result<(PipeEnds, PipeEnds), String> {
    messages::pair().map_err(|error| format!("no pipes for it: {error}"))
}

/// In the kernel's order, what no process of it may raise: as a keeper has it
/// that starts a guest.
fn terms_of(limits: GuestLimits) -> Vec<u64> {
    let mut all = Terms::own_limits();
    for Limit { resource, most } in hard_limits(limits) {
        if let Some(limit) = usize::try_from(resource).ok().and_then(|at| all.get_mut(at)) {
            *limit = (*limit).min(most);
        }
    }
    all
}
