//! One workstation's log on disk, for its only writer.
//!
//! `DIR/<name>/00000001.log`, `00000002.log`, ..: a new segment is begun when
//! the last is full, and a full one never changes.
//!
//! The promise: what [`Log::sync`] has returned for is on disk; what failed
//! before that leaves the log as it was; a torn tail is put aside before it is
//! cut. Confirms nothing itself and knows nothing of agents.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gleaner_common::usage::UsageRecord;
use gleaner_shell::atomic::{self, ReplaceError};

use crate::index::Index;
use crate::name::WorkstationName;
use crate::segment::{RecordError, check_record, encode_header, encode_record};
use crate::summary::{Damage, DamageKind, ReadSegmentError, Segment, Summary};

/// A segment that has grown to this is full. Read as a whole, so small enough
/// for any machine's memory.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 8 << 20;

/// A well-behaved agent leaves no gap; a boot with more than this many is
/// not kept in memory and so not on disk.
const RANGES_MAX: usize = 10_000;

/// 50 years of ten boots a day.
const BOOTS_MAX: usize = 200_000;

/// Why a log cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    #[error("cannot {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Segment(#[from] ReadSegmentError),
    /// A torn tail could not be put aside, so it is not cut.
    #[error(transparent)]
    PutAside(#[from] ReplaceError),
}

/// Why records are not in a log.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the records of one boot have more than {RANGES_MAX} gaps")]
    TooManyGaps,
    #[error("more than {BOOTS_MAX} boots of one workstation")]
    TooManyBoots,
    #[error(transparent)]
    Open(#[from] OpenLogError),
    #[error("cannot append to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Begin(#[from] ReplaceError),
}

/// What became of the records of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    pub new: u64,
    pub duplicates: u64,
}

#[derive(Debug)]
pub struct Log {
    name: WorkstationName,
    directory: PathBuf,
    /// The number of the last segment; 0 if there is none.
    segment: u32,
    /// How long the last segment is, as far as it is on disk for sure.
    durable_bytes: u64,
    /// How long the last segment is with what was written and not synced.
    written_bytes: u64,
    /// The last segment takes no more: it is long enough, or its header is
    /// damaged and nothing may stand behind one that says nothing.
    full: bool,
    /// Open while there is something to sync.
    file: Option<File>,
    index: Index,
    segment_bytes_max: u64,
}

impl Log {
    /// Opens a workstation's log, or makes one. A torn tail is put beside the
    /// segment and cut off; all damage found is returned for somebody to say.
    ///
    /// # Errors
    /// A directory or file that cannot be used, a segment that is none of
    /// ours or of another version.
    pub fn open(data: &Path, name: &WorkstationName) -> Result<(Self, Vec<Damage>), OpenLogError> {
        let directory = data.join(name.as_str());
        make_directory(data, &directory)?;
        let mut log = Self {
            name: name.clone(),
            directory,
            segment: 0,
            durable_bytes: 0,
            written_bytes: 0,
            full: true,
            file: None,
            index: Index::default(),
            segment_bytes_max: SEGMENT_BYTES_MAX,
        };
        let segments = segments_of(&log.directory).map_err(io_error("list", &log.directory))?;
        let mut damage = vec![];
        let Some((last, full)) = segments.split_last() else { return Ok((log, damage)) };
        for number in full {
            let path = log.directory.join(file_name(*number));
            let summary = match Summary::kept(&path) {
                Some(kept) => kept,
                None => summarise(&path, name)?,
            };
            log.index.merge(&summary.index);
            damage.extend(summary.damage);
        }
        damage.extend(log.take_up(*last)?);
        Ok((log, damage))
    }

    /// Makes segments smaller, so that a test can fill some.
    #[cfg(test)]
    pub(crate) fn with_segment_bytes_max(mut self, bytes: u64) -> Self {
        self.segment_bytes_max = bytes;
        self
    }

    /// Goes on where an earlier collector stopped.
    fn take_up(&mut self, last: u32) -> Result<Vec<Damage>, OpenLogError> {
        let path = self.directory.join(file_name(last));
        let segment = Segment::read(&path, &self.name)?;
        let mut summary = Summary::of(&segment);
        self.segment = last;
        self.written_bytes = segment.len();
        self.full = !segment.has_good_header();
        self.index.merge(&summary.index);
        let torn = summary.damage.last_mut().filter(|last| last.kind == DamageKind::Torn);
        if let Some(torn) = torn
            && !self.full
        {
            let tail = segment.tail(torn.offset);
            *torn = put_aside(&path, torn.offset, tail)?;
            cut(&path, torn.offset).map_err(io_error("cut the torn tail of", &path))?;
            self.written_bytes = torn.offset;
        }
        self.durable_bytes = self.written_bytes;
        Ok(summary.damage)
    }

    pub fn contains(&self, record: &UsageRecord) -> bool {
        self.index.contains(record.boot, record.sequence)
    }

    /// Writes the records that are not there yet. They are not on disk before
    /// [`Log::sync`].
    ///
    /// # Errors
    /// A record out of its bounds, before anything is written; or the disk's
    /// reasons: then [`Log::roll_back`] and open it anew.
    pub fn append(&mut self, records: &[UsageRecord]) -> Result<Appended, AppendError> {
        records.iter().try_for_each(check_record)?;
        let mut bytes = vec![];
        let mut appended = Appended::default();
        for record in records {
            if self.index.insert(record.boot, record.sequence) {
                self.check_index(record)?;
                encode_record(record, &mut bytes)?;
                appended.new += 1;
            } else {
                appended.duplicates += 1;
            }
        }
        if !bytes.is_empty() {
            self.write(&bytes)?;
        }
        Ok(appended)
    }

    fn check_index(&self, record: &UsageRecord) -> Result<(), AppendError> {
        if self.index.ranges_of(record.boot) > RANGES_MAX {
            return Err(AppendError::TooManyGaps);
        }
        if self.index.boots() > BOOTS_MAX {
            return Err(AppendError::TooManyBoots);
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        if self.full || self.written_bytes >= self.segment_bytes_max {
            self.begin_segment()?;
        }
        let path = self.path();
        let failed = |source| AppendError::Write { path: path.clone(), source };
        if self.file.is_none() {
            let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
            self.file = Some(file);
        }
        let Some(file) = &self.file else { unreachable!("opened a line above") };
        file.write_all_at(bytes, self.written_bytes).map_err(failed)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    /// The last segment is full: makes it durable, keeps its summary, and
    /// begins the next, which appears with its whole header or not at all.
    fn begin_segment(&mut self) -> Result<(), AppendError> {
        self.sync()?;
        if self.segment > 0 {
            summarise(&self.path(), &self.name).map_err(OpenLogError::from)?;
        }
        let header = encode_header(&self.name);
        let path = self.directory.join(file_name(self.segment + 1));
        atomic::replace(&path, &header, atomic::PUBLIC)?;
        self.segment += 1;
        self.full = false;
        self.written_bytes = header.len() as u64;
        self.durable_bytes = self.written_bytes;
        Ok(())
    }

    /// Returns when all that was appended is on disk.
    ///
    /// # Errors
    /// The disk's reasons: then [`Log::roll_back`] and open it anew.
    pub fn sync(&mut self) -> Result<(), AppendError> {
        if let Some(file) = self.file.take() {
            let path = self.path();
            file.sync_data().map_err(|source| AppendError::Write { path, source })?;
        }
        self.durable_bytes = self.written_bytes;
        Ok(())
    }

    /// Takes back what was written and not synced. If even that fails, the
    /// next to open the log finds a torn tail or records that were never
    /// confirmed: both are harmless.
    pub fn roll_back(self) {
        if self.file.is_some() || self.written_bytes != self.durable_bytes {
            let _ = cut(&self.path(), self.durable_bytes);
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(file_name(self.segment))
    }
}

/// Reads a full segment and keeps what it holds beside it.
fn summarise(path: &Path, name: &WorkstationName) -> Result<Summary, ReadSegmentError> {
    let summary = Summary::of(&Segment::read(path, name)?);
    // Without the summary the next start only takes longer.
    let _ = summary.save(path);
    Ok(summary)
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenLogError {
    let path = path.to_owned();
    move |source| OpenLogError::Io { what, path, source }
}

pub(crate) fn file_name(segment: u32) -> String {
    format!("{segment:08}.log")
}

/// The numbers of the segments in a workstation's directory, in order.
///
/// # Errors
/// Those of reading a directory.
pub(crate) fn segments_of(directory: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = vec![];
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
        if let Some(number) = number.and_then(|digits| digits.parse().ok())
            && file_name(number).as_str() == name
            && number > 0
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn make_directory(data: &Path, directory: &Path) -> Result<(), OpenLogError> {
    if directory.is_dir() {
        return Ok(());
    }
    fs::create_dir(directory).map_err(io_error("make", directory))?;
    sync_directory(data).map_err(io_error("sync", data))
}

pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn cut(path: &Path, length: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(length)?;
    file.sync_all()
}

/// Keeps a torn tail beside its segment, as `00000003.log.torn-<offset>`, and
/// `-2`, `-3`, .. if one was torn there before.
fn put_aside(segment: &Path, offset: u64, tail: &[u8]) -> Result<Damage, OpenLogError> {
    let named = |copy: u32| {
        let copy = if copy == 1 { String::new() } else { format!("-{copy}") };
        segment.with_extension(format!("log.torn-{offset}{copy}"))
    };
    let mut copy = 1;
    while named(copy).exists() {
        copy += 1;
    }
    let file = named(copy);
    atomic::replace(&file, tail, atomic::PRIVATE)?;
    Ok(Damage { file, offset, bytes: tail.len() as u64, kind: DamageKind::Cut })
}

#[cfg(test)]
mod tests;
