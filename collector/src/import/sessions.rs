//! Sessions: who was logged on where, from when to when, as rows
//! `host,start,end`, or as `last` prints them.
//!
//! ```text
//! rows ──┐
//!        ├─► Sessions, by host ─► merged ─► Machine ─► records
//! last ──┘   and its boots
//! ```
//!
//! A computer is in use while anybody is logged on, and free in between. That it
//! was off is known only where `last` tells of reboots. Names of users are read
//! over and kept nowhere.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gleaner_common::plain::quoted;
use gleaner_common::time::WallTime;
use jiff::fmt::temporal::Pieces;

use super::fields::{Row, only_place};
use super::last;
use super::local::{LocalClock, LocalMoment};
use super::machine::{Machine, MachineDoing};
use super::source::{Sources, bad};
use super::{ImportError, ImportOptions, ImportSummary, Sink, check_room};
use crate::name::{NameError, WorkstationName};
use crate::wall::{is_leap_second, read_time};

/// A session says itself how long it lasts: nothing is too long.
const HOLD_MAX: Duration = Duration::MAX;

const MINUTE: Duration = Duration::from_secs(60);

/// They are sorted, so that all are held: some 50 MB.
pub(super) const SESSIONS_MAX: usize = 2_000_000;

/// Somebody's presence, or a boot's: until the end of what is known if it has no
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Session {
    pub(super) start: WallTime,
    pub(super) end: Option<WallTime>,
}

impl Session {
    fn covers(self, at: WallTime) -> bool {
        self.start <= at && self.end.is_none_or(|end| at < end)
    }
}

/// One computer.
#[derive(Debug, Default)]
struct Host {
    sessions: Vec<Session>,
    boots: Vec<Session>,
}

/// All computers, until everything was read.
pub(super) struct SessionWalk {
    pub(super) clock: LocalClock,
    pub(super) summary: ImportSummary,
    hosts: BTreeMap<WorkstationName, Host>,
    held: usize,
}

pub(super) fn walk(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let mut walk = SessionWalk::new(options);
    for path in &sources.files {
        walk.file(sources, path)?;
    }
    walk.finish(
        sources,
        options,
        sink,
        "rows such as ada,2026-01-05T09:12:00Z,2026-01-05T10:15:00Z",
    )
}

pub(super) fn walk_last(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let mut walk = SessionWalk::new(options);
    for path in &sources.files {
        let name = match &options.workstation {
            Some(name) => name.clone(),
            None => last::named_after(path)
                .ok_or_else(|| ImportError::WhoseSessions { path: path.clone() })?,
        };
        last::file(sources, path, &name, &mut walk)?;
    }
    walk.finish(sources, options, sink, "what `last -F` prints")
}

impl SessionWalk {
    fn new(options: &ImportOptions) -> Self {
        Self {
            clock: LocalClock::new(options.zone.clone()),
            summary: ImportSummary::default(),
            hosts: BTreeMap::new(),
            held: 0,
        }
    }

    /// Somebody was logged on.
    pub(super) fn add(&mut self, name: &WorkstationName, session: Session) -> Result<(), String> {
        self.summary.sessions += 1;
        if session.end == Some(session.start) {
            self.summary.empty_intervals += 1;
            return Ok(());
        }
        self.host(name)?.sessions.push(session);
        Ok(())
    }

    /// The computer came up.
    pub(super) fn add_boot(&mut self, name: &WorkstationName, up: Session) -> Result<(), String> {
        self.host(name)?.boots.push(up);
        Ok(())
    }

    fn host(&mut self, name: &WorkstationName) -> Result<&mut Host, String> {
        self.held += 1;
        if self.held > SESSIONS_MAX {
            return Err(format!("more than {SESSIONS_MAX} sessions"));
        }
        if !self.hosts.contains_key(name) {
            check_room(self.hosts.len())?;
            self.hosts.insert(name.clone(), Host::default());
        }
        Ok(self.hosts.entry(name.clone()).or_default())
    }

    fn file(&mut self, sources: &Sources, path: &Path) -> Result<(), ImportError> {
        let mut rows = sources.rows(path)?;
        let mut columns = None;
        self.summary.files += 1;
        while let Some((line, row)) = rows.next_row()? {
            self.summary.rows += 1;
            let bad = |what: String| bad(path, line, &what);
            let first = if columns.is_none() { Some(Columns::of(row).map_err(bad)?) } else { None };
            let is_header = first.is_some_and(|first| first.is_header);
            columns = columns.or(first);
            let Some(columns) = columns.filter(|_| !is_header) else { continue };
            self.row(columns, row).map_err(bad)?;
        }
        Ok(())
    }

    fn row(&mut self, columns: Columns, row: Row<'_>) -> Result<(), String> {
        let field = |place: usize| {
            let missing = || format!("{} fields: expected host,start,end", row.len());
            row.get(place).map(str::trim).ok_or_else(missing)
        };
        let [host, start, end] = columns.places;
        let name: WorkstationName =
            field(host)?.parse().map_err(|error: NameError| error.to_string())?;
        let start = self.time(field(start)?)?.from(WallTime(i64::MIN));
        let end = match field(end)? {
            "" => None,
            text => Some(self.time(text)?.from(start)),
        };
        if end.is_some_and(|end| end < start) {
            return Err(format!("a session of `{name}` that ends before it starts"));
        }
        self.add(&name, Session { start, end })
    }

    /// With its offset from UTC, or by the local clock. The parsers read over a
    /// zone in brackets, and that of a local time over an offset.
    fn time(&mut self, text: &str) -> Result<LocalMoment, String> {
        if text.contains('[') {
            let text = quoted(text);
            return Err(format!("`{text}` names a zone: expected an offset such as -05:00, or Z"));
        }
        if let Some(at) = read_time(text) {
            return Ok(LocalMoment::Once(at));
        }
        let has_offset = Pieces::parse(text).is_ok_and(|pieces| pieces.offset().is_some());
        let local = text
            .parse()
            .ok()
            .filter(|_| text.contains(':') && !has_offset && !is_leap_second(text));
        let moment = local.and_then(|local| self.moment(local));
        moment.ok_or_else(|| {
            let text = quoted(text);
            format!(
                "`{text}` is not a time: expected one such as 2026-01-05T09:12:00Z or, of the \
                 local clock, 2026-01-05 09:12:00"
            )
        })
    }

    /// A local time, counted if it is not one moment.
    pub(super) fn moment(&mut self, local: jiff::civil::DateTime) -> Option<LocalMoment> {
        let moment = self.clock.moment(local)?;
        self.summary.local_times.count(moment);
        Some(moment)
    }

    fn finish(
        mut self,
        sources: &Sources,
        options: &ImportOptions,
        sink: Sink<'_>,
        expected: &'static str,
    ) -> Result<ImportSummary, ImportError> {
        if self.hosts.is_empty() {
            return Err(sources.empty(&options.sources, expected));
        }
        for (name, host) in std::mem::take(&mut self.hosts) {
            let boots = between_boots(host.boots);
            let (busy, overlapping) = merged(with_the_machine(host.sessions, &boots));
            self.summary.overlapping_sessions += overlapping;
            let mut machine = Machine::new(&name);
            let mut records = vec![];
            for (at, doing, word) in states(&busy, &boots) {
                let entered = machine.enter(at, doing, word, HOLD_MAX, &mut records);
                entered.unwrap_or_else(|error| unreachable!("states in order: {error:?}"));
                for record in records.drain(..) {
                    self.summary.records += 1;
                    sink(name.clone(), record)?;
                }
            }
        }
        Ok(self.summary)
    }
}

/// Where each column stands.
#[derive(Clone, Copy)]
struct Columns {
    places: [usize; 3],
    is_header: bool,
}

impl Columns {
    /// By the header, if there is one; what else it names is read over.
    fn of(first: Row<'_>) -> Result<Self, String> {
        let place = |title| only_place(first, title, |column| column.eq_ignore_ascii_case(title));
        Ok(match (place("host")?, place("start")?, place("end")?) {
            (Some(host), Some(start), Some(end)) => {
                Self { places: [host, start, end], is_header: true }
            }
            _ => Self { places: [0, 1, 2], is_header: false },
        })
    }
}

/// Sessions that overlap or touch as one, in order, and how many overlapped.
fn merged(mut sessions: Vec<Session>) -> (Vec<Session>, u64) {
    sessions.sort_unstable();
    let mut merged: Vec<Session> = vec![];
    let mut overlapping = 0;
    for session in sessions {
        match merged.last_mut() {
            Some(last) if last.end.is_none_or(|end| session.start <= end) => {
                overlapping += u64::from(last.end != Some(session.start));
                // The later of two ends; no end is the latest of all.
                last.end = last.end.zip(session.end).map(|(a, b)| a.max(b));
            }
            _ => merged.push(session),
        }
    }
    (merged, overlapping)
}

/// How long a session was that a crash or a shutdown ended, `last` says in whole
/// minutes: it lasted to the end of the boot, or to the next one.
fn with_the_machine(mut sessions: Vec<Session>, boots: &[Session]) -> Vec<Session> {
    let mut changes: Vec<_> =
        boots.iter().flat_map(|boot| [Some(boot.start), boot.end]).flatten().collect();
    changes.sort_unstable();
    for end in sessions.iter_mut().filter_map(|session| session.end.as_mut()) {
        let next = changes.get(changes.partition_point(|change| *change < *end));
        *end = next.copied().filter(|next| next.since(*end) < MINUTE).unwrap_or(*end);
    }
    sessions
}

/// Boots in order, each over when the next one begins.
fn between_boots(mut boots: Vec<Session>) -> Vec<Session> {
    boots.sort_unstable();
    boots.dedup_by_key(|boot| boot.start);
    for place in 1..boots.len() {
        let next = boots[place].start;
        let before = &mut boots[place - 1].end;
        *before = Some(before.map_or(next, |end| end.min(next)));
    }
    boots
}

/// What a computer does from when on. Both lists are in order.
fn states(busy: &[Session], boots: &[Session]) -> Vec<(WallTime, MachineDoing, &'static str)> {
    let both = || busy.iter().chain(boots);
    let mut times: Vec<_> =
        both().map(|it| it.start).chain(both().filter_map(|it| it.end)).collect();
    times.sort_unstable();
    times.dedup();
    let at = |list: &[Session], at| {
        let begun = list.partition_point(|it| it.start <= at);
        begun.checked_sub(1).map(|last| list[last])
    };
    let mut states = vec![];
    for time in times {
        let boot = at(boots, time);
        let is_up = boot.is_none_or(|boot| boot.covers(time));
        if boot.is_some_and(|boot| boot.start == time) {
            states.push((time, MachineDoing::Off, "it came up again"));
        }
        states.push(if at(busy, time).is_some_and(|it| it.covers(time)) {
            (time, MachineDoing::InUse, "somebody is logged on")
        } else if is_up {
            (time, MachineDoing::Free, "nobody is logged on")
        } else {
            (time, MachineDoing::Off, "down")
        });
    }
    states
}

#[cfg(test)]
mod tests {
    use MachineDoing::{Free, InUse, Off};
    use proptest::prelude::*;

    use super::*;

    fn session((start, end): (i64, i64)) -> Session {
        let end = (end >= 0).then_some(WallTime(end));
        Session { start: WallTime(start), end }
    }

    #[track_caller]
    fn check(
        sessions: &[(i64, i64)],
        boots: &[(i64, i64)],
        overlapping: u64,
        expected: &[(i64, MachineDoing)],
    ) {
        let (busy, found) = merged(sessions.iter().copied().map(session).collect());
        let boots = between_boots(boots.iter().copied().map(session).collect());
        let got: Vec<_> =
            states(&busy, &boots).iter().map(|(at, doing, _)| (at.0, *doing)).collect();
        assert_eq!((got.as_slice(), found), (expected, overlapping));
    }

    #[test]
    fn overlapping_sessions_are_one_and_counted() {
        check(&[(5, 9), (1, 6), (2, 3)], &[], 2, &[(1, InUse), (9, Free)]);
        check(&[(1, 3), (3, 5)], &[], 0, &[(1, InUse), (5, Free)]);
        check(&[(1, -1), (3, 5)], &[], 1, &[(1, InUse)]);
        check(&[(1, 3), (1, 3)], &[], 1, &[(1, InUse), (3, Free)]);
    }

    #[test]
    fn a_session_that_the_machine_ended_lasted_as_long_as_that() {
        let s = 1_000_000_000;
        let boots = between_boots([(10 * s, 100 * s), (300 * s, -1)].map(session).to_vec());
        let ends = |end: i64| {
            let ended = with_the_machine(vec![session((20 * s, end * s))], &boots);
            ended[0].end.map(|end| end.0 / s)
        };
        assert_eq!(
            (ends(39), ends(41), ends(100), ends(241)),
            (Some(39), Some(100), Some(100), Some(300))
        );
    }

    #[test]
    fn a_boot_tells_when_the_computer_was_off() {
        check(
            &[(1, 3), (20, 25)],
            &[(10, 30), (40, -1)],
            0,
            &[
                (1, InUse),
                (3, Free),
                (10, Off),
                (10, Free),
                (20, InUse),
                (25, Free),
                (30, Off),
                (40, Off),
                (40, Free),
            ],
        );
        let reboot = [(10, Off), (10, InUse), (15, Off), (15, InUse), (20, Free)];
        check(&[(10, 20)], &[(10, -1), (15, -1)], 0, &reboot);
    }

    proptest! {
        #[test]
        fn a_computer_is_in_use_exactly_while_somebody_is_logged_on(
            sessions in proptest::collection::vec((0..40_i64, 1..10_i64), 0..12),
        ) {
            let all: Vec<_> =
                sessions.iter().map(|(start, length)| session((*start, start + length))).collect();
            let (busy, overlapping) = merged(all.clone());
            prop_assert!(overlapping <= all.len() as u64);
            for at in 0..60 {
                let expected = all.iter().any(|it| it.covers(WallTime(at)));
                prop_assert_eq!(busy.iter().any(|it| it.covers(WallTime(at))), expected);
            }
            prop_assert!(states(&busy, &[]).is_sorted_by(|a, b| a.0 < b.0));
        }
    }
}
