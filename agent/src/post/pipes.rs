//! A rank's two pipes, and what is still to be written into them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use bytes::{Buf as _, Bytes};
use gleaner_common::frame::FrameError;
use gleaner_program_core::framing::{self, Frame};
use gleaner_program_core::wire::PIPE_BYTES_MAX;
use rustix::io::Errno;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, vmsplice};

use super::slabs::Slabs;

/// How many pieces leave with one write.
const SLICES_MAX: usize = 16;

/// Small frames are collected up to here.
const COLLECTED_BYTES: usize = 32 << 10;

/// One side of a rank's two pipes.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
}

/// Two pipes: our side, which never waits, and the program's.
///
/// # Errors
/// No descriptors left.
pub(crate) fn pair() -> io::Result<(Ends, Ends)> {
    let one = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Where the kernel refuses, it takes less.
        let _ = fcntl_setpipe_size(&write, PIPE_BYTES_MAX);
        Ok((read, write))
    };
    let ((their_read, write), (read, their_write)) = (one()?, one()?);
    rustix::io::ioctl_fionbio(&write, true)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((Ends { read, write }, Ends { read: their_read, write: their_write }))
}

/// Frames on their way into a pipe. Its bound is the senders': nothing is put
/// here that a window does not allow.
#[derive(Debug)]
pub(super) struct Outbox {
    slabs: Slabs,
    queue: VecDeque<Waiting>,
    /// Comes after the queue.
    tail: Vec<u8>,
    /// How much has been written into the pipe.
    written: u64,
    /// What the pipe was lent, and how much had been written with it: it must
    /// stay as it is until the program has read so far.
    lent: VecDeque<(u64, Bytes)>,
}

#[derive(Debug)]
struct Waiting {
    bytes: Bytes,
    /// It lies in a slab.
    lend: bool,
}

impl Outbox {
    pub(super) fn new(slabs: Slabs) -> Self {
        let (queue, tail, lent) = (VecDeque::new(), vec![], VecDeque::new());
        Self { slabs, queue, tail, written: 0, lent }
    }

    pub(super) fn push<F: Frame>(&mut self, frame: &F) -> Result<(), FrameError> {
        let apart = framing::encode(frame, &mut self.tail)?;
        if !apart.is_empty() || self.tail.len() >= COLLECTED_BYTES {
            let bytes = std::mem::take(&mut self.tail).into();
            self.queue.push_back(Waiting { bytes, lend: false });
        }
        if !apart.is_empty() {
            let lend = self.slabs.own(&apart);
            self.queue.push_back(Waiting { bytes: apart, lend });
        }
        Ok(())
    }

    /// Puts bytes that are not whole frames before everything else.
    pub(super) fn begin_with(&mut self, rest: Vec<u8>) {
        if !rest.is_empty() {
            self.queue.push_front(Waiting { bytes: rest.into(), lend: false });
        }
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.is_empty()
    }

    /// The pipe is another one. Who reads the old one is gone or about to be
    /// killed: at worst it still sees there what its own program is told later.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.slabs.clone());
    }

    /// Takes all that is not written.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut all = vec![];
        self.queue.drain(..).for_each(|waiting| all.extend_from_slice(&waiting.bytes));
        all.append(&mut self.tail);
        all
    }

    /// Writes what fits. `false`: the pipe is full.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub(super) fn write(&mut self, to: impl AsFd) -> io::Result<bool> {
        while !self.is_empty() {
            let lend = self.queue.front().is_some_and(|first| first.lend);
            let done = if lend { self.lend(to.as_fd()) } else { self.copy(to.as_fd()) };
            match done {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Lets go of what the program must have read: the pipe holds no more than
    /// what was written last, a page in each of its slots. To ask it would wait
    /// for its reader.
    fn take_back(&mut self) {
        let read = self.written.saturating_sub(PIPE_BYTES_MAX as u64);
        while self.lent.pop_front_if(|(end, _)| *end <= read).is_some() {}
    }

    #[expect(unsafe_code, reason = "a pipe refers to the pages that it is lent")]
    fn lend(&mut self, to: impl AsFd) -> rustix::io::Result<()> {
        let Some(first) = self.queue.front_mut() else { return Ok(()) };
        let slices = [IoSliceRaw::from_slice(&first.bytes)];
        // SAFETY: the bytes are there and nobody writes to them: not now, and not
        // before `take_back` lets go of them. The pages are the kernel's to keep
        // for as long as the pipe refers to them, even if they are unmapped here.
        match unsafe { vmsplice(to, &slices, SpliceFlags::NONBLOCK) } {
            Ok(lent) => {
                self.written += lent as u64;
                self.lent.push_back((self.written, first.bytes.split_to(lent)));
                if first.bytes.is_empty() {
                    self.queue.pop_front();
                }
                self.take_back();
                Ok(())
            }
            Err(error @ (Errno::AGAIN | Errno::INTR | Errno::PIPE)) => Err(error),
            // Not on this machine.
            Err(_) => {
                first.lend = false;
                Ok(())
            }
        }
    }

    /// Writes up to what can be lent.
    fn copy(&mut self, to: impl AsFd) -> rustix::io::Result<()> {
        let copied = self.queue.iter().take_while(|waiting| !waiting.lend);
        let queued = copied.clone().count() == self.queue.len();
        let tail = queued.then_some(&self.tail[..]);
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let all = copied.map(|waiting| &waiting.bytes[..]).chain(tail);
        for (slice, bytes) in slices.iter_mut().zip(all) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        let written = match &slices[..count] {
            [one] => rustix::io::write(to, one)?,
            many => rustix::io::writev(to, many)?,
        };
        self.written += written as u64;
        self.advance(written);
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(front) = self.queue.front_mut() {
            let step = written.min(front.bytes.len());
            front.bytes.advance(step);
            written -= step;
            if !front.bytes.is_empty() {
                return;
            }
            self.queue.pop_front();
        }
        self.tail.drain(..written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_program_core::address::{PIECE_BYTES_MAX, Rank};
    use gleaner_program_core::framing::FrameReader;
    use gleaner_program_core::wire::AgentFrame;

    #[test]
    fn what_a_full_pipe_refuses_is_written_later_in_order() {
        let (ours, theirs) = pair().unwrap();
        rustix::io::ioctl_fionbio(&theirs.read, true).unwrap();
        let mut outbox = Outbox::new(Slabs::default());
        let mut frames = vec![];
        for total in 0..60 {
            frames.push(AgentFrame::Room { to: Rank(1), total });
            frames.push(AgentFrame::State {
                last: false,
                state: vec![u8::try_from(total).unwrap(); PIECE_BYTES_MAX].into(),
            });
        }
        for frame in &frames {
            outbox.push(frame).unwrap();
        }
        assert!(!outbox.write(&ours.write).unwrap(), "it is too much for a pipe");
        let (mut reader, mut got) = (FrameReader::default(), vec![]);
        while got.len() < frames.len() {
            let space = rustix::buffer::spare_capacity(reader.space());
            rustix::io::read(&theirs.read, space).unwrap();
            while let Some(frame) = reader.next_frame::<AgentFrame>().unwrap() {
                got.push(frame);
            }
            outbox.write(&ours.write).unwrap();
        }
        assert_eq!(got, frames);
        assert!(outbox.is_empty());
    }
}
