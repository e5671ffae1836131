use gleaner_common::disk::simulated::SimulatedDisk;
use gleaner_common::usage::{Cause, LoadAverages};
use gleaner_common::wire::{RECORDS_MAX, UsageFrame, UsageReply};

use super::*;

const BOOT: BootId = BootId([1; 16]);

fn life(number: u8) -> SpoolLife {
    SpoolLife([number; 16])
}

fn recorded(reason: &str) -> Recorded {
    let transition = Transition {
        cause: Cause::Tty,
        load: LoadAverages::default(),
        users: 1,
        input_idle: None,
        slots: 0,
        reason: reason.to_owned(),
        by_load: false,
    };
    Recorded { transition, wall: WallTime(0), since_boot: Duration::from_secs(1) }
}

fn open(disk: &mut SimulatedDisk, number: u8) -> Spool {
    let (spool, notes) = Spool::open(disk, life(number), BOOT).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    spool
}

fn append(disk: &mut SimulatedDisk, spool: &mut Spool, count: u64) {
    for n in 0..count {
        let note = spool.append(disk, &recorded(&n.to_string()));
        assert!(note.is_none(), "{note:?}");
    }
}

/// A spool of life 1 with so many records, all on the disk.
fn spool_of(count: u64) -> (SimulatedDisk, Spool) {
    let mut disk = SimulatedDisk::new(1);
    let mut spool = open(&mut disk, 1);
    append(&mut disk, &mut spool, count);
    (disk, spool)
}

fn waiting(spool: &Spool) -> Vec<(u8, u64)> {
    let waiting = spool.held.iter().filter(|held| !held.confirmed);
    waiting.map(|held| (held.record.life.0[0], held.record.sequence)).collect()
}

/// What a collector has, that keeps whatever it is sent.
#[derive(Default)]
struct Collector(BTreeMap<SpoolLife, Vec<u64>>);

impl Collector {
    fn kept(&self, life: SpoolLife) -> LifeKept {
        let numbers = self.0.get(&life).cloned().unwrap_or_default();
        let last = numbers.iter().max().copied().unwrap_or(0);
        let ranges = numbers.iter().map(|n| (*n, *n)).collect();
        LifeKept { life, records: numbers.len() as u64, last, ranges }
    }

    fn answer(&mut self, frame: UsageFrame) -> UsageReply {
        match frame {
            UsageFrame::Lives(lives) => {
                UsageReply::Kept(lives.iter().map(|asked| self.kept(asked.life)).collect())
            }
            UsageFrame::Records(records) => {
                let last = records.last().map(|record| (record.life, record.sequence)).unwrap();
                for record in records {
                    let numbers = self.0.entry(record.life).or_default();
                    if !numbers.contains(&record.sequence) {
                        numbers.push(record.sequence);
                    }
                }
                UsageReply::Confirmed { life: last.0, sequence: last.1 }
            }
        }
    }

    /// A stream, until nothing is left to be sent.
    fn hears_all(&mut self, disk: &mut SimulatedDisk, spool: &mut Spool) -> Vec<Note> {
        let (mut exchange, mut notes) = (Exchange::default(), vec![]);
        let mut frames = 0;
        while let Some(frame) = exchange.next_frame(spool) {
            frames += 1;
            assert!(frames < 1_000, "the same goes round for ever");
            let reply = self.answer(frame);
            notes.extend(exchange.hear(disk, spool, reply, life(99)).unwrap());
        }
        notes
    }
}

#[test]
fn what_waits_survives_a_restart_under_its_own_life() {
    let (mut disk, _) = spool_of(3);
    disk.crash();
    let mut spool = open(&mut disk, 2);
    append(&mut disk, &mut spool, 1);
    assert_eq!(waiting(&spool), [(1, 1), (1, 2), (1, 3), (2, 1)]);
    let mut collector = Collector::default();
    assert!(collector.hears_all(&mut disk, &mut spool).is_empty());
    assert!(spool.is_empty());
    assert_eq!(collector.0[&life(1)], [1, 2, 3]);
    assert_eq!(collector.0[&life(2)], [1]);
}

/// Fifty transitions on a full disk, and the worker killed: five of them were lost, and
/// nobody was told.
#[test]
fn on_a_full_disk_nothing_unsaved_is_sent_and_what_dies_with_the_worker_is_told() {
    let (mut disk, mut spool) = spool_of(1);
    let mut collector = Collector::default();
    collector.hears_all(&mut disk, &mut spool);
    // Not even what was set aside is left.
    let length = spool.length;
    disk.cut(FILE, length).unwrap();
    disk.set_free(Some(0));
    let notes: Vec<_> = (0..50).filter_map(|_| spool.append(&mut disk, &recorded("x"))).collect();
    assert!(matches!(notes[..], [Note::Unsaved { .. }]), "said once: {notes:?}");
    let account = *spool.lives().last().unwrap();
    assert_eq!((account.given, account.saved), (51, 1), "the numbers are told");
    collector.hears_all(&mut disk, &mut spool);
    assert_eq!(collector.0[&life(1)], [1], "the records are not");
    disk.set_free(None);
    let mut next = open(&mut disk, 2);
    append(&mut disk, &mut next, 5);
    collector.hears_all(&mut disk, &mut next);
    assert_eq!(collector.0[&life(2)], [1, 2, 3, 4, 5], "none is taken for an old one");
}

#[test]
fn a_disk_that_has_room_again_loses_nothing() {
    let (mut disk, mut spool) = spool_of(1);
    let length = spool.length;
    disk.cut(FILE, length).unwrap();
    disk.set_free(Some(10));
    for _ in 0..50 {
        let _ = spool.append(&mut disk, &recorded("x"));
    }
    assert!(spool.has_unsaved());
    disk.set_free(None);
    assert!(matches!(spool.save(&mut disk), Some(Note::SavedAgain)));
    let mut collector = Collector::default();
    collector.hears_all(&mut disk, &mut spool);
    assert_eq!(collector.0[&life(1)], (1..=51).collect::<Vec<_>>());
    disk.crash();
    assert!(Spool::open(&mut disk, life(2), BOOT).unwrap().1.is_empty());
}

#[test]
fn room_that_was_set_aside_outlasts_a_disk_that_fills_up() {
    let (mut disk, mut spool) = spool_of(1);
    disk.set_free(Some(0));
    append(&mut disk, &mut spool, 50);
    disk.crash();
    let (spool, _) = Spool::open(&mut disk, life(2), BOOT).unwrap();
    assert_eq!(waiting(&spool), (1..=51).map(|n| (1, n)).collect::<Vec<_>>());
}

/// It had hidden all behind it: the numbers began again, and new records were dropped.
#[test]
fn a_flipped_bit_in_what_is_confirmed_harms_nothing_new() {
    let (mut disk, mut spool) = spool_of(5);
    let mut collector = Collector::default();
    collector.hears_all(&mut disk, &mut spool);
    let whole = disk.read(FILE).unwrap().unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut disk = SimulatedDisk::new(2);
        disk.replace(FILE, &bytes).unwrap();
        let (mut spool, notes) = Spool::open(&mut disk, life(2), BOOT).unwrap();
        assert!(matches!(notes[..], [Note::Damaged { .. }]), "bit {bit}: {notes:?}");
        append(&mut disk, &mut spool, 2);
        let mut collector = Collector(collector.0.clone());
        collector.hears_all(&mut disk, &mut spool);
        assert_eq!(collector.0[&life(1)], [1, 2, 3, 4, 5], "bit {bit}");
        assert_eq!(collector.0[&life(2)], [1, 2], "bit {bit}");
    }
}

#[test]
fn a_flipped_bit_in_what_waits_costs_one_record_and_leaves_its_gap() {
    let (mut disk, _) = spool_of(5);
    let whole = disk.read(FILE).unwrap().unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut disk = SimulatedDisk::new(2);
        disk.replace(FILE, &bytes).unwrap();
        let (mut spool, notes) = Spool::open(&mut disk, life(2), BOOT).unwrap();
        assert!(matches!(notes[..], [Note::Damaged { .. }]), "bit {bit}: {notes:?}");
        assert_eq!(waiting(&spool).len(), 4, "bit {bit}");
        let given = spool.lives()[0].given;
        assert_eq!(given, 5, "bit {bit}: also the last one's number is known");
        let mut collector = Collector::default();
        collector.hears_all(&mut disk, &mut spool);
        assert_eq!(collector.0[&life(1)].len(), 4);
        disk.crash();
        let again = open(&mut disk, 3);
        assert_eq!(again.lives()[0].given, 5, "bit {bit}: also later");
    }
}

/// The life before it was said to miss a record, too.
#[test]
fn a_flipped_bit_in_a_lifes_first_record_costs_no_other_life_a_number() {
    let (mut disk, _) = spool_of(2);
    let mut spool = open(&mut disk, 2);
    let (start, mut ends) = (spool.length, vec![]);
    for _ in 0..2 {
        append(&mut disk, &mut spool, 1);
        ends.push(spool.length);
    }
    let whole = disk.read(FILE).unwrap().unwrap();
    let given_with = |byte: u64| {
        let mut bytes = whole.clone();
        bytes[usize::try_from(byte).unwrap()] ^= 0x10;
        let mut disk = SimulatedDisk::new(2);
        disk.replace(FILE, &bytes).unwrap();
        let (spool, notes) = Spool::open(&mut disk, life(3), BOOT).unwrap();
        assert!(matches!(notes[..], [Note::Damaged { .. }]), "byte {byte}: {notes:?}");
        spool.lives().iter().map(|life| life.given).collect::<Vec<_>>()
    };
    for byte in start..ends[0] {
        assert_eq!(
            given_with(byte),
            [2, 2, 0],
            "byte {byte}: the second life's gap shows by itself"
        );
    }
    assert_eq!(given_with(start - 1), [2, 2, 0], "the last number of the first life is known");
}

#[test]
fn a_cut_anywhere_leaves_what_was_whole() {
    let (mut disk, _) = spool_of(3);
    let whole = disk.read(FILE).unwrap().unwrap();
    let second = spool_of(2).1.length;
    let second = usize::try_from(second).unwrap();
    for cut in second + 1..whole.len() {
        disk.replace(FILE, &whole[..cut]).unwrap();
        let (spool, notes) = Spool::open(&mut disk, life(2), BOOT).unwrap();
        assert_eq!((waiting(&spool).len(), notes.len()), (2, 1));
        assert_eq!(spool.lives()[0].given, 3, "a number was given out, and is lost");
    }
}

#[test]
fn an_older_copy_of_the_disk_sends_nothing_twice_and_hides_nothing_new() {
    let (mut disk, mut spool) = spool_of(3);
    let copy = disk.copy();
    append(&mut disk, &mut spool, 3);
    let mut collector = Collector::default();
    collector.hears_all(&mut disk, &mut spool);
    disk.restore(&copy);
    let mut spool = open(&mut disk, 2);
    append(&mut disk, &mut spool, 6);
    assert!(collector.hears_all(&mut disk, &mut spool).is_empty());
    assert_eq!(collector.0[&life(1)], [1, 2, 3, 4, 5, 6]);
    assert_eq!(collector.0[&life(2)], [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_collector_that_went_back_in_time_is_sent_what_is_still_here() {
    let (mut disk, mut spool) = spool_of(10);
    let mut collector = Collector::default();
    collector.hears_all(&mut disk, &mut spool);
    collector.0.get_mut(&life(1)).unwrap().truncate(4);
    let notes = collector.hears_all(&mut disk, &mut spool);
    assert!(matches!(notes[..], [Note::SentAgain { records: 6 }]), "{notes:?}");
    assert_eq!(collector.0[&life(1)], (1..=10).collect::<Vec<_>>());
}

/// An agent that was started anew more often than a frame takes lives.
#[test]
fn a_collector_that_went_back_in_time_is_asked_for_all_lives_however_many() {
    let (mut disk, mut collector) = (SimulatedDisk::new(1), Collector::default());
    let lives = u8::try_from(LIVES_MAX + LIVES_MAX / 2).unwrap();
    for number in 1..=lives {
        let mut spool = open(&mut disk, number);
        append(&mut disk, &mut spool, 1);
        collector.hears_all(&mut disk, &mut spool);
    }
    let mut spool = open(&mut disk, lives + 1);
    collector.hears_all(&mut disk, &mut spool);
    assert!(spool.is_empty());
    let mut went_back = Collector::default();
    went_back.hears_all(&mut disk, &mut spool);
    assert_eq!(went_back.0.len(), lives.into());
}

#[test]
fn what_a_collector_lost_and_nobody_has_is_told_once() {
    let mut disk = SimulatedDisk::new(1);
    let mut spool = open(&mut disk, 1);
    let mut collector = Collector::default();
    let long = recorded(&"x".repeat(REASON_BYTES_MAX));
    for _ in 0..2_000 {
        assert!(spool.append(&mut disk, &long).is_none());
        collector.hears_all(&mut disk, &mut spool);
    }
    assert!(spool.length < 3 * Bounds::default().compact_bytes, "{}", spool.length);
    let here = spool.held.len() as u64;
    assert!((Bounds::default().confirmed_kept as u64..2_000).contains(&here));
    disk.crash();
    let mut spool = open(&mut disk, 2);
    collector.hears_all(&mut disk, &mut spool);
    collector.0.clear();
    let notes = collector.hears_all(&mut disk, &mut spool);
    let [Note::Gone { records, .. }, Note::SentAgain { .. }] = notes[..] else {
        panic!("{notes:?}")
    };
    let kept = collector.0[&life(1)].len() as u64;
    assert_eq!(records + kept, 2_000);
    assert!(collector.hears_all(&mut disk, &mut spool).is_empty());
}

#[test]
fn a_twin_of_the_running_worker_makes_a_new_life_begin() {
    let (mut disk, mut spool) = spool_of(2);
    let mut collector = Collector::default();
    collector.hears_all(&mut disk, &mut spool);
    // Another that has our memory went on.
    collector.0.get_mut(&life(1)).unwrap().extend([3, 4, 5]);
    append(&mut disk, &mut spool, 2);
    let notes = collector.hears_all(&mut disk, &mut spool);
    assert!(matches!(notes[..], [Note::Forked { had: 5, sent: 2 }]), "{notes:?}");
    assert_eq!(collector.0[&life(99)], [1, 2]);
    append(&mut disk, &mut spool, 1);
    disk.crash();
    let mut spool = open(&mut disk, 2);
    collector.hears_all(&mut disk, &mut spool);
    assert_eq!(collector.0[&life(99)], [1, 2, 3]);
    assert_eq!(collector.0[&life(1)], [1, 2, 3, 4, 5]);
}

/// On the disk they have numbers that another gave out, and would be taken for those.
#[test]
fn what_was_given_new_numbers_is_sent_when_the_disk_has_them() {
    let (mut disk, mut spool) = spool_of(2);
    let mut collector = Collector::default();
    collector.hears_all(&mut disk, &mut spool);
    collector.0.get_mut(&life(1)).unwrap().extend([3, 4, 5]);
    append(&mut disk, &mut spool, 2);
    disk.set_syncs_fail(true);
    let notes = collector.hears_all(&mut disk, &mut spool);
    assert!(notes.iter().any(|it| matches!(it, Note::Forked { had: 5, sent: 2 })), "{notes:?}");
    assert!(spool.has_unsaved() && !collector.0.contains_key(&life(99)));
    disk.set_syncs_fail(false);
    let _ = spool.save(&mut disk);
    collector.hears_all(&mut disk, &mut spool);
    assert_eq!(collector.0[&life(99)], [1, 2]);
}

#[test]
fn what_a_collector_says_beside_the_question_harms_nothing() {
    let (mut disk, mut spool) = spool_of(3);
    let mut exchange = Exchange::default();
    let mut hear = |exchange: &mut Exchange, spool: &mut Spool, reply| {
        exchange.hear(&mut disk, spool, reply, life(50)).unwrap()
    };
    let ahead = UsageReply::Confirmed { life: life(1), sequence: 1_000 };
    assert!(matches!(hear(&mut exchange, &mut spool, ahead.clone())[..], [Note::Nonsense { .. }]));
    exchange.next_frame(&mut spool).unwrap();
    let stranger = LifeKept { life: life(7), records: 9, last: 9, ranges: vec![(1, 9)] };
    assert!(hear(&mut exchange, &mut spool, UsageReply::Kept(vec![stranger])).is_empty());
    let Some(UsageFrame::Records(records)) = exchange.next_frame(&mut spool) else { panic!() };
    assert_eq!(records.len(), 3);
    assert!(matches!(hear(&mut exchange, &mut spool, ahead)[..], [Note::Nonsense { .. }]));
    assert_eq!(waiting(&spool).len(), 3);
    let all = LifeKept { life: life(1), records: u64::MAX, last: u64::MAX, ranges: vec![(9, 3)] };
    let mut exchange = Exchange::default();
    exchange.next_frame(&mut spool).unwrap();
    let _ = hear(&mut exchange, &mut spool, UsageReply::Kept(vec![all]));
    assert_eq!(waiting(&spool).len(), 3);
}

#[test]
fn when_too_many_wait_the_newest_leave_numbers_that_outlast_a_crash() {
    let mut disk = SimulatedDisk::new(1);
    let mut spool = open(&mut disk, 1);
    append(&mut disk, &mut spool, RECORDS_WAITING_MAX as u64);
    let notes: Vec<_> = (0..20).filter_map(|_| spool.append(&mut disk, &recorded("x"))).collect();
    assert_eq!(notes.len(), 2, "the first and the tenth: {notes:?}");
    disk.crash();
    let (spool, _) = Spool::open(&mut disk, life(2), BOOT).unwrap();
    let account = spool.lives()[0];
    let max = RECORDS_WAITING_MAX as u64;
    assert_eq!((account.given, account.saved), (max + 20, max));
}

/// The gap would show at a restart only.
#[test]
fn a_full_spool_tells_of_its_gap_on_the_stream_that_is_open() {
    let mut disk = SimulatedDisk::new(1);
    let mut spool = open(&mut disk, 1);
    append(&mut disk, &mut spool, RECORDS_WAITING_MAX as u64);
    let mut exchange = Exchange::default();
    assert!(matches!(exchange.next_frame(&mut spool), Some(UsageFrame::Lives(_))));
    let kept = UsageReply::Kept(vec![LifeKept { life: life(1), ..LifeKept::default() }]);
    assert!(exchange.hear(&mut disk, &mut spool, kept, life(99)).unwrap().is_empty());
    let _ = spool.append(&mut disk, &recorded("one too many"));
    let Some(UsageFrame::Lives(told)) = exchange.next_frame(&mut spool) else { panic!() };
    assert_eq!(told[0].given, RECORDS_WAITING_MAX as u64 + 1);
}

#[test]
fn a_batch_is_of_one_life_and_no_longer_than_a_frame() {
    let (mut disk, _) = spool_of(RECORDS_MAX as u64 + 1);
    let mut spool = open(&mut disk, 2);
    append(&mut disk, &mut spool, 1);
    assert_eq!(spool.batch(RECORDS_MAX).len(), RECORDS_MAX);
    assert_eq!(spool.batch(usize::MAX).len(), RECORDS_MAX + 1);
}

#[test]
fn what_an_older_agent_left_is_sent_under_its_boot() {
    let numbered = (BOOT, 4_u64, WallTime(0), Duration::from_secs(1), Cause::Tty);
    let rest = (LoadAverages::default(), 1_u32, None::<Duration>, 0_u16, "x");
    let mut file = vec![];
    for payload in [
        postcard::to_stdvec(&(1_u8, BOOT, 3_u64)).unwrap(),
        postcard::to_stdvec(&(0_u8, numbered, rest)).unwrap(),
    ] {
        file.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        file.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
        file.extend_from_slice(&payload);
    }
    let mut disk = SimulatedDisk::new(1);
    disk.replace(FILE, &file).unwrap();
    let spool = open(&mut disk, 2);
    assert_eq!(spool.held[0].record.life, SpoolLife::from(BOOT));
    assert_eq!(waiting(&spool), [(1, 4)]);
    let spool = open(&mut disk, 3);
    assert_eq!(waiting(&spool), [(1, 4)]);
}

#[test]
fn the_format_is_this() {
    let (mut disk, mut spool) = spool_of(1);
    spool.compact(&mut disk).unwrap();
    let bytes = disk.read(FILE).unwrap().unwrap();
    let hex = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    assert_eq!(
        hex,
        "27000000b174a5410101010101010101010101010101010101010101010101010101010101010101010101000001003700000038f4fc2800010101010101010101010101010101010101010101010101010101010101010101000100010000000000000000000000000100000130"
    );
}
