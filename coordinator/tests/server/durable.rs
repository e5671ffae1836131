//! Nothing is said before it is on the disk: the test holds the syncs of the
//! store, and sees who waits for them.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;

use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, Role};
use gleaner_disks::SyncGate;

use crate::agent::{Agent, finished, presence};
use crate::coordinator::{Coordinator, PATIENCE, spec, submit};

/// Until a sync of the store waits.
async fn held(gate: &SyncGate) -> Vec<PathBuf> {
    let waits = async {
        loop {
            match gate.held() {
                none if none.is_empty() => tokio::task::yield_now().await,
                held => return held,
            }
        }
    };
    tokio::time::timeout(PATIENCE, waits).await.expect("nothing is synced")
}

fn is_the_stores(held: &[PathBuf]) -> bool {
    held.iter().all(|path| path.to_string_lossy().contains("coordinator.sqlite"))
}

/// What need not wait for the disk goes round meanwhile.
async fn waits_for_the_disk<T>(
    gate: &SyncGate,
    what: impl Future<Output = T>,
    round: impl Future<Output = ()>,
) -> T {
    let mut what = pin!(what);
    let paths = tokio::select! {
        biased;
        _ = &mut what => panic!("it did not wait for the disk"),
        paths = held(gate) => paths,
    };
    assert!(is_the_stores(&paths), "{paths:?}");
    tokio::select! {
        biased;
        _ = &mut what => panic!("it did not wait for the disk"),
        () = round => {}
    }
    gate.open();
    tokio::time::timeout(PATIENCE, what).await.expect("it goes on when the disk does")
}

/// A heartbeat says nothing that must last: guests go on while the disk hangs.
async fn beats(agent: &mut Agent, sequence: u64) {
    let load = LoadAverages::default();
    agent.say(AgentFrame::Heartbeat { sequence, slots: 1, load }).await;
    let answered = CoordinatorFrame::HeartbeatAck { sequence };
    agent.until(|frame| (frame == answered).then_some(())).await;
}

#[tokio::test]
async fn no_answer_offer_or_acknowledgement_leaves_before_it_is_on_the_disk() {
    let Some(gate) = SyncGate::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(&dir.path().join("data")).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let busy = coordinator.enrol(Role::Agent, "desk-2").await;
    let mut other = Agent::connect(&busy, 2, 0).await;

    gate.close();
    waits_for_the_disk(&gate, submit(&ada, spec(1)), beats(&mut other, 1)).await;
    let offer = agent.offer().await;

    gate.close();
    agent.started(offer.fence).await;
    agent.say(finished(offer.fence, "done\n")).await;
    let acknowledged = agent.acknowledged(offer.fence);
    waits_for_the_disk(&gate, acknowledged, beats(&mut other, 2)).await;

    // Placed by what an agent says, which nobody is answered for.
    agent.say(AgentFrame::Presence(presence(0))).await;
    beats(&mut agent, 1).await;
    submit(&ada, spec(1)).await;
    gate.close();
    agent.say(AgentFrame::Presence(presence(1))).await;
    waits_for_the_disk(&gate, agent.offer(), beats(&mut other, 3)).await;
    coordinator.stop().await;
}
