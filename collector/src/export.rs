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
use crate::progress::Progress;
use crate::stats::clip;
use crate::summary::Damage;
use crate::timeline::{Reading, Readings, Unsure, interpret};
use csv::CsvTable;
use parquet::ParquetTable;
use table::{Column, Value, period_row, record_row};

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
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Records,
    Periods(Readings),
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
    /// What was damaged in the logs or is not told by them, one line each;
    /// empty if nothing.
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
fn export_to(
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
    let columns = match &content {
        Content::Records => table::RECORD_COLUMNS,
        Content::Periods(_) => table::PERIOD_COLUMNS,
    };
    let table = Table::begin(format, columns, BufWriter::new(to)).map_err(failed)?;
    let summary = ExportSummary::default();
    let (span, unsure) = (selection.span, Unsure::default());
    let mut writing = Writing { span, content, table, summary, unsure };
    let total = names.len() as u64;
    for (done, name) in (0..).zip(&names) {
        progress(Progress { done, total });
        writing.add(&archive, name)?;
    }
    writing.table.finish().map_err(failed)?;
    progress(Progress { done: total, total });
    writing.summary.damage.extend(writing.unsure.note());
    Ok(writing.summary)
}

/// Either format's writer.
enum Table<W: Write + Send> {
    Csv(CsvTable<W>),
    Parquet(ParquetTable<W>),
}

impl<W: Write + Send> Table<W> {
    fn begin(format: ExportFormat, columns: &'static [Column], to: W) -> io::Result<Self> {
        Ok(match format {
            ExportFormat::Csv => Self::Csv(CsvTable::begin(columns, to)?),
            ExportFormat::Parquet => Self::Parquet(ParquetTable::begin(columns, to)?),
        })
    }

    fn add(&mut self, row: Vec<Value>) -> io::Result<()> {
        match self {
            Self::Csv(table) => table.add(&row),
            Self::Parquet(table) => table.add(row),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Csv(table) => table.finish(),
            Self::Parquet(table) => table.finish(),
        }
    }
}

/// An export while it grows, one workstation after the other.
struct Writing<W: Write + Send> {
    span: Span,
    content: Content,
    table: Table<W>,
    summary: ExportSummary,
    unsure: Unsure,
}

impl<W: Write + Send> Writing<W> {
    fn add(&mut self, archive: &Archive, name: &WorkstationName) -> Result<(), ExportError> {
        let (written, damage) = match &self.content {
            Content::Records => self.add_records(archive, name)?,
            Content::Periods(readings) => {
                let reading = readings.of(name.as_str());
                self.add_periods(archive, name, reading)?
            }
        };
        written.map_err(|source| ExportError::Write { path: "the output".into(), source })?;
        self.summary.damage.extend(damage.iter().map(ToString::to_string));
        self.summary.workstations += 1;
        Ok(())
    }

    fn add_records(
        &mut self,
        archive: &Archive,
        name: &WorkstationName,
    ) -> Result<(io::Result<()>, Vec<Damage>), ReadArchiveError> {
        let mut written = Ok(());
        let damage = archive.read(name, |record| {
            if self.span.contains(record.at) {
                written = self.row(record_row(name, &record));
            }
            if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((written, damage))
    }

    fn add_periods(
        &mut self,
        archive: &Archive,
        name: &WorkstationName,
        reading: Reading,
    ) -> Result<(io::Result<()>, Vec<Damage>), ReadArchiveError> {
        let (records, damage) = archive.observed(name)?;
        let timeline = interpret(records, reading);
        self.unsure.add(timeline.unsure);
        let span = self.span;
        let mut inside = timeline.periods.iter().filter_map(|period| clip(period, span));
        let written = inside.try_for_each(|period| self.row(period_row(name, &period)));
        Ok((written, damage))
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
