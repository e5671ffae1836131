//! The policies of Posner's group and ours beside what ElastiSim makes of them:
//! `malleable DIRECTORY` over inputs and results as they are in
//! `shared/data/malleable`; `malleable SEEDS [short]` over so many inputs of the
//! same kind that ours was not fitted to, for each share of malleable jobs.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use gleaner_coordinator_core::scheduler::{Parameters, Resources, named};
use gleaner_replay::workload::elastisim::{Generator, Input};
use gleaner_replay::workload::{Summary, run_workload};
use gleaner_shell::clock::Clock;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What somebody else's simulator says: makespan and mean turnaround.
type Theirs = BTreeMap<(String, String), [f64; 2]>;

/// Seeds from here on were not looked at while ours was made.
const UNSEEN: u64 = 1_000;
const OURS: &str = "gleaner";
/// What the authors measure, and a true EASY.
const RIVALS: [&str; 12] = [
    "min-agreement",
    "min-steal-agreement",
    "min-common-pool",
    "pref-agreement",
    "pref-steal-agreement",
    "pref-common-pool",
    "average-agreement",
    "average-steal-agreement",
    "average-common-pool",
    "rigid-easy-backfill",
    "rigid-fifo",
    "easy",
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().ok_or("usage: malleable DIRECTORY|SEEDS [short]")?;
    match what.parse() {
        Ok(seeds) if arguments.len() == 1 => on_unseen(seeds, Generator::default()),
        Ok(seeds) => {
            on_unseen(seeds, Generator { days: 2, most_s: 40_000.0, ..Generator::default() })
        }
        Err(_) => beside_theirs(Path::new(what)),
    }
}

fn beside_theirs(directory: &Path) -> Result<()> {
    let mut theirs = read_theirs(&directory.join("replayed.csv"))?;
    theirs.extend(read_theirs(&directory.join("rivals.csv"))?);
    let names: BTreeSet<&str> = theirs.keys().map(|(input, _)| input.as_str()).collect();
    println!("input, policy: makespan and mean turnaround in s: here, theirs, off by");
    for name in names {
        let input = read(&directory.join(format!("{name}.json.gz")))?;
        let mut best = f64::INFINITY;
        for ((_, policy), [makespan, turnaround]) in theirs.iter().filter(|(of, _)| of.0 == name) {
            let (here, _) = run(policy, &input)?;
            let (span, mean) = (here.span().as_secs_f64(), here.mean_turnaround_s());
            let off = |here: f64, theirs: f64| (here / theirs - 1.0) * 100.0;
            println!(
                "{name:>22} {policy:24} {span:8.1} {makespan:8.1} {:+.3} % {mean:8.1} {turnaround:8.1} {:+.3} %",
                off(span, *makespan),
                off(mean, *turnaround),
            );
            best = best.min(*turnaround);
        }
        for policy in ["easy", OURS] {
            let (here, took) = run(policy, &input)?;
            let mean = here.mean_turnaround_s();
            let changes = here.adaptations;
            println!(
                "{name:>22} {policy:24} {mean:8.1}, of their best {:.3}; {changes} changes, {took:?}",
                mean / best
            );
        }
    }
    Ok(())
}

fn on_unseen(seeds: u64, generator: Generator) -> Result<()> {
    for malleable in [0.0, 0.2, 0.4, 0.6, 0.8, 1.0] {
        let (mut ours, mut theirs) = (vec![], vec![vec![]; RIVALS.len()]);
        for seed in UNSEEN..UNSEEN + seeds {
            let input = Generator { malleable, ..generator }.draw(seed);
            ours.push(run(OURS, &input)?.0.mean_turnaround_s());
            for (policy, means) in RIVALS.iter().zip(&mut theirs) {
                means.push(run(policy, &input)?.0.mean_turnaround_s());
            }
        }
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let best = (0..RIVALS.len()).min_by(|a, b| mean(&theirs[*a]).total_cmp(&mean(&theirs[*b])));
        let (best, count) = (best.unwrap_or(0), ours.len());
        let of_each =
            |seed: usize| theirs.iter().map(|means| ours[seed] / means[seed]).fold(0.0, f64::max);
        println!(
            "{:3.0} % malleable: {:.0} s, {} {:.0} s: {:.3}; 5 % better than whichever is best there: {} of {count}",
            malleable * 100.0,
            mean(&ours),
            RIVALS[best],
            mean(&theirs[best]),
            mean(&ours) / mean(&theirs[best]),
            (0..count).filter(|seed| of_each(*seed) < 0.95).count(),
        );
    }
    Ok(())
}

fn read(path: &Path) -> Result<Input> {
    let file = BufReader::new(File::open(path)?);
    Ok(Input::read(BufReader::new(MultiGzDecoder::new(file)))?)
}

fn read_theirs(path: &Path) -> Result<Theirs> {
    let mut theirs = Theirs::new();
    for row in csv::Reader::from_path(path)?.deserialize::<BTreeMap<String, String>>() {
        let row = row?;
        let number = |name: &str| row[name].parse::<f64>();
        if row["status"] == "ok" {
            let key = (row["input"].clone(), row["policy"].replace('_', "-"));
            theirs.insert(key, [number("makespan_s")?, number("mean_turnaround_s")?]);
        }
    }
    Ok(theirs)
}

/// Theirs are called as ElastiSim does; ours and EASY when something has
/// happened, which takes the place of a call every minute.
fn run(policy: &str, input: &Input) -> Result<(Summary, Duration)> {
    let named = named(policy).ok_or_else(|| format!("no policy `{policy}`"))?;
    let is_theirs = ![OURS, "easy"].contains(&policy);
    let rules = if is_theirs { input.as_elastisim() } else { input.when_needed() };
    let (clock, resources) = (Clock::new(), Resources::steady(input.processors));
    let (before, policy) = (clock.now(), (named.build)(&Parameters::default()));
    let summary = run_workload(input.jobs.iter().cloned(), resources, policy, rules, |_| {});
    Ok((summary, clock.now().since(before)))
}
