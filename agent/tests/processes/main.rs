//! Guests, keepers and agents as real processes.
//!
//! No harness: an agent starts its keepers as itself, so this program must be
//! both the tests and the keeper (`glean keeper`).

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "all of this is tests, without the attribute that tells clippy so"
)]

mod agent;
mod containment;
mod coordinator;
mod helpers;
mod images;
mod leftovers;
mod machine;
mod moving;
mod ranks;
mod remote;
mod sessions;
mod strangers;
mod travels;
mod watchdog;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "keeper") {
        return gleaner_agent::container::keeper::keeper_main();
    }
    if let [first, path] = arguments.as_slice()
        && first == "agent"
    {
        return agent::main(path);
    }
    if let [first, socket] = arguments.as_slice()
        && first == "presence"
    {
        return helpers::main(socket);
    }
    if let [first, program] = arguments.as_slice()
        && first == "rank"
    {
        return ranks::main(program);
    }
    let filters: Vec<_> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let tests = containment::TESTS
        .iter()
        .chain(agent::TESTS)
        .chain(helpers::TESTS)
        .chain(images::TESTS)
        .chain(leftovers::TESTS)
        .chain(moving::TESTS)
        .chain(ranks::TESTS)
        .chain(remote::TESTS)
        .chain(strangers::TESTS)
        .chain(travels::TESTS)
        .chain(watchdog::TESTS);
    let chosen: Vec<&Test> = tests
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|part| name.contains(*part)))
        .collect();
    if arguments.iter().any(|word| word == "--list") {
        for (name, _) in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let mut failed = vec![];
    for (name, test) in &chosen {
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            failed.push(*name);
        }
    }
    println!("\n{} passed; {} failed: {failed:?}", chosen.len() - failed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
