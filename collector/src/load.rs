//! Many logs at once, as timelines: what replay and the charts begin with.
//!
//! Reads as many workstations side by side as the machine has cores. The
//! answer is in order of name, whatever finished first.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::archive::{Archive, ReadArchiveError, Span};
use crate::name::WorkstationName;
use crate::timeline::{Note, Readings, Timeline, Unsure, interpret};
use crate::usage::Progress;

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
    /// What is damaged in the logs, one line each.
    pub damage: Vec<String>,
    /// What the logs do not tell of the criterion, over all workstations.
    pub unsure: Unsure,
}

impl Loaded {
    /// What was strange, for people: damage, what the criterion leaves open,
    /// and how many notes of each kind the timelines have.
    pub fn notes(&self) -> Vec<String> {
        let mut lines = self.damage.clone();
        if !self.unsure.is_nothing() {
            lines.push(self.unsure.to_string());
        }
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
    let total = names.len() as u64;
    progress(Progress { done: 0, total });
    let threads = thread::available_parallelism().map_or(1, usize::from).min(names.len());
    let next = AtomicUsize::new(0);
    let (give, take) = mpsc::channel();
    let mut answers: Vec<Option<One>> = Vec::new();
    answers.resize_with(names.len(), || None);
    thread::scope(|scope| -> Result<(), ReadArchiveError> {
        // Moved in, so that it is gone, and the readers stop, when one fails.
        let take = take;
        for _ in 0..threads {
            let (archive, names, next, give) = (&archive, &names, &next, give.clone());
            scope.spawn(move || {
                while let Some((place, name)) = claim(next, names) {
                    if give.send((place, load_one(archive, name, options))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(give);
        for (done, (place, answer)) in (1..).zip(take) {
            answers[place] = Some(answer?);
            progress(Progress { done, total });
        }
        Ok(())
    })?;
    let mut loaded = Loaded::default();
    for (name, answer) in names.iter().zip(answers) {
        let one = answer.unwrap_or_else(|| unreachable!("every workstation was answered for"));
        loaded.records += one.records;
        loaded.unsure.add(one.timeline.unsure);
        loaded.damage.extend(one.damage);
        loaded.timelines.push((name.to_string(), one.timeline));
    }
    Ok(loaded)
}

fn claim<'a>(
    next: &AtomicUsize,
    names: &'a [WorkstationName],
) -> Option<(usize, &'a WorkstationName)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    names.get(place).map(|name| (place, name))
}

/// One workstation's log.
struct One {
    timeline: Timeline,
    records: u64,
    damage: Vec<String>,
}

fn load_one(
    archive: &Archive,
    name: &WorkstationName,
    options: &LoadOptions,
) -> Result<One, ReadArchiveError> {
    let (records, damage) = archive.observed(name)?;
    let count = records.len() as u64;
    let mut timeline = interpret(records, options.readings.of(name.as_str()));
    let Span { from, to } = options.span;
    timeline.periods.retain(|period| {
        from.is_none_or(|from| period.end() > from) && to.is_none_or(|to| period.start < to)
    });
    let damage = damage.iter().map(ToString::to_string).collect();
    Ok(One { timeline, records: count, damage })
}
