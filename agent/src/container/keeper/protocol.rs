//! What the event loop and a keeper say to each other, one datagram each.
//!
//! Both ends are the same binary of the same moment, so there is no version.

use std::path::PathBuf;
use std::time::Duration;

use gleaner_common::id::Fence;
use gleaner_move::{Engine, Header};
use serde::{Deserialize, Serialize};

/// The descriptor at which a keeper finds its socket.
pub(super) const SOCKET_FD: i32 = 3;

/// Where a rank finds the end it reads from; the other is the next.
pub(crate) const PIPES_FD: i32 = 3;

/// The longest datagram: a command with its environment, or two outputs that
/// ride inline.
pub(super) const MESSAGE_BYTES_MAX: usize = 192 << 10;

/// What rides along with an order at most: an image's directory and a rank's two
/// pipe ends.
pub(super) const DESCRIPTORS_MAX: usize = 3;

/// The longest report: two outputs that ride inline, or a reason.
pub(super) const REPORT_BYTES_MAX: usize = 40 << 10;

/// The longest reason why a guest cannot start.
pub(super) const REASON_BYTES_MAX: usize = 2 << 10;

/// What one guest may use where no control group enforces it; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestLimits {
    pub data_bytes_max: u64,
    pub processes_max: u64,
    pub file_bytes_max: u64,
    /// Of one process.
    pub descriptors_max: u64,
}

/// What a keeper makes of itself before the first guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The place's directory, with `guest/work`, `guest/output` and `tmp`.
    pub directory: PathBuf,
    /// Who guests run as; `None` keeps the agent's own user.
    pub uid: Option<u32>,
    /// Who their keeper is then: nobody that guests are. 0 is root with none of
    /// its rights but those to start and end guests.
    pub keeper_uid: u32,
    /// Directories that guests may read and run programs from.
    pub readable: Vec<PathBuf>,
    /// Directories that guests may also write: shared file systems.
    pub writable: Vec<PathBuf>,
    /// The workstation's own.
    pub limits: GuestLimits,
    /// Keep guests that cannot move from rare system calls, which 32-bit programs
    /// do not survive.
    pub filter: bool,
    /// Was the keeper made in its own mount namespace?
    pub own_mounts: bool,
    /// Was the keeper made in its own network namespace?
    pub own_network: bool,
    /// What CRIU knows of this kernel, for a guest that can move: its keeper has
    /// a root directory of its own, and takes in one guest only.
    pub knowledge: Option<Vec<u8>>,
}

impl Sandbox {
    /// For one guest that can move?
    #[must_use]
    pub fn is_staged(&self) -> bool {
        self.knowledge.is_some()
    }
}

/// What is known of a guest whose image is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    pub engine: Engine,
    /// Without what lay in its pipes.
    pub header: Header,
}

/// One guest to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartGuest {
    pub fence: Fence,
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Where it runs.
    pub directory: PathBuf,
    /// The directories were made anew since the last guest.
    pub fresh: bool,
    pub limits: GuestLimits,
    /// Two pipe ends ride along, one to read and one to write: the guest finds
    /// them at [`PIPES_FD`] and the number after it.
    pub pipes: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// First, and once.
    Prepare(Box<Sandbox>),
    /// The page rides along that tells how long the lease lasts: no guest is here
    /// longer, whether or not anybody says so.
    Heed,
    Start(Box<StartGuest>),
    /// A guest comes from elsewhere. The directory with its image rides along, and
    /// its ends of its pipes, in the header's order.
    Expect(Box<Landing>),
    /// All is known of it: bring it to life, and let it stand still.
    Land {
        fence: Fence,
        /// Who stood still by their own will.
        stopped: Vec<i32>,
    },
    /// Set what has landed going.
    Go,
    /// Stop the guest with signals: where there is no control group.
    Freeze,
    Thaw,
    /// Kill the guest and report its end.
    Kill,
}

/// A guest has ended, and everything it left running with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub fence: Fence,
    /// As `wait` gives it.
    pub status: i32,
    /// User and system time of all its processes.
    pub cpu: Duration,
    /// What it printed, if little; the files are then empty again.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// How much it printed. More than is in the fields above: see the files.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// The guest's directories are as empty as at its start.
    pub clean: bool,
    /// This keeper is good for no other guest.
    pub last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// What could not be had, one line each.
    Ready {
        missing: Vec<String>,
    },
    /// A guest that can move is about to be started: from now on that it is not there
    /// means that it has ended, whose report is on its way.
    Began {
        fence: Fence,
    },
    Ended(Box<Ended>),
    /// The guest is there, whole, and stands still.
    Landed {
        fence: Fence,
    },
    /// `here_only` if another workstation may well be able to.
    CannotStart {
        fence: Fence,
        why: String,
        here_only: bool,
    },
}
