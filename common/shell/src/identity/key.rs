//! Ed25519 keys: the only kind that gleaner makes or signs for.

use std::fmt;

use gleaner_common::wire::KeyHash;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, PublicKeyData, SignatureAlgorithm};
use rustls_pki_types::PrivatePkcs8KeyDer;

/// `SubjectPublicKeyInfo` of an Ed25519 key up to the key itself (RFC 8410 §4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];

/// `OneAsymmetricKey`, version 1, up to the seed (RFC 8410 §7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The first half of the BLAKE3 hash of a certificate or public key in DER.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 16]);

pub fn fingerprint(der: &[u8]) -> Fingerprint {
    let hash = blake3::hash(der);
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    Fingerprint(half)
}

/// How those who speak of a key name it, in DER.
pub fn key_hash(spki: &[u8]) -> KeyHash {
    KeyHash(fingerprint(spki).0)
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A private key with its public half.
#[derive(Debug)]
pub(crate) struct Key(KeyPair);

impl Key {
    pub(crate) fn generate() -> Result<Self, rcgen::Error> {
        KeyPair::generate_for(&PKCS_ED25519).map(Self)
    }

    /// The same seed always gives the same key.
    pub(crate) fn from_seed(seed: &[u8; 32]) -> Self {
        let pkcs8 = [PKCS8_PREFIX.as_slice(), seed].concat();
        let pair =
            KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ED25519);
        Self(pair.unwrap_or_else(|error| unreachable!("every seed is an Ed25519 key: {error}")))
    }

    pub(crate) fn from_pem(text: &str) -> Result<Self, rcgen::Error> {
        KeyPair::from_pkcs8_pem_and_sign_algo(text, &PKCS_ED25519).map(Self)
    }

    pub(crate) fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        self.0.serialized_der()
    }

    pub(crate) fn spki(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0
    }

    /// A certificate that this key signs for itself.
    pub(crate) fn self_signed(&self, params: &CertificateParams) -> Result<Vec<u8>, rcgen::Error> {
        Ok(params.self_signed(&self.0)?.der().to_vec())
    }
}

/// The public key of somebody else, from its `SubjectPublicKeyInfo`.
pub(crate) struct PublicKey([u8; 32]);

impl PublicKey {
    /// `None` for anything but Ed25519.
    pub(crate) fn from_spki(der: &[u8]) -> Option<Self> {
        der.strip_prefix(&SPKI_PREFIX)?.try_into().ok().map(Self)
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_key_of_rfc_8032() {
        let mut seed = [0; 32];
        let digits = b"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        data_encoding::HEXLOWER.decode_mut(digits, &mut seed).unwrap();
        let public = data_encoding::HEXLOWER.encode(Key::from_seed(&seed).0.der_bytes());
        assert_eq!(public, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    }

    #[test]
    fn a_public_key_reads_back_and_nothing_else_does() {
        let spki = Key::generate().unwrap().spki();
        assert_eq!(PublicKey::from_spki(&spki).unwrap().der_bytes(), &spki[12..]);
        assert!(PublicKey::from_spki(&spki[..43]).is_none());
        assert!(PublicKey::from_spki(&[&spki[..], &[0]].concat()).is_none());
        assert!(PublicKey::from_spki(b"").is_none());
    }
}
