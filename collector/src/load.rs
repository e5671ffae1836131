//! Many logs at once, as timelines: what replay and the charts begin with.
//!
//! Reads as many workstations side by side as the machine has cores. The
//! answer is in order of name, whatever finished first.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use gleaner_common::usage::Cause;

use crate::archive::{Archive, ReadArchiveError, Span};
use crate::import::Unfinished;
use crate::name::WorkstationName;
use crate::progress::Progress;
use crate::threads::cores;
use crate::timeline::{Note, Reading, Readings, Timeline, Unsure, interpret};

/// Which logs, and how they are to be understood.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadOptions {
    /// Empty: all workstations.
    pub names: Vec<String>,
    /// Periods that lie wholly outside are left out; those that reach in are
    /// kept whole, so that it shows what came before and after (Phalen 1994,
    /// §5.1, the selection of workstations).
    pub span: Span,
    pub readings: Readings,
}

/// The timelines of some workstations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// In order of name.
    pub timelines: Vec<(String, Timeline)>,
    /// Records that were read.
    pub records: u64,
    /// What is damaged in the logs or was not imported whole, one line each.
    pub damage: Vec<String>,
    /// What the logs leave open of the criterion, over all workstations.
    pub unsure: Unsure,
}

impl Loaded {
    /// What was strange, for people: damage, what the criterion leaves open,
    /// and how many notes of each kind the timelines have.
    pub fn notes(&self) -> Vec<String> {
        let mut lines = self.damage.clone();
        lines.extend(self.unsure.note());
        let [mut broke_off, mut overlaps, mut missing, mut set] = [0_u64; 4];
        for note in self.timelines.iter().flat_map(|(_, timeline)| &timeline.notes) {
            *match note {
                Note::BrokeOff { .. } => &mut broke_off,
                Note::Overlap { .. } => &mut overlaps,
                Note::Missing { .. } => &mut missing,
                Note::ClockSet { .. } => &mut set,
            } += 1;
        }
        let kinds = [
            (broke_off, "records break off without a FINISH"),
            (overlaps, "two boots overlap, and the earlier one is believed"),
            (missing, "records are missing"),
            (set, "the wall clock was set"),
        ];
        let there = kinds.iter().filter(|(times, _)| *times > 0);
        lines.extend(there.map(|(times, what)| format!("{times} times: {what}")));
        lines
    }
}

/// Reads logs and interprets them.
///
/// # Errors
/// The directory cannot be listed, a name has no log, or a log cannot be read.
pub fn timelines(
    data: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Loaded, ReadArchiveError> {
    let archive = Archive::new(data);
    let names = archive.select(&options.names)?;
    let Span { from, to } = options.span;
    let unfinished = archive.unfinished()?;
    let damage = unfinished.iter().map(Unfinished::note).collect();
    let mut loaded = Loaded { damage, ..Loaded::default() };
    let everything = Span::default();
    each_log(&archive, &names, everything, &options.readings, progress, &mut |name, log| {
        let mut timeline = log.timeline;
        timeline.periods.retain(|period| {
            from.is_none_or(|from| period.end() > from) && to.is_none_or(|to| period.start < to)
        });
        // Years of hundreds of workstations stay in memory: without the slack.
        timeline.periods.shrink_to_fit();
        loaded.records += log.by_cause.values().sum::<u64>();
        loaded.unsure.add(timeline.unsure);
        loaded.damage.extend(log.damage);
        loaded.timelines.push((name.to_string(), timeline));
    })?;
    Ok(loaded)
}

/// One workstation's log, interpreted.
pub(crate) struct InterpretedLog {
    pub(crate) timeline: Timeline,
    /// Records in the span.
    pub(crate) by_cause: BTreeMap<Cause, u64>,
    pub(crate) damage: Vec<String>,
}

/// Gives each log in order of name, while the next ones are being read. The
/// first that cannot be read ends it.
pub(crate) fn each_log(
    archive: &Archive,
    names: &[WorkstationName],
    span: Span,
    readings: &Readings,
    progress: &mut dyn FnMut(Progress),
    each: &mut dyn FnMut(&WorkstationName, InterpretedLog),
) -> Result<(), ReadArchiveError> {
    let total = names.len() as u64;
    progress(Progress { done: 0, total });
    let threads = cores().min(names.len());
    let next = AtomicUsize::new(0);
    // Bounded, so that a slow reader of the answers holds the threads back.
    let (give, take) = mpsc::sync_channel(2 * threads);
    thread::scope(|scope| {
        // The receiver is moved in, so that it is gone, and the threads stop, when
        // one log fails.
        let take = take;
        for _ in 0..threads {
            let (next, give) = (&next, give.clone());
            scope.spawn(move || {
                while let Some((place, name)) = claim(next, names) {
                    let log = read(archive, name, span, readings.of(name.as_str()));
                    if give.send((place, log)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(give);
        let mut early = BTreeMap::new();
        let mut done = 0;
        for (place, log) in take {
            early.insert(place, log?);
            while let Some(log) = early.remove(&done) {
                each(&names[done], log);
                done += 1;
                progress(Progress { done: done as u64, total });
            }
        }
        Ok(())
    })
}

fn claim<'a>(
    next: &AtomicUsize,
    names: &'a [WorkstationName],
) -> Option<(usize, &'a WorkstationName)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    names.get(place).map(|name| (place, name))
}

fn read(
    archive: &Archive,
    name: &WorkstationName,
    span: Span,
    reading: Reading,
) -> Result<InterpretedLog, ReadArchiveError> {
    let (observations, damage) = archive.observed(name)?;
    let mut by_cause = BTreeMap::new();
    for record in observations.records.iter().filter(|record| span.contains(record.at)) {
        *by_cause.entry(record.cause).or_default() += 1;
    }
    let damage = damage.iter().map(ToString::to_string).collect();
    Ok(InterpretedLog {
        timeline: interpret(observations.with_missing_ends(), reading),
        by_cause,
        damage,
    })
}
