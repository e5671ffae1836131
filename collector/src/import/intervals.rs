//! Traces of availability: when nodes were up.
//!
//! - `.avt`, of the Repository of Availability Traces (P. B. Godfrey): a node
//!   a line, `id n start1 end1 start2 end2 ..`, in seconds from the start of
//!   the trace, which the file does not date.
//! - `.tab`, of the Failure Trace Archive: an interval a line, `event_id
//!   component_id node_id platform_id node_name event_type start stop
//!   reason`, in Unix time; event type 1 is available, 0 is not.
//!
//! A node that is up is idle: these traces know of no owner.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gleaner_common::plain::quoted;
use gleaner_common::time::WallTime;
use gleaner_common::usage::UsageRecord;

use super::machine::{Machine, MachineDoing};
use super::source::{Lines, Sources};
use super::{ImportError, ImportOptions, ImportSummary, Sink, check_room};
use crate::name::{NameError, WorkstationName};

/// An interval says itself how long it lasts: nothing is too long.
const HOLD_MAX: Duration = Duration::MAX;

/// The line of a node in an .avt file holds all its intervals.
const LINE_BYTES_MAX: usize = 512 << 10;

pub(super) fn walk_avt(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let start = options.starts.unwrap_or(WallTime(0));
    let mut walk = IntervalWalk::new(sink);
    for path in &sources.files {
        walk.file(sources, path, |walk, line, records| walk.node(line, start, records))?;
    }
    walk.finish(sources, options, "lines such as: node7 2 0 3600 7200 9000")
}

pub(super) fn walk_fta(
    sources: &Sources,
    options: &ImportOptions,
    sink: Sink<'_>,
) -> Result<ImportSummary, ImportError> {
    let mut walk = IntervalWalk::new(sink);
    for path in &sources.files {
        walk.file(sources, path, IntervalWalk::interval)?;
    }
    walk.finish(sources, options, "lines of nine fields, as of the Failure Trace Archive")
}

struct IntervalWalk<'a> {
    sink: Sink<'a>,
    nodes: BTreeMap<String, Node>,
    summary: ImportSummary,
}

struct Node {
    machine: Machine,
    /// The end of its last interval.
    until: Option<WallTime>,
}

impl Node {
    fn new(name: &WorkstationName) -> Self {
        Self { machine: Machine::new(name), until: None }
    }
}

impl<'a> IntervalWalk<'a> {
    fn new(sink: Sink<'a>) -> Self {
        Self { sink, nodes: BTreeMap::new(), summary: ImportSummary::default() }
    }

    fn file(
        &mut self,
        sources: &Sources,
        path: &Path,
        mut row: impl FnMut(&mut Self, &str, &mut Vec<UsageRecord>) -> Result<WorkstationName, String>,
    ) -> Result<(), ImportError> {
        let mut lines: Lines = sources.lines(path, LINE_BYTES_MAX)?;
        let mut records = vec![];
        self.summary.files += 1;
        while let Some(line) = lines.next_line()? {
            if line.is_empty() || line.starts_with('#') {
                self.summary.blank_lines += 1;
                continue;
            }
            self.summary.rows += 1;
            let name = row(self, line, &mut records).map_err(|what| lines.bad(what))?;
            for record in records.drain(..) {
                self.summary.records += 1;
                (self.sink)(name.clone(), record)?;
            }
        }
        Ok(())
    }

    fn finish(
        self,
        sources: &Sources,
        options: &ImportOptions,
        expected: &'static str,
    ) -> Result<ImportSummary, ImportError> {
        if self.summary.rows == 0 {
            return Err(sources.empty(&options.sources, expected));
        }
        Ok(self.summary)
    }

    /// One line of an .avt file.
    fn node(
        &mut self,
        line: &str,
        origin: WallTime,
        records: &mut Vec<UsageRecord>,
    ) -> Result<WorkstationName, String> {
        let mut fields = line.split_whitespace();
        let id = fields.next().unwrap_or_default();
        let count = fields.next().and_then(|count| count.parse::<usize>().ok());
        let count = count.ok_or("expected: id, number of intervals, and their starts and ends")?;
        let name: WorkstationName = id.parse().map_err(|error: NameError| error.to_string())?;
        if self.nodes.contains_key(id) {
            return Err(format!("a second line of node `{name}`"));
        }
        check_room(self.nodes.len())?;
        let mut node = Node::new(&name);
        let mut found = 0;
        while let Some(start) = fields.next() {
            let stop = fields.next().ok_or("the last interval has no end: the line was cut off")?;
            let up = Interval::of(origin, start, stop)?;
            found += 1;
            self.enter(&mut node, up, true, "up", records)?;
        }
        if found != count {
            return Err(format!(
                "{found} intervals of `{name}`: expected {count}, as it says itself"
            ));
        }
        self.nodes.insert(id.to_owned(), node);
        Ok(name)
    }

    /// One line of a .tab file.
    fn interval(
        &mut self,
        line: &str,
        records: &mut Vec<UsageRecord>,
    ) -> Result<WorkstationName, String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_event, _component, id, _platform, name, kind, start, stop, reason] = fields[..]
        else {
            return Err(format!("{} fields: expected nine", fields.len()));
        };
        let is_up = match kind {
            "1" => true,
            "0" => false,
            _ => return Err("event type: expected 1 (available) or 0 (not)".into()),
        };
        let interval = Interval::of(WallTime(0), start, stop)?;
        // Two nodes may have one name: they are told apart by their number.
        let named = format!("{name}-{id}");
        let mut node = if let Some(node) = self.nodes.remove(&named) {
            node
        } else {
            check_room(self.nodes.len())?;
            Node::new(&named.parse().map_err(|error: NameError| error.to_string())?)
        };
        let word = match reason {
            "NULL" => "unavailable".into(),
            reason => format!("reason {}", quoted(reason)),
        };
        self.enter(&mut node, interval, is_up, &word, records)?;
        let name = node.machine.name().clone();
        self.nodes.insert(named, node);
        Ok(name)
    }

    fn enter(
        &mut self,
        node: &mut Node,
        Interval { start, stop }: Interval,
        is_up: bool,
        word: &str,
        records: &mut Vec<UsageRecord>,
    ) -> Result<(), String> {
        let name = node.machine.name();
        if node.until.is_some_and(|until| start < until) {
            return Err(format!(
                "overlaps the interval before it of `{name}`: expected order of time"
            ));
        }
        node.until = Some(stop);
        if start == stop {
            self.summary.empty_intervals += 1;
        } else if is_up {
            let mut enter = |at, doing, word| {
                let entered = node.machine.enter(at, doing, word, HOLD_MAX, records);
                entered.unwrap_or_else(|error| unreachable!("intervals in order: {error:?}"))
            };
            enter(start, MachineDoing::Restarted, "available");
            enter(stop, MachineDoing::Off, word);
        }
        Ok(())
    }
}

struct Interval {
    start: WallTime,
    stop: WallTime,
}

impl Interval {
    fn of(origin: WallTime, start: &str, stop: &str) -> Result<Self, String> {
        let interval = Self { start: moment(origin, start)?, stop: moment(origin, stop)? };
        if interval.stop < interval.start {
            let (start, stop) = (quoted(start), quoted(stop));
            return Err(format!("an interval that ends at {stop}, before it starts at {start}"));
        }
        Ok(interval)
    }
}

/// Seconds, with a fraction or not.
fn moment(origin: WallTime, text: &str) -> Result<WallTime, String> {
    let wrong = || format!("`{}` is not a time: expected seconds", quoted(text));
    let nanos = if let Ok(seconds) = text.parse::<i64>() {
        seconds.checked_mul(1_000_000_000)
    } else {
        let seconds: f64 = text.parse().map_err(|_| wrong())?;
        let within = seconds.abs() < 9e9;
        #[expect(clippy::cast_possible_truncation, reason = "within the years of i64")]
        within.then_some((seconds * 1e9).round() as i64)
    };
    nanos.and_then(|nanos| origin.0.checked_add(nanos)).map(WallTime).ok_or_else(wrong)
}
