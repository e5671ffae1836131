//! Ends that the coordinator knows, or has lost.

use super::*;

fn welcome_of(generation: u32, newest: Fence) -> Event {
    frame(CoordinatorFrame::Welcome {
        workstation: WorkstationId(1),
        name: "ada".into(),
        lease: LEASE,
        heartbeat: Duration::from_secs(3),
        heartbeat_without_guests: Duration::from_secs(15),
        keep: vec![],
        generation: Generation(generation),
        newest,
    })
}

/// Attempt 1 has succeeded, and the coordinator has acknowledged it and died.
fn delivered() -> Agent {
    let mut agent = running(1);
    assert_eq!(succeeds(&mut agent, at(0), 1), ["#1 succeeded"]);
    let acknowledged = CoordinatorFrame::Acknowledge { fence: Fence::of(1) };
    assert_eq!(said(&agent.handle(at(0), frame(acknowledged))), Vec::<String>::new());
    let _ = agent.handle(at(1), Event::LinkDown);
    let hello = agent.handle(at(2), Event::LinkUp);
    let Some(Effect::Send(AgentFrame::Hello { seen, .. })) = hello.first() else {
        panic!("{hello:?}")
    };
    assert_eq!(*seen, Fence::of(1));
    agent
}

#[test]
fn a_coordinator_that_knows_an_end_is_not_told_it_again() {
    let told = said(&delivered().handle(at(2), welcome_of(1, Fence::of(1))));
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn a_coordinator_whose_store_went_back_is_told_of_ends_until_it_acknowledges_them() {
    let mut agent = delivered();
    let told = said(&agent.handle(at(2), welcome_of(1, Fence::of(0))));
    assert_eq!(told, ["#1 succeeded", "#1 of 1.0"], "and whose it was");
    let acknowledged = CoordinatorFrame::Acknowledge { fence: Fence::of(1) };
    let _ = agent.handle(at(2), frame(acknowledged));
    let told = said(&agent.handle(at(2), welcome_of(1, Fence::of(0))));
    assert_eq!(told, ["#1 of 1.0"]);
    let told = said(&agent.handle(at(2), welcome_of(2, Fence::of(1))));
    assert_eq!(told, Vec::<String>::new(), "it knows");
}

#[test]
fn an_attempt_that_is_offered_after_its_end_is_not_run_again() {
    let mut agent = delivered();
    let _ = agent.handle(at(2), welcome_of(1, Fence::of(1)));
    let _ = agent.handle(at(2), known_job(1));
    assert_eq!(said(&agent.handle(at(2), offer(1, 1))), ["#1 succeeded"]);
}
