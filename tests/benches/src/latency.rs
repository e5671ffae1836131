//! How long one subprogram waits for the system, and not for a machine.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Reaction};
use gleaner_common::report::JobState;
use gleaner_common::time::WallTime;
use gleaner_lab::wait::{PATIENCE, spin_until, until};
use gleaner_lab::{Lab, LabHost};
use gleaner_shell::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::messages::What;
use crate::quic::{Asker, Echo, End};
use crate::record::Record;
use crate::{Args, Progress, idle_lab, rounds};
use gleaner_lab::blocking_client::BlockingClient;

const LEASE: Duration = Duration::from_secs(10);

/// No part of it goes on for longer, however slow the machine is.
const LONGEST: Duration = Duration::from_secs(30);

/// The goals: at most so many times the floor.
const RESULT_RATIO: f64 = 4.0;
const COMMAND_RATIO: f64 = 3.0;

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let times = args.times.unwrap_or(100).max(1);
    let moves = times.div_ceil(4);
    let deaths = times.div_ceil(10);
    let silences = times.div_ceil(50);
    let steps = u64::from(times + moves + deaths + silences);
    let progress = Progress::new(args, "latency", steps);
    let mut records = submissions(times, &progress)?;
    records.push(keystroke_to_elsewhere(moves, &progress)?);
    records.extend(death_to_elsewhere(deaths, &progress)?);
    records.push(silence_to_elsewhere(silences, &progress)?);
    Ok(records)
}

fn lab(hosts: usize, network: bool) -> Result<Lab> {
    let lab = idle_lab(hosts, |options| {
        options.network = network;
        options.coordinator = format!("lease = \"{}s\"", LEASE.as_secs());
    })?;
    lab.expect_cgroups("latency")?;
    Ok(lab)
}

fn one(command: &[&str], reaction: Reaction) -> Result<JobSpec> {
    let indexes = IndexRange::count_of(1).context("one subprogram")?;
    let mut spec = JobSpec::new(command.iter().map(|word| (*word).to_owned()).collect(), indexes);
    spec.on_busy = OnBusy::at_once(reaction);
    Ok(spec)
}

/// The least that a submission takes, in spans of this machine.
struct Floor {
    /// Whoever asks, and who answers.
    asker: Asker,
    echo: Echo,
    bare: Vec<Duration>,
    whole: Vec<Duration>,
}

impl Floor {
    fn new(lab: &Lab) -> Result<Self> {
        let (asker, echo) = (Asker::new(End::of(lab, 0)?)?, Echo::start(End::of(lab, 0)?)?);
        Ok(Self { asker, echo, bare: vec![], whole: vec![] })
    }

    /// A bare spawn, a connection that is made, and a byte there and back: two
    /// round trips, each with what QUIC and certificates cost.
    fn measure(&mut self) -> Result<()> {
        let start = Clock.now();
        let mut command = Command::new("/bin/true");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().context("cannot run /bin/true")?;
        self.bare.push(Clock.now().since(start));
        let mut stream = self.asker.dial(&self.echo)?;
        self.asker.ask(&mut stream, &What::One.spoken())?;
        self.whole.push(Clock.now().since(start));
        Ok(())
    }
}

/// One subprogram on an idle lab: to its first instruction and to its result.
fn submissions(times: u32, progress: &Progress) -> Result<Vec<Record>> {
    let lab = lab(1, false)?;
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    talk.wait(talk.submit(one(&["/bin/true"], Reaction::Retreat)?)?)?;
    let mut floor = Floor::new(&lab)?;
    let (mut starts, mut results, mut commands) = (vec![], vec![], vec![]);
    for _ in rounds(times, LONGEST) {
        let start = Clock.now();
        let job = talk.submit(one(&["/bin/true"], Reaction::Retreat)?)?;
        let summary = talk.wait(job)?;
        results.push(Clock.now().since(start));
        if summary.state != JobState::Succeeded {
            bail!("job {job} came to {summary:?}");
        }
        let wall = Clock.wall();
        let job = talk.submit(one(&["/bin/date", "+%s%N"], Reaction::Retreat)?)?;
        talk.wait(job)?;
        starts.push(printed_time(&talk, job)?.since(wall));
        floor.measure()?;
        let start = Clock.now();
        lab.text(&["submit", "--wait", "--", "/bin/true"])?;
        commands.push(Clock.now().since(start));
        progress.step();
    }
    let bare = Record::spans("latency", "floor: a bare spawn", &floor.bare);
    let case = "floor: a bare spawn and two round trips of QUIC";
    let whole = Record::spans("latency", case, &floor.whole);
    let (bare_s, whole_s) = (bare.p50.unwrap_or(f64::NAN), whole.p50.unwrap_or(f64::NAN));
    Ok(vec![
        Record::spans("latency", "submit to first instruction (date's)", &starts).over(bare_s),
        Record::spans("latency", "submit to result known, open connection", &results)
            .over(bare_s)
            .at_most("ratio", RESULT_RATIO),
        Record::spans("latency", "a whole `glean submit --wait`", &commands)
            .over(whole_s)
            .at_most("ratio", COMMAND_RATIO),
        bare,
        whole,
    ])
}

fn printed_time(talk: &BlockingClient, job: JobId) -> Result<WallTime> {
    let text = talk.printed(SubprogramId { job, index: 0 })?.trim().to_owned();
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
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    talk.submit(one(&BUSY, Reaction::Retreat)?)?;
    let mut spans = vec![];
    for _ in rounds(times, LONGEST) {
        let here = place(&lab)?;
        lab.wait_for_idle(2)?;
        let typed = Clock.now();
        lab.hosts[here].type_key()?;
        wait_elsewhere(&lab.hosts, here)?;
        spans.push(Clock.now().since(typed));
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
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    let job = talk.submit(one(&BUSY, Reaction::Suspend)?)?;
    let (mut spans, mut after_break) = (vec![], vec![]);
    for _ in rounds(times, LONGEST) {
        let here = place(&lab)?;
        lab.wait_for_idle(2)?;
        let worker = Pid::from_raw(i32::try_from(lab.hosts[here].agent_worker()?)?);
        let lost = lost(&talk, job)?;
        let start = Clock.now();
        kill_process(worker.context("a process")?, Signal::KILL)?;
        // The moment the coordinator knows, asked as often as it answers.
        while self::lost(&talk, job)? == lost {}
        let known = Clock.now();
        wait_elsewhere(&lab.hosts, here)?;
        spans.push(Clock.now().since(start));
        after_break.push(Clock.now().since(known));
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

fn lost(talk: &BlockingClient, job: JobId) -> Result<u64> {
    Ok(talk.job(job)?.summary.counts.lost)
}

fn silence_to_elsewhere(times: u32, progress: &Progress) -> Result<Record> {
    let lab = lab(2, true)?;
    let network = lab.network.as_ref().context("the silent agent needs network namespaces")?;
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    talk.submit(one(&BUSY, Reaction::Suspend)?)?;
    let mut spans = vec![];
    for _ in rounds(times, LONGEST) {
        let here = place(&lab)?;
        lab.wait_for_idle(2)?;
        let start = Clock.now();
        lab.hosts[here].unplug(network)?;
        wait_elsewhere(&lab.hosts, here)?;
        spans.push(Clock.now().since(start));
        lab.hosts[here].plug_in(network)?;
        lab.wait_for_workstations()?;
        progress.step();
    }
    let limit = (LEASE + Duration::from_secs(1)).as_secs_f64();
    Ok(Record::spans("latency", "agent silent: link cut to running elsewhere", &spans)
        .with("lease_s", LEASE.as_secs_f64())
        .at_most("max", limit))
}
