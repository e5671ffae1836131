//! How long one subprogram waits for the system, and not for a machine.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Reaction};
use gleaner_common::report::JobState;
use gleaner_common::time::WallTime;
use gleaner_common::wire::{Printed, Reply, Request};
use gleaner_lab::wait::{PATIENCE, spin_until, until};
use gleaner_lab::{Lab, LabHost};
use gleaner_shell::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::record::Record;
use crate::{Args, Progress, options};
use gleaner_lab::talk::Talk;

const LEASE: Duration = Duration::from_secs(10);

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let times = args.times.unwrap_or(100).max(1);
    let moves = times.div_ceil(4);
    let deaths = times.div_ceil(10);
    let silences = times.div_ceil(50);
    let steps = u64::from(times) * 2 + u64::from(moves + deaths + silences);
    let progress = Progress::new(args, "latency", steps);
    let mut records = submissions(times, &progress)?;
    records.push(keystroke_to_elsewhere(moves, &progress)?);
    records.extend(death_to_elsewhere(deaths, &progress)?);
    records.push(silence_to_elsewhere(silences, &progress)?);
    Ok(records)
}

fn lab(hosts: usize, network: bool) -> Result<Lab> {
    let mut options = options(hosts)?;
    options.host.places = 1;
    options.host.quiet = Duration::from_millis(300);
    options.network = network;
    options.coordinator = format!("lease = \"{}s\"", LEASE.as_secs());
    let lab = Lab::start(options)?;
    if lab.cgroup.is_none() {
        bail!("latency needs cgroups: {}", lab.missing.join("; "));
    }
    lab.wait_for_idle(hosts)?;
    Ok(lab)
}

fn one(command: &[&str], reaction: Reaction) -> Result<JobSpec> {
    let indexes = IndexRange::count_of(1).context("one subprogram")?;
    let mut spec = JobSpec::new(command.iter().map(|word| (*word).to_owned()).collect(), indexes);
    spec.on_busy = OnBusy::at_once(reaction);
    Ok(spec)
}

/// One subprogram on an idle lab: to its first instruction and to its result.
fn submissions(times: u32, progress: &Progress) -> Result<Vec<Record>> {
    let lab = lab(1, false)?;
    let talk = Talk::connect(&lab.admin(), Some(lab.address()))?;
    let clock = Clock::new();
    talk.wait(talk.submit(one(&["/bin/true"], Reaction::Retreat)?)?)?;
    let (mut starts, mut results, mut commands) = (vec![], vec![], vec![]);
    for _ in 0..times {
        let start = clock.now();
        let job = talk.submit(one(&["/bin/true"], Reaction::Retreat)?)?;
        let summary = talk.wait(job)?;
        results.push(clock.now().since(start));
        if summary.state != JobState::Succeeded {
            bail!("job {job} came to {summary:?}");
        }
        let wall = clock.wall();
        let job = talk.submit(one(&["/bin/date", "+%s%N"], Reaction::Retreat)?)?;
        talk.wait(job)?;
        starts.push(printed_time(&talk, job)?.since(wall));
        progress.step();
    }
    for _ in 0..times {
        let start = clock.now();
        lab.text(&["submit", "--wait", "--", "/bin/true"])?;
        commands.push(clock.now().since(start));
        progress.step();
    }
    Ok(vec![
        Record::spans("latency", "submit to first instruction (date's)", &starts),
        Record::spans("latency", "submit to result known, open connection", &results)
            .at_most("p50", 0.0025),
        Record::spans("latency", "a whole `glean submit --wait`", &commands).at_most("p50", 0.010),
    ])
}

fn printed_time(talk: &Talk, job: JobId) -> Result<WallTime> {
    let request = Request::Output(SubprogramId { job, index: 0 });
    let Reply::Output { stdout: Printed::Inline(text), .. } = talk.request(&request)? else {
        bail!("job {job} has no output");
    };
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    text.parse().map(WallTime).with_context(|| format!("`date` printed `{text}`"))
}

const BUSY: [&str; 3] = ["sh", "-c", "while :; do :; done"];

/// Where the one guest of the lab runs.
fn place(lab: &Lab) -> Result<usize> {
    until("the guest runs", PATIENCE, || {
        Ok(lab.hosts.iter().position(|host| !host.guests().is_empty()))
    })
}

fn wait_elsewhere(hosts: &[LabHost], here: usize) -> Result<()> {
    let others: Vec<&LabHost> =
        hosts.iter().enumerate().filter(|(at, _)| *at != here).map(|(_, host)| host).collect();
    spin_until("the guest runs elsewhere", PATIENCE * 2, || {
        others.iter().any(|host| !host.guests().is_empty())
    })?;
    Ok(())
}

fn keystroke_to_elsewhere(times: u32, progress: &Progress) -> Result<Record> {
    let mut lab = lab(2, false)?;
    let talk = Talk::connect(&lab.admin(), Some(lab.address()))?;
    talk.submit(one(&BUSY, Reaction::Retreat)?)?;
    let clock = Clock::new();
    let mut spans = vec![];
    for _ in 0..times {
        let here = place(&lab)?;
        lab.wait_for_idle(2)?;
        let typed = clock.now();
        lab.hosts[here].type_key()?;
        wait_elsewhere(&lab.hosts, here)?;
        spans.push(clock.now().since(typed));
        progress.step();
    }
    Ok(Record::spans("latency", "keystroke to the retreated guest's start elsewhere", &spans)
        .at_most("p50", 0.1))
}

/// SIGKILL to the agent's worker. The connection breaks when the coordinator
/// learns of it: from the supervisor's next worker, which says that all guests
/// of the former are dead.
fn death_to_elsewhere(times: u32, progress: &Progress) -> Result<Vec<Record>> {
    let lab = lab(2, false)?;
    let talk = Talk::connect(&lab.admin(), Some(lab.address()))?;
    let job = talk.submit(one(&BUSY, Reaction::Suspend)?)?;
    let clock = Clock::new();
    let (mut spans, mut after_break) = (vec![], vec![]);
    for _ in 0..times {
        let here = place(&lab)?;
        lab.wait_for_idle(2)?;
        let worker = Pid::from_raw(i32::try_from(lab.hosts[here].agent_worker()?)?);
        let lost = lost(&talk, job)?;
        let start = clock.now();
        kill_process(worker.context("a process")?, Signal::KILL)?;
        // The moment the coordinator knows, asked as often as it answers.
        while self::lost(&talk, job)? == lost {}
        let known = clock.now();
        wait_elsewhere(&lab.hosts, here)?;
        spans.push(clock.now().since(start));
        after_break.push(clock.now().since(known));
        progress.step();
    }
    Ok(vec![
        Record::spans(
            "latency",
            "agent killed: connection broken to running elsewhere",
            &after_break,
        )
        .at_most("p50", 0.010),
        Record::spans("latency", "agent killed: SIGKILL to running elsewhere", &spans),
    ])
}

fn lost(talk: &Talk, job: JobId) -> Result<u64> {
    let reply = talk.request(&Request::Job(job))?;
    let Reply::Job(row) = reply else { bail!("asked for job {job} and got {reply:?}") };
    Ok(row.summary.lost)
}

fn silence_to_elsewhere(times: u32, progress: &Progress) -> Result<Record> {
    let lab = lab(2, true)?;
    let network = lab.network.as_ref().context("the silent agent needs network namespaces")?;
    let talk = Talk::connect(&lab.admin(), Some(lab.address()))?;
    talk.submit(one(&BUSY, Reaction::Suspend)?)?;
    let clock = Clock::new();
    let mut spans = vec![];
    for _ in 0..times {
        let here = place(&lab)?;
        lab.wait_for_idle(2)?;
        let start = clock.now();
        lab.hosts[here].unplug(network)?;
        wait_elsewhere(&lab.hosts, here)?;
        spans.push(clock.now().since(start));
        lab.hosts[here].plug_in(network)?;
        lab.wait_for_workstations()?;
        progress.step();
    }
    let limit = (LEASE + Duration::from_secs(1)).as_secs_f64();
    Ok(Record::spans("latency", "agent silent: link cut to running elsewhere", &spans)
        .with("lease_s", LEASE.as_secs_f64())
        .at_most("max", limit))
}
