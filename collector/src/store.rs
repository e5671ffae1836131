//! All logs of one collector: the directory, and who may write to it.
//!
//! The promise: [`Store::append`] answers a batch with success only when it is
//! on disk; a batch that fails leaves its log as it was, and the others do not
//! suffer. One collector at a time holds a directory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_common::usage::UsageRecord;
use gleaner_shell::lock::Lock;

use crate::log::{AppendError, Appended, Log, sync_directory};
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

/// Records of one workstation, in the order they came.
#[derive(Clone, Debug)]
pub struct Batch {
    pub name: WorkstationName,
    pub records: Vec<UsageRecord>,
}

#[derive(Debug)]
pub struct Store {
    data: PathBuf,
    _lock: Lock,
    /// The logs, each opened when first asked for. A log that failed is not in here, and so
    /// is read anew before it is used again.
    logs: BTreeMap<WorkstationName, Log>,
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
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(failed)?;
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
        Ok(Self { data: data.to_owned(), _lock: lock, logs: BTreeMap::new() })
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
}

/// All that one call has for one workstation.
struct LogBatches<'a> {
    name: &'a WorkstationName,
    log: Option<Log>,
    batches: Vec<(usize, &'a Batch)>,
}

struct LogAnswers<'a> {
    name: &'a WorkstationName,
    /// `None` after a failure: what is on disk must be looked at anew.
    log: Option<Log>,
    answers: Vec<(usize, Result<Appended, Arc<AppendError>>)>,
}

impl<'a> LogBatches<'a> {
    fn run(self, data: &Path) -> LogAnswers<'a> {
        let Self { name, log, batches } = self;
        let (log, answers) = match take_in(data, name, log, &batches) {
            Ok((log, appended)) => (Some(log), appended.into_iter().map(Ok).collect()),
            Err(error) => {
                let error = Arc::new(error);
                (None, batches.iter().map(|_| Err(error.clone())).collect::<Vec<_>>())
            }
        };
        let places = batches.iter().map(|(place, _)| *place);
        LogAnswers { name, log, answers: places.zip(answers).collect() }
    }
}

fn take_in(
    data: &Path,
    name: &WorkstationName,
    log: Option<Log>,
    batches: &[(usize, &Batch)],
) -> Result<(Log, Vec<Appended>), AppendError> {
    let mut log = match log {
        Some(log) => log,
        None => open_log(data, name)?,
    };
    let written: Result<Vec<_>, _> =
        batches.iter().map(|(_, batch)| log.append(&batch.records)).collect();
    match written.and_then(|appended| log.sync().map(|()| appended)) {
        Ok(appended) => Ok((log, appended)),
        Err(error) => {
            log.roll_back();
            Err(error)
        }
    }
}

fn open_log(data: &Path, name: &WorkstationName) -> Result<Log, AppendError> {
    let (log, damage) = Log::open(data, name)?;
    for damage in damage {
        tracing::warn!(workstation = %name, "{damage}");
    }
    Ok(log)
}
