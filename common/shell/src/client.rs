//! A user's connection: requests, listings and staged files.
//!
//! ```text
//! let client = Client::connect(&identity, None).await?;
//! match client.request(&Request::Submit(spec)).await? { Reply::Submitted(job) => .. }
//! let mut rows = client.rows(&Request::Jobs).await?;
//! while let Some(row) = rows.next().await? { .. }
//! client.close().await;
//! ```
//!
//! `Reply::No` is an answer and comes back as such.

use std::path::Path;
use std::time::Duration;

use gleaner_common::id::ContentHash;
use gleaner_common::wire::{Purpose, Reply, Request};
use tokio::io::AsyncWrite;
use tokio::time::timeout;

use crate::blob::{self, BlobError};
use crate::endpoint::{self, ConnectError, Credentials, Link};
use crate::identity::Identity;
use crate::stream::{self, FrameReader, StreamError};

/// How long the first reply to a request may take.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Often enough for the idle timeout of `endpoint::transport`, also if one is lost.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Why a request has no answer. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the coordinator at {address} took the request and gave no answer within {} s", REPLY_TIMEOUT.as_secs())]
    NoReply { address: String },
    #[error("the coordinator at {address}: {why}")]
    Stream { address: String, why: StreamError },
    #[error(transparent)]
    Blob(BlobError),
}

impl ClientError {
    /// The next step, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Connect(error) => error.hint(),
            Self::NoReply { .. } | Self::Stream { .. } | Self::Blob(_) => None,
        }
    }
}

/// A connection to the coordinator for requests.
#[derive(Debug)]
pub struct Client {
    link: Link,
}

impl Client {
    /// Dials the identity's coordinator, or another address of it.
    ///
    /// # Errors
    /// See [`ConnectError`]. An identity that is refused may hear of it only
    /// with its first request.
    pub async fn connect(identity: &Identity, address: Option<&str>) -> Result<Self, ClientError> {
        let address = address.unwrap_or(&identity.coordinator);
        let credentials = Credentials::Identity(identity);
        Ok(Self { link: endpoint::connect(address, credentials, Some(KEEP_ALIVE)).await? })
    }

    /// Asks, and waits for the first reply.
    ///
    /// # Errors
    /// No answer in time, or a connection that ended: the request may have
    /// been carried out all the same.
    pub async fn request(&self, request: &Request) -> Result<Reply, ClientError> {
        let mut rows = self.rows(request).await?;
        rows.first().await
    }

    /// Asks for a listing, or to watch something.
    ///
    /// # Errors
    /// A connection that ended.
    pub async fn rows(&self, request: &Request) -> Result<Rows, ClientError> {
        let failed = |error| failed(&self.link, error);
        let (mut writer, reader) =
            stream::open(&self.link.connection, Purpose::Request).await.map_err(failed)?;
        writer.queue(request).map_err(|error| failed(error.into()))?;
        writer.flush().await.map_err(failed)?;
        writer.finish();
        Ok(Rows { reader, address: self.link.address.clone(), answered: false, ended: false })
    }

    /// Stages a file that was hashed before ([`blob::hash_file`]).
    ///
    /// # Errors
    /// See [`blob::put_file`].
    pub async fn put_file(
        &self,
        path: &Path,
        hash: ContentHash,
        size_bytes: u64,
    ) -> Result<(), ClientError> {
        blob::put_file(&self.link.connection, path, hash, size_bytes)
            .await
            .map_err(|error| blob_failed(&self.link, error))
    }

    /// Stages content from memory.
    ///
    /// # Errors
    /// See [`blob::put`].
    pub async fn put_bytes(&self, bytes: &[u8]) -> Result<ContentHash, ClientError> {
        blob::put_bytes(&self.link.connection, bytes)
            .await
            .map_err(|error| blob_failed(&self.link, error))
    }

    /// Fetches content and checks it; returns its size.
    ///
    /// # Errors
    /// See [`blob::get`].
    pub async fn get<W: AsyncWrite + Unpin>(
        &self,
        hash: ContentHash,
        sink: W,
    ) -> Result<u64, ClientError> {
        blob::get(&self.link.connection, hash, sink)
            .await
            .map_err(|error| blob_failed(&self.link, error))
    }

    /// Fetches small content into memory.
    ///
    /// # Errors
    /// See [`blob::get`].
    pub async fn get_bytes(&self, hash: ContentHash) -> Result<Vec<u8>, ClientError> {
        let mut bytes = vec![];
        self.get(hash, &mut bytes).await?;
        Ok(bytes)
    }

    /// The connection below, for what has no method here.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Says goodbye.
    pub async fn close(self) {
        self.link.close().await;
    }
}

/// The replies to one request, until `Reply::End`.
#[derive(Debug)]
pub struct Rows {
    reader: FrameReader,
    address: String,
    answered: bool,
    ended: bool,
}

impl Rows {
    /// The next reply; `None` after the last. A `Reply::No` is the last.
    /// Dropping it half-way loses nothing.
    ///
    /// # Errors
    /// No first reply in time, a connection that ended, or a listing that was
    /// cut short.
    pub async fn next(&mut self) -> Result<Option<Reply>, ClientError> {
        if self.ended {
            return Ok(None);
        }
        let reply = self.first().await?;
        self.ended = matches!(reply, Reply::End | Reply::No { .. });
        Ok(if reply == Reply::End { None } else { Some(reply) })
    }

    async fn first(&mut self) -> Result<Reply, ClientError> {
        let reply = if self.answered {
            self.reader.expect().await
        } else {
            timeout(REPLY_TIMEOUT, self.reader.expect())
                .await
                .map_err(|_| ClientError::NoReply { address: self.address.clone() })?
        };
        self.answered = true;
        reply.map_err(|error| explain(self.address.clone(), error))
    }
}

fn failed(link: &Link, error: StreamError) -> ClientError {
    explain(link.address.clone(), error)
}

/// An ended connection is told as what it was, with its hint: mostly a refusal
/// that came after the handshake.
fn explain(address: String, error: StreamError) -> ClientError {
    if let StreamError::Ended(why) = error {
        return ConnectError::Refused { address, why }.into();
    }
    ClientError::Stream { address, why: error }
}

fn blob_failed(link: &Link, error: BlobError) -> ClientError {
    if let BlobError::Stream(error) = error {
        return failed(link, error);
    }
    ClientError::Blob(error)
}
