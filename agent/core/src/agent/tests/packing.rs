//! What guests have of what is lent.

use super::*;

const GIB: u64 = 1 << 30;

/// Of four cores three are lent, with six GiB and a GPU.
fn lending() -> Agent {
    let facts =
        Facts { memory_bytes: 16 * GIB, memory_lent_bytes: 6 * GIB, gpus: 2, ..setup(3).facts };
    let (mut agent, _) = Agent::new(Moment::ZERO, Setup { facts, ..setup(3) });
    let well = Observation::Health { sensor: Sensor::Terminals, health: Health::Well };
    let _ = agent.handle(Moment::ZERO, Event::Observed(well));
    let _ = agent.handle(at(0), load(0.0));
    let _ = agent.handle(at(0), Event::LinkUp);
    let _ = agent.handle(at(0), welcome(&[]));
    agent
}

fn asks(agent: &mut Agent, number: u32, cores: u16, memory_gib: u64, gpus: u16) {
    let mut spec = JobSpec::new(vec!["/bin/true".into()], IndexRange::count_of(100).unwrap());
    (spec.cores, spec.gpus) = (cores, gpus);
    spec.limits.memory_bytes_max = memory_gib * GIB;
    let _ = agent.handle(at(0), described(number, spec));
}

/// What a guest may use, when it is started.
fn given(effects: &[Effect]) -> Vec<(u32, u64, Vec<u16>)> {
    let started = effects.iter().filter_map(|effect| {
        let Effect::Prepare(start) = effect else { return None };
        let gib = start.limits.memory_bytes_max / GIB;
        Some((start.at.fence.number, gib, start.gpus.clone()))
    });
    started.collect()
}

#[test]
fn a_guest_may_use_what_its_job_asks_for_or_the_part_that_goes_with_its_cores() {
    let mut agent = lending();
    asks(&mut agent, 1, 2, 0, 1);
    asks(&mut agent, 2, 1, 1, 1);
    assert_eq!(given(&agent.handle(at(0), offer(1, 1))), [(1, 4, vec![0])]);
    assert_eq!(given(&agent.handle(at(0), offer(2, 2))), [(2, 1, vec![1])]);
}

#[test]
fn what_there_is_not_enough_for_waits_and_holds_up_nobody_else() {
    let mut agent = lending();
    asks(&mut agent, 1, 2, 5, 0);
    asks(&mut agent, 2, 2, 1, 0);
    asks(&mut agent, 3, 1, 2, 0);
    asks(&mut agent, 4, 1, 1, 0);
    assert_eq!(given(&agent.handle(at(0), offer(1, 1))).len(), 1);
    assert_eq!(given(&agent.handle(at(0), offer(2, 2))), [], "a core is free");
    assert_eq!(given(&agent.handle(at(0), offer(3, 3))), [], "a GiB is free");
    assert_eq!(given(&agent.handle(at(0), offer(4, 4))), [(4, 1, vec![])]);
    let ended = exits(&mut agent, at(1), 1, exit(Outcome::Succeeded));
    assert_eq!(given(&ended), [(2, 1, vec![])], "the oldest that there is enough for");
    let ended = exits(&mut agent, at(2), 4, exit(Outcome::Succeeded));
    assert_eq!(given(&ended), [(3, 2, vec![])]);
}

/// Whatever the coordinator thinks: it is not trusted with the owner's part.
#[test]
fn what_would_take_of_the_owners_part_is_refused() {
    let mut agent = lending();
    asks(&mut agent, 1, 4, 0, 0);
    asks(&mut agent, 2, 1, 7, 0);
    asks(&mut agent, 3, 1, 0, 3);
    for (fence, told) in [
        (1, "#1 refused: it asks for 4 cores, and 3 cores are lent here"),
        (2, "#2 refused: it asks for 7.0 GiB of memory, and 6.0 GiB of memory are lent here"),
        (3, "#3 refused: it asks for 3 GPUs, and 2 GPUs are lent here"),
    ] {
        assert_eq!(said(&agent.handle(at(0), offer(fence, fence))), [told]);
    }
}

#[test]
fn a_guest_of_two_cores_waits_while_its_owner_needs_one_of_them() {
    let mut agent = agent(2);
    asks(&mut agent, 6, 2, 0, 0);
    let used = |ms| {
        let cpu = Some(Duration::from_millis(ms));
        let kernel = Some(LoadAverages { one: 0.0, five: 0.0, fifteen: 0.0 });
        Event::Observed(Observation::Load(LoadSample { cpu, kernel, ..LoadSample::default() }))
    };
    let _ = agent.handle(at(1), used(0));
    let _ = agent.handle(at(3), used(800));
    let presence = agent.presence(at(3));
    assert_eq!((presence.slots, presence.busy), (3, false), "{presence:?}");
    assert_eq!(given(&agent.handle(at(3), offer(1, 6))), []);
    assert_eq!(given(&agent.handle(at(5), used(800))), [(1, 0, vec![])]);
}
