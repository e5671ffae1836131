//! Exports: records or interpreted periods as CSV or Parquet.
//!
//! The promise: a file appears under its name whole or not at all. Both
//! formats have the same columns; CSV of records can be imported again and
//! gives the same records.

mod csv;
pub mod parquet;
pub(crate) mod table;

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gleaner_shell::atomic::{PUBLIC, Replacement};
use serde::Serialize;

use crate::archive::{Archive, ReadArchiveError, Span};
use crate::import::Unfinished;
use crate::name::WorkstationName;
use crate::progress::Progress;
use crate::stats::clip;
use crate::timeline::{Reading, Readings, Unsure, interpret};
use csv::CsvTable;
use gleaner_collector_core::summary::Damage;
use parquet::ParquetTable;
use table::{Column, Value, period_row, record_row};

gleaner_common::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ExportFormat {
        Csv = "csv",
        Parquet = "parquet",
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
    /// What was damaged in the logs or left open by them, one line each;
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
    let file = Replacement::begin(to, PUBLIC).map_err(|error| failed(error.source))?;
    let archive = Archive::new(data);
    let names = archive.select(&selection.names)?;
    let columns = match &content {
        Content::Records => table::RECORD_COLUMNS,
        Content::Periods(_) => table::PERIOD_COLUMNS,
    };
    let mut table = Table::begin(format, columns, BufWriter::new(file.file())).map_err(failed)?;
    let damage = archive.unfinished()?.iter().map(Unfinished::note).collect();
    let summary = ExportSummary { damage, ..ExportSummary::default() };
    let (span, unsure) = (selection.span, Unsure::default());
    let mut writing = Writing { to, span, content, table: &mut table, summary, unsure };
    let total = names.len() as u64;
    for (done, name) in (0..).zip(&names) {
        progress(Progress { done, total });
        writing.add(&archive, name)?;
    }
    let Writing { mut summary, unsure, .. } = writing;
    table.finish().map_err(failed)?;
    summary.bytes = file.file().metadata().map_err(failed)?.len();
    file.finish().map_err(|error| failed(error.source))?;
    progress(Progress { done: total, total });
    summary.damage.extend(unsure.note());
    Ok(summary)
}

/// Either format's writer.
pub(crate) enum Table<W: Write + Send> {
    Csv(CsvTable<W>),
    Parquet(ParquetTable<W>),
}

impl<W: Write + Send> Table<W> {
    pub(crate) fn begin(
        format: ExportFormat,
        columns: &'static [Column],
        to: W,
    ) -> io::Result<Self> {
        Ok(match format {
            ExportFormat::Csv => Self::Csv(CsvTable::begin(columns, to)?),
            ExportFormat::Parquet => Self::Parquet(ParquetTable::begin(columns, to)?),
        })
    }

    pub(crate) fn add(&mut self, row: Vec<Value>) -> io::Result<()> {
        match self {
            Self::Csv(table) => table.add(&row),
            Self::Parquet(table) => table.add(row),
        }
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Csv(table) => table.finish(),
            Self::Parquet(table) => table.finish(),
        }
    }
}

/// An export while it grows, one workstation after the other.
struct Writing<'a, W: Write + Send> {
    to: &'a Path,
    span: Span,
    content: Content,
    table: &'a mut Table<W>,
    summary: ExportSummary,
    unsure: Unsure,
}

impl<W: Write + Send> Writing<'_, W> {
    fn add(&mut self, archive: &Archive, name: &WorkstationName) -> Result<(), ExportError> {
        let (written, damage) = match &self.content {
            Content::Records => self.add_records(archive, name)?,
            Content::Periods(readings) => {
                let reading = readings.of(name.as_str());
                self.add_periods(archive, name, reading)?
            }
        };
        written.map_err(|source| ExportError::Write { path: self.to.to_owned(), source })?;
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
        let timeline = interpret(records.with_missing_ends(), reading);
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
