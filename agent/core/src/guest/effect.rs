//! What the agent's core orders of its shell: one enum for guests and for all
//! else. The shell has one function for each, and decides nothing.

use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::{Fence, JobId, PlaceId, SubprogramId};
use gleaner_common::job::{JobSpec, Limits};
use gleaner_common::program::{Arrival, Destination, RankAt, RankOffer};
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_common::wire::AgentFrame;

use crate::occupancy::{Pause, Transition};

/// A guest, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuestAt {
    pub place: PlaceId,
    pub fence: Fence,
}

/// What the shell is to do, in this order. What touches guests comes first.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    // ── its processes ──────────────────────────────────────────────────────
    Freeze(GuestAt),
    Thaw(GuestAt),
    /// Something is done to the guest while it stands still, and should not take
    /// for ever; or that is over.
    Hurry(GuestAt, bool),
    /// End everything at the place, frozen or not, its keeper included.
    /// [`KeeperGone`](super::KeeperEvent::Gone) follows.
    Kill(GuestAt),
    /// A new keeper, for guests that can move or for others. Fails with
    /// [`KeeperEvent::Failed`](super::KeeperEvent::Failed).
    SpawnKeeper {
        place: PlaceId,
        staged: bool,
    },
    /// Let the keeper go, and what it has started.
    /// [`Gone`](super::KeeperEvent::Gone) follows.
    DropKeeper(PlaceId),
    /// Make the place ready for a guest. Fails with
    /// [`Event::Failed`](super::Event::Failed).
    Prepare(Box<Start>),
    /// Lay its job's input files. [`Event::Laid`](super::Event::Laid) answers.
    LayInputs(GuestAt),
    /// Start its process, and have the router begin a rank that it has no
    /// endpoint of. `Started` or [`Event::Failed`](super::Event::Failed) answers.
    Launch {
        at: GuestAt,
        begins: bool,
    },
    /// Take what it left away, and find out how it ended: `Event::Exited`
    /// answers, of a rank after the router has read what was written last.
    Reap {
        at: GuestAt,
        /// The router has its endpoint, and shall keep it if the rank stays.
        endpoint: bool,
        stays: bool,
        /// Nobody wants what it left.
        discard: bool,
    },
    /// Clear away what was laid for a guest that has not run.
    ClearGround(GuestAt),
    /// Look whether the guest stands still, and whether it can be looked into.
    /// [`Event::Looked`](super::Event::Looked) answers at once.
    Look(GuestAt),
    /// See what it uses: `Event::Measured` and `Event::Weighed` answer, and
    /// [`Stopped`](super::KeeperEvent::Stopped) if its keeper is.
    Measure(GuestAt),

    // ── coming ─────────────────────────────────────────────────────────────
    /// Expect its state from another agent. Fails with `Event::Failed`.
    Expect(Box<Start>),
    /// Expect it out of the snapshot that it began with.
    ExpectSnapshot(Box<Start>),
    /// Have the keeper prepare for the process whose header has come.
    ReceiveProcess(GuestAt),
    /// Lay the input files that did not come along. `Event::Laid` answers.
    LayRest(GuestAt),
    /// Hand its endpoint to the router. `Event::Unpacked` answers.
    Unpack(GuestAt),
    /// Have its keeper bring its process to life; it stands still. The keeper
    /// answers with `Event::ProcessStands`.
    Land(GuestAt),
    /// All of it is said to be here: is it? `Event::Verified` answers.
    Verify(GuestAt),
    /// Tell whoever sent it what became of it; a reason if it was not taken.
    Answer(GuestAt, Option<String>),
    /// Its rank speaks from now on.
    SetGoing(GuestAt),
    /// Its process goes on.
    GoOn(GuestAt),

    // ── leaving ────────────────────────────────────────────────────────────
    /// Let a rank return its work, within that time.
    AskToRetreat {
        at: GuestAt,
        within: Duration,
    },
    /// Have the router pack a rank's endpoint. `Event::Packed` answers.
    Pack(GuestAt, Keep),
    /// It was packed, or is to be, and stays.
    Stayed(GuestAt),
    /// Send its state away; `Event::CarryingEnded` ends it.
    Carry(Departure),
    /// Stop sending it.
    CallBack(GuestAt),
    /// The router need not keep the rank: it has gone there, or is not wanted.
    DropEndpoint(GuestAt, Option<RankAt>),
    /// A rank that has lost its process gets new pipes, for another.
    Replug(GuestAt),

    // ── images ─────────────────────────────────────────────────────────────
    /// Have the router empty its pipes. `Event::PipesEmptied` answers.
    EmptyPipes(GuestAt),
    /// Write its process down, to go back to. `Event::ImageWritten` answers.
    WriteImage(GuestAt),
    /// The image that was wanted is there, or why not; it stood so long.
    ImageEnded {
        at: GuestAt,
        done: Result<(), NoImage>,
        stood: Duration,
    },

    // ── everything else ────────────────────────────────────────────────────
    /// Fetch a job's input files; `Staged` or `StagingFailed` follows.
    Stage {
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

/// Why there is no image of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoImage {
    /// Its owner is here, or it is about to leave.
    NotNow,
    /// Its job does not roll back.
    Useless,
    Cannot(String),
}

/// A guest that enters a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub at: GuestAt,
    pub subprogram: SubprogramId,
    pub spec: Arc<JobSpec>,
    /// The lower of the workstation's limits and what the job asks for.
    pub limits: Limits,
    /// Which GPUs are its own, by number.
    pub gpus: Vec<u16>,
    /// If it is a rank of a program.
    pub rank: Option<Box<RankOffer>>,
    /// Where its state comes from.
    pub arrival: Option<Arrival>,
}

/// A guest whose state is to be sent away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    pub at: GuestAt,
    pub subprogram: SubprogramId,
    pub keep: Keep,
    pub to: Destination,
    /// It has stood still since then.
    pub since: Moment,
}
