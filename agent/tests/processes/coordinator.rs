//! A coordinator that does as the tests tell it: real QUIC, no brain.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gleaner_common::id::{ContentHash, SpoolLife, WorkstationId};
use gleaner_common::usage::{LifeKept, UsageRecord};
use gleaner_common::wire::{
    AgentFrame, BlobReply, CoordinatorFrame, KeyHash, Purpose, Role, UsageFrame, UsageReply,
};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{Admission, serve};
use gleaner_shell::identity::Authority;
use gleaner_shell::stream::{FrameReader, FrameWriter, read_opening};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::machine::LONG;

/// Soon enough to be waited for.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Shared {
    workstation: WorkstationId,
    /// What the next hello is answered with; by default so long that none ends
    /// by itself, whatever else the machine has to do.
    lease: Mutex<Option<Duration>>,
    /// Where the agent says that others reach it.
    addresses: Mutex<Vec<SocketAddr>>,
    blobs: Mutex<BTreeMap<ContentHash, Vec<u8>>>,
    records: Mutex<Vec<UsageRecord>>,
    /// Whose keys were revoked.
    revoked: Mutex<Vec<KeyHash>>,
    muted: AtomicBool,
    writer: Mutex<Option<UnboundedSender<CoordinatorFrame>>>,
}

/// Serves one agent; every frame but heartbeats is for the test to read.
pub(crate) struct Coordinator {
    frames: Receiver<AgentFrame>,
    shared: Arc<Shared>,
    _runtime: tokio::runtime::Runtime,
}

impl Coordinator {
    /// Also enrols an agent into a directory. Those of one home share their
    /// authority, so that their agents know each other.
    pub(crate) fn start(home: &Path, identity: &Path, workstation: WorkstationId) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let authority = Authority::load_or_create(home).unwrap();
        let shared = Arc::new(Shared { workstation, ..Shared::default() });
        let (told, frames) = channel();
        let endpoint = {
            let _guard = runtime.enter();
            let admit = Arc::new(|_: &[u8]| Admission::Enrolled);
            serve("127.0.0.1:0".parse().unwrap(), &authority, admit).unwrap()
        };
        let address = endpoint.local_addr().unwrap();
        let agent = authority
            .issue_identity(Role::Agent, &name_of(workstation), &address.to_string())
            .unwrap();
        std::fs::create_dir_all(identity).unwrap();
        agent.store(identity).unwrap();
        let state = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let (state, told) = (Arc::clone(&state), told.clone());
                tokio::spawn(async move {
                    let Ok(connection) = incoming.await else { return };
                    while let Ok(stream) = connection.accept_bi().await {
                        let (state, told) = (Arc::clone(&state), told.clone());
                        tokio::spawn(async move {
                            if let Ok(opened) = read_opening(stream).await {
                                state.stream(opened, told).await;
                            }
                        });
                    }
                });
            }
        });
        Self { frames, shared, _runtime: runtime }
    }

    /// Says something to the agent.
    pub(crate) fn say(&self, frame: CoordinatorFrame) {
        let writer = self.shared.writer.lock().unwrap();
        writer.as_ref().expect("an agent is connected").send(frame).unwrap();
    }

    /// Takes an agent's key away, and tells so.
    pub(crate) fn revoke(&self, key: KeyHash) {
        self.shared.revoked.lock().unwrap().push(key);
        let (keys, now) = (vec![key], Clock.wall());
        self.say(CoordinatorFrame::Revoked { all: false, keys, now });
    }

    /// Reads frames until one is wanted.
    #[track_caller]
    pub(crate) fn expect<T>(&self, what: &str, want: impl Fn(AgentFrame) -> Option<T>) -> T {
        loop {
            match self.frames.recv_timeout(LONG) {
                Ok(frame) => {
                    if let Some(found) = want(frame) {
                        return found;
                    }
                }
                Err(error) => panic!("never: {what}: {error}"),
            }
        }
    }

    /// Where the agent says that others reach it.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.shared.addresses.lock().unwrap().clone()
    }

    /// The next frame, if one comes soon.
    pub(crate) fn next(&self, within: Duration) -> Option<AgentFrame> {
        self.frames.recv_timeout(within).ok()
    }

    /// Answers nothing any more, or again; the test hears all the same.
    pub(crate) fn mute(&self, muted: bool) {
        self.shared.muted.store(muted, Ordering::SeqCst);
    }

    /// For those who say hello from now on.
    pub(crate) fn grant(&self, lease: Duration) {
        *self.shared.lease.lock().unwrap() = Some(lease);
    }

    pub(crate) fn put(&self, bytes: &[u8]) -> ContentHash {
        let hash = gleaner_shell::blob::hash_bytes(bytes);
        self.shared.blobs.lock().unwrap().insert(hash, bytes.to_vec());
        hash
    }

    pub(crate) fn blob(&self, hash: ContentHash) -> Vec<u8> {
        self.shared.blobs.lock().unwrap()[&hash].clone()
    }

    pub(crate) fn records(&self) -> Vec<UsageRecord> {
        self.shared.records.lock().unwrap().clone()
    }
}

impl Shared {
    async fn stream(
        &self,
        (purpose, writer, reader): (Purpose, FrameWriter, FrameReader),
        told: Sender<AgentFrame>,
    ) {
        match purpose {
            Purpose::Agent => self.agent(writer, reader, told).await,
            Purpose::Usage => self.usage(writer, reader).await,
            Purpose::Put { hash, .. } => self.put(hash, writer, reader).await,
            Purpose::Get { hash } => self.get(hash, writer).await,
            other => panic!("an agent opens no {other:?}"),
        }
    }

    async fn agent(
        &self,
        mut writer: FrameWriter,
        mut reader: FrameReader,
        told: Sender<AgentFrame>,
    ) {
        let (sender, mut orders): (_, UnboundedReceiver<CoordinatorFrame>) = unbounded_channel();
        *self.writer.lock().unwrap() = Some(sender);
        loop {
            let answer = tokio::select! {
                frame = reader.next::<AgentFrame>() => {
                    let Ok(Some(frame)) = frame else { return };
                    if let AgentFrame::Hello { facts, .. } = &frame {
                        self.addresses.lock().unwrap().clone_from(&facts.addresses);
                    }
                    let answer = self.answer_to(&frame);
                    if !matches!(frame, AgentFrame::Heartbeat { .. }) {
                        let _ = told.send(frame);
                    }
                    answer.filter(|_| !self.muted.load(Ordering::SeqCst))
                }
                order = orders.recv() => order,
            };
            let Some(answer) = answer else { continue };
            if writer.send(&answer).await.is_err() {
                return;
            }
            if matches!(answer, CoordinatorFrame::Welcome { .. }) {
                let (now, keys) = (Clock.wall(), self.revoked.lock().unwrap().clone());
                let revoked = CoordinatorFrame::Revoked { all: true, keys, now };
                let _ = writer.send(&revoked).await;
            }
        }
    }

    async fn usage(&self, mut writer: FrameWriter, mut reader: FrameReader) {
        while let Ok(Some(frame)) = reader.next().await {
            let reply = match frame {
                UsageFrame::Lives(lives) => {
                    let lives = lives.iter().map(|asked| self.kept(asked.life));
                    UsageReply::Kept(lives.collect())
                }
                UsageFrame::Records(records) => {
                    let Some(last) = records.last() else { return };
                    let reply = UsageReply::Confirmed { life: last.life, sequence: last.sequence };
                    self.records.lock().unwrap().extend(records);
                    reply
                }
            };
            if writer.send(&reply).await.is_err() {
                return;
            }
        }
    }

    fn kept(&self, life: SpoolLife) -> LifeKept {
        let records = self.records.lock().unwrap();
        let of_life = records.iter().filter(|record| record.life == life);
        let numbers: Vec<u64> = of_life.map(|record| record.sequence).collect();
        let (count, last) = (numbers.len() as u64, numbers.last().copied().unwrap_or(0));
        LifeKept { life, records: count, last, ranges: numbers.iter().map(|n| (*n, *n)).collect() }
    }

    async fn put(&self, hash: ContentHash, mut writer: FrameWriter, mut reader: FrameReader) {
        let mut bytes = vec![];
        while let Ok(Some(chunk)) = reader.next_raw().await {
            bytes.extend_from_slice(&chunk);
        }
        assert_eq!(gleaner_shell::blob::hash_bytes(&bytes), hash);
        let size_bytes = bytes.len() as u64;
        self.blobs.lock().unwrap().insert(hash, bytes);
        let _ = writer.send(&BlobReply::Have { size_bytes }).await;
        writer.finish();
    }

    async fn get(&self, hash: ContentHash, mut writer: FrameWriter) {
        let bytes = self.blobs.lock().unwrap().get(&hash).cloned();
        let reply = match &bytes {
            Some(bytes) => BlobReply::Have { size_bytes: bytes.len() as u64 },
            None => BlobReply::No { reason: "no such file".into() },
        };
        let _ = writer.send(&reply).await;
        let _ = writer.send_raw(&bytes.unwrap_or_default()).await;
        writer.finish();
    }

    /// What any coordinator answers at once.
    fn answer_to(&self, frame: &AgentFrame) -> Option<CoordinatorFrame> {
        let workstation = self.workstation;
        match frame {
            AgentFrame::Hello { held, .. } => Some(CoordinatorFrame::Welcome {
                workstation,
                name: name_of(workstation),
                lease: self.lease.lock().unwrap().unwrap_or(LONG),
                heartbeat: SHORT_LEASE / 8,
                heartbeat_without_guests: SHORT_LEASE / 4,
                keep: held.iter().map(|(fence, _)| *fence).collect(),
                generation: gleaner_common::id::Generation::default(),
                newest: gleaner_common::id::Fence::default(),
            }),
            AgentFrame::Heartbeat { sequence, .. } => {
                Some(CoordinatorFrame::HeartbeatAck { sequence: *sequence })
            }
            AgentFrame::Attempt(event) if event.is_end() => {
                Some(CoordinatorFrame::Acknowledge { fence: event.fence() })
            }
            AgentFrame::Attempt(_)
            | AgentFrame::Presence(_)
            | AgentFrame::Leaving { .. }
            | AgentFrame::Relay { .. }
            | AgentFrame::FromRank { .. }
            | AgentFrame::Missing(_)
            | AgentFrame::Unready(_)
            | AgentFrame::Stopped { .. }
            | AgentFrame::Unknown(_) => None,
        }
    }
}

pub(crate) fn name_of(workstation: WorkstationId) -> String {
    format!("desk-{}", workstation.0)
}
