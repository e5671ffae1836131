//! A coordinator killed with SIGKILL in the middle of a job goes on where it
//! was. The coordinator runs in a process of its own: this test's binary,
//! started again with a directory in its environment.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gleaner_common::wire::{
    AgentFrame, AttemptEvent, CoordinatorFrame, GuestState, Reply, Request, Role,
};
use gleaner_coordinator::{ADMIN, serve};
use gleaner_program_core::address::Task;
use gleaner_program_core::wire::{Answer, Ask};
use gleaner_shell::client::Client;
use gleaner_shell::enrol::enrol;
use gleaner_shell::identity::Identity;

use crate::agent::{Agent, finished, hello};
use crate::coordinator::{PATIENCE, all_of, config, listing, spec, submit, token, watch};
use crate::moves::owner_comes;
use crate::ranks::{answer, asks, program};

const VARIABLE: &str = "GLEAN_TEST_COORDINATOR";
const ADDRESS: &str = "address";
/// There, if leases are short.
const SHORT: &str = "short";
pub const SHORT_LEASE: Duration = Duration::from_secs(3);

/// Not a test, unless started by one: the coordinator to be killed.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(VARIABLE) else { return };
    let dir = Path::new(&dir);
    let mut config = config(&dir.join("data"));
    if dir.join(SHORT).exists() {
        (config.lease, config.heartbeat) = (SHORT_LEASE, SHORT_LEASE / 3);
    }
    // The second life listens where the first did.
    config.listen = match std::fs::read_to_string(dir.join(ADDRESS)) {
        Ok(address) => address.parse().unwrap(),
        Err(_) => lasting_address(),
    };
    let ready = |address: SocketAddr| {
        let (new, file) = (dir.join("address.new"), dir.join(ADDRESS));
        std::fs::write(&new, address.to_string()).unwrap();
        std::fs::rename(new, file).unwrap();
        std::fs::write(dir.join("ready"), std::process::id().to_string()).unwrap();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(&config, ready, std::future::pending())).unwrap();
}

/// Nobody is given this port who asks for any, as other tests do while the
/// coordinator is dead: Linux takes those from 32768 on.
fn lasting_address() -> SocketAddr {
    let first = u16::try_from(std::process::id().wrapping_mul(7_919) % 20_000).unwrap() + 10_000;
    let mut addresses = (first..32_768).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    addresses.find(|address| UdpSocket::bind(address).is_ok()).unwrap()
}

pub struct Process(Child);

impl Process {
    pub async fn start(dir: &Path) -> Self {
        let _ = std::fs::remove_file(dir.join("ready"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "restart::child", "--nocapture"])
            .env(VARIABLE, dir)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = Self(child);
        tokio::time::timeout(PATIENCE, async {
            while !dir.join("ready").exists() {
                assert!(process.0.try_wait().unwrap().is_none(), "the child ended");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the child did not start");
        process
    }

    /// One whose agents' guests end soon.
    pub async fn start_with_short_lease(dir: &Path) -> Self {
        std::fs::write(dir.join(SHORT), "").unwrap();
        Self::start(dir).await
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

pub async fn admin(dir: &Path) -> Client {
    let admin = Identity::load(&dir.join("data").join(ADMIN)).unwrap();
    Client::connect(&admin, None).await.unwrap()
}

pub async fn enrolled(dir: &Path, name: &str) -> Identity {
    let admin = admin(dir).await;
    let token = token(&admin, Role::Agent, PATIENCE, None).await;
    enrol(&admin.link().address, &token, name).await.unwrap()
}

#[tokio::test]
async fn a_killed_coordinator_keeps_its_guests_and_its_fences() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path()).await;
    let desk = enrolled(dir.path(), "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 2).await;
    let client = admin(dir.path()).await;
    let job = submit(&client, spec(3)).await;
    let (first, second) = (agent.offer().await, agent.offer().await);
    agent.started(first.fence).await;
    agent.started(second.fence).await;
    agent.say(finished(first.fence, "first\n")).await;
    agent.acknowledged(first.fence).await;
    process.kill();

    let process = Process::start(dir.path()).await;
    // The guest goes on meanwhile, and ends before the agent is back.
    let held = vec![(second.fence, GuestState::Running)];
    let mut agent = Agent::with(&desk, hello(1, 2, held)).await;
    assert_eq!(agent.keep, [second.fence]);
    // Told again, in case the first was not heard.
    agent.say(finished(first.fence, "first\n")).await;
    agent.say(finished(second.fence, "second\n")).await;
    let mut newest = None;
    let mut open = vec![first.fence, second.fence];
    while newest.is_none() || !open.is_empty() {
        match agent.next().await.unwrap() {
            CoordinatorFrame::Acknowledge { fence } => open.retain(|other| *other != fence),
            CoordinatorFrame::Offer(offer) => newest = Some(offer),
            _ => {}
        }
    }
    let third = newest.unwrap();
    assert!(third.fence > second.fence.max(first.fence), "a fence was given out twice");
    agent.started(third.fence).await;
    agent.say(finished(third.fence, "third\n")).await;
    let client = admin(dir.path()).await;
    let summary = watch(&client, job).await;
    assert_eq!((summary.counts.succeeded, summary.counts.lost, summary.counts.failed), (3, 0, 0));
    for subprogram in [first.subprogram, second.subprogram, third.subprogram] {
        assert_eq!(listing(&client, Request::Attempts(subprogram)).await.len(), 1);
    }
    process.kill();
}

#[tokio::test]
async fn killed_again_and_again_it_finishes_every_subprogram_once() {
    const COUNT: u32 = 600;
    let dir = tempfile::tempdir().unwrap();
    let mut process = Process::start_with_short_lease(dir.path()).await;
    let desk = enrolled(dir.path(), "desk-1").await;
    let job = submit(&admin(dir.path()).await, spec(COUNT)).await;
    for round in 1..=4 {
        let work = tokio::spawn(Agent::follows(&desk, round, 4).await.work());
        let client = admin(dir.path()).await;
        // In the middle of the work, after some more of it was done.
        let wanted = COUNT / 5 * u32::try_from(round).unwrap();
        let mut changes = client.rows(&Request::Watch(job)).await.unwrap();
        while let Some(Reply::Summary(summary)) = changes.next().await.unwrap() {
            if summary.counts.succeeded >= wanted {
                break;
            }
        }
        process.kill();
        work.abort();
        process = Process::start(dir.path()).await;
    }
    tokio::spawn(Agent::follows(&desk, 9, 4).await.work());
    let client = admin(dir.path()).await;
    let summary = watch(&client, job).await;
    assert_eq!((summary.counts.succeeded, summary.counts.failed), (COUNT, 0));
    let rows = listing(&client, all_of(job)).await;
    assert_eq!(rows.len(), COUNT as usize);
    process.kill();
}

#[tokio::test]
async fn a_killed_coordinator_has_answered_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path()).await;
    let desk = enrolled(dir.path(), "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 2).await;
    let client = admin(dir.path()).await;
    let job = submit(&client, program(2)).await;
    let (first, second) = (agent.offer().await, agent.offer().await);
    agent.started(first.fence).await;
    agent.started(second.fence).await;
    agent.say(asks(first.fence, 1, Ask::PutTask { task: vec![1] })).await;
    agent.say(asks(first.fence, 2, Ask::PutTask { task: vec![2] })).await;
    assert_eq!(answer(&mut agent).await, (1, Answer::Put { task: Task(0) }));
    assert_eq!(answer(&mut agent).await, (2, Answer::Put { task: Task(1) }));
    agent.say(asks(second.fence, 1, Ask::NextTask)).await;
    let task = Answer::Task { task: Task(0), bytes: vec![1] };
    assert_eq!(answer(&mut agent).await, (1, task.clone()));
    process.kill();

    let process = Process::start(dir.path()).await;
    let held = [first.fence, second.fence].map(|fence| (fence, GuestState::Running));
    let mut agent = Agent::with(&desk, hello(1, 2, held.into())).await;
    assert_eq!(agent.keep, [first.fence, second.fence]);
    agent.say(asks(second.fence, 1, Ask::NextTask)).await;
    assert_eq!(answer(&mut agent).await, (1, task));
    agent.say(asks(first.fence, 3, Ask::NextTask)).await;
    let other = Answer::Task { task: Task(1), bytes: vec![2] };
    assert_eq!(answer(&mut agent).await, (3, other));
    for fence in [first.fence, second.fence] {
        agent.say(finished(fence, "done\n")).await;
    }
    let client = admin(dir.path()).await;
    assert_eq!(watch(&client, job).await.counts.succeeded, 2);
    process.kill();
}

#[tokio::test]
async fn a_killed_coordinator_goes_on_with_a_move() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path()).await;
    let (one, two) = (enrolled(dir.path(), "one").await, enrolled(dir.path(), "two").await);
    let mut source = Agent::connect(&one, 1, 1).await;
    let job = submit(&admin(dir.path()).await, program(1)).await;
    let old = source.offer().await.fence;
    source.started(old).await;
    let mut target = Agent::connect(&two, 2, 1).await;
    let new = owner_comes(&mut source, &mut target, old).await.0.fence;
    process.kill();

    let process = Process::start(dir.path()).await;
    let away = hello(1, 0, vec![(old, GuestState::Leaving)]);
    let mut source = Agent::with(&one, away).await;
    let to = source
        .until(|frame| match frame {
            CoordinatorFrame::Depart { fence, to, .. } if fence == old => Some(to),
            _ => None,
        })
        .await;
    assert_eq!((to.at.fence, to.at.name.as_str()), (new, "two"));
    let awaits = hello(2, 1, vec![(new, GuestState::Waiting)]);
    let mut target = Agent::with(&two, awaits.clone()).await;
    assert_eq!(target.keep, [new]);
    let arrived = AttemptEvent::Arrived { fence: new, bytes: 7, frozen: PATIENCE };
    target.say(AgentFrame::Attempt(arrived.clone())).await;
    source.until(|frame| (frame == CoordinatorFrame::Cancel { fence: old }).then_some(())).await;
    process.kill();

    // The target had not heard that the attempt may go on, and asks again.
    let process = Process::start(dir.path()).await;
    let mut target = Agent::with(&two, awaits).await;
    target.say(AgentFrame::Attempt(arrived)).await;
    target.until(|frame| (frame == CoordinatorFrame::GoOn { fence: new }).then_some(())).await;
    target.say(finished(new, "there\n")).await;
    let summary = watch(&admin(dir.path()).await, job).await;
    assert_eq!((summary.counts.succeeded, summary.counts.moves, summary.counts.lost), (1, 1, 0));
    process.kill();
}

/// What happened is written down anew now and then: none of it is lost by that.
#[tokio::test]
async fn a_killed_coordinator_knows_a_long_past() {
    const TASKS: u64 = 50;
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path()).await;
    let desk = enrolled(dir.path(), "desk-1").await;
    let mut agent = Agent::connect(&desk, 1, 1).await;
    let client = admin(dir.path()).await;
    submit(&client, program(1)).await;
    let fence = agent.offer().await.fence;
    agent.started(fence).await;
    for number in 0..TASKS {
        let (task, put) = (Task(number), vec![1; 60_000]);
        let asked = [
            (Ask::PutTask { task: put.clone() }, Answer::Put { task }),
            (Ask::NextTask, Answer::Task { task, bytes: put }),
            (Ask::Done { task, result: vec![2; 9] }, Answer::Done { first: true }),
        ];
        for (request, (ask, expected)) in (3 * number + 1..).zip(asked) {
            agent.say(asks(fence, request, ask)).await;
            assert_eq!(answer(&mut agent).await, (request, expected));
        }
    }
    process.kill();

    let process = Process::start(dir.path()).await;
    let held = vec![(fence, GuestState::Running)];
    let mut agent = Agent::with(&desk, hello(1, 1, held)).await;
    assert_eq!(agent.keep, [fence]);
    for number in 0..TASKS {
        let request = 3 * TASKS + 1 + number;
        agent.say(asks(fence, request, Ask::NextResult)).await;
        let result = Answer::Result { task: Task(number), bytes: vec![2; 9] };
        assert_eq!(answer(&mut agent).await, (request, result));
    }
    process.kill();
}
