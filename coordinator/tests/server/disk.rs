//! A full disk: said once, answered clearly, and nothing lost. On a small file
//! system of its own, which takes root to make.

use std::fs;

use gleaner_common::wire::{AgentFrame, CoordinatorFrame, Reply, Request, Role};
use gleaner_disks::SmallDisk;
use gleaner_shell::client::Client;

use crate::agent::{Agent, finished};
use crate::coordinator::{Coordinator, PATIENCE, health, spec, submit, watch};

#[tokio::test]
async fn a_full_disk_loses_nothing_and_is_said() {
    let Some(small) = SmallDisk::mount(16 << 10).unwrap() else { return };
    let coordinator = Coordinator::start(&small.path().join("data")).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let job = submit(&ada, spec(1)).await;
    let offer = agent.offer().await;

    let filler = small.fill().unwrap();
    // The log has some room: this uses it up.
    let mut large = spec(1);
    large.environment = vec![("FILLER".into(), "x".repeat(120 << 10))];
    let mut accepted = 0;
    let refused = loop {
        match ada.request(&Request::Submit(Box::new(large.clone()))).await.unwrap() {
            Reply::Submitted(_) => accepted += 1,
            Reply::No { reason } => break reason,
            other => panic!("{other:?}"),
        }
        assert!(accepted < 200, "the disk does not fill");
    };
    assert!(refused.starts_with("the coordinator cannot write to its disk"), "{refused}");
    let trouble = health(&ada).await.store;
    assert_ne!(trouble, "well");
    let again = crate::coordinator::refusal(&ada, Request::Submit(Box::new(spec(1)))).await;
    assert!(again.ends_with("nothing was changed, try later"), "{again}");
    // The lease goes on: guests must not be stopped for this.
    let load = gleaner_common::usage::LoadAverages::default();
    agent.started(offer.fence).await;
    agent.say(finished(offer.fence, "done\n")).await;
    agent.say(AgentFrame::Heartbeat { sequence: 9, slots: 1, load }).await;
    agent
        .until(|frame| match frame {
            CoordinatorFrame::HeartbeatAck { sequence: 9 } => Some(()),
            CoordinatorFrame::Acknowledge { .. } => panic!("acknowledged before it was durable"),
            _ => None,
        })
        .await;
    blob_is_refused(&ada).await;

    fs::remove_file(filler).unwrap();
    agent.acknowledged(offer.fence).await;
    let summary = watch(&ada, job).await;
    assert_eq!(summary.counts.succeeded, 1);
    tokio::time::timeout(PATIENCE, async {
        while health(&ada).await.store != "well" {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    coordinator.stop().await;
}

async fn blob_is_refused(client: &Client) {
    let error = client.put_bytes(&vec![5; 500_000]).await.unwrap_err().to_string();
    assert!(error.contains("disk is full"), "{error}");
}
