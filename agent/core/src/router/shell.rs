//! What a router has around it: pipes, ways to others, whoever logs.

use std::fmt::{Debug, Display};
use std::net::SocketAddr;

use bytes::Bytes;
use gleaner_common::frame::FrameError;
use gleaner_common::id::{ContentHash, Fence, JobId, WorkstationId};
use gleaner_common::wire::AgentFrame;
use gleaner_program_core::address::{Rank, Snapshot};
use gleaner_program_core::endpoint::PipeRest;
use gleaner_program_core::wire::{self, Between, ProgramFrame};

use super::command::{Peer, RouterEvent};

/// The agent around a router. It is asked for these and decides nothing.
pub trait Shell: Debug + Sized {
    /// Our ends of the two pipes of a rank's process.
    type Ends: Debug;
    /// The same, in use.
    type Pipes: Pipes;
    /// Where the big pieces of one program's messages lie.
    type Slabs: Clone + Debug + Default;
    /// An image of a rank's process.
    type Image: Image;
    /// A direct way to another agent.
    type Way: Way;

    /// Has the pipes of this rank heard from now on, with the
    /// [router](super::Router)'s `hear` and `write`.
    ///
    /// # Errors
    /// They cannot be heard.
    fn plug(
        &mut self,
        fence: Fence,
        ends: Self::Ends,
        slabs: &Self::Slabs,
    ) -> Result<Self::Pipes, <Self::Pipes as Pipes>::Error>;

    /// Sends a frame on the coordinator's connection of that number. It is lost
    /// if that is gone, and a [`Relay`](AgentFrame::Relay) if too much waits.
    fn send(&mut self, session: u64, frame: AgentFrame);

    /// Has that done. `false`: nobody does it any more.
    fn have(&mut self, request: IoRequest<Self::Image>) -> bool;

    /// Tells the event loop.
    fn say(&mut self, event: RouterEvent<Self>);

    /// For the agent's log.
    fn note(&mut self, note: Note);
}

/// Our ends of the two pipes of a rank's process, what was read and is no whole
/// frame yet, and what is to be written.
pub trait Pipes: Debug {
    type Error: Display;

    /// Takes in what the program has written, at most a buffer of it.
    ///
    /// # Errors
    /// The pipe is sick.
    fn fill(&mut self) -> Result<PipeRead, Self::Error>;

    /// The next frame of what was taken in.
    ///
    /// # Errors
    /// What was taken in is no frame.
    fn next_frame(&mut self) -> Result<Option<ProgramFrame>, FrameError>;

    /// Did the program end in the middle of a frame?
    fn cut_off(&self) -> Option<FrameError>;

    /// Gives the program a frame, with the next flush. What nobody reads any more is lost.
    fn push(&mut self, frame: &wire::AgentFrame);

    /// Writes what the pipe takes; the rest is written when it has place.
    fn flush(&mut self);

    /// Takes out of the pipes what stands in them: the process does, too. What
    /// it has written whole was read before.
    ///
    /// # Errors
    /// The pipe cannot be emptied from this side.
    fn empty(&mut self) -> Result<PipeRest, Self::Error>;

    /// Puts back what was taken out of the pipes, here or elsewhere.
    fn refill(&mut self, rest: PipeRest);
}

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeRead {
    /// All there was place for: perhaps there is more.
    Much,
    /// All there was at that moment.
    Some,
    Nothing,
    /// The program has closed its end.
    End,
}

/// An image of a rank's process.
pub trait Image: Clone + Debug {
    fn bytes(&self) -> u64;
}

/// A direct way to another agent.
pub trait Way: Debug {
    /// Takes a frame along, with the next flush.
    ///
    /// # Errors
    /// It is too long for a frame.
    fn push(&mut self, frame: &Between) -> Result<(), FrameError>;

    /// Sends what was taken. `false`: the way is no more.
    fn flush(&mut self) -> bool;
}

/// A direct way that is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub at: WorkstationId,
    pub name: String,
    pub addresses: Vec<SocketAddr>,
}

/// What is to be done for the router.
#[derive(Debug)]
pub enum IoRequest<I> {
    /// Open a direct way; [`PeerStreamOpened`](super::RouterCommand::PeerStreamOpened),
    /// [`PeerStreamLost`](super::RouterCommand::PeerStreamLost).
    PeerStream(Wanted),
    /// Stage a rank's part of a snapshot at the coordinator;
    /// [`Staged`](super::RouterCommand::Staged). The image follows the bytes.
    Stage { fence: Fence, snapshot: Snapshot, bytes: Bytes, image: Option<I> },
    /// Get one; [`Fetched`](super::RouterCommand::Fetched).
    Fetch { fence: Fence, hash: ContentHash },
}

/// What the agent's log is told.
#[derive(Debug)]
pub enum Note {
    /// What the coordinator tells a rank cannot be read.
    ToRankUnread { error: String },
    /// What another agent says cannot be read.
    BetweenUnread { error: String },
    /// What a rank says to the coordinator, or to another, cannot be written.
    Unwritten { error: String },
    /// Another agent has spoken so often for a rank that is not there.
    Forged { from: Peer, job: JobId, rank: Rank, times: u64 },
    /// The rank has an image to go back to now.
    HasWayBack(Rank),
    /// A rank cannot begin with its part of the snapshot.
    NotBack { rank: Rank, error: String },
}
