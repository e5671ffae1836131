//! Policies of spot machines on traces that nothing was fitted to.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use gleaner_replay::spot::{Pace, Rule, SpotTrace, Survival, Task, bound, kept, run_task};

fn traces(kind: &str) -> Vec<(String, SpotTrace)> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/spot");
    let Ok(files) = found.read_dir() else {
        gleaner_skip::without("no ../shared/data/spot");
        return vec![];
    };
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(kind))
        .collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let file = MultiGzDecoder::new(BufReader::new(File::open(path).unwrap()));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, SpotTrace::read(BufReader::new(file)).unwrap())
    };
    files.iter().map(read).collect()
}

/// The paper's claim: half of what greedy pays above the optimum. Here, above a
/// bound that is below the optimum, over all zones and starts every 24 hours:
/// where a task needs 0.8 or 0.9 of its time. Where it needs 0.6, waiting is
/// cheaper, and uniform progress pays a third more above the bound than greedy.
#[test]
fn uniform_progress_is_never_late_and_comes_nearer_to_the_bound_than_greedy() {
    const SPOT_PRICE: f64 = 0.33;
    let hours = |hours: f64| Duration::from_secs_f64(hours * 3_600.0);
    let zones = traces("availability-1-node");
    for (fraction, of_gap) in [(0.8, 0.75), (0.9, 0.65)] {
        let task =
            Task { work: hours(48.0), deadline: hours(48.0 / fraction), restart: hours(0.2) };
        let (mut greedy, mut uniform, mut least) = (0.0, 0.0, 0.0);
        for (name, trace) in &zones {
            for from in (0..trace.machines.len()).step_by(440) {
                let run = |rule| run_task(trace, from, task, rule);
                let Some((one, other)) = run(Rule::Greedy).zip(run(Rule::UniformProgress)) else {
                    break;
                };
                assert!(!one.is_late && !other.is_late, "{name} from {from}: {one:?} {other:?}");
                greedy += one.cost(SPOT_PRICE);
                uniform += other.cost(SPOT_PRICE);
                least += bound(trace, from, task).cost(SPOT_PRICE);
            }
        }
        let of_greedy = (uniform - least) / (greedy - least);
        assert!(zones.is_empty() || of_greedy < of_gap, "{fraction}: {of_greedy}");
    }
}

/// Survival is measured in the first half of each trace and used in the other.
#[test]
fn checkpoints_paced_by_the_hazard_keep_as_much_work_as_those_of_young_and_daly() {
    let cost = Duration::from_secs(60);
    for (name, trace) in traces("availability-1-node") {
        let spans = trace.spans_s();
        let (seen, unseen) = spans.split_at(spans.len() / 2);
        let survival = Survival::of(seen.to_vec());
        let [mean, hazard] =
            [Pace::Mean(&survival), Pace::Hazard(&survival)].map(|pace| kept(unseen, cost, pace));
        assert!(hazard > mean - 0.02, "{name}: {hazard:.3}, {mean:.3} by the mean");
    }
}
