//! Agents among themselves: each listens, any may dial any, and both show the
//! certificate that they show the coordinator.
//!
//! Those are issued for clients only and bear no name of the network's: an
//! agent is known by the subject that the authority wrote, whichever side it
//! is on. So both sides judge the chain as a server judges its clients, and
//! then the subject: it must be an agent's, and the one who was dialled must
//! bear the name that was asked for. Nobody here has the coordinator's table
//! of keys: an agent that was revoked is kept out by the coordinator, which
//! tells no others of it any more.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::wire::{ALPN, Role};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, TokioRuntime};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio::time::timeout;

use super::transport::{self, Load};
use super::verify::{judgement_day, roots};
use super::{BindError, Ended, serve};
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

#[derive(Clone, Debug, thiserror::Error)]
enum Stranger {
    #[error("the certificate is not an agent's")]
    NoAgent,
    #[error("the certificate is of {found}, expected {expected}")]
    Another { expected: String, found: String },
}

/// Listens for other agents, and can dial them from the same port. Needs a
/// tokio runtime.
///
/// # Errors
/// The port is taken or not ours to take, or an identity that does not read.
pub fn listen_to_peers(bind: SocketAddr, identity: &Identity) -> Result<Endpoint, BindError> {
    let provider = super::crypto::provider();
    let judge = Arc::new(Judge::new(identity, None)?);
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(judge)
        .with_single_cert(chain(identity), key(identity))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.send_tls13_tickets = 0;
    tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    let crypto = QuicServerConfig::try_from(tls)
        .unwrap_or_else(|error| unreachable!("ring has QUIC's first cipher: {error}"));
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport::settings(Load::Peers, None)).migration(true);
    let failed = |why: io::Error| BindError::Socket { address: bind, why };
    let socket = serve::socket(bind).map_err(failed)?;
    Endpoint::new(transport::of_peers(), Some(config), socket, Arc::new(TokioRuntime))
        .map_err(failed)
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
) -> Result<Connection, PeerError> {
    let config = client_config(identity, name).map_err(|why| PeerError::Credentials { why })?;
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

fn client_config(identity: &Identity, name: &str) -> Result<ClientConfig, Error> {
    let provider = super::crypto::provider();
    let judge = Judge::new(identity, Some(name.to_owned()))?;
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(judge))
        .with_client_auth_cert(chain(identity), key(identity))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    let crypto = QuicClientConfig::try_from(tls)
        .unwrap_or_else(|error| unreachable!("ring has QUIC's first cipher: {error}"));
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport::settings(Load::Peers, None));
    Ok(config)
}

fn chain(identity: &Identity) -> Vec<CertificateDer<'static>> {
    vec![CertificateDer::from(identity.certificate.clone())]
}

fn key(identity: &Identity) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(identity.key.pkcs8().to_vec()).into()
}

/// Judges the agent on the other side.
struct Judge {
    chain: Arc<dyn ClientCertVerifier>,
    /// Who was dialled.
    expected: Option<String>,
}

impl Judge {
    fn new(identity: &Identity, expected: Option<String>) -> Result<Self, Error> {
        let provider = super::crypto::provider();
        let authority = CertificateDer::from(identity.authority.clone());
        let chain = WebPkiClientVerifier::builder_with_provider(roots(&authority)?, provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(Self { chain, expected })
    }

    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<ClientCertVerified, Error> {
        let verified =
            self.chain.verify_client_cert(certificate, intermediates, judgement_day())?;
        let stranger = match (subject_of(certificate), &self.expected) {
            (Some(Subject { role: Role::Agent, name }), Some(expected)) if name != *expected => {
                Stranger::Another { expected: expected.clone(), found: name }
            }
            (Some(Subject { role: Role::Agent, .. }), _) => return Ok(verified),
            _ => Stranger::NoAgent,
        };
        Err(CertificateError::Other(OtherError(Arc::new(stranger))).into())
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").field("expected", &self.expected).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Judge {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(end_entity, intermediates)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("expected TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(end_entity, intermediates).map(|_| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("expected TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
