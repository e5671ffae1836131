//! The connections of people: who is taken away is gone at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_common::wire::{Role, close};
use quinn::{Connection, VarInt};

use crate::directory::IdentityRecord;

/// By name and the connection's own number. Clone it freely.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visitors(Arc<Mutex<BTreeMap<(String, usize), Connection>>>);

/// As long as it lives, the connection can be closed by its user's name.
#[derive(Debug)]
pub(super) struct Visit(Visitors, (String, usize));

impl Visitors {
    /// `None` for what is no person's.
    pub(super) fn enter(
        &self,
        identity: &IdentityRecord,
        connection: &Connection,
    ) -> Option<Visit> {
        if !matches!(identity.role, Role::User | Role::Admin) {
            return None;
        }
        let key = (identity.name.clone(), connection.stable_id());
        self.all().insert(key.clone(), connection.clone());
        Some(Visit(self.clone(), key))
    }

    pub(super) fn close(&self, name: &str) {
        let range = (name.to_owned(), 0)..=(name.to_owned(), usize::MAX);
        for (_, connection) in self.all().range(range) {
            refuse(connection);
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, usize), Connection>> {
        // Nothing under this lock leaves it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.all().remove(&self.1);
    }
}

pub(super) fn refuse(connection: &Connection) {
    connection.close(VarInt::from_u32(close::FORBIDDEN), b"this identity has been revoked");
}
