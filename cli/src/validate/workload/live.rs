//! The jobs of a workload on a real lab: submitted when they arrive, and what
//! the coordinator's records say of them afterwards.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::JobState;
use gleaner_common::time::{Moment, WallTime};
use gleaner_coordinator_core::SchedulerConfig;
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_lab::{Lab, Options};
use gleaner_replay::workload::campaign::Experiment;
use gleaner_shell::clock::Clock;

use super::bags::Bag;

/// How often the jobs are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// A workload that takes longer than so many times its work on one place has
/// come to a stop.
const LONGEST: u32 = 2;

/// So many places share an agent, if they can be divided so: a machine of few
/// cores has not time for one each.
const PLACES_MAX: u32 = 4;

/// From the workload's origin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) start: Duration,
    pub(super) end: Duration,
}

/// What a run left.
#[derive(Clone, Debug, Default)]
pub(super) struct Lived {
    pub(super) jobs: Vec<Times>,
    /// Of all places, how long they were held.
    pub(super) used: Duration,
    /// What a subprogram took longer than it sleeps, in the mean.
    pub(super) start_cost: Duration,
}

/// # Errors
/// The lab does not start, or a job does not succeed.
pub(super) fn run(experiment: &Experiment, processors: u32, bags: &[Bag]) -> Result<Lived> {
    let lab = start(experiment, processors)?;
    let client = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    let origin = Clock.now();
    let mut jobs = vec![];
    for bag in bags {
        let due = bag.submitted.since(Moment::ZERO);
        std::thread::sleep(due.saturating_sub(Clock.now().since(origin)));
        jobs.push(client.submit(bag.spec()?)?);
    }
    let work: Duration = bags.iter().map(|bag| bag.sleeps * bag.parts).sum();
    let until = Clock.now() + (work + Duration::from_secs(60)) * LONGEST;
    for job in &jobs {
        wait(&client, *job, until)?;
    }
    // On the clock that all else is told by.
    let (Some(first), Some(bag)) = (jobs.first(), bags.first()) else { return Ok(Lived::default()) };
    let submitted = client.job(*first)?.submitted;
    let before = i64::try_from(bag.submitted.0).unwrap_or(i64::MAX);
    read(&client, WallTime(submitted.0.saturating_sub(before)), &jobs, bags)
}

fn start(experiment: &Experiment, processors: u32) -> Result<Lab> {
    let divides = |places: &u32| processors.is_multiple_of(*places);
    let places = (1..=PLACES_MAX).rev().find(divides).unwrap_or(1);
    let mut options = Options::new(std::env::current_exe()?, (processors / places) as usize);
    options.host.places = u16::try_from(places)?;
    options.collector = false;
    let scheduler = SchedulerConfig {
        policy: experiment.policy.name.to_owned(),
        parameters: experiment.parameters.clone(),
        ..SchedulerConfig::default()
    };
    let scheduler = toml::Table::try_from(&scheduler)?;
    let table = toml::Table::from_iter([("scheduler".to_owned(), scheduler.into())]);
    options.coordinator.push_str(&toml::to_string(&table)?);
    let hosts = options.hosts;
    let lab = Lab::start(options)?;
    lab.wait_for_idle(hosts)?;
    Ok(lab)
}

fn wait(client: &BlockingClient, job: JobId, until: Moment) -> Result<()> {
    loop {
        let summary = client.job(job)?.summary;
        if summary.state.has_ended() {
            ensure!(summary.state == JobState::Succeeded, "job {job} failed: {summary:?}");
            return Ok(());
        }
        if Clock.now() > until {
            bail!("job {job} does not end: {summary:?}");
        }
        std::thread::sleep(LOOK);
    }
}

fn read(client: &BlockingClient, origin: WallTime, jobs: &[JobId], bags: &[Bag]) -> Result<Lived> {
    let (mut lived, mut parts, mut longer) = (Lived::default(), 0, Duration::ZERO);
    for (job, bag) in jobs.iter().zip(bags) {
        let mut times: Option<Times> = None;
        for index in 0..bag.parts {
            let attempts = client.attempts(SubprogramId { job: *job, index })?;
            let [one] = &attempts[..] else {
                bail!("subprogram {job}.{index} was tried {} times: {attempts:?}", attempts.len())
            };
            let ended = one.ended.with_context(|| format!("{job}.{index} has not ended"))?;
            let held = ended.since(one.placed);
            let (start, end) = (one.placed.since(origin), ended.since(origin));
            let so_far = times.unwrap_or(Times { start, end });
            times = Some(Times { start: so_far.start.min(start), end: so_far.end.max(end) });
            lived.used += held;
            longer += held.saturating_sub(bag.sleeps);
            parts += 1;
        }
        lived.jobs.push(times.context("a job of no parts")?);
    }
    lived.start_cost = longer.checked_div(parts).unwrap_or_default();
    Ok(lived)
}
