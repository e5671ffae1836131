//! Transitions as comma-separated values, with the columns of our own export.
//!
//! A header names the columns, in any order. `workstation`, `at` and `cause`
//! must be there. With `boot`, `sequence` and `since_boot_s`, all three, a
//! record is the very one that was exported; without, it gets a boot and a
//! number like any import, and a workstation's rows must be in order of time.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::time::Duration;

use csv::{ErrorKind, Position, ReaderBuilder, StringRecord};
use gleaner_common::id::BootId;
use gleaner_common::time::WallTime;
use gleaner_common::usage::{Cause, LoadAverages, UsageRecord};
use jiff::Timestamp;

use super::source::{self, Sources, broken_compression};
use super::{ImportError, ImportOptions, ImportSummary, Numbering, Observation, Sink};
use crate::name::WorkstationName;
use crate::origin::Origin;
use gleaner_collector_core::segment::check_record;

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

pub(super) fn walk(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let mut summary = ImportSummary::default();
    let mut lab: BTreeMap<WorkstationName, Watched> = BTreeMap::new();
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
    lab: &mut BTreeMap<WorkstationName, Watched>,
    summary: &mut ImportSummary,
    sink: Sink<'_>,
) -> Result<(), ImportError> {
    let failed = |source| ImportError::Read { path: path.into(), source };
    let text = sources.open(path).map_err(failed)?;
    let mut reader = ReaderBuilder::new().has_headers(false).comment(Some(b'#')).from_reader(text);
    let mut row = StringRecord::new();
    let mut columns: Option<Columns> = None;
    summary.files += 1;
    while reader.read_record(&mut row).map_err(|error| bad_csv(path, error))? {
        let bad = |what| bad_row(path, row.position(), what);
        summary.rows += 1;
        let Some(columns) = &columns else {
            columns = Some(Columns::of(&row).map_err(bad)?);
            continue;
        };
        let (name, record) = record_of(columns, &row, lab).map_err(bad)?;
        check_record(&record).map_err(|error| bad(error.to_string()))?;
        sink(name, record)?;
        summary.records += 1;
    }
    Ok(())
}

/// What the reader could not make a row of, with its line.
pub(super) fn bad_csv(path: &Path, error: csv::Error) -> ImportError {
    let position = error.position().cloned();
    let detail = error.to_string();
    let kind = error.into_kind();
    let what = if let ErrorKind::Io(source) = kind {
        let Some(what) = broken_compression(&source) else {
            return ImportError::Read { path: path.to_owned(), source };
        };
        let line = source::lines_readable(path) + 1;
        return ImportError::Bad { path: path.to_owned(), line, what: what.to_owned() };
    } else if let ErrorKind::UnequalLengths { expected_len, len, .. } = kind {
        format!("a row of {len} fields: expected {expected_len}, like the header")
    } else if let ErrorKind::Utf8 { .. } = kind {
        "a row that is not UTF-8".to_owned()
    } else {
        detail
    };
    bad_row(path, position.as_ref(), what)
}

/// The reader's position is where it began to look, before blank lines and
/// comments: the row's own line is found by looking again.
fn bad_row(path: &Path, position: Option<&Position>, what: String) -> ImportError {
    let (byte, mut line) = position.map_or((0, 1), |at| (at.byte(), at.line()));
    if let Ok(mut text) = source::reopen(path)
        && io::copy(&mut text.by_ref().take(byte), &mut io::sink()).is_ok()
    {
        let passed_over = |text: &io::Result<Vec<u8>>| {
            let text = text.as_ref().map_or(b"x".as_slice(), |text| text.trim_ascii());
            text.is_empty() || text.starts_with(b"#")
        };
        let lines = text.split(b'\n');
        line += lines.take_while(passed_over).count() as u64;
    }
    ImportError::Bad { path: path.to_owned(), line, what }
}

/// What is known of a workstation whose rows have no boot.
struct Watched {
    numbering: Numbering,
    last: WallTime,
}

/// Where each of [`COLUMNS`] stands in a row.
struct Columns([Option<usize>; COLUMNS.len()]);

impl Columns {
    fn of(header: &StringRecord) -> Result<Self, String> {
        let mut places = [None; COLUMNS.len()];
        for (place, title) in header.iter().enumerate() {
            let title = title.trim().trim_start_matches('\u{feff}');
            let Some(column) = COLUMNS.iter().position(|column| *column == title) else {
                return Err(format!("unknown column `{title}`: expected {}", COLUMNS.join(", ")));
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
        Ok(Self(places))
    }

    /// A field; `None` if it is empty or its column is not there.
    fn get<'a>(&self, row: &'a StringRecord, column: &str) -> Option<&'a str> {
        let column = COLUMNS.iter().position(|title| *title == column)?;
        row.get(self.0[column]?).map(str::trim).filter(|field| !field.is_empty())
    }

    fn need<'a>(&self, row: &'a StringRecord, column: &str) -> Result<&'a str, String> {
        self.get(row, column).ok_or_else(|| format!("`{column}` is empty"))
    }

    /// A number, or what it is if not said.
    fn number<T: std::str::FromStr>(
        &self,
        row: &StringRecord,
        column: &str,
        otherwise: T,
    ) -> Result<T, String> {
        let Some(field) = self.get(row, column) else { return Ok(otherwise) };
        field.parse().map_err(|_| format!("{column} `{field}` is not a number in its range"))
    }
}

fn record_of(
    columns: &Columns,
    row: &StringRecord,
    lab: &mut BTreeMap<WorkstationName, Watched>,
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
            one: columns.number(row, "load_1m", 0.0)?,
            five: columns.number(row, "load_5m", 0.0)?,
            fifteen: columns.number(row, "load_15m", 0.0)?,
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
    row: &StringRecord,
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
    lab: &mut BTreeMap<WorkstationName, Watched>,
    name: &WorkstationName,
    observed: Observation,
) -> Result<UsageRecord, String> {
    let watched = lab.entry(name.clone()).or_insert_with(|| Watched {
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
    let wrong =
        || format!("at `{text}` is not a time: expected one such as 2026-01-05T09:03:00.25Z");
    let moment: Timestamp = text.parse().map_err(|_| wrong())?;
    i64::try_from(moment.as_nanosecond()).map(WallTime).map_err(|_| wrong())
}

/// Seconds with up to nine decimals, exactly.
fn seconds(column: &str, text: &str) -> Result<Duration, String> {
    let wrong = || format!("{column} `{text}` is not a number of seconds");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if part.len() > 9 || !digits(whole) || !digits(part) {
        return Err(wrong());
    }
    let nanos = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    Ok(Duration::new(whole.parse().map_err(|_| wrong())?, nanos))
}
