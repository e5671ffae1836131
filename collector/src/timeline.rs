//! From a log's records to periods of idle, busy and unknown.
//!
//! Source: Phalen 1994, §5.1. `BOTH`, `TTY`, `LOAD` and `CHANGE` identify busy
//! periods, `IDLE` idle ones. Her records were snapshots every three minutes,
//! so she estimates when a transition happened (Table 6); our agents write
//! the moment itself, which needs no estimate.
//!
//! The promise: a stretch is called idle or busy only where the records on
//! both sides of it say so. What lies between `FINISH` and `START`, beside a
//! missing record, or before a `START` that no `FINISH` preceded is unknown.
//! Lengths come from the machine's own clock; a wall clock that was set is
//! reported and stretches nothing.

mod criterion;
mod snapshots;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use gleaner_collector_core::segment::Numbered;
use gleaner_common::id::{BootId, SpoolLife};
use gleaner_common::time::{Spoken, WallTime};
use gleaner_common::units::{parse_duration, written_duration};
use gleaner_common::usage::{Cause, LifeAccount, UsageRecord};
use serde::Serialize;

use crate::origin::Origin;
use crate::wall::spoken_time;

pub use criterion::{Criterion, Unsure};

/// A wall clock that moves less than this against the machine's own between
/// two records was disciplined, not set.
const CLOCK_STEP_MIN: Duration = Duration::from_secs(2);

/// rwho tells its network of itself every three minutes (Phalen 1994, §5).
const RWHO_INTERVAL: Duration = Duration::from_secs(180);

/// How the times of records are to be understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpretation {
    /// Each boot as its records were taken: snapshots every three minutes for
    /// what was imported from rwho, exact for everything else.
    #[default]
    AsTaken,
    /// A record carries the moment of its transition.
    Exact,
    /// A record carries the time of the snapshot that showed the transition
    /// (Phalen 1994, Table 6), and what came before lies at most so long ago.
    Snapshots { every: Duration },
    /// The same, with the footnote of Table 6 to the letter: what came before is
    /// the previous *record*, however long ago that was written.
    PreviousRecord,
}

impl Interpretation {
    /// How far apart the snapshots of a boot are; `None` if its records are exact.
    fn interval(self, boot: BootId) -> Option<Duration> {
        match (self, Origin::of(boot)) {
            (Self::Snapshots { every }, _) => Some(every),
            (Self::PreviousRecord, _) => Some(Duration::MAX),
            (Self::AsTaken, Origin::Rwho) => Some(RWHO_INTERVAL),
            (Self::AsTaken, Origin::Agent | Origin::Csv | Origin::Trace | Origin::Generated)
            | (Self::Exact, _) => None,
        }
    }
}

impl FromStr for Interpretation {
    type Err = ParseInterpretationError;

    /// Reads `as-taken`, `exact`, `snapshots` (three minutes apart),
    /// `snapshots:5min` and `previous-record`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseInterpretationError { text: text.to_owned() };
        match text.split_once(':') {
            None if text == "as-taken" => Ok(Self::AsTaken),
            None if text == "exact" => Ok(Self::Exact),
            None if text == "snapshots" => Ok(Self::Snapshots { every: RWHO_INTERVAL }),
            None if text == "previous-record" => Ok(Self::PreviousRecord),
            Some(("snapshots", every)) => {
                Ok(Self::Snapshots { every: parse_duration(every).map_err(|_| wrong())? })
            }
            _ => Err(wrong()),
        }
    }
}

/// As it is read.
impl fmt::Display for Interpretation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsTaken => f.write_str("as-taken"),
            Self::Exact => f.write_str("exact"),
            Self::Snapshots { every } => write!(f, "snapshots:{}", written_duration(*every)),
            Self::PreviousRecord => f.write_str("previous-record"),
        }
    }
}

/// Why a text is not an interpretation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not an interpretation: expected as-taken, exact, snapshots, snapshots:5min or previous-record"
)]
pub struct ParseInterpretationError {
    text: String,
}

/// How the records of one log become periods.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    pub interpretation: Interpretation,
    /// What makes a workstation busy; `None` is what made it so when the
    /// records were written.
    pub criterion: Option<Criterion>,
}

impl From<Interpretation> for Reading {
    fn from(interpretation: Interpretation) -> Self {
        Self { interpretation, criterion: None }
    }
}

/// How the logs of several workstations are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    pub all: Reading,
    /// Logs that are to be understood otherwise, by the workstation's name.
    pub logs: BTreeMap<String, Interpretation>,
}

impl Readings {
    pub fn of(&self, workstation: &str) -> Reading {
        let interpretation = self.logs.get(workstation).copied();
        let interpretation = interpretation.unwrap_or(self.all.interpretation);
        Reading { interpretation, ..self.all }
    }
}

impl<R: Into<Reading>> From<R> for Readings {
    fn from(all: R) -> Self {
        Self { all: all.into(), logs: BTreeMap::new() }
    }
}

gleaner_common::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum PeriodState {
        Idle = "idle",
        Busy = "busy",
        Unknown = "unknown",
    }
}

/// A stretch in one state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    pub state: PeriodState,
    pub start: WallTime,
    pub duration: Duration,
    /// What began it; `None` if it began because nothing was known.
    pub cause: Option<Cause>,
    /// Cores free of the owner when it began.
    pub slots: u16,
    /// The owner's one-minute load, as the record says that began it; 0 where nothing
    /// is known.
    pub load_1m: f32,
    /// How far the start may be off either way.
    pub margin: Duration,
}

impl Period {
    pub fn end(&self) -> WallTime {
        moved_by(self.start, self.duration)
    }
}

/// What was strange about a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The wall clock was set between two records.
    ClockSet { at: WallTime, by_ns: i64 },
    /// Records `after + 1` to `before - 1` of a life are not in the log.
    Missing { at: WallTime, life: SpoolLife, after: u64, before: u64 },
    /// The workstation stopped without saying so.
    BrokeOff { at: WallTime },
    /// Two boots say something of the same time; the earlier one is believed.
    Overlap { at: WallTime, by: Duration },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockSet { at, by_ns } => {
                let way = if *by_ns < 0 { "back" } else { "forward" };
                let by = Spoken(Duration::from_nanos(by_ns.unsigned_abs()));
                write!(f, "{}: the wall clock was set {way} by {by}", spoken_time(*at))
            }
            Self::Missing { at, life, after, before } => {
                let missing = before.saturating_sub(*after).saturating_sub(1);
                let at = spoken_time(*at);
                write!(
                    f,
                    "{at}: {missing} records are missing between {after} and {before} of life {life}"
                )
            }
            Self::BrokeOff { at } => {
                write!(f, "{}: records break off without a FINISH", spoken_time(*at))
            }
            Self::Overlap { at, by } => {
                write!(f, "{}: two boots overlap by {}", spoken_time(*at), Spoken(*by))
            }
        }
    }
}

/// What interpretation needs of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    pub life: SpoolLife,
    pub boot: BootId,
    pub sequence: u64,
    pub at: WallTime,
    pub since_boot: Duration,
    pub cause: Cause,
    pub load_1m: f32,
    pub input_idle: Option<Duration>,
    pub slots: u16,
}

impl Observed {
    pub(crate) fn of(life: SpoolLife, record: &Numbered<'_>) -> Self {
        Self {
            life,
            boot: record.boot,
            sequence: record.sequence,
            at: record.at,
            since_boot: record.since_boot,
            cause: record.cause,
            load_1m: record.load.one,
            input_idle: record.input_idle,
            slots: record.slots,
        }
    }

    /// Stands behind the last number that a life gave out, where that one's record is
    /// missing: from the last record there is until then, and from then on, nothing is
    /// known.
    pub(crate) fn behind(account: &LifeAccount) -> Self {
        Self {
            life: account.life,
            boot: account.boot,
            sequence: account.given.saturating_add(1),
            at: account.at,
            since_boot: account.since_boot,
            cause: Cause::Finish,
            load_1m: 0.0,
            input_idle: None,
            slots: 0,
        }
    }
}

impl From<&UsageRecord> for Observed {
    fn from(record: &UsageRecord) -> Self {
        Self {
            life: record.life,
            boot: record.boot,
            sequence: record.sequence,
            at: record.at,
            since_boot: record.since_boot,
            cause: record.cause,
            load_1m: record.load.one,
            input_idle: record.input_idle,
            slots: record.slots,
        }
    }
}

impl From<UsageRecord> for Observed {
    fn from(record: UsageRecord) -> Self {
        Self::from(&record)
    }
}

/// A log, interpreted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// The periods one after the other; neighbours differ in state, or there was
    /// a reboot between them.
    pub periods: Vec<Period>,
    /// The state after the last record, whose end is not known yet.
    pub open: Option<(PeriodState, WallTime)>,
    pub notes: Vec<Note>,
    /// The time that another criterion cannot decide; nothing under the
    /// recorded one.
    pub unsure: Unsure,
}

/// Interprets the records of one workstation, in whatever order they came.
pub fn interpret(
    records: impl IntoIterator<Item = impl Into<Observed>>,
    reading: impl Into<Reading>,
) -> Timeline {
    let Reading { interpretation, criterion } = reading.into();
    let mut records: Vec<Observed> = records.into_iter().map(Into::into).collect();
    records.sort_unstable_by_key(|record| (record.boot, record.life, record.sequence));
    records.dedup_by_key(|record| (record.boot, record.life, record.sequence));
    let (mut notes, mut unsure) = (vec![], Unsure::default());
    let mut boots: Vec<Vec<Fact>> = vec![];
    for boot in records.chunk_by(|a, b| a.boot == b.boot) {
        let mut facts = on_one_clock(&one_after_another(boot), &mut notes);
        let interval = interpretation.interval(boot[0].boot);
        if let Some(criterion) = criterion {
            facts = criterion.judge(&facts, interval.is_some(), &mut unsure);
        }
        boots.push(match interval {
            Some(every) => snapshots::estimate(&facts, every),
            None => facts,
        });
    }
    boots.sort_by_key(|boot| boot.first().map(|fact| fact.at));
    let mut builder = TimelineBuilder {
        timeline: Timeline { notes, unsure, ..Timeline::default() },
        believed_until: None,
        is_new_boot: false,
    };
    for facts in &boots {
        builder.add_boot(facts);
    }
    builder.timeline.notes.sort_by_key(Note::at);
    builder.timeline
}

impl Note {
    fn at(&self) -> WallTime {
        match self {
            Self::ClockSet { at, .. }
            | Self::Missing { at, .. }
            | Self::BrokeOff { at }
            | Self::Overlap { at, .. } => *at,
        }
    }
}

/// The records of a boot, its lives in the order in which they began.
fn one_after_another(boot: &[Observed]) -> Cow<'_, [Observed]> {
    let mut lives: Vec<&[Observed]> = boot.chunk_by(|a, b| a.life == b.life).collect();
    if lives.len() == 1 {
        return boot.into();
    }
    lives.sort_by_key(|life| life.first().map(|record| record.since_boot));
    lives.concat().into()
}

/// A record, on a wall clock that does not jump.
#[derive(Clone, Copy, Debug)]
struct Fact {
    at: WallTime,
    cause: Cause,
    slots: u16,
    load_1m: f32,
    input_idle: Option<Duration>,
    margin: Duration,
    /// Records before this one are not in the log.
    after_a_hole: bool,
    /// Until the next record, by the machine's own clock; zero for the last.
    lasted: Duration,
}

/// Puts the records of a boot on the wall clock as it was last set: a machine
/// often boots with a wrong clock and then learns the right time, so what
/// came before is moved to fit what came after.
fn on_one_clock(records: &[Observed], notes: &mut Vec<Note>) -> Vec<Fact> {
    let mut shift_ns = 0_i64;
    let mut facts = vec![];
    let mut next: Option<&Observed> = None;
    for (position, record) in records.iter().enumerate().rev() {
        let mut lasted = Duration::ZERO;
        if let Some(next) = next {
            // A record whose own clock runs backwards has only its wall clock.
            lasted =
                next.since_boot.checked_sub(record.since_boot).unwrap_or(next.at.since(record.at));
            // No peer's number may overflow a sum: 292 years are enough.
            let lasted_ns = i64::try_from(lasted.as_nanos()).unwrap_or(i64::MAX);
            lasted = Duration::from_nanos(lasted_ns.unsigned_abs());
            let step_ns = next.at.0.saturating_sub(record.at.0).saturating_sub(lasted_ns);
            if Duration::from_nanos(step_ns.unsigned_abs()) >= CLOCK_STEP_MIN {
                notes.push(Note::ClockSet { at: next.at, by_ns: step_ns });
                shift_ns = shift_ns.saturating_add(step_ns);
            }
        }
        let previous = position.checked_sub(1).map(|before| &records[before]);
        let before = previous.filter(|p| p.life == record.life).map_or(0, |p| p.sequence);
        let at = WallTime(record.at.0.saturating_add(shift_ns));
        let after_a_hole = record.sequence != before.saturating_add(1);
        if after_a_hole {
            let (life, before, after) = (record.life, record.sequence, before);
            notes.push(Note::Missing { at, life, after, before });
        }
        facts.push(Fact {
            at,
            cause: record.cause,
            slots: record.slots,
            load_1m: record.load_1m,
            input_idle: record.input_idle,
            margin: Duration::ZERO,
            after_a_hole,
            lasted,
        });
        next = Some(record);
    }
    facts.reverse();
    facts
}

/// Builds a timeline out of boots, in order.
struct TimelineBuilder {
    timeline: Timeline,
    /// Up to when another boot's records are believed already.
    believed_until: Option<WallTime>,
    /// Nothing of this boot has been told yet: whatever was before it is over.
    is_new_boot: bool,
}

impl TimelineBuilder {
    fn add_boot(&mut self, facts: &[Fact]) {
        let (Some(first), Some(last)) = (facts.first(), facts.last()) else { return };
        self.close_before(first.at);
        // Where two boots overlap, which of them went on is not known.
        self.is_new_boot = self.believed_until.is_none_or(|until| until <= first.at);
        for pair in facts.windows(2) {
            let (fact, next) = (&pair[0], &pair[1]);
            let broke_off = next.cause == Cause::Start && fact.cause != Cause::Finish;
            if broke_off {
                self.timeline.notes.push(Note::BrokeOff { at: fact.at });
            }
            let known = !broke_off && !next.after_a_hole;
            self.push(Period {
                state: if known { state_of(fact.cause) } else { PeriodState::Unknown },
                start: fact.at,
                duration: fact.lasted,
                cause: known.then_some(fact.cause),
                slots: fact.slots,
                load_1m: fact.load_1m,
                margin: fact.margin,
            });
        }
        let state = state_of(last.cause);
        self.timeline.open = Some((state, last.at));
    }

    /// What lies between the last record of the boots so far and the first of
    /// the next boot.
    fn close_before(&mut self, next: WallTime) {
        let Some((state, since)) = self.timeline.open.take() else { return };
        if state != PeriodState::Unknown {
            self.timeline.notes.push(Note::BrokeOff { at: since });
        }
        if next < since {
            self.timeline.notes.push(Note::Overlap { at: next, by: since.since(next) });
            self.believed_until = Some(since);
        } else {
            self.push(Period {
                state: PeriodState::Unknown,
                start: since,
                duration: next.since(since),
                cause: None,
                slots: 0,
                load_1m: 0.0,
                margin: Duration::ZERO,
            });
        }
    }

    fn push(&mut self, mut period: Period) {
        if let Some(believed_until) =
            self.believed_until.filter(|believed_until| period.start < *believed_until)
        {
            let told = believed_until.since(period.start);
            period.duration = period.duration.saturating_sub(told);
            period.start = believed_until;
        }
        if period.duration.is_zero() {
            return;
        }
        if period.state == PeriodState::Unknown {
            (period.cause, period.slots, period.load_1m) = (None, 0, 0.0);
        }
        let is_new_boot = std::mem::take(&mut self.is_new_boot);
        match self.timeline.periods.last_mut() {
            Some(last) if last.state == period.state && !(is_new_boot && ends_at_boot(last)) => {
                last.duration += period.duration;
            }
            _ => self.timeline.periods.push(period),
        }
    }
}

/// An idle period ends with the guests that a reboot kills; an owner who restarts
/// is here all the time.
fn ends_at_boot(period: &Period) -> bool {
    period.state == PeriodState::Idle
}

fn moved_by(at: WallTime, by: Duration) -> WallTime {
    let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
    WallTime(at.0.saturating_add(nanos))
}

fn state_of(cause: Cause) -> PeriodState {
    match cause.says_busy() {
        Some(true) => PeriodState::Busy,
        Some(false) => PeriodState::Idle,
        None => PeriodState::Unknown,
    }
}

#[cfg(test)]
mod tests;
