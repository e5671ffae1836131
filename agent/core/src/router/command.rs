//! What a router is told, and what it tells the event loop.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, JobId, WorkstationId};
use gleaner_common::program::{Life, RANKS_MAX, RankAt, RankOffer};
use gleaner_common::reaction::Keep;
use gleaner_program_core::address::{Rank, Snapshot};
use gleaner_program_core::endpoint::{Config, LOG_BYTES_MAX};
use gleaner_program_core::facts::End;
use gleaner_program_core::wire::Between;

use super::shell::Shell;
use crate::guest::{NoImage, Start, may_go_back};

/// Which agent has said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The one with this name in its certificate.
    Direct(Arc<str>),
    /// The one at this workstation, as the coordinator says.
    Relayed(WorkstationId),
}

impl Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(name) => f.write_str(name),
            Self::Relayed(at) => at.fmt(f),
        }
    }
}

/// What the router is told.
#[derive(Debug)]
pub enum RouterCommand<S: Shell> {
    /// The coordinator has welcomed us on this connection.
    Up {
        session: u64,
        own: WorkstationId,
    },
    Down,
    /// A rank's process is being started.
    Begin(Box<Begin<S::Ends>>),
    /// The process has ended, and all it has left running. Answered by
    /// [`RouterEvent::Settled`].
    Exited {
        fence: Fence,
        end: End,
        /// The rank stays, and goes elsewhere without it.
        stays: bool,
    },
    /// The attempt is not wanted any more.
    Dropped(Fence),
    /// The owner is back: the rank shall return its work. Answered by
    /// [`RouterEvent::Returned`] if it does.
    Retreat {
        fence: Fence,
        within: Duration,
    },
    /// Pack the rank's endpoint: its process stands still. Answered by
    /// [`RouterEvent::Packed`].
    Depart {
        fence: Fence,
        keep: Keep,
    },
    /// A rank that has lost its process gets another, which is given nothing.
    Again {
        fence: Fence,
        ends: S::Ends,
    },
    /// The rank's process stands still for an image. Answered by [`RouterEvent::Emptied`].
    Image(Fence),
    /// The image that was wanted, or why there is none. The process goes on
    /// after this; it stood so long.
    Imaged {
        fence: Fence,
        done: Result<S::Image, NoImage>,
        stood: Duration,
    },
    /// The rank was packed, and stays; its process goes on after this.
    Stayed(Fence),
    /// The rank has gone there, for good.
    Left {
        fence: Fence,
        to: Fence,
        at: WorkstationId,
    },
    /// Take in an endpoint that was packed elsewhere. Answered by
    /// [`RouterEvent::Unpacked`]; it does nothing before [`RouterCommand::SetGoing`].
    Arrive(Box<Arrive<S>>),
    /// The process that was taken in goes on; or a new one, with what is kept of
    /// it, is being started.
    SetGoing(Fence),
    Ranks {
        job: JobId,
        life: Life,
        at: Vec<RankAt>,
    },
    ToRank {
        fence: Fence,
        life: Life,
        bytes: Vec<u8>,
    },
    /// From another agent, passed on by the coordinator, which knows it.
    Relayed {
        from: WorkstationId,
        bytes: Vec<u8>,
    },
    /// From another agent, directly.
    Packets {
        from: Peer,
        frames: Vec<Between>,
    },
    /// There is a direct way to another agent.
    PeerStreamOpened {
        at: WorkstationId,
        way: S::Way,
    },
    /// The direct way is no more, or could not be opened.
    PeerStreamLost(WorkstationId),
    /// The rank's part of a snapshot is at the coordinator, or why not.
    Staged {
        fence: Fence,
        snapshot: Snapshot,
        part: Result<(ContentHash, u64), String>,
    },
    /// The part of a snapshot with which a rank begins.
    Fetched {
        fence: Fence,
        part: Result<Vec<u8>, String>,
    },
    /// The job is over.
    Forget(JobId),
}

/// A rank that begins here.
#[derive(Debug)]
pub struct Begin<E> {
    pub fence: Fence,
    pub job: JobId,
    pub life: Life,
    pub config: Config,
    /// The rank's part of the snapshot that the program goes back to.
    pub cut: Option<ContentHash>,
    pub ends: E,
}

impl<E> Begin<E> {
    pub fn new(start: &Start, offer: &RankOffer, ends: E) -> Self {
        let program = start.spec.program.unwrap_or_default();
        Self {
            fence: start.at.fence,
            job: start.subprogram.job,
            life: offer.life,
            config: Config {
                rank: Rank(start.subprogram.index),
                ranks: offer.ranks,
                first: Rank(offer.first),
                members: offer.members,
                parent: offer.parent.map(Rank),
                ranks_max: program.ranks_max.max(offer.ranks).clamp(1, RANKS_MAX),
                log_bytes_max: if may_go_back(&start.spec) { LOG_BYTES_MAX } else { 0 },
                snapshot: Snapshot(offer.snapshot),
                floor: offer.floor,
            },
            cut: offer.cut,
            ends,
        }
    }
}

/// A rank that comes from elsewhere.
#[derive(Debug)]
pub struct Arrive<S: Shell> {
    pub fence: Fence,
    pub job: JobId,
    pub life: Life,
    pub rank: Rank,
    pub keep: Keep,
    /// As [`RouterEvent::Packed`] gave it.
    pub packed: Vec<u8>,
    /// What its process was made of, if it has gone back to an image.
    pub image: Option<S::Image>,
    pub ends: S::Ends,
}

/// A rank that leaves.
#[derive(Clone, Debug)]
pub struct Packed<I> {
    /// The rank's endpoint, and what it has saved.
    pub bytes: Vec<u8>,
    /// What it goes back to, if that is an image.
    pub image: Option<I>,
}

impl<I> Default for Packed<I> {
    fn default() -> Self {
        Self { bytes: vec![], image: None }
    }
}

/// What the router tells the event loop.
#[derive(Debug)]
pub enum RouterEvent<S: Shell> {
    /// The rank's program did what it must not: its process must end.
    Faulted { fence: Fence, what: String },
    /// All is known now of a process that had ended, and whether its rank is
    /// here to go elsewhere without it.
    Settled { fence: Fence, fault: Option<String>, stays: bool },
    /// The rank has returned its work; its process is about to end.
    Returned(Fence),
    /// The rank, or why it cannot leave like this.
    Packed { fence: Fence, packed: Result<Packed<S::Image>, String> },
    /// An image of the rank's process is wanted. Answered by
    /// [`RouterCommand::Imaged`].
    WantsImage(Fence),
    /// The rank's pipes are empty, or cannot be.
    Emptied { fence: Fence, done: Result<(), String> },
    /// The snapshot that a rank begins with has an image of its process: it is
    /// to begin from that, as if it had arrived with it. The process that has
    /// begun ends with these pipes.
    HasImage { fence: Fence, bytes: Vec<u8>, image: Vec<u8>, ends: S::Ends },
    /// What came with a rank is here and in its pipes, or is of no use: why.
    Unpacked { fence: Fence, done: Result<(), String> },
}
