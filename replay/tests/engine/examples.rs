//! Small executions that can be checked by hand.

use std::time::Duration;

use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::trace::{Op, Trace};
use gleaner_replay::{
    Breakdown, Costs, Execution, Lab, Model, Network, Owner, Placement, Program, Scratch, run,
};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn compute(seconds: u64) -> Op {
    Op::Compute { nanos: seconds * 1_000_000_000 }
}

const fn send(to: u32) -> Op {
    Op::Send { to, bytes: 0, tag: 0 }
}

const fn receive(from: u32) -> Op {
    Op::Receive { from, tag: 0 }
}

/// Idle for so long before the start, and busy from then to then.
fn owner(since: u64, changes: &[u64]) -> Owner {
    Owner { idle: true, since: s(since), changes: changes.iter().map(|at| s(*at)).collect() }
}

fn execute(ranks: &[&[Op]], owners: &[Owner], model: &Model) -> Execution {
    let ranks = ranks.iter().map(|ops| ops.to_vec()).collect();
    let trace = Trace { name: "example".into(), ranks };
    let program = Program::compile(&trace, Network::default()).unwrap();
    run(&program, &Lab::of_owners(owners, s(10_000)), model, &mut Scratch::default())
}

/// One rank of 100 s.
fn execute_one(owners: &[Owner], model: &Model) -> Execution {
    execute(&[&[compute(100)]], owners, model)
}

fn with(on_busy: OnBusy) -> Model {
    let costs = Costs { migrate: s(7), rollback: s(5), retreat: s(3) };
    Model { on_busy, costs, ..Model::phalen1994(s(7)) }
}

/// Phalen 1994, Figure 6: process A blocks on a receive, and B, who sends, is
/// on the critical path. A transition delays A so much that it no longer
/// blocks: now A is on the critical path.
#[test]
fn a_transition_cost_alters_the_critical_path() {
    let (a, b): (&[Op], &[Op]) = (&[compute(10), receive(1), compute(5)], &[compute(20), send(0)]);
    // A runs where the owner returns after 8 s, B where nobody does.
    let owners = [owner(1, &[8, 9]), owner(2, &[]), owner(3, &[])];
    let at_cost = |cost| execute(&[a, b], &owners, &Model::phalen1994(s(cost)));
    let original = at_cost(0);
    assert_eq!(original.execution, s(25));
    assert_eq!(original.path, Breakdown { compute: s(25), ..Breakdown::default() });
    assert_eq!((original.busy_transitions, original.on_critical_path), (1, 0));
    // Hidden behind the blocking time of 10 s.
    let hidden = at_cost(9);
    assert_eq!((hidden.execution, hidden.on_critical_path), (s(25), 0));
    assert_eq!(hidden.last_rank.moving, s(9));
    let altered = at_cost(15);
    assert_eq!((altered.execution, altered.on_critical_path), (s(30), 1));
    let path = Breakdown { compute: s(15), moving: s(15), ..Breakdown::default() };
    assert_eq!(altered.path, path);
    assert_eq!(altered.slowdown(&original), Some(20.0));
}

/// §6.4: "If the migration cost is greater than the blocking time, the
/// subprogram is delayed by only the difference between them."
#[test]
fn a_blocked_rank_that_moves_is_delayed_by_the_difference_only() {
    let ranks: [&[Op]; 2] = [&[receive(1), compute(5)], &[compute(20), send(0)]];
    let owners = [owner(1, &[12, 13]), owner(2, &[]), owner(3, &[])];
    let late = execute(&ranks, &owners, &Model::phalen1994(s(10)));
    assert_eq!(late.execution, s(20 + 2 + 5));
    // Blocked for 12 s, then moved for 10 s, then worked for 5 s.
    let path = Breakdown { compute: s(5), messages: s(12), moving: s(10), ..Breakdown::default() };
    assert_eq!((late.path, late.last_rank, late.on_critical_path), (path, path, 1));
}

#[test]
fn who_arrives_at_a_busy_workstation_moves_again_at_once() {
    // The last idle first: the second, busy on arrival; then the third.
    let owners = [owner(1, &[40]), owner(2, &[45]), owner(3, &[])];
    let again = execute_one(&owners, &Model::phalen1994(s(10)));
    assert_eq!(again.execution, s(120));
    assert_eq!((again.moves, again.busy_transitions, again.nodes_used), (2, 2, 3));
    // Busy and idle again before the arrival: nobody noticed.
    let owners = [owner(1, &[40]), owner(2, &[45, 48]), owner(3, &[])];
    let once = execute_one(&owners, &Model::phalen1994(s(10)));
    assert_eq!((once.execution, once.moves), (s(110), 1));
}

#[test]
fn who_finds_no_idle_workstation_waits_for_one_and_then_moves() {
    let owners = [owner(1, &[40, 60])];
    let waited = execute_one(&owners, &Model::phalen1994(s(10)));
    let path = Breakdown { compute: s(100), waiting: s(20), moving: s(10), ..Breakdown::default() };
    assert_eq!((waited.execution, waited.path, waited.waits), (s(130), path, 1));
    // Its process stayed beside the owner until he left.
    assert_eq!(waited.shared_frozen, s(20));
    let late = Owner { idle: false, since: s(1), changes: vec![s(30)] };
    let begun_late = execute_one(&[late], &Model::phalen1994(s(10)));
    assert_eq!((begun_late.execution, begun_late.path.waiting), (s(130), s(30)));
}

#[test]
fn who_is_suspended_goes_on_when_the_owner_leaves() {
    let owners = [owner(1, &[40, 60]), owner(2, &[])];
    let frozen = execute_one(&owners, &with(OnBusy::suspend(None, Reaction::Retreat)));
    assert_eq!((frozen.execution, frozen.path.frozen, frozen.moves), (s(120), s(20), 0));
    assert_eq!((frozen.shared_frozen, frozen.shared_computing), (s(20), s(0)));
}

#[test]
fn who_loses_patience_migrates_rolls_back_or_retreats() {
    let owners = [owner(1, &[40, 60]), owner(2, &[])];
    let patience = |seconds, then| {
        execute_one(&owners, &with(OnBusy::suspend(Some(s(seconds)), then))).execution
    };
    assert_eq!(patience(30, Reaction::Migrate), s(120));
    assert_eq!(patience(4, Reaction::Migrate), s(100 + 4 + 7));
    assert_eq!(patience(4, Reaction::Rollback), s(40 + 4 + 5 + 100));
    assert_eq!(patience(4, Reaction::Retreat), s(40 + 4 + 3 + 100));
}

#[test]
fn who_is_reniced_goes_on_with_its_share() {
    let model = Model { renice_share: 0.25, ..with(OnBusy::at_once(Reaction::Renice)) };
    let slowed = execute_one(&[owner(1, &[40, 60])], &model);
    assert_eq!((slowed.execution, slowed.path.slowed), (s(115), s(15)));
    assert_eq!((slowed.shared_computing, slowed.shared_frozen), (s(20), s(0)));
}

#[test]
fn who_rolls_back_begins_its_subtask_anew_and_sends_nothing_twice() {
    // The owner returns 30 s into the second subtask, after its first send.
    let ranks: [&[Op]; 2] = [
        &[compute(50), send(1), receive(1), compute(20), send(1), compute(80)],
        &[receive(0), send(0), receive(0)],
    ];
    let owners = [owner(1, &[80]), owner(2, &[]), owner(3, &[])];
    let back = execute(&ranks, &owners, &with(OnBusy::at_once(Reaction::Rollback)));
    assert_eq!((back.execution, back.wasted), (s(50 + 30 + 5 + 100), s(30)));
    let path = Breakdown { compute: s(150), repeated: s(30), moving: s(5), ..Breakdown::default() };
    assert_eq!(back.path, path);
    let kept = execute(&ranks, &owners, &with(OnBusy::at_once(Reaction::Migrate)));
    assert_eq!((kept.execution, kept.wasted), (s(157), s(0)));
}

#[test]
fn who_stands_at_a_receive_has_no_subtask_to_lose() {
    let ranks: [&[Op]; 2] = [&[compute(10), receive(1)], &[compute(50), send(0)]];
    let owners = [owner(1, &[20]), owner(2, &[]), owner(3, &[])];
    let back = execute(&ranks, &owners, &with(OnBusy::at_once(Reaction::Retreat)));
    assert_eq!((back.execution, back.wasted, back.moves), (s(50), s(0), 1));
}

#[test]
fn a_frozen_rank_moves_to_what_turns_idle_if_the_model_grows() {
    let busy_until_50 = Owner { idle: false, since: s(1), changes: vec![s(50)] };
    let owners = [owner(1, &[40, 90]), busy_until_50];
    let stays = with(OnBusy::suspend(None, Reaction::Retreat));
    assert_eq!(execute_one(&owners, &stays).execution, s(150));
    let grows = execute_one(&owners, &Model { grows: true, ..stays });
    assert_eq!((grows.execution, grows.moves), (s(40 + 10 + 7 + 60), 1));
}

#[test]
fn a_spawned_rank_takes_its_workstation_when_the_model_says_so() {
    let ranks: [&[Op]; 2] = [&[compute(30), Op::Spawn { rank: 1 }], &[compute(10)]];
    // The second choice's owner comes and goes before the spawn.
    let owners = [owner(1, &[]), owner(2, &[5, 6]), owner(3, &[])];
    let model = Model::phalen1994(s(7));
    let from_the_start = execute(&ranks, &owners, &model);
    assert_eq!((from_the_start.execution, from_the_start.moves), (s(40), 1));
    let when_spawned = execute(&ranks, &owners, &Model { spawns: true, ..model });
    assert_eq!((when_spawned.execution, when_spawned.moves), (s(40), 0));
    assert_eq!(when_spawned.path.compute, s(40));
}

#[test]
fn the_oracle_takes_what_stays_idle_longest() {
    let owners = [owner(3, &[90]), owner(2, &[200]), owner(1, &[50])];
    let model = Model { placement: Placement::Oracle, ..Model::phalen1994(s(7)) };
    let oracle = execute_one(&owners, &model);
    assert_eq!((oracle.execution, oracle.moves), (s(100), 0));
}

#[test]
fn what_does_not_end_within_the_period_is_said_not_to() {
    let lab = Lab::of_owners(&[owner(1, &[])], s(60));
    let trace = Trace { name: "long".into(), ranks: vec![vec![compute(100)]] };
    let program = Program::compile(&trace, Network::default()).unwrap();
    let cut = run(&program, &lab, &Model::phalen1994(s(1)), &mut Scratch::default());
    assert_eq!((cut.finished, cut.execution, cut.useful), (false, s(60), s(60)));
    assert_eq!(cut.slowdown(&cut), None);
}
