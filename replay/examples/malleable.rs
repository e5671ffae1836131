//! The policies of Posner's group and ours beside what ElastiSim makes of them:
//! `malleable DIRECTORY [POLICY ..]` over inputs and results as they are in
//! `shared/data/malleable`; `malleable SEEDS [POLICY ..]` over so many inputs of
//! the same kind, for each share of malleable jobs.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use gleaner_coordinator_core::scheduler::{Parameters, Resources, named};
use gleaner_replay::workload::elastisim::{Generator, Input};
use gleaner_replay::workload::{Rules, Summary, run_workload};
use gleaner_shell::clock::Clock;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What somebody else's simulator says: makespan and mean turnaround.
type Theirs = BTreeMap<(String, String), [f64; 2]>;

/// Seeds from here on were not looked at while ours was made.
const UNSEEN: u64 = 1_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("usage: malleable DIRECTORY|SEEDS [POLICY ..]")?;
    let policies: Vec<String> = arguments.collect();
    match what.parse() {
        Ok(seeds) => beside_each_other(seeds, &policies),
        Err(_) => beside_theirs(Path::new(&what), &policies),
    }
}

fn beside_theirs(directory: &Path, policies: &[String]) -> Result<()> {
    let mut theirs = read_theirs(&directory.join("replayed.csv"))?;
    theirs.extend(read_theirs(&directory.join("rivals.csv"))?);
    let mut inputs: BTreeMap<&str, Input> = BTreeMap::new();
    println!("input, policy: makespan and mean turnaround: ours, theirs, difference");
    for ((name, policy), [makespan, turnaround]) in &theirs {
        if !inputs.contains_key(name.as_str()) {
            inputs.insert(name, read(&directory.join(format!("{name}.json.gz")))?);
        }
        let input = &inputs[name.as_str()];
        if policies.is_empty() || policies.contains(policy) {
            let (ours, _) = run(policy, input, input.as_elastisim())?;
            let (span, mean) = (ours.span().as_secs_f64(), ours.mean_turnaround_s());
            let off = |ours: f64, theirs: f64| (ours / theirs - 1.0) * 100.0;
            println!(
                "{name:>23} {policy:24} {span:8.1} {makespan:8.1} {:+.4} %  {mean:8.1} {turnaround:8.1} {:+.4} %",
                off(span, *makespan),
                off(mean, *turnaround),
            );
        }
    }
    for (name, input) in &inputs {
        for policy in ["easy", "gleaner"] {
            let (ours, took) = run(policy, input, input.when_needed())?;
            let of_input = theirs.iter().filter(|((of, _), _)| of == name);
            let best = of_input.map(|(_, [_, mean])| *mean).fold(f64::INFINITY, f64::min);
            println!(
                "{name:>23} {policy:10} {:8.1} s, their best {best:8.1} s: {:.3}; {} changes, {took:?}",
                ours.mean_turnaround_s(),
                ours.mean_turnaround_s() / best,
                ours.adaptations,
            );
        }
    }
    Ok(())
}

/// Mean turnaround over seeds, for each share; and how much less ours is than
/// the best of the others on the same seed, at least and in the mean.
fn beside_each_other(seeds: u64, policies: &[String]) -> Result<()> {
    for malleable in [0.0, 0.2, 0.4, 0.6, 0.8, 1.0] {
        let generator = Generator { malleable, ..Generator::default() };
        let mut means: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for seed in UNSEEN..UNSEEN + seeds {
            let input = generator.draw(seed);
            for policy in policies {
                let is_theirs = policy.contains('-');
                let rules = if is_theirs { input.as_elastisim() } else { input.when_needed() };
                let (summary, _) = run(policy, &input, rules)?;
                means.entry(policy).or_default().push(summary.mean_turnaround_s());
            }
        }
        for (policy, means) in &means {
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            println!("{:3.0} % malleable, {policy:24} {mean:8.0} s", malleable * 100.0);
        }
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

fn run(policy: &str, input: &Input, rules: Rules) -> Result<(Summary, Duration)> {
    let policy = named(policy).ok_or_else(|| format!("no policy `{policy}`"))?;
    let policy = (policy.build)(&Parameters::default());
    let clock = Clock::new();
    let before = clock.now();
    let resources = Resources::steady(input.processors);
    let summary = run_workload(input.jobs.iter().cloned(), resources, policy, rules, |o| if std::env::var_os("VERB").is_some() { println!("JOB {} {:.1} {:.1}", o.job.0, o.started.since(gleaner_common::time::Moment::ZERO).as_secs_f64(), o.ended.since(gleaner_common::time::Moment::ZERO).as_secs_f64()) });
    Ok((summary, clock.now().since(before)))
}
