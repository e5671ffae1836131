//! Agents among themselves: each listens, any may dial any, and both show the
//! certificate that they show the coordinator.
//!
//! Those are issued for clients only and hold no name of the network's: an
//! agent is known by the subject that the authority wrote, whichever side it
//! is on. So both sides judge the chain as a server judges its clients, and
//! then the subject: it must be an agent's, and the one who was dialled must
//! bear the name that was asked for. Nobody here has the coordinator's table
//! of keys: whose was revoked it tells every agent, and what time it is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TokioRuntime};
use rustls::Error;
use rustls_pki_types::CertificateDer;
use tokio::time::timeout;

use super::transport::{self, Load};
use super::verify::{AdmitPeer, Verifier};
use super::{BindError, Ended, crypto, serve};
use crate::identity::{Identity, PEER_NAME, Subject, subject_of};

/// How long another agent has to answer: it is in the same lab, or behind a
/// firewall, and somebody stands still meanwhile.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Why another agent cannot be reached directly. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("cannot use this identity: {why}")]
    Credentials { why: Error },
    #[error("{name} gives no address to reach it at")]
    NoAddress { name: String },
    #[error("no answer from {name} at {address} within {} s", DIAL_TIMEOUT.as_secs())]
    NoAnswer { name: String, address: SocketAddr },
    #[error("cannot dial {name} at {address}: {why}")]
    Unreachable { name: String, address: SocketAddr, why: String },
    #[error("{name} at {address}: {why}")]
    Refused { name: String, address: SocketAddr, why: Ended },
}

/// Listens for other agents, and can dial them from the same port. Needs a
/// tokio runtime.
///
/// # Errors
/// The port is taken or not ours to take, or an identity that does not read.
pub fn listen_to_peers(
    bind: SocketAddr,
    identity: &Identity,
    admit: Arc<AdmitPeer>,
) -> Result<Endpoint, BindError> {
    let config = peers_config(identity, admit)?;
    let failed = |why: io::Error| BindError::Socket { address: bind, why };
    let socket = serve::socket(bind).map_err(failed)?;
    Endpoint::new(transport::of_peers(), Some(config), socket, Arc::new(TokioRuntime))
        .map_err(failed)
}

/// As whom [`listen_to_peers`] answers from now on, by
/// [`Endpoint::set_server_config`]: connections that are there go on.
///
/// # Errors
/// An identity that does not read.
pub fn peers_config(identity: &Identity, admit: Arc<AdmitPeer>) -> Result<ServerConfig, BindError> {
    let (verifier, chain) = certificates(identity, None, admit)?;
    let mut config = crypto::server(verifier, chain, &identity.key)?;
    config.transport_config(transport::settings(Load::Peers, None)).migration(true);
    Ok(config)
}

/// Dials an agent: its addresses one after the other, until one answers with
/// the certificate of that name. A refusal of *our* certificate arrives later,
/// with the first read.
///
/// # Errors
/// What the last address answered.
pub async fn dial_peer(
    endpoint: &Endpoint,
    identity: &Identity,
    name: &str,
    addresses: &[SocketAddr],
    admit: Arc<AdmitPeer>,
) -> Result<Connection, PeerError> {
    let config =
        client_config(identity, name, admit).map_err(|why| PeerError::Credentials { why })?;
    let mut last = PeerError::NoAddress { name: name.to_owned() };
    for &address in addresses {
        match dial_one(endpoint, config.clone(), name, address).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn dial_one(
    endpoint: &Endpoint,
    config: ClientConfig,
    name: &str,
    address: SocketAddr,
) -> Result<Connection, PeerError> {
    let name = || name.to_owned();
    let target = reachable_from(endpoint, address);
    let connecting = endpoint.connect_with(config, target, PEER_NAME).map_err(|error| {
        PeerError::Unreachable { name: name(), address, why: error.to_string() }
    })?;
    match timeout(DIAL_TIMEOUT, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(quinn::ConnectionError::TimedOut)) | Err(_) => {
            Err(PeerError::NoAnswer { name: name(), address })
        }
        Ok(Err(error)) => Err(PeerError::Refused { name: name(), address, why: error.into() }),
    }
}

/// A socket for both families knows an older address by its newer form.
fn reachable_from(endpoint: &Endpoint, address: SocketAddr) -> SocketAddr {
    match (endpoint.local_addr(), address) {
        (Ok(SocketAddr::V6(_)), SocketAddr::V4(old)) => {
            SocketAddr::new(old.ip().to_ipv6_mapped().into(), old.port())
        }
        _ => address,
    }
}

/// Whose agent is at a connection's other side.
pub fn peer_subject(connection: &Connection) -> Option<Subject> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    subject_of(chain.first()?)
}

fn client_config(
    identity: &Identity,
    name: &str,
    admit: Arc<AdmitPeer>,
) -> Result<ClientConfig, Error> {
    let (verifier, chain) = certificates(identity, Some(name.to_owned()), admit)?;
    let mut config = crypto::client(verifier, chain, &identity.key)?;
    config.transport_config(transport::settings(Load::Peers, None));
    Ok(config)
}

/// Who is expected, and what is shown.
fn certificates(
    identity: &Identity,
    name: Option<String>,
    admit: Arc<AdmitPeer>,
) -> Result<(Verifier, Vec<CertificateDer<'static>>), Error> {
    let verifier = Verifier::of_agents(identity.authority.clone().into(), name, admit)?;
    Ok((verifier, vec![identity.certificate.clone().into()]))
}
