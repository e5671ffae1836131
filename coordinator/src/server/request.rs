//! One request: who may ask it, and what is answered.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use gleaner_common::frame::FRAME_BYTES_MAX;
use gleaner_common::id::{ContentHash, JobId, SubprogramId};
use gleaner_common::job::{InvalidJob, JobSpec};
use gleaner_common::report::{HealthRow, JobSummary};
use gleaner_common::time::WallTime;
use gleaner_common::wire::{Finished, Reply, Request, Role, close};
use gleaner_coordinator_core::Answer;
use gleaner_coordinator_core::directory::{
    DirectoryRecord, RefusedEnrolment, RefusedToken, TokenRecord,
};
use gleaner_shell::identity::Token;
use gleaner_shell::stream::{FrameReader, FrameWriter, StreamError};
use quinn::VarInt;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Peer, Shared, listing, people, sight, why};
use crate::brain::{Input, Stopping};
use crate::store::{ReadStoreError, Write};

/// How long somebody may take to say what they ask.
const PATIENCE: Duration = Duration::from_secs(10);
/// A watcher hears of changes at most so often; of the end at once.
const BETWEEN_SUMMARIES: Duration = Duration::from_millis(50);
/// A job's frame to an agent is this much longer than its spec at most.
const JOB_FRAME_OVERHEAD_BYTES: usize = 64;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The peer that asked is gone.
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Stopping(#[from] Stopping),
    #[error(transparent)]
    Store(#[from] ReadStoreError),
    #[error(transparent)]
    Job(#[from] InvalidJob),
    #[error(transparent)]
    Token(#[from] RefusedToken),
    #[error("no job {0}")]
    UnknownJob(JobId),
    /// The store went back in time, and does not know it any more.
    #[error("{0}")]
    LaterJob(String),
    #[error("no subprogram {0}")]
    UnknownSubprogram(SubprogramId),
    #[error("no workstation `{0}`: `glean workstations` lists them")]
    UnknownWorkstation(String),
    #[error("no token `{0}` that could be revoked: `glean token ls` lists them")]
    UnknownToken(String),
    #[error("subprogram {0} has printed and left nothing yet")]
    NothingPrinted(SubprogramId),
    #[error(
        "nothing of subprogram {0} counts: `glean job {0}` shows its replicas, `glean logs {0} --replica 1` what the first one printed"
    )]
    NothingCounts(SubprogramId),
    #[error(
        "subprogram {0} has no replica {1} that has ended by itself: `glean job {0}` shows its replicas"
    )]
    NoReplica(SubprogramId, u8),
    #[error("job {0} has ended: {1}")]
    Ended(JobId, &'static str),
    #[error("job {job} is {owner}'s: only they or an admin may cancel it")]
    NotYours { job: JobId, owner: String },
    #[error("job {job} is {owner}'s: only they, their group and admins see more than that")]
    NotToSee { job: JobId, owner: String },
    #[error("{0} identities may not ask for this: expected {1}")]
    Role(&'static str, &'static str),
    #[error("input file `{path}` is not staged ({hash})")]
    NotStaged { path: String, hash: ContentHash },
    #[error("the job's description takes {0} bytes: expected at most {max}", max = FRAME_BYTES_MAX - JOB_FRAME_OVERHEAD_BYTES)]
    SpecTooLong(usize),
    #[error("no randomness for a token")]
    Randomness,
    #[error("the coordinator cannot write to its disk: {0}: nothing was changed, try later")]
    DiskRefuses(String),
    #[error("no user `{0}`: `glean users ls` lists them")]
    UnknownUser(String),
    #[error("`{0}` is who asks: expected another admin to take your own keys away")]
    Yourself(String),
    #[error(transparent)]
    Key(#[from] RefusedEnrolment),
    #[error("no certificate was made: {0}")]
    Certificate(String),
    #[error("{0}")]
    Core(String),
}

pub(super) async fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    mut writer: FrameWriter,
    mut reader: FrameReader,
) {
    let request = match timeout(PATIENCE, reader.expect::<Request>()).await {
        Ok(Ok(request)) => request,
        Ok(Err(StreamError::Frame(error))) => {
            shared.limited_log.log(format_args!("{} sent no request: {error}", peer.name()));
            let reason = error.to_string();
            let _ = writer.send(&Reply::No { reason: reason.clone() }).await;
            peer.connection.close(VarInt::from_u32(close::PROTOCOL), reason.as_bytes());
            return;
        }
        Ok(Err(_)) | Err(_) => return,
    };
    let answered = tokio::select! {
        answered = answer(&shared, &peer, request, &mut writer) => answered,
        _ = peer.connection.closed() => return,
    };
    let last = match answered {
        Ok(()) => None,
        Err(Refusal::Stream(_)) => return,
        Err(no) => Some(Reply::No { reason: no.to_string() }),
    };
    if let Some(last) = last
        && writer.queue(&last).is_err()
    {
        unreachable!("a reason fits in a frame");
    }
    if writer.flush().await.is_ok() {
        writer.finish();
    }
}

/// Queues the answers; what is left in the writer is flushed by the caller.
async fn answer(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    request: Request,
    writer: &mut FrameWriter,
) -> Result<(), Refusal> {
    allow(peer.identity.role, &request)?;
    sight::check(shared, peer, &request).await?;
    let reply = match request {
        Request::Missing(hashes) => missing(shared, peer, hashes).await?,
        Request::Submit(spec) => submit(shared, peer, spec).await?,
        Request::Jobs => return listing::jobs(shared, peer, writer).await,
        Request::Job(job) => listing::job(shared, peer, job).await?,
        Request::Subprograms { job, first, count } => {
            return listing::subprograms(shared, job, (first, count), writer).await;
        }
        Request::Watch(job) => return watch(shared, job, writer).await,
        Request::Output(subprogram) => output(shared, subprogram).await?,
        Request::Cancel(job) => cancel(shared, peer, job).await?,
        Request::Workstations => return listing::workstations(shared, writer).await,
        Request::WhySubprogram(subprogram) => why::subprogram(shared, subprogram).await?,
        Request::WhyJob(job) => why::job(shared, job).await?,
        Request::WhyWorkstation(name) => why::workstation(shared, name).await?,
        Request::Attempts(subprogram) => {
            return listing::attempts(shared, subprogram, writer).await;
        }
        Request::TokenCreate { role, lifetime, name } => {
            token_create(shared, role, lifetime, name).await?
        }
        Request::Tokens => return listing::tokens(shared, writer).await,
        Request::TokenRevoke { id } => token_revoke(shared, id).await?,
        Request::Health => health(shared, peer).await?,
        Request::Users => return listing::users(shared, writer).await,
        Request::UserRemove { name, keep_jobs } => {
            people::remove_user(shared, peer, name, keep_jobs).await?
        }
        Request::WorkstationRemove { name } => people::remove_workstation(shared, name).await?,
        Request::WorkstationDrain { name, drained, now } => {
            people::drain(shared, name, (drained, now)).await?
        }
        Request::Rotate { public_key, at_once } => {
            people::rotate(shared, peer, public_key, at_once).await?
        }
        Request::Shares => return listing::shares(shared, writer).await,
        Request::Replicas(subprogram) => {
            return listing::replicas(shared, subprogram, writer).await;
        }
        Request::ReplicaOutput { subprogram, replica } => {
            replica_output(shared, subprogram, replica).await?
        }
        Request::Ask(spec) => would_take(shared, peer, spec).await?,
    };
    listing::row(writer, reply).await
}

fn allow(role: Role, request: &Request) -> Result<(), Refusal> {
    let only_admins = matches!(
        request,
        Request::TokenCreate { .. }
            | Request::Tokens
            | Request::TokenRevoke { .. }
            | Request::Users
            | Request::UserRemove { .. }
            | Request::WorkstationRemove { .. }
            | Request::WorkstationDrain { .. }
    );
    match role {
        Role::User if only_admins => Err(Refusal::Role(role.name(), "an admin")),
        Role::Admin | Role::User => Ok(()),
        Role::Agent | Role::Collector
            if matches!(request, Request::Health | Request::Rotate { .. }) =>
        {
            Ok(())
        }
        Role::Agent | Role::Collector => Err(Refusal::Role(role.name(), "a user")),
    }
}

async fn missing(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    hashes: Vec<ContentHash>,
) -> Result<Reply, Refusal> {
    let known = sight::known(shared, peer, hashes.clone()).await?;
    let (blobs, wall) = (shared.blobs.clone(), shared.clock.wall());
    let missing = spawn_blocking(move || {
        let is_missing = |hash: &ContentHash| !known.contains(hash) || !blobs.has(*hash, wall);
        hashes.into_iter().filter(is_missing).collect::<Vec<_>>()
    });
    Ok(Reply::Missing(missing.await.map_err(|_| Stopping)?))
}

async fn submit(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    spec: Box<JobSpec>,
) -> Result<Reply, Refusal> {
    spec.check()?;
    let bytes = postcard::serialize_with_flavor(&*spec, postcard::ser_flavors::Size::default())
        .unwrap_or(usize::MAX);
    if bytes > FRAME_BYTES_MAX - JOB_FRAME_OVERHEAD_BYTES {
        return Err(Refusal::SpecTooLong(bytes));
    }
    let spec = all_staged(shared, peer, spec).await?;
    let user = peer.name().to_owned();
    match shared.brain.ask(|reply| Input::Submit { user, spec, reply }).await? {
        Answer::Submitted(job) | Answer::Cancelled(job) => Ok(Reply::Submitted(job)),
        Answer::No(reason) => Err(Refusal::Core(reason)),
    }
}

async fn would_take(
    shared: &Arc<Shared>,
    peer: &Peer,
    spec: Box<JobSpec>,
) -> Result<Reply, Refusal> {
    let user = peer.name().to_owned();
    let answer = shared.brain.look(move |core, now| core.would_take(now, &user, &spec)).await?;
    let taken = answer.is_ok();
    let (Ok(reason) | Err(reason)) = answer;
    Ok(Reply::WouldTake { taken, reason })
}

async fn all_staged(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    spec: Box<JobSpec>,
) -> Result<Box<JobSpec>, Refusal> {
    if spec.inputs.is_empty() {
        return Ok(spec);
    }
    let named = spec.inputs.iter().map(|file| file.hash).collect();
    let known = sight::known(shared, peer, named).await?;
    let (blobs, wall) = (shared.blobs.clone(), shared.clock.wall());
    let looked = spawn_blocking(move || {
        let is_here = |hash| known.contains(&hash) && blobs.has(hash, wall);
        let missing = spec.inputs.iter().find(|file| !is_here(file.hash)).cloned();
        (spec, missing)
    });
    match looked.await.map_err(|_| Stopping)? {
        (spec, None) => Ok(spec),
        (_, Some(file)) => Err(Refusal::NotStaged { path: file.path, hash: file.hash }),
    }
}

async fn cancel(shared: &Arc<Shared>, peer: &Peer, job: JobId) -> Result<Reply, Refusal> {
    let Some(row) = shared.brain.look(move |core, _| core.job_row(job)).await? else {
        let record = listing::job_record(shared, job).await?;
        return Err(Refusal::Ended(job, record.progress.state.name()));
    };
    if peer.identity.role != Role::Admin && row.user != peer.name() {
        return Err(Refusal::NotYours { job, owner: row.user });
    }
    match shared.brain.ask(|reply| Input::Cancel { job, reply }).await? {
        Answer::Cancelled(_) | Answer::Submitted(_) => Ok(Reply::Cancelled),
        Answer::No(reason) => Err(Refusal::Core(reason)),
    }
}

/// Summaries as the job gets further, and its last one as soon as it is known.
async fn watch(shared: &Arc<Shared>, job: JobId, writer: &mut FrameWriter) -> Result<(), Refusal> {
    let Some(mut changes) = shared.brain.ask(|reply| Input::Watch { job, reply }).await? else {
        let summary = listing::job_record(shared, job).await?.row().summary;
        listing::row(writer, Reply::Summary(summary)).await?;
        return listing::row(writer, Reply::End).await;
    };
    let mut last: Option<JobSummary> = None;
    loop {
        let summary = *changes.wait_for(|now| Some(*now) != last).await.map_err(|_| Stopping)?;
        listing::row(writer, Reply::Summary(summary)).await?;
        if summary.state.has_ended() {
            return listing::row(writer, Reply::End).await;
        }
        writer.flush().await?;
        last = Some(summary);
        let _ = timeout(BETWEEN_SUMMARIES, changes.wait_for(|now| now.state.has_ended())).await;
    }
}

async fn output(shared: &Arc<Shared>, subprogram: SubprogramId) -> Result<Reply, Refusal> {
    listing::known_subprogram(shared, subprogram).await?;
    let (finished, replicas) = shared
        .reader
        .read(move |tables| Ok((tables.result(subprogram)?, tables.replicas(subprogram)?.0.len())))
        .await?;
    match finished {
        Some(finished) => Ok(printed(finished)),
        None if replicas > 0 => Err(Refusal::NothingCounts(subprogram)),
        None => Err(Refusal::NothingPrinted(subprogram)),
    }
}

/// `replica`: 1 for the first.
async fn replica_output(
    shared: &Arc<Shared>,
    subprogram: SubprogramId,
    replica: u8,
) -> Result<Reply, Refusal> {
    listing::known_subprogram(shared, subprogram).await?;
    let number = replica.checked_sub(1).ok_or(Refusal::NoReplica(subprogram, replica))?;
    let finished = shared.reader.read(move |tables| tables.replica_result(subprogram, number));
    finished.await?.map(printed).ok_or(Refusal::NoReplica(subprogram, replica))
}

fn printed(finished: Finished) -> Reply {
    Reply::Output { stdout: finished.stdout, stderr: finished.stderr, outputs: finished.outputs }
}

async fn token_create(
    shared: &Arc<Shared>,
    role: Role,
    lifetime: Duration,
    name: Option<String>,
) -> Result<Reply, Refusal> {
    refuse_without_disk(shared)?;
    let text = Token::create(shared.authority.fingerprint()).map_err(|_| Refusal::Randomness)?;
    let wall = shared.clock.wall();
    let lifetime_ns = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX);
    let expires = WallTime(wall.0.saturating_add(lifetime_ns));
    let token = TokenRecord { id: text.id(), role, name, expires, used_by: None, revoked: false };
    let record = shared.directory.write().unwrap_or_else(PoisonError::into_inner).open_token(
        text.spki(),
        token,
        wall,
    )?;
    write(shared, record).await?;
    tracing::info!("made token {} for one {}", text.id(), role.name());
    Ok(Reply::Token { text: text.to_string(), id: text.id(), expires })
}

async fn token_revoke(shared: &Arc<Shared>, id: String) -> Result<Reply, Refusal> {
    refuse_without_disk(shared)?;
    let record = shared.directory.write().unwrap_or_else(PoisonError::into_inner).revoke_token(&id);
    write(shared, record.ok_or(Refusal::UnknownToken(id))?).await?;
    Ok(Reply::TokenRevoked)
}

pub(super) fn refuse_without_disk(shared: &Shared) -> Result<(), Refusal> {
    shared.store_health.trouble().map_or(Ok(()), |trouble| Err(Refusal::DiskRefuses(trouble)))
}

async fn write(shared: &Arc<Shared>, record: DirectoryRecord) -> Result<(), Refusal> {
    Ok(shared.brain.write(vec![Write::Record(record)]).await?)
}

async fn health(shared: &Arc<Shared>, peer: &Peer) -> Result<Reply, Refusal> {
    let (workstations, connected, queued, later_self) = shared
        .brain
        .look(|core, _| {
            let later_self = core.later_self().map(|(name, seen)| {
                format!("{name} has seen attempt {seen}, which is newer than the store")
            });
            (core.workstations().count(), core.connected(), core.queued(), later_self)
        })
        .await?;
    let placement = shared.placement.percentiles();
    Ok(Reply::Health(Box::new(HealthRow {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        you: peer.name().to_owned(),
        role: peer.identity.role,
        wall: shared.clock.wall(),
        workstations: u32::try_from(workstations).unwrap_or(u32::MAX),
        connected,
        collector_connected: shared.collector.is_connected(),
        store: shared.store_health.trouble().unwrap_or_else(|| "well".to_owned()),
        damage: shared.store_health.damage().unwrap_or_default().to_owned(),
        went_back: later_self.unwrap_or_default(),
        queued,
        placement_p50_s: placement.p50_s,
        placement_p99_s: placement.p99_s,
        placement_max_s: placement.max_s,
        rss_bytes: rss_bytes(),
    })))
}

/// Resident memory of this process; 0 where `/proc` does not say.
fn rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
