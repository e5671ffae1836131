//! The core's events: facts, in the past tense.

use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::job::JobSpec;
use gleaner_common::wire::AgentFrame;

/// One connection of a workstation's agent.
///
/// Everything the core hears from an agent or says to it names the
/// connection, so that what was meant for an old one never travels on a new
/// one: an offer must not overtake the welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    pub workstation: WorkstationId,
    /// A number that the shell gives, higher for every later connection.
    pub serial: u64,
}

/// The shell's number of a request, which names what an
/// [`Answer`](crate::Answer) is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A fact for the core.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A workstation enrolled, or enrolled again under another name.
    Enrolled { workstation: WorkstationId, name: String },
    /// An admin has taken the workstation away: its key is worth nothing.
    Removed(WorkstationId),
    /// An admin wants nothing new placed there, or wants it again; and guests
    /// that can leave are to do so `now`.
    Drained { workstation: WorkstationId, drained: bool, now: bool },
    /// A frame came from an agent. The first on a connection is
    /// `AgentFrame::Hello`; it takes over from the workstation's earlier
    /// connections.
    Heard { from: Link, frame: AgentFrame },
    /// An attempt's result came from an agent, and names files that it has not
    /// staged: it is worth nothing.
    Unstaged { from: Link, fence: Fence },
    /// The connection broke or was closed. The attempts there live on until
    /// the workstation's lease ends.
    Disconnected(Link),
    /// Somebody wants a job run. Its input files are staged already.
    Submitted { request: RequestId, user: String, spec: Box<JobSpec> },
    /// Somebody who may do so wants a job cancelled.
    CancelAsked { request: RequestId, job: JobId },
}
