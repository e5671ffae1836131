use super::*;
use crate::{Lab, Owner, Scratch};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn owner(since: u64, idle: bool, changes: &[u64]) -> Owner {
    Owner { idle, since: s(since), changes: changes.iter().map(|at| s(*at)).collect() }
}

fn model(number: u8, workers: u32, cost: u64) -> BagModel {
    BagModel::of_table1(number, workers, s(cost)).unwrap()
}

fn execute(bag: &Bag, owners: &[Owner], model: &BagModel) -> BagExecution {
    run_bag(bag, &Lab::of_owners(owners, s(100_000)), model, &mut Scratch::default())
}

fn subtasks(count: u64, each: u64) -> Bag {
    Bag::divided("even", s(count * each), s(each)).unwrap()
}

#[test]
fn workers_share_the_bag_evenly_where_nobody_comes() {
    let owners = vec![owner(1, true, &[]); 4];
    for number in 1..=4 {
        let even = execute(&subtasks(12, 10), &owners, &model(number, 4, 5));
        assert_eq!(
            (even.shared.execution, even.done, even.shared.wasted),
            (s(30), 12, s(0)),
            "model {number}"
        );
        assert_eq!((even.workers_most, even.shared.nodes_used), (4, 4));
    }
}

#[test]
fn a_bag_begins_on_all_that_is_idle_if_it_is_told_to() {
    let owners = vec![owner(1, true, &[]); 4];
    let all = BagModel { workers: Workers::All, ..model(2, 1, 5) };
    let spread = execute(&subtasks(12, 10), &owners, &all);
    assert_eq!((spread.shared.execution, spread.workers_most), (s(30), 4));
    let one = execute(&subtasks(12, 10), &owners, &model(2, 1, 5));
    assert_eq!((one.shared.execution, one.workers_most), (s(120), 1), "nothing turns idle");
    // What turns idle later is taken then, and where nothing is idle one waits.
    let later = vec![owner(1, false, &[50]); 2];
    let waited = execute(&subtasks(12, 10), &later, &BagModel { start: s(0), ..all });
    assert_eq!((waited.shared.execution, waited.workers_most), (s(50 + 60), 2));
    for number in 1..=4 {
        let all = BagModel { workers: Workers::All, ..model(number, 1, 5) };
        assert_eq!(execute(&subtasks(3, 10), &owners, &all).done, 3, "model {number}");
    }
}

#[test]
fn an_abandoned_subtask_is_done_again_elsewhere() {
    // One worker, interrupted 5 s into its third subtask.
    let owners = [owner(1, true, &[25]), owner(2, true, &[])];
    let moved = execute(&subtasks(4, 10), &owners, &model(1, 1, 3));
    assert_eq!(
        (moved.shared.execution, moved.shared.wasted, moved.abandoned),
        (s(25 + 3 + 20), s(5), 1)
    );
    assert_eq!(
        (moved.shared.busy_transitions, moved.shared.moves, moved.shared.useful),
        (1, 1, s(40))
    );
    let kept = BagModel { on_busy: OnBusy::at_once(Reaction::Migrate), ..model(1, 1, 3) };
    let kept = execute(&subtasks(4, 10), &owners, &kept);
    assert_eq!((kept.shared.execution, kept.shared.wasted, kept.abandoned), (s(43), s(0), 0));
}

#[test]
fn somebody_else_does_what_was_returned() {
    // The other worker has nothing left when the first loses its workstation.
    let owners = [owner(1, true, &[15]), owner(2, true, &[])];
    let returned = execute(&subtasks(3, 10), &owners, &model(1, 2, 3));
    assert_eq!(
        (returned.shared.execution, returned.shared.waits, returned.abandoned),
        (s(25), 1, 1)
    );
}

#[test]
fn only_a_model_that_grows_uses_what_turns_idle() {
    let owners = [owner(1, true, &[]), owner(2, false, &[20])];
    assert_eq!(execute(&subtasks(6, 10), &owners, &model(1, 1, 5)).shared.execution, s(60));
    let grown = execute(&subtasks(6, 10), &owners, &model(2, 1, 5));
    // The second begins at 25 and does two of the last four.
    assert_eq!((grown.shared.execution, grown.workers_most), (s(45), 2));
}

#[test]
fn only_a_model_that_spawns_begins_workers_for_what_is_spawned() {
    let root = Subtask { work: s(10), parent: None };
    let child = Subtask { work: s(10), parent: Some(0) };
    let bag = Bag::new("tree", &[root, child, child, child]).unwrap();
    let owners = vec![owner(1, true, &[]); 8];
    assert_eq!(execute(&bag, &owners, &model(1, 1, 0)).shared.execution, s(40));
    let spawned = execute(&bag, &owners, &model(3, 1, 0));
    assert_eq!((spawned.shared.execution, spawned.workers_most), (s(20), 3));
}

#[test]
fn a_frozen_worker_goes_on_or_loses_patience() {
    let owners = [owner(1, true, &[5, 12]), owner(2, true, &[])];
    let patience = |patience| {
        let on_busy = OnBusy::suspend(patience, Reaction::Retreat);
        execute(&subtasks(1, 10), &owners, &BagModel { on_busy, ..model(1, 1, 3) })
    };
    assert_eq!(
        (patience(None).shared.execution, patience(None).shared.shared_frozen),
        (s(17), s(7))
    );
    let lost = patience(Some(s(2)));
    assert_eq!((lost.shared.execution, lost.shared.wasted), (s(5 + 2 + 3 + 10), s(5)));
}

#[test]
fn a_demoted_worker_does_its_share() {
    let on_busy = OnBusy::at_once(Reaction::Renice);
    let model = BagModel { on_busy, renice_share: 0.25, ..model(1, 1, 3) };
    let demoted = execute(&subtasks(1, 10), &[owner(1, true, &[5, 9])], &model);
    assert_eq!((demoted.shared.execution, demoted.shared.shared_computing), (s(13), s(4)));
}

#[test]
fn a_second_copy_ends_what_an_owner_holds_up() {
    // One of two workers stands still under its owner for good.
    let owners = [owner(1, true, &[]), owner(2, true, &[5])];
    let suspended =
        BagModel { on_busy: OnBusy::suspend(None, Reaction::Retreat), ..model(1, 2, 3) };
    assert!(!execute(&subtasks(2, 10), &owners, &suspended).shared.finished);
    let copied = execute(&subtasks(2, 10), &owners, &BagModel { copies: true, ..suspended });
    assert_eq!((copied.shared.execution, copied.done, copied.copies), (s(20), 2, 1));
    assert_eq!(copied.shared.wasted, s(5));
}

#[test]
fn of_two_copies_the_first_that_is_done_counts() {
    let owners = vec![owner(1, true, &[]); 2];
    let bag = Bag::new("uneven", &[5, 20].map(|work| Subtask { work: s(work), parent: None }));
    let copied = BagModel { copies: true, ..model(1, 2, 0) };
    let outcome = execute(&bag.unwrap(), &owners, &copied);
    assert_eq!((outcome.shared.execution, outcome.done, outcome.copies), (s(20), 2, 1));
    assert_eq!((outcome.shared.useful, outcome.shared.wasted), (s(25), s(15)));
}

#[test]
fn what_is_no_bag_is_refused() {
    let named = |parent| Subtask { work: s(1), parent: Some(parent) };
    assert_eq!(Bag::new("none", &[]), Err(BagError::Empty));
    assert_eq!(Bag::new("self", &[named(0)]), Err(BagError::BadParent { subtask: 0, parent: 0 }));
    assert_eq!(Bag::divided("nothing", s(9), s(0)), Err(BagError::Empty));
    assert_eq!(Bag::divided("ages", Duration::MAX, s(300)), Err(BagError::TooLong));
    assert_eq!(Bag::divided("fine", s(4_000_001), s(1)), Err(BagError::TooLarge));
    let endless = Subtask { work: Duration::MAX, parent: None };
    assert_eq!(Bag::new("endless", &[endless]), Err(BagError::TooLong));
}

/// Owners and bags from a seed; every model; what must hold of each.
#[test]
fn every_subtask_is_done_once_and_no_work_is_lost_nor_gained() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    let mut scratch = Scratch::default();
    let mut finished = 0;
    for seed in 0..3_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let parent = |index: u32, rng: &mut StdRng| {
            (index > 0 && rng.random_bool(0.4)).then(|| rng.random_range(0..index))
        };
        let count = rng.random_range(1..40);
        let subtasks: Vec<Subtask> = (0..count)
            .map(|index| {
                let parent = parent(index, &mut rng);
                Subtask { work: s(rng.random_range(0..30)), parent }
            })
            .collect();
        let owners: Vec<Owner> = (0..rng.random_range(1..8))
            .map(|_| {
                let mut at = 0;
                let changes = (0..60).map(|_| {
                    at += rng.random_range(1..60);
                    s(at)
                });
                let changes = changes.collect();
                Owner { idle: rng.random_bool(0.7), since: s(rng.random_range(0..9)), changes }
            })
            .collect();
        let reactions = [
            OnBusy::at_once(Reaction::Retreat),
            OnBusy::at_once(Reaction::Rollback),
            OnBusy::at_once(Reaction::Migrate),
            OnBusy::at_once(Reaction::Renice),
            OnBusy::suspend(None, Reaction::Retreat),
            OnBusy::suspend(Some(s(9)), Reaction::Retreat),
        ];
        let on_busy = reactions[rng.random_range(0..reactions.len())];
        let number = rng.random_range(1..=4);
        let workers = rng.random_range(1..10);
        let model = model(number, workers, rng.random_range(0..20));
        let model = BagModel { on_busy, copies: rng.random_bool(0.3), ..model };
        let bag = Bag::new("random", &subtasks).unwrap();
        let lab = Lab::of_owners(&owners, s(rng.random_range(200..3_000)));
        let outcome = run_bag(&bag, &lab, &model, &mut scratch);
        let context = format!("seed {seed}: {outcome:?} of {bag:?}, {model:?}");
        assert!(outcome.done <= count && outcome.shared.useful <= bag.work(), "{context}");
        if outcome.shared.finished {
            finished += 1;
            assert_eq!((outcome.done, outcome.shared.useful), (count, bag.work()), "{context}");
        }
        if !model.grows && !model.spawns {
            assert_eq!(outcome.workers, workers, "{context}");
        }
        let time_of_all = outcome.shared.idle_time + outcome.shared.shared_computing;
        let spent = outcome.shared.useful + outcome.shared.wasted;
        assert!(spent <= time_of_all, "{context}");
        let keeps = matches!(on_busy.reaction, Reaction::Migrate | Reaction::Renice);
        assert!(!keeps || model.copies || outcome.shared.wasted.is_zero(), "{context}");
    }
    assert!(finished > 1_500, "only {finished} finished");
}
