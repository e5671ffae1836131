//! Which algorithms connections use, and what both kinds of ends have in common:
//! TLS 1.3 and no resumption.

use std::sync::Arc;

use gleaner_common::wire::ALPN;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, ServerConfig};
use rustls::crypto::CryptoProvider;
use rustls::version::TLS13;
use rustls::{CipherSuite, Error};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::verify::Verifier;
use crate::identity::Key;

/// ring's, AES with keys of 128 bits before all others: QUIC begins with it in
/// any case, and images of guests cost less on machines that are not ours.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_other = |suite: CipherSuite| suite != CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| is_other(suite.suite()));
    Arc::new(provider)
}

/// An end that dials, and shows this certificate.
pub(super) fn client(
    verifier: Verifier,
    chain: Vec<CertificateDer<'static>>,
    key: &Key,
) -> Result<ClientConfig, Error> {
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain, private(key))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.resumption = rustls::client::Resumption::disabled();
    let crypto = QuicClientConfig::try_from(tls)
        .unwrap_or_else(|error| unreachable!("ring has QUIC's first cipher: {error}"));
    Ok(ClientConfig::new(Arc::new(crypto)))
}

/// An end that listens, and shows this certificate.
pub(super) fn server(
    verifier: Verifier,
    chain: Vec<CertificateDer<'static>>,
    key: &Key,
) -> Result<ServerConfig, Error> {
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, private(key))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.send_tls13_tickets = 0;
    tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    let crypto = QuicServerConfig::try_from(tls)
        .unwrap_or_else(|error| unreachable!("ring has QUIC's first cipher: {error}"));
    Ok(ServerConfig::with_crypto(Arc::new(crypto)))
}

fn private(key: &Key) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.pkcs8().to_vec()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_key_is_tried_first_and_all_others_are_there() {
        let suites = &provider().cipher_suites;
        assert_eq!(suites[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(suites.len(), rustls::crypto::ring::default_provider().cipher_suites.len());
    }

    /// It comes back with the feature, which any package may ask for.
    #[test]
    fn nothing_older_than_tls_1_3_is_built_in() {
        assert_eq!(rustls::ALL_VERSIONS, [&TLS13]);
        assert!(provider().cipher_suites.iter().all(|suite| suite.tls13().is_some()));
    }
}
