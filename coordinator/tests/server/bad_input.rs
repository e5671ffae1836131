//! Peers that break the protocol hear why and hurt nobody else.

use gleaner_common::frame::FRAME_BYTES_MAX;
use gleaner_common::wire::{AgentFrame, CoordinatorFrame, Opening, Purpose, Reply, Role, VERSION};
use gleaner_shell::endpoint::{Credentials, Link, connect};
use gleaner_shell::identity::Identity;
use gleaner_shell::stream::{self, FrameReader};

use crate::agent::{Agent, hello};
use crate::coordinator::{Coordinator, health};

async fn dial(identity: &Identity) -> Link {
    connect(&identity.coordinator, Credentials::Identity(identity), None).await.unwrap()
}

/// Sends bytes on a fresh stream and returns why the connection ended.
async fn ended_by(identity: &Identity, bytes: &[u8]) -> String {
    let link = dial(identity).await;
    let (mut send, recv) = link.connection.open_bi().await.unwrap();
    // The other side may close before all of it is written.
    let _ = send.write_all(bytes).await;
    let _ = send.finish();
    let mut reader = FrameReader::new(recv);
    loop {
        if let Err(error) = reader.expect::<CoordinatorFrame>().await {
            let closed = link.connection.closed().await;
            return format!("{error}; {closed}");
        }
    }
}

fn opening(version: u16, purpose: Purpose) -> Vec<u8> {
    let mut bytes = vec![];
    gleaner_common::frame::encode(&Opening { version, purpose }, &mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn each_breach_is_explained_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let good = coordinator.enrol(Role::Agent, "good").await;
    let bad = coordinator.enrol(Role::Agent, "bad").await;
    let mut neighbour = Agent::connect(&good, 1, 1).await;

    let greeting = |more: &[u8]| {
        let mut bytes = opening(VERSION, Purpose::Agent);
        gleaner_common::frame::encode(&hello(1, 1, vec![]), &mut bytes).unwrap();
        bytes.extend_from_slice(more);
        bytes
    };
    let too_long = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_le_bytes();
    let torn = [200, 0, 0, 0, 1, 2, 3];
    let nonsense = [3, 0, 0, 0, 99, 99, 99];
    let mut long_reason = vec![];
    let leaving = AgentFrame::Leaving { reason: "x".repeat(2_000) };
    gleaner_common::frame::encode(&leaving, &mut long_reason).unwrap();
    let mut rude = opening(VERSION, Purpose::Agent);
    let load = gleaner_common::usage::LoadAverages::default();
    let heartbeat = AgentFrame::Heartbeat { sequence: 1, slots: 1, load };
    gleaner_common::frame::encode(&heartbeat, &mut rude).unwrap();
    for (bytes, told) in [
        (rude, "its first frame was not a hello"),
        (opening(VERSION + 1, Purpose::Agent), "expected the same release of glean on both sides"),
        (too_long.to_vec(), "expected at most 4194304"),
        (nonsense.to_vec(), "protocol version"),
        (torn.to_vec(), "before the end of a frame"),
        (greeting(&too_long), "expected at most 4194304"),
        (greeting(&torn), "before the end of a frame"),
        (greeting(&nonsense), "does not read as AgentFrame"),
        (greeting(&long_reason), "a reason of 2000 bytes: expected at most 800"),
    ] {
        let ended = ended_by(&bad, &bytes).await;
        assert!(ended.contains(told), "{told}: {ended}");
    }

    neighbour.say(heartbeat).await;
    neighbour
        .until(|frame| (frame == CoordinatorFrame::HeartbeatAck { sequence: 1 }).then_some(()))
        .await;
    coordinator.stop().await;
}

#[tokio::test]
async fn a_request_that_does_not_read_is_answered_with_why() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.enrol(Role::User, "ada").await;
    let link = dial(&ada).await;
    let (mut writer, mut reader) = stream::open(&link.connection, Purpose::Request).await.unwrap();
    writer.send_raw(&[2, 0, 0, 0, 200, 200]).await.unwrap();
    let told = match reader.expect::<Reply>().await {
        Ok(Reply::No { reason }) => reason,
        Ok(other) => panic!("{other:?}"),
        // The close may overtake the reply and says the same.
        Err(error) => error.to_string(),
    };
    assert!(told.contains("does not read as Request"), "{told}");
    assert_eq!(health(&coordinator.admin_client().await).await.you, "admin");
    coordinator.stop().await;
}
