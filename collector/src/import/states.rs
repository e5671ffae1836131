//! State changes of library and lab computers: `machine,state,timestamp` rows
//! without a header, as the University Libraries at UNC Greensboro published
//! them, in local time.
//!
//! ```text
//! INC004,in-use,2016-04-09 11:50:40.383
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use csv::ReaderBuilder;
use gleaner_common::time::WallTime;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::machine::{Machine, MachineDoing, OrderError};
use super::source::Sources;
use super::{ImportError, ImportOptions, ImportSummary, LocalTimes, Sink, bad_csv};
use crate::name::{NameError, WorkstationName};

/// A longer line is no such row.
const LINE_BYTES_MAX: u64 = 4_096;

pub(super) fn walk(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let desktops = options.only_desktops.as_deref().map(read_desktops).transpose()?;
    let zone = options.zone.clone().unwrap_or(TimeZone::UTC);
    let mut walk = StatesWalk {
        options,
        desktops,
        clock: LocalClock { zone, known: None, times: LocalTimes::default() },
        machines: BTreeMap::new(),
        left_out: BTreeSet::new(),
        summary: ImportSummary::default(),
        sink,
    };
    for path in &sources.files {
        walk.file(sources, path)?;
    }
    if walk.summary.rows == 0 {
        let expected = "rows such as INC004,in-use,2016-04-09 11:50:40.383";
        return Err(sources.empty(&options.sources, expected));
    }
    walk.summary.left_out_workstations = walk.left_out.len() as u64;
    walk.summary.local_times = walk.clock.times;
    Ok(walk.summary)
}

struct StatesWalk<'a> {
    options: &'a ImportOptions,
    desktops: Option<BTreeMap<String, Option<bool>>>,
    clock: LocalClock,
    machines: BTreeMap<String, Machine>,
    left_out: BTreeSet<String>,
    summary: ImportSummary,
    sink: Sink<'a>,
}

impl StatesWalk<'_> {
    fn file(&mut self, sources: &Sources, path: &Path) -> Result<(), ImportError> {
        let mut lines = sources.lines(path, LINE_BYTES_MAX)?;
        let mut records = vec![];
        self.summary.files += 1;
        while let Some(line) = lines.next_line()? {
            if line.is_empty() {
                self.summary.blank_lines += 1;
                continue;
            }
            self.summary.rows += 1;
            let name = self.row(line, &mut records).map_err(|what| lines.bad(what))?;
            let Some(name) = name else { continue };
            for record in records.drain(..) {
                self.summary.records += 1;
                (self.sink)(name.clone(), record)?;
            }
        }
        Ok(())
    }

    /// Whose row it is, unless it is left out.
    fn row(
        &mut self,
        line: &str,
        records: &mut Vec<gleaner_common::usage::UsageRecord>,
    ) -> Result<Option<WorkstationName>, String> {
        let mut fields = line.trim_start_matches('\u{feff}').split(',');
        let (Some(name), Some(state), Some(time), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(format!("`{}`: expected machine,state,timestamp", shown(line)));
        };
        let doing = match state {
            "in-use" => MachineDoing::InUse,
            "available" => MachineDoing::Free,
            "restarted" => MachineDoing::Restarted,
            "offline" => MachineDoing::Off,
            _ => {
                return Err(format!(
                    "`{}` is not a state: expected in-use, available, restarted or offline",
                    shown(state)
                ));
            }
        };
        let at = self.clock.read(time)?;
        if !self.is_wanted(name) {
            self.summary.left_out_rows += 1;
            return Ok(None);
        }
        if !self.machines.contains_key(name) {
            let valid = name.parse().map_err(|error: NameError| error.to_string())?;
            self.machines.insert(name.to_owned(), Machine::new(&valid));
        }
        let Some(machine) = self.machines.get_mut(name) else { unreachable!("inserted above") };
        let finding = machine.enter(at, doing, state, self.options.hold_max, records).map_err(
            |error| match error {
                OrderError::Earlier => format!(
                    "`{}` is earlier than the row before it of `{name}`: expected order of time",
                    shown(time)
                ),
                OrderError::TwoAtOnce => {
                    format!("a second state of `{name}` at {}", shown(time))
                }
            },
        )?;
        self.summary.count_row(finding);
        Ok(Some(machine.name().clone()))
    }

    fn is_wanted(&mut self, name: &str) -> bool {
        let Some(desktops) = &self.desktops else { return true };
        let listed = desktops.get(name).copied().flatten();
        self.summary.unlisted_rows += u64::from(listed.is_none());
        if listed == Some(true) {
            return true;
        }
        if !self.left_out.contains(name) {
            self.left_out.insert(name.to_owned());
        }
        false
    }
}

/// Which computers a table calls desktops; `None` where it leaves that empty.
fn read_desktops(path: &Path) -> Result<BTreeMap<String, Option<bool>>, ImportError> {
    let failed = |source| ImportError::Read { path: path.to_owned(), source };
    let reader = super::source::reopen(path).map_err(failed)?;
    let mut reader = ReaderBuilder::new().from_reader(reader);
    let bad = |line, what: String| ImportError::Bad { path: path.to_owned(), line, what };
    let header = reader.headers().map_err(|error| bad_csv(path, error))?.clone();
    let column = |title: &str| {
        header.iter().position(|column| column.trim() == title).ok_or_else(|| {
            bad(
                1,
                format!("no column `{title}` in the header: expected computerName and isDesktop"),
            )
        })
    };
    let (name, desktop) = (column("computerName")?, column("isDesktop")?);
    let mut desktops = BTreeMap::new();
    for row in reader.records() {
        let row = row.map_err(|error| bad_csv(path, error))?;
        let line = row.position().map_or(0, csv::Position::line);
        let field = |column: usize| row.get(column).unwrap_or_default().trim();
        let is_desktop = match field(desktop) {
            "1" => Some(true),
            "0" => Some(false),
            "" => None,
            other => {
                return Err(bad(line, format!("isDesktop `{}`: expected 0 or 1", shown(other))));
            }
        };
        if desktops.insert(field(name).to_owned(), is_desktop).is_some() {
            return Err(bad(line, format!("`{}` is there twice", shown(field(name)))));
        }
    }
    Ok(desktops)
}

/// Reads times of a local clock that is put forward and back.
///
/// An hour that came twice (the clock was put back) is taken for the first:
/// rows sorted by such a clock mix the two beyond repair. A time that never
/// was (the clock was put forward over it) is the moment it was put forward.
/// Both keep rows in order, and both are counted.
#[derive(Debug)]
struct LocalClock {
    zone: TimeZone,
    /// The local hour last looked up, in hours from 1970, and its offset
    /// where the whole of it has one.
    known: Option<(i64, i64)>,
    times: LocalTimes,
}

const HOUR_S: i64 = 3_600;

impl LocalClock {
    fn read(&mut self, text: &str) -> Result<WallTime, String> {
        let local = parse_local(text).ok_or_else(|| {
            format!("`{}` is not a time: expected one such as 2016-04-09 11:50:40.383", shown(text))
        })?;
        let local_ns = local.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp().as_nanosecond());
        let local_ns = local_ns.and_then(|ns| i64::try_from(ns).ok());
        let local_ns = local_ns.ok_or_else(|| format!("`{}` is too far from now", shown(text)))?;
        let hour = local_ns.div_euclid(HOUR_S * 1_000_000_000);
        if let Some((known, offset_s)) = self.known
            && known == hour
        {
            return Ok(WallTime(local_ns - offset_s * 1_000_000_000));
        }
        let (offset_s, clear) = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => (offset.seconds(), true),
            AmbiguousOffset::Fold { before, .. } => {
                self.times.twice += 1;
                (before.seconds(), false)
            }
            AmbiguousOffset::Gap { before, after } => {
                self.times.never += 1;
                return Ok(self.put_forward(local_ns, before.seconds(), after.seconds()));
            }
        };
        // Clocks change on the hour or the half: an hour whose two ends are
        // clear and agree has one offset.
        self.known = (clear && self.is_uniform(hour, offset_s)).then_some((hour, offset_s.into()));
        Ok(WallTime(local_ns - i64::from(offset_s) * 1_000_000_000))
    }

    /// Does a whole local hour have this offset?
    fn is_uniform(&self, hour: i64, offset_s: i32) -> bool {
        let quarter = |part: i64| {
            let at = jiff::Timestamp::from_second(hour * HOUR_S + part * 899).ok()?;
            let local = TimeZone::UTC.to_datetime(at);
            match self.zone.to_ambiguous_timestamp(local).offset() {
                AmbiguousOffset::Unambiguous { offset } => Some(offset.seconds()),
                AmbiguousOffset::Fold { .. } | AmbiguousOffset::Gap { .. } => None,
            }
        };
        (0..=4).all(|part| quarter(part) == Some(offset_s))
    }

    /// The moment at which the clock was put forward over a local time.
    fn put_forward(&self, local_ns: i64, before_s: i32, after_s: i32) -> WallTime {
        let utc_of = |offset_s: i32| local_ns - i64::from(offset_s) * 1_000_000_000;
        let earliest = i128::from(utc_of(before_s.max(after_s)));
        let change = jiff::Timestamp::from_nanosecond(earliest)
            .ok()
            .and_then(|at| self.zone.following(at).next())
            .and_then(|change| i64::try_from(change.timestamp().as_nanosecond()).ok());
        WallTime(change.unwrap_or(utc_of(before_s)))
    }
}

/// `2016-04-09 11:50:40.383`, with as many decimals as there are.
fn parse_local(text: &str) -> Option<DateTime> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 19 && bytes[10] == b' ' && bytes[13] == b':' && bytes[16] == b':';
    shaped.then(|| text.parse().ok()).flatten()
}

/// What a bad field was, made printable and cut short.
fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> LocalClock {
        let zone = TimeZone::get("America/New_York").unwrap();
        LocalClock { zone, known: None, times: LocalTimes::default() }
    }

    #[track_caller]
    fn check(clock: &mut LocalClock, local: &str, utc: &str) {
        let at = clock.read(local).unwrap();
        assert_eq!(crate::wall::spoken_time(at), utc, "{local}");
    }

    #[test]
    fn local_times_follow_the_zone_through_the_year() {
        let mut clock = clock();
        check(&mut clock, "2016-01-09 11:50:40.383", "2016-01-09T16:50:40.383Z");
        check(&mut clock, "2016-01-09 11:59:59.999", "2016-01-09T16:59:59.999Z");
        check(&mut clock, "2016-07-09 11:50:40", "2016-07-09T15:50:40Z");
        assert_eq!(clock.times, LocalTimes::default());
    }

    #[test]
    fn an_hour_that_came_twice_is_taken_for_the_first_and_counted() {
        let mut clock = clock();
        check(&mut clock, "2016-11-06 00:59:59", "2016-11-06T04:59:59Z");
        check(&mut clock, "2016-11-06 01:00:00", "2016-11-06T05:00:00Z");
        check(&mut clock, "2016-11-06 01:59:59", "2016-11-06T05:59:59Z");
        check(&mut clock, "2016-11-06 02:00:00", "2016-11-06T07:00:00Z");
        assert_eq!(clock.times, LocalTimes { twice: 2, never: 0 });
    }

    #[test]
    fn a_time_that_never_was_is_when_the_clock_was_put_forward() {
        let mut clock = clock();
        check(&mut clock, "2016-03-13 01:59:59", "2016-03-13T06:59:59Z");
        check(&mut clock, "2016-03-13 02:00:00", "2016-03-13T07:00:00Z");
        check(&mut clock, "2016-03-13 02:59:59", "2016-03-13T07:00:00Z");
        check(&mut clock, "2016-03-13 03:00:00", "2016-03-13T07:00:00Z");
        assert_eq!(clock.times, LocalTimes { twice: 0, never: 2 });
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "2016", "2016-04-09", "2016-04-09 11:50", "2016-04-31 11:50:40", "now"] {
            assert!(clock().read(text).is_err(), "{text}");
        }
    }
}
