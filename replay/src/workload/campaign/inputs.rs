//! What a workload campaign reads: its file, its logs, its owners.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_collector::archive::Span as LogSpan;
use gleaner_common::lines::unpacked;
use gleaner_common::time::WallTime;
use gleaner_shell::config::ConfigError;
use gleaner_shell::text;

use super::file::{OwnersEntry, SiteEntry, WorkloadCampaign, WorkloadEntry, parse};
use super::manifest::{FORMAT, LogFacts, WorkloadManifest};
use super::plan::{Jobs, WorkloadPlan};
use super::printed::Printed;
use crate::campaign::criterion::CriterionChoice;
use crate::campaign::inputs::{InputError, Overrides, OwnersOf, digest_of_usages};
use crate::campaign::values::Spelt;
use crate::workload::Site;
use crate::workload::swf::SwfLog;
use crate::{Lab, Learner, Order, Placement, Selection, Usage};

/// A campaign that can be run.
#[derive(Debug)]
pub struct WorkloadInputs {
    pub(super) plan: WorkloadPlan,
    pub(super) manifest: WorkloadManifest,
    /// What was strange about the logs, one line each.
    pub notes: Vec<String>,
    /// What it reads beside the campaign file, as the file names it.
    pub files: Vec<PathBuf>,
}

impl WorkloadInputs {
    /// The campaign's name.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// What its results depend on, of the file itself.
    pub fn digest(&self) -> &str {
        &self.manifest.campaign
    }

    /// In how many pieces it can be done.
    pub fn chunks(&self) -> u32 {
        self.manifest.chunks
    }

    /// Is any of its sites one of workstations with owners?
    pub fn has_owners(&self) -> bool {
        self.plan.campaign.sites.iter().any(|site| site.owners.is_some())
    }
}

/// Reads everything.
///
/// # Errors
/// The first thing that is wrong, in one line.
pub fn prepare(path: &Path, overrides: &Overrides) -> Result<WorkloadInputs, InputError> {
    let text =
        text::read(path).map_err(|why| InputError::Unreadable { path: path.to_owned(), why })?;
    let campaign = parse(path, &text)?;
    let here = path.parent().unwrap_or(Path::new("."));
    let (mut notes, mut logs, mut jobs) = (vec![], vec![], vec![]);
    for entry in &campaign.workloads {
        jobs.push(match (entry.model(), &entry.swf) {
            (Some(model), _) => Jobs::Model(model),
            (None, Some(log)) => read_log(&here.join(log), entry, &mut logs, &mut notes)?,
            (None, None) => unreachable!("an entry was checked to be one or the other"),
        });
    }
    let usage = read_owners(path, &campaign, overrides, &mut notes)?;
    let sites =
        campaign.sites.iter().map(|entry| sites(path, entry, campaign.repeats, usage.as_ref()));
    let sites = sites.collect::<Result<Vec<_>, _>>()?;
    let printed = read_printed(here, &campaign)?;
    let usage = usage.as_ref().map(|usage| digest_of_usages(std::slice::from_ref(usage)));
    let files = campaign.workloads.iter().filter_map(|entry| entry.swf.clone());
    let files = files.chain(campaign.report.printed.clone()).collect();
    let plan = WorkloadPlan::new(campaign, jobs, sites);
    let manifest = WorkloadManifest {
        format: FORMAT,
        name: plan.campaign.name.clone(),
        chunks: plan.chunks(),
        runs: plan.runs(),
        repeats: plan.campaign.repeats,
        per_job: plan.campaign.per_job,
        campaign: digest(&plan.campaign),
        usage,
        logs,
        report: plan.campaign.report.clone(),
        printed,
    };
    Ok(WorkloadInputs { plan, manifest, notes, files })
}

fn digest(campaign: &WorkloadCampaign) -> String {
    let text = serde_json::to_string(campaign)
        .unwrap_or_else(|error| unreachable!("a campaign was read from text: {error}"));
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

fn read_log(
    path: &Path,
    entry: &WorkloadEntry,
    logs: &mut Vec<LogFacts>,
    notes: &mut Vec<String>,
) -> Result<Jobs, InputError> {
    let unreadable = |why| InputError::Log { path: path.to_owned(), why };
    let file = File::open(path).map_err(unreadable)?;
    let log = SwfLog::read(BufReader::new(unpacked(file).map_err(unreadable)?));
    let log = log.map_err(unreadable)?;
    let wrong = |why: String| InputError::Jobs { path: path.to_owned(), why };
    let mut jobs = log.rigid().map_err(|why| wrong(why.to_string()))?;
    jobs.truncate(entry.first.map_or(usize::MAX, |first| first as usize));
    if let Some((line, why)) = log.told.first() {
        notes.push(format!(
            "{}: {} lines are no jobs, the first of them line {line}: {why}",
            path.display(),
            log.broken
        ));
    }
    if jobs.is_empty() {
        return Err(wrong("no job in it has run: expected lines of 18 numbers".to_owned()));
    }
    let mut hasher = blake3::Hasher::new();
    for job in &log.jobs {
        hasher.update(job.to_string().as_bytes());
    }
    logs.push(LogFacts {
        workload: entry.name.get_ref().clone(),
        digest: hasher.finalize().to_hex().to_string(),
        jobs: log.jobs.len() as u64,
        ran: jobs.len() as u64,
        broken: log.broken as u64,
        processors: log.processors(),
    });
    Ok(Jobs::Log(Arc::new(jobs)))
}

/// The usage log, if a site has owners.
fn read_owners(
    path: &Path,
    campaign: &WorkloadCampaign,
    overrides: &Overrides,
    notes: &mut Vec<String>,
) -> Result<Option<Usage>, InputError> {
    if campaign.sites.iter().all(|site| site.owners.is_none()) {
        return Ok(None);
    }
    let criteria = [CriterionChoice::default()];
    let owners = OwnersOf {
        source: campaign.usage.as_ref(),
        overrides,
        interpret: overrides.interpret,
        span: LogSpan::default(),
        zone: "UTC",
        seed: campaign.seed,
        criteria: &criteria,
    };
    owners.read(path, notes).map(|(usages, _)| usages.into_iter().next())
}

/// A site, or one for each repetition.
fn sites(
    path: &Path,
    entry: &SiteEntry,
    repeats: u32,
    usage: Option<&Usage>,
) -> Result<(String, Vec<Site>), InputError> {
    let barrier = entry.barrier.map(|Spelt(barrier)| barrier);
    let complete = |site: Site| Site { speed: entry.speed, barrier, ..site };
    let name = entry.name.get_ref().clone();
    let sites = match (&entry.owners, usage, &entry.groups) {
        (Some(owners), Some(usage), _) => {
            let times = if owners.every.is_some() { repeats } else { 1 };
            let mut learner = Learner::new(usage);
            let sites = (0..times)
                .map(|repeat| with_owners(path, &name, owners, (usage, &mut learner), repeat));
            sites.collect::<Result<Vec<_>, _>>()?
        }
        (_, _, Some(groups)) => vec![Site::grouped(groups.clone())],
        _ => vec![Site::steady(entry.processors.unwrap_or(1))],
    };
    Ok((name, sites.into_iter().map(complete).collect()))
}

fn with_owners(
    path: &Path,
    site: &str,
    owners: &OwnersEntry,
    (usage, learner): (&Usage, &mut Learner<'_>),
    repeat: u32,
) -> Result<Site, InputError> {
    let nanos = i64::try_from(owners.at.as_nanosecond()).unwrap_or(i64::MAX);
    let later = owners
        .every
        .map_or(0, |Spelt(every)| i64::try_from((every * repeat).as_nanos()).unwrap_or(i64::MAX));
    let start = WallTime(nanos.saturating_add(later));
    let (count, span) = (owners.workstations, owners.length.0);
    let selection = Selection { start, span, count, order: Order::AsRead };
    let mut lab = Lab::select(usage, &selection).map_err(|why| InputError::Owners {
        path: path.to_owned(),
        site: site.to_owned(),
        at: gleaner_collector::wall::spoken_time(start),
        why,
    })?;
    let placement = Placement::from(owners.placement.0);
    if placement.asks_outlook() {
        learner.teach(&mut lab);
    }
    Ok(Site { placement, keeps_work: owners.keeps_work, ..Site::with_owners(lab) })
}

fn read_printed(here: &Path, campaign: &WorkloadCampaign) -> Result<Option<String>, InputError> {
    let Some(printed) = &campaign.report.printed else { return Ok(None) };
    let printed = here.join(printed);
    let text = text::read(&printed)
        .map_err(|why| InputError::Unreadable { path: printed.clone(), why })?;
    let wrong = |what: String| ConfigError::Invalid { path: printed, line: 1, column: 1, what };
    Printed::parse(&text).map_err(|why| wrong(why.to_string()))?;
    Ok(Some(text))
}
