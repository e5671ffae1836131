//! How a job's spec lay in databases of version 1, and how it is rewritten:
//! it did not say what follows a suspension, which always was a retreat.

use std::time::Duration;

use gleaner_common::job::{IndexRange, JobSpec, Limits, OnBusy, Reaction, StagedFile};
use gleaner_common::requirement::Requirement;
use gleaner_common::shape::Shape;
use rusqlite::{Connection, named_params};
use serde::{Deserialize, Serialize};

use super::column::{packed, unpacked};

#[derive(Serialize, Deserialize)]
pub(super) struct Spec {
    name: String,
    command: Vec<String>,
    indexes: IndexRange,
    retries: u32,
    timeout: Option<Duration>,
    environment: Vec<(String, String)>,
    inputs: Vec<StagedFile>,
    collect_output: bool,
    shared_directory: Option<String>,
    reaction: Reaction,
    patience: Option<Duration>,
    limits: Limits,
}

impl From<Spec> for JobSpec {
    fn from(old: Spec) -> Self {
        Self {
            name: old.name,
            command: old.command,
            indexes: old.indexes,
            retries: old.retries,
            timeout: old.timeout,
            environment: old.environment,
            inputs: old.inputs,
            collect_output: old.collect_output,
            shared_directory: old.shared_directory,
            on_busy: OnBusy {
                reaction: old.reaction,
                patience: old.patience.into(),
                then: Reaction::Retreat,
            },
            limits: old.limits,
            program: None,
            priority: 0,
            public: false,
            replicas: 1,
            require: Requirement::default(),
            prefer: Requirement::default(),
            shape: Shape::default(),
            cores: 1,
            gpus: 0,
        }
    }
}

/// A spec's priority, whether it is public, its replicas, what it requires and
/// prefers, a byte each, a shape that says nothing in seven, and cores and GPUs:
/// the last ones.
const ADDED_SINCE: usize = 5 + 7 + 2;

/// # Errors
/// Those of `SQLite`, and a spec that does not read.
pub(super) fn rewrite(connection: &Connection) -> Result<(), rusqlite::Error> {
    let mut jobs = connection.prepare("SELECT job, spec FROM jobs")?;
    let mut update = connection.prepare("UPDATE jobs SET spec = :spec WHERE job = :job")?;
    let mut rows = jobs.query([])?;
    let mut rewritten = vec![];
    while let Some(row) = rows.next()? {
        let old: Spec = unpacked(row.get_ref("spec")?.as_blob()?)?;
        // Later steps add what specs have had since.
        let mut spec = packed(&JobSpec::from(old))?;
        spec.truncate(spec.len() - ADDED_SINCE);
        rewritten.push((row.get::<_, i64>("job")?, spec));
    }
    for (job, spec) in rewritten {
        update.execute(named_params! { ":job": job, ":spec": spec })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_of_a_version_1_database_are_all_read_again() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE jobs (job INTEGER, spec BLOB)").unwrap();
        for job in 1..=3 {
            let old = Spec {
                name: "primes".into(),
                command: vec!["./primes".into(), "{i}".into()],
                indexes: IndexRange::count_of(240).unwrap(),
                retries: 2,
                timeout: None,
                environment: vec![],
                inputs: vec![],
                collect_output: true,
                shared_directory: None,
                reaction: Reaction::Suspend,
                patience: Some(Duration::from_secs(job)),
                limits: Limits { memory_bytes_max: 7, processes_max: 8, disk_bytes_max: 9 },
            };
            let insert = "INSERT INTO jobs VALUES (:job, :spec)";
            let row = named_params! { ":job": job, ":spec": packed(&old).unwrap() };
            connection.execute(insert, row).unwrap();
        }
        rewrite(&connection).unwrap();
        for job in 1..=3 {
            let select = "SELECT spec FROM jobs WHERE job = :job";
            let of = named_params! { ":job": job };
            let read = connection.query_row(select, of, |row| {
                let since: [&[u8]; 3] = [&[0, 0, 1], &[0; 9], &[1, 0]];
                let added = [row.get_ref("spec")?.as_blob()?, &since.concat()].concat();
                unpacked(&added)
            });
            let spec: JobSpec = read.unwrap();
            let patience = Some(Duration::from_secs(job));
            assert_eq!(spec.on_busy, OnBusy::suspend(patience, Reaction::Retreat));
            assert_eq!((spec.indexes.len(), spec.limits.disk_bytes_max), (240, 9));
        }
    }
}
