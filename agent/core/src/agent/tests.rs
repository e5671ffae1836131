//! Examples of one agent, and every order of everything (`world`).

mod packing;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use gleaner_common::id::{Generation, SubprogramId, WorkstationId};
use gleaner_common::job::{
    IndexRange, JobSpec, Limits, OnBusy, Outcome, Patience, Reaction, StagedFile,
};
use gleaner_common::program::{Arrival, Destination, RankAt, Ticket};
use gleaner_common::reaction::Keep;
use gleaner_common::usage::{Cause, LoadAverages};
use gleaner_common::wire::{GuestState, Offer, Printed};

use super::*;
use crate::guest::{Exit, KeeperEvent, Left, Look};
use crate::load::LoadSample;
use crate::occupancy::{Health, PauseEnd, Sensor};

const LEASE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(40);

/// Times count from when the agent of these tests turned idle.
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

fn welcome(keep: &[u32]) -> Event {
    frame(CoordinatorFrame::Welcome {
        workstation: WorkstationId(1),
        name: "ada".into(),
        lease: LEASE,
        heartbeat: Duration::from_secs(3),
        heartbeat_without_guests: Duration::from_secs(15),
        keep: keep.iter().copied().map(Fence::of).collect(),
        generation: Generation::default(),
        newest: Fence::default(),
    })
}

/// The jobs that the tests' agents know, from 1 on.
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

fn arrival(fence: u32, job: u32) -> Event {
    let subprogram = SubprogramId { job: JobId(job), index: 0 };
    let (from, name, ticket) = (WorkstationId(9), "ws9".into(), Ticket([9; 16]));
    let arrival = Some(Arrival { from, name, old: Fence::of(1), ticket });
    frame(CoordinatorFrame::Offer(Offer {
        fence: Fence::of(fence),
        subprogram,
        rank: None,
        arrival,
    }))
}

fn depart(fence: u32, to: u32) -> Event {
    let at = RankAt {
        rank: 0,
        fence: Fence::of(to),
        workstation: WorkstationId(2),
        name: "ws2".into(),
        addresses: vec![],
    };
    let to = Destination { at, ticket: Ticket([2; 16]), ordered: false };
    frame(CoordinatorFrame::Depart { fence: Fence::of(fence), keep: Keep::State, to })
}

fn go_on(fence: u32) -> Event {
    frame(CoordinatorFrame::GoOn { fence: Fence::of(fence) })
}

fn stay(fence: u32) -> Event {
    frame(CoordinatorFrame::Stay { fence: Fence::of(fence) })
}

/// Of the guest that is this attempt.
fn guest(fence: u32, event: guest::Event) -> Event {
    Event::Guest(Fence::of(fence), event)
}

/// All of it comes, and is found to be here.
fn lands(agent: &mut Agent, now: Moment, fence: u32) -> Vec<Effect> {
    let stands = KeeperEvent::ProcessStands { fence: Fence::of(fence) };
    let events = [
        guest(fence, guest::Event::Coming),
        guest(fence, guest::Event::Header { pipes: 0, lays: false }),
        guest(fence, guest::Event::Known { keep: Keep::State }),
        guest(fence, guest::Event::Whole { bytes: 9 }),
        Event::Keeper(place_of(agent, fence), stands),
        guest(fence, guest::Event::Verified(Ok(Duration::from_secs(1)))),
    ];
    events.into_iter().flat_map(|event| agent.handle(now, event)).collect()
}

/// It is sent away, and stands when it is looked at.
fn departs(agent: &mut Agent, now: Moment, fence: u32, to: u32) -> Vec<Effect> {
    let mut effects = agent.handle(now, depart(fence, to));
    effects.extend(agent.handle(now, guest(fence, guest::Event::Looked(Look::Steady))));
    effects
}

fn place_of(agent: &Agent, fence: u32) -> PlaceId {
    let place = agent.places.iter().position(|place| place.holds(Fence::of(fence)));
    PlaceId(place.expect("it is here").try_into().unwrap())
}

fn described(number: u32, spec: JobSpec) -> Event {
    frame(CoordinatorFrame::Job { job: JobId(number), spec: Box::new(spec) })
}

fn offer(fence: u32, job: u32) -> Event {
    let subprogram = SubprogramId { job: JobId(job), index: 0 };
    frame(CoordinatorFrame::Offer(Offer {
        fence: Fence::of(fence),
        subprogram,
        rank: None,
        arrival: None,
    }))
}

fn exit(outcome: Outcome) -> Exit {
    Exit { outcome, cpu: Duration::from_secs(1), left: Some(Left::default()) }
}

/// Its process ends, or is dead with its keeper if it was killed.
fn exits(agent: &mut Agent, now: Moment, fence: u32, exit: Exit) -> Vec<Effect> {
    let place = place_of(agent, fence);
    let reaps = |effect: &Effect| matches!(effect, Effect::Reap { .. });
    let mut effects = agent.handle(now, Event::Keeper(place, KeeperEvent::Ended { last: false }));
    if !effects.iter().any(reaps) {
        effects.extend(agent.handle(now, Event::Keeper(place, KeeperEvent::Gone)));
    }
    assert!(effects.iter().any(reaps), "{effects:?}");
    let exit = Box::new(exit);
    effects.extend(agent.handle(now, guest(fence, guest::Event::Exited { exit, stays: false })));
    effects
}

fn succeeds(agent: &mut Agent, now: Moment, fence: u32) -> Vec<String> {
    said(&exits(agent, now, fence, exit(Outcome::Succeeded)))
}

fn setup(places: u16) -> Setup {
    Setup {
        incarnation: Incarnation(7),
        boot: BootId([1; 16]),
        facts: Facts { cores: 4, places, ..Facts::default() },
        criteria: Criteria::default(),
        site: Site { limits: Limits::default(), moves: Ok(()) },
        pause: None,
    }
}

/// Connected and idle, with all of [`JOBS`].
fn agent(places: u16) -> Agent {
    let (mut agent, _) = Agent::new(Moment::ZERO, setup(places));
    let well = Observation::Health { sensor: Sensor::Terminals, health: Health::Well };
    let _ = agent.handle(Moment::ZERO, Event::Observed(well));
    let _ = agent.handle(at(0), load(0.0));
    let _ = agent.handle(at(0), Event::LinkUp);
    let _ = agent.handle(at(0), welcome(&[]));
    for number in 1..=5 {
        let _ = agent.handle(at(0), known_job(number));
    }
    assert!(!agent.presence(at(0)).busy, "{}", agent.presence(at(0)).reason);
    agent
}

/// Attempt 1 of this job runs.
fn running(job: u32) -> Agent {
    let mut agent = agent(1);
    assert_eq!(said(&agent.handle(at(0), offer(1, job))), ["start #1"]);
    assert_eq!(said(&agent.handle(at(0), Event::Started(Fence::of(1)))), ["#1 started"]);
    agent
}

/// Effects in short, without those that no claim here is about; presences and
/// records are told by name only.
fn said(effects: &[Effect]) -> Vec<String> {
    effects.iter().filter_map(short).collect()
}

fn short(effect: &Effect) -> Option<String> {
    let short = match effect {
        Effect::Freeze(at) => format!("freeze {}", at.fence),
        Effect::Thaw(at) => format!("thaw {}", at.fence),
        Effect::Kill(at) => format!("kill {}", at.fence),
        Effect::LayInputs(at) => format!("lay files of {}", at.fence),
        Effect::Launch { at, .. } => format!("start {}", at.fence),
        Effect::Expect(start) => format!("expect {}", start.at.fence),
        Effect::Answer(at, None) => format!("take {} in", at.fence),
        Effect::Answer(at, Some(_)) => format!("turn {} away", at.fence),
        Effect::GoOn(at) => format!("go {}", at.fence),
        Effect::Carry(departure) => {
            format!("carry {} to {}", departure.at.fence, departure.to.at.name)
        }
        Effect::CallBack(at) => format!("call {} back", at.fence),
        Effect::Hurry(..)
        | Effect::SpawnKeeper { .. }
        | Effect::DropKeeper(_)
        | Effect::Prepare(_)
        | Effect::Reap { .. }
        | Effect::ClearGround(_)
        | Effect::Look(_)
        | Effect::Measure(_)
        | Effect::ReceiveProcess(_)
        | Effect::LayRest(_)
        | Effect::Land(_)
        | Effect::Verify(_) => return None,
        Effect::ExpectSnapshot(_)
        | Effect::Unpack(_)
        | Effect::SetGoing(_)
        | Effect::AskToRetreat { .. }
        | Effect::Pack(..)
        | Effect::Stayed(_)
        | Effect::DropEndpoint(..)
        | Effect::Replug(_)
        | Effect::EmptyPipes(_)
        | Effect::WriteImage(_)
        | Effect::ImageEnded { .. } => unreachable!("no ranks here"),
        Effect::Stage { job, .. } => format!("stage {job}"),
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
        Effect::Send(AgentFrame::Missing(missing)) => format!("lacks {}", missing.join(", ")),
        Effect::Send(AgentFrame::Unready(Some(why))) => format!("unready: {why}"),
        Effect::Send(AgentFrame::Unready(None)) => "ready".into(),
        Effect::Send(AgentFrame::Stopped { fence }) => format!("{fence} stopped"),
        Effect::Send(AgentFrame::Attempt(event)) => match event {
            AttemptEvent::Started { fence, .. } => format!("{fence} started"),
            AttemptEvent::Suspended { fence } => format!("{fence} suspended"),
            AttemptEvent::Demoted { fence } => format!("{fence} demoted"),
            AttemptEvent::Resumed { fence } => format!("{fence} resumed"),
            AttemptEvent::Finished(finished) => format!("{} {}", finished.fence, finished.outcome),
            AttemptEvent::Retreated { fence, reason, .. } => format!("{fence} retreated: {reason}"),
            AttemptEvent::Refused { fence, reason, .. } => format!("{fence} refused: {reason}"),
            AttemptEvent::Lost { fence, reason, .. } => format!("{fence} lost: {reason}"),
            AttemptEvent::WantsAway { fence, keep, .. } => format!("{fence} wants away: {keep:?}"),
            AttemptEvent::Arrived { fence, .. } => format!("{fence} arrived"),
            AttemptEvent::CannotLeave { fence, reason, .. } => {
                format!("{fence} cannot leave: {reason}")
            }
            AttemptEvent::Stays { fence } => format!("{fence} stays"),
        },
    };
    Some(short)
}

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
    assert_eq!(said(&agent.handle(at(6), welcome(&[3]))), ["kill #1"]);
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

#[test]
fn a_cancelled_guest_dies_without_a_word_wherever_it_is() {
    let mut agent = agent(1);
    let cancel = |fence| frame(CoordinatorFrame::Cancel { fence: Fence::of(fence) });
    for fence in [1, 2] {
        let _ = agent.handle(at(0), offer(fence, 1));
    }
    assert_eq!(said(&agent.handle(at(1), cancel(2))), Vec::<String>::new());
    assert_eq!(said(&agent.handle(at(1), cancel(1))), ["kill #1"]);
    assert_eq!(succeeds(&mut agent, at(1), 1), Vec::<String>::new());
    let _ = agent.handle(at(1), offer(3, 1));
    let exit = Exit { left: None, ..exit(Outcome::Succeeded) };
    let _ = exits(&mut agent, at(2), 3, exit);
    assert_eq!(said(&agent.handle(at(2), cancel(3))), ["abandon #3"]);
    assert_eq!(agent.status(at(2)).ends_waiting, 0);
}

#[test]
fn a_result_that_is_still_staged_leaves_its_place_and_survives_the_owner() {
    let mut agent = running(1);
    let _ = agent.handle(at(1), offer(2, 1));
    let exit = Exit { left: None, ..exit(Outcome::ExitCode(3)) };
    let effects = exits(&mut agent, at(1), 1, exit);
    assert_eq!(said(&effects), ["start #2"]);
    let _ = agent.handle(at(2), typed());
    assert!(agent.knows(Fence::of(1)));
    let left = Left { stdout: Printed::Inline(b"out".to_vec()), ..Left::default() };
    let effects = agent.handle(at(3), Event::Collected { fence: Fence::of(1), left });
    let [Effect::Send(AgentFrame::Attempt(AttemptEvent::Finished(finished))), ..] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(finished.outcome, Outcome::ExitCode(3));
    assert_eq!(finished.stdout, Printed::Inline(b"out".to_vec()));
}

/// What was brought was thrown away with the wish to leave, and awaited for ever.
#[test]
fn an_owner_who_comes_while_it_is_found_out_how_a_guest_ended_loses_no_result() {
    let mut agent = running(4);
    let (fence, place) = (Fence::of(1), place_of(&agent, 1));
    let _ = agent.handle(at(1), Event::Keeper(place, KeeperEvent::Ended { last: false }));
    let _ = agent.handle(at(1), Event::Collected { fence, left: Left::default() });
    assert!(said(&agent.handle(at(2), typed())).contains(&"#1 wants away: State".to_owned()));
    let exit = Box::new(Exit { left: None, ..exit(Outcome::Succeeded) });
    let effects = agent.handle(at(2), guest(1, guest::Event::Exited { exit, stays: false }));
    let finished = |it: &Effect| matches!(it, Effect::Send(AgentFrame::Attempt(AttemptEvent::Finished(it))) if it.fence == fence);
    assert!(effects.iter().any(finished), "{effects:?}");
}

#[test]
fn input_files_are_fetched_once_and_hold_up_nobody_else() {
    let mut agent = agent(1);
    let mut spec = JobSpec::new(vec!["/bin/cat".into()], IndexRange::count_of(9).unwrap());
    let hash = gleaner_common::id::ContentHash([0; 32]);
    let (path, size_bytes, executable) = ("data".into(), 9, false);
    spec.inputs = vec![StagedFile { path, hash, size_bytes, executable }];
    let _ = agent.handle(at(0), described(4, spec));
    assert_eq!(said(&agent.handle(at(0), offer(1, 4))), ["stage 4"]);
    assert_eq!(said(&agent.handle(at(0), offer(2, 4))), Vec::<String>::new());
    assert_eq!(said(&agent.handle(at(0), offer(3, 1))), ["start #3"]);
    let _ = agent.handle(at(1), Event::Staged(JobId(4)));
    assert_eq!(succeeds(&mut agent, at(1), 3), ["lay files of #1", "#3 succeeded"]);
    let laid = guest(1, guest::Event::Laid(Ok(())));
    assert_eq!(said(&agent.handle(at(1), laid)), ["start #1"]);
    let forget = frame(CoordinatorFrame::Forget { job: JobId(4) });
    assert_eq!(said(&agent.handle(at(1), forget)), Vec::<String>::new(), "#2 waits");
    assert_eq!(succeeds(&mut agent, at(2), 1), ["lay files of #2", "#1 succeeded", "discard 4"]);
}

#[test]
fn files_that_cannot_be_had_end_what_waits_for_them() {
    for (hopeless, end) in
        [(true, "#1 cannot start: no such blob"), (false, "#1 refused: no such blob")]
    {
        let mut agent = agent(1);
        let mut spec = JobSpec::new(vec!["/bin/cat".into()], IndexRange::count_of(9).unwrap());
        let hash = gleaner_common::id::ContentHash([0; 32]);
        let (path, size_bytes, executable) = ("data".into(), 9, false);
        spec.inputs = vec![StagedFile { path, hash, size_bytes, executable }];
        let _ = agent.handle(at(0), described(4, spec));
        let _ = agent.handle(at(0), offer(1, 4));
        let failed =
            Event::StagingFailed { job: JobId(4), reason: "no such blob".into(), hopeless };
        assert_eq!(said(&agent.handle(at(0), failed)), [end]);
        assert_eq!(said(&agent.handle(at(0), offer(2, 4))), ["stage 4"], "tried again");
    }
}

#[test]
fn a_guest_that_cannot_start_gives_its_place_back() {
    let mut agent = agent(1);
    let _ = agent.handle(at(0), offer(1, 1));
    let _ = agent.handle(at(0), offer(2, 1));
    let (fence, why) = (Fence::of(1), "no such program".to_owned());
    let failed = KeeperEvent::CannotStart { fence, why, hopeless: true };
    let effects = agent.handle(at(0), Event::Keeper(PlaceId(0), failed));
    assert_eq!(said(&effects), ["start #2", "#1 cannot start: no such program"]);
}

#[test]
fn limits_and_the_timeout_name_themselves() {
    let mut agent = running(1);
    let over = guest(1, guest::Event::OverLimit("memory 512 MiB".into()));
    assert_eq!(said(&agent.handle(at(1), over)), ["kill #1"]);
    let effects = exits(&mut agent, at(1), 1, exit(Outcome::Signal(9)));
    assert_eq!(said(&effects), ["#1 over its limit: memory 512 MiB"]);
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
    assert_eq!(said(&agent.handle(at(4), cancel)), ["kill #1"]);
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
    assert_eq!(said(&agent.handle(at(2), welcome_of(1, Fence::of(0)))), ["#1 succeeded"]);
    let acknowledged = CoordinatorFrame::Acknowledge { fence: Fence::of(1) };
    let _ = agent.handle(at(2), frame(acknowledged));
    let told = said(&agent.handle(at(2), welcome_of(1, Fence::of(0))));
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn an_attempt_that_is_offered_after_its_end_is_not_run_again() {
    let mut agent = delivered();
    let _ = agent.handle(at(2), welcome_of(1, Fence::of(1)));
    let _ = agent.handle(at(2), known_job(1));
    assert_eq!(said(&agent.handle(at(2), offer(1, 1))), ["#1 succeeded"]);
}
