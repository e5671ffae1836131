//! `glean replay workload --on lab`: a campaign's shards as the subprograms of
//! a job, which take this binary, the campaign and its logs with them.
//!
//! ```text
//! shards that are left ─► job ─► DIR/lab/<index>/ ─► chunks ─► results
//! ```
//!
//! The job's number is kept in `DIR/lab.json` until its chunks are taken in, so
//! that whoever asks again waits for the same job; what it did not do, the next
//! one does.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gleaner_common::id::JobId;
use gleaner_common::job::{IndexRange, JobSpec, is_inside};
use gleaner_common::report::JobState;
use gleaner_common::wire::{Reply, Request};
use gleaner_replay::workload::campaign::{
    WorkloadInputs, WorkloadOutcome, join_campaign, shards_left, take_in,
};
use gleaner_shell::client::Client;
use serde::{Deserialize, Serialize};

use super::campaign::unstored;
use super::workload::Args;
use crate::ask::{self, ask};
use crate::command::watch::{self, Watched};
use crate::command::{fetch, submit};
use crate::failure::{Refusal, hinted};
use crate::output;
use crate::staging::{self, Found};
use crate::values::Input;

/// More shards than this are asked for by name.
const SHARDS_MAX: u32 = 256;

/// Exit code 1 says that other shards are not done yet, which is no failure of
/// this one.
const SHARD: &str =
    "./glean replay workload \"$@\" --out \"$GLEAN_OUTPUT\" --threads 1 --json || [ $? -eq 1 ]";

/// The job that does what is left.
#[derive(Debug, Serialize, Deserialize)]
struct Submitted {
    job: JobId,
    /// What it does: another campaign's is none of ours.
    campaign: String,
}

/// # Errors
/// A campaign that cannot be sent, no answer, or results that cannot be
/// written.
pub(super) fn on_lab(args: &Args, inputs: &WorkloadInputs) -> Result<WorkloadOutcome> {
    let Some(dir) = &args.out else { bail!("--on lab: expected --out, where the results come to") };
    if args.shard.is_some() || args.threads.is_some() {
        bail!("--on lab divides the runs by itself: expected neither --shard nor --threads");
    }
    fetch::check_writable(dir)?;
    let of = args.shards.unwrap_or_else(|| inputs.chunks().min(SHARDS_MAX)).min(inputs.chunks());
    let left = shards_left(inputs, dir, of).map_err(unstored)?;
    let earlier = earlier(dir, inputs);
    if earlier.is_some() || !left.is_empty() {
        ask(&args.access, async |client| {
            let job = match earlier {
                Some(job) if is_known(client, job).await? => job,
                Some(_) | None => begin(client, args, inputs, (of, &left)).await?,
            };
            bring(client, args, inputs, dir, job).await
        })?;
    }
    join_campaign(inputs, dir, &|_| ()).map_err(unstored)
}

fn note(dir: &Path) -> PathBuf {
    dir.join("lab.json")
}

/// The job that was submitted before and whose results are not here yet.
fn earlier(dir: &Path, inputs: &WorkloadInputs) -> Option<JobId> {
    let text = fs::read_to_string(note(dir)).ok()?;
    let submitted: Submitted = serde_json::from_str(&text).ok()?;
    (submitted.campaign == inputs.digest()).then_some(submitted.job)
}

/// A coordinator that has been set up anew has never heard of it.
async fn is_known(client: &Client, job: JobId) -> Result<bool> {
    match ask::one(client, &Request::Job(job)).await {
        Ok(Reply::Job(row)) => Ok(row.summary.state != JobState::Cancelled),
        Ok(_) => Err(ask::unexpected(&Request::Job(job))),
        Err(error) if error.is::<Refusal>() => Ok(false),
        Err(error) => Err(error),
    }
}

/// All that a shard reads: this binary, the campaign, its logs and owners.
fn files(args: &Args, inputs: &WorkloadInputs) -> Result<Vec<Found>> {
    let to = |path: PathBuf, to: String| Input { path, to: Some(to) };
    let mut all = vec![
        to(std::env::current_exe()?, "glean".into()),
        to(args.file.clone(), "campaign.toml".into()),
    ];
    let here = args.file.parent().unwrap_or(Path::new("."));
    for file in &inputs.files {
        let name = file.to_str().filter(|name| is_inside(name));
        let name = name.with_context(|| {
            format!("{}: a lab needs it beside the campaign file, or below", file.display())
        })?;
        all.push(to(here.join(file), name.to_owned()));
    }
    match &args.usage.usage {
        Some(usage) => all.push(to(usage.clone(), "usage".into())),
        None if inputs.has_owners() => {
            bail!("its sites have owners: expected --usage, to be sent along")
        }
        None => {}
    }
    Ok(staging::collect(&all)?)
}

async fn begin(
    client: &Client,
    args: &Args,
    inputs: &WorkloadInputs,
    (of, left): (u32, &[u32]),
) -> Result<JobId> {
    let files = files(args, inputs)?;
    let (Some(first), Some(last)) = (left.first(), left.last()) else { bail!("nothing is left") };
    let mut command: Vec<String> =
        ["sh", "-c", SHARD, "sh", "campaign.toml", "--shard"].map(str::to_owned).to_vec();
    command.push(format!("{{i}}/{of}"));
    if args.usage.usage.is_some() {
        command.extend(["--usage".to_owned(), "usage".to_owned()]);
    }
    let indexes = IndexRange { first: *first, last: *last, step: 1 };
    let mut spec = JobSpec::new(command, indexes);
    spec.name = format!("replay {}", inputs.name());
    spec.collect_output = true;
    spec.inputs = files.iter().map(|file| file.staged.clone()).collect();
    spec.check().context("this campaign cannot be a job")?;
    let job = submit::submit(client, spec, &files).await?;
    let dir = args.out.as_deref().unwrap_or(Path::new("."));
    let submitted = Submitted { job, campaign: inputs.digest().to_owned() };
    fs::write(note(dir), serde_json::to_string(&submitted)?)?;
    output::say(&format!("job {job} runs {} shards: glean job {job} shows it", indexes.len()));
    Ok(job)
}

/// Waits for the job, and takes in what it left.
async fn bring(
    client: &Client,
    args: &Args,
    inputs: &WorkloadInputs,
    dir: &Path,
    job: JobId,
) -> Result<()> {
    let Watched::Ended(summary) = watch::until_end(client, &args.access, job).await? else {
        return Err(hinted(
            format!("stopped waiting: job {job} goes on"),
            "the same command again waits for it".to_owned(),
        ));
    };
    let brought = dir.join("lab");
    fetch::fetch(client, job, &brought).await?;
    if let Ok(entries) = fs::read_dir(&brought) {
        for entry in entries {
            take_in(inputs, dir, &entry?.path()).map_err(unstored)?;
        }
        fs::remove_dir_all(&brought)?;
    }
    fs::remove_file(note(dir))?;
    if summary.counts.failed > 0 {
        let failed = summary.counts.failed;
        output::say(&format!(
            "{failed} shards have failed: glean logs {job} --stderr says why; the same command again tries them anew"
        ));
    }
    Ok(())
}
