//! Usage that others collected, taken into the segment logs.
//!
//! The promise: bad input is named with file and line and then nothing at all
//! is taken in; importing the same again adds nothing; a longer copy of what
//! was imported before adds what is new. Everything read is counted. An import
//! that is killed is told of by who reads the logs, until it is done again.
//!
//! An imported record needs a boot and a sequence like any other. They come
//! from the content: a run of records from `START` to `FINISH` is one boot,
//! named after the workstation, the run's first moment and how many began at
//! that moment before it ([`Origin`]), and its records are numbered from 1.

mod csv;
mod fields;
mod intervals;
mod last;
mod local;
mod machine;
mod rwho;
mod sessions;
mod source;
mod states;
pub(crate) mod transitions;
mod unfinished;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::BootId;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};
use gleaner_shell::atomic::ReplaceError;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::log::AppendError;
use crate::name::WorkstationName;
use crate::origin::Origin;
use crate::progress::Progress;
use crate::store::{Batch, OpenStoreError, Store};
use crate::wall::spoken_time;

use source::Sources;
use unfinished::{Mark, SetMark};

pub use csv::COLUMNS;
pub use local::LocalTimes;
pub use unfinished::{Unfinished, unfinished};

/// How many records are appended and synced together: some 20 MB of memory, and
/// few syncs for each log.
const GROUP_RECORDS: usize = 100_000;

/// Rows between two words of progress.
const PROGRESS_EVERY: u64 = 10_000;

/// Workstations of one import: ten times what any site has.
pub(crate) const NAMES_MAX: usize = 100_000;

/// A state that is held for longer says nothing: a computer fell silent.
pub const HOLD_MAX: Duration = Duration::from_secs(7 * 86_400);

gleaner_common::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ImportFormat {
        /// What `ruptime -a` and `rwho -a` printed at regular times.
        Rwho = "rwho",
        /// The columns of `glean usage export --format csv`.
        Csv = "csv",
        /// `machine,state,timestamp`, as UNC Greensboro's libraries published.
        Uncg = "uncg",
        /// Availability intervals, of the Repository of Availability Traces.
        Avt = "avt",
        /// Event traces of the Failure Trace Archive.
        Fta = "fta",
        /// `host,start,end`: who was logged on when.
        Sessions = "sessions",
        /// What `last` prints of one workstation.
        Last = "last",
    }
}

/// What to import, and how to understand it.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    pub format: ImportFormat,
    /// Files, plain or gzip, directories of them, pipes, and `-` for standard
    /// input; in order of time.
    pub sources: Vec<PathBuf>,
    /// `uncg`, `sessions`, `last`: whose local time the rows have; `None` is UTC.
    pub zone: Option<TimeZone>,
    /// `uncg`: a table with `computerName` and `isDesktop`; rows of what is no
    /// desktop, or not in it, are left out.
    pub only_desktops: Option<PathBuf>,
    /// `uncg`: how long a state may be held to be believed.
    pub hold_max: Duration,
    /// `avt`: when the trace began; `None` is 1970.
    pub starts: Option<WallTime>,
    /// `last`: whose sessions the sources have; `None`: each file is named after
    /// its workstation.
    pub workstation: Option<WorkstationName>,
}

impl ImportOptions {
    pub fn new(format: ImportFormat, sources: Vec<PathBuf>) -> Self {
        let (zone, only_desktops, starts, workstation) = (None, None, None, None);
        Self { format, sources, zone, only_desktops, hold_max: HOLD_MAX, starts, workstation }
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
    #[error(
        "{}: whose sessions are these? expected --workstation NAME, or files named after theirs",
        path.display()
    )]
    WhoseSessions { path: PathBuf },
    #[error("more than {NAMES_MAX} workstations")]
    TooManyNames,
    /// An export could not be imported again.
    #[error(
        "`{name}`: {} is 292 years or more after its run of records began: expected less",
        spoken_time(*at)
    )]
    TooLong { name: WorkstationName, at: WallTime },
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    #[error(transparent)]
    Mark(#[from] ReplaceError),
    #[error("cannot remove the mark of an import in {}", path.display())]
    Unmark { path: PathBuf, source: io::Error },
    /// Importing again goes on from there.
    #[error("stopped after {new} new records")]
    Append { new: u64, source: Arc<AppendError> },
}

/// Is there room for one workstation more, also if it gives no record?
fn check_room(known: usize) -> Result<(), String> {
    if known < NAMES_MAX { Ok(()) } else { Err(ImportError::TooManyNames.to_string()) }
}

/// What an import came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportSummary {
    pub files: u64,
    /// Rows with the header for `csv`; for `rwho` all lines that say something.
    pub rows: u64,
    /// Blank lines and comments, but for `csv`.
    pub blank_lines: u64,
    /// Snapshots that were read, for `rwho`.
    pub snapshots: u64,
    pub workstations: u64,
    /// Records that the source comes to: the new ones and those that were
    /// in the logs already.
    pub records: u64,
    pub new: u64,
    pub duplicates: u64,
    /// For `uncg`: rows that repeat the state held already.
    pub repeated_rows: u64,
    /// States that were held for longer than is believed, and for how long in
    /// all: no data.
    pub overlong: u64,
    pub overlong_h: f64,
    /// Rows of computers that the table does not call desktops, how many
    /// computers those are, and the rows of those that it says nothing of.
    pub left_out_rows: u64,
    pub left_out_workstations: u64,
    pub unlisted_rows: u64,
    #[serde(flatten)]
    pub local_times: LocalTimes,
    /// For `avt`, `fta`, `sessions` and `last`: intervals of no length, which say
    /// nothing.
    pub empty_intervals: u64,
    /// For `sessions` and `last`: how many there are, how many of them began
    /// before another one on the same workstation had ended, and how many were
    /// left out because nobody saw their end.
    pub sessions: u64,
    pub overlapping_sessions: u64,
    pub unended_sessions: u64,
}

impl ImportSummary {
    fn count_row(&mut self, finding: machine::RowFinding) {
        self.repeated_rows += u64::from(finding.repeated);
        if let Some(held) = finding.overlong {
            self.overlong += 1;
            self.overlong_h += held.as_secs_f64() / 3_600.0;
        }
    }
}

/// Where a walk through a source gives its records.
type Sink<'a> = &'a mut dyn FnMut(WorkstationName, UsageRecord) -> Result<(), ImportError>;

/// Reads the sources twice, to check them and then to append them to the logs
/// of a data directory, which no collector may be using.
///
/// # Errors
/// A source that cannot be read or has a bad line: nothing is imported then.
/// A data directory in use, or a disk that fails.
pub fn import(
    data: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let walk = match options.format {
        ImportFormat::Rwho => rwho::walk,
        ImportFormat::Csv => csv::walk,
        ImportFormat::Uncg => states::walk,
        ImportFormat::Avt => intervals::walk_avt,
        ImportFormat::Fta => intervals::walk_fta,
        ImportFormat::Sessions => sessions::walk,
        ImportFormat::Last => sessions::walk_last,
    };
    let sources = Sources::find(&options.sources)?;
    let mut meter =
        ProgressMeter { read: sources.read.clone(), total: 2 * sources.bytes, rows: 0, progress };
    let mut names = BTreeSet::new();
    walk(&sources, options, &mut |name, record| {
        meter.step();
        if i64::try_from(record.since_boot.as_nanos()).is_err() {
            return Err(ImportError::TooLong { name, at: record.at });
        }
        if !names.contains(&name) {
            names.insert(name);
        }
        if names.len() > NAMES_MAX { Err(ImportError::TooManyNames) } else { Ok(()) }
    })?;
    let records = meter.rows;
    let store = Store::open(data)?;
    let mark = set_mark(data, &sources, options, &names)?;
    let mut appender = Appender::new(store, meter);
    let mut summary = walk(&sources, options, &mut |name, record| appender.take(name, record))?;
    appender.flush()?;
    mark.remove().map_err(|source| ImportError::Unmark { path: data.to_owned(), source })?;
    appender.meter.tell();
    summary.records = records;
    summary.workstations = names.len() as u64;
    (summary.new, summary.duplicates) = (appender.new, appender.duplicates);
    Ok(summary)
}

fn set_mark(
    data: &Path,
    sources: &Sources,
    options: &ImportOptions,
    names: &BTreeSet<WorkstationName>,
) -> Result<SetMark, ImportError> {
    let given: Vec<String> =
        options.sources.iter().map(|path| path.display().to_string()).collect();
    let identity = sources.identity().map_err(|source| {
        let path = options.sources.first().cloned().unwrap_or_default();
        ImportError::Read { path, source }
    })?;
    let mark = Mark {
        format: options.format.name().to_owned(),
        sources: given,
        workstations: names.iter().map(ToString::to_string).collect(),
    };
    Ok(SetMark::set(data, identity, &mark)?)
}

/// Tells how much of the sources has been read, once to check and once to
/// append.
struct ProgressMeter<'a> {
    read: Rc<Cell<u64>>,
    total: u64,
    rows: u64,
    progress: &'a mut dyn FnMut(Progress),
}

impl ProgressMeter<'_> {
    fn step(&mut self) {
        self.rows += 1;
        if self.rows.is_multiple_of(PROGRESS_EVERY) {
            self.tell();
        }
    }

    fn tell(&mut self) {
        // A file that grew in between is read to its new end.
        let done = self.read.get().min(self.total);
        (self.progress)(Progress { done, total: self.total });
    }
}

/// Appends in groups.
struct Appender<'a> {
    store: Store,
    pending: BTreeMap<WorkstationName, Vec<UsageRecord>>,
    pending_records: usize,
    new: u64,
    duplicates: u64,
    meter: ProgressMeter<'a>,
}

impl<'a> Appender<'a> {
    fn new(store: Store, meter: ProgressMeter<'a>) -> Self {
        Self { store, pending: BTreeMap::new(), pending_records: 0, new: 0, duplicates: 0, meter }
    }

    fn take(&mut self, name: WorkstationName, record: UsageRecord) -> Result<(), ImportError> {
        self.meter.step();
        self.pending.entry(name).or_default().push(record);
        self.pending_records += 1;
        if self.pending_records >= GROUP_RECORDS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        self.pending_records = 0;
        let pending = std::mem::take(&mut self.pending);
        let batches: Vec<_> =
            pending.into_iter().map(|(name, records)| Batch::of(name, records)).collect();
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

impl Observation {
    pub(crate) fn into_record(
        self,
        boot: BootId,
        sequence: u64,
        since_boot: Duration,
    ) -> UsageRecord {
        let Self { at, cause, load, users, input_idle, slots, reason } = self;
        UsageRecord {
            life: boot.into(),
            boot,
            sequence,
            at,
            since_boot,
            cause,
            load,
            users,
            input_idle,
            slots,
            reason,
        }
    }
}

/// Gives the observations of one workstation their boots and numbers.
#[derive(Clone, Debug)]
struct Numbering {
    origin: Origin,
    name: WorkstationName,
    run: Option<BootRun>,
}

#[derive(Clone, Copy, Debug)]
struct BootRun {
    boot: BootId,
    start: WallTime,
    /// How many runs before it began at the same moment.
    nth: u64,
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
        let since_boot = observed.at.since(run.start);
        observed.into_record(run.boot, run.sequence, since_boot)
    }

    fn begin(&self, start: WallTime) -> BootRun {
        let before = self.run.filter(|run| run.start == start);
        let nth = before.map_or(0, |run| run.nth + 1);
        let boot = self.origin.nth_boot(&self.name, start, nth);
        BootRun { boot, start, nth, sequence: 0, finished: false }
    }
}
