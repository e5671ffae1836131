//! The logs of a data directory, for readers: `glean usage` and replay.
//!
//! Takes no lock and changes nothing, so it works beside a running collector;
//! what that one is just writing may show as a torn tail.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gleaner_collector_core::index::Index;
use gleaner_collector_core::log::{file_name, segments_of};
use gleaner_collector_core::segment::{Entry, RecordView};
use gleaner_collector_core::summary::{Damage, DamageKind, ReadSegmentError, Segment, Summary};
use gleaner_common::id::SpoolLife;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{LifeAccount, UsageRecord};
use gleaner_shell::disk;

use crate::import::{Unfinished, unfinished};
use crate::name::WorkstationName;
use crate::timeline::Observed;

/// A collector writes a batch at a time: the second read is whole already.
const SETTLE_READS_MAX: u32 = 5;

/// Why logs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadArchiveError {
    #[error("cannot list {}", path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("no usage log of `{name}` in {}", data.display())]
    NoLog { name: String, data: PathBuf },
    #[error(transparent)]
    Segment(#[from] ReadSegmentError),
}

/// A stretch of wall time, `from` included and `to` not; open where `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub from: Option<WallTime>,
    pub to: Option<WallTime>,
}

impl Span {
    pub fn contains(self, at: WallTime) -> bool {
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at < to)
    }
}

/// A segment of 8 MiB takes one more group of an import, of at most 50 MB.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// Whatever lies under a segment's name, no more of it is held than one can have.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    disk::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("more bytes than a segment can have: expected 128 MiB"));
    }
    Ok(bytes)
}

fn read_segment(path: &Path, name: &WorkstationName) -> Result<Segment, ReadSegmentError> {
    let bytes = read_bounded(path)
        .map_err(|source| ReadSegmentError::Io { path: path.to_owned(), source })?;
    Segment::of(path, bytes, name)
}

/// The summary of a full segment: the one kept beside it if it is good.
fn summary_of_full(path: &Path, name: &WorkstationName) -> Result<Summary, ReadSegmentError> {
    let kept = || {
        let length = fs::metadata(path).ok()?.len();
        Summary::kept(&read_bounded(&path.with_extension("sum")).ok()?, path, length)
    };
    match kept() {
        Some(kept) => Ok(kept),
        None => Ok(Summary::of(&read_segment(path, name)?)),
    }
}

fn numbers_in(directory: &Path) -> io::Result<Vec<u32>> {
    let mut names = vec![];
    for entry in fs::read_dir(directory)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(segments_of(names.iter().map(String::as_str)))
}

/// Reads a segment that a collector may be appending to: a tail that is no
/// whole record is read again, as long as it changes.
fn read_settled(path: &Path, name: &WorkstationName) -> Result<Segment, ReadSegmentError> {
    let mut segment = read_segment(path, name)?;
    for _ in 0..SETTLE_READS_MAX {
        if !segment.is_torn() {
            break;
        }
        let again = read_segment(path, name)?;
        let settled = again.len() == segment.len();
        segment = again;
        if settled {
            break;
        }
    }
    Ok(segment)
}

/// What interpretation needs of a log.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    pub records: Vec<Observed>,
    /// What lives gave out beyond what there is of them.
    given: BTreeMap<SpoolLife, LifeAccount>,
}

impl Observations {
    fn add(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Record(RecordView { life, numbered }) => {
                self.records.push(Observed::of(life, &numbered));
            }
            Entry::Given(account) => {
                let known = self.given.entry(account.life).or_insert(account);
                if known.given < account.given {
                    *known = account;
                }
            }
        }
    }

    /// The records, and behind those of a life whose end is missing one that says so.
    pub fn with_missing_ends(self) -> Vec<Observed> {
        let Self { mut records, mut given } = self;
        for record in &records {
            given.retain(|life, account| *life != record.life || account.given > record.sequence);
        }
        records.extend(given.values().map(Observed::behind));
        records
    }
}

/// A data directory.
#[derive(Clone, Debug)]
pub struct Archive {
    data: PathBuf,
}

/// What is known of one log without interpreting it.
#[derive(Clone, Debug, Default)]
pub struct LogSummary {
    pub records: u64,
    pub first: Option<WallTime>,
    pub last: Option<WallTime>,
    pub segments: u32,
    pub bytes: u64,
    pub boots: usize,
    /// So many records of agents were numbered and are not there.
    pub missing: u64,
    /// What is damaged now, and what was cut off earlier.
    pub damage: Vec<Damage>,
}

impl Archive {
    pub fn new(data: &Path) -> Self {
        Self { data: data.to_owned() }
    }

    /// The workstations that have a log, in order of name.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn names(&self) -> Result<Vec<WorkstationName>, ReadArchiveError> {
        let failed = |source| ReadArchiveError::List { path: self.data.clone(), source };
        let mut names = vec![];
        for entry in fs::read_dir(&self.data).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().and_then(|name| name.parse().ok());
            names.extend(name.filter(|name| self.has_log(name)));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The imports that did not come to their end here.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn unfinished(&self) -> Result<Vec<Unfinished>, ReadArchiveError> {
        unfinished(&self.data)
            .map_err(|source| ReadArchiveError::List { path: self.data.clone(), source })
    }

    /// The named workstations, or all where none is named.
    ///
    /// # Errors
    /// A name that has no log here.
    pub fn select(&self, names: &[String]) -> Result<Vec<WorkstationName>, ReadArchiveError> {
        if names.is_empty() {
            return self.names();
        }
        let known = |name: &String| {
            let found = name.parse().ok().filter(|name| self.has_log(name));
            found.ok_or_else(|| ReadArchiveError::NoLog {
                name: name.clone(),
                data: self.data.clone(),
            })
        };
        names.iter().map(known).collect()
    }

    /// Goes through the records of a log in the order they were received,
    /// until `each` has enough. Returns what was damaged on the way.
    ///
    /// # Errors
    /// A segment that cannot be read, is none of ours or of another version.
    pub fn read(
        &self,
        name: &WorkstationName,
        mut each: impl FnMut(UsageRecord) -> ControlFlow<()>,
    ) -> Result<Vec<Damage>, ReadArchiveError> {
        self.read_entries(name, |entry| match entry {
            Entry::Record(record) => each(record.into()),
            Entry::Given(_) => ControlFlow::Continue(()),
        })
    }

    /// What interpretation needs of a log, and what was damaged in it.
    ///
    /// # Errors
    /// Those of [`Archive::read`].
    pub fn observed(
        &self,
        name: &WorkstationName,
    ) -> Result<(Observations, Vec<Damage>), ReadArchiveError> {
        let mut observations = Observations::default();
        let damage = self.read_entries(name, |entry| {
            observations.add(entry);
            ControlFlow::Continue(())
        })?;
        Ok((observations, damage))
    }

    fn read_entries(
        &self,
        name: &WorkstationName,
        mut each: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Damage>, ReadArchiveError> {
        let mut damage = self.cut_tails(name)?;
        let segments = self.segments(name)?;
        for (number, path) in (1..).zip(&segments) {
            let is_last = number == segments.len();
            let segment =
                if is_last { read_settled(path, name)? } else { read_segment(path, name)? };
            for piece in segment.entries() {
                match piece {
                    Ok(entry) => {
                        if each(entry).is_break() {
                            return Ok(damage);
                        }
                    }
                    Err(found) => damage.push(found),
                }
            }
        }
        Ok(damage)
    }

    /// What a log holds. A segment that cannot be read is damage here, so that
    /// one bad file does not hide the others.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn summary(&self, name: &WorkstationName) -> Result<LogSummary, ReadArchiveError> {
        let mut total = LogSummary { damage: self.cut_tails(name)?, ..LogSummary::default() };
        let mut index = Index::default();
        let segments = self.segments(name)?;
        for path in segments.iter().cloned() {
            total.segments += 1;
            let part = if Some(&path) == segments.last() {
                read_settled(&path, name).map(|segment| Summary::of(&segment))
            } else {
                summary_of_full(&path, name)
            };
            let Ok(part) = part else {
                let bytes = fs::metadata(&path).map_or(0, |data| data.len());
                total.bytes += bytes;
                let kind = DamageKind::Unreadable;
                total.damage.push(Damage { file: path, offset: 0, bytes, kind });
                continue;
            };
            total.records += part.records;
            total.bytes += part.bytes;
            total.first = total.first.into_iter().chain(part.first).min();
            total.last = total.last.into_iter().chain(part.last).max();
            index.merge(&part.index);
            total.damage.extend(part.damage);
        }
        (total.boots, total.missing) = (index.boots(), index.missing());
        Ok(total)
    }

    /// A directory of that name without a segment is no log.
    fn has_log(&self, name: &WorkstationName) -> bool {
        numbers_in(&self.directory(name)).is_ok_and(|numbers| !numbers.is_empty())
    }

    fn directory(&self, name: &WorkstationName) -> PathBuf {
        self.data.join(name.as_str())
    }

    fn segments(&self, name: &WorkstationName) -> Result<Vec<PathBuf>, ReadArchiveError> {
        let path = self.directory(name);
        let numbers = numbers_in(&path)
            .map_err(|source| ReadArchiveError::List { path: path.clone(), source })?;
        Ok(numbers.into_iter().map(|number| path.join(file_name(number))).collect())
    }

    /// Torn tails that the collector has put aside: `00000001.log.torn-4711`.
    fn cut_tails(&self, name: &WorkstationName) -> Result<Vec<Damage>, ReadArchiveError> {
        let path = self.directory(name);
        let failed = |source| ReadArchiveError::List { path: path.clone(), source };
        let mut tails = vec![];
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some((_, offset)) = name.to_str().and_then(|name| name.split_once(".log.torn-"))
            else {
                continue;
            };
            let offset = offset.split('-').next().and_then(|offset| offset.parse().ok());
            tails.push(Damage {
                file: entry.path(),
                offset: offset.unwrap_or(0),
                bytes: entry.metadata().map_or(0, |data| data.len()),
                kind: DamageKind::Cut,
            });
        }
        tails.sort_unstable_by(|a, b| a.file.cmp(&b.file));
        Ok(tails)
    }
}
