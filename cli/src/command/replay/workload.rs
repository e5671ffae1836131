//! `glean replay workload`: jobs that arrive, under scheduling policies.

use std::path::{Path, PathBuf};

use anyhow::Result;
use gleaner_replay::campaign::inputs::Overrides;
use gleaner_replay::campaign::run::Effort;
use gleaner_replay::results::store::{CSV, PARQUET, Shard};
use gleaner_replay::workload::campaign::{
    RunRow, WorkloadInputs, WorkloadOutcome, first_run_as_log, prepare, run_campaign, run_here,
};
use gleaner_replay::workload::swf::SwfLog;
use gleaner_shell::atomic::{self, PUBLIC};
use serde::Serialize;

use super::campaign::{cores, show, unprepared, unstored};
use super::shards;
use crate::ask::Access;
use crate::command::usage::InterpretArgs;
use crate::command::watch;
use crate::failure::Verdict;
use crate::flags::UsageArchive;
use crate::{output, values};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The campaign file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The directory to keep the results in; without one, they are printed, and nothing is kept.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub usage: UsageArchive,
    #[command(flatten)]
    pub interpret: InterpretArgs,
    /// Only this share of the runs: 2/8 is the second of eight.
    #[arg(long, value_name = "I/N", requires = "out")]
    pub shard: Option<Shard>,
    /// Where the runs are done: here, or as a job of a lab, a shard a subprogram.
    #[arg(long, value_name = "WHERE", value_enum, default_value = "here")]
    pub on: On,
    /// On a lab: how many shards [default: one for each chunk, up to 256].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub shards: Option<u32>,
    /// Also write the jobs of the first run, with what became of them, as a log in the Standard
    /// Workload Format; packed if its name ends in .gz.
    #[arg(long, value_name = "LOG", conflicts_with = "out")]
    pub swf: Option<PathBuf>,
    /// How many threads [default: one for each core].
    #[arg(long, value_name = "N", value_parser = values::number, requires = "out")]
    pub threads: Option<u32>,
    /// One record of what was done; without --out, one for each run.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub access: Access,
}

/// Where the runs are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum On {
    Here,
    Lab,
}

/// # Errors
/// A campaign that cannot be run, or results that cannot be written.
pub(super) fn run(args: &Args) -> Result<Verdict> {
    let (interpret, logs) = args.interpret.split();
    let overrides = Overrides { usage: args.usage.usage.clone(), interpret, logs };
    let inputs = prepare(&args.file, &overrides).map_err(unprepared)?;
    output::notes(&inputs.notes);
    if args.on == On::Lab {
        let outcome = shards::on_lab(args, &inputs)?;
        let out = args.out.as_deref().unwrap_or(Path::new("."));
        output::told(args.json, &outcome, || spoken(out, &outcome))?;
        return Ok(Verdict::from(outcome.left == 0));
    }
    if let Some(path) = &args.swf {
        write_log(path, &first_run_as_log(&inputs))?;
    }
    let Some(out) = &args.out else { return here(args, &inputs) };
    let threads = args.threads.map_or_else(cores, |threads| threads.max(1) as usize);
    let effort = Effort { shard: args.shard.unwrap_or_default(), threads };
    let template = "{prefix} {bar:30} {human_pos}/{human_len}  {per_sec}  {eta} left";
    let bar = watch::bar(template, "running", 0);
    let outcome = run_campaign(&inputs, out, effort, &|progress| show(&bar, progress));
    bar.finish_and_clear();
    let outcome = outcome.map_err(unstored)?;
    output::told(args.json, &outcome, || spoken(out, &outcome))?;
    Ok(Verdict::from(outcome.left == 0))
}

fn write_log(path: &Path, log: &SwfLog) -> Result<()> {
    let is_packed = path.extension().is_some_and(|extension| extension == "gz");
    let bytes = if is_packed { log.packed()? } else { log.to_string().into_bytes() };
    atomic::replace(path, &bytes, PUBLIC)?;
    Ok(())
}

fn spoken(out: &Path, outcome: &WorkloadOutcome) -> String {
    let out = out.display();
    let kept = match outcome.kept {
        0 => String::new(),
        kept => format!(", {kept} were there already"),
    };
    let said = format!("{} runs done{kept}", outcome.executed);
    let WorkloadOutcome { jobs: Some(jobs), refused, unfinished, .. } = *outcome else {
        return format!("{said}; {} are left to other shards", outcome.left);
    };
    format!(
        "{said}; of {jobs} jobs in all of them {} were refused and {} had not ended\n\
         {out}/{PARQUET} and {out}/{CSV} hold the results: glean replay report {out} --out REPORT",
        refused.unwrap_or(0),
        unfinished.unwrap_or(0)
    )
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    workload: &'a str,
    policy: &'a str,
    site: &'a str,
    range: &'a str,
    malleable: u32,
    gap_s: f64,
    negotiation_s: f64,
    adaptation_s: f64,
    repeat: u32,
    ended: u64,
    refused: u64,
    left: u64,
    utilisation: f64,
    useful: f64,
    turnaround_s: f64,
    wait_s: f64,
    execution_s: f64,
    span_s: f64,
    slowdown: f64,
    profit: f64,
    negotiations: u64,
    adaptations: u64,
    taken_by_owners: u64,
    returned: u64,
}

impl<'a> From<&'a RunRow> for Line<'a> {
    fn from(row: &'a RunRow) -> Self {
        let summary = &row.summary;
        Self {
            workload: &row.workload,
            policy: row.policy,
            site: &row.site,
            range: &row.range,
            malleable: row.malleable,
            gap_s: row.gap_s,
            negotiation_s: row.negotiation_s,
            adaptation_s: row.adaptation_s,
            repeat: row.repeat,
            ended: summary.ended,
            refused: summary.refused,
            left: summary.left,
            utilisation: summary.held(),
            useful: summary.useful(),
            turnaround_s: summary.mean_turnaround_s(),
            wait_s: summary.mean_wait_s(),
            execution_s: summary.mean_execution_s(),
            span_s: summary.span().as_secs_f64(),
            slowdown: summary.mean_slowdown(),
            profit: summary.profit,
            negotiations: summary.negotiations,
            adaptations: summary.adaptations,
            taken_by_owners: summary.taken_by_owners,
            returned: summary.returned,
        }
    }
}

const HEADER: [&str; 10] = [
    "workload",
    "policy",
    "site",
    "malleable",
    "gap",
    "ended",
    "refused",
    "utilisation",
    "turnaround",
    "wait",
];

fn here(args: &Args, inputs: &WorkloadInputs) -> Result<Verdict> {
    let (mut lines, mut said, mut all_ended) = (vec![], Ok(()), true);
    run_here(inputs, |row| {
        let summary = &row.summary;
        all_ended &= summary.left == 0;
        if args.json {
            if said.is_ok() {
                said = output::record(&Line::from(row));
            }
            return;
        }
        lines.push(vec![
            row.workload.clone(),
            row.policy.to_owned(),
            row.site.clone(),
            format!("{} %", row.malleable),
            format!("{} s", row.gap_s),
            summary.ended.to_string(),
            summary.refused.to_string(),
            format!("{:.2} %", summary.held() * 100.0),
            format!("{:.0} s", summary.mean_turnaround_s()),
            format!("{:.0} s", summary.mean_wait_s()),
        ]);
    });
    said?;
    if !args.json {
        output::table(&HEADER, &lines)?;
    }
    Ok(Verdict::from(all_ended))
}
