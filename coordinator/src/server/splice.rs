//! Two streams made one: what arrives on either leaves on the other, unread.

use std::time::Duration;

use gleaner_common::wire::Purpose;
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::time::timeout;

const CHUNK_BYTES: usize = 16 << 10;

/// How long a peer may take to take one more stream.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a peer has no further stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("took no stream: {0}")]
    Stream(#[from] StreamError),
    #[error("took no stream within {} s", PATIENCE.as_secs())]
    Late,
}

/// Opens a stream to a peer, for what another peer sends.
pub(super) async fn open(
    to: &Connection,
    purpose: Purpose,
) -> Result<(SendStream, RecvStream), OpenError> {
    let opened = timeout(PATIENCE, async {
        let (mut writer, reader) = stream::open(to, purpose).await?;
        writer.flush().await?;
        Ok::<_, StreamError>((writer, reader))
    });
    let (writer, reader) = opened.await.map_err(|_| OpenError::Late)??;
    Ok((writer.into_stream(), reader.into_parts().0))
}

/// Passes bytes on both ways until both have ended. Either may end first, in
/// good order or not; the other then follows. A stream that ends otherwise is
/// given up with this code.
pub(super) async fn splice(
    (writer, reader): (FrameWriter, FrameReader),
    (to, from): (SendStream, RecvStream),
    code: u32,
) {
    let (recv, rest) = reader.into_parts();
    let send = writer.into_stream();
    let code = VarInt::from_u32(code);
    tokio::join!(Box::pin(pass(recv, to, rest, code)), Box::pin(pass(from, send, vec![], code)));
}

/// Copies until the end. An end in good order is passed on as one; anything
/// else gives up the other side, so that whoever sends tries again later.
async fn pass(mut from: RecvStream, mut to: SendStream, first: Vec<u8>, code: VarInt) {
    if to.write_all(&first).await.is_err() {
        let _ = from.stop(code);
        return;
    }
    drop(first);
    loop {
        let read = tokio::select! {
            read = from.read_chunk(CHUNK_BYTES, true) => read,
            // The reader of this direction is gone: the writer should know.
            _ = to.stopped() => {
                let _ = from.stop(code);
                return;
            }
        };
        match read {
            Ok(Some(chunk)) => {
                if to.write_all(&chunk.bytes).await.is_err() {
                    let _ = from.stop(code);
                    return;
                }
            }
            Ok(None) => {
                let _ = to.finish();
                return;
            }
            Err(_) => {
                let _ = to.reset(code);
                return;
            }
        }
    }
}
