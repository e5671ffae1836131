//! The jobs of a workload on a real lab: submitted when they arrive, and what
//! the coordinator's records say of them afterwards.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::{IndexRange, JobSpec};
use gleaner_common::report::JobState;
use gleaner_common::time::{Moment, WallTime};
use gleaner_coordinator_core::SchedulerConfig;
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_lab::{Lab, Options};
use gleaner_replay::workload::campaign::Experiment;
use gleaner_shell::clock::Clock;
use serde::{Serialize, Serializer};

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
    pub(super) costs: StartCosts,
}

/// What a subprogram takes longer than it sleeps: where a job begins all of its
/// own at once, and where one follows another on its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct StartCosts {
    #[serde(rename = "at_once_s", serialize_with = "seconds")]
    pub(super) at_once: Duration,
    #[serde(rename = "in_turn_s", serialize_with = "seconds")]
    pub(super) in_turn: Duration,
}

fn seconds<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(span.as_secs_f64())
}

impl StartCosts {
    pub(super) fn of(&self, bag: &Bag) -> Duration {
        if bag.is_rigid() { self.at_once } else { self.in_turn }
    }
}

/// # Errors
/// The lab does not start, or a job does not succeed.
pub(super) fn run(experiment: &Experiment, processors: u32, bags: &[Bag]) -> Result<Lived> {
    let lab = start(experiment, processors)?;
    let client = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    warm_up(&client, processors)?;
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
    let (Some(first), Some(bag)) = (jobs.first(), bags.first()) else {
        return Ok(Lived::default());
    };
    let submitted = client.job(*first)?.submitted;
    let before = i64::try_from(bag.submitted.0).unwrap_or(i64::MAX);
    read(&client, WallTime(submitted.0.saturating_sub(before)), &jobs, bags)
}

/// The first subprograms of a workstation take longer to begin than any later.
fn warm_up(client: &BlockingClient, processors: u32) -> Result<()> {
    let indexes = IndexRange::count_of(2 * processors).context("a site of no processors")?;
    let job = client.submit(JobSpec::new(vec!["sleep".into(), "0.5".into()], indexes))?;
    let summary = client.wait(job)?;
    ensure!(summary.state == JobState::Succeeded, "the lab cannot sleep: {summary:?}");
    Ok(())
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
    let mut lived = Lived::default();
    let (mut at_once, mut in_turn) = (vec![], vec![]);
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
            let longer = if bag.is_rigid() { &mut at_once } else { &mut in_turn };
            longer.push(held.saturating_sub(bag.sleeps));
        }
        lived.jobs.push(times.context("a job of no parts")?);
    }
    lived.costs = StartCosts { at_once: mean(&at_once), in_turn: mean(&in_turn) };
    Ok(lived)
}

fn mean(spans: &[Duration]) -> Duration {
    let many = u32::try_from(spans.len()).unwrap_or(u32::MAX);
    spans.iter().sum::<Duration>().checked_div(many).unwrap_or_default()
}
