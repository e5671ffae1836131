//! What one segment holds, so that it need not be read to know.
//!
//! A segment that is full never changes, so its summary is kept beside it
//! (`00000001.sum`); a summary that is missing, damaged or of another length
//! is made again from the segment. It may be deleted at any time. It does not show a
//! bit that turned over since: for that the segment itself is looked through.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gleaner_common::checked::Piece;
use gleaner_common::time::WallTime;
use serde::{Deserialize, Serialize};

use crate::index::Index;
use crate::name::WorkstationName;
use crate::segment::{
    Entry, Header, HeaderError, RecordView, VERSION as SEGMENT_VERSION, decode_header, entries,
    is_damaged_segment,
};

const MAGIC: &[u8; 8] = b"gleansum";
const VERSION: u16 = 2;

/// Bytes of a log that are no record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Damage {
    pub file: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    pub kind: DamageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DamageKind {
    /// The damage is in the middle: reading went on at the next whole record.
    Corrupt,
    /// The damage is at the end of a segment: a record that was not wholly written.
    Torn,
    /// A torn tail that the collector cut off and put into this file.
    Cut,
    /// The whole file is passed over: not a segment, or of another version.
    Unreadable,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes, kind } = self;
        let file = file.display();
        match kind {
            DamageKind::Corrupt => write!(
                f,
                "{file}: {bytes} bytes at {offset} are damaged: passed over to the next whole record"
            ),
            DamageKind::Torn => {
                write!(f, "{file}: the last {bytes} bytes, from {offset}, are no whole record")
            }
            DamageKind::Cut => {
                write!(f, "{file}: {bytes} bytes, cut from {offset} as a torn tail, are kept here")
            }
            DamageKind::Unreadable => {
                write!(f, "{file}: {bytes} bytes passed over: not a usage log of this version")
            }
        }
    }
}

/// Why a segment cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadSegmentError {
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {error}", path.display())]
    Header { path: PathBuf, error: HeaderError },
    #[error("{}: a log of workstation {found}: expected one of {expected}", path.display())]
    OtherWorkstation { path: PathBuf, found: WorkstationName, expected: WorkstationName },
}

/// A segment in memory.
#[derive(Debug)]
pub struct Segment {
    pub path: PathBuf,
    bytes: Vec<u8>,
    /// `None`: its header is damaged.
    header: Option<Header>,
}

impl Segment {
    /// Takes up a segment of a workstation. A damaged header costs nothing but
    /// itself: the scan then begins at the first byte.
    ///
    /// # Errors
    /// It is none of ours, of another version, or of another workstation.
    pub fn of(
        path: &Path,
        bytes: Vec<u8>,
        expected: &WorkstationName,
    ) -> Result<Self, ReadSegmentError> {
        let path = path.to_owned();
        let header = match decode_header(&bytes) {
            Ok(header) if header.name == *expected => Some(header),
            Ok(Header { name: found, .. }) => {
                let expected = expected.clone();
                return Err(ReadSegmentError::OtherWorkstation { path, found, expected });
            }
            Err(HeaderError::Damaged) => None,
            Err(HeaderError::NotOurs) if is_damaged_segment(&bytes, expected) => None,
            Err(error @ (HeaderError::NotOurs | HeaderError::Version { .. })) => {
                return Err(ReadSegmentError::Header { path, error });
            }
        };
        Ok(Self { path, bytes, header })
    }

    #[expect(clippy::len_without_is_empty, reason = "even an empty log has a header")]
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Can entries be appended, or is the header damaged, or of an older version?
    pub fn takes_more(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.version == SEGMENT_VERSION)
    }

    /// Does it end with something that is no whole entry?
    pub fn is_torn(&self) -> bool {
        let is_tail = |piece: &Result<_, Damage>| {
            piece.as_ref().is_err_and(|damage| damage.kind == DamageKind::Torn)
        };
        self.entries().last().as_ref().is_some_and(is_tail)
    }

    /// The bytes from `offset` on.
    pub fn tail(&self, offset: u64) -> &[u8] {
        usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or(&[])
    }

    /// Goes through the entries; what is damaged comes as `Err`.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry<'_>, Damage>> {
        let (start, version) =
            self.header.as_ref().map_or((0, None), |header| (header.start, Some(header.version)));
        entries(&self.bytes, start, version).map(|piece| {
            let damage = |offset: usize, bytes: usize, kind| Damage {
                file: self.path.clone(),
                offset: offset as u64,
                bytes: bytes as u64,
                kind,
            };
            match piece {
                Piece::Entry(entry) => Ok(entry),
                Piece::Corrupt { offset, bytes } => Err(damage(offset, bytes, DamageKind::Corrupt)),
                Piece::Torn { offset, bytes } => Err(damage(offset, bytes, DamageKind::Torn)),
            }
        })
    }
}

/// What a segment holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub bytes: u64,
    pub records: u64,
    /// The earliest and the latest record by the wall clock.
    pub first: Option<WallTime>,
    pub last: Option<WallTime>,
    pub index: Index,
    pub damage: Vec<Damage>,
}

impl Summary {
    pub fn of(segment: &Segment) -> Self {
        let mut summary = Self { bytes: segment.len(), ..Self::default() };
        for piece in segment.entries() {
            match piece {
                Ok(Entry::Record(record)) => summary.add(&record),
                Ok(Entry::Given(account)) => summary.index.give(&account),
                Err(damage) => summary.damage.push(damage),
            }
        }
        summary
    }

    fn add(&mut self, RecordView { life, numbered }: &RecordView<'_>) {
        let at = numbered.at;
        self.records += 1;
        self.index.insert(*life, numbered.boot, numbered.sequence);
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = Some(self.last.map_or(at, |last| last.max(at)));
    }

    /// The summary that was kept beside a segment of this length, if it is good.
    pub fn kept(bytes: &[u8], segment: &Path, length: u64) -> Option<Self> {
        let (checksum, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        if crc32c::crc32c(rest) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (version, body) = rest.split_first_chunk()?;
        if u16::from_le_bytes(*version) != VERSION {
            return None;
        }
        let mut summary: Self = postcard::from_bytes(body).ok()?;
        // The directory may have been moved since.
        summary.damage.iter_mut().for_each(|damage| segment.clone_into(&mut damage.file));
        (summary.bytes == length).then_some(summary)
    }

    /// What is kept beside a segment. Only saves time.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = postcard::to_extend(self, VERSION.to_le_bytes().to_vec())
            .unwrap_or_else(|error| unreachable!("postcard writes anything into a Vec: {error}"));
        [MAGIC.as_slice(), &crc32c::crc32c(&body).to_le_bytes(), &body].concat()
    }
}
