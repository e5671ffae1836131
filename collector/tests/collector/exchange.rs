//! Exports that come back as they went, and imports that are refused.

use std::fs::{self, File};
use std::path::Path;

use gleaner_collector::archive::Span;
use gleaner_collector::import::COLUMNS;
use gleaner_collector::rows::PeriodRow;
use gleaner_collector::store::Store;
use gleaner_collector::timeline::Interpretation;
use gleaner_collector::usage::{
    Content, ExportFormat, ImportError, ImportFormat, ImportOptions, ImportSummary, Selection,
    export, import, ls, show_periods,
};
use gleaner_common::time::WallTime;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::records::{batch, kept, record};

fn all() -> Selection {
    Selection { names: vec![], span: Span::default() }
}

fn lab() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    for answer in store.append(&[batch("ada", 1..=150), batch("bob", 4..=9)]) {
        answer.unwrap();
    }
    dir
}

#[track_caller]
fn import_csv(data: &Path, file: &Path) -> Result<ImportSummary, ImportError> {
    import(data, &ImportOptions::new(ImportFormat::Csv, vec![file.to_owned()]), &mut |_| ())
}

#[test]
fn csv_comes_back_as_it_went() {
    let (lab, other) = (lab(), tempfile::tempdir().unwrap());
    let file = other.path().join("usage.csv");
    let records = Content::Records;
    let summary =
        export(lab.path(), &all(), records, ExportFormat::Csv, &file, &mut |_| ()).unwrap();
    assert_eq!((summary.workstations, summary.rows), (2, 156));
    assert_eq!(summary.bytes, fs::metadata(&file).unwrap().len());
    let data = other.path().join("data");
    let summary = import_csv(&data, &file).unwrap();
    assert_eq!((summary.records, summary.new, summary.workstations), (156, 156, 2));
    for workstation in ["ada", "bob"] {
        assert_eq!(kept(&data, workstation), kept(lab.path(), workstation));
    }
    let again = import_csv(&data, &file).unwrap();
    assert_eq!((again.new, again.duplicates), (0, 156));
}

fn rows_of(file: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

#[test]
fn parquet_holds_every_field_of_every_record() {
    let lab = lab();
    let file = lab.path().join("usage.parquet");
    let selection = Selection { names: vec!["ada".into()], span: Span::default() };
    let records = Content::Records;
    export(lab.path(), &selection, records, ExportFormat::Parquet, &file, &mut |_| ()).unwrap();
    let rows = rows_of(&file);
    assert_eq!(rows.len(), 150);
    for (sequence, row) in (1..).zip(rows) {
        let expected = record(sequence);
        let fields: Vec<Field> = row.into_columns().into_iter().map(|(_, field)| field).collect();
        let idle =
            expected.input_idle.map_or(Field::Null, |idle| Field::Double(idle.as_secs_f64()));
        assert_eq!(
            fields,
            [
                Field::Str("ada".into()),
                Field::Long(expected.at.0),
                Field::Str(expected.cause.name().into()),
                Field::Float(expected.load.one),
                Field::Float(expected.load.five),
                Field::Float(expected.load.fifteen),
                Field::ULong(expected.users.into()),
                idle,
                Field::ULong(expected.slots.into()),
                Field::Str(expected.reason),
                Field::Str(expected.boot.to_string()),
                Field::ULong(sequence),
                Field::Double(expected.since_boot.as_secs_f64()),
                Field::Str(expected.life.to_string()),
            ]
        );
    }
}

#[test]
fn periods_are_the_same_in_both_formats_and_on_the_screen() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/usage.csv");
    let data = dir.path().join("data");
    import_csv(&data, &source).unwrap();
    let content = Content::Periods(Interpretation::Exact.into());
    let (csv, parquet) = (dir.path().join("periods.csv"), dir.path().join("periods.parquet"));
    let selection = Selection { names: vec!["ada".into()], span: Span::default() };
    for (format, file) in [(ExportFormat::Csv, &csv), (ExportFormat::Parquet, &parquet)] {
        export(&data, &selection, content.clone(), format, file, &mut |_| ()).unwrap();
    }
    let mut shown: Vec<PeriodRow> = vec![];
    show_periods(&data, "ada", Span::default(), &Interpretation::Exact.into(), &mut |row| {
        shown.push(row);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert!(shown.len() > 10);
    let text = fs::read_to_string(csv).unwrap();
    assert_eq!(text.lines().count(), shown.len() + 1);
    let first = &shown[0];
    assert!(text.lines().nth(1).unwrap().starts_with(&format!(
        "ada,{},{},",
        first.state.name(),
        first.start
    )));
    assert_eq!(rows_of(&parquet).len(), shown.len());
}

#[test]
fn only_the_span_asked_for_is_exported() {
    let lab = lab();
    let file = lab.path().join("usage.csv");
    let span = Span { from: Some(record(10).at), to: Some(record(20).at) };
    let selection = Selection { names: vec![], span };
    let records = Content::Records;
    let summary =
        export(lab.path(), &selection, records, ExportFormat::Csv, &file, &mut |_| ()).unwrap();
    assert_eq!(summary.rows, 10);
}

#[test]
fn an_export_that_fails_leaves_the_old_file_and_nothing_beside_it() {
    let (lab, out) = (lab(), tempfile::tempdir().unwrap());
    let file = out.path().join("usage.csv");
    fs::write(&file, "old").unwrap();
    let selection = Selection { names: vec!["zoe".into()], span: Span::default() };
    let records = Content::Records;
    let error = export(lab.path(), &selection, records, ExportFormat::Csv, &file, &mut |_| ());
    assert_eq!(
        error.unwrap_err().to_string(),
        format!("no usage log of `zoe` in {}", lab.path().display())
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
}

#[test]
fn a_damaged_log_is_exported_as_far_as_it_goes_and_the_damage_told() {
    let (lab, out) = (lab(), tempfile::tempdir().unwrap());
    let segment = lab.path().join("bob/00000001.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[40] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let file = out.path().join("usage.csv");
    let records = Content::Records;
    let summary =
        export(lab.path(), &all(), records, ExportFormat::Csv, &file, &mut |_| ()).unwrap();
    assert_eq!((summary.rows, summary.damage.len()), (155, 1));
    let rows = ls(lab.path()).unwrap();
    assert_eq!(rows[0].health, ["whole"]);
    assert_eq!(rows[1].health[..1], summary.damage);
    assert!(rows[1].health[1].ends_with("records that its agent numbered are not here"));
}

const HEADER: &str = "workstation,at,cause";

#[track_caller]
fn refused(text: &str, line: u64, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.csv");
    fs::write(&file, text).unwrap();
    let data = dir.path().join("data");
    let error = import_csv(&data, &file).unwrap_err();
    assert_eq!(error.to_string(), format!("{}:{line}: {what}", file.display()));
    assert!(!data.exists(), "nothing was imported");
}

#[test]
fn a_bad_line_is_named_and_then_nothing_is_imported() {
    let good = "ada,2026-01-05T07:00:00Z,START";
    refused(
        &format!("{HEADER}\n{good}\nada,yesterday,IDLE\n"),
        3,
        "at `yesterday` is not a time: expected one such as 2026-01-05T09:03:00.25Z",
    );
    refused(
        &format!("{HEADER}\n{good}\n\nada,2026-01-05T07:00:00Z,LUNCH\n"),
        4,
        "cause `LUNCH` is not one of LOAD, TTY, BOTH, CHANGE, IDLE, START, FINISH",
    );
    refused(
        &format!("{HEADER}\n{good}\nada,2026-01-05T06:00:00Z,IDLE\n"),
        3,
        "earlier than the row before it of `ada`: expected order of time",
    );
    refused(&format!("{HEADER}\n{good},7\n"), 2, "a row of 4 fields: expected 3, like the header");
    refused("workstation,at\n", 1, "no column `cause` in the header");
    refused(
        &format!("{HEADER},load_1m\n{good},-x\n"),
        2,
        "load_1m `-x` is not a number in its range",
    );
    refused(&format!("{HEADER},users\n{good},-3\n"), 2, "users `-3` is not a number in its range");
    refused(
        &format!("{HEADER},input_idle_s\n{good},1e3\n"),
        2,
        "input_idle_s `1e3` is not a number of seconds",
    );
    refused(
        &format!("{HEADER},reason\n{good},{}\n", "x".repeat(201)),
        2,
        "record 1 has a reason of 201 bytes: expected at most 200",
    );
    refused(
        &format!("{HEADER},boot\n{good},00\n"),
        1,
        "boot, sequence and since_boot_s: expected all three columns, or none",
    );
}

#[test]
fn an_empty_or_missing_source_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("empty.csv");
    fs::write(&file, format!("{HEADER}\n")).unwrap();
    let error = import_csv(dir.path(), &file).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}: nothing to import: expected a header and rows of transitions", file.display())
    );
    let error = import_csv(dir.path(), Path::new("/nowhere/at.csv")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nowhere/at.csv");
}

#[test]
fn a_longer_copy_adds_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("usage.csv");
    let data = dir.path().join("data");
    let row = |minute: u32, cause: &str| format!("ada,2026-01-05T07:{minute:02}:00Z,{cause}\n");
    let mut text = format!("{HEADER}\n{}{}", row(0, "START"), row(1, "IDLE"));
    fs::write(&file, &text).unwrap();
    assert_eq!(import_csv(&data, &file).unwrap().new, 2);
    text += &(row(9, "TTY") + &row(20, "FINISH") + &row(30, "START"));
    fs::write(&file, &text).unwrap();
    let summary = import_csv(&data, &file).unwrap();
    assert_eq!((summary.new, summary.duplicates), (3, 2));
    let boots: std::collections::BTreeSet<_> = kept(&data, "ada").iter().map(|r| r.boot).collect();
    assert_eq!(boots.len(), 2);
    assert_eq!(kept(&data, "ada")[0].at, WallTime::from_unix_s(1_767_596_400));
}

#[test]
fn boots_that_begin_at_one_moment_are_all_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("usage.csv");
    let data = dir.path().join("data");
    let row = |hour: u32, cause: &str| format!("ada,2026-01-05T{hour:02}:00:00Z,{cause}\n");
    let causes = [(9, "START"), (9, "IDLE"), (9, "START"), (9, "TTY"), (10, "IDLE")];
    let rows: String = causes.iter().map(|(hour, cause)| row(*hour, cause)).collect();
    fs::write(&file, format!("{HEADER}\n{rows}")).unwrap();
    let summary = import_csv(&data, &file).unwrap();
    assert_eq!((summary.new, summary.duplicates), (5, 0));
    let stored: Vec<_> = kept(&data, "ada").iter().map(|record| record.cause).collect();
    assert_eq!(stored, causes.map(|(_, cause)| cause.parse().unwrap()));
    let summary = import_csv(&data, &file).unwrap();
    assert_eq!((summary.new, summary.duplicates), (0, 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Fields that belong there, in any column, and fields that do not.
    #[test]
    fn no_table_is_too_strange_to_refuse(
        columns in proptest::sample::subsequence(COLUMNS.to_vec(), 3..=COLUMNS.len()).prop_shuffle(),
        rows in proptest::collection::vec(
            proptest::collection::vec(
                "ada|2026-01-05T07:0[0-9]:00Z|-9999-01-01T00:00:00Z|START|IDLE|[0-9]{1,25}|[0-9]{0,3}\\.[0-9]{0,10}|[0-9a-f]{32}|\"|[ -~]{0,5}",
                2..14,
            ),
            0..6,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("strange.csv");
        let rows: Vec<_> = rows.iter().map(|row| row.join(",")).collect();
        fs::write(&file, format!("{}\n{}\n", columns.join(","), rows.join("\n"))).unwrap();
        if let Err(error) = import_csv(&dir.path().join("data"), &file) {
            prop_assert!(error.to_string().starts_with(&file.display().to_string()), "{}", error);
        }
    }
}
