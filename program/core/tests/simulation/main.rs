//! Whole programs under loss, delay, repetition, moves, rollbacks, snapshots
//! and deaths, drawn from a seed. After every step every endpoint is
//! consistent and within its bounds; every message is received once and in
//! order; in the calm at the end all ranks come to their end.
//!
//! A failure prints its seed. `GLEAN_SEED=n cargo test -p
//! gleaner-program-core --test simulation` repeats it; `GLEAN_SEEDS=n` runs
//! so many.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, says what happened, and has few ranks"
)]

mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

fn run(seed: u64, happened: &mut BTreeMap<&'static str, u32>) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed);
        world.run();
        world.happened
    }));
    let Ok(counts) = result else {
        panic!("seed {seed} fails; repeat it with GLEAN_SEED={seed} cargo test {TEST}")
    };
    for (what, count) in counts {
        *happened.entry(what).or_default() += count;
    }
}

const TEST: &str = "-p gleaner-program-core --test simulation";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn programs_end_well_whatever_befalls_them() {
    let mut happened = BTreeMap::new();
    let seeds = match number("GLEAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GLEAN_SEEDS").unwrap_or(600),
    };
    let all = seeds.end - seeds.start >= 600;
    seeds.for_each(|seed| run(seed, &mut happened));
    println!("{happened:?}");
    // A simulation in which nothing happens proves nothing.
    let everything = [
        "move",
        "stay",
        "early",
        "elsewhere",
        "partition",
        "image",
        "back to a state",
        "back to an image",
        "cut",
        "snapshot",
        "crash",
        "all back to a snapshot",
        "all back to the start",
    ];
    if all {
        for what in everything {
            assert!(happened.get(what).is_some_and(|count| *count > 5), "{what}: {happened:?}");
        }
    }
}
