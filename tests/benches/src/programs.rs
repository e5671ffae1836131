//! The thesis's four programs (Phalen 1994, Table 8), sixteen ranks and a host
//! each, on four workstations: alone, and with owners who come back every few
//! seconds and send them on. The answer is checked both times.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::{JobRow, JobState};
use gleaner_lab::Lab;
use gleaner_shell::clock::Clock;

use crate::record::Record;
use crate::{Args, Progress, idle_lab, own_binary};
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_lab::owners::{Owners, Return};

/// Of `program/examples`, with a size, and how often it is done one after the
/// other, that together take about ten seconds on two cores.
const PROGRAMS: [(&str, &str, u32); 4] =
    [("fft", "22", 1), ("circuit", "32", 6), ("mesh", "768", 3), ("determinant", "4608", 1)];

const HOSTS: usize = 4;
/// Sixteen ranks and a host fit on three of the four.
const PLACES: u16 = 6;
const RANKS: u32 = 17;

const LOOK: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1_800);

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let times = args.times.unwrap_or(3).max(1);
    let examples = examples(args)?;
    let progress = Progress::new(args, "programs", u64::from(times) * 2 * PROGRAMS.len() as u64);
    let mut lab = lab()?;
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    let mut records = vec![];
    for (name, size, often) in PROGRAMS {
        let program = &Program { path: examples.join(name), size, often };
        let (mut alone, mut disturbed) = (vec![], vec![]);
        for round in 0..times {
            lab.wait_for_idle(HOSTS)?;
            alone.push(execute(&mut lab, &talk, program, None)?);
            progress.step();
            lab.wait_for_idle(HOSTS)?;
            disturbed.push(execute(&mut lab, &talk, program, Some(u64::from(round)))?);
            progress.step();
        }
        records.extend(judge(&program.told(name), &alone, &disturbed));
    }
    Ok(records)
}

fn lab() -> Result<Lab> {
    let lab = idle_lab(HOSTS, |options| {
        options.network = true;
        options.host.places = PLACES;
        options.host.quiet = Duration::from_millis(1_500);
    })?;
    lab.expect_cgroups("programs")?;
    Ok(lab)
}

fn examples(args: &Args) -> Result<PathBuf> {
    let beside = own_binary()?.with_file_name("examples");
    let directory = args.examples.clone().unwrap_or(beside);
    for (name, ..) in PROGRAMS {
        let path = directory.join(name);
        ensure!(path.exists(), "{} is missing: `make bench` builds it", path.display());
    }
    Ok(directory)
}

struct Program {
    path: PathBuf,
    size: &'static str,
    often: u32,
}

impl Program {
    fn told(&self, name: &str) -> String {
        match self.often {
            1 => format!("{name} --size {}", self.size),
            often => format!("{often} times {name} --size {}", self.size),
        }
    }
}

/// What doing it as often as wanted came to.
#[derive(Default)]
struct Execution {
    took: Duration,
    returns: u32,
    moves: u64,
    frozen_s: f64,
}

fn execute(
    lab: &mut Lab,
    talk: &BlockingClient,
    program: &Program,
    seed: Option<u64>,
) -> Result<Execution> {
    let start = Clock.now();
    let mut owners = seed.map_or_else(Owners::none, |seed| Owners::new(HOSTS, seed));
    let mut execution = Execution::default();
    for _ in 0..program.often {
        let (row, returns) = once(lab, talk, program, &mut owners)?;
        execution.returns += u32::try_from(returns.len())?;
        execution.moves += row.summary.counts.moves;
        execution.frozen_s += row.frozen_s;
    }
    execution.took = Clock.now().since(start);
    Ok(execution)
}

fn once(
    lab: &mut Lab,
    talk: &BlockingClient,
    program: &Program,
    owners: &mut Owners,
) -> Result<(JobRow, Vec<Return>)> {
    let path = &program.path;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (input, command) = (format!("{}={name}", path.display()), format!("./{name}"));
    let start = Clock.now();
    let options = [&format!("--ranks={RANKS}"), "--on-busy=migrate", "--input", &input];
    let command = ["--", &command, "--size", program.size];
    let job = JobId(u32::try_from(lab.submit(&[&options[..], &command].concat())?)?);
    let (row, returns) = owners.until_end((lab, talk), job, LOOK, |lab, row, _| {
        if !row.summary.state.has_ended() && Clock.now().since(start) > LONGEST {
            bail!("{name} does not end: {}", lab.text(&["job", &job.to_string()])?);
        }
        Ok(())
    })?;
    check(lab, talk, &row, &name)?;
    Ok((row, returns))
}

/// The host tells the answer only if it is right.
fn check(lab: &Lab, talk: &BlockingClient, row: &JobRow, name: &str) -> Result<()> {
    if row.summary.state != JobState::Succeeded {
        bail!(
            "{name} ended {}: {}",
            row.summary.state.name(),
            lab.text(&["job", &row.job.to_string()])?
        );
    }
    for index in 0..RANKS {
        let printed = talk.printed(SubprogramId { job: row.job, index })?;
        if printed.contains("answer ok") {
            return Ok(());
        }
    }
    bail!("{name} gave no answer")
}

fn judge(case: &str, alone: &[Execution], disturbed: &[Execution]) -> Vec<Record> {
    let took = |all: &[Execution]| all.iter().map(|one| one.took).collect::<Vec<_>>();
    #[expect(clippy::cast_precision_loss, reason = "as many as there are executions")]
    let count = disturbed.len() as f64;
    let each = |of: fn(&Execution) -> f64| disturbed.iter().map(of).sum::<f64>() / count;
    let undisturbed = Record::spans("programs", &format!("{case}, no owners"), &took(alone));
    let floor = undisturbed.p50.unwrap_or(f64::NAN);
    #[expect(clippy::cast_precision_loss, reason = "a few thousand at most")]
    let moves = each(|one| one.moves as f64);
    let with_owners =
        Record::spans("programs", &format!("{case}, owners return"), &took(disturbed))
            .over(floor)
            .with("returns_each", each(|one| f64::from(one.returns)))
            .with("moves_each", moves)
            .with("frozen_s_each", each(|one| one.frozen_s))
            .with("answers", "right");
    vec![undisturbed, with_owners]
}
