//! Why a job waits or was refused: every "no" has one.

use std::fmt;

use gleaner_common::id::JobId;
use gleaner_common::time::Moment;

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Fewer processors are free than it needs.
    TooFewFree { needs: u32, free: u32 },
    /// What is free lacks what it asks for, or is where it is not to go.
    NothingSuits,
    /// The policy keeps the order of the queue, and another is before it.
    Behind(JobId),
    /// It fits now, but would be in the way of a job that was promised a start.
    WouldDelay { job: JobId, start: Moment },
    /// It was promised a start.
    Reserved { start: Moment },
    /// Others have been asked to give processors for it.
    Releasing { processors: u32 },
    /// Running jobs take what is free as long as they can (Buisson et al. 2007,
    /// §V.B, PRA).
    RunningFirst,
    /// Its batch has more jobs than processors are free (Bagga 2014, §3.4.4).
    BatchTooLarge { jobs: u32, free: u32 },
    /// It waits for the job with the first deadline to end (Kumar 2001,
    /// §3.2.5).
    LookAhead(JobId),
    /// More than there ever is.
    LargerThanAll { needs: u32, all: u32 },
    /// It was tried that often (Buisson et al. 2007, §IV.A).
    OutOfTries { tries: u64 },
    /// It cannot end before its deadline with what can be had.
    Deadline { needs: u32, available: u32 },
    /// What it brings is less than what others lose.
    Unprofitable { gain: f64 },
}

impl Reason {
    /// Is this the end of it, and not only for now?
    pub fn is_final(self) -> bool {
        match self {
            Self::LargerThanAll { .. }
            | Self::OutOfTries { .. }
            | Self::Deadline { .. }
            | Self::Unprofitable { .. } => true,
            Self::TooFewFree { .. }
            | Self::NothingSuits
            | Self::Behind(_)
            | Self::WouldDelay { .. }
            | Self::Reserved { .. }
            | Self::Releasing { .. }
            | Self::RunningFirst
            | Self::BatchTooLarge { .. }
            | Self::LookAhead(_) => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewFree { needs, free } => {
                write!(f, "it needs {needs} processors, and {free} are free")
            }
            Self::NothingSuits => write!(f, "no workstation that is free suits it"),
            Self::Behind(job) => write!(f, "job {job} comes first, and does not fit yet"),
            Self::WouldDelay { job, .. } => {
                write!(f, "it fits, but would delay job {job}, which was promised a start")
            }
            Self::Reserved { .. } => write!(f, "it was promised a start, which is not yet"),
            Self::Releasing { processors } => {
                write!(f, "it waits for {processors} processors that others are to give")
            }
            Self::RunningFirst => write!(f, "running jobs that can grow come first"),
            Self::BatchTooLarge { jobs, free } => {
                write!(f, "its batch has {jobs} jobs, and {free} processors are free")
            }
            Self::LookAhead(job) => write!(f, "it is accepted, and waits for job {job} to end"),
            Self::LargerThanAll { needs, all } => {
                write!(f, "it needs {needs} processors, and there are {all} at most")
            }
            Self::OutOfTries { tries } => write!(f, "it was tried {tries} times in vain"),
            Self::Deadline { needs, available } => write!(
                f,
                "it needs {needs} processors to end before its deadline, and {available} can be had"
            ),
            Self::Unprofitable { gain } => {
                write!(f, "it would bring {:.2} less than others would lose", -gain)
            }
        }
    }
}
