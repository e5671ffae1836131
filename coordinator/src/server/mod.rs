//! The QUIC server: who connects, which streams they may open, and what is sent
//! on each.
//!
//! ```text
//! handshake ─► peer ─► connection task ─► one task per stream
//!                                          ├ agent    frames ⇄ brain
//!                                          ├ request  one question, its answers
//!                                          ├ blob     Put, Get
//!                                          ├ enrol    newcomers only
//!                                          ├ handover attempts ⇄ other agents
//!                                          └ relay    usage ⇄ collector
//! ```
//!
//! The promise: what arrives is checked here and turned into facts; a peer
//! that breaks the protocol hears why, costs one line in the log, and hurts
//! nobody else. Decides nothing about jobs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gleaner_common::id::WorkstationId;
use gleaner_common::wire::{Purpose, Role, close};
use gleaner_coordinator_core::directory::{
    Directory, IdentityRecord, Key, KeyStanding, TokenRecord,
};
use gleaner_coordinator_core::shares::ShareConfig;
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::peer_spki;
use gleaner_shell::identity::Authority;
use gleaner_shell::stream::{FrameReader, FrameWriter, OpeningError, read_opening};
use quinn::{Connection, Endpoint, Incoming, RecvStream, SendStream, VarInt};
use tokio::sync::watch;

use crate::agents::Agents;
use crate::blobs::Blobs;
use crate::brain::BrainHandle;
use crate::limited_log::LimitedLog;
use crate::placement::PlacementTimes;
use crate::staging_room::StagingRoom;
use crate::store::{Reader, StoreHealth};

mod agent;
mod blob;
mod check;
mod enrol;
mod handover;
mod listing;
mod people;
mod relay;
mod request;
mod sight;
mod splice;
mod why;

pub(crate) use relay::Collector;

/// A certificate's end is looked for so often at least: the wall clock may be set
/// meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(3_600);

/// What every connection shares.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) brain: BrainHandle,
    pub(crate) directory: Arc<RwLock<Directory>>,
    pub(crate) authority: Authority,
    pub(crate) blobs: Blobs,
    pub(crate) reader: Reader,
    pub(crate) store_health: StoreHealth,
    pub(crate) placement: Arc<PlacementTimes>,
    pub(crate) limited_log: LimitedLog,
    pub(crate) collector: Collector,
    pub(crate) agents: Agents,
    pub(crate) next_serial: AtomicU64,
    pub(crate) shares: ShareConfig,
    pub(crate) staging_room: StagingRoom,
    /// Changes whenever a key is revoked.
    pub(crate) revocations: watch::Sender<()>,
}

impl Shared {
    fn standing(&self, key: &[u8]) -> KeyStanding {
        self.directory
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .standing(key, self.clock.wall())
    }

    fn workstation_name(&self, workstation: WorkstationId) -> String {
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        directory
            .workstation_name(workstation)
            .map_or_else(|| workstation.to_string(), ToOwned::to_owned)
    }

    fn next_serial(&self) -> u64 {
        self.next_serial.fetch_add(1, Ordering::Relaxed)
    }
}

/// An enrolled peer's connection.
struct Peer {
    identity: IdentityRecord,
    key: Key,
    connection: Connection,
}

impl Peer {
    fn name(&self) -> &str {
        &self.identity.name
    }

    fn may(&self, purpose: &Purpose) -> bool {
        let role = self.identity.role;
        match purpose {
            Purpose::Agent | Purpose::Usage | Purpose::Handover { .. } => role == Role::Agent,
            Purpose::Put { .. } | Purpose::Get { .. } => role != Role::Collector,
            // What each may request is looked at with the request.
            Purpose::Request => true,
            Purpose::Enrol | Purpose::Relay { .. } | Purpose::Packets => false,
        }
    }
}

/// Takes connections until the endpoint is closed.
pub(crate) async fn accept(shared: Arc<Shared>, endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(admit(shared.clone(), incoming));
    }
}

/// What goes on for as long as the connection does gets a task of its own, so
/// that the room which the beginning took is given back.
async fn admit(shared: Arc<Shared>, incoming: Incoming) {
    let from = incoming.remote_address();
    let connection = match incoming.accept() {
        Ok(connecting) => connecting.await,
        Err(error) => Err(error),
    };
    let connection = match connection {
        Ok(connection) => connection,
        Err(error) => {
            shared.limited_log.log(format_args!("{from} was not let in: {error}"));
            return;
        }
    };
    let Some(key) = peer_spki(&connection) else {
        shared.limited_log.log(format_args!("{from} showed no key that reads"));
        connection.close(VarInt::from_u32(close::FORBIDDEN), b"no key that reads");
        return;
    };
    // The handshake asked the same; the answer may have changed since.
    match shared.standing(&key) {
        KeyStanding::Enrolled(identity) => {
            tracing::debug!("{} {} connected from {from}", identity.role.name(), identity.name);
            tokio::spawn(enrolled(shared, Arc::new(Peer { identity, key, connection })));
        }
        KeyStanding::Newcomer(token) => newcomer(&shared, &connection, key, token).await,
        KeyStanding::Expired
        | KeyStanding::RunOut
        | KeyStanding::Revoked
        | KeyStanding::Unknown => {
            connection.close(VarInt::from_u32(close::FORBIDDEN), b"not enrolled here");
        }
    }
}

/// One enrolled peer's connection, until it ends or its key is good no more.
async fn enrolled(shared: Arc<Shared>, peer: Arc<Peer>) {
    let serving = shared.collector.enter(&peer.identity, &peer.connection);
    let mut revocations = shared.revocations.subscribe();
    loop {
        tokio::select! {
            biased;
            why = ends(&shared, &peer.key, &mut revocations) => {
                peer.connection.close(VarInt::from_u32(close::FORBIDDEN), why.as_bytes());
                break;
            }
            stream = peer.connection.accept_bi() => match stream {
                Ok(stream) => drop(tokio::spawn(serve_stream(shared.clone(), peer.clone(), stream))),
                Err(_) => break,
            },
        }
    }
    drop(serving);
    tracing::debug!("{} left", peer.name());
}

/// Returns why, once a key is good no more.
async fn ends(shared: &Shared, key: &Key, revocations: &mut watch::Receiver<()>) -> &'static str {
    loop {
        let expires = match shared.standing(key) {
            KeyStanding::Enrolled(identity) => identity.expires,
            KeyStanding::RunOut => return "this identity's certificate has run out",
            KeyStanding::Revoked
            | KeyStanding::Unknown
            | KeyStanding::Newcomer(_)
            | KeyStanding::Expired => return "this identity has been revoked",
        };
        let left = expires.map_or(LOOK_AGAIN, |at| at.since(shared.clock.wall()));
        tokio::select! {
            _ = revocations.changed() => {}
            () = tokio::time::sleep(left.min(LOOK_AGAIN)) => {}
        }
    }
}

async fn serve_stream(shared: Arc<Shared>, peer: Arc<Peer>, stream: (SendStream, RecvStream)) {
    match read_opening(stream).await {
        Ok((purpose, writer, reader)) if peer.may(&purpose) => {
            serve_purpose(shared, peer, purpose, (writer, reader));
        }
        Ok((purpose, mut writer, mut reader)) => {
            shared.limited_log.log(format_args!(
                "{} {} may not open a stream for {}",
                peer.identity.role.name(),
                peer.name(),
                name_of(&purpose)
            ));
            writer.reset(close::FORBIDDEN);
            reader.stop(close::FORBIDDEN);
        }
        Err(error) => refuse_opening(&shared, &peer.connection, peer.name(), &error),
    }
}

fn serve_purpose(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    purpose: Purpose,
    (writer, reader): (FrameWriter, FrameReader),
) {
    match purpose {
        Purpose::Agent => drop(tokio::spawn(agent::serve(shared, peer, writer, reader))),
        Purpose::Usage => drop(tokio::spawn(relay::serve(shared, peer, writer, reader))),
        Purpose::Request => drop(tokio::spawn(request::serve(shared, peer, writer, reader))),
        Purpose::Put { hash, size_bytes } => {
            let announced = (hash, size_bytes);
            drop(tokio::spawn(blob::put(shared, peer, announced, writer, reader)));
        }
        Purpose::Get { hash } => drop(tokio::spawn(blob::get(shared, peer, hash, writer))),
        Purpose::Handover { to, what } => {
            drop(tokio::spawn(handover::serve(shared, peer, (to, what), writer, reader)));
        }
        Purpose::Enrol | Purpose::Relay { .. } | Purpose::Packets => {
            unreachable!("no enrolled peer may open these")
        }
    }
}

/// A token's holder may enrol and nothing else.
async fn newcomer(shared: &Arc<Shared>, connection: &Connection, key: Key, token: TokenRecord) {
    let Ok(stream) = connection.accept_bi().await else { return };
    match read_opening(stream).await {
        Ok((Purpose::Enrol, writer, reader)) => {
            enrol::serve(shared, connection, (key, token), writer, reader).await;
        }
        Ok((purpose, ..)) => {
            let reason = format!("a token is for enrolling, not for {}", name_of(&purpose));
            shared.limited_log.log(format_args!("the holder of token {}: {reason}", token.id));
            connection.close(VarInt::from_u32(close::FORBIDDEN), reason.as_bytes());
        }
        Err(error) => {
            let who = format!("the holder of token {}", token.id);
            refuse_opening(shared, connection, &who, &error);
        }
    }
}

fn refuse_opening(shared: &Shared, connection: &Connection, who: &str, error: &OpeningError) {
    if connection.close_reason().is_some() {
        return; // The peer left: there is nothing to log.
    }
    shared.limited_log.log(format_args!("{who} at {}: {error}", connection.remote_address()));
    error.refuse(connection);
}

fn name_of(purpose: &Purpose) -> &'static str {
    match purpose {
        Purpose::Agent => "an agent",
        Purpose::Usage => "usage records",
        Purpose::Request => "requests",
        Purpose::Put { .. } => "staging a file",
        Purpose::Get { .. } => "fetching a file",
        Purpose::Enrol => "enrolling",
        Purpose::Relay { .. } => "relaying",
        Purpose::Packets => "packets",
        Purpose::Handover { .. } => "handing over",
    }
}
