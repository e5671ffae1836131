//! What can be observed of the owner, and by whom.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use gleaner_common::time::Moment;
use serde::{Deserialize, Serialize};

pub use super::closing::{Heat, Power};
pub use super::connections::{Allowance, Connection};
pub use super::screens::{Screen, Word};
use crate::load::LoadSample;

gleaner_common::named! {
    /// Who observes the owner.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Sensor {
        /// Terminals: local, serial, ssh, multiplexers.
        Terminals = "terminals",
        /// Keyboard, pointer and touch devices.
        Input = "input",
        /// The owner's load.
        Load = "load",
        /// Sessions of the desktop: lock, inhibitors.
        Sessions = "sessions",
        /// Remote desktops and development servers, by their connections.
        Connections = "connections",
        /// Helpers inside sessions: `glean presence`.
        Presence = "presence",
        /// Microphones and cameras.
        Calls = "calls",
        /// How much the owners' processes use, and how long they wait.
        Slice = "slice",
        /// Mains or battery.
        Power = "power",
        /// Is the network paid for by what it carries?
        Network = "network",
        Heat = "heat",
    }
}

impl Sensor {
    /// Many machines have nothing for it to watch, and lack nothing by that.
    pub fn is_extra(self) -> bool {
        match self {
            Self::Terminals | Self::Input | Self::Load | Self::Sessions | Self::Connections => {
                false
            }
            Self::Presence
            | Self::Calls
            | Self::Slice
            | Self::Power
            | Self::Network
            | Self::Heat => true,
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
    Input {
        source: String,
        ago: Duration,
    },
    Load(LoadSample),
    /// Whose process used most, when load turned the workstation busy. Answers
    /// [`super::Transition::by_load`].
    Culprit(Culprit),
    /// Who is logged in, as far as this sensor sees it.
    Users {
        by: Sensor,
        uids: BTreeSet<u32>,
    },
    /// A session with a screen has come or changed; `None`: it has gone.
    Screen {
        id: String,
        screen: Option<Screen>,
    },
    /// A helper in somebody's session has said how long nobody used it.
    Word(Word),
    /// That helper has gone.
    WordsEnd {
        helper: u64,
    },
    /// All connections that there are now to servers by which people work here.
    Connections(Vec<Connection>),
    /// CPU time that the owners' control group has used; it never goes back.
    Slice {
        used: Duration,
    },
    /// The owners' processes wait too much: "user.slice waits for memory".
    Pressed {
        what: String,
    },
    Power(Power),
    /// Is the network metered? Who says so, for people.
    Metered {
        by: Option<String>,
    },
    /// The hottest of the machine's sensors.
    Heat(Heat),
    /// Somebody wants the machine undisturbed: a film, a call. `id` tells
    /// holds apart; `what` is for people: "vlc: playing a film".
    Held {
        id: String,
        what: String,
    },
    Released {
        id: String,
    },
    /// The screen of a session was locked or unlocked. A lock by itself says
    /// neither busy nor idle; unlocking is input.
    Locked {
        session: String,
        locked: bool,
    },
    Health {
        sensor: Sensor,
        health: Health,
    },
    /// The owner wants the machine back until then.
    Paused(Pause),
    Unpaused,
    AboutToSleep,
    Woke,
}

/// A process of somebody's that loads the workstation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    pub name: String,
    pub uid: u32,
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
