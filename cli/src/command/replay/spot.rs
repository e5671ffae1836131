//! `glean replay spot`: what the rules for machines that may be taken back are
//! worth.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gleaner_collector::load::{LoadOptions, timelines};
use gleaner_collector::timeline::{Reading, Readings};
use gleaner_common::lines::unpacked;
use gleaner_common::time::WallTime;
use gleaner_replay::Usage;
use gleaner_replay::spot::SpotTrace;
use gleaner_replay::spot::judge::{
    Alike, Judged, Years, bags, deadlines, halves, paces, workstations,
};
use serde::Serialize;

use crate::command::usage::InterpretArgs;
use crate::failure::Verdict;
use crate::{flags, output, values};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Availability traces of spot machines, JSON, packed with gzip or not.
    #[arg(value_name = "TRACE", required_unless_present = "usage")]
    pub traces: Vec<PathBuf>,
    /// The usage archive of workstations with owners.
    #[arg(long, value_name = "DIR", requires = "from", requires = "until")]
    pub usage: Option<PathBuf>,
    /// What the archive knows from then on is foretold; what was before teaches.
    #[arg(long, value_name = "TIME", value_parser = flags::time)]
    pub from: Option<WallTime>,
    /// Until then.
    #[arg(long, value_name = "TIME", value_parser = flags::time)]
    pub until: Option<WallTime>,
    /// How many of its workstations take part.
    #[arg(long, value_name = "N", value_parser = values::number, default_value = "50")]
    pub workstations: u32,
    #[command(flatten)]
    pub interpret: InterpretArgs,
    /// One record a line instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// A trace or an archive that cannot be read.
pub(super) fn run(args: &Args) -> Result<Verdict> {
    let mut judged = of_traces(&args.traces)?;
    if let (Some(usage), Some(from), Some(until)) = (&args.usage, args.from, args.until) {
        let years = Years { from, until, workstations: args.workstations };
        judged.extend(of_owners(&read_usage(usage, &args.interpret)?, &years));
    }
    ensure!(!judged.is_empty(), "nothing to compare: no trace is longer than a task's deadline");
    if args.json {
        return judged
            .iter()
            .try_for_each(|one| output::record(&Line::of(one)))
            .map(|()| Verdict::Yes);
    }
    let rows: Vec<Vec<String>> = judged.iter().map(row).collect();
    output::table(&HEADER, &rows)?;
    Ok(Verdict::Yes)
}

/// Traces of one tick are looked at together.
fn of_traces(paths: &[PathBuf]) -> Result<Vec<Judged>> {
    let mut kinds: BTreeMap<Duration, Vec<SpotTrace>> = BTreeMap::new();
    for path in paths {
        let trace = read_trace(path).with_context(|| path.display().to_string())?;
        kinds.entry(trace.tick).or_default().push(trace);
    }
    let of_kind = |(tick, traces): (&Duration, &Vec<SpotTrace>)| {
        let on = format!("{} spot traces of {tick:?}", traces.len());
        let (seen, unseen) = halves(traces);
        let pace = paces(&format!("{on}, the second halves"), seen, &unseen);
        deadlines(&on, traces, Alike::WeeksOfEach).into_iter().chain(pace).collect::<Vec<_>>()
    };
    Ok(kinds.iter().flat_map(of_kind).collect())
}

fn read_trace(path: &Path) -> Result<SpotTrace> {
    Ok(SpotTrace::read(BufReader::new(unpacked(File::open(path)?)?))?)
}

fn read_usage(archive: &Path, interpret: &InterpretArgs) -> Result<Usage> {
    let (all, logs) = interpret.split();
    let all = Reading { interpretation: all.unwrap_or_default(), ..Reading::default() };
    let options = LoadOptions { readings: Readings { all, logs }, ..LoadOptions::default() };
    let loaded = timelines(archive, &options, &mut |_| ())?;
    output::notes(&loaded.notes());
    Ok(Usage::from_timelines(loaded.timelines))
}

fn of_owners(usage: &Usage, years: &Years) -> Vec<Judged> {
    let traces = workstations(usage, years);
    let on = format!("{} workstations whose owners are away", traces.len());
    let (seen, unseen) = halves(&traces);
    let pace = paces(&format!("{on}, the second half"), seen, &unseen);
    deadlines(&on, &traces, Alike::Weeks)
        .into_iter()
        .chain(pace)
        .chain(bags(usage, years))
        .collect()
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    rule: &'a str,
    beside: &'a str,
    on: &'a str,
    measure: &'a str,
    runs: u32,
    usual: f64,
    ours: f64,
    ratio: f64,
    between: Option<(f64, f64)>,
    verdict: &'a str,
}

impl<'a> Line<'a> {
    fn of(it: &'a Judged) -> Self {
        let Judged { rule, beside, measure, runs, usual, ours, ratio, between, verdict, .. } = *it;
        Self { rule, beside, on: &it.on, measure, runs, usual, ours, ratio, between, verdict }
    }
}

const HEADER: [&str; 8] =
    ["rule", "beside", "on", "measure", "runs", "usual", "ours", "ratio (95 % by week)"];

fn row(it: &Judged) -> Vec<String> {
    let between = it.between.map_or(String::new(), |(low, high)| format!(" [{low:.2}, {high:.2}]"));
    vec![
        it.rule.to_owned(),
        it.beside.to_owned(),
        it.on.clone(),
        it.measure.to_owned(),
        it.runs.to_string(),
        format!("{:.1}", it.usual),
        format!("{:.1}", it.ours),
        format!("{:.2}{between}: {}", it.ratio, it.verdict),
    ]
}
