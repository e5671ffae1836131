//! A directory of results, filled chunk by chunk.
//!
//! The promise: a chunk is there whole or not at all, whatever killed the
//! process that wrote it, and a directory holds the results of one campaign
//! only. Any number of processes may fill the same directory, each its share.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use gleaner_shell::atomic::{self, PUBLIC, Replacement};

use super::columns::{Legend, Row};
use super::csv::CsvResults;
use super::manifest::{self, Describes, ReadManifestError};
use super::parquet::{ParquetResults, count_rows, read_rows};
use super::table::{Table, TableLines, TableWriter};

const MANIFEST: &str = "campaign.json";
const CHUNKS: &str = "chunks";
pub const PARQUET: &str = "results.parquet";
pub const CSV: &str = "results.csv";

/// Why a directory does not take a campaign's results.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot write {}: {why}", path.display())]
    Write { path: PathBuf, why: io::Error },
    #[error("cannot read {}: {why}", path.display())]
    Read { path: PathBuf, why: io::Error },
    #[error(transparent)]
    Manifest(#[from] ReadManifestError),
    #[error("{} holds results of another campaign: {difference}", dir.display())]
    AnotherCampaign { dir: PathBuf, difference: String },
    #[error("{} holds no results of a campaign", dir.display())]
    Nothing { dir: PathBuf },
    #[error("{} is not complete: {there} of {chunks} chunks are there", dir.display())]
    Incomplete { dir: PathBuf, there: u32, chunks: u32 },
}

/// Which chunks a process takes: `index` of `of`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub index: u32,
    pub of: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 1, of: 1 }
    }
}

impl Shard {
    pub(crate) fn takes(self, chunk: u32) -> bool {
        chunk % self.of == self.index - 1
    }
}

/// Why a text is not a shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a shard: expected i/n with i from 1 to n, such as 2/8")]
pub struct ParseShardError(String);

impl std::str::FromStr for Shard {
    type Err = ParseShardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shard = text.split_once('/').and_then(|(index, of)| {
            Some(Self { index: index.parse().ok()?, of: of.parse().ok()? })
        });
        shard
            .filter(|shard| (1..=shard.of).contains(&shard.index))
            .ok_or_else(|| ParseShardError(text.to_owned()))
    }
}

/// A directory of results.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    chunks: u32,
}

impl Store {
    /// Opens a directory for a campaign; makes it if it is not there.
    ///
    /// # Errors
    /// A directory of another campaign, or one that cannot be written.
    pub(crate) fn open<M: Describes>(dir: &Path, manifest: &M) -> Result<Self, StoreError> {
        let path = dir.join(MANIFEST);
        let chunks = dir.join(CHUNKS);
        fs::create_dir_all(&chunks).map_err(|why| StoreError::Write { path: chunks, why })?;
        let there = match manifest::read::<M>(&path) {
            Ok(there) => Some(there),
            Err(ReadManifestError::Missing) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(difference) = there.as_ref().and_then(|there| there.difference(manifest)) {
            return Err(StoreError::AnotherCampaign { dir: dir.to_owned(), difference });
        }
        // What its report is to say may have changed.
        if there.as_ref() != Some(manifest) {
            let text = manifest::to_json(manifest);
            atomic::replace(&path, text.as_bytes(), PUBLIC).map_err(write_failed)?;
        }
        Ok(Self { dir: dir.to_owned(), chunks: manifest.chunks() })
    }

    /// Does a directory hold results of this kind of campaign?
    pub(crate) fn is_of<M: Describes>(dir: &Path) -> bool {
        manifest::read::<M>(&dir.join(MANIFEST)).is_ok()
    }

    /// Opens a directory of which all chunks are merged.
    ///
    /// # Errors
    /// A directory without results, or without all of them.
    pub(crate) fn open_complete<M: Describes>(dir: &Path) -> Result<(Self, M), StoreError> {
        let manifest: M = match manifest::read(&dir.join(MANIFEST)) {
            Ok(manifest) => manifest,
            Err(ReadManifestError::Missing) => {
                return Err(StoreError::Nothing { dir: dir.to_owned() });
            }
            Err(error) => return Err(error.into()),
        };
        let store = Self { dir: dir.to_owned(), chunks: manifest.chunks() };
        if store.dir.join(PARQUET).exists() {
            return Ok((store, manifest));
        }
        let there = (0..store.chunks).filter(|chunk| store.path(*chunk).exists()).count();
        let there = u32::try_from(there).unwrap_or(u32::MAX);
        Err(StoreError::Incomplete { dir: dir.to_owned(), there, chunks: store.chunks })
    }

    /// Where the whole is.
    pub(crate) fn results(&self) -> PathBuf {
        self.dir.join(PARQUET)
    }

    fn path(&self, chunk: u32) -> PathBuf {
        self.dir.join(CHUNKS).join(format!("{chunk:06}.parquet"))
    }

    /// The chunks that are not there, or not as long as they should be.
    pub(crate) fn missing(&self, rows_of: impl Fn(u32) -> u64) -> Vec<u32> {
        let is_whole =
            |chunk| count_rows(&self.path(chunk)).is_ok_and(|rows| rows == rows_of(chunk));
        (0..self.chunks).filter(|chunk| !is_whole(*chunk)).collect()
    }

    /// Keeps a chunk.
    ///
    /// # Errors
    /// A disk that is full or gone; the chunk is then not there.
    pub(crate) fn write(
        &self,
        chunk: u32,
        legend: &Legend,
        rows: &[Row],
    ) -> Result<(), StoreError> {
        let path = self.path(chunk);
        let failed = |why| StoreError::Write { path: path.clone(), why };
        let mut bytes = ParquetResults::begin(vec![]).map_err(failed)?;
        bytes.add(legend, rows).map_err(failed)?;
        let bytes = bytes.finish().map_err(failed)?;
        atomic::replace(&path, &bytes, PUBLIC).map_err(write_failed)
    }

    /// Joins all chunks, in order, and counts the executions that were given
    /// up.
    ///
    /// # Errors
    /// A chunk that cannot be read, or a disk that is full or gone.
    pub(crate) fn merge(&self, progress: &mut dyn FnMut(u32)) -> Result<u64, StoreError> {
        let _turn = self.turn()?;
        let mut given_up = 0;
        let (parquet, csv) = (self.dir.join(PARQUET), self.dir.join(CSV));
        let begin = |path| Replacement::begin(path, PUBLIC).map_err(write_failed);
        let (columns, lines) = (begin(&parquet)?, begin(&csv)?);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |why| StoreError::Write { path, why }
        };
        let buffered = |to| BufWriter::with_capacity(1 << 20, to);
        let mut as_parquet =
            ParquetResults::begin(buffered(columns.file())).map_err(failed(&parquet))?;
        let mut as_csv = CsvResults::begin(buffered(lines.file())).map_err(failed(&csv))?;
        let mut legend = Legend::default();
        for chunk in 0..self.chunks {
            progress(chunk);
            let path = self.path(chunk);
            let mut written = Ok(());
            read_rows(&path, &mut legend, |legend, rows| {
                given_up += rows.iter().filter(|row| !row.finished()).count() as u64;
                written = as_parquet.add(legend, rows).map_err(failed(&parquet));
                if written.is_ok() {
                    written = as_csv.add(legend, rows).map_err(failed(&csv));
                }
                Ok(())
            })
            .map_err(|why| StoreError::Read { path, why })?;
            written?;
        }
        as_parquet.finish().and_then(|mut to| to.flush()).map_err(failed(&parquet))?;
        as_csv.finish().and_then(|mut to| to.flush()).map_err(failed(&csv))?;
        lines.finish().map_err(write_failed)?;
        // The columns come last, because they say that all is there.
        columns.finish().map_err(write_failed)?;
        self.sweep();
        Ok(given_up)
    }
}

/// Tables, instead of executions: those of runs, and those of jobs beside them.
impl Store {
    fn part_path(&self, chunk: u32, part: Part) -> PathBuf {
        let path = self.path(chunk);
        match part {
            Part::Results => path,
            Part::Jobs => path.with_extension("jobs"),
        }
    }

    /// Where the whole of a part is.
    pub(crate) fn whole(&self, part: Part) -> PathBuf {
        self.dir.join(part.files().0)
    }

    /// Keeps a part of a chunk. The results come last, because they say that
    /// the chunk is there.
    ///
    /// # Errors
    /// A disk that is full or gone; the part is then not there.
    pub(crate) fn keep(&self, chunk: u32, part: Part, table: &Table) -> Result<(), StoreError> {
        let path = self.part_path(chunk, part);
        let bytes = table.to_parquet();
        let bytes = bytes.map_err(|why| StoreError::Write { path: path.clone(), why })?;
        atomic::replace(&path, &bytes, PUBLIC).map_err(write_failed)
    }

    /// Takes a part of a chunk over from another directory.
    ///
    /// # Errors
    /// A part that cannot be read, or a disk that is full or gone.
    pub(crate) fn take(&self, chunk: u32, part: Part, from: &Self) -> Result<(), StoreError> {
        let path = from.part_path(chunk, part);
        let bytes = fs::read(&path).map_err(|why| StoreError::Read { path, why })?;
        atomic::replace(&self.part_path(chunk, part), &bytes, PUBLIC).map_err(write_failed)
    }

    /// Joins a part of all chunks, in order.
    ///
    /// # Errors
    /// A chunk that cannot be read, or a disk that is full or gone.
    pub(crate) fn join(
        &self,
        part: Part,
        look: &mut dyn FnMut(u32, &Table),
    ) -> Result<(), StoreError> {
        let _turn = self.turn()?;
        let (parquet, csv) = part.files();
        let (parquet, csv) = (self.dir.join(parquet), self.dir.join(csv));
        let begin = |path| Replacement::begin(path, PUBLIC).map_err(write_failed);
        let (columns, lines) = (begin(&parquet)?, begin(&csv)?);
        self.append_all(part, [columns.file(), lines.file()], look)?;
        lines.finish().map_err(write_failed)?;
        columns.finish().map_err(write_failed)?;
        if part == Part::Results {
            self.sweep();
        }
        Ok(())
    }

    fn append_all(
        &self,
        part: Part,
        [columns, lines]: [&fs::File; 2],
        look: &mut dyn FnMut(u32, &Table),
    ) -> Result<(), StoreError> {
        let mut writers: Option<(TableWriter<_>, TableLines<_>)> = None;
        for chunk in 0..self.chunks {
            let path = self.part_path(chunk, part);
            let append = |table: Table| {
                look(chunk, &table);
                if writers.is_none() {
                    let buffered = |file| BufWriter::with_capacity(1 << 20, file);
                    let as_parquet = TableWriter::begin(buffered(columns), &table)?;
                    let as_csv = TableLines::begin(buffered(lines), &table)?;
                    writers = Some((as_parquet, as_csv));
                }
                let Some((as_parquet, as_csv)) = &mut writers else { return Ok(()) };
                as_parquet.add(&table)?;
                as_csv.add(&table)
            };
            Table::read(&path, append).map_err(|why| StoreError::Read { path, why })?;
        }
        if let Some((as_parquet, as_csv)) = writers {
            let written = as_parquet.finish().and_then(|mut to| to.flush());
            let written = written.and_then(|()| as_csv.finish()?.flush());
            written.map_err(|why| StoreError::Write { path: self.whole(part), why })?;
        }
        Ok(())
    }
}

/// What a chunk of a workload campaign has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Results,
    Jobs,
}

impl Part {
    fn files(self) -> (&'static str, &'static str) {
        match self {
            Self::Results => (PARQUET, CSV),
            Self::Jobs => ("jobs.parquet", "jobs.csv"),
        }
    }
}

/// What a process that was killed left of a file that it had not finished.
const UNFINISHED: &str = ".new-";

impl Store {
    /// Of shards that find all chunks at the same time, one joins them at a time:
    /// the other's files are no leftovers. Where the file system has no locks they
    /// are taken for such.
    fn turn(&self) -> Result<Option<fs::File>, StoreError> {
        let path = self.dir.join(MANIFEST);
        let manifest = fs::OpenOptions::new().read(true).write(true).open(&path);
        let locked = manifest.and_then(|file| file.lock().map(|()| Some(file)));
        match locked {
            Err(why) if why.kind() == io::ErrorKind::Unsupported => Ok(None),
            locked => locked.map_err(|why| StoreError::Read { path, why }),
        }
    }

    /// Removes what killed processes left. Nothing is missing when this is
    /// called, so nobody is about to finish one.
    fn sweep(&self) {
        for dir in [self.dir.clone(), self.dir.join(CHUNKS)] {
            let Ok(entries) = fs::read_dir(dir) else { continue };
            for entry in entries.flatten() {
                if entry.file_name().to_string_lossy().contains(UNFINISHED) {
                    // This is only tidiness: a file that stays does no harm.
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }
}

fn write_failed(error: atomic::ReplaceError) -> StoreError {
    StoreError::Write { path: error.path, why: error.source }
}
