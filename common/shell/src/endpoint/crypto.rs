//! Which algorithms connections use.

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;

/// ring's, AES with keys of 128 bits before all others: QUIC begins with it in
/// any case, and images of guests cost less on machines that are not ours.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_other = |suite: CipherSuite| suite != CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| is_other(suite.suite()));
    Arc::new(provider)
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
}
