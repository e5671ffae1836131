//! Small random cases. Times are a few nanoseconds, so that much happens at
//! the same moment.

use std::time::Duration;

use gleaner_common::job::{OnBusy, Reaction};
use gleaner_common::trace::{Op, Trace};
use gleaner_coordinator_core::Policy;
use gleaner_replay::{Costs, Lab, Machine, Model, Network, Owner, Placement, Program};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) trace: Trace,
    pub(crate) network: Network,
    pub(crate) owners: Vec<Owner>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) span: Duration,
    pub(crate) model: Model,
}

const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

impl Case {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let network = if rng.random_bool(0.3) {
            Network { latency: ns(rng.random_range(0..6)), bytes_per_s: 1e9 }
        } else {
            Network::default()
        };
        let span = ns(rng.random_range(50..3_000));
        let workstations = rng.random_range(1..9);
        let trace = trace(&mut rng);
        let owners: Vec<Owner> = (0..workstations).map(|_| owner(&mut rng, span)).collect();
        let model = model(&mut rng);
        let machines = owners.iter().map(|owner| machine(&mut rng, owner)).collect();
        Self { trace, network, owners, machines, span, model }
    }

    pub(crate) fn program(&self) -> Program {
        Program::compile(&self.trace, self.network).unwrap()
    }

    pub(crate) fn lab(&self) -> Lab {
        Lab::of_owners(&self.owners, self.span).with_machines(&self.machines)
    }

    /// How long a message takes, in the slow simulator's own words.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few bytes")]
    pub(crate) fn delay(&self, bytes: u64) -> u64 {
        let transfer = (bytes as f64 / self.network.bytes_per_s * 1e9).round() as u64;
        transfer + u64::try_from(self.network.latency.as_nanos()).unwrap()
    }
}

/// What some ranks do in a random order that is possible: so no rank waits
/// for ever.
fn trace(rng: &mut StdRng) -> Trace {
    let count = rng.random_range(1..6_u32);
    let mut ranks: Vec<Vec<Op>> = vec![vec![]; count as usize];
    let mut alive: Vec<u32> =
        (0..count).filter(|rank| *rank == 0 || rng.random_bool(0.8)).collect();
    let mut sent: Vec<(u32, u32, u32)> = vec![];
    for _ in 0..rng.random_range(0..60) {
        let rank = *alive.choose(rng).unwrap();
        let ops = &mut ranks[rank as usize];
        let for_me = |message: &(usize, &(u32, u32, u32))| message.1.1 == rank;
        let open: Vec<usize> = sent.iter().enumerate().filter(for_me).map(|(at, _)| at).collect();
        match rng.random_range(0..10) {
            0..4 if !matches!(ops.last(), Some(Op::Compute { .. })) => {
                ops.push(Op::Compute { nanos: rng.random_range(0..40) });
            }
            4..6 => {
                let (to, tag) = (rng.random_range(0..count), rng.random_range(0..2));
                ops.push(Op::Send { to, bytes: rng.random_range(0..5), tag });
                sent.push((rank, to, tag));
            }
            6 => {
                let unborn: Vec<u32> = (0..count).filter(|other| !alive.contains(other)).collect();
                if let Some(&born) = unborn.choose(rng) {
                    ops.push(Op::Spawn { rank: born });
                    alive.push(born);
                }
            }
            _ => {
                if let Some(&at) = open.choose(rng) {
                    let (from, to, tag) = sent[at];
                    // The oldest of its kind.
                    let oldest = sent.iter().position(|other| *other == (from, to, tag)).unwrap();
                    sent.remove(oldest);
                    ops.push(Op::Receive { from, tag });
                }
            }
        }
    }
    for rank in (0..count).filter(|rank| !alive.contains(rank)) {
        // Nobody spawned it, so it begins by itself.
        ranks[rank as usize].clear();
    }
    Trace { name: "random".into(), ranks }
}

fn owner(rng: &mut StdRng, span: Duration) -> Owner {
    let mut changes = vec![];
    let (idle, busy) = (rng.random_range(1..200), rng.random_range(1..60));
    let begins_idle = rng.random_bool(0.7);
    let (mut at, mut is_idle) = (0, begins_idle);
    if rng.random_bool(0.85) {
        loop {
            at += rng.random_range(1..=if is_idle { idle } else { busy });
            is_idle = !is_idle;
            changes.push(ns(at));
            // One change or a few may come after the end.
            if ns(at) > span && rng.random_bool(0.5) {
                break;
            }
        }
    }
    Owner { idle: begins_idle, since: ns(rng.random_range(0..20)), changes }
}

fn machine(rng: &mut StdRng, owner: &Owner) -> Machine {
    let loads = 0..=owner.changes.len();
    Machine {
        speed: *[0.0, 50.0, 100.0].choose(rng).unwrap(),
        loads: loads.map(|_| *[0.0, 0.1, 0.2].choose(rng).unwrap()).collect(),
    }
}

fn model(rng: &mut StdRng) -> Model {
    let placements = [
        Placement::Core(Policy::LastIdleFirst),
        Placement::Core(Policy::FirstIdleFirst),
        Placement::Core(Policy::Ranked),
        Placement::Oracle,
    ];
    let moving = [Reaction::Migrate, Reaction::Rollback, Reaction::Retreat];
    let on_busy = match rng.random_range(0..7) {
        0..3 => OnBusy::at_once(*moving.choose(rng).unwrap()),
        3 => OnBusy::at_once(Reaction::Renice),
        4 => OnBusy::suspend(None, Reaction::Retreat),
        5 => OnBusy::suspend_by_cost(*moving.choose(rng).unwrap()),
        _ => {
            let patience = Some(ns(rng.random_range(0..40)));
            OnBusy::suspend(patience, *moving.choose(rng).unwrap())
        }
    };
    let mut cost = || ns(if rng.random_bool(0.2) { 0 } else { rng.random_range(0..30) });
    let costs = Costs { migrate: cost(), rollback: cost(), retreat: cost() };
    Model {
        placement: *placements.choose(rng).unwrap(),
        on_busy,
        costs,
        renice_share: *[0.1, 0.25, 0.5, 1.0].choose(rng).unwrap(),
        grows: rng.random_bool(0.4),
        spawns: rng.random_bool(0.5),
        begins: ns(if rng.random_bool(0.7) { 0 } else { rng.random_range(0..30) }),
        ..Model::phalen1994(Duration::ZERO)
    }
}
