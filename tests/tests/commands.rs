//! Each command's output, of a lab that runs.

use anyhow::Result;
use gleaner_lab::Lab;
use gleaner_lab::terminal::Terminal;
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

/// What `glean` shows on a terminal.
fn on_a_terminal(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let mut terminal = Terminal::open(None)?;
    terminal.attach(lab.command(arguments)?, || Ok(()))?;
    Ok(String::from_utf8(terminal.shown()?)?)
}

#[test]
fn what_a_guest_printed_does_nothing_to_a_terminal_unless_it_is_asked_to() -> Result<()> {
    let mut options = options(1)?;
    options.host.places = 1;
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(1)?;
    let printed = "\u{1b}[2K\u{1b}[1Ajob 9 is mine\r\u{1b}[31mred\u{1b}]0;title\u{7}\tend\n";
    let escaped = r"printf '\033[2K\033[1Ajob 9 is mine\r\033[31mred\033]0;title\007\tend\n'";
    let job = lab.submit(&["--", "sh", "-c", escaped])?;
    lab.wait_for_job(job)?;
    let (job, first) = (job.to_string(), format!("{job}.0"));
    let safe = "\\u001b[2K\\u001b[1Ajob 9 is mine\\u000d\u{1b}[31mred\\u001b]0;title\\u0007\tend\n\u{1b}[0m";
    assert_eq!(on_a_terminal(&lab, &["logs", &first])?, safe);
    assert!(on_a_terminal(&lab, &["logs", &job])?.contains(safe));
    assert_eq!(on_a_terminal(&lab, &["logs", &first, "--raw"])?, printed);
    assert_eq!(lab.text(&["logs", &first])?, printed, "in a pipe it is what it was");
    Ok(())
}

#[test]
fn what_several_workstations_agree_on_counts_and_what_they_do_not_is_held() -> Result<()> {
    let mut options = options(3)?;
    options.host.places = 1;
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(3)?;
    let results = lab.dir().join("agreed").display().to_string();
    let agree = "echo {i}; echo took $$ s >&2; echo $((6 * {i})) > \"$GLEAN_OUTPUT/six\"";
    let job = lab.submit(&[
        "--replicas",
        "2",
        "--count",
        "4",
        "--out",
        &results,
        "--",
        "sh",
        "-c",
        agree,
    ])?;
    assert_eq!(lab.wait_for_job(job)?["summary"]["succeeded"], 4);
    assert_eq!(lab.text(&["logs", &format!("{job}.3")])?, "3\n");
    lab.text(&["fetch", &job.to_string(), "--out", &results])?;
    assert_eq!(std::fs::read_to_string(lab.dir().join("agreed/3/six"))?, "18\n");
    let shown = lab.text(&["job", &format!("{job}.3")])?;
    assert_eq!(shown.matches("agrees").count(), 2, "{shown}");

    // Each of three workstations says something else, and there is no fourth.
    let differ = "head -c 16 /dev/urandom | od -An -tx1";
    let job = lab.submit(&["--replicas", "2", "--", "sh", "-c", differ])?;
    until("all three have answered", PATIENCE, || {
        let why = lab.text(&["why", &format!("{job}.0")])?;
        Ok((why.matches("host").count() >= 3 && why.contains("another workstation")).then_some(()))
    })?;
    lab.text(&["cancel", &job.to_string()])?;
    let refused = lab.run(&["logs", &format!("{job}.0")])?;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("nothing of subprogram"), "{told}");
    assert_eq!(lab.text(&["logs", &format!("{job}.0"), "--replica", "1"])?.len(), 49);
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
