//! Running a workload campaign: threads take chunks, chunks become files.

use std::path::Path;

use super::columns;
use super::inputs::WorkloadInputs;
use super::plan::RunRow;
use crate::campaign::run::{Effort, Progress, share_out};
use crate::results::store::{Part, Shard, Store, StoreError};
use crate::results::table::{Column, Table};
use crate::workload::swf::{SwfJob, SwfLog};

/// What came of a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WorkloadOutcome {
    /// Runs done by this process now.
    pub executed: u64,
    /// Runs that were there already.
    pub kept: u64,
    /// Runs left to other shards that have not done them yet.
    pub left: u64,
    /// When all are there: how many jobs there were in all runs, ..
    pub jobs: Option<u64>,
    /// .. how many of them were refused, larger than their site or not worth
    /// it, ..
    pub refused: Option<u64>,
    /// .. and how many had not ended when nothing happened any more.
    pub unfinished: Option<u64>,
}

/// Runs a campaign, or its share of it, or what is left of it.
///
/// # Errors
/// A directory of another campaign, or a disk that is full or gone. What was
/// done stays done.
pub fn run_campaign(
    inputs: &WorkloadInputs,
    dir: &Path,
    effort: Effort,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<WorkloadOutcome, StoreError> {
    let plan = &inputs.plan;
    let store = Store::open(dir, &inputs.manifest)?;
    let missing = store.missing(|chunk| plan.rows_of(chunk));
    let rows = |chunks: &[u32]| chunks.iter().map(|chunk| plan.rows_of(*chunk)).sum::<u64>();
    let mine: Vec<u32> =
        missing.iter().copied().filter(|chunk| effort.shard.takes(*chunk)).collect();
    let executed = rows(&mine);
    progress(Progress::Begun { executions: executed });
    share_out(&mine, effort.threads, || {
        |chunk| {
            let mut done = |executions| progress(Progress::Done { executions });
            let runs = plan.execute(chunk, &mut done);
            if plan.campaign.per_job {
                store.keep(chunk, Part::Jobs, &columns::jobs(&runs))?;
            }
            store.keep(chunk, Part::Results, &columns::runs(&runs))
        }
    })?;
    conclude(&store, inputs, executed, progress)
}

/// Takes in the chunks that another directory has of the same campaign, and
/// that this one has not.
///
/// # Errors
/// A directory of another campaign, or a disk that is full or gone.
pub fn take_in(inputs: &WorkloadInputs, dir: &Path, from: &Path) -> Result<(), StoreError> {
    let (store, from) = (Store::open(dir, &inputs.manifest)?, Store::open(from, &inputs.manifest)?);
    let rows_of = |chunk| inputs.plan.rows_of(chunk);
    let elsewhere = from.missing(rows_of);
    let wanted = store.missing(rows_of).into_iter().filter(|chunk| !elsewhere.contains(chunk));
    let parts = if inputs.plan.campaign.per_job { &[Part::Jobs][..] } else { &[] };
    wanted.into_iter().try_for_each(|chunk| {
        let mut parts = parts.iter().chain(&[Part::Results]);
        parts.try_for_each(|part| store.take(chunk, *part, &from))
    })
}

/// The shards, of so many, that have not done their share yet.
///
/// # Errors
/// A directory of another campaign.
pub fn shards_left(inputs: &WorkloadInputs, dir: &Path, of: u32) -> Result<Vec<u32>, StoreError> {
    let store = Store::open(dir, &inputs.manifest)?;
    let missing = store.missing(|chunk| inputs.plan.rows_of(chunk));
    let has_some = |index: &u32| {
        let shard = Shard { index: *index, of };
        missing.iter().any(|chunk| shard.takes(*chunk))
    };
    Ok((1..=of).filter(has_some).collect())
}

/// Joins what others did, if all of it is there.
///
/// # Errors
/// As for [`run_campaign`].
pub fn join_campaign(
    inputs: &WorkloadInputs,
    dir: &Path,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<WorkloadOutcome, StoreError> {
    conclude(&Store::open(dir, &inputs.manifest)?, inputs, 0, progress)
}

fn conclude(
    store: &Store,
    inputs: &WorkloadInputs,
    executed: u64,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<WorkloadOutcome, StoreError> {
    // Other shards may have finished meanwhile.
    let plan = &inputs.plan;
    let missing = store.missing(|chunk| plan.rows_of(chunk));
    let left = missing.iter().map(|chunk| plan.rows_of(*chunk)).sum::<u64>();
    let kept = plan.runs() - executed - left;
    let outcome = WorkloadOutcome { executed, kept, left, ..WorkloadOutcome::default() };
    if !missing.is_empty() {
        return Ok(outcome);
    }
    join(store, inputs, outcome, progress)
}

fn join(
    store: &Store,
    inputs: &WorkloadInputs,
    outcome: WorkloadOutcome,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<WorkloadOutcome, StoreError> {
    let of = inputs.plan.chunks();
    if inputs.plan.campaign.per_job {
        store.join(Part::Jobs, &mut |chunk, _| progress(Progress::Merging { chunk, of }))?;
    }
    let mut sums = [0_u64; 3];
    store.join(Part::Results, &mut |chunk, table| {
        progress(Progress::Merging { chunk, of });
        for (sum, name) in sums.iter_mut().zip(["jobs", "refused", "left"]) {
            *sum += total(table, name);
        }
    })?;
    let [jobs, refused, unfinished] = sums.map(Some);
    Ok(WorkloadOutcome { jobs, refused, unfinished, ..outcome })
}

fn total(table: &Table, name: &str) -> u64 {
    match table.column(name) {
        Some(Column::Integer(values)) => values.iter().map(|value| value.unsigned_abs()).sum(),
        _ => 0,
    }
}

/// The campaign's first run as a log: its jobs with what became of them. What
/// the format has no field for, changes of size above all, is not in it.
pub fn first_run_as_log(inputs: &WorkloadInputs) -> SwfLog {
    let row = inputs.plan.first_run();
    let RunRow { workload, policy, site, processors, .. } = &row;
    let comments = [
        "Version: 2.2".to_owned(),
        format!("Computer: {site} of the campaign {}", inputs.name()),
        format!("MaxJobs: {}", row.outcomes.len()),
        format!("MaxProcs: {processors}"),
        format!(
            "Note: simulated by glean: {workload} under {policy}; processors are the most a job had"
        ),
    ];
    let mut jobs: Vec<SwfJob> = row.outcomes.iter().map(SwfJob::of).collect();
    jobs.sort_by_key(|job| (job.submit_s, job.number));
    SwfLog { comments: comments.into(), jobs, ..SwfLog::default() }
}

/// Runs everything without keeping it in a directory; tells of each run, in
/// order.
pub fn run_here(inputs: &WorkloadInputs, mut tell: impl FnMut(&RunRow)) {
    for chunk in 0..inputs.plan.chunks() {
        inputs.plan.execute(chunk, &mut |_| ()).iter().for_each(&mut tell);
    }
}
