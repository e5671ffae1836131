//! What is told of the machine's sensors, and what is recorded.

use super::*;

#[test]
fn what_is_wrong_with_sensors_is_told_in_the_hello() {
    let mut agent = agent(1);
    let health = Health::Sick("event2: permission denied".into());
    let sick = Observation::Health { sensor: Sensor::Input, health };
    let _ = agent.handle(at(1), Event::Observed(sick));
    let effects = agent.handle(at(2), Event::LinkUp);
    let Some(Effect::Send(AgentFrame::Hello { facts, .. })) = effects.first() else {
        panic!("{effects:?}")
    };
    assert_eq!(facts.missing[0], "input: sick: event2: permission denied");
}

#[test]
fn how_sensors_are_now_is_told_when_it_changes() {
    let mut agent = agent(1);
    let health = |sensor, health| Event::Observed(Observation::Health { sensor, health });
    let here = "input: absent: has not reported, sessions: absent: has not reported, \
                connections: absent: has not reported";
    assert_eq!(said(&agent.handle(at(1), health(Sensor::Terminals, Health::Well))), [""; 0]);
    let absent = Health::Absent("no bus".into());
    let told = said(&agent.handle(at(1), health(Sensor::Sessions, absent)));
    assert_eq!(
        told,
        [format!(
            "lacks {}",
            here.replacen("sessions: absent: has not reported", "sessions: absent: no bus", 1)
        )]
    );
    for sensor in [Sensor::Sessions, Sensor::Connections] {
        let _ = agent.handle(at(2), health(sensor, Health::Well));
    }
    assert_eq!(said(&agent.handle(at(3), health(Sensor::Input, Health::Well))), ["lacks "]);
    // Most machines have no battery, and miss none.
    let none = Health::Absent("no battery".into());
    assert_eq!(said(&agent.handle(at(4), health(Sensor::Power, none))), [""; 0]);
}

#[test]
fn who_logs_in_is_told_at_once() {
    let mut agent = agent(1);
    let users = |uids: &[u32]| {
        let uids = uids.iter().copied().collect();
        Event::Observed(Observation::Users { by: Sensor::Terminals, uids })
    };
    assert_eq!(said(&agent.handle(at(1), users(&[1_000]))), ["idle"]);
    assert_eq!(said(&agent.handle(at(1), users(&[1_000]))), [""; 0]);
    assert_eq!(agent.presence(at(1)).users, 1);
}

#[test]
fn a_record_of_every_cause_but_both_comes_from_an_agent() {
    let mut agent = agent(1);
    let mut causes = BTreeSet::new();
    let mut note = |effects: Vec<Effect>| {
        for effect in effects {
            if let Effect::Record(transition) = effect {
                causes.insert(transition.cause);
            }
        }
    };
    note(Agent::new(at(0), setup(1)).1);
    note(agent.handle(at(1), typed()));
    note(agent.handle(at(70), load(0.0)));
    note(agent.handle(at(71), load(1.0)));
    note(agent.handle(at(140), load(2.0)));
    note(agent.handle(at(141), Event::AboutToSleep));
    let all = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Both);
    assert_eq!(causes, all.collect());
}
