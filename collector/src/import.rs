//! Usage that others collected, taken into the segment logs.
//!
//! The promise: bad input is named with file and line and then nothing at all
//! is taken in; importing the same again adds nothing; a longer copy of what
//! was imported before adds what is new. Everything read is counted.
//!
//! An imported record needs a boot and a sequence like any other. They come
//! from the content: a run of records from `START` to `FINISH` is one boot,
//! named after the workstation and the run's first moment ([`Origin`]), and
//! its records are numbered from 1.

mod csv;
mod rwho;
pub(crate) mod transitions;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::BootId;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};
use serde::Serialize;

use crate::log::AppendError;
use crate::name::WorkstationName;
use crate::origin::Origin;
use crate::store::{Batch, OpenStoreError, Store};
use crate::usage::Progress;

pub use csv::COLUMNS;

/// Records that are appended and synced together.
const GROUP_RECORDS: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// What `ruptime -a` and `rwho -a` printed at regular times.
    Rwho,
    /// The columns of `glean usage export --format csv`.
    Csv,
}

impl FromStr for ImportFormat {
    type Err = gleaner_common::id::ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "rwho" => Ok(Self::Rwho),
            "csv" => Ok(Self::Csv),
            _ => Err(Self::Err { text: text.to_owned(), expected: "one of rwho, csv" }),
        }
    }
}

/// Why nothing, or not everything, was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// `what` also says what was expected.
    #[error("{}:{line}: {what}", path.display())]
    Bad { path: PathBuf, line: u64, what: String },
    #[error("{}: nothing to import: expected {expected}", path.display())]
    Empty { path: PathBuf, expected: &'static str },
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    /// Importing again goes on from there.
    #[error("stopped after {new} new records")]
    Append { new: u64, source: Arc<AppendError> },
}

/// What an import came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportSummary {
    pub files: u64,
    /// Rows with the header for `csv`; for `rwho` all lines that say something.
    pub rows: u64,
    /// Blank lines and comments, for `rwho`.
    pub blank_lines: u64,
    /// For `rwho`.
    pub snapshots: u64,
    pub workstations: u64,
    /// Records that the source comes to: the new ones and those that were
    /// in the logs already.
    pub records: u64,
    pub new: u64,
    pub duplicates: u64,
}

/// Where a walk through a source gives its records.
type Sink<'a> = &'a mut dyn FnMut(WorkstationName, UsageRecord) -> Result<(), ImportError>;

/// Reads a source twice, to check it and then to append it to the logs of a
/// data directory, which no collector may be using.
///
/// # Errors
/// A source that cannot be read or has a bad line: nothing is imported then.
/// A data directory in use, or a disk that fails.
pub fn import(
    data: &Path,
    source: &Path,
    format: ImportFormat,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let walk = match format {
        ImportFormat::Rwho => rwho::walk,
        ImportFormat::Csv => csv::walk,
    };
    let mut records = 0;
    walk(source, &mut |_, _| {
        records += 1;
        Ok(())
    })?;
    let mut appender = Appender::new(Store::open(data)?, records, progress);
    let mut summary = walk(source, &mut |name, record| appender.take(name, record))?;
    appender.flush()?;
    summary.records = records;
    summary.workstations = appender.workstations.len() as u64;
    (summary.new, summary.duplicates) = (appender.new, appender.duplicates);
    Ok(summary)
}

/// Appends in groups.
struct Appender<'a> {
    store: Store,
    pending: BTreeMap<WorkstationName, Vec<UsageRecord>>,
    pending_records: usize,
    workstations: BTreeSet<WorkstationName>,
    new: u64,
    duplicates: u64,
    total: u64,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Appender<'a> {
    fn new(store: Store, total: u64, progress: &'a mut dyn FnMut(Progress)) -> Self {
        Self {
            store,
            pending: BTreeMap::new(),
            pending_records: 0,
            workstations: BTreeSet::new(),
            new: 0,
            duplicates: 0,
            total,
            progress,
        }
    }

    fn take(&mut self, name: WorkstationName, record: UsageRecord) -> Result<(), ImportError> {
        self.pending.entry(name).or_default().push(record);
        self.pending_records += 1;
        if self.pending_records >= GROUP_RECORDS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        self.pending_records = 0;
        let pending = std::mem::take(&mut self.pending);
        let batches: Vec<_> =
            pending.into_iter().map(|(name, records)| Batch { name, records }).collect();
        self.workstations.extend(batches.iter().map(|batch| batch.name.clone()));
        let mut failure = None;
        for answer in self.store.append(&batches) {
            match answer {
                Ok(appended) => {
                    self.new += appended.new;
                    self.duplicates += appended.duplicates;
                }
                Err(source) => failure = Some(source),
            }
        }
        (self.progress)(Progress { done: self.new + self.duplicates, total: self.total });
        failure.map_or(Ok(()), |source| Err(ImportError::Append { new: self.new, source }))
    }
}

/// A transition that has no boot and no number yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observation {
    pub(crate) at: WallTime,
    pub(crate) cause: Cause,
    pub(crate) load: LoadAverages,
    pub(crate) users: u32,
    pub(crate) input_idle: Option<Duration>,
    pub(crate) slots: u16,
    pub(crate) reason: String,
}

/// Gives the observations of one workstation their boots and numbers.
#[derive(Clone, Debug)]
struct Numbering {
    origin: Origin,
    name: WorkstationName,
    run: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    boot: BootId,
    start: WallTime,
    sequence: u64,
    finished: bool,
}

impl Numbering {
    fn new(origin: Origin, name: &WorkstationName) -> Self {
        Self { origin, name: name.clone(), run: None }
    }

    fn number(&mut self, observed: Observation) -> UsageRecord {
        let going = self.run.filter(|run| !run.finished && observed.cause != Cause::Start);
        let mut run = going.unwrap_or_else(|| self.begin(observed.at));
        run.sequence += 1;
        run.finished = observed.cause == Cause::Finish;
        self.run = Some(run);
        UsageRecord {
            boot: run.boot,
            sequence: run.sequence,
            at: observed.at,
            since_boot: observed.at.since(run.start),
            cause: observed.cause,
            load: observed.load,
            users: observed.users,
            input_idle: observed.input_idle,
            slots: observed.slots,
            reason: observed.reason,
        }
    }

    fn begin(&self, start: WallTime) -> Run {
        let boot = self.origin.boot(&self.name, start);
        Run { boot, start, sequence: 0, finished: false }
    }
}
