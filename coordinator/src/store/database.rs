//! The database file: opened with care, brought up to date, written in
//! transactions.
//!
//! The promise: a file that is not ours, is damaged, or is from a later
//! version is left as it is; and a transaction is on the disk when `commit`
//! returns. Knows nothing of what the rows mean.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_shell::atomic::PRIVATE;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{seal, spec_1, wal};

/// Says in the file's header whose it is ("glnr").
const APPLICATION_ID: i32 = 0x676c_6e72;

/// The steps that lead to the present form; a file knows how many it took
/// (`user_version`). Append, never change one.
const MIGRATIONS: [Migration; 8] = [
    Migration::Sql(include_str!("schema_1.sql")),
    Migration::Rewrite(spec_1::rewrite),
    Migration::Sql(include_str!("schema_3.sql")),
    Migration::Sql(include_str!("schema_4.sql")),
    Migration::Sql(include_str!("schema_5.sql")),
    Migration::Sql(include_str!("schema_6.sql")),
    Migration::Sql(include_str!("schema_7.sql")),
    Migration::Sql(include_str!("schema_8.sql")),
];

enum Migration {
    Sql(&'static str),
    /// A step that reads what SQL cannot.
    Rewrite(fn(&Connection) -> Result<(), rusqlite::Error>),
}

/// From this version on rows have checksums.
const SEALED: usize = 7;

/// How every database begins, before anything of ours, and how long its header is.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: u64 = 100;

/// How large the write-ahead log is made at the start. Writing over a file is
/// several times faster than making it longer, on every commit.
const LOG_BYTES: i64 = 4 << 20;

/// An error of `SQLite`.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DatabaseError(#[from] rusqlite::Error);

/// Why the database cannot be used. The file is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error(
        "{} is not a coordinator's database: expected one that gleaner made, or none", path.display()
    )]
    NotOurs { path: PathBuf },
    #[error(
        "the database {} is of version {theirs}, this program knows up to {ours}: expected the gleaner that made it, or a later one",
        path.display()
    )]
    TooNew { path: PathBuf, theirs: usize, ours: usize },
    #[error("the database {} is damaged: {detail}: expected a whole one, `glean coordinator restore FILE` brings a backup back", path.display())]
    Damaged { path: PathBuf, detail: String },
    #[error("the database {} is damaged: {detail}, what was committed before can be read: a backup of it saves that, and `glean coordinator restore FILE` goes on from there", path.display())]
    LogDamaged { path: PathBuf, detail: String },
    #[error(
        "the database {} is no database any more ({bytes} bytes), and its authority is there: expected a whole one, `glean coordinator restore FILE` brings a backup back", path.display()
    )]
    Emptied { path: PathBuf, bytes: u64 },
    #[error(
        "the database {} is gone, and its authority is there: expected both or neither, `glean coordinator restore FILE` brings a backup back", path.display())]
    Gone { path: PathBuf },
    #[error("cannot open the database {}: {why}", path.display())]
    Unusable { path: PathBuf, why: DatabaseError },
    #[error("cannot read the database {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: std::io::Error },
    #[error("the database {} holds a row that does not read: {why}", path.display())]
    BadRow { path: PathBuf, why: DatabaseError },
}

/// A file that is none of `SQLite`'s, or nothing at all, would be made a new
/// database: where there was one, that would forget everybody.
///
/// # Errors
/// It is one of those.
pub(super) fn refuse_emptied(path: &Path) -> Result<(), OpenStoreError> {
    let unusable = |why: std::io::Error| OpenStoreError::Unreadable { path: path.to_owned(), why };
    let mut file = match File::open(path) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            return Err(OpenStoreError::Gone { path: path.to_owned() });
        }
        opened => opened.map_err(unusable)?,
    };
    let mut first = vec![];
    file.by_ref().take(HEADER_BYTES).read_to_end(&mut first).map_err(unusable)?;
    if first.starts_with(MAGIC) && first.len() as u64 == HEADER_BYTES {
        return Ok(());
    }
    let bytes = file.metadata().map_err(unusable)?.len();
    Err(OpenStoreError::Emptied { path: path.to_owned(), bytes })
}

/// Opens the database for its one writer; makes it if there is none.
///
/// # Errors
/// See [`OpenStoreError`].
pub(super) fn open(path: &Path) -> Result<Connection, OpenStoreError> {
    let explain = |error: rusqlite::Error| explain(path, error);
    let damage = wal::damage(path)
        .map_err(|why| OpenStoreError::Unreadable { path: path.to_owned(), why })?;
    if let Some(detail) = damage {
        return Err(OpenStoreError::LogDamaged { path: path.to_owned(), detail });
    }
    let mut connection = Connection::open(path).map_err(explain)?;
    seal::introduce(&connection).map_err(explain)?;
    check(path, &connection)?;
    configure(&connection).map_err(explain)?;
    migrate(path, &mut connection)?;
    check_schema(path, &connection)?;
    // Before rows are sealed, which would write its large row twice.
    if let Err(error) = lengthen_log(&connection) {
        // The disk is full, mostly: commits say so when they need the room.
        tracing::warn!("the store's log was not lengthened, commits may be slower: {error}");
    }
    seal::seal_what_is_written(&connection).map_err(explain)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Opens the database for reading beside its writer.
///
/// # Errors
/// Those of `SQLite`.
pub(super) fn open_for_reading(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = open_to_check(path)?;
    seal::compare_what_is_read(&connection)?;
    Ok(connection)
}

/// Opens it without comparing what is read.
///
/// # Errors
/// Those of `SQLite`.
pub(super) fn open_to_check(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(2))?;
    seal::introduce(&connection)?;
    Ok(connection)
}

/// To `SQLite`'s backup, a negative number.
const ALL_PAGES: i32 = -1;

/// # Errors
/// Those of `SQLite`.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), rusqlite::Error> {
    // Its owner's alone from the first byte on: keys are in it.
    let made = File::options().write(true).create_new(true).mode(PRIVATE).open(to);
    made.map_err(|why| rusqlite::Error::ToSqlConversionFailure(why.into()))?;
    let (source, mut copy) = (open_to_check(from)?, Connection::open(to)?);
    // All pages in one step are of one moment, and writers go on beside it.
    let backup = Backup::new(&source, &mut copy)?;
    while backup.step(ALL_PAGES)? != StepResult::Done {
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(backup);
    // A log beside it would have to be copied, too.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    copy.close().map_err(|(_, error)| error)
}

/// Brings the log's pages into the database proper. Commits go on meanwhile.
///
/// # Errors
/// Those of `SQLite`; nothing is lost, the log stays.
pub(super) fn checkpoint(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// Whose file is it, and is it whole? Before anything is written.
fn check(path: &Path, connection: &Connection) -> Result<(), OpenStoreError> {
    let explain = |error: rusqlite::Error| explain(path, error);
    let number = |name: &str| {
        connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(explain)
    };
    if number("schema_version")? == 0 {
        return Ok(());
    }
    if number("application_id")? != i64::from(APPLICATION_ID) {
        return Err(OpenStoreError::NotOurs { path: path.to_owned() });
    }
    let theirs = usize::try_from(number("user_version")?).unwrap_or(usize::MAX);
    if theirs > MIGRATIONS.len() {
        let path = path.to_owned();
        return Err(OpenStoreError::TooNew { path, theirs, ours: MIGRATIONS.len() });
    }
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
    if verdict == "ok" {
        Ok(())
    } else {
        let detail = verdict.lines().last().unwrap_or("it fails its check").to_owned();
        Err(OpenStoreError::Damaged { path: path.to_owned(), detail })
    }
}

fn configure(connection: &Connection) -> Result<(), rusqlite::Error> {
    // A person with an SQLite tool may hold it for a moment.
    connection.busy_timeout(Duration::from_secs(2))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The store's thread does it when there is nothing else to do.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -4_096)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

fn migrate(path: &Path, connection: &mut Connection) -> Result<(), OpenStoreError> {
    let explain = |error: rusqlite::Error| explain(path, error);
    let done: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(explain)?;
    let done = usize::try_from(done).unwrap_or(0);
    if done == MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = connection.transaction().map_err(explain)?;
    if done >= SEALED {
        // Sealed anew, damage would not be told from what was written.
        seal::compare_all(&transaction).map_err(explain)?;
    }
    for step in &MIGRATIONS[done..] {
        match step {
            Migration::Sql(text) => transaction.execute_batch(text),
            Migration::Rewrite(rewrite) => rewrite(&transaction),
        }
        .map_err(explain)?;
    }
    seal::seal_all(&transaction).map_err(explain)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(explain)?;
    transaction.pragma_update(None, "user_version", MIGRATIONS.len()).map_err(explain)?;
    transaction.commit().map_err(explain)
}

/// Are the tables and indices described as ours are? `SQLite` believes what it reads
/// of them.
fn check_schema(path: &Path, connection: &Connection) -> Result<(), OpenStoreError> {
    let explain = |error: rusqlite::Error| explain(path, error);
    let mut model = Connection::open_in_memory().map_err(explain)?;
    seal::introduce(&model).map_err(explain)?;
    migrate(path, &mut model)?;
    let (ours, theirs) = (schema(&model).map_err(explain)?, schema(connection).map_err(explain)?);
    match ours.iter().find(|entry| !theirs.contains(*entry)) {
        None => Ok(()),
        Some((name, _)) => {
            let detail = format!("the description of {name} is not as it was written");
            Err(OpenStoreError::Damaged { path: path.to_owned(), detail })
        }
    }
}

fn schema(connection: &Connection) -> Result<Vec<(String, Option<String>)>, rusqlite::Error> {
    let query = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'";
    let mut entries = connection.prepare(query)?;
    entries.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Writes and takes back one large row, which leaves a long, empty log.
fn lengthen_log(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute(
        "INSERT OR REPLACE INTO meta (key, value) VALUES ('padding', zeroblob(:bytes))",
        &[(":bytes", &LOG_BYTES)],
    )?;
    connection.execute("DELETE FROM meta WHERE key = 'padding'", [])?;
    checkpoint(connection)
}

/// Says what an error of `SQLite` means to somebody who can do something.
fn explain(path: &Path, why: rusqlite::Error) -> OpenStoreError {
    let path = path.to_owned();
    match why.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenStoreError::NotOurs { path },
        Some(ErrorCode::DatabaseCorrupt) => {
            // The rest may be a page of SQL.
            let detail = why.to_string().lines().next().unwrap_or_default().to_owned();
            OpenStoreError::Damaged { path, detail }
        }
        _ => OpenStoreError::Unusable { path, why: why.into() },
    }
}
