//! Snapshots that `ruptime -a` and `rwho -a` printed: the facility that
//! Phalen's collection read (1994, §5).
//!
//! A source is a file, or a directory of files in order of name. A line with a
//! time begins a snapshot; the lines of both programs follow:
//!
//! ```text
//! 2026-01-05T09:03:00Z
//! ada           up     11+02:30,     2 users,  load 0.25, 0.16, 0.09
//! bob         down      0:15
//! fred     ada:pts/0    Jan  5 08:58   :12
//! ```
//!
//! What a site needs for it is one line for cron, in `data/README.md`. Names
//! of users are read over and kept nowhere.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gleaner_common::plain::quoted;
use gleaner_common::time::WallTime;
use gleaner_common::usage::LoadAverages;

use super::source::Sources;
use super::transitions::{Snapshot, Watcher};
use super::{ImportError, ImportOptions, ImportSummary, NAMES_MAX, Numbering, Observation, Sink};
use crate::name::WorkstationName;
use crate::origin::Origin;
use crate::wall::read_time;

/// rwho itself calls a machine down that was silent for eleven minutes; a
/// longer hole between snapshots says nothing of what happened in it.
const HOLE: Duration = Duration::from_secs(11 * 60);

/// Longer lines are none of these programs'.
const LINE_BYTES_MAX: usize = 4_096;

/// Terminals of one snapshot.
const TERMINALS_MAX: usize = 1_000_000;

pub(super) fn walk(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let mut walk =
        RwhoWalk { sink, summary: ImportSummary::default(), lab: BTreeMap::new(), last: None };
    for path in &sources.files {
        walk.file(sources, path)?;
    }
    if walk.summary.snapshots == 0 {
        let expected = "snapshots that begin with a line such as 2026-01-05T09:03:00Z";
        return Err(sources.empty(&options.sources, expected));
    }
    Ok(walk.summary)
}

struct RwhoWalk<'a> {
    sink: Sink<'a>,
    summary: ImportSummary,
    lab: BTreeMap<WorkstationName, (Watcher, Numbering)>,
    /// The time of the last snapshot.
    last: Option<WallTime>,
}

/// A snapshot while its lines are read.
struct OpenSnapshot {
    at: WallTime,
    up: BTreeMap<WorkstationName, Snapshot>,
    /// Users' idle times, with the line, for `rwho` lines may come first.
    inputs: Vec<(u64, WorkstationName, Duration)>,
}

/// A line that says something.
enum RwhoLine {
    Time(WallTime),
    Up(WorkstationName, Snapshot),
    Down,
    User(WorkstationName, Duration),
}

impl RwhoWalk<'_> {
    fn file(&mut self, sources: &Sources, path: &Path) -> Result<(), ImportError> {
        let mut lines = sources.lines(path, LINE_BYTES_MAX)?;
        self.summary.files += 1;
        let mut open = None;
        while let Some(line) = lines.next_line()? {
            if line.is_empty() || line.starts_with('#') {
                self.summary.blank_lines += 1;
                continue;
            }
            self.summary.rows += 1;
            let line = line.to_owned();
            let ended = self.line(&line, lines.number(), &mut open);
            self.end(path, ended.map_err(|what| lines.bad(what))?)?;
        }
        self.end(path, open)
    }

    /// Gives the snapshot that this line ended, if it did.
    fn line(
        &self,
        text: &str,
        number: u64,
        open: &mut Option<OpenSnapshot>,
    ) -> Result<Option<OpenSnapshot>, String> {
        let before = open.as_ref().map(|open| open.at).or(self.last);
        match (parse(text)?, open.as_mut()) {
            (RwhoLine::Time(at), _) if before.is_some_and(|before| at <= before) => {
                Err(format!("`{}` is not later than the snapshot before it", quoted(text)))
            }
            (RwhoLine::Time(at), _) => {
                Ok(open.replace(OpenSnapshot { at, up: BTreeMap::new(), inputs: vec![] }))
            }
            (_, None) => Err(format!(
                "`{}` before any time: expected a line such as 2026-01-05T09:03:00Z",
                quoted(text)
            )),
            (RwhoLine::Up(name, snapshot), Some(open)) => match open.up.insert(name, snapshot) {
                None if open.up.len() > NAMES_MAX => {
                    Err(format!("more than {NAMES_MAX} workstations in one snapshot"))
                }
                None => Ok(None),
                Some(_) => Err(format!("`{}`: its second line in one snapshot", quoted(text))),
            },
            // A workstation that is not in `up` is down.
            (RwhoLine::Down, Some(_)) => Ok(None),
            (RwhoLine::User(name, idle), Some(open)) => {
                open.inputs.push((number, name, idle));
                if open.inputs.len() > TERMINALS_MAX {
                    return Err(format!("more than {TERMINALS_MAX} terminals in one snapshot"));
                }
                Ok(None)
            }
        }
    }

    /// Draws the conclusions from a whole snapshot.
    fn end(&mut self, path: &Path, open: Option<OpenSnapshot>) -> Result<(), ImportError> {
        let Some(OpenSnapshot { at, mut up, inputs }) = open else { return Ok(()) };
        for (line, name, idle) in inputs {
            let Some(snapshot) = up.get_mut(&name) else {
                let what = format!("a user of `{name}`, which this snapshot does not have up");
                return Err(ImportError::Bad { path: path.to_owned(), line, what });
            };
            snapshot.input_idle = snapshot.input_idle.into_iter().chain([idle]).min();
        }
        self.summary.snapshots += 1;
        let hole = self.last.replace(at).is_some_and(|last| at.since(last) > HOLE);
        for (name, (watcher, numbering)) in &mut self.lab {
            let ended = if hole {
                watcher.lost_sight()
            } else if up.contains_key(name) {
                None
            } else {
                watcher.gone(at)
            };
            give(self.sink, name, numbering, ended)?;
        }
        for (name, snapshot) in up {
            let (watcher, numbering) = self
                .lab
                .entry(name.clone())
                .or_insert_with(|| (Watcher::default(), Numbering::new(Origin::Rwho, &name)));
            give(self.sink, &name, numbering, watcher.up(at, snapshot))?;
        }
        Ok(())
    }
}

fn give(
    sink: Sink<'_>,
    name: &WorkstationName,
    numbering: &mut Numbering,
    observed: impl IntoIterator<Item = Observation>,
) -> Result<(), ImportError> {
    observed.into_iter().try_for_each(|observed| sink(name.clone(), numbering.number(observed)))
}

fn parse(text: &str) -> Result<RwhoLine, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [time] => parse_time(time).map(RwhoLine::Time),
        [host, "down", ..] => name(host).map(|_| RwhoLine::Down),
        [host, "up", _, users, "user," | "users,", "load", one, five, fifteen] => {
            let load = |text: &str| {
                let text = text.trim_end_matches(',');
                let number = text.parse().ok().filter(|load| LoadAverages::is_possible(*load));
                number.ok_or_else(|| {
                    format!("`{}` is not a load: expected a number, such as 0.25", quoted(text))
                })
            };
            let load = LoadAverages { one: load(one)?, five: load(five)?, fifteen: load(fifteen)? };
            let wrong = |_| format!("`{}` is not a number of users", quoted(users));
            let users = users.parse().map_err(wrong)?;
            Ok(RwhoLine::Up(name(host)?, Snapshot { load, users, input_idle: None }))
        }
        [_user, terminal, _month, _day, _time] => {
            Ok(RwhoLine::User(host_of(terminal)?, Duration::ZERO))
        }
        [_user, terminal, _month, _day, _time, idle] => {
            Ok(RwhoLine::User(host_of(terminal)?, parse_idle(idle)?))
        }
        _ => Err(format!("`{}` is not a line of ruptime -a or rwho -a", quoted(text))),
    }
}

fn parse_time(text: &str) -> Result<WallTime, String> {
    read_time(text).ok_or_else(|| {
        format!("`{}` is not a time: expected one such as 2026-01-05T09:03:00Z", quoted(text))
    })
}

fn name(text: &str) -> Result<WorkstationName, String> {
    text.parse().map_err(|error: crate::name::NameError| error.to_string())
}

fn host_of(terminal: &str) -> Result<WorkstationName, String> {
    let host = terminal.split_once(':').map(|(host, _)| host);
    name(host.ok_or_else(|| format!("`{}` is not host:terminal", quoted(terminal)))?)
}

/// `:12`, `1:02`, `99:59`: hours, if any, and minutes since the last input.
fn parse_idle(text: &str) -> Result<Duration, String> {
    let wrong = || {
        let text = quoted(text);
        format!("`{text}` is not an idle time: expected hours and minutes, such as :12 or 1:02")
    };
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let hours: u32 = if hours.is_empty() { 0 } else { hours.parse().map_err(|_| wrong())? };
    let minutes: u32 = minutes.parse().map_err(|_| wrong())?;
    if minutes > 59 || hours > 10_000 {
        return Err(wrong());
    }
    Ok(Duration::from_secs(60 * u64::from(hours * 60 + minutes)))
}
