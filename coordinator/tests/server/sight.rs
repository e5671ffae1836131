//! Jobs, what they print and the files that they name are their owner's.

use std::collections::BTreeMap;

use gleaner_common::id::{JobId, SubprogramId};
use gleaner_common::job::StagedFile;
use gleaner_common::report::JobRow;
use gleaner_common::wire::{Reply, Request, Role};
use gleaner_coordinator_core::shares::{Group, ShareConfig};
use gleaner_shell::client::Client;

use crate::agent::{Agent, finished};
use crate::coordinator::{Coordinator, all_of, config, listing, refusal, spec, submit};

async fn with_groups(data: &std::path::Path) -> Coordinator {
    let members = vec!["ada".to_owned(), "bob".to_owned()];
    let groups = BTreeMap::from([("vision".to_owned(), Group { weight: 1, members })]);
    let mut config = config(data);
    config.shares = ShareConfig { groups, ..ShareConfig::default() };
    Coordinator::start_with(config).await
}

async fn row(client: &Client, job: JobId) -> JobRow {
    let reply = client.request(&Request::Job(job)).await.unwrap();
    let Reply::Job(row) = reply else { panic!("{reply:?}") };
    *row
}

fn questions(job: JobId) -> Vec<Request> {
    let first = SubprogramId { job, index: 0 };
    vec![
        all_of(job),
        Request::Watch(job),
        Request::Output(first),
        Request::WhyJob(job),
        Request::WhySubprogram(first),
        Request::Attempts(first),
    ]
}

#[tokio::test]
async fn anothers_job_is_a_number_a_user_and_its_counts() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = with_groups(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let eve = coordinator.client(Role::User, "eve").await;
    let secret = ada.put_bytes(b"secret").await.unwrap();
    let mut private = spec(2);
    private.command.push("--password=hunter2".into());
    let input = StagedFile { path: "data".into(), hash: secret, size_bytes: 6, executable: false };
    private.inputs = vec![input];
    let job = submit(&ada, private.clone()).await;
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let offer = agent.offer().await;
    agent.started(offer.fence).await;
    agent.say(finished(offer.fence, "printed\n")).await;
    agent.acknowledged(offer.fence).await;

    for question in questions(job) {
        let refused = refusal(&eve, question.clone()).await;
        assert!(refused.contains(&format!("job {job} is ada's")), "{question:?}: {refused}");
    }
    let outline = row(&eve, job).await;
    assert_eq!((outline.user.as_str(), outline.summary.total), ("ada", 2));
    assert_eq!((outline.name.as_str(), outline.command.len()), ("", 0));
    let rows = listing(&eve, Request::Jobs).await;
    assert!(!format!("{rows:?}").contains("hunter2"), "{rows:?}");

    // Whoever is in her group, and admins, see all of it.
    let bob = coordinator.client(Role::User, "bob").await;
    for client in [&ada, &bob, &coordinator.admin_client().await] {
        assert!(row(client, job).await.command.contains(&"--password=hunter2".to_owned()));
        let first = SubprogramId { job, index: 0 };
        let output = client.request(&Request::Output(first)).await.unwrap();
        assert!(matches!(output, Reply::Output { .. }), "{output:?}");
        assert_eq!(client.get_bytes(secret).await.unwrap(), b"secret");
    }
    let error = eve.get_bytes(secret).await.unwrap_err().to_string();
    assert!(error.contains("no staged file"), "{error}");

    let public = submit(&ada, gleaner_common::job::JobSpec { public: true, ..private }).await;
    assert_eq!(row(&eve, public).await.command.len(), 2);
    assert_eq!(eve.get_bytes(secret).await.unwrap(), b"secret", "a public job names it");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_workstation_gets_files_of_the_jobs_that_were_offered_to_it_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    let [first, second] = [&b"first"[..], b"second"].map(<[u8]>::to_vec);
    let (one, other) =
        (ada.put_bytes(&first).await.unwrap(), ada.put_bytes(&second).await.unwrap());
    let with = |hash, size_bytes| {
        let input = StagedFile { path: "data".into(), hash, size_bytes, executable: false };
        gleaner_common::job::JobSpec { inputs: vec![input], ..spec(1) }
    };
    let desk = coordinator.enrol(Role::Agent, "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    submit(&ada, with(one, 5)).await;
    submit(&ada, with(other, 6)).await;
    agent.offer().await;
    let asks = Client::connect(&desk, None).await.unwrap();
    assert_eq!(asks.get_bytes(one).await.unwrap(), first);
    let error = asks.get_bytes(other).await.unwrap_err().to_string();
    assert!(error.contains("no staged file"), "{error}");
    coordinator.stop().await;
}

#[tokio::test]
async fn shares_tell_who_has_used_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = with_groups(dir.path()).await;
    let ada = coordinator.client(Role::User, "ada").await;
    submit(&ada, spec(3)).await;
    let rows = listing(&ada, Request::Shares).await;
    let users: Vec<_> = rows
        .iter()
        .map(|row| match row {
            Reply::Share(row) => (row.user.as_str(), row.queued, row.group.as_deref()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(users, [("ada", 3, Some("vision")), ("bob", 0, Some("vision"))]);
    coordinator.stop().await;
}
