//! What travels between a program and its agent, and between agents.
//!
//! ```text
//! program ── Hello ──────────────────────► agent     first, once per process
//! program ◄── Welcome, State.. ─────────── agent
//! program ── Send, Took, Matched, .. ────► agent
//! program ◄── Deliver, Room, Answer, .. ── agent
//! agent   ◄─ Packet { PeerFrame } ───────► agent     directly, or through the coordinator
//! ```
//!
//! Postcard writes by position: append, never reorder, otherwise raise
//! [`VERSION`]. A frame's payload (`P`) is its last field, so that a big one
//! lies on the wire behind the rest and need not be copied to get there
//! ([`framing`](crate::framing)).

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use gleaner_common::id::{ContentHash, Fence, JobId};
use gleaner_common::program::Life;
use serde::{Deserialize, Serialize};

use crate::address::{Boundary, Communicator, Envelope, Rank, Request, Snapshot, Tag, Task};
use crate::complaint::Complaint;
use crate::facts::{End, RankFacts};
use crate::negotiation::Said;

/// The version of the frames on a program's pipes. Between agents that of
/// [`gleaner_common::wire`] counts, which they tell each other first.
pub const VERSION: u16 = 1;

/// The file descriptors of a program's two pipes, read and write end, as
/// `IN,OUT` ("3,4").
pub const PIPES_VARIABLE: &str = "GLEAN_PIPES";

/// How much a program's pipes take at most before their writer waits: several
/// pieces, so that reader and writer run side by side.
pub const PIPE_BYTES_MAX: usize = 1 << 20;

/// The longest task, result or list of a question or an answer.
pub const ASK_BYTES_MAX: usize = 64 << 10;

/// The most numbers in one `Matched`, and the most rows in one `Bye`.
pub const LIST_MAX: usize = 1_000;

// ── program → agent ────────────────────────────────────────────────────────

/// What a program says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramFrame<P = Bytes> {
    /// First, and only once in a process.
    Hello { version: u16 },
    /// A piece of a message. What may be under way to one rank is bounded by
    /// the window and raised by [`AgentFrame::Room`]; to send more is a fault.
    Send { to: Rank, envelope: Envelope, payload: P },
    /// The pieces of this rank that the program has taken from the pipe and
    /// has place for: their cost since the process began.
    Took { from: Rank, total: u64 },
    /// These messages (by the number of their first piece) have been
    /// received. Only where [`Welcome::logged`].
    Matched(Vec<u64>),
    /// The program is blocked, and has been for a moment. `read` is how many
    /// agent's frames (without `State`) it has read: a wait is out of date if
    /// the agent has written more.
    Waiting { on: Wait, read: u64 },
    /// A question to the coordinator, answered by [`AgentFrame::Answer`].
    Ask { request: Request, ask: Ask },
    /// The agent asked for retreat: the work is returned, the process ends.
    Retreated,
    /// The program is done with messages. What it has not received.
    Bye { unreceived: Vec<Unreceived> },
    /// A part of the state that the program saves at a boundary. All it sent
    /// before is before the boundary; `last` ends the state.
    Save { last: bool, state: P },
    /// The program stands at a boundary until [`AgentFrame::GoOn`]: the agent
    /// may take an image of its process. Only where [`Welcome::logged`]: first
    /// when it likes, then once after each [`AgentFrame::PleaseSave`].
    Boundary,
    /// What the program says to an [`AgentFrame::Negotiate`]. It is repeated
    /// where the coordinator repeats what it said.
    Negotiate(Said),
}

/// What a blocked program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Wait {
    /// A message; `None` is any.
    Message { from: Option<Rank>, communicator: Communicator, tag: Option<Tag> },
    /// Room to send.
    Room { to: Rank },
    /// The coordinator.
    Answer { request: Request },
    /// That this rank ends.
    End { rank: Rank },
}

/// Messages that a program leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreceived {
    pub from: Rank,
    pub communicator: Communicator,
    pub tag: Tag,
    pub messages: u32,
}

/// What only the coordinator knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Start more ranks.
    Spawn {
        count: u32,
    },
    /// This rank ends by its own wish; its processor is free.
    Leave,
    /// How many more could I have now?
    Processors,
    /// One more task; waits while others hold the last ones.
    NextTask,
    Done {
        task: Task,
        result: Vec<u8>,
    },
    ReturnTask {
        task: Task,
    },
    /// Puts a task into the bag.
    PutTask {
        task: Vec<u8>,
    },
    /// No more tasks will be put.
    CloseBag,
    /// The next result that has not been given out.
    NextResult,
    /// This rank speaks for its program from now on: make offers to it (his
    /// "job registration", Ghafoor 2007, §4.3.1).
    Negotiates,
    /// What the program says in a negotiation that it has opened.
    Negotiate(Said),
    /// Asked by a rank's agent, never by a program: a process that knows nothing
    /// follows the one that asked before, and what that one held comes back. Numbered
    /// like any question, so that it counts once, however often it is heard.
    BeginsAnew,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// These ranks begin: so many from the first on.
    Spawned {
        first: Rank,
        count: u32,
    },
    Left,
    Processors {
        count: u32,
    },
    Task {
        task: Task,
        bytes: Vec<u8>,
    },
    /// Every task is done.
    NoMoreTasks,
    /// `false`: it was done before, and that result counts.
    Done {
        first: bool,
    },
    Returned,
    Put {
        task: Task,
    },
    Closed,
    Result {
        task: Task,
        bytes: Vec<u8>,
    },
    NoMoreResults,
    /// The bag takes no more tasks.
    BagClosed,
    /// So many ranks cannot begin now; none does.
    TooMany {
        available: u32,
    },
    /// "No", and why.
    Declined {
        reason: String,
    },
    Noted,
    /// What the coordinator says to [`Ask::Negotiate`].
    Negotiated(Said),
}

// ── agent → program ────────────────────────────────────────────────────────

/// What an agent says to its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentFrame<P = Bytes> {
    /// Answers `Hello`.
    Welcome(Welcome),
    /// No further: what was wrong.
    Refused {
        reason: String,
    },
    /// A piece of a message, in order for each sender. The numbers grow.
    Deliver {
        number: u64,
        from: Rank,
        envelope: Envelope,
        payload: P,
    },
    /// What may be sent to this rank: its cost since the process began.
    Room {
        to: Rank,
        total: u64,
    },
    Answer {
        request: Request,
        answer: Answer,
    },
    /// Save at the next boundary, please.
    PleaseSave,
    /// The owner is back: return the work and end, within this time.
    Retreat {
        within: Duration,
    },
    /// How many ranks there are now.
    Ranks {
        count: u32,
    },
    /// This rank has ended; all it sent was delivered before. A process that
    /// is restored from its image may hear of it twice.
    Gone {
        rank: Rank,
        end: End,
    },
    /// These ranks, this one among them, wait for each other.
    Deadlock {
        waits: Vec<(Rank, Wait)>,
    },
    /// A part of the state that was saved at [`Welcome::restored`].
    State {
        last: bool,
        state: P,
    },
    /// Answers `Boundary`. In a process that is restored from the image that
    /// was taken there, too.
    GoOn,
    /// What the coordinator says in a negotiation that it has opened. A program
    /// that goes back does not hear it again.
    Negotiate(Said),
}

/// What a program needs to know to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub version: u16,
    pub rank: Rank,
    pub ranks: u32,
    /// The ranks that began together with this one.
    pub members: Range<u32>,
    /// Who spawned them.
    pub parent: Option<Rank>,
    /// What may be under way to each rank, in cost, before any `Room`.
    pub window: u64,
    /// Ranks to which less may be sent at first.
    pub rooms: Vec<(Rank, u64)>,
    /// Say `Matched`: messages are kept for a rollback.
    pub logged: bool,
    /// The number of the first question.
    pub request: Request,
    /// The state of this boundary follows as `State`; `None` is a start from
    /// nothing.
    pub restored: Option<Boundary>,
}

// ── agent ⇄ agent ──────────────────────────────────────────────────────────

/// A frame with its address, as it travels between agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet<P = Bytes> {
    pub job: JobId,
    pub life: Life,
    pub to: Rank,
    pub from: Rank,
    /// The attempt of the sender: it speaks from where the coordinator has told
    /// that this attempt is.
    pub fence: Fence,
    pub frame: PeerFrame<P>,
}

/// What one rank's agent says to another's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerFrame<P = Bytes> {
    /// Where the sender stands as a receiver.
    Ack { snapshot: Snapshot, ack: Ack },
    /// The same, and asks for an `Ack`: for a sender that has heard nothing
    /// for long, or is at a new place.
    Probe { snapshot: Snapshot, ack: Ack },
    /// The rank has ended: nothing more will be received.
    Gone { snapshot: Snapshot, ack: Ack },
    /// A piece, numbered for the pair from 1.
    Data { snapshot: Snapshot, ack: Ack, number: u64, envelope: Envelope, payload: P },
}

impl<P> PeerFrame<P> {
    /// The last coordinated checkpoint that its sender took part in.
    pub fn snapshot(&self) -> Snapshot {
        match self {
            Self::Ack { snapshot, .. }
            | Self::Probe { snapshot, .. }
            | Self::Gone { snapshot, .. }
            | Self::Data { snapshot, .. } => *snapshot,
        }
    }
}

/// Where a receiver stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// All pieces up to this number have arrived.
    pub received: u64,
    /// The cost of all pieces, from the first, that may be sent.
    pub limit: u64,
    /// Pieces after `received` were thrown away: send them again.
    pub lost: bool,
}

/// The rank's attempt has begun where its packets were dropped before: send
/// them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub job: JobId,
    pub rank: Rank,
    pub fence: Fence,
}

/// A frame between agents: on a stream of their own, or several, one after
/// the other, in the bytes that the coordinator relays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Between<P = Bytes> {
    Packet(Packet<P>),
    Begun(Begun),
}

impl<P> Between<P> {
    /// The same frame with another kind of payload.
    pub fn map<Q>(self, change: impl FnOnce(P) -> Q) -> Between<Q> {
        match self {
            Self::Packet(packet) => Between::Packet(packet.map(change)),
            Self::Begun(begun) => Between::Begun(begun),
        }
    }
}

// ── agent ⇄ coordinator ────────────────────────────────────────────────────

/// What an agent tells the coordinator of a rank; in
/// [`AgentFrame::FromRank`](gleaner_common::wire::AgentFrame::FromRank), as
/// postcard. May be repeated on every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromRank {
    Ask {
        request: Request,
        ask: Ask,
    },
    /// Unasked when the rank has waited for long, and to answer
    /// [`ToRank::TellFacts`] with its number.
    Facts {
        asked: Option<u64>,
        facts: RankFacts,
    },
    /// The rank has ended. Repeated until the program is forgotten.
    Ended {
        end: End,
        snapshot: Snapshot,
        sent: Vec<(Rank, u64)>,
    },
    /// The rank has ended and nobody lacks anything of it.
    Drained,
    Complain(Complaint),
    /// The rank's part of the snapshot is staged as this blob.
    Cut {
        snapshot: Snapshot,
        part: ContentHash,
        size_bytes: u64,
    },
    NoCut(Snapshot),
    /// Answered by [`Ranks`](gleaner_common::wire::CoordinatorFrame::Ranks).
    WhereIs(Rank),
    /// Of a negotiation that the coordinator has opened.
    Negotiate(Said),
}

/// What the coordinator tells a rank's agent; in
/// [`CoordinatorFrame::ToRank`](gleaner_common::wire::CoordinatorFrame::ToRank).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToRank {
    Answered {
        request: Request,
        answer: Answer,
    },
    /// How many ranks there are now.
    Ranks(u32),
    /// Another rank has ended, after this snapshot; its last piece to this
    /// rank had this number.
    PeerEnded {
        rank: Rank,
        snapshot: Snapshot,
        end: End,
        last: u64,
    },
    TellFacts {
        asked: u64,
    },
    Deadlock(Vec<(Rank, Wait)>),
    Cut(Snapshot),
    /// Of a negotiation that the coordinator has opened. Repeated until it is
    /// answered.
    Negotiate(Said),
}

// ── payloads ───────────────────────────────────────────────────────────────

impl<P> ProgramFrame<P> {
    /// The same frame with another kind of payload.
    pub fn map<Q>(self, change: impl FnOnce(P) -> Q) -> ProgramFrame<Q> {
        match self {
            Self::Hello { version } => ProgramFrame::Hello { version },
            Self::Send { to, envelope, payload } => {
                ProgramFrame::Send { to, envelope, payload: change(payload) }
            }
            Self::Took { from, total } => ProgramFrame::Took { from, total },
            Self::Matched(numbers) => ProgramFrame::Matched(numbers),
            Self::Waiting { on, read } => ProgramFrame::Waiting { on, read },
            Self::Ask { request, ask } => ProgramFrame::Ask { request, ask },
            Self::Retreated => ProgramFrame::Retreated,
            Self::Bye { unreceived } => ProgramFrame::Bye { unreceived },
            Self::Save { last, state } => ProgramFrame::Save { last, state: change(state) },
            Self::Boundary => ProgramFrame::Boundary,
            Self::Negotiate(said) => ProgramFrame::Negotiate(said),
        }
    }
}

impl<P> AgentFrame<P> {
    /// The same frame with another kind of payload.
    pub fn map<Q>(self, change: impl FnOnce(P) -> Q) -> AgentFrame<Q> {
        match self {
            Self::Welcome(welcome) => AgentFrame::Welcome(welcome),
            Self::Refused { reason } => AgentFrame::Refused { reason },
            Self::Deliver { number, from, envelope, payload } => {
                AgentFrame::Deliver { number, from, envelope, payload: change(payload) }
            }
            Self::Room { to, total } => AgentFrame::Room { to, total },
            Self::Answer { request, answer } => AgentFrame::Answer { request, answer },
            Self::PleaseSave => AgentFrame::PleaseSave,
            Self::Retreat { within } => AgentFrame::Retreat { within },
            Self::Ranks { count } => AgentFrame::Ranks { count },
            Self::Gone { rank, end } => AgentFrame::Gone { rank, end },
            Self::Deadlock { waits } => AgentFrame::Deadlock { waits },
            Self::State { last, state } => AgentFrame::State { last, state: change(state) },
            Self::GoOn => AgentFrame::GoOn,
            Self::Negotiate(said) => AgentFrame::Negotiate(said),
        }
    }
}

impl<P> PeerFrame<P> {
    /// The same frame with another kind of payload.
    pub fn map<Q>(self, change: impl FnOnce(P) -> Q) -> PeerFrame<Q> {
        match self {
            Self::Ack { snapshot, ack } => PeerFrame::Ack { snapshot, ack },
            Self::Probe { snapshot, ack } => PeerFrame::Probe { snapshot, ack },
            Self::Gone { snapshot, ack } => PeerFrame::Gone { snapshot, ack },
            Self::Data { snapshot, ack, number, envelope, payload } => {
                PeerFrame::Data { snapshot, ack, number, envelope, payload: change(payload) }
            }
        }
    }
}

impl<P> Packet<P> {
    /// The same packet with another kind of payload.
    pub fn map<Q>(self, change: impl FnOnce(P) -> Q) -> Packet<Q> {
        let Self { job, life, to, from, fence, frame } = self;
        Packet { job, life, to, from, fence, frame: frame.map(change) }
    }
}

#[cfg(test)]
mod tests;
