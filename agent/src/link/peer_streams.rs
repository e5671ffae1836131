//! Packets of ranks straight to other agents: one stream each way, as long as
//! its connection lasts. What it is about, the router decides.

use bytes::Bytes;
use gleaner_common::frame::FrameError;
use gleaner_common::wire::Purpose;
use gleaner_program_core::wire::Between;
use gleaner_shell::stream::{FrameReader, StreamError};
use quinn::SendStream;
use tokio::sync::mpsc::UnboundedReceiver;

use super::peers::{Peers, ReachError};
use crate::messages::{Intake, Peer, PeerStream, RouterCommand, RouterHandle, Waiting, Wanted};

/// Before images of guests that go the same way.
const PRIORITY: i32 = 1;

/// How many pieces are taken up with one write.
const PIECES_MAX: usize = 1_024;

/// As many datagrams' bytes are taken in at once: a few pieces.
const CHUNKS: usize = 64;

#[derive(Debug, thiserror::Error)]
enum PeerStreamError {
    #[error(transparent)]
    Reach(#[from] ReachError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the other side reads no more")]
    Ended,
}

/// Opens a way that the router wants, and keeps it open.
pub(super) async fn open(wanted: Wanted, peers: Peers, router: RouterHandle) {
    if let Err(error) = keep_open(&wanted, &peers, &router).await {
        tracing::debug!(name = wanted.name, %error, "no direct way for messages");
    }
    router.deliver(RouterCommand::PeerStreamLost(wanted.at));
}

async fn keep_open(
    wanted: &Wanted,
    peers: &Peers,
    router: &RouterHandle,
) -> Result<(), PeerStreamError> {
    let opened = peers.open(&wanted.name, &wanted.addresses, Purpose::Packets).await;
    let (mut writer, _) = opened?;
    writer.flush().await?;
    let sending = writer.into_stream();
    let _ = sending.set_priority(PRIORITY);
    let (way, pieces, waiting) = PeerStream::new();
    router.deliver(RouterCommand::PeerStreamOpened { at: wanted.at, way });
    let stopped = sending.stopped();
    tokio::select! {
        // This ends when the connection is lost, even while nothing is to be said.
        _ = stopped => Err(PeerStreamError::Ended),
        written = write(sending, pieces, waiting) => Ok(written?),
    }
}

/// Writes what the router gives, without a copy.
async fn write(
    mut stream: SendStream,
    mut pieces: UnboundedReceiver<Vec<Bytes>>,
    waiting: Waiting,
) -> Result<(), StreamError> {
    while let Some(mut batch) = pieces.recv().await {
        while batch.len() < PIECES_MAX
            && let Ok(mut more) = pieces.try_recv()
        {
            batch.append(&mut more);
        }
        let bytes = batch.iter().map(Bytes::len).sum();
        let written = stream.write_all_chunks(&mut batch).await;
        waiting.take_off(bytes);
        written?;
    }
    Ok(())
}

/// Reads packets that another agent sends, until it ends.
pub(super) async fn take(from: String, reader: FrameReader, router: RouterHandle) {
    match read(&from, reader, &router).await {
        Ok(()) => {}
        Err(error) => tracing::debug!(from, %error, "a direct way for messages has ended"),
    }
}

#[derive(Debug, thiserror::Error)]
enum TakeError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Framing(#[from] FrameError),
}

async fn read(from: &str, reader: FrameReader, router: &RouterHandle) -> Result<(), TakeError> {
    let from = Peer::Direct(from.into());
    let (mut stream, rest) = reader.into_parts();
    let mut frames = Intake::default();
    let slabs = |head: &Between<u64>| match head {
        Between::Packet(packet) => router.slabs(packet.job),
        Between::Begun(_) => None,
    };
    let mut chunks = vec![Bytes::new(); CHUNKS];
    let mut count = 1;
    chunks[0] = rest.into();
    loop {
        let mut batch: Vec<Between> = vec![];
        for chunk in &mut chunks[..count] {
            frames.push(&std::mem::take(chunk));
            while let Some(frame) = frames.next_frame(slabs)? {
                batch.push(frame);
            }
        }
        if !batch.is_empty() {
            router.deliver(RouterCommand::Packets { from: from.clone(), frames: batch });
        }
        count = match stream.read_chunks(&mut chunks).await.map_err(StreamError::from)? {
            Some(count) => count,
            None => return frames.cut_off().map_or(Ok(()), |error| Err(error.into())),
        };
    }
}
