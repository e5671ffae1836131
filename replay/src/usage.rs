//! When the owners of many workstations were there, ready to be cut into labs.
//!
//! The promise: a workstation is idle only where its log says so; unknown
//! time counts as busy.

use std::collections::BTreeMap;

use gleaner_collector::timeline::{PeriodState, Timeline};
use gleaner_common::time::WallTime;

/// The collected past of all workstations, in flat arrays.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    names: Vec<String>,
    /// Where each workstation's changes begin; one more than workstations.
    first: Vec<usize>,
    /// Whether each workstation was idle at its first change; it flips at each.
    idle_at_first: Vec<bool>,
    /// When something is last known of each.
    known_until: Vec<i64>,
    /// Nanoseconds of the wall clock.
    changes: Vec<i64>,
    /// The owner's load after each change, as the record of it says.
    loads: Vec<f32>,
    /// How fast each workstation is; 0 if nobody has said.
    speeds: Vec<f32>,
}

/// One workstation of a [`Usage`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct History<'a> {
    /// When the state changed, in wall nanoseconds; the first is when the log
    /// begins.
    pub(crate) changes: &'a [i64],
    /// The owner's load after each of them.
    pub(crate) loads: &'a [f32],
    /// Idle after the first change, busy after the second, ..: or the reverse.
    pub(crate) idle_at_first: bool,
    /// When something is last known.
    pub(crate) known_until: i64,
    /// 0 if nobody has said.
    pub(crate) speed: f32,
}

impl History<'_> {
    /// Whether the workstation is idle after the change at this position.
    pub(crate) fn is_idle_after(&self, position: usize) -> bool {
        self.idle_at_first == position.is_multiple_of(2)
    }
}

impl Usage {
    /// Takes timelines in the order in which labs shall choose among them.
    pub fn from_timelines(timelines: impl IntoIterator<Item = (String, Timeline)>) -> Self {
        let mut usage = Self { first: vec![0], ..Self::default() };
        for (name, timeline) in timelines {
            usage.push(name, &timeline);
        }
        usage
    }

    /// Takes one more timeline, the last to choose among.
    pub fn push(&mut self, name: String, timeline: &Timeline) {
        let from = self.changes.len();
        let mut idle = None;
        for period in &timeline.periods {
            let now = period.state == PeriodState::Idle;
            // Two of them one after the other are parted by a reboot, which is as if the
            // owner had come for a moment.
            let changes = match idle {
                Some(true) if now => 2,
                before => usize::from(before != Some(now)),
            };
            self.changes.extend(std::iter::repeat_n(period.start.0, changes));
            self.loads.extend(std::iter::repeat_n(period.load_1m, changes));
            idle = Some(now);
        }
        self.idle_at_first
            .push(timeline.periods.first().is_some_and(|p| p.state == PeriodState::Idle));
        self.known_until.push(timeline.periods.last().map_or(i64::MIN, |last| last.end().0));
        debug_assert!(self.changes[from..].is_sorted(), "a timeline's periods are in order");
        self.first.push(self.changes.len());
        self.names.push(name);
        self.speeds.push(0.0);
    }

    /// Says how fast workstations are, by name, in whatever unit: those that are not
    /// among them count as never measured.
    pub fn know_speeds(&mut self, speeds: &BTreeMap<String, f32>) {
        for (name, speed) in self.names.iter().zip(&mut self.speeds) {
            *speed = speeds.get(name).copied().unwrap_or(0.0);
        }
    }

    /// What the `ranked` policy looks at and is not known, one line each: it then
    /// takes all workstations for alike in that.
    pub fn ranked_lacks(&self) -> Vec<String> {
        let is_told = |figures: &[f32]| figures.iter().any(|figure| *figure > 0.0);
        let mut lines = vec![];
        if !is_told(&self.loads) {
            lines.push(
                "the usage log tells no load: `ranked` takes all as equally loaded".to_owned(),
            );
        }
        let measured = self.speeds.iter().filter(|speed| **speed > 0.0).count();
        if measured < self.workstations() {
            let all = self.workstations();
            lines.push(format!(
                "the speed of {measured} of {all} workstations is known (usage.machines): `ranked` \
                 takes the rest for the slowest"
            ));
        }
        lines
    }

    pub fn workstations(&self) -> usize {
        self.names.len()
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn past(&self, workstation: usize) -> History<'_> {
        History {
            changes: &self.changes[self.first[workstation]..self.first[workstation + 1]],
            loads: &self.loads[self.first[workstation]..self.first[workstation + 1]],
            idle_at_first: self.idle_at_first[workstation],
            known_until: self.known_until[workstation],
            speed: self.speeds[workstation],
        }
    }

    /// From the first that is known of any workstation to the last; `None` if
    /// nothing is.
    pub fn span(&self) -> Option<(WallTime, WallTime)> {
        let begins = (0..self.workstations()).filter_map(|w| self.past(w).changes.first());
        let ends = self.known_until.iter().filter(|until| **until != i64::MIN);
        Some((WallTime(*begins.min()?), WallTime(*ends.max()?)))
    }
}
