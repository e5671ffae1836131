//! What admins do with names, and everybody with their own key.

use std::sync::{Arc, PoisonError};

use gleaner_common::wire::Reply;
use gleaner_coordinator_core::Event;

use super::request::{Refusal, refuse_without_disk};
use super::{Peer, Shared};
use crate::brain::Input;
use crate::store::Write;

pub(super) async fn remove_user(
    shared: &Arc<Shared>,
    peer: &Peer,
    name: String,
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
    shared.brain.write(records.into_iter().map(Write::Record).collect()).await?;
    shared.revocations.send_replace(());
    Ok(Reply::Done)
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
    shared.brain.tell(Input::Revoked(workstation)).await?;
    shared.brain.tell(Input::Fact(Event::Removed(workstation))).await?;
    shared.brain.write(records.into_iter().map(Write::Record).collect()).await?;
    shared.revocations.send_replace(());
    Ok(Reply::Done)
}

pub(super) async fn drain(
    shared: &Arc<Shared>,
    name: String,
    drained: bool,
) -> Result<Reply, Refusal> {
    refuse_without_disk(shared)?;
    let asked = name.clone();
    let known = shared.brain.look(move |core, _| core.workstation_named(&asked)).await?;
    let workstation = known.ok_or(Refusal::UnknownWorkstation(name))?;
    shared.brain.tell(Input::Fact(Event::Drained { workstation, drained })).await?;
    // Answered when that is on the disk.
    shared.brain.write(vec![]).await?;
    Ok(Reply::Done)
}

/// The connection goes on, as the new key's; all others of the old key end.
pub(super) async fn rotate(
    shared: &Arc<Shared>,
    peer: &Peer,
    public_key: Vec<u8>,
) -> Result<Reply, Refusal> {
    refuse_without_disk(shared)?;
    let old = peer.key.read().unwrap_or_else(PoisonError::into_inner).clone();
    // A certificate that cannot be made must not cost the old one.
    let identity = &peer.identity;
    let certificate = shared
        .authority
        .issue(&public_key, identity.role, &identity.name)
        .map_err(|error| Refusal::Certificate(error.to_string()))?;
    let new = public_key.clone();
    let (_, records) = shared.directory.write().unwrap_or_else(PoisonError::into_inner).rotate(
        &old,
        public_key,
        shared.clock.wall(),
    )?;
    tracing::info!("{} {} has a new key", identity.role.name(), identity.name);
    *peer.key.write().unwrap_or_else(PoisonError::into_inner) = new;
    shared.brain.write(records.into_iter().map(Write::Record).collect()).await?;
    shared.revocations.send_replace(());
    Ok(Reply::Rotated { certificate })
}
