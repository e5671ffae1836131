//! What comes out of a rank's pipe: frames, and big pieces of messages straight
//! into memory that can be lent to the pipe they go into.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use bytes::Bytes;
use gleaner_common::frame::FrameError;
use gleaner_program_core::address::{Envelope, PIECE_BYTES_MAX, Rank};
use gleaner_program_core::framing::{self, FrameReader};
use gleaner_program_core::wire::ProgramFrame;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::seat::Heard;
use super::slabs::{Slab, Slabs};

/// Pieces from this size on get a slab of their own.
const SLAB_BYTES_MIN: usize = PIECE_BYTES_MAX / 2;

/// How much is read of what follows such a piece: the head of the next one.
const HEAD_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Intake {
    slabs: Slabs,
    reader: FrameReader,
    coming: Option<Coming>,
}

/// A piece of which the head has come.
#[derive(Debug)]
struct Coming {
    to: Rank,
    envelope: Envelope,
    slab: Slab,
    filled: usize,
    bytes: usize,
}

/// The part of a slab that a piece fills.
struct Filled(Slab, usize);

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl Intake {
    pub(super) fn new(slabs: Slabs) -> Self {
        Self { slabs, reader: FrameReader::default(), coming: None }
    }

    /// Forgets what has come: the pipe is another one.
    pub(super) fn clear(&mut self) {
        (self.reader, self.coming) = (FrameReader::default(), None);
    }

    /// Begins with what was [taken](Self::take_rest), here or elsewhere.
    pub(super) fn begin_with(&mut self, rest: Vec<u8>) {
        if !rest.is_empty() {
            (self.reader, self.coming) = (FrameReader::with_rest(rest), None);
        }
    }

    /// Reads once. [`Heard::End`]: nobody writes any more.
    ///
    /// # Errors
    /// The pipe is sick.
    pub(super) fn fill(&mut self, pipe: impl AsFd) -> io::Result<Heard> {
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
            Ok(0) => Ok(Heard::End),
            Ok(bytes) if bytes == place => Ok(Heard::Much),
            Ok(_) => Ok(Heard::Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Heard::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// The next frame of what was read.
    ///
    /// # Errors
    /// What has come is no frame.
    pub(super) fn next_frame(&mut self) -> Result<Option<ProgramFrame>, FrameError> {
        if self.coming.is_none() {
            let Some(coming) = self.begin_piece()? else { return self.reader.next_frame() };
            self.coming = Some(coming);
        }
        Ok(self.coming.take_if(|coming| coming.filled == coming.bytes).map(|whole| {
            let Coming { to, envelope, slab, bytes, .. } = whole;
            ProgramFrame::Send { to, envelope, payload: Bytes::from_owner(Filled(slab, bytes)) }
        }))
    }

    fn begin_piece(&mut self) -> Result<Option<Coming>, FrameError> {
        let head = self.reader.next_head(SLAB_BYTES_MIN)?;
        let Some(ProgramFrame::Send { to, envelope, payload }) = head else { return Ok(None) };
        let bytes = usize::try_from(payload).unwrap_or(usize::MAX);
        if bytes > PIECE_BYTES_MAX {
            let (expected, detail) = ("a piece of a message", format!("{payload} bytes in it"));
            return Err(FrameError::Malformed { expected, detail });
        }
        let mut slab = self.slabs.take();
        let here = self.reader.take(bytes);
        slab[..here.len()].copy_from_slice(here);
        Ok(Some(Coming { to, envelope, filled: here.len(), slab, bytes }))
    }

    /// Takes what is not a whole frame.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        let Some(coming) = self.coming.take() else { return self.reader.take_rest() };
        let (mut rest, whole) = (vec![], &coming.slab[..coming.bytes]);
        // It was read from a frame, so it fits into one.
        let _ = framing::encode_send(coming.to, coming.envelope, whole, &mut rest);
        rest.extend_from_slice(&coming.slab[..coming.filled]);
        rest.append(&mut self.reader.take_rest());
        rest
    }

    /// Did the program end in the middle of a frame?
    pub(super) fn cut_off(&self) -> Option<FrameError> {
        match &self.coming {
            Some(coming) => Some(FrameError::Truncated { missing: coming.bytes - coming.filled }),
            None => self.reader.finish().err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_program_core::address::{Communicator, Tag};
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
            let (mut intake, mut got) = (Intake::new(Slabs::default()), vec![]);
            for (number, piece) in bytes.chunks(cut).enumerate() {
                rustix::io::write(&theirs.write, piece).unwrap();
                while matches!(intake.fill(&ours.read).unwrap(), Heard::Much | Heard::Some) {
                    while let Some(frame) = intake.next_frame().unwrap() {
                        got.push(frame);
                    }
                }
                if moves >> (number % 32) & 1 == 1 {
                    let rest = intake.take_rest();
                    intake = Intake::new(Slabs::default());
                    intake.begin_with(rest);
                    while let Some(frame) = intake.next_frame().unwrap() {
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
        let mut intake = Intake::new(Slabs::default());
        while intake.fill(&ours.read).unwrap() != Heard::End {
            assert_eq!(intake.next_frame(), Ok(None));
        }
        assert_eq!(intake.cut_off(), Some(FrameError::Truncated { missing: 5 }));
    }

    #[test]
    fn a_piece_longer_than_pieces_are_is_refused() {
        let mut bytes = vec![];
        framing::encode_whole(&send(PIECE_BYTES_MAX + 1), &mut bytes).unwrap();
        let mut intake = Intake::new(Slabs::default());
        intake.begin_with(bytes);
        assert!(matches!(intake.next_frame(), Err(FrameError::Malformed { .. })));
    }
}
