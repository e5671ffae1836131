//! The durable store: one `SQLite` file, readable with any tool for it.
//!
//! ```text
//! brain ── Batch{writes, release} ──► thread ── one transaction ──► release
//! requests about what is over ──────► Reader ── read-only, beside the writer
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_common::id::{JobId, WorkstationId};
use gleaner_coordinator_core::Restored;
use gleaner_coordinator_core::directory::{Directory, DirectoryRecord};
use gleaner_shell::identity::Authority;
use rusqlite::Connection;

mod check;
mod column;
mod database;
mod read;
mod seal;
mod spec_1;
#[cfg(test)]
mod tests;
mod thread;
mod wal;
mod write;

pub(crate) use check::{Checked, check};
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
        if Authority::is_in(data) {
            database::refuse_emptied(&path)?;
        }
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

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn into_writer(self) -> Writer {
        self.writer
    }
}

/// Copies the database of a coordinator, which may run, as it is at one moment.
///
/// # Errors
/// Those of the database, and of the file that is to be made.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), DatabaseError> {
    Ok(database::copy(from, to)?)
}

/// Notes in the database of a directory that it is a copy, whose later self may have
/// gone on, and may be among those that it follows: so many numbers of jobs and of workstations are
/// left out behind the last that any of them knows. How many tokens were open, which are
/// revoked.
///
/// # Errors
/// See [`OpenStoreError`].
pub(crate) fn make_copy(
    data: &Path,
    follows: &[PathBuf],
    left_out: u32,
) -> Result<usize, OpenStoreError> {
    let path = data.join(FILE);
    let unusable = |why| OpenStoreError::Unusable { path: path.clone(), why };
    let mut store = Store::open(data)?;
    let own = last_numbers(&path).map_err(|why| unusable(why.into()))?;
    // What it follows may be too sick to be asked.
    let theirs = follows.iter().filter_map(|path| last_numbers(path).ok());
    let (job, workstation) =
        theirs.fold(own, |(job, workstation), it| (job.max(it.0), workstation.max(it.1)));
    let behind = |last: u32| last.saturating_add(left_out) / left_out * left_out;
    let records =
        Directory::restore(store.load()?.1).become_copy(WorkstationId(behind(workstation)));
    let is_token = |record: &&DirectoryRecord| matches!(record, DirectoryRecord::Token { .. });
    let tokens = records.iter().filter(is_token).count();
    store.commit(&records.into_iter().map(Write::Record).collect::<Vec<_>>())?;
    store.writer.become_copy(JobId(behind(job))).map_err(unusable)?;
    Ok(tokens)
}

/// The last numbers of a job and of a workstation that a database knows.
fn last_numbers(path: &Path) -> Result<(u32, u32), rusqlite::Error> {
    let connection = database::open_to_check(path)?;
    let ask = |query| connection.query_row(query, [], |row| row.get(0));
    let left_out: u32 = ask("SELECT coalesce(max(value), 0) FROM meta WHERE key = 'last_job'")?;
    let job: u32 = ask("SELECT coalesce(max(job), 0) FROM jobs")?;
    Ok((job.max(left_out), ask("SELECT coalesce(max(workstation), 0) FROM workstations")?))
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
