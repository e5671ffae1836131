//! The coordinator's own certificate authority, made at its first start.

use std::path::Path;

use gleaner_common::validity::{LIFE_MAX, Validity};
use gleaner_common::wire::Role;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, SanType, date_time_ymd,
};

use super::enrolled::{IdentityError, certificate_pem, read_certificate, read_key};
use super::key::{Key, PublicKey};
use super::validity::put_into;
use super::{Fingerprint, Identity, SERVER_NAME, TOKEN_NAME, fingerprint};
use crate::atomic::{self, PRIVATE, PUBLIC};
use crate::clock::Clock;

const KEY_FILE: &str = "authority-key.pem";
const CERTIFICATE_FILE: &str = "authority.pem";

/// What a copy of an authority consists of, in its directory.
pub const FILES: [&str; 2] = [KEY_FILE, CERTIFICATE_FILE];

/// Why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("a public key of {bytes} bytes: expected an Ed25519 key as SubjectPublicKeyInfo")]
    NotEd25519 { bytes: usize },
    #[error("cannot make a key or certificate: {why}")]
    Signing { why: rcgen::Error },
}

impl From<rcgen::Error> for IssueError {
    fn from(why: rcgen::Error) -> Self {
        Self::Signing { why }
    }
}

/// Signs certificates. Whoever has its key can be anybody.
#[derive(Debug)]
pub struct Authority {
    key: Key,
    certificate: Vec<u8>,
}

impl Authority {
    /// Makes a new authority and keeps it in a directory, which must exist.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn create(dir: &Path) -> Result<Self, IdentityError> {
        let key = Key::generate().map_err(|why| IdentityError::Making { why })?;
        atomic::replace(&dir.join(KEY_FILE), key.pem().as_bytes(), PRIVATE)?;
        Self::certify(dir, key)
    }

    /// Makes the certificate of a key: always the same one.
    fn certify(dir: &Path, key: Key) -> Result<Self, IdentityError> {
        let certificate =
            key.self_signed(&authority_params()).map_err(|why| IdentityError::Making { why })?;
        let pem = certificate_pem(&certificate);
        atomic::replace(&dir.join(CERTIFICATE_FILE), pem.as_bytes(), PUBLIC)?;
        Ok(Self { key, certificate })
    }

    /// # Errors
    /// Files that are missing or do not read, or do not belong together.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        let key = read_key(&dir.join(KEY_FILE))?;
        let path = dir.join(CERTIFICATE_FILE);
        let certificate = read_certificate(&path, &key)?;
        Ok(Self { key, certificate })
    }

    /// Loads the authority, or makes one where there is none yet. A missing
    /// certificate is made again from the key; a missing key is an error,
    /// because another one would lock everybody out.
    ///
    /// # Errors
    /// As [`Self::load`] and [`Self::create`].
    pub fn load_or_create(dir: &Path) -> Result<Self, IdentityError> {
        let (key, certificate) = (dir.join(KEY_FILE), dir.join(CERTIFICATE_FILE));
        match (key.exists(), certificate.exists()) {
            (false, false) => Self::create(dir),
            (true, false) => Self::certify(dir, read_key(&key)?),
            (_, true) => Self::load(dir),
        }
    }

    /// Has there been one in this directory?
    pub fn is_in(dir: &Path) -> bool {
        FILES.iter().any(|file| dir.join(file).exists())
    }

    /// Its own certificate, in DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint(&self.certificate)
    }

    /// A secret for one purpose, always the same: of who does not have the key
    /// nobody can make it.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, self.key.pem().as_bytes())
    }

    /// A certificate, in DER, for somebody's public key in DER
    /// (`EnrolRequest::public_key`). Name and role in it are for people: what
    /// the key may do stands in the coordinator's table.
    ///
    /// # Errors
    /// A key that is not Ed25519.
    pub fn issue(
        &self,
        spki: &[u8],
        role: Role,
        name: &str,
        validity: Validity,
    ) -> Result<Vec<u8>, IssueError> {
        let key = PublicKey::from_spki(spki).ok_or(IssueError::NotEd25519 { bytes: spki.len() })?;
        let mut params = client_params(name);
        put_into(validity, &mut params);
        params.distinguished_name.push(DnType::OrganizationalUnitName, role.name());
        Ok(params.signed_by(&key, &self.issuer())?.der().to_vec())
    }

    /// A whole identity made here: the first admin's, and the collector's on
    /// the coordinator's own machine. It is good for long: it lies beside the
    /// authority's own key, which is worth more.
    ///
    /// # Errors
    /// No randomness.
    pub fn issue_identity(
        &self,
        role: Role,
        name: &str,
        coordinator: &str,
    ) -> Result<Identity, IssueError> {
        let key = Key::generate()?;
        let validity = Validity::beginning(Clock.wall(), LIFE_MAX);
        let certificate = self.issue(&key.spki(), role, name, validity)?;
        Ok(Identity {
            role,
            name: name.to_owned(),
            coordinator: coordinator.to_owned(),
            key,
            certificate,
            authority: self.certificate.clone(),
        })
    }

    /// A fresh key and certificate to serve with; nobody has to keep it.
    pub(crate) fn issue_server(&self) -> Result<(Key, Vec<u8>), IssueError> {
        let key = Key::generate()?;
        let mut params = params(SERVER_NAME);
        params.subject_alt_names = dns_name(SERVER_NAME);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(key.pair(), &self.issuer())?.der().to_vec();
        Ok((key, certificate))
    }

    /// A secret for one purpose that stays the same across restarts.
    pub(crate) fn secret(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, self.key.pkcs8())
    }

    fn issuer(&self) -> Issuer<'_, &rcgen::KeyPair> {
        Issuer::new(authority_params(), self.key.pair())
    }
}

/// The certificate that a token's holder signs for itself.
pub(crate) fn token_certificate(key: &Key) -> Vec<u8> {
    let mut params = client_params(TOKEN_NAME);
    params.subject_alt_names = dns_name(TOKEN_NAME);
    key.self_signed(&params)
        .unwrap_or_else(|error| unreachable!("a certificate of constants: {error}"))
}

fn authority_params() -> CertificateParams {
    let mut params = params("gleaner authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn client_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// The authority's own, those that it serves with and those of tokens, which
/// have an end of their own, do not run out.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    params
}

fn dns_name(name: &str) -> Vec<SanType> {
    let name = name.try_into().unwrap_or_else(|_| unreachable!("`{name}` is ASCII"));
    vec![SanType::DnsName(name)]
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_authority_is_the_same_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let first = Authority::load_or_create(dir.path()).unwrap();
        let second = Authority::load_or_create(dir.path()).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(first.secret("a"), second.secret("a"));
        assert_ne!(first.secret("a"), first.secret("b"));
        let mode = std::fs::metadata(dir.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
    }

    #[test]
    fn a_lost_certificate_is_made_again_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let first = Authority::create(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(CERTIFICATE_FILE)).unwrap();
        let second = Authority::load_or_create(dir.path()).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(Authority::load(dir.path()).unwrap().fingerprint(), first.fingerprint());
    }

    #[test]
    fn a_lost_key_is_an_error_and_not_a_new_authority() {
        let dir = tempfile::tempdir().unwrap();
        Authority::create(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(KEY_FILE)).unwrap();
        let error = Authority::load_or_create(dir.path()).unwrap_err().to_string();
        assert!(error.contains(KEY_FILE), "{error}");
    }

    #[test]
    fn only_ed25519_keys_are_signed_for() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let error = authority
            .issue(b"no key", Role::User, "ann", Validity::beginning(Clock.wall(), LIFE_MAX))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "a public key of 6 bytes: expected an Ed25519 key as SubjectPublicKeyInfo"
        );
    }
}
