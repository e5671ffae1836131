//! The state machine itself.

use std::time::Duration;

use gleaner_common::id::{JobId, SubprogramId, WorkstationId};
use gleaner_common::report::{JobRow, JobSummary, SubprogramRow, WorkstationRow};
use gleaner_common::time::{Moment, WallTime};

use crate::event::Event;
use crate::policy::Policy;
use crate::record::Restored;
use crate::step::Step;

/// What a site can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub policy: Policy,
    /// How long guests may run unheard.
    pub lease: Duration,
    /// How often an agent is to be heard from while it has guests, and
    /// without any.
    pub heartbeat: Duration,
    pub heartbeat_without_guests: Duration,
}

impl Default for Config {
    /// The lease is the longest that a cut-off guest's work waits before it
    /// is placed elsewhere, less a second. Three heartbeats fit into a lease,
    /// so that two can be lost.
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            heartbeat_without_guests: Duration::from_secs(15),
        }
    }
}

/// The coordinator's brain.
#[derive(Debug)]
pub struct Core {
    config: Config,
}

impl Core {
    /// Starts from what the store holds; from nothing the first time. The
    /// attempts found open get one lease for their agents to come back.
    pub fn restore(_now: Moment, config: Config, _restored: Restored) -> Self {
        Self { config }
    }

    /// Takes a fact in.
    #[must_use]
    pub fn handle(&mut self, _now: Moment, _wall: WallTime, _event: Event) -> Step {
        Step::default()
    }

    /// When `wake` is due. Ask again after every `handle` and `wake`. It may
    /// have passed already: then there is more to place than one step places.
    pub fn deadline(&self) -> Option<Moment> {
        None
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    #[must_use]
    pub fn wake(&mut self, _now: Moment, _wall: WallTime) -> Step {
        Step::default()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The jobs that have not ended, oldest first.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = JobId> {
        std::iter::empty()
    }

    /// `None` for a job that has ended or never was: ask the store.
    pub fn summary(&self, _job: JobId) -> Option<JobSummary> {
        None
    }

    /// `None` for a job that has ended or never was: ask the store.
    pub fn job_row(&self, _job: JobId) -> Option<JobRow> {
        None
    }

    /// `None` for a subprogram that has ended or never was: ask the store.
    pub fn subprogram_row(&self, _subprogram: SubprogramId) -> Option<SubprogramRow> {
        None
    }

    pub fn workstations(&self) -> impl Iterator<Item = WorkstationId> {
        std::iter::empty()
    }

    pub fn workstation_row(&self, _now: Moment, _id: WorkstationId) -> Option<WorkstationRow> {
        None
    }

    pub fn workstation_named(&self, _name: &str) -> Option<WorkstationId> {
        None
    }

    pub fn workstation_name(&self, _id: WorkstationId) -> Option<&str> {
        None
    }

    /// How many subprograms wait to be placed.
    pub fn queued(&self) -> u64 {
        0
    }

    /// How many workstations are connected.
    pub fn connected(&self) -> u32 {
        0
    }

    /// Why is this subprogram not running, or where does it? The deciding
    /// reason first; `None` if it has ended or never was.
    pub fn why_subprogram(&self, _now: Moment, _id: SubprogramId) -> Option<Vec<String>> {
        None
    }

    /// Why has this job not ended?
    pub fn why_job(&self, _now: Moment, _job: JobId) -> Option<Vec<String>> {
        None
    }

    /// Why is this workstation not used, or by whom is it?
    pub fn why_workstation(&self, _now: Moment, _id: WorkstationId) -> Option<Vec<String>> {
        None
    }
}
