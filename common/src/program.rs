//! Message-passing programs: what a job says of one, and where its ranks are.
//!
//! A rank is a subprogram whose index is its number in the program. Messages
//! are addressed to ranks. Where a rank is, and so which agent speaks for it,
//! the coordinator says and nobody else.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{ContentHash, Fence, SubprogramId, WorkstationId};
use crate::reaction::Keep;
use crate::time::Spoken;

/// The most ranks of one program.
pub const RANKS_MAX: u32 = 65_536;

/// Saving all of a program more often would leave it little time for work.
pub(crate) const CHECKPOINT_EVERY_MIN: Duration = Duration::from_secs(1);

/// The most bytes that agents hand each other through the coordinator at once.
pub const RELAYED_BYTES_MAX: usize = 96 << 10;

/// The longest that an agent says of one rank: two lists with an entry for every
/// other rank, a rank in at most 3 bytes and a number in at most 10 (postcard),
/// and what little comes with them.
pub const RANK_REPORT_BYTES_MAX: usize = 2 * (3 + 10) * RANKS_MAX as usize + (1 << 10);

/// The most addresses an agent says it can be reached at.
pub const ADDRESSES_MAX: usize = 8;

/// What makes a job one program of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSpec {
    /// Does it react to increases in availability (Phalen 1994, Table 1,
    /// fourth column)?
    pub increases: bool,
    /// Does it react to its own spawn and leave (Table 1, fifth column)?
    pub spawns: bool,
    /// The most ranks it may come to have; never fewer than it begins with.
    pub ranks_max: u32,
    /// How often a consistent set of its ranks' states is saved; `None` never.
    /// A rank that is lost takes the program back to the last set, or to its
    /// start.
    pub checkpoint_every: Option<Duration>,
    /// Write down what each rank computes, sends and receives.
    pub record: bool,
}

impl ProgramSpec {
    /// What a workstation's death costs the program, as was chosen for it.
    pub fn goes_back(&self) -> String {
        match self.checkpoint_every {
            Some(every) => format!(
                "it goes back to where all of it was last saved, every {}, or to its start",
                Spoken(every)
            ),
            None => "it goes back to its start".to_owned(),
        }
    }
}

/// Which life of a program: 1 at first, one more whenever all of it begins
/// again. What another life says is dropped.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Life(pub u32);

/// Where a rank is, as far as the coordinator knows. Of two the one with the
/// higher fence is newer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankAt {
    pub rank: u32,
    pub fence: Fence,
    pub workstation: WorkstationId,
    /// The workstation's name, which stands in its certificate.
    pub name: String,
    /// Where its agent may be reached by others, the best first; empty: only
    /// through the coordinator.
    pub addresses: Vec<SocketAddr>,
}

/// What shows that a move is the one that the coordinator ordered: it has told the
/// two ends of it, and nobody else. Good for one move.
#[derive(Clone, Copy, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub [u8; 16]);

/// Takes as long whatever differs, so that nobody finds one byte by byte.
impl PartialEq for Ticket {
    fn eq(&self, other: &Self) -> bool {
        let differs =
            self.0.iter().zip(&other.0).fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        std::hint::black_box(differs) == 0
    }
}

/// Secrets are in no log.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

/// An attempt that comes from another workstation with its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    pub from: WorkstationId,
    /// The name in that workstation's certificate. From nobody else it is taken
    /// but from the coordinator, which asks the same before it passes one on.
    pub name: String,
    /// The guest's attempt there.
    pub old: Fence,
    pub ticket: Ticket,
}

/// Where an attempt is to be carried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// What it becomes there.
    pub at: RankAt,
    pub ticket: Ticket,
    /// The coordinator wants it there, whatever the owner here does.
    pub ordered: bool,
}

/// What an offered subprogram needs to know of its program, if it is a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankOffer {
    pub life: Life,
    /// How many ranks there are now.
    pub ranks: u32,
    /// The ranks that begin together with this one: so many from the first on.
    pub first: u32,
    pub members: u32,
    /// Who spawned them.
    pub parent: Option<u32>,
    /// The newest snapshot of the program.
    pub snapshot: u32,
    /// Attempts with lower fences are of the time before the program went back.
    pub floor: Fence,
    /// The rank's part of the snapshot that the program goes back to, staged as
    /// a blob; `None`: the rank begins at its start, or arrives from elsewhere.
    pub cut: Option<ContentHash>,
}

/// What is said first on a stream that carries an attempt from its agent to the next.
/// Then comes the rank's endpoint, if it is one, as a frame of its own, and
/// then the image, until the stream ends: always with [`Keep::State`], and with
/// [`Keep::SubtaskStart`] if the rank goes back to one. Answered by
/// [`HandoverReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    pub subprogram: SubprogramId,
    pub old: Fence,
    pub new: Fence,
    pub ticket: Ticket,
    pub keep: Keep,
    /// Length of the endpoint's bytes; 0 for what is no rank.
    pub endpoint_bytes: u64,
    /// Stood still since so long ago when this was said.
    pub frozen: Duration,
}

/// The receiving agent's word. Nothing runs there before it has also told the
/// coordinator, which alone ends the old attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverReply {
    /// All of the attempt is here and set up.
    Taken,
    No {
        reason: String,
    },
}
