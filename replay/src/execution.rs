//! What one execution came to.

use std::time::Duration;

/// The outcome of one execution: Phalen 1994, Table 9, and what her §7.2.2 and
/// §8 left to future work.
///
/// Her "percentage slowdown" is this execution against the same one at cost
/// zero: [`Execution::slowdown`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// False if the lab's period ended first. Then `execution` is the time
    /// that there was, the breakdowns are zero and the rest is what had
    /// happened by then.
    pub finished: bool,
    /// From the program's begin to the end of its last rank.
    pub execution: Duration,
    /// How often a workstation turned busy while a rank was there, or was
    /// busy when a rank arrived.
    pub busy_transitions: u32,
    /// Those of them that lie on the critical path.
    pub on_critical_path: u32,
    /// How often a rank moved; its first placement is no move.
    pub moves: u32,
    /// How often a rank found no idle workstation, at its begin or later.
    pub waits: u32,
    /// How many workstations had a rank at some time.
    pub nodes_used: u32,
    /// The mean length of the idle periods, of all workstations of the lab,
    /// that overlap the execution: their whole length, as Phalen's groups of
    /// up to "greater than 60 minutes" for programs of five can only be meant.
    pub average_idle: Duration,
    /// Where the time of the critical path went; adds up to `execution`.
    pub path: Breakdown,
    /// Where the time of the rank that finished last went; adds up to
    /// `execution`.
    pub last_rank: Breakdown,
    /// The rank that finished last; the lowest of several.
    pub last: u32,
    /// Work that was done and kept, summed over ranks.
    pub useful: Duration,
    /// Work that was done and thrown away, summed over ranks.
    pub wasted: Duration,
    /// Idle time of all workstations during the execution, guests or not.
    pub idle_time: Duration,
    /// Time that guests computed on a workstation whose owner was there.
    pub shared_computing: Duration,
    /// Time that guests were frozen, waiting or on their way out on a
    /// workstation whose owner was there.
    pub shared_frozen: Duration,
    /// Transitions and timers that were handled.
    pub events: u64,
}

impl Execution {
    /// Her percentage slowdown, against the same execution at cost zero;
    /// `None` if either did not finish or took no time.
    pub fn slowdown(&self, at_no_cost: &Self) -> Option<f64> {
        let (base, took) = (at_no_cost.execution.as_secs_f64(), self.execution.as_secs_f64());
        (self.finished && at_no_cost.finished && base > 0.0).then(|| 100.0 * (took - base) / base)
    }

    /// The share of the lab's idle time that did useful work.
    pub fn utilisation(&self) -> f64 {
        let idle = self.idle_time.as_secs_f64();
        if idle > 0.0 { self.useful.as_secs_f64() / idle } else { 0.0 }
    }
}

/// Where time went, on the critical path or in one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Work, counted as if it had run alone, once.
    pub compute: Duration,
    /// Work that was done in vain: abandoned and done again.
    pub repeated: Duration,
    /// What work took longer because it ran demoted.
    pub slowed: Duration,
    /// Blocked for a message. On the critical path only what no sender's work
    /// explains: its way through the network, and blocking that ended in a
    /// move instead of a message.
    pub messages: Duration,
    /// Without a workstation, because none was idle.
    pub waiting: Duration,
    /// Frozen under an owner.
    pub frozen: Duration,
    /// On the move: migration, rollback or retreat.
    pub moving: Duration,
}

impl Breakdown {
    /// Phalen 1994, §7.2.2: the time that is neither computation nor migration.
    pub fn blocking(&self) -> Duration {
        self.messages + self.waiting + self.frozen
    }

    pub fn total(&self) -> Duration {
        self.compute + self.repeated + self.slowed + self.blocking() + self.moving
    }
}
