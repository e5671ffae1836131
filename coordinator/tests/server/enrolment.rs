//! Tokens: one use, one key, one lifetime.

use std::time::Duration;

use gleaner_common::report::JobState;
use gleaner_common::wire::{
    CoordinatorFrame, EnrolReply, EnrolRequest, KeyHash, Purpose, Reply, Request, Role,
};
use gleaner_coordinator::CoordinatorConfig;
use gleaner_shell::client::Client;
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{Credentials, connect};
use gleaner_shell::enrol::{RotateError, enrol, renew_if_due, rotate};
use gleaner_shell::identity::{Authority, Identity, Token, key_hash};
use gleaner_shell::stream;

use crate::agent::Agent;
use crate::coordinator::{Coordinator, PATIENCE, config, listing, refusal, spec, submit};

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
    let client = Client::connect(&first, None).await.unwrap();
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
    let client = Client::connect(&old, None).await.unwrap();
    let kept = tempfile::tempdir().unwrap();
    old.store(kept.path()).unwrap();
    let other = Client::connect(&old, None).await.unwrap();
    let new = rotate(&client.link().connection, kept.path(), &old).await.unwrap();
    assert_eq!(Identity::load(kept.path()).unwrap().spki(), new.spki());
    client.close().await;
    // Whoever had the old one, wherever, is out.
    let ended = other.link().connection.closed().await.to_string();
    assert!(ended.contains("revoked"), "{ended}");
    let error = match Client::connect(&old, None).await {
        Ok(client) => client.request(&Request::Health).await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("revoked"), "{error}");
    let client = Client::connect(&new, None).await.unwrap();
    assert_eq!(crate::coordinator::health(&client).await.you, "ada");
    coordinator.stop().await;
}

fn hash_of(identity: &Identity) -> KeyHash {
    key_hash(&identity.spki())
}

/// Whose keys were taken away, since or before this agent has connected.
async fn hears_of_revoked(agent: &mut Agent) -> Vec<KeyHash> {
    agent
        .until(|frame| match frame {
            CoordinatorFrame::Revoked { all: false, keys, .. } => Some(keys),
            _ => None,
        })
        .await
}

#[tokio::test]
async fn agents_hear_at_once_of_a_revoked_one_and_those_who_come_later_with_their_welcome() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let first = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut second = coordinator.enrol(Role::Agent, "desk-2").await;
    let mut there = Agent::connect(&second, 1, 1).await;
    let admin = coordinator.admin_client().await;
    let remove = Request::WorkstationRemove { name: "desk-1".into() };
    assert_eq!(admin.request(&remove).await.unwrap(), Reply::Done);
    assert_eq!(hears_of_revoked(&mut there).await, [hash_of(&first)]);
    // Another machine gets the name, and then the name's new key in its turn.
    let again = coordinator.enrol(Role::Agent, "desk-1").await;
    let replacement = coordinator.enrol(Role::Agent, "desk-1").await;
    assert_eq!(hears_of_revoked(&mut there).await, [hash_of(&again)]);
    coordinator.stop().await;
    let coordinator = Coordinator::start(dir.path()).await;
    second.coordinator = coordinator.address.to_string();
    let mut there = Agent::connect(&second, 1, 1).await;
    let mut both = vec![hash_of(&first), hash_of(&again)];
    both.sort();
    let mut told = hears_of_revoked(&mut there).await;
    told.sort();
    assert_eq!(told, both);
    assert!(!told.contains(&hash_of(&replacement)));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_key_that_is_taken_away_loses_every_connection_whatever_that_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    // It never says hello: it only passes for one that hands over usage and files.
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let desk = connect(&desk.coordinator, Credentials::Identity(&desk), None).await.unwrap();
    let ada = coordinator.client(Role::User, "ada").await;
    let bob = coordinator.client(Role::User, "bob").await;
    let admin = coordinator.admin_client().await;
    for (taken, reply) in [
        (Request::WorkstationRemove { name: "desk-1".into() }, Reply::Done),
        (
            Request::UserRemove { name: "ada".into(), keep_jobs: false },
            Reply::UserRemoved { cancelled: 0, kept: 0 },
        ),
    ] {
        assert_eq!(admin.request(&taken).await.unwrap(), reply);
    }
    for connection in [&desk.connection, &ada.link().connection] {
        let ended = connection.closed().await.to_string();
        assert!(ended.contains("revoked"), "{ended}");
    }
    assert_eq!(crate::coordinator::health(&bob).await.you, "bob");
    coordinator.stop().await;
}

/// So short that a test sees its end.
async fn with_short_certificates(dir: &std::path::Path, life_s: u64) -> Coordinator {
    let certificate_life = Duration::from_secs(life_s);
    Coordinator::start_with(CoordinatorConfig { certificate_life, ..config(dir) }).await
}

/// Renews as soon as it is due.
async fn renewed(client: &Client, dir: &std::path::Path, old: &Identity) -> Identity {
    loop {
        let connection = &client.link().connection;
        if let Some(new) = renew_if_due(connection, dir, old, Clock.wall()).await.unwrap() {
            return new;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // Its time comes.
    }
}

#[tokio::test]
async fn a_certificate_is_renewed_before_it_runs_out_and_the_old_one_is_good_until_then() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Half of it is for the renewal, and for what both are good for meanwhile.
    let coordinator = with_short_certificates(dir.path(), 10).await;
    let old = coordinator.enrol(Role::User, "ada").await;
    old.store(kept.path()).unwrap();
    let client = Client::connect(&old, None).await.unwrap();
    let new = renewed(&client, kept.path(), &old).await;
    assert_eq!(Identity::load(kept.path()).unwrap().spki(), new.spki());
    assert!(new.validity().unwrap().until > old.validity().unwrap().until);
    // Both are good, and somebody who has the old one only changes nothing.
    for identity in [&old, &new] {
        let client = Client::connect(identity, None).await.unwrap();
        assert_eq!(crate::coordinator::health(&client).await.you, "ada");
    }
    let late = renew_if_due(&client.link().connection, kept.path(), &old, Clock.wall()).await;
    assert!(matches!(late, Ok(None)), "{late:?}");
    // Then the old one ends, and with it what was opened with it.
    let ended = client.link().connection.closed().await.to_string();
    assert!(ended.contains("this identity's certificate has run out"), "{ended}");
    let refused = match Client::connect(&old, None).await {
        Ok(client) => client.request(&Request::Health).await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("certificate has run out"), "{refused}");
    assert!(refused.contains("`glean token create`"), "{refused}");
    coordinator.stop().await;
}

#[tokio::test]
async fn who_was_away_for_too_long_enrols_again_with_a_token_for_its_very_name() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = with_short_certificates(dir.path(), 3).await;
    let old = coordinator.enrol(Role::Agent, "desk-1").await;
    let link = connect(&old.coordinator, Credentials::Identity(&old), None).await.unwrap();
    link.connection.closed().await;
    let token = coordinator.token(Role::Agent, PATIENCE).await;
    let said = reason(&coordinator, &token, "desk-1").await;
    assert!(said.contains("is known here with another key"), "{said}");
    let new = coordinator.enrol(Role::Agent, "desk-1").await;
    Agent::connect(&new, 1, 1).await;
    coordinator.stop().await;
}

/// A clock that is wrong makes many keys of one, if it can.
#[tokio::test]
async fn nobody_renews_by_a_clock_of_their_own() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.enrol(Role::User, "ada").await;
    ada.store(kept.path()).unwrap();
    let client = Client::connect(&ada, None).await.unwrap();
    let end = ada.validity().unwrap().until;
    let early = renew_if_due(&client.link().connection, kept.path(), &ada, end).await;
    let Err(RotateError::Refused { reason }) = early else { panic!("{early:?}") };
    assert!(reason.contains("less than half of this certificate's time is over"), "{reason}");
    assert_eq!(Identity::load(kept.path()).unwrap().spki(), ada.spki());
    coordinator.stop().await;
}
