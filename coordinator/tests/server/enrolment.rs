//! Tokens: one use, one key, one lifetime.

use std::time::Duration;

use gleaner_common::report::JobState;
use gleaner_common::wire::{EnrolReply, EnrolRequest, Purpose, Reply, Request, Role};
use gleaner_shell::client::Client;
use gleaner_shell::endpoint::{Credentials, connect};
use gleaner_shell::enrol::enrol;
use gleaner_shell::identity::{Authority, Token};
use gleaner_shell::stream;

use crate::coordinator::{Coordinator, PATIENCE, listing, refusal, spec, submit};

async fn reason(coordinator: &Coordinator, token: &Token, name: &str) -> String {
    enrol(&coordinator.address.to_string(), token, name).await.unwrap_err().to_string()
}

async fn enrol_key(coordinator: &Coordinator, token: &Token, public_key: &[u8]) -> EnrolReply {
    let address = coordinator.address.to_string();
    let link = connect(&address, Credentials::Token(token), None).await.unwrap();
    let (mut writer, mut reader) = stream::open(&link.connection, Purpose::Enrol).await.unwrap();
    let request = EnrolRequest { name: "desk-1".into(), public_key: public_key.to_vec() };
    writer.send(&request).await.unwrap();
    reader.expect().await.unwrap()
}

#[tokio::test]
async fn a_token_is_good_for_one_newcomer() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let token = coordinator.token(Role::User, PATIENCE).await;
    let ada = enrol(&coordinator.address.to_string(), &token, "ada").await.unwrap();
    assert_eq!((ada.role, ada.name.as_str()), (Role::User, "ada"));
    let refused = reason(&coordinator, &token, "eve").await;
    assert!(refused.contains("the token has been used"), "{refused}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_lost_reply_costs_nothing_because_the_same_key_may_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let token = coordinator.token(Role::Agent, PATIENCE).await;
    let key = Authority::create(tempfile::tempdir().unwrap().path())
        .unwrap()
        .issue_identity(Role::Agent, "desk-1", "nowhere:1")
        .unwrap()
        .spki();
    for _ in 0..2 {
        let reply = enrol_key(&coordinator, &token, &key).await;
        assert!(matches!(reply, EnrolReply::Enrolled { role: Role::Agent, .. }), "{reply:?}");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn wrong_expired_and_revoked_tokens_get_nobody_in() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let admin = coordinator.admin_client().await;

    let authority = coordinator.admin().authority_fingerprint();
    let unknown = Token::create(authority).unwrap();
    let refused = reason(&coordinator, &unknown, "ada").await;
    assert!(refused.contains("the token is not known here"), "{refused}");

    let short = coordinator.token(Role::User, Duration::from_nanos(1)).await;
    let refused = reason(&coordinator, &short, "ada").await;
    assert!(refused.contains("the token has expired"), "{refused}");

    let revoked = coordinator.token(Role::User, PATIENCE).await;
    let id = revoked.id();
    let reply = admin.request(&Request::TokenRevoke { id: id.clone() }).await.unwrap();
    assert_eq!(reply, Reply::TokenRevoked);
    let refused = reason(&coordinator, &revoked, "ada").await;
    assert!(refused.contains("the token is not known here"), "{refused}");
    let again = refusal(&admin, Request::TokenRevoke { id }).await;
    assert!(again.starts_with("no token `"), "{again}");

    let mut states: Vec<_> = listing(&admin, Request::Tokens)
        .await
        .into_iter()
        .map(|row| match row {
            Reply::TokenRow(row) => row.state,
            other => panic!("{other:?}"),
        })
        .collect();
    states.sort();
    assert_eq!(states, ["expired", "revoked"]);
    coordinator.stop().await;
}

#[tokio::test]
async fn tokens_and_identities_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let token = coordinator.token(Role::User, PATIENCE).await;
    let mut first = coordinator.enrol(Role::User, "ada").await;
    coordinator.stop().await;
    let coordinator = Coordinator::start(dir.path()).await;
    enrol(&coordinator.address.to_string(), &token, "bob").await.unwrap();
    first.coordinator = coordinator.address.to_string();
    let client = gleaner_shell::client::Client::connect(&first, None).await.unwrap();
    assert_eq!(crate::coordinator::health(&client).await.you, "ada");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_machine_that_enrols_again_loses_its_old_connection_and_keeps_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let old = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = crate::agent::Agent::connect(&old, 1, 1).await;
    let new = coordinator.enrol(Role::Agent, "desk-1").await;
    let ended = agent.next().await.unwrap_err().to_string();
    assert!(ended.contains("revoked"), "{ended}");
    crate::agent::Agent::connect(&new, 2, 1).await;
    let admin = coordinator.admin_client().await;
    let rows = listing(&admin, Request::Workstations).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    coordinator.stop().await;
}

/// An unnamed token enrolled as `ada`, and cancelled her job.
#[tokio::test]
async fn a_token_for_nobody_takes_no_name_that_is_somebodys() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    coordinator.enrol(Role::User, "ada").await;
    coordinator.enrol(Role::Agent, "desk-1").await;
    for (role, name, how) in [
        (Role::User, "ada", "`glean users rm ada`"),
        (Role::Admin, "ada", "`glean users rm ada`"),
        (Role::User, "admin", "`glean users rm admin`"),
        (Role::Agent, "desk-1", "`glean workstations rm desk-1`"),
    ] {
        let token = coordinator.token(role, PATIENCE).await;
        let refused = reason(&coordinator, &token, name).await;
        assert!(refused.contains(how), "{refused}");
    }
    let admin = coordinator.admin_client().await;
    let ada = coordinator.client(Role::User, "ada").await;
    let remove = || Request::UserRemove { name: "ada".into(), keep_jobs: false };
    let refused = refusal(&ada, remove()).await;
    assert!(refused.contains("expected an admin"), "{refused}");
    let reply = admin.request(&remove()).await.unwrap();
    assert_eq!(reply, Reply::UserRemoved { cancelled: 0, kept: 0 });
    let token = coordinator.token(Role::User, PATIENCE).await;
    enrol(&coordinator.address.to_string(), &token, "ada").await.unwrap();
    coordinator.stop().await;
}

#[tokio::test]
async fn a_user_who_is_taken_away_is_out_at_once_and_their_jobs_end_or_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let admin = coordinator.admin_client().await;
    for (name, keep_jobs) in [("ada", false), ("eve", true)] {
        let identity = coordinator.enrol(Role::User, name).await;
        let client = Client::connect(&identity, None).await.unwrap();
        let job = submit(&client, spec(3)).await;
        let remove = Request::UserRemove { name: name.into(), keep_jobs };
        let expected =
            Reply::UserRemoved { cancelled: u32::from(!keep_jobs), kept: u32::from(keep_jobs) };
        assert_eq!(admin.request(&remove).await.unwrap(), expected);
        // The connection that was open does not outlive the key.
        let closed = tokio::time::timeout(PATIENCE, client.link().connection.closed()).await;
        let closed = closed.expect("it is still open").to_string();
        assert!(closed.contains("revoked"), "{closed}");
        let error = match Client::connect(&identity, None).await {
            Ok(client) => client.request(&Request::Jobs).await.unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("revoked"), "{error}");
        let row = admin.request(&Request::Job(job)).await.unwrap();
        let Reply::Job(row) = row else { panic!("{row:?}") };
        let state = if keep_jobs { JobState::Running } else { JobState::Cancelled };
        assert_eq!(row.summary.state, state, "{name}");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn a_workstation_that_is_taken_away_is_heard_no_more_and_one_that_is_drained_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let (first, second) = (
        coordinator.enrol(Role::Agent, "desk-1").await,
        coordinator.enrol(Role::Agent, "desk-2").await,
    );
    let mut taken = crate::agent::Agent::connect(&first, 1, 1).await;
    crate::agent::Agent::connect(&second, 1, 1).await;
    let admin = coordinator.admin_client().await;
    let drain = |drained| Request::WorkstationDrain { name: "desk-2".into(), drained, now: false };
    assert_eq!(admin.request(&drain(true)).await.unwrap(), Reply::Done);
    let remove = Request::WorkstationRemove { name: "desk-1".into() };
    assert_eq!(admin.request(&remove).await.unwrap(), Reply::Done);
    let ended = taken.next().await.unwrap_err().to_string();
    assert!(ended.contains("revoked"), "{ended}");
    let again = refusal(&admin, remove).await;
    assert!(again.contains("no workstation `desk-1`"), "{again}");
    coordinator.stop().await;
    // Both are known after a restart.
    let coordinator = Coordinator::start(dir.path()).await;
    let admin = coordinator.admin_client().await;
    let rows = listing(&admin, Request::Workstations).await;
    let [Reply::Workstation(row)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row.name, "desk-2");
    let mut second = second;
    second.coordinator = coordinator.address.to_string();
    let _agent = crate::agent::Agent::connect(&second, 1, 1).await;
    let why = admin.request(&Request::WhyWorkstation("desk-2".into())).await.unwrap();
    let Reply::Why(why) = why else { panic!("{why:?}") };
    assert!(why[0].starts_with("drained: "), "{why:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn ones_own_key_can_be_put_out_of_use() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let old = coordinator.enrol(Role::User, "ada").await;
    let client = gleaner_shell::client::Client::connect(&old, None).await.unwrap();
    let kept = tempfile::tempdir().unwrap();
    old.store(kept.path()).unwrap();
    let copy = gleaner_shell::identity::Identity::load(kept.path()).unwrap();
    let new = gleaner_shell::enrol::rotate(&client, copy).await.unwrap();
    let error = match gleaner_shell::client::Client::connect(&old, None).await {
        Ok(client) => client.request(&Request::Health).await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("revoked"), "{error}");
    let client = gleaner_shell::client::Client::connect(&new, None).await.unwrap();
    assert_eq!(crate::coordinator::health(&client).await.you, "ada");
    coordinator.stop().await;
}
