//! Transitions as comma-separated values, with the columns of our own export.
//!
//! A header names the columns, in any order. `workstation`, `at` and `cause`
//! must be there. With `boot`, `sequence` and `since_boot_s`, all three, a
//! record is the very one that was exported, and the same number again must be
//! the same record; without, it gets a boot and a number like any import, and a
//! workstation's rows must be in order of time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gleaner_collector_core::segment::encode_record;
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::plain::quoted;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};

use super::fields::Row;
use super::source::{Sources, bad};
use super::{ImportError, ImportOptions, ImportSummary, Numbering, Observation, Sink};
use crate::name::WorkstationName;
use crate::origin::Origin;
use crate::wall::read_time;

/// The columns, as exported.
pub const COLUMNS: [&str; 14] = [
    "workstation",
    "at",
    "cause",
    "load_1m",
    "load_5m",
    "load_15m",
    "users",
    "input_idle_s",
    "slots",
    "reason",
    "boot",
    "sequence",
    "since_boot_s",
    "life",
];

/// So many records are compared with those that came before under their number: some
/// 100 MB. Of more, those are forgotten.
const HELD_MAX: usize = 2_000_000;

pub(super) fn walk(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let mut summary = ImportSummary::default();
    let mut lab = Lab::default();
    for path in &sources.files {
        file(sources, path, &mut lab, &mut summary, sink)?;
    }
    if summary.records == 0 {
        return Err(sources.empty(&options.sources, "a header and rows of transitions"));
    }
    Ok(summary)
}

fn file(
    sources: &Sources,
    path: &Path,
    lab: &mut Lab,
    summary: &mut ImportSummary,
    sink: Sink<'_>,
) -> Result<(), ImportError> {
    let mut rows = sources.rows(path)?;
    let mut columns: Option<Columns> = None;
    summary.files += 1;
    while let Some((line, row)) = rows.next_row()? {
        let bad = |what: String| bad(path, line, &what);
        summary.rows += 1;
        let Some(columns) = &columns else {
            columns = Some(Columns::of(row).map_err(bad)?);
            continue;
        };
        columns.check(row).map_err(bad)?;
        let (name, record) = record_of(columns, row, lab).map_err(bad)?;
        lab.check(&name, &record).map_err(bad)?;
        sink(name, record)?;
        summary.records += 1;
    }
    Ok(())
}

/// What the rows so far said.
#[derive(Default)]
struct Lab {
    /// By the workstations whose rows have no boot.
    watched: BTreeMap<WorkstationName, Watched>,
    /// By the numbers that rows have, a sum of the record.
    contents: BTreeMap<WorkstationName, BTreeMap<(SpoolLife, u64), u32>>,
    /// So many of them.
    held: usize,
}

impl Lab {
    /// Is a record within its bounds, and the only one under its number? A log would
    /// drop another one as a repetition.
    fn check(&mut self, name: &WorkstationName, record: &UsageRecord) -> Result<(), String> {
        let mut bytes = vec![];
        encode_record(record, &mut bytes).map_err(|error| error.to_string())?;
        if self.watched.contains_key(name) {
            return Ok(());
        }
        if self.held == HELD_MAX {
            (self.contents, self.held) = (BTreeMap::new(), 0);
        }
        let UsageRecord { life, sequence, .. } = *record;
        let content = crc32c::crc32c(&bytes);
        let records = self.contents.entry(name.clone()).or_default();
        match records.insert((life, sequence), content) {
            Some(before) if before != content => Err(format!(
                "a second record {sequence} of life {life} of `{name}`, which differs from the \
                 first: expected each number once"
            )),
            Some(_) => Ok(()),
            None => {
                self.held += 1;
                Ok(())
            }
        }
    }
}

/// What is known of a workstation whose rows have no boot.
struct Watched {
    numbering: Numbering,
    last: WallTime,
}

/// Where each of [`COLUMNS`] stands in a row.
struct Columns {
    places: [Option<usize>; COLUMNS.len()],
    fields: usize,
}

impl Columns {
    fn of(header: Row<'_>) -> Result<Self, String> {
        let mut places = [None; COLUMNS.len()];
        for (place, title) in header.iter().enumerate() {
            let title = title.trim();
            let Some(column) = COLUMNS.iter().position(|column| *column == title) else {
                let (title, expected) = (quoted(title), COLUMNS.join(", "));
                return Err(format!("unknown column `{title}`: expected {expected}"));
            };
            if places[column].replace(place).is_some() {
                return Err(format!("column `{title}` is there twice"));
            }
        }
        let missing = (0..3).find(|column| places[*column].is_none());
        if let Some(column) = missing {
            return Err(format!("no column `{}` in the header", COLUMNS[column]));
        }
        let identity = places[10..13].iter().flatten().count();
        if identity != 0 && identity != 3 {
            return Err(
                "boot, sequence and since_boot_s: expected all three columns, or none".into()
            );
        }
        Ok(Self { places, fields: header.len() })
    }

    fn check(&self, row: Row<'_>) -> Result<(), String> {
        if row.len() == self.fields {
            return Ok(());
        }
        Err(format!("a row of {} fields: expected {}, like the header", row.len(), self.fields))
    }

    /// A field; `None` if it is empty or its column is not there.
    fn get<'a>(&self, row: Row<'a>, column: &str) -> Option<&'a str> {
        let column = COLUMNS.iter().position(|title| *title == column)?;
        row.get(self.places[column]?).map(str::trim).filter(|field| !field.is_empty())
    }

    fn need<'a>(&self, row: Row<'a>, column: &str) -> Result<&'a str, String> {
        self.get(row, column).ok_or_else(|| format!("`{column}` is empty"))
    }

    /// A number, or what it is if not said.
    fn number<T: std::str::FromStr>(
        &self,
        row: Row<'_>,
        column: &str,
        otherwise: T,
    ) -> Result<T, String> {
        let Some(field) = self.get(row, column) else { return Ok(otherwise) };
        let wrong = |_| format!("{column} `{}` is not a number in its range", quoted(field));
        field.parse().map_err(wrong)
    }

    fn load(&self, row: Row<'_>, column: &str) -> Result<f32, String> {
        let load: f32 = self.number(row, column, 0.0)?;
        let field = || quoted(self.get(row, column).unwrap_or_default());
        if LoadAverages::is_possible(load) {
            Ok(load)
        } else {
            Err(format!("{column} `{}` is not a load: expected 0 or more", field()))
        }
    }
}

fn record_of(
    columns: &Columns,
    row: Row<'_>,
    lab: &mut Lab,
) -> Result<(WorkstationName, UsageRecord), String> {
    let name: WorkstationName = columns
        .need(row, "workstation")?
        .parse()
        .map_err(|e: crate::name::NameError| e.to_string())?;
    let cause: Cause = columns
        .need(row, "cause")?
        .parse()
        .map_err(|error: gleaner_common::id::ParseIdError| format!("cause {error}"))?;
    let input_idle = columns.get(row, "input_idle_s").map(|text| seconds("input_idle_s", text));
    let observed = Observation {
        at: time(columns.need(row, "at")?)?,
        cause,
        load: LoadAverages {
            one: columns.load(row, "load_1m")?,
            five: columns.load(row, "load_5m")?,
            fifteen: columns.load(row, "load_15m")?,
        },
        users: columns.number(row, "users", 0)?,
        input_idle: input_idle.transpose()?,
        slots: columns.number(row, "slots", u16::from(cause == Cause::Idle))?,
        reason: columns.get(row, "reason").unwrap_or_default().to_owned(),
    };
    let record = match columns.get(row, "boot") {
        Some(boot) => {
            let boot: BootId = boot.parse().map_err(|error| format!("{error}"))?;
            identified(columns, row, observed, boot)?
        }
        None => numbered(lab, &name, observed)?,
    };
    Ok((name, record))
}

/// A record with the identity that it was exported with.
fn identified(
    columns: &Columns,
    row: Row<'_>,
    observed: Observation,
    boot: BootId,
) -> Result<UsageRecord, String> {
    let sequence = columns.number(row, "sequence", 0)?;
    let since_boot = seconds("since_boot_s", columns.need(row, "since_boot_s")?)?;
    let life = match columns.get(row, "life") {
        Some(life) => life.parse().map_err(|error| format!("{error}"))?,
        None => boot.into(),
    };
    Ok(UsageRecord { life, ..observed.into_record(boot, sequence, since_boot) })
}

fn numbered(
    lab: &mut Lab,
    name: &WorkstationName,
    observed: Observation,
) -> Result<UsageRecord, String> {
    let watched = lab.watched.entry(name.clone()).or_insert_with(|| Watched {
        numbering: Numbering::new(Origin::Csv, name),
        last: WallTime(i64::MIN),
    });
    if observed.at < watched.last {
        return Err(format!("earlier than the row before it of `{name}`: expected order of time"));
    }
    watched.last = observed.at;
    Ok(watched.numbering.number(observed))
}

fn time(text: &str) -> Result<WallTime, String> {
    read_time(text).ok_or_else(|| {
        format!("at `{}` is not a time: expected one such as 2026-01-05T09:03:00.25Z", quoted(text))
    })
}

/// Seconds with up to nine decimals, exactly, and no more than an i64 has
/// nanoseconds: what is longer could only be cut.
fn seconds(column: &str, text: &str) -> Result<Duration, String> {
    let wrong = || format!("{column} `{}` is not a number of seconds", quoted(text));
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if part.len() > 9 || !digits(whole) || !digits(part) {
        return Err(wrong());
    }
    let nanos = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    let span = Duration::new(whole.parse().map_err(|_| wrong())?, nanos);
    if i64::try_from(span.as_nanos()).is_ok() {
        return Ok(span);
    }
    Err(format!("{column} `{}`: expected less than 292 years", quoted(text)))
}
