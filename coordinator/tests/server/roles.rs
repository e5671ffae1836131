//! What each role may do.

use std::time::Duration;

use gleaner_common::id::WorkstationId;
use gleaner_common::wire::{CoordinatorFrame, Purpose, Reply, Request, Role, close};
use gleaner_shell::client::Client;
use gleaner_shell::endpoint::{Credentials, Link, connect};
use gleaner_shell::identity::Identity;
use gleaner_shell::stream::{self, StreamError};

use crate::coordinator::{Coordinator, PATIENCE, health, refusal, spec, submit};

async fn dial(identity: &Identity) -> Link {
    connect(&identity.coordinator, Credentials::Identity(identity), None).await.unwrap()
}

#[tokio::test]
async fn agents_and_collectors_may_ask_for_health_only() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    for role in [Role::Agent, Role::Collector] {
        let client = coordinator.client(role, "desk-1").await;
        assert_eq!(health(&client).await.role, role);
        let refused = refusal(&client, Request::Jobs).await;
        assert!(refused.contains("may not ask for this: expected a user"), "{refused}");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn only_admins_make_tokens_and_only_owners_and_admins_cancel() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let bob = coordinator.client(Role::User, "bob").await;
    let lifetime = Duration::from_secs(60);
    let request = Request::TokenCreate { role: Role::Admin, lifetime, name: None };
    let refused = refusal(&ada, request).await;
    assert!(refused.contains("expected an admin"), "{refused}");
    let (first, second) = (submit(&ada, spec(3)).await, submit(&ada, spec(3)).await);
    let refused = refusal(&bob, Request::Cancel(first)).await;
    assert!(refused.contains("is ada's"), "{refused}");
    assert_eq!(ada.request(&Request::Cancel(first)).await.unwrap(), Reply::Cancelled);
    let admin = coordinator.admin_client().await;
    assert_eq!(admin.request(&Request::Cancel(second)).await.unwrap(), Reply::Cancelled);
    let refused = refusal(&ada, Request::Cancel(first)).await;
    assert!(refused.contains("has ended: cancelled"), "{refused}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_user_who_plays_the_agent_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.enrol(Role::User, "ada").await;
    let link = dial(&ada).await;
    for purpose in [Purpose::Agent, Purpose::Usage, Purpose::Enrol] {
        let (mut writer, mut reader) = stream::open(&link.connection, purpose).await.unwrap();
        // The stream may be gone before this is written.
        let _ = writer.flush().await;
        let error = reader.expect::<CoordinatorFrame>().await.unwrap_err();
        assert_eq!(error, StreamError::Reset { code: close::FORBIDDEN });
    }
    coordinator.stop().await;
}

/// Usage records are of whose connection they came on.
#[tokio::test]
async fn an_agent_brings_no_usage_records_in_the_name_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let other = coordinator.enrol(Role::Agent, "desk-1").await;
    let link = dial(&coordinator.enrol(Role::Agent, "desk-2").await).await;
    let purpose = Purpose::Relay { workstation: WorkstationId(1), name: other.name };
    let (mut writer, mut reader) = stream::open(&link.connection, purpose).await.unwrap();
    let _ = writer.flush().await;
    let error = reader.expect::<CoordinatorFrame>().await.unwrap_err();
    assert_eq!(error, StreamError::Reset { code: close::FORBIDDEN });
    coordinator.stop().await;
}

#[tokio::test]
async fn a_token_opens_nothing_but_enrolment() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let token = coordinator.token(Role::Admin, PATIENCE).await;
    let address = coordinator.address.to_string();
    let link = connect(&address, Credentials::Token(&token), None).await.unwrap();
    let (mut writer, mut reader) = stream::open(&link.connection, Purpose::Request).await.unwrap();
    writer.send(&Request::Jobs).await.unwrap();
    let error = reader.expect::<Reply>().await.unwrap_err().to_string();
    assert!(error.contains("a token is for enrolling, not for requests"), "{error}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_stranger_gets_no_further_than_the_handshake() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let coordinator = Coordinator::start(dir.path()).await;
    let other = gleaner_shell::identity::Authority::create(elsewhere.path()).unwrap();
    let stranger =
        other.issue_identity(Role::Admin, "admin", &coordinator.address.to_string()).unwrap();
    let error = match Client::connect(&stranger, None).await {
        Ok(client) => client.request(&Request::Health).await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("authority"), "{error}");
    coordinator.stop().await;
}
