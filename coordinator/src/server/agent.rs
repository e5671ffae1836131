//! An agent's stream: its frames to the brain, the brain's frames to it.

use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::{ContentHash, Fence};
use gleaner_common::wire::{AgentFrame, AttemptEvent, Printed, close};
use gleaner_coordinator_core::{Event, Link};
use gleaner_program_core::wire::FromRank;
use gleaner_shell::stream::{FrameReader, FrameWriter, StreamError};
use quinn::VarInt;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::check::{Excess, check};
use super::{Peer, Shared, sight};
use crate::brain::{Input, LinkedPeer, Stopping};
use crate::outbox::Outbox;

/// How long the last frame may take to arrive before the connection is closed.
const LAST_FRAME: Duration = Duration::from_secs(1);

/// Why an agent's stream has ended.
#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Excess(#[from] Excess),
    #[error(transparent)]
    Stopping(#[from] Stopping),
    #[error("its first frame was not a hello")]
    NoHello,
    #[error("it finished its stream")]
    Finished,
}

pub(super) async fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    writer: FrameWriter,
    mut reader: FrameReader,
) {
    let Some(workstation) = peer.identity.workstation else {
        tracing::error!("agent {} has no workstation in the database", peer.name());
        let reason = b"no workstation belongs to this identity: enrol again";
        return peer.connection.close(VarInt::from_u32(close::FORBIDDEN), reason);
    };
    let link = Link { workstation, serial: shared.next_serial() };
    let outbox = Outbox::new();
    let error = tokio::select! {
        ended = listen(&shared, &peer, link, &outbox, &mut reader) => ended.err(),
        () = speak(&peer, &outbox, writer) => None,
    };
    // The brain ignores this for a connection that it closed itself.
    let _ = shared.brain.tell(Input::Unlinked(link)).await;
    let Some(error) = error else { return };
    let broken = match error {
        ListenError::Stream(StreamError::Frame(_))
        | ListenError::Excess(_)
        | ListenError::NoHello => close::PROTOCOL,
        ListenError::Finished => close::DONE,
        ListenError::Stopping(_) | ListenError::Stream(_) => {
            tracing::debug!("{} is not heard any more: {error}", peer.name());
            return;
        }
    };
    if broken == close::PROTOCOL {
        shared.limited_log.log(format_args!("agent {} broke the protocol: {error}", peer.name()));
    }
    peer.connection.close(VarInt::from_u32(broken), error.to_string().as_bytes());
}

async fn listen(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    link: Link,
    outbox: &Outbox,
    reader: &mut FrameReader,
) -> Result<(), ListenError> {
    // The frame is boxed: there are ten thousand of these tasks, and most wait
    // here.
    let hello: Box<AgentFrame> = reader.expect().await?;
    if !matches!(*hello, AgentFrame::Hello { .. }) {
        return Err(ListenError::NoHello);
    }
    check(&hello)?;
    let linked = LinkedPeer { outbox: outbox.clone(), connection: peer.connection.clone() };
    shared.brain.tell(Input::Linked { link, peer: linked, hello }).await?;
    while let Some(frame) = reader.next::<Box<AgentFrame>>().await? {
        check(&frame)?;
        // This frame is not for the brain, which would have it wait for the
        // disk.
        if let AgentFrame::Relay { to, bytes } = *frame {
            shared.agents.relay(link.workstation, to, bytes);
            continue;
        }
        if let Some(fence) = unstaged(shared, peer, &frame).await {
            let event = Event::Unstaged { from: link, fence };
            shared.brain.tell(Input::Fact(Box::new(event))).await?;
            continue;
        }
        shared.brain.tell(Input::Heard { from: link, frame }).await?;
    }
    Err(ListenError::Finished)
}

/// The attempt of which files are named that its agent may not name: they are
/// not here, or neither did it send them nor may it have them. To know a hash
/// is no permission, or somebody else's file would become this job's.
async fn unstaged(shared: &Arc<Shared>, peer: &Arc<Peer>, frame: &AgentFrame) -> Option<Fence> {
    let (fence, named) = named(frame).filter(|(_, named)| !named.is_empty())?;
    let (blobs, wall, looked_for) = (shared.blobs.clone(), shared.clock.wall(), named.clone());
    let all_here = spawn_blocking(move || looked_for.into_iter().all(|hash| blobs.has(hash, wall)));
    if !all_here.await.unwrap_or(true) {
        return Some(fence);
    }
    // A database that cannot be read says nothing against an agent.
    for hash in sight::not_sent(shared, peer, named).await.unwrap_or_default() {
        if !sight::may_get(shared, peer, hash).await.unwrap_or(true) {
            return Some(fence);
        }
    }
    None
}

/// What a frame says to have been staged, and for which attempt.
fn named(frame: &AgentFrame) -> Option<(Fence, Vec<ContentHash>)> {
    match frame {
        AgentFrame::Attempt(AttemptEvent::Finished(finished)) => {
            let printed = [&finished.stdout, &finished.stderr].into_iter();
            let printed = printed.filter_map(|printed| match printed {
                Printed::Staged { hash, .. } => Some(*hash),
                Printed::Inline(_) => None,
            });
            let outputs = finished.outputs.iter().map(|file| file.hash);
            Some((finished.fence, outputs.chain(printed).collect()))
        }
        AgentFrame::FromRank { fence, bytes, .. } => match postcard::from_bytes(bytes) {
            Ok(FromRank::Cut { part, .. }) => Some((*fence, vec![part])),
            _ => None,
        },
        AgentFrame::Hello { .. }
        | AgentFrame::Heartbeat { .. }
        | AgentFrame::Presence(_)
        | AgentFrame::Attempt(_)
        | AgentFrame::Leaving { .. }
        | AgentFrame::Relay { .. }
        | AgentFrame::Missing(_)
        | AgentFrame::Unready(_)
        | AgentFrame::Stopped { .. }
        | AgentFrame::Unknown(_) => None,
    }
}

/// Returns when the brain has closed the outbox and the last frame has arrived,
/// or the connection has ended.
async fn speak(peer: &Arc<Peer>, outbox: &Outbox, writer: FrameWriter) {
    let mut stream = writer.into_stream();
    let mut spare = vec![];
    while let Some(bytes) = outbox.take(spare).await {
        if stream.write_all(&bytes).await.is_err() {
            // `listen` finds out why.
            return std::future::pending().await;
        }
        spare = bytes;
    }
    let _ = stream.finish();
    let _ = timeout(LAST_FRAME, stream.stopped()).await;
    peer.connection.close(VarInt::from_u32(close::PROTOCOL), outbox.reason().as_bytes());
}
