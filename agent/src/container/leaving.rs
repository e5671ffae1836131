//! Guests that leave, and images of them: what of that is done at the place
//! itself. The carrying is the link's (`crate::moving`).

use std::sync::Arc;

use gleaner_agent_core::guest::{Departure, Event, GuestAt, Look, NoImage};
use gleaner_common::id::Fence;
use gleaner_common::reaction::Keep;

use super::{Answers, Container, Site};
use crate::container::cgroup::PlaceGroup;
use crate::container::keeper::PIPES_FD;
use crate::container::place_directories::WORK;
use crate::link::{LinkOrder, files};
use crate::messages::{self, Packed, PipeEnds, RouterCommand};
use crate::moving::{Cargo, KeptImage, Mover, ToKeep};

impl Container {
    /// Does the guest stand still, and can it be looked into?
    pub(crate) fn look(&self, at: GuestAt, answers: &mut Answers) {
        answers.guest(at.fence, Event::Looked(self.seen()));
    }

    fn seen(&self) -> Look {
        let keeper = self.keeper.as_ref().filter(|_| self.staged);
        if let Some(keeper) = keeper.filter(|it| it.first_process().is_none()) {
            // One that has ended is not there either, and its result may be with a
            // keeper that stands still: it is let run on for a moment, to say so.
            let began = self.guest.as_ref().is_some_and(|guest| guest.began);
            return if began || keeper.has_report() { Look::Between } else { Look::NotBegun };
        }
        let Some(group) = &self.group else { return Look::Steady };
        if !PlaceGroup::is_frozen(group) {
            return Look::Restless;
        }
        match gleaner_move::awaits_exec(group.path()) {
            Ok(false) => Look::Steady,
            Ok(true) => Look::Between,
            Err(error) => Look::Failed(error.to_string()),
        }
    }

    /// The router has packed its endpoint.
    pub(crate) fn packed(
        &mut self,
        fence: Fence,
        packed: Result<Packed, String>,
        answers: &mut Answers,
    ) {
        let Some(guest) = self.guest(fence) else { return };
        let done = packed.map(|packed| guest.packed = Some(packed));
        answers.guest(fence, Event::Packed(done));
    }

    /// Sends its state away.
    pub(crate) fn carry(&mut self, site: &Site, departure: Departure, answers: &mut Answers) {
        let fence = departure.at.fence;
        match self.cargo(site, departure) {
            Ok(cargo) => answers.orders.push(LinkOrder::Carry(Box::new(cargo))),
            Err(reason) => {
                answers.guest(fence, Event::CannotLeave(reason));
                answers.guest(fence, Event::CarryingEnded);
            }
        }
    }

    fn cargo(&mut self, site: &Site, departure: Departure) -> Result<Cargo, String> {
        let goes_along = departure.keep == Keep::State;
        let fence = departure.at.fence;
        let process = goes_along.then(|| self.process(site, fence)).transpose()?;
        let packed = self.guest(fence).and_then(|guest| guest.packed.take());
        let Packed { bytes, image } = packed.unwrap_or_default();
        Ok(Cargo { departure, process, image, endpoint: bytes.into() })
    }

    /// The guest's process, and what writes it down.
    fn process(
        &mut self,
        site: &Site,
        fence: Fence,
    ) -> Result<(gleaner_move::GuestProcess, Arc<Mover>), String> {
        let guest = self.guest(fence).ok_or("it has no process here")?;
        let (is_rank, spec) = (guest.start.rank.is_some(), Arc::clone(&guest.start.spec));
        let mover = site.mover.clone().map_err(|why| format!("nothing moves from here: {why}"))?;
        let (Some(group), Some(keeper), true) = (&self.group, &self.keeper, self.staged) else {
            return Err("it was not started to be moved".into());
        };
        let root = keeper.first_process().ok_or("its first process is gone")?;
        let keeper = keeper.pid().as_raw_nonzero().get();
        let group = group.path().to_path_buf();
        let plugs = if is_rank { vec![PIPES_FD, PIPES_FD + 1] } else { vec![] };
        let left_out = self.directories.as_ref().map_or_else(Vec::new, |directories| {
            let laid = files::as_laid(&site.config.data, &spec.inputs, &directories.work());
            laid.iter().map(|name| format!("{WORK}/{name}")).collect()
        });
        Ok((gleaner_move::GuestProcess { group, keeper, root, plugs, left_out }, mover))
    }

    /// A rank that has lost its process gets new pipes, for another.
    pub(crate) fn replug(&mut self, at: GuestAt, answers: &mut Answers) {
        let fence = at.fence;
        let Some(guest) = self.guest(fence) else { return };
        match messages::pair() {
            Ok((ends, theirs)) => {
                guest.theirs = Some::<PipeEnds>(theirs);
                answers.commands.push(RouterCommand::Again { fence, ends });
            }
            Err(error) => answers.failed(fence, &super::StartError::Pipes(error)),
        }
    }

    // ── images ─────────────────────────────────────────────────────────────

    /// Has the guest written down, to go back to.
    pub(crate) fn write_image(&mut self, site: &Site, at: GuestAt, answers: &mut Answers) {
        let fence = at.fence;
        match self.process(site, fence) {
            Ok((process, mover)) => {
                let directory = site.config.data.clone();
                let bytes_max =
                    self.guest(fence).map_or(0, |guest| guest.start.limits.disk_bytes_max);
                let keep = ToKeep { fence, process, mover, directory, bytes_max };
                answers.orders.push(LinkOrder::Keep(Box::new(keep)));
            }
            Err(because) => answers.guest(fence, Event::ImageWritten(Err(because))),
        }
    }

    /// The guest was written down, or could not be.
    pub(crate) fn image_written(
        &mut self,
        fence: Fence,
        done: Result<KeptImage, String>,
        answers: &mut Answers,
    ) {
        let Some(guest) = self.guest(fence) else { return };
        let done = done.map(|image| guest.image = Some(image));
        answers.guest(fence, Event::ImageWritten(done));
    }

    /// The image that is there now, for the router.
    pub(crate) fn taken_image(
        &mut self,
        at: GuestAt,
        done: Result<(), NoImage>,
    ) -> Result<KeptImage, NoImage> {
        let gone = || NoImage::Cannot("it is gone".to_owned());
        done.and_then(|()| {
            self.guest(at.fence).and_then(|guest| guest.image.take()).ok_or_else(gone)
        })
    }

    /// The snapshot that a rank began with holds an image of its process.
    pub(crate) fn has_image(
        &mut self,
        fence: Fence,
        snapshot: (Vec<u8>, Vec<u8>, PipeEnds),
        answers: &mut Answers,
    ) {
        let Some(guest) = self.guest(fence) else { return };
        guest.snapshot = Some(snapshot);
        answers.guest(fence, Event::HasImage);
    }
}
