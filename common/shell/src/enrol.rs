//! Enrolment, the newcomer's side: from a token to an identity. And what
//! follows: another key in the place of one's own, at will or before its
//! certificate runs out.
//!
//! The private key is made here and never leaves.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use gleaner_common::time::WallTime;
use gleaner_common::validity::Validity;
use gleaner_common::wire::{EnrolReply, EnrolRequest, Purpose, Reply, Request};
use quinn::Connection;
use tokio::time::timeout;

use crate::endpoint::{self, ConnectError, Credentials, Link};
use crate::identity::{
    Identity, IdentityError, Key, NEXT_KEY_FILE, Token, fingerprint, forget_former, spki_of,
};
use crate::lock::Lock;
use crate::stream::{self, StreamError};

/// How long the coordinator may take: it writes to its disk first.
pub(crate) const ENROL_TIMEOUT: Duration = Duration::from_secs(20);

/// Why nobody was enrolled. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot make a key: {why}")]
    Key { why: rcgen::Error },
    #[error("the coordinator at {address} gave no answer within {} s", ENROL_TIMEOUT.as_secs())]
    NoReply { address: String },
    #[error("the coordinator at {address}: {why}")]
    Stream { address: String, why: StreamError },
    #[error("the coordinator at {address} refused: {reason}")]
    Refused { address: String, reason: String },
    #[error("the coordinator at {address} sent a certificate that is not for our key")]
    OtherKey { address: String },
    #[error("the coordinator at {address} sent another authority than the token names")]
    OtherAuthority { address: String },
}

/// Held by who renews the identity in a directory.
const LOCK_FILE: &str = "renewal.lock";

/// Why there is no new key. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot lock the identity in the directory: {why}")]
    Lock { why: io::Error },
    #[error("the coordinator gave no answer within {} s", ENROL_TIMEOUT.as_secs())]
    NoReply,
    #[error("the coordinator: {0}")]
    Stream(#[from] StreamError),
    #[error("the coordinator refused: {reason}")]
    Refused { reason: String },
    #[error("the coordinator sent a certificate that is not for our key")]
    OtherKey,
}

impl EnrolError {
    /// The next step, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        if let Self::Connect(error) = self { error.hint() } else { None }
    }
}

/// Enrols with a token under a name (a machine's host name, a user's login)
/// and returns the identity, not stored yet. The token is used up when the
/// coordinator answers: store the identity at once.
///
/// # Errors
/// See [`EnrolError`]; a token that is refused comes as
/// [`ConnectError::Refused`].
pub async fn enrol(address: &str, token: &Token, name: &str) -> Result<Identity, EnrolError> {
    let key = Key::generate().map_err(|why| EnrolError::Key { why })?;
    let link = endpoint::connect(address, Credentials::Token(token), None).await?;
    let request = EnrolRequest { name: name.to_owned(), public_key: key.spki() };
    let reply = timeout(ENROL_TIMEOUT, ask(&link, &request)).await;
    let address = link.address.clone();
    let reply = match reply {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(StreamError::Ended(why))) => Err(link.refused(why).into()),
        Ok(Err(why)) => Err(EnrolError::Stream { address: address.clone(), why }),
        Err(_) => Err(EnrolError::NoReply { address: address.clone() }),
    };
    link.close().await;
    accept(address, token, key, reply?)
}

/// Puts a new key in the place of the identity's own in this directory. The old
/// one is worth nothing from then on, wherever a copy of it is.
///
/// # Errors
/// See [`RotateError`]; the directory holds the old pair still, which is good
/// unless only the answer was lost.
pub async fn rotate(
    connection: &Connection,
    dir: &Path,
    old: &Identity,
) -> Result<Identity, RotateError> {
    // Who has a copy of the directory has that one too.
    let _ = std::fs::remove_file(dir.join(NEXT_KEY_FILE));
    forget_former(dir);
    replace(connection, dir, old, true).await
}

/// Renews the identity in this directory, if it is time for that. The old key
/// is good until its certificate ends. `None`: it is not time, or somebody else
/// is renewing it, or has.
///
/// # Errors
/// See [`RotateError`]; the directory holds the old pair still.
pub async fn renew_if_due(
    connection: &Connection,
    dir: &Path,
    old: &Identity,
    now: WallTime,
) -> Result<Option<Identity>, RotateError> {
    if old.validity().is_none_or(|validity| now < validity.renew_at()) {
        return Ok(None);
    }
    let Some(_lock) = hold(dir, old)? else { return Ok(None) };
    replace(connection, dir, old, false).await.map(Some)
}

/// Goes back to the key before the last renewal, if there is one whose certificate is
/// good at `now`: the coordinator does not know the present one, so that its store is
/// from before that renewal. `None`: there is none, or somebody else is renewing.
///
/// # Errors
/// See [`RotateError`]; the directory holds the later pair still, or the former one.
pub fn return_to_former_key(
    dir: &Path,
    unknown: &Identity,
    now: WallTime,
) -> Result<Option<Identity>, RotateError> {
    let Some(_lock) = hold(dir, unknown)? else { return Ok(None) };
    let is_good = |it: &Identity| {
        it.validity().is_some_and(|Validity { from, until }| from <= now && now < until)
    };
    let Some(former) = unknown.former(dir).filter(is_good) else { return Ok(None) };
    former.return_to(dir)?;
    Ok(Some(former))
}

/// Keeps others from renewing this identity. `None`: another process does, or has.
fn hold(dir: &Path, identity: &Identity) -> Result<Option<Lock>, RotateError> {
    let failed = |why| RotateError::Lock { why };
    let file = File::options().write(true).create(true).truncate(false).open(dir.join(LOCK_FILE));
    let lock = Lock::take(file.map_err(failed)?).map_err(failed)?;
    let is_present = Identity::load(dir)?.spki() == identity.spki();
    Ok(lock.filter(|_| is_present))
}

async fn replace(
    connection: &Connection,
    dir: &Path,
    old: &Identity,
    at_once: bool,
) -> Result<Identity, RotateError> {
    let key = Identity::next_key(dir)?;
    let request = Request::Rotate { public_key: key.spki(), at_once };
    let reply = timeout(ENROL_TIMEOUT, ask_for_another(connection, &request)).await;
    let certificate = certificate_in(reply.map_err(|_| RotateError::NoReply)??)?;
    if spki_of(&certificate).is_none_or(|spki| spki != key.spki()) {
        return Err(RotateError::OtherKey);
    }
    let new = old.with(key, certificate);
    if !at_once {
        old.stay_as_former(dir)?;
    }
    new.succeed(dir)?;
    Ok(new)
}

fn certificate_in(reply: Reply) -> Result<Vec<u8>, RotateError> {
    if let Reply::Rotated { certificate } = reply {
        return Ok(certificate);
    }
    let reason =
        if let Reply::No { reason } = reply { reason } else { "no certificate".to_owned() };
    Err(RotateError::Refused { reason })
}

async fn ask_for_another(connection: &Connection, request: &Request) -> Result<Reply, StreamError> {
    let (mut writer, mut reader) = stream::open(connection, Purpose::Request).await?;
    writer.send(request).await?;
    writer.finish();
    reader.expect().await
}

async fn ask(link: &Link, request: &EnrolRequest) -> Result<EnrolReply, StreamError> {
    let (mut writer, mut reader) = stream::open(&link.connection, Purpose::Enrol).await?;
    writer.send(request).await?;
    writer.finish();
    reader.expect().await
}

fn accept(
    address: String,
    token: &Token,
    key: Key,
    reply: EnrolReply,
) -> Result<Identity, EnrolError> {
    let (role, name, certificate, authority) = match reply {
        EnrolReply::Enrolled { role, name, certificate, authority } => {
            (role, name, certificate, authority)
        }
        EnrolReply::Refused { reason } => return Err(EnrolError::Refused { address, reason }),
    };
    if spki_of(&certificate).is_none_or(|spki| spki != key.spki()) {
        return Err(EnrolError::OtherKey { address });
    }
    if fingerprint(&authority) != token.authority() {
        return Err(EnrolError::OtherAuthority { address });
    }
    Ok(Identity { role, name, coordinator: address, key, certificate, authority })
}
