//! Staged files: content travels by its BLAKE3 hash, outside frames.
//!
//! ```text
//! put   Opening::Put{hash, size} ─► bytes, FIN     ◄─ BlobReply
//! get   Opening::Get{hash} ─► FIN                  ◄─ BlobReply, bytes, FIN
//! ```

use std::io;
use std::path::{Path, PathBuf};

use gleaner_common::id::ContentHash;
use gleaner_common::wire::{BlobReply, Purpose};
use quinn::Connection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter};

use crate::stream::{self, StreamError};

/// Read from a file and written to the stream at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Why content did not travel. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("cannot read {}: {why}", path.display())]
    File { path: PathBuf, why: io::Error },
    #[error("cannot read what is to be sent: {why}")]
    Source { why: io::Error },
    #[error("cannot write what was received: {why}")]
    Sink { why: io::Error },
    #[error("the content changed while it was sent: {found} bytes, expected {expected}")]
    Changed { expected: u64, found: u64 },
    #[error("{hash} arrived as other content: {detail}")]
    Corrupt { hash: ContentHash, detail: String },
    /// "No" is the coordinator's answer: not there, disk full, not allowed.
    #[error("{reason}")]
    No { reason: String },
    #[error(transparent)]
    Stream(#[from] StreamError),
}

pub fn hash_bytes(bytes: &[u8]) -> ContentHash {
    ContentHash(*blake3::hash(bytes).as_bytes())
}

/// The hash and size of a file.
///
/// # Errors
/// A file that cannot be read.
pub async fn hash_file(path: &Path) -> Result<(ContentHash, u64), BlobError> {
    let failed = |why| BlobError::File { path: path.to_owned(), why };
    let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
    let (mut hasher, mut size_bytes) = (blake3::Hasher::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = file.read(&mut chunk).await.map_err(failed)?;
        if count == 0 {
            return Ok((ContentHash(*hasher.finalize().as_bytes()), size_bytes));
        }
        hasher.update(&chunk[..count]);
        size_bytes += count as u64;
    }
}

/// Sends content; it is on the coordinator's disk when this returns.
///
/// # Errors
/// A source with another size than said, or the coordinator's refusal.
pub async fn put<R: AsyncRead + Unpin>(
    connection: &Connection,
    hash: ContentHash,
    size_bytes: u64,
    mut source: R,
) -> Result<(), BlobError> {
    let (mut writer, mut reader) =
        stream::open(connection, Purpose::Put { hash, size_bytes }).await?;
    let mut found = 0;
    let mut chunk =
        vec![0; CHUNK_BYTES.min(usize::try_from(size_bytes).unwrap_or(CHUNK_BYTES) + 1)];
    loop {
        let count = source.read(&mut chunk).await.map_err(|why| BlobError::Source { why })?;
        found += count as u64;
        if count == 0 || found > size_bytes {
            break;
        }
        match writer.send_raw(&chunk[..count]).await {
            // The peer knows enough: it has the content, or wants none of it.
            Err(StreamError::Reset { .. }) => return answer(reader.expect().await?),
            other => other?,
        }
    }
    if found != size_bytes {
        writer.reset(gleaner_common::wire::close::PROTOCOL);
        return Err(BlobError::Changed { expected: size_bytes, found });
    }
    match writer.flush().await {
        Ok(()) | Err(StreamError::Reset { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    writer.finish();
    answer(reader.expect().await?)
}

/// As [`put`], from memory.
///
/// # Errors
/// The coordinator's refusal.
pub async fn put_bytes(connection: &Connection, bytes: &[u8]) -> Result<ContentHash, BlobError> {
    let hash = hash_bytes(bytes);
    put(connection, hash, bytes.len() as u64, bytes).await?;
    Ok(hash)
}

/// As [`put`], from a file that was hashed before.
///
/// # Errors
/// A file that cannot be read or has changed, or the coordinator's refusal.
pub async fn put_file(
    connection: &Connection,
    path: &Path,
    hash: ContentHash,
    size_bytes: u64,
) -> Result<(), BlobError> {
    let failed = |why| BlobError::File { path: path.to_owned(), why };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    put(connection, hash, size_bytes, file).await
}

/// Receives content and checks it; returns its size. What was written to
/// `sink` is worthless if this fails.
///
/// # Errors
/// Content that is not there, cut short, or not what its hash says; a sink
/// that takes no more.
pub async fn get<W: AsyncWrite + Unpin>(
    connection: &Connection,
    hash: ContentHash,
    sink: W,
) -> Result<u64, BlobError> {
    let corrupt = |detail: String| BlobError::Corrupt { hash, detail };
    let (mut writer, mut reader) = stream::open(connection, Purpose::Get { hash }).await?;
    writer.flush().await?;
    writer.finish();
    let size_bytes = match reader.expect().await? {
        BlobReply::Have { size_bytes } => size_bytes,
        BlobReply::No { reason } => return Err(BlobError::No { reason }),
    };
    // A file is written by a thread of its own: not for every datagram.
    let mut sink = BufWriter::with_capacity(4 * CHUNK_BYTES, sink);
    let (mut hasher, mut found) = (blake3::Hasher::new(), 0);
    while let Some(bytes) = reader.next_raw().await? {
        found += bytes.len() as u64;
        if found > size_bytes {
            return Err(corrupt(format!("more than the {size_bytes} bytes it was said to have")));
        }
        hasher.update(&bytes);
        sink.write_all(&bytes).await.map_err(|why| BlobError::Sink { why })?;
    }
    if found != size_bytes {
        return Err(corrupt(format!("{found} bytes, expected {size_bytes}")));
    }
    let actual = ContentHash(*hasher.finalize().as_bytes());
    if actual != hash {
        return Err(corrupt(format!("its hash is {actual}")));
    }
    sink.flush().await.map_err(|why| BlobError::Sink { why })?;
    Ok(size_bytes)
}

/// As [`get`], into memory: for content that is known to be small.
///
/// # Errors
/// As [`get`].
pub async fn get_bytes(connection: &Connection, hash: ContentHash) -> Result<Vec<u8>, BlobError> {
    let mut bytes = vec![];
    get(connection, hash, &mut bytes).await?;
    Ok(bytes)
}

fn answer(reply: BlobReply) -> Result<(), BlobError> {
    match reply {
        BlobReply::Have { .. } => Ok(()),
        BlobReply::No { reason } => Err(BlobError::No { reason }),
    }
}
