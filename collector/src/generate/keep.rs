//! Generated logs on disk: in a collector's data directory, or as one table.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use gleaner_common::usage::UsageRecord;
use serde::Serialize;

use super::{OwnerModel, Plan, records};
use crate::archive::{Archive, ReadArchiveError};
use crate::export::{ExportFormat, RecordTable};
use crate::log::AppendError;
use crate::name::WorkstationName;
use crate::store::{Batch, OpenStoreError, Store};
use crate::usage::Progress;

/// Why logs were not generated, or not all.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    #[error(transparent)]
    List(#[from] ReadArchiveError),
    /// A made-up log in a real one could not be told apart any more.
    #[error("{} has a log of {name} already: expected a directory without logs of these names", data.display())]
    AlreadyThere { data: PathBuf, name: WorkstationName },
    #[error("stopped after {workstations} workstations")]
    Append { workstations: u64, source: Arc<AppendError> },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What was generated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Generated {
    pub workstations: u64,
    pub records: u64,
}

/// Generates into a collector's data directory, which no collector may be
/// using; makes it if it is not there.
///
/// # Errors
/// The directory is in use or has such logs, or the disk fails.
pub fn generate_into(
    data: &Path,
    model: &OwnerModel,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Generated, GenerateError> {
    let mut store = Store::open(data)?;
    let taken = Archive::new(data).names()?;
    if let Some(name) =
        (0..plan.workstations).map(Plan::name).find(|name| taken.binary_search(name).is_ok())
    {
        return Err(GenerateError::AlreadyThere { data: data.to_owned(), name });
    }
    drop(taken);
    each_group(model, plan, progress, |generated, logs| {
        let batches: Vec<_> =
            logs.into_iter().map(|(name, records)| Batch { name, records }).collect();
        for answer in store.append(&batches) {
            let failed =
                |source| GenerateError::Append { workstations: generated.workstations, source };
            answer.map_err(failed)?;
        }
        Ok(())
    })
}

/// Generates into one file with the columns of an export of records. It appears
/// under its name whole or not at all.
///
/// # Errors
/// A file that cannot be written.
pub fn generate_table(
    to: &Path,
    format: ExportFormat,
    model: &OwnerModel,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Generated, GenerateError> {
    let failed = |source| GenerateError::Write { path: to.to_owned(), source };
    let mut temporary = to.as_os_str().to_owned();
    temporary.push(format!(".new-{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let file = File::create(&temporary).map_err(failed)?;
    let written = write_table(&file, format, model, plan, progress, &failed);
    let placed = written.and_then(|generated| {
        file.sync_all().and_then(|()| fs::rename(&temporary, to)).map_err(failed)?;
        Ok(generated)
    });
    if placed.is_err() {
        // What went wrong first is what matters.
        let _ = fs::remove_file(&temporary);
    }
    placed
}

fn write_table(
    file: &File,
    format: ExportFormat,
    model: &OwnerModel,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
    failed: &dyn Fn(io::Error) -> GenerateError,
) -> Result<Generated, GenerateError> {
    let mut table = RecordTable::begin(format, BufWriter::new(file)).map_err(failed)?;
    let generated = each_group(model, plan, progress, |_, logs| {
        for (name, records) in &logs {
            records.iter().try_for_each(|record| table.add(name, record)).map_err(failed)?;
        }
        Ok(())
    })?;
    table.finish().map_err(failed)?;
    Ok(generated)
}

type Log = (WorkstationName, Vec<UsageRecord>);

/// Gives the logs in order, a few at a time: as many as the machine has cores.
fn each_group(
    model: &OwnerModel,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
    mut keep: impl FnMut(&Generated, Vec<Log>) -> Result<(), GenerateError>,
) -> Result<Generated, GenerateError> {
    let total = u64::from(plan.workstations);
    let many =
        thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    let mut generated = Generated::default();
    let mut next = 0;
    while next < plan.workstations {
        progress(Progress { done: u64::from(next), total });
        let group = next..plan.workstations.min(next.saturating_add(many));
        next = group.end;
        let logs: Vec<Log> = thread::scope(|scope| {
            let one =
                |number| scope.spawn(move || (Plan::name(number), records(model, plan, number)));
            let working: Vec<_> = group.map(one).collect();
            let joined = working
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            joined.collect()
        });
        let (workstations, records) =
            (logs.len() as u64, logs.iter().map(|(_, records)| records.len() as u64).sum::<u64>());
        keep(&generated, logs)?;
        generated.workstations += workstations;
        generated.records += records;
    }
    progress(Progress { done: total, total });
    Ok(generated)
}
