//! The demo tells the truth and says what was asked of it.

use std::process::Command;

use anyhow::{Context, Result};
use gleaner_tests::glean;
use serde_json::Value;

fn demo(arguments: &[&str], user: Option<u32>) -> Result<Value> {
    let mut command = Command::new(glean()?);
    command.args(["demo", "--json"]).args(arguments);
    if let Some(user) = user {
        use std::os::unix::process::CommandExt;
        command.uid(user).gid(user).env("HOME", "/tmp");
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "glean demo: {}: {said}", output.status);
    let text = String::from_utf8(output.stdout)?;
    serde_json::from_str(text.trim()).with_context(|| format!("not one record: {text}"))
}

#[track_caller]
fn check_nothing_is_lost(record: &Value, subprograms: u64) {
    assert_eq!(record["workstations"], 4, "{record}");
    assert_eq!(record["subprograms"], subprograms, "{record}");
    assert_eq!(record["completed"], subprograms, "{record}");
    assert_eq!(record["lost"], 0, "{record}");
    assert_eq!(record["duplicated"], 0, "{record}");
    assert_eq!(record["answer_ok"], true, "{record}");
    for key in ["owner_returns", "usage_records"] {
        assert!(record[key].as_u64().is_some_and(|count| count > 0), "{key}: {record}");
    }
    for key in ["retreats", "suspensions", "reaction_p50_s", "reaction_max_s"] {
        assert!(record[key].is_number(), "{key}: {record}");
    }
}

#[test]
fn the_demo_harvests_and_loses_nothing() -> Result<()> {
    let record = demo(&["--subprograms", "200"], None)?;
    check_nothing_is_lost(&record, 200);
    Ok(())
}

/// Somebody who is not root sees the same, and in one line each what is not.
#[test]
fn the_demo_runs_without_root_and_says_what_is_missing() -> Result<()> {
    let nobody = 65_534;
    let root = rustix::process::geteuid().is_root();
    let record = demo(&["--subprograms", "40"], root.then_some(nobody))?;
    check_nothing_is_lost(&record, 40);
    let missing = record["missing"].as_array().map(Vec::len);
    assert!(missing.is_some_and(|lines| lines > 0), "what is missing is said: {record}");
    Ok(())
}
