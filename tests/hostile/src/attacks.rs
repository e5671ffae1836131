//! Running attacks: several at a time, each by its name, with the time it took.

use std::io::{Write as _, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::Result;
use gleaner_shell::clock::Clock;

use crate::world::World;

/// How many are under way at a time: most of each is waiting.
const AT_ONCE: usize = 4;

/// What is under way for longer has stopped something for good: all ends, and is told.
const LONGEST: Duration = Duration::from_secs(300);

/// What is tried, and shown not to work.
#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// Beside others.
    Beside(fn(&World) -> Result<()>),
    /// It takes a daemon down, or needs the lab as it says: with nobody beside it.
    Alone(fn(&mut World) -> Result<()>),
    /// Without a lab.
    Bare(fn() -> Result<()>),
}

/// A claim, and what shows it.
pub type Claim = (&'static str, Attack);

/// The claims of functions of those names: `claims!(Beside: one, two)`.
#[macro_export]
macro_rules! claims {
    ($kind:ident: $($name:ident),+ $(,)?) => {
        &[$((stringify!($name), $crate::attacks::Attack::$kind($name))),+]
    };
}

/// The tests' `main`: filters are parts of names; `--list` names them all.
pub fn run(claims: &[Claim]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_chosen =
        |name: &str| filters.is_empty() || filters.iter().any(|part| name.contains(part.as_str()));
    let chosen: Vec<Claim> = claims.iter().filter(|(name, _)| is_chosen(name)).copied().collect();
    if arguments.iter().any(|word| word == "--list") {
        for (name, _) in &chosen {
            say(&format!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    let began = Clock.now();
    let failed = run_all(&chosen);
    let took = Clock.now().since(began);
    // Those that were left out, aloud, are among them.
    let passed = chosen.len() - failed.len();
    say(&format!("\n{passed} passed; {} failed in {}: {failed:?}", failed.len(), spoken(took)));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_all(chosen: &[Claim]) -> Vec<&'static str> {
    let mut failed = vec![];
    let mut note = |name, passed: bool| {
        if !passed {
            failed.push(name);
        }
    };
    let is_bare = |claim: &&Claim| matches!(claim.1, Attack::Bare(_));
    for (name, attack) in chosen.iter().filter(is_bare) {
        let Attack::Bare(attack) = attack else { continue };
        note(*name, tried(name, attack));
    }
    if chosen.iter().all(|claim| is_bare(&claim)) {
        return failed;
    }
    let mut world = match World::start() {
        Ok(Some(world)) => world,
        Ok(None) => return failed,
        Err(error) => {
            say(&format!("the lab does not start: {error:#}"));
            return chosen.iter().map(|(name, _)| *name).collect();
        }
    };
    for name in beside(&world, chosen) {
        note(name, false);
    }
    for (name, attack) in chosen {
        let Attack::Alone(attack) = attack else { continue };
        note(*name, tried(name, || attack(&mut world)));
    }
    failed
}

/// Those that failed of the ones that need not be alone. The threads are where the
/// lab's own is, in every namespace.
fn beside(world: &World, chosen: &[Claim]) -> Vec<&'static str> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let work = || {
        while let Some((name, attack)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Attack::Beside(attack) = attack else { continue };
            if !tried(name, || attack(world)) {
                failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(*name);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn tried(name: &str, attack: impl FnOnce() -> Result<()>) -> bool {
    let began = Clock.now();
    let (over, watch) = channel::<()>();
    let watched = name.to_owned();
    std::thread::spawn(move || {
        if watch.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
            say(&format!("test {watched} ... FAILED: no end in {}", spoken(LONGEST)));
            std::process::abort();
        }
    });
    let done = catch_unwind(AssertUnwindSafe(attack));
    drop(over);
    let took = spoken(Clock.now().since(began));
    let passed = match done {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            say(&format!("{name}: {error:#}"));
            false
        }
        Err(_) => false,
    };
    say(&format!("test {name} ... {} ({took})", if passed { "ok" } else { "FAILED" }));
    passed
}

fn spoken(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}
