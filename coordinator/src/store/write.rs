//! Writing: what the core and the directory want kept, as rows.
//!
//! Every change says how a row looks from now on, so of several in one
//! transaction the last one of a row is enough.

use std::collections::BTreeMap;

use gleaner_common::id::{ContentHash, Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::time::WallTime;
use gleaner_common::wire::{Finished, Printed};
use gleaner_coordinator_core::directory::DirectoryRecord;
use gleaner_coordinator_core::{
    AttemptRecord, Change, JobProgress, JobRecord, ReplicaRecord, SubprogramRecord,
};
use rusqlite::{Connection, ToSql, named_params};

use super::DatabaseError;
use super::column::{ns, number, packed};
use super::database;

/// Something to be kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Change(Change),
    Record(DirectoryRecord),
    /// An ended job that nobody wants to hear of any more.
    Forget(JobId),
    /// A user or an agent has sent this file.
    Uploaded {
        sender: String,
        hash: ContentHash,
        at: WallTime,
    },
    /// What was sent before counts no more, unless a job names it.
    ForgetUploads {
        before: WallTime,
    },
}

/// One row, its columns by name.
macro_rules! put {
    ($connection:expr, $into:literal,
     { $first:ident: $value:expr $(, $column:ident: $other:expr)* $(,)? }) => {
        $connection
            .prepare_cached(concat!(
                $into, " (", stringify!($first) $(, ", ", stringify!($column))*,
                ") VALUES (:", stringify!($first) $(, ", :", stringify!($column))*, ")",
            ))?
            .execute(&[
                (concat!(":", stringify!($first)), &$value as &dyn ToSql)
                $(, (concat!(":", stringify!($column)), &$other as &dyn ToSql))*
            ])
            .map(drop)
    };
}

/// The database's one writer.
#[derive(Debug)]
pub(crate) struct Writer(pub(super) Connection);

impl Writer {
    /// Brings the writes to the disk, or none of them.
    ///
    /// # Errors
    /// Those of the database: a full disk, mostly. Nothing was written then.
    pub(super) fn commit(&mut self, writes: &[&Write]) -> Result<(), DatabaseError> {
        if writes.is_empty() {
            return Ok(());
        }
        // Dropped without a commit, it rolls back.
        let transaction = self.0.transaction()?;
        for (write, overtaken) in writes.iter().zip(overtaken(writes)) {
            if !overtaken {
                apply(&transaction, write)?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// # Errors
    /// Those of the database.
    pub(super) fn become_copy(&mut self, last_job: JobId) -> Result<(), DatabaseError> {
        let transaction = self.0.transaction()?;
        for (key, value) in [("is_copy", 1), ("last_job", last_job.0)] {
            put!(transaction, "INSERT OR REPLACE INTO meta", { key: key, value: value })?;
        }
        Ok(transaction.commit()?)
    }

    /// Brings the log's pages into the database proper. Commits go on meanwhile.
    ///
    /// # Errors
    /// Those of the database; nothing is lost, the log stays.
    pub(super) fn checkpoint(&self) -> Result<(), DatabaseError> {
        Ok(database::checkpoint(&self.0)?)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum RowKey<'a> {
    Progress(JobId),
    Attempt(Fence),
    Subprogram(SubprogramId),
    Fences,
    Notes(JobId),
    Cuts(JobId),
    Usage(&'a str),
    Learned(Option<WorkstationId>),
}

/// Which writes are overtaken by a later one of the same row.
fn overtaken(writes: &[&Write]) -> Vec<bool> {
    let mut overtaken = vec![false; writes.len()];
    let mut last = BTreeMap::new();
    for (position, write) in writes.iter().enumerate() {
        let row = match write {
            Write::Change(Change::Progress(progress)) => RowKey::Progress(progress.job),
            Write::Change(Change::Attempt(attempt)) => RowKey::Attempt(attempt.fence),
            Write::Change(Change::Subprogram(record)) => RowKey::Subprogram(record.subprogram),
            Write::Change(Change::FencesReserved { .. }) => RowKey::Fences,
            Write::Change(Change::Notes { job, .. }) => RowKey::Notes(*job),
            Write::Change(Change::Cuts { job, .. }) => RowKey::Cuts(*job),
            Write::Change(Change::Usage(usage)) => RowKey::Usage(&usage.user),
            Write::Change(Change::Learned(row)) => RowKey::Learned(row.workstation),
            Write::Change(
                Change::Job(_)
                // Only the one that says what a replica came to has its result.
                | Change::Replica { .. }
                | Change::Result { .. }
                | Change::ProgramEvent { .. }
                | Change::Incarnation { .. }
                | Change::Others { .. }
                | Change::Drained { .. }
                | Change::WentBack(_)
                | Change::ProgramOver { .. },
            )
            | Write::Record(_)
            | Write::Forget(_)
            | Write::Uploaded { .. }
            | Write::ForgetUploads { .. } => continue,
        };
        if let Some(earlier) = last.insert(row, position) {
            overtaken[earlier] = true;
        }
    }
    overtaken
}

type Done = Result<(), rusqlite::Error>;

fn apply(connection: &Connection, write: &Write) -> Done {
    match write {
        Write::Change(change) => match change {
            Change::Job(job) => put_job(connection, job),
            Change::Progress(progress) => put_progress(connection, progress),
            Change::Subprogram(record) => put_subprogram(connection, record),
            Change::Replica { record, finished } => {
                put_replica(connection, record, finished.as_deref())
            }
            Change::Attempt(attempt) => put_attempt(connection, attempt),
            Change::Result { subprogram, accepted, finished } => {
                put_result(connection, *subprogram, *accepted, finished)
            }
            Change::FencesReserved { below } => put!(connection, "INSERT OR REPLACE INTO meta", {
                key: "fences_below",
                value: number(below.packed()),
            }),
            Change::ProgramEvent { job, life, sequence, bytes } => {
                put_event(connection, (*job, *life, *sequence), bytes)
            }
            Change::Incarnation { workstation, incarnation } => connection
                .prepare_cached(
                    "UPDATE workstations SET incarnation = :incarnation \
                     WHERE workstation = :workstation",
                )?
                .execute(named_params! {
                    ":workstation": workstation.0,
                    ":incarnation": incarnation.0.cast_signed(),
                })
                .map(drop),
            Change::Others { workstation, bytes } => connection
                .prepare_cached(
                    "UPDATE workstations SET others = :others WHERE workstation = :workstation",
                )?
                .execute(named_params! { ":workstation": workstation.0, ":others": bytes })
                .map(drop),
            Change::Drained { workstation, drained } => connection
                .prepare_cached(
                    "UPDATE workstations SET drained = :drained WHERE workstation = :workstation",
                )?
                .execute(named_params! { ":workstation": workstation.0, ":drained": drained })
                .map(drop),
            Change::Notes { job, notes } => put_notes(connection, *job, notes),
            Change::Cuts { job, parts } => put_cuts(connection, *job, parts),
            Change::Usage(usage) => put!(connection, "INSERT OR REPLACE INTO usage", {
                user: usage.user,
                used_s: usage.used_s,
                at: usage.at.0,
            }),
            Change::Learned(row) => put!(connection, "INSERT OR REPLACE INTO learned", {
                workstation: learned_key(row.workstation),
                learned: row.bytes,
            }),
            Change::WentBack(true) => {
                put!(connection, "INSERT OR REPLACE INTO meta", { key: "is_copy", value: 1 })
            }
            Change::WentBack(false) => {
                connection.execute("DELETE FROM meta WHERE key = 'is_copy'", []).map(drop)
            }
            Change::ProgramOver { job } => end_program(connection, *job),
        },
        Write::Record(record) => put_record(connection, record),
        Write::Forget(job) => forget(connection, *job),
        Write::Uploaded { sender, hash, at } => {
            put!(connection, "INSERT OR REPLACE INTO uploads", {
                sender: sender,
                hash: hash.0,
                at: at.0,
            })
        }
        Write::ForgetUploads { before } => connection
            .prepare_cached("DELETE FROM uploads WHERE at < :before")?
            .execute(named_params! { ":before": before.0 })
            .map(drop),
    }
}

/// What all workstations have in common is no workstation's.
const COMMON: i64 = -1;

fn learned_key(workstation: Option<WorkstationId>) -> i64 {
    workstation.map_or(COMMON, |workstation| workstation.0.into())
}

fn put_job(connection: &Connection, record: &JobRecord) -> Done {
    let spec = &record.spec;
    // The job's progress is written by `put_progress`.
    put!(connection, "INSERT OR REPLACE INTO jobs", {
        job: record.job.0,
        user: record.user,
        name: spec.name,
        command: spec.command.join(" "),
        submitted: record.submitted.0,
        spec: packed(spec)?,
        program: spec.program.is_some(),
        public: spec.public,
        state: record.progress.state.name(),
        succeeded: 0,
        failed: 0,
        cancelled: 0,
        retreats: 0,
        suspensions: 0,
        lost: 0,
        retried: 0,
        cpu: 0,
        wasted_cpu: 0,
    })?;
    put_notes(connection, record.job, &record.notes)?;
    for file in &spec.inputs {
        put_file(connection, record.job, file.hash)?;
    }
    put_progress(connection, &record.progress)
}

fn put_file(connection: &Connection, job: JobId, hash: ContentHash) -> Done {
    put!(connection, "INSERT OR IGNORE INTO files", { job: job.0, hash: hash.0 })
}

/// Forgets a job but for its number, which must not be given out again.
fn forget(connection: &Connection, job: JobId) -> Done {
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('last_job', :job) \
         ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
        named_params! { ":job": job.0 },
    )?;
    connection.execute(
        "INSERT INTO meta (key, value) \
         SELECT 'newest', max(fence) FROM attempts WHERE job = :job HAVING max(fence) NOTNULL \
         ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
        named_params! { ":job": job.0 },
    )?;
    let tables = [
        "subprograms",
        "replicas",
        "attempts",
        "results",
        "files",
        "events",
        "notes",
        "cuts",
        "jobs",
    ];
    tables.iter().try_for_each(|table| clear(connection, table, job))
}

/// Takes all rows of a job out of a table.
fn clear(connection: &Connection, table: &str, job: JobId) -> Done {
    connection
        .prepare_cached(&format!("DELETE FROM {table} WHERE job = :job"))?
        .execute(named_params! { ":job": job.0 })
        .map(drop)
}

fn put_progress(connection: &Connection, progress: &JobProgress) -> Done {
    let counts = &progress.counts;
    connection
        .prepare_cached(
            "UPDATE jobs SET state = :state, ended = :ended, succeeded = :succeeded, \
             failed = :failed, cancelled = :cancelled, retreats = :retreats, \
             suspensions = :suspensions, lost = :lost, retried = :retried, moves = :moves, \
             cpu = :cpu, wasted_cpu = :wasted_cpu, moved = :moved, frozen = :frozen, \
             spawned = :spawned, life = :life WHERE job = :job",
        )?
        .execute(named_params! {
            ":job": progress.job.0,
            ":state": progress.state.name(),
            ":ended": progress.ended.map(|at| at.0),
            ":succeeded": counts.succeeded,
            ":failed": counts.failed,
            ":cancelled": counts.cancelled,
            ":retreats": number(counts.retreats),
            ":suspensions": number(counts.suspensions),
            ":lost": number(counts.lost),
            ":retried": number(counts.retried),
            ":moves": number(counts.moves),
            ":cpu": ns(progress.cpu),
            ":wasted_cpu": ns(progress.wasted_cpu),
            ":moved": number(progress.moved_bytes),
            ":frozen": ns(progress.frozen),
            ":spawned": progress.spawned,
            ":life": progress.life.0,
        })
        .map(drop)
}

fn put_subprogram(connection: &Connection, record: &SubprogramRecord) -> Done {
    let history = &record.history;
    put!(connection, "INSERT OR REPLACE INTO subprograms", {
        job: record.subprogram.job.0,
        idx: record.subprogram.index,
        state: record.state.name(),
        fence: number(history.last.fence.packed()),
        workstation: history.last.workstation.0,
        attempts: history.attempts,
        failures: history.failures,
        retreats: history.retreats,
        lost: history.lost,
        outcome: history.last.outcome,
        cpu: ns(history.cpu),
        avoided: history.avoided.last().map(|workstation| workstation.0),
        moves: history.moves,
        lost_in_a_row: history.lost_in_a_row,
    })
}

fn put_replica(
    connection: &Connection,
    record: &ReplicaRecord,
    finished: Option<&Finished>,
) -> Done {
    let history = &record.history;
    put!(connection, "INSERT OR REPLACE INTO replicas", {
        job: record.subprogram.job.0,
        idx: record.subprogram.index,
        replica: record.replica,
        fence: number(history.last.fence.packed()),
        workstation: history.last.workstation.0,
        attempts: history.attempts,
        failures: history.failures,
        retreats: history.retreats,
        lost: history.lost,
        lost_in_a_row: history.lost_in_a_row,
        moves: history.moves,
        outcome: history.last.outcome,
        cpu: ns(history.cpu),
        avoided: history.avoided.last().map(|workstation| workstation.0),
        trail: packed(&record.trail)?,
        answer: record.answer.map(|answer| answer.0),
        finished: finished.map(packed).transpose()?,
    })?;
    finished.map_or(Ok(()), |finished| put_left(connection, record.subprogram.job, finished))
}

fn put_attempt(connection: &Connection, attempt: &AttemptRecord) -> Done {
    let (ended, how) = attempt.end.as_ref().map(|(at, how)| (at.0, how.as_str())).unzip();
    put!(connection, "INSERT OR REPLACE INTO attempts", {
        fence: number(attempt.fence.packed()),
        job: attempt.subprogram.job.0,
        idx: attempt.subprogram.index,
        workstation: attempt.workstation.0,
        placed: attempt.placed.0,
        ended: ended,
        how: how,
        old: attempt.coming.map(|coming| number(coming.old.packed())),
        came: attempt.coming.map(|coming| coming.from.0),
        keep: attempt.coming.map(|coming| keep_name(coming.keep)),
        arrived: attempt.arrived,
        replica: attempt.replica,
    })
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
) -> Done {
    if sequence == 0 {
        clear(connection, "events", job)?;
    }
    put!(connection, "INSERT OR REPLACE INTO events", {
        job: job.0,
        life: life.0,
        sequence: number(sequence),
        event: bytes,
    })
}

fn put_notes(connection: &Connection, job: JobId, notes: &[String]) -> Done {
    clear(connection, "notes", job)?;
    (1_u32..).zip(notes).try_for_each(|(line, note)| {
        put!(connection, "INSERT INTO notes", { job: job.0, line: line, note: note })
    })
}

fn put_cuts(connection: &Connection, job: JobId, parts: &[ContentHash]) -> Done {
    clear(connection, "cuts", job)?;
    parts.iter().try_for_each(
        |part| put!(connection, "INSERT OR IGNORE INTO cuts", { job: job.0, hash: part.0 }),
    )
}

fn end_program(connection: &Connection, job: JobId) -> Done {
    clear(connection, "events", job)?;
    clear(connection, "cuts", job)?;
    let accept = "UPDATE results SET accepted = 1 WHERE job = :job";
    connection.execute(accept, named_params! { ":job": job.0 }).map(drop)
}

fn put_result(
    connection: &Connection,
    subprogram: SubprogramId,
    accepted: bool,
    finished: &Finished,
) -> Done {
    put!(connection, "INSERT OR REPLACE INTO results", {
        job: subprogram.job.0,
        idx: subprogram.index,
        fence: number(finished.fence.packed()),
        accepted: accepted,
        finished: packed(finished)?,
    })?;
    put_left(connection, subprogram.job, finished)
}

/// The files that a guest has left or printed are its job's.
fn put_left(connection: &Connection, job: JobId, finished: &Finished) -> Done {
    let printed =
        [&finished.stdout, &finished.stderr].into_iter().filter_map(|printed| match printed {
            Printed::Staged { hash, .. } => Some(*hash),
            Printed::Inline(_) => None,
        });
    let mut left = finished.outputs.iter().map(|file| file.hash).chain(printed);
    left.try_for_each(|hash| put_file(connection, job, hash))
}

fn put_record(connection: &Connection, record: &DirectoryRecord) -> Done {
    match record {
        DirectoryRecord::Workstation { workstation, name } => {
            put!(connection, "INSERT OR REPLACE INTO workstations", {
                workstation: workstation.0,
                name: name,
            })
        }
        DirectoryRecord::WorkstationRemoved { workstation } => connection
            .prepare_cached(
                "UPDATE workstations SET removed = 1, name = name || '#' || workstation \
                 WHERE workstation = :workstation AND removed = 0",
            )?
            .execute(named_params! { ":workstation": workstation.0 })
            .and_then(|_| {
                connection
                    .prepare_cached("DELETE FROM learned WHERE workstation = :workstation")?
                    .execute(named_params! { ":workstation": workstation.0 })
            })
            .map(drop),
        DirectoryRecord::Identity { key, identity } => {
            put!(connection, "INSERT OR REPLACE INTO identities", {
                key: key,
                role: identity.role.name(),
                name: identity.name,
                workstation: identity.workstation.map(|workstation| workstation.0),
                enrolled: identity.enrolled.0,
                expires: identity.expires.map(|at| at.0),
                revoked: identity.revoked.map(|at| at.0),
            })
        }
        DirectoryRecord::IdentityForgotten { key } => connection
            .prepare_cached("DELETE FROM identities WHERE key = :key")?
            .execute(named_params! { ":key": key })
            .map(drop),
        DirectoryRecord::Token { key, token } => {
            put!(connection, "INSERT OR REPLACE INTO tokens", {
                key: key,
                id: token.id,
                role: token.role.name(),
                name: token.name,
                expires: token.expires.0,
                used_by: token.used_by,
                revoked: token.revoked,
            })
        }
    }
}
