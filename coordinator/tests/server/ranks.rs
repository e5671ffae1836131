//! Programs of ranks over the wire, and what their agents relay.

use gleaner_common::id::{Fence, JobId, SubprogramId, WorkstationId};
use gleaner_common::job::JobSpec;
use gleaner_common::program::{Life, ProgramSpec, RELAYED_BYTES_MAX, RankAt};
use gleaner_common::report::{AttemptRow, JobRow};
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, Reply, Request, Role};
use gleaner_program_core::address::{
    Communicator, Envelope, Rank, Request as Question, Snapshot, Tag, Task,
};
use gleaner_program_core::wire::{Ack, Answer, Ask, Between, FromRank, Packet, PeerFrame, ToRank};
use gleaner_shell::client::Client;

use crate::agent::{Agent, finished};
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

pub async fn job_row(client: &Client, job: JobId) -> JobRow {
    match client.request(&Request::Job(job)).await.unwrap() {
        Reply::Job(row) => *row,
        other => panic!("{other:?}"),
    }
}

pub async fn attempts(client: &Client, id: SubprogramId) -> Vec<AttemptRow> {
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
    assert_eq!((summary.counts.succeeded, summary.counts.failed), (2, 0));
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

fn packet(number: u64, payload: Vec<u8>) -> Between<Vec<u8>> {
    let envelope = Envelope::whole(Communicator(0), Tag(7));
    let (snapshot, ack) = (Snapshot(0), Ack::default());
    Between::Packet(Packet {
        job: JobId(1),
        life: Life(1),
        to: Rank(1),
        from: Rank(0),
        fence: Fence::of(1),
        frame: PeerFrame::Data { snapshot, ack, number, envelope, payload },
    })
}

#[tokio::test]
async fn packets_between_agents_that_cannot_reach_each_other_arrive_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut one = Agent::connect(&coordinator.enrol(Role::Agent, "one").await, 1, 1).await;
    let mut two = Agent::connect(&coordinator.enrol(Role::Agent, "two").await, 2, 1).await;
    for number in 1..=200 {
        let bytes = postcard::to_stdvec(&packet(number, vec![3; 10_000])).unwrap();
        one.say(AgentFrame::Relay { to: WorkstationId(2), bytes }).await;
        let bytes = two
            .until(|frame| match frame {
                CoordinatorFrame::Relayed { from: WorkstationId(1), bytes } => Some(bytes),
                _ => None,
            })
            .await;
        let arrived: Between<Vec<u8>> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(arrived, packet(number, vec![3; 10_000]));
    }
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
