use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gleaner_common::id::{SubprogramId, WorkstationId};
use gleaner_common::job::{IndexRange, JobSpec, OnBusy, Outcome, Patience, Reaction, StagedFile};
use gleaner_common::program::RankAt;
use gleaner_common::reaction::Keep;
use gleaner_common::usage::{Cause, LoadAverages};
use gleaner_common::wire::{Finished, GuestState, Offer, Printed};
use proptest::prelude::*;

use super::*;
use crate::load::LoadSample;
use crate::occupancy::{Health, PauseEnd, Sensor};

const LEASE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(40);

/// Times count from when the desk of these tests turned idle.
fn at(s: u64) -> Moment {
    at_ms(s * 1_000)
}

fn at_ms(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(1_000) + Duration::from_millis(ms)
}

fn load(one: f32) -> Event {
    let kernel = Some(LoadAverages { one, five: one, fifteen: one });
    Event::Observed(Observation::Load(LoadSample { kernel, ..LoadSample::default() }))
}

fn typed() -> Event {
    Event::Observed(Observation::Input { source: "pts/3".into(), ago: Duration::ZERO })
}

fn frame(frame: CoordinatorFrame) -> Event {
    Event::Frame(frame)
}

fn welcome(keep: &[u64]) -> Event {
    frame(CoordinatorFrame::Welcome {
        workstation: WorkstationId(1),
        name: "ada".into(),
        lease: LEASE,
        heartbeat: Duration::from_secs(3),
        heartbeat_without_guests: Duration::from_secs(15),
        keep: keep.iter().copied().map(Fence).collect(),
    })
}

/// The jobs that the tests' desks know, from 1 on.
const JOBS: [(Reaction, Reaction); 5] = [
    (Reaction::Suspend, Reaction::Retreat),
    (Reaction::Retreat, Reaction::Retreat),
    (Reaction::Renice, Reaction::Retreat),
    (Reaction::Migrate, Reaction::Retreat),
    (Reaction::Suspend, Reaction::Migrate),
];

fn known_job(number: u32) -> Event {
    let (reaction, then) = JOBS[number as usize - 1];
    let mut spec = JobSpec::new(vec!["/bin/true".into()], IndexRange::count_of(100).unwrap());
    spec.on_busy = OnBusy { reaction, patience: Patience::For(PATIENCE), then };
    described(number, spec)
}

fn arrival(fence: u64, job: u32) -> Event {
    let subprogram = SubprogramId { job: JobId(job), index: 0 };
    let arrival = Some(gleaner_common::program::Arrival { from: WorkstationId(9), old: Fence(1) });
    frame(CoordinatorFrame::Offer(Offer { fence: Fence(fence), subprogram, rank: None, arrival }))
}

fn depart(fence: u64, to: u64) -> Event {
    let at = RankAt {
        rank: 0,
        fence: Fence(to),
        workstation: WorkstationId(2),
        name: "ws2".into(),
        addresses: vec![],
    };
    frame(CoordinatorFrame::Depart { fence: Fence(fence), keep: Keep::State, to: at })
}

fn go_on(fence: u64) -> Event {
    frame(CoordinatorFrame::GoOn { fence: Fence(fence) })
}

fn stay(fence: u64) -> Event {
    frame(CoordinatorFrame::Stay { fence: Fence(fence) })
}

fn landed(fence: u64) -> Event {
    Event::Landed { fence: Fence(fence), bytes: 9, frozen: Duration::from_secs(1) }
}

fn described(number: u32, spec: JobSpec) -> Event {
    frame(CoordinatorFrame::Job { job: JobId(number), spec: Box::new(spec) })
}

fn offer(fence: u64, job: u32) -> Event {
    let subprogram = SubprogramId { job: JobId(job), index: 0 };
    frame(CoordinatorFrame::Offer(Offer {
        fence: Fence(fence),
        subprogram,
        rank: None,
        arrival: None,
    }))
}

fn exited(fence: u64) -> Event {
    let left = Some(Left::default());
    let exit = Exit { outcome: Outcome::Succeeded, cpu: Duration::from_secs(1), left };
    Event::Exited { fence: Fence(fence), exit }
}

fn setup(places: u16) -> Setup {
    Setup {
        incarnation: Incarnation(7),
        boot: BootId([1; 16]),
        facts: Facts { cores: 4, places, ..Facts::default() },
        criteria: Criteria::default(),
        pause: None,
    }
}

/// Connected and idle, with all of [`JOBS`].
fn desk(places: u16) -> Desk {
    let (mut desk, _) = Desk::new(Moment::ZERO, setup(places));
    let well = Observation::Health { sensor: Sensor::Terminals, health: Health::Well };
    let _ = desk.handle(Moment::ZERO, Event::Observed(well));
    let _ = desk.handle(at(0), load(0.0));
    let _ = desk.handle(at(0), Event::LinkUp);
    let _ = desk.handle(at(0), welcome(&[]));
    for number in 1..=5 {
        let _ = desk.handle(at(0), known_job(number));
    }
    assert!(!desk.presence(at(0)).busy, "{}", desk.presence(at(0)).reason);
    desk
}

/// Attempt 1 of this job runs.
fn running(job: u32) -> Desk {
    let mut desk = desk(1);
    assert_eq!(said(&desk.handle(at(0), offer(1, job))), ["start #1"]);
    assert_eq!(said(&desk.handle(at(0), Event::Started(Fence(1)))), ["#1 started"]);
    desk
}

/// Effects in short; presences and records are told by name only.
fn said(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(short).collect()
}

fn short(effect: &Effect) -> String {
    match effect {
        Effect::Freeze { fence, .. } => format!("freeze {fence}"),
        Effect::Thaw { fence, .. } => format!("thaw {fence}"),
        Effect::Demote { fence, .. } => format!("demote {fence}"),
        Effect::Restore { fence, .. } => format!("restore {fence}"),
        Effect::Kill { fence, .. } => format!("kill {fence}"),
        Effect::Empty { fence, .. } => format!("empty {fence}"),
        Effect::Start(start) => format!("start {}", start.fence),
        Effect::Again(start) => format!("again {}", start.fence),
        Effect::Expect(start) => format!("expect {}", start.fence),
        Effect::Go { fence, .. } => format!("go {fence}"),
        Effect::AskToRetreat { fence, .. } => format!("ask {fence} to retreat"),
        Effect::Depart(departure) => format!("carry {} to {}", departure.fence, departure.to.name),
        Effect::CallBack { fence, .. } => format!("call {fence} back"),
        Effect::Prepare { job, .. } => format!("prepare {job}"),
        Effect::Discard { job } => format!("discard {job}"),
        Effect::Abandon { fence } => format!("abandon {fence}"),
        Effect::Record(transition) => transition.cause.to_string(),
        Effect::PersistPause(pause) => format!("persist {}", pause.is_some()),
        Effect::ReadyToSleep => "ready to sleep".into(),
        Effect::ReadyToStop => "ready to stop".into(),
        Effect::Send(AgentFrame::Hello { held, .. }) => format!("hello {}", held.len()),
        Effect::Send(AgentFrame::Heartbeat { sequence, .. }) => format!("heartbeat {sequence}"),
        Effect::Send(AgentFrame::Presence(presence)) => {
            (if presence.busy { "busy" } else { "idle" }).into()
        }
        Effect::Send(AgentFrame::Leaving { .. }) => "leaving".into(),
        Effect::Send(AgentFrame::Relay { to, .. }) => format!("relay to {to}"),
        Effect::Send(AgentFrame::FromRank { fence, .. }) => format!("{fence} says"),
        Effect::Send(AgentFrame::Attempt(event)) => match event {
            AttemptEvent::Started { fence, .. } => format!("{fence} started"),
            AttemptEvent::Suspended { fence } => format!("{fence} suspended"),
            AttemptEvent::Demoted { fence } => format!("{fence} demoted"),
            AttemptEvent::Resumed { fence } => format!("{fence} resumed"),
            AttemptEvent::Finished(finished) => format!("{} {}", finished.fence, finished.outcome),
            AttemptEvent::Retreated { fence, reason, .. } => format!("{fence} retreated: {reason}"),
            AttemptEvent::Refused { fence, reason } => format!("{fence} refused: {reason}"),
            AttemptEvent::WantsAway { fence, keep, .. } => format!("{fence} wants away: {keep:?}"),
            AttemptEvent::Arrived { fence, .. } => format!("{fence} arrived"),
            AttemptEvent::CannotLeave { fence, reason, .. } => {
                format!("{fence} cannot leave: {reason}")
            }
            AttemptEvent::Stays { fence } => format!("{fence} stays"),
        },
    }
}

#[test]
fn the_guest_is_frozen_before_anybody_is_told() {
    let mut desk = running(1);
    let effects = desk.handle(at(2), typed());
    assert_eq!(said(&effects), ["freeze #1", "busy", "#1 suspended", "TTY"]);
}

#[test]
fn each_job_has_its_own_reaction_and_those_that_wait_go_back() {
    let mut desk = desk(3);
    for (fence, job) in [(1, 1), (2, 2), (3, 3), (4, 1)] {
        let _ = desk.handle(at(0), offer(fence, job));
    }
    let effects = [
        "freeze #1",
        "kill #2",
        "demote #3",
        "busy",
        "#1 suspended",
        "#2 retreated: pts/3, 0.0 s ago",
        "#3 demoted",
        "#4 retreated: not started: pts/3, 0.0 s ago",
        "TTY",
    ];
    assert_eq!(said(&desk.handle(at(1), typed())), effects);
    assert_eq!(said(&desk.handle(at(2), exited(2))), Vec::<String>::new());
    assert_eq!(desk.status(at(2)).guests.len(), 2);
}

#[test]
fn offers_wait_in_order_for_a_place_and_too_many_are_refused() {
    let mut desk = desk(1);
    assert_eq!(said(&desk.handle(at(0), offer(1, 1))), ["start #1"]);
    for fence in 2..66 {
        assert_eq!(said(&desk.handle(at(0), offer(fence, 1))), Vec::<String>::new());
    }
    let refused = said(&desk.handle(at(0), offer(66, 1)));
    assert_eq!(refused, ["#66 refused: 64 attempts are waiting here already"]);
    assert_eq!(said(&desk.handle(at(0), exited(1))), ["start #2", "#1 succeeded"]);
}

#[test]
fn while_the_owner_is_here_offers_are_refused_with_the_reason() {
    let mut desk = desk(1);
    let _ = desk.handle(at(1), typed());
    let refused = said(&desk.handle(at(2), offer(1, 1)));
    assert_eq!(refused, ["#1 refused: busy: pts/3, 1.0 s ago"]);
    let unknown = said(&desk.handle(at(2), offer(2, 9)));
    assert_eq!(unknown, ["#2 refused: job 9 was not described"]);
}

#[test]
fn an_offer_that_comes_again_is_answered_once_and_an_overtaken_one_is_refused() {
    let mut desk = desk(2);
    assert_eq!(said(&desk.handle(at(0), offer(5, 1))), ["start #5"]);
    assert_eq!(said(&desk.handle(at(0), offer(5, 1))), Vec::<String>::new());
    let refused = said(&desk.handle(at(0), offer(4, 1)));
    assert_eq!(refused, ["#4 refused: overtaken by attempt #5"]);
}

#[test]
fn a_lease_that_lapsed_without_guests_is_asked_for_when_an_offer_comes() {
    let mut desk = desk(1);
    assert_eq!(said(&desk.handle(at(12), offer(1, 1))), ["heartbeat 1"]);
    assert_eq!(said(&desk.handle(at(12), offer(2, 1))), Vec::<String>::new(), "asked already");
    let ack = frame(CoordinatorFrame::HeartbeatAck { sequence: 1 });
    assert_eq!(said(&desk.handle(at(13), ack)), ["start #1"]);
    assert_eq!(desk.status(at(13)).lease_left, Some(Duration::from_secs(9)));
}

#[test]
fn guests_end_with_the_lease_and_their_ends_are_kept() {
    let mut desk = running(1);
    let _ = desk.handle(at(1), offer(2, 1));
    let _ = desk.handle(at(4), Event::LinkDown);
    assert_eq!(desk.wake(at_ms(9_999)), []);
    assert_eq!(said(&desk.wake(at(10))), ["kill #1"]);
    assert_eq!(said(&desk.handle(at(11), exited(1))), Vec::<String>::new());
    let again = said(&desk.handle(at(12), Event::LinkUp));
    assert_eq!(
        again,
        [
            "hello 0",
            "#1 retreated: the lease ended 0.0 s ago",
            "#2 retreated: not started: the lease ended 0.0 s ago"
        ]
    );
    let _ = desk.handle(at(12), frame(CoordinatorFrame::Acknowledge { fence: Fence(1) }));
    assert_eq!(desk.status(at(12)).ends_waiting, 1);
}

#[test]
fn a_short_cut_keeps_guests_that_are_still_wanted_and_only_those() {
    let mut desk = desk(2);
    for fence in [1, 2, 3] {
        let _ = desk.handle(at(0), offer(fence, 1));
    }
    let _ = desk.handle(at(1), Event::LinkDown);
    let _ = desk.handle(at(5), exited(2));
    let hello = said(&desk.handle(at(6), Event::LinkUp));
    assert_eq!(hello, ["hello 2", "#2 succeeded"]);
    assert_eq!(said(&desk.handle(at(6), welcome(&[3]))), ["kill #1"]);
    assert_eq!(desk.status(at(6)).guests.len(), 1);
}

#[test]
fn heartbeats_are_frequent_with_guests_and_rare_without() {
    let mut desk = desk(1);
    let beats = |desk: &mut Desk, until: u64| {
        let mut beats = 0;
        while let Some(at) = desk.deadline().filter(|due| *due < at(until)) {
            for effect in desk.wake(at) {
                if let Effect::Send(AgentFrame::Heartbeat { sequence, .. }) = effect {
                    beats += 1;
                    let ack = CoordinatorFrame::HeartbeatAck { sequence };
                    let _ = desk.handle(at, frame(ack));
                }
            }
            let _ = desk.handle(at, load(0.0));
        }
        beats
    };
    assert_eq!(beats(&mut desk, 61), 4);
    let _ = desk.handle(at(61), offer(1, 1));
    assert_eq!(beats(&mut desk, 121), 20);
}

#[test]
fn a_cancelled_guest_dies_without_a_word_wherever_it_is() {
    let mut desk = desk(1);
    let cancel = |fence| frame(CoordinatorFrame::Cancel { fence: Fence(fence) });
    for fence in [1, 2] {
        let _ = desk.handle(at(0), offer(fence, 1));
    }
    assert_eq!(said(&desk.handle(at(1), cancel(2))), Vec::<String>::new());
    assert_eq!(said(&desk.handle(at(1), cancel(1))), ["kill #1"]);
    assert_eq!(said(&desk.handle(at(1), exited(1))), Vec::<String>::new());
    let _ = desk.handle(at(1), offer(3, 1));
    let exit = Exit { outcome: Outcome::Succeeded, cpu: Duration::ZERO, left: None };
    let _ = desk.handle(at(2), Event::Exited { fence: Fence(3), exit });
    assert_eq!(said(&desk.handle(at(2), cancel(3))), ["abandon #3"]);
    assert_eq!(desk.status(at(2)).ends_waiting, 0);
}

#[test]
fn a_result_that_is_still_staged_leaves_its_place_and_survives_the_owner() {
    let mut desk = running(1);
    let _ = desk.handle(at(1), offer(2, 1));
    let exit = Exit { outcome: Outcome::ExitCode(3), cpu: Duration::ZERO, left: None };
    let effects = desk.handle(at(1), Event::Exited { fence: Fence(1), exit });
    assert_eq!(said(&effects), ["start #2"]);
    let _ = desk.handle(at(2), typed());
    assert!(desk.knows(Fence(1)));
    let left = Left { stdout: Printed::Inline(b"out".to_vec()), ..Left::default() };
    let effects = desk.handle(at(3), Event::Collected { fence: Fence(1), left });
    let [Effect::Send(AgentFrame::Attempt(AttemptEvent::Finished(finished))), ..] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(finished.outcome, Outcome::ExitCode(3));
    assert_eq!(finished.stdout, Printed::Inline(b"out".to_vec()));
}

#[test]
fn input_files_are_fetched_once_and_hold_up_nobody_else() {
    let mut desk = desk(1);
    let mut spec = JobSpec::new(vec!["/bin/cat".into()], IndexRange::count_of(9).unwrap());
    let hash = gleaner_common::id::ContentHash([0; 32]);
    let (path, size_bytes, executable) = ("data".into(), 9, false);
    spec.inputs = vec![StagedFile { path, hash, size_bytes, executable }];
    let _ = desk.handle(at(0), described(4, spec));
    assert_eq!(said(&desk.handle(at(0), offer(1, 4))), ["prepare 4"]);
    assert_eq!(said(&desk.handle(at(0), offer(2, 4))), Vec::<String>::new());
    assert_eq!(said(&desk.handle(at(0), offer(3, 1))), ["start #3"]);
    let _ = desk.handle(at(1), Event::Staged(JobId(4)));
    assert_eq!(said(&desk.handle(at(1), exited(3))), ["start #1", "#3 succeeded"]);
    let forget = frame(CoordinatorFrame::Forget { job: JobId(4) });
    assert_eq!(said(&desk.handle(at(1), forget)), Vec::<String>::new(), "#2 waits");
    assert_eq!(said(&desk.handle(at(2), exited(1))), ["start #2", "#1 succeeded", "discard 4"]);
}

#[test]
fn files_that_cannot_be_had_end_what_waits_for_them() {
    for (hopeless, end) in
        [(true, "#1 cannot start: no such blob"), (false, "#1 refused: no such blob")]
    {
        let mut desk = desk(1);
        let mut spec = JobSpec::new(vec!["/bin/cat".into()], IndexRange::count_of(9).unwrap());
        let hash = gleaner_common::id::ContentHash([0; 32]);
        let (path, size_bytes, executable) = ("data".into(), 9, false);
        spec.inputs = vec![StagedFile { path, hash, size_bytes, executable }];
        let _ = desk.handle(at(0), described(4, spec));
        let _ = desk.handle(at(0), offer(1, 4));
        let failed =
            Event::StagingFailed { job: JobId(4), reason: "no such blob".into(), hopeless };
        assert_eq!(said(&desk.handle(at(0), failed)), [end]);
        assert_eq!(said(&desk.handle(at(0), offer(2, 4))), ["prepare 4"], "tried again");
    }
}

#[test]
fn a_guest_that_cannot_start_gives_its_place_back() {
    let mut desk = desk(1);
    let _ = desk.handle(at(0), offer(1, 1));
    let _ = desk.handle(at(0), offer(2, 1));
    let reason = "no such program".to_owned();
    let failed = Event::StartFailed { fence: Fence(1), reason, hopeless: true };
    let effects = desk.handle(at(0), failed);
    assert_eq!(said(&effects), ["start #2", "#1 cannot start: no such program"]);
}

#[test]
fn limits_and_the_timeout_name_themselves() {
    let mut desk = running(1);
    let over = Event::OverLimit { fence: Fence(1), what: "memory 512 MiB".into() };
    assert_eq!(said(&desk.handle(at(1), over)), ["kill #1"]);
    let exit =
        Exit { outcome: Outcome::Signal(9), cpu: Duration::ZERO, left: Some(Left::default()) };
    let effects = desk.handle(at(1), Event::Exited { fence: Fence(1), exit });
    assert_eq!(said(&effects), ["#1 over its limit: memory 512 MiB"]);
}

#[test]
fn a_pause_stops_even_renicing_guests_is_kept_and_ends_by_itself() {
    let mut desk = running(3);
    let until = Some(PauseEnd { at: at(8), said: "17:40".into() });
    let pause = Pause { by: "ada".into(), until };
    let effects = said(&desk.handle(at(1), Event::Pause(pause)));
    assert_eq!(effects, ["freeze #1", "busy", "#1 suspended", "TTY", "persist true"]);
    assert_eq!(desk.status(at(2)).verdict, "busy: paused by ada until 17:40");
    assert_eq!(desk.deadline(), Some(at(3)), "the heartbeat");
    let _ = desk.wake(at(3));
    let _ = desk.handle(at(3), frame(CoordinatorFrame::HeartbeatAck { sequence: 1 }));
    let effects = said(&desk.wake(at(8)));
    assert_eq!(effects[..5], ["thaw #1", "idle", "#1 resumed", "IDLE", "persist false"]);
}

#[test]
fn a_pause_survives_a_restart() {
    let pause = Some(Pause { by: "ada".into(), until: None });
    let (desk, effects) = Desk::new(at(0), Setup { pause: pause.clone(), ..setup(1) });
    assert_eq!(desk.status(at(0)).pause, pause);
    assert_eq!(said(&effects), ["START", "TTY"]);
}

#[test]
fn the_owner_can_send_one_guest_away() {
    let mut desk = desk(2);
    for fence in [1, 2] {
        let _ = desk.handle(at(0), offer(fence, 1));
    }
    let stop = Event::Stop { fence: Fence(1), by: "ada".into() };
    assert_eq!(said(&desk.handle(at(1), stop)), ["kill #1", "#1 retreated: stopped by ada"]);
}

#[test]
fn before_a_sleep_all_work_goes_back_and_after_it_the_quiet_period_begins() {
    let mut desk = running(3);
    let _ = desk.handle(at(0), offer(2, 1));
    let effects = said(&desk.handle(at(1), Event::AboutToSleep));
    let told = [
        "kill #1",
        "#1 retreated: the machine is about to sleep",
        "#2 retreated: not started: the machine is about to sleep",
        "busy",
        "leaving",
        "FINISH",
    ];
    assert_eq!(effects, told);
    assert_eq!(said(&desk.handle(at(1), exited(1))), ["ready to sleep"]);
    let effects = said(&desk.handle(at(4_000), Event::Woke));
    assert_eq!(effects[0], "busy", "its slots are back: {effects:?}");
    assert!(effects.contains(&"START".to_owned()));
    let _ = desk.handle(at(4_001), load(0.0));
    assert!(desk.presence(at(4_001)).busy);
}

#[test]
fn a_stopping_agent_leaves_no_guest_and_takes_none() {
    let mut desk = running(1);
    let effects = said(&desk.handle(at(1), Event::ShutDown { reason: "asked to stop".into() }));
    assert_eq!(effects[0], "kill #1");
    assert_eq!(effects[effects.len() - 1], "FINISH");
    assert_eq!(said(&desk.handle(at(1), exited(1))), ["ready to stop"]);
    let refused = said(&desk.handle(at(1), offer(2, 1)));
    assert!(refused[0].starts_with("#2 refused: busy"), "{refused:?}");
}

#[test]
fn what_is_wrong_with_sensors_is_told_in_the_hello() {
    let mut desk = desk(1);
    let health = Health::Sick("event2: permission denied".into());
    let sick = Observation::Health { sensor: Sensor::Input, health };
    let _ = desk.handle(at(1), Event::Observed(sick));
    let effects = desk.handle(at(2), Event::LinkUp);
    let Some(Effect::Send(AgentFrame::Hello { facts, .. })) = effects.first() else {
        panic!("{effects:?}")
    };
    assert_eq!(facts.missing[0], "input: sick: event2: permission denied");
}

/// Lets time pass with an owner who is not here and a coordinator who answers;
/// what comes of it, heartbeats left out.
fn pass_until(desk: &mut Desk, end: Moment) -> Vec<String> {
    let mut all = vec![];
    while let Some(due) = desk.deadline().filter(|due| *due <= end) {
        let effects = desk.wake(due);
        let loads = desk.handle(due, load(0.0));
        for effect in effects.into_iter().chain(loads) {
            if let Effect::Send(AgentFrame::Heartbeat { sequence, .. }) = effect {
                let _ = desk.handle(due, frame(CoordinatorFrame::HeartbeatAck { sequence }));
            } else {
                all.push(short(&effect));
            }
        }
    }
    all
}

#[test]
fn a_guest_that_moves_is_frozen_before_anybody_is_told_and_asks_to_leave() {
    let mut desk = running(4);
    let _ = desk.handle(at(0), Event::Weighed { fence: Fence(1), bytes: 77 });
    let effects = desk.handle(at(2), typed());
    assert_eq!(said(&effects), ["freeze #1", "busy", "#1 wants away: State", "TTY"]);
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Send(AgentFrame::Attempt(AttemptEvent::WantsAway { image_bytes: 77, .. }))
    )));
    assert_eq!(said(&desk.handle(at_ms(2_500), depart(1, 5))), ["carry #1 to ws2"]);
    assert_eq!(said(&desk.handle(at_ms(2_500), depart(1, 5))), Vec::<String>::new());
    let cancel = frame(CoordinatorFrame::Cancel { fence: Fence(1) });
    assert_eq!(said(&desk.handle(at(4), cancel)), ["kill #1"]);
}

#[test]
fn what_leaves_is_held_and_asks_again_on_a_new_connection() {
    let mut desk = running(4);
    let _ = desk.handle(at(2), typed());
    let _ = desk.handle(at(3), Event::LinkDown);
    let again = said(&desk.handle(at(4), Event::LinkUp));
    assert_eq!(again, ["hello 1", "#1 wants away: State"]);
    assert_eq!(desk.held(), [(Fence(1), GuestState::Leaving)]);
    assert_eq!(said(&desk.handle(at(4), welcome(&[1]))), Vec::<String>::new());
    let _ = desk.handle(at(4), depart(1, 5));
    let _ = desk.handle(at(5), Event::LinkDown);
    // Also when it was on its way: nobody may know of that any more.
    assert_eq!(said(&desk.handle(at(6), Event::LinkUp)), ["hello 1", "#1 wants away: State"]);
    let _ = desk.handle(at(6), stay(1));
    let _ = desk.handle(at(7), Event::LinkDown);
    assert_eq!(said(&desk.handle(at(8), Event::LinkUp)), ["hello 1"]);
}

#[test]
fn what_was_made_to_leave_asks_for_it_on_a_new_connection() {
    // Suspended, it did not ask.
    let mut desk = running(1);
    let _ = desk.handle(at(2), typed());
    assert_eq!(desk.held(), [(Fence(1), GuestState::Suspended)]);
    assert_eq!(said(&desk.handle(at_ms(2_500), depart(1, 5))), ["carry #1 to ws2"]);
    let _ = desk.handle(at(4), Event::LinkDown);
    assert_eq!(said(&desk.handle(at(5), Event::LinkUp)), ["hello 1", "#1 wants away: State"]);
}

#[test]
fn an_owner_who_leaves_before_the_move_has_begun_keeps_the_guest() {
    let mut desk = running(4);
    let _ = desk.handle(at(2), typed());
    let _ = desk.handle(at(3), frame(CoordinatorFrame::HeartbeatAck { sequence: 1 }));
    let quiet = pass_until(&mut desk, at(63));
    assert_eq!(quiet, ["thaw #1", "idle", "#1 stays", "#1 resumed", "IDLE"]);
    let crossed = said(&desk.handle(at(63), depart(1, 5)));
    assert_eq!(crossed, ["#1 cannot leave: its owner has left"]);
}

#[test]
fn what_arrives_tells_so_and_goes_when_it_is_told() {
    let mut desk = desk(1);
    assert_eq!(said(&desk.handle(at(0), arrival(7, 4))), ["expect #7"]);
    assert_eq!(said(&desk.handle(at(1), landed(7))), ["#7 arrived"]);
    let _ = desk.handle(at(2), Event::LinkDown);
    assert_eq!(said(&desk.handle(at(3), Event::LinkUp)), ["hello 1", "#7 arrived"]);
    let _ = desk.handle(at(3), welcome(&[7]));
    assert_eq!(said(&desk.handle(at(3), go_on(7))), ["go #7", "#7 resumed"]);
    assert_eq!(said(&desk.handle(at(3), go_on(7))), Vec::<String>::new());
}

#[test]
fn what_cannot_arrive_is_refused_and_never_given_back_as_if_it_had_run() {
    let mut desk = desk(1);
    let _ = desk.handle(at(0), arrival(7, 4));
    let failed = Event::StartFailed {
        fence: Fence(7),
        reason: "criu cannot restore it".into(),
        hopeless: false,
    };
    assert_eq!(said(&desk.handle(at(1), failed)), ["#7 refused: criu cannot restore it"]);
    let _ = desk.handle(at(1), arrival(8, 4));
    let effects = said(&desk.handle(at(2), typed()));
    assert_eq!(effects[0], "kill #8");
    assert!(effects.contains(&"#8 refused: not taken in: pts/3, 0.0 s ago".to_owned()));
}

#[test]
fn a_place_that_does_not_become_free_is_not_waited_for_long() {
    let mut desk = desk(1);
    let _ = desk.handle(at(0), offer(1, 1));
    assert_eq!(said(&desk.handle(at(0), arrival(7, 4))), Vec::<String>::new());
    let said_late = pass_until(&mut desk, at(30));
    assert_eq!(said_late, ["#7 refused: no place became free within 30 s"]);
}

#[test]
fn a_suspended_guest_waits_as_long_as_its_move_costs_if_its_job_leaves_that_to_us() {
    let mut desk = desk(1);
    let mut spec = JobSpec::new(vec!["/bin/true".into()], IndexRange::count_of(9).unwrap());
    spec.on_busy = OnBusy::suspend_by_cost(Reaction::Migrate);
    let _ = desk.handle(at(0), described(6, spec));
    let _ = desk.handle(at(0), offer(1, 6));
    let _ = desk.handle(at(0), Event::Started(Fence(1)));
    let took = Duration::from_millis(1_100);
    let _ = desk.handle(at(0), Event::Carried { bytes: 10 << 20, took });
    let _ = desk.handle(at(0), Event::Weighed { fence: Fence(1), bytes: 20 << 20 });
    let effects = said(&desk.handle(at(1), typed()));
    assert_eq!(effects, ["freeze #1", "busy", "#1 suspended", "TTY"]);
    assert_eq!(said(&desk.wake(at_ms(3_099))), ["heartbeat 1"]);
    assert_eq!(said(&desk.wake(at_ms(3_100))), ["#1 wants away: State"]);
}

// ── every order of everything ──────────────────────────────────────────────

/// The shell, the keepers and the coordinator in one: carries effects out,
/// and checks every promise after every step.
struct World {
    desk: Desk,
    now: Moment,
    linked: bool,
    started: BTreeMap<Fence, Run>,
    accepted: BTreeSet<Fence>,
    ended: BTreeSet<Fence>,
    unwanted: BTreeSet<Fence>,
    reactions: BTreeMap<Fence, Reaction>,
    /// What happens now may undo what is on its way.
    may_undo: bool,
    asked: Vec<u64>,
    lease_until: Option<Moment>,
    greeted: Moment,
    sent: BTreeMap<u64, Moment>,
    newest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what can be seen of a guest")]
struct Run {
    frozen: bool,
    demoted: bool,
    /// Came from elsewhere and was not set going.
    held: bool,
    /// On its way elsewhere.
    carried: bool,
    life: Life,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Lives,
    Killed,
    Gone,
}

#[derive(Clone, Debug)]
enum Step {
    Type,
    Quiet,
    Pass(u64),
    Offer(u32),
    Exit(usize),
    Start(usize),
    FailToStart(usize),
    Cancel(u64),
    Ack,
    Acknowledge,
    LinkUp,
    LinkDown,
    Welcome,
    Sick(bool),
    Pause,
    Resume,
    Sleep,
    Wake,
    Stop(u64),
    Arrival(u32),
    Come(usize),
    Land(usize),
    Depart(usize, bool),
    Stay(usize),
    GoOn(usize),
    CannotLeave(usize),
    Weigh(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Type),
        3 => Just(Step::Quiet),
        4 => (0u64..5_000).prop_map(Step::Pass),
        8 => (1u32..6).prop_map(Step::Offer),
        2 => (1u32..6).prop_map(Step::Arrival),
        2 => (0usize..9).prop_map(Step::Come),
        4 => (0usize..9).prop_map(Step::Land),
        5 => (0usize..9, any::<bool>()).prop_map(|(which, again)| Step::Depart(which, again)),
        3 => (0usize..9).prop_map(Step::Stay),
        3 => (0usize..9).prop_map(Step::GoOn),
        2 => (0usize..9).prop_map(Step::CannotLeave),
        1 => (0usize..9, 0u64..1 << 40).prop_map(|(which, bytes)| Step::Weigh(which, bytes)),
        4 => (0usize..9).prop_map(Step::Exit),
        4 => (0usize..9).prop_map(Step::Start),
        1 => (0usize..9).prop_map(Step::FailToStart),
        1 => (0u64..40).prop_map(Step::Cancel),
        5 => Just(Step::Ack),
        2 => Just(Step::Acknowledge),
        2 => Just(Step::LinkUp),
        1 => Just(Step::LinkDown),
        2 => Just(Step::Welcome),
        1 => any::<bool>().prop_map(Step::Sick),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => Just(Step::Sleep),
        2 => Just(Step::Wake),
        1 => (0u64..40).prop_map(Step::Stop),
    ]
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            desk: desk(2),
            now: at(0),
            linked: true,
            started: BTreeMap::new(),
            accepted: BTreeSet::new(),
            ended: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            reactions: BTreeMap::new(),
            may_undo: false,
            asked: vec![],
            lease_until: Some(at(0) + LEASE),
            greeted: at(0),
            sent: BTreeMap::new(),
            newest: 0,
        };
        let effects = world.desk.wake(world.now);
        world.carry_out(&effects);
        world
    }

    fn tell(&mut self, event: Event) {
        let effects = self.desk.handle(self.now, event);
        self.carry_out(&effects);
    }

    /// Lets time pass, waking the desk whenever it wants to be.
    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some(due) = self.desk.deadline().filter(|due| *due <= until) {
            let before = self.now;
            self.now = self.now.max(due);
            let effects = self.desk.wake(self.now);
            self.carry_out(&effects);
            let moved = self.desk.deadline().is_none_or(|next| next > self.now);
            assert!(moved || self.now > before, "a deadline that stays");
        }
        self.now = until;
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    fn do_step(&mut self, step: &Step) {
        self.may_undo = matches!(
            step,
            Step::Cancel(_) | Step::Stop(_) | Step::Sleep | Step::FailToStart(_) | Step::Welcome
        );
        match *step {
            Step::Type => self.tell(typed()),
            Step::Quiet => {
                for _ in 0..4 {
                    self.pass(Duration::from_secs(20));
                    self.tell(load(0.0));
                    self.answer_heartbeats();
                }
            }
            Step::Pass(ms) => self.pass(Duration::from_millis(ms)),
            Step::Offer(job) if self.linked => {
                self.newest += 1;
                let fence = Fence(self.newest);
                self.reactions.insert(fence, JOBS[job as usize - 1].0);
                self.accepted.insert(fence);
                self.tell(offer(self.newest, job));
            }
            Step::Arrival(job) if self.linked => {
                self.newest += 1;
                let fence = Fence(self.newest);
                self.reactions.insert(fence, JOBS[job as usize - 1].0);
                self.accepted.insert(fence);
                self.tell(arrival(self.newest, job));
            }
            Step::Come(which) => {
                if let Some(fence) = self.alive(which) {
                    self.tell(Event::Coming(fence));
                }
            }
            Step::Land(which) => {
                let held = |world: &Self, fence: &Fence| {
                    world.started[fence].held && world.started[fence].life == Life::Lives
                };
                if let Some(fence) = self.alive(which).filter(|fence| held(self, fence)) {
                    self.tell(landed(fence.0));
                }
            }
            Step::Depart(which, again) if self.linked => {
                if let Some(fence) = self.alive(which) {
                    self.tell(depart(fence.0, 1_000 + u64::from(again)));
                }
            }
            Step::Stay(which) if self.linked => {
                if let Some(fence) = self.alive(which) {
                    self.tell(stay(fence.0));
                }
            }
            Step::GoOn(which) if self.linked => {
                if let Some(fence) = self.alive(which) {
                    self.tell(go_on(fence.0));
                }
            }
            Step::CannotLeave(which) => {
                let carried = |world: &Self, fence: &Fence| world.started[fence].carried;
                if let Some(fence) = self.alive(which).filter(|fence| carried(self, fence)) {
                    self.started.get_mut(&fence).unwrap().carried = false;
                    self.tell(Event::CannotLeave { fence, reason: "a socket".into() });
                }
            }
            Step::Weigh(which, bytes) => {
                if let Some(fence) = self.alive(which) {
                    self.tell(Event::Weighed { fence, bytes });
                }
            }
            Step::Exit(which) => {
                if let Some(fence) = self.alive(which) {
                    self.gone(fence);
                    self.tell(exited(fence.0));
                }
            }
            Step::Start(which) => {
                if let Some(fence) = self.alive(which) {
                    self.tell(Event::Started(fence));
                }
            }
            Step::FailToStart(which) => {
                if let Some(fence) = self.alive(which) {
                    self.gone(fence);
                    let reason = "no".into();
                    self.tell(Event::StartFailed { fence, reason, hopeless: false });
                }
            }
            Step::Cancel(fence) if self.linked => {
                // An end that was due before may be told.
                self.pass(Duration::ZERO);
                if self.desk.knows(Fence(fence)) {
                    self.unwanted.insert(Fence(fence));
                }
                self.tell(frame(CoordinatorFrame::Cancel { fence: Fence(fence) }));
            }
            Step::Ack => self.answer_heartbeats(),
            Step::Acknowledge => {
                for fence in self.ended.clone() {
                    self.tell(frame(CoordinatorFrame::Acknowledge { fence }));
                }
            }
            Step::LinkUp => {
                self.linked = true;
                self.greeted = self.now;
                self.asked.clear();
                self.tell(Event::LinkUp);
                for number in 1..=5 {
                    self.tell(known_job(number));
                }
            }
            Step::LinkDown => {
                self.linked = false;
                self.asked.clear();
                self.tell(Event::LinkDown);
            }
            Step::Welcome if self.linked => {
                self.lease_until = self.lease_until.max(Some(self.greeted + LEASE));
                let keep: Vec<u64> = self.accepted.difference(&self.ended).map(|f| f.0).collect();
                self.tell(welcome(&keep));
            }
            Step::Sick(sick) => {
                let health = if sick { Health::Sick("blind".into()) } else { Health::Well };
                let sensor = Sensor::Terminals;
                self.tell(Event::Observed(Observation::Health { sensor, health }));
            }
            Step::Pause => self.tell(Event::Pause(Pause { by: "ada".into(), until: None })),
            Step::Resume => self.tell(Event::Resume),
            Step::Sleep => self.tell(Event::AboutToSleep),
            Step::Wake => self.tell(Event::Woke),
            Step::Stop(fence) => {
                self.tell(Event::Stop { fence: Fence(fence), by: "ada".into() });
            }
            Step::Offer(_)
            | Step::Cancel(_)
            | Step::Welcome
            | Step::Arrival(_)
            | Step::Depart(..)
            | Step::Stay(_)
            | Step::GoOn(_) => {}
        }
    }

    fn answer_heartbeats(&mut self) {
        for sequence in std::mem::take(&mut self.asked) {
            if self.linked {
                self.lease_until = self.lease_until.max(Some(self.sent[&sequence] + LEASE));
                self.tell(frame(CoordinatorFrame::HeartbeatAck { sequence }));
            }
        }
    }

    fn alive(&self, which: usize) -> Option<Fence> {
        let alive: Vec<_> = self
            .started
            .iter()
            .filter(|(_, run)| run.life != Life::Gone)
            .map(|(fence, _)| *fence)
            .collect();
        alive.get(which % alive.len().max(1)).copied()
    }

    fn gone(&mut self, fence: Fence) {
        self.started.get_mut(&fence).unwrap().life = Life::Gone;
    }

    fn carry_out(&mut self, effects: &[Effect]) {
        let first_other = effects.iter().position(|effect| {
            matches!(effect, Effect::Send(_) | Effect::Record(_) | Effect::PersistPause(_))
        });
        for (index, effect) in effects.iter().enumerate() {
            let run = |world: &mut Self, fence: &Fence, change: fn(&mut Run)| {
                assert!(first_other.is_none_or(|first| index < first), "{effects:?}");
                change(world.started.get_mut(fence).expect("a guest that was started"));
            };
            match effect {
                Effect::Start(start) => {
                    assert!(self.desk.lease.is_valid(self.now));
                    assert!(self.lease_until.is_some_and(|until| self.now < until));
                    assert!(self.started.insert(start.fence, Run::default()).is_none());
                    let alive = self.started.values().filter(|run| run.life != Life::Gone).count();
                    assert!(alive <= 2, "more guests than places");
                }
                Effect::Expect(start) => {
                    assert!(self.lease_until.is_some_and(|until| self.now < until));
                    let held = Run { held: true, ..Run::default() };
                    assert!(self.started.insert(start.fence, held).is_none());
                }
                Effect::Go { fence, .. } => run(self, fence, |run| {
                    assert!(run.held);
                    run.held = false;
                }),
                Effect::Depart(departure) => {
                    let run = self.started.get_mut(&departure.fence).expect("is here");
                    assert!(run.frozen && !run.carried, "{effects:?}");
                    run.carried = true;
                }
                Effect::CallBack { fence, .. } => {
                    let run = self.started.get_mut(fence).expect("is here");
                    assert!(run.carried);
                    run.carried = false;
                }
                Effect::AskToRetreat { .. } | Effect::Again(_) => panic!("no ranks here"),
                Effect::Freeze { fence, .. } => run(self, fence, |run| run.frozen = true),
                Effect::Thaw { fence, .. } => run(self, fence, |run| {
                    assert!(!run.carried, "thawed on its way");
                    run.frozen = false;
                }),
                Effect::Demote { fence, .. } => run(self, fence, |run| run.demoted = true),
                Effect::Restore { fence, .. } => run(self, fence, |run| run.demoted = false),
                Effect::Kill { fence, .. } | Effect::Empty { fence, .. } => {
                    let over = self.lease_until.is_none_or(|until| self.now >= until);
                    let carried = self.started[fence].carried;
                    assert!(!carried || self.may_undo || over, "destroyed on its way: {effects:?}");
                    run(self, fence, |run| run.life = Life::Killed);
                }
                Effect::Send(AgentFrame::Heartbeat { sequence, .. }) => {
                    self.sent.insert(*sequence, self.now);
                    self.asked.push(*sequence);
                }
                Effect::Send(AgentFrame::Attempt(event)) if event.is_end() => {
                    self.ended(event);
                }
                Effect::Send(_) => assert!(self.linked, "said to nobody: {effect:?}"),
                Effect::Prepare { .. }
                | Effect::Discard { .. }
                | Effect::Abandon { .. }
                | Effect::Record(_)
                | Effect::PersistPause(_)
                | Effect::ReadyToSleep
                | Effect::ReadyToStop => {}
            }
        }
        self.check();
    }

    fn ended(&mut self, end: &AttemptEvent) {
        let fence = end.fence();
        assert!(self.linked);
        // Repeated on a new connection, but never another end.
        self.ended.insert(fence);
        assert_eq!(self.desk.ends.get(&fence), Some(end));
        assert!(!self.unwanted.contains(&fence), "a cancelled one was told of");
        if let AttemptEvent::Finished(Finished { .. }) = end {
            assert_eq!(self.started[&fence].life, Life::Gone);
        }
    }

    /// The promises.
    fn check(&self) {
        let status = self.desk.status(self.now);
        let lease_ended = self.lease_until.is_none_or(|until| self.now >= until);
        for (fence, run) in self.started.iter().filter(|(_, run)| run.life == Life::Lives) {
            assert!(!lease_ended, "{fence} outlives the lease");
            let here = status.guests.iter().find(|guest| guest.fence == *fence);
            let here = here.expect("a guest that runs is known");
            let stands = matches!(here.state, GuestState::Suspended | GuestState::Leaving);
            assert_eq!(stands, run.frozen, "{fence}");
            assert_eq!(here.state == GuestState::Waiting, run.held, "{fence}");
            assert!(!run.carried || here.state == GuestState::Leaving, "{fence}");
            assert_eq!(here.state == GuestState::Demoted, run.demoted && !run.frozen, "{fence}");
            if status.presence.busy && !run.frozen && !run.held {
                assert!(run.demoted && self.reactions[fence] == Reaction::Renice, "{fence}");
                assert!(!self.desk.occupancy.is_claimed(), "{fence} shares a claimed machine");
            }
        }
        // Every attempt that was offered is here or has ended, and not both.
        for fence in &self.accepted {
            let ended = self.desk.ends.contains_key(fence)
                || self.ended.contains(fence)
                || self.unwanted.contains(fence);
            assert!(ended != self.desk.knows(*fence), "{fence}: ended {ended}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_breaks_a_promise(steps in proptest::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        for step in &steps {
            world.do_step(step);
        }
    }
}

/// As a random order of events had it.
#[test]
fn what_had_expired_before_it_was_cancelled_is_told() {
    let mut world = World::new();
    let offers = || std::iter::repeat_n(Step::Offer(1), 5);
    let first = offers().chain([Step::LinkUp, Step::Type, Step::Come(0)]).chain(offers());
    let late = [Step::Quiet, Step::LinkUp, Step::Offer(1), Step::Quiet, Step::Welcome];
    for step in first.chain([Step::Come(0)]).chain(late).chain([Step::Cancel(11)]) {
        world.do_step(&step);
    }
}

#[test]
fn a_guest_that_stays_is_called_back_before_it_is_thawed() {
    let mut world = World::new();
    let away = [Step::Offer(3), Step::Pause, Step::Depart(0, false), Step::Resume];
    for step in away.iter().chain(&[Step::Stay(0)]) {
        world.do_step(step);
    }
    let run = &world.started[&Fence(world.newest)];
    assert!(!run.carried && !run.frozen);
}

/// The welcome came so late that its lease was over.
#[test]
fn what_expires_as_the_connection_breaks_is_not_said_to_nobody() {
    let mut world = World::new();
    let quiet = [Step::LinkUp, Step::Quiet, Step::LinkUp, Step::Offer(1), Step::Quiet];
    for step in quiet.iter().chain(&[Step::Welcome, Step::LinkDown]) {
        world.do_step(step);
    }
}

#[test]
fn a_record_of_every_cause_but_both_comes_from_a_desk() {
    let mut desk = desk(1);
    let mut causes = BTreeSet::new();
    let mut note = |effects: Vec<Effect>| {
        for effect in effects {
            if let Effect::Record(transition) = effect {
                causes.insert(transition.cause);
            }
        }
    };
    note(Desk::new(at(0), setup(1)).1);
    note(desk.handle(at(1), typed()));
    note(desk.handle(at(70), load(0.0)));
    note(desk.handle(at(71), load(1.0)));
    note(desk.handle(at(140), load(2.0)));
    note(desk.handle(at(141), Event::AboutToSleep));
    let all = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Both);
    assert_eq!(causes, all.collect());
}
