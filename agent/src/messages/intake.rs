//! Frames as they come out of a rank's pipe or from another agent, big pieces of
//! messages straight into memory that can be lent to the pipe they go into.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use gleaner_common::frame::FrameError;
use gleaner_program_core::address::PIECE_BYTES_MAX;
use gleaner_program_core::framing::{self, FrameReader, Head};
use gleaner_shell::pool::Buffer;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::PipeRead;
use super::slabs::Slabs;

/// Pieces from this size on get a slab of their own.
const SLAB_BYTES_MIN: usize = PIECE_BYTES_MAX / 2;

/// How much is read of what follows such a piece: the head of the next one.
const HEAD_BYTES: usize = 64;

#[derive(Debug)]
pub(crate) struct Intake<H> {
    reader: FrameReader,
    coming: Option<Coming<H>>,
}

/// A piece of which the head has come.
#[derive(Debug)]
struct Coming<H> {
    head: H,
    slab: Buffer,
    filled: usize,
    bytes: usize,
}

impl<H: Head> Coming<H> {
    /// Takes of these bytes what belongs to it; gives the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (own, rest) = bytes.split_at(bytes.len().min(self.bytes - self.filled));
        self.slab[self.filled..][..own.len()].copy_from_slice(own);
        self.filled += own.len();
        rest
    }

    fn is_whole(&self) -> bool {
        self.filled == self.bytes
    }

    fn whole(self) -> H::Whole {
        self.head.whole(self.slab.filled(self.bytes))
    }
}

impl<H> Default for Intake<H> {
    fn default() -> Self {
        Self { reader: FrameReader::default(), coming: None }
    }
}

impl<H: Head> Intake<H> {
    /// Begins with what was [taken](Self::take_rest), here or elsewhere.
    pub(crate) fn with_rest(rest: Vec<u8>) -> Self {
        Self { reader: FrameReader::with_rest(rest), coming: None }
    }

    /// Takes what has come.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let rest = match &mut self.coming {
            Some(coming) => coming.fill(bytes),
            None => bytes,
        };
        if !rest.is_empty() {
            self.reader.push(rest);
        }
    }

    /// Reads once. [`PipeRead::End`]: nobody writes any more.
    ///
    /// # Errors
    /// The pipe is sick.
    pub(super) fn fill(&mut self, pipe: impl AsFd) -> io::Result<PipeRead> {
        let (read, place) = if let Some(coming) = &mut self.coming {
            let mut head = [0; HEAD_BYTES];
            let missing = &mut coming.slab[coming.filled..coming.bytes];
            let missing_bytes = missing.len();
            let mut slices = [IoSliceMut::new(missing), IoSliceMut::new(&mut head)];
            let read = rustix::io::readv(pipe, &mut slices);
            let bytes = read.unwrap_or(0);
            coming.filled += bytes.min(missing_bytes);
            self.reader.push(&head[..bytes.saturating_sub(missing_bytes)]);
            (read, missing_bytes + HEAD_BYTES)
        } else {
            let space = self.reader.space();
            let place = space.capacity() - space.len();
            (rustix::io::read(pipe, spare_capacity(space)), place)
        };
        match read {
            Ok(0) => Ok(PipeRead::End),
            Ok(bytes) if bytes == place => Ok(PipeRead::Much),
            Ok(_) => Ok(PipeRead::Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(PipeRead::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// The next frame of what was read. `slabs` are those of a piece's program,
    /// if there are any.
    ///
    /// # Errors
    /// What has come is no frame.
    pub(crate) fn next_frame(
        &mut self,
        slabs: impl FnOnce(&H) -> Option<Slabs>,
    ) -> Result<Option<H::Whole>, FrameError> {
        if self.coming.is_none() {
            let Some(head) = self.reader.next_head::<H>(SLAB_BYTES_MIN)? else {
                return self.reader.next_frame();
            };
            self.coming = Some(self.begin(head, slabs)?);
        }
        Ok(self.coming.take_if(|coming| coming.is_whole()).map(Coming::whole))
    }

    fn begin(
        &mut self,
        head: H,
        slabs: impl FnOnce(&H) -> Option<Slabs>,
    ) -> Result<Coming<H>, FrameError> {
        let payload = head.payload_bytes().unwrap_or(0);
        let bytes = usize::try_from(payload).unwrap_or(usize::MAX);
        if bytes > PIECE_BYTES_MAX {
            let (expected, detail) = ("a piece of a message", format!("{payload} bytes in it"));
            return Err(FrameError::Malformed { expected, detail });
        }
        let slab = slabs(&head).map_or_else(|| Buffer::apart(bytes), |slabs| slabs.take());
        let mut coming = Coming { head, slab, filled: 0, bytes };
        coming.fill(self.reader.take(bytes));
        Ok(coming)
    }

    /// Takes what is not a whole frame.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        let Some(coming) = self.coming.take() else { return self.reader.take_rest() };
        let (mut rest, filled) = (vec![], coming.filled);
        // The piece was read from a frame, so it fits into one.
        if let Ok(payload) = framing::encode(&coming.whole(), &mut rest) {
            rest.extend_from_slice(&payload[..filled]);
        }
        rest.append(&mut self.reader.take_rest());
        rest
    }

    /// Does it end in the middle of a frame?
    pub(crate) fn cut_off(&self) -> Option<FrameError> {
        match &self.coming {
            Some(coming) => Some(FrameError::Truncated { missing: coming.bytes - coming.filled }),
            None => self.reader.finish().err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_program_core::address::{Communicator, Envelope, Rank, Tag};
    use gleaner_program_core::wire::ProgramFrame;
    use proptest::prelude::*;

    use super::super::pipes::pair;
    use super::*;

    fn send(bytes: usize) -> ProgramFrame {
        let envelope = Envelope::whole(Communicator(1), Tag(2));
        let payload = (0..251).cycle().take(bytes).collect::<Vec<u8>>();
        ProgramFrame::Send { to: Rank(3), envelope, payload: payload.into() }
    }

    fn sizes() -> impl Strategy<Value = Vec<usize>> {
        let near = SLAB_BYTES_MIN - 1..SLAB_BYTES_MIN + 2;
        proptest::collection::vec(
            prop_oneof![0usize..200, near, PIECE_BYTES_MAX - 70..=PIECE_BYTES_MAX],
            0..8,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frames_come_whole_however_they_are_cut_and_moved(
            sizes in sizes(),
            cut in prop_oneof![1usize..70, 1_000usize..100_000],
            moves in any::<u32>(),
        ) {
            let frames: Vec<ProgramFrame> = sizes.into_iter().map(send).collect();
            let mut bytes = vec![];
            for frame in &frames {
                framing::encode_whole(frame, &mut bytes).unwrap();
            }
            // Small cuts of much would take long.
            let cut = cut.max(bytes.len() / 2_000);
            let (ours, theirs) = pair().unwrap();
            let slabs = Slabs::default();
            let (mut intake, mut got) = (Intake::<ProgramFrame<u64>>::default(), vec![]);
            for (number, piece) in bytes.chunks(cut).enumerate() {
                rustix::io::write(&theirs.write, piece).unwrap();
                while matches!(intake.fill(&ours.read).unwrap(), PipeRead::Much | PipeRead::Some) {
                    while let Some(frame) = intake.next_frame(|_| Some(slabs.clone())).unwrap() {
                        got.push(frame);
                    }
                }
                if moves >> (number % 32) & 1 == 1 {
                    intake = Intake::with_rest(intake.take_rest());
                    while let Some(frame) = intake.next_frame(|_| Some(slabs.clone())).unwrap() {
                        got.push(frame);
                    }
                }
            }
            prop_assert_eq!(intake.cut_off(), None);
            prop_assert_eq!(got, frames);
        }
    }

    #[test]
    fn an_end_in_the_middle_of_a_piece_is_told() {
        let mut bytes = vec![];
        framing::encode_whole(&send(PIECE_BYTES_MAX), &mut bytes).unwrap();
        bytes.truncate(bytes.len() - 5);
        let (ours, theirs) = pair().unwrap();
        rustix::io::write(&theirs.write, &bytes).unwrap();
        drop(theirs);
        let mut intake = Intake::<ProgramFrame<u64>>::default();
        while intake.fill(&ours.read).unwrap() != PipeRead::End {
            assert_eq!(intake.next_frame(|_| None), Ok(None));
        }
        assert_eq!(intake.cut_off(), Some(FrameError::Truncated { missing: 5 }));
    }

    #[test]
    fn a_piece_longer_than_pieces_are_is_refused() {
        let mut bytes = vec![];
        framing::encode_whole(&send(PIECE_BYTES_MAX + 1), &mut bytes).unwrap();
        let mut intake = Intake::<ProgramFrame<u64>>::with_rest(bytes);
        assert!(matches!(intake.next_frame(|_| None), Err(FrameError::Malformed { .. })));
    }
}
