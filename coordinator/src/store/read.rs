//! Reading: what a new life of the core starts from, and what has ended and is
//! therefore only here.

use gleaner_common::id::{ContentHash, Fence, Incarnation, JobId, SubprogramId, WorkstationId};
use gleaner_common::program::Life;
use gleaner_common::reaction::Keep;
use gleaner_common::report::{Counts, JobState};
use gleaner_common::time::WallTime;
use gleaner_common::wire::Finished;
use gleaner_coordinator_core::directory::{DirectoryRecord, IdentityRecord, TokenRecord};
use gleaner_coordinator_core::outlook::LearnedRecord;
use gleaner_coordinator_core::{
    AttemptRecord, Coming, History, JobProgress, JobRecord, LastAttempt, ProgramEvent,
    ReplicaRecord, Restored, SubprogramRecord, UsageRecord,
};
use rusqlite::{Params, named_params};

use super::column::{Named, count, span, unknown};
use super::write::keep_name;
use super::{DatabaseError, Tables};

type Read<T> = Result<T, DatabaseError>;
type Column<T> = Result<T, rusqlite::Error>;

const JOB: &str = "SELECT *, (SELECT group_concat(note, char(10) ORDER BY line) FROM notes \
                   WHERE notes.job = jobs.job) AS notes FROM jobs";

/// Each query fails as the database does, or on a row that does not read.
impl Tables {
    /// Everything that has not ended.
    pub(super) fn restored(&self) -> Read<Restored> {
        let newest: Option<Option<i64>> =
            self.one("SELECT max(fence) AS newest FROM attempts", [], |row| row.get("newest"))?;
        let newest = newest.flatten().map_or(0, count);
        let last_job: Option<Option<u32>> = self.one(
            "SELECT max(job) AS last FROM (SELECT job FROM jobs UNION ALL \
             SELECT value FROM meta WHERE key = 'last_job')",
            [],
            |row| row.get("last"),
        )?;
        Ok(Restored {
            drained: self.rows("SELECT * FROM workstations WHERE drained", [], |row| {
                row.get("workstation").map(WorkstationId)
            })?,
            workstations: self.rows("SELECT * FROM workstations WHERE NOT removed", [], |row| {
                Ok((WorkstationId(row.get("workstation")?), row.get("name")?))
            })?,
            incarnations: self.rows(
                "SELECT * FROM workstations WHERE incarnation IS NOT NULL",
                [],
                |row| {
                    let incarnation: i64 = row.get("incarnation")?;
                    let incarnation = Incarnation(incarnation.cast_unsigned());
                    Ok((WorkstationId(row.get("workstation")?), incarnation))
                },
            )?,
            others: self.rows(
                "SELECT * FROM workstations WHERE others IS NOT NULL",
                [],
                |row| Ok((WorkstationId(row.get("workstation")?), row.get("others")?)),
            )?,
            jobs: self.rows(&format!("{JOB} WHERE state = 'running' ORDER BY job"), [], job)?,
            subprograms: self.rows(
                "SELECT s.* FROM subprograms s JOIN jobs j ON j.job = s.job \
                 WHERE j.state = 'running' AND (s.state = 'queued' OR j.program) \
                 ORDER BY s.job, s.idx",
                [],
                subprogram,
            )?,
            replicas: self.rows(
                "SELECT r.* FROM replicas r JOIN jobs j ON j.job = r.job \
                 WHERE j.state = 'running' AND NOT EXISTS \
                 (SELECT 1 FROM subprograms s WHERE s.job = r.job AND s.idx = r.idx) \
                 ORDER BY r.job, r.idx, r.replica",
                [],
                replica,
            )?,
            attempts: self.rows(
                "SELECT * FROM attempts WHERE ended IS NULL ORDER BY fence",
                [],
                attempt,
            )?,
            fences_below: Fence::unpacked(self.number("fences_below")?),
            newest: Fence::unpacked(newest.max(self.number("newest")?)),
            is_copy: self.number("is_copy")? != 0,
            last_job: last_job.flatten().map(JobId),
            events: self.rows("SELECT * FROM events ORDER BY job, life, sequence", [], |row| {
                let (job, life) = (JobId(row.get("job")?), Life(row.get("life")?));
                Ok(ProgramEvent { job, life, bytes: row.get("event")? })
            })?,
            usage: self.rows("SELECT * FROM usage", [], |row| {
                let (user, used_s) = (row.get("user")?, row.get("used_s")?);
                Ok(UsageRecord { user, used_s, at: WallTime(row.get("at")?) })
            })?,
            learned: self.learned()?,
        })
    }

    /// What does not read any more is learned anew.
    fn learned(&self) -> Read<Vec<LearnedRecord>> {
        // A workstation's number, or the one below all for what they have in common.
        let query = "SELECT workstation FROM main.learned ORDER BY workstation";
        let numbers: Vec<i64> = self.rows(query, [], |row| row.get("workstation"))?;
        let record = |row: &Named<'_>| {
            let workstation = u32::try_from(row.get::<i64>("workstation")?).ok();
            let bytes = row.get("learned")?;
            Ok(LearnedRecord { workstation: workstation.map(WorkstationId), bytes })
        };
        let records = numbers.into_iter().filter_map(|number| {
            let query = "SELECT * FROM learned WHERE workstation = :number";
            self.one(query, named_params! { ":number": number }, record).unwrap_or_else(|why| {
                tracing::warn!("what was learned of owners' hours begins anew: {why}");
                None
            })
        });
        Ok(records.collect())
    }

    /// A number of the store as a whole; 0 if there is none.
    fn number(&self, key: &str) -> Read<u64> {
        let query = "SELECT * FROM meta WHERE key = :key";
        let value = self.one(query, named_params! { ":key": key }, |row| row.get("value"))?;
        Ok(value.map_or(0, count))
    }

    /// All identities and tokens, those out of use too.
    pub(super) fn directory(&self) -> Read<Vec<DirectoryRecord>> {
        let mut records = self.rows("SELECT * FROM workstations", [], |row| {
            let workstation = WorkstationId(row.get("workstation")?);
            if row.get("removed")? {
                return Ok(DirectoryRecord::WorkstationRemoved { workstation });
            }
            Ok(DirectoryRecord::Workstation { workstation, name: row.get("name")? })
        })?;
        records.extend(self.rows("SELECT * FROM identities", [], identity)?);
        records.extend(self.rows("SELECT * FROM tokens", [], token)?);
        Ok(records)
    }

    /// One job, ended or not.
    pub(crate) fn job_record(&self, id: JobId) -> Read<Option<JobRecord>> {
        self.one(&format!("{JOB} WHERE job = :job"), named_params! { ":job": id.0 }, job)
    }

    /// A job's state, without the rest of its record.
    pub(crate) fn job_state(&self, id: JobId) -> Read<Option<JobState>> {
        let query = "SELECT state FROM jobs WHERE job = :job";
        self.one(query, named_params! { ":job": id.0 }, |row| row.word("state"))
    }

    /// Ended jobs with numbers below `below`, newest first.
    pub(crate) fn ended_jobs(&self, below: JobId, limit: u32) -> Read<Vec<JobRecord>> {
        let query = format!(
            "{JOB} WHERE state <> 'running' AND job < :below ORDER BY job DESC LIMIT :limit"
        );
        self.rows(&query, named_params! { ":below": below.0, ":limit": limit }, job)
    }

    /// A job that ended before `before`, if there is one.
    pub(crate) fn ended_before(&self, before: WallTime) -> Read<Option<JobId>> {
        let query = "SELECT job FROM jobs WHERE ended < :before ORDER BY ended LIMIT 1";
        self.one(query, named_params! { ":before": before.0 }, |row| row.get("job").map(JobId))
    }

    /// Does any job that is remembered need this file, or has it left it?
    pub(crate) fn is_wanted(&self, hash: ContentHash) -> Read<bool> {
        let query = "SELECT 1 FROM files WHERE hash = :hash UNION ALL \
                     SELECT 1 FROM cuts WHERE hash = :hash LIMIT 1";
        Ok(self.one(query, named_params! { ":hash": hash.0 }, |_| Ok(()))?.is_some())
    }

    /// The jobs that name a file, each with its user and whether it is public.
    pub(crate) fn jobs_of_file(&self, hash: ContentHash) -> Read<Vec<(JobId, String, bool)>> {
        let query = "SELECT * FROM jobs WHERE job IN \
                     (SELECT job FROM files WHERE hash = :hash UNION \
                      SELECT job FROM cuts WHERE hash = :hash)";
        self.rows(query, named_params! { ":hash": hash.0 }, |row| {
            Ok((JobId(row.get("job")?), row.get("user")?, row.get("public")?))
        })
    }

    /// The records of a job's subprograms with indexes from `first` to `last`.
    pub(crate) fn subprogram_records(
        &self,
        job: JobId,
        (first, last): (u32, u32),
    ) -> Read<Vec<SubprogramRecord>> {
        let query = "SELECT * FROM subprograms \
                     WHERE job = :job AND idx BETWEEN :first AND :last ORDER BY idx";
        let range = named_params! { ":job": job.0, ":first": first, ":last": last };
        self.rows(query, range, subprogram)
    }

    /// A subprogram's attempts, oldest first.
    pub(crate) fn attempts(&self, id: SubprogramId) -> Read<Vec<AttemptRecord>> {
        let query = "SELECT * FROM attempts WHERE job = :job AND idx = :idx ORDER BY fence";
        self.rows(query, named_params! { ":job": id.job.0, ":idx": id.index }, attempt)
    }

    /// What a subprogram printed and left, the accepted attempt or the latest.
    pub(crate) fn result(&self, id: SubprogramId) -> Read<Option<Finished>> {
        let query = "SELECT * FROM results WHERE job = :job AND idx = :idx";
        let of = named_params! { ":job": id.job.0, ":idx": id.index };
        self.one(query, of, |row| row.unpack("finished"))
    }

    /// The replicas of a subprogram that were tried, the first one first, and
    /// what counts of them.
    pub(crate) fn replicas(&self, id: SubprogramId) -> Read<(Vec<ReplicaRecord>, Option<Fence>)> {
        let of = named_params! { ":job": id.job.0, ":idx": id.index };
        let query = "SELECT * FROM replicas WHERE job = :job AND idx = :idx ORDER BY replica";
        let records = self.rows(query, of, replica)?;
        let query = "SELECT * FROM results WHERE job = :job AND idx = :idx AND accepted";
        let accepted = self.one(query, of, |row| row.get("fence").map(count))?;
        Ok((records, accepted.map(Fence::unpacked)))
    }

    /// What one replica printed and left.
    pub(crate) fn replica_result(&self, id: SubprogramId, replica: u8) -> Read<Option<Finished>> {
        let query = "SELECT * FROM replicas WHERE job = :job AND idx = :idx \
                     AND replica = :replica AND finished IS NOT NULL";
        let of = named_params! { ":job": id.job.0, ":idx": id.index, ":replica": replica };
        self.one(query, of, |row| row.unpack("finished"))
    }

    /// Was anything sent before that?
    pub(crate) fn was_anything_sent(&self, before: WallTime) -> Read<bool> {
        let query = "SELECT 1 FROM uploads WHERE at < :before LIMIT 1";
        Ok(self.one(query, named_params! { ":before": before.0 }, |_| Ok(()))?.is_some())
    }

    /// Has the sender sent this file, whether or not a job names it yet?
    pub(crate) fn was_sent(&self, sender: &str, hash: ContentHash) -> Read<bool> {
        let query = "SELECT 1 FROM uploads WHERE sender = :sender AND hash = :hash";
        let of = named_params! { ":sender": sender, ":hash": hash.0 };
        Ok(self.one(query, of, |_| Ok(()))?.is_some())
    }

    fn rows<T>(
        &self,
        query: &str,
        of: impl Params,
        mut read: impl FnMut(&Named<'_>) -> Column<T>,
    ) -> Read<Vec<T>> {
        let mut statement = self.connection.prepare_cached(query)?;
        let columns: Vec<String> = statement.column_names().iter().map(|&it| it.into()).collect();
        let rows = statement.query_map(of, |row| read(&Named { row, columns: &columns }))?;
        Ok(rows.collect::<Column<_>>()?)
    }

    /// The only row of a query that has one at most.
    fn one<T>(
        &self,
        query: &str,
        of: impl Params,
        read: impl FnMut(&Named<'_>) -> Column<T>,
    ) -> Read<Option<T>> {
        Ok(self.rows(query, of, read)?.pop())
    }
}

fn job(row: &Named<'_>) -> Column<JobRecord> {
    let id = JobId(row.get("job")?);
    let notes: Option<String> = row.get("notes")?;
    Ok(JobRecord {
        job: id,
        user: row.get("user")?,
        submitted: WallTime(row.get("submitted")?),
        spec: row.unpack("spec")?,
        progress: JobProgress {
            job: id,
            state: row.word("state")?,
            ended: row.get::<Option<i64>>("ended")?.map(WallTime),
            counts: Counts {
                succeeded: row.get("succeeded")?,
                failed: row.get("failed")?,
                cancelled: row.get("cancelled")?,
                retreats: row.get("retreats").map(count)?,
                suspensions: row.get("suspensions").map(count)?,
                lost: row.get("lost").map(count)?,
                retried: row.get("retried").map(count)?,
                moves: row.get("moves").map(count)?,
            },
            cpu: row.get("cpu").map(span)?,
            wasted_cpu: row.get("wasted_cpu").map(span)?,
            moved_bytes: row.get("moved").map(count)?,
            frozen: row.get("frozen").map(span)?,
            spawned: row.get("spawned")?,
            life: Life(row.get("life")?),
        },
        notes: notes.map_or_else(Vec::new, |notes| notes.lines().map(str::to_owned).collect()),
    })
}

fn subprogram(row: &Named<'_>) -> Column<SubprogramRecord> {
    Ok(SubprogramRecord {
        subprogram: subprogram_id(row)?,
        state: row.word("state")?,
        history: history(row)?,
    })
}

fn history(row: &Named<'_>) -> Column<History> {
    Ok(History {
        attempts: row.get("attempts")?,
        failures: row.get("failures")?,
        retreats: row.get("retreats")?,
        lost: row.get("lost")?,
        moves: row.get("moves")?,
        lost_in_a_row: row.get("lost_in_a_row")?,
        cpu: row.get("cpu").map(span)?,
        avoided: row.get::<Option<u32>>("avoided")?.map(WorkstationId).into_iter().collect(),
        last: LastAttempt {
            fence: Fence::unpacked(row.get("fence").map(count)?),
            workstation: WorkstationId(row.get("workstation")?),
            outcome: row.get("outcome")?,
        },
    })
}

fn replica(row: &Named<'_>) -> Column<ReplicaRecord> {
    Ok(ReplicaRecord {
        subprogram: subprogram_id(row)?,
        replica: row.get("replica")?,
        history: history(row)?,
        trail: row.unpack("trail")?,
        answer: row.get::<Option<[u8; 32]>>("answer")?.map(ContentHash),
    })
}

fn subprogram_id(row: &Named<'_>) -> Column<SubprogramId> {
    Ok(SubprogramId { job: JobId(row.get("job")?), index: row.get("idx")? })
}

fn attempt(row: &Named<'_>) -> Column<AttemptRecord> {
    let ended: Option<i64> = row.get("ended")?;
    let how: Option<String> = row.get("how")?;
    Ok(AttemptRecord {
        fence: Fence::unpacked(row.get("fence").map(count)?),
        subprogram: subprogram_id(row)?,
        workstation: WorkstationId(row.get("workstation")?),
        placed: WallTime(row.get("placed")?),
        end: ended.map(|at| (WallTime(at), how.unwrap_or_default())),
        coming: coming(row)?,
        arrived: row.get("arrived")?,
        replica: row.get("replica")?,
    })
}

fn coming(row: &Named<'_>) -> Column<Option<Coming>> {
    let Some(old) = row.get::<Option<i64>>("old")? else { return Ok(None) };
    let name: String = row.get("keep")?;
    let mut keeps = [Keep::State, Keep::SubtaskStart, Keep::Nothing].into_iter();
    let keep = keeps.find(|keep| keep_name(*keep) == name).ok_or_else(|| unknown(&name))?;
    Ok(Some(Coming {
        from: WorkstationId(row.get("came")?),
        old: Fence::unpacked(count(old)),
        keep,
    }))
}

fn identity(row: &Named<'_>) -> Column<DirectoryRecord> {
    let identity = IdentityRecord {
        role: row.word("role")?,
        name: row.get("name")?,
        workstation: row.get::<Option<u32>>("workstation")?.map(WorkstationId),
        enrolled: WallTime(row.get("enrolled")?),
        expires: row.get::<Option<i64>>("expires")?.map(WallTime),
        revoked: row.get::<Option<i64>>("revoked")?.map(WallTime),
    };
    Ok(DirectoryRecord::Identity { key: row.get("key")?, identity })
}

fn token(row: &Named<'_>) -> Column<DirectoryRecord> {
    let token = TokenRecord {
        id: row.get("id")?,
        role: row.word("role")?,
        name: row.get("name")?,
        expires: WallTime(row.get("expires")?),
        used_by: row.get("used_by")?,
        revoked: row.get("revoked")?,
    };
    Ok(DirectoryRecord::Token { key: row.get("key")?, token })
}
