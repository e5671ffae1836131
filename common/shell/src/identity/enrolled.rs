//! An identity as an enrolled machine or user keeps it, in a directory:
//! `key.pem` (only for its owner), `certificate.pem`, `authority.pem`, and
//! `identity.toml`, which is written last: with it the identity is there.
//!
//! A new key for the same identity is made in `key.next.pem`, before anybody is
//! asked for its certificate. Which key counts is what `certificate.pem` says,
//! so that one rename puts the new pair in the place of the old.
//!
//! The pair before the last renewal stays beside them (`*.former.pem`): a coordinator
//! whose store went back to before it knows no other.

use std::io;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use gleaner_common::validity::Validity;
use gleaner_common::wire::Role;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use super::key::Key;
use super::validity::validity_of;
use super::{Fingerprint, fingerprint};
use crate::atomic::{self, PRIVATE, PUBLIC, ReplaceError};
use crate::config::{self, ConfigError};
use crate::text;

const KEY_FILE: &str = "key.pem";
pub(crate) const NEXT_KEY_FILE: &str = "key.next.pem";
const CERTIFICATE_FILE: &str = "certificate.pem";
const FORMER_KEY_FILE: &str = "key.former.pem";
const FORMER_CERTIFICATE_FILE: &str = "certificate.former.pem";
const AUTHORITY_FILE: &str = "authority.pem";
const SHEET_FILE: &str = "identity.toml";

/// Why an identity cannot be read or kept. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("not enrolled: no identity in {}", dir.display())]
    NotEnrolled { dir: PathBuf },
    #[error("cannot read {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("{}: expected {expected}", path.display())]
    Invalid { path: PathBuf, expected: &'static str },
    #[error("{} is not for the key beside it", path.display())]
    OtherKey { path: PathBuf },
    #[error(transparent)]
    Sheet(#[from] ConfigError),
    #[error(transparent)]
    Write(#[from] ReplaceError),
    #[error("cannot make a key: {why}")]
    Making { why: rcgen::Error },
}

/// A key, a certificate for it, and whom both are for.
#[derive(Debug)]
pub struct Identity {
    pub role: Role,
    pub name: String,
    /// Where to dial: `host:port`.
    pub coordinator: String,
    pub(crate) key: Key,
    pub(crate) certificate: Vec<u8>,
    pub(crate) authority: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sheet {
    role: Role,
    name: String,
    coordinator: String,
}

impl Identity {
    /// # Errors
    /// [`IdentityError::NotEnrolled`] where there is none; otherwise files
    /// that are missing or do not read, or do not belong together.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        let path = dir.join(SHEET_FILE);
        let sheet = match text::read_own(&path) {
            Ok(text) => config::parse(&path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(IdentityError::NotEnrolled { dir: dir.to_owned() });
            }
            Err(why) => return Err(IdentityError::Unreadable { path, why }),
        };
        let (key, certificate) = read_pair(dir)?;
        let authority = read_der(&dir.join(AUTHORITY_FILE))?;
        let Sheet { role, name, coordinator } = sheet;
        Ok(Self { role, name, coordinator, key, certificate, authority })
    }

    /// Keeps the identity in a directory, which is made if need be. An
    /// identity that was there is replaced.
    ///
    /// # Errors
    /// The directory or a file cannot be written.
    pub fn store(&self, dir: &Path) -> Result<(), IdentityError> {
        let unmade = |source| ReplaceError { path: dir.to_owned(), source };
        std::fs::create_dir_all(dir).map_err(unmade)?;
        // While its files change there is no identity here.
        match std::fs::remove_file(dir.join(SHEET_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unmade(error))?,
            _ => {}
        }
        let sheet = Sheet {
            role: self.role,
            name: self.name.clone(),
            coordinator: self.coordinator.clone(),
        };
        let sheet = toml::to_string(&sheet)
            .unwrap_or_else(|error| unreachable!("three texts are a TOML table: {error}"));
        let _ = std::fs::remove_file(dir.join(NEXT_KEY_FILE));
        forget_former(dir);
        atomic::replace(&dir.join(KEY_FILE), self.key.pem().as_bytes(), PRIVATE)?;
        for (file, der) in
            [(CERTIFICATE_FILE, &self.certificate), (AUTHORITY_FILE, &self.authority)]
        {
            atomic::replace(&dir.join(file), certificate_pem(der).as_bytes(), PUBLIC)?;
        }
        Ok(atomic::replace(&dir.join(SHEET_FILE), sheet.as_bytes(), PUBLIC)?)
    }

    /// The key that is to take the place of this one's: the one that lies there
    /// already, because an answer was lost, or a new one.
    ///
    /// # Errors
    /// No randomness, or a directory that cannot be written.
    pub(crate) fn next_key(dir: &Path) -> Result<Key, IdentityError> {
        let path = dir.join(NEXT_KEY_FILE);
        if let Ok(begun) = read_key(&path) {
            return Ok(begun);
        }
        let key = Key::generate().map_err(|why| IdentityError::Making { why })?;
        atomic::replace(&path, key.pem().as_bytes(), PRIVATE)?;
        Ok(key)
    }

    /// Puts [`Self::next_key`] and the certificate for it in the place of the
    /// old pair: at any moment the directory holds the one or the other.
    ///
    /// # Errors
    /// A file cannot be written; the old pair is there still, or the new one.
    pub(crate) fn succeed(&self, dir: &Path) -> Result<(), IdentityError> {
        let pem = certificate_pem(&self.certificate);
        atomic::replace(&dir.join(CERTIFICATE_FILE), pem.as_bytes(), PUBLIC)?;
        take_up_next_key(dir)
    }

    /// Keeps a copy of this pair beside the one that takes its place.
    ///
    /// # Errors
    /// A file cannot be written; what was kept before may be gone then.
    pub(crate) fn stay_as_former(&self, dir: &Path) -> Result<(), IdentityError> {
        atomic::replace(&dir.join(FORMER_KEY_FILE), self.key.pem().as_bytes(), PRIVATE)?;
        let pem = certificate_pem(&self.certificate);
        Ok(atomic::replace(&dir.join(FORMER_CERTIFICATE_FILE), pem.as_bytes(), PUBLIC)?)
    }

    /// The pair that this one took the place of, if it is still there.
    pub(crate) fn former(&self, dir: &Path) -> Option<Self> {
        let key = read_key(&dir.join(FORMER_KEY_FILE)).ok()?;
        let certificate = read_certificate(&dir.join(FORMER_CERTIFICATE_FILE), &key).ok()?;
        (key.spki() != self.spki()).then(|| self.with(key, certificate))
    }

    /// Puts the former pair back into the place of the one that followed it.
    ///
    /// # Errors
    /// A file cannot be written; the later pair is there still, or the former one.
    pub(crate) fn return_to(&self, dir: &Path) -> Result<(), IdentityError> {
        atomic::replace(&dir.join(NEXT_KEY_FILE), self.key.pem().as_bytes(), PRIVATE)?;
        self.succeed(dir)
    }

    /// The same with another certificate for its key.
    #[must_use]
    pub fn with_certificate(self, certificate: Vec<u8>) -> Self {
        Self { certificate, ..self }
    }

    /// The same with another key.
    pub(crate) fn with(&self, key: Key, certificate: Vec<u8>) -> Self {
        let Self { role, name, coordinator, authority, .. } = self;
        let (name, coordinator, authority) = (name.clone(), coordinator.clone(), authority.clone());
        Self { role: *role, name, coordinator, key, certificate, authority }
    }

    /// From when to when its certificate is good; `None` if that does not read.
    pub fn validity(&self) -> Option<Validity> {
        validity_of(&self.certificate)
    }

    /// Its public key as `SubjectPublicKeyInfo` in DER: how the coordinator
    /// knows it.
    pub fn spki(&self) -> Vec<u8> {
        self.key.spki()
    }

    /// For people to compare.
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint(&self.spki())
    }

    /// The fingerprint of the authority it trusts.
    pub fn authority_fingerprint(&self) -> Fingerprint {
        fingerprint(&self.authority)
    }
}

pub(super) fn certificate_pem(der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// The key and the certificate for it. A renewal that was cut off between its
/// two renames is brought to its end.
fn read_pair(dir: &Path) -> Result<(Key, Vec<u8>), IdentityError> {
    let path = dir.join(CERTIFICATE_FILE);
    let key = read_key(&dir.join(KEY_FILE))?;
    let mismatch = match read_certificate(&path, &key) {
        Err(mismatch @ IdentityError::OtherKey { .. }) => mismatch,
        read => return Ok((key, read?)),
    };
    let Ok(next) = read_key(&dir.join(NEXT_KEY_FILE)) else { return Err(mismatch) };
    let certificate = read_certificate(&path, &next)?;
    // Who may only read does without.
    let _ = take_up_next_key(dir);
    Ok((next, certificate))
}

/// Who has a copy of the directory has that pair too.
pub(crate) fn forget_former(dir: &Path) {
    for file in [FORMER_KEY_FILE, FORMER_CERTIFICATE_FILE] {
        let _ = std::fs::remove_file(dir.join(file));
    }
}

fn take_up_next_key(dir: &Path) -> Result<(), IdentityError> {
    let path = dir.join(KEY_FILE);
    std::fs::rename(dir.join(NEXT_KEY_FILE), &path)
        .map_err(|source| ReplaceError { path, source }.into())
}

pub(super) fn read_key(path: &Path) -> Result<Key, IdentityError> {
    let expected = "an Ed25519 private key in PEM";
    Key::from_pem(&read_text(path)?)
        .map_err(|_| IdentityError::Invalid { path: path.to_owned(), expected })
}

/// A certificate that must be for this key.
pub(super) fn read_certificate(path: &Path, key: &Key) -> Result<Vec<u8>, IdentityError> {
    let der = read_der(path)?;
    if spki_of(&der).is_some_and(|spki| spki == key.spki()) {
        Ok(der)
    } else {
        Err(IdentityError::OtherKey { path: path.to_owned() })
    }
}

fn read_der(path: &Path) -> Result<Vec<u8>, IdentityError> {
    let expected = "a certificate in PEM";
    CertificateDer::from_pem_slice(read_text(path)?.as_bytes())
        .map(|der| der.to_vec())
        .map_err(|_| IdentityError::Invalid { path: path.to_owned(), expected })
}

fn read_text(path: &Path) -> Result<String, IdentityError> {
    text::read_own(path).map_err(|why| IdentityError::Unreadable { path: path.to_owned(), why })
}

/// The public key in a certificate; `None` if that is not one.
pub(crate) fn spki_of(certificate: &[u8]) -> Option<Vec<u8>> {
    let der = CertificateDer::from(certificate);
    Some(ParsedCertificate::try_from(&der).ok()?.subject_public_key_info().to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Authority;
    use super::*;

    fn stored() -> (tempfile::TempDir, Identity) {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let identity = authority.issue_identity(Role::Admin, "ann", "lab:4433").unwrap();
        identity.store(dir.path()).unwrap();
        (dir, identity)
    }

    #[track_caller]
    fn check(spoil: impl FnOnce(&Path), expected: &str) {
        let (dir, _) = stored();
        spoil(dir.path());
        let error = Identity::load(dir.path()).unwrap_err().to_string();
        let error = error.replace(&dir.path().display().to_string(), "DIR");
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn an_identity_reads_back_and_only_its_owner_reads_the_key() {
        let (dir, identity) = stored();
        let read = Identity::load(dir.path()).unwrap();
        assert_eq!((read.role, read.name.as_str()), (Role::Admin, "ann"));
        assert_eq!(read.coordinator, "lab:4433");
        assert_eq!(read.fingerprint(), identity.fingerprint());
        let mode = |file| std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode(KEY_FILE) & 0o777, 0o600);
        assert_eq!(mode(CERTIFICATE_FILE) & 0o777, 0o644);
    }

    #[test]
    fn an_identity_may_be_replaced() {
        let (dir, first) = stored();
        let authority = Authority::load(dir.path()).unwrap();
        let second = authority.issue_identity(Role::User, "ben", "lab:4433").unwrap();
        second.store(dir.path()).unwrap();
        let read = Identity::load(dir.path()).unwrap();
        assert_eq!(read.name, "ben");
        assert_ne!(read.fingerprint(), first.fingerprint());
    }

    /// Where a renewal is cut off: before its certificate lies there, between the
    /// two renames, and after both.
    #[test]
    fn a_renewal_that_is_cut_off_leaves_the_old_pair_or_the_new() {
        for cut_off in 0..3 {
            let (dir, old) = stored();
            let key = Identity::next_key(dir.path()).unwrap();
            let again = Identity::next_key(dir.path()).unwrap();
            assert_eq!(key.spki(), again.spki(), "an answer that was lost is asked for again");
            let authority = Authority::load(dir.path()).unwrap();
            let validity = old.validity().unwrap();
            let certificate = authority.issue(&key.spki(), Role::Admin, "ann", validity).unwrap();
            let new = old.with(key, certificate);
            let old_key = std::fs::read(dir.path().join(KEY_FILE)).unwrap();
            if cut_off > 0 {
                new.succeed(dir.path()).unwrap();
            }
            if cut_off == 1 {
                let name = |file| dir.path().join(file);
                std::fs::rename(name(KEY_FILE), name(NEXT_KEY_FILE)).unwrap();
                std::fs::write(name(KEY_FILE), old_key).unwrap();
            }
            for _ in 0..2 {
                let read = Identity::load(dir.path()).unwrap();
                assert_eq!(read.spki() == new.spki(), cut_off > 0, "cut off {cut_off}");
            }
            assert_eq!(dir.path().join(NEXT_KEY_FILE).exists(), cut_off == 0);
        }
    }

    #[test]
    fn the_pair_before_a_renewal_can_be_taken_up_again_until_another_identity_comes() {
        let (dir, old) = stored();
        let authority = Authority::load(dir.path()).unwrap();
        let renew = |from: &Identity| {
            let key = Identity::next_key(dir.path()).unwrap();
            let validity = from.validity().unwrap();
            let certificate = authority.issue(&key.spki(), Role::Admin, "ann", validity).unwrap();
            let new = from.with(key, certificate);
            from.stay_as_former(dir.path()).unwrap();
            new.succeed(dir.path()).unwrap();
            new
        };
        assert!(old.former(dir.path()).is_none());
        let new = renew(&old);
        let former = new.former(dir.path()).unwrap();
        assert_eq!(former.spki(), old.spki());
        let mode = std::fs::metadata(dir.path().join(FORMER_KEY_FILE)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        former.return_to(dir.path()).unwrap();
        let read = Identity::load(dir.path()).unwrap();
        assert_eq!(read.spki(), old.spki());
        assert!(read.former(dir.path()).is_none(), "nobody goes back twice");
        let newest = renew(&read);
        assert!(newest.former(dir.path()).is_some());
        let other = authority.issue_identity(Role::User, "ben", "lab:4433").unwrap();
        other.store(dir.path()).unwrap();
        let left = std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name());
        assert_eq!(left.filter(|name| name.to_string_lossy().contains("former")).count(), 0);
    }

    #[test]
    fn what_is_spoilt_is_named() {
        let write = |dir: &Path, file, text| std::fs::write(dir.join(file), text).unwrap();
        let remove = |dir: &Path, file| std::fs::remove_file(dir.join(file)).unwrap();
        check(|dir| remove(dir, SHEET_FILE), "not enrolled: no identity in DIR");
        check(|dir| remove(dir, KEY_FILE), "cannot read DIR/key.pem: ");
        check(
            |dir| write(dir, KEY_FILE, "no key"),
            "DIR/key.pem: expected an Ed25519 private key in PEM",
        );
        check(
            |dir| write(dir, CERTIFICATE_FILE, "none"),
            "DIR/certificate.pem: expected a certificate in PEM",
        );
        check(
            |dir| {
                let own = std::fs::read(dir.join(AUTHORITY_FILE)).unwrap();
                std::fs::write(dir.join(CERTIFICATE_FILE), own).unwrap();
            },
            "DIR/certificate.pem is not for the key beside it",
        );
        check(
            |dir| write(dir, SHEET_FILE, "role = \"boss\"\n"),
            "DIR/identity.toml:1:8: unknown variant `boss`, expected one of `agent`, ",
        );
    }
}
