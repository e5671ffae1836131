//! A real collector process on a real QUIC connection, with a coordinator
//! that is only as much of one as passes streams on.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gleaner_collector::{CollectorConfig, CollectorError, run};
use gleaner_common::id::{SpoolLife, WorkstationId};
use gleaner_common::usage::UsageRecord;
use gleaner_common::wire::{Purpose, Role, UsageFrame, UsageReply, close};
use gleaner_disks::SmallDisk;
use gleaner_shell::endpoint::{Admission, serve};
use gleaner_shell::identity::Authority;
use gleaner_shell::stream::{FrameReader, FrameWriter, StreamError, open};
use quinn::{Connection, Endpoint};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::records::{kept, record};

const DIRECTORY: &str = "GLEANER_TEST_COLLECTOR_DIRECTORY";

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test of its own: the process that the tests below talk to.
#[test]
fn child_that_is_a_collector() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    if let Err(error) = run(config(Path::new(&dir))) {
        panic!("{error}");
    }
}

fn config(dir: &Path) -> CollectorConfig {
    CollectorConfig { data_dir: dir.join("data"), identity_dir: dir.join("identity") }
}

/// A coordinator and its collector.
pub(crate) struct Lab {
    dir: PathBuf,
    authority: Authority,
    address: SocketAddr,
    endpoint: Endpoint,
    collector: Child,
    /// Removed at the end.
    made: Option<TempDir>,
}

impl Lab {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut lab = Self::start_in(dir.path());
        lab.made = Some(dir);
        lab
    }

    fn start_in(dir: &Path) -> Self {
        let authority = Authority::create(dir).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = listen(&authority, any);
        let address = endpoint.local_addr().unwrap();
        let identity =
            authority.issue_identity(Role::Collector, "collector", &address.to_string()).unwrap();
        identity.store(&dir.join("identity")).unwrap();
        let collector = spawn(dir);
        Self { dir: dir.to_owned(), authority, address, endpoint, collector, made: None }
    }

    pub(crate) async fn connection(&self) -> Connection {
        let arrives = async { self.endpoint.accept().await.unwrap().await.unwrap() };
        tokio::time::timeout(PATIENCE, arrives).await.expect("the collector does not dial")
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Sends a signal and tells whether the collector then ends well.
    fn end(&mut self, signal: Signal) -> bool {
        let pid = Pid::from_child(&self.collector);
        kill_process(pid, signal).unwrap();
        self.collector.wait().unwrap().success()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.collector.kill();
        let _ = self.collector.wait();
    }
}

fn listen(authority: &Authority, address: SocketAddr) -> Endpoint {
    serve(address, authority, Arc::new(|_: &[u8]| Admission::Enrolled)).unwrap()
}

fn spawn(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "receive::child_that_is_a_collector"])
        .env(DIRECTORY, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A workstation's usage stream, as the collector sees it.
pub(crate) struct Agent {
    writer: FrameWriter,
    reader: FrameReader,
}

impl Agent {
    pub(crate) async fn of(connection: &Connection, name: &str) -> Self {
        let purpose = Purpose::Relay { workstation: WorkstationId(1), name: name.into() };
        let (writer, reader) = open(connection, purpose).await.unwrap();
        Self { writer, reader }
    }

    pub(crate) async fn send(&mut self, records: Vec<UsageRecord>) {
        self.writer.send(&UsageFrame::Records(records)).await.unwrap();
    }

    pub(crate) async fn reply(&mut self) -> Result<UsageReply, StreamError> {
        tokio::time::timeout(PATIENCE, self.reader.expect()).await.expect("no reply")
    }

    #[track_caller]
    pub(crate) fn confirmed(reply: Result<UsageReply, StreamError>, sequence: u64) {
        assert_eq!(reply.unwrap(), UsageReply::Confirmed { life: SpoolLife([4; 16]), sequence });
    }
}

pub(crate) fn records(sequences: std::ops::RangeInclusive<u64>) -> Vec<UsageRecord> {
    sequences.map(record).collect()
}

pub(crate) fn on_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn what_is_confirmed_is_on_disk_and_survives_sigkill() {
    on_runtime(async {
        let mut lab = Lab::start();
        let connection = lab.connection().await;
        let mut ada = Agent::of(&connection, "ada").await;
        for (first, last) in [(1, 1), (2, 2), (3, 5), (6, 1_005)] {
            ada.send(records(first..=last)).await;
            Agent::confirmed(ada.reply().await, last);
            assert_eq!(kept(&lab.data(), "ada"), records(1..=last));
        }
        assert!(!lab.end(Signal::KILL));
        // The next one dials by itself; what comes again is kept once.
        lab.collector = spawn(&lab.dir);
        let connection = lab.connection().await;
        let mut ada = Agent::of(&connection, "ada").await;
        ada.send(records(1_000..=1_010)).await;
        Agent::confirmed(ada.reply().await, 1_010);
        assert_eq!(kept(&lab.data(), "ada"), records(1..=1_010));
        assert!(lab.end(Signal::TERM), "SIGTERM is a clean end");
    });
}

#[test]
fn more_workstations_than_a_connection_usually_has_streams_are_served() {
    on_runtime(async {
        let lab = Lab::start();
        let connection = lab.connection().await;
        let mut agents = vec![];
        for number in 0..300 {
            let mut agent = Agent::of(&connection, &format!("ws-{number}")).await;
            agent.send(records(1..=2)).await;
            agents.push(agent);
        }
        for agent in &mut agents {
            Agent::confirmed(agent.reply().await, 2);
        }
        assert_eq!(kept(&lab.data(), "ws-299"), records(1..=2));
    });
}

#[test]
fn the_collector_comes_back_to_a_coordinator_that_was_away() {
    on_runtime(async {
        let mut lab = Lab::start();
        let connection = lab.connection().await;
        connection.close(close::DONE.into(), b"");
        lab.endpoint.wait_idle().await;
        drop(connection);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        lab.endpoint = Endpoint::client(any).unwrap();
        lab.endpoint = rebind(&lab.authority, lab.address).await;
        let connection = lab.connection().await;
        let mut ada = Agent::of(&connection, "ada").await;
        ada.send(records(1..=3)).await;
        Agent::confirmed(ada.reply().await, 3);
    });
}

/// The old socket is closed by a task of its own: until then the port is taken.
async fn rebind(authority: &Authority, address: SocketAddr) -> Endpoint {
    loop {
        let free = std::net::UdpSocket::bind(address).is_ok();
        if free {
            return listen(authority, address);
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_stream_that_breaks_the_rules_is_given_up_and_the_others_go_on() {
    on_runtime(async {
        let lab = Lab::start();
        let connection = lab.connection().await;
        let mut good = Agent::of(&connection, "good").await;
        let mut two_lives = records(1..=2);
        two_lives[1].life = SpoolLife([9; 16]);
        let mut long = records(1..=1);
        long[0].reason = "x".repeat(10_000);
        let backwards = records(1..=3).into_iter().rev().collect();
        for bad in [vec![], two_lives, long, backwards, records(1..=1_001)] {
            let mut agent = Agent::of(&connection, "bad").await;
            agent.send(bad).await;
            assert_eq!(agent.reply().await, Err(StreamError::Reset { code: close::PROTOCOL }));
        }
        for name in ["../../etc/cron.d/x", "", ".lock", "a/b"] {
            let mut agent = Agent::of(&connection, name).await;
            agent.send(records(1..=1)).await;
            assert_eq!(agent.reply().await, Err(StreamError::Reset { code: close::PROTOCOL }));
        }
        good.send(records(1..=3)).await;
        Agent::confirmed(good.reply().await, 3);
        let names: Vec<_> = std::fs::read_dir(lab.data())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != ".lock")
            .collect();
        assert_eq!(names, ["good"]);
    });
}

#[test]
fn a_full_disk_is_told_to_the_agent_and_nothing_behind_is_confirmed() {
    let Some(disk) = SmallDisk::mount(192).unwrap() else { return };
    on_runtime(async {
        let lab = Lab::start_in(disk.path());
        let connection = lab.connection().await;
        let mut ada = Agent::of(&connection, "ada").await;
        let mut next = 1;
        let reason = loop {
            ada.send(records(next..=next + 99)).await;
            match ada.reply().await.unwrap() {
                UsageReply::Confirmed { sequence, .. } => next = sequence + 1,
                UsageReply::Deferred { reason } => break reason,
                UsageReply::Kept(_) => panic!("nobody asked"),
            }
        };
        assert!(reason.contains("No space left on device"), "{reason}");
        // What lies behind the deferred records must wait for them, even if small.
        ada.send(vec![record(next + 100)]).await;
        assert!(matches!(ada.reply().await, Ok(UsageReply::Deferred { .. })));
        assert!(disk.resize(4 << 10));
        ada.send(records(next..=next + 99)).await;
        Agent::confirmed(ada.reply().await, next + 99);
        ada.send(vec![record(next + 100)]).await;
        Agent::confirmed(ada.reply().await, next + 100);
        assert_eq!(kept(&lab.data(), "ada"), records(1..=next + 100));
    });
}

#[test]
fn an_identity_that_is_no_collectors_is_refused_before_anything_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let identity = dir.path().join("identity");
    let error = run(config(dir.path())).unwrap_err().to_string();
    assert_eq!(error, format!("not enrolled: no identity in {}", identity.display()));
    let authority = Authority::create(dir.path()).unwrap();
    let agent = authority.issue_identity(Role::Agent, "ada", "127.0.0.1:1").unwrap();
    agent.store(&identity).unwrap();
    let error = run(config(dir.path())).unwrap_err();
    assert!(matches!(error, CollectorError::Role { .. }));
    assert_eq!(
        error.to_string(),
        format!("the identity in {} is of role agent: expected collector", identity.display())
    );
    assert!(!dir.path().join("data").exists());
}

#[test]
fn a_configuration_with_an_unknown_key_is_refused() {
    let error = gleaner_shell::config::parse::<CollectorConfig>(
        Path::new("collector.toml"),
        "data_dir = \"/data\"\ndata_dri = 1\n",
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "collector.toml:2:1: unknown field `data_dri`, expected `data_dir` or `identity_dir`"
    );
}
