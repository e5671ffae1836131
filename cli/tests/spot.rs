//! `glean replay spot` as people call it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn glean(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_glean"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

/// A machine that comes for six hours and is gone for three, for ten weeks.
fn trace() -> String {
    let machines: Vec<&str> =
        (0..70 * 24).map(|hour| if hour % 9 < 6 { "1" } else { "0" }).collect();
    format!(r#"{{"metadata":{{"gap_seconds":3600}},"data":[{}]}}"#, machines.join(","))
}

#[test]
fn rules_are_judged_beside_what_one_would_do_without_them() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("zone.json"), trace()).unwrap();
    let said = glean(dir.path(), &["replay", "spot", "zone.json", "--json"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8(said.stdout).unwrap();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rules: Vec<&str> = records.iter().map(|one| one["rule"].as_str().unwrap()).collect();
    let uniform = ["uniform progress"; 3];
    assert_eq!(rules[..3], uniform);
    assert_eq!(rules[3..], ["checkpoints paced by the hazard"]);
    for one in &records {
        let (ours, usual) = (one["ours"].as_f64().unwrap(), one["usual"].as_f64().unwrap());
        assert!((one["ratio"].as_f64().unwrap() - ours / usual).abs() < 1e-6, "{one}");
        assert!(one["runs"].as_u64().unwrap() > 0);
    }
}

#[test]
fn what_is_no_trace_is_told_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("zone.json"), "{}").unwrap();
    let said = glean(dir.path(), &["replay", "spot", "zone.json"]);
    assert!(!said.status.success());
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(told.contains("zone.json") && told.contains("availability trace"), "{told}");
    // Without anything to look at there is nothing to say.
    assert!(!glean(dir.path(), &["replay", "spot"]).status.success());
}
