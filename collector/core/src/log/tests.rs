use gleaner_common::disk::simulated::SimulatedDisk;
use gleaner_common::usage::Cause;
use proptest::prelude::*;

use super::*;
use crate::kept::KeptLog;
use crate::samples::{name, record};
use crate::segment::{Entry, HeaderError};

const SEGMENT_BYTES_MAX: u64 = super::SEGMENT_BYTES_MAX;

fn open(disk: &mut SimulatedDisk) -> (Log, Vec<Damage>) {
    Log::open(disk, Path::new("/data/ada"), &name("ada")).unwrap()
}

/// A log with records 1 to `count`, synced; one segment unless `bytes_max` is
/// small.
fn log_of(count: u64, bytes_max: u64) -> SimulatedDisk {
    let mut disk = SimulatedDisk::new(count);
    let mut log = open(&mut disk).0.with_segment_bytes_max(bytes_max);
    for sequence in 1..=count {
        log.append(&mut disk, &[record(sequence, sequence, Cause::Tty)]).unwrap();
    }
    log.sync(&mut disk).unwrap();
    disk
}

fn segment(disk: &mut SimulatedDisk, number: u32) -> Vec<u8> {
    disk.read(&file_name(number)).unwrap().unwrap()
}

fn segments(disk: &mut SimulatedDisk) -> Vec<u32> {
    segments_of(disk.list().unwrap().iter().map(String::as_str))
}

/// The sequences and the damage that a reader finds.
fn read(disk: &mut SimulatedDisk) -> (Vec<u64>, Vec<Damage>) {
    let (mut sequences, mut damage) = (vec![], vec![]);
    for number in segments(disk) {
        let path = Path::new("/data/ada").join(file_name(number));
        let segment = Segment::of(&path, segment(disk, number), &name("ada")).unwrap();
        for entry in segment.entries() {
            match entry {
                Ok(Entry::Record(record)) => sequences.push(record.numbered.sequence),
                Ok(Entry::Given(_)) => {}
                Err(found) => damage.push(found),
            }
        }
    }
    (sequences, damage)
}

fn append(disk: &mut SimulatedDisk, sequences: std::ops::RangeInclusive<u64>) -> (u64, u64) {
    let (mut log, _) = open(disk);
    let records: Vec<_> = sequences.map(|n| record(n, n, Cause::Tty)).collect();
    let appended = log.append(disk, &records).unwrap();
    log.sync(disk).unwrap();
    (appended.new, appended.duplicates)
}

fn account(given: u64, saved: u64, confirmed: u64) -> LifeAccount {
    let UsageRecord { life, boot, at, since_boot, .. } = record(1, 1, Cause::Tty);
    LifeAccount { life, boot, given, saved, confirmed, at, since_boot }
}

#[test]
fn what_is_there_already_is_not_written_again_also_after_a_restart() {
    let mut disk = log_of(5, SEGMENT_BYTES_MAX);
    assert_eq!(append(&mut disk, 3..=7), (2, 3));
    assert_eq!(append(&mut disk, 1..=7), (0, 7));
    assert_eq!(read(&mut disk), ((1..=7).collect(), vec![]));
}

#[test]
fn a_full_segment_is_followed_by_the_next_and_keeps_its_summary() {
    let mut disk = log_of(100, 1_000);
    let count = segments(&mut disk).len();
    assert!(count > 5, "{count}");
    assert_eq!(read(&mut disk), ((1..=100).collect(), vec![]));
    assert_eq!(append(&mut disk, 1..=101), (1, 100));
    for bad in [&b"gleansum\0\0\0\0\0\0"[..], b""] {
        disk.replace(&summary_name(1), bad).unwrap();
        assert_eq!(append(&mut disk, 1..=101), (0, 101));
    }
}

#[test]
fn a_segment_of_the_first_version_is_read_and_not_written_to() {
    let mut disk = SimulatedDisk::new(1);
    let mut bytes = encode_header(&name("ada"));
    bytes[8] = 1;
    let covered = bytes.len() - 4;
    let checksum = crc32c::crc32c(&bytes[..covered]);
    bytes[covered..].copy_from_slice(&checksum.to_le_bytes());
    let old = record(1, 1, Cause::Tty);
    let numbered = (old.boot, 1_u64, old.at, old.since_boot, old.cause, old.load);
    let rest = (old.users, old.input_idle, old.slots, &old.reason);
    gleaner_common::checked::write(&mut bytes, |out| {
        *out = postcard::to_extend(&(numbered, rest), std::mem::take(out)).unwrap();
    });
    disk.replace(&file_name(1), &bytes).unwrap();
    let (log, damage) = open(&mut disk);
    assert_eq!(damage, vec![]);
    assert!(log.contains(&UsageRecord { life: old.boot.into(), ..old.clone() }));
    assert!(!log.contains(&old), "a life's first record is another");
    assert_eq!(append(&mut disk, 1..=2), (2, 0));
    assert_eq!(segment(&mut disk, 1), bytes);
    assert_eq!(read(&mut disk), (vec![1, 1, 2], vec![]));
}

#[test]
fn a_tail_torn_at_any_byte_is_put_aside_and_the_log_goes_on() {
    let second_end = segment(&mut log_of(2, SEGMENT_BYTES_MAX), 1).len();
    let whole = segment(&mut log_of(3, SEGMENT_BYTES_MAX), 1);
    for cut in second_end + 1..whole.len() {
        let mut disk = log_of(3, SEGMENT_BYTES_MAX);
        disk.replace(&file_name(1), &whole[..cut]).unwrap();
        let (mut log, damage) = open(&mut disk);
        let [Damage { file, offset, bytes, kind: DamageKind::Cut }] = &damage[..] else {
            panic!("cut at {cut}: {damage:?}");
        };
        assert_eq!((*offset, *bytes), (second_end as u64, (cut - second_end) as u64));
        let aside = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(disk.read(aside).unwrap().unwrap(), &whole[second_end..cut]);
        assert_eq!(segment(&mut disk, 1), &whole[..second_end]);
        log.append(&mut disk, &[record(3, 3, Cause::Tty)]).unwrap();
        log.sync(&mut disk).unwrap();
        assert_eq!(segment(&mut disk, 1), whole);
    }
}

#[test]
fn a_second_tail_torn_at_the_same_place_does_not_replace_the_first() {
    let mut disk = log_of(1, SEGMENT_BYTES_MAX);
    let whole = segment(&mut disk, 1);
    for tail in [b"first".as_slice(), b"second"] {
        disk.replace(&file_name(1), &[&whole, tail].concat()).unwrap();
        open(&mut disk);
    }
    let beside = format!("{}.torn-{}", file_name(1), whole.len());
    assert_eq!(disk.read(&beside).unwrap().unwrap(), b"first");
    assert_eq!(disk.read(&format!("{beside}-2")).unwrap().unwrap(), b"second");
}

#[test]
fn a_tail_that_was_cut_by_one_that_died_is_told_by_the_next() {
    for operations in 0..6 {
        let mut disk = log_of(1, SEGMENT_BYTES_MAX);
        let whole = segment(&mut disk, 1);
        disk.replace(&file_name(1), &[&whole, b"half".as_slice()].concat()).unwrap();
        disk.lose_power_after(operations);
        let _ = Log::open(&mut disk, Path::new("/data/ada"), &name("ada"));
        disk.crash();
        let (_, damage) = open(&mut disk);
        let [Damage { bytes: 4, kind: DamageKind::Cut, .. }] = &damage[..] else {
            panic!("after {operations}: {damage:?}")
        };
        assert_eq!(segment(&mut disk, 1), whole, "after {operations}");
        append(&mut disk, 2..=2);
        assert_eq!(open(&mut disk).1, [], "it was told, and the log went on");
    }
}

#[test]
fn a_damaged_record_in_the_middle_is_reported_and_may_come_again() {
    let mut disk = log_of(3, SEGMENT_BYTES_MAX);
    let mut bytes = segment(&mut disk, 1);
    let start = encode_header(&name("ada")).len();
    bytes[start + 20] ^= 0xff;
    disk.replace(&file_name(1), &bytes).unwrap();
    let (sequences, damage) = read(&mut disk);
    assert_eq!(sequences, [2, 3]);
    let length = (bytes.len() - start) / 3;
    assert_eq!(
        damage[0].to_string(),
        format!(
            "/data/ada/00000001.log: {length} bytes at {start} are damaged: \
             passed over to the next whole record"
        )
    );
    // It is missing now, so it is taken in if its agent still has it.
    let (log, _) = open(&mut disk);
    assert_eq!(log.kept(account(3, 3, 3).life).ranges, [(2, 3)]);
    assert_eq!(append(&mut disk, 1..=3), (1, 2));
}

#[test]
fn damage_in_a_full_segment_is_told_also_by_its_summary() {
    let mut disk = log_of(100, 1_000);
    let mut bytes = segment(&mut disk, 1);
    let start = encode_header(&name("ada")).len();
    bytes[start + 20] ^= 0xff;
    disk.replace(&file_name(1), &bytes).unwrap();
    disk.replace(&summary_name(1), b"").unwrap();
    let (sequences, found) = read(&mut disk);
    assert_eq!((sequences, found.len()), ((2..=100).collect(), 1));
    for _ in 0..2 {
        assert_eq!(open(&mut disk).1, found);
    }
}

/// The segments that are looked through, and what is told of them.
fn look(log: &mut KeptLog, disk: &mut SimulatedDisk) -> (usize, Vec<Damage>) {
    let mut looked = 0;
    loop {
        log.look(disk).unwrap();
        if !log.has_more_to_look_through() {
            break;
        }
        looked += 1;
    }
    (looked, log.take_damage())
}

#[test]
fn a_bit_that_turns_over_in_any_segment_is_told_once_and_its_record_may_come_again() {
    let mut disk = log_of(100, 1_000);
    let count = segments(&mut disk).len();
    let mut log = KeptLog::open(&mut disk, Path::new("/data/ada"), &name("ada")).unwrap();
    assert_eq!(look(&mut log, &mut disk), (count, vec![]));
    let start = encode_header(&name("ada")).len();
    for (number, sequence) in [(segments(&mut disk)[count - 1], 100), (1, 1)] {
        let mut bytes = segment(&mut disk, number);
        let at = if number == 1 { start + 20 } else { bytes.len() - 20 };
        bytes[at] ^= 0x10;
        disk.replace(&file_name(number), &bytes).unwrap();
        let (looked, told) = look(&mut log, &mut disk);
        assert_eq!((looked, told.len()), (count, 1), "segment {number}");
        assert_eq!(look(&mut log, &mut disk), (count, vec![]), "it is known");
        let again = record(sequence, sequence, Cause::Tty);
        let arrived = crate::kept::Arrived { lives: &[], records: &[again] };
        assert_eq!(log.take_in(&mut disk, [arrived]).unwrap()[0].new, 1, "{sequence}");
    }
    assert_eq!(open(&mut disk).1.len(), 1, "and the summary says so at the next start");
}

#[test]
fn a_damaged_header_costs_no_record_and_nothing_is_put_behind_it() {
    for byte in [3, 8, 13] {
        let mut disk = log_of(3, SEGMENT_BYTES_MAX);
        let mut bytes = segment(&mut disk, 1);
        bytes[byte] ^= 0xff;
        disk.replace(&file_name(1), &bytes).unwrap();
        assert_eq!(append(&mut disk, 1..=4), (1, 3));
        assert_eq!(segment(&mut disk, 1), bytes);
        assert_eq!(read(&mut disk).0, [1, 2, 3, 4]);
    }
}

#[test]
fn another_version_another_workstation_and_another_file_are_refused_in_one_line() {
    let mut disk = log_of(1, SEGMENT_BYTES_MAX);
    let good = segment(&mut disk, 1);
    let covered = encode_header(&name("ada")).len() - 4;
    let mut newer = good.clone();
    newer[8] = 9;
    let checksum = crc32c::crc32c(&newer[..covered]);
    newer[covered..covered + 4].copy_from_slice(&checksum.to_le_bytes());
    let mut others = encode_header(&name("bob"));
    others.extend_from_slice(&good[covered + 4..]);
    for (bytes, expected) in [
        (newer, HeaderError::Version { theirs: 9, ours: 2 }.to_string()),
        (others, "a log of workstation bob: expected one of ada".to_owned()),
        (b"hello".to_vec(), HeaderError::NotOurs.to_string()),
    ] {
        disk.replace(&file_name(1), &bytes).unwrap();
        let error = Log::open(&mut disk, Path::new("/data/ada"), &name("ada")).unwrap_err();
        assert_eq!(error.to_string(), format!("/data/ada/00000001.log: {expected}"));
        assert_eq!(segment(&mut disk, 1), bytes, "it is left as it is");
    }
}

#[test]
fn what_was_not_synced_is_taken_back() {
    let mut disk = log_of(2, SEGMENT_BYTES_MAX);
    let before = segment(&mut disk, 1);
    let (mut log, _) = open(&mut disk);
    log.append(&mut disk, &[record(3, 3, Cause::Tty)]).unwrap();
    disk.set_syncs_fail(true);
    assert!(log.sync(&mut disk).is_err());
    disk.set_syncs_fail(false);
    let (log, _) = log.roll_back(&mut disk).unwrap();
    assert!(!log.contains(&record(3, 3, Cause::Tty)));
    assert_eq!(segment(&mut disk, 1), before);
}

/// What a collector wrote, and died before it was synced, is read by the next; when
/// that one calls it kept, it is.
#[test]
fn what_an_opened_log_contains_outlasts_a_crash() {
    for seed in 0..20 {
        let mut disk = SimulatedDisk::new(seed);
        let (mut log, _) = open(&mut disk);
        log.append(&mut disk, &[record(1, 1, Cause::Tty)]).unwrap();
        log.sync(&mut disk).unwrap();
        log.append(&mut disk, &[record(2, 2, Cause::Tty)]).unwrap();
        let (log, _) = open(&mut disk);
        assert!(log.contains(&record(2, 2, Cause::Tty)));
        disk.crash();
        assert_eq!(read(&mut disk).0, [1, 2], "seed {seed}");
    }
}

/// Who syncs the last segment is answered for those that it filled before.
#[test]
fn what_was_written_before_the_next_segment_was_begun_outlasts_a_crash() {
    for seed in 0..20 {
        let mut disk = SimulatedDisk::new(seed);
        let mut log = open(&mut disk).0.with_segment_bytes_max(200);
        for sequence in 1..=10 {
            log.append(&mut disk, &[record(sequence, sequence, Cause::Tty)]).unwrap();
        }
        log.sync(&mut disk).unwrap();
        assert!(segments(&mut disk).len() > 2);
        disk.crash();
        assert_eq!(read(&mut disk).0, (1..=10).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn numbers_without_records_leave_a_gap_that_shows_also_at_the_end() {
    let mut disk = log_of(3, SEGMENT_BYTES_MAX);
    let (mut log, _) = open(&mut disk);
    let kept = log.agree(&mut disk, &[account(3, 3, 3)]).unwrap().kept;
    assert_eq!((kept[0].records, kept[0].last), (3, 3));
    assert_eq!(log.index.missing(), 0);
    log.agree(&mut disk, &[account(5, 3, 3)]).unwrap();
    log.sync(&mut disk).unwrap();
    let (mut log, _) = open(&mut disk);
    assert_eq!(log.index.missing(), 2);
    let before = segment(&mut disk, 1);
    log.agree(&mut disk, &[account(5, 3, 3)]).unwrap();
    assert_eq!(segment(&mut disk, 1), before, "it is known");
    append(&mut disk, 4..=5);
    assert_eq!(open(&mut disk).0.index.missing(), 0, "they came after all");
}

#[test]
fn a_log_that_went_back_in_time_says_what_is_gone() {
    let mut disk = log_of(3, SEGMENT_BYTES_MAX);
    let (mut log, _) = open(&mut disk);
    assert_eq!(log.agree(&mut disk, &[account(7, 7, 7)]).unwrap().gone, 4);
    assert_eq!(log.agree(&mut disk, &[account(7, 7, 3)]).unwrap().gone, 0);
}

#[test]
fn a_record_out_of_its_bounds_leaves_the_log_as_it_was() {
    let mut disk = log_of(2, SEGMENT_BYTES_MAX);
    let (mut log, _) = open(&mut disk);
    let mut verbose = record(4, 4, Cause::Tty);
    verbose.reason = "x".repeat(201);
    assert!(log.append(&mut disk, &[record(3, 3, Cause::Tty), verbose]).is_err());
    assert_eq!(log.append(&mut disk, &[record(3, 3, Cause::Tty)]).unwrap().new, 1);
}

#[test]
fn a_life_of_gaps_only_is_refused_before_it_fills_the_memory() {
    let mut disk = SimulatedDisk::new(1);
    let (mut log, _) = open(&mut disk);
    let gaps: Vec<_> = (1..=GAPS_MAX as u64 + 1).map(|n| record(2 * n, n, Cause::Tty)).collect();
    assert!(matches!(log.append(&mut disk, &gaps), Err(AppendError::TooManyGaps)));
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
        let mut disk = SimulatedDisk::new(bytes_max);
        let again = |disk: &mut SimulatedDisk| open(disk).0.with_segment_bytes_max(bytes_max);
        let (mut log, mut expected) = (again(&mut disk), std::collections::BTreeSet::new());
        for (first, count, restart) in batches {
            let records: Vec<_> =
                (first..first + count).map(|n| record(n, n, Cause::Idle)).collect();
            let before = expected.len();
            expected.extend(first..first + count);
            let appended = log.append(&mut disk, &records).unwrap();
            prop_assert_eq!(appended.new, (expected.len() - before) as u64);
            log.sync(&mut disk).unwrap();
            if restart {
                disk.crash();
                log = again(&mut disk);
            }
        }
        let (mut sequences, damage) = read(&mut disk);
        sequences.sort_unstable();
        prop_assert_eq!(sequences, expected.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(damage, vec![]);
    }
}
