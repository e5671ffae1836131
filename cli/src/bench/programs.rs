//! The thesis's four programs (Phalen 1994, Table 8), sixteen ranks and a host
//! each, on four workstations: alone, and with owners who come back every few
//! seconds and send them on. The answer is checked both times.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::report::{JobRow, JobState};
use gleaner_common::wire::{Printed, Reply, Request};
use gleaner_lab::Lab;
use gleaner_shell::clock::Clock;

use super::record::Record;
use super::{Args, Progress, options};
use crate::demo::owners::Owner;
use crate::failure::hinted;
use crate::talk::Talk;

/// Of `program/examples`, with a size that takes some seconds on two cores.
const PROGRAMS: [(&str, &str); 4] =
    [("fft", "20"), ("circuit", "12"), ("mesh", "192"), ("determinant", "1024")];

const HOSTS: usize = 4;
/// Sixteen ranks and a host fit on three of the four.
const PLACES: u16 = 6;
const RANKS: u32 = 17;

const TICK: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1_800);

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let times = args.times.unwrap_or(3).max(1);
    let examples = examples(args)?;
    let progress = Progress::new(args, "programs", u64::from(times) * 2 * PROGRAMS.len() as u64);
    let mut lab = lab()?;
    let talk = Talk::connect(&lab.admin(), Some(lab.address()))?;
    let mut records = vec![];
    for (name, size) in PROGRAMS {
        let program = examples.join(name);
        let (mut alone, mut disturbed) = (vec![], vec![]);
        for round in 0..times {
            lab.wait_for_idle(HOSTS)?;
            alone.push(execute(&mut lab, &talk, &program, size, None)?);
            progress.step();
            lab.wait_for_idle(HOSTS)?;
            disturbed.push(execute(&mut lab, &talk, &program, size, Some(u64::from(round)))?);
            progress.step();
        }
        records.extend(judge(name, size, &alone, &disturbed));
    }
    Ok(records)
}

fn lab() -> Result<Lab> {
    let mut options = options(HOSTS)?;
    options.host.places = PLACES;
    options.host.quiet = Duration::from_millis(1_500);
    let lab = Lab::start(options)?;
    if lab.cgroup.is_none() {
        bail!("programs needs cgroups: {}", lab.missing.join("; "));
    }
    Ok(lab)
}

fn examples(args: &Args) -> Result<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("examples"));
    let directory = args.examples.clone().or_else(beside).context("where is this program?")?;
    match PROGRAMS.iter().find(|(name, _)| !directory.join(name).exists()) {
        None => Ok(directory),
        Some((name, _)) => Err(hinted(
            format!("{} is missing", directory.join(name).display()),
            "cargo build --release -p gleaner-program --examples makes it; --examples DIR is where",
        )),
    }
}

/// What one execution came to.
struct Execution {
    took: Duration,
    row: JobRow,
    returns: u32,
}

fn execute(
    lab: &mut Lab,
    talk: &Talk,
    program: &Path,
    size: &str,
    owners: Option<u64>,
) -> Result<Execution> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (input, command) = (format!("{}={name}", program.display()), format!("./{name}"));
    let start = Clock.now();
    let job = lab.submit(&[
        "--ranks",
        &RANKS.to_string(),
        "--on-busy",
        "migrate",
        "--input",
        &input,
        "--",
        &command,
        "--size",
        size,
    ])?;
    let job = JobId(u32::try_from(job)?);
    let owner = |host: usize| Owner::new(owners.unwrap_or(0) * 1_000 + host as u64, start);
    let mut owners: Vec<Owner> =
        if owners.is_some() { (0..HOSTS).map(owner).collect() } else { vec![] };
    let (mut returns, mut look) = (0, start);
    loop {
        for (owner, host) in owners.iter_mut().zip(&mut lab.hosts) {
            returns += u32::from(owner.act(host, Clock.now())?.is_some());
        }
        if Clock.now() >= look {
            look = Clock.now() + LOOK;
            let Reply::Job(row) = talk.request(&Request::Job(job))? else {
                bail!("the coordinator does not know job {job} any more");
            };
            let took = Clock.now().since(start);
            if row.summary.state.has_ended() {
                check(lab, talk, &row, &name)?;
                return Ok(Execution { took, row: *row, returns });
            }
            if took > LONGEST {
                bail!("{name} does not end: {}", lab.text(&["job", &job.to_string()])?);
            }
        }
        std::thread::sleep(TICK);
    }
}

/// The host tells the answer only if it is right.
fn check(lab: &Lab, talk: &Talk, row: &JobRow, name: &str) -> Result<()> {
    if row.summary.state != JobState::Succeeded {
        bail!(
            "{name} ended {}: {}",
            row.summary.state.name(),
            lab.text(&["job", &row.job.to_string()])?
        );
    }
    for index in 0..RANKS {
        let request = Request::Output(SubprogramId { job: row.job, index });
        if let Reply::Output { stdout: Printed::Inline(text), .. } = talk.request(&request)?
            && String::from_utf8_lossy(&text).contains("answer ok")
        {
            return Ok(());
        }
    }
    bail!("{name} gave no answer")
}

fn judge(name: &str, size: &str, alone: &[Execution], disturbed: &[Execution]) -> Vec<Record> {
    let took = |all: &[Execution]| all.iter().map(|one| one.took).collect::<Vec<_>>();
    let sum = |of: fn(&Execution) -> f64| disturbed.iter().map(of).sum::<f64>();
    let undisturbed =
        Record::spans("programs", &format!("{name} --size {size}, no owners"), &took(alone));
    let floor = undisturbed.p50.unwrap_or(f64::NAN);
    #[expect(clippy::cast_precision_loss, reason = "as many as there are executions")]
    let each = disturbed.len() as f64;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand at most")]
    let moves = sum(|one| one.row.summary.moves as f64) / each;
    let with_owners = Record::spans(
        "programs",
        &format!("{name} --size {size}, owners return"),
        &took(disturbed),
    )
    .over(floor)
    .with("returns_each", sum(|one| f64::from(one.returns)) / each)
    .with("moves_each", moves)
    .with("frozen_s_each", sum(|one| one.row.frozen_s) / each)
    .with("answers", "right");
    vec![undisturbed, with_owners]
}
