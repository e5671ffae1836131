//! Listings. What has not ended is the core's, what has is the store's; both
//! are asked page by page, so that a long list neither holds up the brain nor
//! piles up in memory before a slow reader.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::IndexRange;
use gleaner_common::report::{JobRow, JobState, ReplicaRow, ReplicaState, SubprogramRow};
use gleaner_common::wire::Reply;
use gleaner_coordinator_core::{Core, JobRecord, untried_row};
use gleaner_shell::stream::{FrameWriter, StreamError};

use super::request::Refusal;
use super::{Peer, Shared};

const PAGE_ROWS: u32 = 1_000;
/// Rows are written when so much has gathered.
const FLUSH_BYTES: usize = 64 << 10;

pub(super) async fn row(writer: &mut FrameWriter, reply: Reply) -> Result<(), Refusal> {
    writer.queue(&reply).map_err(StreamError::Frame)?;
    if writer.queued_bytes() >= FLUSH_BYTES {
        writer.flush().await?;
    }
    Ok(())
}

/// The last rows of a listing.
async fn last_rows(
    writer: &mut FrameWriter,
    rows: impl IntoIterator<Item = Reply>,
) -> Result<(), Refusal> {
    for reply in rows {
        row(writer, reply).await?;
    }
    row(writer, Reply::End).await
}

/// All jobs, newest first.
pub(super) async fn jobs(
    shared: &Arc<Shared>,
    peer: &Peer,
    writer: &mut FrameWriter,
) -> Result<(), Refusal> {
    let seen = |row| Reply::Job(Box::new(peer.sees(shared, row)));
    let mut live = shared
        .brain
        .look(|core, _| core.jobs().filter_map(|job| core.job_row(job)).collect::<Vec<_>>())
        .await?;
    live.sort_by_key(|row| row.job);
    let mut below = JobId(u32::MAX);
    loop {
        let page = shared.reader.read(move |tables| tables.ended_jobs(below, PAGE_ROWS)).await?;
        let is_last = page.len() < PAGE_ROWS as usize;
        for ended in page {
            // A job that has ended since the core was asked is in both.
            while let Some(newer) = live.pop_if(|live| live.job >= ended.job) {
                if newer.job > ended.job {
                    row(writer, seen(newer)).await?;
                }
            }
            below = ended.job;
            row(writer, seen(ended.row())).await?;
        }
        if is_last {
            break;
        }
    }
    last_rows(writer, live.into_iter().rev().map(seen)).await
}

pub(super) async fn job(shared: &Arc<Shared>, peer: &Peer, job: JobId) -> Result<Reply, Refusal> {
    Ok(Reply::Job(Box::new(peer.sees(shared, job_row(shared, job).await?))))
}

pub(super) async fn job_row(shared: &Arc<Shared>, job: JobId) -> Result<JobRow, Refusal> {
    if let Some(row) = shared.brain.look(move |core, _| core.job_row(job)).await? {
        return Ok(row);
    }
    Ok(job_record(shared, job).await?.row())
}

/// A job as the store has it.
pub(super) async fn job_record(shared: &Arc<Shared>, job: JobId) -> Result<JobRecord, Refusal> {
    if let Some(record) = shared.reader.read(move |tables| tables.job_record(job)).await? {
        return Ok(record);
    }
    let later = shared.brain.look(move |core, _| core.later_job(job)).await?;
    Err(later.map_or(Refusal::UnknownJob(job), Refusal::LaterJob))
}

/// A job's indexes and state as the store has them.
async fn known_job(shared: &Arc<Shared>, job: JobId) -> Result<(IndexRange, JobState), Refusal> {
    // The brain answers after everything that it may know is in the store.
    shared.brain.look(|_, _| ()).await?;
    let record = job_record(shared, job).await?;
    Ok((record.indexes(), record.progress.state))
}

/// # Errors
/// There is no such subprogram.
pub(super) async fn known_subprogram(
    shared: &Arc<Shared>,
    id: SubprogramId,
) -> Result<JobState, Refusal> {
    match known_job(shared, id.job).await {
        Ok((indexes, state)) if indexes.position(id.index).is_some() => Ok(state),
        Ok(_) | Err(Refusal::UnknownJob(_)) => Err(Refusal::UnknownSubprogram(id)),
        Err(error) => Err(error),
    }
}

/// A job's subprograms with indexes from `first`, in order, at most so many.
pub(super) async fn subprograms(
    shared: &Arc<Shared>,
    job: JobId,
    (first, count): (u32, u32),
    writer: &mut FrameWriter,
) -> Result<(), Refusal> {
    let (indexes, _) = known_job(shared, job).await?;
    let mut position = indexes.position_from(first);
    let end = position.saturating_add(count).min(indexes.len());
    while position < end {
        let next = position.saturating_add(PAGE_ROWS).min(end);
        for subprogram in page(shared, job, indexes, (position, next)).await? {
            row(writer, Reply::Subprogram(Box::new(subprogram))).await?;
        }
        position = next;
    }
    row(writer, Reply::End).await
}

/// The subprograms at positions from `begin` to before `end`.
async fn page(
    shared: &Arc<Shared>,
    job: JobId,
    indexes: IndexRange,
    (begin, end): (u32, u32),
) -> Result<Vec<SubprogramRow>, Refusal> {
    let ids: Vec<_> = (begin..end)
        .filter_map(|position| Some(SubprogramId { job, index: indexes.at(position)? }))
        .collect();
    let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
        return Ok(vec![]);
    };
    let asked = ids.clone();
    let live: Vec<Option<SubprogramRow>> = shared
        .brain
        .look(move |core, _| asked.into_iter().map(|id| core.subprogram_row(id)).collect())
        .await?;
    // The store is asked after the core: it has what has ended meanwhile.
    let (records, state) = shared
        .reader
        .read(move |tables| {
            let range = (first.index, last.index);
            Ok((tables.subprogram_records(job, range)?, tables.job_state(job)?))
        })
        .await?;
    let mut over: BTreeMap<_, _> =
        records.into_iter().map(|record| (record.subprogram, record)).collect();
    let state = state.unwrap_or(JobState::Running);
    Ok(ids
        .into_iter()
        .zip(live)
        .map(|(id, live)| {
            live.unwrap_or_else(|| match over.remove(&id) {
                Some(record) => {
                    let at = record.history.last.workstation;
                    record.row(Some(shared.workstation_name(at)))
                }
                None => untried_row(id, state),
            })
        })
        .collect())
}

/// One subprogram, whether or not it has ended.
pub(super) async fn subprogram_row(
    shared: &Arc<Shared>,
    id: SubprogramId,
) -> Result<SubprogramRow, Refusal> {
    let (indexes, _) = known_job(shared, id.job).await?;
    let position = indexes.position(id.index).ok_or(Refusal::UnknownSubprogram(id))?;
    let mut rows = page(shared, id.job, indexes, (position, position + 1)).await?;
    rows.pop().ok_or(Refusal::UnknownSubprogram(id))
}

pub(super) async fn attempts(
    shared: &Arc<Shared>,
    id: SubprogramId,
    writer: &mut FrameWriter,
) -> Result<(), Refusal> {
    known_subprogram(shared, id).await?;
    let attempts = shared.reader.read(move |tables| tables.attempts(id)).await?.into_iter();
    let rows = attempts.map(|attempt| attempt.row(shared.workstation_name(attempt.workstation)));
    last_rows(writer, rows.map(|row| Reply::Attempt(Box::new(row)))).await
}

/// The replicas of a subprogram; none if it has but one run.
pub(super) async fn replicas(
    shared: &Arc<Shared>,
    id: SubprogramId,
    writer: &mut FrameWriter,
) -> Result<(), Refusal> {
    known_subprogram(shared, id).await?;
    let reply = |row: ReplicaRow| Reply::Replica(Box::new(row));
    if let Some(rows) = shared.brain.look(move |core, _| core.replica_rows(id)).await? {
        return last_rows(writer, rows.into_iter().map(reply)).await;
    }
    let (records, accepted) = shared.reader.read(move |tables| tables.replicas(id)).await?;
    let of_accepted = records.iter().find(|it| Some(it.history.last.fence) == accepted);
    let counts = of_accepted.and_then(|record| record.answer);
    let rows = records.iter().map(|record| {
        let state = match record.answer {
            None => ReplicaState::Dropped,
            answer if answer == counts => ReplicaState::Agrees,
            Some(_) => ReplicaState::Differs,
        };
        record.row(shared.workstation_name(record.history.last.workstation), state)
    });
    last_rows(writer, rows.map(reply).collect::<Vec<_>>()).await
}

pub(super) async fn workstations(
    shared: &Arc<Shared>,
    writer: &mut FrameWriter,
) -> Result<(), Refusal> {
    let ids = shared.brain.look(|core, _| core.workstations().collect::<Vec<_>>()).await?;
    for page in ids.chunks(PAGE_ROWS as usize) {
        let page = page.to_vec();
        let rows: Vec<_> = shared
            .brain
            .look(move |core, now| {
                page.into_iter().filter_map(|id| core.workstation_row(now, id)).collect()
            })
            .await?;
        for workstation in rows {
            row(writer, Reply::Workstation(Box::new(workstation))).await?;
        }
    }
    row(writer, Reply::End).await
}

pub(super) async fn users(shared: &Arc<Shared>, writer: &mut FrameWriter) -> Result<(), Refusal> {
    let rows = shared.directory.read().unwrap_or_else(PoisonError::into_inner).users();
    last_rows(writer, rows.into_iter().map(|row| Reply::User(Box::new(row)))).await
}

pub(super) async fn shares(shared: &Arc<Shared>, writer: &mut FrameWriter) -> Result<(), Refusal> {
    let rows = shared.brain.look(Core::share_rows).await?;
    last_rows(writer, rows.into_iter().map(|row| Reply::Share(Box::new(row)))).await
}

pub(super) async fn tokens(shared: &Arc<Shared>, writer: &mut FrameWriter) -> Result<(), Refusal> {
    let rows =
        shared.directory.read().unwrap_or_else(PoisonError::into_inner).tokens(shared.clock.wall());
    last_rows(writer, rows.into_iter().map(|row| Reply::TokenRow(Box::new(row)))).await
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use gleaner_common::id::{Fence, WorkstationId};
    use gleaner_common::job::JobSpec;
    use gleaner_common::report::SubprogramState;
    use gleaner_common::time::WallTime;
    use gleaner_common::wire::Request;
    use gleaner_coordinator_core::{
        Change, History, JobProgress, JobRecord, LastAttempt, SubprogramRecord,
    };
    use gleaner_shell::client::Client;
    use gleaner_shell::clock::Clock;
    use gleaner_shell::identity::Identity;

    use super::*;
    use crate::store::{Store, Write};
    use crate::{ADMIN, CoordinatorConfig, serve};

    const ROWS: u32 = 2_000_000;

    fn subprogram(index: u32) -> Write {
        Write::Change(Change::Subprogram(SubprogramRecord {
            subprogram: SubprogramId { job: JobId(1), index },
            state: SubprogramState::Succeeded,
            history: History {
                attempts: 1,
                cpu: Duration::from_millis(1_234),
                last: LastAttempt {
                    fence: Fence::of(index + 1),
                    workstation: WorkstationId(1),
                    outcome: "succeeded".into(),
                },
                ..History::default()
            },
        }))
    }

    /// A job that has ended, with a row for each of its subprograms.
    fn fill(data: &std::path::Path) {
        let mut store = Store::open(data).unwrap();
        let indexes = IndexRange::count_of(ROWS).unwrap();
        let mut progress = JobProgress::new(JobId(1));
        (progress.state, progress.ended) = (JobState::Succeeded, Some(WallTime(6)));
        progress.counts.succeeded = ROWS;
        let record = JobRecord {
            job: JobId(1),
            user: "ada".into(),
            submitted: WallTime(5),
            spec: JobSpec::new(vec!["/bin/true".into()], indexes),
            progress,
            notes: vec![],
        };
        store.commit(&[Write::Change(Change::Job(Box::new(record)))]).unwrap();
        for first in (0..ROWS).step_by(100_000) {
            let writes: Vec<_> = (first..first + 100_000).map(subprogram).collect();
            store.commit(&writes).unwrap();
        }
    }

    async fn count(client: &Client, first: u32, count: u32) -> usize {
        let request = Request::Subprograms { job: JobId(1), first, count };
        let mut rows = client.rows(&request).await.unwrap();
        let mut found = 0;
        while rows.next().await.unwrap().is_some() {
            found += 1;
        }
        found
    }

    #[tokio::test]
    #[ignore = "a measurement, of a minute and 300 MB"]
    async fn how_long_a_part_and_all_of_two_million_rows_take() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        let config = CoordinatorConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data: dir.path().to_owned(),
            ..CoordinatorConfig::default()
        };
        let (ready, listens) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let ready = |_| ready.send(()).unwrap();
            serve(&config, ready, std::future::pending()).await.unwrap();
        });
        listens.await.unwrap();
        let admin = Identity::load(&dir.path().join(ADMIN)).unwrap();
        let client = Client::connect(&admin, None).await.unwrap();
        let clock = Clock::new();
        for (first, rows) in [(0, 100), (1_999_999, 1), (1_000_000, 100), (0, ROWS)] {
            let begun = clock.now();
            assert_eq!(count(&client, first, rows).await, rows as usize);
            println!("{rows} rows from {first}: {:?}", clock.now().since(begun));
        }
    }
}
