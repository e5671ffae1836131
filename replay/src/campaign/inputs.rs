//! What a campaign reads: its file, its traces, its usage log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_collector::archive::{ReadArchiveError, Span};
use gleaner_collector::load::{LoadOptions, timelines};
use gleaner_collector::timeline::{Interpretation, Reading, Readings};
use gleaner_common::time::WallTime;
use gleaner_common::trace::{self, Op, Trace};
use gleaner_coordinator_core::Policy;
use gleaner_shell::config::ConfigError;
use gleaner_shell::text;

use super::criterion::CriterionChoice;
use super::file::{BagEntry, Campaign, ProgramEntry, Ring, UsageSource};
use super::generated::{MadeLog, MakeLogError, make_log};
use super::machines::{ReadMachinesError, read_speeds};
use super::owners;
use super::plan::{NoPeriodError, Plan};
use super::runnable::Runnable;
use super::values::PlacementChoice;
use crate::results::manifest::{Digests, FORMAT, Manifest, ProgramFacts, Setting};
use crate::{Bag, CompileError, Network, Program, Usage, Workers};

/// Why a campaign cannot be run. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("cannot read the campaign {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error(transparent)]
    Campaign(#[from] ConfigError),
    /// Names the file, and the line if there is one.
    #[error("{0}")]
    Trace(String),
    #[error("{}: {why}", path.display())]
    Program { path: PathBuf, why: CompileError },
    #[error("{}: no usage log is named: expected [usage] in the file, or --usage DIR", .0.display())]
    NoUsage(PathBuf),
    #[error("usage log {}: {why}", path.display())]
    Usage { path: PathBuf, why: ReadArchiveError },
    #[error("machines {}: {why}", path.display())]
    Machines { path: PathBuf, why: ReadMachinesError },
    #[error("{}: [usage] generate: {why}", path.display())]
    Generate { path: PathBuf, why: MakeLogError },
    #[error("cannot read the workload log {}: {why}", path.display())]
    Log { path: PathBuf, why: io::Error },
    /// Of a log, one that cannot be; or none.
    #[error("{}: {why}", path.display())]
    Jobs { path: PathBuf, why: String },
    #[error("{}: the site `{site}` at {at}: {why}", path.display())]
    Owners { path: PathBuf, site: String, at: String, why: crate::SelectError },
    #[error("{}: {why}", path.display())]
    Period { path: PathBuf, why: NoPeriodError },
}

/// A campaign that can be run.
#[derive(Debug)]
pub struct Prepared {
    pub plan: Plan,
    pub manifest: Manifest,
    /// What was strange about the usage log, one line each.
    pub notes: Vec<String>,
}

/// What the command line says instead of the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The collector's data directory.
    pub usage: Option<PathBuf>,
    /// How the times of the log's records are understood.
    pub interpret: Option<Interpretation>,
    /// Logs that are to be understood otherwise, by the workstation's name.
    pub logs: BTreeMap<String, Interpretation>,
}

/// Reads everything.
///
/// # Errors
/// The first thing that is wrong, in one line.
pub fn prepare(path: &Path, overrides: &Overrides) -> Result<Prepared, InputError> {
    let text =
        text::read(path).map_err(|why| InputError::Unreadable { path: path.to_owned(), why })?;
    let mut campaign = super::file::parse(path, &text)?;
    campaign.interpret = overrides.interpret.or(campaign.interpret);
    let here = path.parent().unwrap_or(Path::new("."));
    let (mut programs, mut facts, mut digests) = (vec![], vec![], vec![]);
    for entry in &campaign.programs {
        let (program, fact) = read_program(here, entry)?;
        campaign.check_ranks(path, &text, fact.ranks)?;
        digests.push(digest_of_program(here, entry)?);
        programs.push(program);
        facts.push(fact);
    }
    let mut notes = vec![];
    let (usages, made) = read_usages(path, &campaign, overrides, &mut notes)?;
    let mut setting = setting(&campaign, made.as_ref());
    let ranked = PlacementChoice::Core(Policy::Ranked);
    let asks_ranked = campaign.policies.0.contains(&ranked);
    if asks_ranked {
        setting.ranked_lacks = usages[0].ranked_lacks();
        notes.extend(setting.ranked_lacks.iter().cloned());
    }
    let owners = owners::facts(&usages[0], campaign.periods.get_ref());
    let digests = Digests {
        campaign: digest_of_campaign(&campaign),
        traces: digests,
        usage: if asks_ranked { digest_with_machines(&usages) } else { digest_of_usages(&usages) },
    };
    let plan = Plan::new(campaign, programs, usages)
        .map_err(|why| InputError::Period { path: path.to_owned(), why })?;
    let manifest = Manifest {
        format: FORMAT,
        name: plan.campaign.name.clone(),
        report: plan.campaign.report,
        chunks: plan.chunks(),
        executions: plan.executions(),
        digests,
        programs: facts,
        networks: plan.networks.clone(),
        owners,
        setting,
    };
    Ok(Prepared { plan, manifest, notes })
}

/// What the report has to say of the campaign's making.
fn setting(campaign: &Campaign, made: Option<&MadeLog>) -> Setting {
    let stretched = campaign.programs.iter().filter_map(|program| {
        let to = u64::try_from(program.scale_to?.as_millis()).unwrap_or(u64::MAX);
        Some((program.name.get_ref().clone(), to))
    });
    let fitted = made.and_then(|made| made.model.fitted_to_table_12()).unwrap_or_default();
    Setting {
        interpretation: made
            .map_or_else(|| campaign.interpret.unwrap_or_default(), |made| made.interpretation)
            .to_string(),
        period_s: campaign.periods.get_ref().length.as_secs(),
        model: made.map(|made| made.model.about.clone()),
        fitted: fitted.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        stretched: stretched.collect(),
        rules: campaign.rules,
        ranked_lacks: vec![],
    }
}

/// Reads and compiles a trace file.
///
/// # Errors
/// A trace that cannot be read or replayed, with file and line.
pub fn read_trace(path: &Path) -> Result<Trace, InputError> {
    let opened = File::open(path).map_err(|why: io::Error| {
        InputError::Trace(format!("cannot read the trace {}: {why}", path.display()))
    })?;
    let lined = trace::read(opened).map_err(|why| InputError::Trace(why.in_file(path)))?;
    match lined.check().first() {
        Some(problem) => Err(InputError::Trace(problem.in_file(path, &lined.lines))),
        None => Ok(lined.trace),
    }
}

fn read_program(here: &Path, entry: &ProgramEntry) -> Result<(Runnable, ProgramFacts), InputError> {
    if let Some(bag) = &entry.bag {
        return make_bag(entry, bag);
    }
    let path = entry.trace.as_ref().map_or_else(PathBuf::new, |trace| here.join(trace));
    let mut trace = match &entry.ring {
        Some(ring) => ring_trace(ring),
        None => read_trace(&path)?,
    };
    if let Some(to) = entry.scale_to {
        trace = trace
            .scaled_to(to)
            .map_err(|why| InputError::Trace(format!("{}: {why}", path.display())))?;
    }
    let program = Program::compile(&trace, Network::default())
        .map_err(|why| InputError::Program { path, why })?;
    let name = entry.name.get_ref().clone();
    let facts = program_facts(name, &trace, &program);
    Ok((Runnable::Ranks { program, table1: entry.model() }, facts))
}

fn make_bag(entry: &ProgramEntry, made: &BagEntry) -> Result<(Runnable, ProgramFacts), InputError> {
    let name = entry.name.get_ref();
    let bag = Bag::divided(name, made.work, made.subtask)
        .map_err(|why| InputError::Trace(format!("the bag `{name}`: {why}")))?;
    let workers = made.workers;
    let ranks = if let Workers::Number(many) = workers { many } else { 1 };
    let facts = ProgramFacts {
        name: name.clone(),
        bag: true,
        all: workers == Workers::All,
        ranks,
        operations: bag.subtasks() as u64,
        undisturbed_ns: nanos(bag.work() / ranks),
        subtasks: bag.subtasks() as u64,
        compute_ns: nanos(bag.work()),
    };
    Ok((Runnable::Bag { bag, table1: entry.model(), workers }, facts))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn program_facts(name: String, trace: &Trace, program: &Program) -> ProgramFacts {
    let receives = trace.ranks.iter().flatten().filter(|op| matches!(op, Op::Receive { .. }));
    ProgramFacts {
        name,
        bag: false,
        all: false,
        ranks: u32::try_from(trace.ranks.len()).unwrap_or(u32::MAX),
        operations: trace.operations() as u64,
        undisturbed_ns: nanos(program.critical_path()),
        // One before each receive, and one after the last.
        subtasks: receives.count() as u64 + trace.ranks.len() as u64,
        compute_ns: (0..trace.ranks.len()).map(|rank| trace.computed(rank)).sum(),
    }
}

/// Ranks in a ring: each computes a subtask, sends to the right, and receives
/// from the left; all subtasks are as long.
fn ring_trace(ring: &Ring) -> Trace {
    let nanos = nanos(ring.takes) / u64::from(ring.subtasks.max(1));
    let rank = |rank: u32| {
        let (to, from) = ((rank + 1) % ring.ranks, (rank + ring.ranks - 1) % ring.ranks);
        let mut ops = vec![];
        for subtask in 0..ring.subtasks {
            ops.push(Op::Compute { nanos });
            if subtask + 1 < ring.subtasks {
                ops.push(Op::Send { to, bytes: 0, tag: 0 });
                ops.push(Op::Receive { from, tag: 0 });
            }
        }
        ops
    };
    Trace { name: "ring".to_owned(), ranks: (0..ring.ranks).map(rank).collect() }
}

/// The usage log, once for each criterion, and how it was made up if it was.
fn read_usages(
    path: &Path,
    campaign: &Campaign,
    overrides: &Overrides,
    notes: &mut Vec<String>,
) -> Result<(Vec<Usage>, Option<MadeLog>), InputError> {
    let choice = campaign.periods.get_ref();
    let span = owners::span(choice).map_or_else(Span::default, |(_, to)| {
        let length = i64::try_from(choice.length.as_nanos()).unwrap_or(i64::MAX);
        let to = WallTime(to.0.saturating_add(length));
        // The span has all of the past, for the policies that learn from it.
        Span { from: None, to: Some(to) }
    });
    let owners = OwnersOf {
        source: campaign.usage.as_ref(),
        overrides,
        interpret: campaign.interpret,
        span,
        zone: &choice.zone,
        seed: campaign.seed,
        criteria: &campaign.criteria.0,
    };
    owners.read(path, notes)
}

/// Which owners a campaign asks for.
pub(crate) struct OwnersOf<'a> {
    pub(crate) source: Option<&'a UsageSource>,
    /// What the command line says instead.
    pub(crate) overrides: &'a Overrides,
    pub(crate) interpret: Option<Interpretation>,
    /// What of a log is needed.
    pub(crate) span: Span,
    pub(crate) zone: &'a str,
    pub(crate) seed: u64,
    pub(crate) criteria: &'a [CriterionChoice],
}

impl OwnersOf<'_> {
    /// A usage for each criterion, and what a generated one was made of.
    pub(crate) fn read(
        &self,
        path: &Path,
        notes: &mut Vec<String>,
    ) -> Result<(Vec<Usage>, Option<MadeLog>), InputError> {
        let (mut usages, made) = self.read_owners(path, notes)?;
        let here = path.parent().unwrap_or(Path::new("."));
        if let Some(machines) = self.source.and_then(|source| source.machines.as_ref()) {
            let path = here.join(machines);
            let speeds = read_speeds(&path).map_err(|why| InputError::Machines { path, why })?;
            for usage in &mut usages {
                usage.know_speeds(&speeds);
            }
        }
        Ok((usages, made))
    }

    fn read_owners(
        &self,
        path: &Path,
        notes: &mut Vec<String>,
    ) -> Result<(Vec<Usage>, Option<MadeLog>), InputError> {
        let here = path.parent().unwrap_or(Path::new("."));
        let named = self.source.and_then(|source| source.data.as_ref()).map(|data| here.join(data));
        let generate = self.source.and_then(|source| source.generate.as_ref());
        match (self.overrides.usage.clone().or(named), generate) {
            (Some(data), _) => {
                let read = |choice: &CriterionChoice| {
                    let interpretation = self.interpret.unwrap_or_default();
                    let all = Reading { interpretation, criterion: choice.criterion };
                    let readings = Readings { all, logs: self.overrides.logs.clone() };
                    read_log(&data, self.span, readings, notes)
                };
                let usages: Result<_, InputError> = self.criteria.iter().map(read).collect();
                Ok((usages?, None))
            }
            (None, Some(generate)) => make_log(path, self, generate)
                .map(|(usages, made)| (usages, Some(made)))
                .map_err(|why| InputError::Generate { path: path.to_owned(), why }),
            (None, None) => Err(InputError::NoUsage(path.to_owned())),
        }
    }
}

/// Reads a log, as far as it is needed.
fn read_log(
    data: &Path,
    span: Span,
    readings: Readings,
    notes: &mut Vec<String>,
) -> Result<Usage, InputError> {
    let options = LoadOptions { names: vec![], span, readings };
    let loaded = timelines(data, &options, &mut |_| ())
        .map_err(|why| InputError::Usage { path: data.to_owned(), why })?;
    for note in loaded.notes() {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(Usage::from_timelines(loaded.timelines))
}

fn digest_of_campaign(campaign: &Campaign) -> String {
    let text = serde_json::to_string(campaign)
        .unwrap_or_else(|error| unreachable!("a campaign was read from text: {error}"));
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

fn digest_of_program(here: &Path, entry: &ProgramEntry) -> Result<String, InputError> {
    // Rings and bags are in the campaign file itself.
    let Some(trace) = &entry.trace else { return Ok("made".to_owned()) };
    let path = here.join(trace);
    let mut hasher = blake3::Hasher::new();
    File::open(&path).and_then(|file| hasher.update_reader(file)).map_err(|why| {
        InputError::Trace(format!("cannot read the trace {}: {why}", path.display()))
    })?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// For a policy that looks at machines and loads as well.
fn digest_with_machines(usages: &[Usage]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(digest_of_usages(usages).as_bytes());
    for usage in usages {
        for past in (0..usage.workstations()).map(|workstation| usage.past(workstation)) {
            let figures = past.loads.iter().chain([&past.speed]);
            figures.for_each(|figure| _ = hasher.update(&figure.to_le_bytes()));
        }
    }
    hasher.finalize().to_hex().to_string()
}

pub(crate) fn digest_of_usages(usages: &[Usage]) -> String {
    let mut hasher = blake3::Hasher::new();
    for usage in usages {
        for (name, workstation) in usage.names().iter().zip(0..) {
            let past = usage.past(workstation);
            hasher.update(name.as_bytes());
            hasher.update(&[0, u8::from(past.idle_at_first)]);
            hasher.update(&past.known_until.to_le_bytes());
            for change in past.changes {
                hasher.update(&change.to_le_bytes());
            }
        }
    }
    hasher.finalize().to_hex().to_string()
}
