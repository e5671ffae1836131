//! What one segment holds, so that it need not be read to know.
//!
//! A segment that is full never changes, so its summary is kept beside it
//! (`00000001.sum`); a summary that is missing, damaged or of another length
//! is made again from the segment. It may be deleted at any time.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gleaner_common::time::WallTime;
use gleaner_common::usage::UsageRecord;
use serde::{Deserialize, Serialize};

use crate::index::Index;
use crate::name::WorkstationName;
use crate::segment::{HeaderError, Payload, Piece, Scan, decode_header};

const MAGIC: &[u8; 8] = b"gleansum";
const VERSION: u16 = 1;

/// A segment of 8 MiB takes one more group of an import, of at most 50 MB.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// Bytes of a log that are no record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    pub file: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    pub kind: DamageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
pub(crate) struct Segment {
    pub path: PathBuf,
    bytes: Vec<u8>,
    start: usize,
}

impl Segment {
    /// Reads a segment of a workstation. A damaged header costs nothing but
    /// itself: the scan then begins at the first byte.
    ///
    /// # Errors
    /// It cannot be read, is none of ours, of another version, or of another
    /// workstation.
    pub(crate) fn read(path: &Path, expected: &WorkstationName) -> Result<Self, ReadSegmentError> {
        let bytes = read_bounded(path)
            .map_err(|source| ReadSegmentError::Io { path: path.to_owned(), source })?;
        let start = match decode_header(&bytes) {
            Ok((found, start)) if found == *expected => start,
            Ok((found, _)) => {
                let expected = expected.clone();
                return Err(ReadSegmentError::OtherWorkstation {
                    path: path.to_owned(),
                    found,
                    expected,
                });
            }
            Err(HeaderError::Damaged) => 0,
            Err(error @ (HeaderError::NotOurs | HeaderError::Version { .. })) => {
                return Err(ReadSegmentError::Header { path: path.to_owned(), error });
            }
        };
        Ok(Self { path: path.to_owned(), bytes, start })
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Can records be appended, or is the header itself damaged?
    pub(crate) fn has_good_header(&self) -> bool {
        self.start > 0
    }

    /// Does it end with something that is no whole record?
    pub(crate) fn is_torn(&self) -> bool {
        let is_tail = |piece: &Result<_, Damage>| {
            piece.as_ref().is_err_and(|damage| damage.kind == DamageKind::Torn)
        };
        self.records().last().as_ref().is_some_and(is_tail)
    }

    /// The bytes from `offset` on.
    pub(crate) fn tail(&self, offset: u64) -> &[u8] {
        usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or(&[])
    }

    /// Goes through the records; what is damaged comes as `Err`.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<UsageRecord, Damage>> {
        self.records_as()
    }

    /// The same, read as something that takes less.
    pub(crate) fn records_as<R: Payload>(&self) -> impl Iterator<Item = Result<R, Damage>> {
        Scan::new(&self.bytes, self.start).map(|piece| {
            let damage = |offset: usize, bytes: usize, kind| Damage {
                file: self.path.clone(),
                offset: offset as u64,
                bytes: bytes as u64,
                kind,
            };
            match piece {
                Piece::Record(record) => Ok(record),
                Piece::Corrupt { offset, bytes } => Err(damage(offset, bytes, DamageKind::Corrupt)),
                Piece::Torn { offset, bytes } => Err(damage(offset, bytes, DamageKind::Torn)),
            }
        })
    }
}

/// What a segment holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub bytes: u64,
    pub records: u64,
    /// The earliest and the latest record by the wall clock.
    pub first: Option<WallTime>,
    pub last: Option<WallTime>,
    pub index: Index,
    pub damage: Vec<Damage>,
}

impl Summary {
    pub(crate) fn of(segment: &Segment) -> Self {
        let mut summary = Self { bytes: segment.len(), ..Self::default() };
        for piece in segment.records() {
            match piece {
                Ok(record) => summary.add(&record),
                Err(damage) => summary.damage.push(damage),
            }
        }
        summary
    }

    fn add(&mut self, record: &UsageRecord) {
        self.records += 1;
        self.index.insert(record.boot, record.sequence);
        self.first = Some(self.first.map_or(record.at, |first| first.min(record.at)));
        self.last = Some(self.last.map_or(record.at, |last| last.max(record.at)));
    }

    /// The summary of a full segment: the one kept beside it if it is good.
    ///
    /// # Errors
    /// Those of [`Segment::read`].
    pub(crate) fn of_full(path: &Path, name: &WorkstationName) -> Result<Self, ReadSegmentError> {
        match Self::kept(path) {
            Some(kept) => Ok(kept),
            None => Ok(Self::of(&Segment::read(path, name)?)),
        }
    }

    /// The summary beside a segment, if it is there and fits.
    pub(crate) fn kept(segment: &Path) -> Option<Self> {
        let length = fs::metadata(segment).ok()?.len();
        Self::load(segment).filter(|kept| kept.bytes == length)
    }

    fn load(segment: &Path) -> Option<Self> {
        let bytes = read_bounded(&path_beside(segment)).ok()?;
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
        Some(summary)
    }

    /// Keeps the summary beside its segment. Only saves time: whether it
    /// reaches the disk does not matter, so it is not synced.
    ///
    /// # Errors
    /// Those of writing a file.
    pub(crate) fn save(&self, segment: &Path) -> io::Result<()> {
        let mut body = VERSION.to_le_bytes().to_vec();
        body = postcard::to_extend(self, body).map_err(io::Error::other)?;
        let bytes = [MAGIC.as_slice(), &crc32c::crc32c(&body).to_le_bytes(), &body].concat();
        let path = path_beside(segment);
        let temporary = path.with_extension("sum.new");
        fs::write(&temporary, bytes)?;
        fs::rename(temporary, path)
    }
}

/// Whatever lies under a segment's name, no more of it is held than one can have.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("more bytes than a segment can have: expected 128 MiB"));
    }
    Ok(bytes)
}

fn path_beside(segment: &Path) -> PathBuf {
    segment.with_extension("sum")
}
