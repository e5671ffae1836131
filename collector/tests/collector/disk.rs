//! The directory and the disk: held by another, full, and free again.

use std::fs;

use gleaner_collector::archive::Archive;
use gleaner_collector::log::Appended;
use gleaner_collector::store::{OpenStoreError, Store};
use gleaner_disks::SmallDisk;

use crate::records::{batch, kept, record};

#[test]
fn a_second_collector_is_refused_with_the_first_ones_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path()).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenStoreError::InUse { .. }));
    assert_eq!(
        error.to_string(),
        format!(
            "{} is in use by another collector or import (process {})",
            dir.path().display(),
            std::process::id()
        )
    );
    drop(first);
    Store::open(dir.path()).unwrap();
}

#[test]
fn many_workstations_are_answered_in_order_in_one_call() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let names: Vec<String> = (0..40).map(|n| format!("ws-{n:02}")).collect();
    let mut batches: Vec<_> = names.iter().map(|name| batch(name, 1..=3)).collect();
    batches.push(batch("ws-07", 2..=5));
    let answers: Vec<_> = store.append(&batches).into_iter().map(Result::unwrap).collect();
    assert_eq!(answers[..40], vec![Appended { new: 3, ..Appended::default() }; 40]);
    assert_eq!(answers[40], Appended { new: 2, duplicates: 2, ..Appended::default() });
    assert_eq!(kept(dir.path(), "ws-07"), (1..=5).map(record).collect::<Vec<_>>());
}

#[test]
fn one_bad_log_does_not_hold_up_the_others() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("bob")).unwrap();
    fs::write(dir.path().join("bob/00000001.log"), "no log at all").unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let answers = store.append(&[batch("ada", 1..=3), batch("bob", 1..=3), batch("cyd", 1..=3)]);
    assert!(answers[0].is_ok() && answers[1].is_err() && answers[2].is_ok());
    assert_eq!(kept(dir.path(), "cyd").len(), 3);
}

#[test]
fn damage_that_a_summary_does_not_know_of_is_listed_when_all_logs_were_looked_through() {
    let dir = tempfile::tempdir().unwrap();
    let ada = |file: &str| dir.path().join("ada").join(file);
    Store::open(dir.path()).unwrap().append(&[batch("ada", 1..=3), batch("bob", 1..=3)]);
    let mut first = fs::read(ada("00000001.log")).unwrap();
    let header = "gleanlog".len() + 2 + 2 + "ada".len() + 4;
    fs::write(ada("00000002.log"), &first[..header]).unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.append(&[batch("ada", 4..=6)]).remove(0).unwrap();
    assert!(ada("00000001.sum").exists());
    first[header + 20] ^= 1;
    fs::write(ada("00000001.log"), first).unwrap();
    let damage = || Archive::new(dir.path()).summary(&"ada".parse().unwrap()).unwrap().damage;
    assert_eq!(damage().len(), 0);
    while store.look() {}
    assert_eq!(damage().len(), 1);
}

#[test]
fn a_full_disk_defers_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount(256).unwrap() else { return };
    let data = disk.path().join("data");
    let mut store = Store::open(&data).unwrap();
    let (mut confirmed, mut next) = (0, 1);
    let error = loop {
        match store.append(&[batch("ada", next..=next + 99)]).remove(0) {
            Ok(_) => confirmed = next + 99,
            Err(error) => break error,
        }
        next = confirmed + 1;
        assert!(next < 100_000, "256 KiB do not fill");
    };
    let path = data.join("ada/00000001.log");
    assert_eq!(error.to_string(), format!("cannot append to {}", path.display()));
    let source = std::error::Error::source(error.as_ref()).unwrap().to_string();
    assert!(source.starts_with("No space left on device"), "{source}");
    // Nothing of what failed is left, and a reader finds nothing to complain of.
    assert_eq!(kept(&data, "ada"), (1..=confirmed).map(record).collect::<Vec<_>>());
    // Still full: the same answer again, also for a workstation that is new.
    let answers = store.append(&[batch("ada", next..=next + 999), batch("bob", 1..=999)]);
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert!(disk.resize(4 << 10));
    let answers = store.append(&[batch("ada", next..=next + 999), batch("bob", 1..=999)]);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(kept(&data, "ada"), (1..=next + 999).map(record).collect::<Vec<_>>());
    assert_eq!(kept(&data, "bob"), (1..=999).map(record).collect::<Vec<_>>());
}
