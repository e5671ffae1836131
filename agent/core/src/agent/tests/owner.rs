//! What guests do when their owner comes, pauses, or sends one away; and before a sleep.

use super::*;

#[test]
fn the_guest_is_frozen_before_anybody_is_told() {
    let mut agent = running(1);
    let effects = agent.handle(at(2), typed());
    assert_eq!(said(&effects), ["freeze #1", "busy", "#1 suspended", "TTY"]);
}

#[test]
fn each_job_has_its_own_reaction_and_those_that_wait_go_back() {
    let mut agent = agent(3);
    for (fence, job) in [(1, 1), (2, 2), (3, 3), (4, 1)] {
        let _ = agent.handle(at(0), offer(fence, job));
    }
    let effects = [
        "freeze #1",
        "kill #2",
        "busy",
        "#1 suspended",
        "#2 retreated: pts/3, 0.0 s ago",
        "#3 demoted",
        "#4 retreated: not started: pts/3, 0.0 s ago",
        "TTY",
    ];
    assert_eq!(said(&agent.handle(at(1), typed())), effects);
    assert_eq!(succeeds(&mut agent, at(2), 2), Vec::<String>::new());
    assert_eq!(agent.status(at(2)).guests.len(), 2);
}

#[test]
fn a_pause_stops_even_renicing_guests_is_kept_and_ends_by_itself() {
    let mut agent = running(3);
    let until = Some(PauseEnd { at: at(8), said: "17:40".into() });
    let pause = Pause { by: "ada".into(), until };
    let effects = said(&agent.handle(at(1), Event::Pause(pause)));
    assert_eq!(effects, ["freeze #1", "busy", "#1 suspended", "TTY", "persist true"]);
    assert_eq!(agent.status(at(2)).verdict, "busy: paused by ada until 17:40");
    assert_eq!(agent.deadline(), Some(at(3)), "the heartbeat");
    let _ = agent.wake(at(3));
    let _ = agent.handle(at(3), frame(CoordinatorFrame::HeartbeatAck { sequence: 1 }));
    let effects = said(&agent.wake(at(8)));
    assert_eq!(effects[..5], ["thaw #1", "idle", "#1 resumed", "IDLE", "persist false"]);
}

#[test]
fn a_pause_survives_a_restart() {
    let pause = Some(Pause { by: "ada".into(), until: None });
    let (agent, effects) = Agent::new(at(0), Setup { pause: pause.clone(), ..setup(1) });
    assert_eq!(agent.status(at(0)).pause, pause);
    assert_eq!(said(&effects), ["START", "TTY"]);
}

#[test]
fn the_owner_can_send_one_guest_away() {
    let mut agent = agent(2);
    for fence in [1, 2] {
        let _ = agent.handle(at(0), offer(fence, 1));
    }
    let stop = Event::Stop { fence: Fence::of(1), by: "ada".into() };
    assert_eq!(said(&agent.handle(at(1), stop)), ["kill #1", "#1 retreated: stopped by ada"]);
}

#[test]
fn before_a_sleep_all_work_goes_back_and_after_it_the_quiet_period_begins() {
    let mut agent = running(3);
    let _ = agent.handle(at(0), offer(2, 1));
    let effects = said(&agent.handle(at(1), Event::AboutToSleep));
    let told = [
        "kill #1",
        "#1 retreated: the machine is about to sleep",
        "#2 retreated: not started: the machine is about to sleep",
        "busy",
        "leaving",
        "FINISH",
    ];
    assert_eq!(effects, told);
    assert_eq!(succeeds(&mut agent, at(1), 1), ["ready to sleep"]);
    let effects = said(&agent.handle(at(4_000), Event::Woke));
    assert_eq!(effects[0], "busy", "its slots are back: {effects:?}");
    assert!(effects.contains(&"START".to_owned()));
    let _ = agent.handle(at(4_001), load(0.0));
    assert!(agent.presence(at(4_001)).busy);
}

#[test]
fn a_stopping_agent_leaves_no_guest_and_takes_none() {
    let mut agent = running(1);
    let effects = said(&agent.handle(at(1), Event::ShutDown { reason: "asked to stop".into() }));
    assert_eq!(effects[0], "kill #1");
    assert_eq!(effects[effects.len() - 1], "FINISH");
    assert_eq!(succeeds(&mut agent, at(1), 1), ["ready to stop"]);
    let refused = said(&agent.handle(at(1), offer(2, 1)));
    assert!(refused[0].starts_with("#2 refused: busy"), "{refused:?}");
}
