//! What a site can choose about its scheduler.

use std::time::Duration;

use gleaner_common::units;
use serde::{Deserialize, Serialize};

use super::resources;
use crate::scheduler::spread::Spread;
use crate::scheduler::{DEFAULT, Parameters, Scheduler, named};

/// Which jobs and sizes come next, by whose policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerConfig {
    /// One of [`ALL`](crate::scheduler::ALL), by name.
    pub policy: String,
    /// How long a bag that is asked for places may wait for the ends of its
    /// subprograms. Twice as long, up to sixteen times, each time that what was taken
    /// suited nobody and came back.
    #[serde(with = "units::duration")]
    pub patience: Duration,
    /// Which groups of workstations the parts of a job go to that start together;
    /// none: wherever placement puts each. A workstation's group is what its
    /// attribute `group` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    pub parameters: Parameters,
}

impl Default for SchedulerConfig {
    /// As long as a guest waits for its owner by default, before it is given up.
    fn default() -> Self {
        let patience = Duration::from_secs(600);
        let (policy, spread) = (DEFAULT.to_owned(), None);
        Self { policy, patience, spread, parameters: Parameters::default() }
    }
}

/// A policy that nobody has heard of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scheduler.policy = \"{0}\": there is none of this name, `glean policies` lists them")]
pub struct UnknownPolicy(pub String);

impl SchedulerConfig {
    /// # Errors
    /// If there is no such policy.
    pub fn check(&self) -> Result<(), UnknownPolicy> {
        named(&self.policy).map(|_| ()).ok_or_else(|| UnknownPolicy(self.policy.clone()))
    }

    pub(super) fn build(&self) -> Scheduler {
        let policy = named(&self.policy).or_else(|| named(DEFAULT)).expect("there is a default");
        Scheduler::new(resources(0), (policy.build)(&self.parameters))
    }
}
