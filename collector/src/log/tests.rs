use std::ops::ControlFlow;

use gleaner_common::usage::Cause;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::archive::Archive;
use crate::segment::tests::{name, record};
use crate::segment::{HeaderError, Scan};

/// A log with records 1 to `count`, synced; one segment unless `bytes_max` is
/// small.
fn log_of(count: u64, bytes_max: u64) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = Log::open(dir.path(), &name("ada")).unwrap();
    let mut log = log.with_segment_bytes_max(bytes_max);
    for sequence in 1..=count {
        log.append(&[record(sequence, sequence, Cause::Tty)]).unwrap();
    }
    log.sync().unwrap();
    dir
}

fn segment(dir: &TempDir, number: u32) -> PathBuf {
    dir.path().join("ada").join(file_name(number))
}

fn read(dir: &TempDir) -> (Vec<u64>, Vec<Damage>) {
    let mut sequences = vec![];
    let damage = Archive::new(dir.path()).read(&name("ada"), |record| {
        sequences.push(record.sequence);
        ControlFlow::Continue(())
    });
    (sequences, damage.unwrap())
}

fn append(dir: &TempDir, sequences: std::ops::RangeInclusive<u64>) -> Appended {
    let (mut log, _) = Log::open(dir.path(), &name("ada")).unwrap();
    let records: Vec<_> = sequences.map(|n| record(n, n, Cause::Tty)).collect();
    let appended = log.append(&records).unwrap();
    log.sync().unwrap();
    appended
}

#[test]
fn what_is_there_already_is_not_written_again_also_after_a_restart() {
    let dir = log_of(5, SEGMENT_BYTES_MAX);
    assert_eq!(append(&dir, 3..=7), Appended { new: 2, duplicates: 3 });
    assert_eq!(append(&dir, 1..=7), Appended { new: 0, duplicates: 7 });
    assert_eq!(read(&dir), ((1..=7).collect(), vec![]));
}

#[test]
fn a_full_segment_is_followed_by_the_next_and_keeps_its_summary() {
    let dir = log_of(100, 1_000);
    let segments = segments_of(&dir.path().join("ada")).unwrap();
    assert!(segments.len() > 5, "{segments:?}");
    assert_eq!(read(&dir), ((1..=100).collect(), vec![]));
    assert_eq!(append(&dir, 1..=101), Appended { new: 1, duplicates: 100 });
    let summary = Archive::new(dir.path()).summary(&name("ada")).unwrap();
    assert_eq!((summary.records, summary.boots), (101, 1));
    assert_eq!(summary.segments as usize, segments.len());
}

#[test]
fn a_summary_that_is_gone_wrong_or_damaged_is_made_again() {
    let dir = log_of(100, 1_000);
    let path = segment(&dir, 1).with_extension("sum");
    let good = fs::read(&path).unwrap();
    for bad in [&good[..20], b"gleansum\0\0\0\0\0\0", b""] {
        fs::write(&path, bad).unwrap();
        assert_eq!(append(&dir, 1..=100), Appended { new: 0, duplicates: 100 });
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(append(&dir, 1..=100), Appended { new: 0, duplicates: 100 });
}

#[test]
fn a_tail_torn_at_any_byte_is_put_aside_and_the_log_goes_on() {
    let whole = fs::read(segment(&log_of(3, SEGMENT_BYTES_MAX), 1)).unwrap();
    let start = encode_header(&name("ada")).len();
    let mut scan: Scan = Scan::new(&whole, start);
    let (_, _) = (scan.next(), scan.next());
    let second_end = scan.position();
    for cut in second_end + 1..whole.len() {
        let dir = log_of(3, SEGMENT_BYTES_MAX);
        let path = segment(&dir, 1);
        fs::write(&path, &whole[..cut]).unwrap();
        let (mut log, damage) = Log::open(dir.path(), &name("ada")).unwrap();
        let [Damage { file, offset, bytes, kind: DamageKind::Cut }] = &damage[..] else {
            panic!("cut at {cut}: {damage:?}");
        };
        assert_eq!((*offset, *bytes), (second_end as u64, (cut - second_end) as u64));
        assert_eq!(fs::read(file).unwrap(), &whole[second_end..cut]);
        assert_eq!(fs::read(&path).unwrap(), &whole[..second_end]);
        log.append(&[record(3, 3, Cause::Tty)]).unwrap();
        log.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole);
        let (sequences, damage) = read(&dir);
        assert_eq!(sequences, [1, 2, 3]);
        assert_eq!(damage.len(), 1, "what was cut stays visible");
    }
}

#[test]
fn a_second_tail_torn_at_the_same_place_does_not_replace_the_first() {
    let dir = log_of(1, SEGMENT_BYTES_MAX);
    let path = segment(&dir, 1);
    let whole = fs::read(&path).unwrap();
    for tail in [b"first".as_slice(), b"second"] {
        fs::write(&path, [&whole, tail].concat()).unwrap();
        Log::open(dir.path(), &name("ada")).unwrap();
    }
    let (_, damage) = read(&dir);
    let kept: Vec<_> = damage.iter().map(|damage| fs::read(&damage.file).unwrap()).collect();
    assert_eq!(kept, [b"first".to_vec(), b"second".to_vec()]);
    assert_eq!(damage[0].offset, damage[1].offset);
}

#[test]
fn a_damaged_record_in_the_middle_is_reported_with_file_and_offset() {
    let dir = log_of(3, SEGMENT_BYTES_MAX);
    let path = segment(&dir, 1);
    let mut bytes = fs::read(&path).unwrap();
    let start = encode_header(&name("ada")).len();
    bytes[start + 20] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    let (sequences, damage) = read(&dir);
    assert_eq!(sequences, [2, 3]);
    let length = (bytes.len() - start) / 3;
    assert_eq!(
        damage[0].to_string(),
        format!(
            "{}: {length} bytes at {start} are damaged: passed over to the next whole record",
            path.display()
        )
    );
    // It is missing now, so it is taken in if its agent still has it.
    assert_eq!(append(&dir, 1..=3), Appended { new: 1, duplicates: 2 });
}

#[test]
fn a_damaged_header_costs_no_record_and_nothing_is_put_behind_it() {
    let dir = log_of(3, SEGMENT_BYTES_MAX);
    let path = segment(&dir, 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[13] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(append(&dir, 1..=4), Appended { new: 1, duplicates: 3 });
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let (sequences, damage) = read(&dir);
    assert_eq!(sequences, [1, 2, 3, 4]);
    assert_eq!(damage.len(), 1);
}

#[test]
fn another_version_another_workstation_and_another_file_are_refused_in_one_line() {
    let dir = log_of(1, SEGMENT_BYTES_MAX);
    let path = segment(&dir, 1);
    let good = fs::read(&path).unwrap();
    let mut newer = good.clone();
    newer[8] = 9;
    let mut others = encode_header(&name("bob"));
    others.extend_from_slice(&good[encode_header(&name("ada")).len()..]);
    let path_text = path.display();
    for (bytes, expected) in [
        (newer, format!("{path_text}: {}", HeaderError::Version { theirs: 9, ours: 1 })),
        (others, format!("{path_text}: a log of workstation bob: expected one of ada")),
        (b"hello".to_vec(), format!("{path_text}: {}", HeaderError::NotOurs)),
    ] {
        fs::write(&path, &bytes).unwrap();
        let error = Log::open(dir.path(), &name("ada")).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(fs::read(&path).unwrap(), bytes, "it is left as it is");
    }
}

#[test]
fn what_was_not_synced_is_taken_back() {
    let dir = log_of(2, SEGMENT_BYTES_MAX);
    let before = fs::read(segment(&dir, 1)).unwrap();
    let (mut log, _) = Log::open(dir.path(), &name("ada")).unwrap();
    log.append(&[record(3, 3, Cause::Tty)]).unwrap();
    log.roll_back();
    assert_eq!(fs::read(segment(&dir, 1)).unwrap(), before);
}

#[test]
fn a_record_out_of_its_bounds_leaves_the_log_as_it_was() {
    let dir = log_of(2, SEGMENT_BYTES_MAX);
    let (mut log, _) = Log::open(dir.path(), &name("ada")).unwrap();
    let mut verbose = record(4, 4, Cause::Tty);
    verbose.reason = "x".repeat(201);
    assert!(log.append(&[record(3, 3, Cause::Tty), verbose]).is_err());
    assert_eq!(log.append(&[record(3, 3, Cause::Tty)]).unwrap().new, 1);
}

#[test]
fn a_boot_of_gaps_only_is_refused_before_it_fills_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = Log::open(dir.path(), &name("ada")).unwrap();
    let gaps: Vec<_> = (1..=RANGES_MAX as u64 + 1).map(|n| record(2 * n, n, Cause::Tty)).collect();
    assert!(matches!(log.append(&gaps), Err(AppendError::TooManyGaps)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However batches overlap, segments fill and collectors restart, each
    /// record is there once.
    #[test]
    fn each_record_is_kept_once(
        batches in proptest::collection::vec((1u64..30, 1u64..10, any::<bool>()), 1..20),
        bytes_max in 100u64..2_000,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let ada = name("ada");
        let open = || Log::open(dir.path(), &ada).unwrap().0.with_segment_bytes_max(bytes_max);
        let (mut log, mut expected) = (open(), std::collections::BTreeSet::new());
        for (first, count, restart) in batches {
            let records: Vec<_> =
                (first..first + count).map(|n| record(n, n, Cause::Idle)).collect();
            let before = expected.len();
            expected.extend(first..first + count);
            let appended = log.append(&records).unwrap();
            prop_assert_eq!(appended.new, (expected.len() - before) as u64);
            log.sync().unwrap();
            if restart {
                log = open();
            }
        }
        let (mut sequences, damage) = read(&dir);
        sequences.sort_unstable();
        prop_assert_eq!(sequences, expected.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(damage, vec![]);
    }
}
