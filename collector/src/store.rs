//! All logs of one collector: the directory, and who may write to it.
//!
//! The promise: [`Store::append`] answers a batch with success only when it is
//! on disk; a batch that fails leaves its log as it was, and the others do not
//! suffer. One collector at a time holds a directory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_collector_core::kept::{Arrived, KeptLog};
use gleaner_collector_core::log::{AppendError, Appended, OpenLogError};
use gleaner_common::usage::{LifeAccount, UsageRecord};
use gleaner_shell::atomic;
use gleaner_shell::disk::{self, Files};
use gleaner_shell::lock::Lock;

use crate::archive::Archive;
use crate::name::WorkstationName;
use crate::threads::side_by_side;

const LOCK_FILE: &str = ".lock";

/// Logs that are synced side by side: the file system then writes its journal
/// once for several of them.
const SYNCS_MAX: usize = 8;

/// Why a data directory cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error("cannot use {} as the collector's data directory", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{} is in use by another collector or import (process {holder})", path.display())]
    InUse { path: PathBuf, holder: String },
}

/// What came of one workstation.
#[derive(Clone, Debug)]
pub struct Batch {
    pub name: WorkstationName,
    /// Lives to be looked up, before the records are kept.
    pub lives: Vec<LifeAccount>,
    /// In the order they came.
    pub records: Vec<UsageRecord>,
}

impl Batch {
    pub fn of(name: WorkstationName, records: Vec<UsageRecord>) -> Self {
        Self { name, lives: vec![], records }
    }
}

#[derive(Debug)]
pub struct Store {
    data: PathBuf,
    _lock: Lock,
    /// The logs, each opened when first asked for.
    logs: BTreeMap<WorkstationName, LogFiles>,
    /// Those that are still to be looked through, the next one last.
    unlooked: Vec<WorkstationName>,
}

impl Store {
    /// Takes the directory; makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be made or written to, or somebody else holds it.
    pub fn open(data: &Path) -> Result<Self, OpenStoreError> {
        let failed =
            |source: io::Error| OpenStoreError::Directory { path: data.to_owned(), source };
        // When owners come and go is for nobody else on this machine.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
        let path = data.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = disk::open_with(&mut options, &path).map_err(failed)?;
        let mut holder = String::new();
        // The number is for people only: what is not there is not said.
        let _ = (&file).take(20).read_to_string(&mut holder);
        let Some(lock) = Lock::take(file).map_err(failed)? else {
            let holder = if holder.trim().is_empty() { "unknown" } else { holder.trim() };
            return Err(OpenStoreError::InUse { path: data.into(), holder: holder.into() });
        };
        let mut held: &File = &lock;
        let _ = held
            .set_len(0)
            .and_then(|()| held.rewind())
            .and_then(|()| writeln!(held, "{}", std::process::id()));
        sync_directory(data).map_err(failed)?;
        Ok(Self { data: data.to_owned(), _lock: lock, logs: BTreeMap::new(), unlooked: vec![] })
    }

    /// Writes all batches, syncs each log once, and answers in their order.
    ///
    /// A repeated record is dropped; it is on disk when this returns, like a
    /// new one. The batches of one workstation succeed or fail together.
    pub fn append(&mut self, batches: &[Batch]) -> Vec<Result<Appended, Arc<AppendError>>> {
        let mut logs_to_write: BTreeMap<&WorkstationName, LogBatches> = BTreeMap::new();
        for (place, batch) in batches.iter().enumerate() {
            let log_batches = logs_to_write.entry(&batch.name).or_insert_with(|| LogBatches {
                name: &batch.name,
                log: self.logs.remove(&batch.name),
                batches: vec![],
            });
            log_batches.batches.push((place, batch));
        }
        let mut answers = vec![];
        for done in side_by_side(logs_to_write.into_values(), SYNCS_MAX, |log_batches| {
            log_batches.run(&self.data)
        }) {
            answers.extend(done.answers);
            if let Some(log) = done.log {
                self.logs.insert(done.name.clone(), log);
            }
        }
        answers.sort_unstable_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Looks through one segment more, and says what is damaged in it. False when all
    /// segments of all logs have had their turn: the next call begins anew.
    pub fn look(&mut self) -> bool {
        if self.unlooked.is_empty() {
            match Archive::new(&self.data).names() {
                Ok(names) => self.unlooked = names,
                Err(error) => tracing::warn!("no log is looked through: {}", spoken(&error)),
            }
        }
        let Some(name) = self.unlooked.pop() else { return false };
        if let Err(error) = self.look_at(&name) {
            tracing::warn!(workstation = %name, "{}", spoken(&error));
        }
        if self.logs.get(&name).is_some_and(|log| log.log.has_more_to_look_through()) {
            self.unlooked.push(name);
        } else if self.logs.get(&name).is_some_and(|log| log.is_only_read) {
            self.logs.remove(&name);
        }
        !self.unlooked.is_empty()
    }

    fn look_at(&mut self, name: &WorkstationName) -> Result<(), OpenLogError> {
        let LogFiles { files, log, .. } = match self.logs.entry(name.clone()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(closed) => closed.insert(LogFiles::open(&self.data, name)?),
        };
        let done = log.look(files);
        tell_damage(name, log);
        done
    }
}

/// All that one call has for one workstation.
struct LogBatches<'a> {
    name: &'a WorkstationName,
    log: Option<LogFiles>,
    batches: Vec<(usize, &'a Batch)>,
}

struct LogAnswers<'a> {
    name: &'a WorkstationName,
    /// `None`: it could not even be opened.
    log: Option<LogFiles>,
    answers: Vec<(usize, Result<Appended, Arc<AppendError>>)>,
}

impl<'a> LogBatches<'a> {
    fn run(self, data: &Path) -> LogAnswers<'a> {
        let Self { name, log, batches } = self;
        let mut log = log;
        let answers = match take_in(data, name, &mut log, &batches) {
            Ok(appended) => appended.into_iter().map(Ok).collect(),
            Err(error) => {
                let error = Arc::new(error);
                batches.iter().map(|_| Err(error.clone())).collect::<Vec<_>>()
            }
        };
        let places = batches.iter().map(|(place, _)| *place);
        LogAnswers { name, log, answers: places.zip(answers).collect() }
    }
}

/// A log with its files.
#[derive(Debug)]
struct LogFiles {
    files: Files,
    log: KeptLog,
    /// Nobody has written to it yet: it need not stay open.
    is_only_read: bool,
}

impl LogFiles {
    fn open(data: &Path, name: &WorkstationName) -> Result<Self, OpenLogError> {
        let directory = data.join(name.as_str());
        make_directory(data, &directory)?;
        let mut files = Files::new(&directory, atomic::PUBLIC);
        let log = KeptLog::open(&mut files, &directory, name)?;
        Ok(Self { files, log, is_only_read: true })
    }
}

fn take_in(
    data: &Path,
    name: &WorkstationName,
    log: &mut Option<LogFiles>,
    batches: &[(usize, &Batch)],
) -> Result<Vec<Appended>, AppendError> {
    let LogFiles { files, log, is_only_read } = match log {
        Some(log) => log,
        None => log.insert(LogFiles::open(data, name)?),
    };
    *is_only_read = false;
    let arrived =
        batches.iter().map(|(_, batch)| Arrived { lives: &batch.lives, records: &batch.records });
    let done = log.take_in(files, arrived);
    tell_damage(name, log);
    done
}

fn tell_damage(name: &WorkstationName, log: &mut KeptLog) {
    for damage in log.take_damage() {
        tracing::warn!(workstation = %name, "{damage}");
    }
}

/// An error with its sources, on one line.
pub(crate) fn spoken(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn make_directory(data: &Path, directory: &Path) -> Result<(), OpenLogError> {
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |source| OpenLogError::Io { what, path, source }
    };
    if directory.is_dir() {
        return Ok(());
    }
    fs::create_dir(directory).map_err(failed("make", directory))?;
    sync_directory(data).map_err(failed("sync", data))
}

pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
