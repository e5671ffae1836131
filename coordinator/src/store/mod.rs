//! What must survive: one `SQLite` file, readable with any tool for it.
//!
//! ```text
//! brain ── Batch{writes, release} ──► thread ── one transaction ──► release
//! requests about what is over ──────► Reader ── read-only, beside the writer
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_core::Restored;
use rusqlite::Connection;

use crate::directory::Record;

mod column;
mod database;
pub(crate) mod read;
mod spec_1;
#[cfg(test)]
mod tests;
mod thread;
mod write;

pub use database::OpenStoreError;
pub(crate) use thread::{Batch, FromStore, StoreHealth, StoreThread, start};
pub(crate) use write::Write;

/// The file's name in the data directory.
pub(crate) const FILE: &str = "coordinator.sqlite";

/// An opened store whose thread has not started yet.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    connection: Connection,
}

impl Store {
    /// # Errors
    /// See [`OpenStoreError`]; the file is then as it was.
    pub(crate) fn open(data: &Path) -> Result<Self, OpenStoreError> {
        let path = data.join(FILE);
        let connection = database::open(&path)?;
        Ok(Self { path, connection })
    }

    /// What the core and the directory start from.
    ///
    /// # Errors
    /// A row that does not read.
    pub(crate) fn load(&self) -> Result<(Restored, Vec<Record>), OpenStoreError> {
        let bad = |error: rusqlite::Error| OpenStoreError::BadRow {
            path: self.path.clone(),
            what: error.to_string(),
        };
        let restored = read::restored(&self.connection).map_err(bad)?;
        Ok((restored, read::directory(&self.connection).map_err(bad)?))
    }

    /// Commits before the thread runs.
    ///
    /// # Errors
    /// Those of `SQLite`.
    pub(crate) fn commit(&mut self, writes: Vec<Write>) -> Result<(), OpenStoreError> {
        let batch = Batch::<()> { writes, release: vec![] };
        write::commit(&mut self.connection, &[batch])
            .map_err(|why| OpenStoreError::Unusable { path: self.path.clone(), why })
    }

    /// A second, read-only connection.
    ///
    /// # Errors
    /// Those of `SQLite`.
    pub(crate) fn reader(&self) -> Result<Reader, OpenStoreError> {
        let connection = database::open_for_reading(&self.path)
            .map_err(|why| OpenStoreError::Unusable { path: self.path.clone(), why })?;
        Ok(Reader(Arc::new(Mutex::new(connection))))
    }

    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }
}

/// Reads what is over, on threads that may wait for the disk.
#[derive(Clone, Debug)]
pub(crate) struct Reader(Arc<Mutex<Connection>>);

impl Reader {
    /// On this thread, which may wait for the disk.
    ///
    /// # Errors
    /// Those of `SQLite`, and rows that do not read.
    pub(crate) fn read_here<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        query(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs one of the functions of [`read`]; the error is for people.
    ///
    /// # Errors
    /// Those of `SQLite`, and rows that do not read.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, ReadStoreError> {
        let reader = self.clone();
        match tokio::task::spawn_blocking(move || reader.read_here(query)).await {
            Ok(read) => read.map_err(|why| ReadStoreError::Database { why }),
            Err(_) => Err(ReadStoreError::Stopping),
        }
    }
}

/// Why the store did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadStoreError {
    #[error("the coordinator cannot read its database: {why}")]
    Database { why: rusqlite::Error },
    #[error("the coordinator is stopping")]
    Stopping,
}
