//! Silence, and connections that break.

use std::time::Duration;

use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, GuestState, Role};

use crate::agent::{Agent, finished, hello};
use crate::coordinator::{Coordinator, config, spec, submit, watch};

/// Soon enough to be waited for; what is to be said within it takes a hundredth.
const LEASE: Duration = Duration::from_secs(4);

async fn start(dir: &std::path::Path) -> Coordinator {
    let mut config = config(dir);
    config.lease = LEASE;
    config.heartbeat = LEASE / 6;
    Coordinator::start_with(config).await
}

#[tokio::test]
async fn a_silent_agents_work_goes_elsewhere_and_its_late_result_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let desk = coordinator.enrol(Role::Agent, "silent").await;
    let mut silent = Agent::connect(&desk, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let old = silent.offer().await;
    silent.started(old.fence).await;

    let other = coordinator.enrol(Role::Agent, "other").await;
    let mut other = Agent::connect(&other, 1, 1).await;
    // The agent's connection stands; nothing is heard on it.
    let new = loop {
        other.renews_its_lease().await;
        let answer = other.until(|frame| match frame {
            CoordinatorFrame::Offer(offer) => Some(Some(offer)),
            CoordinatorFrame::HeartbeatAck { .. } => Some(None),
            _ => None,
        });
        if let Some(offer) = answer.await {
            break offer;
        }
        tokio::time::sleep(LEASE / 40).await;
    };
    assert!(new.fence > old.fence);
    assert_eq!(new.subprogram, old.subprogram);
    // The agent is told why nothing more is answered there, and comes back too
    // late.
    let refused = silent
        .until(|frame| match frame {
            CoordinatorFrame::Refused { reason } => Some(reason),
            _ => None,
        })
        .await;
    assert_eq!(refused, "nothing was heard within the lease");
    let held = vec![(old.fence, GuestState::Running)];
    let mut silent = Agent::with(&desk, hello(1, 1, held)).await;
    assert_eq!(silent.keep, []);
    silent.say(finished(old.fence, "late\n")).await;
    silent.acknowledged(old.fence).await;
    other.started(new.fence).await;
    other.say(finished(new.fence, "right\n")).await;
    let summary = watch(&ada, job).await;
    assert_eq!((summary.counts.succeeded, summary.counts.lost), (1, 1));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_broken_connection_costs_nothing_within_the_lease() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let offer = agent.offer().await;
    agent.started(offer.fence).await;
    let load = LoadAverages::default();
    agent.say(AgentFrame::Heartbeat { sequence: 1, slots: 1, load }).await;
    drop(agent);
    let held = vec![(offer.fence, GuestState::Running)];
    let mut agent = Agent::with(&desk, hello(1, 1, held)).await;
    assert_eq!(agent.keep, [offer.fence]);
    agent.say(finished(offer.fence, "done\n")).await;
    agent.acknowledged(offer.fence).await;
    let summary = watch(&ada, job).await;
    assert_eq!((summary.counts.succeeded, summary.counts.lost), (1, 0));
    coordinator.stop().await;
}
