//! Labs in a storm, then in a calm in which all work must finish.
//!
//! `GLEANER_SEEDS=1000` tries more of them; a failure prints its seed and the
//! command that repeats it; with `GLEANER_TRACE=1` it prints all that happens.

use std::time::Duration;

use gleaner_coordinator_core::scheduler::ALL;
use gleaner_coordinator_core::{Config, Policy, SchedulerConfig};

use gleaner_simulation::{Changes, Invariant, Lab, Outline, Setting, Trouble, Troubles, draw, run};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn stormy() -> Setting {
    Setting {
        calm: Some(s(3_600)),
        troubles: Troubles::default()
            .with(Trouble::Cut, s(3))
            .with(Trouble::AgentCrash, s(15))
            .with(Trouble::Sleep, s(20))
            .with(Trouble::CoordinatorCrash, s(40))
            .with(Trouble::CommitHangs, s(60))
            .with(Trouble::Owner, s(4)),
        late_frames: 0.005,
        programs: 0.3,
        obstacles: 0.05,
        failures: 0.1,
        replicated: 0.3,
        check_all_every: 64,
        trace: std::env::var_os("GLEANER_TRACE").is_some(),
        ..Setting::default()
    }
}

/// Says how to repeat a lab, if it fails.
struct Repeat {
    test: &'static str,
    seed: u64,
}

impl Drop for Repeat {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!("seed {seed} failed; repeat it with");
            eprintln!("GLEANER_SEED={seed} cargo test -p gleaner-simulation --test labs {test}");
        }
    }
}

fn policy(seed: u64) -> Policy {
    Policy::ALL[(seed % 4) as usize]
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn check(
    test: &'static str,
    seeds: u64,
    setting: impl Fn(u64) -> Setting,
    judge: impl Fn(&Outline),
) -> Vec<Outline> {
    let seeds = match number("GLEANER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GLEANER_SEEDS").unwrap_or(seeds),
    };
    seeds
        .map(|seed| {
            let _repeat = Repeat { test, seed };
            let outline = Lab::new(seed, setting(seed)).run();
            judge(&outline);
            outline
        })
        .collect()
}

#[test]
fn nothing_is_lost_or_done_twice_in_a_storm() {
    let test = "nothing_is_lost_or_done_twice_in_a_storm";
    let setting =
        |seed| Setting { config: Config { policy: policy(seed), ..Config::default() }, ..stormy() };
    let outlines = check(test, 16, setting, |_| {});
    let seen = |value: fn(&Outline) -> u64| outlines.iter().map(value).sum::<u64>() > 0;
    let everything = seen(|o| o.retreats)
        && seen(|o| o.suspensions)
        && seen(|o| o.lost)
        && seen(|o| o.retried)
        && seen(|o| o.failed)
        && seen(|o| o.cancelled)
        && seen(|o| o.moves)
        && seen(|o| o.lives)
        && seen(|o| o.tasks as u64)
        && seen(|o| o.received)
        && seen(|o| o.went_back)
        && seen(|o| o.gangs as u64)
        && seen(|o| o.images);
    assert!(everything || outlines.len() == 1, "a storm without some trouble: {outlines:#?}");
}

/// Owners come and workstations are drained, and nothing else: ranks that talk to each
/// other are carried away in the middle of it, and stay after all.
#[test]
fn what_ranks_say_to_each_other_comes_once_and_in_order_wherever_they_go() {
    let test = "what_ranks_say_to_each_other_comes_once_and_in_order_wherever_they_go";
    let troubles = Troubles::default()
        .with(Trouble::Owner, s(3))
        .with(Trouble::Drain, s(5))
        .with(Trouble::Cut, s(20));
    let setting = |_| Setting {
        hosts: 20,
        jobs: 8,
        rounds: 2,
        troubles: troubles.clone(),
        programs: 1.0,
        obstacles: 0.1,
        calm: Some(s(3_600)),
        ..Setting::default()
    };
    let outlines = check(test, 12, setting, |_| {});
    let sum = |value: fn(&Outline) -> u64| outlines.iter().map(value).sum::<u64>();
    let (went, received) = (sum(|o| o.went), sum(|o| o.received));
    assert!(went > 100 && received > 1_000, "{went} moves, {received} messages");
}

/// Jobs of one and of two cores, which ask for memory or for none.
#[test]
fn nothing_is_lost_and_nothing_lent_twice_where_guests_differ_in_size() {
    let test = "nothing_is_lost_and_nothing_lent_twice_where_guests_differ_in_size";
    check(test, 12, |_| Setting { large: 0.7, ..stormy() }, |_| {});
}

/// Every policy but those that refuse what pays nothing.
#[test]
fn nothing_is_lost_under_any_scheduling_policy() {
    let test = "nothing_is_lost_under_any_scheduling_policy";
    let policies: Vec<&str> =
        ALL.iter().map(|it| it.name).filter(|name| !REFUSING.contains(name)).collect();
    let setting = |seed: u64| {
        let policy = policies[usize::try_from(seed).unwrap_or(0) % policies.len()].to_owned();
        let scheduler = SchedulerConfig { policy, patience: s(2), ..SchedulerConfig::default() };
        let config = Config { scheduler, ..Config::default() };
        Setting { config, calm: Some(s(20_000)), ..stormy() }
    };
    let outlines = check(test, policies.len() as u64, setting, |_| {});
    let gangs: usize = outlines.iter().map(|outline| outline.gangs).sum();
    assert!(gangs > 0 || outlines.len() == 1, "no program began: {outlines:#?}");
    let shared: u64 = outlines.iter().map(|outline| outline.shared).sum();
    assert!(shared > 0 || outlines.len() == 1, "no places were shared: {outlines:#?}");
}

const REFUSING: [&str; 2] = ["kumar-profit", "kumar-lazy"];

#[test]
fn equal_seeds_give_equal_labs() {
    let run = || Lab::new(7, stormy()).run();
    assert_eq!(run(), run());
}

#[test]
fn a_lab_without_trouble_loses_and_repeats_nothing() {
    let setting =
        |_| Setting { failures: 0.0, troubles: Troubles::default(), late_frames: 0.0, ..stormy() };
    check("a_lab_without_trouble_loses_and_repeats_nothing", 4, setting, |outline| {
        assert_eq!((outline.lost, outline.suspensions), (0, 0), "{outline:?}");
    });
}

/// Owners come and go all the time, most of what moves is refused or called
/// back on its way, and the coordinator dies in the middle of it.
fn restless() -> Setting {
    Setting {
        hosts: 6,
        jobs: 6,
        troubles: Troubles::default()
            .with(Trouble::CoordinatorCrash, s(6))
            .with(Trouble::Owner, Duration::from_millis(1_500))
            .with(Trouble::Drain, s(3)),
        late_frames: 0.0,
        programs: 0.6,
        obstacles: 0.4,
        failures: 0.0,
        away: s(3),
        // Nobody is given up for having been out of reach so long.
        config: Config { lease: s(60), ..Config::default() },
        ..stormy()
    }
}

#[test]
fn nothing_that_moves_is_lost_while_its_workstations_live() {
    let test = "nothing_that_moves_is_lost_while_its_workstations_live";
    let outlines = check(
        test,
        12,
        |_| restless(),
        |outline| {
            assert_eq!((outline.lost, outline.lives), (0, 0), "{outline:?}");
        },
    );
    let moves: u64 = outlines.iter().map(|outline| outline.moves).sum();
    assert!(moves > 0 || outlines.len() == 1, "nothing moved");
}

#[test]
fn nothing_is_done_twice_while_everything_moves_and_dies() {
    let test = "nothing_is_done_twice_while_everything_moves_and_dies";
    let setting = |_| Setting {
        troubles: restless()
            .troubles
            .with(Trouble::Cut, s(5))
            .with(Trouble::AgentCrash, s(10))
            .with(Trouble::Sleep, s(30))
            .with(Trouble::CommitHangs, s(30)),
        late_frames: 0.01,
        programs: 0.9,
        failures: 0.05,
        config: Config::default(),
        ..restless()
    };
    let outlines = check(test, 16, setting, |_| {});
    let with_image: u64 = outlines.iter().map(|outline| outline.snapshots_with_image).sum();
    assert!(with_image > 0 || outlines.len() == 1, "nothing went back to an image: {outlines:#?}");
}

/// Images are cloned with what is enrolled in them.
#[test]
fn of_two_machines_with_one_identity_one_speaks_and_the_other_is_refused() {
    let test = "of_two_machines_with_one_identity_one_speaks_and_the_other_is_refused";
    let troubles = Troubles::default()
        .with(Trouble::Twin, s(15))
        .with(Trouble::Cut, s(10))
        .with(Trouble::AgentCrash, s(20))
        .with(Trouble::Sleep, s(20))
        .with(Trouble::CoordinatorCrash, s(40));
    let setting =
        |_| Setting { troubles: troubles.clone(), hosts: 5, calm: Some(s(7_200)), ..stormy() };
    let outlines = check(test, 12, setting, |_| {});
    let refused: u64 = outlines.iter().map(|outline| outline.refused).sum();
    assert!(refused > 0, "nobody was refused");
}

fn late() -> Setting {
    Setting {
        troubles: Troubles::default().with(Trouble::CommitHangs, s(20)).with(Trouble::Owner, s(4)),
        late_frames: 0.05,
        ..stormy()
    }
}

#[test]
fn nothing_is_done_twice_when_frames_take_longer_than_a_lease() {
    let test = "nothing_is_done_twice_when_frames_take_longer_than_a_lease";
    check(
        test,
        8,
        |_| late(),
        |outline| {
            assert!(outline.lost > 0, "no frame was late enough: {outline:?}");
        },
    );
}

/// Acknowledged at once, a heartbeat overtook the order to stop an attempt
/// that had been given up, which still waited for the disk.
#[test]
fn no_acknowledged_heartbeat_revives_what_was_given_up() {
    let _repeat = Repeat { test: "no_acknowledged_heartbeat_revives_what_was_given_up", seed: 17 };
    Lab::new(17, late()).run();
}

fn quiet() -> Setting {
    Setting {
        troubles: Troubles::default(),
        late_frames: 0.0,
        programs: 0.0,
        replicated: 0.0,
        failures: 0.0,
        ..stormy()
    }
}

#[test]
fn what_kills_workstations_does_not_wander_through_all_of_them() {
    let test = "what_kills_workstations_does_not_wander_through_all_of_them";
    let setting = |_| Setting { killer: true, storm: s(600), calm: Some(s(7_200)), ..quiet() };
    let outlines = check(test, 6, setting, |outline| {
        assert!(outline.first_lost_most <= 2 + 4, "{outline:?}");
    });
    let held: u32 = outlines.iter().map(|outline| outline.first_failed).sum();
    assert!(held > 0 || outlines.len() == 1, "nothing was held: {outlines:#?}");
}

/// As on a full disk: 25 of 200 failed for good, and 177 attempts were burnt.
#[test]
fn where_every_guest_fails_at_once_few_attempts_are_burnt_and_nothing_fails_for_good() {
    let test = "where_every_guest_fails_at_once_few_attempts_are_burnt_and_nothing_fails_for_good";
    let setting = |seed: u64| {
        let black_holes = 1 + u32::try_from(seed % 2).unwrap_or(0);
        Setting { crowd: Some(200), jobs: 1, black_holes, storm: s(600), ..quiet() }
    };
    let outlines = check(test, 8, setting, |outline| {
        // Its user may cancel it.
        let wanted = 200 - outline.cancelled;
        assert_eq!((outline.succeeded, outline.failed), (wanted, 0), "{outline:?}");
        assert!(outline.attempts <= 200 + 2 * 12, "{outline:?}");
    });
    let succeeded: u64 = outlines.iter().map(|outline| outline.succeeded).sum();
    assert!(succeeded > 0 || outlines.len() == 1, "{outlines:#?}");
}

#[test]
fn one_users_thousands_delay_anothers_one_by_a_slots_turn() {
    let test = "one_users_thousands_delay_anothers_one_by_a_slots_turn";
    let setting = |_| Setting { crowd: Some(2_000), jobs: 8, ..quiet() };
    check(test, 8, setting, |outline| {
        assert!(outline.turns_waited <= 1, "{outline:?}");
    });
}

/// Everything goes wrong, and one of the workstations lies.
fn untrue() -> Setting {
    Setting { programs: 0.0, replicated: 1.0, failures: 0.0, liars: 1, ..stormy() }
}

#[test]
fn no_lie_counts_while_fewer_than_a_quorum_lie_and_the_truth_is_found() {
    let test = "no_lie_counts_while_fewer_than_a_quorum_lie_and_the_truth_is_found";
    let outlines = check(
        test,
        12,
        |_| untrue(),
        |outline| {
            assert!(outline.attempts as u64 >= outline.succeeded * 2, "{outline:?}");
        },
    );
    let seen = |value: fn(&Outline) -> u64| outlines.iter().map(value).sum::<u64>() > 0;
    let everything = seen(|o| o.succeeded)
        && seen(|o| o.outvoted)
        && seen(|o| o.retreats)
        && seen(|o| o.moves)
        && seen(|o| o.lost)
        && seen(|o| o.cancelled);
    assert!(everything || outlines.len() == 1, "nobody lied, or was troubled: {outlines:#?}");
}

/// Two of two who lie alike are believed: then the witness would see it.
#[test]
#[should_panic(expected = "a lie was accepted")]
fn a_quorum_of_liars_is_believed_and_the_witness_sees_it() {
    Lab::new(3, Setting { liars: 6, replicas_max: 2, ..untrue() }).run();
}

/// No owner ever comes: whatever moves was ordered away.
#[test]
fn what_is_ordered_away_is_neither_lost_nor_done_twice() {
    let test = "what_is_ordered_away_is_neither_lost_nor_done_twice";
    let setting = |_| Setting {
        troubles: Troubles::default()
            .with(Trouble::Drain, s(2))
            .with(Trouble::CoordinatorCrash, s(20)),
        obstacles: 0.1,
        ..restless()
    };
    let outlines = check(test, 8, setting, |outline| assert_eq!(outline.lost, 0, "{outline:?}"));
    let moves: u64 = outlines.iter().map(|outline| outline.moves).sum();
    assert!(moves > 0 || outlines.len() == 1, "nothing moved");
}

/// One round of each, which is a storm and its calm: `glean-simulate` runs more of
/// them, and longer ones.
#[test]
fn every_promise_is_put_to_the_test_by_labs_of_all_kinds_and_holds() {
    let one_round = Changes { rounds: Some(1), ..Changes::default() };
    let mut exercised = [0; Invariant::ALL.len()];
    for seed in 0..number("GLEANER_SEEDS").unwrap_or(12) {
        let trial = run(seed, draw(seed, &one_round));
        let failed = trial.outcome.err();
        assert_eq!(failed, None, "glean-simulate --seed {seed}{one_round}");
        for (sum, count) in exercised.iter_mut().zip(trial.exercised) {
            *sum += count;
        }
    }
    for (invariant, count) in Invariant::ALL.into_iter().zip(exercised) {
        assert!(count > 0 || invariant == Invariant::Determinism, "{invariant}");
    }
}

/// Machines lose their power, disks fill up and refuse, and the collector comes and goes.
fn sick() -> Setting {
    Setting {
        hosts: 5,
        jobs: 2,
        rounds: 4,
        troubles: Troubles::default()
            .with(Trouble::Owner, s(3))
            .with(Trouble::Cut, s(8))
            .with(Trouble::AgentCrash, s(20))
            .with(Trouble::CoordinatorCrash, s(40))
            .with(Trouble::DiskFull, s(15))
            .with(Trouble::SyncRefused, s(15))
            .with(Trouble::PowerLoss, s(10))
            .with(Trouble::CollectorCrash, s(20))
            .with(Trouble::CollectorCut, s(15)),
        check_all_every: 4_096,
        ..stormy()
    }
}

#[test]
fn what_agents_saved_is_with_the_collector_once_whatever_broke() {
    let test = "what_agents_saved_is_with_the_collector_once_whatever_broke";
    let outlines = check(test, 8, |_| sick(), |_| {});
    assert!(outlines.iter().all(|outline| outline.records > 50), "{outlines:#?}");
}

#[test]
fn what_a_bit_or_an_older_disk_took_is_all_that_is_missing() {
    let test = "what_a_bit_or_an_older_disk_took_is_all_that_is_missing";
    let setting = |seed: u64| Setting {
        collector_goes_back: seed.is_multiple_of(2),
        troubles: sick().troubles.with(Trouble::BitFlip, s(20)).with(Trouble::DiskRestored, s(15)),
        ..sick()
    };
    let outlines = check(test, 8, setting, |_| {});
    assert!(outlines.iter().all(|outline| outline.records > 50), "{outlines:#?}");
}

/// A restored backup gave out the fences of its later self again.
#[test]
fn a_store_that_goes_back_gives_out_nothing_twice_and_takes_nothing_for_its_own() {
    let test = "a_store_that_goes_back_gives_out_nothing_twice_and_takes_nothing_for_its_own";
    let setting = |seed: u64| Setting {
        hosts: 6,
        rounds: 3,
        programs: if seed.is_multiple_of(2) { 0.0 } else { 0.4 },
        troubles: stormy().troubles.with(Trouble::Restored, s(8)).with(Trouble::WallJump, s(20)),
        calm: None,
        ..stormy()
    };
    let outlines = check(test, 8, setting, |_| {});
    assert!(outlines.iter().all(|outline| outline.restored > 0), "{outlines:#?}");
}

#[test]
fn what_a_step_did_not_touch_did_not_change() {
    Lab::new(5, Setting { check_all_every: 1, jobs: 4, ..stormy() }).run();
}

/// All faults of one lab, in order; then one of them is left out, and the others
/// come as before.
#[test]
fn a_fault_that_is_left_out_takes_no_other_with_it() {
    let setting = || Setting { jobs: 2, ..stormy() };
    let all = Lab::new(9, setting()).run();
    let without = [all.faults_drawn / 2].into();
    let others = Lab::new(9, Setting { without, ..setting() }).run();
    assert_eq!(others.faults_drawn, all.faults_drawn);
    let sum = |outline: &Outline| outline.faults.values().sum::<u64>();
    assert_eq!(sum(&others) + 1, sum(&all));
}
