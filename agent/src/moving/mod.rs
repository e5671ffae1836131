//! Guests that come and go: what this machine can do about it, and the shell's
//! two ends of a move.
//!
//! ```text
//! desk ── Depart ─► departure: dump ─► stream ═══► arrival: image in memory ─► desk: a keeper lands it
//!      ◄─ CannotLeave, Carried ─┘ ◄── Taken, No ──┘ ◄─ Taken, NotTaken ─┘
//! ```
//!
//! Decides nothing: when something leaves, where to, and which of the two goes
//! on, is the coordinator's and the desk's.

mod arrival;
mod departure;
mod kept;

use std::fs;
use std::path::{Path, PathBuf};

use gleaner_common::id::BootId;
use gleaner_move::trial::{self, Tried};
use gleaner_move::{Engine, Fingerprint, of_this_machine};
use serde::{Deserialize, Serialize};

pub(crate) use self::arrival::{Arrivals, Expectation, Known};
pub(crate) use self::departure::{Cargo, Departures};
pub(crate) use self::kept::{KeptImage, ToKeep, keep};
use crate::cgroup::Tree;
use crate::config::{AgentConfig, Network};
use crate::ground::clear;

/// What is needed to write guests down and to bring them to life, tried out.
#[derive(Clone, Debug)]
pub(crate) struct Mover {
    pub(crate) engine: Engine,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) knowledge: Vec<u8>,
}

/// What was found out in this boot.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    boot: BootId,
    engine: Engine,
    knowledge: Vec<u8>,
}

const NOTE: &str = "moves.json";

impl Mover {
    /// Finds CRIU and moves a small guest from one place to another, once for
    /// each boot and version. Starts processes: call it before there is any
    /// thread.
    ///
    /// # Errors
    /// Why no guest can be moved from or to here, in one line.
    pub(crate) fn find(
        config: &AgentConfig,
        tree: Option<&Tree>,
        boot: BootId,
    ) -> Result<Self, String> {
        let engine = engine(config)?;
        let path = config.data.join(NOTE);
        let noted = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(Note { boot: then, engine: of, knowledge }) = noted
            && (then, &of) == (boot, &engine)
        {
            return Ok(Self { fingerprint: of_this_machine(&engine), engine, knowledge });
        }
        let (mover, _) = Self::try_out(config, tree)?;
        let note = Note { boot, engine: mover.engine.clone(), knowledge: mover.knowledge.clone() };
        let text = serde_json::to_vec(&note).unwrap_or_default();
        if let Err(error) = gleaner_shell::atomic::replace(&path, &text, 0o600) {
            tracing::debug!(%error, "moves will be tried out again at the next start");
        }
        Ok(mover)
    }

    /// Tries it out whatever is known. Call it before there is any thread.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn try_out(
        config: &AgentConfig,
        tree: Option<&Tree>,
    ) -> Result<(Self, Tried), String> {
        let engine = engine(config)?;
        let tree = tree.ok_or("no control groups")?;
        let home = config.data.join("move-trial");
        let groups = tree.guests().with_file_name("trial");
        let tried = try_in(config, engine, &groups, &home);
        clear(&home);
        let _ = fs::remove_dir(&groups);
        tried
    }
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

fn try_in(
    config: &AgentConfig,
    engine: Engine,
    groups: &Path,
    home: &Path,
) -> Result<(Mover, Tried), String> {
    let full = |error: &dyn std::error::Error| {
        let source = error.source().map_or_else(String::new, |source| format!(": {source}"));
        format!("{error}{source}")
    };
    fs::create_dir_all(home).map_err(|error| full(&error))?;
    let site = trial::Site::new(engine, groups, home).map_err(|error| full(&error))?;
    let site = trial::Site {
        readable: config.guests.readable.clone(),
        uid_base: config.guests.uid_base,
        ..site
    };
    let tried = trial::trial(&site).map_err(|error| full(&error))?;
    let trial::Site { engine, fingerprint, knowledge, .. } = site;
    Ok((Mover { engine, fingerprint, knowledge }, tried))
}

/// Where a guest that can move finds the things on its ground.
pub(crate) fn on_stage(ground: &Path, path: &Path) -> PathBuf {
    let inside = path.strip_prefix(ground).unwrap_or(path);
    Path::new(gleaner_move::stage::GROUND).join(inside)
}
