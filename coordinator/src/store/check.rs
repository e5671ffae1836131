//! Looking through the whole database beside its writer: what `SQLite` itself
//! finds wrong with it, then every row's checksum.

use std::path::Path;

use super::{DatabaseError, database, seal};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    Whole {
        rows: u64,
    },
    /// In one line.
    Damaged(String),
}

/// Reads all of it, in the thread of whoever asks.
///
/// # Errors
/// The database cannot be opened.
pub(crate) fn check(path: &Path) -> Result<Checked, DatabaseError> {
    let connection = database::open_to_check(path)?;
    let verdict = connection.query_row("PRAGMA main.integrity_check(1)", [], |row| row.get(0));
    let verdict: String = verdict.unwrap_or_else(|error| error.to_string());
    if verdict != "ok" {
        return Ok(Checked::Damaged(verdict.lines().last().unwrap_or_default().to_owned()));
    }
    Ok(match seal::compare_all(&connection) {
        Ok(rows) => Checked::Whole { rows },
        Err(error) => Checked::Damaged(error.to_string()),
    })
}
