//! How values are written to columns, and read back.

use std::time::Duration;

use rusqlite::types::{FromSql, Type, ValueRef};
use rusqlite::{Error, Row};
use serde::Serialize;
use serde::de::{DeserializeOwned, IntoDeserializer};

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
pub(super) fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes)
        .map_err(|error| Error::FromSqlConversionFailure(0, Type::Blob, error.into()))
}

/// A row whose columns are known by name. `SQLite` would ask for every name
/// anew in each of millions of rows.
pub(super) struct Named<'a> {
    pub(super) row: &'a Row<'a>,
    pub(super) columns: &'a [String],
}

impl Named<'_> {
    pub(super) fn get<T: FromSql>(&self, column: &str) -> Result<T, Error> {
        self.row.get(self.at(column)?)
    }

    fn get_ref(&self, column: &str) -> Result<ValueRef<'_>, Error> {
        self.row.get_ref(self.at(column)?)
    }

    fn at(&self, column: &str) -> Result<usize, Error> {
        let at = self.columns.iter().position(|name| name == column);
        at.ok_or_else(|| Error::InvalidColumnName(column.to_owned()))
    }

    /// # Errors
    /// See [`unpacked`].
    pub(super) fn unpack<T: DeserializeOwned>(&self, column: &str) -> Result<T, Error> {
        unpacked(self.get_ref(column)?.as_blob()?)
    }

    /// One of a few words.
    ///
    /// # Errors
    /// A word that is none of them.
    pub(super) fn word<T: DeserializeOwned>(&self, column: &str) -> Result<T, Error> {
        let text = self.get_ref(column)?.as_str()?;
        T::deserialize(text.into_deserializer()).map_err(|_: serde::de::value::Error| unknown(text))
    }
}

/// A word that this version does not know.
pub(super) fn unknown(word: &str) -> Error {
    let what = format!("`{word}` is no word that this version knows");
    Error::FromSqlConversionFailure(0, Type::Text, what.into())
}
