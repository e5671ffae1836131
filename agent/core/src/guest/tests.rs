//! One place against a model of its kernel, router and link: what happens in
//! any order, and what must never come of it.

mod examples;
mod world;

use gleaner_common::job::{OnBusy, Patience, Reaction};

use self::world::{Setting, World};

/// Every job's reaction, for guests and for ranks, that begin here or come.
fn settings() -> Vec<Setting> {
    let mut all = vec![];
    for reaction in [
        Reaction::Renice,
        Reaction::Suspend,
        Reaction::Migrate,
        Reaction::Rollback,
        Reaction::Retreat,
    ] {
        for then in [Reaction::Retreat, Reaction::Migrate] {
            let patience = Patience::For(world::PATIENCE);
            let on_busy = OnBusy { reaction, patience, then };
            for bits in 0..16 {
                let (rank, arrives) = (bits & 1 > 0, bits & 2 > 0);
                let (inputs, cut) = (bits & 4 > 0, bits & 8 > 0 && rank && !arrives);
                let (moves, timeout) = (true, false);
                all.push(Setting { on_busy, rank, arrives, inputs, cut, moves, timeout });
            }
        }
    }
    let plain: Vec<_> = all.iter().filter(|it| !it.inputs && !it.cut).copied().collect();
    all.extend(plain.iter().map(|it| Setting { moves: false, ..*it }));
    all.extend(plain.iter().map(|it| Setting { timeout: true, ..*it }));
    for patience in [Patience::Forever, Patience::ByCost] {
        let suspends = |it: &&Setting| it.on_busy.reaction == Reaction::Suspend;
        all.extend(plain.iter().filter(suspends).map(|it| {
            let on_busy = OnBusy { patience, then: Reaction::Rollback, ..it.on_busy };
            Setting { on_busy, ..*it }
        }));
    }
    all
}

/// What a walk that fails prints, so that it can be walked again.
#[track_caller]
fn walk(setting: Setting, mut choose: impl FnMut(usize) -> Option<usize>) {
    let mut world = World::new(setting);
    while let Some(choice) = choose(world.choices()) {
        world.act(choice);
    }
    world.calm();
}

/// Every order of the first things that can happen, whatever they are.
#[test]
fn no_order_of_a_few_events_breaks_a_promise() {
    for setting in settings() {
        // Four deep where most can happen, in the time that there is.
        let Setting { on_busy, rank, arrives, inputs, cut, moves, timeout } = setting;
        let plain = rank && moves && !arrives && !inputs && !cut && !timeout;
        let most = plain && on_busy.reaction == Reaction::Migrate;
        let depth_max = match (most && on_busy.then == Reaction::Retreat, moves && !timeout) {
            (true, _) => 4,
            (false, true) => 3,
            // What is rare is for the long walks.
            (false, false) => 2,
        };
        every_order(setting, depth_max);
    }
}

fn every_order(setting: Setting, depth_max: usize) {
    let mut path = vec![0_usize; depth_max];
    loop {
        let (mut depth, mut widths) = (0, vec![1_usize; depth_max]);
        walk(setting, |choices| {
            let choice = path.get(depth).copied()?;
            widths[depth] = choices;
            depth += 1;
            Some(choice)
        });
        // The next path in order: choices depend on what came before.
        let Some(last) = (0..depth_max).rev().find(|at| path[*at] + 1 < widths[*at]) else { break };
        path[last] += 1;
        path[last + 1..].fill(0);
    }
}

/// Long walks with chances of their own: whole lives of guests.
#[test]
fn no_long_walk_breaks_a_promise() {
    let walks = std::env::var("GLEAN_WALKS").ok().and_then(|text| text.parse().ok());
    let settings = settings();
    for seed in 0..walks.unwrap_or(100_000_u64) {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).unwrap()
        };
        let (setting, length) = (settings[next() % settings.len()], 5 + next() % 60);
        let mut steps = 0;
        let _seed = SaysSeed(seed);
        walk(setting, |choices| {
            steps += 1;
            (steps <= length).then(|| next() % choices)
        });
    }
}

struct SaysSeed(u64);

impl Drop for SaysSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}
