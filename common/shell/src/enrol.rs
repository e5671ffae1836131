//! Enrolment, the newcomer's side: from a token to an identity.
//!
//! The private key is made here and never leaves.

use std::time::Duration;

use gleaner_common::wire::{EnrolReply, EnrolRequest, Purpose, Reply, Request};
use tokio::time::timeout;

use crate::client::{Client, ClientError};
use crate::endpoint::{self, ConnectError, Credentials, Link};
use crate::identity::{Identity, Key, Token, fingerprint, spki_of};
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

/// Why a key was not rotated. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error("cannot make a key: {why}")]
    Key { why: rcgen::Error },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the coordinator refused: {reason}")]
    Refused { reason: String },
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

/// Puts a new key in the place of an identity's own. The identity that is
/// returned is not stored yet, and the old one is worth nothing.
///
/// # Errors
/// See [`RotateError`]; the old key is good still, unless the answer was lost.
pub async fn rotate(client: &Client, old: Identity) -> Result<Identity, RotateError> {
    let key = Key::generate().map_err(|why| RotateError::Key { why })?;
    let request = Request::Rotate { public_key: key.spki() };
    let reply = client.request(&request).await?;
    if let Reply::Rotated { certificate } = reply {
        return Ok(Identity { key, certificate, ..old });
    }
    let reason =
        if let Reply::No { reason } = reply { reason } else { "no certificate".to_owned() };
    Err(RotateError::Refused { reason })
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
