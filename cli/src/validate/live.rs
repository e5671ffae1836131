//! One real run in a lab of this machine, and all that it left.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gleaner_collector::load::{LoadOptions, timelines};
use gleaner_collector::timeline::Timeline;
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::OnBusy;
use gleaner_common::report::{AttemptRow, JobState};
use gleaner_common::time::WallTime;
use gleaner_common::trace::{self, Op, Trace};
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_lab::owners::Owners;
use gleaner_lab::{Lab, Options};
use gleaner_shell::clock::Clock;

use super::distance::{Times, Visits};
use crate::command::trace::play::Share;
use crate::demo::usage_records;

/// How often the job is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A program that takes longer than this has come to a stop.
const LONGEST: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub(super) trace: &'a Trace,
    pub(super) workstations: usize,
    pub(super) on_busy: OnBusy,
    pub(super) seed: u64,
}

/// What a run left.
#[derive(Clone, Debug)]
pub(super) struct Lived {
    /// As its ranks recorded it, its computing as long as it took with the
    /// share of a core that each rank got.
    pub(super) trace: Trace,
    /// Of a core, what a rank got while it computed, on average.
    pub(super) share: f64,
    /// How the workstations were used, in the order in which they enrolled.
    pub(super) timelines: Vec<Timeline>,
    /// When its first rank was placed.
    pub(super) start: WallTime,
    /// Each rank's times, from the start.
    pub(super) times: Vec<Times>,
    pub(super) visits: Vec<Visits>,
    pub(super) moves: u64,
    pub(super) returns: u32,
    /// From a move's offer until it was over, all together.
    moving: Duration,
}

impl Lived {
    /// What one of its moves took, on average.
    pub(super) fn cost(&self) -> Duration {
        let moves = u32::try_from(self.moves).unwrap_or(u32::MAX);
        self.moving.checked_div(moves).unwrap_or_default()
    }
}

/// # Errors
/// The lab does not start, the program fails, or what it left cannot be read.
pub(super) fn run(setting: &Setting<'_>) -> Result<Lived> {
    let mut options = Options::new(std::env::current_exe()?, setting.workstations);
    options.host.places = 1;
    options.host.quiet = Duration::from_millis(1_500);
    // Phalen 1994, §6.4, as the prediction has it; and in a lab of a minute nothing
    // was learned of owners.
    options.coordinator.push_str("policy = \"last-idle-first\"");
    let mut lab = Lab::start(options)?;
    lab.expect_cgroups("a run")?;
    lab.wait_for_idle(setting.workstations)?;
    let client = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    let job = submit(&lab, setting)?;
    let (began, mut owners) = (Clock.now(), Owners::new(setting.workstations, setting.seed));
    let (row, returns) = owners.until_end((&mut lab, &client), job, LOOK, |_, row, _| {
        let in_time = row.summary.state.has_ended() || Clock.now().since(began) <= LONGEST;
        ensure!(in_time, "the program does not end: {:?}", row.summary);
        Ok(())
    })?;
    if row.summary.state != JobState::Succeeded {
        let why = lab.text(&["job", &job.to_string()])?;
        bail!("the program ended {}:\n{why}", row.summary.state.name());
    }
    usage_records(&lab)?;
    let attempts = attempts(&client, job, setting.trace.ranks.len())?;
    let start = attempts.values().filter_map(|all| all.first()).map(|one| one.placed).min();
    let start = start.context("nothing of the program has run")?;
    let moved = moves(&attempts);
    let (trace, share) = recorded(&lab, job, setting.trace)?;
    Ok(Lived {
        trace,
        share,
        timelines: usage(&lab)?,
        start,
        times: attempts.values().map(|all| times(all, start)).collect(),
        visits: attempts.values().map(|all| visits(&lab, all, start)).collect(),
        moves: moved.len() as u64,
        returns: u32::try_from(returns.len())?,
        moving: moved.into_iter().sum(),
    })
}

fn submit(lab: &Lab, setting: &Setting<'_>) -> Result<JobId> {
    let program = lab.dir().join("program.trace");
    trace::write(setting.trace, File::create(&program)?)?;
    let glean = format!("{}=glean", std::env::current_exe()?.display());
    let input = program.to_str().context("a temporary directory in UTF-8")?;
    let ranks = format!("--ranks={}", setting.trace.ranks.len());
    let on_busy = format!("--on-busy={}", setting.on_busy);
    let options = ["--name", &setting.trace.name, &ranks, &on_busy, "--record"];
    let inputs = ["--input", &glean, "--input", input];
    let command = ["--", "./glean", "trace", "play", "program.trace"];
    let job = lab.submit(&[&options[..], &inputs, &command].concat())?;
    Ok(JobId(u32::try_from(job)?))
}

type Attempts = BTreeMap<u32, Vec<AttemptRow>>;

/// Each rank's attempts, oldest first.
fn attempts(client: &BlockingClient, job: JobId, ranks: usize) -> Result<Attempts> {
    (0..u32::try_from(ranks)?)
        .map(|index| Ok((index, client.attempts(SubprogramId { job, index })?)))
        .collect()
}

/// What each move took: from the new attempt's offer to the old one's end.
fn moves(attempts: &Attempts) -> Vec<Duration> {
    let pairs = attempts.values().flat_map(|all| all.windows(2));
    let took = pairs.filter_map(|pair| {
        let moved = pair[0].end.as_deref().is_some_and(|end| end.starts_with("moved"));
        Some(pair[0].ended?.since(pair[1].placed)).filter(|_| moved)
    });
    took.collect()
}

fn times(all: &[AttemptRow], start: WallTime) -> Times {
    let first = all.first().map_or(start, |one| one.placed);
    let last = all.last().and_then(|one| one.ended).unwrap_or(start);
    Times { start: first.since(start), end: last.since(start) }
}

fn visits(lab: &Lab, all: &[AttemptRow], start: WallTime) -> Visits {
    let number = |one: &AttemptRow| lab.hosts.iter().position(|it| it.name == one.workstation);
    all.iter()
        .filter_map(|one| {
            let number = u32::try_from(number(one)?).ok()?;
            Some((number, one.placed.since(start).as_secs_f64()))
        })
        .collect()
}

/// What the ranks recorded, as one trace stretched by what others took of their
/// cores; and what was left of one, on average.
fn recorded(lab: &Lab, job: JobId, played: &Trace) -> Result<(Trace, f64)> {
    let to = lab.dir().join("recorded");
    let job = job.to_string();
    lab.text(&["fetch", &job, "--out", to.to_str().context("a temporary directory in UTF-8")?])?;
    let outputs: Vec<_> = (0..played.ranks.len()).map(|rank| to.join(rank.to_string())).collect();
    let parts =
        outputs.iter().enumerate().map(|(rank, of)| read(&of.join(format!("trace.{rank}"))));
    let mut trace = Trace::join(played.name.clone(), parts.collect::<Result<_>>()?)?;
    let mut all = Share::default();
    for (rank, ops) in trace.ranks.iter_mut().enumerate() {
        let text = lab.text(&["logs", &format!("{job}.{rank}")])?;
        let told = text.lines().last().context("a rank that tells nothing of its core")?;
        let share: Share = serde_json::from_str(told).context("what a rank tells of its core")?;
        for op in ops {
            if let Op::Compute { nanos } = op {
                *nanos = share.took(*nanos);
            }
        }
        all.computed_ns += share.computed_ns;
        all.waited_ns += share.waited_ns;
    }
    Ok((trace, all.share()))
}

fn read(path: &Path) -> Result<Trace> {
    let file = File::open(path).with_context(|| format!("{} is missing", path.display()))?;
    trace::read(file).map(|lined| lined.trace).map_err(|error| anyhow::anyhow!(error.in_file(path)))
}

fn usage(lab: &Lab) -> Result<Vec<Timeline>> {
    let loaded =
        timelines(&lab.collector_data().join("usage"), &LoadOptions::default(), &mut |_| ())?;
    let mut by_name: BTreeMap<_, Timeline> = loaded.timelines.into_iter().collect();
    lab.hosts
        .iter()
        .map(|host| {
            let found = by_name.remove(&host.name);
            found.with_context(|| format!("the collector has nothing of {}", host.name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::Fence;

    use super::*;

    fn attempt(placed: i64, ended: i64, end: &str) -> AttemptRow {
        AttemptRow {
            replica: 1,
            fence: Fence::of(1),
            subprogram: SubprogramId { job: JobId(1), index: 0 },
            workstation: "w".into(),
            placed: WallTime::from_unix_s(placed),
            ended: Some(WallTime::from_unix_s(ended)),
            end: Some(end.into()),
        }
    }

    #[test]
    fn a_move_takes_from_its_offer_until_the_old_attempt_is_ended() {
        let all = vec![
            attempt(100, 112, "moved to w2"),
            attempt(110, 130, "lost: its lease ended"),
            attempt(131, 150, "succeeded"),
        ];
        let found = times(&all, WallTime::from_unix_s(90));
        let s = Duration::from_secs;
        assert_eq!(found, Times { start: s(10), end: s(60) });
        assert_eq!(moves(&Attempts::from([(0, all)])), [s(2)]);
    }
}
