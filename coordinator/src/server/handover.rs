//! An attempt on its way from one agent to another that it cannot reach: its
//! stream is passed on to the other's connection, unread.
//!
//! The promise: nothing is passed on but what the coordinator has ordered to
//! be carried from the one to the other.

use std::sync::Arc;
use std::time::Duration;

use gleaner_common::id::WorkstationId;
use gleaner_common::program::{Handover, HandoverReply};
use gleaner_common::wire::{Purpose, close};
use gleaner_shell::stream::{self, FrameReader, FrameWriter, StreamError};
use quinn::{RecvStream, SendStream};
use tokio::time::timeout;

use super::splice::splice;
use super::{Peer, Shared};

/// How long the other agent may take to take one more stream.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn serve(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    (to, what): (WorkstationId, Box<Handover>),
    mut writer: FrameWriter,
    mut reader: FrameReader,
) {
    match open(&shared, &peer, to, what).await {
        Ok(streams) => splice((writer, reader), streams, close::NO_AGENT).await,
        Err(reason) => {
            tracing::debug!("{} cannot hand over: {reason}", peer.name());
            // It reads the answer, or finds its stream stopped.
            if writer.send(&HandoverReply::No { reason }).await.is_ok() {
                writer.finish();
            }
            reader.stop(close::NO_AGENT);
        }
    }
}

async fn open(
    shared: &Arc<Shared>,
    peer: &Peer,
    to: WorkstationId,
    what: Box<Handover>,
) -> Result<(SendStream, RecvStream), String> {
    let name = shared.workstation_name(to);
    let (from, asked) = (peer.identity.workstation, what.clone());
    let look = |from| shared.brain.look(move |core, _| core.carries(from, to, &asked));
    let is_ordered = match from {
        Some(from) => look(from).await.map_err(|stopping| stopping.to_string())?,
        None => false,
    };
    if !is_ordered {
        return Err(format!("{} is not to be carried to {name}", what.subprogram));
    }
    let Some(connection) = shared.agents.connection(to) else {
        return Err(format!("{name} is not connected to the coordinator"));
    };
    let opened = timeout(PATIENCE, async {
        let purpose = Purpose::Handover { to, what };
        let (mut writer, reader) = stream::open(&connection, purpose).await?;
        writer.flush().await?;
        Ok::<_, StreamError>((writer, reader))
    });
    match opened.await {
        Ok(Ok((writer, reader))) => Ok((writer.into_stream(), reader.into_parts().0)),
        Ok(Err(error)) => Err(format!("{name} took no stream: {error}")),
        Err(_) => Err(format!("{name} took no stream within {} s", PATIENCE.as_secs())),
    }
}
