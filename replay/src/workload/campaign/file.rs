//! The campaign file: TOML, every key known, every value typed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range as Span;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gleaner_coordinator_core::scheduler::{ALL, Named, Parameters, named};
use gleaner_shell::config::{self, ConfigError, invalid};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};
use toml::Spanned;

use crate::campaign::file::UsageSource;
use crate::campaign::values::{Choices, CostChoices, PlacementChoice, Spelled, Spelt};
use crate::workload::generate::{Bagga, Downey, Koala, Kumar, Mixed, Model, Range};
use crate::workload::{ChangeCosts, Ramp};

/// What to run, and under which conditions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadCampaign {
    pub name: String,
    /// The first of the seeds; each repetition has the next one.
    pub seed: u64,
    #[serde(default = "once")]
    pub repeats: u32,
    /// Whether a row is kept for each job, beside that of each run.
    #[serde(default)]
    pub per_job: bool,
    pub policies: Choices<PolicyName>,
    #[serde(default)]
    pub parameters: ParametersEntry,
    pub sites: Vec<SiteEntry>,
    pub workloads: Vec<WorkloadEntry>,
    /// What a negotiation takes (Ghafoor 2007, §3.3.4).
    #[serde(default = "nothing")]
    pub negotiation: CostChoices,
    /// What a change by one processor takes (§3.3.5).
    #[serde(default = "nothing")]
    pub adaptation: CostChoices,
    /// Both drawn for each negotiation, from these costs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<RampEntry>,
    /// Where owners come from, for sites that have some.
    #[serde(skip_serializing)]
    pub usage: Option<UsageSource>,
    /// How many runs are done at once: what an interruption costs at most, for
    /// each thread.
    #[serde(default = "chunk_runs")]
    pub chunk_runs: u32,
    #[serde(default, skip_serializing)]
    pub report: ReportEntry,
}

fn once() -> u32 {
    1
}

/// Some seconds' work, of thousands of jobs each.
fn chunk_runs() -> u32 {
    16
}

fn nothing() -> CostChoices {
    CostChoices(vec![std::time::Duration::ZERO])
}

/// What a negotiation and a change cost at most (Ghafoor 2007, §4.2.5).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RampEntry {
    pub negotiation: Spelt,
    pub adaptation: Spelt,
    /// How many of a hundred negotiations come to something.
    #[serde(default = "all_of_them")]
    pub success: u32,
}

fn all_of_them() -> u32 {
    100
}

impl RampEntry {
    pub(crate) fn ramp(self, seed: u64) -> Ramp {
        let (Spelt(negotiation), Spelt(adaptation)) = (self.negotiation, self.adaptation);
        Ramp { seed, most: ChangeCosts { negotiation, adaptation }, success: self.success }
    }
}

/// A scheduling policy, by its name.
#[derive(Clone, Copy, Debug)]
pub struct PolicyName(pub &'static Named);

impl PartialEq for PolicyName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.name)
    }
}

/// Why a text is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a scheduling policy: expected one of {expected}")]
pub struct ParsePolicyError {
    text: String,
    expected: String,
}

impl FromStr for PolicyName {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        named(text).map(Self).ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|it| it.name).collect();
            ParsePolicyError { text: text.to_owned(), expected: names.join(", ") }
        })
    }
}

/// What policies can be told.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParametersEntry {
    pub kept_free: u32,
    pub tries_max: u64,
    pub barrier: Option<Spelt>,
    pub change_cost: Option<Spelt>,
    pub overtaken_max: Option<Spelt>,
}

impl ParametersEntry {
    pub(crate) fn parameters(self) -> Parameters {
        let usual = Parameters::default();
        let or = |said: Option<Spelt>, usual| said.map_or(usual, |Spelt(span)| span);
        Parameters {
            kept_free: self.kept_free,
            tries_max: self.tries_max,
            barrier: or(self.barrier, usual.barrier),
            change_cost: or(self.change_cost, usual.change_cost),
            overtaken_max: or(self.overtaken_max, usual.overtaken_max),
        }
    }
}

/// Where jobs run: one of `processors`, `groups` and `owners`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteEntry {
    pub name: Spanned<String>,
    pub processors: Option<u32>,
    pub groups: Option<Vec<u32>>,
    pub owners: Option<OwnersEntry>,
    #[serde(default = "usual_speed")]
    pub speed: f64,
    pub barrier: Option<Spelt>,
}

fn usual_speed() -> f64 {
    1.0
}

/// Workstations of a usage log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnersEntry {
    pub workstations: u32,
    /// When the workloads begin.
    pub at: Timestamp,
    /// What has not ended so long after that is left.
    pub length: Spelt,
    /// Each repetition begins so much later.
    pub every: Option<Spelt>,
    /// Whether a job that has lost its workstations goes on where it was.
    #[serde(default = "yes")]
    pub keeps_work: bool,
    /// Which workstation is taken first: a policy of placement.
    #[serde(default)]
    pub placement: Spelled<PlacementChoice>,
}

fn yes() -> bool {
    true
}

/// One workload: a log, or a model with what it is varied in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadEntry {
    pub name: Spanned<String>,
    /// In the Standard Workload Format, packed with gzip or not; relative to
    /// the campaign file.
    pub swf: Option<PathBuf>,
    /// Only so many jobs of the log.
    pub first: Option<u32>,
    pub downey: Option<Downey>,
    pub kumar: Option<Kumar>,
    pub koala: Option<Koala>,
    pub bagga: Option<Bagga>,
    pub mixed: Option<Mixed>,
    /// Mean times between arrivals; of a model only.
    pub gaps: Option<CostChoices>,
    /// How many of a hundred jobs are malleable.
    #[serde(default = "none_of_them")]
    pub malleable: Vec<u32>,
    #[serde(default)]
    pub ranges: Vec<Range>,
}

fn none_of_them() -> Vec<u32> {
    vec![0]
}

impl WorkloadEntry {
    pub(crate) fn model(&self) -> Option<Model> {
        let models = [
            self.downey.clone().map(Model::Downey),
            self.kumar.clone().map(Model::Kumar),
            self.koala.clone().map(Model::Koala),
            self.bagga.clone().map(Model::Bagga),
            self.mixed.clone().map(Model::Mixed),
        ];
        models.into_iter().flatten().next()
    }

    fn check(&self) -> Result<(), String> {
        let name = self.name.get_ref();
        let models = [
            self.swf.is_some(),
            self.downey.is_some(),
            self.kumar.is_some(),
            self.koala.is_some(),
            self.bagga.is_some(),
            self.mixed.is_some(),
        ];
        if models.into_iter().filter(|named| *named).count() != 1 {
            return Err(format!(
                "`{name}` needs one of `swf`, `downey`, `kumar`, `koala`, `bagga` and `mixed`"
            ));
        }
        if self.gaps.is_some() == self.swf.is_some() {
            return Err(format!("`{name}`: a model needs `gaps`, and a log has its own"));
        }
        if self.first.is_some() && self.swf.is_none() {
            return Err(format!("`{name}`: `first` is of a log; a model says how many `jobs`"));
        }
        if self.malleable.is_empty() || self.malleable.iter().any(|percent| *percent > 100) {
            return Err(format!("`malleable` of `{name}`: expected shares from 0 to 100"));
        }
        if let Some(model) = self.model() {
            let ranges = self.ranges.first().copied();
            model.check(ranges).map_err(|why| format!("`{name}`: {why}"))?;
            let needs_range = matches!(model, Model::Downey(_));
            if needs_range && ranges.is_none() && self.malleable.iter().any(|of| *of > 0) {
                return Err(format!("`{name}`: its malleable jobs need `ranges`, such as `2-128`"));
            }
        }
        Ok(())
    }
}

/// What the report says beside the numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportEntry {
    pub title: String,
    /// Whose numbers these are: `Ghafoor 2007, Table 6.2`.
    pub source: String,
    /// What they print: a CSV beside the campaign file, with columns of the
    /// results' names.
    pub printed: Option<PathBuf>,
    /// What was executed, in sentences.
    pub about: Vec<String>,
    /// Every free parameter that was chosen to come near a printed figure.
    pub fitted: Vec<FittedEntry>,
    /// What they do not say, and was chosen for another reason.
    pub chosen: Vec<String>,
    /// Why a number cannot be had, or how ours differ.
    pub remarks: Vec<String>,
    pub claims: Vec<ClaimEntry>,
    pub figures: Vec<FigureEntry>,
}

/// Where in the grid: columns and their values.
pub type Where = BTreeMap<String, toml::Value>;

/// A free parameter, and the printed figures that it was chosen by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedEntry {
    pub parameter: String,
    /// In words, for the report.
    pub to: String,
    /// Which printed cells are so no predictions: a measure and where.
    pub measure: Option<String>,
    #[serde(default, rename = "where")]
    pub at: Where,
}

/// A sentence of theirs, and what would make it true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimEntry {
    pub says: String,
    pub measure: String,
    /// The measure rises from each of these to the next, ..
    #[serde(default)]
    pub rises: Vec<Where>,
    /// .. or lies between these bounds, here.
    #[serde(default, deserialize_with = "bounds")]
    pub between: Option<[f64; 2]>,
    #[serde(default, rename = "where")]
    pub at: Where,
    /// Of each job, the part that has the measure between the bounds, in
    /// percent, instead of the mean of the runs.
    #[serde(default, deserialize_with = "bounds")]
    pub jobs: Option<[f64; 2]>,
}

/// Two numbers, in order: with `nan`, which TOML has, every claim would be false.
fn bounds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[f64; 2]>, D::Error> {
    let bounds = Option::<[f64; 2]>::deserialize(from)?;
    match bounds {
        Some([low, high]) if low.partial_cmp(&high).is_none_or(Ordering::is_gt) => {
            Err(de::Error::custom(format!("[{low}, {high}]: expected a lower and an upper bound")))
        }
        bounds => Ok(bounds),
    }
}

/// One measure against an axis, or the distribution of one over all jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureEntry {
    pub name: String,
    pub title: String,
    /// An axis; nothing for the cumulative distribution of `y` over jobs.
    pub x: Option<String>,
    pub y: String,
    /// A line for each value of this axis.
    pub by: String,
    #[serde(default)]
    pub logarithmic: bool,
    #[serde(default, rename = "where")]
    pub at: Where,
}

/// Reads a campaign; `path` is for the error only.
///
/// # Errors
/// A text that does not say a campaign that can be run.
pub fn parse(path: &Path, text: &str) -> Result<WorkloadCampaign, ConfigError> {
    let campaign: WorkloadCampaign = config::parse(path, text)?;
    campaign.check().map_err(|wrong| invalid(path, text, wrong.span.start, &wrong.what))?;
    Ok(campaign)
}

struct Wrong {
    span: Span<usize>,
    what: String,
}

impl WorkloadCampaign {
    fn check(&self) -> Result<(), Wrong> {
        let whole = |what: &str| Err(Wrong { span: 0..0, what: what.to_owned() });
        if self.workloads.is_empty() {
            return whole("no workload: expected at least one [[workloads]] table");
        }
        if self.sites.is_empty() {
            return whole("no site: expected at least one [[sites]] table");
        }
        if self.repeats == 0 || self.chunk_runs == 0 {
            return whole("`repeats` and `chunk_runs`: expected at least 1");
        }
        if self.ramp.is_some_and(|ramp| ramp.success > 100) {
            return whole("`ramp.success`: expected a share from 0 to 100");
        }
        check_each(&self.workloads, |one| &one.name, WorkloadEntry::check)?;
        check_each(&self.sites, |one| &one.name, SiteEntry::check)
    }
}

impl SiteEntry {
    fn check(&self) -> Result<(), String> {
        let name = self.name.get_ref();
        let named = [self.processors.is_some(), self.groups.is_some(), self.owners.is_some()];
        if named.into_iter().filter(|named| *named).count() != 1 {
            return Err(format!("`{name}` needs one of `processors`, `groups` and `owners`"));
        }
        let groups = self.groups.clone().unwrap_or_default();
        let none = self.processors == Some(0)
            || self.groups.is_some() && groups.is_empty()
            || groups.contains(&0)
            || self.owners.as_ref().is_some_and(|owners| owners.workstations == 0);
        if none {
            return Err(format!("`{name}` has no processors: expected at least one"));
        }
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return Err(format!("`speed` of `{name}`: expected a number above 0"));
        }
        if self.barrier.is_some_and(|Spelt(barrier)| barrier.is_zero()) {
            return Err(format!("`barrier` of `{name}`: expected more than nothing"));
        }
        Ok(())
    }
}

/// Names are different, and each entry makes sense.
fn check_each<T>(
    entries: &[T],
    name: impl Fn(&T) -> &Spanned<String>,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<(), Wrong> {
    let mut seen = BTreeSet::new();
    for entry in entries {
        let name = name(entry);
        let text = name.get_ref();
        let mut wrong = check(entry).err();
        if text.is_empty() || text.contains(|c: char| c.is_control() || c == ',') {
            wrong = Some(format!("`{text}` is not a name"));
        } else if !seen.insert(text) {
            wrong = Some(format!("two are called `{text}`"));
        }
        if let Some(what) = wrong {
            return Err(Wrong { span: name.span(), what });
        }
    }
    Ok(())
}
