//! An image on its way: what is sent, byte for byte.
//!
//! ```text
//! "gleaner\3" · u32 length · header (postcard) · frame · frame · .. · end
//! frame = kind · encoding · u16 file · u32 length · u32 raw length · u32 crc32c · payload
//! ```
//!
//! All numbers are little-endian. Every frame carries the checksum of what it
//! means (not of how it is packed), and the end counts the bytes: what arrives
//! is what was taken from the guest, or is refused. A stream that was given up
//! says why in its last frame.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

pub(crate) const MAGIC: &[u8; 8] = b"gleaner\x03";

/// The most that one frame means.
pub(crate) const CHUNK: usize = 1 << 20;

/// The longest header: pipes carry at most this much unread.
pub(crate) const HEADER_BYTES_MAX: usize = 4 << 20;

/// The most files of an image: each thread has one.
pub(crate) const FILES_MAX: usize = 60_000;

const FRAME: usize = 16;
const PAGE: usize = 4_096;

/// What comes before an image: enough to decide whether to take it, and what
/// CRIU's own files do not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub fingerprint: Fingerprint,
    /// The tree's first process, as its own namespace counts.
    pub root: i32,
    /// The highest process or thread number in it.
    pub last_pid: i32,
    /// Is the first process another's session's? Then it joins the keeper's.
    pub joins_session: bool,
    /// Memory in use: about as much is sent.
    pub memory_bytes: u64,
    /// The guest's clocks (monotonic, since boot) when it stood still.
    pub clocks: (Duration, Duration),
    pub plugs: Vec<Plug>,
    /// Files on its ground that do not come along: they are to be laid.
    pub left_out: Vec<String>,
}

/// A pipe between the guest and its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plug {
    /// Which of the first process's descriptors it is.
    pub fd: i32,
    /// The pipe's number on the old machine, by which CRIU knows it.
    pub pipe: u64,
    /// What lay in it, for the guest to read. Write it into the new pipe first.
    pub unread: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Open,
    Data,
    Close,
    /// All else is there: what comes now are bytes of the files that are open.
    Known,
    End,
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Raw,
    Lz4,
    /// Nothing but zeroes, as many as the raw length says.
    Zeroes,
}

/// A frame's first sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) encoding: Encoding,
    pub(crate) file: u16,
    pub(crate) length: u32,
    pub(crate) raw_length: u32,
    pub(crate) checksum: u32,
}

impl Frame {
    pub(crate) const BYTES: usize = FRAME;

    pub(crate) fn plain(kind: Kind, file: u16, payload: &[u8]) -> Self {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let checksum = crc32c::crc32c(payload);
        Self { kind, encoding: Encoding::Raw, file, length, raw_length: length, checksum }
    }

    /// Are these bytes of a file, as they are?
    pub(crate) fn is_bulk(self) -> bool {
        self.kind == Kind::Data && self.encoding == Encoding::Raw
    }

    pub(crate) fn to_bytes(self) -> [u8; FRAME] {
        let mut bytes = [0; FRAME];
        bytes[0] = match self.kind {
            Kind::Open => b'o',
            Kind::Data => b'd',
            Kind::Close => b'c',
            Kind::Known => b'k',
            Kind::End => b'e',
            Kind::GivenUp => b'x',
        };
        bytes[1] = match self.encoding {
            Encoding::Raw => b'r',
            Encoding::Lz4 => b'l',
            Encoding::Zeroes => b'z',
        };
        bytes[2..4].copy_from_slice(&self.file.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.raw_length.to_le_bytes());
        bytes[12..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// `None` for what no sender of ours writes.
    pub(crate) fn from_bytes(bytes: &[u8; FRAME]) -> Option<Self> {
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let frame = Self {
            kind: match bytes[0] {
                b'o' => Kind::Open,
                b'd' => Kind::Data,
                b'c' => Kind::Close,
                b'k' => Kind::Known,
                b'e' => Kind::End,
                b'x' => Kind::GivenUp,
                _ => return None,
            },
            encoding: match bytes[1] {
                b'r' => Encoding::Raw,
                b'l' => Encoding::Lz4,
                b'z' => Encoding::Zeroes,
                _ => return None,
            },
            file: u16::from_le_bytes([bytes[2], bytes[3]]),
            length: number(4),
            raw_length: number(8),
            checksum: number(12),
        };
        let bounded = frame.length as usize <= CHUNK && frame.raw_length as usize <= CHUNK;
        let fits = match frame.encoding {
            Encoding::Raw => frame.length == frame.raw_length,
            Encoding::Lz4 => frame.kind == Kind::Data && frame.length < frame.raw_length,
            Encoding::Zeroes => frame.kind == Kind::Data && frame.length == 0,
        };
        (bounded && fits).then_some(frame)
    }
}

/// A name that an image file may have: it becomes a file's name.
pub(crate) fn is_image_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(plain)
}

/// A stretch of pages that are all zeroes, or none of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stretch<'a> {
    Zeroes(usize),
    Bytes(&'a [u8]),
}

/// Cuts at the pages that are nothing but zeroes.
pub(crate) fn stretches(mut bytes: &[u8]) -> impl Iterator<Item = Stretch<'_>> {
    std::iter::from_fn(move || {
        let first = bytes.chunks(PAGE).next()?;
        let zero = is_zero(first);
        let length =
            bytes.chunks(PAGE).take_while(|page| is_zero(page) == zero).map(<[u8]>::len).sum();
        let (stretch, rest) = bytes.split_at(length);
        bytes = rest;
        Some(if zero { Stretch::Zeroes(length) } else { Stretch::Bytes(stretch) })
    })
}

fn is_zero(page: &[u8]) -> bool {
    let (words, rest) = page.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let frame = Frame::plain(Kind::Open, 7, b"pages-1.img");
        assert_eq!(Frame::from_bytes(&frame.to_bytes()), Some(frame));
        let zeroes = Frame {
            kind: Kind::Data,
            encoding: Encoding::Zeroes,
            file: 1,
            length: 0,
            raw_length: 8_192,
            checksum: 0,
        };
        assert_eq!(Frame::from_bytes(&zeroes.to_bytes()), Some(zeroes));
    }

    #[test]
    fn no_frame_claims_more_than_its_bound() {
        let frame = Frame::plain(Kind::Data, 0, b"x");
        let check = |frame: Frame| assert_eq!(Frame::from_bytes(&frame.to_bytes()), None);
        check(Frame { raw_length: u32::MAX, ..frame });
        check(Frame { length: u32::MAX, raw_length: u32::MAX, ..frame });
        check(Frame { encoding: Encoding::Lz4, length: 9, raw_length: 9, ..frame });
        check(Frame { encoding: Encoding::Zeroes, ..frame });
        assert_eq!(Frame::from_bytes(&[b'?'; 16]), None);
    }

    #[test]
    fn only_plain_names_become_files() {
        assert!(is_image_name("core-3.img") && is_image_name("stats-dump"));
        for name in ["", "..", "a/b", ".hidden", "a\0b", &"x".repeat(65)] {
            assert!(!is_image_name(name), "{name:?}");
        }
    }

    #[test]
    fn zero_pages_are_cut_out() {
        let mut bytes = vec![0; 5 * PAGE + 10];
        bytes[PAGE] = 1;
        bytes[2 * PAGE + 5] = 1;
        bytes[5 * PAGE] = 1;
        let found: Vec<_> = stretches(&bytes)
            .map(|stretch| match stretch {
                Stretch::Zeroes(length) => (true, length),
                Stretch::Bytes(bytes) => (false, bytes.len()),
            })
            .collect();
        assert_eq!(found, [(true, PAGE), (false, 2 * PAGE), (true, 2 * PAGE), (false, 10)]);
    }
}
