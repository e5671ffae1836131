//! `glean replay queue`: how long would everybody have waited?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use gleaner_coordinator::CoordinatorConfig;
use gleaner_coordinator_core::{Config, Policy};
use gleaner_replay::queue::{JobRun, QueuedJob, run_queue};
use gleaner_shell::config;
use serde::{Deserialize, Serialize};

use super::lab::LabArgs;
use crate::failure::Verdict;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Who submitted what, and when.
    #[arg(value_name = "JOBS.toml")]
    pub jobs: PathBuf,
    #[command(flatten)]
    pub lab: LabArgs,
    /// The coordinator's configuration, for its policies and shares [default: what it does without one].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One record for each job instead of a table of users.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Jobs {
    job: Vec<QueuedJob>,
}

/// # Errors
/// A file or a log that cannot be read, or too few workstations.
pub(super) fn run(args: &Args) -> Result<Verdict> {
    let jobs = config::load::<Jobs>(&args.jobs)?.job;
    let site: CoordinatorConfig = match &args.config {
        Some(path) => config::load(path)?,
        None => CoordinatorConfig::default(),
    };
    site.check()?;
    let usage = args.lab.usage()?;
    if site.policy == Policy::Ranked {
        output::notes(&usage.ranked_lacks());
    }
    let lab = args.lab.select(&usage)?;
    let config = Config {
        policy: site.policy,
        idle_needed: site.idle_needed,
        shares: site.shares,
        scheduler: site.scheduler,
        ..Config::default()
    };
    let runs = run_queue(&lab, &jobs, config);
    if args.json {
        jobs.iter().zip(&runs).try_for_each(|(job, run)| output::record(&Row::new(job, run)))?;
    } else {
        let refused = jobs.iter().zip(&runs).filter_map(|(job, run)| {
            let why = run.refused.as_ref()?;
            Some(format!("a job of {} is not accepted: {why}", job.user))
        });
        output::notes(&refused.collect::<Vec<_>>());
        output::table(&HEADER, &lines(&jobs, &runs))?;
    }
    Ok(Verdict::from(runs.iter().all(|run| run.turnaround.is_some())))
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    user: &'a str,
    submitted_s: f64,
    subprograms: u32,
    succeeded: u32,
    waited_s: Option<f64>,
    turnaround_s: Option<f64>,
    used_s: f64,
    refused: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn new(job: &'a QueuedJob, run: &'a JobRun) -> Self {
        Self {
            user: &job.user,
            submitted_s: job.at.as_secs_f64(),
            subprograms: job.subprograms,
            succeeded: run.succeeded,
            waited_s: run.waited.map(|span| span.as_secs_f64()),
            turnaround_s: run.turnaround.map(|span| span.as_secs_f64()),
            used_s: run.used.as_secs_f64(),
            refused: run.refused.as_deref(),
        }
    }
}

const HEADER: [&str; 6] = ["user", "jobs", "done", "waited at most", "took at most", "place-hours"];

fn lines(jobs: &[QueuedJob], runs: &[JobRun]) -> Vec<Vec<String>> {
    let mut users: BTreeMap<&str, Vec<&JobRun>> = BTreeMap::new();
    for (job, run) in jobs.iter().zip(runs) {
        users.entry(&job.user).or_default().push(run);
    }
    let longest = |spans: Vec<Option<Duration>>| match spans.iter().max() {
        Some(Some(span)) => format!("{} s", span.as_secs()),
        _ => "-".to_owned(),
    };
    let line = |(user, runs): (&str, Vec<&JobRun>)| {
        let used: Duration = runs.iter().map(|run| run.used).sum();
        let done = runs.iter().filter(|run| run.turnaround.is_some()).count();
        vec![
            user.to_owned(),
            runs.len().to_string(),
            done.to_string(),
            longest(runs.iter().map(|run| run.waited).collect()),
            longest(runs.iter().map(|run| run.turnaround).collect()),
            format!("{:.2}", used.as_secs_f64() / 3_600.0),
        ]
    };
    users.into_iter().map(line).collect()
}
