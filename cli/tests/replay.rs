//! `glean replay` as people and batch engines call it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const TRACE: &str = "\
gleaner-trace 1
program pair
ranks 2
rank 0
compute 600
send 1 100 0
receive 1 0
compute 600
rank 1
receive 0 0
compute 300
send 0 100 0
compute 900
";

const CAMPAIGN: &str = r#"
name = "small"
seed = 7
chunk_rows = 8
policies = ["last-idle-first", "first-idle-first"]
costs = ["1s", "10s"]

[[programs]]
name = "ring"
ring = { ranks = 3, subtasks = 6, takes = "40min" }

[[networks]]
workstations = 3
periods = 6

[[networks]]
workstations = 4
periods = 2

[periods]
from = "2026-01-05"
to = "2026-01-06"
length = "3h"
"#;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// With the sample log imported.
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(place.path("pair.trace"), TRACE).unwrap();
        fs::write(place.path("small.toml"), CAMPAIGN).unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/usage.csv");
        let sample = sample.to_str().unwrap();
        succeeds(&place.glean(&["usage", "import", "--format", "csv", sample, "--usage", "usage"]));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_glean"));
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn glean(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn run(&self, more: &[&str]) -> Output {
        let arguments = ["replay", "run", "pair.trace", "--usage", "usage", "--length", "3h"];
        self.glean(&[&arguments[..], more].concat())
    }
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn fails(output: &Output, lines: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let found: Vec<&str> = said.lines().collect();
    assert_eq!(found.len(), lines.len(), "{said}");
    for (found, expected) in found.iter().zip(lines) {
        assert!(found.contains(expected), "`{found}` lacks `{expected}`");
    }
}

const AT: [&str; 4] = ["--at", "2026-01-05T09:00:00Z", "--workstations", "4"];

#[test]
fn one_execution_says_where_its_time_went() {
    let place = Place::new();
    let text = succeeds(&place.run(&[&AT[..], &["--cost", "10s", "--json"]].concat()));
    let row: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(row["undisturbed_s"], 1_800.0);
    assert_eq!(row["finished"], true);
    let parts =
        row["critical_path"].as_object().unwrap().values().map(|part| part.as_f64().unwrap());
    let whole = row["execution_s"].as_f64().unwrap();
    assert!((parts.sum::<f64>() - whole).abs() < 1e-6, "{row}");
    assert!(whole >= row["zero_cost_s"].as_f64().unwrap());
    let table = succeeds(&place.run(&AT));
    assert!(table.contains("busy transitions") && table.contains("path: compute"), "{table}");
}

#[test]
fn a_gantt_is_drawn_in_both_formats() {
    let place = Place::new();
    for file in ["out.svg", "out.png"] {
        succeeds(&place.run(&[&AT[..], &["--gantt", file]].concat()));
    }
    assert!(fs::read_to_string(place.path("out.svg")).unwrap().starts_with("<svg"));
    assert!(fs::read(place.path("out.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn what_cannot_be_executed_is_said_in_one_line() {
    let place = Place::new();
    let late = ["--at", "2027-01-05T09:00:00Z", "--workstations", "4"];
    let hint = "hint: the log of 4 workstations goes from 2026-01-05";
    fails(&place.run(&late), &["only 0 workstations have a transition before and one after", hint]);
    let few = ["--at", "2026-01-05T09:00:00Z", "--workstations", "1"];
    fails(&place.run(&few), &["pair.trace has 2 ranks: expected at least as many workstations"]);
    let broken = TRACE.replace("receive 1 0\n", "receive 1 7\n");
    fs::write(place.path("pair.trace"), broken).unwrap();
    fails(&place.run(&AT), &["pair.trace:7: "]);
    fails(
        &place.run(&[&AT[..], &["--policy", "lifo"]].concat()),
        &[
            "`lifo` is not a policy: expected one of last-idle-first",
            "hint: glean replay run --help",
        ],
    );
}

#[test]
fn a_small_campaign_comes_out_as_ever() {
    let place = Place::new();
    let campaign = ["replay", "campaign", "small.toml", "--usage", "usage", "--out", "out"];
    succeeds(&place.glean(&campaign));
    let csv = fs::read_to_string(place.path("out/results.csv")).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/small.csv");
    if std::env::var_os("GLEAN_GOLDEN").is_some() {
        fs::write(&golden, &csv).unwrap();
    }
    assert_eq!(csv, fs::read_to_string(golden).unwrap(), "GLEAN_GOLDEN=1 writes it anew");
}

#[test]
fn a_campaign_that_was_killed_goes_on_and_gives_the_same_bytes() {
    let place = Place::new();
    let long =
        CAMPAIGN.replace("[\"1s\", \"10s\"]", "{ from = \"10ms\", to = \"20s\", step = \"10ms\" }");
    fs::write(place.path("small.toml"), long).unwrap();
    let arguments = |out| ["replay", "campaign", "small.toml", "--usage", "usage", "--out", out];
    succeeds(&place.glean(&arguments("whole")));
    let mut killed = 0;
    // From before the first chunk to after the last, whatever the machine.
    for milliseconds in (0..).map(|try_| 5 << try_) {
        let mut child = place
            .command(&arguments("killed"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            break;
        }
        killed += 1;
    }
    assert!(killed > 0, "it was never killed in time");
    for name in ["results.parquet", "results.csv"] {
        let read = |out: &str| fs::read(place.path(out).join(name)).unwrap();
        assert!(read("killed") == read("whole"), "{name} differs after {killed} kills");
    }
}

#[test]
fn shards_leave_work_to_each_other_and_say_so() {
    let place = Place::new();
    let shard = |shard: &str, threads: &str| {
        let campaign = ["replay", "campaign", "small.toml", "--usage", "usage", "--out", "out"];
        place.glean(&[&campaign[..], &["--json", "--shard", shard, "--threads", threads]].concat())
    };
    let first = shard("1/2", "1");
    assert_eq!(first.status.code(), Some(1));
    let outcome: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert!(outcome["left"].as_u64().unwrap() > 0 && outcome["given_up"].is_null(), "{outcome}");
    let report = place.glean(&["replay", "report", "out", "--out", "report"]);
    fails(
        &report,
        &["out is not complete: ", "hint: the same campaign again goes on where it was"],
    );
    succeeds(&shard("2/2", "3"));
    let files = succeeds(&place.glean(&["replay", "report", "out", "--out", "report", "--json"]));
    assert!(files.lines().count() > 5, "{files}");
    assert!(
        fs::read_to_string(place.path("report/report.md"))
            .unwrap()
            .contains("## What was executed")
    );
}

#[test]
fn campaigns_that_cannot_be_run_are_refused_in_one_line() {
    let place = Place::new();
    let campaign = |more: &[&str]| {
        place.glean(&[&["replay", "campaign", "small.toml", "--out", "out"], more].concat())
    };
    fails(&campaign(&[]), &["small.toml: no usage log is named: expected [usage]", "hint: "]);
    succeeds(&campaign(&["--usage", "usage"]));
    fs::write(place.path("small.toml"), CAMPAIGN.replace("\"10s\"", "\"11s\"")).unwrap();
    fails(
        &campaign(&["--usage", "usage"]),
        &[
            "out holds results of another campaign: the campaign file of `small` has changed",
            "hint: ",
        ],
    );
    fs::write(place.path("small.toml"), CAMPAIGN.replace("costs", "csots")).unwrap();
    fails(&campaign(&["--usage", "usage"]), &["small.toml:6:1: unknown field `csots`, expected"]);
    fails(&campaign(&["--shard", "3/2"]), &["`3/2` is not a shard: expected i/n", "hint: "]);
    let nothing = place.glean(&["replay", "report", "usage", "--out", "report"]);
    fails(&nothing, &["usage holds no results of a campaign"]);
}
