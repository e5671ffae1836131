//! Two streams made one: what arrives on either leaves on the other, unread.

use gleaner_shell::stream::{FrameReader, FrameWriter};
use quinn::{RecvStream, SendStream, VarInt};

const CHUNK_BYTES: usize = 16 << 10;

/// Passes on both ways until both have ended. Either may end first, in good
/// order or not; the other then follows. What ends otherwise is given up with
/// this code.
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
