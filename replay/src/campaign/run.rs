//! Running a campaign: threads take chunks, chunks become files.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::plan::Plan;
use crate::results::manifest::Manifest;
use crate::results::store::{Shard, Store, StoreError};

/// How to run a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub shard: Shard,
    pub threads: usize,
}

/// How far a campaign is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many executions are to be done by this process.
    Begun { executions: u64 },
    /// So many more are done.
    Done { executions: u64 },
    /// All is executed; chunk so many of all is being joined.
    Merging { chunk: u32, of: u32 },
}

/// What came of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Outcome {
    /// Executed by this process now.
    pub executed: u64,
    /// There already.
    pub kept: u64,
    /// Left to other shards that have not done them yet.
    pub left: u64,
    /// How many of all were given up, when all are there.
    pub given_up: Option<u64>,
}

/// Runs a campaign, or its share of it, or what is left of it.
///
/// # Errors
/// A directory of another campaign, or a disk that is full or gone. What was
/// done stays done.
pub fn run_campaign(
    plan: &Plan,
    manifest: &Manifest,
    dir: &Path,
    effort: Effort,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Outcome, StoreError> {
    let store = Store::open(dir, manifest)?;
    let missing = store.missing(|chunk| plan.rows_of(chunk));
    let rows = |chunks: &[u32]| chunks.iter().map(|chunk| plan.rows_of(*chunk)).sum::<u64>();
    let mine: Vec<u32> =
        missing.iter().copied().filter(|chunk| effort.shard.takes(*chunk)).collect();
    let executed = rows(&mine);
    progress(Progress::Begun { executions: executed });
    execute_chunks(plan, &store, &mine, effort.threads, progress)?;
    // Other shards may have finished meanwhile.
    let missing = if missing.len() == mine.len() {
        vec![]
    } else {
        store.missing(|chunk| plan.rows_of(chunk))
    };
    let left = rows(&missing);
    let given_up = if missing.is_empty() {
        let of = plan.chunks();
        Some(store.merge(&mut |chunk| progress(Progress::Merging { chunk, of }))?)
    } else {
        None
    };
    Ok(Outcome { executed, kept: plan.executions() - executed - left, left, given_up })
}

fn execute_chunks(
    plan: &Plan,
    store: &Store,
    chunks: &[u32],
    threads: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), StoreError> {
    share_out(chunks, threads, || {
        let mut executor = plan.executor();
        move |chunk| {
            let mut done = |executions| progress(Progress::Done { executions });
            plan.execute(chunk, &mut executor, &mut done);
            store.write(chunk, plan.legend(), &executor.rows)
        }
    })
}

/// Every thread takes the next chunk that nobody has taken, and does it as its
/// own worker does. Which thread does which makes no difference to the files.
pub(crate) fn share_out<W: FnMut(u32) -> Result<(), StoreError>>(
    chunks: &[u32],
    threads: usize,
    worker: impl Fn() -> W + Sync,
) -> Result<(), StoreError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failure = Mutex::new(None);
    let work = || {
        let mut worker = worker();
        while !failed.load(Ordering::Relaxed)
            && let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if let Err(error) = worker(*chunk) {
                failed.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(chunks.len()) {
            scope.spawn(work);
        }
        work();
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
