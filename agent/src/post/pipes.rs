//! A rank's two pipes, and what is still to be written into them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use bytes::{Buf as _, Bytes};
use gleaner_common::frame::FrameError;
use gleaner_program_core::framing::{self, Frame};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// How much a pipe takes before its writer waits: several pieces, so that
/// reader and writer run side by side. What is refused stays as it was.
const PIPE_BYTES: usize = 1 << 20;

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
        let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
        Ok((read, write))
    };
    let ((their_read, write), (read, their_write)) = (one()?, one()?);
    rustix::io::ioctl_fionbio(&write, true)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((Ends { read, write }, Ends { read: their_read, write: their_write }))
}

/// Frames on their way into a pipe. Its bound is the senders': nothing is put
/// here that a window does not allow.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Bytes>,
    /// Comes after the queue.
    tail: Vec<u8>,
}

impl Outbox {
    pub(super) fn push<F: Frame>(&mut self, frame: &F) -> Result<(), FrameError> {
        let apart = framing::encode(frame, &mut self.tail)?;
        if !apart.is_empty() || self.tail.len() >= COLLECTED_BYTES {
            self.queue.push_back(std::mem::take(&mut self.tail).into());
        }
        if !apart.is_empty() {
            self.queue.push_back(apart);
        }
        Ok(())
    }

    /// Puts bytes that are not whole frames before everything else.
    pub(super) fn begin_with(&mut self, rest: Vec<u8>) {
        if !rest.is_empty() {
            self.queue.push_front(rest.into());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes all that is not written.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut all = vec![];
        self.queue.drain(..).for_each(|bytes| all.extend_from_slice(&bytes));
        all.append(&mut self.tail);
        all
    }

    /// Writes what fits. `false`: the pipe is full.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub(super) fn write(&mut self, to: impl AsFd) -> io::Result<bool> {
        while !self.is_empty() {
            match self.write_once(to.as_fd()) {
                Ok(written) => self.advance(written),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn write_once(&self, to: impl AsFd) -> rustix::io::Result<usize> {
        if self.queue.is_empty() {
            return rustix::io::write(to, &self.tail);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let all = self.queue.iter().map(|bytes| &bytes[..]).chain([&self.tail[..]]);
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(all) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        rustix::io::writev(to, &slices[..count])
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(front) = self.queue.front_mut() {
            let step = written.min(front.len());
            front.advance(step);
            written -= step;
            if !front.is_empty() {
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
        let mut outbox = Outbox::default();
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
