//! What `last` prints, newest first, in any of its three forms:
//!
//! ```text
//! ada      pts/0        10.0.0.5         Mon Jan  5 09:12 - 10:15  (01:03)
//! ada      pts/0        10.0.0.5         Mon Jan  5 09:12:01 2026 - Mon Jan  5 10:15:22 2026  (01:03)
//! ada      pts/0        10.0.0.5         2026-01-05T09:12:01+00:00 - 2026-01-05T10:15:22+00:00  (01:03)
//! reboot   system boot  6.1.0-18-amd64   Mon Jan  5 08:00   still running
//!
//! wtmp begins Mon Jan  5 08:00:00 2026
//! ```
//!
//! The first form has no years: they follow from the last line, and from the
//! day of the week that each date was.

use std::path::Path;
use std::time::Duration;

use gleaner_common::plain::quoted;
use gleaner_common::time::WallTime;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time, Weekday};

use super::ImportError;
use super::local::LocalMoment;
use super::sessions::{SESSIONS_MAX, Session, SessionWalk};
use super::source::{STANDARD_INPUT, Sources, bad};
use crate::name::WorkstationName;
use crate::wall::read_time;

/// Longer lines are none of its.
const LINE_BYTES_MAX: usize = 4_096;

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A weekday and a date recur within so many years.
const RECURS_YEARS: i16 = 12;

/// Whose sessions a file has, by its name: `ada.txt.gz` has those of `ada`.
pub(super) fn named_after(path: &Path) -> Option<WorkstationName> {
    if path.as_os_str() == STANDARD_INPUT || !path.is_file() {
        return None;
    }
    let mut name = path.file_name()?.to_str()?;
    for end in [".gz", ".txt", ".log", ".last"] {
        name = name.strip_suffix(end).unwrap_or(name);
    }
    name.parse().ok()
}

/// Reads a file of one workstation.
pub(super) fn file(
    sources: &Sources,
    path: &Path,
    name: &WorkstationName,
    walk: &mut SessionWalk,
) -> Result<(), ImportError> {
    let mut lines = sources.lines(path, LINE_BYTES_MAX)?;
    let (mut entries, mut begins) = (vec![], None);
    walk.summary.files += 1;
    while let Some(line) = lines.next_line()? {
        match parse(line).map_err(|what| lines.bad(what))? {
            LastLine::Nothing => walk.summary.blank_lines += 1,
            LastLine::Begins(date) => begins = Some(date),
            LastLine::Entry(entry) => {
                walk.summary.rows += 1;
                entries.push((lines.number(), entry));
            }
        }
        if entries.len() > SESSIONS_MAX {
            return Err(lines.bad(format!("more than {SESSIONS_MAX} sessions")));
        }
    }
    // From the oldest on, so that each year follows from the one before.
    for (line, entry) in entries.into_iter().rev() {
        take(entry, name, &mut begins, walk).map_err(|what| bad(path, line, &what))?;
    }
    Ok(())
}

fn take(
    entry: Entry,
    name: &WorkstationName,
    newest: &mut Option<Date>,
    walk: &mut SessionWalk,
) -> Result<(), String> {
    let start = moment(entry.start, newest, walk)?.from(WallTime(i64::MIN));
    let end = match entry.end {
        End::Open => None,
        End::Unknown => Some(start),
        End::After(span) => {
            let span = i64::try_from(span.as_nanos()).ok();
            let end = span.and_then(|span| start.0.checked_add(span)).ok_or("it lasts too long")?;
            Some(WallTime(end))
        }
        End::At(stamp) => Some(moment(stamp, newest, walk)?.from(start)),
    };
    // A clock that was set back in between, or nobody saw the end.
    if entry.end == End::Unknown || end.is_some_and(|end| end < start) {
        walk.summary.unended_sessions += u64::from(!entry.is_boot);
        return if entry.is_boot {
            walk.add_boot(name, Session { start, end: None })
        } else {
            Ok(())
        };
    }
    let session = Session { start, end };
    if entry.is_boot { walk.add_boot(name, session) } else { walk.add(name, session) }
}

fn moment(
    stamp: Stamp,
    newest: &mut Option<Date>,
    walk: &mut SessionWalk,
) -> Result<LocalMoment, String> {
    let local = match stamp {
        Stamp::Exact(at) => return Ok(LocalMoment::Once(at)),
        Stamp::Local(local) => local,
        Stamp::Yearless { weekday, month, day, time } => {
            let near = newest.ok_or(
                "a time without a year, and no line such as `wtmp begins Mon Jan  5 08:00:00 \
                 2026`: expected what `last -F` prints",
            )?;
            let date = dated(weekday, month, day, near).ok_or_else(|| {
                let (weekday, month) = (WEEKDAYS[usize::from(weekday)], MONTHS[usize::from(month)]);
                format!("{weekday} {month} {day}: no such day in the years around {}", near.year())
            })?;
            *newest = Some(date);
            date.to_datetime(time)
        }
    };
    walk.moment(local).ok_or_else(|| format!("{local} is too far from now"))
}

/// The date nearest to another one that was this day of the week.
fn dated(weekday: u8, month: u8, day: i8, near: Date) -> Option<Date> {
    let month = i8::try_from(month + 1).ok()?;
    let years = near.year().saturating_sub(1)..=near.year().saturating_add(RECURS_YEARS);
    let dates = years.filter_map(|year| Date::new(year, month, day).ok());
    let is_it = |date: &Date| {
        let days = date.weekday().since(Weekday::Monday);
        u8::try_from(days) == Ok(weekday)
    };
    let far = |date: &Date| near.until(*date).map_or(i32::MAX, |span| span.get_days().abs());
    dates.filter(is_it).min_by_key(far)
}

/// A line that says something, or not.
enum LastLine {
    Nothing,
    /// The date of its first entry.
    Begins(Date),
    Entry(Entry),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    is_boot: bool,
    start: Stamp,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Still logged in, or running.
    Open,
    /// Gone without a logout, or before it came.
    Unknown,
    After(Duration),
    At(Stamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    Exact(WallTime),
    Local(DateTime),
    Yearless { weekday: u8, month: u8, day: i8, time: Time },
}

fn parse(line: &str) -> Result<LastLine, String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        [] | ["shutdown" | "runlevel", ..] => return Ok(LastLine::Nothing),
        [_, "begins", ref rest @ ..] => return begins(rest).map(LastLine::Begins),
        _ => {}
    }
    let wrong = || format!("`{}` is not a line of last", quoted(line));
    let is_boot = words.starts_with(&["reboot", "system"]);
    let found = (1..words.len()).find_map(|at| Stamp::parse(&words[at..]));
    let (start, rest) = found.ok_or_else(wrong)?;
    let end = End::parse(rest).ok_or_else(wrong)?;
    Ok(LastLine::Entry(Entry { is_boot, start, end }))
}

fn begins(words: &[&str]) -> Result<Date, String> {
    let date = match Stamp::parse(words) {
        Some((Stamp::Local(local), _)) => Some(local.date()),
        Some((Stamp::Exact(at), _)) => Timestamp::from_nanosecond(at.0.into())
            .ok()
            .map(|at| jiff::tz::TimeZone::UTC.to_datetime(at).date()),
        Some((Stamp::Yearless { .. }, _)) | None => None,
    };
    date.ok_or_else(|| {
        format!(
            "begins `{}`: expected a time such as Mon Jan  5 08:00:00 2026",
            quoted(&words.join(" "))
        )
    })
}

impl Stamp {
    /// The time that these words begin with, and what follows it.
    fn parse<'a, 'b>(words: &'b [&'a str]) -> Option<(Self, &'b [&'a str])> {
        let (first, rest) = words.split_first()?;
        if first.as_bytes().get(10) == Some(&b'T') {
            return Some((Self::Exact(read_time(first)?), rest));
        }
        let &[weekday, month, day, clock, ref rest @ ..] = words else { return None };
        let place = |list: &[&str], word| {
            list.iter().position(|it| *it == word).and_then(|place| u8::try_from(place).ok())
        };
        let (weekday, month) = (place(&WEEKDAYS, weekday)?, place(&MONTHS, month)?);
        let (day, time) = (day.parse::<i8>().ok()?, read_clock(clock)?);
        if let Some((year, rest)) = rest.split_first()
            && let Some(year) = year.parse().ok().filter(|_| year.len() == 4)
        {
            let date = Date::new(year, i8::try_from(month + 1).ok()?, day).ok()?;
            return Some((Self::Local(date.to_datetime(time)), rest));
        }
        Some((Self::Yearless { weekday, month, day, time }, rest))
    }
}

impl End {
    fn parse(words: &[&str]) -> Option<Self> {
        let words = words.strip_prefix(&["-"]).unwrap_or(words);
        match words {
            ["still", ..] => Some(Self::Open),
            ["gone", ..] => Some(Self::Unknown),
            [end, span] if matches!(*end, "crash" | "down") || read_clock(end).is_some() => {
                lasted(span)
            }
            words => {
                let (at, rest) = Stamp::parse(words)?;
                let is_whole = matches!(rest, [] | [_]) && !matches!(at, Stamp::Yearless { .. });
                is_whole.then_some(Self::At(at))
            }
        }
    }
}

/// `09:12` or `09:12:01`.
fn read_clock(text: &str) -> Option<Time> {
    let mut parts = text.split(':').map(|part| part.parse::<i8>().ok().filter(|_| part.len() == 2));
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if parts.next().is_some() {
        return None;
    }
    Time::new(hour, minute, second, 0).ok()
}

/// `(01:03)` or `(2+01:03)`: days, hours and minutes. A clock that was set back
/// makes it negative.
fn lasted(text: &str) -> Option<End> {
    let inside = text.strip_prefix('(')?.strip_suffix(')')?;
    if inside.contains('-') {
        return Some(End::Unknown);
    }
    let (days, clock) = inside.split_once('+').unwrap_or(("0", inside));
    let (hours, minutes) = clock.split_once(':')?;
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let minutes = (number(days)? * 24 + number(hours)?) * 60 + number(minutes)?;
    Some(End::After(Duration::from_secs(60 * minutes)))
}
