//! Whole-system tests: labs of real daemons, terminals, links and guests.
//!
//! What a lab needs and the machine does not allow is switched off aloud:
//! [`lab_or_skip`] prints why and the test ends there.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
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

/// A program of `program/examples`, built beside the tests.
///
/// # Errors
/// It has not been built.
pub fn example(name: &str) -> Result<PathBuf> {
    let program = glean()?.with_file_name("examples").join(name);
    anyhow::ensure!(
        program.exists(),
        "{} is missing: run `cargo build --examples` first",
        program.display()
    );
    Ok(program)
}

/// Submits a program of `program/examples`: options of `glean submit`, then
/// the program's own.
///
/// # Errors
/// It has not been built, or the job is refused.
pub fn submit_example(lab: &Lab, options: &[&str], name: &str, own: &[&str]) -> Result<u64> {
    let program = format!("{}={name}", example(name)?.display());
    let command = format!("./{name}");
    let mut arguments = vec!["--input", program.as_str()];
    arguments.extend(options);
    arguments.extend(["--", command.as_str()]);
    arguments.extend(own);
    lab.submit(&arguments)
}

/// Waits for a program's end, which must be a good one, and gives what it
/// printed.
///
/// # Errors
/// It does not end, or not well: the message carries what is known of it.
pub fn answer(lab: &Lab, job: u64) -> Result<String> {
    let number = job.to_string();
    let told = || {
        let commands: [&[&str]; 3] =
            [&["job", &number], &["why", &number], &["logs", &number, "--stderr"]];
        let said =
            commands.map(|command| lab.text(command).unwrap_or_else(|error| format!("{error:#}")));
        said.join("\n")
    };
    let row = lab.wait_for_job(job).with_context(told)?;
    anyhow::ensure!(row["summary"]["state"] == "succeeded", "{row}\n{}", told());
    lab.text(&["logs", &number])
}

/// The subprograms of a job, in order: what `glean job --json` tells of each.
///
/// # Errors
/// There is no such job.
pub fn subprograms(lab: &Lab, job: u64) -> Result<Vec<serde_json::Value>> {
    let rows = lab.rows::<serde_json::Value>(&["job", &job.to_string(), "--json"])?;
    Ok(rows.into_iter().filter(|row| row["subprogram"].is_object()).collect())
}

/// The lab host on which this subprogram is; `None` before it is anywhere.
pub fn host_of(lab: &Lab, row: &serde_json::Value) -> Option<usize> {
    let name = row["workstation"].as_str()?;
    lab.hosts.iter().position(|host| host.name == name)
}

/// An owner comes, and says so: for as long as it takes.
///
/// # Errors
/// The agent does not answer.
pub fn owner_comes(lab: &Lab, host: usize) -> Result<()> {
    let socket = lab.hosts[host].owner_socket().display().to_string();
    lab.text(&["agent", "pause", "2h", "--socket", &socket]).map(drop)
}

/// The owner who said so leaves.
///
/// # Errors
/// The agent does not answer.
pub fn owner_leaves(lab: &Lab, host: usize) -> Result<()> {
    let socket = lab.hosts[host].owner_socket().display().to_string();
    lab.text(&["agent", "resume", "--socket", &socket]).map(drop)
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
pub fn lab_or_skip(options: Options) -> Result<Option<Lab>> {
    let _ = gleaner_shell::log::init(Some("warn"));
    let lab = Lab::start(options)?;
    if lab.missing.is_empty() {
        return Ok(Some(lab));
    }
    gleaner_skip::without_lab(lab.missing.join("; "));
    Ok(None)
}
