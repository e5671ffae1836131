//! The Python module and its examples: each rank a process over real pipes,
//! and all of them in one process.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::process::Command;

use gleaner_program::{Change, Obligation};
use support::agent::Setup;

fn example(name: &str) -> Command {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut command = Command::new("python3");
    command
        .arg(format!("{program}/examples/python/{name}.py"))
        .env("PYTHONPATH", format!("{program}/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GLEAN_LIBRARY", support::built().join("deps/libglean_program.so"));
    command
}

fn has_python() -> bool {
    let has = Command::new("python3").arg("--version").output().is_ok();
    if !has {
        gleaner_skip::without_lab("no python3");
    }
    has
}

#[track_caller]
fn told(ran: &support::Ran) -> String {
    assert_eq!(ran.complaints, [""; 0]);
    let failed = ran.ranks.iter().find(|(_, process)| !process.status.success());
    assert!(failed.is_none(), "{failed:?}");
    ran.ranks.values().map(|process| process.output.as_str()).collect()
}

#[test]
fn a_program_in_python_runs_as_processes_and_alone() {
    if !has_python() {
        return;
    }
    let ran = support::run(3, &mut example("ring"));
    assert_eq!(told(&ran), "ring: answer ok: round 3 ranks\n");
    for ranks in ["1", "4"] {
        let output = example("ring").arg(ranks).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told, format!("ring: answer ok: round {ranks} ranks\n"), "{error}");
        assert!(output.status.success());
    }
}

const PRIMES: &str = "bag: answer ok: 2262 primes below 20000\n";

#[test]
fn a_bag_in_python_is_worked_off_though_a_worker_retreats() {
    if !has_python() {
        return;
    }
    let setup = Setup { ranks: 3, retreats: vec![(2, 1)], ..Setup::default() };
    assert_eq!(told(&support::run_with(setup, &mut example("bag"))), PRIMES);
    let ran = support::run_with(Setup::default(), example("bag").arg("spawn"));
    assert_eq!(told(&ran), PRIMES);
    assert_eq!(ran.ranks.len(), 4);
    let alone = example("bag").output().unwrap();
    assert_eq!(alone.stdout, PRIMES.as_bytes(), "{}", String::from_utf8_lossy(&alone.stderr));
}

#[test]
fn a_malleable_bag_in_python_asks_for_workers_is_offered_more_and_sends_some_away() {
    if !has_python() {
        return;
    }
    let offers = vec![
        (Change::Grow { by: 2 }, Obligation::Voluntary),
        (Change::Shrink { by: 3 }, Obligation::Mandatory),
    ];
    let setup = Setup { processors: 4, offers, ..Setup::default() };
    let ran = support::run_with(setup, example("bag").arg("malleable"));
    assert_eq!(told(&ran), PRIMES);
    assert_eq!(ran.ranks.len(), 5, "two that it asked for, and two that it was offered");
    let alone = example("bag").arg("malleable").output().unwrap();
    assert_eq!(alone.stdout, PRIMES.as_bytes(), "{}", String::from_utf8_lossy(&alone.stderr));
}

#[test]
fn a_failure_in_python_is_raised() {
    if !has_python() {
        return;
    }
    let output = example("ring").arg("0").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.ends_with("glean.Error: a program of no ranks\n"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}
