//! Message-passing programs on a lab: their ranks run on several workstations,
//! talk to each other, and come to the right answer.

use anyhow::{Context as _, Result, ensure};
use gleaner_lab::Lab;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_shell::clock::Clock;
use gleaner_tests::{answer, host_of, lab_or_skip, options, submit_example, subprograms};
use rusqlite::{Connection, OpenFlags};

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

/// Places become free while it runs, and it is offered them: it takes an even
/// number and divides its rows anew. What it computes is checked by itself.
#[test]
fn a_malleable_mesh_takes_some_of_what_it_is_offered_and_divides_its_data_anew() -> Result<()> {
    let mut options = options(3)?;
    options.host.places = 2;
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(3)?;
    let own = ["--multiple", "2", "--rounds", "60", "--linger", "100"];
    let job = submit_example(&lab, &["--ranks", "2", "--ranks-max", "5", "--grows"], "heat", &own)?;
    let said = answer(&lab, job)?;
    assert!(said.contains("answer ok: 64 x 64 points by 2, then 4 ranks"), "{said}");
    assert_eq!(subprograms(&lab, job)?.len(), 4, "of the three that it could have had more");
    Ok(())
}

/// It asks for more than there is, and takes what can be had; then it says that
/// it gives some back, and does.
#[test]
fn a_program_asks_for_ranks_in_its_midst_and_gives_some_back() -> Result<()> {
    let mut options = options(3)?;
    options.host.places = 2;
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(3)?;
    let own = ["--request", "9", "--release", "3", "--linger", "20"];
    let job =
        submit_example(&lab, &["--ranks", "2", "--ranks-max", "16", "--spawns"], "heat", &own)?;
    let said = answer(&lab, job)?;
    assert!(said.contains("answer ok: 64 x 64 points by 2, then 6, then 3 ranks"), "{said}");
    Ok(())
}

/// Rounds of [`RING`] ranks: each saves after every round.
const ROUNDS: u32 = 300;
/// Of a ring that marks its boundaries.
const MARKED: u32 = 150;
const RING: usize = 5;

/// Three workstations of four have room for the ring: one may die.
fn lab_for_a_ring() -> Result<Option<Lab>> {
    let mut options = options(4)?;
    options.host.places = 2;
    let Some(lab) = lab_or_skip(options)? else { return Ok(None) };
    lab.wait_for_idle(4)?;
    Ok(Some(lab))
}

/// The agent of the workstation with this rank dies, and all that is on it.
fn kill_the_place_of(lab: &mut Lab, job: u64, rank: usize) -> Result<()> {
    let rows = subprograms(lab, job)?;
    let victim = host_of(lab, &rows[rank]).context("it is nowhere")?;
    lab.hosts[victim].agent.as_mut().context("no agent")?.kill();
    Ok(())
}

/// What each rank has in the last snapshot that is whole: the coordinator's
/// store says which parts there are.
fn parts(lab: &Lab, job: u64) -> Result<Vec<Vec<u8>>> {
    let data = lab.coordinator_data();
    let file = data.join("coordinator.sqlite");
    let store = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut cuts = store.prepare("SELECT lower(hex(hash)) FROM cuts WHERE job = ?1")?;
    let hashes: Vec<String> = cuts.query_map([job], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let part = |hash: &String| {
        let (folder, name) = hash.split_at(2);
        std::fs::read(data.join("blobs").join(folder).join(name)).ok()
    };
    Ok(hashes.iter().filter_map(part).collect())
}

/// The round that each rank had saved: it is in its part.
fn saved_rounds(lab: &Lab, job: u64) -> Result<Vec<u32>> {
    let parts = parts(lab, job)?;
    let round = |part: &Vec<u8>| number_after(&String::from_utf8_lossy(part), SAVED);
    Ok(parts.iter().filter_map(round).collect())
}

/// What a rank of the ring saves begins with this.
const SAVED: &str = "naughty saved round ";

/// A part with an image of a process is no smaller.
const IMAGE_BYTES_MIN: usize = 200_000;

/// When ranks of the ring began, as they say themselves.
fn began(said: &str) -> Result<Vec<i64>> {
    let at = said.lines().filter_map(|line| line.split_once(" began at ").map(|(_, at)| at.trim()));
    Ok(at.map(str::parse).collect::<Result<_, _>>()?)
}

fn number_after(text: &str, words: &str) -> Option<u32> {
    let (_, rest) = text.split_once(words)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[test]
fn a_program_of_a_dead_workstation_goes_on_from_its_last_snapshot() -> Result<()> {
    let Some(mut lab) = lab_for_a_ring()? else { return Ok(()) };
    let (ranks, rounds) = (RING.to_string(), ROUNDS.to_string());
    let options = ["--ranks", &ranks, "--checkpoint-every", "1s"];
    let job = submit_example(&lab, &options, "naughty", &["good", "--save", "--rounds", &rounds])?;
    let saved = until("a whole snapshot has what all ranks saved", PATIENCE, || {
        let row = lab.job(job)?;
        ensure!(row["ended"].is_null(), "it ended before: {row}");
        let saved = saved_rounds(&lab, job)?;
        Ok((saved.len() == RING).then_some(saved))
    })?;
    kill_the_place_of(&mut lab, job, 1)?;
    let said = answer(&lab, job)?;
    assert!(said.contains(&format!("{ROUNDS} rounds went round {RING} ranks")), "{said}");
    let first = saved.into_iter().min().unwrap_or(0);
    for rank in 0..RING {
        let round = number_after(&said, &format!("rank {rank} goes on with round "));
        assert!(round >= Some(first), "rank {rank} had saved round {first}: {said}");
    }
    let told = lab.text(&["job", &job.to_string()])?;
    assert!(told.contains("all are saved every 1.0 s; began 2 times"), "{told}");
    assert!(told.contains("begins again from snapshot "), "{told}");
    Ok(())
}

#[test]
fn a_program_without_a_snapshot_begins_at_its_start_and_its_user_is_told() -> Result<()> {
    let Some(mut lab) = lab_for_a_ring()? else { return Ok(()) };
    let (ranks, own) = (RING.to_string(), ["--size", "128", "--linger", "100"]);
    let options = ["--ranks", &ranks, "--checkpoint-every", "1s"];
    let job = submit_example(&lab, &options, "mandelbrot", &own)?;
    let told = |lab: &Lab| lab.text(&["job", &job.to_string()]);
    until("its user is told that none is taken", PATIENCE, || {
        Ok(told(&lab)?.contains("takes no part in snapshots").then_some(()))
    })?;
    kill_the_place_of(&mut lab, job, 1)?;
    assert!(answer(&lab, job)?.contains("answer ok"));
    let told = told(&lab)?;
    assert!(told.contains("began 2 times"), "{told}");
    assert!(told.contains("begins again from its start"), "{told}");
    Ok(())
}

#[test]
fn a_rank_that_saves_nothing_goes_back_to_its_image_elsewhere() -> Result<()> {
    let Some(mut lab) = lab_for_a_ring()? else { return Ok(()) };
    let (ranks, rounds) = (RING.to_string(), MARKED.to_string());
    let options = ["--ranks", &ranks, "--on-busy", "rollback"];
    let job = submit_example(&lab, &options, "naughty", &["good", "--mark", "--rounds", &rounds])?;
    until("an image of rank 1 is kept", PATIENCE, || {
        let logs = lab.hosts.iter().map(|host| std::fs::read_to_string(host.dir.join("agent.log")));
        let kept = logs.flatten().any(|log| log.contains("rank 1 can go back to an image"));
        Ok(kept.then_some(()))
    })?;
    let came = Clock.wall().0 / 1_000_000_000;
    until("rank 1 goes on elsewhere", 4 * PATIENCE, || {
        let row = lab.job(job)?;
        ensure!(row["ended"].is_null(), "it ended before: {row}");
        let rank = &subprograms(&lab, job)?[1];
        if rank["moves"].as_u64() >= Some(1) {
            return Ok(Some(()));
        }
        if let Some(host) = host_of(&lab, rank) {
            lab.hosts[host].type_key()?;
        }
        Ok(None)
    })?;
    let said = answer(&lab, job)?;
    assert!(said.contains(&format!("{MARKED} rounds went round {RING} ranks")), "{said}");
    let began = began(&said)?;
    let all_before = began.len() == RING && began.iter().all(|at| *at <= came);
    let told = lab.text(&["job", &job.to_string()])?;
    assert!(all_before, "the first owner came {came}, they began {began:?}: {told}");
    let notes = lab.job(job)?["notes"].to_string();
    assert!(!notes.contains("cannot") && !notes.contains("no image"), "{notes}");
    Ok(())
}

#[test]
fn a_program_of_a_dead_workstation_goes_on_from_a_snapshot_of_images() -> Result<()> {
    let Some(mut lab) = lab_for_a_ring()? else { return Ok(()) };
    let (ranks, rounds) = (RING.to_string(), MARKED.to_string());
    let options = ["--ranks", &ranks, "--checkpoint-every", "1s"];
    let job = submit_example(&lab, &options, "naughty", &["good", "--mark", "--rounds", &rounds])?;
    until("a whole snapshot has images of all ranks", PATIENCE, || {
        let row = lab.job(job)?;
        ensure!(row["ended"].is_null(), "it ended before: {row}");
        let images = parts(&lab, job)?.into_iter().filter(|part| part.len() > IMAGE_BYTES_MIN);
        Ok((images.count() == RING).then_some(()))
    })?;
    let died = Clock.wall().0 / 1_000_000_000;
    kill_the_place_of(&mut lab, job, 1)?;
    let said = answer(&lab, job)?;
    assert!(said.contains(&format!("{MARKED} rounds went round {RING} ranks")), "{said}");
    let began = began(&said)?;
    let all_before = began.len() == RING && began.iter().all(|at| *at <= died);
    assert!(all_before, "it died {died}, they began {began:?}");
    let told = lab.text(&["job", &job.to_string()])?;
    assert!(told.contains("begins again from snapshot "), "{told}");
    Ok(())
}
