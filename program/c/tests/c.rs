//! The C examples, as they are compiled against `glean.h` and the library:
//! each rank a process over real pipes, and all of them in one process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use gleaner_program::{Change, Obligation};
use support::agent::Setup;

/// Where the examples are, made with this build's library.
fn made() -> &'static PathBuf {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/c");
        let made = Command::new("make")
            .args(["-s", "-C", examples])
            .arg(format!("LIBRARY={}", support::built().join("deps").display()))
            .arg(format!("OUT={}", path.display()))
            .status();
        assert!(made.unwrap().success());
        (directory, path)
    });
    path
}

fn example(name: &str) -> Command {
    Command::new(made().join(name))
}

#[track_caller]
fn told(ran: &support::Ran) -> String {
    assert_eq!(ran.complaints, [""; 0]);
    let failed = ran.ranks.iter().find(|(_, process)| !process.status.success());
    assert!(failed.is_none(), "{failed:?}");
    ran.ranks.values().map(|process| process.output.as_str()).collect()
}

#[test]
fn a_program_in_c_runs_as_processes_and_alone() {
    for ranks in [4, 5] {
        let ran = support::run(ranks, &mut example("ring"));
        assert_eq!(told(&ran), format!("ring: answer ok: round {ranks} ranks\n"));
    }
    for ranks in ["1", "2", "7"] {
        let output = example("ring").arg(ranks).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told, format!("ring: answer ok: round {ranks} ranks\n"), "{error}");
        assert!(output.status.success());
    }
}

const PRIMES: &str = "bag: answer ok: 17984 primes below 200000\n";

#[test]
fn a_bag_in_c_is_worked_off_though_a_worker_retreats() {
    let retreats = vec![(2, 1)];
    let setup = Setup { ranks: 3, retreats, ..Setup::default() };
    assert_eq!(told(&support::run_with(setup, &mut example("bag"))), PRIMES);
    assert_eq!(example("bag").output().unwrap().stdout, PRIMES.as_bytes());
}

#[test]
fn a_program_in_c_spawns_what_it_can_have() {
    let ran = support::run_with(Setup::default(), example("bag").arg("spawn"));
    assert_eq!(told(&ran), PRIMES);
    assert_eq!(ran.ranks.len(), 4);
    assert_eq!(example("bag").arg("spawn").output().unwrap().stdout, PRIMES.as_bytes());
}

const OFFERS: [(Change, Obligation); 2] = [
    (Change::Grow { by: 2 }, Obligation::Voluntary),
    (Change::Shrink { by: 3 }, Obligation::Mandatory),
];

#[test]
fn a_malleable_bag_in_c_asks_for_workers_is_offered_more_and_sends_some_away() {
    let setup = Setup { processors: 4, offers: OFFERS.to_vec(), ..Setup::default() };
    let ran = support::run_with(setup, example("bag").arg("malleable"));
    assert_eq!(told(&ran), PRIMES);
    assert_eq!(ran.ranks.len(), 5, "two that it asked for, and two that it was offered");
    assert_eq!(example("bag").arg("malleable").output().unwrap().stdout, PRIMES.as_bytes());
}

#[test]
fn a_failure_is_said_in_words_and_the_process_goes_on() {
    let output = example("ring").arg("0").output().unwrap();
    assert_eq!(output.status.code(), Some(15));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "ring: a program of no ranks\n");
}
