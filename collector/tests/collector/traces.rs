//! Traces that others published: states of library computers, availability of
//! nodes. From hand, and the real ones where they are.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use gleaner_collector::archive::Span;
use gleaner_collector::timeline::{PeriodState, Timeline};
use gleaner_collector::usage::{
    ImportError, ImportFormat, ImportOptions, ImportSummary, LoadOptions, Loaded, import, timelines,
};
use gleaner_common::time::WallTime;
use gleaner_common::usage::Cause;
use jiff::tz::TimeZone;
use tempfile::TempDir;

use crate::records::kept;
use Cause::{Finish, Idle, Start, Tty};

/// A directory with sources in it, and a data directory to import them into.
struct Lab {
    dir: TempDir,
    sources: Vec<PathBuf>,
}

impl Lab {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), sources: vec![] }
    }

    fn with(mut self, file: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.dir.path().join(file);
        fs::write(&path, text).unwrap();
        self.sources.push(path);
        self
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn import_as(&self, format: ImportFormat) -> Result<ImportSummary, ImportError> {
        self.import(&ImportOptions::new(format, self.sources.clone()))
    }

    fn import(&self, options: &ImportOptions) -> Result<ImportSummary, ImportError> {
        import(&self.data(), options, &mut |_| ())
    }

    fn periods(&self) -> Vec<(String, Vec<(PeriodState, u64)>)> {
        let loaded = load(&self.data());
        let periods = |timeline: &Timeline| {
            timeline.periods.iter().map(|p| (p.state, p.duration.as_secs())).collect()
        };
        loaded.timelines.iter().map(|(name, timeline)| (name.clone(), periods(timeline))).collect()
    }

    /// Refused in one line that ends like this, with nothing taken in.
    #[track_caller]
    fn refuses(&self, format: ImportFormat, expected: &str) {
        let error = self.import_as(format).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(!self.data().exists());
    }
}

fn load(data: &Path) -> Loaded {
    timelines(data, &LoadOptions::default(), &mut |_| ()).unwrap()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

const MORNING: &str = "\
LAP1,in-use,2016-01-04 08:00:00.000
INC1,offline,2016-01-04 08:00:00.000
INC1,restarted,2016-01-04 08:01:00.000
INC1,restarted,2016-01-04 08:02:00.000
INC1,in-use,2016-01-04 09:00:00.500
INC1,available,2016-01-04 10:00:00.500
";
const EVENING: &str = "\
INC1,offline,2016-01-04 20:00:00.500
INC2,available,2016-01-04 20:00:00.500
INC1,restarted,2016-01-14 20:00:00.500
INC2,in-use,2016-01-14 20:00:00.500
";
const TABLE: &str = "dbID,computerName,isDesktop\n1,INC1,1\n2,LAP1,0\n3,LAP2,\n";

#[test]
fn states_become_idle_busy_and_off_and_all_rows_are_counted() {
    let lab = Lab::new().with("a.csv.gz", gzip(MORNING)).with("b.csv", EVENING);
    let table = lab.dir.path().join("table.csv.gz");
    fs::write(&table, gzip(TABLE)).unwrap();
    let summary = lab
        .import(&ImportOptions {
            zone: Some(TimeZone::get("America/New_York").unwrap()),
            only_desktops: Some(table),
            ..ImportOptions::new(ImportFormat::Uncg, lab.sources.clone())
        })
        .unwrap();
    assert_eq!((summary.files, summary.rows, summary.workstations), (2, 10, 1));
    assert_eq!((summary.left_out_rows, summary.left_out_workstations), (3, 2));
    assert_eq!((summary.unlisted_rows, summary.repeated_rows, summary.overlong), (2, 0, 1));
    assert!((summary.overlong_h - 240.0).abs() < 1e-9);
    let records = kept(&lab.data(), "INC1");
    assert_eq!(records[0].at, WallTime::from_unix_s(1_451_912_460), "13:01 UTC");
    let causes: Vec<_> = records.iter().map(|record| record.cause).collect();
    let again = [Start, Idle, Finish, Start, Idle, Tty, Idle, Finish, Start, Idle];
    assert_eq!(causes, again, "it restarted twice");
    let periods = lab.periods();
    assert_eq!(
        periods[0].1,
        [
            (PeriodState::Idle, 60),
            (PeriodState::Idle, 3_480),
            (PeriodState::Busy, 3_600),
            (PeriodState::Idle, 36_000),
            (PeriodState::Unknown, 864_000)
        ]
    );
}

#[test]
fn a_longer_copy_adds_what_is_new() {
    let lab = Lab::new().with("a.csv", MORNING);
    let first = lab.import_as(ImportFormat::Uncg).unwrap();
    let lab = lab.with("b.csv", EVENING);
    let second = lab.import_as(ImportFormat::Uncg).unwrap();
    assert_eq!((second.duplicates, second.new), (first.new, second.records - first.new));
    assert!(load(&lab.data()).timelines.iter().all(|(_, timeline)| timeline.notes.is_empty()));
}

#[test]
fn bad_rows_of_states_are_named_with_file_and_line() {
    for (rows, expected) in [
        (
            "INC1,asleep,2016-01-04 08:00:00\n",
            "asleep` is not a state: expected in-use, available, restarted or offline",
        ),
        ("INC1,in-use\n", "`INC1,in-use`: expected machine,state,timestamp"),
        (
            "INC1,in-use,2016-01-04 08:00\n",
            "`2016-01-04 08:00` is not a time: expected one such as 2016-04-09 11:50:40.383, with no offset or zone",
        ),
        (
            "INC1,in-use,2016-01-04 08:00:00\nINC1,available,2016-01-04 07:00:00\n",
            ":4: `2016-01-04 07:00:00` is earlier than the row before it of `INC1`: expected order of time",
        ),
        (
            "INC1,in-use,2016-01-04 08:00:00\nINC1,available,2016-01-04 08:00:00\n",
            ":4: a second state of `INC1` at 2016-01-04 08:00:00",
        ),
        ("a/b,in-use,2016-01-04 08:00:00\n", "beginning with a letter or digit"),
    ] {
        let text = format!("INC9,in-use,2016-01-04 06:00:00\n\n{rows}");
        Lab::new().with("rows.csv", &text).refuses(ImportFormat::Uncg, expected);
        Lab::new().with("rows.csv.gz", gzip(&text)).refuses(ImportFormat::Uncg, expected);
    }
}

#[test]
fn files_in_the_wrong_order_overlap_and_are_refused() {
    let lab = Lab::new().with("2017.csv", EVENING).with("2016.csv", MORNING);
    lab.refuses(ImportFormat::Uncg, "2016.csv:2: `2016-01-04 08:00:00.000` is earlier than the row before it of `INC1`: expected order of time");
}

#[test]
fn a_file_that_was_cut_off_is_named_with_the_line_it_ends_in() {
    let text = (0..5_000).fold(String::new(), |text, s| {
        let (hour, minute, second, milli) = (s / 3_600, s / 60 % 60, s % 60, s * 7 % 1_000);
        text + &format!("INC{s},in-use,2016-01-04 {hour:02}:{minute:02}:{second:02}.{milli:03}\n")
    });
    let whole = gzip(&text);
    let lab = Lab::new().with("rows.csv.gz", &whole[..whole.len() / 2]);
    lab.refuses(
        ImportFormat::Uncg,
        "the file ends in the middle of its compressed data: it was cut off",
    );
    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle..middle + 40].fill(0xff);
    let error = Lab::new().with("rows.csv.gz", damaged).import_as(ImportFormat::Uncg).unwrap_err();
    assert!(matches!(error, ImportError::Bad { .. }), "{error}");
    let lab = Lab::new().with("rows.csv", &text[..text.len() - 6]);
    lab.refuses(ImportFormat::Uncg, ".csv:5000: `2016-01-04 01:23:1` is not a time: expected one such as 2016-04-09 11:50:40.383, with no offset or zone");
    let csv = format!("workstation,at,cause\n{}", "ada,2016-01-04T08:00:00Z,IDLE\n".repeat(4_000));
    let whole = gzip(&csv);
    Lab::new().with("usage.csv.gz", &whole[..whole.len() - 12]).refuses(
        ImportFormat::Csv,
        "the file ends in the middle of its compressed data: it was cut off",
    );
}

#[test]
fn a_table_that_is_no_table_of_computers_is_refused() {
    for (table, expected) in [
        (
            "name,isDesktop\n",
            ":1: no column `computerName` in the header: expected computerName and isDesktop",
        ),
        ("computerName,isDesktop\nINC1,1\nINC2,yes\n", ":3: isDesktop `yes`: expected 0 or 1"),
        ("computerName,isDesktop\nINC1,1\nINC1,0\n", ":3: `INC1` is there twice"),
        ("computerName,isDesktop\nINC1\n", ":2: a row of 1 fields: expected 2, like the header"),
    ] {
        let lab = Lab::new().with("rows.csv", MORNING);
        let path = lab.dir.path().join("table.csv");
        fs::write(&path, table).unwrap();
        let options = ImportOptions {
            only_desktops: Some(path),
            ..ImportOptions::new(ImportFormat::Uncg, lab.sources.clone())
        };
        let error = lab.import(&options).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn availability_is_idle_and_what_lies_between_unknown() {
    let lab = Lab::new().with("nodes.avt", "n1 3\t0 3600 7200 9000 9000 9100\nn2 1\t 5 10\n");
    let summary = lab.import_as(ImportFormat::Avt).unwrap();
    assert_eq!((summary.rows, summary.workstations, summary.records), (2, 2, 12));
    let idle = |s| (PeriodState::Idle, s);
    assert_eq!(
        lab.periods(),
        [
            ("n1".into(), vec![idle(3_600), (PeriodState::Unknown, 3_600), idle(1_800), idle(100)]),
            ("n2".into(), vec![idle(5)])
        ]
    );
}

#[test]
fn bad_availability_is_named_with_file_and_line() {
    for (row, expected) in [
        ("n2", ":2: expected: id, number of intervals, and their starts and ends"),
        ("n2 2 0 10 20", ":2: the last interval has no end: the line was cut off"),
        ("n2 2 0 10", ":2: 1 intervals of `n2`: expected 2, as it says itself"),
        ("n2 1 10 0", ":2: an interval that ends at 0, before it starts at 10"),
        ("n2 2 0 10 9 20", ":2: overlaps the interval before it of `n2`: expected order of time"),
        ("n1 1 0 10", ":2: a second line of node `n1`"),
        ("n2 1 zero 10", ":2: `zero` is not a time: expected seconds"),
    ] {
        let lab = Lab::new().with("nodes.avt", format!("n1 1 0 10\n{row}\n"));
        lab.refuses(ImportFormat::Avt, expected);
    }
}

const FTA: &str = "\
# event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time event_end_reason
0 0 655 3 10.0 0 1000 1100 NULL
1 0 655 3 10.0 1 1100 2000 4022
2 0 655 3 10.0 0 2000 2000 NULL
3 0 655 3 10.0 1 2060 3000 2
4 0 656 3 10.0 1 5 10 2
";

#[test]
fn failures_of_nodes_with_one_name_are_told_apart() {
    let lab = Lab::new().with("nodes.tab", FTA);
    let summary = lab.import_as(ImportFormat::Fta).unwrap();
    assert_eq!((summary.rows, summary.empty_intervals, summary.workstations), (5, 1, 2));
    let idle = |s| (PeriodState::Idle, s);
    assert_eq!(
        lab.periods(),
        [
            ("10.0-655".into(), vec![idle(900), (PeriodState::Unknown, 60), idle(940)]),
            ("10.0-656".into(), vec![idle(5)])
        ]
    );
    assert_eq!(kept(&lab.data(), "10.0-655")[2].reason, "reason 4022");
}

#[test]
fn bad_failures_are_named_with_file_and_line() {
    for (row, expected) in [
        (
            "5 0 655 3 10.0 1 2900 4000 2",
            ":7: overlaps the interval before it of `10.0-655`: expected order of time",
        ),
        ("5 0 655 3 10.0 2 3000 4000 2", ":7: event type: expected 1 (available) or 0 (not)"),
        ("5 0 655 3 10.0 1 3000", ":7: 7 fields: expected nine"),
    ] {
        Lab::new().with("nodes.tab", format!("{FTA}{row}\n")).refuses(ImportFormat::Fta, expected);
    }
}

#[test]
fn nothing_in_a_source_is_said() {
    for (format, expected) in [
        (
            ImportFormat::Uncg,
            "nothing to import: expected rows such as INC004,in-use,2016-04-09 11:50:40.383",
        ),
        (ImportFormat::Avt, "nothing to import: expected lines such as: node7 2 0 3600 7200 9000"),
        (
            ImportFormat::Fta,
            "nothing to import: expected lines of nine fields, as of the Failure Trace Archive",
        ),
    ] {
        Lab::new().with("empty", "\n").refuses(format, expected);
    }
}

/// Where the real traces are: not in this repository.
fn real(file: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let shared = std::env::var_os("GLEANER_SHARED_DATA").map_or(beside, PathBuf::from);
    let path = shared.join("availability").join(file);
    if File::open(&path).is_err() {
        let path = path.display();
        gleaner_skip::without(format!("no {path}; GLEANER_SHARED_DATA says where the traces are"));
        return None;
    }
    Some(path)
}

/// The figures that came with the trace: of 2010, 86,096 rows of 43 computers,
/// busy 28.4 %, free 44.4 %, off 27.2 %. Two of the computers only ever went
/// off, which leaves no log of them.
#[test]
fn a_year_of_library_computers_comes_to_the_shares_that_are_known_of_it() {
    let Some(path) = real("uncg-library-state-2010.csv.gz") else { return };
    let lab = Lab { sources: vec![path], ..Lab::new() };
    let options = ImportOptions {
        zone: Some(TimeZone::get("America/New_York").unwrap()),
        ..ImportOptions::new(ImportFormat::Uncg, lab.sources.clone())
    };
    let summary = lab.import(&options).unwrap();
    assert_eq!((summary.rows, summary.workstations), (86_096, 41));
    let loaded = load(&lab.data());
    let mut sums = [Duration::ZERO; 3];
    for period in loaded.timelines.iter().flat_map(|(_, timeline)| &timeline.periods) {
        sums[period.state as usize] += period.duration;
    }
    let [idle_h, busy_h, unknown_h] = sums.map(|sum| sum.as_secs_f64() / 3_600.0);
    let off_h = unknown_h - summary.overlong_h;
    let all_h = idle_h + busy_h + off_h;
    for (share, expected) in [(busy_h, 0.2842), (idle_h, 0.4439), (off_h, 0.2719)] {
        assert!((share / all_h - expected).abs() < 0.0005, "{} is not {expected}", share / all_h);
    }
}

#[test]
fn the_real_availability_traces_are_imported_whole() {
    if let Some(path) = real("skype06.avt.gz") {
        let lab = Lab { sources: vec![path], ..Lab::new() };
        let summary = lab.import_as(ImportFormat::Avt).unwrap();
        assert_eq!((summary.workstations, summary.records), (2_081, 3 * 29_217));
    }
    if let Some(path) = real("fta-lanl05-event_trace.tab.gz") {
        let lab = Lab { sources: vec![path], ..Lab::new() };
        let summary = lab.import_as(ImportFormat::Fta).unwrap();
        assert_eq!((summary.rows, summary.empty_intervals), (43_325, 122));
    }
}

#[test]
fn periods_outside_the_span_are_left_out_and_those_that_reach_in_are_whole() {
    let lab = Lab::new().with("a.csv", MORNING).with("b.csv", EVENING);
    lab.import_as(ImportFormat::Uncg).unwrap();
    let at = |text: &str| {
        let at: jiff::Timestamp = text.parse().unwrap();
        Some(WallTime(i64::try_from(at.as_nanosecond()).unwrap()))
    };
    let span = Span { from: at("2016-01-04T09:30:00Z"), to: at("2016-01-04T09:40:00Z") };
    let options = LoadOptions { names: vec!["INC1".into()], span, ..LoadOptions::default() };
    let loaded = timelines(&lab.data(), &options, &mut |_| ()).unwrap();
    assert_eq!(loaded.timelines[0].1.periods.len(), 1);
    assert_eq!(loaded.timelines[0].1.periods[0].duration, Duration::from_secs(3_600));
    let nobody = LoadOptions { names: vec!["nobody".into()], ..LoadOptions::default() };
    assert!(timelines(&lab.data(), &nobody, &mut |_| ()).is_err());
}
