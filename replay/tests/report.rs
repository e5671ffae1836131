//! Reports of small campaigns: every table and figure that is promised is
//! there, and what was left out is said.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

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
        Self::during(kind, more, networks, ("2026-01-12", "2026-01-25"))
    }

    fn during(kind: &str, more: &str, networks: &[(u32, u32)], (from, to): (&str, &str)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut text = format!("name = \"small\"\nseed = 7\nreport = \"{kind}\"\n{more}\n");
        text += "[usage.generate]\nmodel = \"phalen1994\"\nworkstations = 100\nfrom = \"2026-01-01\"\nmonths = 3\n";
        text.push_str(&["[periods]\nfrom = \"", from, "\"\nto = \"", to, "\"\n"].concat());
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

/// The owners of phalen1994 were found by a search for Table 12.
#[test]
fn the_thesis_report_says_what_was_fitted_and_sets_it_apart() {
    let costs = "costs = [\"1s\", \"10s\", \"20s\", \"50s\", \"99s\", \"100s\"]";
    let made = Made::new("phalen1994", costs, &[(30, 4), (50, 4), (100, 4)]);
    let text = made.text();
    let table = |name: &str| fs::read_to_string(made.path(&format!("tables/{name}.csv"))).unwrap();
    let (fitted, predicted) = (table("sentences-fitted"), table("sentences"));
    for said in ["up to 20 seconds", "§7.2.3", "up to 12.5 %: a quarter more"] {
        assert!(fitted.contains(said) && !predicted.contains(said), "{said}: {fitted}");
    }
    for said in ["§1.3", "never increased more than 100%", "5.6 to 9.4", "night time hours"] {
        assert!(predicted.contains(said) && !fitted.contains(said), "{said}: {predicted}");
    }
    for claims in [&fitted, &predicted] {
        assert!(claims.lines().next().unwrap().ends_with("counts as holding"), "{claims}");
    }
    let parameters = table("fitted");
    for (parameter, value) in [("spread", "0.37"), ("pause", "0.64"), ("load", "79 s")] {
        assert!(parameters.contains(value), "{parameter}: {parameters}");
    }
    assert!(parameters.lines().skip(1).all(|line| line.contains("Table ")), "{parameters}");
    for said in [
        "a period is 6 h long here",
        "understood as `exact`",
        "--interpret previous-record",
        "## Fitted, not predicted: slowdown by cost",
    ] {
        assert!(text.contains(said), "`{said}` is not in {text}");
    }
    assert!(table("prev").contains("616 %"));
}

#[test]
fn what_was_not_fitted_is_not_called_so() {
    let costs = "costs = [\"10s\", \"99s\"]";
    let made = Made::new("general", costs, &[(30, 2)]);
    assert!(
        made.text()
            .contains("these were found by a search for the slowdowns of Phalen 1994, Table 12")
    );
    let dir = tempfile::tempdir().unwrap();
    let model = gleaner_collector::generate::OwnerModel {
        spread: 0.5,
        ..gleaner_collector::generate::OwnerModel::phalen1994()
    };
    fs::write(dir.path().join("other.toml"), model.to_toml()).unwrap();
    let text = fs::read_to_string(made.dir.path().join("c.toml")).unwrap();
    let text = text.replace("model = \"phalen1994\"", "model = \"other.toml\"");
    fs::write(dir.path().join("c.toml"), text).unwrap();
    let prepared = prepare(&dir.path().join("c.toml"), &Overrides::default()).unwrap();
    assert_eq!(prepared.manifest.setting.fitted, []);
    assert!(prepared.manifest.setting.model.is_some());
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

const KEEPERS: &str = "costs = [\"10s\"]\npolicies = [\"last-idle-first\", \"likely-longest\", \"oracle\"]\n\
    on_busy = [\"migrate\", \"retreat\", \"renice 10%\"]\n\
    [[programs]]\nname = \"bag\"\nbag = { work = \"9h\", subtask = \"5min\", workers = \"all\" }";

static KEEPERS_MADE: LazyLock<Made> =
    LazyLock::new(|| Made::during("library", KEEPERS, &[(30, 40)], ("2026-01-12", "2026-03-22")));

#[test]
fn a_keepers_report_answers_how_many_when_how_and_at_whose_cost() {
    let made = &*KEEPERS_MADE;
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
        "machine-hours in 70 days",
        "With 30 workstations, ",
        "of which",
        "2000 times as many weeks as there are (10) are drawn",
        "seed 15",
        "It is no bound",
        "and compute for ",
        "s an execution beside owners who are there",
        "30 workstations: chosen out of",
    ] {
        assert!(text.contains(said), "`{said}` is not in {text}");
    }
    assert!(!text.contains("prophet") && !text.contains("   "), "{text}");
    check_links(made);
}

/// Every row of every table of choices says what it costs owners, and every
/// comparison whether it is one.
#[test]
fn no_gain_is_printed_without_its_cost_and_no_difference_is_called_that() {
    let made = &*KEEPERS_MADE;
    let mut verdicts = vec![];
    for table in ["policies", "reactions", "programs"] {
        let text = fs::read_to_string(made.path(&format!("tables/{table}.csv"))).unwrap();
        let mut lines = ::csv::Reader::from_reader(text.as_bytes());
        let header = lines.headers().unwrap().clone();
        let place = |title: &str| header.iter().position(|it| it == title).unwrap();
        for line in lines.records() {
            let line = line.unwrap();
            for cost in ["beside owners (s)", "frozen under owners (s)"] {
                assert_ne!(&line[place(cost)], "-", "{table}: {line:?}");
            }
            let (ratio, verdict) = (&line[place("time against")], &line[place("so it is")]);
            if verdict == "-" {
                continue;
            }
            let bounds = ratio.split(['[', ',', ']']).skip(1).take(2);
            let bounds: Vec<f64> = bounds.map(|it| it.trim().parse().unwrap()).collect();
            let expected = match (bounds[0] > 1.0, bounds[1] < 1.0) {
                (true, _) => "slower",
                (_, true) => "faster",
                _ => "no difference",
            };
            // A bound that rounds to 1 may lie on either side of it.
            let is_sharp = bounds.iter().all(|it| (it - 1.0).abs() > 1e-9);
            assert!(verdict == expected || !is_sharp, "{ratio}: {verdict}");
            verdicts.push(verdict.to_owned());
        }
    }
    assert!(verdicts.contains(&"no difference".to_owned()), "{verdicts:?}");
    let harvest = fs::read_to_string(made.path("tables/harvest.csv")).unwrap();
    assert!(harvest.lines().next().unwrap().contains("beside owners (s)"), "{harvest}");
}
