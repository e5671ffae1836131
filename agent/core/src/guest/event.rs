//! What a place hears of its guest, and what it has to say of it.

use std::time::Duration;

use gleaner_common::job::Outcome;
use gleaner_common::program::Destination;
use gleaner_common::reaction::Keep;
use gleaner_common::time::Moment;
use gleaner_common::wire::{GuestState, OutputFile, Printed};

use gleaner_common::id::Fence;

/// A fact about a guest.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    // ── from the coordinator, and from the agent's other rooms ─────────────
    /// It is to be carried there. Said again, it is on its way already.
    Depart {
        keep: Keep,
        to: Destination,
    },
    /// What was to leave stays.
    Stay,
    /// What has landed goes on.
    GoOn,
    /// Nobody wants to hear of it again.
    Cancel,
    /// It is to be abandoned, and its work returned.
    Retreat,
    /// The guest went over a limit: which, and how far it may go.
    OverLimit(String),
    /// The guest broke the rules of its program's messages: how.
    Faulted(String),
    /// So much lies in its directories.
    Measured {
        disk_bytes: u64,
    },
    /// What moving this guest would take.
    MoveTakes(Duration),
    /// A rank has returned its work and ends.
    Returned,

    // ── from its container ─────────────────────────────────────────────────
    /// Its input files lie where it will find them, or why not.
    Laid(Result<(), String>),
    /// It could not be made ready or started. `hopeless` if it could nowhere.
    Failed {
        reason: String,
        hopeless: bool,
    },
    /// It and all its processes are gone; the place can be used again. Of a rank
    /// the router has read everything; does it keep the rank?
    Exited {
        exit: Box<Exit>,
        stays: bool,
    },
    Looked(Look),

    // ── coming ─────────────────────────────────────────────────────────────
    /// The first of its state has come: the rest may take its time.
    Coming,
    /// It is known what comes: a process with so many pipes, and whether input
    /// files are to be laid that it had where it comes from.
    Header {
        pipes: usize,
        lays: bool,
    },
    /// Everything has come but its memory.
    Known {
        keep: Keep,
    },
    /// That too: so many bytes in all.
    Whole {
        bytes: u64,
    },
    /// The router has its endpoint, or can do nothing with it.
    Unpacked(Result<(), String>),
    /// All of it is here indeed, and has stood still for so long; or it is not.
    Verified(Result<Duration, String>),
    /// It will not come, or cannot be brought to life.
    NotComing(String),
    /// The snapshot that it has begun with holds an image, which takes the place
    /// of its process.
    HasImage,

    // ── leaving ────────────────────────────────────────────────────────────
    /// The router has packed the endpoint, or cannot.
    Packed(Result<(), String>),
    /// Carrying it has shown that it cannot be carried like this.
    CannotLeave(String),
    /// One that was carrying it has let go of it.
    CarryingEnded,

    // ── images ─────────────────────────────────────────────────────────────
    /// The router wants an image of its process.
    ImageWanted,
    /// Its pipes are empty, or cannot be.
    PipesEmptied(Result<(), String>),
    /// It was written down, or could not be.
    ImageWritten(Result<(), String>),
}

/// A fact about the keeper of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEvent {
    /// None could be made, and why.
    Failed { reason: String },
    /// It is dead, reaped, and everything at the place with it. Each that was made
    /// ends so.
    Gone,
    /// Its guest has ended; `last` if it can take no other.
    Ended { last: bool },
    /// It cannot start or restore its guest. `hopeless` if nobody could.
    CannotStart { fence: Fence, why: String, hopeless: bool },
    /// The process that came stands there.
    ProcessStands { fence: Fence },
    /// It is dying and has not heard of this guest, of which nothing has run.
    /// [`Gone`](Self::Gone) follows.
    NotBegun { fence: Fence },
    /// Somebody has stopped it, since then: it cannot tell how its guest ends.
    Stopped { since: Moment },
}

/// What a look at a guest shows that is to stand still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// All of it stands, and can be looked into.
    Steady,
    /// It stands, but one of its processes is becoming another program: it must
    /// run on for a moment.
    Between,
    /// Something of it runs still.
    Restless,
    /// Its keeper was frozen before it could start it.
    NotBegun,
    /// It cannot be seen: why.
    Failed(String),
}

/// What is told of a guest, to the coordinator in the end.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// It is in this state now.
    State(GuestState),
    /// It stands still and is to leave with what it keeps.
    WantsAway { keep: Keep },
    /// It is on its way, by the coordinator's wish: what holds of it from now on.
    Departs { keep: Keep },
    /// Its owner has left before anything was carried. It was to leave with this: with
    /// nothing, it begins anew.
    Stays { keep: Keep },
    /// Nor will it leave like this.
    CannotLeave { keep: Keep, reason: String },
    /// All of it is here and stands still.
    Arrived { bytes: u64, frozen: Duration },

    // ── each attempt ends with one of these, unless it is cancelled ────────
    /// What was on its way does not run here.
    Refused(NotHere),
    /// It could not be started.
    NotStarted { reason: String, hopeless: bool },
    /// Its work is returned.
    Retreated { why: Why, suspensions: u32 },
    /// It is gone, and nobody has seen how it ended.
    Lost { reason: String, suspensions: u32 },
    /// It has ended by itself or by a limit.
    Finished { end: End, clock: Clock, exit: Box<Exit> },
}

/// Why a guest is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The owner came, and this is the job's reaction.
    OwnerCame,
    /// The owner stayed for longer than this.
    OwnerStays(Duration),
    /// Somebody asked for it, who knows why.
    Asked,
}

/// Why what was on its way does not run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHere {
    /// The owner came before it.
    OwnerCame,
    /// Nothing came for so long.
    NothingCame(Duration),
    /// Its processes ended before they were set going.
    Ended,
    /// Somebody asked for it, who knows why.
    Asked,
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As the kernel tells it.
    Exited,
    TimedOut,
    OverLimit(String),
    /// It did what no program of ranks may.
    Fault(String),
}

/// What a guest has had of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    pub ran: Duration,
    pub suspended: Duration,
    pub suspensions: u32,
}

/// How a guest's processes ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// As the kernel told it; replaced if a limit or a timeout was the cause.
    pub outcome: Outcome,
    pub cpu: Duration,
    /// `None`: still being staged, `Collected` follows.
    pub left: Option<Left>,
}

impl Exit {
    /// The end of what was killed before it ran.
    pub fn never_ran() -> Self {
        let left = Some(Left::default());
        Self { outcome: Outcome::Signal(SIGKILL), cpu: Duration::ZERO, left }
    }

    pub(super) fn is_fault(&self) -> bool {
        matches!(self.outcome, Outcome::Fault(_))
    }

    /// Did the guest earn it, whatever became of its keeper?
    pub(super) fn is_its_doing(&self) -> bool {
        matches!(self.outcome, Outcome::Fault(_) | Outcome::OverLimit(_))
    }
}

/// By its number, which is the same on every Linux.
const SIGKILL: i32 = 9;

/// What a guest printed and left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub stdout: Printed,
    pub stderr: Printed,
    pub outputs: Vec<OutputFile>,
}
