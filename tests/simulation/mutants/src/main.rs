//! Plants bugs in a copy of the sources, one at a time, and sees that the
//! tests that stand for the promise notice each.
//!
//! ```text
//! sources ──► copy ──► each catcher passes? ──► bug planted ──► builds? ──► its catcher fails: caught
//! ```

#![allow(clippy::print_stdout, reason = "a tool that prints its table")]

mod list;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use gleaner_shell::clock::Clock;
use serde::Serialize;

use self::list::{List, Mutant};

/// Longer than this, a catcher hangs: that is noticed too.
const CATCHER_WITHIN: Duration = Duration::from_secs(600);

#[derive(Debug, Parser)]
#[command(about = "Plant bugs in a copy of the sources and see who notices")]
struct Options {
    /// Only bugs whose name contains one of these.
    names: Vec<String>,
    /// Print the list and plant nothing.
    #[arg(long)]
    list: bool,
    /// Print a row of JSON for each bug.
    #[arg(long)]
    json: bool,
}

/// What became of one bug.
#[derive(Debug, Serialize)]
struct Row {
    bug: String,
    breaks: String,
    caught_by: String,
    caught: bool,
    /// The line with which its catcher failed.
    noticed: String,
    seconds: u64,
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
    let chosen: Vec<&Mutant> = list.mutants.iter().filter(|it| is_chosen(it, options)).collect();
    ensure!(!chosen.is_empty(), "no bug has such a name: see --list");
    if options.list {
        for mutant in chosen {
            println!("{:<58} {:<20} {}", mutant.name, mutant.breaks, mutant.caught_by);
        }
        return Ok(true);
    }
    let field = Field::new(&root)?;
    let catchers: BTreeSet<&str> = chosen.iter().map(|it| it.caught_by.as_str()).collect();
    for name in catchers {
        eprintln!("without a bug: {name}");
        let (passes, said) = field.run(&list.catchers[name])?;
        ensure!(passes, "`{name}` fails without any bug: {}", last_words(&said));
    }
    let mut all = true;
    for mutant in chosen {
        let row = field.plant(mutant, &list.catchers[&mutant.caught_by])?;
        all &= row.caught;
        print(&row, options.json)?;
    }
    Ok(all)
}

fn is_chosen(mutant: &Mutant, options: &Options) -> bool {
    options.names.is_empty() || options.names.iter().any(|name| mutant.name.contains(name.as_str()))
}

fn print(row: &Row, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(row)?);
    } else {
        let Row { bug, breaks, caught_by, noticed, seconds, .. } = row;
        let verdict = if row.caught { "caught" } else { "MISSED" };
        println!("{verdict}  {bug:<58} {breaks:<20} {caught_by:<14} {seconds:>4} s  {noticed}");
    }
    Ok(())
}

/// The workspace that we were built in.
fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.canonicalize().with_context(|| format!("the sources are not at {}", root.display()))
}

/// A copy of the sources to plant in, with a target of its own.
struct Field {
    root: PathBuf,
    tree: PathBuf,
    target: PathBuf,
}

impl Field {
    /// Copies what has changed since the last time, so that little is built anew.
    fn new(root: &Path) -> Result<Self> {
        let home = root.join("target/mutants");
        let field =
            Self { root: root.to_owned(), tree: home.join("tree"), target: home.join("target") };
        let files = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git lists the sources")?;
        ensure!(files.status.success(), "git does not list the sources");
        let files = String::from_utf8(files.stdout).context("a file's name")?;
        for file in files.split_terminator('\0').filter(|file| root.join(file).is_file()) {
            field.restore(file)?;
        }
        Ok(field)
    }

    fn restore(&self, file: &str) -> Result<()> {
        let wanted = fs::read(self.root.join(file)).with_context(|| file.to_owned())?;
        self.write(file, &wanted)
    }

    fn write(&self, file: &str, wanted: &[u8]) -> Result<()> {
        let path = self.tree.join(file);
        if fs::read(&path).is_ok_and(|there| there == wanted) {
            return Ok(());
        }
        let parent = path.parent().context("a file is somewhere")?;
        fs::create_dir_all(parent)?;
        fs::write(&path, wanted).with_context(|| path.display().to_string())?;
        let mode = fs::metadata(self.root.join(file))?.permissions();
        Ok(fs::set_permissions(&path, mode)?)
    }

    fn plant(&self, mutant: &Mutant, catcher: &[String]) -> Result<Row> {
        let begun = Clock.now();
        self.write(&mutant.file, mutant.planted(&self.root)?.as_bytes())?;
        let outcome = self.build_and_run(catcher);
        self.restore(&mutant.file)?;
        let (passes, said) = outcome.with_context(|| format!("`{}`", mutant.name))?;
        Ok(Row {
            bug: mutant.name.clone(),
            breaks: mutant.breaks.clone(),
            caught_by: mutant.caught_by.clone(),
            caught: !passes,
            noticed: if passes { String::new() } else { last_words(&said) },
            seconds: Clock.now().since(begun).as_secs(),
        })
    }

    fn build_and_run(&self, catcher: &[String]) -> Result<(bool, String)> {
        // Who does not compile has been noticed by nobody.
        let before = catcher.iter().take_while(|it| *it != "--");
        let mut build: Vec<String> = before.cloned().collect();
        match build.first().map(String::as_str) {
            Some("run") => "build".clone_into(&mut build[0]),
            Some("test") => build.push("--no-run".to_owned()),
            _ => bail!("a catcher begins with `run` or `test`"),
        }
        let (builds, said) = self.run(&build)?;
        ensure!(builds, "it does not compile: {}", last_words(&said));
        self.run(catcher)
    }

    /// Does it pass, and what did it say? It runs without a network's or a lab's rights.
    fn run(&self, catcher: &[String]) -> Result<(bool, String)> {
        let within = CATCHER_WITHIN.as_secs().to_string();
        let output = Command::new("timeout")
            .args([within.as_str(), "cargo"])
            .args(catcher)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUST_BACKTRACE", "0")
            .output()
            .context("cargo runs")?;
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), said))
    }
}

/// The line that says what was wrong: after a panic's place, or the last error.
fn last_words(said: &str) -> String {
    let mut lines = said.lines();
    let panicked = lines.find(|line| line.contains("panicked at")).and_then(|_| lines.next());
    let error = || said.lines().find(|line| line.starts_with("error"));
    let line = panicked.or_else(error).or_else(|| said.lines().last()).unwrap_or("it hangs");
    line.chars().filter(|c| !c.is_control()).take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn the_line_after_a_panics_place_says_what_was_wrong() {
        let said = "running 1 test\nthread 'a' panicked at x.rs:1:2:\n7.1 runs twice\nnote: ..";
        assert_eq!(last_words(said), "7.1 runs twice");
        assert_eq!(last_words("error: no such test\nmore"), "error: no such test");
        assert_eq!(last_words(""), "it hangs");
    }
}
