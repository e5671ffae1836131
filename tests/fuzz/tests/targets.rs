//! Every target stands a while of mutated seeds.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

use gleaner_fuzz::{TARGETS, Target};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// What a fuzzer does to a seed, in small.
#[derive(Clone, Debug)]
enum Slip {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Repeat(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
}

fn slip() -> impl Strategy<Value = Slip> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 1..=u8::MAX).prop_map(|(at, by)| Slip::Flip(at, by)),
        1 => any::<prop::sample::Index>().prop_map(Slip::Cut),
        1 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, n)| Slip::Repeat(at, n)),
        2 => (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Slip::Insert(at, bytes)),
    ]
}

fn slipped(mut bytes: Vec<u8>, slips: &[Slip]) -> Vec<u8> {
    for slip in slips {
        let length = bytes.len();
        if length == 0 {
            return bytes;
        }
        match slip {
            Slip::Flip(at, by) => bytes[at.index(length)] ^= by,
            Slip::Cut(at) => bytes.truncate(at.index(length)),
            Slip::Repeat(at, times) => {
                let at = at.index(length);
                let byte = bytes[at];
                bytes.splice(at..at, std::iter::repeat_n(byte, usize::from(*times)));
            }
            Slip::Insert(at, new) => {
                let at = at.index(length);
                bytes.splice(at..at, new.iter().copied());
            }
        }
    }
    bytes
}

fn stands(target: &Target, cases: u32) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{} has no seed", target.name);
    for seed in &seeds {
        (target.run)(seed);
    }
    let any_bytes = prop::collection::vec(any::<u8>(), 0..512);
    let mutated = (prop::sample::select(seeds), prop::collection::vec(slip(), 1..6))
        .prop_map(|(seed, slips)| slipped(seed, &slips));
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) });
    let done = runner.run(&prop_oneof![3 => mutated, 1 => any_bytes], |bytes| {
        (target.run)(&bytes);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{}: {error}", target.name));
}

#[test]
fn every_target_stands_what_memory_holds() {
    TARGETS.iter().filter(|target| !target.makes_files).for_each(|target| stands(target, 2_000));
}

#[test]
fn every_target_stands_what_lies_in_files() {
    TARGETS.iter().filter(|target| target.makes_files).for_each(|target| stands(target, 100));
}
