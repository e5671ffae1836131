//! Another idle criterion than the recorded one, applied afterwards.
//!
//! Source: Phalen 1994, §5: LOAD and CHANGE records are kept because "future
//! work may decide on a different definition of idle", or look at "only TTY
//! activity or only load levels".
//!
//! A log holds changes, not measurements, so not every criterion can be read
//! from it. What a log says of the time between two records:
//!
//! - The load of a busy workstation is within a tenth of what the last record
//!   holds, or else a CHANGE would stand there; but a load that fell under the
//!   recorded criterion while somebody typed left none.
//! - The load of an idle workstation was under the recorded criterion, and no
//!   more is known: a *lower* threshold can be judged at the records only.
//! - Every record tells the last input before it, so quiet periods can be
//!   made longer; input while the load kept a workstation busy left no
//!   record of its own, but for the last.
//!
//! Unsure means busy, but for a lower threshold, where it would leave nothing
//! idle: there the record before a stretch decides for all of it. How much
//! time was so decided is counted in [`Unsure`] and said.

use std::fmt;
use std::time::Duration;

use gleaner_common::time::Spoken;
use gleaner_common::usage::Cause;

use super::{Fact, moved_by};

/// The load from which records say busy, unless an agent is configured
/// otherwise. Source: Phalen 1994, §5.
pub(crate) const RECORDED_LOAD: f32 = 0.25;

/// How long after the last input records say idle, likewise, and what the
/// agent's sensors add to it (a quarter of a second, and the time to wake).
/// Source: Phalen 1994, Table 5: "in the last minute".
const RECORDED_QUIET: Duration = Duration::from_secs(60);
const QUIET_LATE_MAX: Duration = Duration::from_secs(2);

/// What makes a workstation busy. With neither it never is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    /// A one-minute load average of this or more; `None`: no load does.
    pub load_max: Option<f32>,
    /// Input, and for so long after it; `None`: no input does.
    pub tty: Option<Duration>,
}

impl Default for Criterion {
    /// The recorded one.
    fn default() -> Self {
        Self { load_max: Some(RECORDED_LOAD), tty: Some(RECORDED_QUIET) }
    }
}

/// Time for which the records do not tell what a criterion asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsure {
    /// Time that is idle by the records, judged by the load of the record before:
    /// a load under the recorded criterion left no further record.
    pub low_load: Duration,
    /// Time that is taken as busy up to its last input: what came before that left no record.
    pub input: Duration,
    /// Time that is taken as loaded to its end: under input, a load that fell under the
    /// recorded criterion left no record.
    pub fallen_load: Duration,
}

impl Unsure {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// One line for people, if there is something.
    pub fn note(&self) -> Option<String> {
        (!self.is_nothing()).then(|| self.to_string())
    }

    pub fn add(&mut self, other: Self) {
        self.low_load = self.low_load.saturating_add(other.low_load);
        self.input = self.input.saturating_add(other.input);
        self.fallen_load = self.fallen_load.saturating_add(other.fallen_load);
    }
}

impl fmt::Display for Unsure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.low_load, "idle in the log, judged by the last record's load alone"),
            (self.input, "taken as busy up to the last input, because earlier input is not told"),
            (
                self.fallen_load,
                "taken as loaded to the next record, though the load may have fallen",
            ),
        ];
        let said = parts.iter().filter(|(time, _)| !time.is_zero());
        for (place, (time, what)) in said.enumerate() {
            let comma =
                if place == 0 { "the log does not tell this criterion wholly: " } else { "; " };
            write!(f, "{comma}{} {what}", Spoken(*time))?;
        }
        Ok(())
    }
}

/// Until when the owner counts as present after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Absent,
    /// The owner is present for so long after the record.
    For(Duration),
    Throughout,
}

impl Criterion {
    /// The facts of a boot, with causes as this criterion would have written
    /// them. Between snapshots, no later stage may move a transition that is
    /// exact already: Table 6 is applied to what comes out of here.
    pub(super) fn judge(
        self,
        facts: &[Fact],
        are_snapshots: bool,
        unsure: &mut Unsure,
    ) -> Vec<Fact> {
        let mut judged = Vec::with_capacity(facts.len());
        for (place, fact) in facts.iter().enumerate() {
            // What lies before a hole or a START is unknown, whatever was there.
            let next = facts
                .get(place + 1)
                .filter(|next| !next.after_a_hole && next.cause != Cause::Start);
            let lasted = next.map_or(Duration::ZERO, |_| fact.lasted);
            let Some(was_busy) = fact.cause.says_busy() else {
                judged.push(*fact);
                continue;
            };
            if !was_busy && self.load_max.is_some_and(|max| max < RECORDED_LOAD) {
                unsure.low_load = unsure.low_load.saturating_add(lasted);
            }
            let presence = match self.tty {
                Some(quiet) if was_busy => present(fact, next, quiet, are_snapshots),
                Some(quiet) => after_input(fact, quiet),
                None => Presence::Absent,
            };
            if self.is_loaded(fact) {
                let typed = presence != Presence::Absent;
                let cause = if typed { Cause::Both } else { Cause::Load };
                judged.push(Fact { cause, ..*fact });
                if was_busy && presence != Presence::Throughout && is_touched(fact, next) {
                    unsure.fallen_load = unsure.fallen_load.saturating_add(lasted);
                }
                continue;
            }
            if was_busy && self.tty.is_some() && is_held_by_load(fact) {
                unsure.input = unsure.input.saturating_add(untold_input(fact, next));
            }
            push(&mut judged, fact, next, presence);
        }
        judged
    }

    /// An agent says LOAD at a sudden rise, before the average shows it.
    fn is_loaded(self, fact: &Fact) -> bool {
        let said = matches!(fact.cause, Cause::Load | Cause::Both | Cause::Change);
        self.load_max.is_some_and(|max| fact.load_1m >= max || said && max <= RECORDED_LOAD)
    }
}

/// Writes what a record comes to: busy, idle, or busy and then idle.
fn push(judged: &mut Vec<Fact>, fact: &Fact, next: Option<&Fact>, presence: Presence) {
    let idle = Fact { cause: Cause::Idle, slots: fact.slots.max(1), ..*fact };
    let busy = Fact { cause: Cause::Tty, ..*fact };
    match presence {
        Presence::Absent => judged.push(idle),
        Presence::For(left) if next.is_some() && left < fact.lasted => {
            judged.push(Fact { lasted: left, ..busy });
            judged.push(Fact {
                at: moved_by(fact.at, left),
                lasted: fact.lasted.saturating_sub(left),
                input_idle: fact.input_idle.map(|idle| idle.saturating_add(left)),
                after_a_hole: false,
                ..idle
            });
        }
        Presence::For(_) | Presence::Throughout => judged.push(busy),
    }
}

/// After a record that said idle there was no input up to the next.
fn after_input(fact: &Fact, quiet: Duration) -> Presence {
    match fact.input_idle.and_then(|idle| quiet.checked_sub(idle)) {
        Some(left) if !left.is_zero() => Presence::For(left),
        _ => Presence::Absent,
    }
}

/// After a record that said busy.
fn present(fact: &Fact, next: Option<&Fact>, quiet: Duration, are_snapshots: bool) -> Presence {
    if !is_held_by_load(fact) {
        // The owner's doing, and not always input: a film, a session. Only
        // where the quiet period ended it, another one ends it elsewhere;
        // between snapshots, Table 6 finds the end.
        let idle = next.filter(|next| next.cause == Cause::Idle).and_then(|next| next.input_idle);
        return match idle {
            Some(idle) if idle <= RECORDED_QUIET + QUIET_LATE_MAX && !are_snapshots => {
                Presence::For(fact.lasted.saturating_sub(idle).saturating_add(quiet))
            }
            _ => Presence::Throughout,
        };
    }
    let said = matches!(fact.cause, Cause::Tty | Cause::Both);
    match last_input(fact, next) {
        Some(at) => Presence::For(at.saturating_add(quiet)),
        None if said && fact.input_idle.is_none_or(|idle| idle >= quiet) => Presence::Throughout,
        None => after_input(fact, quiet),
    }
}

/// Did the load alone suffice to keep it busy?
fn is_held_by_load(fact: &Fact) -> bool {
    fact.load_1m >= RECORDED_LOAD || fact.cause == Cause::Load
}

/// The last input after a record and before the next, from the record on.
fn last_input(fact: &Fact, next: Option<&Fact>) -> Option<Duration> {
    let idle = next?.input_idle?;
    fact.lasted.checked_sub(idle).filter(|at| !at.is_zero())
}

fn is_touched(fact: &Fact, next: Option<&Fact>) -> bool {
    matches!(fact.cause, Cause::Tty | Cause::Both) || last_input(fact, next).is_some()
}

/// How long before the last input nobody knows of any.
fn untold_input(fact: &Fact, next: Option<&Fact>) -> Duration {
    last_input(fact, next).unwrap_or_default()
}

#[cfg(test)]
mod tests;
