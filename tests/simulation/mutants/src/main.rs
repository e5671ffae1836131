//! Plants bugs in a copy of the sources, one at a time, and sees that the
//! tests that stand for the promise notice each.
//!
//! ```text
//! sources ──► copy ──► each catcher passes? ──► bug planted ──► builds? ──► its catcher fails: caught
//! ```

#![allow(clippy::print_stdout, reason = "a tool that prints its table")]

mod field;
mod list;
mod verdict;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use gleaner_shell::clock::Clock;

use self::field::Field;
use self::list::{List, Mutant};
use self::verdict::Verdict;

#[derive(Debug, Parser)]
#[command(about = "Plant bugs in a copy of the sources and see who notices")]
struct Options {
    /// Only bugs whose name contains one of these.
    names: Vec<String>,
    /// Print the list and plant nothing.
    #[arg(long)]
    list: bool,
    /// Run all tests of a catcher, and name those that notice.
    #[arg(long)]
    find: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("glean-mutants: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Was everything caught?
fn run(options: &Options) -> Result<bool> {
    let root = root()?;
    let list = List::read(&root)?;
    let mut chosen: Vec<&Mutant> =
        list.mutants.iter().filter(|it| is_chosen(it, options)).collect();
    ensure!(!chosen.is_empty(), "no bug has such a name: see --list");
    if options.list {
        for mutant in chosen {
            println!("{:<58} {:<20} {}", mutant.name, mutant.breaks, mutant.noticed_by());
        }
        return Ok(true);
    }
    // Neighbours share what is built for them.
    chosen.sort_by_key(|it| (&it.caught_by, &it.file));
    let field = Field::new(&root)?;
    if !options.find {
        all_pass_without_a_bug(&field, &list, &chosen)?;
    }
    println!("| bug | breaks | noticed by | after | what it said | seconds |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut all = true;
    for mutant in chosen {
        let begun = Clock.now();
        let tests = mutant.test.as_slice();
        let tests = if options.find { &[] } else { tests };
        let verdict = field.plant(mutant, &list.catchers[&mutant.caught_by], tests)?;
        all &= !verdict.passes;
        print(mutant, &verdict, Clock.now().since(begun).as_secs());
    }
    Ok(all)
}

fn is_chosen(mutant: &Mutant, options: &Options) -> bool {
    options.names.is_empty() || options.names.iter().any(|name| mutant.name.contains(name.as_str()))
}

/// Who fails anyway notices nothing.
fn all_pass_without_a_bug(field: &Field, list: &List, chosen: &[&Mutant]) -> Result<()> {
    let mut tests: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for mutant in chosen {
        tests.entry(&mutant.caught_by).or_default().extend(mutant.test.clone());
    }
    for (name, mut tests) in tests {
        tests.sort_unstable();
        tests.dedup();
        eprintln!("without a bug: {name}, {} tests", tests.len());
        let verdict = field.run(&list.catchers[name], &tests)?;
        let Verdict { passes, said, ran, .. } = verdict;
        ensure!(passes, "`{name}` fails without any bug: {said}");
        ensure!(ran == tests.len(), "`{name}` has not all of these tests: {tests:?}");
    }
    Ok(())
}

fn print(mutant: &Mutant, verdict: &Verdict, seconds: u64) {
    let Mutant { name, breaks, .. } = mutant;
    let Verdict { passes, failed, after, said, .. } = verdict;
    let by = if failed.is_empty() { mutant.noticed_by() } else { &failed.join(", ") };
    let by = if *passes { "**nobody**" } else { by };
    println!("| {name} | {breaks} | {by} | {after} | {} | {seconds} |", said.replace('|', "/"));
}

/// The workspace that we were built in.
fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.canonicalize().with_context(|| format!("the sources are not at {}", root.display()))
}
