//! From a submission to its result, once.

use gleaner_common::id::SubprogramId;
use gleaner_common::job::IndexRange;
use gleaner_common::report::{JobState, SubprogramState, WorkstationState};
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, Printed, Reply, Request, Role};

use crate::agent::{Agent, finished, presence};
use crate::coordinator::{Coordinator, all_of, health, listing, refusal, spec, submit, watch};

#[tokio::test]
async fn a_result_is_accepted_once_however_often_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let offer = agent.offer().await;
    assert_eq!(offer.subprogram, SubprogramId { job, index: 0 });
    agent.started(offer.fence).await;
    for _ in 0..2 {
        agent.say(finished(offer.fence, "hello\n")).await;
        agent.acknowledged(offer.fence).await;
    }
    let summary = watch(&ada, job).await;
    assert_eq!((summary.state, summary.counts.succeeded), (JobState::Succeeded, 1));
    let Reply::Output { stdout, .. } =
        ada.request(&Request::Output(offer.subprogram)).await.unwrap()
    else {
        panic!("no output");
    };
    assert_eq!(stdout, Printed::Inline(b"hello\n".to_vec()));
    let rows = listing(&ada, Request::Attempts(offer.subprogram)).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_result_of_a_lost_attempt_is_acknowledged_and_not_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let old = agent.offer().await;
    agent.started(old.fence).await;
    // A new life of the agent: the guest is dead.
    let mut agent = Agent::connect(&desk, 2, 1).await;
    let new = agent.offer().await;
    assert!(new.fence > old.fence);
    agent.say(finished(old.fence, "late\n")).await;
    agent.acknowledged(old.fence).await;
    agent.started(new.fence).await;
    agent.say(finished(new.fence, "right\n")).await;
    agent.acknowledged(new.fence).await;
    let summary = watch(&ada, job).await;
    assert_eq!((summary.counts.succeeded, summary.counts.lost), (1, 1));
    let Reply::Output { stdout, .. } = ada.request(&Request::Output(new.subprogram)).await.unwrap()
    else {
        panic!("no output");
    };
    assert_eq!(stdout, Printed::Inline(b"right\n".to_vec()));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_newer_connection_of_the_same_agent_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut old = Agent::connect(&desk, 1, 1).await;
    let mut new = Agent::connect(&desk, 1, 1).await;
    let ended = old.next().await.unwrap_err().to_string();
    assert!(ended.contains("took over"), "{ended}");
    let load = gleaner_common::usage::LoadAverages::default();
    new.say(AgentFrame::Heartbeat { sequence: 5, slots: 1, load }).await;
    new.until(|frame| (frame == CoordinatorFrame::HeartbeatAck { sequence: 5 }).then_some(()))
        .await;
    coordinator.stop().await;
}

#[tokio::test]
async fn many_subprograms_run_on_a_few_workstations_and_every_listing_agrees() {
    const COUNT: u32 = 2_500;
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let job = submit(&ada, spec(COUNT)).await;
    let early = listing(&ada, all_of(job)).await;
    assert_eq!(early.len(), COUNT as usize);
    assert!(early.iter().all(|row| matches!(
        row, Reply::Subprogram(row) if row.state == SubprogramState::Queued
    )));
    for name in ["desk-1", "desk-2", "desk-3"] {
        let identity = coordinator.enrol(Role::Agent, name).await;
        tokio::spawn(Agent::connect(&identity, 1, 4).await.work());
    }
    let summary = watch(&ada, job).await;
    assert_eq!((summary.state, summary.counts.succeeded), (JobState::Succeeded, COUNT));
    let rows = listing(&ada, all_of(job)).await;
    for (index, row) in rows.iter().enumerate() {
        let Reply::Subprogram(row) = row else { panic!("{row:?}") };
        assert_eq!(row.subprogram.index as usize, index);
        assert_eq!(row.state, SubprogramState::Succeeded);
        assert!(row.workstation.as_ref().is_some_and(|name| name.starts_with("desk-")));
    }
    let jobs = listing(&ada, Request::Jobs).await;
    assert!(matches!(&jobs[..], [Reply::Job(row)] if row.summary == summary && row.user == "ada"));
    let health = health(&ada).await;
    assert_eq!((health.queued, health.connected, health.store.as_str()), (0, 3, "well"));
    assert!(health.placement_p99_s > 0.0 && health.rss_bytes > 0);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_part_of_a_listing_is_as_long_as_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    // 10, 15, .. 10,000,010.
    let mut every_fifth = spec(1);
    every_fifth.indexes = IndexRange { first: 10, last: 10_000_010, step: 5 };
    let job = submit(&ada, every_fifth).await;
    for (first, count, expected) in [
        (0, 3, vec![10, 15, 20]),
        (11, 2, vec![15, 20]),
        (15, 1, vec![15]),
        (10_000_006, 7, vec![10_000_010]),
        (10_000_011, 7, vec![]),
        (10, 0, vec![]),
    ] {
        let rows = listing(&ada, Request::Subprograms { job, first, count }).await;
        let indexes = rows.into_iter().map(|row| match row {
            Reply::Subprogram(row) => row.subprogram.index,
            other => panic!("{other:?}"),
        });
        assert_eq!(indexes.collect::<Vec<_>>(), expected, "{count} from {first}");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn jobs_are_listed_newest_first_whether_or_not_they_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let mut submitted = vec![];
    for count in 1..=5 {
        submitted.push(submit(&ada, spec(count)).await);
    }
    for ended in [submitted[1], submitted[3]] {
        assert_eq!(ada.request(&Request::Cancel(ended)).await.unwrap(), Reply::Cancelled);
    }
    let listed: Vec<_> = listing(&ada, Request::Jobs)
        .await
        .into_iter()
        .map(|row| match row {
            Reply::Job(row) => row.job,
            other => panic!("{other:?}"),
        })
        .collect();
    submitted.reverse();
    assert_eq!(listed, submitted);
    coordinator.stop().await;
}

#[tokio::test]
async fn why_has_an_answer_before_and_after_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    agent.say(AgentFrame::Presence(presence(0))).await;
    let rows = async || listing(&ada, Request::Workstations).await;
    while !matches!(&rows().await[..], [Reply::Workstation(row)] if row.state == WorkstationState::Busy)
    {
        tokio::task::yield_now().await;
    }
    let job = submit(&ada, spec(1)).await;
    let subprogram = SubprogramId { job, index: 0 };
    for request in [
        Request::WhySubprogram(subprogram),
        Request::WhyJob(job),
        Request::WhyWorkstation("desk-1".into()),
    ] {
        let reply = ada.request(&request).await.unwrap();
        assert!(matches!(&reply, Reply::Why(reasons) if !reasons.is_empty()), "{reply:?}");
    }
    agent.say(AgentFrame::Presence(presence(1))).await;
    let offer = agent.offer().await;
    agent.started(offer.fence).await;
    agent.say(finished(offer.fence, "")).await;
    watch(&ada, job).await;
    let reply = ada.request(&Request::WhySubprogram(subprogram)).await.unwrap();
    let told = "succeeded on desk-1, after 1 attempt".to_owned();
    assert_eq!(reply, Reply::Why(vec![told]));
    coordinator.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let job = submit(&ada, spec(2)).await;
    let nowhere = SubprogramId { job, index: 2 };
    let ghost = gleaner_common::id::JobId(99);
    for (request, named) in [
        (Request::Job(ghost), "no job 99"),
        (Request::Watch(ghost), "no job 99"),
        (Request::Cancel(ghost), "no job 99"),
        (all_of(ghost), "no job 99"),
        (Request::WhyJob(ghost), "no job 99"),
        (Request::Output(nowhere), "no subprogram 1.2"),
        (Request::Attempts(nowhere), "no subprogram 1.2"),
        (Request::WhySubprogram(nowhere), "no subprogram 1.2"),
        (
            Request::WhyWorkstation("x".into()),
            "no workstation `x`: `glean workstations` lists them",
        ),
        (
            Request::Output(SubprogramId { job, index: 0 }),
            "subprogram 1.0 has printed and left nothing yet",
        ),
    ] {
        assert_eq!(refusal(&ada, request).await, named);
    }
    let mut empty = spec(1);
    empty.command.clear();
    assert_eq!(refusal(&ada, Request::Submit(Box::new(empty))).await, "the job has no command");
    coordinator.stop().await;
}
