//! Message-passing programs on a lab: their ranks run on several workstations,
//! talk to each other, and come to the right answer.

use anyhow::Result;
use gleaner_lab::Lab;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_tests::{answer, lab_or_skip, options, submit_example};

/// Four workstations, three of them with room for sixteen ranks and a host.
fn lab() -> Result<Option<Lab>> {
    let mut options = options(4)?;
    options.host.places = 6;
    let Some(lab) = lab_or_skip(options)? else { return Ok(None) };
    lab.wait_for_idle(4)?;
    Ok(Some(lab))
}

fn ranks_elsewhere(lab: &Lab, job: u64) -> Result<usize> {
    let rows = lab.rows::<serde_json::Value>(&["job", &job.to_string(), "--json"])?;
    let places: std::collections::BTreeSet<&str> =
        rows.iter().filter_map(|row| row["workstation"].as_str()).collect();
    Ok(places.len())
}

#[test]
fn sixteen_ranks_and_a_host_find_the_right_answer_on_four_workstations() -> Result<()> {
    let Some(lab) = lab()? else { return Ok(()) };
    for (name, own) in [
        ("fft", ["--size", "12"]),
        ("mesh", ["--size", "32"]),
        ("determinant", ["--size", "128"]),
        ("circuit", ["--size", "4"]),
    ] {
        let job = submit_example(&lab, &["--ranks", "17"], name, &own)?;
        let said = answer(&lab, job)?;
        assert!(said.contains("answer ok"), "{name}: {said}");
        assert!(ranks_elsewhere(&lab, job)? >= 3, "{name} was on several workstations");
    }
    Ok(())
}

#[test]
fn a_program_leaves_nothing_behind_on_any_workstation() -> Result<()> {
    let Some(lab) = lab()? else { return Ok(()) };
    let job = submit_example(&lab, &["--ranks", "17"], "fft", &["--size", "10"])?;
    answer(&lab, job)?;
    for host in &lab.hosts {
        until(&format!("{} is empty", host.name), PATIENCE, || {
            Ok(host.guests().is_empty().then_some(()))
        })?;
    }
    Ok(())
}

#[test]
fn a_program_of_a_dead_workstation_begins_again_and_ends_well() -> Result<()> {
    let Some(mut lab) = lab()? else { return Ok(()) };
    let job = submit_example(&lab, &["--ranks", "17"], "mesh", &["--size", "128"])?;
    let victim = until("three workstations have ranks", PATIENCE, || {
        let full: Vec<usize> =
            (0..4).filter(|host| !lab.hosts[*host].guests().is_empty()).collect();
        Ok(full.get(2).copied())
    })?;
    if let Some(agent) = lab.hosts[victim].agent.as_mut() {
        agent.kill();
    }
    let said = answer(&lab, job)?;
    assert!(said.contains("answer ok"), "{said}");
    let row = lab.job(job)?;
    assert!(row["life"].as_u64() >= Some(2), "it began again: {row}");
    Ok(())
}
