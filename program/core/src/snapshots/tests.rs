use super::*;

const EVERY: Duration = Duration::from_secs(100);

fn at(s: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(s)
}

fn three() -> Snapshots {
    Snapshots::new(at(0), EVERY, (0..3).map(Rank))
}

fn kept(rank: u32, snapshot: u32) -> Event {
    Event::Kept { rank: Rank(rank), snapshot: Snapshot(snapshot) }
}

/// Brings a snapshot to its end.
fn whole(snapshots: &mut Snapshots, s: u64) -> Vec<Effect> {
    let begun = snapshots.wake(at(s));
    assert_eq!(begun, [Effect::Cut(snapshots.newest())]);
    let number = snapshots.newest().0;
    let mut effects = vec![];
    for rank in snapshots.ranks.clone() {
        effects.extend(snapshots.handle(at(s), kept(rank.0, number)));
    }
    effects
}

#[test]
fn a_snapshot_counts_when_the_parts_of_all_are_kept() {
    let mut snapshots = three();
    assert_eq!(snapshots.wake(at(99)), []);
    assert_eq!(snapshots.wake(at(100)), [Effect::Cut(Snapshot(1))]);
    assert_eq!(snapshots.handle(at(101), kept(0, 1)), []);
    assert_eq!(snapshots.handle(at(101), kept(0, 1)), [], "said twice");
    assert_eq!(snapshots.handle(at(101), kept(2, 1)), []);
    assert_eq!(snapshots.handle(at(102), kept(1, 1)), [Effect::Whole(Snapshot(1))]);
    assert_eq!(snapshots.deadline(), Some(at(202)));
}

#[test]
fn the_last_whole_snapshot_is_kept_until_the_next() {
    let mut snapshots = three();
    assert_eq!(whole(&mut snapshots, 100), [Effect::Whole(Snapshot(1))]);
    let next = whole(&mut snapshots, 200);
    assert_eq!(next, [Effect::Whole(Snapshot(2)), Effect::Forget(Snapshot(1))]);
    assert_eq!(snapshots.wake(at(300)), [Effect::Cut(Snapshot(3))]);
    let lost = snapshots.handle(at(301), Event::Lost(Rank(1)));
    assert_eq!(lost, [Effect::Forget(Snapshot(3)), Effect::GoBack(Some(Snapshot(2)))]);
    assert_eq!(snapshots.handle(at(301), Event::Lost(Rank(2))), [], "all go back already");
    assert_eq!(snapshots.deadline(), None);
    assert_eq!(snapshots.handle(at(310), Event::WentBack), []);
    assert_eq!(snapshots.deadline(), Some(at(410)));
}

#[test]
fn without_a_snapshot_all_begin_from_the_start() {
    let mut snapshots = three();
    assert_eq!(snapshots.handle(at(1), Event::Began(Rank(7))), []);
    assert_eq!(snapshots.handle(at(5), Event::Lost(Rank(1))), [Effect::GoBack(None)]);
    assert_eq!(snapshots.ranks.len(), 3, "rank 7 has not begun yet");
}

#[test]
fn one_rank_without_a_part_makes_it_come_to_nothing() {
    let mut snapshots = three();
    let _ = snapshots.wake(at(100));
    let without = Event::NotKept { rank: Rank(1), snapshot: Snapshot(1) };
    assert_eq!(snapshots.handle(at(101), without), [Effect::Forget(Snapshot(1))]);
    assert_eq!(snapshots.handle(at(102), kept(0, 1)), []);
    assert_eq!(snapshots.deadline(), Some(at(201)));
}

#[test]
fn one_that_takes_too_long_comes_to_nothing() {
    let mut snapshots = three();
    let _ = snapshots.wake(at(100));
    assert_eq!(snapshots.wake(at(159)), []);
    assert_eq!(snapshots.wake(at(160)), [Effect::Forget(Snapshot(1))]);
}

#[test]
fn who_begins_while_one_is_under_way_is_in_the_next() {
    let mut snapshots = three();
    let _ = snapshots.wake(at(100));
    assert_eq!(snapshots.handle(at(101), Event::Began(Rank(3))), [Effect::Forget(Snapshot(1))]);
    assert_eq!(whole(&mut snapshots, 201), [Effect::Whole(Snapshot(2))]);
    assert_eq!(snapshots.ranks.len(), 4);
}

/// What the others have had of it since their cuts is in nobody's part.
#[test]
fn who_has_ended_while_one_is_under_way_brings_it_to_nothing() {
    let mut snapshots = three();
    let _ = snapshots.wake(at(100));
    let _ = snapshots.handle(at(101), kept(0, 1));
    let _ = snapshots.handle(at(101), kept(2, 1));
    let ended = snapshots.handle(at(102), Event::Drained(Rank(1)));
    assert_eq!(ended, [Effect::Forget(Snapshot(1))]);
    assert_eq!(snapshots.handle(at(102), kept(1, 1)), [], "told too late");
}

#[test]
fn who_has_ended_is_not_waited_for() {
    let mut snapshots = three();
    let _ = snapshots.handle(at(50), Event::Drained(Rank(1)));
    let _ = snapshots.wake(at(100));
    let _ = snapshots.handle(at(101), kept(0, 1));
    assert_eq!(snapshots.handle(at(101), kept(2, 1)), [Effect::Whole(Snapshot(1))]);
    let lost = snapshots.handle(at(103), Event::Lost(Rank(0)));
    assert_eq!(lost, [Effect::GoBack(Some(Snapshot(1)))]);
    assert_eq!(snapshots.ranks, [Rank(0), Rank(2)].into());
    for rank in [0, 2] {
        let _ = snapshots.handle(at(104), Event::Drained(Rank(rank)));
    }
    let _ = snapshots.handle(at(104), Event::WentBack);
    assert_eq!(snapshots.deadline(), None, "nobody is left");
}
