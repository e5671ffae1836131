//! What `glean usage` asks for: one function for each of its commands.
//!
//! `export` and `import` are in the modules of that name.

use std::ops::ControlFlow;
use std::path::Path;

use jiff::tz::TimeZone;
use serde::Serialize;

use crate::archive::{Archive, ReadArchiveError, Span};
use crate::load::each_log;
use crate::name::WorkstationName;
use crate::rows::{LogRow, PeriodRow, RecordRow, health};
use crate::stats::{Tally, clip};
use crate::timeline::{Readings, Unsure, interpret};
use crate::wall::{spoken_time, system_zone};

pub use crate::progress::Progress;
pub use crate::stats::Stats;

pub use crate::export::{Content, ExportError, ExportFormat, ExportSummary, Selection, export};
pub use crate::import::{
    HOLD_MAX, ImportError, ImportFormat, ImportOptions, ImportSummary, Unfinished, import,
};
pub use crate::load::{LoadOptions, Loaded, timelines};

/// One row for each log of a data directory, in order of name.
///
/// # Errors
/// The directory cannot be listed.
pub fn ls(data: &Path) -> Result<Vec<LogRow>, ReadArchiveError> {
    let archive = Archive::new(data);
    let unfinished = archive.unfinished()?;
    let row = |name: WorkstationName| {
        let summary = archive.summary(&name)?;
        let mut health = health(&summary.damage, summary.missing);
        if unfinished.iter().any(|import| import.has(name.as_str())) {
            health.push("an import into it was cut off".to_owned());
        }
        Ok(LogRow {
            workstation: name,
            records: summary.records,
            first: summary.first.map(spoken_time),
            last: summary.last.map(spoken_time),
            boots: summary.boots,
            segments: summary.segments,
            bytes: summary.bytes,
            health,
        })
    };
    archive.names()?.into_iter().map(row).collect()
}

/// What a reader of these logs is to know of all of them, one line each.
///
/// # Errors
/// The directory cannot be listed.
pub fn notes(data: &Path) -> Result<Vec<String>, ReadArchiveError> {
    Ok(Archive::new(data).unfinished()?.iter().map(Unfinished::note).collect())
}

/// What went with the rows of `show`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shown {
    pub rows: u64,
    /// Damage and strange things, one line each; empty if there is nothing.
    pub notes: Vec<String>,
}

/// Gives the records of one workstation in the order they were received,
/// until `each` has enough.
///
/// # Errors
/// There is no such log, or it cannot be read.
pub fn show(
    data: &Path,
    name: &str,
    span: Span,
    each: &mut dyn FnMut(RecordRow) -> ControlFlow<()>,
) -> Result<Shown, ReadArchiveError> {
    let archive = Archive::new(data);
    let mut shown = Shown::default();
    for name in archive.select(&[name.to_owned()])? {
        let cut_off = archive.unfinished()?.into_iter().filter(|it| it.has(name.as_str()));
        shown.notes.extend(cut_off.map(|import| import.note()));
        let damage = archive.read(&name, |record| {
            if !span.contains(record.at) {
                return ControlFlow::Continue(());
            }
            shown.rows += 1;
            each(RecordRow::new(&name, &record))
        })?;
        shown.notes.extend(damage.iter().map(ToString::to_string));
    }
    Ok(shown)
}

/// Gives the interpreted periods of one workstation, in order of time.
///
/// # Errors
/// There is no such log, or it cannot be read.
pub fn show_periods(
    data: &Path,
    name: &str,
    span: Span,
    readings: &Readings,
    each: &mut dyn FnMut(PeriodRow) -> ControlFlow<()>,
) -> Result<Shown, ReadArchiveError> {
    let archive = Archive::new(data);
    let mut shown = Shown::default();
    for name in archive.select(&[name.to_owned()])? {
        let cut_off = archive.unfinished()?.into_iter().filter(|it| it.has(name.as_str()));
        shown.notes.extend(cut_off.map(|import| import.note()));
        let (records, damage) = archive.observed(&name)?;
        let timeline = interpret(records.with_missing_ends(), readings.of(name.as_str()));
        shown.notes.extend(damage.iter().map(ToString::to_string));
        shown.notes.extend(timeline.notes.iter().map(ToString::to_string));
        shown.notes.extend(timeline.unsure.note());
        for period in timeline.periods.iter().filter_map(|period| clip(period, span)) {
            shown.rows += 1;
            if each(PeriodRow::new(&name, &period)).is_break() {
                break;
            }
        }
    }
    Ok(shown)
}

/// What `stats` asks for.
#[derive(Clone, Debug)]
pub struct StatsOptions {
    /// Empty: all workstations.
    pub names: Vec<String>,
    pub span: Span,
    pub readings: Readings,
    /// Whose hours of the day; `None` is the machine's own zone.
    pub zone: Option<TimeZone>,
}

/// Adds up the logs.
///
/// # Errors
/// A name without a log, or a log that cannot be read.
pub fn stats(
    data: &Path,
    options: &StatsOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Stats, ReadArchiveError> {
    let zone = options.zone.clone().unwrap_or_else(system_zone);
    let mut tally = Tally::new(options.span, &zone);
    let archive = Archive::new(data);
    let (mut notes, mut unsure) = (notes(data)?, Unsure::default());
    let names = archive.select(&options.names)?;
    each_log(&archive, &names, options.span, &options.readings, progress, &mut |name, log| {
        notes.extend(log.damage);
        unsure.add(log.timeline.unsure);
        tally.add(name.as_str(), log.by_cause, &log.timeline);
    })?;
    notes.extend(unsure.note());
    Ok(Stats { notes, ..tally.finish() })
}
