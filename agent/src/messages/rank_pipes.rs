//! The two pipes of one rank's process, as the router uses them: heard while
//! they are here, written when they have place.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use gleaner_agent_core::router;
use gleaner_common::frame::FrameError;
use gleaner_common::id::Fence;
use gleaner_program_core::endpoint::PipeRest;
use gleaner_program_core::wire::{AgentFrame, ProgramFrame};
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::PipeRead;
use super::intake::Intake;
use super::pipe_watch::{PipeWatch, Source, Watching};
use super::pipes::{Outbox, PipeEnds};
use super::slabs::Slabs;

/// How much of a pipe is taken out at once.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct RankPipes {
    fence: Fence,
    watch: PipeWatch,
    slabs: Slabs,
    read: Option<Source>,
    write: Option<OwnedFd>,
    /// Since the pipe was full: it is written again when it has place.
    waits_for_place: Option<Watching>,
    intake: Intake<ProgramFrame<u64>>,
    outbox: Outbox,
}

impl RankPipes {
    /// # Errors
    /// No room to watch them.
    pub(super) fn new(
        watch: PipeWatch,
        fence: Fence,
        ends: PipeEnds,
        slabs: Slabs,
    ) -> io::Result<Self> {
        let read = Some(watch.listen(fence, ends.read)?);
        let (intake, outbox) = (Intake::default(), Outbox::new(slabs.clone()));
        let write = Some(ends.write);
        Ok(Self { fence, watch, slabs, read, write, waits_for_place: None, intake, outbox })
    }
}

impl router::Pipes for RankPipes {
    type Error = io::Error;

    fn fill(&mut self) -> io::Result<PipeRead> {
        let Some(read) = &self.read else { return Ok(PipeRead::Nothing) };
        let heard = self.intake.fill(read.pipe.get_ref())?;
        if heard == PipeRead::End {
            self.read = None;
        }
        Ok(heard)
    }

    fn next_frame(&mut self) -> Result<Option<ProgramFrame>, FrameError> {
        self.intake.next_frame(|_| Some(self.slabs.clone()))
    }

    fn cut_off(&self) -> Option<FrameError> {
        self.intake.cut_off()
    }

    fn push(&mut self, frame: &AgentFrame) {
        if self.write.is_some()
            && let Err(error) = self.outbox.push(frame)
        {
            tracing::error!(%error, "cannot write a frame for a rank");
        }
    }

    fn flush(&mut self) {
        let Some(write) = &self.write else { return };
        match self.outbox.write(write) {
            Ok(false) if self.waits_for_place.is_none() => {
                match self.watch.wait_for_place(self.fence, write) {
                    Ok(hearing) => self.waits_for_place = Some(hearing),
                    Err(error) => tracing::error!(%error, "cannot wait for a rank to read"),
                }
            }
            Ok(_) => {}
            // Nobody reads any more: the end of the other pipe says so.
            Err(_) => {
                (self.write, self.waits_for_place) = (None, None);
                self.outbox.clear();
            }
        }
    }

    fn empty(&mut self) -> io::Result<PipeRest> {
        let mut unread = vec![];
        if let Some(write) = &self.write {
            // The other end is the program's; the kernel opens it to us as well.
            let path = format!("/proc/self/fd/{}", write.as_raw_fd());
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let read = rustix::fs::open(path, flags, Mode::empty())?;
            loop {
                unread.reserve(READ_BYTES);
                match rustix::io::read(&read, spare_capacity(&mut unread)) {
                    Ok(0) | Err(Errno::AGAIN) => break,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        unread.append(&mut self.outbox.take());
        Ok(PipeRest { to_program: unread, from_program: self.intake.take_rest() })
    }

    fn refill(&mut self, PipeRest { to_program, from_program }: PipeRest) {
        self.outbox.begin_with(to_program);
        if !from_program.is_empty() {
            self.intake = Intake::with_rest(from_program);
        }
    }
}
