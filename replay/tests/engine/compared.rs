//! The engine against a slow simulator, event by event.
//!
//! `CASES=100000 cargo test -p gleaner-replay --test engine` tries more;
//! `SEED=7` tries one.

use std::collections::BTreeMap;

use gleaner_replay::{Observed, Scratch, What, run_observed};

use crate::slow::cases::Case;
use crate::slow::{self, Happened, nanos};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn the_engine_and_the_slow_simulator_agree_on_every_event() {
    let mut scratch = Scratch::default();
    if let Some(seed) = number("SEED") {
        check(seed, &mut scratch);
        return;
    }
    let cases = number("CASES").unwrap_or(6_000);
    let finished = (0..cases).filter(|seed| check(*seed, &mut scratch)).count();
    assert!(finished as u64 > cases / 2, "only {finished} of {cases} cases came to their end");
}

/// What happened to each rank, in order, in the slow simulator's words.
fn translate(observed: &[Observed], ranks: u32) -> Vec<Vec<(u64, Happened)>> {
    let mut sent: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut count = vec![0; ranks as usize];
    for one in observed {
        if let What::Sent { message } = one.what {
            let nth = &mut count[one.rank as usize];
            assert!(
                sent.insert(message, (one.rank, *nth)).is_none(),
                "message {message} is sent twice"
            );
            *nth += 1;
        }
    }
    let mut happened = vec![vec![]; ranks as usize];
    for one in observed {
        let what = match one.what {
            What::Sent { .. } => Happened::Sent,
            What::Received { message } => {
                let (from, nth) = sent[&message];
                Happened::Received { from, nth }
            }
            other => Happened::To(other),
        };
        happened[one.rank as usize].push((one.at, what));
    }
    happened
}

fn check(seed: u64, scratch: &mut Scratch) -> bool {
    let case = Case::of_seed(seed);
    let (program, lab) = (case.program(), case.lab());
    let mut observed = vec![];
    let fast = run_observed(&program, &lab, &case.model, scratch, &mut observed);
    let slow = slow::run(&case);
    let context = format!("SEED={seed}: {case:?}");
    let happened = translate(&observed, program.ranks());
    for (rank, (fast, slow)) in happened.iter().zip(&slow.happened).enumerate() {
        let first = fast.iter().zip(slow).position(|(fast, slow)| fast != slow);
        let at = first.unwrap_or(fast.len().min(slow.len()));
        assert!(
            fast == slow,
            "rank {rank}, event {at}: {:?} but slowly {:?}\n{context}\n{fast:?}\n{slow:?}",
            fast.get(at),
            slow.get(at)
        );
    }
    assert_eq!(fast.finished, slow.finished, "{context}");
    let begins = nanos(case.model.begins);
    assert_eq!(nanos(fast.execution), slow.end - begins, "{context}");
    assert_eq!(fast.busy_transitions, slow.busy_transitions, "{context}");
    assert_eq!((fast.moves, fast.waits), (slow.moves, slow.waits), "{context}");
    assert_eq!(fast.nodes_used as usize, slow.used.len(), "{context}");
    assert_eq!(nanos(fast.useful), slow.useful, "{context}");
    assert_eq!(nanos(fast.wasted), slow.wasted, "{context}");
    assert_eq!(nanos(fast.shared_computing), slow.shared_computing, "{context}");
    assert_eq!(nanos(fast.shared_frozen), slow.shared_frozen, "{context}");
    if fast.finished {
        assert_eq!(fast.last, slow.last, "{context}");
        assert_eq!(fast.path, slow.path, "{context}");
        assert_eq!(fast.on_critical_path, slow.path_busy, "{context}");
        assert_eq!(fast.last_rank, slow.own, "{context}");
        assert_eq!(fast.path.total(), fast.execution, "{context}");
        assert_eq!(fast.last_rank.total(), fast.execution, "{context}");
    }
    check_idleness(&case, &fast, begins, slow.end);
    fast.finished
}

/// Idle time and idle periods, counted one by one.
fn check_idleness(case: &Case, fast: &gleaner_replay::Execution, begins: u64, end: u64) {
    let (mut time, mut lengths) = (0, vec![]);
    for owner in &case.owners {
        let changes: Vec<u64> = owner.changes.iter().map(|at| nanos(*at)).collect();
        let starts = std::iter::once(0).chain(changes.iter().copied());
        let ends = changes.iter().copied().chain([u64::MAX]);
        for (position, (start, stop)) in starts.zip(ends).enumerate() {
            let idle = owner.idle == position.is_multiple_of(2);
            // A change at the very end is not looked at any more.
            if !idle || stop <= begins || start > end || start >= nanos(case.span) {
                continue;
            }
            let before = if position == 0 { nanos(owner.since) } else { 0 };
            let known = if stop == u64::MAX { nanos(case.span) } else { stop };
            if known > begins {
                lengths.push(known - start + before);
            }
            time += stop.min(end).saturating_sub(start.max(begins));
        }
    }
    assert_eq!(nanos(fast.idle_time), time, "{case:?}");
    let mean = lengths.iter().sum::<u64>().checked_div(lengths.len() as u64).unwrap_or(0);
    assert_eq!(nanos(fast.average_idle), mean, "{case:?}");
}
