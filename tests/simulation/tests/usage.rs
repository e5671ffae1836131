//! Usage records between disks that fail: nothing saved is lost, nothing is kept twice.
//!
//! `GLEANER_SEEDS=100000` tries more of them; `GLEANER_SEED=7` tries one.

use gleaner_common::disk::simulated::Draws;
use gleaner_simulation::usage::{UsageFaults, UsageOutcome, UsagePath};

const STEPS: u32 = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn run(seed: u64, faults: UsageFaults) -> UsageOutcome {
    let ran = std::panic::catch_unwind(|| UsagePath::new(seed, faults).run(STEPS));
    ran.unwrap_or_else(|_| {
        panic!(
            "GLEANER_SEED={seed} cargo test -p gleaner-simulation --test usage  fails with \
             {faults:?}"
        )
    })
}

#[test]
fn what_is_saved_is_kept_once_whatever_breaks() {
    let seeds = match number("GLEANER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GLEANER_SEEDS").unwrap_or(400),
    };
    let is_all = seeds.end > 1 + seeds.start;
    let mut total = UsageOutcome::default();
    for seed in seeds {
        let faults = UsageFaults::drawn(&mut Draws::new(seed ^ 0x5eed));
        let outcome = run(seed, faults);
        total.appended += outcome.appended;
        total.kept += outcome.kept;
        total.never_saved += outcome.never_saved;
        total.destroyed += outcome.destroyed;
        total.flips += outcome.flips;
        total.told += outcome.told;
    }
    eprintln!("{total:?}");
    // A storm in which nothing goes wrong would show nothing.
    assert!(!is_all || total.never_saved > 0 && total.destroyed > 0 && total.told > 0);
}

/// Without bits that flip and copies that come back, what is saved is kept: all of it.
#[test]
fn crashes_cuts_and_full_disks_take_nothing_that_was_saved() {
    let faults = UsageFaults {
        cuts: true,
        deaths: true,
        crashes: true,
        full: true,
        refusals: true,
        ..UsageFaults::default()
    };
    for seed in 0..number("GLEANER_SEEDS").unwrap_or(100) {
        let outcome = run(seed, faults);
        assert_eq!(outcome.destroyed, 0, "seed {seed}");
        assert!(outcome.kept + outcome.never_saved >= outcome.appended, "seed {seed}");
    }
}
