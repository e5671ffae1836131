//! Workloads on labs: a campaign whose shards are a job, and jobs that arrive,
//! beside what replay says of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use gleaner_lab::Lab;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_tests::{glean, lab_or_skip, options, owner_comes, owner_leaves};
use serde_json::Value;

const CAMPAIGN: &str = r#"
name = "small"
seed = 7
repeats = 3
policies = ["fcfs", "ghafoor"]
chunk_runs = 1
per_job = true

[[sites]]
name = "16"
processors = 16

[[workloads]]
name = "a log"
swf = "logs/small.swf"
malleable = [50]
"#;

const LOG: &str = "\
; MaxProcs: 16
1 0 -1 60 8 -1 -1 8 60 -1 1 -1 -1 -1 -1 -1 -1 -1
2 5 -1 90 4 -1 -1 4 90 -1 1 -1 -1 -1 -1 -1 -1 -1
3 9 -1 30 12 -1 -1 12 30 -1 1 -1 -1 -1 -1 -1 -1 -1
";

fn replay(lab: &Lab, dir: &Path, more: &[&str]) -> Result<Command> {
    let mut command = lab.command(&[&["replay", "workload", "c.toml", "--json"], more].concat())?;
    command.current_dir(dir);
    Ok(command)
}

fn done(mut command: Command) -> Result<Value> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Its client dies; whoever asks again waits for the same job. What is missing
/// afterwards is all that another job does.
#[test]
fn a_campaign_on_a_lab_comes_to_the_same_and_survives_whoever_asked_for_it() -> Result<()> {
    let Some(lab) = lab_or_skip(options(2)?)? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    fs::create_dir(dir.path().join("logs"))?;
    fs::write(dir.path().join("c.toml"), CAMPAIGN)?;
    fs::write(dir.path().join("logs/small.swf"), LOG)?;
    for host in 0..2 {
        owner_comes(&lab, host)?;
    }
    let on_lab = ["--out", "far", "--on", "lab"];
    let mut client = replay(&lab, dir.path(), &on_lab)?.spawn()?;
    let note = dir.path().join("far/lab.json");
    until("the job is submitted", PATIENCE, || Ok(note.exists().then_some(())))?;
    client.kill()?;
    client.wait()?;
    for host in 0..2 {
        owner_leaves(&lab, host)?;
    }
    let outcome = done(replay(&lab, dir.path(), &on_lab)?)?;
    assert_eq!((&outcome["left"], &outcome["jobs"]), (&0.into(), &18.into()), "{outcome}");
    let jobs: Vec<Value> = lab.rows(&["jobs", "--json"])?;
    assert_eq!((jobs.len(), &jobs[0]["summary"]["succeeded"]), (1, &6.into()), "{jobs:?}");
    done(replay(&lab, dir.path(), &["--out", "here"])?)?;
    let read = |name: &str| fs::read(dir.path().join(name));
    for file in ["results.csv", "jobs.csv"] {
        let (far, here) = (read(&format!("far/{file}"))?, read(&format!("here/{file}"))?);
        assert!(far == here, "another {file}");
    }
    fs::remove_file(dir.path().join("far/chunks/000003.parquet"))?;
    done(replay(&lab, dir.path(), &on_lab)?)?;
    let jobs: Vec<Value> = lab.rows(&["jobs", "--json"])?;
    assert_eq!((jobs.len(), &jobs[0]["summary"]["total"]), (2, &1.into()), "{jobs:?}");
    assert!(read("far/results.csv")? == read("here/results.csv")?);
    Ok(())
}

const ARRIVING: &str = r#"
name = "tiny"
seed = 7
policies = ["ghafoor"]

[[sites]]
name = "four"
processors = 4

[[workloads]]
name = "six"
downey = { jobs = 6, sizes = [1, 4], times = ["20s", "60s"] }
gaps = ["5s"]
malleable = [0, 50]
ranges = ["1-4"]
"#;

/// How near it comes is for a quiet machine to say; that it is the same jobs in
/// the same order, for any.
#[test]
fn jobs_that_arrive_are_run_on_a_lab_and_in_replay() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("c.toml");
    fs::write(&file, ARRIVING)?;
    let mut validate = Command::new(glean()?);
    validate.args(["validate", "workload", "--faster", "20", "--part", "200ms", "--json"]);
    let output = validate.arg(&file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let records: Vec<Value> = String::from_utf8(output.stdout)?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect::<Result<_>>()?;
    let [rows @ .., summary] = &records[..] else { anyhow::bail!("nothing is said: {said}") };
    assert_eq!((rows.len(), &summary["runs"]), (2, &2.into()), "{said}");
    assert_eq!(summary["met"].as_bool(), Some(output.status.success()));
    for row in rows {
        let times = |side: &str, of: &str| -> Vec<f64> {
            let jobs = row[side]["jobs"].as_array().into_iter().flatten();
            jobs.filter_map(|job| job[of].as_f64()).collect()
        };
        let (lab, replay) = (times("lab", "started_s"), times("replay", "started_s"));
        assert_eq!((lab.len(), replay.len()), (6, 6), "{row}");
        for side in ["lab", "replay"] {
            // First come, first served.
            let starts = times(side, "started_s");
            assert!(starts.is_sorted_by(|a, b| *a <= b + 1.0), "{side}: {starts:?}");
            let ends = times(side, "ended_s");
            assert!(starts.iter().zip(&ends).all(|(start, end)| start < end), "{side}: {row}");
            let used = row[side]["utilisation"].as_f64();
            assert!(used.is_some_and(|used| 0.3 < used && used <= 1.001), "{side}: {used:?}");
        }
        // Nothing takes less than it is told to sleep.
        let longest = times("lab", "ended_s").into_iter().fold(0.0, f64::max);
        assert!(longest > 0.9 * times("replay", "ended_s").into_iter().fold(0.0, f64::max));
    }
    assert!(rows[1]["printed"]["starts"].is_array(), "his are beside: {}", rows[1]);
    Ok(())
}
