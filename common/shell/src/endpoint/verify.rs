//! Who is let in: the server's judgement of clients, and a newcomer's of the
//! server.
//!
//! Each refusal has an alert of its own, so that the client can say which:
//!
//! | refusal | alert |
//! |---|---|
//! | token expired | `certificate_expired` |
//! | token unknown, used or revoked | `certificate_unknown` |
//! | identity revoked | `certificate_revoked` |
//! | identity unknown to the table | `access_denied` |
//! | certificate of another authority | `unknown_ca` |
//!
//! Certificates are judged as of a fixed day: a machine whose clock has jumped
//! must still be heard (see `identity`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::identity::{Fingerprint, TOKEN_NAME, fingerprint};

/// What the coordinator knows of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// An enrolled identity; its certificate is checked as well.
    Enrolled,
    /// An open token.
    Token,
    /// A token that has expired.
    Expired,
    /// A revoked identity or token.
    Revoked,
    /// Nothing; also a token that was used.
    Unknown,
}

/// Judges a public key, given as `SubjectPublicKeyInfo` in DER, from memory:
/// it is asked in the middle of a handshake.
pub type Admit = dyn Fn(&[u8]) -> Admission + Send + Sync;

/// 2025-01-01: within every certificate that an authority issues.
pub(super) fn judgement_day() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_735_689_600))
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the token is not known here or has been used")]
struct TokenUnknown;

pub(super) struct ClientJudge {
    chain: Arc<dyn ClientCertVerifier>,
    admit: Arc<Admit>,
}

impl ClientJudge {
    pub(super) fn new(
        authority: &CertificateDer<'static>,
        provider: &Arc<CryptoProvider>,
        admit: Arc<Admit>,
    ) -> Result<Self, Error> {
        let chain =
            WebPkiClientVerifier::builder_with_provider(roots(authority)?, provider.clone())
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
        Ok(Self { chain, admit })
    }

    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<ClientCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let admission = (self.admit)(&parsed.subject_public_key_info());
        // The name only chooses the words of a refusal. What counts is the
        // table and, for an identity, the chain.
        if verify_server_name(&parsed, &token_name()).is_ok() {
            return match admission {
                Admission::Token => Ok(ClientCertVerified::assertion()),
                Admission::Expired => Err(CertificateError::Expired.into()),
                Admission::Enrolled | Admission::Revoked | Admission::Unknown => {
                    Err(CertificateError::Other(OtherError(Arc::new(TokenUnknown))).into())
                }
            };
        }
        let verified =
            self.chain.verify_client_cert(certificate, intermediates, judgement_day())?;
        match admission {
            Admission::Enrolled => Ok(verified),
            Admission::Revoked => Err(CertificateError::Revoked.into()),
            Admission::Token | Admission::Expired | Admission::Unknown => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }
}

impl fmt::Debug for ClientJudge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientJudge").finish_non_exhaustive()
    }
}

impl ClientCertVerifier for ClientJudge {
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
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
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

/// Whom a client believes to be the coordinator.
#[derive(Debug)]
pub(super) enum Trust {
    /// An identity has its authority's certificate.
    Authority(Arc<WebPkiServerVerifier>),
    /// A token has only the fingerprint of it: the server shows the rest.
    Fingerprint(Fingerprint, Arc<CryptoProvider>),
}

impl Trust {
    pub(super) fn authority(
        certificate: &CertificateDer<'static>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        WebPkiServerVerifier::builder_with_provider(roots(certificate)?, provider.clone())
            .build()
            .map(Self::Authority)
            .map_err(|error| Error::General(error.to_string()))
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self {
            Self::Authority(chain) => chain.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                judgement_day(),
            ),
            Self::Fingerprint(expected, provider) => {
                let authority = intermediates
                    .iter()
                    .find(|der| fingerprint(der) == *expected)
                    .ok_or(CertificateError::UnknownIssuer)?;
                Self::authority(&authority.clone().into_owned(), provider)?.verify_server_cert(
                    end_entity,
                    &[],
                    server_name,
                    ocsp_response,
                    judgement_day(),
                )
            }
        }
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
        match self {
            Self::Authority(chain) => chain.verify_tls13_signature(message, cert, dss),
            Self::Fingerprint(_, provider) => rustls::crypto::verify_tls13_signature(
                message,
                cert,
                dss,
                &provider.signature_verification_algorithms,
            ),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        match self {
            Self::Authority(chain) => chain.supported_verify_schemes(),
            Self::Fingerprint(_, provider) => {
                provider.signature_verification_algorithms.supported_schemes()
            }
        }
    }
}

pub(super) fn roots(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(Arc::new(roots))
}

fn token_name() -> ServerName<'static> {
    ServerName::try_from(TOKEN_NAME).unwrap_or_else(|_| unreachable!("a good DNS name"))
}
