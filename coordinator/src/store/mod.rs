//! The durable store: one `SQLite` file, readable with any tool for it.
//!
//! ```text
//! brain ── Batch{writes, release} ──► thread ── one transaction ──► release
//! requests about what is over ──────► Reader ── read-only, beside the writer
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_coordinator_core::Restored;
use rusqlite::Connection;

use crate::directory::DirectoryRecord;

mod column;
mod database;
mod read;
mod spec_1;
#[cfg(test)]
mod tests;
mod thread;
mod write;

pub(crate) use database::DatabaseError;
pub use database::OpenStoreError;
pub(crate) use thread::{Batch, FromStore, StoreHealth, StoreThread, start};
pub(crate) use write::{Write, Writer};

/// The file's name in the data directory.
pub(crate) const FILE: &str = "coordinator.sqlite";

/// An opened store whose thread has not started yet.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    writer: Writer,
}

impl Store {
    /// # Errors
    /// See [`OpenStoreError`]; the file is then as it was.
    pub(crate) fn open(data: &Path) -> Result<Self, OpenStoreError> {
        let path = data.join(FILE);
        let writer = Writer(database::open(&path)?);
        Ok(Self { path, writer })
    }

    /// What the core and the directory start from.
    ///
    /// # Errors
    /// A row that does not read.
    pub(crate) fn load(&self) -> Result<(Restored, Vec<DirectoryRecord>), OpenStoreError> {
        let reader = self.reader()?;
        reader
            .read_here(|tables| Ok((tables.restored()?, tables.directory()?)))
            .map_err(|why| OpenStoreError::BadRow { path: self.path.clone(), why })
    }

    /// Commits before the thread runs.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn commit(&mut self, writes: &[Write]) -> Result<(), OpenStoreError> {
        self.writer
            .commit(&writes.iter().collect::<Vec<_>>())
            .map_err(|why| OpenStoreError::Unusable { path: self.path.clone(), why })
    }

    /// A second, read-only connection.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn reader(&self) -> Result<Reader, OpenStoreError> {
        let connection = database::open_for_reading(&self.path)
            .map_err(|why| OpenStoreError::Unusable { path: self.path.clone(), why: why.into() })?;
        Ok(Reader(Arc::new(Mutex::new(Tables { connection }))))
    }

    pub(crate) fn into_writer(self) -> Writer {
        self.writer
    }
}

/// What can be asked of the rows: see [`read`].
#[derive(Debug)]
pub(crate) struct Tables {
    connection: Connection,
}

/// Reads what is over, on threads that may wait for the disk.
#[derive(Clone, Debug)]
pub(crate) struct Reader(Arc<Mutex<Tables>>);

impl Reader {
    /// Reads on this thread, which may wait for the disk.
    ///
    /// # Errors
    /// Those of the database, and rows that do not read.
    pub(crate) fn read_here<T>(
        &self,
        ask: impl FnOnce(&Tables) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        ask(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads on a thread of its own; the error is for people.
    ///
    /// # Errors
    /// Those of the database, and rows that do not read.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Tables) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, ReadStoreError> {
        let reader = self.clone();
        match tokio::task::spawn_blocking(move || reader.read_here(ask)).await {
            Ok(read) => Ok(read?),
            Err(_) => Err(ReadStoreError::Stopping),
        }
    }
}

/// Why the store did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadStoreError {
    #[error("the coordinator cannot read its database: {0}")]
    Database(#[from] DatabaseError),
    #[error("the coordinator is stopping")]
    Stopping,
}
