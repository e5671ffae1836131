//! Input that nobody should have made, that comes through pipes, or whose import
//! is killed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::read::GzEncoder;
use gleaner_collector::archive::Archive;
use gleaner_collector::import::{ImportFormat, ImportOptions, ImportSummary, import};
use gleaner_collector::timeline::{Interpretation, PeriodState, interpret};
use gleaner_collector::usage::{ls, notes};
use jiff::tz::TimeZone;
use tempfile::TempDir;

use crate::records::{kept, name};
use PeriodState::{Busy, Idle, Unknown};

struct Site {
    dir: TempDir,
}

impl Site {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn write(&self, file: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(file);
        fs::write(&path, content).unwrap();
        path
    }

    fn import(&self, options: &ImportOptions) -> Result<ImportSummary, String> {
        import(&self.data(), options, &mut |_| ()).map_err(|error| error.to_string())
    }

    /// What a text is refused with: short, and nothing was taken in.
    #[track_caller]
    fn refuses(&self, format: ImportFormat, text: impl AsRef<[u8]>) -> String {
        let path = self.write("source", text);
        let said = self.import(&ImportOptions::new(format, vec![path])).unwrap_err();
        assert!(said.chars().count() < 1_000, "{} letters: {said:.300}", said.len());
        assert!(!said.contains(char::is_control), "{said}");
        assert!(!self.data().exists());
        said
    }

    fn periods(&self, workstation: &str) -> Vec<(PeriodState, u64)> {
        let timeline = interpret(kept(&self.data(), workstation), Interpretation::AsTaken);
        timeline.periods.iter().map(|p| (p.state, p.duration.as_secs())).collect()
    }
}

fn gzip(content: impl Read) -> Vec<u8> {
    let mut packed = vec![];
    GzEncoder::new(content, Compression::fast()).read_to_end(&mut packed).unwrap();
    packed
}

const HEADER: &str = "workstation,at,cause,load_1m,load_5m,load_15m\n";

/// 194 kB of zeros, packed, took 1.2 GB and were quoted in a message of 200 MB.
#[test]
fn no_format_keeps_or_quotes_a_line_without_end() {
    let site = Site::new();
    let zeros = gzip(std::io::repeat(0).take(50_000_000));
    let letters = gzip(std::io::repeat(b'a').take(20_000_000));
    for format in ImportFormat::ALL {
        for text in [&zeros, &letters] {
            let said = site.refuses(format, text);
            assert!(said.contains(":1: a line of more than "), "{said}");
        }
        let nothing = site.refuses(format, "");
        assert!(nothing.contains("nothing to import: expected "), "{nothing}");
    }
    let sparse = File::create(site.path("sparse")).unwrap();
    sparse.set_len(50 << 30).unwrap();
    let options = ImportOptions::new(ImportFormat::Csv, vec![site.path("sparse")]);
    assert!(site.import(&options).unwrap_err().contains(":1: a line of more than "));
    let name = format!("{HEADER}{},2026-01-05T00:00:00Z,IDLE,0,0,0\n", "\u{1b}[2J".repeat(3_000));
    assert!(site.refuses(ImportFormat::Csv, name).contains(":2: `\\u{1b}[2J"));
    let open = format!("{HEADER}\"ada\n{}", "ada,2026-01-05T00:00:00Z\n".repeat(100_000));
    assert!(site.refuses(ImportFormat::Csv, open).contains(":2: a row of more than "));
}

#[test]
fn a_load_is_a_number_from_0_on() {
    let site = Site::new();
    for load in ["NaN", "inf", "-inf", "-0.5", "1e39", "+infinity"] {
        let rows = format!("{HEADER}ada,2026-01-05T00:00:00Z,IDLE,0,{load},0\n");
        let said = site.refuses(ImportFormat::Csv, rows);
        assert!(said.ends_with("is not a load: expected 0 or more"), "{load}: {said}");
        let snapshot =
            format!("2026-01-05T00:00:00Z\nada up 1:00, 1 user, load 0.1, {load}, 0.1\n");
        let said = site.refuses(ImportFormat::Rwho, snapshot);
        assert!(said.contains("is not a load"), "{load}: {said}");
    }
    let far = "workstation,at,cause,input_idle_s\nada,2026-01-05T00:00:00Z,IDLE,9223372037\n";
    assert!(site.refuses(ImportFormat::Csv, far).ends_with("expected less than 292 years"));
}

#[test]
fn a_record_that_differs_under_a_number_that_was_used_is_refused() {
    let site = Site::new();
    let boot = "6373762e1c488a77b1e7c3941bdd1159";
    let row = |at: u64, cause: &str, number: u64| {
        format!("ada,2026-01-05T{at:02}:00:00Z,{cause},{boot},{number},1\n")
    };
    let header = "workstation,at,cause,boot,sequence,since_boot_s\n";
    let good = [header, &row(9, "START", 1), &row(10, "IDLE", 2), &row(11, "TTY", 3)].concat();
    let said = site.refuses(ImportFormat::Csv, format!("{good}{}", row(12, "IDLE", 2)));
    assert!(said.contains(":5: a second record 2 of life 6373762e"), "{said}");
    assert!(said.ends_with("differs from the first: expected each number once"), "{said}");
    let twice = site.write("twice", format!("{good}{}", row(10, "IDLE", 2)));
    let summary = site.import(&ImportOptions::new(ImportFormat::Csv, vec![twice])).unwrap();
    assert_eq!((summary.new, summary.duplicates), (3, 1));
}

#[test]
fn times_that_nobody_can_mean_are_refused_with_their_line() {
    let site = Site::new();
    for time in ["2016-12-31T23:59:60Z", "2026-01-05T09:00:00+25:00"] {
        let row = format!("workstation,at,cause\nada,{time},IDLE\n");
        assert!(site.refuses(ImportFormat::Csv, row).contains(":2: at `20"), "{time}");
        let sessions = format!("ada,{time},\n");
        let said = site.refuses(ImportFormat::Sessions, sessions);
        assert!(said.contains(":1: `20") && said.contains("is not a time"), "{said}");
        assert!(site.refuses(ImportFormat::Rwho, format!("{time}\n")).contains("is not a time"));
    }
    let leap = site.refuses(ImportFormat::Sessions, "ada,2016-12-31 23:59:60,\n");
    assert!(leap.contains("is not a time"), "{leap}");
    let ages = "ada,1677-09-21T00:12:44Z,2262-04-11T23:47:16Z\n";
    let said = site.refuses(ImportFormat::Sessions, ages);
    assert!(said.starts_with("`ada`: 2262-04-11T23:47:16Z is 292 years or more after"), "{said}");
}

#[test]
fn a_column_that_stands_twice_in_a_header_is_refused() {
    let site = Site::new();
    let twice = "host,start,end,host\nada,2026-01-05T09:00:00Z,,bob\n";
    let said = site.refuses(ImportFormat::Sessions, twice);
    assert!(said.ends_with(":1: column `host` is there twice"), "{said}");
    let table = site.write("table", "computerName,isDesktop,isDesktop\nada,1,0\n");
    let mut options = ImportOptions::new(ImportFormat::Uncg, vec![site.write("a", STATES)]);
    options.only_desktops = Some(table);
    let said = site.import(&options).unwrap_err();
    assert!(said.ends_with(":1: column `isDesktop` is there twice"), "{said}");
}

/// A pipe under a name of ours kept whoever read it waiting for ever.
#[test]
fn a_pipe_in_a_files_place_keeps_nobody_waiting() {
    let site = Site::new();
    let options = ImportOptions::new(ImportFormat::Uncg, vec![site.write("a", STATES)]);
    site.import(&options).unwrap();
    let pipe = |name: &str| {
        let path = site.data().join(name);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    };
    pipe(".import-0123456789abcdef");
    assert_eq!(notes(&site.data()).unwrap().len(), 1, "it is taken for one of all");
    pipe("ada/00000001.log");
    let damage = Archive::new(&site.data()).summary(&name("ada")).unwrap().damage;
    assert_eq!(damage.len(), 1);
    assert!(site.import(&options).unwrap_err().starts_with("stopped after 0 new records"));
    pipe(".lock");
    assert!(site.import(&options).unwrap_err().starts_with("cannot use "));
}

#[test]
fn names_that_give_no_record_are_bounded_too() {
    use std::fmt::Write as _;
    let site = Site::new();
    let of = |row: &dyn Fn(u32) -> String| {
        (0..=100_000).fold(String::new(), |mut rows, number| {
            writeln!(rows, "{}", row(number)).unwrap();
            rows
        })
    };
    let off = of(&|n| format!("h{n},offline,2016-04-09 11:50:40"));
    let never_up = of(&|n| format!("h{n} 0"));
    let down = of(&|n| format!("1 1 {n} 1 h 0 0 9 NULL"));
    let sessions = of(&|n| format!("h{n},2026-01-05T09:12:00Z,"));
    for (format, text) in [
        (ImportFormat::Uncg, off),
        (ImportFormat::Avt, never_up),
        (ImportFormat::Fta, down),
        (ImportFormat::Sessions, sessions),
    ] {
        let said = site.refuses(format, text);
        assert!(said.ends_with(":100001: more than 100000 workstations"), "{said}");
    }
}

const STATES: &str = "ada,available,2026-01-05 08:00:00\nada,in-use,2026-01-05 09:00:00\n";

#[test]
fn line_ends_and_byte_order_marks_of_other_systems_are_taken_or_told() {
    let cr_lf = format!("\u{feff}{}", STATES.replace('\n', "\r\n"));
    for text in [STATES.to_owned(), cr_lf, format!("\u{feff}{STATES}")] {
        let site = Site::new();
        let options = ImportOptions::new(ImportFormat::Uncg, vec![site.write("a", text)]);
        assert_eq!(site.import(&options).unwrap().records, 3);
        assert_eq!(site.periods("ada"), [(PeriodState::Idle, 3_600)]);
    }
    let site = Site::new();
    let old_mac = site.refuses(ImportFormat::Uncg, STATES.replace('\n', "\r"));
    assert!(old_mac.contains(":1: a carriage return inside a line"), "{old_mac}");
    let utf_16: Vec<u8> =
        "\u{feff}ada".encode_utf16().flat_map(|unit| unit.to_le_bytes().to_vec()).collect();
    assert!(
        site.refuses(ImportFormat::Csv, utf_16).ends_with(":1: text in UTF-16: expected UTF-8")
    );
}

#[test]
fn a_pipe_is_read_once_and_imported_whole() {
    let site = Site::new();
    let pipe = site.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (file, content) = (pipe.clone(), gzip(STATES.as_bytes()));
    let writer = std::thread::spawn(move || {
        File::create(file).unwrap().write_all(&content).unwrap();
    });
    let options = ImportOptions::new(ImportFormat::Uncg, vec![pipe]);
    assert_eq!(site.import(&options).unwrap().new, 3);
    writer.join().unwrap();
    let endless = ImportOptions::new(ImportFormat::Csv, vec!["/dev/zero".into()]);
    assert!(site.import(&endless).unwrap_err().starts_with("/dev/zero:1: a line of more than "));
}

/// The clock of New York is put back on the first Sunday of November.
#[test]
fn rows_of_the_hour_that_came_twice_and_of_the_skipped_one_stay_in_order() {
    let site = Site::new();
    let rows = "\
ada,available,2026-11-01 00:30:00
ada,in-use,2026-11-01 01:50:00
ada,available,2026-11-01 01:10:00
ada,in-use,2026-11-01 01:50:00
ada,available,2026-11-01 02:10:00
bob,available,2026-03-08 01:00:00
bob,in-use,2026-03-08 02:10:00
bob,available,2026-03-08 02:40:00
bob,in-use,2026-03-08 03:00:00
bob,available,2026-03-08 04:00:00
";
    let mut options = ImportOptions::new(ImportFormat::Uncg, vec![site.write("a", rows)]);
    options.zone = Some(TimeZone::get("America/New_York").unwrap());
    let summary = site.import(&options).unwrap();
    assert_eq!((summary.local_times.twice, summary.local_times.never), (3, 2));
    let minutes = |of: &str| -> Vec<_> {
        site.periods(of).into_iter().map(|(state, seconds)| (state, seconds / 60)).collect()
    };
    assert_eq!(minutes("ada"), [(Idle, 80), (Busy, 20), (Idle, 40), (Busy, 20)]);
    assert_eq!(minutes("bob"), [(Idle, 60), (Busy, 60)]);
}

#[test]
fn the_zone_of_a_time_is_taken_or_refused_and_never_read_over() {
    let site = Site::new();
    let said = site.refuses(ImportFormat::Uncg, "ada,available,2026-01-05 08:00:00+05:00\n");
    assert!(said.contains(":1: `2026-01-05 08:00:00+05:00` is not a time: expected"), "{said}");
    for time in ["2026-01-05 08:00:00", "2026-01-05T08:00:00Z", "2026-01-05T08:00:00-05:00"] {
        let time = format!("{time}[America/New_York]");
        let said = site.refuses(ImportFormat::Sessions, format!("ada,{time},\n"));
        assert!(said.ends_with("names a zone: expected an offset such as -05:00, or Z"), "{said}");
    }
    let said = site.refuses(ImportFormat::Sessions, "ada,9999-12-31T23:59:59-20:00,\n");
    assert!(said.contains("is not a time: expected"), "{said}");
    let with_offset = "ada,2026-01-05T08:00:00-05:00,2026-01-05T14:00:00Z\n";
    let source = site.write("sessions", with_offset);
    site.import(&ImportOptions::new(ImportFormat::Sessions, vec![source])).unwrap();
    assert_eq!(site.periods("ada"), [(Busy, 3_600)]);
}

/// All that is said of the skipped hour is of one moment.
#[test]
fn reboots_in_the_hour_that_never_came_lose_no_record() {
    let site = Site::new();
    let rows = "\
ada,available,2026-03-08 01:00:00
ada,offline,2026-03-08 01:30:00
ada,restarted,2026-03-08 02:10:00
ada,offline,2026-03-08 02:20:00
ada,restarted,2026-03-08 02:30:00
ada,in-use,2026-03-08 02:40:00
ada,available,2026-03-08 04:00:00
ada,offline,2026-03-08 06:00:00
";
    let mut options = ImportOptions::new(ImportFormat::Uncg, vec![site.write("a", rows)]);
    options.zone = Some(TimeZone::get("America/New_York").unwrap());
    let summary = site.import(&options).unwrap();
    assert_eq!((summary.records, summary.new, summary.duplicates), (11, 11, 0));
    let known: Vec<_> = site.periods("ada").into_iter().filter(|p| p.0 != Unknown).collect();
    assert_eq!(known, [(Idle, 1_800), (Busy, 3_600), (Idle, 7_200)]);
    let again = site.import(&options).unwrap();
    assert_eq!((again.new, again.duplicates), (0, 11));
}

#[test]
fn sessions_are_merged_in_whatever_order_they_come() {
    let site = Site::new();
    let rows = "\
# who was here
user,host,start,end
gina,ada,2026-01-05T09:00:00Z,2026-01-05T11:00:00Z
fred,ada,2026-01-05 08:00,2026-01-05 10:00
fred,bob,2026-01-05T08:00:00Z,
fred,ada,2026-01-05T13:00:00Z,2026-01-05T14:00:00Z
gina,ada,2026-01-05T13:00:00Z,2026-01-05T13:00:00Z
";
    let options = ImportOptions::new(ImportFormat::Sessions, vec![site.write("a.csv", rows)]);
    let summary = site.import(&options).unwrap();
    assert_eq!((summary.sessions, summary.overlapping_sessions), (5, 1));
    assert_eq!((summary.workstations, summary.empty_intervals), (2, 1));
    assert_eq!(site.periods("ada"), [(Busy, 10_800), (Idle, 7_200), (Busy, 3_600)]);
    assert_eq!(site.import(&options).unwrap().new, 0);
    let other = Site::new();
    let refused = [
        ("ada,2026-01-05T09:00:00Z\n", ":1: 2 fields: expected host,start,end"),
        ("ada,soon,\n", "of the local clock, 2026-01-05 09:12:00"),
        ("ada,2026-01-05,\n", "of the local clock, 2026-01-05 09:12:00"),
        (
            "ada,2026-01-05T09:00:00Z,2026-01-05T08:00:00Z\n",
            ":1: a session of `ada` that ends before it starts",
        ),
    ];
    for (rows, expected) in refused {
        let said = other.refuses(ImportFormat::Sessions, rows);
        assert!(said.ends_with(expected), "{said}");
    }
}

const SHORT: &str = "\
fred     pts/1        10.0.0.7         Fri Jan  2 08:02   still logged in
reboot   system boot  6.1.0-18-amd64   Fri Jan  2 07:58   still running
gina     pts/0        10.0.0.9         Wed Dec 31 23:00 - crash (1+08:58)
fred     pts/0                         Wed Dec 31 09:12 - 10:15  (01:03)
fred     pts/0                         Wed Dec 31 09:00   gone - no logout
reboot   system boot  6.1.0-18-amd64   Wed Dec 31 08:00   still running

wtmp begins Wed Dec 31 08:00:00 2025
";
const FULL: &str = "\
fred     pts/1        10.0.0.7         Fri Jan  2 08:02:00 2026   still logged in
reboot   system boot  6.1.0-18-amd64   Fri Jan  2 07:58:00 2026   still running
gina     pts/0        10.0.0.9         Wed Dec 31 23:00:00 2025 - crash                     (1+08:58)
fred     pts/0                         Wed Dec 31 09:12:00 2025 - Wed Dec 31 10:15:00 2025  (01:03)
fred     pts/0                         Wed Dec 31 09:00:00 2025   gone - no logout
reboot   system boot  6.1.0-18-amd64   Wed Dec 31 08:00:00 2025   still running

wtmp begins Wed Dec 31 08:00:00 2025
";
const ISO: &str = "\
fred     pts/1        10.0.0.7         2026-01-02T08:02:00+00:00   still logged in
reboot   system boot  6.1.0-18-amd64   2026-01-02T07:58:00+00:00   still running
gina     pts/0        10.0.0.9         2026-01-01T00:00:00+01:00 - crash                      (1+08:58)
fred     pts/0                         2025-12-31T09:12:00+0000 - 2025-12-31T10:15:00+0000  (01:03)
fred     pts/0                         2025-12-31T09:00:00+00:00   gone - no logout
reboot   system boot  6.1.0-18-amd64   2025-12-31T08:00:00+00:00   still running

wtmp begins 2025-12-31T08:00:00+00:00
";

#[test]
fn all_that_last_prints_says_the_same() {
    for text in [SHORT, FULL, ISO] {
        let site = Site::new();
        let path = site.write("ada.txt.gz", gzip(text.as_bytes()));
        let summary = site.import(&ImportOptions::new(ImportFormat::Last, vec![path])).unwrap();
        assert_eq!((summary.rows, summary.sessions, summary.unended_sessions), (6, 3, 1));
        let expected = [(Idle, 4_320), (Busy, 3_780), (Idle, 45_900), (Busy, 118_680), (Idle, 240)];
        assert_eq!(site.periods("ada"), expected, "{text}");
    }
}

#[test]
fn what_last_does_not_say_is_asked_for() {
    let site = Site::new();
    let without_year = SHORT.split("\nwtmp").next().unwrap();
    let path = site.write("ada.txt", without_year);
    let mut options = ImportOptions::new(ImportFormat::Last, vec![path]);
    let said = site.import(&options).unwrap_err();
    assert!(said.ends_with("expected what `last -F` prints"), "{said}");
    options.sources = vec![site.write("not a name", SHORT)];
    assert!(site.import(&options).unwrap_err().contains("expected --workstation NAME"));
    options.workstation = Some(name("ada"));
    assert_eq!(site.import(&options).unwrap().workstations, 1);
    let other = SHORT.replace("Fri Jan  2", "Fri Feb 31");
    let said = Site::new().refuses_last(&other);
    assert!(said.contains("no such day"), "{said}");
}

impl Site {
    fn refuses_last(&self, text: &str) -> String {
        let path = self.write("ada.txt", text);
        self.import(&ImportOptions::new(ImportFormat::Last, vec![path])).unwrap_err()
    }
}

const DIRECTORY: &str = "GLEANER_TEST_IMPORT_DIRECTORY";
const ROWS: usize = 120_000;

fn long_import(dir: &Path) -> ImportOptions {
    ImportOptions::new(ImportFormat::Uncg, vec![dir.join("long.csv")])
}

/// Not a test of its own: the process that the test below kills.
#[test]
fn child_that_imports_until_it_is_killed() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    let dir = Path::new(&dir);
    let mut steps = 0;
    let done = import(&dir.join("data"), &long_import(dir), &mut |_| {
        steps += 1;
        let mut out = std::io::stdout().lock();
        writeln!(out, "step {steps}").unwrap();
        out.flush().unwrap();
    });
    done.unwrap();
}

#[test]
fn an_import_killed_at_any_moment_leaves_nothing_or_is_seen() {
    let site = Site::new();
    let dir = site.dir.path();
    let start = jiff::civil::date(2026, 1, 5).at(0, 0, 0, 0);
    let rows = (0..ROWS).map(|row| {
        let at = start + jiff::Span::new().seconds(i64::try_from(row).unwrap() * 60);
        let state = if row / 3 % 2 == 0 { "available" } else { "in-use" };
        format!("ws{},{state},{}\n", row % 3, at.strftime("%F %T"))
    });
    site.write("long.csv", rows.collect::<String>());
    let all = ROWS as u64 + 3;
    let (mut seen_half, mut seen_nothing) = (0, 0);
    for steps in [1, 12, 13, 20, 22, 22, 23, 23, 24, 24] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "input::child_that_imports_until_it_is_killed", "--nocapture"])
            .env(DIRECTORY, dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let told = lines.filter(|line| line.contains("step ")).take(steps).count();
        assert_eq!(told, steps);
        child.kill().unwrap();
        child.wait().unwrap();
        let archive = Archive::new(&site.data());
        let names = archive.names().unwrap_or_default();
        let there: u64 = names.iter().map(|it| archive.summary(it).unwrap().records).sum();
        let told = notes(&site.data()).unwrap_or_default();
        if there == 0 {
            seen_nothing += 1;
        } else if there < all {
            seen_half += 1;
            assert_eq!(told.len(), 1, "{there} of {all} records, killed at step {steps}");
            assert!(told[0].contains("was cut off") && told[0].contains("long.csv"), "{told:?}");
            let rows = ls(&site.data()).unwrap();
            assert!(rows.iter().all(|row| row.health.iter().any(|it| it.contains("cut off"))));
        }
        site.import(&long_import(dir)).unwrap();
        assert_eq!(notes(&site.data()).unwrap(), [""; 0]);
        let rows = ls(&site.data()).unwrap();
        assert_eq!(rows.iter().map(|row| row.records).sum::<u64>(), all);
        assert!(rows.iter().all(|row| row.health == ["whole"]));
        fs::remove_dir_all(site.data()).unwrap();
    }
    assert!(seen_half > 0 && seen_nothing > 0, "{seen_half} halves, {seen_nothing} nothings");
}
