//! Guests that come and go: what this machine can do about it, and the shell's
//! two ends of a move.
//!
//! ```text
//! event loop ── Depart ─► departure: dump ─► stream ═══► arrival: image in memory ─► event loop: a keeper lands it
//!      ◄─ CannotLeave, Carried ─┘ ◄── Taken, No ──┘ ◄─ Taken, NotTaken ─┘
//! ```
//!
//! Decides nothing: when something leaves, where to, and which of the two goes
//! on, is the coordinator's and the event loop's.

mod arrival;
mod departure;
mod kept;

use std::fs;
use std::time::Duration;

use gleaner_common::id::BootId;
use gleaner_common::units::spoken_size;
use gleaner_move::{Engine, Fingerprint, of_this_machine};
use serde::{Deserialize, Serialize};

pub(crate) use self::arrival::{Arrivals, Expectation, KnownGuest};
pub(crate) use self::departure::{Cargo, Departures};
pub(crate) use self::kept::{KeptImage, ToKeep, keep};
use crate::config::{AgentConfig, Network};
use crate::container::cgroup::Tree;
use crate::container::keeper::Program;
use crate::failure::one_line;
use crate::owner::MovesStatus;
use crate::probe::{Probe, ProbeError};

/// What is needed to write guests down and to bring them to life, tried out.
#[derive(Clone, Debug)]
pub(crate) struct Mover {
    pub(crate) engine: Engine,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) found: Found,
}

/// What was found out in this boot.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    boot: BootId,
    engine: Engine,
    /// The restrictions of the process that found it out.
    restrictions: String,
    /// What moving takes, or why nothing can be moved.
    found: Result<Found, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) knowledge: Vec<u8>,
    moving: Duration,
    image_bytes: u64,
}

const NOTE: &str = "moves.json";

impl Mover {
    /// Finds CRIU and moves a small guest from one place to another, once for
    /// each boot, version and kind of restrictions. Starts processes: call it
    /// before there is any thread.
    ///
    /// # Errors
    /// Why no guest can be moved from or to here, in one line.
    pub(crate) fn find(
        config: &AgentConfig,
        tree: Option<&Tree>,
        boot: BootId,
    ) -> Result<Self, String> {
        let engine = engine(config)?;
        let restrictions = restrictions();
        if let Some(note) = Note::read(config, boot, &engine)
            && note.restrictions == restrictions
            && let Ok(found) = note.found
        {
            return Ok(Self::new(engine, found));
        }
        let found = Self::try_out(config, engine.clone(), tree);
        let note = Note { boot, engine: engine.clone(), restrictions, found };
        note.keep(config);
        note.found.map(|found| Self::new(engine, found))
    }

    /// What an agent has found in this boot, for who asks while none runs.
    pub(crate) fn noted(config: &AgentConfig, boot: BootId) -> Option<MovesStatus> {
        let engine = engine(config).ok()?;
        let note = Note::read(config, boot, &engine)?;
        Some(Self::status(note.found.map(|found| Self::new(engine, found)).as_ref()))
    }

    /// Tries it out whatever is known. Call it before there is any thread.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn try_here(config: &AgentConfig, tree: Option<&Tree>) -> Result<Self, String> {
        let engine = engine(config)?;
        Self::try_out(config, engine.clone(), tree).map(|found| Self::new(engine, found))
    }

    fn try_out(config: &AgentConfig, engine: Engine, tree: Option<&Tree>) -> Result<Found, String> {
        let tree = tree.ok_or("no control groups")?;
        let probe = || -> Result<Found, ProbeError> {
            let home = config.data.join("move-trial");
            let probe = Probe::new(engine, Program::own()?, &config.guests, tree, home)?;
            let probed = probe.run()?;
            let knowledge = probe.knowledge.clone();
            Ok(Found { knowledge, moving: probed.moving, image_bytes: probed.image_bytes })
        };
        probe().map_err(|error| one_line(&error))
    }

    fn new(engine: Engine, found: Found) -> Self {
        Self { fingerprint: of_this_machine(&engine), engine, found }
    }

    /// For the owner, and whoever looks after the machine.
    pub(crate) fn status(found: Result<&Self, &String>) -> MovesStatus {
        let possible = found.is_ok();
        let detail = found.map_or_else(String::clone, |mover| {
            let (size, ms) = (spoken_size(mover.found.image_bytes), mover.found.moving.as_millis());
            format!("CRIU {} moved a guest of {size} in {ms} ms", mover.engine.version())
        });
        MovesStatus { possible, detail }
    }
}

impl Note {
    /// Reads a note of this boot and CRIU only.
    fn read(config: &AgentConfig, boot: BootId, engine: &Engine) -> Option<Self> {
        let text = fs::read(config.data.join(NOTE)).ok()?;
        let note: Self = serde_json::from_slice(&text).ok()?;
        ((note.boot, &note.engine) == (boot, engine)).then_some(note)
    }

    fn keep(&self, config: &AgentConfig) {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let kept = gleaner_shell::atomic::replace(&config.data.join(NOTE), &text, 0o600);
        if let Err(error) = kept {
            tracing::debug!(%error, "moves will be tried out again at the next start");
        }
    }
}

/// Which program this is, and what it may do: its rights, whether programs may gain others, and
/// whether its system calls are filtered.
fn restrictions() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tells = |line: &&str| {
        ["CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:"].iter().any(|name| line.starts_with(name))
    };
    let told = status.lines().filter(tells).collect::<Vec<_>>().join(" ").replace('\t', " ");
    format!("{} {told}", env!("CARGO_PKG_VERSION"))
}

fn engine(config: &AgentConfig) -> Result<Engine, String> {
    if !config.moves.enabled {
        return Err("moves.enabled is false".into());
    }
    if config.guests.network != Network::None {
        return Err("guests use the workstation's own network: guests.network is host".into());
    }
    Engine::find(config.moves.criu.as_deref()).map_err(|error| format!("{error}; {}", error.hint()))
}
