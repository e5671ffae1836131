//! The desk: everything an agent decides.
//!
//! It hears the sensors, the coordinator, the keepers and the owner, and
//! gives orders. The promises: the owner comes first and locally (no guest
//! runs while the owner is here, unless its job chose to run demoted), no
//! guest runs after the lease, and every attempt that was accepted ends once
//! and is told of until the coordinator has acknowledged it.
//!
//! Knows nothing of cgroups, sockets, files or the wall clock.

mod status;

use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::{BootId, Fence, Incarnation, JobId, PlaceId, SubprogramId};
use gleaner_common::job::{JobSpec, Outcome};
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, Facts, OutputFile, Presence, Printed};

pub use self::status::{GuestStatus, Status};
use crate::occupancy::{Criteria, Observation, Pause, Transition};

/// The most attempts that wait here for a place; further ones are refused.
pub const WAITING_MAX: usize = 64;

/// A fact for the desk.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Observed(Observation),
    /// A stream to the coordinator is open: frames can be sent.
    LinkUp,
    LinkDown,
    Frame(CoordinatorFrame),
    /// The job's input files are here. Answers `Effect::Prepare`.
    Staged(JobId),
    /// They are not. `hopeless` if they would not be anywhere else either.
    StagingFailed {
        job: JobId,
        reason: String,
        hopeless: bool,
    },
    /// The guest runs. Answers `Effect::Start`.
    Started(Fence),
    /// It does not, and nothing is left of it. Answers `Effect::Start`.
    StartFailed {
        fence: Fence,
        reason: String,
        hopeless: bool,
    },
    /// The guest and all its processes have ended, by themselves or by
    /// `Effect::Kill`; the place can be used again. Ends every `Effect::Start`
    /// that did not fail.
    Exited {
        fence: Fence,
        exit: Exit,
    },
    /// What a guest left is staged. Follows an `Exited` without it.
    Collected {
        fence: Fence,
        left: Left,
    },
    /// What it left is lost: its work must be done again.
    CollectingFailed {
        fence: Fence,
        reason: String,
    },
    /// The guest went over a limit: which, and how far it may go.
    OverLimit {
        fence: Fence,
        what: String,
    },
    /// The owner: no guests until then.
    Pause(Pause),
    Resume,
    /// The owner: this guest must go.
    Stop {
        fence: Fence,
        by: String,
    },
    /// The machine is about to sleep; `Effect::ReadyToSleep` answers.
    AboutToSleep,
    Woke,
    /// The agent is to stop; `Effect::ReadyToStop` answers, at the latest
    /// when all guests have exited.
    ShutDown {
        reason: String,
    },
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// As the kernel told it; the desk replaces it if a limit or a timeout
    /// was the cause.
    pub outcome: Outcome,
    pub cpu: Duration,
    /// `None`: still being staged, `Event::Collected` follows.
    pub left: Option<Left>,
}

/// What a guest printed and left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub stdout: Printed,
    pub stderr: Printed,
    pub outputs: Vec<OutputFile>,
}

/// What the shell is to do, in this order. What touches guests comes first.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Freeze {
        place: PlaceId,
        fence: Fence,
    },
    Thaw {
        place: PlaceId,
        fence: Fence,
    },
    /// Let it run on, below everything of the owner's.
    Demote {
        place: PlaceId,
        fence: Fence,
    },
    Restore {
        place: PlaceId,
        fence: Fence,
    },
    /// End it and all its processes, frozen or not. `Event::Exited` follows.
    Kill {
        place: PlaceId,
        fence: Fence,
    },
    Start(Start),
    /// Fetch a job's input files; `Staged` or `StagingFailed` follows.
    Prepare {
        job: JobId,
        spec: Arc<JobSpec>,
    },
    /// No more of this job will come: its input files can go.
    Discard {
        job: JobId,
    },
    /// Nobody wants any more what this guest has left: stop staging it.
    Abandon {
        fence: Fence,
    },
    Send(AgentFrame),
    Record(Transition),
    /// Keep the pause (or that there is none) over a restart.
    PersistPause(Option<Pause>),
    /// All guests are stopped and all is said: the machine may sleep.
    ReadyToSleep,
    ReadyToStop,
}

/// A guest to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub place: PlaceId,
    pub fence: Fence,
    pub subprogram: SubprogramId,
    pub spec: Arc<JobSpec>,
}

/// What a desk needs to know of its workstation.
#[derive(Clone, Debug)]
pub struct Setup {
    pub incarnation: Incarnation,
    pub boot: BootId,
    /// `missing` holds what has nothing to do with sensors; their troubles
    /// are added at every connection.
    pub facts: Facts,
    pub criteria: Criteria,
    /// A pause that has survived a restart.
    pub pause: Option<Pause>,
}

/// The agent's brain.
#[derive(Debug)]
pub struct Desk {
    setup: Setup,
}

impl Desk {
    /// Starts busy: without evidence, the owner is here. The effects hold the
    /// START record.
    pub fn new(_now: Moment, setup: Setup) -> (Self, Vec<Effect>) {
        (Self { setup }, vec![])
    }

    /// Takes a fact in and says what is to be done about it.
    #[must_use]
    pub fn handle(&mut self, _now: Moment, _event: Event) -> Vec<Effect> {
        vec![]
    }

    /// When `wake` is due. Ask again after every `handle` and `wake`.
    pub fn deadline(&self) -> Option<Moment> {
        None
    }

    /// Acts on a deadline that has passed; too early or too often is harmless.
    #[must_use]
    pub fn wake(&mut self, _now: Moment) -> Vec<Effect> {
        vec![]
    }

    pub fn presence(&self, _now: Moment) -> Presence {
        unimplemented!("{:?}", self.setup.boot)
    }

    /// Are there guests at places? The load sensor looks more often then.
    pub fn has_guests(&self) -> bool {
        false
    }

    pub fn status(&self, _now: Moment) -> Status {
        unimplemented!()
    }
}
