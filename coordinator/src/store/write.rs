//! Writing: what the core and the directory want kept, as rows.
//!
//! Every change says how a row looks from now on, so of several in one
//! transaction the last one of a row is enough.

use std::collections::BTreeMap;

use gleaner_common::id::{ContentHash, Fence, JobId, SubprogramId};
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::wire::{Finished, Printed};
use gleaner_core::{AttemptRecord, Change, JobProgress, JobRecord, SubprogramRecord};
use rusqlite::{Connection, params};

use super::column::{blob, ns, number};
use super::thread::Batch;
use crate::directory::Record;

/// Something to be kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Change(Change),
    Record(Record),
    /// An ended job that nobody wants to hear of any more.
    Forget(JobId),
}

/// Brings the writes of all batches to the disk, or none of them.
///
/// # Errors
/// Those of `SQLite`: a full disk, mostly. Nothing was written then.
pub(super) fn commit<R>(
    connection: &mut Connection,
    batches: &[Batch<R>],
) -> Result<(), rusqlite::Error> {
    let writes: Vec<&Write> = batches.iter().flat_map(|batch| &batch.writes).collect();
    if writes.is_empty() {
        return Ok(());
    }
    let overtaken = overtaken(&writes);
    // Dropped without a commit, it rolls back.
    let transaction = connection.transaction()?;
    for (write, overtaken) in writes.into_iter().zip(overtaken) {
        if !overtaken {
            apply(&transaction, write)?;
        }
    }
    transaction.commit()
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    Progress(JobId),
    Attempt(Fence),
    Subprogram(SubprogramId),
    Fences,
    Notes(JobId),
    Cuts(JobId),
}

/// Which of the writes a later one of the same row makes needless.
fn overtaken(writes: &[&Write]) -> Vec<bool> {
    let mut overtaken = vec![false; writes.len()];
    let mut last = BTreeMap::new();
    for (position, write) in writes.iter().enumerate() {
        let row = match write {
            Write::Change(Change::Progress(progress)) => Row::Progress(progress.job),
            Write::Change(Change::Attempt(attempt)) => Row::Attempt(attempt.fence),
            Write::Change(Change::Subprogram(record)) => Row::Subprogram(record.subprogram),
            Write::Change(Change::FencesReserved { .. }) => Row::Fences,
            Write::Change(Change::Notes { job, .. }) => Row::Notes(*job),
            Write::Change(Change::Cuts { job, .. }) => Row::Cuts(*job),
            Write::Change(
                Change::Job(_)
                | Change::Result { .. }
                | Change::ProgramEvent { .. }
                | Change::Incarnation { .. }
                | Change::ProgramOver { .. },
            )
            | Write::Record(_)
            | Write::Forget(_) => continue,
        };
        if let Some(earlier) = last.insert(row, position) {
            overtaken[earlier] = true;
        }
    }
    overtaken
}

fn apply(connection: &Connection, write: &Write) -> Result<(), rusqlite::Error> {
    match write {
        Write::Change(change) => match change {
            Change::Job(job) => put_job(connection, job),
            Change::Progress(progress) => put_progress(connection, progress),
            Change::Subprogram(record) => put_subprogram(connection, record),
            Change::Attempt(attempt) => put_attempt(connection, attempt),
            Change::Result { subprogram, accepted, finished } => {
                put_result(connection, *subprogram, *accepted, finished)
            }
            Change::FencesReserved { below } => put_fences(connection, *below),
            Change::ProgramEvent { job, life, sequence, bytes } => {
                put_event(connection, (*job, *life, *sequence), bytes)
            }
            Change::Incarnation { workstation, incarnation } => {
                connection
                    .prepare_cached(
                        "UPDATE workstations SET incarnation = ?2 WHERE workstation = ?1",
                    )?
                    .execute(params![workstation.0, incarnation.0.cast_signed()])?;
                Ok(())
            }
            Change::Notes { job, notes } => put_notes(connection, *job, notes),
            Change::Cuts { job, parts } => put_cuts(connection, *job, parts),
            Change::ProgramOver { job } => end_program(connection, *job),
        },
        Write::Record(record) => put_record(connection, record),
        Write::Forget(job) => forget(connection, *job),
    }
}

fn put_job(connection: &Connection, record: &JobRecord) -> Result<(), rusqlite::Error> {
    let spec = &record.spec;
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO jobs (job, user, name, command, submitted, spec, state, ended, \
             succeeded, failed, cancelled, retreats, suspensions, lost, retried, cpu, wasted_cpu, \
             program) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, ?7)",
        )?
        .execute(params![
            record.job.0,
            record.user,
            spec.name,
            spec.command.join(" "),
            record.submitted.0,
            blob(spec)?,
            spec.program.is_some(),
        ])?;
    put_notes(connection, record.job, &record.notes)?;
    for file in &spec.inputs {
        put_file(connection, record.job, file.hash)?;
    }
    put_progress(connection, &record.progress)
}

fn put_file(connection: &Connection, job: JobId, hash: ContentHash) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached("INSERT OR IGNORE INTO files (job, hash) VALUES (?1, ?2)")?
        .execute(params![job.0, hash.0])?;
    Ok(())
}

/// Its number is remembered: it must not be given out again.
fn forget(connection: &Connection, job: JobId) -> Result<(), rusqlite::Error> {
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('last_job', ?1) \
         ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
        [job.0],
    )?;
    let tables = ["subprograms", "attempts", "results", "files", "events", "notes", "cuts", "jobs"];
    for table in tables {
        connection.execute(&format!("DELETE FROM {table} WHERE job = ?1"), [job.0])?;
    }
    Ok(())
}

fn put_progress(connection: &Connection, progress: &JobProgress) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached(
            "UPDATE jobs SET state = ?2, ended = ?3, succeeded = ?4, failed = ?5, cancelled = ?6, \
             retreats = ?7, suspensions = ?8, lost = ?9, retried = ?10, cpu = ?11, \
             wasted_cpu = ?12, moves = ?13, moved = ?14, frozen = ?15, spawned = ?16, life = ?17 \
             WHERE job = ?1",
        )?
        .execute(params![
            progress.job.0,
            progress.state.name(),
            progress.ended.map(|at| at.0),
            progress.succeeded,
            progress.failed,
            progress.cancelled,
            number(progress.retreats),
            number(progress.suspensions),
            number(progress.lost),
            number(progress.retried),
            ns(progress.cpu),
            ns(progress.wasted_cpu),
            number(progress.moves),
            number(progress.moved_bytes),
            ns(progress.frozen),
            progress.spawned,
            progress.life.0,
        ])?;
    Ok(())
}

fn put_subprogram(
    connection: &Connection,
    record: &SubprogramRecord,
) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO subprograms (job, idx, state, fence, workstation, attempts, \
             failures, retreats, lost, outcome, cpu, avoided, moves) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            record.subprogram.job.0,
            record.subprogram.index,
            record.state.name(),
            number(record.fence.0),
            record.workstation.0,
            record.attempts,
            record.failures,
            record.retreats,
            record.lost,
            record.outcome,
            ns(record.cpu),
            record.avoided.map(|workstation| workstation.0),
            record.moves,
        ])?;
    Ok(())
}

fn put_attempt(connection: &Connection, attempt: &AttemptRecord) -> Result<(), rusqlite::Error> {
    let (ended, how) = attempt.end.as_ref().map(|(at, how)| (at.0, how.as_str())).unzip();
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO attempts (fence, job, idx, workstation, placed, ended, how, \
             old, came, keep, arrived) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            number(attempt.fence.0),
            attempt.subprogram.job.0,
            attempt.subprogram.index,
            attempt.workstation.0,
            attempt.placed.0,
            ended,
            how,
            attempt.coming.map(|coming| number(coming.old.0)),
            attempt.coming.map(|coming| coming.from.0),
            attempt.coming.map(|coming| keep_name(coming.keep)),
            attempt.arrived,
        ])?;
    Ok(())
}

pub(super) fn keep_name(keep: Keep) -> &'static str {
    match keep {
        Keep::State => "state",
        Keep::SubtaskStart => "subtask start",
        Keep::Nothing => "nothing",
    }
}

/// A first event makes those of earlier lives needless, and those before it in
/// the same one.
fn put_event(
    connection: &Connection,
    (job, life, sequence): (JobId, Life, u64),
    bytes: &[u8],
) -> Result<(), rusqlite::Error> {
    if sequence == 0 {
        connection.prepare_cached("DELETE FROM events WHERE job = ?1")?.execute([job.0])?;
    }
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO events (job, life, sequence, event) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![job.0, life.0, number(sequence), bytes])?;
    Ok(())
}

fn put_notes(connection: &Connection, job: JobId, notes: &[String]) -> Result<(), rusqlite::Error> {
    connection.prepare_cached("DELETE FROM notes WHERE job = ?1")?.execute([job.0])?;
    let mut insert =
        connection.prepare_cached("INSERT INTO notes (job, line, note) VALUES (?1, ?2, ?3)")?;
    for (line, note) in (1_u32..).zip(notes) {
        insert.execute(params![job.0, line, note])?;
    }
    Ok(())
}

fn put_cuts(
    connection: &Connection,
    job: JobId,
    parts: &[ContentHash],
) -> Result<(), rusqlite::Error> {
    connection.prepare_cached("DELETE FROM cuts WHERE job = ?1")?.execute([job.0])?;
    let mut insert =
        connection.prepare_cached("INSERT OR IGNORE INTO cuts (job, hash) VALUES (?1, ?2)")?;
    for part in parts {
        insert.execute(params![job.0, part.0])?;
    }
    Ok(())
}

fn end_program(connection: &Connection, job: JobId) -> Result<(), rusqlite::Error> {
    for table in ["events", "cuts"] {
        connection.execute(&format!("DELETE FROM {table} WHERE job = ?1"), [job.0])?;
    }
    connection.execute("UPDATE results SET accepted = 1 WHERE job = ?1", [job.0])?;
    Ok(())
}

fn put_result(
    connection: &Connection,
    subprogram: SubprogramId,
    accepted: bool,
    finished: &Finished,
) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO results (job, idx, fence, accepted, finished) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            subprogram.job.0,
            subprogram.index,
            number(finished.fence.0),
            accepted,
            blob(finished)?,
        ])?;
    let printed =
        [&finished.stdout, &finished.stderr].into_iter().filter_map(|printed| match printed {
            Printed::Staged { hash, .. } => Some(*hash),
            Printed::Inline(_) => None,
        });
    for hash in finished.outputs.iter().map(|file| file.hash).chain(printed) {
        put_file(connection, subprogram.job, hash)?;
    }
    Ok(())
}

fn put_fences(connection: &Connection, below: Fence) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('fences_below', ?1)")?
        .execute([number(below.0)])?;
    Ok(())
}

fn put_record(connection: &Connection, record: &Record) -> Result<(), rusqlite::Error> {
    match record {
        Record::Workstation { workstation, name } => connection
            .prepare_cached("INSERT OR REPLACE INTO workstations (workstation, name) VALUES (?1, ?2)")?
            .execute(params![workstation.0, name])?,
        Record::Identity { key, identity } => connection
            .prepare_cached(
                "INSERT OR REPLACE INTO identities (key, role, name, workstation, enrolled, revoked) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                key,
                identity.role.name(),
                identity.name,
                identity.workstation.map(|workstation| workstation.0),
                identity.enrolled.0,
                identity.revoked.map(|at| at.0),
            ])?,
        Record::Token { key, token } => connection
            .prepare_cached(
                "INSERT OR REPLACE INTO tokens (key, id, role, name, expires, used_by, revoked) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                key,
                token.id,
                token.role.name(),
                token.name,
                token.expires.0,
                token.used_by,
                token.revoked,
            ])?,
    };
    Ok(())
}
