//! What admins do with names, and everybody with their own key.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::wire::{KeyHash, Reply};
use gleaner_coordinator_core::directory::taken_from_agents;
use gleaner_coordinator_core::{Answer, Event};
use gleaner_shell::identity::key_hash;
use tokio::time::timeout;

use super::request::{Refusal, refuse_without_disk};
use super::{Peer, Shared};
use crate::brain::Input;
use crate::store::Write;

/// How long who has a new key may take to read so and to go.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn remove_user(
    shared: &Arc<Shared>,
    peer: &Peer,
    name: String,
    keep_jobs: bool,
) -> Result<Reply, Refusal> {
    refuse_without_disk(shared)?;
    if name == peer.name() {
        return Err(Refusal::Yourself(name));
    }
    let records = shared
        .directory
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .remove_user(&name, shared.clock.wall());
    if records.is_empty() {
        return Err(Refusal::UnknownUser(name));
    }
    tracing::info!("{} took the keys of user {name} away", peer.name());
    shared.brain.tell(Input::Revoked { workstation: None, keys: vec![] }).await?;
    shared.brain.write(records.into_iter().map(Write::Record).collect()).await?;
    // Whoever comes from here on is refused, and what is open closes meanwhile.
    let of = name.clone();
    let jobs: Vec<JobId> = shared.brain.look(move |core, _| core.jobs_of(&of)).await?;
    let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
    if keep_jobs {
        return Ok(Reply::UserRemoved { cancelled: 0, kept: count });
    }
    let mut cancelled = 0;
    for job in jobs {
        let answer = shared.brain.ask(|reply| Input::Cancel { job, reply }).await?;
        cancelled += u32::from(matches!(answer, Answer::Cancelled(_)));
    }
    Ok(Reply::UserRemoved { cancelled, kept: 0 })
}

pub(super) async fn remove_workstation(
    shared: &Arc<Shared>,
    name: String,
) -> Result<Reply, Refusal> {
    refuse_without_disk(shared)?;
    let removed = shared
        .directory
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .remove_workstation(&name, shared.clock.wall());
    let (workstation, records) = removed.ok_or(Refusal::UnknownWorkstation(name))?;
    let keys = taken_from_agents(&records).map(key_hash).collect();
    shared.brain.tell(Input::Revoked { workstation: Some(workstation), keys }).await?;
    shared.brain.tell(Input::Fact(Box::new(Event::Removed(workstation)))).await?;
    shared.brain.write(records.into_iter().map(Write::Record).collect()).await?;
    Ok(Reply::Done)
}

pub(super) async fn drain(
    shared: &Arc<Shared>,
    name: String,
    (drained, now): (bool, bool),
) -> Result<Reply, Refusal> {
    refuse_without_disk(shared)?;
    let asked = name.clone();
    let known = shared.brain.look(move |core, _| core.workstation_named(&asked)).await?;
    let workstation = known.ok_or(Refusal::UnknownWorkstation(name))?;
    shared.brain.tell(Input::Fact(Box::new(Event::Drained { workstation, drained, now }))).await?;
    // Answered when that is on the disk.
    shared.brain.write(vec![]).await?;
    Ok(Reply::Done)
}

/// The connection goes on with the old key, if that is good still; the next one
/// shows the new.
pub(super) async fn rotate(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    public_key: Vec<u8>,
    at_once: bool,
) -> Result<Reply, Refusal> {
    refuse_without_disk(shared)?;
    // The directory refuses what no certificate can be made for.
    let (record, records) = shared
        .directory
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .rotate(&peer.key, public_key.clone(), at_once, shared.clock.wall())?;
    tracing::info!("{} {} has a new key", record.role.name(), record.name);
    let keys = taken_from_agents(&records).map(key_hash).collect();
    shared.brain.write(records.into_iter().map(Write::Record).collect()).await?;
    let certificate = shared
        .authority
        .issue(&public_key, record.role, &record.name, record.validity())
        .map_err(|error| Refusal::Certificate(error.to_string()))?;
    if at_once {
        tokio::spawn(end_old_key(shared.clone(), peer.clone(), keys));
    }
    Ok(Reply::Rotated { certificate })
}

/// Ends every connection with the old key, once the answer on this one was read.
async fn end_old_key(shared: Arc<Shared>, peer: Arc<Peer>, keys: Vec<KeyHash>) {
    let _ = timeout(ANSWERED_WITHIN, peer.connection.closed()).await;
    // An error means that all connections end.
    let _ = shared.brain.tell(Input::Revoked { workstation: None, keys }).await;
}
