//! The owner comes first: what a keystroke and the owner's own work do.

use anyhow::Result;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_lab::{Lab, cgroup};
use gleaner_tests::{host_of, lab_or_skip, options, owner_comes, owner_leaves, subprograms};

/// A guest that computes until it is stopped.
const BUSY: [&str; 4] = ["--", "sh", "-c", "while :; do :; done"];

fn submit_busy(lab: &Lab, count: &str, on_busy: &[&str]) -> Result<u64> {
    let mut arguments = vec!["--count", count];
    arguments.extend(on_busy);
    arguments.extend(BUSY);
    lab.submit(&arguments)
}

fn wait_for_guests_everywhere(lab: &Lab) -> Result<()> {
    for host in &lab.hosts {
        until(&format!("{} runs a guest", host.name), PATIENCE, || {
            Ok((!host.guests().is_empty()).then_some(()))
        })?;
    }
    Ok(())
}

/// Does anything in this host's guest places use the CPU just now?
fn computes(lab: &Lab, host: usize) -> bool {
    let guests = lab.hosts[host].cgroup.as_ref().map(|path| path.join("guests"));
    let Some(guests) = guests else { return false };
    let before = cgroup::cpu_us(&guests);
    // Two ticks of a frozen cgroup's clock: a running guest gains far more.
    std::thread::sleep(std::time::Duration::from_millis(300));
    cgroup::cpu_us(&guests) > before + 2_000
}

fn state(lab: &Lab, host: usize) -> Result<(String, String)> {
    let rows = lab.rows::<serde_json::Value>(&["workstations", "--json"])?;
    let name = &lab.hosts[host].name;
    let row = rows.iter().find(|row| row["name"] == name.as_str());
    let row = row.cloned().unwrap_or_default();
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    Ok((text("state"), text("reason")))
}

#[test]
fn a_keystroke_stops_guests_there_and_nowhere_else() -> Result<()> {
    let mut options = options(4)?;
    options.host.places = 1;
    options.host.quiet = std::time::Duration::from_secs(2);
    let Some(mut lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(4)?;
    submit_busy(&lab, "4", &["--on-busy", "suspend", "--patience", "1h"])?;
    wait_for_guests_everywhere(&lab)?;

    until("the guests of host2 are frozen", PATIENCE, || {
        // An owner who stays: where others have all cores, a guest may need longer
        // to come to its stop than the quiet period lasts.
        lab.hosts[1].type_key()?;
        Ok(lab.hosts[1]
            .places()
            .iter()
            .all(|path| cgroup::FrozenWatch::new(path).is_ok_and(|mut watch| watch.is_frozen()))
            .then_some(()))
    })?;
    until("the verdict names the terminal", PATIENCE, || {
        // Still there: the answer may take longer than the quiet period lasts.
        lab.hosts[1].type_key()?;
        let (seen, reason) = state(&lab, 1)?;
        Ok((seen == "busy" && reason.contains("pts/0")).then_some(()))
    })?;
    for other in [0, 2, 3] {
        assert!(!lab.hosts[other].guests().is_empty());
        until(&format!("host{} goes on", other + 1), PATIENCE, || {
            Ok(computes(&lab, other).then_some(()))
        })?;
    }
    until("the guests of host2 go on when its owner has left", PATIENCE, || {
        Ok(computes(&lab, 1).then_some(()))
    })?;
    Ok(())
}

#[test]
fn an_owners_load_turns_a_workstation_busy_and_a_guests_never_does() -> Result<()> {
    let mut options = options(4)?;
    options.host.places = 1;
    let Some(mut lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(4)?;
    submit_busy(&lab, "4", &["--on-busy", "retreat"])?;
    wait_for_guests_everywhere(&lab)?;

    let mut asked = 0;
    until("the owner's load turns host3 busy", PATIENCE, || {
        // One thread is enough, but where others have all cores it gets too
        // little of them: then the owner begins more and more.
        if asked % 20 == 0 {
            lab.hosts[2].owner_works(1)?;
        }
        asked += 1;
        let (seen, reason) = state(&lab, 2)?;
        Ok((seen == "busy" && reason.contains("load")).then_some(()))
    })?;
    until("its guest retreats", PATIENCE, || Ok(lab.hosts[2].guests().is_empty().then_some(())))?;
    for other in [0, 1, 3] {
        assert_eq!(state(&lab, other)?.0, "idle", "a guest's load never turns a host busy");
    }
    lab.hosts[2].owner_rests();
    until("host3 is idle again", PATIENCE * 3, || Ok((state(&lab, 2)?.0 == "idle").then_some(())))
}

#[test]
fn each_reaction_does_what_it_says() -> Result<()> {
    let mut options = options(4)?;
    options.host.places = 3;
    options.host.quiet = std::time::Duration::from_secs(4);
    let Some(mut lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(4)?;
    let states = |lab: &Lab, job: u64| -> Result<Vec<String>> {
        let rows = lab.rows::<serde_json::Value>(&["job", &job.to_string(), "--json"])?;
        let states = rows.iter().filter_map(|row| row["state"].as_str().map(str::to_owned));
        Ok(states.collect())
    };
    let wait_for_state = |lab: &Lab, job: u64, wanted: &str| {
        until(&format!("job {job} is {wanted}"), PATIENCE, || {
            Ok(states(lab, job)?.iter().any(|state| state == wanted).then_some(()))
        })
    };

    let renice = submit_busy(&lab, "1", &["--on-busy", "renice"])?;
    wait_for_state(&lab, renice, "running")?;
    let place = |lab: &Lab| lab.hosts.iter().position(|host| !host.guests().is_empty());
    let host = until("the guest is somewhere", PATIENCE, || Ok(place(&lab)))?;
    until("it is demoted", PATIENCE, || {
        // An owner who stays: the answer may take longer than the quiet period.
        lab.hosts[host].type_key()?;
        Ok(states(&lab, renice)?.contains(&"demoted".to_owned()).then_some(()))
    })?;
    until("a demoted guest goes on", PATIENCE, || {
        lab.hosts[host].type_key()?;
        Ok(computes(&lab, host).then_some(()))
    })?;
    lab.text(&["cancel", &renice.to_string()])?;
    until("nothing runs", PATIENCE, || Ok(place(&lab).is_none().then_some(())))?;

    let suspend = submit_busy(&lab, "1", &["--on-busy", "suspend", "--patience", "1s"])?;
    wait_for_state(&lab, suspend, "running")?;
    let host = until("the guest is somewhere", PATIENCE, || Ok(place(&lab)))?;
    lab.hosts[host].type_key()?;
    until("the suspended guest retreats when its patience is over", PATIENCE, || {
        Ok(lab.hosts[host].guests().is_empty().then_some(()))
    })?;
    wait_for_state(&lab, suspend, "running")?;
    let summary = lab.job(suspend)?["summary"].clone();
    assert_eq!((&summary["suspensions"], &summary["retreats"]), (&1.into(), &1.into()));
    assert_eq!(summary["failed"], 0);
    lab.text(&["cancel", &suspend.to_string()])?;
    until("nothing runs", PATIENCE, || Ok(place(&lab).is_none().then_some(())))?;

    let retreat = submit_busy(&lab, "1", &["--on-busy", "retreat", "--retries", "0"])?;
    wait_for_state(&lab, retreat, "running")?;
    let host = until("the guest is somewhere", PATIENCE, || Ok(place(&lab)))?;
    lab.hosts[host].type_key()?;
    let elsewhere =
        until("the guest runs elsewhere", PATIENCE, || Ok(place(&lab).filter(|now| *now != host)))?;
    assert_ne!(elsewhere, host);
    let row = lab.job(retreat)?;
    assert_eq!(row["summary"]["state"], "running", "a retreat costs no retry: {row}");
    Ok(())
}

/// The job's one guest computes here, and is nowhere else.
fn until_it_computes_only_at(lab: &Lab, host: usize, job: u64) -> Result<()> {
    until(&format!("it computes at {} alone", lab.hosts[host].name), PATIENCE, || {
        let row = subprograms(lab, job)?.into_iter().next().unwrap_or_default();
        let is_there = row["state"] == "running" && host_of(lab, &row) == Some(host);
        let where_guests_are: Vec<usize> =
            (0..lab.hosts.len()).filter(|at| !lab.hosts[*at].guests().is_empty()).collect();
        let alone = is_there && where_guests_are == [host];
        Ok((alone && computes(lab, host)).then_some(()))
    })
}

#[test]
fn a_guest_moves_to_and_fro_and_lands_where_another_was_killed_frozen() -> Result<()> {
    let mut options = options(2)?;
    options.host.places = 1;
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(2)?;
    let migrates = ["--on-busy", "migrate"];
    owner_comes(&lab, 1)?;
    until("host2 is busy", PATIENCE, || Ok((state(&lab, 1)?.0 == "busy").then_some(())))?;
    let killed = submit_busy(&lab, "1", &migrates)?;
    until_it_computes_only_at(&lab, 0, killed)?;
    owner_comes(&lab, 0)?;
    until("it stands still: there is no room elsewhere", PATIENCE, || {
        Ok((lab.job(killed)?["summary"]["suspended"] == 1).then_some(()))
    })?;
    lab.text(&["cancel", &killed.to_string()])?;
    until("it was killed there", PATIENCE, || Ok(lab.hosts[0].guests().is_empty().then_some(())))?;

    owner_leaves(&lab, 1)?;
    let job = submit_busy(&lab, "1", &migrates)?;
    until_it_computes_only_at(&lab, 1, job)?;
    // What it leaves behind was frozen as well when it was killed.
    for (from, to) in [(1, 0), (0, 1), (1, 0)] {
        owner_leaves(&lab, to)?;
        lab.wait_for_idle(2)?;
        owner_comes(&lab, from)?;
        until_it_computes_only_at(&lab, to, job)?;
    }
    let row = lab.job(job)?;
    let told = lab.text(&["job", &format!("{job}.0")])?;
    assert_eq!(row["summary"]["moves"], 3, "{told}");
    assert_eq!(row["summary"]["lost"], 0, "{row}");
    lab.text(&["cancel", &job.to_string()])?;
    until("it is gone", PATIENCE, || Ok(lab.hosts[0].guests().is_empty().then_some(())))
}

#[test]
fn the_owner_pauses_and_resumes_without_password_and_a_pause_survives_a_restart() -> Result<()> {
    let mut options = options(1)?;
    options.host.places = 1;
    let Some(mut lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(1)?;
    let socket = lab.hosts[0].owner_socket().display().to_string();
    lab.text(&["agent", "pause", "2h", "--socket", &socket])?;
    until("the pause makes the workstation busy", PATIENCE, || {
        let (seen, reason) = state(&lab, 0)?;
        Ok((seen == "busy" && reason.contains("paused")).then_some(()))
    })?;
    if let Some(agent) = lab.hosts[0].agent.as_mut() {
        agent.stop()?;
    }
    lab.hosts[0].start_agent()?;
    until("the restarted agent is still paused", PATIENCE, || {
        let said = lab.run(&["agent", "status", "--socket", &socket])?;
        Ok(String::from_utf8_lossy(&said.stdout).contains("paused").then_some(()))
    })?;
    lab.text(&["agent", "resume", "--socket", &socket])?;
    lab.wait_for_idle(1)
}

/// The keeper of the last guest waits for this one, so nothing but the guest
/// itself tells that there is one whose load is not the owner's.
#[test]
fn a_guest_whose_keeper_waited_for_it_is_not_taken_for_the_owner() -> Result<()> {
    let mut options = options(1)?;
    options.host.places = 1;
    let Some(lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(1)?;
    let first = lab.submit(&["--on-busy=migrate", "--", "true"])?;
    lab.wait_for_job(first)?;
    // Longer than the load sensor sleeps where it knows of no guest, twice.
    let computes = "timeout 11 sh -c 'while :; do :; done'; true";
    let second = lab.submit(&["--on-busy=suspend", "--", "sh", "-c", computes])?;
    let ended = lab.wait_for_job(second)?;
    assert_eq!(ended["summary"]["suspensions"], 0, "{ended}");
    Ok(())
}
