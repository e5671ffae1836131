//! Other agents: one UDP port that takes their connections and dials them.
//!
//! A connection serves both sides whoever dialled it, and every stream on it
//! says what it is for. Where there is none to be had, what they would have
//! said goes through the coordinator. Decides nothing: streams that arrive are
//! handed on.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gleaner_common::id::WorkstationId;
use gleaner_common::program::Handover;
use gleaner_common::time::Moment;
use gleaner_common::wire::{Purpose, Role, close};
use gleaner_shell::clock::Clock;
use gleaner_shell::endpoint::{
    AdmitPeer, BindError, PeerError, dial_peer, listen_to_peers, peer_subject, peers_config,
};
use gleaner_shell::identity::Identity;
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::lock;
use super::revoked::Revoked;
use crate::config::PeersConfig;

/// Streams that wait to be looked at.
const ARRIVING_MAX: usize = 64;

/// Who did not answer is not asked again for so long: messages take the other
/// way meanwhile, and a firewall stays one.
const UNREACHABLE_FOR: Duration = Duration::from_secs(15);

/// A stream that another agent opened, or the coordinator for it.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// Packets of ranks, as frames, for as long as the stream lasts.
    Packets { from: String, reader: FrameReader },
    /// An attempt that moves.
    #[allow(dead_code, reason = "who it is meant for is checked by its fence")]
    Handover {
        to: WorkstationId,
        what: Box<Handover>,
        sender: Sender,
        writer: FrameWriter,
        reader: FrameReader,
    },
}

/// Who has opened a stream, by its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Agent(String),
    /// It passes on what another agent sends, which it knows.
    Coordinator,
}

/// Why another agent was not spoken to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    #[error("agents are reached through the coordinator only: peers.enabled is false")]
    Off,
    #[error("{0}")]
    Lately(String),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// What is known of one other agent.
#[derive(Debug, Default)]
struct Outgoing {
    connection: Option<Connection>,
    /// Where it did not answer, when, and how that was said.
    failed: Option<(Vec<SocketAddr>, Moment, String)>,
}

/// By name. Whoever dials holds its line, so that nobody is dialled twice.
type Lines = Arc<Mutex<BTreeMap<String, Arc<AsyncMutex<Outgoing>>>>>;

/// The port and what goes through it.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    /// None if it is switched off.
    endpoint: Option<Endpoint>,
    identity: Arc<Mutex<Arc<Identity>>>,
    revoked: Revoked,
    announced: Vec<SocketAddr>,
    lines: Lines,
    arriving: mpsc::Sender<Arriving>,
}

impl Peers {
    /// Opens the port, in a tokio runtime, and hands on what arrives there.
    ///
    /// # Errors
    /// The port is not to be had. Everything then goes through the coordinator.
    pub(crate) fn start(
        config: &PeersConfig,
        identity: Arc<Identity>,
        revoked: Revoked,
    ) -> (Self, mpsc::Receiver<Arriving>, Option<BindError>) {
        let (arriving, arrived) = mpsc::channel(ARRIVING_MAX);
        let opened = config.enabled.then(|| open(config.listen, &identity, &revoked)).transpose();
        let (endpoint, error) = match opened {
            Ok(endpoint) => (endpoint, None),
            Err(error) => (None, Some(error)),
        };
        let (announced, lines) = (config.addresses.clone(), Lines::default());
        let identity = Arc::new(Mutex::new(identity));
        let peers = Self { endpoint, identity, revoked, announced, lines, arriving };
        if let Some(endpoint) = peers.endpoint.clone() {
            tokio::spawn(peers.clone().take_calls(endpoint));
        }
        (peers, arrived, error)
    }

    /// Who this agent is, to all.
    pub(super) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&lock(&self.identity))
    }

    /// What the coordinator has told of others' keys.
    pub(super) fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// Shows this identity from now on. Connections that are there go on.
    ///
    /// # Errors
    /// An identity that does not read: the old one is shown.
    pub(super) fn renewed(&self, identity: Arc<Identity>) -> Result<(), BindError> {
        if let Some(endpoint) = &self.endpoint {
            endpoint.set_server_config(Some(peers_config(&identity, admit(&self.revoked))?));
        }
        *lock(&self.identity) = identity;
        Ok(())
    }

    /// Where others reach this agent, which reaches the coordinator from `ours`.
    pub(crate) fn addresses(&self, ours: Option<IpAddr>) -> Vec<SocketAddr> {
        let Some(here) = self.endpoint.as_ref().and_then(|it| it.local_addr().ok()) else {
            return vec![];
        };
        if !self.announced.is_empty() {
            return self.announced.clone();
        }
        let ip = if here.ip().is_unspecified() { ours } else { Some(here.ip()) };
        ip.map(|ip| SocketAddr::new(ip.to_canonical(), here.port())).into_iter().collect()
    }

    /// The connection to the agent of that name: the one there is, whoever
    /// dialled it, or a new one. May take seconds where nobody answers, and
    /// says so at once the next time.
    ///
    /// # Errors
    /// It cannot be reached directly: go through the coordinator.
    pub(crate) async fn connect(
        &self,
        name: &str,
        addresses: &[SocketAddr],
    ) -> Result<Connection, ReachError> {
        let endpoint = self.endpoint.as_ref().ok_or(ReachError::Off)?;
        let line = self.line(name);
        let mut line = line.lock().await;
        if let Some(connection) = line.connection.as_ref().filter(|it| it.close_reason().is_none())
        {
            return Ok(connection.clone());
        }
        if let Some((at, when, said)) = &line.failed
            && at == addresses
            && Clock.now().since(*when) < UNREACHABLE_FOR
        {
            return Err(ReachError::Lately(said.clone()));
        }
        let (identity, admit) = (self.identity(), admit(&self.revoked));
        match dial_peer(endpoint, &identity, name, addresses, admit).await {
            Ok(connection) => {
                line.failed = None;
                line.connection = Some(connection.clone());
                let (peers, name) = (self.clone(), name.to_owned());
                tokio::spawn(peers.take_streams_of(name, connection.clone()));
                Ok(connection)
            }
            Err(error) => {
                line.failed = Some((addresses.to_vec(), Clock.now(), error.to_string()));
                Err(error.into())
            }
        }
    }

    /// Opens a stream to the agent of that name. The opening leaves with the
    /// first flush.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) async fn open(
        &self,
        name: &str,
        addresses: &[SocketAddr],
        purpose: Purpose,
    ) -> Result<(FrameWriter, FrameReader), ReachError> {
        let connection = self.connect(name, addresses).await?;
        Ok(stream::open(&connection, purpose).await?)
    }

    /// Hands on the streams that the coordinator opens for other agents, until
    /// its connection ends.
    pub(crate) fn take_from_coordinator(&self, connection: Connection) {
        tokio::spawn(take_streams(connection, None, self.arriving.clone()));
    }

    async fn take_calls(self, endpoint: Endpoint) {
        while let Some(incoming) = endpoint.accept().await {
            let peers = self.clone();
            tokio::spawn(async move {
                let connection = match incoming.await {
                    Ok(connection) => connection,
                    Err(error) => return tracing::debug!(%error, "another agent's call failed"),
                };
                let Some(name) = peer_subject(&connection)
                    .filter(|subject| subject.role == Role::Agent)
                    .map(|subject| subject.name)
                else {
                    return connection.close(close::FORBIDDEN.into(), b"not an agent");
                };
                let line = peers.line(&name);
                // Whoever dials at this moment finds out for himself.
                if let Ok(mut line) = line.try_lock() {
                    line.failed = None;
                    line.connection = Some(connection.clone());
                }
                peers.take_streams_of(name, connection).await;
            });
        }
    }

    /// Until the connection ends, or its key is revoked.
    async fn take_streams_of(self, name: String, connection: Connection) {
        let _watched = self.revoked.watch(&connection);
        take_streams(connection, Some(name), self.arriving).await;
    }

    fn line(&self, name: &str) -> Arc<AsyncMutex<Outgoing>> {
        let mut lines = lock(&self.lines);
        // Lines that nobody uses go: a lab's names come and go.
        lines.retain(|_, line| {
            Arc::strong_count(line) > 1 || line.try_lock().is_ok_and(|line| line.is_of_use())
        });
        Arc::clone(lines.entry(name.to_owned()).or_default())
    }
}

impl Outgoing {
    fn is_of_use(&self) -> bool {
        self.failed.is_some()
            || self.connection.as_ref().is_some_and(|it| it.close_reason().is_none())
    }
}

/// Which of this machine's addresses the way there begins at. Nothing is sent.
pub(super) fn own_address(towards: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match towards {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(towards).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// `[::]` takes both families where there are both.
fn open(listen: SocketAddr, identity: &Identity, revoked: &Revoked) -> Result<Endpoint, BindError> {
    listen_to_peers(listen, identity, admit(revoked)).or_else(|error| {
        if listen.is_ipv6() && listen.ip().is_unspecified() {
            let any = (Ipv4Addr::UNSPECIFIED, listen.port()).into();
            listen_to_peers(any, identity, admit(revoked))
        } else {
            Err(error)
        }
    })
}

fn admit(revoked: &Revoked) -> Arc<AdmitPeer> {
    let revoked = revoked.clone();
    Arc::new(move |spki| revoked.standing(spki))
}

/// Reads what each stream of a connection is for. `from` is another agent; none
/// for the coordinator, which only passes on what moves.
async fn take_streams(
    connection: Connection,
    from: Option<String>,
    arriving: mpsc::Sender<Arriving>,
) {
    while let Ok(ends) = connection.accept_bi().await {
        tokio::spawn(take_stream(connection.clone(), ends, from.clone(), arriving.clone()));
    }
}

async fn take_stream(
    connection: Connection,
    ends: (SendStream, RecvStream),
    from: Option<String>,
    arriving: mpsc::Sender<Arriving>,
) {
    let (purpose, writer, reader) = match stream::read_opening(ends).await {
        Ok(opened) => opened,
        // The coordinator's connection is worth more than one stream of it.
        Err(error) if from.is_none() => return tracing::warn!("from the coordinator: {error}"),
        Err(error) => return error.refuse(&connection),
    };
    let arrived = match (purpose, from) {
        (Purpose::Packets, Some(from)) => Arriving::Packets { from, reader },
        (Purpose::Handover { to, what }, from) => {
            let sender = from.map_or(Sender::Coordinator, Sender::Agent);
            Arriving::Handover { to, what, sender, writer, reader }
        }
        (
            Purpose::Agent
            | Purpose::Usage
            | Purpose::Request
            | Purpose::Put { .. }
            | Purpose::Get { .. }
            | Purpose::Enrol
            | Purpose::Relay { .. }
            | Purpose::Packets,
            _,
        ) => return refuse(writer, reader),
    };
    let _ = arriving.send(arrived).await;
}

fn refuse(mut writer: FrameWriter, mut reader: FrameReader) {
    writer.reset(close::FORBIDDEN);
    reader.stop(close::FORBIDDEN);
}

#[cfg(test)]
mod tests {
    use gleaner_common::id::{Fence, JobId, SubprogramId};
    use gleaner_common::program::{HandoverReply, Ticket};
    use gleaner_common::reaction::Keep;
    use gleaner_common::time::WallTime;
    use gleaner_common::validity::{LIFE_MAX, Validity};
    use gleaner_common::wire::KeyHash;
    use gleaner_shell::endpoint::Ended;
    use gleaner_shell::identity::{Authority, key_hash};

    use super::*;

    const NOWHERE: &str = "127.0.0.1:9";

    struct Lab {
        authority: Authority,
        _home: tempfile::TempDir,
    }

    impl Lab {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            Self { authority: Authority::create(home.path()).unwrap(), _home: home }
        }

        fn peers(&self, role: Role, name: &str) -> (Peers, mpsc::Receiver<Arriving>) {
            let identity = self.authority.issue_identity(role, name, "lab:4433").unwrap();
            let config =
                PeersConfig { listen: "127.0.0.1:0".parse().unwrap(), ..PeersConfig::default() };
            let revoked = Revoked::new();
            let (peers, arriving, error) = Peers::start(&config, Arc::new(identity), revoked);
            assert!(error.is_none());
            (peers, arriving)
        }

        /// The coordinator has nothing against anybody.
        fn heard(&self, role: Role, name: &str) -> (Peers, mpsc::Receiver<Arriving>) {
            let (peers, arriving) = self.peers(role, name);
            peers.revoked.hear(true, vec![], Clock.wall());
            (peers, arriving)
        }

        /// An agent whose certificate is good for so long from now on.
        fn agent_for(&self, life: Duration) -> Identity {
            let agent = self.authority.issue_identity(Role::Agent, "ws1", "lab:4433").unwrap();
            let validity = Validity::beginning(Clock.wall(), life);
            let certificate =
                self.authority.issue(&agent.spki(), Role::Agent, "ws1", validity).unwrap();
            agent.with_certificate(certificate)
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(30), test).await.expect("the test hangs");
        });
    }

    fn handover() -> Purpose {
        let subprogram = SubprogramId { job: JobId(1), index: 3 };
        let what = Handover {
            subprogram,
            old: Fence::of(4),
            new: Fence::of(5),
            ticket: Ticket([7; 16]),
            keep: Keep::State,
            endpoint_bytes: 0,
            frozen: Duration::ZERO,
        };
        Purpose::Handover { to: WorkstationId(2), what: Box::new(what) }
    }

    #[test]
    fn two_agents_share_one_connection_whoever_dialled_it() {
        run(async {
            let lab = Lab::new();
            let (one, mut to_one) = lab.heard(Role::Agent, "ws1");
            let (two, mut to_two) = lab.heard(Role::Agent, "ws2");
            let there = two.addresses(None);
            let (mut writer, _) = one.open("ws2", &there, Purpose::Packets).await.unwrap();
            writer.send(&7u32).await.unwrap();
            let Some(Arriving::Packets { from, mut reader }) = to_two.recv().await else {
                panic!("no packets");
            };
            assert_eq!((from.as_str(), reader.expect::<u32>().await.unwrap()), ("ws1", 7));
            // The other way, where nobody would have answered.
            let nowhere = [NOWHERE.parse().unwrap()];
            let (mut writer, mut reader) = two.open("ws1", &nowhere, handover()).await.unwrap();
            writer.send(&"image").await.unwrap();
            let Some(Arriving::Handover { to, what, writer: mut answer, .. }) = to_one.recv().await
            else {
                panic!("no handover");
            };
            assert_eq!((to, what.new), (WorkstationId(2), Fence::of(5)));
            answer.send(&HandoverReply::Taken).await.unwrap();
            assert_eq!(reader.expect::<HandoverReply>().await.unwrap(), HandoverReply::Taken);
        });
    }

    #[test]
    fn who_bears_another_name_is_not_spoken_to() {
        run(async {
            let lab = Lab::new();
            let (one, _) = lab.heard(Role::Agent, "ws1");
            let (two, _) = lab.heard(Role::Agent, "ws2");
            let error = one.connect("ws3", &two.addresses(None)).await.unwrap_err().to_string();
            assert!(error.starts_with("ws3 at 127.0.0.1:"), "{error}");
            let again = one.connect("ws3", &two.addresses(None)).await.unwrap_err();
            assert!(matches!(again, ReachError::Lately(said) if said == error));
        });
    }

    #[test]
    fn only_agents_of_this_lab_are_let_in() {
        run(async {
            let (lab, other) = (Lab::new(), Lab::new());
            let (two, mut to_two) = lab.heard(Role::Agent, "ws2");
            for (lab, role) in [(&lab, Role::User), (&lab, Role::Admin), (&other, Role::Agent)] {
                let (stranger, _) = lab.peers(role, "ws1");
                // Another authority is noticed by the dialler already.
                let opened = stranger.open("ws2", &two.addresses(None), Purpose::Packets).await;
                if let Ok((mut writer, mut reader)) = opened {
                    let _ = writer.send(&7u32).await;
                    reader.expect::<u32>().await.unwrap_err();
                }
            }
            assert!(to_two.try_recv().is_err());
        });
    }

    #[test]
    fn a_user_does_not_pass_for_an_agent_when_dialled() {
        run(async {
            let lab = Lab::new();
            let (one, _) = lab.heard(Role::Agent, "ws1");
            let (user, _) = lab.heard(Role::User, "ws2");
            one.connect("ws2", &user.addresses(None)).await.unwrap_err();
        });
    }

    #[test]
    fn what_is_not_between_agents_is_refused_and_the_connection_stays() {
        run(async {
            let lab = Lab::new();
            let (one, _) = lab.heard(Role::Agent, "ws1");
            let (two, mut to_two) = lab.heard(Role::Agent, "ws2");
            let there = two.addresses(None);
            let (mut writer, mut reader) = one.open("ws2", &there, Purpose::Request).await.unwrap();
            writer.flush().await.unwrap();
            let refused = StreamError::Reset { code: close::FORBIDDEN };
            assert_eq!(reader.expect::<u32>().await.unwrap_err(), refused);
            let _open = speaks(&one, &there, &mut to_two).await;
        });
    }

    /// Opens a stream for packets, of which ws2 hears; open until it is dropped.
    async fn speaks(
        one: &Peers,
        there: &[SocketAddr],
        to_two: &mut mpsc::Receiver<Arriving>,
    ) -> FrameWriter {
        let (mut writer, _) = one.open("ws2", there, Purpose::Packets).await.unwrap();
        writer.flush().await.unwrap();
        assert!(matches!(to_two.recv().await, Some(Arriving::Packets { .. })));
        writer
    }

    fn hash_of(peers: &Peers) -> KeyHash {
        key_hash(&peers.identity().spki())
    }

    #[test]
    fn a_revoked_agent_loses_its_connections_and_gets_no_new_one_either_way() {
        run(async {
            let lab = Lab::new();
            let (one, mut to_one) = lab.heard(Role::Agent, "ws1");
            let (two, mut to_two) = lab.heard(Role::Agent, "ws2");
            let there = two.addresses(None);
            let _open = speaks(&one, &there, &mut to_two).await;
            let open = one.connect("ws2", &there).await.unwrap();
            two.revoked.hear(false, vec![hash_of(&one)], Clock.wall());
            let ended = open.closed().await.to_string();
            assert!(ended.contains("this identity has been revoked"), "{ended}");
            // It dials again: refused in the handshake, which it reads of.
            let connection = one.connect("ws2", &there).await.unwrap();
            assert_eq!(Ended::from(connection.closed().await), Ended::Revoked);
            // And it is not dialled.
            let error = two.connect("ws1", &one.addresses(None)).await.unwrap_err();
            assert!(matches!(error, ReachError::Peer(PeerError::Refused { .. })), "{error}");
            assert!(to_one.try_recv().is_err() && to_two.try_recv().is_err());
        });
    }

    #[test]
    fn before_the_coordinator_is_heard_nobody_is_spoken_with() {
        run(async {
            let lab = Lab::new();
            let (one, _to_one) = lab.heard(Role::Agent, "ws1");
            // One that was started anew, and may have missed whatever was said.
            let (two, mut to_two) = lab.peers(Role::Agent, "ws2");
            let there = two.addresses(None);
            if let Ok(connection) = one.connect("ws2", &there).await {
                connection.closed().await;
            }
            two.connect("ws1", &one.addresses(None)).await.unwrap_err();
            // What it hears first is who was revoked.
            two.revoked.hear(true, vec![hash_of(&one)], Clock.wall());
            if let Ok(connection) = one.connect("ws2", &there).await {
                connection.closed().await;
            }
            two.revoked.hear(true, vec![], Clock.wall());
            let _open = speaks(&one, &there, &mut to_two).await;
        });
    }

    #[test]
    fn a_certificate_that_has_run_out_or_never_does_gets_nobody_in_by_the_coordinators_clock() {
        run(async {
            let lab = Lab::new();
            let (two, mut to_two) = lab.heard(Role::Agent, "ws2");
            let there = two.addresses(None);
            let config =
                PeersConfig { listen: "127.0.0.1:0".parse().unwrap(), ..PeersConfig::default() };
            let hour = Duration::from_secs(3_600);
            for (life, hours, is_good) in
                [(hour, 0, true), (hour, 2, false), (2 * LIFE_MAX, 0, false)]
            {
                let identity = Arc::new(lab.agent_for(life));
                let (one, _to_one, _) = Peers::start(&config, identity, Revoked::new());
                one.revoked.hear(true, vec![], Clock.wall());
                let now = WallTime(Clock.wall().0 + hours * 3_600_000_000_000);
                two.revoked.hear(true, vec![], now);
                let (mut writer, mut reader) = match one.open("ws2", &there, Purpose::Packets).await
                {
                    Ok(opened) => opened,
                    Err(error) => {
                        assert!(!is_good, "{error}");
                        continue;
                    }
                };
                let _ = writer.flush().await;
                if is_good {
                    assert!(matches!(to_two.recv().await, Some(Arriving::Packets { .. })));
                } else {
                    reader.expect::<u32>().await.unwrap_err();
                    assert!(to_two.try_recv().is_err());
                }
            }
        });
    }

    #[test]
    fn who_has_renewed_shows_the_new_key_and_keeps_what_is_open() {
        run(async {
            let lab = Lab::new();
            let (one, _to_one) = lab.heard(Role::Agent, "ws1");
            let (two, mut to_two) = lab.heard(Role::Agent, "ws2");
            let there = two.addresses(None);
            let _open = speaks(&one, &there, &mut to_two).await;
            let old = hash_of(&two);
            let new = lab.authority.issue_identity(Role::Agent, "ws2", "lab:4433").unwrap();
            two.renewed(Arc::new(new)).unwrap();
            let _open = speaks(&one, &there, &mut to_two).await;
            // The old key is taken away: the next connection shows the other.
            one.revoked.hear(false, vec![old], Clock.wall());
            let _open = speaks(&one, &there, &mut to_two).await;
        });
    }

    #[test]
    fn an_address_is_what_the_coordinator_is_reached_from() {
        run(async {
            let lab = Lab::new();
            let identity = lab.authority.issue_identity(Role::Agent, "ws1", "lab:4433").unwrap();
            let identity = Arc::new(identity);
            let (peers, _, _) =
                Peers::start(&PeersConfig::default(), Arc::clone(&identity), Revoked::new());
            let ours = "::ffff:10.1.4.7".parse().unwrap();
            let told = peers.addresses(Some(ours));
            assert_eq!(told[0].ip(), "10.1.4.7".parse::<IpAddr>().unwrap());
            assert_ne!(told[0].port(), 0);
            assert_eq!(peers.addresses(None), []);
            let off = PeersConfig { enabled: false, ..PeersConfig::default() };
            let (peers, _, _) = Peers::start(&off, identity, Revoked::new());
            assert_eq!(peers.addresses(Some(ours)), []);
            assert!(matches!(peers.connect("ws2", &[]).await, Err(ReachError::Off)));
        });
    }
}
