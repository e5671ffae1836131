//! A rank's two pipes, and what is still to be written into them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use gleaner_common::frame::FrameError;
use gleaner_program_core::address::PIECE_BYTES_MAX;
use gleaner_program_core::framing::{self, Frame};
use gleaner_program_core::wire::PIPE_BYTES_MAX;
use rustix::io::Errno;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, vmsplice};

use super::slabs::Slabs;

/// How many pieces leave with one write.
const SLICES_MAX: usize = 16;

/// What stands before a piece is lent with it up to here, out of a slab.
const HEAD_BYTES_MAX: usize = PIECE_BYTES_MAX / SLICES_MAX;

/// Small frames are collected up to here.
const COLLECTED_BYTES: usize = 32 << 10;

/// One side of a rank's two pipes.
#[derive(Debug)]
pub(crate) struct PipeEnds {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
}

/// Two pipes: our side, which never waits, and the program's.
///
/// # Errors
/// No descriptors left.
pub(crate) fn pair() -> io::Result<(PipeEnds, PipeEnds)> {
    let one = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Where the kernel refuses, it takes less.
        let _ = fcntl_setpipe_size(&write, PIPE_BYTES_MAX);
        Ok((read, write))
    };
    let ((their_read, write), (read, their_write)) = (one()?, one()?);
    rustix::io::ioctl_fionbio(&write, true)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((PipeEnds { read, write }, PipeEnds { read: their_read, write: their_write }))
}

/// Frames on their way into a pipe. Its bound is the senders': nothing is put
/// here that a window does not allow.
#[derive(Debug)]
pub(super) struct Outbox {
    slabs: Slabs,
    queue: VecDeque<Waiting>,
    /// Small frames, which are written after the queue.
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
    /// The bytes lie in a slab.
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
            let done = match self.to_lend() {
                0 => self.copy(to.as_fd()),
                count => self.lend(to.as_fd(), count),
            };
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

    /// How much of the queue is lent with the next call: pieces and what stands
    /// between them; nothing, if no piece is the first or second.
    fn to_lend(&self) -> usize {
        let can = |waiting: &&Waiting| waiting.lend || waiting.bytes.len() <= HEAD_BYTES_MAX;
        let run = self.queue.iter().take(SLICES_MAX).take_while(can);
        if run.clone().take(2).any(|waiting| waiting.lend) { run.count() } else { 0 }
    }

    /// Lends so many of the queue, with one call: a reader that finds a head
    /// most often finds its piece, too.
    #[expect(unsafe_code, reason = "a pipe refers to the pages that it is lent")]
    fn lend(&mut self, to: impl AsFd, count: usize) -> rustix::io::Result<()> {
        let (mut slab, mut filled) = (self.slabs.take(), 0);
        for head in self.queue.iter().take(count).filter(|waiting| !waiting.lend) {
            slab[filled..][..head.bytes.len()].copy_from_slice(&head.bytes);
            filled += head.bytes.len();
        }
        let heads = slab.filled(filled);
        if !self.slabs.own(&heads) {
            // There was no memory for it.
            self.lend_none(count);
            return Ok(());
        }
        let mut heads_left = &heads[..];
        let slices: Vec<_> = self
            .queue
            .iter()
            .take(count)
            .map(|waiting| {
                let head = if waiting.lend { 0 } else { waiting.bytes.len() };
                let (head, rest) = heads_left.split_at(head);
                heads_left = rest;
                IoSliceRaw::from_slice(if waiting.lend { &waiting.bytes } else { head })
            })
            .collect();
        // SAFETY: the bytes are there and nobody writes to them: not now, and not
        // before `take_back` lets go of them. The pages are the kernel's to keep
        // for as long as the pipe refers to them, even if they are unmapped here.
        match unsafe { vmsplice(to, &slices, SpliceFlags::NONBLOCK) } {
            Ok(lent) => {
                self.written += lent as u64;
                let first = self.queue.front().filter(|first| first.lend);
                if first.is_none_or(|first| lent > first.bytes.len()) {
                    self.lent.push_back((self.written, heads));
                }
                self.advance(lent);
                self.take_back();
                Ok(())
            }
            Err(error @ (Errno::AGAIN | Errno::INTR | Errno::PIPE)) => Err(error),
            // This machine does not lend.
            Err(_) => {
                self.lend_none(count);
                Ok(())
            }
        }
    }

    fn lend_none(&mut self, count: usize) {
        self.queue.iter_mut().take(count).for_each(|waiting| waiting.lend = false);
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
            let part = front.bytes.split_to(step);
            if front.lend {
                self.lent.push_back((self.written, part));
            }
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
    use gleaner_program_core::address::{Communicator, Envelope, Rank, Tag};
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

    #[test]
    fn pieces_are_lent_together_with_their_heads_and_stay_until_they_are_read() {
        let (ours, theirs) = pair().unwrap();
        let slabs = Slabs::default();
        let mut outbox = Outbox::new(slabs.clone());
        let mut reader = FrameReader::default();
        let (mut pushed, mut got) = (0, 0);
        let frame = |number: u64, payload| AgentFrame::Deliver {
            number,
            from: Rank(1),
            envelope: Envelope::whole(Communicator(0), Tag(0)),
            payload,
        };
        let bytes_of = |number: u64| PIECE_BYTES_MAX - usize::try_from(number % 7).unwrap();
        let value_of = |number: u64| u8::try_from(number % 251).unwrap();
        while got < 400 {
            while pushed < 400 && outbox.queue.len() < 100 {
                if pushed % 5 == 0 {
                    // Stands between two pieces, or is more than a head.
                    let total = if pushed % 10 == 0 { 1 } else { 2_000 };
                    for _ in 0..total {
                        outbox.push(&AgentFrame::Room { to: Rank(1), total }).unwrap();
                    }
                }
                let mut slab = slabs.take();
                slab.fill(value_of(pushed));
                outbox.push(&frame(pushed, slab.filled(bytes_of(pushed)))).unwrap();
                pushed += 1;
            }
            assert!(!outbox.write(&ours.write).unwrap() || pushed == 400);
            // Both are lent, and held while the pipe may hold them.
            assert!(outbox.lent.len() > 8, "{}", outbox.lent.len());
            let held: usize = outbox.lent.iter().map(|(_, bytes)| bytes.len()).sum();
            assert!(held < 3 * PIPE_BYTES_MAX, "{held}");
            for _ in 0..4 {
                let space = rustix::buffer::spare_capacity(reader.space());
                rustix::io::read(&theirs.read, space).unwrap();
                while let Some(read) = reader.next_frame::<AgentFrame>().unwrap() {
                    let AgentFrame::Deliver { number, payload, .. } = read else { continue };
                    assert_eq!((number, payload.len()), (got, bytes_of(got)));
                    assert!(payload.iter().all(|byte| *byte == value_of(got)), "piece {got}");
                    got += 1;
                }
                if got == 400 {
                    break;
                }
            }
        }
        assert!(outbox.is_empty());
    }
}
