//! What is in a row.

use std::ops::{Index, IndexMut};

gleaner_common::named! {
    /// What names a row's place in the grid, in the order of the columns.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Label {
        Program = "program",
        Policy = "policy",
        OnBusy = "on_busy",
        /// What counts as idle.
        Criterion = "criterion",
        /// Night, morning, afternoon or evening (Phalen 1994, §7.3).
        TimeOfDay = "time_of_day",
    }
}

gleaner_common::named! {
    /// What is counted or timed, in the order of the columns.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Measure {
        /// How many workstations the simulated network has.
        Workstations = "workstations",
        /// Unix seconds.
        PeriodStart = "period_start_s",
        /// From 0 for Monday, on the owners' clock.
        Weekday = "weekday",
        /// On the owners' clock.
        Hour = "hour",
        /// What one move costs (Phalen 1994, Table 9).
        Cost = "cost_ns",
        /// 1, or 0 where the execution was given up: what follows is then as far
        /// as it had come.
        Finished = "finished",
        /// From the period's start to the last rank's end (Table 9).
        Execution = "execution_ns",
        /// The same execution at cost zero; 0 where that one was given up.
        ZeroCost = "zero_cost_ns",
        /// On workstations that are always idle.
        Undisturbed = "undisturbed_ns",
        /// Busy transitions under a rank (Table 9).
        Transitions = "transitions",
        /// Those of them on the critical path (Table 9).
        OnCriticalPath = "on_critical_path",
        Moves = "moves",
        /// How often a rank found no idle workstation.
        Waits = "waits",
        /// Workstations that held a rank at some time (Table 9).
        NodesUsed = "nodes_used",
        /// Mean length of the workstations' idle periods meanwhile (Table 9).
        AverageIdle = "average_idle_ns",
        /// The critical path, in parts that add up to the execution: work, ..
        PathCompute = "path_compute_ns",
        /// .. work done in vain, ..
        PathRepeated = "path_repeated_ns",
        /// .. what it took longer because it ran demoted, ..
        PathSlowed = "path_slowed_ns",
        /// .. blocked, ..
        PathBlocking = "path_blocking_ns",
        /// .. without a workstation, ..
        PathWaiting = "path_waiting_ns",
        /// .. frozen, ..
        PathFrozen = "path_frozen_ns",
        /// .. and on the move.
        PathMoving = "path_moving_ns",
        /// The same of the rank that finished last.
        LastCompute = "last_compute_ns",
        LastRepeated = "last_repeated_ns",
        LastSlowed = "last_slowed_ns",
        LastBlocking = "last_blocking_ns",
        LastWaiting = "last_waiting_ns",
        LastFrozen = "last_frozen_ns",
        LastMoving = "last_moving_ns",
        /// Work that was kept, over all ranks.
        Useful = "useful_ns",
        /// Work that was lost, over all ranks.
        Wasted = "wasted_ns",
        /// Idle time of all workstations during the execution.
        IdleTime = "idle_time_ns",
        /// Time that ranks computed, demoted, beside an owner.
        SharedComputing = "shared_computing_ns",
        /// Time that ranks were frozen, waiting or leaving beside an owner.
        SharedFrozen = "shared_frozen_ns",
    }
}

/// One execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Positions in the [`Legend`].
    pub(crate) labels: [u16; Label::ALL.len()],
    pub(crate) measures: [i64; Measure::ALL.len()],
}

impl Row {
    pub(crate) const EMPTY: Self =
        Self { labels: [0; Label::ALL.len()], measures: [0; Measure::ALL.len()] };

    pub(crate) fn label(&self, label: Label) -> u16 {
        self.labels[label as usize]
    }

    pub(crate) fn finished(&self) -> bool {
        self[Measure::Finished] != 0
    }

    /// By how much longer it took than at cost zero, as a part of that
    /// (Phalen 1994, Table 9, "percentage slowdown"); `None` where either
    /// was given up.
    pub(crate) fn slowdown(&self) -> Option<f64> {
        let zero = self[Measure::ZeroCost];
        (self.finished() && zero > 0)
            .then(|| (self[Measure::Execution] - zero) as f64 / zero as f64)
    }
}

impl Index<Measure> for Row {
    type Output = i64;

    fn index(&self, measure: Measure) -> &i64 {
        &self.measures[measure as usize]
    }
}

impl IndexMut<Measure> for Row {
    fn index_mut(&mut self, measure: Measure) -> &mut i64 {
        &mut self.measures[measure as usize]
    }
}

/// What the labels' positions stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Legend {
    texts: [Vec<String>; Label::ALL.len()],
}

impl Legend {
    pub(crate) fn new(texts: [Vec<String>; Label::ALL.len()]) -> Self {
        Self { texts }
    }

    pub(crate) fn texts(&self, label: Label) -> &[String] {
        &self.texts[label as usize]
    }

    pub(crate) fn text(&self, label: Label, position: u16) -> &str {
        &self.texts[label as usize][usize::from(position)]
    }

    /// The position of a text; a new one is added at the end. `None` when
    /// there are too many to count.
    pub(super) fn position(&mut self, label: Label, text: &str) -> Option<u16> {
        let texts = &mut self.texts[label as usize];
        let found = texts.iter().position(|known| known == text).unwrap_or_else(|| {
            texts.push(text.to_owned());
            texts.len() - 1
        });
        u16::try_from(found).ok()
    }
}
