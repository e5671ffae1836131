//! A coordinator that is brought back from a backup, which its agents have outlived.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gleaner_common::id::{Fence, SubprogramId};
use gleaner_common::wire::{AgentFrame, GuestState, Reply, Request, Role};
use gleaner_coordinator::{BackupError, CoordinatorError, backup, restore};
use gleaner_shell::client::Client;
use gleaner_shell::enrol::enrol;

use crate::agent::{Agent, finished, hello};
use crate::coordinator::{Coordinator, PATIENCE, health, listing, spec, submit, token, watch};
use crate::restart::{Process, SHORT_LEASE, admin, enrolled};

/// What an agent says that has gone on all the while.
fn back(held: Fence, seen: Fence) -> AgentFrame {
    let mut hello = hello(1, 1, vec![(held, GuestState::Running)]);
    let AgentFrame::Hello { seen: latest, .. } = &mut hello else { unreachable!("a hello") };
    *latest = seen;
    hello
}

/// The same fences were given out again: every attempt was refused as overtaken,
/// and the old results were taken for those of new jobs.
#[tokio::test]
async fn a_restored_backup_repeats_no_fence_and_takes_no_old_result() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("lab.backup"));
    let process = Process::start_with_short_lease(dir.path()).await;
    let desk = enrolled(dir.path(), "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let client = admin(dir.path()).await;
    let known = submit(&client, spec(1)).await;
    let first = agent.offer().await.fence;
    agent.started(first).await;
    backup(&data, &file, false).unwrap();
    agent.say(finished(first, "first\n")).await;
    agent.acknowledged(first).await;
    let later = submit(&client, spec(1)).await;
    let second = agent.offer().await.fence;
    agent.started(second).await;
    process.kill();

    let kept = restore(&data, &file).unwrap().kept.unwrap();
    assert!(kept.join("coordinator.sqlite").exists());
    let process = Process::start(dir.path()).await;
    let mut agent = Agent::with(&desk, back(second, second)).await;
    assert_eq!(agent.keep, [], "the store knows nothing of it");
    // The first was open when the backup was taken: its end is told again, when nothing
    // runs any more of what the backup does not know.
    assert_eq!(agent.late_offer(SHORT_LEASE).await.fence, first);
    let of_later = SubprogramId { job: later, index: 0 };
    agent.say(AgentFrame::Unknown(vec![(second, of_later)])).await;
    agent.say(finished(first, "first\n")).await;
    agent.acknowledged(first).await;
    let client = admin(dir.path()).await;
    assert_eq!(watch(&client, known).await.counts.succeeded, 1);
    let Reply::No { reason } = client.request(&Request::Job(later)).await.unwrap() else {
        panic!("{later} is known")
    };
    assert!(reason.contains("it was tried at desk-1 (attempts: 1)"), "{reason}");
    let job = submit(&client, spec(1)).await;
    assert_eq!(job.0, 1_001, "a number that the later self may have given to another");
    let third = agent.offer().await.fence;
    assert!(third > second && third.generation > second.generation, "{third:?} after {second:?}");
    agent.say(finished(second, "of the job that is not known any more\n")).await;
    agent.acknowledged(second).await;
    agent.started(third).await;
    agent.say(finished(third, "third\n")).await;
    let summary = watch(&client, job).await;
    assert_eq!((summary.counts.succeeded, summary.counts.lost), (1, 0));
    let health = health(&client).await;
    assert!(health.went_back.contains("desk-1"), "{health:?}");
    assert_eq!(health.damage, "");
    process.kill();
}

/// A token is good for one newcomer, and a workstation's number for one workstation,
/// whatever a store forgets.
#[tokio::test]
async fn who_was_enrolled_since_a_backup_needs_a_new_token_and_gets_another_number() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("lab.backup"));
    let process = Process::start(dir.path()).await;
    enrolled(dir.path(), "desk-1").await;
    let client = admin(dir.path()).await;
    let address = client.link().address.clone();
    let open = token(&client, Role::Agent, PATIENCE, None).await;
    backup(&data, &file, false).unwrap();
    let since = enrol(&address, &open, "desk-2").await.unwrap();
    process.kill();

    assert_eq!(restore(&data, &file).unwrap().tokens, 1);
    let process = Process::start(dir.path()).await;
    let refused = enrol(&address, &open, "desk-3").await.unwrap_err().to_string();
    assert!(refused.contains("token"), "{refused}");
    let refused = match Client::connect(&since, None).await {
        Ok(client) => client.request(&Request::Health).await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("this identity is not known here"), "{refused}");
    enrolled(dir.path(), "desk-3").await;
    let client = admin(dir.path()).await;
    let rows = listing(&client, Request::Workstations).await;
    let number = |row: Reply| match row {
        Reply::Workstation(row) => row.workstation.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(rows.into_iter().map(number).collect::<Vec<_>>(), [1, 1_001]);
    process.kill();
}

/// Taken and brought back while subprograms come and go: what the backup knew ends.
#[tokio::test]
async fn all_that_a_backup_knew_ends_after_it_was_brought_back() {
    const COUNT: u32 = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let process = Process::start_with_short_lease(dir.path()).await;
    let desk = enrolled(dir.path(), "desk-1").await;
    let client = admin(dir.path()).await;
    let job = submit(&client, spec(COUNT)).await;
    let work = tokio::spawn(Agent::connect(&desk, 1, 4).await.work());
    let mut changes = client.rows(&Request::Watch(job)).await.unwrap();
    let mut files = vec![];
    while let Some(Reply::Summary(summary)) = changes.next().await.unwrap() {
        let parts = 1 + u32::try_from(files.len()).unwrap();
        if summary.counts.succeeded >= COUNT / 10 * parts {
            let file = dir.path().join(format!("{}.backup", files.len()));
            let (data, to) = (data.clone(), file.clone());
            tokio::task::spawn_blocking(move || backup(&data, &to, false)).await.unwrap().unwrap();
            files.push(file);
        }
        if files.len() == 3 {
            break;
        }
    }
    process.kill();
    work.abort();
    // Back, forth, and back again.
    for (life, file) in (2..).zip([&files[2], &files[0], &files[1]]) {
        restore(&data, file).unwrap();
        let process = Process::start(dir.path()).await;
        let client = admin(dir.path()).await;
        let work = tokio::spawn(Agent::follows(&desk, life, 4).await.work());
        let later = submit(&client, spec(20)).await;
        let counts = [watch(&client, job).await.counts, watch(&client, later).await.counts];
        assert_eq!(counts.map(|it| (it.succeeded, it.failed)), [(COUNT, 0), (20, 0)]);
        process.kill();
        work.abort();
    }
}

#[tokio::test]
async fn a_backup_is_its_owners_alone_and_replaces_nothing_by_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let file = dir.path().join("lab.backup");
    backup(dir.path(), &file, false).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = backup(dir.path(), &file, false);
    assert!(matches!(again, Err(BackupError::Exists { .. })), "{again:?}");
    backup(dir.path(), &file, true).unwrap();
    let running = restore(dir.path(), &file);
    let in_use = matches!(running, Err(BackupError::Data(CoordinatorError::InUse { .. })));
    assert!(in_use, "{running:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn what_is_no_whole_backup_is_not_brought_back() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let file = dir.path().join("lab.backup");
    backup(dir.path(), &file, false).unwrap();
    coordinator.stop().await;
    let whole = fs::read(&file).unwrap();
    let before = fs::read(dir.path().join("coordinator.sqlite")).unwrap();
    let check = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let refused = restore(dir.path(), &file).unwrap_err().to_string();
        assert!(!refused.contains('\n'), "{refused}");
        assert_eq!(fs::read(dir.path().join("coordinator.sqlite")).unwrap(), before);
        assert_eq!(leftovers(dir.path()), Vec::<String>::new());
        refused
    };
    assert!(check(&before).contains("is not a backup of a coordinator"));
    assert!(check(b"").contains("is not a backup of a coordinator"));
    for cut in [40, whole.len() / 2, whole.len() - 1] {
        assert!(check(&whole[..cut]).contains("is damaged"), "cut at {cut}");
    }
    for at in [20, 60, whole.len() / 2, whole.len() - 9] {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        assert!(check(&flipped).contains("is damaged"), "flipped at {at}");
    }
    fs::write(&file, &whole).unwrap();
    restore(dir.path(), &file).unwrap();
    Coordinator::start(dir.path()).await.stop().await;
}

#[tokio::test]
async fn what_two_restores_took_the_place_of_is_kept_twice_and_no_number_repeats() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("lab.backup"));
    let process = Process::start(dir.path()).await;
    backup(&data, &file, false).unwrap();
    process.kill();
    let first = restore(&data, &file).unwrap().kept.unwrap();
    let again = restore(&data, &file).unwrap().kept.unwrap();
    assert_ne!(first, again);
    assert!(first.join("coordinator.sqlite").exists());
    let process = Process::start(dir.path()).await;
    let given = submit(&admin(dir.path()).await, spec(1)).await;
    process.kill();
    // As a restore leaves it that is killed: what was there is aside, with its log, and
    // nothing is in its place.
    let aside = data.join("replaced-1");
    fs::create_dir(&aside).unwrap();
    for end in ["", "-wal", "-shm"] {
        let name = format!("coordinator.sqlite{end}");
        let _ = fs::rename(data.join(&name), aside.join(&name));
    }
    restore(&data, &file).unwrap();
    let process = Process::start(dir.path()).await;
    let job = submit(&admin(dir.path()).await, spec(1)).await;
    assert!(job.0 > given.0, "{job} after {given}");
    process.kill();
}

/// What an attempt that came to nothing must not leave.
fn leftovers(data: &Path) -> Vec<String> {
    let names =
        fs::read_dir(data).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("restoring-") || name.starts_with("replaced-")).collect()
}
