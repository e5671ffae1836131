//! Examples of one agent, and every order of everything (`world`).

mod delivered;
mod ends;
mod lease;
mod moving;
mod offers;
mod owner;
mod packing;
mod sensing;
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
        Effect::Send(AgentFrame::Unknown(attempts)) => {
            let whose: Vec<_> =
                attempts.iter().map(|(fence, of)| format!("{fence} of {of}")).collect();
            whose.join(", ")
        }
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
            AttemptEvent::Stays { fence, .. } => format!("{fence} stays"),
        },
    };
    Some(short)
}
