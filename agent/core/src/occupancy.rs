//! Is the owner here?
//!
//! Turns what the sensors observe into one verdict, busy or idle, and into
//! the transitions of the usage log with their causes (Phalen 1994, §5,
//! Tables 4 and 5). The promise: busy is immediate, idle needs a quiet
//! period, and whoever cannot be heard does not vouch for idleness. Every
//! verdict has a reason that a person can read.
//!
//! Knows nothing of guests, of devices or of the wall clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use gleaner_common::time::{Moment, Spoken};
use gleaner_common::usage::{Cause, LoadAverages, REASON_BYTES_MAX};
use gleaner_common::wire::Presence;

use crate::load::{Load, LoadSample};

/// Who observes the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sensor {
    /// Terminals: local, serial, ssh, multiplexers.
    Terminals,
    /// Keyboard, pointer and touch devices.
    Input,
    /// The owner's load.
    Load,
    /// Sessions of the desktop: lock, inhibitors.
    Sessions,
}

impl Sensor {
    pub const ALL: [Self; 4] = [Self::Terminals, Self::Input, Self::Load, Self::Sessions];

    pub fn name(self) -> &'static str {
        match self {
            Self::Terminals => "terminals",
            Self::Input => "input",
            Self::Load => "load",
            Self::Sessions => "sessions",
        }
    }
}

impl fmt::Display for Sensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a sensor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Well,
    /// Still vouches for idleness, but notices later: how and why.
    Degraded(String),
    /// Should see and cannot: what, and the repair.
    Sick(String),
    /// There is nothing here for it to watch: "/dev/input: no such directory".
    Absent(String),
}

impl Health {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Degraded(_) => "degraded",
            Self::Sick(_) => "sick",
            Self::Absent(_) => "absent",
        }
    }

    /// What is wrong, if anything.
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Well => None,
            Self::Degraded(what) | Self::Sick(what) | Self::Absent(what) => Some(what),
        }
    }
}

/// What a sensor, the desktop or the owner says. It is of now, unless it
/// carries its age.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// Somebody used a terminal, a keyboard, a session. `source` is for
    /// people: "pts/3", "keyboard event2".
    Input { source: String, ago: Duration },
    Load(LoadSample),
    /// How many people are logged in.
    Users(u32),
    /// Somebody wants the machine undisturbed: a film, a call. `id` tells
    /// holds apart; `what` is for people: "vlc: playing a film".
    Held { id: String, what: String },
    Released { id: String },
    /// The screen of a session was locked or unlocked. A lock by itself says
    /// neither busy nor idle; unlocking is input.
    Locked { session: String, locked: bool },
    Health { sensor: Sensor, health: Health },
    /// The owner wants the machine back until then.
    Paused(Pause),
    Unpaused,
    AboutToSleep,
    Woke,
}

/// The owner's own word that the machine is busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The login of who asked.
    pub by: String,
    /// `None`: until resumed.
    pub until: Option<PauseEnd>,
}

/// When a pause ends: for the core, and in the wall clock's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseEnd {
    pub at: Moment,
    /// "17:40"
    pub said: String,
}

/// When a workstation counts as idle.
#[derive(Clone, Debug, PartialEq)]
pub struct Criteria {
    /// How long nobody must have touched anything. Phalen 1994, Table 5: one
    /// minute.
    pub quiet: Duration,
    /// The highest one-minute load average of an idle workstation. Phalen
    /// 1994, §5: 0.25 filters out the system's own activity.
    pub load_idle_max: f64,
    /// How long the load must have been under the criterion before it counts
    /// as such, so that a load close to it does not make the verdict flap.
    /// 15 s: three samples, a guess, not yet measured.
    pub load_quiet: Duration,
    /// Cores in use by the owner that mean busy before the average shows it.
    /// Half a core: one task that runs without a pause is twice that.
    pub rise_cores: f64,
    /// By what fraction the load must have changed to be worth a CHANGE
    /// record. Phalen 1994, §5: ten percent.
    pub change_fraction: f64,
    /// The least time between two CHANGE records. Phalen 1994, §5 looked
    /// every three minutes; we look every few seconds, and a single rise of
    /// the load would fill a page.
    pub change_gap_min: Duration,
    /// Without these nothing vouches for idleness.
    pub required: BTreeSet<Sensor>,
}

impl Default for Criteria {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(60),
            load_idle_max: 0.25,
            load_quiet: Duration::from_secs(15),
            rise_cores: 0.5,
            change_fraction: 0.10,
            change_gap_min: Duration::from_secs(60),
            required: BTreeSet::from([Sensor::Terminals, Sensor::Load]),
        }
    }
}

/// One record of the usage log but for what the shell knows: boot, sequence
/// and the wall time.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    pub cause: Cause,
    pub load: LoadAverages,
    pub users: u32,
    /// The shortest time since anything was used; `None`: never seen in use.
    pub input_idle: Option<Duration>,
    pub slots: u16,
    pub reason: String,
}
