//! What is offered, and waits for a place.

use super::*;

#[test]
fn offers_wait_in_order_for_a_place_and_too_many_are_refused() {
    let mut agent = agent(1);
    assert_eq!(said(&agent.handle(at(0), offer(1, 1))), ["start #1"]);
    for fence in 2..66 {
        assert_eq!(said(&agent.handle(at(0), offer(fence, 1))), Vec::<String>::new());
    }
    let refused = said(&agent.handle(at(0), offer(66, 1)));
    assert_eq!(refused, ["#66 refused: 64 attempts are waiting here already"]);
    assert_eq!(succeeds(&mut agent, at(0), 1), ["start #2", "#1 succeeded"]);
}

#[test]
fn with_too_little_room_what_runs_goes_on_and_nothing_is_begun() {
    let mut agent = agent(1);
    let room = |bytes_free| {
        Event::Room(Room { at: "/data".into(), bytes_free, bytes_min: 4_096, ..Room::default() })
    };
    assert_eq!(said(&agent.handle(at(0), offer(1, 1))), ["start #1"]);
    assert_eq!(said(&agent.handle(at(0), offer(2, 1))), Vec::<String>::new());
    let why = "disk: 9 B free in /data, expected 4.0 KiB";
    let told = said(&agent.handle(at(1), room(9)));
    assert_eq!(told, [format!("unready: {why}"), format!("#2 refused: {why}")]);
    assert_eq!(agent.status(at(1)).unready.as_deref(), Some(why));
    assert_eq!(said(&agent.handle(at(1), room(8))), Vec::<String>::new(), "no news");
    let refused = said(&agent.handle(at(2), offer(3, 1)));
    assert_eq!(refused, ["#3 refused: disk: 8 B free in /data, expected 5.0 KiB"]);
    assert_eq!(said(&agent.handle(at(2), room(4_500))), Vec::<String>::new(), "not enough yet");
    assert_eq!(said(&agent.handle(at(2), room(5_120))), ["ready"]);
    assert_eq!(succeeds(&mut agent, at(2), 1), ["#1 succeeded"]);
    assert_eq!(said(&agent.handle(at(2), offer(4, 1))), ["start #4"]);
}

#[test]
fn whoever_shares_a_place_starts_beside_whom_it_shares_it_with_and_others_wait() {
    let mut agent = agent(1);
    let riders = |fences: &[u32]| {
        let fences = fences.iter().copied().map(Fence::of).collect();
        frame(CoordinatorFrame::Riders { fences })
    };
    assert_eq!(said(&agent.handle(at(0), offer(1, 1))), ["start #1"]);
    assert_eq!(said(&agent.handle(at(0), offer(2, 1))), Vec::<String>::new());
    assert_eq!(said(&agent.handle(at(0), riders(&[3]))), Vec::<String>::new());
    assert_eq!(said(&agent.handle(at(0), offer(3, 1))), ["start #3"], "past the one that waits");
    // The place is its own from now on, and nobody else's when the other ends.
    assert_eq!(said(&agent.handle(at(0), riders(&[]))), Vec::<String>::new());
    assert_eq!(succeeds(&mut agent, at(0), 1), ["#1 succeeded"]);
    assert_eq!(succeeds(&mut agent, at(0), 3), ["start #2", "#3 succeeded"]);
}

#[test]
fn while_the_owner_is_here_offers_are_refused_with_the_reason() {
    let mut agent = agent(1);
    let _ = agent.handle(at(1), typed());
    let refused = said(&agent.handle(at(2), offer(1, 1)));
    assert_eq!(refused, ["#1 refused: busy: pts/3, 1.0 s ago"]);
    let unknown = said(&agent.handle(at(2), offer(2, 9)));
    assert_eq!(unknown, ["#2 refused: job 9 was not described"]);
}

#[test]
fn an_offer_that_comes_again_is_answered_once_and_an_overtaken_one_is_refused() {
    let mut agent = agent(2);
    assert_eq!(said(&agent.handle(at(0), offer(5, 1))), ["start #5"]);
    assert_eq!(said(&agent.handle(at(0), offer(5, 1))), Vec::<String>::new());
    let refused = said(&agent.handle(at(0), offer(4, 1)));
    assert_eq!(refused, ["#4 refused: overtaken by attempt #5"]);
}

#[test]
fn a_lease_that_lapsed_without_guests_is_asked_for_when_an_offer_comes() {
    let mut agent = agent(1);
    assert_eq!(said(&agent.handle(at(12), offer(1, 1))), ["heartbeat 1"]);
    assert_eq!(said(&agent.handle(at(12), offer(2, 1))), Vec::<String>::new(), "asked already");
    let ack = frame(CoordinatorFrame::HeartbeatAck { sequence: 1 });
    assert_eq!(said(&agent.handle(at(13), ack)), ["start #1"]);
    // Ten seconds from when it was asked for, less what clocks may be wrong by.
    assert_eq!(agent.status(at(13)).lease_left, Some(Duration::from_millis(8_800)));
}
