//! Campaigns through their files: the same bytes whatever the threads, the
//! shards and the interruptions, and one clear line for each mistake.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

use gleaner_replay::RulesOf;
use gleaner_replay::campaign::file;
use gleaner_replay::campaign::inputs::{Overrides, prepare};
use gleaner_replay::campaign::run::{Effort, Outcome, run_campaign};
use gleaner_replay::results::store::{CSV, PARQUET, Shard};

/// Eight workstations for six weeks, three programs, 2 x 12 periods.
const SMALL: &str = r#"
name = "small"
seed = 7
chunk_rows = 40
policies = ["last-idle-first", "oracle", "likely-longest"]
on_busy = ["migrate", "suspend 1min then retreat"]
costs = ["1s", "30s"]

[usage.generate]
model = "phalen1994"
workstations = 8
from = "2026-01-01"
months = 2

[[programs]]
name = "short"
ring = { ranks = 4, subtasks = 10, takes = "5min" }

[[programs]]
name = "long"
ring = { ranks = 4, subtasks = 10, takes = "1min" }
scale_to = "20min"

[[programs]]
name = "bag"
bag = { work = "5h", subtask = "10min", workers = 4 }

[[networks]]
workstations = 5
periods = 12

[[networks]]
workstations = 7
periods = 12

[periods]
from = "2026-01-12"
to = "2026-02-15"
"#;

const ROWS: usize = 24 * 3 * 3 * 2 * 2;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("small.toml"), SMALL).unwrap();
        Self { dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("small.toml")
    }

    fn out(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, out: &str, shard: &str, threads: usize) -> Outcome {
        let prepared = prepare(&self.file(), &Overrides::default()).unwrap();
        let effort = Effort { shard: shard.parse().unwrap(), threads };
        run_campaign(&prepared.plan, &prepared.manifest, &self.out(out), effort, &|_| ()).unwrap()
    }

    fn results(&self, out: &str) -> (Vec<u8>, String) {
        let read = |name| fs::read(self.out(out).join(name)).unwrap();
        (read(PARQUET), String::from_utf8(read(CSV)).unwrap())
    }
}

fn copy_chunks(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("chunks")).unwrap();
    for chunk in fs::read_dir(from.join("chunks")).unwrap() {
        let chunk = chunk.unwrap();
        fs::copy(chunk.path(), to.join("chunks").join(chunk.file_name())).unwrap();
    }
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let place = Place::new();
    let outcome = place.run("one", "1/1", 1);
    assert_eq!((outcome.executed, outcome.left), (ROWS as u64, 0));
    place.run("five", "1/1", 5);
    let (parquet, csv) = place.results("one");
    assert_eq!(place.results("five"), (parquet, csv.clone()));
    assert_eq!(csv.lines().count(), 1 + ROWS);
}

#[test]
fn shards_equal_the_whole_in_one_directory_or_put_together() {
    let place = Place::new();
    place.run("whole", "1/1", 2);
    assert_eq!(place.run("shared", "2/3", 1).given_up, None);
    assert!(place.run("shared", "3/3", 2).left > 0);
    assert_eq!(place.run("shared", "1/3", 1).left, 0);
    assert_eq!(place.results("shared"), place.results("whole"));
    for shard in 1..=3 {
        place.run(&format!("own-{shard}"), &format!("{shard}/3"), 1);
        copy_chunks(&place.out(&format!("own-{shard}")), &place.out("together"));
    }
    let outcome = place.run("together", "1/1", 1);
    assert_eq!((outcome.executed, outcome.kept), (0, ROWS as u64));
    assert_eq!(place.results("together"), place.results("whole"));
}

#[test]
fn a_chunk_that_is_not_whole_is_done_again() {
    let place = Place::new();
    place.run("whole", "1/1", 2);
    place.run("torn", "1/1", 2);
    let chunks = place.out("torn").join("chunks");
    let torn = chunks.join("000001.parquet");
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    fs::remove_file(chunks.join("000002.parquet")).unwrap();
    fs::write(chunks.join("000002.parquet.new-1"), "half").unwrap();
    fs::remove_file(place.out("torn").join(PARQUET)).unwrap();
    let outcome = place.run("torn", "1/1", 2);
    assert!(outcome.executed > 0 && outcome.kept > outcome.executed, "{outcome:?}");
    assert_eq!(place.results("torn"), place.results("whole"));
    assert!(!chunks.join("000002.parquet.new-1").exists());
}

#[test]
fn results_of_another_campaign_are_not_added_to() {
    let place = Place::new();
    place.run("out", "1/1", 1);
    for (from, to, expected) in [
        ("\"30s\"", "\"40s\"", "the campaign file of `small` has changed since"),
        ("months = 2", "months = 3", "the usage log is another one, or has grown since"),
        ("\"small\"", "\"other\"", "it is of `small`, this is `other`"),
    ] {
        fs::write(place.file(), SMALL.replace(from, to)).unwrap();
        let prepared = prepare(&place.file(), &Overrides::default()).unwrap();
        let effort = Effort { shard: Shard::default(), threads: 1 };
        let error =
            run_campaign(&prepared.plan, &prepared.manifest, &place.out("out"), effort, &|_| ())
                .unwrap_err()
                .to_string();
        assert!(
            error.ends_with(&format!("holds results of another campaign: {expected}")),
            "{error}"
        );
    }
}

/// Phalen 1994, Table 6, by its footnote.
#[test]
fn the_way_a_log_is_read_reaches_the_owners_and_is_said() {
    let place = Place::new();
    fs::write(place.file(), SMALL.replace("months = 2", "months = 2\nsnapshots = true")).unwrap();
    let by_snapshots = prepare(&place.file(), &Overrides::default()).unwrap().manifest;
    assert_eq!(by_snapshots.setting.interpretation, "snapshots:3m");
    let interpret = Some("previous-record".parse().unwrap());
    let overrides = Overrides { interpret, ..Overrides::default() };
    let by_footnote = prepare(&place.file(), &overrides).unwrap().manifest;
    assert_eq!(by_footnote.setting.interpretation, "previous-record");
    assert_ne!(by_footnote.digests, by_snapshots.digests);
    let idle = |sums: &[u64]| sums.iter().sum::<u64>();
    let (less, more) = (idle(&by_footnote.owners.idle_s), idle(&by_snapshots.owners.idle_s));
    assert!(less < more, "half of what ends by load is busy");
    let text = fs::read_to_string(place.file()).unwrap();
    let text = text.replace("seed = 7", "seed = 7\ninterpret = \"previous-record\"");
    fs::write(place.file(), text).unwrap();
    let in_the_file = prepare(&place.file(), &Overrides::default()).unwrap().manifest;
    assert_eq!(in_the_file, by_footnote);
}

#[test]
fn what_makes_no_difference_may_change() {
    let place = Place::new();
    place.run("out", "1/1", 1);
    let text = SMALL.replace("seed = 7", "# a comment\nseed = 7\nreport = \"library\"");
    fs::write(place.file(), text).unwrap();
    assert_eq!(place.run("out", "1/1", 1).executed, 0);
}

#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    assert!(SMALL.contains(from), "{from}");
    let text = SMALL.replacen(from, to, 1);
    let error = file::parse(Path::new("c.toml"), &text).unwrap_err().to_string();
    assert!(error.starts_with("c.toml:"), "{error}");
    assert!(error.contains(expected), "`{error}` lacks `{expected}`");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_misspelt_key_is_named_with_its_place_and_those_that_exist() {
    refused("seed = 7", "sede = 7", "c.toml:3:1: unknown field `sede`, expected one of `name`");
    refused("[[networks]]", "[[network]]", "unknown field `network`, expected one of `name`");
    refused("periods = 12", "period = 12", "c.toml:30:1: unknown field `period`, expected");
    refused("months = 2", "years = 2", "unknown field `years`, expected one of `model`");
    // Replay runs each subtask once.
    refused("bag = {", "bag = { replicas = 2,", "unknown field `replicas`, expected one of `work`");
    refused("subtasks = 10", "tasks = 10", "unknown field `tasks`, expected one of `ranks`");
}

#[test]
fn a_value_without_its_unit_or_sense_is_named_with_its_place() {
    refused("\"1s\"", "\"1\"", "c.toml:7:10: `1` is not a duration: expected a number with a unit");
    refused("\"20min\"", "20", "c.toml:22:12: invalid type: integer `20`, expected a string");
    refused(
        "\"oracle\"",
        "\"lifo\"",
        "c.toml:5:32: `lifo` is not a policy: expected one of last-idle-first",
    );
    refused("\"migrate\"", "\"flee\"", "c.toml:6:12: `flee` is not a reaction: expected migrate");
    refused("\"migrate\"", "\"suspend 1min then retreat\"", "the same is there twice");
    refused(
        "[\"1s\", \"30s\"]",
        "{ from = \"9s\", to = \"1s\", step = \"1s\" }",
        "expected costs up from",
    );
    refused("[\"1s\", \"30s\"]", "{ from = \"1s\", to = \"9s\" }", "missing field `step`");
    refused("[\"1s\", \"30s\"]", "[]", "no costs: expected at least one");
    refused(
        "to = \"2026-02-15\"",
        "to = \"2026-01-01\"",
        "[periods] ends on 2026-01-01, before it begins",
    );
    refused("to = \"2026-02-15\"", "to = \"15.2.2026\"", "c.toml:");
    refused("periods = 12", "periods = 12000", "c.toml:30:11: 12000 periods: expected 1 to 840");
    refused("workstations = 7", "workstations = 5", "two networks have 5 workstations");
    refused("workers = 4", "workers = \"some\"", "expected a number of workers, or \"all\"");
    refused("seed = 7", "seed = 7\ninterpret = \"guess\"", "`guess` is not an interpretation");
    refused("workers = 4", "workers = 0", "the bag of `bag`: expected one worker at least");
    refused(
        "workers = 4 }",
        "workers = 4 }\ntable1 = 5",
        "`table1` of `bag`: expected a model from 1 to 4",
    );
    refused("bag = {", "ring = {", "unknown field `subtask`, expected one of `ranks`");
    refused("name = \"long\"", "name = \"short\"", "two programs are called `short`");
}

#[test]
fn a_network_smaller_than_a_program_is_refused_with_its_line() {
    let place = Place::new();
    fs::write(place.file(), SMALL.replace("workstations = 5", "workstations = 3")).unwrap();
    let error = prepare(&place.file(), &Overrides::default()).unwrap_err().to_string();
    let expected =
        "small.toml:29:16: expected at least 4 workstations, one for each rank of a program";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn a_trace_that_cannot_be_replayed_is_named_with_its_line() {
    let place = Place::new();
    let with = |trace: &str| {
        fs::write(place.dir.path().join("bad.trace"), trace).unwrap();
        let ring = "ring = { ranks = 4, subtasks = 10, takes = \"5min\" }";
        fs::write(place.file(), SMALL.replace(ring, "trace = \"bad.trace\"")).unwrap();
        prepare(&place.file(), &Overrides::default()).unwrap_err().to_string()
    };
    let error = with("not a trace\n");
    assert!(error.contains("bad.trace:1: "), "{error}");
    fs::remove_file(place.dir.path().join("bad.trace")).unwrap();
    let error = prepare(&place.file(), &Overrides::default()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the trace "), "{error}");
}

#[test]
fn a_log_with_too_few_workstations_says_how_many_it_has() {
    let place = Place::new();
    fs::write(place.file(), SMALL.replace("workstations = 7", "workstations = 70")).unwrap();
    let error = prepare(&place.file(), &Overrides::default()).unwrap_err().to_string();
    assert!(error.contains("no period has 70 workstations with a transition before"), "{error}");
}

#[test]
fn a_log_of_no_months_or_of_ages_is_refused() {
    for months in ["0", "1201", "1048576"] {
        let place = Place::new();
        let text = SMALL.replace("months = 2", &format!("months = {months}"));
        assert_ne!(text, SMALL);
        fs::write(place.file(), text).unwrap();
        let error = prepare(&place.file(), &Overrides::default()).unwrap_err().to_string();
        assert!(error.contains("and 1 to 1200 months"), "{error}");
    }
}

#[test]
fn the_live_rules_are_asked_for_by_name_and_change_what_comes_out() {
    let place = Place::new();
    place.run("hers", "1/1", 1);
    let said = prepare(&place.file(), &Overrides::default()).unwrap().manifest;
    fs::write(place.file(), SMALL.replace("seed = 7", "seed = 7\nrules = \"live\"")).unwrap();
    place.run("live", "1/1", 1);
    let live = prepare(&place.file(), &Overrides::default()).unwrap().manifest;
    assert_eq!((said.setting.rules, live.setting.rules), (RulesOf::Phalen1994, RulesOf::Live));
    assert_ne!(live.digests.campaign, said.digests.campaign);
    let rows = |name: &str| fs::read(place.out(name).join(CSV)).unwrap();
    assert_ne!(rows("live"), rows("hers"));
}

#[test]
fn a_campaign_that_ranks_says_what_of_its_log_is_not_known() {
    let place = Place::new();
    let ranked = SMALL.replace("\"oracle\"", "\"ranked\"");
    fs::write(place.file(), &ranked).unwrap();
    let prepared = prepare(&place.file(), &Overrides::default()).unwrap();
    let [note] = prepared.notes.as_slice() else { panic!("{:?}", prepared.notes) };
    assert!(note.starts_with("the speed of 0 of 8 workstations is known"), "{note}");
    let machines: Vec<String> = (1..=8)
        .map(|number| format!(r#"{{"name": "ws-{number:05}", "speed": {number}00.0, "cores": 4}}"#))
        .collect();
    fs::write(place.out("machines.json"), machines.join("\n")).unwrap();
    let known =
        ranked.replace("months = 2\n", "months = 2\n\n[usage]\nmachines = \"machines.json\"\n");
    fs::write(place.file(), known).unwrap();
    let measured = prepare(&place.file(), &Overrides::default()).unwrap();
    assert_eq!(measured.notes, Vec::<String>::new());
    assert_ne!(measured.manifest.digests.usage, prepared.manifest.digests.usage);
}
