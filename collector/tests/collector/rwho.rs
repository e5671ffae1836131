//! Snapshots of rwho, from the sample and from hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_collector::archive::Span;
use gleaner_collector::timeline::Interpretation;
use gleaner_collector::usage::{
    ImportError, ImportFormat, ImportOptions, ImportSummary, StatsOptions, import, stats,
};
use gleaner_common::usage::Cause;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::records::kept;

fn import_rwho(data: &Path, source: &Path) -> Result<ImportSummary, ImportError> {
    import(data, &ImportOptions::new(ImportFormat::Rwho, vec![source.to_owned()]), &mut |_| ())
}

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/rwho")
}

fn causes(data: &Path, workstation: &str) -> Vec<Cause> {
    kept(data, workstation).iter().map(|record| record.cause).collect()
}

/// Imports a text; the file's path is for error messages.
fn import_text(text: impl AsRef<[u8]>) -> (TempDir, PathBuf, Result<ImportSummary, ImportError>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshots.txt");
    fs::write(&file, text).unwrap();
    let outcome = import_rwho(&dir.path().join("data"), &file);
    (dir, file, outcome)
}

#[test]
fn the_sample_is_imported_once_and_every_line_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let summary = import_rwho(dir.path(), &sample()).unwrap();
    let lines: usize = ["2026-01-05.txt", "2026-01-06.txt"]
        .map(|file| fs::read_to_string(sample().join(file)).unwrap().lines().count())
        .iter()
        .sum();
    assert_eq!(summary.rows + summary.blank_lines, lines as u64);
    assert_eq!((summary.files, summary.snapshots, summary.workstations), (2, 102, 4));
    assert_eq!((summary.new, summary.duplicates), (summary.records, 0));
    let again = import_rwho(dir.path(), &sample()).unwrap();
    assert_eq!((again.new, again.duplicates), (0, summary.records));
}

#[test]
fn the_sample_has_a_workstation_that_was_down_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    import_rwho(dir.path(), &sample()).unwrap();
    let causes = causes(dir.path(), "cyd");
    let count = |cause| causes.iter().filter(|c| **c == cause).count();
    // Both mornings begin; on the second it is down from 9:30 to 10:12.
    assert_eq!((count(Cause::Start), count(Cause::Finish)), (3, 2));
    let options = StatsOptions {
        names: vec![],
        span: Span::default(),
        readings: Interpretation::AsTaken.into(),
        zone: Some(TimeZone::UTC),
    };
    let stats = stats(dir.path(), &options, &mut |_| ()).unwrap();
    let cyd = &stats.workstations[2];
    assert_eq!(cyd.workstation, "cyd");
    // 12:00 to 9:00 on the next day, and 42 minutes.
    assert!((cyd.unknown_h - 21.7).abs() < 1e-6, "{cyd:?}");
    assert!(cyd.idle_h > 0.0 && cyd.busy_h > 0.0 && cyd.returns > 0, "{cyd:?}");
    assert_eq!(stats.workstations.len(), 5);
    assert_eq!(stats.hours.len(), 24);
}

const UP: &str = "ada up 1+02:30, 1 user, load 0.00, 0.00, 0.00";

fn at(minute: u32) -> String {
    format!("2026-01-05T09:{minute:02}:00Z")
}

#[test]
fn a_hole_between_snapshots_finishes_the_workstations_before_it() {
    let text = format!("{}\n{UP}\n{}\n{UP}\n{}\n{UP}\n", at(0), at(3), at(30));
    let (dir, _, summary) = import_text(&text);
    assert_eq!(summary.unwrap().new, 5);
    let records = kept(&dir.path().join("data"), "ada");
    let causes: Vec<_> = records.iter().map(|record| record.cause).collect();
    assert_eq!(causes, [Cause::Start, Cause::Idle, Cause::Finish, Cause::Start, Cause::Idle]);
    assert_eq!(records[2].since_boot, Duration::from_secs(180));
    assert_ne!(records[2].boot, records[3].boot);
}

#[test]
fn the_shortest_idle_time_counts_and_no_name_of_a_user_is_kept() {
    let text = format!(
        "{}\n{UP}\nfred ada:pts/0 Jan 5 08:00 1:20\ngina ada:pts/1 Jan 5 08:30 :07\n",
        at(0)
    );
    let (dir, _, summary) = import_text(&text);
    summary.unwrap();
    let records = kept(&dir.path().join("data"), "ada");
    assert_eq!(records[1].input_idle, Some(Duration::from_secs(420)));
    assert!(!records.iter().any(|r| r.reason.contains("fred") || r.reason.contains("gina")));
}

#[track_caller]
fn refused(text: impl AsRef<[u8]>, line: u64, what: &str) {
    let (dir, file, outcome) = import_text(text);
    assert_eq!(outcome.unwrap_err().to_string(), format!("{}:{line}: {what}", file.display()));
    assert!(!dir.path().join("data").exists(), "nothing was imported");
}

#[test]
fn a_bad_line_is_named_and_then_nothing_is_imported() {
    let time = at(0);
    refused(
        format!("{UP}\n"),
        1,
        &format!("`{UP}` before any time: expected a line such as 2026-01-05T09:03:00Z"),
    );
    refused(
        format!("{time}\n{UP}\n{time}\n"),
        3,
        &format!("`{time}` is not later than the snapshot before it"),
    );
    refused(
        format!("{time}\nada up 1:00, 1 user, load x, 0.00, 0.00\n"),
        2,
        "`x` is not a load: expected a number, such as 0.25",
    );
    refused(
        format!("{time}\nwhat is this\n"),
        2,
        "`what is this` is not a line of ruptime -a or rwho -a",
    );
    refused(
        format!("{time}\nfred ada:pts/0 Jan 5 08:00\n{UP}\nhugo bob:pts/0 Jan 5 08:00 :01\n"),
        4,
        "a user of `bob`, which this snapshot does not have up",
    );
    refused(
        format!("{time}\n{UP}\nfred ada:pts/0 Jan 5 08:00 :61\n"),
        3,
        "`:61` is not an idle time: expected hours and minutes, such as :12 or 1:02",
    );
    refused(
        format!("{time}\n{UP}\n{UP}\n"),
        3,
        &format!("`{UP}`: its second line in one snapshot"),
    );
    refused(b"# a comment\n\xff\n", 2, "a line that is not UTF-8");
    refused("x".repeat(5_000), 1, "a line of more than 4096 bytes");
    refused(
        "yesterday\n",
        1,
        "`yesterday` is not a time: expected one such as 2026-01-05T09:03:00Z",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Words that belong there, in any order, and words that do not.
    #[test]
    fn no_text_is_too_strange_to_refuse(
        lines in proptest::collection::vec(
            proptest::collection::vec(
                "2026-01-05T09:0[0-9]:00Z|ada|bob:pts/0|up|down|[0-9]+\\+[0-9:]+,|[0-9]{1,12}|users,|load|[0-9.]{1,5},|:[0-9]{2}|Jan|[ -~]{0,6}",
                0..9,
            ),
            0..12,
        ),
    ) {
        let text: Vec<_> = lines.iter().map(|words| words.join(" ")).collect();
        let (_dir, file, outcome) = import_text(text.join("\n"));
        if let Err(error) = outcome {
            prop_assert!(error.to_string().starts_with(&file.display().to_string()), "{}", error);
        }
    }
}
