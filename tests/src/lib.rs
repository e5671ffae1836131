//! Whole-system tests: labs of real daemons, terminals, links and guests.
//!
//! What a lab needs and the machine does not allow is switched off aloud:
//! [`lab_or_skip`] prints why and the test ends there.

use std::path::PathBuf;

use anyhow::{Context, Result};
use gleaner_lab::{Lab, Options};

/// The binary under test: built beside the tests by `cargo build --workspace`.
///
/// # Errors
/// It has not been built.
pub fn glean() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let profile = test.ancestors().nth(2).context("a test lives in target/PROFILE/deps")?;
    let glean = profile.join("glean");
    anyhow::ensure!(glean.exists(), "{} is missing: run `cargo build` first", glean.display());
    Ok(glean)
}

/// Options of a lab of `hosts` hosts.
///
/// # Errors
/// The binary has not been built.
pub fn options(hosts: usize) -> Result<Options> {
    Ok(Options::new(glean()?, hosts))
}

/// A lab with namespaces and cgroups; `None`, said aloud, where the rights do
/// not allow them.
///
/// # Errors
/// The lab does not start.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn lab_or_skip(options: Options) -> Result<Option<Lab>> {
    let _ = gleaner_shell::log::init(Some("warn"));
    let lab = Lab::start(options)?;
    if lab.missing.is_empty() {
        return Ok(Some(lab));
    }
    eprintln!("SKIPPED: this test needs what this machine does not allow:");
    for line in &lab.missing {
        eprintln!("  {line}");
    }
    Ok(None)
}
