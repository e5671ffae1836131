//! What travels: the first frame of every stream and the frames after it.
//!
//! Everybody dials the coordinator, at one UDP port, and is known by the
//! certificate of its TLS handshake before the first stream opens. Every
//! bidirectional stream begins with an [`Opening`] from the side that opened
//! it. Postcard writes by position: append, never reorder, otherwise raise
//! [`VERSION`].
//!
//! ```text
//! who dials     Purpose     what follows
//! agent         Agent       AgentFrame ⇄ CoordinatorFrame, kept open
//! agent         Usage       UsageFrame ⇄ UsageReply, passed on to the collector
//! user          Request     one Request, then Reply..
//! any           Put         raw bytes, FIN; then BlobReply
//! any           Get         BlobReply, then raw bytes
//! newcomer      Enrol       EnrolRequest, then EnrolReply; a token's key is its identity
//! coordinator   Relay       to the collector: one agent's usage stream
//! agent         Packets     to another agent: `Between` of gleaner-program-core, one way
//! agent         Handover    to another agent, or through the coordinator: see `Handover`
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::amounts::{Amounts, UNKNOWN};
use crate::fingerprint::Fingerprint;
use crate::id::{
    BootId, ContentHash, Fence, Generation, Incarnation, JobId, MachineId, SpoolLife, SubprogramId,
    WorkstationId,
};
use crate::job::{JobSpec, Limits, OnBusy, Outcome};
use crate::machine::Machine;
use crate::program::{Arrival, Destination, Handover, Life, RankAt, RankOffer};
use crate::reaction::Keep;
use crate::report::{
    AttemptRow, HealthRow, JobRow, JobSummary, ReplicaRow, ShareRow, SubprogramRow, TokenRow,
    UserRow, WorkstationRow,
};
use crate::requirement::Attributes;
use crate::time::WallTime;
use crate::usage::{LifeAccount, LifeKept, LoadAverages, UsageRecord};

/// The protocol's version; both ends must agree. 2: a job says what follows a
/// suspension, and may be a program of ranks. 3: agents speak to each other. 4: to stay and to go on
/// are two words, listings are asked for in parts, and agents describe their machine. 5: jobs have
/// priorities, refusals say whose fault they are, users and workstations can be taken away, moves
/// have tickets, agents speak for the ranks that the coordinator says they have, and hear whose keys
/// were revoked, and subprograms have replicas. 6: jobs change their size, and workstations are packed.
/// 7: fences belong to a generation, usage records to a life of their spool, and a workstation to one
/// machine. 8: agents tell of jobs that a coordinator which went back does not know. 9: that a rank
/// begins anew is a question of its agent.
pub const VERSION: u16 = 9;

/// QUIC's application protocol name. The version stands in [`Opening`], so
/// that a mismatch can be explained instead of failing the handshake.
pub const ALPN: &[u8] = b"gleaner";

/// How much of a guest's output rides in its result; more is staged as a blob.
pub const INLINE_OUTPUT_BYTES_MAX: usize = 16 << 10;

/// The most usage records in one frame.
pub const RECORDS_MAX: usize = 1_000;

/// The most lives of a spool in one frame.
pub const LIVES_MAX: usize = 64;

/// The most ranges that a collector tells of one life.
pub const RANGES_MAX: usize = 64;

/// Codes of QUIC application closes and stream resets.
pub mod close {
    /// An orderly end.
    pub const DONE: u32 = 0;
    /// The peer broke the protocol; the reason says how.
    pub const PROTOCOL: u32 = 1;
    /// The peer may not do what it asked for.
    pub const FORBIDDEN: u32 = 2;
    /// Another connection of the same identity took over.
    pub const REPLACED: u32 = 3;
    /// The peer does not read fast enough.
    pub const TOO_SLOW: u32 = 4;
    /// No collector is connected; keep the records and try later.
    pub const NO_COLLECTOR: u32 = 5;
    /// The other agent is not there, or has given up what was handed over.
    pub const NO_AGENT: u32 = 6;
}

crate::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Role {
        Agent = "agent",
        User = "user",
        Admin = "admin",
        /// Receives the usage streams.
        Collector = "collector",
    }
}

/// The first frame of every bidirectional stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    pub version: u16,
    pub purpose: Purpose,
}

impl Opening {
    pub fn new(purpose: Purpose) -> Self {
        Self { version: VERSION, purpose }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Purpose {
    Agent,
    Usage,
    Request,
    Put {
        hash: ContentHash,
        size_bytes: u64,
    },
    Get {
        hash: ContentHash,
    },
    Enrol,
    Relay {
        workstation: WorkstationId,
        name: String,
    },
    /// Between agents: packets of the ranks, as frames.
    Packets,
    /// An attempt on its way. To another agent, or to the coordinator, which
    /// passes it on to that workstation's agent on a stream of its own.
    Handover {
        to: WorkstationId,
        what: Box<Handover>,
    },
}

// ── agent ⇄ coordinator ────────────────────────────────────────────────────

/// How the line begins that says why a workstation takes part in no moves.
const NO_MOVES: &str = "moving guests: ";

impl Facts {
    /// The line of [`Self::missing`] for that.
    pub fn no_moves(why: &str) -> String {
        format!("{NO_MOVES}{why}")
    }

    pub fn why_no_moves(&self) -> Option<&str> {
        self.missing.iter().find_map(|line| line.strip_prefix(NO_MOVES))
    }

    /// What guests may take together, if the owner needs none of it now.
    pub fn lends(&self) -> Amounts {
        let known = |bytes: u64| if bytes == 0 { UNKNOWN } else { bytes };
        let memory_bytes = known(self.memory_lent_bytes).min(known(self.memory_bytes));
        let disk_bytes = known(self.disk_lent_bytes);
        Amounts { cores: self.places, gpus: self.gpus, memory_bytes, disk_bytes }
    }
}

/// What a workstation is, said once per connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    pub cores: u16,
    /// How many of its cores are lent: so many guests of one core run side by
    /// side at most.
    pub places: u16,
    pub memory_bytes: u64,
    /// A measured speed: millions of integer steps a second on one core.
    pub speed: f32,
    pub kernel: String,
    /// What is missing or sick, one line each: "cgroup v2: not mounted".
    pub missing: Vec<String>,
    /// Where other agents may reach this one, the best first.
    pub addresses: Vec<SocketAddr>,
    /// What an image needs of this machine to be restored here; `None` if
    /// none can be made or restored here.
    pub fingerprint: Option<Box<Fingerprint>>,
    /// For people; boxed, for it is rare and large.
    pub machine: Box<Machine>,
    /// What a job may ask for by `--shared`, and everything below.
    pub shared_directories: Vec<String>,
    /// What the site says of it, beside all this.
    pub attributes: Attributes,
    /// How much of its memory is lent, and of its disk; 0: it has not said, all
    /// of it.
    pub memory_lent_bytes: u64,
    pub disk_lent_bytes: u64,
    /// How many GPUs are lent.
    pub gpus: u16,
    /// Which machine this is; `None` where nothing tells it from others.
    pub machine_id: Option<MachineId>,
    /// Why nothing new may be started here, whoever is idle: "disk: 12 MiB free".
    pub unready: Option<String>,
}

/// The digital view of a workstation, and beside it the analogue one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Presence {
    pub busy: bool,
    /// For people: "pts/3, 2 s ago".
    pub reason: String,
    /// How long the workstation has been so.
    pub lasted: Duration,
    /// Cores free of the owner; 0 lets nothing new start.
    pub slots: u16,
    pub load: LoadAverages,
    pub users: u32,
}

crate::named! {
    /// How a guest that is still here is doing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum GuestState {
        /// The guest waits at the agent for a place.
        Waiting = "waiting",
        Running = "running",
        Suspended = "suspended",
        /// The guest runs on beside the owner, demoted.
        Demoted = "demoted",
        /// The guest is frozen: it is to be carried away, or is being carried.
        Leaving = "leaving",
    }
}

/// A file that a subprogram left in `$GLEAN_OUTPUT`, staged already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    pub path: String,
    pub hash: ContentHash,
    pub size_bytes: u64,
    pub executable: bool,
}

/// What a guest printed: all of it, or a blob to get it from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Printed {
    Inline(Vec<u8>),
    /// `truncated` if the guest printed more than its limit.
    Staged {
        hash: ContentHash,
        size_bytes: u64,
        truncated: bool,
    },
}

impl Default for Printed {
    fn default() -> Self {
        Self::Inline(vec![])
    }
}

/// The end of an attempt that ended by itself or by a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub fence: Fence,
    pub outcome: Outcome,
    /// User and system time of the guest's processes.
    pub cpu: Duration,
    /// From start to end, suspensions not counted.
    pub ran: Duration,
    pub suspended: Duration,
    pub suspensions: u32,
    pub stdout: Printed,
    pub stderr: Printed,
    pub outputs: Vec<OutputFile>,
}

crate::named! {
    /// Whose fault it is that an attempt was not started.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Blame {
        /// What it lacks now it may have later: it rests.
        Workstation = "workstation",
        /// Any other job may be started there.
        Job = "job",
    }
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptEvent {
    /// The guest runs; it `waited` for so long since the offer came.
    Started {
        fence: Fence,
        waited: Duration,
    },
    Suspended {
        fence: Fence,
    },
    /// The guest runs on here, below the owner's work.
    Demoted {
        fence: Fence,
    },
    /// The guest is thawed, or no longer demoted.
    Resumed {
        fence: Fence,
    },
    Finished(Finished),
    /// The attempt was abandoned for the owner and its work comes back: never a
    /// failure.
    Retreated {
        fence: Fence,
        reason: String,
        suspensions: u32,
    },
    /// The attempt was never started here.
    Refused {
        fence: Fence,
        reason: String,
        blame: Blame,
    },
    /// The guest is frozen, and is to leave with what it keeps.
    WantsAway {
        fence: Fence,
        keep: Keep,
        /// A guess at what there is to carry.
        image_bytes: u64,
    },
    /// The guest came from another workstation and runs here.
    Arrived {
        fence: Fence,
        /// What was carried.
        bytes: u64,
        /// How long the guest was frozen, as far as is known here.
        frozen: Duration,
    },
    /// Why the guest cannot be carried away like this, here or ever. It stays as
    /// it is, and does what its job says next.
    CannotLeave {
        fence: Fence,
        keep: Keep,
        reason: String,
    },
    /// The guest was to leave with this, and the owner has left before anything was
    /// carried: the guest runs on here; with nothing, it begins anew.
    Stays {
        fence: Fence,
        keep: Keep,
    },
    /// The guest is gone, and nobody has seen how it ended: what watched over it here
    /// died first. Never its failure, as if its workstation had been lost.
    Lost {
        fence: Fence,
        reason: String,
        suspensions: u32,
    },
}

impl AttemptEvent {
    pub fn fence(&self) -> Fence {
        match self {
            Self::Started { fence, .. }
            | Self::Suspended { fence }
            | Self::Demoted { fence }
            | Self::Resumed { fence }
            | Self::Retreated { fence, .. }
            | Self::Refused { fence, .. }
            | Self::WantsAway { fence, .. }
            | Self::Arrived { fence, .. }
            | Self::CannotLeave { fence, .. }
            | Self::Stays { fence, .. }
            | Self::Lost { fence, .. } => *fence,
            Self::Finished(finished) => finished.fence,
        }
    }

    /// Does this end the attempt? The agent repeats it on every connection
    /// until the coordinator acknowledges it.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Finished(_)
            | Self::Retreated { .. }
            | Self::Refused { .. }
            | Self::Lost { .. } => true,
            Self::Started { .. }
            | Self::Suspended { .. }
            | Self::Demoted { .. }
            | Self::Resumed { .. }
            | Self::WantsAway { .. }
            | Self::Arrived { .. }
            | Self::CannotLeave { .. }
            | Self::Stays { .. } => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgentFrame {
    /// First on every connection; [`CoordinatorFrame::Welcome`] answers it.
    Hello {
        incarnation: Incarnation,
        boot: BootId,
        facts: Box<Facts>,
        presence: Presence,
        /// Guests here, and ends not acknowledged yet follow as `Attempt`.
        held: Vec<(Fence, GuestState)>,
        /// The latest attempt that it was ever offered. A coordinator that does not
        /// know it has lost its memory since.
        seen: Fence,
    },
    /// Renews the lease. The agent's lease runs from when it *sent* this.
    Heartbeat {
        sequence: u64,
        slots: u16,
        load: LoadAverages,
    },
    /// The workstation turned busy or idle, or its slots changed.
    Presence(Presence),
    Attempt(AttemptEvent),
    /// The machine is about to sleep or the agent to stop: guests are stopped.
    Leaving {
        reason: String,
    },
    /// Bytes for another agent that cannot be reached. Nobody in between reads
    /// them; they may be lost.
    Relay {
        to: WorkstationId,
        bytes: Vec<u8>,
    },
    /// A rank of this life asks or says something of its whole program.
    FromRank {
        fence: Fence,
        life: Life,
        bytes: Vec<u8>,
    },
    /// What is missing or sick now, in the place of [`Facts::missing`].
    Missing(Vec<String>),
    /// Why nothing new may be started now, in the place of [`Facts::unready`].
    Unready(Option<String>),
    /// This attempt was cancelled or not kept: nothing of it runs here any more. It
    /// may be lost: the next hello names all that is held.
    Stopped {
        fence: Fence,
    },
    /// Whose attempts those were of which [`CoordinatorFrame::Welcome`] said that
    /// nothing is known, as far as they are remembered here, ended or not: at most
    /// [`UNKNOWN_MAX`].
    Unknown(Vec<(Fence, SubprogramId)>),
}

/// An agent remembers of so many attempts whose they were: a guess at a day's.
pub const UNKNOWN_MAX: usize = 512;

/// A subprogram for a workstation. Its job's spec was sent before on the same
/// connection ([`CoordinatorFrame::Job`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub fence: Fence,
    pub subprogram: SubprogramId,
    /// What a rank needs to know of its program; `None` for any other guest.
    pub rank: Option<Box<RankOffer>>,
    /// Where its state comes from, agent to agent; `None` if it begins here.
    pub arrival: Option<Arrival>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CoordinatorFrame {
    Welcome {
        workstation: WorkstationId,
        name: String,
        /// How long guests may run unheard. Travels as a duration: clocks differ.
        lease: Duration,
        /// How often the agent sends a heartbeat while there are guests, and
        /// without any.
        heartbeat: Duration,
        heartbeat_without_guests: Duration,
        /// Of the held guests, these are still wanted; stop all others.
        keep: Vec<Fence>,
        /// Of later attempts of earlier generations the coordinator knows nothing:
        /// those that have ended are told again.
        generation: Generation,
        newest: Fence,
    },
    HeartbeatAck {
        sequence: u64,
    },
    Job {
        job: JobId,
        spec: Box<JobSpec>,
    },
    /// No more of this job will be offered.
    Forget {
        job: JobId,
    },
    Offer(Offer),
    /// The attempt is to be stopped and its result is not wanted; there is no
    /// answer.
    Cancel {
        fence: Fence,
    },
    /// The end of this attempt is durable: forget it.
    Acknowledge {
        fence: Fence,
    },
    /// The connection goes no further: what was wrong.
    Refused {
        reason: String,
    },
    /// Where ranks of this program are; what is not named has not changed.
    Ranks {
        job: JobId,
        life: Life,
        at: Vec<RankAt>,
    },
    /// Bytes from another agent ([`AgentFrame::Relay`]).
    Relayed {
        from: WorkstationId,
        bytes: Vec<u8>,
    },
    /// The attempt's state is to be carried there, where it becomes `to.at.fence`.
    /// The guest stays frozen here until it is cancelled or is to stay.
    Depart {
        fence: Fence,
        keep: Keep,
        to: Destination,
    },
    /// To the agent that a guest was to leave: the move came to nothing and
    /// nothing of the guest runs elsewhere, so the owner decides again.
    Stay {
        fence: Fence,
    },
    /// The answer to [`AgentFrame::FromRank`], or something that all ranks hear.
    ToRank {
        fence: Fence,
        life: Life,
        bytes: Vec<u8>,
    },
    /// To the agent that a guest has arrived at: its arrival is durable, and the
    /// guest may run.
    GoOn {
        fence: Fence,
    },
    /// Agents whose keys were taken away and whose certificates have not run out
    /// yet: none of them is spoken with, directly. After every welcome `all` of
    /// them, then those that come on top, when they do.
    Revoked {
        all: bool,
        keys: Vec<KeyHash>,
        /// The time by which certificates run out: workstations' clocks may be wrong.
        now: WallTime,
    },
    /// Another job needs the attempt's place: the guest is to be abandoned, and
    /// its work returned. Answered as any retreat is.
    GiveBack {
        fence: Fence,
    },
    /// All attempts here, begun or about to be, that take no place of their own:
    /// they share the place of another rank of their program.
    Riders {
        fences: Vec<Fence>,
    },
}

/// The first half of the BLAKE3 hash of a public key, as `SubjectPublicKeyInfo`
/// in DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(pub [u8; 16]);

// ── usage streams ──────────────────────────────────────────────────────────

/// An agent's stream begins with `Lives`, so that both know what the other has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UsageFrame {
    /// At most [`RECORDS_MAX`] records, of one life, in order of sequence.
    Records(#[serde(deserialize_with = "believable")] Vec<UsageRecord>),
    /// What the spool holds or remembers, of at most [`LIVES_MAX`] lives. Comes
    /// again when a number was given out whose record may never come.
    Lives(Vec<LifeAccount>),
}

/// Records whose loads are numbers from 0 on, or the frame is none: what is kept
/// for ever has no `NaN`, whoever sent it.
fn believable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<UsageRecord>, D::Error> {
    let records = Vec::<UsageRecord>::deserialize(from)?;
    match records.iter().find(|record| !record.load.are_possible()) {
        None => Ok(records),
        Some(_) => Err(de::Error::custom("a load that is no number from 0 on")),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UsageReply {
    /// All records of this life that came on this stream, up to and with `sequence`,
    /// are on disk.
    Confirmed { life: SpoolLife, sequence: u64 },
    /// The records are not on disk, and why ("no space left"): the agent keeps
    /// them and tries again later.
    Deferred { reason: String },
    /// What is on disk of the lives that were asked for, in that order; at most
    /// [`RANGES_MAX`] ranges of each.
    Kept(Vec<LifeKept>),
}

// ── enrolment ──────────────────────────────────────────────────────────────

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// The name to be known by: a machine's host name, a user's login.
    pub name: String,
    /// The newcomer's public key, as `SubjectPublicKeyInfo` in DER.
    pub public_key: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnrolReply {
    Enrolled {
        role: Role,
        name: String,
        /// The certificate and the authority's, in DER.
        certificate: Vec<u8>,
        authority: Vec<u8>,
    },
    Refused {
        reason: String,
    },
}

// ── requests ───────────────────────────────────────────────────────────────

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Which of these blobs does the coordinator not have?
    Missing(Vec<ContentHash>),
    Submit(Box<JobSpec>),
    /// All jobs, newest first; answered by `Reply::Job` each.
    Jobs,
    Job(JobId),
    /// The job's subprograms with indexes from `first`, in order and at most so
    /// many; answered by `Reply::Subprogram` each.
    Subprograms {
        job: JobId,
        first: u32,
        count: u32,
    },
    /// `Reply::Summary` now and at every change, until the job has ended.
    Watch(JobId),
    /// What the accepted attempt (or, before, the latest) printed and left.
    Output(SubprogramId),
    Cancel(JobId),
    Workstations,
    WhySubprogram(SubprogramId),
    WhyJob(JobId),
    WhyWorkstation(String),
    /// The attempts of a subprogram, oldest first.
    Attempts(SubprogramId),
    TokenCreate {
        role: Role,
        lifetime: Duration,
        name: Option<String>,
    },
    Tokens,
    TokenRevoke {
        id: String,
    },
    /// Is everything well? Also who the coordinator thinks is asking.
    Health,
    /// Who has used how much, by `Reply::Share` each.
    Shares,
    /// Everybody who may submit jobs, by `Reply::User` each.
    Users,
    /// Takes a person's keys away and closes their connections; their jobs end,
    /// or go on. Answered by `Reply::UserRemoved`.
    UserRemove {
        name: String,
        keep_jobs: bool,
    },
    /// Takes a workstation's key away; the name is free then.
    WorkstationRemove {
        name: String,
    },
    /// Places nothing new on a workstation, or does so again. With `now`, guests
    /// that can are moved elsewhere; the others finish.
    WorkstationDrain {
        name: String,
        drained: bool,
        now: bool,
    },
    /// Puts another public key, as `SubjectPublicKeyInfo` in DER, in the place of
    /// the one that this is asked with: `at_once`, or that one is good until its
    /// certificate runs out.
    Rotate {
        public_key: Vec<u8>,
        at_once: bool,
    },
    /// The replicas of a subprogram, by `Reply::Replica` each.
    Replicas(SubprogramId),
    /// What one of its replicas printed and left, whether or not it counts.
    ReplicaOutput {
        subprogram: SubprogramId,
        replica: u8,
    },
    /// Would this job be taken now? Nothing is submitted. Answered by
    /// `Reply::WouldTake`.
    Ask(Box<JobSpec>),
}

/// Answers. A listing is any number of rows and then `End`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Missing(Vec<ContentHash>),
    Submitted(JobId),
    Job(Box<JobRow>),
    Subprogram(Box<SubprogramRow>),
    Summary(JobSummary),
    Output {
        stdout: Printed,
        stderr: Printed,
        outputs: Vec<OutputFile>,
    },
    Cancelled,
    Workstation(Box<WorkstationRow>),
    /// Reasons, the deciding one first.
    Why(Vec<String>),
    Attempt(Box<AttemptRow>),
    Token {
        text: String,
        id: String,
        expires: WallTime,
    },
    TokenRow(Box<TokenRow>),
    TokenRevoked,
    Health(Box<HealthRow>),
    End,
    /// "No": what was asked for is not there or not allowed.
    No {
        reason: String,
    },
    Share(Box<ShareRow>),
    User(Box<UserRow>),
    /// What was asked for is done, and durable.
    Done,
    /// The new key's certificate, in DER.
    Rotated {
        certificate: Vec<u8>,
    },
    Replica(Box<ReplicaRow>),
    /// The user is let in no more; so many of their jobs were cancelled, and so
    /// many go on.
    UserRemoved {
        cancelled: u32,
        kept: u32,
    },
    /// Whether it would, and why or when.
    WouldTake {
        taken: bool,
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlobReply {
    /// After Put: it is on disk. Before Get's bytes: this many follow.
    Have {
        size_bytes: u64,
    },
    No {
        reason: String,
    },
}

/// The part of a job's spec that the agent's reaction core needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub on_busy: OnBusy,
    pub timeout: Option<Duration>,
    pub limits: Limits,
}

impl From<&JobSpec> for Terms {
    fn from(spec: &JobSpec) -> Self {
        Self { on_busy: spec.on_busy, timeout: spec.timeout, limits: spec.limits }
    }
}

#[cfg(test)]
mod tests;
