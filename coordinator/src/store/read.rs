//! Reading: what a new life of the core starts from, and what is over and
//! therefore only here.

use gleaner_common::id::{ContentHash, Fence, Incarnation, JobId, SubprogramId, WorkstationId};
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::report::{JobState, SubprogramState};
use gleaner_common::time::WallTime;
use gleaner_common::wire::{Finished, Role};
use gleaner_core::{
    AttemptRecord, Coming, JobProgress, JobRecord, ProgramEvent, Restored, SubprogramRecord,
};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::column::{count, from_blob, span, word};
use super::write::keep_name;
use crate::directory::{Identity, Record, Token};

type Read<T> = Result<T, rusqlite::Error>;

const JOB: &str = "SELECT job, user, submitted, spec, state, ended, succeeded, failed, cancelled, \
                   retreats, suspensions, lost, retried, cpu, wasted_cpu, moves, moved, frozen, \
                   spawned, life, (SELECT group_concat(note, char(10) ORDER BY line) FROM notes \
                   WHERE notes.job = jobs.job) FROM jobs";
const SUBPROGRAM: &str = "SELECT s.job, s.idx, s.state, s.fence, s.workstation, s.attempts, \
                          s.failures, s.retreats, s.lost, s.outcome, s.cpu, s.avoided, s.moves \
                          FROM subprograms s";
const ATTEMPT: &str = "SELECT fence, job, idx, workstation, placed, ended, how, old, came, keep, \
                       arrived FROM attempts";

/// Everything that has not ended.
///
/// # Errors
/// Those of `SQLite`, and rows that do not read.
pub(crate) fn restored(connection: &Connection) -> Read<Restored> {
    let workstations = rows(connection, "SELECT workstation, name FROM workstations", [], |row| {
        Ok((WorkstationId(row.get(0)?), row.get(1)?))
    })?;
    let subprograms = rows(
        connection,
        &format!(
            "{SUBPROGRAM} JOIN jobs j ON j.job = s.job \
             WHERE j.state = 'running' AND (s.state = 'queued' OR j.program) ORDER BY s.job, s.idx"
        ),
        [],
        subprogram,
    )?;
    let fences_below: Option<i64> = connection
        .query_row("SELECT value FROM meta WHERE key = 'fences_below'", [], |row| row.get(0))
        .optional()?;
    let last_job: Option<u32> = connection.query_row(
        "SELECT max(job) FROM (SELECT job FROM jobs UNION ALL \
         SELECT value FROM meta WHERE key = 'last_job')",
        [],
        |row| row.get(0),
    )?;
    let incarnations = rows(
        connection,
        "SELECT workstation, incarnation FROM workstations WHERE incarnation IS NOT NULL",
        [],
        |row| {
            let incarnation: i64 = row.get(1)?;
            Ok((WorkstationId(row.get(0)?), Incarnation(incarnation.cast_unsigned())))
        },
    )?;
    Ok(Restored {
        workstations,
        incarnations,
        jobs: rows(connection, &format!("{JOB} WHERE state = 'running' ORDER BY job"), [], job)?,
        subprograms,
        attempts: rows(
            connection,
            &format!("{ATTEMPT} WHERE ended IS NULL ORDER BY fence"),
            [],
            attempt,
        )?,
        fences_below: Fence(fences_below.map_or(0, count)),
        last_job: last_job.map(JobId),
        events: rows(
            connection,
            "SELECT job, life, event FROM events ORDER BY job, life, sequence",
            [],
            |row| {
                let (job, life) = (JobId(row.get(0)?), Life(row.get(1)?));
                Ok(ProgramEvent { job, life, bytes: row.get(2)? })
            },
        )?,
    })
}

/// Everybody who may come in, or might have.
///
/// # Errors
/// Those of `SQLite`, and rows that do not read.
pub(crate) fn directory(connection: &Connection) -> Read<Vec<Record>> {
    let mut records = rows(connection, "SELECT workstation, name FROM workstations", [], |row| {
        Ok(Record::Workstation { workstation: WorkstationId(row.get(0)?), name: row.get(1)? })
    })?;
    records.extend(rows(
        connection,
        "SELECT key, role, name, workstation, enrolled, revoked FROM identities",
        [],
        identity,
    )?);
    records.extend(rows(
        connection,
        "SELECT key, id, role, name, expires, used_by, revoked FROM tokens",
        [],
        token,
    )?);
    Ok(records)
}

/// One job, ended or not.
///
/// # Errors
/// Those of `SQLite`, and a row that does not read.
pub(crate) fn job_record(connection: &Connection, id: JobId) -> Read<Option<JobRecord>> {
    one(connection, &format!("{JOB} WHERE job = ?1"), [id.0], job)
}

/// Ended jobs with numbers below `below`, newest first.
///
/// # Errors
/// Those of `SQLite`, and rows that do not read.
pub(crate) fn ended_jobs(
    connection: &Connection,
    below: JobId,
    limit: u32,
) -> Read<Vec<JobRecord>> {
    let query = format!("{JOB} WHERE state <> 'running' AND job < ?1 ORDER BY job DESC LIMIT ?2");
    rows(connection, &query, [below.0, limit], job)
}

/// A job that ended before `before`, if there is one.
///
/// # Errors
/// Those of `SQLite`.
pub(crate) fn ended_before(connection: &Connection, before: WallTime) -> Read<Option<JobId>> {
    let query = "SELECT job FROM jobs WHERE ended < ?1 ORDER BY ended LIMIT 1";
    one(connection, query, [before.0], |row| row.get(0).map(JobId))
}

/// Does any job that is remembered need this file, or has it left it?
///
/// # Errors
/// Those of `SQLite`.
pub(crate) fn is_wanted(connection: &Connection, hash: ContentHash) -> Read<bool> {
    let query = "SELECT 1 FROM files WHERE hash = ?1 UNION ALL \
                 SELECT 1 FROM cuts WHERE hash = ?1 LIMIT 1";
    Ok(one(connection, query, [hash.0], |_| Ok(()))?.is_some())
}

/// The records of a job's subprograms with indexes from `first` to `last`.
///
/// # Errors
/// Those of `SQLite`, and rows that do not read.
pub(crate) fn subprogram_records(
    connection: &Connection,
    job: JobId,
    (first, last): (u32, u32),
) -> Read<Vec<SubprogramRecord>> {
    let query = format!("{SUBPROGRAM} WHERE s.job = ?1 AND s.idx BETWEEN ?2 AND ?3 ORDER BY s.idx");
    rows(connection, &query, [job.0, first, last], subprogram)
}

/// A subprogram's attempts, oldest first.
///
/// # Errors
/// Those of `SQLite`, and rows that do not read.
pub(crate) fn attempts(connection: &Connection, id: SubprogramId) -> Read<Vec<AttemptRecord>> {
    let query = format!("{ATTEMPT} WHERE job = ?1 AND idx = ?2 ORDER BY fence");
    rows(connection, &query, [id.job.0, id.index], attempt)
}

/// What a subprogram printed and left, the accepted attempt or the latest.
///
/// # Errors
/// Those of `SQLite`, and a row that does not read.
pub(crate) fn result(connection: &Connection, id: SubprogramId) -> Read<Option<Finished>> {
    let query = "SELECT finished FROM results WHERE job = ?1 AND idx = ?2";
    one(connection, query, params![id.job.0, id.index], |row| {
        from_blob(0, row.get_ref(0)?.as_blob()?)
    })
}

fn rows<T>(
    connection: &Connection,
    query: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> Read<T>,
) -> Read<Vec<T>> {
    connection.prepare_cached(query)?.query_map(params, read)?.collect()
}

fn one<T>(
    connection: &Connection,
    query: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Read<T>,
) -> Read<Option<T>> {
    connection.prepare_cached(query)?.query_row(params, read).optional()
}

fn job(row: &Row<'_>) -> Read<JobRecord> {
    use JobState::{Cancelled, Failed, Running, Succeeded};
    let id = JobId(row.get(0)?);
    let notes: Option<String> = row.get(20)?;
    let states = [Running, Succeeded, Failed, Cancelled].map(|state| (state.name(), state));
    Ok(JobRecord {
        job: id,
        user: row.get(1)?,
        submitted: WallTime(row.get(2)?),
        spec: from_blob(3, row.get_ref(3)?.as_blob()?)?,
        progress: JobProgress {
            job: id,
            state: word(4, row.get_ref(4)?.as_str()?, states)?,
            ended: row.get::<_, Option<i64>>(5)?.map(WallTime),
            succeeded: row.get(6)?,
            failed: row.get(7)?,
            cancelled: row.get(8)?,
            retreats: row.get(9).map(count)?,
            suspensions: row.get(10).map(count)?,
            lost: row.get(11).map(count)?,
            retried: row.get(12).map(count)?,
            cpu: row.get(13).map(span)?,
            wasted_cpu: row.get(14).map(span)?,
            moves: row.get(15).map(count)?,
            moved_bytes: row.get(16).map(count)?,
            frozen: row.get(17).map(span)?,
            spawned: row.get(18)?,
            life: Life(row.get(19)?),
        },
        notes: notes.map_or_else(Vec::new, |notes| notes.lines().map(str::to_owned).collect()),
    })
}

fn subprogram(row: &Row<'_>) -> Read<SubprogramRecord> {
    use SubprogramState::{
        Cancelled, Demoted, Failed, Placed, Queued, Running, Succeeded, Suspended,
    };
    let states = [Queued, Placed, Running, Suspended, Demoted, Succeeded, Failed, Cancelled];
    Ok(SubprogramRecord {
        subprogram: SubprogramId { job: JobId(row.get(0)?), index: row.get(1)? },
        state: word(2, row.get_ref(2)?.as_str()?, states.map(|state| (state.name(), state)))?,
        fence: Fence(row.get(3).map(count)?),
        workstation: WorkstationId(row.get(4)?),
        attempts: row.get(5)?,
        failures: row.get(6)?,
        retreats: row.get(7)?,
        lost: row.get(8)?,
        outcome: row.get(9)?,
        cpu: row.get(10).map(span)?,
        avoided: row.get::<_, Option<u32>>(11)?.map(WorkstationId),
        moves: row.get(12)?,
    })
}

fn attempt(row: &Row<'_>) -> Read<AttemptRecord> {
    let ended: Option<i64> = row.get(5)?;
    let how: Option<String> = row.get(6)?;
    Ok(AttemptRecord {
        fence: Fence(row.get(0).map(count)?),
        subprogram: SubprogramId { job: JobId(row.get(1)?), index: row.get(2)? },
        workstation: WorkstationId(row.get(3)?),
        placed: WallTime(row.get(4)?),
        end: ended.map(|at| (WallTime(at), how.unwrap_or_default())),
        coming: coming(row)?,
        arrived: row.get(10)?,
    })
}

fn coming(row: &Row<'_>) -> Read<Option<Coming>> {
    let Some(old) = row.get::<_, Option<i64>>(7)? else { return Ok(None) };
    let keeps = [Keep::State, Keep::SubtaskStart, Keep::Nothing];
    let keep = word(9, row.get_ref(9)?.as_str()?, keeps.map(|keep| (keep_name(keep), keep)))?;
    Ok(Some(Coming { from: WorkstationId(row.get(8)?), old: Fence(count(old)), keep }))
}

fn identity(row: &Row<'_>) -> Read<Record> {
    let identity = Identity {
        role: role(1, row)?,
        name: row.get(2)?,
        workstation: row.get::<_, Option<u32>>(3)?.map(WorkstationId),
        enrolled: WallTime(row.get(4)?),
        revoked: row.get::<_, Option<i64>>(5)?.map(WallTime),
    };
    Ok(Record::Identity { key: row.get(0)?, identity })
}

fn token(row: &Row<'_>) -> Read<Record> {
    let token = Token {
        id: row.get(1)?,
        role: role(2, row)?,
        name: row.get(3)?,
        expires: WallTime(row.get(4)?),
        used_by: row.get(5)?,
        revoked: row.get(6)?,
    };
    Ok(Record::Token { key: row.get(0)?, token })
}

fn role(column: usize, row: &Row<'_>) -> Read<Role> {
    let roles = [Role::Agent, Role::User, Role::Admin, Role::Collector];
    word(column, row.get_ref(column)?.as_str()?, roles.map(|role| (role.name(), role)))
}
