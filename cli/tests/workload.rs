//! `glean replay workload` as people and batch engines call it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const CAMPAIGN: &str = r#"
name = "small"
seed = 7
repeats = 4
policies = ["fcfs", "ghafoor"]
chunk_runs = 1

[[sites]]
name = "16"
processors = 16

[[workloads]]
name = "mixed"
mixed = { jobs = 30, sizes = [1, 12], times = ["1min", "5min"] }
gaps = ["20s"]
malleable = [50]
"#;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("c.toml"), CAMPAIGN).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn glean(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_glean"));
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// What a batch engine starts: a recipe of ours.
    fn recipe(&self, interpreter: &str, name: &str, out: &str) -> Command {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/recipes").join(name);
        let mut command = Command::new(interpreter);
        command.arg(recipe).args(["workload", "c.toml", out]).current_dir(self.dir.path());
        command.env("GLEAN", env!("CARGO_BIN_EXE_glean")).stdin(Stdio::null());
        command
    }

    /// The same as if one process had done all of it.
    #[track_caller]
    fn check_results(&self, out: &str) {
        let whole = self.glean(&["replay", "workload", "c.toml", "--out", "whole", "--json"]);
        assert_eq!(whole.status.code(), Some(0));
        let read = |dir: &str| fs::read(self.path(dir).join("results.csv")).unwrap();
        assert!(read("whole") == read(out), "other results");
    }
}

#[test]
fn without_a_directory_each_run_is_said() {
    let place = Place::new();
    let said = place.glean(&["replay", "workload", "c.toml", "--json"]);
    assert_eq!(said.status.code(), Some(0));
    let lines = String::from_utf8(said.stdout).unwrap();
    let records: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 8);
    assert!(records.iter().all(|record| record["ended"] == 30 && record["turnaround_s"].is_f64()));
    let table = place.glean(&["replay", "workload", "c.toml"]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("ghafoor")).count(), 4, "{text}");
}

#[test]
fn a_mistake_is_one_line_that_says_where() {
    let place = Place::new();
    fs::write(place.path("c.toml"), CAMPAIGN.replace("ghafoor", "gafoor")).unwrap();
    let said = place.glean(&["replay", "workload", "c.toml"]);
    assert_eq!(said.status.code(), Some(2));
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(text.starts_with("glean: c.toml:5:21: `gafoor` is not a scheduling policy"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// A log of a run is read again, and its jobs are those that ran.
#[test]
fn a_run_is_written_as_a_log_that_is_read_again() {
    let place = Place::new();
    for log in ["run.swf", "run.swf.gz"] {
        let done = place.glean(&["replay", "workload", "c.toml", "--swf", log]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let rerun = CAMPAIGN.replace("malleable = [50]", "").replace("gaps = [\"20s\"]", "");
        let mixed = rerun.lines().find(|line| line.starts_with("mixed")).unwrap().to_owned();
        fs::write(place.path("again.toml"), rerun.replace(&mixed, &format!("swf = \"{log}\"")))
            .unwrap();
        let again = place.glean(&["replay", "workload", "again.toml", "--json"]);
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
        let line = again.stdout.split(|byte| *byte == b'\n').next().unwrap();
        let run: Value = serde_json::from_slice(line).unwrap();
        assert_eq!((run["ended"].as_u64(), run["left"].as_u64()), (Some(30), Some(0)));
    }
    let text = fs::read_to_string(place.path("run.swf")).unwrap();
    assert!(text.contains("; MaxProcs: 16\n"), "{text}");
}

#[test]
fn a_slurm_array_of_shards_gives_the_same_results() {
    let place = Place::new();
    // As Slurm would for `--array=4-6`, two of them at once.
    let task = |id: u32| {
        let mut task = place.recipe("sh", "slurm.sh", "parts");
        task.env("SLURM_ARRAY_TASK_ID", id.to_string()).env("SLURM_ARRAY_TASK_MIN", "4");
        task.env("SLURM_ARRAY_TASK_COUNT", "3").env("SLURM_CPUS_PER_TASK", "1");
        task.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [task(4), task(5)];
    for running in both.into_iter().chain([task(6)]) {
        let done = running.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    // Submitted again, it has nothing left to do but to join.
    assert!(task(4).wait_with_output().unwrap().status.success());
    place.check_results("parts");
}

#[test]
fn the_workers_of_dask_give_the_same_results() {
    let python = std::env::var("GLEAN_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_dask = Command::new(&python).args(["-c", "import dask.distributed"]).output();
    if !has_dask.is_ok_and(|output| output.status.success()) {
        return gleaner_skip::without(
            "no Python with dask.distributed, which GLEAN_PYTHON may name",
        );
    }
    let place = Place::new();
    let done = place.recipe(&python, "dask_shards.py", "parts").args(["--shards", "3"]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((said["left"].as_u64(), said["jobs"].as_u64()), (Some(0), Some(240)));
    place.check_results("parts");
}
