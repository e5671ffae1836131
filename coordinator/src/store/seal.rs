//! Checksums of rows: `SQLite` has none, and reads a flipped bit as if it had been
//! written.
//!
//! The promise: a row that is read whole is the row that was written, or the reading
//! fails and names it. The column `sum` holds a hash of all others; the writer's
//! connection sets it by triggers, a reader's sees every table through a view that
//! compares. Both are temporary: the file has tables only. Knows nothing of what
//! the rows mean.

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;

type Done = Result<(), rusqlite::Error>;

/// A table, with the columns that its rows are known by and all that are hashed.
struct Sealed {
    table: String,
    key: Vec<String>,
    columns: Vec<String>,
}

/// Makes `row_sum` and `is_whole` known to a connection.
///
/// # Errors
/// Those of `SQLite`.
pub(super) fn introduce(connection: &Connection) -> Done {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("row_sum", -1, flags, |row| Ok(sum(row, 0)))?;
    connection.create_scalar_function("is_whole", -1, flags, |row| {
        let is_whole = row.get_raw(0) == ValueRef::Integer(sum(row, 1));
        is_whole.then_some(true).ok_or_else(|| damaged(row))
    })
}

/// Over the table's name and all values of a row.
fn sum(row: &Context<'_>, first: usize) -> i64 {
    let mut hasher = blake3::Hasher::new();
    let mut add = |kind: u8, bytes: &[u8]| {
        hasher.update(&[kind]);
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for at in first..row.len() {
        match row.get_raw(at) {
            ValueRef::Null => add(0, &[]),
            ValueRef::Integer(number) => add(1, &number.to_le_bytes()),
            ValueRef::Real(number) => add(2, &number.to_le_bytes()),
            ValueRef::Text(text) => add(3, text),
            ValueRef::Blob(bytes) => add(4, bytes),
        }
    }
    let mut low = [0; 8];
    low.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    i64::from_le_bytes(low)
}

/// Names the row by its table and its first column.
fn damaged(row: &Context<'_>) -> rusqlite::Error {
    let text = |at| match row.get_raw(at) {
        ValueRef::Null => String::from("nothing"),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).escape_debug().to_string(),
        ValueRef::Blob(bytes) => format!("{} bytes", bytes.len()),
    };
    let what = format!("the row {} of {} is not as it was written", text(2), text(1));
    rusqlite::Error::UserFunctionError(what.into())
}

/// Has every row that is written sealed from now on.
///
/// # Errors
/// Those of `SQLite`.
pub(super) fn seal_what_is_written(connection: &Connection) -> Done {
    for Sealed { table, key, columns } in sealed(connection)? {
        let same: Vec<_> = key.iter().map(|it| format!("{it} = NEW.{it}")).collect();
        let same = same.join(" AND ");
        let all_of = |row: &str| {
            let hashed: Vec<_> = columns.iter().map(|it| format!("{row}.{it}")).collect();
            format!("row_sum('{table}', {})", hashed.join(", "))
        };
        let seal = format!("UPDATE {table} SET sum = {} WHERE {same};", all_of("NEW"));
        // An update writes some columns: the others of a damaged row stay damaged, and
        // its old sum says so.
        connection.execute_batch(&format!(
            "CREATE TEMP TRIGGER {table}_inserted AFTER INSERT ON main.{table} BEGIN {seal} END;
             CREATE TEMP TRIGGER {table}_updated AFTER UPDATE OF {} ON main.{table}
             WHEN OLD.sum = {} BEGIN {seal} END;",
            columns.join(", "),
            all_of("OLD")
        ))?;
    }
    Ok(())
}

/// Seals all rows as they are.
///
/// # Errors
/// Those of `SQLite`.
pub(super) fn seal_all(connection: &Connection) -> Done {
    sealed(connection)?.iter().try_for_each(|Sealed { table, columns, .. }| {
        let columns = columns.join(", ");
        connection.execute_batch(&format!("UPDATE {table} SET sum = row_sum('{table}', {columns})"))
    })
}

/// Has every row compared that is read whole (`*`) from now on. Not as a condition:
/// `SQLite` may evaluate one for rows that others exclude, and puts what those ask
/// for in the place of what the row has.
///
/// # Errors
/// Those of `SQLite`.
pub(super) fn compare_what_is_read(connection: &Connection) -> Done {
    sealed(connection)?.iter().try_for_each(|Sealed { table, columns, .. }| {
        let columns = columns.join(", ");
        connection.execute_batch(&format!(
            "CREATE TEMP VIEW {table} AS \
             SELECT {columns}, is_whole(sum, '{table}', {columns}) AS whole FROM main.{table}"
        ))
    })
}

/// Compares all rows; how many there are.
///
/// # Errors
/// Those of `SQLite`, and a row that is not as it was written.
pub(super) fn compare_all(connection: &Connection) -> Result<u64, rusqlite::Error> {
    sealed(connection)?.iter().try_fold(0, |rows, Sealed { table, columns, .. }| {
        let query = format!(
            "SELECT count(*) FROM main.{table} WHERE is_whole(sum, '{table}', {})",
            columns.join(", ")
        );
        let count: i64 = connection.query_row(&query, [], |row| row.get(0))?;
        Ok(rows + super::column::count(count))
    })
}

/// The tables that have checksums: all of them since version 7.
fn sealed(connection: &Connection) -> Result<Vec<Sealed>, rusqlite::Error> {
    let query = "SELECT name FROM main.sqlite_schema WHERE type = 'table' \
                 AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let tables: Vec<String> =
        connection.prepare(query)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let all = tables.into_iter().map(|table| {
        let query =
            format!("SELECT name, pk FROM pragma_table_info('{table}', 'main') ORDER BY cid");
        let columns: Vec<(String, u32)> = connection
            .prepare(&query)?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let name = |(name, _): &(String, u32)| name.clone();
        let is_sealed = columns.iter().any(|(name, _)| name == "sum");
        let key = columns.iter().filter(|(_, pk)| *pk > 0).map(name).collect();
        let columns = columns.iter().map(name).filter(|name| name != "sum").collect();
        Ok(is_sealed.then_some(Sealed { table, key, columns }))
    });
    let all: Vec<Option<Sealed>> = all.collect::<Result<_, rusqlite::Error>>()?;
    Ok(all.into_iter().flatten().collect())
}
