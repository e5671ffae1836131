//! Leases, cuts and heartbeats.

use super::*;

#[test]
fn guests_end_with_the_lease_and_their_ends_are_kept() {
    let mut agent = running(1);
    let _ = agent.handle(at(1), offer(2, 1));
    let _ = agent.handle(at(4), Event::LinkDown);
    assert_eq!(said(&agent.wake(at_ms(9_799))), Vec::<String>::new());
    assert_eq!(said(&agent.wake(at_ms(9_800))), ["kill #1"]);
    assert_eq!(succeeds(&mut agent, at(11), 1), Vec::<String>::new());
    let again = said(&agent.handle(at(12), Event::LinkUp));
    assert_eq!(
        again,
        [
            "hello 0",
            "#1 retreated: the lease ended 0.0 s ago",
            "#2 retreated: not started: the lease ended 0.0 s ago"
        ]
    );
    let _ = agent.handle(at(12), frame(CoordinatorFrame::Acknowledge { fence: Fence::of(1) }));
    assert_eq!(agent.status(at(12)).ends_waiting, 1);
}

#[test]
fn a_short_cut_keeps_guests_that_are_still_wanted_and_only_those() {
    let mut agent = agent(2);
    for fence in [1, 2, 3] {
        let _ = agent.handle(at(0), offer(fence, 1));
    }
    let _ = agent.handle(at(1), Event::LinkDown);
    let _ = succeeds(&mut agent, at(5), 2);
    let hello = said(&agent.handle(at(6), Event::LinkUp));
    assert_eq!(hello, ["hello 2", "#2 succeeded"]);
    assert_eq!(said(&agent.handle(at(6), welcome(&[3]))), ["kill #1", "#1 stopped"]);
    assert_eq!(agent.status(at(6)).guests.len(), 1);
}

#[test]
fn heartbeats_are_frequent_with_guests_and_rare_without() {
    let mut agent = agent(1);
    let beats = |agent: &mut Agent, until: u64| {
        let mut beats = 0;
        while let Some(at) = agent.deadline().filter(|due| *due < at(until)) {
            for effect in agent.wake(at) {
                if let Effect::Send(AgentFrame::Heartbeat { sequence, .. }) = effect {
                    beats += 1;
                    let ack = CoordinatorFrame::HeartbeatAck { sequence };
                    let _ = agent.handle(at, frame(ack));
                }
            }
            let _ = agent.handle(at, load(0.0));
        }
        beats
    };
    assert_eq!(beats(&mut agent, 61), 4);
    let _ = agent.handle(at(61), offer(1, 1));
    assert_eq!(beats(&mut agent, 121), 20);
}
