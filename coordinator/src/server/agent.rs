//! An agent's stream: its frames to the brain, the brain's frames to it.

use std::sync::Arc;
use std::time::Duration;

use gleaner_common::wire::{AgentFrame, close};
use gleaner_coordinator_core::Link;
use gleaner_shell::stream::{FrameReader, FrameWriter, StreamError};
use quinn::VarInt;
use tokio::time::timeout;

use super::check::{Excess, check};
use super::{Peer, Shared};
use crate::brain::{Input, LinkedPeer, Stopping};
use crate::outbox::Outbox;

/// How long a last word may take to arrive before the connection is closed.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Why an agent is heard no more.
#[derive(Debug, thiserror::Error)]
enum Unheard {
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
    let unheard = tokio::select! {
        ended = listen(&shared, &peer, link, &outbox, &mut reader) => ended.err(),
        () = speak(&peer, &outbox, writer) => None,
    };
    // The brain does not mind hearing it of a link that it closed itself.
    let _ = shared.brain.tell(Input::Unlinked(link)).await;
    let Some(unheard) = unheard else { return };
    let broken = match unheard {
        Unheard::Stream(StreamError::Frame(_)) | Unheard::Excess(_) | Unheard::NoHello => {
            close::PROTOCOL
        }
        Unheard::Finished => close::DONE,
        Unheard::Stopping(_) | Unheard::Stream(_) => {
            tracing::debug!("{} is not heard any more: {unheard}", peer.name());
            return;
        }
    };
    if broken == close::PROTOCOL {
        shared.complaints.log(format_args!("agent {} broke the protocol: {unheard}", peer.name()));
    }
    peer.connection.close(VarInt::from_u32(broken), unheard.to_string().as_bytes());
}

async fn listen(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    link: Link,
    outbox: &Outbox,
    reader: &mut FrameReader,
) -> Result<(), Unheard> {
    // Boxed: there are ten thousand of these, and most wait here.
    let hello: Box<AgentFrame> = reader.expect().await?;
    if !matches!(*hello, AgentFrame::Hello { .. }) {
        return Err(Unheard::NoHello);
    }
    check(&hello)?;
    let linked = LinkedPeer { outbox: outbox.clone(), connection: peer.connection.clone() };
    shared.brain.tell(Input::Linked { link, peer: linked, hello }).await?;
    while let Some(frame) = reader.next::<Box<AgentFrame>>().await? {
        check(&frame)?;
        // Not for the brain, which would have it wait for the disk.
        if let AgentFrame::Relay { to, bytes } = *frame {
            shared.agents.relay(link.workstation, to, bytes);
            continue;
        }
        shared.brain.tell(Input::Heard { from: link, frame }).await?;
    }
    Err(Unheard::Finished)
}

/// Returns when the brain has closed the outbox and its last word has arrived,
/// or the connection has ended.
async fn speak(peer: &Arc<Peer>, outbox: &Outbox, writer: FrameWriter) {
    let mut stream = writer.into_stream();
    let mut spare = vec![];
    while let Some(bytes) = outbox.take(spare).await {
        if stream.write_all(&bytes).await.is_err() {
            // Listening finds out why.
            return std::future::pending().await;
        }
        spare = bytes;
    }
    let _ = stream.finish();
    let _ = timeout(LAST_WORD, stream.stopped()).await;
    peer.connection.close(VarInt::from_u32(close::PROTOCOL), outbox.reason().as_bytes());
}
