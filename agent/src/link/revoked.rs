//! Whose keys were revoked, as the coordinator tells, and what time it is there.
//!
//! The promise: nobody whose key was revoked speaks with this agent directly.
//! Before the coordinator was heard nobody does: it may have revoked any key
//! while this agent was away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use gleaner_common::time::{Moment, WallTime};
use gleaner_common::wire::{KeyHash, close};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{PeerStanding, peer_spki};
use gleaner_shell::identity::key_hash;
use quinn::Connection;
use tokio::sync::watch;

use super::lock;

/// Clone it freely.
#[derive(Clone, Debug)]
pub(crate) struct Revoked(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    known: Mutex<Known>,
    /// The time at the coordinator, and when it was told.
    told: watch::Sender<Option<(WallTime, Moment)>>,
}

#[derive(Debug, Default)]
struct Known {
    keys: BTreeSet<KeyHash>,
    /// The connections with other agents, whoever dialled them.
    open: BTreeMap<usize, (KeyHash, Connection)>,
}

impl Revoked {
    pub(super) fn new() -> Self {
        let (known, told) = (Mutex::default(), watch::Sender::new(None));
        Self(Arc::new(Shared { known, told }))
    }

    /// Takes in what the coordinator says, and closes what is open with any of
    /// these keys.
    pub(super) fn hear(&self, all: bool, keys: Vec<KeyHash>, now: WallTime) {
        let mut known = lock(&self.0.known);
        if all {
            known.keys.clear();
        }
        known.keys.extend(keys);
        let Known { keys, open } = &mut *known;
        for (_, (_, connection)) in open.extract_if(.., |_, (key, _)| keys.contains(key)) {
            refuse(&connection);
        }
        drop(known);
        self.0.told.send_replace(Some((now, Clock.now())));
    }

    /// The time at the coordinator, once it was heard.
    pub(super) fn now(&self) -> Option<WallTime> {
        self.0.told.borrow().map(|(wall, at)| {
            let since = i64::try_from(Clock.now().since(at).as_nanos()).unwrap_or(i64::MAX);
            WallTime(wall.0.saturating_add(since))
        })
    }

    /// The same, waiting for it.
    pub(super) async fn time(&self) -> WallTime {
        // The sender is beside it.
        let _ = self.0.told.subscribe().wait_for(Option::is_some).await;
        self.now().unwrap_or_default()
    }

    /// May the holder of this key speak with this agent?
    pub(super) fn standing(&self, spki: &[u8]) -> PeerStanding {
        match self.now() {
            None => PeerStanding::Unheard,
            Some(_) if lock(&self.0.known).keys.contains(&key_hash(spki)) => PeerStanding::Revoked,
            Some(now) => PeerStanding::Good(now),
        }
    }

    /// Has a connection closed when its key is revoked, until the result is
    /// dropped. It is closed at once if that has happened since the handshake.
    pub(super) fn watch(&self, connection: &Connection) -> Watched {
        let key = peer_spki(connection).map_or(KeyHash([0; 16]), |spki| key_hash(&spki));
        let mut known = lock(&self.0.known);
        if known.keys.contains(&key) {
            refuse(connection);
        }
        let id = connection.stable_id();
        known.open.insert(id, (key, connection.clone()));
        Watched { revoked: self.clone(), id }
    }
}

/// A connection that is closed when its key is revoked.
#[derive(Debug)]
pub(super) struct Watched {
    revoked: Revoked,
    id: usize,
}

impl Drop for Watched {
    fn drop(&mut self) {
        lock(&self.revoked.0.known).open.remove(&self.id);
    }
}

fn refuse(connection: &Connection) {
    connection.close(close::FORBIDDEN.into(), b"this identity has been revoked");
}
