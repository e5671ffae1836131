//! Rows: what the commands list and report. The same types travel in replies
//! and are printed by `--json`, so their field names are an interface.

use serde::{Deserialize, Serialize};

use crate::id::{Fence, JobId, SubprogramId, WorkstationId};
use crate::job::OnBusy;
use crate::machine::Machine;
use crate::program::ProgramSpec;
use crate::time::WallTime;
use crate::wire::Role;

crate::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum JobState {
        Running = "running",
        Succeeded = "succeeded",
        /// All subprograms have ended, and some failed.
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl JobState {
    pub fn has_ended(self) -> bool {
        self != Self::Running
    }
}

/// What is counted of a job as it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Subprograms that have ended, by how.
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
    /// Attempts abandoned for an owner.
    pub retreats: u64,
    pub suspensions: u64,
    /// Attempts that ended with their workstation or its lease.
    pub lost: u64,
    /// Failures that were tried again.
    pub retried: u64,
    /// Attempts that went on elsewhere with what they had.
    pub moves: u64,
}

impl Counts {
    /// Subprograms that have ended.
    pub fn ended(&self) -> u32 {
        self.succeeded + self.failed + self.cancelled
    }
}

/// How far a job is, in subprograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "FlatSummary", from = "FlatSummary")]
pub struct JobSummary {
    pub job: JobId,
    pub state: JobState,
    pub total: u32,
    pub queued: u32,
    /// Placed on a workstation: waiting there, running or demoted.
    pub running: u32,
    pub suspended: u32,
    pub counts: Counts,
}

/// The counts are fields like the others in `--json`. On the wire, where only the
/// order matters, that is the same as a struct of their own.
macro_rules! flat_summary {
    ($($own:ident: $of_job:ty),*; $($count:ident: $counted:ty),*) => {
        #[derive(Serialize, Deserialize)]
        struct FlatSummary { $($own: $of_job,)* $($count: $counted,)* }

        impl From<JobSummary> for FlatSummary {
            fn from(of: JobSummary) -> Self {
                Self { $($own: of.$own,)* $($count: of.counts.$count,)* }
            }
        }

        impl From<FlatSummary> for JobSummary {
            fn from(flat: FlatSummary) -> Self {
                let counts = Counts { $($count: flat.$count,)* };
                Self { $($own: flat.$own,)* counts }
            }
        }
    };
}

flat_summary!(
    job: JobId, state: JobState, total: u32, queued: u32, running: u32, suspended: u32;
    succeeded: u32, failed: u32, cancelled: u32,
    retreats: u64, suspensions: u64, lost: u64, retried: u64, moves: u64
);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    pub job: JobId,
    pub name: String,
    pub user: String,
    pub command: Vec<String>,
    pub submitted: WallTime,
    pub ended: Option<WallTime>,
    pub on_busy: OnBusy,
    pub retries: u32,
    pub summary: JobSummary,
    /// CPU seconds of accepted results, and of work that was thrown away.
    pub cpu_s: f64,
    pub wasted_cpu_s: f64,
    /// If it is one program of ranks.
    pub program: Option<ProgramSpec>,
    /// How often the program has begun, the first time included; 0 for what is
    /// none.
    pub life: u32,
    /// What its moves carried, and how long it stood still for them.
    pub moved_bytes: u64,
    pub frozen_s: f64,
    /// What its user should know: the newest last.
    pub notes: Vec<String>,
    /// Anybody may look at it.
    pub public: bool,
    /// On how many different workstations each subprogram runs.
    pub replicas: u8,
}

impl JobRow {
    /// What those see who may not look at it: that there is one, whose, and how
    /// far it is.
    #[must_use]
    pub fn outline(self) -> Self {
        Self { name: String::new(), command: vec![], program: None, notes: vec![], ..self }
    }
}

crate::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum SubprogramState {
        Queued = "queued",
        /// Placed and not started yet.
        Placed = "placed",
        Running = "running",
        Suspended = "suspended",
        Demoted = "demoted",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubprogramRow {
    pub subprogram: SubprogramId,
    pub state: SubprogramState,
    /// Where it is or was last.
    pub workstation: Option<String>,
    pub fence: Option<Fence>,
    pub attempts: u32,
    pub failures: u32,
    pub retreats: u32,
    pub lost: u32,
    /// How the last ended attempt ended, in words.
    pub outcome: Option<String>,
    pub cpu_s: f64,
    pub moves: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRow {
    pub fence: Fence,
    pub subprogram: SubprogramId,
    pub workstation: String,
    pub placed: WallTime,
    pub ended: Option<WallTime>,
    /// "succeeded", "retreated: pts/3, 0 s ago", "lost: lease ended", ..
    pub end: Option<String>,
    /// Which of the subprogram's replicas it is of: 1, 2, ..
    pub replica: u8,
}

crate::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ReplicaState {
        Queued = "queued",
        Placed = "placed",
        Running = "running",
        Suspended = "suspended",
        Demoted = "demoted",
        /// It has come to something, and the others are still to be heard.
        Answered = "answered",
        /// What it came to is what counts, or is not.
        Agrees = "agrees",
        Differs = "differs",
        /// It was not needed any more.
        Dropped = "dropped",
    }
}

/// One of the runs of a replicated subprogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaRow {
    pub subprogram: SubprogramId,
    /// 1, 2, ..
    pub replica: u8,
    pub state: ReplicaState,
    /// Where it is or was last.
    pub workstation: Option<String>,
    pub fence: Option<Fence>,
    pub attempts: u32,
    /// How its last ended attempt ended, in words.
    pub outcome: Option<String>,
    /// The beginning of a hash of what it came to: equal for equal ones.
    pub answer: Option<String>,
}

crate::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum WorkstationState {
        Idle = "idle",
        Busy = "busy",
        /// Not connected.
        Away = "away",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkstationRow {
    pub workstation: WorkstationId,
    pub name: String,
    pub state: WorkstationState,
    pub reason: String,
    /// How long the workstation has been so, in seconds.
    pub lasted_s: f64,
    pub cores: u16,
    pub places: u16,
    pub slots: u16,
    pub guests: u16,
    pub load_1m: f32,
    pub speed: f32,
    pub memory_bytes: u64,
    pub kernel: String,
    pub missing: Vec<String>,
    pub machine: Machine,
    /// What somebody should see to: a full disk, a second machine with its identity.
    pub troubles: Vec<String>,
}

/// What a user has used of the lab, beside their share of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShareRow {
    pub user: String,
    pub group: Option<String>,
    /// The part of the lab that is the user's while everybody listed wants all
    /// they can get: 0 to 1.
    pub share: f64,
    /// Place-seconds, those of a half-life ago counting half.
    pub usage_s: f64,
    /// Attempts that have a place.
    pub running: u32,
    pub queued: u64,
    /// Usage for the share: whoever has the lowest comes first.
    pub factor: f64,
}

/// Somebody who may submit jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserRow {
    pub user: String,
    pub role: Role,
    /// How many machines they have enrolled at.
    pub keys: u32,
    /// When the first of these was.
    pub enrolled: WallTime,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenRow {
    pub id: String,
    pub role: Role,
    pub name: Option<String>,
    pub expires: WallTime,
    /// "open", "used", "expired" or "revoked".
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HealthRow {
    pub version: String,
    /// Who the coordinator thinks is asking.
    pub you: String,
    pub role: Role,
    pub wall: WallTime,
    pub workstations: u32,
    pub connected: u32,
    pub collector_connected: bool,
    /// "well", or what is wrong with the store in one line.
    pub store: String,
    /// What of the database is not as it was written; empty if nothing is known of.
    pub damage: String,
    /// How it shows that the store went back to an earlier time; empty if it did not.
    pub went_back: String,
    pub queued: u64,
    /// How long placing took, in seconds, over the last placements.
    pub placement_p50_s: f64,
    pub placement_p99_s: f64,
    pub placement_max_s: f64,
    /// Resident memory of the coordinator.
    pub rss_bytes: u64,
}
