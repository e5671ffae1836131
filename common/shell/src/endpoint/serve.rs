//! The coordinator's end: one UDP port for everybody.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, TokioRuntime};
use rustls_pki_types::CertificateDer;
use socket2::{Domain, Protocol, Socket, Type};

use super::crypto;
use super::transport::{self, Load};
use super::verify::{Admit, Verifier};
use crate::identity::{Authority, IssueError, spki_of};

/// Room for a burst of heartbeats or of newcomers while one thread is busy:
/// 10,000 datagrams of 400 bytes. The kernel gives less where its limits say so.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Handshakes that may wait to be accepted, and what they may send meanwhile:
/// ten thousand agents that all come back at once, with no memory for more.
const INCOMING_MAX: usize = 16_384;
const INCOMING_BYTES_MAX: u64 = 64 << 20;

const CID_BYTES: usize = 8;

/// At most so often: ten thousand agents hear within two seconds of a restart.
/// A reset is shorter than what it answers, so two ends cannot keep it up.
const RESET_INTERVAL: Duration = Duration::from_micros(200);

/// Why the coordinator cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}: {why}")]
    Socket { address: SocketAddr, why: io::Error },
    #[error(transparent)]
    Certificate(#[from] IssueError),
    #[error("cannot set up TLS: {why}")]
    Tls { why: rustls::Error },
}

impl From<rustls::Error> for BindError {
    fn from(why: rustls::Error) -> Self {
        Self::Tls { why }
    }
}

/// Listens on a UDP port (`[::]:4433` takes IPv4 as well; port 0 for any).
/// Needs a tokio runtime. `admit` is asked once per handshake; afterwards
/// [`peer_spki`] tells whose connection it is.
///
/// # Errors
/// The port is taken or not ours to take.
pub fn serve(
    bind: SocketAddr,
    authority: &Authority,
    admit: Arc<Admit>,
) -> Result<Endpoint, BindError> {
    let root = CertificateDer::from(authority.certificate().to_vec());
    let verifier = Verifier::of_clients(root.clone(), admit)?;
    let (key, certificate) = authority.issue_server()?;
    // A token's holder knows the authority by its fingerprint only.
    let mut config = crypto::server(verifier, vec![certificate.into(), root], &key)?;
    config
        .transport_config(transport::settings(Load::Requests, None))
        .migration(true)
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_MAX);
    let failed = |why| BindError::Socket { address: bind, why };
    let socket = socket(bind).map_err(failed)?;
    Endpoint::new(endpoint_config(authority), Some(config), socket, Arc::new(TokioRuntime))
        .map_err(failed)
}

/// The public key of a connection's other side, as `SubjectPublicKeyInfo` in
/// DER: what `admit` was asked about.
pub fn peer_spki(connection: &quinn::Connection) -> Option<Vec<u8>> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    spki_of(chain.first()?)
}

pub(super) fn socket(bind: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(bind), Type::DGRAM, Some(Protocol::UDP))?;
    if bind.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Smaller buffers lose datagrams in a burst, which QUIC repeats.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.bind(&bind.into())?;
    Ok(socket.into())
}

/// A coordinator that restarts must be able to tell the peers of its former
/// life that their connections are gone. For that the key of its stateless
/// resets (RFC 9000 §10.3) stays the same, and it answers to ids of its former
/// life, which quinn's own generator would pass over in silence.
fn endpoint_config(authority: &Authority) -> EndpointConfig {
    let secret = authority.secret("gleaner 2026-11-21 key of stateless resets");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
    let mut config = EndpointConfig::new(Arc::new(key));
    config.cid_generator(|| Box::new(RandomIds)).min_reset_interval(RESET_INTERVAL);
    config
}

struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; CID_BYTES];
        getrandom::fill(&mut id)
            .unwrap_or_else(|error| unreachable!("Linux always has randomness: {error}"));
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        CID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
