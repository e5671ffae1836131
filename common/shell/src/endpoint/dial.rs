//! A client's end: finds the coordinator, dials it, and says in one line what
//! went wrong.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use gleaner_common::wire::{Role, close};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, VarInt};
use rustls_pki_types::CertificateDer;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::transport::{self, Load};
use super::verify::Verifier;
use super::{Ended, crypto};
use crate::identity::{Identity, SERVER_NAME, Token, token_certificate};

/// How long a dial waits for an answer.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the first address of a name has before the next is tried beside
/// it (RFC 8305 §5).
const HEAD_START: Duration = Duration::from_millis(250);

/// How long a close waits to be heard.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Why there is no connection. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("`{address}` is not an address: expected HOST:PORT, such as lab.example.org:4433")]
    BadAddress { address: String },
    #[error("cannot find the coordinator at {address}: {why}")]
    Unresolved { address: String, why: io::Error },
    #[error("cannot open a UDP socket: {why}")]
    Socket { why: io::Error },
    #[error("cannot use this identity: {why}")]
    Credentials { why: rustls::Error },
    #[error("cannot reach the coordinator at {address}: no answer within {} s", DIAL_TIMEOUT.as_secs())]
    NoAnswer { address: String },
    #[error("cannot reach the coordinator at {address}: {why}")]
    Unreachable { address: String, why: String },
    #[error("the coordinator at {address}: {why}")]
    Refused { address: String, why: Ended },
}

impl ConnectError {
    /// The next step, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoAnswer { .. } => Some(
                "does it run there, and does the firewall let UDP through? \
                 --coordinator <address> asks a different one",
            ),
            Self::Refused { why, .. } => why.hint(),
            Self::BadAddress { .. }
            | Self::Unresolved { .. }
            | Self::Socket { .. }
            | Self::Credentials { .. }
            | Self::Unreachable { .. } => None,
        }
    }

    /// Will trying again with the same credentials be refused again?
    pub fn is_final(&self) -> bool {
        match self {
            Self::BadAddress { .. } | Self::Credentials { .. } => true,
            Self::Refused { why, .. } => why.is_final(),
            Self::Unresolved { .. }
            | Self::Socket { .. }
            | Self::NoAnswer { .. }
            | Self::Unreachable { .. } => false,
        }
    }
}

/// What a client shows.
#[derive(Clone, Copy, Debug)]
pub enum Credentials<'a> {
    Identity(&'a Identity),
    /// Good for an enrolment, once.
    Token(&'a Token),
}

/// A connection to the coordinator and the socket it has to itself.
#[derive(Debug)]
pub struct Link {
    pub connection: Connection,
    pub endpoint: Endpoint,
    /// The address as it was dialled, for messages.
    pub address: String,
}

impl Link {
    /// Says goodbye and waits a moment for it to be heard. Without it the
    /// coordinator thinks we are here until the idle timeout. What was written
    /// and not yet received is dropped: wait for an answer first.
    pub async fn close(self) {
        self.connection.close(VarInt::from_u32(close::DONE), b"");
        let _ = timeout(CLOSE_TIMEOUT, self.endpoint.wait_idle()).await;
    }

    /// The error that says why this link ended.
    pub fn refused(&self, why: Ended) -> ConnectError {
        ConnectError::Refused { address: self.address.clone(), why }
    }
}

/// Dials the coordinator at `host:port`, whose name may have several
/// addresses: the first that answers is taken. `keep_alive` is for connections
/// without traffic of their own: users', not agents'.
///
/// # Errors
/// See [`ConnectError`]. A refusal by the server mostly arrives later, with
/// the first read: see the head of [`crate::endpoint`].
pub async fn connect(
    address: &str,
    credentials: Credentials<'_>,
    keep_alive: Option<Duration>,
) -> Result<Link, ConnectError> {
    let config = client_config(credentials, keep_alive)?;
    match timeout(DIAL_TIMEOUT, dial(address, &config)).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::NoAnswer { address: address.to_owned() }),
    }
}

/// The QUIC configuration of a client; for those who share one endpoint among
/// many connections. Dial with the name [`SERVER_NAME`].
///
/// # Errors
/// An identity whose certificates do not read.
pub fn client_config(
    credentials: Credentials<'_>,
    keep_alive: Option<Duration>,
) -> Result<ClientConfig, ConnectError> {
    let mut config = quic(credentials).map_err(|why| ConnectError::Credentials { why })?;
    let load = match credentials {
        Credentials::Identity(identity) if identity.role == Role::Collector => Load::Relays,
        Credentials::Identity(_) | Credentials::Token(_) => Load::Requests,
    };
    config.transport_config(transport::settings(load, keep_alive));
    Ok(config)
}

fn quic(credentials: Credentials<'_>) -> Result<ClientConfig, rustls::Error> {
    match credentials {
        Credentials::Identity(identity) => {
            let authority = CertificateDer::from(identity.authority.clone());
            let verifier = Verifier::of_coordinator(authority)?;
            crypto::client(verifier, vec![identity.certificate.clone().into()], &identity.key)
        }
        Credentials::Token(token) => {
            let (verifier, key) = (Verifier::of_coordinator_by(token.authority()), token.key());
            crypto::client(verifier, vec![token_certificate(&key).into()], &key)
        }
    }
}

/// A socket of its own for dialling to an address of this family.
///
/// # Errors
/// No file descriptor or no port left.
pub fn client_endpoint(remote: SocketAddr) -> Result<Endpoint, ConnectError> {
    let any = match remote {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Endpoint::client(SocketAddr::new(any, 0)).map_err(|why| ConnectError::Socket { why })
}

/// The addresses of `host:port`; at least one.
///
/// # Errors
/// A text that is no address, or a name that is not known.
pub async fn resolve(address: &str) -> Result<Vec<SocketAddr>, ConnectError> {
    if let Ok(one) = address.parse() {
        return Ok(vec![one]);
    }
    let bad = || ConnectError::BadAddress { address: address.to_owned() };
    let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
    let port: u16 = port.parse().map_err(|_| bad())?;
    let unknown = |why| ConnectError::Unresolved { address: address.to_owned(), why };
    if host.is_empty() || host.contains([':', '[', ']', '/', ' ']) {
        return Err(bad());
    }
    let found: Vec<_> = tokio::net::lookup_host((host, port)).await.map_err(unknown)?.collect();
    if found.is_empty() {
        return Err(unknown(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    Ok(found)
}

async fn dial(address: &str, config: &ClientConfig) -> Result<Link, ConnectError> {
    let mut dials = JoinSet::new();
    for (position, remote) in resolve(address).await?.into_iter().enumerate() {
        let head_start = HEAD_START.saturating_mul(u32::try_from(position).unwrap_or(u32::MAX));
        dials.spawn(dial_one(address.to_owned(), remote, config.clone(), head_start));
    }
    let mut last = ConnectError::NoAnswer { address: address.to_owned() };
    while let Some(ended) = dials.join_next().await {
        match ended.unwrap_or_else(|error| unreachable!("a dial neither panics nor stops: {error}"))
        {
            Ok(link) => return Ok(link),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn dial_one(
    address: String,
    remote: SocketAddr,
    config: ClientConfig,
    head_start: Duration,
) -> Result<Link, ConnectError> {
    if !head_start.is_zero() {
        sleep(head_start).await;
    }
    let endpoint = client_endpoint(remote)?;
    let connecting = endpoint.connect_with(config, remote, SERVER_NAME).map_err(|error| {
        ConnectError::Unreachable { address: address.clone(), why: error.to_string() }
    })?;
    match connecting.await {
        Ok(connection) => Ok(Link { connection, endpoint, address }),
        Err(ConnectionError::TimedOut) => Err(ConnectError::NoAnswer { address }),
        Err(error) => Err(ConnectError::Refused { address, why: error.into() }),
    }
}
