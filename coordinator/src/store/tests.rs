use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence, Incarnation, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, Outcome};
use gleaner_common::program::{Life, ProgramSpec};
use gleaner_common::reaction::Keep;
use gleaner_common::report::{Counts, JobState, SubprogramState};
use gleaner_common::time::WallTime;
use gleaner_common::wire::{Finished, Printed, Role};
use gleaner_coordinator_core::directory::{DirectoryRecord, IdentityRecord, TokenRecord};
use gleaner_coordinator_core::outlook::LearnedRecord;
use gleaner_coordinator_core::{
    AttemptRecord, Change, Coming, History, JobProgress, JobRecord, LastAttempt, ReplicaRecord,
    SubprogramRecord, UsageRecord,
};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn job(number: u32) -> JobRecord {
    let job = JobId(number);
    JobRecord {
        job,
        user: "ada".into(),
        submitted: WallTime(5),
        spec: JobSpec::new(vec!["/bin/true".into()], IndexRange::count_of(100_000).unwrap()),
        progress: JobProgress::new(job),
        notes: vec![],
    }
}

fn subprogram(job: u32, index: u32) -> SubprogramRecord {
    SubprogramRecord {
        subprogram: SubprogramId { job: JobId(job), index },
        state: SubprogramState::Queued,
        history: History {
            attempts: 2,
            failures: 1,
            retreats: 1,
            lost: 0,
            moves: 0,
            lost_in_a_row: 2,
            cpu: Duration::from_millis(1_234),
            avoided: vec![WorkstationId(3)],
            last: LastAttempt {
                fence: Fence::of(7),
                workstation: WorkstationId(3),
                outcome: "exit code 1".into(),
            },
        },
    }
}

fn attempt(fence: u32, end: Option<&str>) -> AttemptRecord {
    AttemptRecord {
        fence: Fence::of(fence),
        replica: 0,
        subprogram: SubprogramId { job: JobId(1), index: 0 },
        workstation: WorkstationId(3),
        placed: WallTime(6),
        end: end.map(|how| (WallTime(7), how.to_owned())),
        coming: None,
        arrived: false,
    }
}

fn finished(fence: u32) -> Finished {
    Finished {
        fence: Fence::of(fence),
        outcome: Outcome::ExitCode(3),
        cpu: Duration::from_secs(1),
        ran: Duration::from_secs(2),
        suspended: Duration::ZERO,
        suspensions: 0,
        stdout: Printed::Inline(b"out".to_vec()),
        stderr: Printed::default(),
        outputs: vec![],
    }
}

fn writes(changes: Vec<Change>) -> Vec<Write> {
    changes.into_iter().map(Write::Change).collect()
}

#[track_caller]
fn read<T>(store: &Store, ask: impl FnOnce(&Tables) -> Result<T, DatabaseError>) -> T {
    store.reader().unwrap().read_here(ask).unwrap()
}

fn tables(store: &Store) -> (i64, i64) {
    let count = |table: &str| {
        let query = format!("SELECT count(*) FROM {table}");
        store.writer.0.query_row(&query, [], |row| row.get(0)).unwrap()
    };
    (count("jobs"), count("subprograms"))
}

#[test]
fn what_has_not_ended_comes_back_and_what_has_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let over = JobProgress {
        state: JobState::Failed,
        ended: Some(WallTime(9)),
        counts: Counts { succeeded: 1, failed: 2, retreats: 3, ..Counts::default() },
        cpu: Duration::from_secs(4),
        ..JobProgress::new(JobId(2))
    };
    let done = SubprogramRecord { state: SubprogramState::Succeeded, ..subprogram(1, 5) };
    store
        .commit(&writes(vec![
            Change::Job(Box::new(job(1))),
            Change::Job(Box::new(job(2))),
            Change::Subprogram(subprogram(1, 4)),
            Change::Subprogram(done),
            Change::Subprogram(subprogram(2, 4)),
            Change::Progress(over),
            Change::Attempt(attempt(7, Some("exit code 1"))),
            Change::Attempt(attempt(8, None)),
            Change::Attempt(attempt(9, None)),
            Change::Attempt(attempt(9, Some("succeeded"))),
            Change::FencesReserved { below: Fence::of(1_000) },
            Change::FencesReserved { below: Fence::of(2_000) },
        ]))
        .unwrap();
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let (restored, _) = store.load().unwrap();
    assert_eq!(restored.jobs, [job(1)]);
    assert_eq!(restored.subprograms, [subprogram(1, 4)]);
    assert_eq!(restored.attempts, [attempt(8, None)]);
    assert_eq!((restored.fences_below, restored.last_job), (Fence::of(2_000), Some(JobId(2))));
    let ended = read(&store, |tables| tables.ended_jobs(JobId(u32::MAX), 10));
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].progress, over);
}

#[test]
fn the_newest_fence_of_a_job_that_is_forgotten_is_still_known() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let attempts = [attempt(7, Some("exit code 1")), attempt(9, Some("succeeded"))];
    store.commit(&writes(vec![Change::Job(Box::new(job(1)))])).unwrap();
    store.commit(&writes(attempts.map(Change::Attempt).into())).unwrap();
    store.commit(&[Write::Forget(JobId(1))]).unwrap();
    assert_eq!(store.load().unwrap().0.newest, Fence::of(9));
}

#[test]
fn what_was_marked_as_a_copy_is_known_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert!(!store.load().unwrap().0.is_copy);
    drop(store);
    make_copy(dir.path(), &[], 1_000).unwrap();
    assert!(Store::open(dir.path()).unwrap().load().unwrap().0.is_copy);
}

#[test]
fn a_hundred_thousand_queued_subprograms_are_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.commit(&writes(vec![Change::Job(Box::new(job(1)))])).unwrap();
    assert_eq!(tables(&store), (1, 0));
}

#[test]
fn identities_tokens_and_workstations_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let records = vec![
        DirectoryRecord::Workstation { workstation: WorkstationId(3), name: "desk-3".into() },
        DirectoryRecord::Identity {
            key: vec![1, 2],
            identity: IdentityRecord {
                role: Role::Agent,
                name: "desk-3".into(),
                workstation: Some(WorkstationId(3)),
                enrolled: WallTime(1),
                expires: Some(WallTime(3)),
                revoked: Some(WallTime(2)),
            },
        },
        DirectoryRecord::Token {
            key: vec![9],
            token: TokenRecord {
                id: "abc".into(),
                role: Role::Collector,
                name: Some("store".into()),
                expires: WallTime(77),
                used_by: Some(vec![1, 2]),
                revoked: true,
            },
        },
    ];
    let kept: Vec<_> = records.iter().cloned().map(Write::Record).collect();
    store.commit(&kept).unwrap();
    let (restored, found) = store.load().unwrap();
    assert_eq!(found, records);
    assert_eq!(restored.workstations, [(WorkstationId(3), "desk-3".into())]);
    let forgotten = DirectoryRecord::IdentityForgotten { key: vec![1, 2] };
    store.commit(&[Write::Record(forgotten)]).unwrap();
    assert_eq!(store.load().unwrap().1.len(), 2);
}

#[test]
fn a_later_result_takes_the_place_of_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let subprogram = SubprogramId { job: JobId(1), index: 0 };
    for (fence, accepted) in [(1, false), (2, true)] {
        let finished = Box::new(finished(fence));
        store.commit(&writes(vec![Change::Result { subprogram, accepted, finished }])).unwrap();
    }
    assert_eq!(read(&store, |tables| tables.result(subprogram)), Some(finished(2)));
}

/// What a machine that loses power leaves: the files as they are at any
/// moment. Here, between commits, with the log not brought in.
#[test]
fn every_commit_is_whole_in_a_copy_of_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    for number in 1..=20 {
        store
            .commit(&writes(vec![
                Change::Job(Box::new(job(number))),
                Change::Subprogram(subprogram(number, 1)),
            ]))
            .unwrap();
        let copy = tempfile::tempdir().unwrap();
        for file in [FILE.to_owned(), format!("{FILE}-wal")] {
            fs::copy(dir.path().join(&file), copy.path().join(&file)).unwrap();
        }
        let copied = Store::open(copy.path()).unwrap();
        assert_eq!(tables(&copied), (i64::from(number), i64::from(number)));
    }
}

/// A log that was cut in the middle of its last transaction: that one is gone,
/// all before it are there.
#[test]
fn a_torn_commit_is_as_if_it_had_never_been() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let log = dir.path().join(format!("{FILE}-wal"));
    store.commit(&writes(vec![Change::Job(Box::new(job(1)))])).unwrap();
    let before = fs::read(&log).unwrap();
    store.commit(&writes(vec![Change::Job(Box::new(job(2)))])).unwrap();
    let after = fs::read(&log).unwrap();
    let changed: Vec<_> = (0..after.len()).filter(|at| before.get(*at) != after.get(*at)).collect();
    let (first, last) = (changed[0], changed[changed.len() - 1]);
    for cut in [first, first + 1, usize::midpoint(first, last), last] {
        let copy = tempfile::tempdir().unwrap();
        fs::copy(dir.path().join(FILE), copy.path().join(FILE)).unwrap();
        let mut torn = after.clone();
        torn[cut..].copy_from_slice(&before[cut..]);
        fs::write(copy.path().join(format!("{FILE}-wal")), torn).unwrap();
        let copied = Store::open(copy.path()).unwrap();
        assert_eq!(tables(&copied).0, 1, "cut at {cut}");
    }
}

#[track_caller]
fn refused(dir: &std::path::Path, expected: &str) {
    let error = Store::open(dir).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_database_of_a_later_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.writer.0.pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    refused(dir.path(), "is of version 99, this program knows up to 8");
}

/// Takes back what the steps from version 5 on have made.
fn make_older(store: &Store, version: i32) {
    make_unsealed(store);
    let undo = "ALTER TABLE jobs DROP COLUMN public; DROP TABLE usage;
                ALTER TABLE subprograms DROP COLUMN lost_in_a_row;
                ALTER TABLE workstations DROP COLUMN drained;
                ALTER TABLE workstations DROP COLUMN removed;
                 ALTER TABLE identities DROP COLUMN expires;
                 ALTER TABLE attempts DROP COLUMN replica;
                 DROP TABLE replicas; DROP TABLE uploads; DROP TABLE learned;
                 UPDATE jobs SET spec = substr(spec, 1, length(spec) - 14);";
    store.writer.0.execute_batch(undo).unwrap();
    store.writer.0.pragma_update(None, "user_version", version).unwrap();
}

#[test]
fn the_jobs_of_a_version_4_database_are_read_and_are_nobody_elses_to_see() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.commit(&writes(vec![Change::Job(Box::new(job(1)))])).unwrap();
    make_older(&store, 4);
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let (restored, _) = store.load().unwrap();
    assert_eq!(restored.jobs, [job(1)]);
    assert!(!restored.jobs[0].spec.public);
    assert_eq!(restored.jobs[0].spec.replicas, 1);
}

fn replica(number: u8, answer: Option<u8>) -> ReplicaRecord {
    ReplicaRecord {
        subprogram: SubprogramId { job: JobId(1), index: 4 },
        replica: number,
        history: subprogram(1, 4).history,
        trail: vec![WorkstationId(3), WorkstationId(u32::from(number))],
        answer: answer.map(|byte| ContentHash([byte; 32])),
    }
}

#[test]
fn replicas_come_back_until_their_subprogram_is_decided_and_are_shown_after() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let change = |record: &ReplicaRecord, finished: Option<Finished>| Change::Replica {
        record: Box::new(record.clone()),
        finished: finished.map(Box::new),
    };
    let (voted, open) = (replica(0, Some(7)), replica(1, None));
    let left = ContentHash([9; 32]);
    let mut said = finished(5);
    said.stdout = Printed::Staged { hash: left, size_bytes: 1, truncated: false };
    let moving = AttemptRecord { replica: 1, ..attempt(8, None) };
    store
        .commit(&writes(vec![
            Change::Job(Box::new(job(1))),
            change(&replica(0, None), None),
            change(&voted, Some(said.clone())),
            change(&open, None),
            Change::Attempt(moving.clone()),
        ]))
        .unwrap();
    drop(store);
    let mut store = Store::open(dir.path()).unwrap();
    let (restored, _) = store.load().unwrap();
    assert_eq!(restored.replicas, [voted.clone(), open.clone()]);
    assert_eq!(restored.attempts, [moving]);
    let id = voted.subprogram;
    assert_eq!(read(&store, |tables| tables.replica_result(id, 0)), Some(said.clone()));
    assert_eq!(read(&store, |tables| tables.replica_result(id, 1)), None);
    assert!(read(&store, |tables| tables.is_wanted(left)), "its owner may look at it");
    let done = SubprogramRecord { state: SubprogramState::Succeeded, ..subprogram(1, 4) };
    let accepted = Change::Result { subprogram: id, accepted: true, finished: Box::new(said) };
    store.commit(&writes(vec![Change::Subprogram(done), accepted])).unwrap();
    assert_eq!(store.load().unwrap().0.replicas, []);
    let shown = read(&store, |tables| tables.replicas(id));
    assert_eq!(shown, (vec![voted, open], Some(Fence::of(5))));
    store.commit(&[Write::Forget(JobId(1))]).unwrap();
    assert_eq!(read(&store, |tables| tables.replicas(id)), (vec![], None));
}

#[test]
fn what_a_user_has_sent_is_theirs_to_name_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let hash = ContentHash([1; 32]);
    let sent = |at| Write::Uploaded { sender: "ada".into(), hash, at: WallTime(at) };
    store.commit(&[sent(5), sent(9)]).unwrap();
    let known = |store: &Store, user: &str| read(store, |tables| tables.was_sent(user, hash));
    assert!(known(&store, "ada") && !known(&store, "eve"));
    assert!(!read(&store, |tables| tables.was_anything_sent(WallTime(9))));
    store.commit(&[Write::ForgetUploads { before: WallTime(9) }]).unwrap();
    assert!(known(&store, "ada"), "it was sent again");
    store.commit(&[Write::ForgetUploads { before: WallTime(10) }]).unwrap();
    assert!(!known(&store, "ada"));
}

#[test]
fn usage_and_what_is_drained_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let usage = |used_s| UsageRecord { user: "ada".into(), used_s, at: WallTime(7) };
    let (workstation, name) = (WorkstationId(3), "desk-3".to_owned());
    store
        .commit(&[
            Write::Record(DirectoryRecord::Workstation { workstation, name }),
            Write::Change(Change::Usage(usage(1.5))),
            Write::Change(Change::Usage(usage(2.5))),
            Write::Change(Change::Drained { workstation, drained: true }),
        ])
        .unwrap();
    drop(store);
    let (restored, _) = Store::open(dir.path()).unwrap().load().unwrap();
    assert_eq!(restored.usage, [usage(2.5)]);
    assert_eq!(restored.drained, [workstation]);
}

#[test]
fn what_was_learned_comes_back_and_goes_with_its_workstation() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let learned = |workstation: Option<u32>, byte| LearnedRecord {
        workstation: workstation.map(WorkstationId),
        bytes: vec![byte],
    };
    let rows = [learned(Some(3), 1), learned(None, 2), learned(Some(4), 3), learned(Some(3), 4)];
    store.commit(&writes(rows.map(Change::Learned).to_vec())).unwrap();
    drop(store);
    let mut store = Store::open(dir.path()).unwrap();
    let kept = [learned(None, 2), learned(Some(3), 4), learned(Some(4), 3)];
    assert_eq!(store.load().unwrap().0.learned, kept);
    let removed = DirectoryRecord::WorkstationRemoved { workstation: WorkstationId(3) };
    store.commit(&[Write::Record(removed)]).unwrap();
    assert_eq!(store.load().unwrap().0.learned, [learned(None, 2), learned(Some(4), 3)]);
}

#[test]
fn events_of_programs_that_had_no_version_get_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let insert = "INSERT INTO events (job, life, sequence, event) VALUES (1, 1, 0, x'0000ff00'), (1, 1, 1, x'80')";
    store.writer.0.execute_batch(insert).unwrap();
    make_older(&store, 3);
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let events = "SELECT event FROM events ORDER BY sequence";
    let mut events = store.writer.0.prepare(events).unwrap();
    let events: Vec<Vec<u8>> =
        events.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(events, [&[1, 0, 0, 0xff, 0][..], &[1, 0x80]]);
}

/// Takes away what version 7 has brought.
fn make_unsealed(store: &Store) {
    let connection = &store.writer.0;
    let names = |query: &str| -> Vec<String> {
        let mut names = connection.prepare(query).unwrap();
        names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    for trigger in names("SELECT name FROM sqlite_temp_schema WHERE type = 'trigger'") {
        connection.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
    }
    for table in names("SELECT name FROM sqlite_schema WHERE type = 'table'") {
        connection.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN sum")).unwrap();
    }
    connection.execute_batch("ALTER TABLE workstations DROP COLUMN others").unwrap();
    connection.pragma_update(None, "user_version", 6).unwrap();
}

/// One row or more in every table, and what an open and a load read of it.
fn filled(dir: &std::path::Path) -> Store {
    let mut store = Store::open(dir).unwrap();
    let part = ContentHash([9; 32]);
    let event = Change::ProgramEvent { job: JobId(1), life: Life(1), sequence: 0, bytes: vec![7] };
    let mut changes: Vec<_> = (1..6).map(|number| Change::Job(Box::new(job(number)))).collect();
    changes.extend((1..40).map(|index| Change::Subprogram(subprogram(1, index))));
    changes.extend((1..40).map(|number| Change::Attempt(attempt(number, None))));
    changes.extend((40..60).map(|number| Change::Attempt(attempt(number, Some("succeeded")))));
    changes.extend([
        event,
        Change::Notes { job: JobId(1), notes: vec!["begins again".into()] },
        Change::Cuts { job: JobId(1), parts: vec![part] },
        Change::FencesReserved { below: Fence::of(10_000) },
        Change::Result {
            subprogram: subprogram(1, 2).subprogram,
            accepted: true,
            finished: Box::new(finished(7)),
        },
    ]);
    store.commit(&writes(changes)).unwrap();
    let name = "desk".to_owned();
    let workstation = DirectoryRecord::Workstation { workstation: WorkstationId(4), name };
    store.commit(&[Write::Record(workstation)]).unwrap();
    store
}

#[test]
fn a_database_of_version_6_is_sealed_and_read_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let before = store.load().unwrap();
    make_unsealed(&store);
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.load().unwrap(), before);
    assert!(matches!(check(store.path()).unwrap(), Checked::Whole { rows } if rows > 100));
}

/// All that anybody reads, or why it does not read.
fn all_read(dir: &std::path::Path) -> Result<String, String> {
    let store = Store::open(dir).map_err(|error| error.to_string())?;
    let loaded = store.load().map_err(|error| error.to_string())?;
    let reader = store.reader().map_err(|error| error.to_string())?;
    let listed = reader.read_here(|tables| {
        let id = subprogram(1, 2).subprogram;
        let jobs = (1..6).map(|number| tables.job_record(JobId(number)));
        Ok((
            jobs.collect::<Result<Vec<_>, _>>()?,
            tables.subprogram_records(JobId(1), (0, u32::MAX))?,
            (0..60)
                .map(|index| tables.attempts(SubprogramId { job: JobId(1), index }))
                .collect::<Result<Vec<_>, _>>()?,
            tables.result(id)?,
            tables.is_wanted(ContentHash([9; 32]))?,
        ))
    });
    let listed = listed.map_err(|error| error.to_string())?;
    match check(store.path()).map_err(|error| error.to_string())? {
        Checked::Whole { .. } => Ok(format!("{loaded:?} {listed:?}")),
        Checked::Damaged(detail) => Err(detail),
    }
}

/// Of a coordinator that was killed the last commits are in the log alone.
#[test]
fn a_flipped_bit_in_the_log_is_refused_and_what_is_before_it_can_be_saved() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut store = Store::open(dir.path()).unwrap();
    for number in 1..=3 {
        store.commit(&[Write::Change(Change::Job(Box::new(job(number))))]).unwrap();
    }
    let log = format!("{FILE}-wal");
    for name in [FILE, &log] {
        fs::copy(dir.path().join(name), killed.path().join(name)).unwrap();
    }
    let path = killed.path().join(&log);
    let mut bytes = fs::read(&path).unwrap();
    let (salts, page) = (bytes[16..24].to_vec(), 4096);
    let live = bytes[32..].chunks(24 + page).take_while(|frame| frame[8..16] == salts).count();
    bytes[32 + (live - 1) * (24 + page) + 24 + page / 2] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let refused = Store::open(killed.path()).unwrap_err();
    assert!(matches!(&refused, OpenStoreError::LogDamaged { .. }), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), bytes, "it is left as it is");

    let saved = tempfile::tempdir().unwrap();
    copy(&killed.path().join(FILE), &saved.path().join(FILE)).unwrap();
    let (restored, _) = Store::open(saved.path()).unwrap().load().unwrap();
    assert_eq!(restored.jobs.len(), 2, "the last commit was damaged");
}

/// 45 of 95 flipped bits had changed rows unnoticed. `GLEAN_FLIPS` says how many are
/// tried, spread over all of the file that is not empty; 200 if it is left out.
#[test]
fn no_flipped_bit_changes_what_is_read_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()));
    let path = dir.path().join(FILE);
    let expected = all_read(dir.path()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let (mut noticed, mut harmless) = (0, 0);
    let flips = std::env::var("GLEAN_FLIPS").ok().and_then(|text| text.parse().ok());
    let bits: Vec<usize> = (0..bytes.len() * 8).filter(|at| bytes[at / 8] != 0).collect();
    // An odd step, so that every bit of a byte has its turn.
    for at in bits.iter().step_by((bits.len() / flips.unwrap_or(200)) | 1) {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        for log in ["-wal", "-shm"] {
            let _ = fs::remove_file(dir.path().join(format!("{FILE}{log}")));
        }
        fs::write(&path, &flipped).unwrap();
        match all_read(dir.path()) {
            Err(why) => {
                noticed += 1;
                assert!(!why.contains('\n') || !why.contains("restore"), "{why}");
            }
            Ok(read) => {
                assert_eq!(read, expected, "bit {} of byte {}", at % 8, at / 8);
                harmless += 1;
            }
        }
    }
    println!("measured: of flipped bits {noticed} were noticed, {harmless} changed nothing");
    assert!(noticed > 1, "{noticed} noticed, {harmless} changed nothing");
}

#[test]
fn what_was_learned_and_does_not_read_is_learned_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let learned = |workstation: u32| LearnedRecord {
        workstation: Some(WorkstationId(workstation)),
        bytes: vec![7; 10],
    };
    let keep = |store: &mut Store, workstation| {
        store.commit(&[Write::Change(Change::Learned(learned(workstation)))]).unwrap();
    };
    (3..=4).for_each(|workstation| keep(&mut store, workstation));
    drop(store);
    let plain = Connection::open(dir.path().join(FILE)).unwrap();
    plain.execute("UPDATE learned SET learned = x'00' WHERE workstation = 3", []).unwrap();
    drop(plain);
    let mut store = Store::open(dir.path()).unwrap();
    assert_eq!(store.load().unwrap().0.learned, [learned(4)]);
    keep(&mut store, 3);
    assert_eq!(store.load().unwrap().0.learned, [learned(3), learned(4)]);
}

#[test]
fn a_row_that_was_changed_is_named() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()));
    let other = Connection::open(dir.path().join(FILE)).unwrap();
    other.execute_batch("UPDATE attempts SET workstation = 77 WHERE fence = 12").unwrap();
    drop(other);
    let store = Store::open(dir.path()).unwrap();
    let why = store.load().unwrap_err().to_string();
    assert!(why.contains("row 12 of attempts is not as it was written"), "{why}");
    assert!(
        matches!(check(store.path()).unwrap(), Checked::Damaged(why) if why.contains("row 12"))
    );
}

/// An update sealed the whole row, whatever the columns held that it did not write.
#[test]
fn a_row_that_was_changed_stays_damaged_when_another_column_of_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let other = Connection::open(dir.path().join(FILE)).unwrap();
    other.execute_batch("UPDATE attempts SET workstation = 77 WHERE fence = 12").unwrap();
    drop(other);
    let write = "UPDATE attempts SET ended = 7 WHERE fence = 12";
    store.writer.0.execute_batch(write).unwrap();
    assert!(
        matches!(check(store.path()).unwrap(), Checked::Damaged(why) if why.contains("row 12"))
    );
}

#[test]
fn a_database_that_was_emptied_beside_its_authority_is_not_made_anew() {
    for left in [&b""[..], b"S", b"no database at all, and long", b"SQLite format 3\0cut off"] {
        let dir = tempfile::tempdir().unwrap();
        gleaner_shell::identity::Authority::create(dir.path()).unwrap();
        fs::write(dir.path().join(FILE), left).unwrap();
        refused(dir.path(), "is no database any more");
        assert_eq!(fs::read(dir.path().join(FILE)).unwrap(), left);
    }
    // A coordinator that died while it made the first one has no authority yet.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE), b"").unwrap();
    Store::open(dir.path()).unwrap();
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let other = Connection::open(dir.path().join(FILE)).unwrap();
    other.execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    drop(other);
    refused(dir.path(), "is not a coordinator's database");
}

#[test]
fn a_damaged_database_is_said_to_be_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let changes = (1..200).map(|number| Change::Job(Box::new(job(number)))).collect();
    store.commit(&writes(changes)).unwrap();
    drop(store);
    let path = dir.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    for page in bytes.chunks_mut(4_096).skip(1) {
        page[..64].fill(0xa5);
    }
    fs::write(&path, &bytes).unwrap();
    refused(dir.path(), "is damaged");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn batches_are_released_in_order_and_after_their_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let reading = store.reader().unwrap();
    let (tell, told) = mpsc::channel();
    let running = start(store.into_writer(), move |from| tell.send(from).unwrap()).unwrap();
    for number in 1..=500 {
        let writes = writes(vec![Change::Job(Box::new(job(number)))]);
        running.batches.send(Batch { writes, release: vec![number] }).unwrap();
    }
    let mut next = 1;
    while next <= 500 {
        let FromStore::Released(released) = told.recv_timeout(PATIENCE).unwrap() else {
            panic!("the store refuses");
        };
        for number in released {
            assert_eq!(number, next);
            assert!(
                reading.read_here(|tables| tables.job_record(JobId(number))).unwrap().is_some()
            );
            next += 1;
        }
    }
    drop(running.batches);
    running.thread.join().unwrap();
}

#[test]
fn a_disk_that_refuses_releases_nothing_and_a_stop_still_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let store_writer = store.into_writer();
    // SQLite's own limit stands for a full disk: both are SQLITE_FULL.
    let pages: i64 = store_writer.0.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    store_writer.0.pragma_update(None, "max_page_count", pages).unwrap();
    let (tell, told) = mpsc::channel();
    let running = start(store_writer, move |from| tell.send(from).unwrap()).unwrap();
    let mut large = job(1);
    large.spec.environment = vec![("A".into(), "x".repeat(100_000))];
    // There may be free pages; ten of these do not fit in them.
    let mut refused = None;
    for number in 1..=100 {
        large.job = JobId(number);
        let writes = writes(vec![Change::Job(Box::new(large.clone()))]);
        running.batches.send(Batch { writes, release: vec![number] }).unwrap();
        if let FromStore::Refusing(why) = told.recv_timeout(PATIENCE).unwrap() {
            refused = Some((number, why));
            break;
        }
    }
    let (number, why) = refused.expect("it never refused");
    assert!(why.contains("full"), "{why}");
    assert_eq!(running.health.trouble(), Some(why));
    // Stopping meanwhile ends it, with nothing told.
    drop(running.batches);
    running.thread.join().unwrap();
    assert!(told.try_recv().is_err());
    let store = Store::open(dir.path()).unwrap();
    assert!(read(&store, |tables| tables.job_record(JobId(number))).is_none());
}

#[test]
fn a_programs_events_notes_and_parts_come_back_until_it_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let mut record = job(1);
    record.spec.program = Some(ProgramSpec { ranks_max: 4, ..ProgramSpec::default() });
    record.progress.life = Life(2);
    record.progress.spawned = 3;
    let event = |life, sequence, byte| Change::ProgramEvent {
        job: JobId(1),
        life: Life(life),
        sequence,
        bytes: vec![byte],
    };
    let part = ContentHash([9; 32]);
    let coming = Coming { from: WorkstationId(4), old: Fence::of(7), keep: Keep::SubtaskStart };
    let moves = AttemptRecord { coming: Some(coming), ..attempt(8, None) };
    let arrived = AttemptRecord { arrived: true, ..attempt(9, None) };
    let done = SubprogramRecord { state: SubprogramState::Succeeded, ..subprogram(1, 2) };
    let incarnation = Incarnation(u64::MAX - 1);
    store
        .commit(&[Write::Record(DirectoryRecord::Workstation {
            workstation: WorkstationId(4),
            name: "desk".into(),
        })])
        .unwrap();
    store
        .commit(&writes(vec![
            Change::Incarnation { workstation: WorkstationId(4), incarnation },
            Change::Others { workstation: WorkstationId(4), bytes: vec![7] },
            Change::Job(Box::new(record.clone())),
            event(1, 0, 1),
            event(1, 1, 2),
            event(2, 0, 3),
            event(2, 1, 4),
            event(2, 2, 5),
            event(2, 3, 6),
            // All of it so far.
            event(2, 0, 7),
            event(2, 1, 8),
            Change::Notes { job: JobId(1), notes: vec!["one".into(), "two".into()] },
            Change::Cuts { job: JobId(1), parts: vec![ContentHash([1; 32])] },
            Change::Cuts { job: JobId(1), parts: vec![part] },
            Change::Attempt(moves.clone()),
            Change::Attempt(arrived.clone()),
            Change::Subprogram(done.clone()),
            Change::Result {
                subprogram: done.subprogram,
                accepted: false,
                finished: Box::new(finished(7)),
            },
        ]))
        .unwrap();
    drop(store);
    let mut store = Store::open(dir.path()).unwrap();
    let (restored, _) = store.load().unwrap();
    let bytes: Vec<_> = restored.events.iter().map(|it| (it.life, it.bytes[0])).collect();
    assert_eq!(bytes, [(Life(2), 7), (Life(2), 8)], "what came before is not needed");
    let notes = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(restored.jobs, [JobRecord { notes, ..record }]);
    assert_eq!(restored.attempts, [moves, arrived]);
    assert_eq!(restored.subprograms, [done], "all ranks, those that have ended too");
    assert_eq!(restored.incarnations, [(WorkstationId(4), incarnation)]);
    assert_eq!(restored.others, [(WorkstationId(4), vec![7])]);
    assert!(read(&store, |tables| tables.is_wanted(part)));
    assert!(!read(&store, |tables| tables.is_wanted(ContentHash([1; 32]))));

    store.commit(&writes(vec![Change::ProgramOver { job: JobId(1) }])).unwrap();
    assert!(!read(&store, |tables| tables.is_wanted(part)));
    assert_eq!(store.load().unwrap().0.events, []);
    let accepted: bool =
        store.writer.0.query_row("SELECT accepted FROM results", [], |row| row.get(0)).unwrap();
    assert!(accepted);
}
