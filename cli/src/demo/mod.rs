//! `glean demo`: a lab of four workstations on this machine, a real job, and
//! owners who come and go by typing into real terminals.

mod answer;
mod view;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::wire::Request;
use gleaner_lab::blocking_client::BlockingClient;
use gleaner_lab::owners::{Owners, Return};
use gleaner_lab::wait::{PATIENCE, until};
use gleaner_lab::{Lab, Options};
use gleaner_shell::clock::Clock;
use serde::Serialize;

use self::view::View;

/// How often the view is drawn anew.
const REDRAW: Duration = Duration::from_millis(400);

/// Arguments of `glean demo`.
#[derive(ClapArgs, Clone, Debug)]
pub struct Args {
    /// One record instead of the live view and the table.
    #[arg(long)]
    pub json: bool,
    /// How many workstations.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub workstations: u8,
    /// How many subprograms.
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub subprograms: u32,
    /// The seed of the owners' comings and goings.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What the demo came to.
#[derive(Debug, Serialize)]
struct Summary {
    workstations: u8,
    subprograms: u32,
    completed: u32,
    lost: u32,
    /// Subprograms of which more than one result was accepted.
    duplicated: u32,
    owner_returns: u32,
    /// Of these, how many met guests: the reactions were measured on them.
    reactions: usize,
    retreats: u64,
    suspensions: u64,
    reaction_p50_s: f64,
    reaction_max_s: f64,
    usage_records: u64,
    answer: u64,
    answer_ok: bool,
    elapsed_s: f64,
    /// What this machine's rights did not allow.
    missing: Vec<String>,
}

/// Runs the demo; `Ok(false)` if work was lost or the answer is wrong.
///
/// # Errors
/// The lab does not start or breaks.
pub fn run(args: &Args) -> Result<bool> {
    let start = Clock.now();
    let mut view = View::new(args.json);
    view.say("Starting a coordinator, a collector and the workstations ..");
    view.enter("starting the lab");
    let mut options = Options::new(std::env::current_exe()?, usize::from(args.workstations));
    options.host.quiet = Duration::from_millis(1_500);
    let mut lab = Lab::start(options)?;
    for line in &lab.missing {
        view.say(&format!("not here: {line}"));
    }
    let groups = lab.hosts.iter().filter_map(|host| host.cgroup.as_ref());
    view.look_at(groups.map(|group| group.join("guests")).collect());
    view.enter("waiting until all workstations are idle");
    lab.wait_for_idle(lab.hosts.len())?;
    let client = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;
    let job = submit(&lab, args)?;
    view.say(&format!(
        "Job {job}: {} subprograms count the primes below {}; owners come and go.",
        args.subprograms,
        args.subprograms * answer::STRETCH
    ));
    let mut owners = Owners::new(lab.hosts.len(), args.seed);
    let (row, returns) =
        owners.until_end((&mut lab, &client), job, REDRAW, |_, row, returns| {
            let last = returns.iter().rev().find_map(Return::stopped);
            view.draw(row, &client.rows(&Request::Workstations)?, last);
            Ok(())
        })?;
    let summary = row.summary;
    let mut reactions: Vec<Duration> = returns.iter().filter_map(Return::stopped).collect();
    view.enter("all is done; adding up");
    let missing = lab.missing.clone();
    let (found, duplicated) = results(&client, job, args.subprograms)?;
    let usage_records = usage_records(&lab)?;
    reactions.sort();
    let expected = answer::primes_below(args.subprograms * answer::STRETCH);
    let report = Summary {
        workstations: args.workstations,
        subprograms: args.subprograms,
        completed: summary.counts.succeeded,
        lost: summary.total - summary.counts.succeeded,
        duplicated,
        owner_returns: u32::try_from(returns.len())?,
        reactions: reactions.len(),
        retreats: summary.counts.retreats,
        suspensions: summary.counts.suspensions,
        reaction_p50_s: reactions.get(reactions.len() / 2).map_or(0.0, Duration::as_secs_f64),
        reaction_max_s: reactions.last().map_or(0.0, Duration::as_secs_f64),
        usage_records,
        answer: found,
        answer_ok: found == expected,
        elapsed_s: Clock.now().since(start).as_secs_f64(),
        missing,
    };
    view.end();
    if args.json {
        crate::output::record(&report)?;
    } else {
        print(&report)?;
    }
    Ok(report.answer_ok && report.lost == 0 && report.duplicated == 0)
}

fn submit(lab: &Lab, args: &Args) -> Result<JobId> {
    let program = lab.dir().join("primes.awk");
    fs::write(&program, answer::PROGRAM)?;
    let stretch = answer::STRETCH;
    let count = format!("--count={}", args.subprograms);
    let input = program.to_str().context("a temporary directory in UTF-8")?;
    let options = ["--name=primes", &count, "--on-busy=suspend", "--patience=2s", "--input", input];
    let awk = format!("awk -v from=$(({{i}} * {stretch})) -v many={stretch} -f primes.awk");
    let job = lab.submit(&[&options[..], &["--", "sh", "-c", &awk]].concat())?;
    Ok(JobId(u32::try_from(job)?))
}

/// The sum of what the subprograms printed, and how many have two results.
fn results(client: &BlockingClient, job: JobId, subprograms: u32) -> Result<(u64, u32)> {
    let (mut sum, mut duplicated) = (0, 0);
    for index in 0..subprograms {
        let subprogram = SubprogramId { job, index };
        sum += client.printed(subprogram)?.trim().parse().unwrap_or(0);
        let attempts = client.attempts(subprogram)?;
        let accepted = attempts.iter().filter(|row| row.end.as_deref() == Some("succeeded"));
        duplicated += u32::from(accepted.count() > 1);
    }
    Ok((sum, duplicated))
}

/// Counts what the collector has kept once nothing more arrives.
pub(crate) fn usage_records(lab: &Lab) -> Result<u64> {
    let data = lab.collector_data().join("usage");
    let data = data.to_str().context("a temporary directory in UTF-8")?.to_owned();
    let mut before = None;
    until("the collector has the agents' records", PATIENCE, || {
        let rows = lab.rows::<serde_json::Value>(&["usage", "ls", "--usage", &data, "--json"])?;
        let count: u64 = rows.iter().filter_map(|row| row["records"].as_u64()).sum();
        let settled = count > 0 && before == Some(count) && rows.len() == lab.hosts.len();
        before = Some(count);
        Ok(settled.then_some(count))
    })
}

fn print(report: &Summary) -> Result<()> {
    let ms = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
    let rows: Vec<Vec<String>> = [
        ("subprograms done", format!("{} of {}", report.completed, report.subprograms)),
        ("owners' returns", report.owner_returns.to_string()),
        ("  of them onto guests", report.reactions.to_string()),
        ("key typed to guests stopped, median", ms(report.reaction_p50_s)),
        ("key typed to guests stopped, longest", ms(report.reaction_max_s)),
        ("suspensions", report.suspensions.to_string()),
        ("retreats", report.retreats.to_string()),
        ("work lost", report.lost.to_string()),
        ("results accepted twice", report.duplicated.to_string()),
        ("usage records kept", report.usage_records.to_string()),
        (
            "answer",
            format!("{} ({})", report.answer, if report.answer_ok { "right" } else { "WRONG" }),
        ),
        ("took", format!("{:.0} s", report.elapsed_s)),
    ]
    .into_iter()
    .map(|(what, figure)| vec![what.to_owned(), figure])
    .collect();
    crate::output::table(&["the lab's harvest", ""], &rows)
}
