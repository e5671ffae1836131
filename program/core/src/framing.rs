//! How frames lie on a pipe or a stream, without copying big payloads.
//!
//! A length in four bytes, little end first, then that many bytes of
//! postcard, of which a frame's payload is the last. Writing gives the head
//! and the payload apart, for one vectored write; reading cuts the payload
//! out of the buffer it arrived in.

use bytes::Bytes;
use gleaner_common::frame::FrameError;
use postcard::ser_flavors::Flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::address::{Envelope, PIECE_BYTES_MAX, Rank};
use crate::wire::{ASK_BYTES_MAX, AgentFrame, Between, Packet, PeerFrame, ProgramFrame};

/// The longest frame anybody accepts on a program's pipes and between agents.
pub const FRAME_BYTES_MAX: usize = PIECE_BYTES_MAX + ASK_BYTES_MAX;

/// Payloads from this size on are written without a copy, and read without one
/// where they fill at least half of the buffer that they keep alive.
pub const APART_BYTES_MIN: usize = 4 << 10;

const LENGTH_BYTES: usize = 4;

/// How much a reader takes from the pipe at once.
const READ_BYTES: usize = 66 << 10;

/// What can be a frame: its payload, if it has one, is its last field.
pub trait Frame: Serialize + Sized {
    /// The frame as it is read: its payload still in the buffer.
    type Borrowed<'a>: Deserialize<'a>;

    const NAME: &'static str;

    fn payload(&self) -> Option<&Bytes>;

    /// Makes the payload the frame's own.
    fn own(borrowed: Self::Borrowed<'_>, take: impl Fn(&[u8]) -> Bytes) -> Self;
}

macro_rules! frame {
    ($frame:ident, $name:literal, $self:ident => $payload:expr) => {
        impl Frame for $frame {
            type Borrowed<'a> = $frame<&'a [u8]>;

            const NAME: &'static str = $name;

            fn payload(&self) -> Option<&Bytes> {
                let $self = self;
                $payload
            }

            fn own(borrowed: Self::Borrowed<'_>, take: impl Fn(&[u8]) -> Bytes) -> Self {
                borrowed.map(take)
            }
        }
    };
}

frame!(ProgramFrame, "a program's frame", frame => match frame {
    ProgramFrame::Send { payload, .. } | ProgramFrame::Save { state: payload, .. } => Some(payload),
    ProgramFrame::Hello { .. }
    | ProgramFrame::Took { .. }
    | ProgramFrame::Matched(_)
    | ProgramFrame::Waiting { .. }
    | ProgramFrame::Ask { .. }
    | ProgramFrame::Retreated
    | ProgramFrame::Bye { .. }
    | ProgramFrame::Boundary
    | ProgramFrame::Negotiate(_) => None,
});

frame!(AgentFrame, "an agent's frame", frame => match frame {
    AgentFrame::Deliver { payload, .. } | AgentFrame::State { state: payload, .. } => Some(payload),
    AgentFrame::Welcome(_)
    | AgentFrame::Refused { .. }
    | AgentFrame::Room { .. }
    | AgentFrame::Answer { .. }
    | AgentFrame::PleaseSave
    | AgentFrame::Retreat { .. }
    | AgentFrame::Ranks { .. }
    | AgentFrame::Gone { .. }
    | AgentFrame::Deadlock { .. }
    | AgentFrame::GoOn
    | AgentFrame::Negotiate(_) => None,
});

frame!(PeerFrame, "a peer's frame", frame => match frame {
    PeerFrame::Data { payload, .. } => Some(payload),
    PeerFrame::Ack { .. } | PeerFrame::Probe { .. } | PeerFrame::Gone { .. } => None,
});

frame!(Packet, "a packet", packet => packet.frame.payload());

frame!(Between, "an agent's frame to another", frame => match frame {
    Between::Packet(packet) => packet.frame.payload(),
    Between::Begun(_) => None,
});

/// A frame before its payload, of which it has the length in its place.
pub trait Head: DeserializeOwned {
    type Whole: Frame;

    /// How long its payload is, if it is a message's piece.
    fn payload_bytes(&self) -> Option<u64>;

    /// The frame with its payload.
    fn whole(self, payload: Bytes) -> Self::Whole;
}

macro_rules! head {
    ($frame:ident, $piece:pat => $payload:expr) => {
        impl Head for $frame<u64> {
            type Whole = $frame;

            fn payload_bytes(&self) -> Option<u64> {
                if let $piece = self { Some(*$payload) } else { None }
            }

            fn whole(self, payload: Bytes) -> $frame {
                self.map(|_| payload)
            }
        }
    };
}

head!(ProgramFrame, Self::Send { payload, .. } => payload);
head!(AgentFrame, Self::Deliver { payload, .. } => payload);
head!(Between, Self::Packet(Packet { frame: PeerFrame::Data { payload, .. }, .. }) => payload);

/// Writes everything except a payload that the caller writes by itself.
struct Before<'a> {
    out: &'a mut Vec<u8>,
    apart: &'a [u8],
}

impl Flavor for Before<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.out.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if !std::ptr::eq(bytes, self.apart) {
            self.out.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends a frame, and gives what has to be written right after `out`: the
/// payload if it is a big one, otherwise nothing.
///
/// # Errors
/// A frame longer than [`FRAME_BYTES_MAX`]; `out` is then as it was.
pub fn encode<F: Frame>(frame: &F, out: &mut Vec<u8>) -> Result<Bytes, FrameError> {
    let apart = frame
        .payload()
        .filter(|payload| payload.len() >= APART_BYTES_MIN)
        .cloned()
        .unwrap_or_default();
    encode_head(frame, F::NAME, &apart, out)?;
    Ok(apart)
}

/// As [`encode`], of a message's piece that lies in somebody else's memory.
///
/// # Errors
/// As [`encode`].
pub fn encode_send<'a>(
    to: Rank,
    envelope: Envelope,
    payload: &'a [u8],
    out: &mut Vec<u8>,
) -> Result<&'a [u8], FrameError> {
    let apart = if payload.len() >= APART_BYTES_MIN { payload } else { &[] };
    let frame = ProgramFrame::Send { to, envelope, payload: Lent(payload) };
    encode_head(&frame, <ProgramFrame as Frame>::NAME, apart, out)?;
    Ok(apart)
}

/// A payload that is read in place.
struct Lent<'a>(&'a [u8]);

impl Serialize for Lent<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Appends a frame without the bytes of its payload that are written apart.
fn encode_head(
    frame: &impl Serialize,
    expected: &'static str,
    apart: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    // An empty slice equals no payload's place: nothing is left out then.
    let written = postcard::serialize_with_flavor(frame, Before { out, apart });
    let length = out.len() - start - LENGTH_BYTES + apart.len();
    let prefix = match (written, u32::try_from(length)) {
        (Ok(()), Ok(prefix)) if length <= FRAME_BYTES_MAX => prefix,
        (Err(error), _) => {
            out.truncate(start);
            return Err(FrameError::Malformed { expected, detail: error.to_string() });
        }
        _ => {
            out.truncate(start);
            return Err(too_long(length));
        }
    };
    out[start..start + LENGTH_BYTES].copy_from_slice(&prefix.to_le_bytes());
    Ok(())
}

fn too_long(bytes: usize) -> FrameError {
    FrameError::TooLong { bytes, bytes_max: FRAME_BYTES_MAX }
}

/// Appends a frame, payload and all.
///
/// # Errors
/// As [`encode`].
pub fn encode_whole<F: Frame>(frame: &F, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let apart = encode(frame, out)?;
    out.extend_from_slice(&apart);
    Ok(())
}

/// Reads one frame of which the length was cut off. A big payload is a part
/// of `bytes`, not a copy.
///
/// # Errors
/// Bytes that are not an `F`, or more bytes than an `F`.
pub fn decode<F: Frame>(bytes: &Bytes) -> Result<F, FrameError> {
    decode_with(bytes, |payload| match payload.len() {
        0..APART_BYTES_MIN => Bytes::copy_from_slice(payload),
        _ => bytes.slice_ref(payload),
    })
}

fn decode_with<F: Frame>(bytes: &[u8], take: impl Fn(&[u8]) -> Bytes) -> Result<F, FrameError> {
    let malformed = |detail: String| FrameError::Malformed { expected: F::NAME, detail };
    let (frame, rest) = postcard::take_from_bytes::<F::Borrowed<'_>>(bytes)
        .map_err(|error| malformed(error.to_string()))?;
    if rest.is_empty() {
        Ok(F::own(frame, take))
    } else {
        Err(malformed(format!("{} bytes too many", rest.len())))
    }
}

/// Collects bytes as they arrive and gives frames as they are whole.
#[derive(Debug, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    read: usize,
}

impl FrameReader {
    /// A reader that begins with these bytes: the rest of another one.
    pub fn with_rest(rest: Vec<u8>) -> Self {
        Self { buffer: rest, read: 0 }
    }

    /// Where to append what is read: its spare capacity is what is wanted
    /// next, never nothing.
    pub fn space(&mut self) -> &mut Vec<u8> {
        if self.read == self.buffer.len() {
            self.buffer.clear();
            self.read = 0;
        }
        let have = self.buffer.len() - self.read;
        let missing = match self.length() {
            Some(length) if length <= FRAME_BYTES_MAX => {
                (LENGTH_BYTES + length).saturating_sub(have)
            }
            Some(_) | None => READ_BYTES,
        };
        if self.buffer.capacity() - self.buffer.len() < missing.max(1) {
            self.buffer.drain(..self.read);
            self.read = 0;
            self.buffer.reserve(missing.max(READ_BYTES - READ_BYTES.min(have)));
        }
        &mut self.buffer
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.space().extend_from_slice(bytes);
    }

    /// The next whole frame, `None` if more bytes are needed.
    ///
    /// # Errors
    /// A length over the limit or bytes that are not an `F`. The stream is
    /// lost then: close it.
    pub fn next_frame<F: Frame>(&mut self) -> Result<Option<F>, FrameError> {
        let Some(length) = self.length() else { return Ok(None) };
        if length > FRAME_BYTES_MAX {
            return Err(too_long(length));
        }
        let (start, end) = (self.read + LENGTH_BYTES, self.read + LENGTH_BYTES + length);
        if self.buffer.len() < end {
            return Ok(None);
        }
        if length < READ_BYTES / 2 {
            self.read = end;
            return decode_with(&self.buffer[start..end], Bytes::copy_from_slice).map(Some);
        }
        // The frame takes the buffer with it; what came after it is little.
        let rest = self.buffer.split_off(end);
        let whole = Bytes::from(std::mem::replace(&mut self.buffer, rest));
        self.read = 0;
        decode(&whole.slice(start..end)).map(Some)
    }

    /// The head of a frame with a payload of at least so many bytes, if that
    /// comes next: the payload is what follows, to be read in place with
    /// [`Self::take`] and from the pipe itself. Nothing else may be read before
    /// that is done.
    ///
    /// # Errors
    /// A frame that says two lengths. The stream is lost then: close it.
    pub fn next_head<H: Head>(&mut self, bytes_min: usize) -> Result<Option<H>, FrameError> {
        let Some(length) = self.length().filter(|l| (bytes_min..=FRAME_BYTES_MAX).contains(l))
        else {
            return Ok(None);
        };
        let bytes = &self.buffer[self.read + LENGTH_BYTES..];
        // The payload's length comes last. Without it, the head is not all here.
        let Ok((head, rest)) = postcard::take_from_bytes::<H>(bytes) else { return Ok(None) };
        let Some(payload) = head.payload_bytes().filter(|bytes| *bytes >= bytes_min as u64) else {
            return Ok(None);
        };
        let begins = bytes.len() - rest.len();
        if payload.checked_add(begins as u64) != Some(length as u64) {
            let is = length.saturating_sub(begins);
            let detail = format!("a payload of {payload} bytes, and of {is}");
            return Err(FrameError::Malformed { expected: H::Whole::NAME, detail });
        }
        self.read += LENGTH_BYTES + begins;
        Ok(Some(head))
    }

    /// Takes at most so many of the bytes that have been read.
    pub fn take(&mut self, bytes_max: usize) -> &[u8] {
        let start = self.read;
        self.read = self.buffer.len().min(start + bytes_max);
        &self.buffer[start..self.read]
    }

    /// Takes the bytes after the last frame that was given.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.buffer);
        rest.drain(..std::mem::take(&mut self.read));
        rest
    }

    /// Call at the end of the stream.
    ///
    /// # Errors
    /// A frame had begun and was not whole.
    pub fn finish(&self) -> Result<(), FrameError> {
        let have = self.buffer.len() - self.read;
        let missing = match self.length() {
            None if have == 0 => return Ok(()),
            None => LENGTH_BYTES - have,
            Some(length) => (LENGTH_BYTES + length).saturating_sub(have),
        };
        Err(FrameError::Truncated { missing })
    }

    fn length(&self) -> Option<usize> {
        let prefix = self.buffer[self.read..].first_chunk::<LENGTH_BYTES>()?;
        Some(u32::from_le_bytes(*prefix) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Communicator, Envelope, Rank, Tag};
    use proptest::prelude::*;

    fn send(payload: Vec<u8>) -> ProgramFrame {
        let envelope = Envelope::whole(Communicator(1), Tag(2));
        ProgramFrame::Send { to: Rank(3), envelope, payload: payload.into() }
    }

    proptest! {
        #[test]
        fn frames_arrive_whole_however_the_stream_is_cut(
            sizes in proptest::collection::vec(
                prop_oneof![0usize..200, APART_BYTES_MIN - 1..APART_BYTES_MIN + 2, Just(PIECE_BYTES_MAX)],
                0..12,
            ),
            cut in prop_oneof![1usize..70, 1_000usize..100_000],
        ) {
            let frames: Vec<_> =
                sizes.iter().zip(0u8..).map(|(size, byte)| send(vec![byte; *size])).collect();
            let mut bytes = vec![];
            for frame in &frames {
                encode_whole(frame, &mut bytes).unwrap();
            }
            let (mut reader, mut got) = (FrameReader::default(), vec![]);
            for piece in bytes.chunks(cut) {
                prop_assert!(reader.space().capacity() > reader.buffer.len());
                reader.push(piece);
                while let Some(frame) = reader.next_frame::<ProgramFrame>().unwrap() {
                    got.push(frame);
                }
            }
            prop_assert_eq!(reader.finish(), Ok(()));
            prop_assert_eq!(got, frames);
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next_frame::<ProgramFrame>() {}
            let _ = reader.finish();
            let bytes = Bytes::from(bytes);
            let _ = decode::<AgentFrame>(&bytes);
            let _ = decode::<Packet>(&bytes);
        }
    }

    #[test]
    fn a_big_payload_is_written_apart_and_is_what_postcard_would_have_written() {
        let frame = send(vec![7; APART_BYTES_MIN]);
        let (mut head, mut whole) = (vec![], vec![]);
        let apart = encode(&frame, &mut head).unwrap();
        encode_whole(&frame, &mut whole).unwrap();
        assert!(head.len() < 20, "{}", head.len());
        assert_eq!([&head[..], &apart].concat(), whole);
        assert_eq!(whole[LENGTH_BYTES..], postcard::to_stdvec(&frame).unwrap());
    }

    #[test]
    fn a_lent_payload_is_written_as_an_own_one() {
        for bytes in [0, APART_BYTES_MIN - 1, APART_BYTES_MIN, PIECE_BYTES_MAX] {
            let frame = send(vec![7; bytes]);
            let ProgramFrame::Send { to, envelope, payload } = &frame else { unreachable!() };
            let (mut lent, mut own) = (vec![1], vec![1]);
            let apart = encode_send(*to, *envelope, payload, &mut lent).unwrap().to_vec();
            assert_eq!(apart, encode(&frame, &mut own).unwrap(), "{bytes} bytes");
            assert_eq!(lent, own, "{bytes} bytes");
        }
    }

    fn deliver(bytes: usize) -> AgentFrame {
        let envelope = Envelope::whole(Communicator(1), Tag(2));
        AgentFrame::Deliver { number: 300, from: Rank(3), envelope, payload: vec![7; bytes].into() }
    }

    fn next(reader: &mut FrameReader) -> Result<Option<AgentFrame<u64>>, FrameError> {
        reader.next_head(APART_BYTES_MIN)
    }

    #[test]
    fn a_pieces_head_is_told_as_soon_as_it_is_there() {
        let mut bytes = vec![];
        encode_whole(&deliver(APART_BYTES_MIN), &mut bytes).unwrap();
        let head = bytes.len() - APART_BYTES_MIN;
        let mut reader = FrameReader::default();
        reader.push(&bytes[..head - 1]);
        assert_eq!(next(&mut reader), Ok(None));
        reader.push(&bytes[head - 1..head + 10]);
        let envelope = Envelope::whole(Communicator(1), Tag(2));
        let payload = APART_BYTES_MIN as u64;
        let expected = AgentFrame::Deliver { number: 300, from: Rank(3), envelope, payload };
        assert_eq!(next(&mut reader), Ok(Some(expected)));
        assert_eq!(reader.take(4).len(), 4);
        assert_eq!(reader.take(100), [7; 6]);
        assert_eq!(reader.take(1), []);
    }

    #[test]
    fn what_is_no_big_piece_is_left_to_be_read_whole() {
        for frame in [
            deliver(APART_BYTES_MIN - 100),
            AgentFrame::State { last: true, state: vec![7; APART_BYTES_MIN].into() },
        ] {
            let mut reader = FrameReader::default();
            let mut bytes = vec![];
            encode_whole(&frame, &mut bytes).unwrap();
            reader.push(&bytes);
            assert_eq!(next(&mut reader), Ok(None));
            assert_eq!(reader.next_frame(), Ok(Some(frame)));
        }
    }

    #[test]
    fn a_piece_that_says_two_lengths_is_refused() {
        let mut bytes = vec![];
        encode_whole(&deliver(APART_BYTES_MIN), &mut bytes).unwrap();
        bytes[0] += 1;
        let mut reader = FrameReader::default();
        reader.push(&bytes);
        assert!(matches!(next(&mut reader), Err(FrameError::Malformed { .. })));
        // As long as can be said: the rest is not there to be said anything of.
        let envelope = Envelope::whole(Communicator(1), Tag(2));
        let most = AgentFrame::Deliver { number: 1, from: Rank(3), envelope, payload: u64::MAX };
        let head = postcard::to_stdvec(&most).unwrap();
        let length = u32::try_from(APART_BYTES_MIN + 100).unwrap().to_le_bytes();
        let mut reader = FrameReader::with_rest([&length[..], &head].concat());
        assert!(matches!(next(&mut reader), Err(FrameError::Malformed { .. })));
    }

    #[test]
    fn a_big_payload_is_read_without_a_copy() {
        let mut bytes = vec![];
        encode_whole(&send(vec![7; PIECE_BYTES_MAX]), &mut bytes).unwrap();
        let whole = Bytes::from(bytes);
        let frame: ProgramFrame = decode(&whole.slice(LENGTH_BYTES..)).unwrap();
        let payload = frame.payload().unwrap();
        assert!(whole.as_ptr_range().contains(&payload.as_ptr()));
    }

    #[test]
    fn an_oversized_length_is_refused_before_its_bytes_arrive() {
        let mut reader = FrameReader::default();
        reader.push(&u32::MAX.to_le_bytes());
        let refused = reader.next_frame::<ProgramFrame>();
        assert_eq!(refused, Err(too_long(u32::MAX as usize)));
        assert!(reader.space().capacity() < 1 << 20);
    }

    #[test]
    fn a_frame_too_long_leaves_the_buffer_as_it_was() {
        let mut out = vec![1, 2, 3];
        assert!(encode(&send(vec![0; FRAME_BYTES_MAX]), &mut out).is_err());
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn the_rest_of_one_reader_begins_the_next() {
        let mut bytes = vec![];
        encode_whole(&send(vec![1]), &mut bytes).unwrap();
        encode_whole(&send(vec![2; 300]), &mut bytes).unwrap();
        let mut reader = FrameReader::default();
        reader.push(&bytes[..100]);
        assert_eq!(reader.next_frame().unwrap(), Some(send(vec![1])));
        let mut next = FrameReader::with_rest(reader.take_rest());
        next.push(&bytes[100..]);
        assert_eq!(next.next_frame().unwrap(), Some(send(vec![2; 300])));
    }
}
