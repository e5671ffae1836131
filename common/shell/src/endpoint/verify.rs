//! Who the other side of a connection may be: one judge for servers, clients,
//! agents among themselves and newcomers.
//!
//! Each refusal of a client has an alert of its own, so that the client can say which:
//!
//! | refusal | alert |
//! |---|---|
//! | token expired | `unsupported_certificate` |
//! | identity's certificate expired | `certificate_expired` |
//! | token unknown, used or revoked | `certificate_unknown` |
//! | identity revoked | `certificate_revoked` |
//! | identity unknown to the table | `access_denied` |
//! | certificate of another authority | `unknown_ca` |
//!
//! Chains are judged as of the day that a certificate begins, or a fixed one: a
//! machine whose clock has jumped must still be heard. Whether a certificate has
//! run out is asked of those who know the time (see `identity`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::validity::{LIFE_MAX, Validity};
use gleaner_common::wire::Role;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::crypto;
use crate::identity::{
    Fingerprint, SERVER_NAME, Subject, TOKEN_NAME, fingerprint, subject_of, validity_of,
};

/// What the coordinator knows of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// An enrolled identity; its certificate is checked as well.
    Enrolled,
    /// An open token.
    Token,
    /// A token that has expired.
    Expired,
    /// An identity whose certificate has run out.
    RunOut,
    /// A revoked identity or token.
    Revoked,
    /// Nothing; also a token that was used.
    Unknown,
}

/// Judges a public key, given as `SubjectPublicKeyInfo` in DER, from memory:
/// it is asked in the middle of a handshake.
pub type Admit = dyn Fn(&[u8]) -> Admission + Send + Sync;

/// What an agent knows of another's public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerStanding {
    /// The coordinator has said nothing against it, and this is the time there.
    Good(WallTime),
    Revoked,
    /// The coordinator was not heard yet: it may have been revoked.
    Unheard,
}

/// As [`Admit`], of agents among themselves.
pub type AdmitPeer = dyn Fn(&[u8]) -> PeerStanding + Send + Sync;

/// 2025-01-01: within every certificate that the coordinator serves with.
fn certificate_date() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_735_689_600))
}

#[derive(Clone, Debug, thiserror::Error)]
enum Stranger {
    #[error("the token is not known here or has been used")]
    TokenUnknown,
    #[error("the coordinator was not heard yet, which knows who was revoked")]
    Unheard,
    #[error("the certificate is not an agent's")]
    NoAgent,
    #[error("the certificate is of {found}, expected {expected}")]
    Another { expected: String, found: String },
}

impl From<Stranger> for Error {
    fn from(stranger: Stranger) -> Self {
        CertificateError::Other(OtherError(Arc::new(stranger))).into()
    }
}

/// Judges the certificate that the other side shows.
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    expected: Expected,
}

/// Who the other side has to be.
enum Expected {
    /// Somebody of whom the coordinator's table says so.
    Admitted(Chain, Arc<Admit>),
    /// An agent; that of this name, if it was dialled.
    Agent(Chain, Option<String>, Arc<AdmitPeer>),
    /// The coordinator, of whose authority an identity has the certificate.
    Coordinator(Arc<RootCertStore>),
    /// A token has only the fingerprint of it: the server shows the rest.
    CoordinatorOf(Fingerprint),
}

/// Judges whether a certificate for clients is of one authority.
type Chain = Arc<dyn ClientCertVerifier>;

impl Verifier {
    /// For the coordinator.
    pub(super) fn of_clients(
        authority: CertificateDer<'static>,
        admit: Arc<Admit>,
    ) -> Result<Self, Error> {
        Ok(Self::new(Expected::Admitted(chain(authority)?, admit)))
    }

    /// For an agent, which may have dialled another by its name. What both
    /// show is the certificate that they show the coordinator, as its clients.
    pub(super) fn of_agents(
        authority: CertificateDer<'static>,
        name: Option<String>,
        admit: Arc<AdmitPeer>,
    ) -> Result<Self, Error> {
        Ok(Self::new(Expected::Agent(chain(authority)?, name, admit)))
    }

    /// For those who are enrolled.
    pub(super) fn of_coordinator(authority: CertificateDer<'static>) -> Result<Self, Error> {
        Ok(Self::new(Expected::Coordinator(roots(authority)?)))
    }

    /// For a newcomer.
    pub(super) fn of_coordinator_by(authority: Fingerprint) -> Self {
        Self::new(Expected::CoordinatorOf(authority))
    }

    fn new(expected: Expected) -> Self {
        Self { provider: crypto::provider(), expected }
    }

    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        match &self.expected {
            Expected::Admitted(chain, admit) => {
                is_admitted(chain, &**admit, certificate, intermediates)
            }
            Expected::Agent(chain, name, admit) => {
                let validity = is_signed(chain, certificate, intermediates)?;
                is_agent(certificate, name.as_deref())?;
                may_speak(&**admit, certificate, validity)
            }
            Expected::Coordinator(roots) => self.is_coordinator(roots, certificate, intermediates),
            Expected::CoordinatorOf(authority) => {
                let shown = intermediates.iter().find(|der| fingerprint(der) == *authority);
                let shown = shown.ok_or(CertificateError::UnknownIssuer)?.clone().into_owned();
                self.is_coordinator(&*roots(shown)?, certificate, &[])
            }
        }
    }

    fn is_coordinator(
        &self,
        roots: &RootCertStore,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let day = certificate_date();
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, day, algorithms)?;
        verify_server_name(&parsed, &dns_name(SERVER_NAME))
    }
}

fn is_admitted(
    chain: &Chain,
    admit: &Admit,
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let admission = admit(&parsed.subject_public_key_info());
    // The name only chooses the words of a refusal. What counts is the table
    // and, for an identity, the chain.
    if verify_server_name(&parsed, &dns_name(TOKEN_NAME)).is_ok() {
        return match admission {
            Admission::Token => Ok(()),
            Admission::Expired => Err(CertificateError::InvalidPurpose.into()),
            Admission::Enrolled | Admission::RunOut | Admission::Revoked | Admission::Unknown => {
                Err(Stranger::TokenUnknown.into())
            }
        };
    }
    is_signed(chain, certificate, intermediates)?;
    match admission {
        Admission::Enrolled => Ok(()),
        Admission::RunOut => Err(CertificateError::Expired.into()),
        Admission::Revoked => Err(CertificateError::Revoked.into()),
        Admission::Token | Admission::Expired | Admission::Unknown => {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }
}

/// The authority's signature, and from when to when it is for.
fn is_signed(
    chain: &Chain,
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Result<Validity, Error> {
    let validity = validity_of(certificate).ok_or(CertificateError::BadEncoding)?;
    let begins = UnixTime::since_unix_epoch(validity.from.since(WallTime(0)));
    chain.verify_client_cert(certificate, intermediates, begins)?;
    Ok(validity)
}

/// Agents do not have the coordinator's table: what it has told them, and what
/// the certificate says, must do.
fn may_speak(
    admit: &AdmitPeer,
    certificate: &CertificateDer<'_>,
    validity: Validity,
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    match admit(&parsed.subject_public_key_info()) {
        PeerStanding::Revoked => Err(CertificateError::Revoked.into()),
        PeerStanding::Unheard => Err(Stranger::Unheard.into()),
        PeerStanding::Good(now) if validity.until <= now || validity.life() > LIFE_MAX => {
            Err(CertificateError::Expired.into())
        }
        PeerStanding::Good(_) => Ok(()),
    }
}

fn is_agent(certificate: &CertificateDer<'_>, name: Option<&str>) -> Result<(), Error> {
    match (subject_of(certificate), name) {
        (Some(Subject { role: Role::Agent, name: found }), Some(expected)) if found != expected => {
            Err(Stranger::Another { expected: expected.to_owned(), found }.into())
        }
        (Some(Subject { role: Role::Agent, .. }), _) => Ok(()),
        _ => Err(Stranger::NoAgent.into()),
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

/// What both traits ask for, in the same words.
macro_rules! signatures {
    () => {
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
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ClientCertVerifier for Verifier {
    signatures!();

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }
}

impl ServerCertVerifier for Verifier {
    signatures!();

    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }
}

fn chain(authority: CertificateDer<'static>) -> Result<Chain, Error> {
    WebPkiClientVerifier::builder_with_provider(roots(authority)?, crypto::provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

fn roots(authority: CertificateDer<'static>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    Ok(Arc::new(roots))
}

fn dns_name(name: &'static str) -> ServerName<'static> {
    ServerName::try_from(name).unwrap_or_else(|_| unreachable!("a good DNS name"))
}
