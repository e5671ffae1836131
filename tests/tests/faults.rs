//! Nothing lost, nothing twice: links that go down and daemons that die.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use gleaner_common::wire::Request;
use gleaner_lab::Lab;
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::IDLE_TIMEOUT;
use gleaner_tests::{lab_or_skip, options};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn where_it_runs(lab: &Lab) -> Option<usize> {
    lab.hosts.iter().position(|host| !host.guests().is_empty())
}

/// Has it run for the last time? Who is killed needs a core to come to its end,
/// which it may get late, but does nothing of its own with it.
fn is_killed(pid: u32) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { return true };
    // After the name, which may hold anything: state, five numbers, flags.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6));
    let is_exiting = flags.and_then(|text| text.parse::<u32>().ok()).is_some_and(|it| it & 4 != 0);
    let pending = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    // SIGKILL is the ninth.
    is_exiting || (pending("SigPnd:") | pending("ShdPnd:")) & 0x100 != 0
}

fn fence(lab: &Lab, job: u64) -> Result<Option<u64>> {
    let rows = lab.rows::<serde_json::Value>(&["job", &job.to_string(), "--json"])?;
    Ok(rows.iter().find_map(|row| row["fence"].as_u64()))
}

fn one_long_guest(lease: &str) -> Result<Option<(Lab, u64, usize)>> {
    let mut options = options(4)?;
    options.host.places = 1;
    options.coordinator = format!("lease = \"{lease}\"\nheartbeat = \"800ms\"");
    let Some(lab) = lab_or_skip(options)? else { return Ok(None) };
    lab.wait_for_idle(4)?;
    let job = lab.submit(&["--count", "1", "--", "sh", "-c", "while :; do :; done"])?;
    let host = until("the guest runs somewhere", PATIENCE, || Ok(where_it_runs(&lab)))?;
    Ok(Some((lab, job, host)))
}

#[test]
fn a_link_down_for_less_than_a_lease_changes_nothing() -> Result<()> {
    let Some((lab, job, host)) = one_long_guest("20s")? else { return Ok(()) };
    let before = until("it has a fence", PATIENCE, || fence(&lab, job))?;
    let guests = lab.hosts[host].guests();
    let network = lab.network.as_ref().unwrap();
    lab.hosts[host].unplug(network)?;
    std::thread::sleep(std::time::Duration::from_secs(4)); // The cut itself: a fifth of the lease.
    lab.hosts[host].plug_in(network)?;
    // Cancelling reaches the guest only over the mended link.
    assert_eq!(lab.hosts[host].guests(), guests, "the guest went on");
    assert_eq!(fence(&lab, job)?, Some(before), "it is the same attempt");
    lab.text(&["cancel", &job.to_string()])?;
    until("the guest is cancelled", PATIENCE, || {
        Ok(lab.hosts[host].guests().is_empty().then_some(()))
    })
}

#[test]
fn a_link_down_for_more_than_a_lease_moves_the_work_and_stops_it_there() -> Result<()> {
    let Some((lab, job, host)) = one_long_guest("3s")? else { return Ok(()) };
    let before = until("it has a fence", PATIENCE, || fence(&lab, job))?;
    let network = lab.network.as_ref().unwrap();
    lab.hosts[host].unplug(network)?;
    let mut ran_twice = false;
    until("it runs elsewhere", PATIENCE, || {
        let elsewhere =
            (0..4).find(|other| *other != host && !lab.hosts[*other].guests().is_empty());
        let runs_here = || lab.hosts[host].guests().into_iter().any(|pid| !is_killed(pid));
        ran_twice |= elsewhere.is_some() && runs_here();
        Ok(elsewhere)
    })?;
    assert!(!ran_twice, "the cut-off agent stops its guest before another starts");
    lab.hosts[host].plug_in(network)?;
    lab.wait_for_workstations()?;
    assert!(fence(&lab, job)? > Some(before), "a new attempt has a higher fence");
    assert_eq!(lab.job(job)?["summary"]["lost"], 1);
    Ok(())
}

/// The coordinator forgets a connection that is silent: whoever holds one and
/// spends its time with something else must not be silent.
#[test]
fn a_users_connection_outlives_a_time_without_requests() -> Result<()> {
    let mut options = options(0)?;
    options.network = false;
    options.collector = false;
    let lab = Lab::start(options)?;
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    talk.request(&Request::Health)?;
    std::thread::sleep(IDLE_TIMEOUT + Duration::from_secs(2));
    talk.request(&Request::Health).map(drop)
}

/// Its lease outlasts all waits here, so that nothing but the cancellation ends the
/// guest; and an agent that connects anew says so.
#[test]
fn a_connection_survives_a_change_of_address() -> Result<()> {
    let Some((mut lab, job, host)) = one_long_guest("1h")? else { return Ok(()) };
    let guests = lab.hosts[host].guests();
    let log = lab.hosts[host].dir.join("agent.log");
    let calls = || std::fs::read_to_string(&log).map(|log| log.matches("trying again").count());
    let before = calls()?;
    lab.hosts[host].change_address()?;
    // Longer than a connection lives of which nothing is heard.
    std::thread::sleep(IDLE_TIMEOUT + Duration::from_secs(2));
    assert_eq!(lab.hosts[host].guests(), guests, "the guest went on");
    lab.text(&["cancel", &job.to_string()])?;
    until("the cancellation reaches the guest at the new address", PATIENCE, || {
        Ok(lab.hosts[host].guests().is_empty().then_some(()))
    })?;
    assert_eq!(calls()?, before, "it is another connection");
    Ok(())
}

/// What two copies of a guest would write is looked at from outside.
#[test]
fn a_worker_that_hangs_lets_no_guest_run_beside_its_successor() -> Result<()> {
    let Some((lab, job, host)) = one_long_guest("3s")? else { return Ok(()) };
    let worker = rustix::process::Pid::from_raw(i32::try_from(lab.hosts[host].agent_worker()?)?);
    let worker = worker.context("a process")?;
    let used = |host: usize| -> u64 {
        let of = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok();
        let ns =
            |text: String| text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
        // What it takes to die is not what it runs on for.
        let of = |pid: u32| ns(of(pid)?).filter(|_| !is_killed(pid));
        lab.hosts[host].guests().into_iter().filter_map(of).sum()
    };
    rustix::process::kill_process(worker, rustix::process::Signal::STOP)?;
    // It comes to a stand within two beats; from then on it uses nothing.
    std::thread::sleep(Duration::from_millis(200));
    let before = used(host);
    let mut ran_on = false;
    let elsewhere = until("it runs elsewhere", PATIENCE, || {
        ran_on |= used(host) > before;
        Ok((0..4).find(|other| *other != host && !lab.hosts[*other].guests().is_empty()))
    })?;
    assert!(!ran_on, "it ran on while nobody was heard");
    let left = lab.hosts[host].guests();
    assert!(left.into_iter().all(is_killed), "it is still there beside its successor");
    rustix::process::kill_process(worker, rustix::process::Signal::CONT)?;
    lab.wait_for_workstations()?;
    assert!(!lab.hosts[elsewhere].guests().is_empty(), "the successor goes on");
    assert_eq!(lab.job(job)?["summary"]["lost"], 1);
    Ok(())
}

#[test]
fn nothing_outlives_an_agent_that_is_killed() -> Result<()> {
    let Some((mut lab, _job, host)) = one_long_guest("10s")? else { return Ok(()) };
    let guests = lab.hosts[host].guests();
    lab.hosts[host].agent.as_mut().unwrap().kill();
    until("its guests are gone", PATIENCE, || {
        let alive = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        Ok((!guests.iter().any(alive)).then_some(()))
    })
}

/// It waited 17 s: nobody heard of the new coordinator before the next beat of an
/// idle agent, and those came every 20 s.
#[test]
fn work_that_comes_after_a_restart_does_not_wait_for_idle_agents_to_speak() -> Result<()> {
    let mut options = options(2)?;
    // As it is installed: the beats are what is measured.
    options.coordinator = String::new();
    let Some(mut lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(2)?;
    lab.coordinator.as_mut().unwrap().kill();
    lab.start_coordinator()?;
    let restarted = Clock.now();
    let job = lab.submit(&["--", "true"])?;
    let row = lab.wait_for_job(job)?;
    let waited = Clock.now().since(restarted);
    println!("measured: a job was done {waited:?} after a restart of its coordinator");
    assert_eq!(row["summary"]["succeeded"], 1, "{row}");
    // Two beats of 3 s and a connection, on a machine with much else to do.
    assert!(waited < Duration::from_secs(14), "{waited:?}");
    Ok(())
}

/// Kills the agents, the coordinator and the collector at random moments while
/// a job of 200 subprograms runs, and then counts.
#[test]
fn whatever_is_killed_no_work_is_lost_and_none_is_counted_twice() -> Result<()> {
    let seed = std::env::var("GLEAN_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}; repeat with GLEAN_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut options = options(4)?;
    options.coordinator = "lease = \"3s\"\nheartbeat = \"800ms\"".into();
    let Some(mut lab) = lab_or_skip(options)? else { return Ok(()) };
    lab.wait_for_idle(4)?;
    let job = lab.submit(&[
        "--array",
        "1-200",
        "--retries",
        "0",
        "--",
        "sh",
        "-c",
        "sleep 0.1; echo $(({i} * {i}))",
    ])?;
    for _ in 0..10 {
        // The random moment.
        std::thread::sleep(std::time::Duration::from_millis(random.random_range(100..800)));
        match random.random_range(0..5) {
            0 | 1 => {
                lab.coordinator.as_mut().unwrap().kill();
                lab.start_coordinator()?;
            }
            2 => {
                let host = random.random_range(0..4);
                lab.hosts[host].agent.as_mut().unwrap().kill();
                lab.hosts[host].start_agent()?;
            }
            3 => {
                let host = random.random_range(0..4);
                let worker = lab.hosts[host].agent_worker()?;
                let pid = rustix::process::Pid::from_raw(i32::try_from(worker)?).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            _ => {
                lab.collector.as_mut().unwrap().kill();
                lab.start_collector()?;
            }
        }
    }
    let row = lab.wait_for_job(job)?;
    assert_eq!(row["summary"]["succeeded"], 200, "{row}");
    assert_eq!(row["summary"]["failed"], 0, "{row}");
    for index in [1, 2, 100, 199, 200] {
        let printed = lab.text(&["logs", &format!("{job}.{index}")])?;
        assert_eq!(printed.trim(), (index * index).to_string());
    }
    let subprograms = lab.rows::<serde_json::Value>(&["job", &job.to_string(), "--json"])?;
    let mut rows_of = BTreeMap::new();
    for row in subprograms.iter().filter(|row| row["subprogram"].is_object()) {
        *rows_of.entry(row["subprogram"]["index"].as_u64()).or_insert(0) += 1;
    }
    assert_eq!(rows_of.len(), 200);
    assert!(rows_of.values().all(|count| *count == 1));
    usage_is_whole(&lab)
}

/// Every record that an agent wrote reaches the collector, once.
fn usage_is_whole(lab: &Lab) -> Result<()> {
    let data = lab.collector_data().join("usage").display().to_string();
    for host in &lab.hosts {
        until(&format!("the collector has the whole log of {}", host.name), PATIENCE, || {
            let rows = lab.rows::<serde_json::Value>(&[
                "usage", "show", &host.name, "--usage", &data, "--json",
            ])?;
            let mut lives: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for row in &rows {
                lives.entry(row["life"].as_str()).or_default().push(row["sequence"].as_u64());
            }
            let is_whole =
                |numbers: &Vec<_>| numbers.iter().copied().eq((1..=numbers.len() as u64).map(Some));
            Ok((!lives.is_empty() && lives.values().all(is_whole)).then_some(()))
        })?;
    }
    Ok(())
}
