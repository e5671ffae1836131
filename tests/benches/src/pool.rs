//! One coordinator and thousands of workstations: simulated agents, each with
//! an identity and a QUIC connection of its own, speaking the agents' protocol
//! from this process to a real coordinator daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gleaner_common::id::{BootId, Incarnation};
use gleaner_common::job::{IndexRange, JobSpec, Outcome};
use gleaner_common::report::JobState;
use gleaner_common::usage::LoadAverages;
use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, Facts, Finished, Presence, Printed, Purpose, Reply,
    Request, Role,
};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{Credentials, client_config, client_endpoint};
use gleaner_shell::identity::{Identity, Token};
use gleaner_shell::stream::{FrameReader, FrameWriter};
use gleaner_shell::{enrol, stream};
use quinn::{Connection, Endpoint};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::process::pss_bytes;
use crate::record::Record;
use crate::{Args, Progress, idle_lab};
use gleaner_lab::blocking_client::BlockingClient;

/// Handshakes under way at once.
const AT_ONCE: usize = 64;

/// How long heartbeats are watched.
const WATCH: Duration = Duration::from_secs(30);

pub(super) fn run(args: &Args) -> Result<Vec<Record>> {
    let agents = args.agents.unwrap_or(10_000).max(1);
    let progress = Arc::new(Progress::new(args, "pool", u64::from(agents) * 2 + WATCH.as_secs()));
    let lab = idle_lab(0, |options| options.collector = false)?;
    let pid = lab.coordinator.as_ref().and_then(gleaner_lab::daemon::Daemon::pid);
    let pid = pid.context("the coordinator runs")?;
    let talk = BlockingClient::connect(&lab.admin(), Some(lab.address()))?;

    let start = Clock.now();
    let tokens = tokens(&talk, agents)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let address = lab.address().to_owned();
    let identities = runtime.block_on(enrol_all(&address, tokens, &progress))?;
    let enrol_s = Clock.now().since(start).as_secs_f64();

    let before = pss_bytes(pid);
    let start = Clock.now();
    let crowd = runtime.block_on(Crowd::connect(&address, &identities, &progress))?;
    wait_connected(&talk, agents)?;
    let connect_s = Clock.now().since(start).as_secs_f64();
    let after = pss_bytes(pid);
    let per_agent = after.saturating_sub(before) as f64 / f64::from(agents);

    let used = cpu_s(pid)?;
    let beats = crowd.heartbeats();
    progress.sleep(WATCH);
    let heartbeat_cpu = (cpu_s(pid)? - used) / WATCH.as_secs_f64();
    let beats = crowd.heartbeats() - beats;

    let placed = place(&talk, agents)?;
    let Reply::Health(health) = talk.request(&Request::Health)? else {
        bail!("asked for the coordinator's health and got something else");
    };
    drop(crowd);
    let count = |record: Record| record.with("workstations", agents);
    Ok(vec![
        count(Record::value("pool", "enrolling all", "s", enrol_s)).with("enrol_s", enrol_s),
        count(Record::value("pool", "connecting all", "s", connect_s)),
        count(Record::value("pool", "coordinator memory for one agent", "byte", per_agent))
            .with("bytes_per_agent", per_agent)
            .at_most("value", 40.0 * 1024.0),
        count(Record::value("pool", "coordinator CPU for heartbeats", "core", heartbeat_cpu))
            .with("heartbeats", beats),
        count(Record::value("pool", "one placement, p99", "s", health.placement_p99_s))
            .with("placement_p50_s", health.placement_p50_s)
            .with("placement_p99_s", health.placement_p99_s)
            .with("placement_max_s", health.placement_max_s)
            .at_most("value", 0.001),
        count(Record::value(
            "pool",
            "one subprogram on each, all results known",
            "s",
            placed.as_secs_f64(),
        )),
    ])
}

fn tokens(talk: &BlockingClient, agents: u32) -> Result<Vec<Token>> {
    let lifetime = Duration::from_secs(3_600);
    let one = |_| {
        let request = Request::TokenCreate { role: Role::Agent, lifetime, name: None };
        let reply = talk.request(&request)?;
        let Reply::Token { text, .. } = reply else { bail!("asked for a token and got {reply:?}") };
        Ok(text.parse()?)
    };
    (0..agents).map(one).collect()
}

async fn enrol_all(
    address: &str,
    tokens: Vec<Token>,
    progress: &Arc<Progress>,
) -> Result<Vec<Identity>> {
    let gate = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (number, token) in tokens.into_iter().enumerate() {
        let (gate, address, progress) = (gate.clone(), address.to_owned(), progress.clone());
        tasks.spawn(async move {
            let _turn = gate.acquire().await?;
            let identity = enrol::enrol(&address, &token, &format!("sim{number:05}")).await?;
            progress.step();
            anyhow::Ok(identity)
        });
    }
    let mut identities = vec![];
    while let Some(done) = tasks.join_next().await {
        identities.push(done??);
    }
    Ok(identities)
}

/// All simulated agents. They share one UDP socket on this side: what is
/// measured is the coordinator's.
struct Crowd {
    _tasks: JoinSet<()>,
    _endpoint: Endpoint,
    beats: Arc<AtomicU64>,
}

impl Crowd {
    async fn connect(
        address: &str,
        identities: &[Identity],
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let remote = address.parse()?;
        let endpoint = client_endpoint(remote)?;
        let gate = Arc::new(Semaphore::new(AT_ONCE));
        let (mut tasks, mut opening) = (JoinSet::new(), JoinSet::new());
        for identity in identities {
            let (gate, progress, endpoint) = (gate.clone(), progress.clone(), endpoint.clone());
            let config = client_config(Credentials::Identity(identity), None)?;
            opening.spawn(async move {
                let _turn = gate.acquire().await?;
                let dialled = endpoint.connect_with(config, remote, "gleaner-coordinator")?;
                let connection = dialled.await?;
                let agent = Agent::hello(connection).await?;
                progress.step();
                anyhow::Ok(agent)
            });
        }
        let beats = Arc::new(AtomicU64::new(0));
        while let Some(agent) = opening.join_next().await {
            tasks.spawn(agent??.live(beats.clone()));
        }
        Ok(Self { _tasks: tasks, _endpoint: endpoint, beats })
    }

    fn heartbeats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }
}

/// One simulated agent: idle for ever, and done with every guest at once.
struct Agent {
    _connection: Connection,
    writer: FrameWriter,
    reader: FrameReader,
    every: Duration,
}

impl Agent {
    async fn hello(connection: Connection) -> Result<Self> {
        let (mut writer, mut reader) = stream::open(&connection, Purpose::Agent).await?;
        let presence = Presence {
            busy: false,
            reason: "simulated".into(),
            lasted: Duration::from_secs(60),
            slots: 1,
            load: LoadAverages::default(),
            users: 0,
        };
        let facts = Facts { cores: 1, places: 1, speed: 1.0, ..Facts::default() };
        let incarnation = Incarnation(1);
        let boot = BootId([1; 16]);
        writer
            .send(&AgentFrame::Hello {
                incarnation,
                boot,
                facts: Box::new(facts),
                presence,
                held: vec![],
                seen: gleaner_common::id::Fence::default(),
            })
            .await?;
        let welcome = reader.expect().await?;
        let CoordinatorFrame::Welcome { heartbeat_without_guests: every, .. } = welcome else {
            bail!("said hello and got {welcome:?}");
        };
        Ok(Self { _connection: connection, writer, reader, every })
    }

    async fn live(mut self, beats: Arc<AtomicU64>) {
        let mut due = Clock.now() + self.every;
        let mut sequence = 0;
        loop {
            let frame = tokio::select! {
                () = tokio::time::sleep(due.since(Clock.now())) => None,
                frame = self.reader.expect::<CoordinatorFrame>() => Some(frame),
            };
            let answer = match frame {
                None => {
                    sequence += 1;
                    due = due + self.every;
                    beats.fetch_add(1, Ordering::Relaxed);
                    let load = LoadAverages::default();
                    vec![AgentFrame::Heartbeat { sequence, slots: 1, load }]
                }
                Some(Ok(CoordinatorFrame::Offer(offer))) => vec![
                    AgentFrame::Attempt(AttemptEvent::Started {
                        fence: offer.fence,
                        waited: Duration::ZERO,
                    }),
                    AgentFrame::Attempt(AttemptEvent::Finished(finished(offer.fence))),
                ],
                Some(Ok(_)) => vec![],
                Some(Err(_)) => return,
            };
            for frame in answer {
                if self.writer.send(&frame).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn finished(fence: gleaner_common::id::Fence) -> Finished {
    Finished {
        fence,
        outcome: Outcome::Succeeded,
        cpu: Duration::ZERO,
        ran: Duration::ZERO,
        suspended: Duration::ZERO,
        suspensions: 0,
        stdout: Printed::default(),
        stderr: Printed::default(),
        outputs: vec![],
    }
}

fn wait_connected(talk: &BlockingClient, agents: u32) -> Result<()> {
    gleaner_lab::wait::until("all agents are connected", gleaner_lab::wait::PATIENCE, || {
        let reply = talk.request(&Request::Health)?;
        let Reply::Health(health) = reply else { bail!("asked for the health and got {reply:?}") };
        Ok((health.connected >= agents).then_some(()))
    })
}

/// One subprogram for each workstation.
fn place(talk: &BlockingClient, agents: u32) -> Result<Duration> {
    let indexes = IndexRange::count_of(agents).context("at least one agent")?;
    let start = Clock.now();
    let job = talk.submit(JobSpec::new(vec!["/bin/true".into()], indexes))?;
    let summary = talk.wait(job)?;
    if summary.state != JobState::Succeeded {
        bail!("job {job} came to {summary:?}");
    }
    Ok(Clock.now().since(start))
}

/// CPU time of a process so far, all threads, in seconds.
fn cpu_s(pid: u32) -> Result<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let ns = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        total += ns.unwrap_or(0.0) / 1e9;
    }
    Ok(total)
}
