//! What a scheduling policy is.
//!
//! One file under `policies`, with one [`Named`] in it, and one line in
//! [`ALL`](super::ALL).

use std::fmt;
use std::time::Duration;

use gleaner_common::time::Moment;
use gleaner_common::units;
use serde::{Deserialize, Serialize};

use super::cycle::Cycle;
use super::reason::Reason;
use super::request::Request;
use super::state::State;

/// Chooses jobs and sizes.
pub trait Scheduling: fmt::Debug + Send {
    /// One stage of a cycle. It is called again when what it decided has been
    /// answered, and is to decide nothing once there is nothing left to do.
    fn decide(&mut self, cycle: &mut Cycle<'_>);

    /// Does it give to one user at a time, and look at all claims again
    /// after that?
    fn takes_turns(&self) -> bool {
        false
    }

    /// Does a job keep a processor when what ran on it has ended and it has more
    /// to run? Otherwise whoever comes first may have it.
    fn keeps(&self) -> bool {
        true
    }

    /// Would this job be accepted?
    ///
    /// # Errors
    /// Why not.
    fn would_take(&self, state: &State, now: Moment, request: &Request) -> Result<(), Reason> {
        let _ = (state, now, request);
        Ok(())
    }
}

/// What a site can choose about its policy. What a policy does not name, it
/// does not look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// Processors that jobs never grow into, left to owners and local users
    /// (Buisson et al. 2007, §V.B). 0 in their experiments, as far as they say.
    pub kept_free: u32,
    /// After so many vain tries a job is refused (Buisson et al. 2007, §IV.A);
    /// 0: never. They print no number.
    pub tries_max: u64,
    /// The unit of time in which a job's cycles become its demand
    /// (Bagga 2014, §3.6 and §4.1): a second, by his worked burst.
    #[serde(with = "units::duration")]
    pub barrier: Duration,
    /// How long it takes until a change of size has come about. A minute, as in
    /// the inputs of Posner's group; a guess elsewhere, not yet measured.
    #[serde(with = "units::duration")]
    pub change_cost: Duration,
    /// Whoever has waited for longer comes first. A day: a choice, and not
    /// fitted.
    #[serde(with = "units::duration")]
    pub overtaken_max: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            kept_free: 0,
            tries_max: 0,
            barrier: Duration::from_secs(1),
            change_cost: Duration::from_secs(60),
            overtaken_max: Duration::from_secs(86_400),
        }
    }
}

/// One of [`Parameters`], as people read it.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub default: &'static str,
    pub line: &'static str,
    /// Who looks at it.
    pub policies: &'static [&'static str],
}

const KOALA: &[&str] = &["pra-fpsma", "pra-egs", "pwa-fpsma", "pwa-egs"];

/// All there are, with their defaults.
pub static PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "kept_free",
        default: "0",
        line: "processors that jobs never grow into, left to owners and local users",
        policies: KOALA,
    },
    Parameter {
        name: "tries_max",
        default: "0",
        line: "a job is refused after so many scans of the queue in vain; 0: never",
        policies: KOALA,
    },
    Parameter {
        name: "barrier",
        default: "1s",
        line: "the unit of time in which a job's cycles become its demand",
        policies: &["sdf", "eema", "m-lida", "pwp"],
    },
    Parameter {
        name: "change_cost",
        default: "60s",
        line: "how long it takes until a change of size has come about",
        policies: &["gleaner"],
    },
    Parameter {
        name: "overtaken_max",
        default: "86400s",
        line: "whoever has waited for longer comes first, and nobody delays it",
        policies: &["gleaner"],
    },
];

/// A policy as the configuration knows it.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub name: &'static str,
    /// What it does, in a line.
    pub line: &'static str,
    /// Who described it, and where.
    pub source: &'static str,
    pub build: fn(&Parameters) -> Box<dyn Scheduling>,
}

/// The policy of a site that chooses none.
pub const DEFAULT: &str = "fair";

/// The policy of this name.
pub fn named(name: &str) -> Option<&'static Named> {
    super::policies::ALL.iter().find(|it| it.name == name)
}
