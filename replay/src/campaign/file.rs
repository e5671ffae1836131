//! The campaign file: TOML, every key known, every value typed.
//!
//! A misspelt key, a value without its unit, a policy that does not exist: each
//! is one line that names file, line and column, and what was expected there.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_collector::timeline::Interpretation;
use gleaner_common::units;
use gleaner_shell::config::{self, ConfigError, invalid};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::criterion::CriterionChoice;
use super::periods::{PeriodChoice, PeriodError};
use super::values::{Choices, CostChoices, PlacementChoice, ReactionChoice};
use crate::bag::Workers;
use crate::model::RulesOf;
use crate::results::manifest::ReportKind;

/// More than any campaign needs, and few enough to count in memory.
pub(crate) const WORKSTATIONS_MAX: u32 = 100_000;

/// What to execute, and under which conditions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    pub name: String,
    /// What its report answers.
    #[serde(default, skip_serializing)]
    pub report: ReportKind,
    /// Draws the periods, the workstations if `shuffled`, and the owners if
    /// their model has no seed of its own.
    pub seed: u64,
    /// Where the owners come from; the command line may name another log.
    #[serde(skip_serializing)]
    pub usage: Option<UsageSource>,
    pub programs: Vec<ProgramEntry>,
    pub networks: Vec<NetworkEntry>,
    pub periods: Spanned<PeriodChoice>,
    /// What one reaction costs (Phalen 1994, Table 9).
    pub costs: CostChoices,
    #[serde(default)]
    pub policies: Choices<PlacementChoice>,
    #[serde(default)]
    pub on_busy: Choices<ReactionChoice>,
    #[serde(default)]
    pub criteria: Choices<CriterionChoice>,
    /// Which of the eligible workstations take part.
    #[serde(default)]
    pub choose: Choose,
    /// Whose rules ranks keep about beginning, waiting and leaving.
    #[serde(default, skip_serializing_if = "is_phalens")]
    pub rules: RulesOf,
    /// How the times of the usage log's records are understood; without it, as
    /// they were taken.
    #[serde(default, with = "optional_spelled", skip_serializing_if = "Option::is_none")]
    pub interpret: Option<Interpretation>,
    /// About how many executions are written at once: what an interruption
    /// costs at most, for each thread.
    #[serde(default = "chunk_rows")]
    pub chunk_rows: u32,
}

/// Results of campaigns that never named any rules go on as they are.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_phalens(rules: &RulesOf) -> bool {
    *rules == RulesOf::Phalen1994
}

/// Half a second's work for programs of some minutes.
fn chunk_rows() -> u32 {
    4_096
}

/// Which of the eligible workstations take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choose {
    /// The first ones, in the order of their names: Phalen 1994, §5.1, takes
    /// "the order that their data files were read".
    #[default]
    AsRead,
    /// Others in every period, drawn with the seed.
    Shuffled,
}

/// One program, as recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramEntry {
    pub name: Spanned<String>,
    /// Relative to the campaign file.
    pub trace: Option<PathBuf>,
    /// Instead of a trace: a program of equal subtasks, for asking what their
    /// size does.
    pub ring: Option<Ring>,
    /// Instead of both: a bag of independent subtasks.
    pub bag: Option<BagEntry>,
    /// Which of the models of Phalen 1994, Table 1: 1 to 4 for a bag (2), 5 to
    /// 8 for ranks (5). With an even number the program grows when
    /// workstations turn idle.
    pub table1: Option<u8>,
    /// Stretches its computing so that it takes this long undisturbed.
    #[serde(default, with = "optional_duration")]
    pub scale_to: Option<Duration>,
}

impl ProgramEntry {
    /// The model of Table 1 that it is executed under.
    pub(crate) fn model(&self) -> u8 {
        self.table1.unwrap_or(if self.bag.is_some() { 2 } else { 5 })
    }

    fn check(&self) -> Result<(), String> {
        let name = self.name.get_ref();
        let named = [self.trace.is_some(), self.ring.is_some(), self.bag.is_some()];
        if named.into_iter().filter(|named| *named).count() != 1 {
            return Err(format!("`{name}` needs one of `trace`, `ring` and `bag`"));
        }
        if let Some(ring) = &self.ring
            && !((2..=RING_RANKS_MAX).contains(&ring.ranks)
                && (1..=RING_SUBTASKS_MAX).contains(&ring.subtasks))
        {
            return Err(format!(
                "the ring of `{name}`: expected 2 to {RING_RANKS_MAX} ranks and 1 to {RING_SUBTASKS_MAX} subtasks"
            ));
        }
        if let Some(bag) = &self.bag
            && (bag.workers == Workers::Number(0) || self.scale_to.is_some())
        {
            return Err(format!(
                "the bag of `{name}`: expected one worker at least, and no `scale_to`"
            ));
        }
        let models = if self.bag.is_some() { 1..=4 } else { 5..=8 };
        if models.contains(&self.model()) {
            Ok(())
        } else {
            let (first, last) = (models.start(), models.end());
            Err(format!("`table1` of `{name}`: expected a model from {first} to {last}"))
        }
    }
}

/// Ranks in a ring, each computing equal subtasks and receiving from its left
/// between them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    pub ranks: u32,
    pub subtasks: u32,
    /// How long each rank computes.
    #[serde(with = "units::duration")]
    pub takes: Duration,
}

/// Work in equal subtasks, which are abandoned and done again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BagEntry {
    #[serde(with = "units::duration")]
    pub work: Duration,
    #[serde(with = "units::duration")]
    pub subtask: Duration,
    /// How many workers the bag begins with: a number, or `all`.
    pub workers: Workers,
}

const RING_RANKS_MAX: u32 = 10_000;
const RING_SUBTASKS_MAX: u32 = 1_000_000;

/// A simulated network (Phalen 1994, Table 7).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkEntry {
    pub workstations: Spanned<u32>,
    /// How many periods the programs are run in.
    pub periods: Spanned<u32>,
}

mod optional_duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::units;

    #[expect(clippy::ref_option, reason = "the shape that serde asks for")]
    pub(super) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => units::duration::serialize(span, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(from)?;
        units::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
    }
}

/// A value that is written as a text and may be left out.
mod optional_spelled {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "the shape that serde asks for")]
    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Some).map_err(serde::de::Error::custom)
    }
}

/// Where the owners come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageSource {
    /// The collector's data directory, relative to the campaign file.
    pub data: Option<PathBuf>,
    pub generate: Option<Generate>,
    /// What is known of the machines, as `glean workstations --json` prints it,
    /// relative to the campaign file: the `ranked` policy looks at their speed.
    pub machines: Option<PathBuf>,
}

/// A usage log that is made for the campaign.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    pub model: String,
    pub workstations: u32,
    pub from: jiff::civil::Date,
    pub months: u32,
    pub seed: Option<u64>,
    /// Seen every three minutes, as rwho did, instead of exactly.
    #[serde(default)]
    pub snapshots: bool,
}

/// Reads a campaign; `path` is for the error only.
///
/// # Errors
/// A text that does not say a campaign that can be run.
pub fn parse(path: &Path, text: &str) -> Result<Campaign, ConfigError> {
    let campaign: Campaign = config::parse(path, text)?;
    campaign.check().map_err(|wrong| invalid(path, text, wrong.span.start, &wrong.what))?;
    Ok(campaign)
}

/// What is wrong with a campaign that reads as one, and where.
struct Wrong {
    span: Range<usize>,
    what: String,
}

impl Campaign {
    fn check(&self) -> Result<(), Wrong> {
        let whole = |what: &str| Wrong { span: 0..0, what: what.to_owned() };
        if self.programs.is_empty() {
            return Err(whole("no program: expected at least one [[programs]] table"));
        }
        if self.networks.is_empty() {
            return Err(whole("no network: expected at least one [[networks]] table"));
        }
        self.check_programs()?;
        self.check_networks()?;
        self.check_usage()
    }

    fn check_programs(&self) -> Result<(), Wrong> {
        let mut seen = BTreeSet::new();
        for program in &self.programs {
            let name = program.name.get_ref();
            let wrong = |what: String| Err(Wrong { span: program.name.span(), what });
            if name.is_empty() || name.contains(|c: char| c.is_control() || c == ',') {
                return wrong(format!("`{name}` is not a program's name"));
            }
            if let Err(what) = program.check() {
                return wrong(what);
            }
            if !seen.insert(name) {
                return wrong(format!("two programs are called `{name}`"));
            }
        }
        Ok(())
    }

    fn check_networks(&self) -> Result<(), Wrong> {
        let mut seen = BTreeSet::new();
        let choice = self.periods.get_ref();
        let candidates = choice.candidates(self.seed).map_err(|error: PeriodError| Wrong {
            span: self.periods.span(),
            what: error.to_string(),
        })?;
        for network in &self.networks {
            let (count, periods) = (&network.workstations, &network.periods);
            let wrong = |span, what| Err(Wrong { span, what });
            if !(1..=WORKSTATIONS_MAX).contains(count.get_ref()) {
                let what = format!("expected 1 to {WORKSTATIONS_MAX} workstations");
                return wrong(count.span(), what);
            }
            if !seen.insert(*count.get_ref()) {
                let what = format!("two networks have {} workstations", count.get_ref());
                return wrong(count.span(), what);
            }
            if *periods.get_ref() == 0 || *periods.get_ref() as usize > candidates.len() {
                let what = format!(
                    "{} periods: expected 1 to {}, which is how many [periods] holds",
                    periods.get_ref(),
                    candidates.len()
                );
                return wrong(periods.span(), what);
            }
        }
        Ok(())
    }

    fn check_usage(&self) -> Result<(), Wrong> {
        match &self.usage {
            Some(UsageSource { data: None, generate: None, .. }) => Err(Wrong {
                span: 0..0,
                what: "[usage] is empty: expected `data` or `generate`".to_owned(),
            }),
            Some(UsageSource { data: Some(_), generate: Some(_), .. }) => Err(Wrong {
                span: 0..0,
                what: "[usage] has both `data` and `generate`: expected one of them".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Checks what the traces tell: every program fits into every network.
    ///
    /// # Errors
    /// The network that is too small, with its line.
    pub(crate) fn check_ranks(
        &self,
        path: &Path,
        text: &str,
        ranks: u32,
    ) -> Result<(), ConfigError> {
        let small = self.networks.iter().find(|network| *network.workstations.get_ref() < ranks);
        let Some(small) = small else { return Ok(()) };
        let what =
            format!("expected at least {ranks} workstations, one for each rank of a program");
        Err(invalid(path, text, small.workstations.span().start, &what))
    }

    /// How many executions one period of one network comes to, not counting
    /// those at cost zero that slowdowns are measured against.
    pub(crate) fn executions_per_period(&self) -> u64 {
        let axes = [
            self.criteria.0.len(),
            self.programs.len(),
            self.policies.0.len(),
            self.on_busy.0.len(),
            self.costs.0.len(),
        ];
        axes.iter().map(|many| *many as u64).product()
    }

    /// How many executions the file asks for.
    pub fn executions(&self) -> u64 {
        let periods = self.networks.iter().map(|network| u64::from(*network.periods.get_ref()));
        periods.sum::<u64>() * self.executions_per_period()
    }
}
