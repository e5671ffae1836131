//! Conservation laws, on random small cases.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::trace::Op;
use gleaner_replay::{Costs, Lab, Observed, Scratch, What, run, run_observed};
use proptest::prelude::*;

use crate::slow::cases::Case;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn on_idle_workstations_a_program_takes_its_critical_path_exactly(seed: u64) {
        let case = Case::of_seed(seed);
        let program = case.program();
        let lab = Lab::always_idle(program.ranks(), Duration::from_secs(1));
        let execution = run(&program, &lab, &case.model, &mut Scratch::default());
        prop_assert!(execution.finished);
        prop_assert_eq!(execution.execution, program.critical_path());
        prop_assert_eq!((execution.busy_transitions, execution.moves), (0, 0));
        prop_assert_eq!(execution.path.compute + execution.path.messages, execution.execution);
    }

    #[test]
    fn moving_for_nothing_slows_nothing_down(seed: u64) {
        let mut case = Case::of_seed(seed);
        case.model.on_busy = OnBusy::at_once(Reaction::Migrate);
        case.model.costs = Costs::default();
        let program = case.program();
        let execution = run(&program, &case.lab(), &case.model, &mut Scratch::default());
        if execution.finished && execution.waits == 0 {
            prop_assert_eq!(execution.execution, program.critical_path());
            prop_assert_eq!(execution.slowdown(&execution), (execution.execution > Duration::ZERO).then_some(0.0));
        }
    }

    #[test]
    fn work_is_never_lost_nor_gained(seed: u64) {
        let case = Case::of_seed(seed);
        let program = case.program();
        let mut observed = vec![];
        let execution = run_observed(&program, &case.lab(), &case.model, &mut Scratch::default(), &mut observed);
        let lost = observed.iter().map(|one| if let What::Lost { work } = one.what { work } else { 0 });
        prop_assert_eq!(execution.wasted, Duration::from_nanos(lost.sum()));
        if execution.finished {
            prop_assert_eq!(execution.useful, program.work());
            prop_assert_eq!(execution.last_rank.compute, work_of(&case, execution.last));
        } else {
            prop_assert!(execution.useful <= program.work());
        }
        prop_assert_eq!(execution.path.total(), if execution.finished { execution.execution } else { Duration::ZERO });
    }

    #[test]
    fn messages_are_neither_lost_nor_reordered_between_a_pair(seed: u64) {
        let case = Case::of_seed(seed);
        let mut observed = vec![];
        let execution = run_observed(&case.program(), &case.lab(), &case.model, &mut Scratch::default(), &mut observed);
        let sent = by_message(&observed, |what| if let What::Sent { message } = what { Some(message) } else { None });
        let received = by_message(&observed, |what| if let What::Received { message } = what { Some(message) } else { None });
        for (message, (receiver, at)) in &received {
            let (sender, sent_at) = sent.get(message).expect("it was sent");
            let delay = case.program().message(*message);
            prop_assert_eq!(delay, (*sender, *receiver));
            prop_assert!(at >= sent_at);
        }
        let receives = case.trace.ranks.iter().flatten().filter(|op| matches!(op, Op::Receive { .. }));
        let spawned = case.trace.ranks.iter().flatten().filter(|op| matches!(op, Op::Spawn { .. }));
        if execution.finished {
            prop_assert_eq!(received.len(), receives.count() + spawned.count());
        }
        check_order(&case, &observed);
    }
}

fn work_of(case: &Case, rank: u32) -> Duration {
    let nanos = case.trace.ranks[rank as usize].iter().map(|op| match op {
        Op::Compute { nanos } => *nanos,
        Op::Send { .. } | Op::Receive { .. } | Op::Spawn { .. } => 0,
    });
    Duration::from_nanos(nanos.sum())
}

/// For each message, to whom it happened, and when.
fn by_message(
    observed: &[Observed],
    message_of: impl Fn(What) -> Option<u32>,
) -> BTreeMap<u32, (u32, u64)> {
    let mut found = BTreeMap::new();
    for one in observed {
        if let Some(message) = message_of(one.what) {
            assert!(
                found.insert(message, (one.rank, one.at)).is_none(),
                "{message} happened twice"
            );
        }
    }
    found
}

/// The k-th receive of a sender and tag takes the k-th send to it.
fn check_order(case: &Case, observed: &[Observed]) {
    let mut sent: BTreeMap<(u32, u32, u32), Vec<u32>> = BTreeMap::new();
    let mut received = sent.clone();
    for (rank, ops) in (0..).zip(&case.trace.ranks) {
        let mine = observed.iter().filter(|one| one.rank == rank);
        let mut sends = vec![];
        let mut arrived = vec![];
        for one in mine {
            match one.what {
                What::Sent { message } => sends.push(message),
                What::Received { message } => arrived.push(message),
                _ => {}
            }
        }
        let spawned = case.trace.ranks.iter().flatten().any(|op| *op == Op::Spawn { rank });
        let (mut sends, mut arrived) =
            (sends.into_iter(), arrived.into_iter().skip(usize::from(spawned)));
        for op in ops {
            match *op {
                Op::Send { to, tag, .. } => {
                    sent.entry((rank, to, tag)).or_default().extend(sends.next());
                }
                Op::Receive { from, tag } => {
                    received.entry((from, rank, tag)).or_default().extend(arrived.next());
                }
                Op::Spawn { .. } => drop(sends.next()),
                Op::Compute { .. } => {}
            }
        }
    }
    for (channel, received) in &received {
        let sent = sent.get(channel).map_or(&[][..], Vec::as_slice);
        assert!(sent.starts_with(received), "{channel:?}: {sent:?}, {received:?}");
    }
}
