//! A guest that a hostile agent has come by honestly: it was carried there from a
//! workstation whose owner had come. Now it is to be carried back, and its image may
//! say whatever the agent likes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use gleaner_common::id::{Fence, JobId, SubprogramId};
use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::program::{Destination, Handover, HandoverReply};
use gleaner_common::reaction::Keep;
use gleaner_common::wire::{AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Purpose};
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_move::{Engine, of_this_machine};

use crate::image_stream::ImageStream;
use crate::peer::{Peer, presence};
use crate::world::{World, stage};

/// What a guest of the travelling kind may use: its image is not much more.
pub const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The guest, as its captor has it.
#[derive(Debug)]
pub struct Hostage {
    pub peer: Peer,
    pub job: JobId,
    /// Its attempt at the captor's.
    pub fence: Fence,
    pub image: ImageStream,
    /// The captor has said that the guest is to leave.
    leaves: bool,
}

impl Hostage {
    /// Has a guest carried to an agent of the attacker's. `None`, said aloud, where
    /// no guests move.
    ///
    /// # Errors
    /// It does not come.
    pub fn take(world: &World) -> Result<Option<Self>> {
        let engine = match Engine::find(None) {
            Ok(engine) => engine,
            Err(error) => {
                gleaner_skip::without_lab(format!("{error}; {}", error.hint()));
                return Ok(None);
            }
        };
        world.drain("host2", true)?;
        let job = begin(world)?;
        let facts = Facts {
            memory_bytes: 1 << 40,
            fingerprint: Some(Box::new(of_this_machine(&engine))),
            ..Facts::default()
        };
        let peer = Peer::join(world.enrol("agent", "captor")?, facts, 1)?;
        gleaner_tests::owner_comes(&world.lab, 0)?;
        let (fence, image) = receive(&peer)?;
        let frozen = Duration::ZERO;
        peer.tell(AttemptEvent::Arrived { fence, bytes: 1, frozen })?;
        peer.until(|frame| (frame == CoordinatorFrame::GoOn { fence }).then_some(()))?;
        peer.say(AgentFrame::Presence(presence(0)))?;
        gleaner_tests::owner_leaves(&world.lab, 0)?;
        world.drain("host2", false)?;
        Ok(Some(Self { peer, job, fence, image, leaves: false }))
    }

    /// Where the coordinator has it carried next.
    ///
    /// # Errors
    /// Nowhere.
    pub fn departs(&mut self) -> Result<Destination> {
        let wants = || AttemptEvent::WantsAway {
            fence: self.fence,
            keep: Keep::State,
            image_bytes: 1 << 20,
        };
        if !self.leaves {
            self.leaves = true;
            self.peer.tell(wants())?;
        }
        loop {
            let said = self.peer.until(|frame| match frame {
                CoordinatorFrame::Depart { to, .. } => Some(Some(to)),
                // Three have failed: its owner is to decide again, and does.
                CoordinatorFrame::Stay { .. } => Some(None),
                _ => None,
            })?;
            match said {
                Some(to) => return Ok(to),
                None => self.peer.tell(wants())?,
            }
        }
    }

    /// What the captor says first to whom it hands the guest.
    pub fn handover(&self, to: &Destination) -> Handover {
        Handover {
            subprogram: SubprogramId { job: self.job, index: 0 },
            old: self.fence,
            new: to.at.fence,
            ticket: to.ticket,
            keep: Keep::State,
            endpoint_bytes: 0,
            frozen: Duration::ZERO,
        }
    }

    /// Hands it over by the next departure, with this as its image.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn hands(&mut self, image: &[u8]) -> Result<(Destination, HandoverReply)> {
        let to = self.departs()?;
        let connection = self.peer.dial(&to.at.name, &to.at.addresses)?;
        let what = (to.at.workstation, self.handover(&to));
        let reply = self.peer.hands_over(&connection, what, image)?;
        Ok((to, reply))
    }

    /// Why an image is not taken.
    ///
    /// # Errors
    /// It is.
    pub fn refused(&mut self, image: &[u8]) -> Result<String> {
        match self.hands(image)?.1 {
            HandoverReply::No { reason } => Ok(reason),
            HandoverReply::Taken => bail!("it was taken"),
        }
    }
}

/// A guest that can travel, and has all open that it will have.
fn begin(world: &World) -> Result<JobId> {
    let mut spec = world.attack(&["travel", "input"]);
    spec.inputs.push(stage(&world.mallory, "input", b"the right input", false)?);
    spec.on_busy = OnBusy::at_once(Reaction::Migrate);
    spec.limits.memory_bytes_max = MEMORY_BYTES_MAX;
    let job = world.mallory.asks.submit(spec)?;
    let host = world.mallory.runs_at(SubprogramId { job, index: 0 })?;
    ensure!(host == "host1", "it is at {host}");
    let at = world.host("host1")?;
    until("the guest has begun to travel", PATIENCE, || {
        let has_kept = |pid: &u32| Path::new(&format!("/proc/{pid}/cwd/kept")).exists();
        Ok(at.guests().iter().any(has_kept).then_some(()))
    })?;
    Ok(job)
}

/// Takes a guest in, as any agent would.
fn receive(peer: &Peer) -> Result<(Fence, ImageStream)> {
    let offer = peer.offer()?;
    offer.arrival.context("it does not come from anywhere")?;
    let opened = peer.called()?;
    let Purpose::Handover { what, .. } = opened.purpose else { bail!("{:?}", opened.purpose) };
    ensure!(what.new == offer.fence, "another guest comes");
    let (mut writer, mut reader) = (opened.writer, opened.reader);
    let bytes = peer.runtime.block_on(async {
        let mut bytes = vec![];
        while let Some(piece) = reader.next_raw().await? {
            bytes.extend(piece);
        }
        writer.send(&HandoverReply::Taken).await?;
        writer.finish();
        Ok::<_, anyhow::Error>(bytes)
    })?;
    Ok((offer.fence, ImageStream::read(&bytes)?))
}
