//! `glean replay campaign` and `glean replay report`.

use std::path::PathBuf;
use std::thread;

use anyhow::Result;
use gleaner_replay::campaign::inputs::{InputError, Overrides, prepare};
use gleaner_replay::campaign::run::{Effort, Outcome, Progress, run_campaign};
use gleaner_replay::report;
use gleaner_replay::results::store::{CSV, PARQUET, Shard, StoreError};
use indicatif::ProgressBar;

use crate::command::usage::InterpretArgs;
use crate::command::watch;
use crate::failure::{Verdict, hinted};
use crate::flags::{OutDir, UsageArchive};
use crate::{output, values};

#[derive(Debug, clap::Args)]
pub struct CampaignArgs {
    /// The campaign file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub out: OutDir,
    #[command(flatten)]
    pub usage: UsageArchive,
    #[command(flatten)]
    pub interpret: InterpretArgs,
    /// Only this share of the executions: 2/8 is the second of eight.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// How many threads [default: one for each core].
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub threads: Option<u32>,
    /// One record of what was done.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The campaign's results.
    #[arg(value_name = "DIR")]
    pub results: PathBuf,
    #[command(flatten)]
    pub out: OutDir,
    /// One record for each file written.
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// A campaign that cannot be run, or results that cannot be written.
pub(super) fn run(args: &CampaignArgs) -> Result<Verdict> {
    let (interpret, logs) = args.interpret.split();
    let overrides = Overrides { usage: args.usage.usage.clone(), interpret, logs };
    let prepared = prepare(&args.file, &overrides).map_err(unprepared)?;
    output::notes(&prepared.notes);
    for network in &prepared.manifest.networks {
        if network.periods < network.periods_wanted {
            output::say(&format!(
                "{} workstations: only {} of {} periods have enough of them with a transition before and after",
                network.workstations, network.periods, network.periods_wanted
            ));
        }
    }
    let threads = args.threads.map_or_else(cores, |threads| threads.max(1) as usize);
    let effort = Effort { shard: args.shard.unwrap_or_default(), threads };
    let template = "{prefix} {bar:30} {human_pos}/{human_len}  {per_sec}  {eta} left";
    let bar = watch::bar(template, "executing", 0);
    let outcome =
        run_campaign(&prepared.plan, &prepared.manifest, &args.out.out, effort, &|progress| {
            show(&bar, progress);
        });
    bar.finish_and_clear();
    let outcome = outcome.map_err(unstored)?;
    output::told(args.json, &outcome, || spoken(args, &outcome))?;
    Ok(Verdict::from(outcome.left == 0))
}

pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn show(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Begun { executions } => bar.set_length(executions),
        Progress::Done { executions } => bar.inc(executions),
        Progress::Merging { chunk, of } => {
            bar.set_prefix("joining");
            bar.set_length(of.into());
            bar.set_position(chunk.into());
        }
    }
}

fn spoken(args: &CampaignArgs, outcome: &Outcome) -> String {
    let out = args.out.out.display();
    let kept = match outcome.kept {
        0 => String::new(),
        kept => format!(", {kept} were there already"),
    };
    let said = format!("{} executions done{kept}", outcome.executed);
    match outcome.given_up {
        Some(given_up) => format!(
            "{said}; {given_up} of all were given up because they had not ended with their period\n\
             {out}/{PARQUET} and {out}/{CSV} hold the results: glean replay report {out} --out REPORT"
        ),
        None => format!("{said}; {} are left to other shards", outcome.left),
    }
}

pub(super) fn unprepared(error: InputError) -> anyhow::Error {
    if let InputError::NoUsage(_) = error {
        let hint = "glean usage import takes in a log, glean usage generate makes one up";
        return hinted(error.to_string(), hint);
    }
    error.into()
}

pub(super) fn unstored(error: StoreError) -> anyhow::Error {
    let hint = if let StoreError::AnotherCampaign { .. } = error {
        "another --out keeps both; removing the directory starts anew"
    } else if let StoreError::Incomplete { .. } = error {
        "the same campaign again goes on where it was"
    } else {
        return error.into();
    };
    hinted(error.to_string(), hint)
}

/// # Errors
/// Results that are not there, or a report that cannot be written.
pub(super) fn report(args: &ReportArgs) -> Result<Verdict> {
    let files = report::write(&args.results, &args.out.out).map_err(|error| match error {
        report::ReportError::Results(error) => unstored(error),
        report::ReportError::Write(error) => error.into(),
    })?;
    if args.json {
        for file in &files {
            output::record(&serde_json::json!({ "file": file.display().to_string() }))?;
        }
    } else {
        let report = args.out.out.join("report.md");
        output::say(&format!(
            "{} and {} tables and figures beside it",
            report.display(),
            files.len() - 1
        ));
    }
    Ok(Verdict::Yes)
}
