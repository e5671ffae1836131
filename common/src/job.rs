//! The job model: what a researcher submits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::amounts::{Amounts, CORES_MAX, GPUS_MAX};
use crate::id::ContentHash;
use crate::program::{CHECKPOINT_EVERY_MIN, ProgramSpec, RANKS_MAX};
use crate::requirement::Requirement;
use crate::shape::{Class, LIST_MAX, Shape};
use crate::sizes::{Allowed, SizesError};
use crate::units::spoken_size;

pub const SUBPROGRAMS_MAX: u32 = 10_000_000;
pub(crate) const COMMAND_BYTES_MAX: usize = 128 << 10;
pub const FILES_MAX: usize = 10_000;
pub const NAME_BYTES_MAX: usize = 200;
pub const PRIORITY_MAX: i8 = 100;
pub const REPLICAS_MAX: u8 = 5;
/// What a 64-bit machine of today can address: who asks for more has mistyped.
const MEMORY_BYTES_MAX: u64 = 64 << 40;
pub(crate) const PATH_BYTES_MAX: usize = 4_000;

crate::named! {
    /// What happens to a guest at a busy transition (Phalen 1994, §2.1.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Reaction {
        /// The guest stays and runs on, demoted below everything of the owner's.
        Renice = "renice",
        /// The guest stays, frozen.
        Suspend = "suspend",
        /// The guest moves with its state.
        Migrate = "migrate",
        /// The guest goes back to the start of its subtask and moves. Only ranks
        /// of a program can.
        Rollback = "rollback",
        /// The guest is abandoned; its work is returned.
        Retreat = "retreat",
    }
}

/// How long a suspended guest waits for its owner to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Patience {
    Forever,
    For(Duration),
    /// As long as the move would take that follows: whatever the owner does,
    /// standing and moving together then cost at most twice what the better of
    /// the two would have cost alone (Karlin, Manasse, Rudolph and Sleator
    /// 1988, "Competitive snoopy caching").
    ByCost,
}

impl From<Option<Duration>> for Patience {
    fn from(patience: Option<Duration>) -> Self {
        patience.map_or(Self::Forever, Self::For)
    }
}

/// A job's choice of reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnBusy {
    pub reaction: Reaction,
    /// Only for `Suspend`.
    pub patience: Patience,
    /// What a suspended guest does if its owner stays for longer: one of the
    /// reactions that move. Only for `Suspend`.
    pub then: Reaction,
}

impl Default for OnBusy {
    /// Freezes first and retreats after ten minutes: a short visit then costs
    /// nothing. Ten minutes is `HTCondor`'s default for the same step.
    fn default() -> Self {
        Self::suspend(Some(Duration::from_secs(600)), Reaction::Retreat)
    }
}

impl OnBusy {
    /// A reaction that waits for nothing.
    pub const fn at_once(reaction: Reaction) -> Self {
        Self { reaction, patience: Patience::Forever, then: Reaction::Retreat }
    }

    /// Frozen for that long (`None`: for ever), and then what.
    pub const fn suspend(patience: Option<Duration>, then: Reaction) -> Self {
        let patience = match patience {
            Some(span) => Patience::For(span),
            None => Patience::Forever,
        };
        Self { reaction: Reaction::Suspend, patience, then }
    }

    /// Frozen for as long as the move costs, and then the move.
    pub const fn suspend_by_cost(then: Reaction) -> Self {
        Self { reaction: Reaction::Suspend, patience: Patience::ByCost, then }
    }

    /// # Errors
    /// A suspension that does not end in a move.
    pub fn check(self) -> Result<(), InvalidJob> {
        if self.then.moves() { Ok(()) } else { Err(InvalidJob::StaysAfterAll(self.then.name())) }
    }

    /// Does it ever do this?
    pub fn means(self, reaction: Reaction) -> bool {
        self.reaction == reaction || self.reaction == Reaction::Suspend && self.then == reaction
    }
}

/// The values of `{i}`: `first`, `first + step`, .. while at most `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRange {
    pub first: u32,
    pub last: u32,
    pub step: u32,
}

impl IndexRange {
    /// 0, 1, .. `count - 1`; `None` for no subprogram at all.
    pub fn count_of(count: u32) -> Option<Self> {
        Some(Self { first: 0, last: count.checked_sub(1)?, step: 1 })
    }

    /// How many values there are; 0 if the range is not a good one.
    pub fn len(self) -> u32 {
        if self.step == 0 || self.last < self.first {
            return 0;
        }
        ((self.last - self.first) / self.step).saturating_add(1)
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value at a position, 0 for the first.
    pub fn at(self, position: u32) -> Option<u32> {
        (position < self.len()).then(|| self.first + position * self.step)
    }

    /// The position of the first value that is not below `index`; `len` or more
    /// if there is none.
    pub fn position_from(self, index: u32) -> u32 {
        index.saturating_sub(self.first).div_ceil(self.step.max(1))
    }

    /// The position of a value.
    pub fn position(self, index: u32) -> Option<u32> {
        let from_first = index.checked_sub(self.first)?;
        (index <= self.last && self.step > 0 && from_first.is_multiple_of(self.step))
            .then(|| from_first / self.step)
    }
}

/// A file that is staged by content into every subprogram's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// Relative, in normal form: no `..`, no leading `/`.
    pub path: String,
    pub hash: ContentHash,
    pub size_bytes: u64,
    pub executable: bool,
}

/// What one guest asks for and may use. 0 of memory or disk is the part that
/// goes with its cores, 0 processes are the workstation's own limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes_max: u64,
    pub processes_max: u32,
    pub disk_bytes_max: u64,
}

/// One submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    /// Program and arguments. `{i}` is replaced by the subprogram's index.
    pub command: Vec<String>,
    pub indexes: IndexRange,
    /// How many failures of one subprogram are made good by another attempt.
    pub retries: u32,
    /// How long an attempt may run, its suspensions not counted.
    pub timeout: Option<Duration>,
    pub environment: Vec<(String, String)>,
    pub inputs: Vec<StagedFile>,
    /// Bring back what the subprogram leaves in `$GLEAN_OUTPUT`.
    pub collect_output: bool,
    /// Run in this directory of the workstation's (a shared file system, as
    /// Phalen 1994 §1.2 assumes) instead of a private one.
    pub shared_directory: Option<String>,
    pub on_busy: OnBusy,
    pub limits: Limits,
    /// The subprograms are the ranks 0, 1, .. of one program.
    pub program: Option<ProgramSpec>,
    /// Among its user's jobs those with higher ones go first.
    pub priority: i8,
    /// Anybody may look at it, at what it prints and at what it leaves.
    pub public: bool,
    /// On how many different workstations each subprogram runs; more than half
    /// of them must come to the same.
    pub replicas: u8,
    /// What its workstations must be like.
    pub require: Requirement,
    /// Of those, the ones are chosen first that meet most of these conditions.
    pub prefer: Requirement,
    /// What it says of its size.
    pub shape: Shape,
    /// How many cores and GPUs each subprogram takes, beside its limits.
    pub cores: u16,
    pub gpus: u16,
}

/// Why a job cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJob {
    #[error("the job has no command")]
    NoCommand,
    #[error("the job has {0} subprograms: expected 1 to {SUBPROGRAMS_MAX}")]
    Subprograms(u32),
    #[error("the command and environment take {0} bytes: expected at most {COMMAND_BYTES_MAX}")]
    CommandTooLong(usize),
    #[error("`{0}` holds a NUL byte or `=`, which no program can be given")]
    BadText(String),
    #[error("the job's name takes {0} bytes: expected at most {NAME_BYTES_MAX}")]
    NameTooLong(usize),
    #[error("the job has {0} input files: expected at most {FILES_MAX}")]
    TooManyFiles(usize),
    #[error("input path `{0}` must be relative and stay inside the working directory")]
    BadPath(String),
    #[error("shared directory `{0}` must be an absolute path without `..`")]
    SharedNotAbsolute(String),
    #[error("the ranks of a program are numbered 0, 1, ..: expected such indexes")]
    RankNumbers,
    #[error("the program may have {0} ranks: expected at most {RANKS_MAX}")]
    Ranks(u32),
    #[error("checkpoints are at least a second apart")]
    CheckpointsTooOften,
    #[error("rollback is for programs of ranks: expected migrate or retreat")]
    RollsBackAlone,
    #[error("priority {0} is out of range: expected -{PRIORITY_MAX} to {PRIORITY_MAX}")]
    Priority(i8),
    #[error("{} of memory is more than any machine has: expected at most {}", spoken_size(*.0), spoken_size(MEMORY_BYTES_MAX))]
    Memory(u64),
    #[error("{0} cores for one subprogram are out of range: expected 1 to {CORES_MAX}")]
    Cores(u16),
    #[error("{0} GPUs for one subprogram are out of range: expected at most {GPUS_MAX}")]
    Gpus(u16),
    #[error("a timeout of nothing lets nothing run: expected a span")]
    NoTime,
    #[error("the program has {ranks} ranks and may have {most}: expected at least as many")]
    FewerRanks { ranks: u32, most: u32 },
    #[error("{0} replicas are out of range: expected 1 (none beside it) to {REPLICAS_MAX}")]
    Replicas(u8),
    #[error("the ranks of a program cannot be replicated: expected independent subprograms")]
    ReplicatedRanks,
    #[error(
        "replicas in a shared directory would write over each other: expected results on standard \
         output or in $GLEAN_OUTPUT"
    )]
    ReplicatedShared,
    #[error(transparent)]
    Sizes(#[from] SizesError),
    #[error("a rigid job of {min} to {max} places: expected one number")]
    RigidRange { min: u32, max: u32 },
    #[error("a list of {0}: expected at most {LIST_MAX}")]
    LongList(usize),
    #[error(
        "a bag of subprograms does not ask for more by itself: expected rigid, moldable or malleable"
    )]
    EvolvingBag,
    #[error("the program is {said} and {is}: expected one of them")]
    OtherClass { said: &'static str, is: &'static str },
    #[error(
        "each of the {ranks} ranks has a place of its own: expected no other number and no list"
    )]
    RanksHavePlaces { ranks: u32 },
    #[error(
        "the {ranks} ranks it begins with share places or have one each: expected 1 to {ranks}, and no list"
    )]
    MorePlacesThanRanks { ranks: u32 },
    #[error("`{0}` after a suspension does not leave the workstation: expected retreat")]
    StaysAfterAll(&'static str),
}

/// Is this a path that stays inside the directory it is put in?
pub fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn leads_up(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

impl JobSpec {
    /// A job of `count` runs of a command, with the defaults of `glean submit`.
    pub fn new(command: Vec<String>, indexes: IndexRange) -> Self {
        Self {
            name: command.first().cloned().unwrap_or_default(),
            command,
            indexes,
            retries: 2,
            timeout: None,
            environment: vec![],
            inputs: vec![],
            collect_output: false,
            shared_directory: None,
            on_busy: OnBusy::default(),
            limits: Limits::default(),
            program: None,
            priority: 0,
            public: false,
            replicas: 1,
            require: Requirement::default(),
            prefer: Requirement::default(),
            shape: Shape::default(),
            cores: 1,
            gpus: 0,
        }
    }

    /// What each subprogram asks of its workstation.
    pub fn asked(&self) -> Amounts {
        Amounts {
            cores: self.cores,
            gpus: self.gpus,
            memory_bytes: self.limits.memory_bytes_max,
            disk_bytes: self.limits.disk_bytes_max,
        }
    }

    /// Checks everything a stranger could have got wrong.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), InvalidJob> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(InvalidJob::NoCommand);
        }
        if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&self.priority) {
            return Err(InvalidJob::Priority(self.priority));
        }
        let memory = self.limits.memory_bytes_max;
        if memory > MEMORY_BYTES_MAX {
            return Err(InvalidJob::Memory(memory));
        }
        if !(1..=CORES_MAX).contains(&self.cores) {
            return Err(InvalidJob::Cores(self.cores));
        }
        if self.gpus > GPUS_MAX {
            return Err(InvalidJob::Gpus(self.gpus));
        }
        if self.timeout == Some(Duration::ZERO) {
            return Err(InvalidJob::NoTime);
        }
        let count = self.indexes.len();
        if count == 0 || count > SUBPROGRAMS_MAX {
            return Err(InvalidJob::Subprograms(count));
        }
        if self.name.len() > NAME_BYTES_MAX {
            return Err(InvalidJob::NameTooLong(self.name.len()));
        }
        let bytes = self.command.iter().map(String::len).sum::<usize>()
            + self.environment.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        if bytes > COMMAND_BYTES_MAX {
            return Err(InvalidJob::CommandTooLong(bytes));
        }
        if let Some(text) = self.command.iter().find(|text| text.contains('\0')) {
            return Err(InvalidJob::BadText(text.replace('\0', "\\0")));
        }
        if let Some((key, _)) = self
            .environment
            .iter()
            .find(|(k, v)| k.is_empty() || k.contains(['=', '\0']) || v.contains('\0'))
        {
            return Err(InvalidJob::BadText(key.replace('\0', "\\0")));
        }
        if self.inputs.len() > FILES_MAX {
            return Err(InvalidJob::TooManyFiles(self.inputs.len()));
        }
        if let Some(file) = self.inputs.iter().find(|file| !is_inside(&file.path)) {
            return Err(InvalidJob::BadPath(file.path.clone()));
        }
        if let Some(path) = self
            .shared_directory
            .as_ref()
            .filter(|path| !path.starts_with('/') || path.contains('\0') || leads_up(path))
        {
            return Err(InvalidJob::SharedNotAbsolute(path.clone()));
        }
        if let Some(program) = &self.program {
            if self.indexes.first != 0 || self.indexes.step != 1 {
                return Err(InvalidJob::RankNumbers);
            }
            if program.ranks_max != 0 && program.ranks_max < count {
                return Err(InvalidJob::FewerRanks { ranks: count, most: program.ranks_max });
            }
            let ranks = count.max(program.ranks_max);
            if ranks > RANKS_MAX {
                return Err(InvalidJob::Ranks(ranks));
            }
            if program.checkpoint_every.is_some_and(|every| every < CHECKPOINT_EVERY_MIN) {
                return Err(InvalidJob::CheckpointsTooOften);
            }
        }
        self.check_replicas()?;
        self.check_shape()?;
        if self.program.is_none() && self.on_busy.means(Reaction::Rollback) {
            return Err(InvalidJob::RollsBackAlone);
        }
        self.on_busy.check()
    }

    /// How many places it needs at the same time, to get on at all.
    pub fn needs_at_once(&self) -> u32 {
        let count = self.indexes.len();
        let bag = || self.shape.sizes_of_bag(count).map_or(1, |sizes| sizes.min());
        match self.program {
            // Ranks may share places, two at each.
            Some(program) if program.increases => {
                self.shape.min.map_or(count, |min| min.clamp(count.div_ceil(2), count))
            }
            Some(_) => count,
            None => bag(),
        }
    }

    pub fn class(&self) -> Class {
        match self.program {
            Some(ProgramSpec { increases: true, .. }) => Class::Malleable,
            Some(ProgramSpec { spawns: true, .. }) => Class::Evolving,
            Some(_) => Class::Rigid,
            None => self.shape.class_of_bag(),
        }
    }

    fn check_shape(&self) -> Result<(), InvalidJob> {
        let (shape, count) = (&self.shape, self.indexes.len());
        if shape.longest_list() > LIST_MAX {
            return Err(InvalidJob::LongList(shape.longest_list()));
        }
        if self.program.is_some() {
            return self.check_ranks();
        }
        let sizes = shape.sizes_of_bag(count)?;
        let (min, max) = (sizes.min(), sizes.max());
        match self.class() {
            Class::Rigid if min != max => Err(InvalidJob::RigidRange { min, max }),
            Class::Evolving => Err(InvalidJob::EvolvingBag),
            Class::Rigid | Class::Moldable | Class::Malleable => Ok(()),
        }
    }

    fn check_ranks(&self) -> Result<(), InvalidJob> {
        let (shape, ranks) = (&self.shape, self.indexes.len());
        let (said, is) = (shape.class.unwrap_or(self.class()).name(), self.class().name());
        if said != is {
            return Err(InvalidJob::OtherClass { said, is });
        }
        let shares = self.class() == Class::Malleable;
        let mut bounds = [shape.min, shape.preferred].into_iter().flatten();
        let is_other = |bound| if shares { !(1..=ranks).contains(&bound) } else { bound != ranks };
        if bounds.any(is_other) || shape.allowed != Allowed::Any {
            return Err(if shares {
                InvalidJob::MorePlacesThanRanks { ranks }
            } else {
                InvalidJob::RanksHavePlaces { ranks }
            });
        }
        Ok(())
    }

    fn check_replicas(&self) -> Result<(), InvalidJob> {
        match self.replicas {
            1 => Ok(()),
            few if !(1..=REPLICAS_MAX).contains(&few) => Err(InvalidJob::Replicas(few)),
            _ if self.program.is_some() => Err(InvalidJob::ReplicatedRanks),
            _ if self.shared_directory.is_some() => Err(InvalidJob::ReplicatedShared),
            _ => Ok(()),
        }
    }
}

/// How an attempt ended by itself or was ended by a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Exit code 0.
    Succeeded,
    /// Any other exit code.
    ExitCode(i32),
    /// Ended by a signal that was not ours.
    Signal(i32),
    /// Ran longer than the job's timeout.
    TimedOut,
    /// Went over a limit: which, and how far it may go.
    OverLimit(String),
    /// Could not be started here, and would not anywhere: no such program,
    /// not executable, a staged file that cannot be had.
    CannotStart(String),
    /// Did what no program of ranks may: which rank, and what. Trying again
    /// would not help.
    Fault(String),
}

impl Outcome {
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Succeeded)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Succeeded => write!(f, "succeeded"),
            Self::ExitCode(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::TimedOut => write!(f, "timed out"),
            Self::OverLimit(what) => write!(f, "over its limit: {what}"),
            Self::CannotStart(why) => write!(f, "cannot start: {why}"),
            Self::Fault(what) => write!(f, "fault: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_position_from_an_index_on_is_that_of_the_next_value() {
        let range = IndexRange { first: 10, last: 20, step: 5 };
        let positions = [0, 10, 11, 15, 20, 21].map(|index| range.position_from(index));
        assert_eq!(positions, [0, 0, 1, 1, 2, 3]);
    }

    fn job() -> JobSpec {
        JobSpec::new(vec!["/bin/true".into()], IndexRange { first: 1, last: 10, step: 1 })
    }

    #[test]
    fn a_plain_job_is_accepted() {
        assert_eq!(job().check(), Ok(()));
    }

    #[test]
    fn paths_that_leave_their_directory_are_refused() {
        for path in ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/", "a\0b"] {
            assert!(!is_inside(path), "{path:?}");
        }
        assert!(is_inside("a/b.txt"));
    }

    #[test]
    fn a_shared_directory_that_leads_up_and_out_is_refused() {
        for path in ["srv", "/srv/..", "/srv/../etc", "/..", "/srv\0"] {
            let mut job = job();
            job.shared_directory = Some(path.into());
            assert_eq!(job.check(), Err(InvalidJob::SharedNotAbsolute(path.into())));
        }
        let mut job = job();
        job.shared_directory = Some("/srv/results..old".into());
        assert_eq!(job.check(), Ok(()));
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        let mut large = job();
        large.limits.memory_bytes_max = 900 << 40;
        let mut few = JobSpec { indexes: IndexRange::count_of(3).unwrap(), ..job() };
        few.program = Some(ProgramSpec { ranks_max: 2, ..ProgramSpec::default() });
        let mut ranks = JobSpec { indexes: IndexRange::count_of(3).unwrap(), ..job() };
        (ranks.replicas, ranks.program) = (2, Some(ProgramSpec::default()));
        let shared_directory = Some("/srv".into());
        let shared = JobSpec { replicas: 2, shared_directory, ..job() };
        for (wrong, told) in [
            (large, "900.0 TiB of memory is more than any machine has"),
            (few, "the program has 3 ranks and may have 2"),
            (JobSpec { timeout: Some(Duration::ZERO), ..job() }, "a timeout of nothing"),
            (JobSpec { priority: 101, ..job() }, "priority 101 is out of range"),
            (JobSpec { cores: 0, ..job() }, "0 cores for one subprogram are out of range"),
            (JobSpec { cores: 1_025, ..job() }, "1025 cores for one subprogram"),
            (JobSpec { gpus: 65, ..job() }, "65 GPUs for one subprogram are out of range"),
            (JobSpec { replicas: 0, ..job() }, "0 replicas are out of range"),
            (JobSpec { replicas: REPLICAS_MAX + 1, ..job() }, "6 replicas are out of range"),
            (ranks, "the ranks of a program cannot be replicated"),
            (shared, "replicas in a shared directory would write over each other"),
        ] {
            let why = wrong.check().unwrap_err().to_string();
            assert!(why.starts_with(told), "{why}");
        }
    }

    #[test]
    fn only_ranks_roll_back() {
        let mut job = job();
        job.on_busy = OnBusy::at_once(Reaction::Migrate);
        assert_eq!(job.check(), Ok(()));
        job.on_busy = OnBusy::suspend(None, Reaction::Rollback);
        assert_eq!(job.check(), Err(InvalidJob::RollsBackAlone));
        job.on_busy.reaction = Reaction::Migrate;
        assert_eq!(job.check(), Ok(()), "it never comes to that");
    }

    #[test]
    fn a_suspension_that_would_not_end_in_a_move_is_refused() {
        let mut job = job();
        job.on_busy.then = Reaction::Renice;
        assert_eq!(job.check(), Err(InvalidJob::StaysAfterAll("renice")));
    }

    proptest! {
        #[test]
        fn positions_and_indexes_are_inverse(first in 0u32..50, span in 0u32..200, step in 1u32..9) {
            let range = IndexRange { first, last: first + span, step };
            for position in 0..range.len() {
                let index = range.at(position).unwrap();
                prop_assert_eq!(range.position(index), Some(position));
            }
            prop_assert_eq!(range.at(range.len()), None);
        }
    }
}
