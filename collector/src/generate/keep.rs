//! Generated logs on disk: in a collector's data directory, or as one table.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_common::usage::UsageRecord;
use gleaner_shell::atomic::{PUBLIC, Replacement};
use serde::Serialize;

use super::{GeneratorPlan, OwnerModel, records};
use crate::archive::{Archive, ReadArchiveError};
use crate::export::table::{RECORD_COLUMNS, record_row};
use crate::export::{ExportFormat, Table};
use crate::log::AppendError;
use crate::name::WorkstationName;
use crate::progress::Progress;
use crate::store::{Batch, OpenStoreError, Store};
use crate::threads::{cores, side_by_side};

/// Why logs were not generated, or not all.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    #[error(transparent)]
    List(#[from] ReadArchiveError),
    /// Made-up logs among real ones could not be distinguished any more.
    #[error("{} has logs already, such as {name}'s: expected a directory of its own", data.display())]
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
/// The directory is in use or has logs, or the disk fails.
pub fn generate_into(
    data: &Path,
    model: &OwnerModel,
    plan: &GeneratorPlan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Generated, GenerateError> {
    let mut store = Store::open(data)?;
    if let Some(name) = Archive::new(data).names()?.into_iter().next() {
        return Err(GenerateError::AlreadyThere { data: data.to_owned(), name });
    }
    each_group(model, plan, progress, |generated, logs| {
        let batches: Vec<_> =
            logs.into_iter().map(|(name, records)| Batch::of(name, records)).collect();
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
    plan: &GeneratorPlan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Generated, GenerateError> {
    let failed = |source| GenerateError::Write { path: to.to_owned(), source };
    let file = Replacement::begin(to, PUBLIC).map_err(|error| failed(error.source))?;
    let buffered = BufWriter::new(file.file());
    let mut table = Table::begin(format, RECORD_COLUMNS, buffered).map_err(failed)?;
    let generated = each_group(model, plan, progress, |_, logs| {
        for (name, records) in &logs {
            let mut rows = records.iter().map(|record| record_row(name, record));
            rows.try_for_each(|row| table.add(row)).map_err(failed)?;
        }
        Ok(())
    })?;
    table.finish().map_err(failed)?;
    file.finish().map_err(|error| failed(error.source))?;
    Ok(generated)
}

type Log = (WorkstationName, Vec<UsageRecord>);

/// Logs that are in memory at a time: enough for their syncs to go side by side.
const GROUP: u32 = 16;

/// Gives the logs in order, a group at a time.
fn each_group(
    model: &OwnerModel,
    plan: &GeneratorPlan,
    progress: &mut dyn FnMut(Progress),
    mut keep: impl FnMut(&Generated, Vec<Log>) -> Result<(), GenerateError>,
) -> Result<Generated, GenerateError> {
    let total = u64::from(plan.workstations);
    let mut generated = Generated::default();
    let mut next = 0;
    while next < plan.workstations {
        progress(Progress { done: u64::from(next), total });
        let group = next..plan.workstations.min(next.saturating_add(GROUP));
        next = group.end;
        let logs: Vec<Log> = side_by_side(group, cores(), |number| {
            (GeneratorPlan::name(number), records(model, plan, number))
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

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use gleaner_common::time::WallTime;
    use jiff::tz::TimeZone;

    use super::*;
    use crate::generate::{Form, generate};

    fn plan() -> GeneratorPlan {
        let from = WallTime::from_unix_s(749_692_800);
        let to = WallTime::from_unix_s(749_692_800 + 3 * 86_400);
        GeneratorPlan {
            workstations: 20,
            from,
            to,
            seed: 1,
            form: Form::Exact,
            zone: TimeZone::UTC,
        }
    }

    fn read(data: &Path) -> Vec<Log> {
        let archive = Archive::new(data);
        let of = |name: WorkstationName| {
            let mut records = vec![];
            let damage = archive.read(&name, |record| {
                records.push(record);
                ControlFlow::Continue(())
            });
            assert!(damage.unwrap().is_empty());
            (name, records)
        };
        archive.names().unwrap().into_iter().map(of).collect()
    }

    #[test]
    fn what_is_kept_is_what_was_generated_and_is_not_mixed_with_other_logs() {
        let folder = tempfile::tempdir().unwrap();
        let model = OwnerModel::phalen1994();
        let generated = generate_into(folder.path(), &model, &plan(), &mut |_| {}).unwrap();
        let expected: Vec<Log> = generate(&model, &plan()).collect();
        assert_eq!(read(folder.path()), expected);
        assert_eq!(generated.workstations, 20);
        let said = generate_into(folder.path(), &model, &plan(), &mut |_| {}).unwrap_err();
        assert!(said.to_string().contains("has logs already, such as ws-00001's"), "{said}");
    }
}
