//! What a scheduling policy is.
//!
//! One file under `policies`, with one [`Named`] in it, and one line in
//! [`ALL`](super::ALL).

use std::fmt;
use std::time::Duration;

use gleaner_common::time::Moment;

use super::cycle::Cycle;
use super::reason::Reason;
use super::request::Request;
use super::state::State;

/// Chooses jobs and sizes.
pub trait Scheduling: fmt::Debug + Send {
    /// One stage of a cycle. It is called again when what it decided has been
    /// answered, and is to decide nothing once there is nothing left to do.
    fn decide(&mut self, cycle: &mut Cycle<'_>);

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Processors that jobs never grow into, left to owners and local users
    /// (Buisson et al. 2007, §V.B). 0 in their experiments, as far as they say.
    pub kept_free: u32,
    /// After so many vain tries a job is refused (Buisson et al. 2007, §IV.A);
    /// 0: never. They print no number.
    pub tries_max: u64,
    /// The unit of time in which a job's cycles become its demand
    /// (Bagga 2014, §3.6 and §4.1): a second, by his worked burst.
    pub barrier: Duration,
    /// How long it takes until a change of size has come about. A minute, as in
    /// the inputs of Posner's group; a guess elsewhere, not yet measured.
    pub change_cost: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            kept_free: 0,
            tries_max: 0,
            barrier: Duration::from_secs(1),
            change_cost: Duration::from_secs(60),
        }
    }
}

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

/// The policy of this name.
pub fn named(name: &str) -> Option<&'static Named> {
    super::policies::ALL.iter().find(|it| it.name == name)
}
