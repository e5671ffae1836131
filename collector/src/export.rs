//! Exports: records or interpreted periods as CSV or Parquet.
//!
//! The promise: a file appears under its name whole or not at all. Both
//! formats have the same columns; CSV of records can be imported again and
//! gives the same records.

mod csv;
mod parquet;
mod table;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gleaner_common::id::ParseIdError;
use gleaner_common::usage::UsageRecord;
use serde::Serialize;

use crate::archive::{Archive, ReadArchiveError, Span};
use crate::name::WorkstationName;
use crate::stats::clip;
use crate::timeline::{Interpretation, interpret};
use crate::usage::Progress;
use table::{Table, Value, period_row, record_row};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    Csv,
    Parquet,
}

impl FromStr for ExportFormat {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "csv" => Ok(Self::Csv),
            "parquet" => Ok(Self::Parquet),
            _ => Err(ParseIdError { text: text.to_owned(), expected: "one of csv, parquet" }),
        }
    }
}

/// What to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Records,
    Periods(Interpretation),
}

/// Why there is no export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Read(#[from] ReadArchiveError),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Which part of the logs.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Empty: all workstations.
    pub names: Vec<String>,
    pub span: Span,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportSummary {
    pub workstations: u64,
    pub rows: u64,
    pub bytes: u64,
    /// What was damaged in the logs, one line each; empty if nothing.
    pub damage: Vec<String>,
}

/// Exports to a file, which is replaced if it is there.
///
/// # Errors
/// Logs that cannot be read, or a file that cannot be written: `to` is then
/// as it was.
pub fn export(
    data: &Path,
    selection: &Selection,
    content: Content,
    format: ExportFormat,
    to: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<ExportSummary, ExportError> {
    let failed = |source| ExportError::Write { path: to.to_owned(), source };
    let mut temporary = to.as_os_str().to_owned();
    temporary.push(format!(".new-{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let file = File::create(&temporary).map_err(failed)?;
    let written =
        export_to(data, selection, content, format, &file, progress).map_err(|error| match error {
            ExportError::Write { source, .. } => failed(source),
            read @ ExportError::Read(_) => read,
        });
    let placed = written.and_then(|mut summary| {
        summary.bytes = file.metadata().map_err(failed)?.len();
        file.sync_all().and_then(|()| fs::rename(&temporary, to)).map_err(failed)?;
        Ok(summary)
    });
    if placed.is_err() {
        // What went wrong first is what matters.
        let _ = fs::remove_file(&temporary);
    }
    placed
}

/// Exports to a stream, such as standard output.
///
/// # Errors
/// Logs that cannot be read, or a stream that cannot be written.
pub fn export_to(
    data: &Path,
    selection: &Selection,
    content: Content,
    format: ExportFormat,
    to: impl Write + Send,
    progress: &mut dyn FnMut(Progress),
) -> Result<ExportSummary, ExportError> {
    let failed = |source| ExportError::Write { path: "the output".into(), source };
    let archive = Archive::new(data);
    let names = archive.select(&selection.names)?;
    let columns = match content {
        Content::Records => table::RECORD_COLUMNS,
        Content::Periods(_) => table::PERIOD_COLUMNS,
    };
    let table = Table::begin(format, columns, BufWriter::new(to)).map_err(failed)?;
    let summary = ExportSummary::default();
    let mut writing = Writing { span: selection.span, content, table, summary };
    let total = names.len() as u64;
    for (done, name) in (0..).zip(&names) {
        progress(Progress { done, total });
        writing.add(&archive, name)?;
    }
    writing.table.finish().map_err(failed)?;
    progress(Progress { done: total, total });
    Ok(writing.summary)
}

/// An export while it grows, one workstation after the other.
struct Writing<W: Write + Send> {
    span: Span,
    content: Content,
    table: Table<W>,
    summary: ExportSummary,
}

impl<W: Write + Send> Writing<W> {
    fn add(&mut self, archive: &Archive, name: &WorkstationName) -> Result<(), ExportError> {
        let mut written = Ok(());
        let mut records = vec![];
        let damage = archive.read(name, |record| {
            match self.content {
                Content::Periods(_) => records.push(record),
                Content::Records if !self.span.contains(record.at) => {}
                Content::Records => written = self.row(record_row(name, &record)),
            }
            if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if let Content::Periods(interpretation) = self.content {
            let periods = interpret(records, interpretation).periods;
            let span = self.span;
            let mut inside = periods.iter().filter_map(|period| clip(period, span));
            written = inside.try_for_each(|period| self.row(period_row(name, &period)));
        }
        written.map_err(|source| ExportError::Write { path: "the output".into(), source })?;
        self.summary.damage.extend(damage.iter().map(ToString::to_string));
        self.summary.workstations += 1;
        Ok(())
    }

    fn row(&mut self, row: Vec<Value>) -> io::Result<()> {
        self.summary.rows += 1;
        self.table.add(row)
    }
}

/// Records as a table of their own, for whoever has them in memory.
pub(crate) struct RecordTable<W: Write + Send>(Table<W>);

impl<W: Write + Send> RecordTable<W> {
    pub(crate) fn begin(format: ExportFormat, to: W) -> io::Result<Self> {
        Table::begin(format, table::RECORD_COLUMNS, to).map(Self)
    }

    pub(crate) fn add(&mut self, name: &WorkstationName, record: &UsageRecord) -> io::Result<()> {
        self.0.add(record_row(name, record))
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.0.finish()
    }
}
