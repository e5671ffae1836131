//! What a directory of results is of: asked for, found, and left out.

use std::io;
use std::path::{Path, PathBuf};

use gleaner_shell::text;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::model::RulesOf;

/// Raised whenever results of the same campaign would come out otherwise.
pub(crate) const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub name: String,
    pub report: ReportKind,
    pub chunks: u32,
    /// How many executions there are, without those at cost zero that others are
    /// measured against.
    pub executions: u64,
    pub digests: Digests,
    pub programs: Vec<ProgramFacts>,
    pub networks: Vec<NetworkFacts>,
    pub owners: OwnerFacts,
    /// How the executions were set up; nothing in results of before this was said.
    #[serde(default)]
    pub setting: Setting,
}

/// What of a campaign's making its report has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// How the times of the log's records were understood.
    pub interpretation: String,
    /// How long a period is: what takes longer is given up.
    pub period_s: u64,
    /// The model of the owners, if they were made up.
    pub model: Option<String>,
    /// Of that model, each parameter that was chosen to come near a printed
    /// figure, and its value.
    pub fitted: Vec<(String, String)>,
    /// Programs whose computing was stretched to a length, in milliseconds.
    pub stretched: Vec<(String, u64)>,
    /// Whose rules ranks kept.
    #[serde(default)]
    pub rules: RulesOf,
    /// What the `ranked` policy would look at and is not known, if it was asked.
    #[serde(default)]
    pub ranked_lacks: Vec<String>,
}

/// Which tables and figures a report holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportKind {
    /// Slowdown, moves and the critical path by whatever was varied, which
    /// answers the open questions of Phalen 1994, §8, as far as it varies them.
    #[default]
    General,
    /// Phalen 1994: her tables 10 to 12 and figures 5 to 50.
    Phalen1994,
    /// What a lab's keeper wants to know.
    Library,
}

/// What the results depend on, hashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    pub campaign: String,
    pub traces: Vec<String>,
    pub usage: String,
}

/// A program as it was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFacts {
    pub name: String,
    /// Independent subtasks that any workstation takes; then `ranks` is how
    /// many workers it begins with.
    pub bag: bool,
    /// The bag begins a worker on whatever is idle; `ranks` says nothing then.
    #[serde(default)]
    pub all: bool,
    pub ranks: u32,
    pub operations: u64,
    pub undisturbed_ns: u64,
    /// Between two receives, over all ranks.
    pub subtasks: u64,
    pub compute_ns: u64,
}

/// A network as it was found in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkFacts {
    pub workstations: u32,
    pub periods_wanted: u32,
    pub periods: u32,
    /// Periods that came first in the drawing and in which too few
    /// workstations were eligible (Phalen 1994, §5.1).
    pub passed_over: u32,
    /// Over the periods taken: the fewest and most workstations eligible.
    pub eligible_min: u32,
    pub eligible_max: u32,
}

/// Lengths of idle periods that are counted apart, in minutes: up to each of
/// them, and over the last.
pub(crate) const IDLE_LENGTHS_MIN: [u64; 8] = [1, 5, 20, 40, 60, 120, 240, 480];

/// The whole log's owners, over the stretch of days that periods are from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerFacts {
    pub workstations: u32,
    pub days: u32,
    /// By hour of the week from Monday's midnight: workstation time that was
    /// idle, busy and unknown, in seconds.
    pub idle_s: Vec<u64>,
    pub busy_s: Vec<u64>,
    pub unknown_s: Vec<u64>,
    /// Idle time by the length of the period it is in ([`IDLE_LENGTHS_MIN`]).
    pub idle_s_by_length: Vec<u64>,
    pub idle_periods: u64,
}

/// Why there is no manifest.
#[derive(Debug, thiserror::Error)]
pub enum ReadManifestError {
    #[error("there is none")]
    Missing,
    #[error("cannot read {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("{} is not what a campaign left there: {why}", path.display())]
    Damaged { path: PathBuf, why: serde_json::Error },
}

/// A hundred times the longest.
const BYTES_MAX: usize = 32 << 20;

/// What a directory of results says of itself.
pub(crate) trait Describes: Serialize + DeserializeOwned + PartialEq {
    fn chunks(&self) -> u32;

    /// Why results of `now` cannot go where those of `self` are.
    fn difference(&self, now: &Self) -> Option<String>;
}

pub(super) fn read<M: Describes>(path: &Path) -> Result<M, ReadManifestError> {
    match text::read_up_to(path, BYTES_MAX) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|why| ReadManifestError::Damaged { path: path.to_owned(), why }),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Err(ReadManifestError::Missing),
        Err(why) => Err(ReadManifestError::Unreadable { path: path.to_owned(), why }),
    }
}

pub(super) fn to_json(manifest: &impl Describes) -> String {
    let mut text = serde_json::to_string_pretty(manifest)
        .unwrap_or_else(|error| unreachable!("numbers and texts always serialise: {error}"));
    text.push('\n');
    text
}

impl Describes for Manifest {
    fn chunks(&self) -> u32 {
        self.chunks
    }

    fn difference(&self, now: &Self) -> Option<String> {
        if self.format != now.format {
            return Some(format!(
                "it was filled by another version (format {}, ours is {})",
                self.format, now.format
            ));
        }
        if self.name != now.name {
            return Some(format!("it is of `{}`, this is `{}`", self.name, now.name));
        }
        if self.digests.campaign != now.digests.campaign {
            return Some(format!("the campaign file of `{}` has changed since", now.name));
        }
        let pairs = self.digests.traces.iter().zip(&now.digests.traces).zip(&now.programs);
        for ((then, trace), program) in pairs {
            if then != trace {
                return Some(format!("the trace of `{}` has changed since", program.name));
            }
        }
        (self.digests.usage != now.digests.usage)
            .then(|| "the usage log is another one, or has grown since".to_owned())
    }
}
