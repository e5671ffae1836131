//! Staging and fetching files. The disk is left to threads that may wait for
//! it; at most one piece of a file is in memory.

use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::ContentHash;
use gleaner_common::wire::{BlobReply, Role, close};
use gleaner_shell::stream::{FrameReader, FrameWriter, StreamError};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::request::{Refusal, refuse_without_disk};
use super::{Peer, Shared, sight};
use crate::blobs::{Arriving, GetBlobError, PutBlobError, read_piece};
use crate::staging_room::RoomTaken;
use crate::store::Write;

const PIECE_BYTES: usize = 256 << 10;

/// An upload of which nothing comes for so long is given up.
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// Why a file did not arrive.
#[derive(Debug, thiserror::Error)]
enum ReceiveError {
    #[error(transparent)]
    Blob(#[from] PutBlobError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Room(#[from] RoomTaken),
    #[error("nothing of the file came for {} s", STALLED_AFTER.as_secs())]
    Stalled,
    #[error("the coordinator is stopping")]
    Stopping,
}

pub(super) async fn put(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    (hash, size_bytes): (ContentHash, u64),
    mut writer: FrameWriter,
    mut reader: FrameReader,
) {
    let reply = match receive(&shared, &peer, (hash, size_bytes), &mut reader).await {
        Ok(size_bytes) => match remember(&shared, &peer, hash).await {
            Ok(()) => BlobReply::Have { size_bytes },
            Err(error) => BlobReply::No { reason: error.to_string() },
        },
        Err(ReceiveError::Stream(_)) => return, // The peer gave up: there is nobody to tell.
        Err(error) => {
            shared.limited_log.log(format_args!("{} could not stage {hash}: {error}", peer.name()));
            reader.stop(close::PROTOCOL);
            BlobReply::No { reason: error.to_string() }
        }
    };
    if writer.send(&reply).await.is_ok() {
        writer.finish();
    }
}

/// The peer has had this file in hand, and may name it from now on. Admins may
/// name any.
async fn remember(shared: &Arc<Shared>, peer: &Peer, hash: ContentHash) -> Result<(), Refusal> {
    if peer.identity.role == Role::Admin {
        return Ok(());
    }
    refuse_without_disk(shared)?;
    let (sender, at) = (sight::sender(peer), shared.clock.wall());
    Ok(shared.brain.write(vec![Write::Uploaded { sender, hash, at }]).await?)
}

async fn receive(
    shared: &Arc<Shared>,
    peer: &Peer,
    (hash, size_bytes): (ContentHash, u64),
    reader: &mut FrameReader,
) -> Result<u64, ReceiveError> {
    // What agents stage is what others' guests have left.
    let take = |piece: &Vec<u8>| match peer.identity.role {
        Role::User => shared.staging_room.take(shared.clock.now(), peer.name(), piece.len() as u64),
        Role::Agent | Role::Admin | Role::Collector => Ok(()),
    };
    // A small file takes one blocking call, a large one a call per piece.
    let (mut first, mut at_end) = read_up_to(reader, PIECE_BYTES).await?;
    take(&first)?;
    let (blobs, wall) = (shared.blobs.clone(), shared.clock.wall());
    if at_end {
        return blocking(move || {
            let mut arriving = blobs.put(hash, size_bytes)?;
            arriving.write(&first)?;
            arriving.finish(wall)
        })
        .await;
    }
    let mut arriving: Arriving = blocking(move || blobs.put(hash, size_bytes)).await?;
    loop {
        arriving = blocking(move || {
            arriving.write(&first)?;
            Ok(arriving)
        })
        .await?;
        if at_end {
            return blocking(move || arriving.finish(wall)).await;
        }
        (first, at_end) = read_up_to(reader, PIECE_BYTES).await?;
        take(&first)?;
    }
}

/// Reads at least so many bytes, and says whether they are the last.
async fn read_up_to(
    reader: &mut FrameReader,
    length: usize,
) -> Result<(Vec<u8>, bool), ReceiveError> {
    let mut bytes = vec![];
    while bytes.len() < length {
        let next = timeout(STALLED_AFTER, reader.next_raw()).await;
        match next.map_err(|_| ReceiveError::Stalled)?? {
            Some(more) if bytes.is_empty() => bytes = more,
            Some(more) => bytes.extend_from_slice(&more),
            None => return Ok((bytes, true)),
        }
    }
    Ok((bytes, false))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PutBlobError> + Send + 'static,
) -> Result<T, ReceiveError> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(ReceiveError::Stopping),
    }
}

pub(super) async fn get(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    hash: ContentHash,
    mut writer: FrameWriter,
) {
    let refusal = match sight::may_get(&shared, &peer, hash).await {
        Ok(true) => None,
        // A file of somebody else's is as if it were not there.
        Ok(false) => Some(GetBlobError::Unknown(hash).to_string()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(reason) = refusal {
        if writer.send(&BlobReply::No { reason }).await.is_ok() {
            writer.finish();
        }
        return;
    }
    let blobs = shared.blobs.clone();
    let opened = spawn_blocking(move || {
        let (mut file, size) = blobs.get(hash)?;
        let piece = read_first(&mut file, size).map_err(|why| GetBlobError::Io { hash, why })?;
        Ok::<_, GetBlobError>((file, size, piece))
    });
    let Ok(opened) = opened.await else { return };
    let (mut file, size, mut piece) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            if writer.send(&BlobReply::No { reason: error.to_string() }).await.is_ok() {
                writer.finish();
            }
            return;
        }
    };
    if writer.queue(&BlobReply::Have { size_bytes: size }).is_err() {
        unreachable!("a size fits in a frame");
    }
    let mut sent = 0;
    loop {
        if writer.send_raw(&piece).await.is_err() {
            return;
        }
        sent += piece.len() as u64;
        if sent >= size {
            return writer.finish();
        }
        let length = piece_length(size - sent);
        let read = spawn_blocking(move || {
            let piece = read_piece(&mut file, sent, length);
            (file, piece)
        });
        let Ok((same, next)) = read.await else { return };
        file = same;
        match next {
            Ok(next) => piece = next,
            Err(error) => {
                tracing::error!("the staged file {hash} cannot be read: {error}");
                return writer.reset(close::PROTOCOL);
            }
        }
    }
}

fn read_first(file: &mut std::fs::File, size: u64) -> std::io::Result<Vec<u8>> {
    read_piece(file, 0, piece_length(size))
}

fn piece_length(left: u64) -> usize {
    usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES))
}
