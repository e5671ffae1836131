//! What leaves, and what arrives.

use super::*;

/// Lets time pass with an owner who is not here and a coordinator who answers;
/// what comes of it, heartbeats left out.
fn pass_until(agent: &mut Agent, end: Moment) -> Vec<String> {
    let mut all = vec![];
    while let Some(due) = agent.deadline().filter(|due| *due <= end) {
        let effects = agent.wake(due);
        let loads = agent.handle(due, load(0.0));
        for effect in effects.into_iter().chain(loads) {
            if let Effect::Send(AgentFrame::Heartbeat { sequence, .. }) = effect {
                let _ = agent.handle(due, frame(CoordinatorFrame::HeartbeatAck { sequence }));
            } else {
                all.extend(short(&effect));
            }
        }
    }
    all
}

#[test]
fn a_guest_that_moves_is_frozen_before_anybody_is_told_and_asks_to_leave() {
    let mut agent = running(4);
    let _ = agent.handle(at(0), Event::Weighed { fence: Fence::of(1), bytes: 77 });
    let effects = agent.handle(at(2), typed());
    assert_eq!(said(&effects), ["freeze #1", "busy", "#1 wants away: State", "TTY"]);
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Send(AgentFrame::Attempt(AttemptEvent::WantsAway { image_bytes: 77, .. }))
    )));
    assert_eq!(said(&departs(&mut agent, at_ms(2_500), 1, 5)), ["carry #1 to ws2"]);
    assert_eq!(said(&agent.handle(at_ms(2_500), depart(1, 5))), Vec::<String>::new());
    let cancel = frame(CoordinatorFrame::Cancel { fence: Fence::of(1) });
    assert_eq!(said(&agent.handle(at(4), cancel)), ["kill #1", "#1 stopped"]);
}

#[test]
fn what_leaves_is_held_and_asks_again_on_a_new_connection() {
    let mut agent = running(4);
    let _ = agent.handle(at(2), typed());
    let _ = agent.handle(at(3), Event::LinkDown);
    let again = said(&agent.handle(at(4), Event::LinkUp));
    assert_eq!(again, ["hello 1", "#1 wants away: State"]);
    assert_eq!(agent.held(), [(Fence::of(1), GuestState::Leaving)]);
    assert_eq!(said(&agent.handle(at(4), welcome(&[1]))), Vec::<String>::new());
    let _ = departs(&mut agent, at(4), 1, 5);
    let _ = agent.handle(at(5), Event::LinkDown);
    // Also when it was on its way: nobody may know of that any more.
    assert_eq!(said(&agent.handle(at(6), Event::LinkUp)), ["hello 1", "#1 wants away: State"]);
    let _ = agent.handle(at(6), stay(1));
    let _ = agent.handle(at(7), Event::LinkDown);
    assert_eq!(said(&agent.handle(at(8), Event::LinkUp)), ["hello 1"]);
}

#[test]
fn what_was_made_to_leave_asks_for_it_on_a_new_connection() {
    // Suspended, it did not ask.
    let mut agent = running(1);
    let _ = agent.handle(at(2), typed());
    assert_eq!(agent.held(), [(Fence::of(1), GuestState::Suspended)]);
    assert_eq!(said(&departs(&mut agent, at_ms(2_500), 1, 5)), ["carry #1 to ws2"]);
    let _ = agent.handle(at(4), Event::LinkDown);
    assert_eq!(said(&agent.handle(at(5), Event::LinkUp)), ["hello 1", "#1 wants away: State"]);
}

#[test]
fn an_owner_who_leaves_before_the_move_has_begun_keeps_the_guest() {
    let mut agent = running(4);
    let _ = agent.handle(at(2), typed());
    let _ = agent.handle(at(3), frame(CoordinatorFrame::HeartbeatAck { sequence: 1 }));
    let quiet = pass_until(&mut agent, at(63));
    assert_eq!(quiet, ["thaw #1", "idle", "#1 stays", "#1 resumed", "IDLE"]);
    let crossed = said(&agent.handle(at(63), depart(1, 5)));
    assert_eq!(crossed, ["#1 cannot leave: its owner has left"]);
}

#[test]
fn what_arrives_tells_so_and_goes_when_it_is_told() {
    let mut agent = agent(1);
    assert_eq!(said(&agent.handle(at(0), arrival(7, 4))), ["expect #7"]);
    assert_eq!(said(&lands(&mut agent, at(1), 7)), ["take #7 in", "#7 arrived"]);
    let _ = agent.handle(at(2), Event::LinkDown);
    assert_eq!(said(&agent.handle(at(3), Event::LinkUp)), ["hello 1", "#7 arrived"]);
    let _ = agent.handle(at(3), welcome(&[7]));
    assert_eq!(said(&agent.handle(at(3), go_on(7))), ["go #7", "#7 resumed"]);
    assert_eq!(said(&agent.handle(at(3), go_on(7))), Vec::<String>::new());
}

#[test]
fn what_cannot_arrive_is_refused_and_never_given_back_as_if_it_had_run() {
    let mut agent = agent(1);
    let _ = agent.handle(at(0), arrival(7, 4));
    let (fence, why) = (Fence::of(7), "criu cannot restore it".to_owned());
    let failed = KeeperEvent::CannotStart { fence, why, hopeless: false };
    let effects = said(&agent.handle(at(1), Event::Keeper(PlaceId(0), failed)));
    assert_eq!(effects, ["turn #7 away", "#7 refused: criu cannot restore it"]);
    let _ = agent.handle(at(1), arrival(8, 4));
    let effects = said(&agent.handle(at(2), typed()));
    assert_eq!(effects[0], "turn #8 away");
    assert!(effects.contains(&"#8 refused: not taken in: pts/3, 0.0 s ago".to_owned()));
}

#[test]
fn a_place_that_does_not_become_free_is_not_waited_for_long() {
    let mut agent = agent(1);
    let _ = agent.handle(at(0), offer(1, 1));
    assert_eq!(said(&agent.handle(at(0), arrival(7, 4))), Vec::<String>::new());
    let said_late = pass_until(&mut agent, at(30));
    assert_eq!(said_late, ["#7 refused: no place became free within 30 s"]);
}

#[test]
fn a_suspended_guest_waits_as_long_as_its_move_costs_if_its_job_leaves_that_to_us() {
    let mut agent = agent(1);
    let mut spec = JobSpec::new(vec!["/bin/true".into()], IndexRange::count_of(9).unwrap());
    spec.on_busy = OnBusy::suspend_by_cost(Reaction::Migrate);
    let _ = agent.handle(at(0), described(6, spec));
    let _ = agent.handle(at(0), offer(1, 6));
    let _ = agent.handle(at(0), Event::Started(Fence::of(1)));
    let took = Duration::from_millis(1_100);
    let _ = agent.handle(at(0), Event::Carried { bytes: 10 << 20, took });
    let _ = agent.handle(at(0), Event::Weighed { fence: Fence::of(1), bytes: 20 << 20 });
    let effects = said(&agent.handle(at(1), typed()));
    assert_eq!(effects, ["freeze #1", "busy", "#1 suspended", "TTY"]);
    assert_eq!(said(&agent.wake(at_ms(3_099))), ["heartbeat 1"]);
    assert_eq!(said(&agent.wake(at_ms(3_100))), ["#1 wants away: State"]);
}

/// Whoever wakes it: which places have a keeper made.
fn keepers_made(effects: &[Effect]) -> Vec<PlaceId> {
    let made = |effect: &Effect| {
        let Effect::SpawnKeeper { place, .. } = effect else { return None };
        Some(*place)
    };
    effects.iter().filter_map(made).collect()
}

/// It ends, and with it the keeper that was made for it alone.
fn is_over(agent: &mut Agent, now: Moment, fence: u32) -> Vec<Effect> {
    let place = place_of(agent, fence);
    let exit = Box::new(exit(Outcome::Succeeded));
    let mut effects = agent.handle(now, Event::Keeper(place, KeeperEvent::Ended { last: true }));
    effects.extend(agent.handle(now, guest(fence, guest::Event::Exited { exit, stays: false })));
    effects
}

#[test]
fn so_many_keepers_wait_for_guests_as_places_are_lent() {
    let mut agent = agent(1);
    assert_eq!(keepers_made(&agent.handle(at(0), offer(1, 4))), [PlaceId(0)]);
    let _ = agent.handle(at(0), Event::Started(Fence::of(1)));
    let _ = is_over(&mut agent, at(1), 1);
    // Its keeper has much to clear away: the next one is beside it.
    assert_eq!(keepers_made(&agent.handle(at(1), offer(2, 4))), [PlaceId(1)]);
    let _ = agent.handle(at(1), Event::Started(Fence::of(2)));
    let mut made = agent.handle(at(2), Event::Keeper(PlaceId(0), KeeperEvent::Gone));
    made.extend(is_over(&mut agent, at(2), 2));
    made.extend(agent.handle(at(3), Event::Keeper(PlaceId(1), KeeperEvent::Gone)));
    while let Some(due) = agent.deadline().filter(|due| *due < at(20)) {
        made.extend(agent.wake(due));
        made.extend(agent.handle(due, load(0.0)));
    }
    assert_eq!(keepers_made(&made), [PlaceId(0)]);
}
