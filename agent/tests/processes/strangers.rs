//! An enrolled agent that says to others what it may not. It is the test itself:
//! it has a certificate of the lab's authority and dials the real port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gleaner_common::id::{Fence, JobId, WorkstationId};
use gleaner_common::program::{Life, RankAt};
use gleaner_common::wire::{CoordinatorFrame, KeyHash, Purpose, Request, Role, close};
use gleaner_program_core::address::{Communicator as Space, Envelope, Rank, Snapshot, Tag};
use gleaner_program_core::framing;
use gleaner_program_core::wire::{Ack, Between, Packet, PeerFrame};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{AdmitPeer, Ended, PeerStanding, dial_peer, listen_to_peers};
use gleaner_shell::identity::{Authority, Identity, key_hash};
use gleaner_shell::stream::{self, StreamError};
use quinn::{Connection, Endpoint};
use tokio::runtime::{Builder, Runtime};

use crate::Test;
use crate::agent::Lab;
use crate::machine::until;
use crate::ranks::{JOB, Site, check_ring};

pub(crate) const TESTS: &[Test] = &[
    ("a_revoked_agent_is_shut_out_at_once_and_after_the_others_have_restarted", revoked),
    ("an_enrolled_agent_speaks_for_no_rank_of_anothers_program", forges),
];

/// Another workstation of the lab.
const NAME: &str = "desk-9";

struct Stranger {
    runtime: Runtime,
    endpoint: Endpoint,
    identity: Identity,
}

impl Stranger {
    fn of(lab: &Lab) -> Self {
        let authority = Authority::load(&lab.authority()).unwrap();
        let identity = authority.issue_identity(Role::Agent, NAME, "nowhere:1").unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let endpoint = runtime.block_on(async {
            listen_to_peers("127.0.0.1:0".parse().unwrap(), &identity, anybody()).unwrap()
        });
        Self { runtime, endpoint, identity }
    }

    fn key(&self) -> KeyHash {
        key_hash(&self.identity.spki())
    }

    fn dial(&self, name: &str, addresses: &[SocketAddr]) -> Connection {
        let dialled = dial_peer(&self.endpoint, &self.identity, name, addresses, anybody());
        self.runtime.block_on(dialled).unwrap()
    }

    fn ended(&self, connection: &Connection) -> Ended {
        self.runtime.block_on(connection.closed()).into()
    }

    /// Is anything answered? What is not between agents is refused by stream.
    fn is_heard(&self, connection: &Connection) -> bool {
        self.runtime.block_on(async {
            let Ok((mut writer, mut reader)) = stream::open(connection, Purpose::Request).await
            else {
                return false;
            };
            let _ = writer.send(&Request::Health).await;
            let refused = StreamError::Reset { code: close::FORBIDDEN };
            reader.expect::<u32>().await == Err(refused)
        })
    }
}

fn anybody() -> Arc<AdmitPeer> {
    Arc::new(|_| PeerStanding::Good(Clock.wall()))
}

fn revoked() {
    let mut lab = Lab::of(WorkstationId(1), None);
    lab.start();
    let [stranger, other] = [(), ()].map(|()| Stranger::of(&lab));
    let addresses = lab.coordinator.addresses();
    let open = stranger.dial("desk-1", &addresses);
    assert!(stranger.is_heard(&open));
    lab.coordinator.revoke(stranger.key());
    let ended = stranger.ended(&open).to_string();
    assert!(ended.contains("this identity has been revoked"), "{ended}");
    assert_eq!(stranger.ended(&stranger.dial("desk-1", &addresses)), Ended::Revoked);
    // It learns it again when it registers, and hears nobody before.
    lab.stop();
    lab.start();
    let addresses = lab.coordinator.addresses();
    until("those who were not revoked are heard", || {
        other.is_heard(&other.dial("desk-1", &addresses))
    });
    assert_eq!(stranger.ended(&stranger.dial("desk-1", &addresses)), Ended::Revoked);
}

/// It is known to both agents, for it has a rank of another program.
fn forges() {
    let mut site = Site::new();
    site.addresses = site.labs.iter().map(|lab| lab.coordinator.addresses()).collect();
    let stranger = Stranger::of(&site.labs[0]);
    let own = RankAt {
        rank: 0,
        fence: Fence::of(7_000),
        workstation: WorkstationId(9),
        name: NAME.into(),
        addresses: vec![],
    };
    let (job, life) = (JobId(77), Life(1));
    for lab in &site.labs {
        let at = vec![own.clone()];
        lab.coordinator.say(CoordinatorFrame::Ranks { job, life, at });
    }
    site.offer("ring", 4, |rank| rank as usize % 2);
    let lies = lies(&site);
    let streams: Vec<_> = (1..)
        .zip(&site.addresses)
        .map(|(number, at)| {
            let connection = stranger.dial(&format!("desk-{number}"), at);
            stranger.runtime.block_on(async {
                let (mut writer, _) = stream::open(&connection, Purpose::Packets).await.unwrap();
                writer.flush().await.unwrap();
                (connection.clone(), writer.into_stream())
            })
        })
        .collect();
    let over = Arc::new(AtomicBool::new(false));
    for (connection, mut stream) in streams {
        let (over, lies) = (Arc::clone(&over), lies.clone());
        stranger.runtime.spawn(async move {
            while !over.load(Ordering::Relaxed) && stream.write_all(&lies).await.is_ok() {
                Clock.sleep(Duration::from_millis(1)).await; // The agents have work to do.
            }
            drop(connection);
        });
    }
    check_ring(&mut site);
    for lab in &site.labs {
        until("it is warned of", || {
            lab.log().contains("an agent speaks for a rank that is not there")
        });
    }
    over.store(true, Ordering::Relaxed);
}

/// The first messages of every rank to every other, as somebody else tells them:
/// of the attempt that there is, and of the next.
fn lies(site: &Site) -> Vec<u8> {
    let mut bytes = vec![];
    let ranks = || site.at.values();
    for (from, to) in ranks().flat_map(|from| ranks().map(move |to| (from, to))) {
        for (fence, number) in (0..2).flat_map(|next| (1..4).map(move |it| (next, it))) {
            let envelope = Envelope::whole(Space(0), Tag(1));
            let (snapshot, ack) = (Snapshot(0), Ack { received: 0, limit: 0, lost: true });
            let payload = vec![0xee; 4].into();
            let frame = PeerFrame::Data { snapshot, ack, number, envelope, payload };
            let packet = Packet {
                job: JOB,
                life: Life(1),
                to: Rank(to.rank),
                from: Rank(from.rank),
                fence: Fence::of(from.fence.number + fence * 1_000),
                frame,
            };
            framing::encode_whole(&Between::Packet(packet), &mut bytes).unwrap();
        }
    }
    bytes
}
