//! Usage streams reach the collector, and are given up where there is none.

use gleaner_common::id::SpoolLife;
use gleaner_common::wire::{Purpose, Role, UsageFrame, UsageReply, close};
use gleaner_shell::endpoint::{Credentials, Link, connect};
use gleaner_shell::identity::Identity;
use gleaner_shell::stream::{self, StreamError, read_opening};

use crate::coordinator::{Coordinator, health};

async fn dial(identity: &Identity) -> Link {
    connect(&identity.coordinator, Credentials::Identity(identity), None).await.unwrap()
}

#[tokio::test]
async fn a_usage_stream_is_passed_through_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let desk = dial(&coordinator.enrol(Role::Agent, "desk-1").await).await;

    let (mut writer, mut reader) = stream::open(&desk.connection, Purpose::Usage).await.unwrap();
    writer.flush().await.unwrap();
    let error = reader.expect::<UsageReply>().await.unwrap_err();
    assert_eq!(error, StreamError::Reset { code: close::NO_COLLECTOR });

    let collector = dial(&coordinator.enrol(Role::Collector, "collector").await).await;
    let admin = coordinator.admin_client().await;
    while !health(&admin).await.collector_connected {
        tokio::task::yield_now().await;
    }
    let (mut writer, mut reader) = stream::open(&desk.connection, Purpose::Usage).await.unwrap();
    writer.send(&UsageFrame::Records(vec![])).await.unwrap();
    let relayed = collector.connection.accept_bi().await.unwrap();
    let (purpose, mut to_agent, mut from_agent) = read_opening(relayed).await.unwrap();
    let Purpose::Relay { workstation, name } = purpose else { panic!("{purpose:?}") };
    assert_eq!((workstation.0, name.as_str()), (1, "desk-1"));
    let records: UsageFrame = from_agent.expect().await.unwrap();
    assert_eq!(records, UsageFrame::Records(vec![]));
    let confirmed = UsageReply::Confirmed { life: SpoolLife::default(), sequence: 3 };
    to_agent.send(&confirmed).await.unwrap();
    assert_eq!(reader.expect::<UsageReply>().await.unwrap(), confirmed);
    // An end in good order is one at the other side too.
    writer.finish();
    assert_eq!(from_agent.next::<UsageFrame>().await.unwrap(), None);

    // A collector that goes takes the stream with it.
    collector.close().await;
    assert!(reader.expect::<UsageReply>().await.is_err());
    while health(&admin).await.collector_connected {
        tokio::task::yield_now().await;
    }
    coordinator.stop().await;
}
