//! Programs of ranks over the wire, and what agents hand each other through
//! the coordinator.

use std::time::Duration;

use gleaner_common::id::{Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::JobSpec;
use gleaner_common::program::{
    Handover, HandoverReply, Life, ProgramSpec, RELAYED_BYTES_MAX, RankAt,
};
use gleaner_common::reaction::Keep;
use gleaner_common::report::{AttemptRow, JobRow};
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, GuestState, Offer, Purpose, Reply, Request, Role,
};
use gleaner_program_core::address::{Request as Question, Task};
use gleaner_program_core::wire::{Answer, Ask, FromRank, ToRank};
use gleaner_shell::client::Client;
use gleaner_shell::stream::{self, read_opening};

use crate::agent::{Agent, finished, hello, presence};
use crate::coordinator::{Coordinator, listing, spec, submit, watch};

pub fn program(ranks: u32) -> JobSpec {
    let mut job = spec(ranks);
    job.program = Some(ProgramSpec { ranks_max: ranks, ..ProgramSpec::default() });
    job
}

pub fn asks(fence: Fence, request: u64, ask: Ask) -> AgentFrame {
    let said = FromRank::Ask { request: Question(request), ask };
    let bytes = postcard::to_stdvec(&said).unwrap();
    AgentFrame::FromRank { fence, life: Life(1), bytes }
}

pub async fn answer(agent: &mut Agent) -> (u64, Answer) {
    agent
        .until(|frame| {
            let CoordinatorFrame::ToRank { bytes, .. } = frame else { return None };
            match postcard::from_bytes(&bytes).unwrap() {
                ToRank::Answered { request, answer } => Some((request.0, answer)),
                _ => None,
            }
        })
        .await
}

async fn places(agent: &mut Agent, count: usize) -> Vec<RankAt> {
    let mut known: Vec<RankAt> = vec![];
    while known.len() < count {
        let at = agent
            .until(|frame| match frame {
                CoordinatorFrame::Ranks { at, .. } => Some(at),
                _ => None,
            })
            .await;
        known.retain(|old| at.iter().all(|new| new.rank != old.rank));
        known.extend(at);
    }
    known
}

async fn job_row(client: &Client, job: JobId) -> JobRow {
    match client.request(&Request::Job(job)).await.unwrap() {
        Reply::Job(row) => *row,
        other => panic!("{other:?}"),
    }
}

async fn attempts(client: &Client, id: SubprogramId) -> Vec<AttemptRow> {
    let rows = listing(client, Request::Attempts(id)).await.into_iter().filter_map(|row| {
        let Reply::Attempt(row) = row else { return None };
        Some(*row)
    });
    rows.collect()
}

/// Answered on the same stream, after everything that was said before.
async fn is_heard(agent: &mut Agent) {
    let load = LoadAverages::default();
    agent.say(AgentFrame::Heartbeat { sequence: 9, slots: 1, load }).await;
    agent.until(|frame| matches!(frame, CoordinatorFrame::HeartbeatAck { .. }).then_some(())).await;
}

#[tokio::test]
async fn a_program_of_ranks_runs_and_shares_its_bag() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let mut one = Agent::connect(&coordinator.enrol(Role::Agent, "one").await, 1, 1).await;
    let mut two = Agent::connect(&coordinator.enrol(Role::Agent, "two").await, 2, 1).await;
    let job = submit(&ada, program(2)).await;
    let (a, b) = (one.offer().await, two.offer().await);
    let rank = a.rank.as_deref().expect("it is a rank");
    assert_eq!((rank.life, rank.ranks, rank.members), (Life(1), 2, 2));
    for agent in [&mut one, &mut two] {
        let names: Vec<String> = places(agent, 2).await.into_iter().map(|at| at.name).collect();
        assert!(names.contains(&"one".to_owned()) && names.contains(&"two".to_owned()));
    }
    one.started(a.fence).await;
    two.started(b.fence).await;
    two.say(asks(b.fence, 1, Ask::NextTask)).await;
    one.say(asks(a.fence, 1, Ask::PutTask { task: b"seven".to_vec() })).await;
    assert_eq!(answer(&mut one).await, (1, Answer::Put { task: Task(0) }));
    let task = Answer::Task { task: Task(0), bytes: b"seven".to_vec() };
    assert_eq!(answer(&mut two).await, (1, task));
    one.say(finished(a.fence, "a\n")).await;
    two.say(finished(b.fence, "b\n")).await;
    let summary = watch(&ada, job).await;
    assert_eq!((summary.succeeded, summary.failed), (2, 0));
    let row = job_row(&ada, job).await;
    assert_eq!((row.life, row.program.map(|program| program.ranks_max)), (1, Some(2)));
    coordinator.stop().await;
}

#[tokio::test]
async fn what_agents_relay_reaches_the_other_one_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let one = coordinator.enrol(Role::Agent, "one").await;
    let mut one = Agent::connect(&one, 1, 1).await;
    let mut two = Agent::connect(&coordinator.enrol(Role::Agent, "two").await, 2, 1).await;
    let (first, second, nobody) = (WorkstationId(1), WorkstationId(2), WorkstationId(99));
    one.say(AgentFrame::Relay { to: nobody, bytes: vec![1] }).await;
    let large = vec![7; RELAYED_BYTES_MAX];
    one.say(AgentFrame::Relay { to: second, bytes: large.clone() }).await;
    let relayed = two
        .until(|frame| match frame {
            CoordinatorFrame::Relayed { from, bytes } => Some((from, bytes)),
            _ => None,
        })
        .await;
    assert_eq!(relayed, (first, large));
    is_heard(&mut one).await;
    coordinator.stop().await;
}

#[tokio::test]
async fn more_than_agents_may_relay_at_once_breaks_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut one = Agent::connect(&coordinator.enrol(Role::Agent, "one").await, 1, 1).await;
    let bytes = vec![7; RELAYED_BYTES_MAX + 1];
    one.say(AgentFrame::Relay { to: WorkstationId(1), bytes }).await;
    while one.next().await.is_ok() {}
    coordinator.stop().await;
}

#[tokio::test]
async fn an_agent_that_does_not_read_costs_no_memory_and_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut one = Agent::connect(&coordinator.enrol(Role::Agent, "one").await, 1, 1).await;
    let mut two = Agent::connect(&coordinator.enrol(Role::Agent, "two").await, 2, 1).await;
    // Ten times what may wait for an agent, and it reads nothing.
    for _ in 0..1_000 {
        let bytes = vec![7; RELAYED_BYTES_MAX];
        one.say(AgentFrame::Relay { to: WorkstationId(2), bytes }).await;
    }
    is_heard(&mut one).await;
    // What the coordinator itself says still comes through.
    is_heard(&mut two).await;
    coordinator.stop().await;
}

fn handover(to: WorkstationId) -> Purpose {
    let what = Handover {
        subprogram: SubprogramId { job: JobId(1), index: 0 },
        old: Fence(1),
        new: Fence(2),
        keep: Keep::State,
        endpoint_bytes: 0,
        frozen: Duration::ZERO,
    };
    Purpose::Handover { to, what: Box::new(what) }
}

#[tokio::test]
async fn a_handover_is_passed_on_both_ways_and_refused_where_nobody_is() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let one = Agent::connect(&coordinator.enrol(Role::Agent, "one").await, 1, 1).await;
    let second = coordinator.enrol(Role::Agent, "two").await;

    let purpose = handover(WorkstationId(2));
    let opened = stream::open(&one.link.connection, purpose.clone()).await;
    let (mut writer, mut reader) = opened.unwrap();
    writer.flush().await.unwrap();
    let reply: HandoverReply = reader.expect().await.unwrap();
    let reason = "two is not connected to the coordinator".to_owned();
    assert_eq!(reply, HandoverReply::No { reason });

    let two = Agent::connect(&second, 2, 1).await;
    let opened = stream::open(&one.link.connection, purpose.clone()).await;
    let (mut writer, mut reader) = opened.unwrap();
    // Far more than any buffer on the way.
    let image = vec![5_u8; 20 << 20];
    let sends = async {
        writer.send_raw(&image).await.unwrap();
        writer.finish();
        reader.expect::<HandoverReply>().await.unwrap()
    };
    let takes = async {
        let passed = two.link.connection.accept_bi().await.unwrap();
        let (arrived, mut answers, mut bytes) = read_opening(passed).await.unwrap();
        assert_eq!(arrived, purpose);
        let mut total = 0;
        while let Some(chunk) = bytes.next_raw().await.unwrap() {
            assert!(chunk.iter().all(|byte| *byte == 5));
            total += chunk.len();
        }
        answers.send(&HandoverReply::Taken).await.unwrap();
        answers.finish();
        total
    };
    let (reply, total) = tokio::join!(sends, takes);
    assert_eq!((reply, total), (HandoverReply::Taken, 20 << 20));

    // A target that goes takes the stream with it.
    let opened = stream::open(&one.link.connection, purpose).await;
    let (mut writer, mut reader) = opened.unwrap();
    writer.flush().await.unwrap();
    let passed = two.link.connection.accept_bi().await.unwrap();
    drop(passed);
    drop(two);
    assert!(reader.expect::<HandoverReply>().await.is_err());
    coordinator.stop().await;
}

/// Its owner comes; what is offered to another and where it is to depart to.
async fn owner_comes(one: &mut Agent, two: &mut Agent, fence: Fence) -> (Offer, RankAt) {
    one.say(AgentFrame::Presence(presence(0))).await;
    let wants = AttemptEvent::WantsAway { fence, keep: Keep::Nothing, image_bytes: 4 };
    one.say(AgentFrame::Attempt(wants)).await;
    let to = one
        .until(|frame| match frame {
            CoordinatorFrame::Depart { to, .. } => Some(to),
            _ => None,
        })
        .await;
    (two.offer().await, to)
}

#[tokio::test]
async fn a_move_is_told_in_two_steps_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let first = coordinator.enrol(Role::Agent, "one").await;
    let mut one = Agent::connect(&first, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let old = one.offer().await;
    one.started(old.fence).await;
    let mut two = Agent::connect(&coordinator.enrol(Role::Agent, "two").await, 2, 1).await;
    let (new, to) = owner_comes(&mut one, &mut two, old.fence).await;
    assert_eq!((new.arrival.map(|it| it.old), to.fence), (Some(old.fence), new.fence));
    assert_eq!((to.workstation, to.name.as_str()), (WorkstationId(2), "two"));

    // The source's connection breaks meanwhile; it is told again.
    drop(one);
    let held = vec![(old.fence, GuestState::Leaving)];
    let mut one = Agent::with(&first, hello(1, 0, held)).await;
    assert_eq!(one.keep, [old.fence]);
    one.until(|frame| matches!(frame, CoordinatorFrame::Depart { .. }).then_some(())).await;

    let (fence, frozen) = (new.fence, Duration::from_millis(120));
    let arrived = AttemptEvent::Arrived { fence, bytes: 9_000, frozen };
    two.say(AgentFrame::Attempt(arrived)).await;
    two.until(|frame| (frame == CoordinatorFrame::StayHere { fence }).then_some(())).await;
    let fence = old.fence;
    one.until(|frame| (frame == CoordinatorFrame::Cancel { fence }).then_some(())).await;
    two.say(finished(new.fence, "there\n")).await;
    assert_eq!(watch(&ada, job).await.moves, 1);
    let row = job_row(&ada, job).await;
    assert_eq!((row.moved_bytes, row.frozen_s), (9_000, 0.12));
    let ends: Vec<_> =
        attempts(&ada, old.subprogram).await.into_iter().filter_map(|row| row.end).collect();
    assert_eq!(ends, ["moved to two", "succeeded"]);
    coordinator.stop().await;
}
