use super::*;

fn trace(ranks: &[&[Op]]) -> Trace {
    Trace { name: "small".into(), ranks: ranks.iter().map(|ops| ops.to_vec()).collect() }
}

const fn compute(nanos: u64) -> Op {
    Op::Compute { nanos }
}

const fn send(to: u32, tag: u32) -> Op {
    Op::Send { to, bytes: 1_000, tag }
}

const fn receive(from: u32, tag: u32) -> Op {
    Op::Receive { from, tag }
}

#[track_caller]
fn check_error(ranks: &[&[Op]], error: CompileError) {
    assert_eq!(Program::compile(&trace(ranks), Network::default()), Err(error));
}

#[track_caller]
fn check_path(ranks: &[&[Op]], network: Network, expected: u64) {
    let program = Program::compile(&trace(ranks), network).unwrap();
    assert_eq!(program.critical_path(), Duration::from_nanos(expected));
}

#[test]
fn a_receive_waits_for_its_message_and_not_longer() {
    let late: &[&[Op]] = &[&[compute(9), send(1, 0)], &[compute(4), receive(0, 0), compute(1)]];
    check_path(late, Network::default(), 10);
    let early: &[&[Op]] = &[&[compute(2), send(1, 0)], &[compute(4), receive(0, 0), compute(1)]];
    check_path(early, Network::default(), 5);
}

#[test]
fn a_message_takes_latency_and_its_bytes() {
    let ranks: &[&[Op]] = &[&[compute(2), send(1, 0)], &[receive(0, 0)]];
    let network = Network { latency: Duration::from_nanos(10), bytes_per_s: 1e9 };
    check_path(ranks, network, 1_012);
}

#[test]
fn tags_are_received_in_any_order_and_one_tag_in_its_own() {
    let sender: &[Op] = &[compute(1), send(1, 7), compute(1), send(1, 8), compute(1), send(1, 7)];
    check_path(&[sender, &[receive(0, 8), receive(0, 7)]], Network::default(), 3);
    let program = Program::compile(
        &trace(&[sender, &[receive(0, 8), receive(0, 7), receive(0, 7)]]),
        Network::default(),
    );
    let program = program.unwrap();
    let sent: Vec<u32> = program.steps[..4].iter().map(|step| step.message).collect();
    assert_eq!(sent, [1, 0, 2, NONE]);
}

#[test]
fn what_nobody_receives_is_sent_all_the_same() {
    check_path(&[&[compute(1), send(1, 0), compute(1)], &[]], Network::default(), 2);
}

#[test]
fn a_spawned_rank_begins_when_it_is_spawned() {
    let ranks: &[&[Op]] = &[&[compute(5), Op::Spawn { rank: 1 }], &[compute(7)]];
    check_path(ranks, Network::default(), 12);
}

#[test]
fn what_is_wrong_is_said_with_rank_and_operation() {
    check_error(&[], CompileError::Empty);
    check_error(
        &[&[compute(1), send(3, 0)]],
        CompileError::BadRank { rank: 0, operation: 1, named: 3 },
    );
    check_error(
        &[&[send(1, 0)], &[receive(0, 0), receive(0, 1)]],
        CompileError::Unmatched { rank: 1, operation: 1, from: 0, tag: 1 },
    );
    check_error(
        &[&[compute(1), receive(1, 0), send(1, 0)], &[receive(0, 0), send(0, 0)]],
        CompileError::Deadlock { rank: 0, operation: 1 },
    );
    let twice = [Op::Spawn { rank: 1 }, Op::Spawn { rank: 1 }];
    check_error(&[&twice, &[]], CompileError::SpawnedTwice { rank: 0, operation: 1, spawned: 1 });
    check_error(
        &[&[], &[compute(1), Op::Spawn { rank: 1 }]],
        CompileError::Deadlock { rank: 1, operation: 0 },
    );
    check_error(&[&[compute(u64::MAX), compute(1)]], CompileError::TooLong);
}
