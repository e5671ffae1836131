//! The workstations of one execution, and when their owners come and go.
//!
//! Source: Phalen 1994, §5.1: "A workstation was not used if there had not
//! been a transition prior to the start of the time segment, and a transition
//! after the end of the time segment", chosen in "the order that their data
//! files were read".

use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_coordinator_core::outlook::{Common, Outlook};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::usage::{History, Usage};

/// No change is known to come.
pub(crate) const NEVER: u64 = u64::MAX;

/// Which workstations, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    pub start: WallTime,
    pub span: Duration,
    pub count: u32,
    pub order: Order,
}

/// Which of the eligible workstations are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first ones, as the logs were read.
    AsRead,
    /// A random choice, the same for the same seed.
    Shuffled { seed: u64 },
}

/// What a policy may look at of a made-up workstation, beside its owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// 0 if it was never measured.
    pub speed: f32,
    /// The owner's load from the start on, and after each of the owner's changes; 0
    /// after the last one here.
    pub loads: Vec<f32>,
}

/// Why a lab cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "only {eligible} workstations have a transition before and one after the period: expected {wanted}"
)]
pub struct SelectError {
    pub eligible: u32,
    pub wanted: u32,
}

/// One workstation of a made-up lab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Whether the workstation is idle at the start of the period.
    pub idle: bool,
    /// How long before the start that began.
    pub since: Duration,
    /// When that changes, from the start: each after the one before.
    pub changes: Vec<Duration>,
}

/// Workstations and their transitions, in nanoseconds from the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Lab {
    /// When the period begins; the epoch of a made-up lab.
    pub(crate) start: WallTime,
    /// What was known of the workstations by then, if anybody may ask.
    pub(crate) learned: Option<Box<Learned>>,
    /// The workstations' numbers in the [`Usage`].
    pub(crate) chosen: Vec<u32>,
    /// When the period ends.
    pub(crate) end: u64,
    pub(crate) starts: Vec<WorkstationStart>,
    /// The transitions, by time, then by workstation.
    pub(crate) transitions: Vec<Transition>,
}

/// What was known of a lab's workstations when its period began.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Learned {
    pub(crate) common: Common,
    pub(crate) outlooks: Vec<Outlook>,
}

/// How a workstation is at the start of the period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WorkstationStart {
    pub(crate) idle: bool,
    /// How long the workstation has been so.
    pub(crate) since: u64,
    /// When the workstation changes, perhaps after the period.
    pub(crate) until: u64,
    /// The owner's load then.
    pub(crate) load_1m: f32,
    /// 0 if it was never measured.
    pub(crate) speed: f32,
}

/// A workstation turns busy or idle, after the start and before the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Transition {
    pub(crate) at: u64,
    /// When the workstation changes again, perhaps after the period.
    pub(crate) until: u64,
    pub(crate) workstation: u32,
    /// The owner's load from then on.
    pub(crate) load_1m: f32,
    pub(crate) busy: bool,
}

impl Lab {
    /// Takes workstations of a usage log for a period (§5.1's rule).
    ///
    /// # Errors
    /// If too few of them are eligible.
    pub fn select(usage: &Usage, selection: &Selection) -> Result<Self, SelectError> {
        let (from, span) = (selection.start.0, nanos(selection.span));
        let to = from.saturating_add_unsigned(span);
        let eligible = |past: History<'_>| {
            past.changes.first().is_some_and(|first| *first <= from) && past.known_until >= to
        };
        let mut chosen: Vec<u32> = (0..)
            .zip(0..usage.workstations())
            .filter(|(_, w)| eligible(usage.past(*w)))
            .map(|(id, _)| id)
            .collect();
        if let Order::Shuffled { seed } = selection.order {
            chosen.shuffle(&mut StdRng::seed_from_u64(seed));
        }
        let found = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        if found < selection.count {
            return Err(SelectError { eligible: found, wanted: selection.count });
        }
        chosen.truncate(selection.count as usize);
        let mut lab = Self::empty(span, chosen.len());
        for &id in &chosen {
            lab.cut(usage.past(id as usize), from);
        }
        (lab.start, lab.chosen) = (selection.start, chosen);
        lab.sort();
        Ok(lab)
    }

    /// A made-up lab.
    pub fn of_owners(owners: &[Owner], span: Duration) -> Self {
        let mut lab = Self::empty(nanos(span), owners.len());
        for owner in owners {
            let changes = owner.changes.iter().map(|at| (nanos(*at), 0.0));
            lab.add(owner.idle, nanos(owner.since), changes);
        }
        lab.chosen = (0..).take(owners.len()).collect();
        lab.sort();
        lab
    }

    /// A lab without owners.
    pub fn always_idle(count: u32, span: Duration) -> Self {
        let owner = Owner { idle: true, ..Owner::default() };
        Self::of_owners(&vec![owner; count as usize], span)
    }

    /// The same lab on these machines.
    #[must_use]
    pub fn with_machines(mut self, machines: &[Machine]) -> Self {
        let load = |machine: &Machine, change: usize| {
            machine.loads.get(change).copied().unwrap_or_default()
        };
        for (start, machine) in self.starts.iter_mut().zip(machines) {
            (start.speed, start.load_1m) = (machine.speed, load(machine, 0));
        }
        let mut changes = vec![0; machines.len()];
        for one in &mut self.transitions {
            let workstation = one.workstation as usize;
            if let Some(machine) = machines.get(workstation) {
                changes[workstation] += 1;
                one.load_1m = load(machine, changes[workstation]);
            }
        }
        self
    }

    fn empty(end: u64, workstations: usize) -> Self {
        let starts = Vec::with_capacity(workstations);
        let start = WallTime::default();
        Self { start, learned: None, chosen: vec![], end, starts, transitions: vec![] }
    }

    /// Adds what a usage log knows of a workstation from a moment on.
    fn cut(&mut self, past: History<'_>, from: i64) {
        // The workstation is eligible: its first change is not after the start.
        let after = past.changes.partition_point(|at| *at <= from);
        let begun = past.changes[after - 1];
        // One more change than the log holds: nothing is known any more.
        let last = past.is_idle_after(past.changes.len() - 1);
        let of_log = past.changes[after..].iter().copied().zip(past.loads[after..].iter().copied());
        let later = of_log.chain(last.then_some((past.known_until, 0.0)));
        let changes = later.map(|(at, load)| (at.saturating_sub(from).unsigned_abs(), load));
        self.add(past.is_idle_after(after - 1), from.abs_diff(begun), changes);
        if let Some(start) = self.starts.last_mut() {
            (start.load_1m, start.speed) = (past.loads[after - 1], past.speed);
        }
    }

    fn add(&mut self, idle: bool, since: u64, changes: impl Iterator<Item = (u64, f32)>) {
        let workstation = u32::try_from(self.starts.len()).unwrap_or(u32::MAX);
        let mut changes = changes.peekable();
        self.starts.push(WorkstationStart {
            idle,
            since,
            until: changes.peek().map_or(NEVER, |change| change.0),
            ..WorkstationStart::default()
        });
        let mut busy = idle;
        while let Some((at, load_1m)) = changes.next() {
            if at >= self.end {
                break;
            }
            let until = changes.peek().map_or(NEVER, |change| change.0);
            self.transitions.push(Transition { at, until, workstation, load_1m, busy });
            busy = !busy;
        }
    }

    fn sort(&mut self) {
        // Who comes and goes at one moment comes first.
        self.transitions.sort_unstable_by_key(|one| (one.at, one.workstation, !one.busy));
    }

    pub fn workstations(&self) -> usize {
        self.starts.len()
    }

    /// The number of a workstation in the usage log that it was taken from.
    pub fn origin(&self, workstation: u32) -> u32 {
        self.chosen[workstation as usize]
    }

    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.end)
    }

    /// Each workstation's busy periods, clipped to the lab's.
    pub fn busy_periods(&self) -> Vec<Vec<(Duration, Duration)>> {
        let clip = |at: u64| Duration::from_nanos(at.min(self.end));
        let mut periods: Vec<Vec<(Duration, Duration)>> = self
            .starts
            .iter()
            .map(
                |start| if start.idle { vec![] } else { vec![(Duration::ZERO, clip(start.until))] },
            )
            .collect();
        for one in self.transitions.iter().filter(|one| one.busy) {
            periods[one.workstation as usize].push((clip(one.at), clip(one.until)));
        }
        periods
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
