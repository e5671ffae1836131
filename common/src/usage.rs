//! Usage records: what a workstation's agent says of its owner's comings and
//! goings, and what the collector keeps for ever.
//!
//! Source: Phalen 1994, §5, Tables 4 (the record) and 5 (the categories).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{BootId, SpoolLife};
use crate::time::WallTime;

/// The longest reason a record may carry, in bytes.
pub const REASON_BYTES_MAX: usize = 200;

crate::named! {
    /// Why a record was written: the category of a transition.
    ///
    /// Source: Phalen 1994, Table 5.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "UPPERCASE")]
    pub enum Cause {
        /// The one-minute load average exceeded the idle criterion.
        Load = "LOAD",
        /// Idle to busy because of activity at a terminal, keyboard or session.
        Tty = "TTY",
        /// Idle to busy because of both load and terminal activity.
        Both = "BOTH",
        /// The load changed by more than a tenth and exceeds the idle criterion;
        /// the workstation was and stays busy.
        Change = "CHANGE",
        /// No activity in the quiet period, and the load under the criterion.
        Idle = "IDLE",
        /// The workstation began to provide records.
        Start = "START",
        /// The workstation stopped providing records.
        Finish = "FINISH",
    }
}

impl Cause {
    /// Does a record of this cause identify a busy period? `BOTH`, `TTY`,
    /// `LOAD` and `CHANGE` do, `IDLE` an idle one; `START` and `FINISH` say
    /// nothing of the owner (Phalen 1994, §5.1).
    pub fn says_busy(self) -> Option<bool> {
        match self {
            Self::Load | Self::Tty | Self::Both | Self::Change => Some(true),
            Self::Idle => Some(false),
            Self::Start | Self::Finish => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Average number of runnable and uninterruptible tasks over the last one,
/// five and fifteen minutes, without the guests'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadAverages {
    pub one: f32,
    pub five: f32,
    pub fifteen: f32,
}

impl LoadAverages {
    /// A load is a number from 0 on; who says another one is not believed.
    pub fn is_possible(load: f32) -> bool {
        load.is_finite() && load >= 0.0
    }

    /// Are all three possible?
    pub fn are_possible(self) -> bool {
        [self.one, self.five, self.fifteen].into_iter().all(Self::is_possible)
    }
}

/// One transition of a workstation (Phalen 1994, Table 4), and beside her
/// fields what exact replay needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// With the workstation and `sequence`, what the record is known by.
    pub life: SpoolLife,
    pub boot: BootId,
    /// 1, 2, .. within a life. Where one is missing, a record was lost.
    pub sequence: u64,
    pub at: WallTime,
    /// Time since the machine's boot, sleep included. It never jumps: where
    /// it disagrees with `at`, the wall clock was set.
    pub since_boot: Duration,
    pub cause: Cause,
    pub load: LoadAverages,
    pub users: u32,
    /// The shortest time since any terminal, keyboard or pointer was used;
    /// `None` when none has been seen in use yet.
    pub input_idle: Option<Duration>,
    /// Cores free of the owner (the analogue view).
    pub slots: u16,
    /// For people: "pts/3, 0.0 s ago". At most [`REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

/// What a spool says of one of its lives: what the collector should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeAccount {
    pub life: SpoolLife,
    pub boot: BootId,
    /// Numbers 1 to this one were given out.
    pub given: u64,
    /// No record above this number is on the workstation's disk. Where it is less than
    /// `given`, records may never come.
    pub saved: u64,
    /// So many records were confirmed.
    pub confirmed: u64,
    /// When `given` was given out, by the wall and since the boot.
    pub at: WallTime,
    pub since_boot: Duration,
}

/// What a collector has of a life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeKept {
    pub life: SpoolLife,
    /// So many records.
    pub records: u64,
    /// The highest number.
    pub last: u64,
    /// The numbers, as inclusive ranges in order: the last so many.
    pub ranges: Vec<(u64, u64)>,
}

impl LifeKept {
    /// Is this number among them, as far as is told?
    pub fn contains(&self, sequence: u64) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&sequence))
    }
}
