//! What a desk hears and what it orders.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::{Fence, JobId, PlaceId, SubprogramId};
use gleaner_common::job::{JobSpec, Outcome};
use gleaner_common::program::{Arrival, RankAt, RankOffer};
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, OutputFile, Printed};

use crate::occupancy::{Observation, Pause, Transition};

/// A fact for the desk.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Observed(Observation),
    /// Where other agents may reach this one, from the next connection on.
    Reachable(Vec<SocketAddr>),
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
    /// The first of an expected guest's state has come. Follows
    /// `Effect::Expect`.
    Coming(Fence),
    /// All of it is here and stands still; so much was carried, and so long it
    /// has stood. If it does not come, `StartFailed`.
    Landed {
        fence: Fence,
        bytes: u64,
        frozen: Duration,
    },
    /// Carrying it away has shown that it cannot be carried like this: it is as
    /// it was, and stands still. Follows `Effect::Depart`.
    CannotLeave {
        fence: Fence,
        reason: String,
    },
    /// A rank has returned its work and ends. Follows `Effect::AskToRetreat`.
    Returned(Fence),
    /// A guest's memory in use, as far as it is known.
    Weighed {
        fence: Fence,
        bytes: u64,
    },
    /// A move from here has carried so much in so long.
    Carried {
        bytes: u64,
        took: Duration,
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
    /// The guest broke the rules of its program's messages: how.
    Faulted {
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
    /// End a rank's processes, and keep the rank: it leaves without them.
    /// `Event::Exited` follows; the rank is gone when its attempt is not known
    /// any more.
    Empty {
        place: PlaceId,
        fence: Fence,
    },
    Start(Start),
    /// Starts a rank anew that has lost its process and is here still.
    Again(Start),
    /// Take its state in, which another agent sends, and let it stand still.
    /// `Landed` or `StartFailed` follows; `Kill` ends it like a guest.
    Expect(Start),
    /// Set going what has landed.
    Go {
        place: PlaceId,
        fence: Fence,
    },
    /// Let a rank return its work, within that time.
    AskToRetreat {
        place: PlaceId,
        fence: Fence,
        within: Duration,
    },
    /// Send a guest's state there. It stands still until it is killed or thawed.
    Depart(Departure),
    /// Stop sending it.
    CallBack {
        place: PlaceId,
        fence: Fence,
    },
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

/// A guest to be started, or taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub place: PlaceId,
    pub fence: Fence,
    pub subprogram: SubprogramId,
    pub spec: Arc<JobSpec>,
    /// If it is a rank of a program.
    pub rank: Option<Box<RankOffer>>,
    /// Where its state comes from.
    pub arrival: Option<Arrival>,
}

/// A guest whose state is to be sent away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    pub place: PlaceId,
    pub fence: Fence,
    pub subprogram: SubprogramId,
    pub keep: Keep,
    pub to: RankAt,
    /// It has stood still since then.
    pub since: Moment,
}
