//! Each command's output, of a lab that runs.

use anyhow::Result;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_tests::{lab_or_skip, options};
use serde_json::Value;

#[test]
fn every_listing_is_a_table_for_people_and_records_for_programs() -> Result<()> {
    let mut options = options(4)?;
    options.host.places = 1;
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(4)?;
    let input = lab.dir().join("greeting.txt");
    std::fs::write(&input, "hello from the input\n")?;
    let results = lab.dir().join("results");
    let job = lab.submit(&[
        "--name", "greetings", "--array", "3-9:3", "--env", "WHO=lab", "--input",
        input.to_str().unwrap(), "--out", results.to_str().unwrap(), "--", "sh", "-c",
        "cat greeting.txt; echo {i} $WHO; echo to-stderr >&2; echo $((10 * {i})) > \"$GLEAN_OUTPUT/ten\"",
    ])?;
    let row = lab.wait_for_job(job)?;
    assert_eq!(row["summary"]["succeeded"], 3, "{row}");
    let id = job.to_string();

    let jobs = lab.text(&["jobs"])?;
    assert!(jobs.contains("greetings") && jobs.contains("succeeded"), "{jobs}");
    let rows: Vec<Value> = lab.rows(&["jobs", "--json"])?;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["name"], "greetings");

    let mut rows: Vec<Value> = lab.rows(&["job", &id, "--json"])?;
    let job_row = rows.remove(0);
    assert_eq!(job_row["summary"]["succeeded"], 3, "the job comes first: {job_row}");
    let indexes: Vec<_> = rows.iter().map(|row| row["subprogram"]["index"].as_u64()).collect();
    assert_eq!(indexes, [Some(3), Some(6), Some(9)]);
    assert!(lab.text(&["job", &id])?.contains(&format!("{id}.6")));

    let printed = lab.text(&["logs", &format!("{id}.6")])?;
    assert_eq!(printed, "hello from the input\n6 lab\n");
    assert_eq!(lab.text(&["logs", "--stderr", &format!("{id}.6")])?, "to-stderr\n");

    lab.text(&["fetch", &id, "--out", results.to_str().unwrap()])?;
    assert_eq!(std::fs::read_to_string(results.join("9").join("ten"))?, "90\n");

    let rows: Vec<Value> = lab.rows(&["workstations", "--json"])?;
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["cores"].as_u64().is_some_and(|cores| cores > 0)));
    assert!(lab.text(&["workstations"])?.contains("host3"));

    assert!(lab.text(&["why", "host1"])?.to_lowercase().contains("idle"));
    assert!(lab.text(&["why", &format!("{id}.3")])?.contains("succeeded"));

    let data = lab.collector_data().join("usage").display().to_string();
    until("each workstation has a log", PATIENCE, || {
        let usage: Vec<Value> = lab.rows(&["usage", "ls", "--usage", &data, "--json"])?;
        Ok((usage.len() == 4).then_some(()))
    })?;
    for format in ["csv", "parquet"] {
        let to = lab.dir().join(format!("usage.{format}")).display().to_string();
        lab.text(&["usage", "export", "--usage", &data, "--format", format, "--out", &to])?;
        assert!(std::fs::metadata(&to)?.len() > 0);
    }
    assert!(!lab.text(&["usage", "stats", "--usage", &data])?.is_empty());
    Ok(())
}

#[test]
fn a_job_can_be_waited_for_cancelled_and_asked_about() -> Result<()> {
    let mut options = options(4)?;
    options.host.places = 1;
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(4)?;

    let done = lab.run(&["submit", "--wait", "--", "/bin/true"])?;
    assert_eq!(done.status.code(), Some(0));
    let failed = lab.run(&["submit", "--wait", "--retries", "0", "--", "/bin/false"])?;
    assert_eq!(failed.status.code(), Some(1), "some subprogram failed");
    let nothing = lab.run(&["submit", "--wait", "--", "/no/such/program"])?;
    assert_eq!(nothing.status.code(), Some(1));

    let job = lab.submit(&["--count", "50", "--", "sh", "-c", "while :; do :; done"])?;
    let id = job.to_string();
    let why = lab.text(&["why", &format!("{id}.49")])?;
    assert!(!why.trim().is_empty(), "a waiting subprogram has a reason");
    lab.text(&["cancel", &id])?;
    let row = lab.wait_for_job(job)?;
    assert_eq!(row["summary"]["state"], "cancelled");
    assert_eq!(row["summary"]["cancelled"], 50);

    for (arguments, code) in [
        (vec!["job", "999"], 1),
        (vec!["logs", "999.0"], 1),
        (vec!["why", "no-such-workstation"], 1),
        (vec!["submit", "--array", "9-1", "--", "true"], 2),
    ] {
        let output = lab.run(&arguments)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.starts_with("glean: ") || said.starts_with("error:"), "{said}");
    }
    Ok(())
}

#[test]
fn a_lab_leaves_nothing_behind() -> Result<()> {
    let Some(lab) = lab_or_skip(options(2)?)? else { return Ok(()) };
    let (dir, cgroup) = (lab.dir().to_owned(), lab.cgroup.as_ref().unwrap().path.clone());
    drop(lab);
    assert!(!dir.exists(), "{} is gone", dir.display());
    assert!(!cgroup.exists(), "{} is gone", cgroup.display());
    Ok(())
}
