//! Reports of small campaigns: every table and figure that is promised is
//! there, and what was left out is said.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

use gleaner_replay::campaign::inputs::{Overrides, prepare};
use gleaner_replay::campaign::run::{Effort, run_campaign};
use gleaner_replay::report;
use gleaner_replay::results::store::Shard;

const PROGRAMS: [(&str, &str); 4] =
    [("fft", "5min"), ("test", "2min"), ("msh", "3min"), ("det", "6min")];

struct Made {
    dir: tempfile::TempDir,
    files: Vec<PathBuf>,
}

impl Made {
    fn new(kind: &str, more: &str, networks: &[(u32, u32)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut text = format!("name = \"small\"\nseed = 7\nreport = \"{kind}\"\n{more}\n");
        text += "[usage.generate]\nmodel = \"phalen1994\"\nworkstations = 100\nfrom = \"2026-01-01\"\nmonths = 1\n";
        text += "[periods]\nfrom = \"2026-01-12\"\nto = \"2026-01-25\"\n";
        let programs = PROGRAMS.map(|(name, takes)| {
            let ring = format!("ring = {{ ranks = 17, subtasks = 9, takes = \"{takes}\" }}");
            format!("[[programs]]\nname = \"{name}\"\n{ring}\n")
        });
        let networks = networks.iter().map(|(workstations, periods)| {
            format!("[[networks]]\nworkstations = {workstations}\nperiods = {periods}\n")
        });
        text += &programs.into_iter().chain(networks).collect::<String>();
        fs::write(dir.path().join("c.toml"), text).unwrap();
        let prepared = prepare(&dir.path().join("c.toml"), &Overrides::default()).unwrap();
        let effort = Effort { shard: Shard::default(), threads: 2 };
        let out = dir.path().join("out");
        run_campaign(&prepared.plan, &prepared.manifest, &out, effort, &|_| ()).unwrap();
        let files = report::write(&out, &dir.path().join("report")).unwrap();
        Self { dir, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("report").join(name)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path("report.md")).unwrap()
    }

    #[track_caller]
    fn holds(&self, name: &str) {
        assert!(self.files.contains(&self.path(name)), "{name} is not among the files");
        assert!(fs::metadata(self.path(name)).unwrap().len() > 50, "{name} is empty");
    }
}

/// What is named in the text is there.
#[track_caller]
fn check_links(made: &Made) {
    let text = made.text();
    for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(Path::new(&made.path(link)).exists(), "{link}");
    }
}

#[test]
fn the_thesis_report_has_every_table_and_figure() {
    let costs = "costs = [\"1s\", \"10s\", \"50s\", \"99s\", \"100s\"]";
    let made = Made::new("phalen1994", costs, &[(30, 8), (50, 8), (100, 8)]);
    for table in ["07", "08", "10", "11", "12"] {
        made.holds(&format!("tables/table-{table}.csv"));
    }
    for figure in (7..=50).chain([5]) {
        // A class of activity that nothing falls into is said, not drawn.
        made.holds(&format!("figures/figure-{figure:02}.svg"));
        made.holds(&format!("figures/figure-{figure:02}.png"));
    }
    let text = made.text();
    for printed in ["343.85 %", "0.04 to 33.00", "46 s", "120,000", "375.5 s"] {
        assert!(text.contains(printed), "her {printed} is not there");
    }
    assert!(text.contains("Over the twelve cells of her Table 12, our slowdown is"));
    check_links(&made);
}

#[test]
fn a_general_report_has_a_section_for_each_axis() {
    let axes = "costs = [\"1s\", \"10s\", \"60s\"]\npolicies = [\"last-idle-first\", \"first-idle-first\"]\n\
                on_busy = [\"migrate\", \"retreat\"]\ncriteria = [\"as-recorded\", \"load:1\"]";
    let made = Made::new("general", axes, &[(30, 4)]);
    for figure in [
        "slowdown",
        "critical-path",
        "break-even",
        "policy-stretch",
        "criterion-idle",
        "subtask-wasted",
    ] {
        made.holds(&format!("figures/{figure}.png"));
    }
    made.holds("tables/owners.csv");
    check_links(&made);
}

#[test]
fn a_keepers_report_answers_how_many_when_and_how() {
    let axes = "costs = [\"10s\"]\npolicies = [\"last-idle-first\", \"oracle\"]\n\
                [[programs]]\nname = \"bag\"\nbag = { work = \"9h\", subtask = \"5min\", workers = 9 }";
    let made = Made::new("library", axes, &[(30, 12)]);
    for file in [
        "figures/idle-week.png",
        "figures/policies.svg",
        "figures/hour-stretch.png",
        "tables/policies.csv",
        "tables/harvest.csv",
        "figures/harvest.png",
    ] {
        made.holds(file);
    }
    let text = made.text();
    for said in [
        "machine-hours in 14 days",
        "With 30 workstations, last-idle-first and migrate are best",
        "machine-hours an hour out of 30 workstations",
        "30 workstations: chosen out of",
    ] {
        assert!(text.contains(said), "`{said}` is not in {text}");
    }
    check_links(&made);
}
