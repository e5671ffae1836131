//! What a directory of workload results is of.

use serde::{Deserialize, Serialize};

use super::file::ReportEntry;
use crate::results::manifest::Describes;

/// Raised whenever results of the same campaign would come out otherwise.
pub(super) const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkloadManifest {
    pub(crate) format: u32,
    pub(crate) name: String,
    pub(crate) chunks: u32,
    pub(crate) runs: u64,
    pub(crate) repeats: u32,
    pub(crate) per_job: bool,
    /// What the results depend on, hashed.
    pub(crate) campaign: String,
    pub(crate) usage: Option<String>,
    pub(crate) logs: Vec<LogFacts>,
    pub(crate) report: ReportEntry,
    /// The printed numbers, as the campaign's CSV has them.
    pub(crate) printed: Option<String>,
}

/// A log in the Standard Workload Format, as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogFacts {
    pub(crate) workload: String,
    pub(crate) digest: String,
    pub(crate) jobs: u64,
    /// Those that ran, and are run again.
    pub(crate) ran: u64,
    /// Lines that are no jobs.
    pub(crate) broken: u64,
    pub(crate) processors: Option<u32>,
}

impl Describes for WorkloadManifest {
    fn chunks(&self) -> u32 {
        self.chunks
    }

    fn difference(&self, now: &Self) -> Option<String> {
        if self.format != now.format {
            let (theirs, ours) = (self.format, now.format);
            return Some(format!(
                "it was filled by another version (format {theirs}, ours {ours})"
            ));
        }
        if self.name != now.name {
            return Some(format!("it is of `{}`, this is `{}`", self.name, now.name));
        }
        if self.campaign != now.campaign {
            return Some(format!("the campaign file of `{}` has changed since", now.name));
        }
        let logs = self.logs.iter().zip(&now.logs);
        if let Some((_, log)) = logs.clone().find(|(then, log)| then.digest != log.digest) {
            return Some(format!("the log of `{}` has changed since", log.workload));
        }
        (self.usage != now.usage)
            .then(|| "the usage log is another one, or has grown since".to_owned())
    }
}
