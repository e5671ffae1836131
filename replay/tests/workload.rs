//! Campaigns of workloads: the same results however they are run, logs as they
//! are found, and reports that set apart what was fitted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use gleaner_replay::campaign::inputs::Overrides;
use gleaner_replay::campaign::run::{Effort, Progress};
use gleaner_replay::report;
use gleaner_replay::results::store::Shard;
use gleaner_replay::workload::campaign::{WorkloadOutcome, prepare, run_campaign, run_here};

const SMALL: &str = r#"
name = "small"
seed = 7
repeats = 3
per_job = true
policies = ["fcfs", "ghafoor"]
adaptation = ["0s", "1s"]
chunk_runs = 5

[[sites]]
name = "cluster"
processors = 64

[[sites]]
name = "two"
groups = [32, 48]

[[workloads]]
name = "mixed"
mixed = { jobs = 40, sizes = [1, 32], times = ["1min", "20min"], moldable = 20, estimates = [1.0, 3.0] }
gaps = ["30s"]
malleable = [0, 50]
ranges = ["50%-200%"]

[report]
source = "Nobody 2026, Table 1"
printed = "printed.csv"

[[report.fitted]]
parameter = "30 s between arrivals"
to = "the turnaround without malleable jobs"
measure = "turnaround_s"
where = { malleable = 0 }

[[report.claims]]
says = "malleable jobs make it faster"
measure = "turnaround_s"
rises = [{ malleable = 50 }, { malleable = 0 }]
where = { policy = "ghafoor", site = "cluster" }

[[report.claims]]
says = "no job is quicker than its work"
measure = "execution_s"
jobs = [0.0, 1.0]
between = [0.0, 0.0]
where = { policy = "fcfs" }

[[report.figures]]
name = "turnaround"
title = "Turnaround"
x = "malleable"
y = "turnaround_s"
by = "policy"

[[report.figures]]
name = "sizes"
title = "Sizes"
y = "mean_size"
by = "policy"
"#;

const PRINTED: &str = "malleable,turnaround_s,utilisation\n0,1234,0.5\n50,999,0.6\n";

struct Made {
    dir: tempfile::TempDir,
}

impl Made {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("c.toml"), text).unwrap();
        fs::write(dir.path().join("printed.csv"), PRINTED).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, out: &str, shard: &str, threads: usize) -> WorkloadOutcome {
        let inputs = prepare(&self.path("c.toml"), &Overrides::default()).unwrap();
        let effort = Effort { shard: shard.parse::<Shard>().unwrap(), threads };
        run_campaign(&inputs, &self.path(out), effort, &|_: Progress| ()).unwrap()
    }

    fn refused(&self) -> String {
        prepare(&self.path("c.toml"), &Overrides::default()).map(|_| ()).unwrap_err().to_string()
    }
}

const FILES: [&str; 4] = ["results.parquet", "results.csv", "jobs.parquet", "jobs.csv"];

#[test]
fn shards_threads_and_interruptions_change_no_byte() {
    let made = Made::new(SMALL);
    let whole = made.run("whole", "1/1", 2);
    // Two shares, two sites, two policies, two costs, three times.
    assert_eq!((whole.executed, whole.left, whole.jobs), (48, 0, Some(48 * 40)));
    assert_eq!((whole.refused, whole.unfinished), (Some(0), Some(0)));
    let first = made.run("parts", "1/2", 1);
    assert!(first.left > 0 && first.jobs.is_none());
    // What a killed process left, and a chunk that has been lost.
    fs::remove_file(made.path("parts/chunks/000000.parquet")).unwrap();
    made.run("parts", "2/2", 2);
    let last = made.run("parts", "1/1", 1);
    assert_eq!((last.left, last.executed), (0, 5));
    for file in FILES {
        let read = |dir| fs::read(made.path(dir).join(file)).unwrap();
        assert!(read("whole") == read("parts"), "{file} is another");
    }
    let jobs = fs::read_to_string(made.path("whole/jobs.csv")).unwrap();
    assert_eq!(jobs.lines().count(), 1 + 48 * 40);
}

#[test]
fn a_directory_of_another_campaign_is_refused_and_another_report_is_not() {
    let made = Made::new(SMALL);
    made.run("out", "1/1", 2);
    fs::write(made.path("c.toml"), SMALL.replace("fitted]]", "fitted]]\n# the same")).unwrap();
    let again = made.run("out", "1/1", 2);
    assert_eq!((again.executed, again.kept), (0, 48));
    fs::write(made.path("c.toml"), SMALL.replace("seed = 7", "seed = 8")).unwrap();
    let inputs = prepare(&made.path("c.toml"), &Overrides::default()).unwrap();
    let effort = Effort { shard: Shard::default(), threads: 1 };
    let error = run_campaign(&inputs, &made.path("out"), effort, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("the campaign file of `small` has changed"), "{error}");
}

#[test]
fn what_was_fitted_is_no_prediction() {
    let made = Made::new(SMALL);
    made.run("out", "1/1", 2);
    let files = report::write(&made.path("out"), &made.path("report")).unwrap();
    let text = fs::read_to_string(&files[0]).unwrap();
    assert!(text.contains("30 s between arrivals"), "{text}");
    // Of two printed turnarounds one was fitted.
    assert!(text.contains("- turnaround (s): of 1 printed figures"), "{text}");
    assert!(text.contains("- utilisation: of 2 printed figures"), "{text}");
    assert!(text.contains("malleable jobs make it faster"));
    assert!(text.contains("% of the jobs with execution (s) from 0 to 1: 0 | yes"), "{text}");
    for name in ["figures/turnaround.svg", "figures/sizes.svg", "tables/fitted.csv"] {
        assert!(fs::metadata(made.path("report").join(name)).unwrap().len() > 50, "{name}");
    }
}

#[test]
fn a_log_is_read_packed_its_broken_lines_are_counted_and_what_is_too_large_is_refused() {
    let line = |number: u32, processors: u32| {
        format!("{number} {number} 0 100 {processors} -1 -1 -1 -1 -1 1 1 1 1 1 -1 -1 -1\n")
    };
    let text = format!("; MaxProcs: 8\n{}broken\n{}{}", line(1, 4), line(2, 16), line(3, 8));
    let made = Made::new(
        "name = \"log\"\nseed = 1\npolicies = [\"easy\"]\n[[sites]]\nname = \"8\"\nprocessors = 8\n\
         [[workloads]]\nname = \"log\"\nswf = \"a.swf.gz\"\n",
    );
    let mut packed = GzEncoder::new(vec![], Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    fs::write(made.path("a.swf.gz"), packed.finish().unwrap()).unwrap();
    let inputs = prepare(&made.path("c.toml"), &Overrides::default()).unwrap();
    assert_eq!(inputs.notes.len(), 1);
    assert!(
        inputs.notes[0]
            .ends_with("1 lines are no jobs, the first of them line 3: 1 fields: expected 18")
    );
    let mut seen = vec![];
    run_here(&inputs, |row| seen.push((row.summary.ended, row.summary.refused)));
    assert_eq!(seen, [(2, 1)]);
    let report = made.run("out", "1/1", 1);
    assert_eq!((report.jobs, report.refused), (Some(3), Some(1)));
    report::write(&made.path("out"), &made.path("report")).unwrap();
}

#[test]
fn owners_come_from_a_usage_log() {
    let made = Made::new(
        "name = \"owned\"\nseed = 3\nrepeats = 2\npolicies = [\"ghafoor\"]\n\
         [usage.generate]\nmodel = \"phalen1994\"\nworkstations = 30\nfrom = \"2026-01-01\"\nmonths = 1\n\
         [[sites]]\nname = \"lab\"\n\
         owners = { workstations = 20, at = \"2026-01-13T09:00:00Z\", length = \"10h\", every = \"24h\" }\n\
         [[workloads]]\nname = \"mixed\"\n\
         mixed = { jobs = 60, sizes = [1, 8], times = [\"1min\", \"20min\"] }\n\
         gaps = [\"60s\"]\nmalleable = [100]\n",
    );
    let inputs = prepare(&made.path("c.toml"), &Overrides::default()).unwrap();
    let mut rows = vec![];
    run_here(&inputs, |row| rows.push(row.summary));
    assert_eq!(rows.len(), 2);
    assert_ne!(rows[0], rows[1], "each repetition has another day");
    for row in &rows {
        assert_eq!(row.ended + row.left, 60);
        assert!(row.taken_by_owners > 0, "nobody came back in ten hours");
        assert!(row.held() > 0.0 && row.held() <= 1.0 + 1e-9, "{}", row.held());
    }
}

#[test]
fn what_makes_no_sense_is_told_in_one_line() {
    for (from, to, told) in [
        (
            "fcfs",
            "fcfz",
            "c.toml:6:13: `fcfz` is not a scheduling policy: expected one of fair, fcfs",
        ),
        ("per_job", "per_jbo", "c.toml:5:1: unknown field `per_jbo`"),
        ("[32, 48]", "[]", "`two` has no processors"),
        ("processors = 64", "processors = 64\ngroups = [1]", "`cluster` needs one of"),
        ("sizes = [1, 32]", "sizes = [9, 3]", "`mixed`: `sizes`: expected"),
        ("malleable = [0, 50]", "malleable = [101]", "expected shares from 0 to 100"),
        ("\"50%-200%\"", "\"many\"", "`many` is not a range of sizes"),
        ("gaps = [\"30s\"]", "", "a model needs `gaps`"),
        ("\"two\"", "\"cluster\"", "two are called `cluster`"),
        ("\"printed.csv\"", "\"c.toml\"", "is no column of the results"),
        ("\"printed.csv\"", "\"none.csv\"", "none.csv"),
    ] {
        let made = Made::new(&SMALL.replace(from, to));
        let error = made.refused();
        assert!(error.contains(told), "{error}");
        assert!(!error.trim_end().contains('\n'), "{error}");
    }
    let log =
        SMALL.replace("mixed = {", "# mixed = {").replace("gaps =", "swf = \"no.swf\"\n# gaps =");
    assert!(Made::new(&log).refused().starts_with("cannot read the workload log"));
}

/// Those that need a log that is not ours to pass on are only read as far.
#[test]
fn every_published_campaign_can_be_run() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/campaigns/workloads");
    let mut seen = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        seen += 1;
        match prepare(&path, &Overrides::default()) {
            Ok(inputs) => assert!(inputs.notes.is_empty(), "{}", path.display()),
            Err(error) => {
                let error = error.to_string();
                // What is not in the project: somebody else's logs.
                let needs_logs = error.starts_with("cannot read the workload log")
                    || error.contains("no usage log is named");
                assert!(needs_logs, "{error}");
            }
        }
    }
    assert!(seen >= 16, "{seen} campaigns");
}
