//! One workstation's log on disk, for its only writer.
//!
//! `DIR/<name>/00000001.log`, `00000002.log`, ..: a new segment is begun when
//! the last is full, and a full one never changes.
//!
//! The promise: what [`Log::sync`] has returned for is on disk, and so is all that
//! [`Log::open`] has found; what failed before that is taken back before anything
//! else; a torn tail is put aside before it is cut. Confirms nothing itself.

use std::io;
use std::path::{Path, PathBuf};

use gleaner_common::disk::Disk;
use gleaner_common::id::SpoolLife;
use gleaner_common::usage::{LifeAccount, LifeKept, UsageRecord};

use crate::index::Index;
use crate::name::WorkstationName;
use crate::segment::{RecordError, check_record, encode_given, encode_header, encode_record};
use crate::summary::{Damage, DamageKind, ReadSegmentError, Segment, Summary};

/// A segment that has grown to this is full. Read as a whole, so small enough
/// for any machine's memory.
const SEGMENT_BYTES_MAX: u64 = 8 << 20;

/// A well-behaved agent leaves no gap; a life with more than this many is
/// not kept in memory and so not on disk.
const GAPS_MAX: usize = 10_000;

/// 50 years of ten starts of an agent a day.
const LIVES_MAX: usize = 200_000;

/// Why a log cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    #[error("cannot {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Segment(#[from] ReadSegmentError),
}

/// Why records are not in a log.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the records of one life have more than {GAPS_MAX} gaps")]
    TooManyGaps,
    #[error("more than {LIVES_MAX} lives of one workstation")]
    TooManyLives,
    #[error(transparent)]
    Open(#[from] OpenLogError),
    #[error("cannot append to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot begin {}", path.display())]
    Begin { path: PathBuf, source: io::Error },
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    pub new: u64,
    pub duplicates: u64,
    /// What is there of the lives that were asked for, in that order.
    pub kept: Vec<LifeKept>,
    /// So many records of these lives were confirmed once and are not there any more.
    pub gone: u64,
}

#[derive(Debug)]
pub struct Log {
    name: WorkstationName,
    /// Where the disk's files are: for people.
    directory: PathBuf,
    /// The number of the last segment; 0 if there is none.
    segment: u32,
    /// How long the last segment is, as far as it is on disk for sure.
    durable_bytes: u64,
    /// How long the last segment is with what was written and not synced.
    written_bytes: u64,
    /// The last segment takes no more: it is long enough, of an older version, or its
    /// header is damaged and nothing may stand behind one that says nothing.
    full: bool,
    index: Index,
    segment_bytes_max: u64,
}

impl Log {
    /// Opens a workstation's log, or makes one. A torn tail is put beside the
    /// segment and cut off; all damage found is returned for somebody to say.
    ///
    /// # Errors
    /// A file that cannot be used, a segment that is none of ours or of another version.
    pub fn open(
        disk: &mut dyn Disk,
        directory: &Path,
        name: &WorkstationName,
    ) -> Result<(Self, Vec<Damage>), OpenLogError> {
        let mut log = Self {
            name: name.clone(),
            directory: directory.to_owned(),
            segment: 0,
            durable_bytes: 0,
            written_bytes: 0,
            full: true,
            index: Index::default(),
            segment_bytes_max: SEGMENT_BYTES_MAX,
        };
        let names = disk.list().map_err(io_error("list", directory))?;
        let segments = segments_of(names.iter().map(String::as_str));
        let mut damage = vec![];
        let Some((last, full)) = segments.split_last() else { return Ok((log, damage)) };
        for number in full {
            let summary = match log.kept_summary(disk, *number) {
                Some(kept) => kept,
                None => log.summarise(disk, *number)?,
            };
            log.index.merge(&summary.index);
            damage.extend(summary.damage);
        }
        damage.extend(log.take_up(disk, *last)?);
        Ok((log, damage))
    }

    /// Makes segments smaller, so that a test can fill some.
    #[must_use]
    pub fn with_segment_bytes_max(mut self, bytes: u64) -> Self {
        self.segment_bytes_max = bytes;
        self
    }

    /// Goes on where an earlier collector stopped. What it wrote and did not sync is
    /// synced first: it counts as kept from here on.
    fn take_up(&mut self, disk: &mut dyn Disk, last: u32) -> Result<Vec<Damage>, OpenLogError> {
        let (file, path) = (file_name(last), self.path_of(last));
        disk.sync(&file).map_err(io_error("sync", &path))?;
        let segment = self.read(disk, last)?;
        let mut summary = Summary::of(&segment);
        self.segment = last;
        self.written_bytes = segment.len();
        self.full = !segment.takes_more();
        self.index.merge(&summary.index);
        let torn = summary.damage.pop_if(|last| last.kind == DamageKind::Torn && !self.full);
        if let Some(torn) = &torn {
            self.put_aside(disk, torn.offset, segment.tail(torn.offset))?;
            let done = disk.cut(&file, torn.offset);
            done.map_err(io_error("cut the torn tail of", &path))?;
            self.written_bytes = torn.offset;
        }
        // Also what was cut by one that failed before it could say so.
        summary.damage.extend(self.cut_from(disk, self.written_bytes)?);
        self.durable_bytes = self.written_bytes;
        Ok(summary.damage)
    }

    fn read(&self, disk: &mut dyn Disk, number: u32) -> Result<Segment, ReadSegmentError> {
        let path = self.path_of(number);
        let bytes = match disk.read(&file_name(number)) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                return Err(ReadSegmentError::Io { path, source: io::ErrorKind::NotFound.into() });
            }
            Err(source) => return Err(ReadSegmentError::Io { path, source }),
        };
        Segment::of(&path, bytes, &self.name)
    }

    fn kept_summary(&self, disk: &mut dyn Disk, number: u32) -> Option<Summary> {
        let length = disk.length(&file_name(number)).ok()??;
        let bytes = disk.read(&summary_name(number)).ok()??;
        Summary::kept(&bytes, &self.path_of(number), length)
    }

    /// The first segment behind this number; `None` if there is none.
    pub(crate) fn segment_behind(
        &self,
        disk: &mut dyn Disk,
        number: u32,
    ) -> Result<Option<u32>, OpenLogError> {
        let names = disk.list().map_err(io_error("list", &self.directory))?;
        Ok(segments_of(names.iter().map(String::as_str)).into_iter().find(|it| *it > number))
    }

    /// What is damaged in a segment as it is now. A summary that says otherwise is
    /// emptied, which takes no room: whoever opens the log makes it anew.
    pub(crate) fn look(
        &self,
        disk: &mut dyn Disk,
        number: u32,
    ) -> Result<Vec<Damage>, OpenLogError> {
        let found = Summary::of(&self.read(disk, number)?);
        if self.kept_summary(disk, number).is_some_and(|kept| kept != found) {
            let file = summary_name(number);
            disk.cut(&file, 0).map_err(io_error("empty", &self.directory.join(&file)))?;
        }
        Ok(found.damage)
    }

    /// Reads a full segment and keeps what it holds beside it.
    fn summarise(&self, disk: &mut dyn Disk, number: u32) -> Result<Summary, ReadSegmentError> {
        let summary = Summary::of(&self.read(disk, number)?);
        // Without the summary the next start only takes longer.
        let _ = disk.replace(&summary_name(number), &summary.to_bytes());
        Ok(summary)
    }

    /// Keeps a torn tail beside its segment, as `00000003.log.torn-<offset>`, and
    /// `-2`, `-3`, .. if one was torn there before.
    fn put_aside(&self, disk: &mut dyn Disk, offset: u64, tail: &[u8]) -> Result<(), OpenLogError> {
        let failed = io_error("put aside the torn tail of", &self.path());
        let first = self.torn_name(offset);
        let others = (2..).map(|copy| format!("{first}-{copy}"));
        for name in std::iter::once(first.clone()).chain(others) {
            match disk.read(&name) {
                Ok(None) => return disk.replace(&name, tail).map_err(failed),
                // By one that could not cut it off.
                Ok(Some(there)) if there == tail => return Ok(()),
                Ok(Some(_)) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Ok(())
    }

    fn torn_name(&self, offset: u64) -> String {
        format!("{}.torn-{offset}", file_name(self.segment))
    }

    /// The tails that were put aside there.
    fn cut_from(&self, disk: &mut dyn Disk, offset: u64) -> Result<Vec<Damage>, OpenLogError> {
        let first = self.torn_name(offset);
        let mut names = disk.list().map_err(io_error("list", &self.directory))?;
        names.retain(|name| {
            name.strip_prefix(&first).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        names.sort_unstable();
        let damage = names.into_iter().map(|name| {
            let bytes = disk.length(&name).ok().flatten().unwrap_or_default();
            Damage { file: self.directory.join(name), offset, bytes, kind: DamageKind::Cut }
        });
        Ok(damage.collect())
    }

    pub fn contains(&self, record: &UsageRecord) -> bool {
        self.index.contains(record.life, record.sequence)
    }

    /// What is there of a life, synced or not.
    pub fn kept(&self, life: SpoolLife) -> LifeKept {
        self.index.kept(life)
    }

    /// Writes the records that are not there yet. They are not on disk before
    /// [`Log::sync`].
    ///
    /// # Errors
    /// A record out of its bounds, before anything is written; or the disk's
    /// reasons: then [`Log::roll_back`].
    pub fn append(
        &mut self,
        disk: &mut dyn Disk,
        records: &[UsageRecord],
    ) -> Result<Appended, AppendError> {
        records.iter().try_for_each(check_record)?;
        let mut bytes = vec![];
        let mut appended = Appended::default();
        for record in records {
            if self.index.insert(record.life, record.boot, record.sequence) {
                self.check_index(record.life)?;
                encode_record(record, &mut bytes)?;
                appended.new += 1;
            } else {
                appended.duplicates += 1;
            }
        }
        self.write(disk, &bytes)?;
        Ok(appended)
    }

    /// Answers what is there of each life, and notes the numbers that a spool gave out
    /// and may have lost: so their gap shows, also at a life's end. Nothing of it counts
    /// before [`Log::sync`].
    ///
    /// # Errors
    /// The disk's reasons: then [`Log::roll_back`].
    pub fn agree(
        &mut self,
        disk: &mut dyn Disk,
        lives: &[LifeAccount],
    ) -> Result<Appended, AppendError> {
        let mut bytes = vec![];
        let mut appended = Appended::default();
        for account in lives {
            let LifeAccount { life, given, saved, confirmed, .. } = *account;
            if given > saved && !self.index.knows(life, given) {
                self.index.give(account);
                self.check_index(life)?;
                encode_given(account, &mut bytes);
            }
            let kept = self.index.kept(life);
            appended.gone += confirmed.saturating_sub(kept.records);
            appended.kept.push(kept);
        }
        self.write(disk, &bytes)?;
        Ok(appended)
    }

    fn check_index(&self, life: SpoolLife) -> Result<(), AppendError> {
        if self.index.ranges_of(life) > GAPS_MAX {
            return Err(AppendError::TooManyGaps);
        }
        if self.index.lives() > LIVES_MAX {
            return Err(AppendError::TooManyLives);
        }
        Ok(())
    }

    fn write(&mut self, disk: &mut dyn Disk, bytes: &[u8]) -> Result<(), AppendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.full || self.written_bytes >= self.segment_bytes_max {
            self.begin_segment(disk)?;
        }
        let done = disk.write_at(&file_name(self.segment), self.written_bytes, bytes);
        done.map_err(|source| AppendError::Write { path: self.path(), source })?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    /// The last segment is full: makes it durable, keeps its summary, and
    /// begins the next, which appears with its whole header or not at all.
    fn begin_segment(&mut self, disk: &mut dyn Disk) -> Result<(), AppendError> {
        self.sync(disk)?;
        if self.segment > 0 {
            self.summarise(disk, self.segment).map_err(OpenLogError::from)?;
        }
        let header = encode_header(&self.name);
        let next = self.segment + 1;
        let done = disk.replace(&file_name(next), &header);
        done.map_err(|source| AppendError::Begin { path: self.path_of(next), source })?;
        self.segment = next;
        self.full = false;
        self.written_bytes = header.len() as u64;
        self.durable_bytes = self.written_bytes;
        Ok(())
    }

    /// Returns when all that was appended is on disk.
    ///
    /// # Errors
    /// The disk's reasons: then [`Log::roll_back`].
    pub fn sync(&mut self, disk: &mut dyn Disk) -> Result<(), AppendError> {
        if self.written_bytes != self.durable_bytes {
            let done = disk.sync(&file_name(self.segment));
            done.map_err(|source| AppendError::Write { path: self.path(), source })?;
        }
        self.durable_bytes = self.written_bytes;
        Ok(())
    }

    /// Takes back what was written and not synced, and opens the log anew. Until that
    /// is done nothing else may be asked of it: what a failed sync left can be read,
    /// and is not on the disk.
    ///
    /// # Errors
    /// It can still not be taken back, or not be opened.
    pub fn roll_back(&self, disk: &mut dyn Disk) -> Result<(Self, Vec<Damage>), OpenLogError> {
        let file = file_name(self.segment);
        if self.segment > 0 {
            let done = disk.cut(&file, self.durable_bytes);
            done.map_err(io_error("take back what was not synced of", &self.path()))?;
        }
        let (log, damage) = Self::open(disk, &self.directory, &self.name)?;
        Ok((log.with_segment_bytes_max(self.segment_bytes_max), damage))
    }

    fn path(&self) -> PathBuf {
        self.path_of(self.segment)
    }

    fn path_of(&self, number: u32) -> PathBuf {
        self.directory.join(file_name(number))
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenLogError + use<> {
    let path = path.to_owned();
    move |source| OpenLogError::Io { what, path, source }
}

pub fn file_name(segment: u32) -> String {
    format!("{segment:08}.log")
}

/// What is kept beside a full segment.
pub fn summary_name(segment: u32) -> String {
    format!("{segment:08}.sum")
}

/// The numbers of the segments among the files of a workstation's directory, in order.
pub fn segments_of<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u32> {
    let number = |name: &str| {
        let number = name.strip_suffix(".log")?.parse().ok()?;
        (file_name(number) == name && number > 0).then_some(number)
    };
    let mut numbers: Vec<u32> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests;
