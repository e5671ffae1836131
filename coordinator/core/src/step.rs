//! The core's answer to an event: what must be durable, then what is to be
//! done.

use gleaner_common::id::{ContentHash, Fence, Generation, JobId, WorkstationId};
use gleaner_common::report::JobSummary;
use gleaner_common::wire::CoordinatorFrame;

use crate::event::{Link, RequestId};
use crate::record::Change;

/// The outcome of one event.
///
/// The changes of a step become durable together; none of its effects leaves
/// before that, and effects leave in the order of their steps. Only a
/// `HeartbeatAck` may overtake: agents need not stop because a disk is slow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    pub changes: Vec<Change>,
    pub effects: Vec<Effect>,
    /// How many subprograms were placed: what a shell that measures
    /// placement divides the time of the call by.
    pub placed: u32,
}

/// An order for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send this frame on the connection; drop it if the connection is gone.
    Send { to: Link, frame: CoordinatorFrame },
    /// Refuse the connection: send `CoordinatorFrame::Refused` with this reason
    /// and close. No `Disconnected` is needed afterwards.
    Refuse { link: Link, reason: String },
    /// Another connection of the same workstation took over: close this one.
    Replace(Link),
    /// Answer a request.
    Answer { request: RequestId, answer: Answer },
    /// A job changed: tell whoever watches it. At most one a step and job; the
    /// last one of a job has an ended state.
    Progress(JobSummary),
    /// These staged parts of snapshots are not needed any more, as far as
    /// their program goes. Left alone, they only take up room.
    Unneeded(Vec<ContentHash>),
    /// Tell people: this workstation has seen an attempt that the store does not
    /// know. The store went back in time.
    WentBack { workstation: WorkstationId, seen: Fence, generation: Generation },
    /// Tell people: what this attempt came to, or was to come to, is nothing that
    /// the store knows.
    Unknown { workstation: WorkstationId, fence: Fence },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Submitted(JobId),
    Cancelled(JobId),
    /// "No", and why.
    No(String),
}
