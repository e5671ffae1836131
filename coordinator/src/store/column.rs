//! How our values lie in columns, and how they come back.

use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{Error, Row};
use serde::{Serialize, de::DeserializeOwned};

/// `SQLite` counts with signs. No fence or count of ours comes near the end.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn ns(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn span(ns: i64) -> Duration {
    Duration::from_nanos(count(ns))
}

pub(super) fn packed<T: Serialize>(value: &T) -> Result<Vec<u8>, Error> {
    postcard::to_stdvec(value).map_err(|error| Error::ToSqlConversionFailure(error.into()))
}

/// # Errors
/// Bytes that are not a `T`: the database was written by another hand.
pub(super) fn unpacked<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> Result<T, Error> {
    let at = row.as_ref().column_index(column)?;
    postcard::from_bytes(row.get_ref(at)?.as_blob()?)
        .map_err(|error| Error::FromSqlConversionFailure(at, Type::Blob, error.into()))
}

/// One of a few words.
///
/// # Errors
/// A word that is none of them.
pub(super) fn word<T: Copy>(
    row: &Row<'_>,
    column: &str,
    words: impl IntoIterator<Item = (&'static str, T)>,
) -> Result<T, Error> {
    let at = row.as_ref().column_index(column)?;
    let text = row.get_ref(at)?.as_str()?;
    words.into_iter().find(|(word, _)| *word == text).map(|(_, value)| value).ok_or_else(|| {
        let what = format!("`{text}` is no word that this version knows");
        Error::FromSqlConversionFailure(at, Type::Text, what.into())
    })
}
