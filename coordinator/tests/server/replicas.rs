//! Subprograms that run on several workstations, through the server.

use gleaner_common::id::{ContentHash, Fence, SubprogramId};
use gleaner_common::job::JobSpec;
use gleaner_common::report::{JobState, ReplicaRow, ReplicaState};
use gleaner_common::wire::{AgentFrame, AttemptEvent, OutputFile, Printed, Reply, Request, Role};
use gleaner_shell::client::Client;

use crate::agent::{Agent, finished};
use crate::coordinator::{Coordinator, all_of, listing, refusal, spec, submit, watch};

async fn replicas(client: &Client, id: SubprogramId) -> Vec<ReplicaRow> {
    let rows = listing(client, Request::Replicas(id)).await;
    rows.into_iter()
        .map(|row| match row {
            Reply::Replica(row) => *row,
            other => panic!("{other:?}"),
        })
        .collect()
}

async fn printed(client: &Client, request: Request) -> Vec<u8> {
    match client.request(&request).await.unwrap() {
        Reply::Output { stdout: Printed::Inline(bytes), .. } => bytes,
        other => panic!("{other:?}"),
    }
}

/// One guest each, which prints this.
async fn answers(agent: &mut Agent, text: &str) {
    let fence = agent.offer().await.fence;
    agent.started(fence).await;
    agent.say(finished(fence, text)).await;
    agent.acknowledged(fence).await;
}

#[tokio::test]
async fn a_lie_is_outvoted_and_all_replicas_are_shown_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let mut desks = vec![];
    for name in ["desk-1", "desk-2", "desk-3"] {
        let identity = coordinator.enrol(Role::Agent, name).await;
        desks.push(Agent::connect(&identity, 1, 1).await);
    }
    let job = submit(&ada, JobSpec { replicas: 3, ..spec(1) }).await;
    let id = SubprogramId { job, index: 0 };
    answers(&mut desks[0], "a lie").await;
    let refused = refusal(&ada, Request::Output(id)).await;
    assert!(refused.contains("nothing of subprogram 1.0 counts"), "{refused}");
    answers(&mut desks[1], "42").await;
    answers(&mut desks[2], "42").await;
    assert_eq!(watch(&ada, job).await.state, JobState::Succeeded);
    coordinator.stop().await;

    let coordinator = Coordinator::start(dir.path()).await;
    let admin = coordinator.admin_client().await;
    assert_eq!(printed(&admin, Request::Output(id)).await, b"42");
    let rows = replicas(&admin, id).await;
    let mut states: Vec<_> = rows.iter().map(|row| (row.workstation.clone(), row.state)).collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    let (agrees, differs) = (ReplicaState::Agrees, ReplicaState::Differs);
    let at = |name: &str, state| (Some(name.to_owned()), state);
    assert_eq!(states, [at("desk-1", differs), at("desk-2", agrees), at("desk-3", agrees)]);
    let liar = rows.iter().find(|row| row.state == differs).unwrap().replica;
    let said = printed(&admin, Request::ReplicaOutput { subprogram: id, replica: liar }).await;
    assert_eq!(said, b"a lie", "its owner may look at it");
    let reply = admin.request(&Request::Job(job)).await.unwrap();
    let Reply::Job(row) = reply else { panic!("{reply:?}") };
    let told = "subprogram 1.0: desk-1 gave other output than desk-";
    assert!(row.notes.iter().any(|note| note.starts_with(told)), "{:?}", row.notes);
    coordinator.stop().await;
}

/// An agent can say any hash; the content is what the coordinator has seen.
#[tokio::test]
async fn a_result_that_names_what_nobody_has_sent_is_worth_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let fence = agent.offer().await.fence;
    agent.started(fence).await;
    agent.say(with_output(fence, ContentHash([9; 32]))).await;
    agent.acknowledged(fence).await;
    let rows = listing(&ada, all_of(job)).await;
    let [Reply::Subprogram(row)] = &rows[..] else { panic!("{rows:?}") };
    let outcome = row.outcome.clone().unwrap_or_default();
    assert!(outcome.contains("names files that its agent has not staged"), "{outcome}");
    let fence = agent.offer().await.fence;
    agent.started(fence).await;
    let sends = Client::connect(&desk, None).await.unwrap();
    let hash = sends.put_bytes(b"42").await.unwrap();
    agent.say(with_output(fence, hash)).await;
    agent.acknowledged(fence).await;
    assert_eq!(watch(&ada, job).await.state, JobState::Succeeded);
    coordinator.stop().await;
}

/// To know a hash is no permission: neither for users nor for agents.
#[tokio::test]
async fn a_result_that_names_anothers_file_is_worth_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let grace = coordinator.client(Role::User, "grace").await;
    let secret = grace.put_bytes(b"grace's own").await.unwrap();
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let fence = agent.offer().await.fence;
    agent.started(fence).await;
    agent.say(with_output(fence, secret)).await;
    agent.acknowledged(fence).await;
    let rows = listing(&ada, all_of(job)).await;
    let [Reply::Subprogram(row)] = &rows[..] else { panic!("{rows:?}") };
    let outcome = row.outcome.clone().unwrap_or_default();
    assert!(outcome.contains("names files that its agent has not staged"), "{outcome}");
    assert!(ada.get_bytes(secret).await.is_err(), "it is grace's");
    coordinator.stop().await;
}

fn with_output(fence: Fence, hash: ContentHash) -> AgentFrame {
    let AgentFrame::Attempt(AttemptEvent::Finished(mut end)) = finished(fence, "") else {
        unreachable!("it is one")
    };
    let path = "out".to_owned();
    end.outputs = vec![OutputFile { path, hash, size_bytes: 2, executable: false }];
    AgentFrame::Attempt(AttemptEvent::Finished(end))
}
