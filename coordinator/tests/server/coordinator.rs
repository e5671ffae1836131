//! The coordinator under test and those who talk to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_common::id::JobId;
use gleaner_common::job::{IndexRange, JobSpec};
use gleaner_common::report::{HealthRow, JobSummary};
use gleaner_common::wire::{Reply, Request, Role};
use gleaner_coordinator::{ADMIN, CoordinatorConfig, CoordinatorError, serve};
use gleaner_shell::client::Client;
use gleaner_shell::enrol::enrol;
use gleaner_shell::identity::{Identity, Token};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Coordinator {
    pub address: SocketAddr,
    pub data: PathBuf,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), CoordinatorError>>,
}

pub fn config(data: &Path) -> CoordinatorConfig {
    CoordinatorConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        data: data.to_owned(),
        // The tests' agents renew none, however long they have to wait for a core.
        lease: 10 * PATIENCE,
        ..CoordinatorConfig::default()
    }
}

impl Coordinator {
    pub async fn start(data: &Path) -> Self {
        Self::start_with(config(data)).await
    }

    pub async fn start_with(config: CoordinatorConfig) -> Self {
        let (tell, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let data = config.data.clone();
        let task = tokio::spawn(async move {
            let ready = move |address| {
                let _ = tell.send(address);
            };
            Box::pin(serve(&config, ready, async move { drop(stopped.await) })).await
        });
        let Ok(address) = ready.await else {
            panic!("the coordinator did not start: {:?}", task.await)
        };
        Self { address, data, stop, task }
    }

    pub async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap().unwrap();
    }

    pub fn admin(&self) -> Identity {
        Identity::load(&self.data.join(ADMIN)).unwrap()
    }

    pub async fn admin_client(&self) -> Client {
        Client::connect(&self.admin(), None).await.unwrap()
    }

    pub async fn token(&self, role: Role, lifetime: Duration) -> Token {
        token(&self.admin_client().await, role, lifetime, None).await
    }

    /// A token for this very name.
    pub async fn token_for(&self, role: Role, name: &str) -> Token {
        token(&self.admin_client().await, role, PATIENCE, Some(name)).await
    }

    pub async fn enrol(&self, role: Role, name: &str) -> Identity {
        let token = self.token_for(role, name).await;
        enrol(&self.address.to_string(), &token, name).await.unwrap()
    }

    pub async fn client(&self, role: Role, name: &str) -> Client {
        let identity = self.enrol(role, name).await;
        Client::connect(&identity, None).await.unwrap()
    }
}

pub async fn token(admin: &Client, role: Role, lifetime: Duration, name: Option<&str>) -> Token {
    let request = Request::TokenCreate { role, lifetime, name: name.map(str::to_owned) };
    match admin.request(&request).await.unwrap() {
        Reply::Token { text, .. } => text.parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

pub fn spec(count: u32) -> JobSpec {
    JobSpec::new(vec!["/bin/true".into()], IndexRange::count_of(count).unwrap())
}

pub async fn submit(client: &Client, spec: JobSpec) -> JobId {
    match client.request(&Request::Submit(Box::new(spec))).await.unwrap() {
        Reply::Submitted(job) => job,
        other => panic!("{other:?}"),
    }
}

/// The reason of a "No".
pub async fn refusal(client: &Client, request: Request) -> String {
    match client.request(&request).await.unwrap() {
        Reply::No { reason } => reason,
        other => panic!("{other:?}"),
    }
}

pub async fn health(client: &Client) -> HealthRow {
    match client.request(&Request::Health).await.unwrap() {
        Reply::Health(row) => *row,
        other => panic!("{other:?}"),
    }
}

/// All subprograms of a job.
pub fn all_of(job: JobId) -> Request {
    Request::Subprograms { job, first: 0, count: u32::MAX }
}

/// All rows of a listing, without the `End`.
pub async fn listing(client: &Client, request: Request) -> Vec<Reply> {
    let mut rows = client.rows(&request).await.unwrap();
    let mut found = vec![];
    while let Some(row) = rows.next().await.unwrap() {
        found.push(row);
    }
    found
}

/// Watches a job to its end.
pub async fn watch(client: &Client, job: JobId) -> JobSummary {
    let watched = tokio::time::timeout(PATIENCE, listing(client, Request::Watch(job))).await;
    match watched.expect("the job did not end").pop() {
        Some(Reply::Summary(summary)) => summary,
        other => panic!("{other:?}"),
    }
}
