//! Jobs that grow and shrink on a lab, as owners and other jobs come and go: by
//! negotiation, by sharing places where nobody is asked, and by force where
//! nobody answers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use gleaner_lab::Lab;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_tests::{
    answer, glean, lab_or_skip, options, owner_comes, owner_leaves, submit_example, subprograms,
};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// Workstations of two places each, whose coordinator schedules by this policy.
fn lab(hosts: usize, places: u16, policy: &str) -> Result<Option<Lab>> {
    let mut options = options(hosts)?;
    options.host.places = places;
    options.coordinator = format!("[scheduler]\npolicy = \"{policy}\"\npatience = \"2s\"\n");
    let Some(lab) = lab_or_skip(options)? else { return Ok(None) };
    lab.wait_for_idle(hosts)?;
    Ok(Some(lab))
}

/// How many ranks are on workstations.
fn size(lab: &Lab, job: u64) -> Result<usize> {
    let rows = subprograms(lab, job)?;
    Ok(rows.iter().filter(|row| row["workstation"].is_string()).count())
}

fn until_size(lab: &Lab, job: u64, wanted: usize) -> Result<()> {
    until(&format!("job {job} has {wanted} ranks somewhere"), PATIENCE, || {
        let row = lab.job(job)?;
        ensure!(row["ended"].is_null(), "it ended before: {row}");
        Ok((size(lab, job)? == wanted).then_some(()))
    })
}

fn guests(lab: &Lab) -> usize {
    lab.hosts.iter().map(|host| host.guests().len()).sum()
}

fn has_ended(lab: &Lab, job: u64) -> Result<bool> {
    Ok(!lab.job(job)?["ended"].is_null())
}

/// The sizes that `glean job --gantt` tells of, in order.
fn sizes(lab: &Lab, job: u64) -> Result<Vec<u64>> {
    let rows: Vec<Value> = lab.rows(&["job", &job.to_string(), "--gantt", "--json"])?;
    Ok(rows.iter().filter_map(|row| row["size"].as_u64()).collect())
}

/// The sizes that the program itself tells of: "by 2, then 4, then 6 ranks".
fn told_sizes(said: &str) -> Result<Vec<u32>> {
    let (_, rest) = said.split_once("points by ").context("it tells no sizes")?;
    let (list, _) = rest.split_once(" ranks").context("sizes of what?")?;
    Ok(list.split(", then ").map(str::parse).collect::<Result<_, _>>()?)
}

#[test]
fn a_mesh_grows_as_owners_leave_and_shrinks_for_another_job_and_is_right() -> Result<()> {
    let Some(lab) = lab(3, 2, "pwa-fpsma")? else { return Ok(()) };
    owner_comes(&lab, 2)?;
    until("two are left", PATIENCE, || {
        let rows = lab.rows::<Value>(&["workstations", "--json"])?;
        Ok(rows.iter().any(|row| row["state"] == "busy").then_some(()))
    })?;
    let own = ["--min", "2", "--rounds", "45", "--linger", "1000"];
    let malleable = ["--ranks", "2", "--class", "malleable", "--min", "2", "--max", "6"];
    let job = submit_example(&lab, &malleable, "heat", &own)?;
    until_size(&lab, job, 4)?;
    owner_leaves(&lab, 2)?;
    until_size(&lab, job, 6)?;
    let rigid = ["--class", "rigid", "--count", "2", "--", "sleep", "3"];
    let other = lab.submit(&rigid)?;
    lab.wait_for_job(other)?;
    ensure!(!has_ended(&lab, job)?, "the mesh was to go on beside it");
    // An owner comes back, and what stands still goes on when they leave.
    owner_comes(&lab, 2)?;
    until("somebody stands still", PATIENCE, || {
        let row = lab.job(job)?;
        let is_over = !row["ended"].is_null();
        Ok((is_over || row["summary"]["suspended"].as_u64() > Some(0)).then_some(()))
    })?;
    owner_leaves(&lab, 2)?;
    let said = answer(&lab, job)?;
    assert!(said.contains("answer ok"), "{said}");
    let told = told_sizes(&said)?;
    assert!(told.starts_with(&[2, 4, 6, 4]), "{said}");
    let gantt = sizes(&lab, job)?;
    assert_eq!(gantt.iter().max(), Some(&6), "{gantt:?}");
    let drawn = lab.text(&["job", &job.to_string(), "--gantt"])?;
    assert!(drawn.contains('█') && drawn.contains("began"), "{drawn}");
    Ok(())
}

/// The C examples, built beside the tests: `None` where nothing compiles C.
fn c_example(name: &str) -> Result<Option<(PathBuf, PathBuf)>> {
    let target = glean()?.parent().context("it lies somewhere")?.to_owned();
    let library = target.join("libglean_program.so");
    if !library.exists() || Command::new("cc").arg("--version").output().is_err() {
        gleaner_skip::without("no C compiler, or the library is not built");
        return Ok(None);
    }
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../program/examples/c");
    let out = target.join("examples/c");
    std::fs::create_dir_all(&out)?;
    let made = Command::new("make")
        .args(["-s", "-C", examples])
        .arg(format!("LIBRARY={}", target.display()))
        .arg(format!("OUT={}", out.display()))
        .status()?;
    ensure!(made.success(), "the C examples do not build");
    Ok(Some((out.join(name), library)))
}

#[test]
fn a_bag_in_c_asks_for_workers_and_comes_to_the_right_answer() -> Result<()> {
    let Some((bag, library)) = c_example("bag")? else { return Ok(()) };
    let Some(lab) = lab(3, 2, "pwa-fpsma")? else { return Ok(()) };
    let inputs = [bag, library].map(|path| path.display().to_string());
    let job = lab.submit(&[
        "--ranks",
        "1",
        "--class",
        "malleable",
        "--max",
        "6",
        "--input",
        &inputs[0],
        "--input",
        &inputs[1],
        "--",
        "./bag",
        "malleable",
    ])?;
    let said = answer(&lab, job)?;
    assert!(said.contains("answer ok: 17984 primes"), "{said}");
    assert!(subprograms(&lab, job)?.len() > 1, "it got workers");
    Ok(())
}

/// The ring neither negotiates nor moves: its ranks share the places of their
/// workstations while another job has the others.
#[test]
fn a_program_that_knows_nothing_of_it_shares_places_and_has_them_back() -> Result<()> {
    let Some(lab) = lab(2, 2, "folding")? else { return Ok(()) };
    let malleable = ["--ranks", "4", "--class", "malleable", "--min", "2"];
    let job = submit_example(&lab, &malleable, "naughty", &["good", "--rounds", "150"])?;
    until_size(&lab, job, 4)?;
    until("all of it runs", PATIENCE, || Ok((guests(&lab) == 4).then_some(())))?;
    let other = lab.submit(&["--class", "rigid", "--count", "2", "--", "sleep", "3"])?;
    until("six guests are at four places", PATIENCE, || {
        ensure!(!has_ended(&lab, job)?, "the ring ended before");
        Ok((guests(&lab) == 6).then_some(()))
    })?;
    assert_eq!(size(&lab, job)?, 4, "all of it goes on");
    lab.wait_for_job(other)?;
    let third = lab.submit(&["--class", "rigid", "--count", "2", "--", "sleep", "1"])?;
    lab.wait_for_job(third)?;
    let said = answer(&lab, job)?;
    assert!(said.contains("150 rounds went round 4 ranks"), "{said}");
    let row = lab.job(job)?;
    assert_eq!(row["summary"]["moves"], 0, "{row}");
    Ok(())
}

#[test]
fn a_program_begins_on_fewer_places_than_it_has_ranks() -> Result<()> {
    let Some(lab) = lab(1, 2, "fair")? else { return Ok(()) };
    let malleable = ["--ranks", "4", "--class", "malleable", "--min", "2"];
    let job = submit_example(&lab, &malleable, "naughty", &["good", "--rounds", "60"])?;
    let said = answer(&lab, job)?;
    assert!(said.contains("60 rounds went round 4 ranks"), "{said}");
    Ok(())
}

/// Has a rank said that it speaks for its program? The coordinator's journal has
/// it: behind the journal's version, the number of that event and the rank's.
fn negotiates(lab: &Lab, job: u64) -> Result<bool> {
    let file = lab.coordinator_data().join("coordinator.sqlite");
    let store = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let said = "SELECT 1 FROM events WHERE job = ?1 AND substr(event, 2) = x'0A00'";
    let mut events = store.prepare(said)?;
    Ok(events.exists([job])?)
}

/// It says yes to all that it is asked for, and gives nothing: the places are
/// taken, and nothing else happens to it.
#[test]
fn who_promises_places_and_keeps_them_loses_them_all_the_same() -> Result<()> {
    let Some(lab) = lab(2, 2, "pwa-fpsma")? else { return Ok(()) };
    let malleable = ["--ranks", "4", "--class", "malleable", "--min", "2"];
    let job = submit_example(&lab, &malleable, "naughty", &["promiser", "--rounds", "3000"])?;
    until_size(&lab, job, 4)?;
    until("it says that it negotiates", PATIENCE, || Ok(negotiates(&lab, job)?.then_some(())))?;
    let other = lab.submit(&["--class", "rigid", "--count", "2", "--", "sleep", "1"])?;
    lab.wait_for_job(other)?;
    ensure!(!has_ended(&lab, job)?, "it was to go on");
    let notes = lab.job(job)?["notes"].to_string();
    assert!(notes.contains("it gave 0 of 2 processors in time"), "{notes}");
    assert!(notes.contains("2 of its processors are taken"), "{notes}");
    lab.text(&["cancel", &job.to_string()])?;
    Ok(())
}

/// Ranks of different workstations share a place by a move, and part by another.
#[test]
fn ranks_move_to_share_a_place_and_part_again() -> Result<()> {
    let Some(lab) = lab(2, 1, "folding")? else { return Ok(()) };
    let rows = lab.rows::<Value>(&["workstations", "--json"])?;
    let lacks = rows.iter().find_map(|row| {
        let missing = row["missing"].as_array()?.iter().filter_map(Value::as_str);
        missing.map(str::to_owned).find(|what| what.starts_with("moving guests: "))
    });
    if let Some(lacks) = lacks {
        gleaner_skip::without(lacks);
        return Ok(());
    }
    let malleable = ["--ranks", "2", "--class", "malleable", "--min", "1", "--on-busy", "migrate"];
    let job = submit_example(&lab, &malleable, "naughty", &["good", "--rounds", "200"])?;
    until_size(&lab, job, 2)?;
    let other = lab.submit(&["--class", "rigid", "--count", "1", "--", "sleep", "3"])?;
    lab.wait_for_job(other)?;
    until("they are apart again", PATIENCE, || {
        let rows = subprograms(&lab, job)?;
        let places: BTreeSet<&str> =
            rows.iter().filter_map(|row| row["workstation"].as_str()).collect();
        Ok((places.len() == 2).then_some(()))
    })?;
    let said = answer(&lab, job)?;
    assert!(said.contains("200 rounds went round 2 ranks"), "{said}");
    assert!(lab.job(job)?["summary"]["moves"].as_u64() >= Some(2), "there and back");
    Ok(())
}
